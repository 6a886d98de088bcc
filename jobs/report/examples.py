"""Documents to look at: some of each fate, with the beginning of their text, and pairs with their differences."""

import difflib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from jobs import ledger
from jobs.runtime.compute import columns
from kernels import permutation

EXCERPT = 600  # characters
PAIR_WORDS = 160  # of each document of a pair
SAMPLED = columns(
    fate="string",
    doc_id="uint64",
    kept_by="uint64",  # 0: none
    source="string",
    path="string",
    record="int64",
    url="string",
    n_bytes="int64",
)
COLUMNS = list(SAMPLED)

Texts = Callable[[str, str, list[int]], list[str | None]]


class Piece(NamedTuple):
    """Words of a pair's document, and whether the other has them in this place too."""

    text: str
    shared: bool


def sampled(frame: pd.DataFrame, of_each: int) -> pd.DataFrame:
    """The documents of each fate with the smallest keyed hashes, of a ledger file or of what several gave."""
    rows = pd.DataFrame(
        {
            "fate": frame["fate"].astype("string"),
            "doc_id": frame["doc_id"].to_numpy(np.uint64),
            "kept_by": frame["kept_by"].to_numpy(np.uint64, na_value=0),
            "source": frame["source"].astype("string"),
            "path": frame["path"].astype("string"),
            "record": frame["record"].to_numpy(np.int64),
            "url": frame["url"].astype("string"),
            "n_bytes": frame["n_bytes"].to_numpy(np.int64, na_value=0),
        }
    ).astype(SAMPLED.dtypes)
    hashes = permutation.keyed_hash(rows["doc_id"].to_numpy(), permutation.key("report-examples", 0))
    ordered = rows.assign(hash=hashes).sort_values(["fate", "hash"])
    return ordered.groupby("fate", sort=True).head(of_each).drop(columns="hash").reset_index(drop=True)


def with_excerpts(rows: pd.DataFrame, texts: Texts) -> dict[str, list[dict[str, Any]]]:
    """Fate -> its documents, each with the beginning of its text; None where it never had one."""
    found = read_texts(((r.source, r.path, r.record) for r in rows.itertuples()), texts)
    examples: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows.to_dict("records"):
        text = found[row["source"], row["path"], row["record"]]
        row["excerpt"] = text and excerpt(text)
        row["url"] = None if pd.isna(row["url"]) else row["url"]
        examples[row["fate"]].append(row)
    return dict(examples)


def read_texts(
    places: Iterable[tuple[str, str, int]], texts: Texts
) -> dict[tuple[str, str, int], str | None]:
    """The texts at some places, each file asked once."""
    records: dict[tuple[str, str], list[int]] = defaultdict(list)
    for source, path, record in sorted(set(places)):
        records[source, path].append(record)
    return {
        (source, path, record): text
        for (source, path), wanted in records.items()
        for record, text in zip(wanted, texts(source, path, wanted), strict=True)
    }


def excerpt(text: str, most: int = EXCERPT) -> str:
    """The beginning of a text, cut between words."""
    if len(text) <= most:
        return text
    return text[:most].rsplit(maxsplit=1)[0] + " …"


def differences(removed: str, kept: str) -> tuple[list[Piece], list[Piece]]:
    """The beginnings of a pair's texts, cut where they begin and cease to differ."""
    a, b = (text.split()[:PAIR_WORDS] for text in (removed, kept))
    left, right = list[Piece](), list[Piece]()
    for change, i, j, k, m in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        left += _piece(a[i:j], change == "equal")
        right += _piece(b[k:m], change == "equal")
    return left, right


def _piece(words: Sequence[str], shared: bool) -> list[Piece]:
    return [Piece(" ".join(words), shared)] if words else []


def in_order(examples: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Fates in the order of the steps, those that were kept last."""
    kept = [fate for fate in (ledger.TRAIN, ledger.VALIDATION) if fate in examples]
    dropped = sorted(set(examples) - set(kept), key=lambda f: (ledger.STEPS.index(f.partition(".")[0]), f))
    return {fate: examples[fate] for fate in (*dropped, *kept)}
