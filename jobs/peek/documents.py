"""Which documents are shown: a keyed sample of the ledger's rows, with their texts and the ones kept in their place."""

import difflib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs import ledger, trace
from jobs.config import Config
from jobs.errors import UserError
from jobs.peek.reasons import reason
from jobs.runtime import checkpoint, folders
from jobs.runtime.checkpoint import MANIFEST
from kernels import permutation, shingles

GROUPS = ("kept", "dropped")
KEPT = (ledger.TRAIN, ledger.VALIDATION)


@dataclass(frozen=True)
class Wanted:
    """What is asked for; None where anything will do."""

    fate: str | None = None
    source: str | None = None
    id: str | None = None
    n: int = 5
    seed: int = 0


@dataclass(frozen=True)
class Document:
    """A document to be shown.

    Attributes
    ----------
    row
        Of the ledger, by column.
    why
        Why it was kept or dropped.
    text
        As far as the step that dropped it; None where it has none, or none can be read.
    kept
        The row of the document that was kept in its place, and its text.
    similarity
        Exact Jaccard similarity of the shingles of the two.
    """

    row: dict[str, Any]
    why: str
    text: str | None = None
    kept: tuple[dict[str, Any], str] | None = None
    similarity: float | None = None


def chosen(out: Path, wanted: Wanted) -> list[dict[str, Any]]:
    """Rows of the ledger, those with the smallest keyed hashes first.

    Raises
    ------
    UserError
        The run is not finished, or has no such fate, source or document.
    """
    condition = _condition(out, trace.configuration(out), wanted)
    key = permutation.key("peek", wanted.seed)
    with ThreadPoolExecutor() as threads:  # reading and filtering are Arrow's work
        of_each = threads.map(lambda path: _smallest(path, condition, key, wanted.n), ledger.files(out))
        smallest = np.concatenate(list(of_each))
    best = smallest[np.argsort(permutation.keyed_hash(smallest, key), kind="stable")[: wanted.n]]
    rows = rows_of(out, best)
    if not rows:
        asked = [f"--{name} {value}" for name in ("fate", "source", "id") if (value := getattr(wanted, name))]
        raise UserError(
            f"no document of {out} has {' and '.join(asked)}" if asked else f"{out} has no document"
        )
    return [rows[doc_id] for doc_id in best.tolist()]


def _smallest(path: Path, condition: pc.Expression | None, key: int, n: int) -> np.ndarray:
    doc_ids = folders.read_table(path, columns=["doc_id"], filters=condition)["doc_id"].to_numpy()
    return doc_ids[np.argsort(permutation.keyed_hash(doc_ids, key), kind="stable")[:n]]


def rows_of(out: Path, doc_ids: np.ndarray) -> dict[int, dict[str, Any]]:
    """Whole rows of the ledger by doc_id."""
    condition = pc.field("doc_id").isin(pa.array(np.unique(doc_ids), pa.uint64()))
    with ThreadPoolExecutor() as threads:
        tables = threads.map(lambda path: folders.read_table(path, filters=condition), ledger.files(out))
        return {row["doc_id"]: row for table in tables for row in table.to_pylist()}


def _condition(out: Path, config: Config, wanted: Wanted) -> pc.Expression | None:
    parts = []
    if wanted.n < 1:
        raise UserError(f"-n is {wanted.n}; it should be 1 or more")
    if wanted.fate is not None:
        parts.append(pc.field("fate").isin(fates_like(out, wanted.fate)))
    if wanted.source is not None:
        names = [source.name for source in config.sources]
        if wanted.source not in names:
            raise UserError(f"--source is {wanted.source!r}; {out} has {', '.join(names)}")
        parts.append(pc.field("source") == wanted.source)
    if wanted.id is not None:
        parts.append(_known_as(wanted.id))
    condition = None
    for part in parts:
        condition = part if condition is None else condition & part
    return condition


def _known_as(name: str) -> pc.Expression:
    known = (pc.field("id") == name) | (pc.field("url") == name)
    if name.isdigit() and int(name) < 2**64:
        known |= pc.field("doc_id") == pa.scalar(int(name), pa.uint64())
    return known


def fates_like(out: Path, fate: str) -> list[str]:
    """The fates of a run that are this one, or begin with this step.

    Raises
    ------
    UserError
        There is none.
    """
    fates = list(checkpoint.read_json(out / "ledger" / MANIFEST)["figures"]["fates"])
    if fate in GROUPS:
        return [one for one in fates if (one in KEPT) == (fate == "kept")]
    found = [one for one in fates if one == fate or one.startswith(f"{fate}.")]
    if not found:
        near = difflib.get_close_matches(fate, [*fates, *GROUPS], n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UserError(f"--fate is {fate!r}; {hint}{out} has {', '.join(fates)}")
    return found


# ---------------------------------------------------------------- texts


def with_texts(out: Path, rows: Sequence[dict[str, Any]], warn: Callable[[str], None]) -> Iterator[Document]:
    """The documents with reasons and texts; what can no longer be read is said once, and shown without text."""
    config = trace.configuration(out)
    shards = _shards(out)
    texts, kept_rows = _Texts(warn), _kept_rows(out, rows)
    for row in rows:
        text = texts.of(out, row)
        place, kept = kept_rows.get(row["doc_id"], (out, None))
        kept_text = texts.of(place, kept) if kept else None
        why = reason(row, config, kept, shards)
        if kept is None or text is None or kept_text is None:
            yield Document(row, why, text)
        else:
            both = [shingles.shingles(one, config.near_duplicates.ngram) for one in (text, kept_text)]
            yield Document(row, why, text, (kept, kept_text), shingles.jaccard(*both))


def _kept_rows(out: Path, rows: Sequence[dict[str, Any]]) -> dict[int, tuple[Path, dict[str, Any]]]:
    """Of each duplicate by doc_id: what was kept in its place, and the output, this or an earlier one, that has it."""
    replaced = [row for row in rows if row["fate"] in ledger.DUPLICATES and row["kept_by"] is not None]
    found: dict[int, tuple[Path, dict[str, Any]]] = {}
    for name in sorted({row.get(ledger.KEPT_IN) or "" for row in replaced}):
        here = [row for row in replaced if (row.get(ledger.KEPT_IN) or "") == name]
        place = folders.reached(name) if name else out
        kept = rows_of(place, np.array([row["kept_by"] for row in here], np.uint64))
        found |= {row["doc_id"]: (place, kept[row["kept_by"]]) for row in here if row["kept_by"] in kept}
    return found


def _shards(out: Path) -> dict[str, list[str]]:
    """Names of the shards of each split, in order."""
    shards: dict[str, list[str]] = {}
    for split, name, _ in checkpoint.read_json(out / "shards" / MANIFEST)["figures"]["shards"]:
        shards.setdefault(split, []).append(name)
    return shards


class _Texts:
    """Texts of the ledgers' documents from their sources."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self.warn = warn
        self.read: dict[Path, Callable[[str, str, list[int]], list[str | None]]] = {}
        self.gone: set[str] = set()

    def of(self, out: Path, row: dict[str, Any]) -> str | None:
        try:
            if out not in self.read:
                self.read[out] = trace.source_texts(out)
            (text,) = self.read[out](row["source"], row["path"], [row["record"]])
        except (UserError, OSError) as error:
            if row["source"] not in self.gone:
                self.gone.add(row["source"])
                self.warn(
                    f"source {row['source']!r} can no longer be read, so texts of it are not shown: {error}"
                )
            return None
        return text
