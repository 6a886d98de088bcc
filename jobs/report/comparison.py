"""What a changed setting did: two finished runs beside each other, their documents joined by doc_id.

The ledgers are joined with Dask, a partition at a time, from three columns of each; only counts and a sample leave the
workers. The texts of the sample are read from the sources.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from jobs import ledger, report, run, trace
from jobs.config import Config
from jobs.report.again import readable
from jobs.report.examples import excerpt, read_texts
from jobs.runtime import checkpoint, folders
from jobs.runtime.checkpoint import MANIFEST
from jobs.runtime.compute import Named, columns, gather
from jobs.runtime.console import Console, Meter
from kernels import permutation

if TYPE_CHECKING:
    from distributed import Client

FILE = "compare.json"
ABSENT = "(not in it)"  # the fate of a document that the other run alone has
KEPT = (ledger.TRAIN, ledger.VALIDATION)
DOCUMENT = ["doc_id", "source", "path", "record", "url", "n_bytes", "kept_by"]

FATES = columns(
    doc_id="uint64",
    fate="int32",  # place in a list of all fates
    n_tokens="int64",
)
# Of a partition of the join: a row for each pair of fates, and one for each document of the sample.
MOVES = columns(
    fate_a="int32",  # -1: not in it
    fate_b="int32",
    doc_id="uint64",  # 0: counts
    documents="int64",
    tokens_a="int64",
    tokens_b="int64",
)
_MOVE = ["fate_a", "fate_b"]
_COUNTS = ["documents", "tokens_a", "tokens_b"]


@dataclass(frozen=True)
class Finished:
    """A finished run, as the user names it."""

    out: Path
    name: str
    config: Config
    content: dict[str, Any]  # of report.json
    fates: tuple[str, ...]


def finished(out: Path, name: str) -> Finished:
    """Open a finished run.

    Raises
    ------
    UserError
        It is not finished.
    """
    config = trace.configuration(out)
    fates = checkpoint.read_json(out / "ledger" / MANIFEST)["figures"]["fates"]
    return Finished(out, name, config, report.read(out), tuple(fates))


# ---------------------------------------------------------------- partition functions


def coded(frame: pd.DataFrame, fates: Sequence[str]) -> pd.DataFrame:
    """Identity, fate and tokens of the documents of a ledger file."""
    codes = {fate: code for code, fate in enumerate(fates)}
    return pd.DataFrame(
        {
            "doc_id": frame["doc_id"].to_numpy(np.uint64),
            "fate": frame["fate"].astype("string").map(codes).to_numpy(np.int32),
            "n_tokens": frame["n_tokens"].to_numpy(np.int64),
        }
    )


def moves(joined: pd.DataFrame, samples: int) -> pd.DataFrame:
    """Counts of documents by their two fates, and the ones with the smallest keyed hashes of those that changed."""
    rows = pd.DataFrame(
        {
            "fate_a": joined["fate_a"].fillna(-1).to_numpy(np.int32),
            "fate_b": joined["fate_b"].fillna(-1).to_numpy(np.int32),
            "doc_id": joined["doc_id"].to_numpy(np.uint64),
            "documents": 1,
            "tokens_a": joined["n_tokens_a"].fillna(0).to_numpy(np.int64),
            "tokens_b": joined["n_tokens_b"].fillna(0).to_numpy(np.int64),
        }
    )
    counts = rows.groupby(_MOVE, as_index=False)[_COUNTS].sum().assign(doc_id=np.uint64(0))
    changed = rows[rows["fate_a"] != rows["fate_b"]].assign(documents=0, tokens_a=0, tokens_b=0)
    return pd.concat([counts, _smallest(changed, samples)])[list(MOVES)].astype(MOVES.dtypes)


def _smallest(rows: pd.DataFrame, of_each: int) -> pd.DataFrame:
    """Of each pair of fates, the documents with the smallest keyed hashes."""
    doc_ids = rows["doc_id"].to_numpy(np.uint64)
    ordered = rows.assign(hash=permutation.keyed_hash(doc_ids, permutation.key("compare", 0)))
    ordered = ordered.sort_values([*_MOVE, "hash"], kind="stable")
    return ordered.groupby(_MOVE).head(of_each).drop(columns="hash")


# ---------------------------------------------------------------- the comparison


def compare(a: Finished, b: Finished, samples: int, client: "Client", console: Console) -> dict[str, Any]:
    """Figures of two runs beside each other.

    Parameters
    ----------
    a, b
        The runs.
    samples
        Documents of each pair of fates that are described.
    client
        Of the cluster that joins the ledgers.
    console
        Shows how far it is.

    Returns
    -------
    dict
        JSON: `names`, `settings` that differ, `fates`, `sources`, and `moves` from one fate to another, each with
        documents.
    """
    fates = in_order({*a.fates, *b.fates})
    sides = [
        ledger.read(one.out, list(FATES)).map_partitions(coded, fates=fates, meta=FATES) for one in (a, b)
    ]
    joined = sides[0].merge(sides[1], on="doc_id", how="outer", suffixes=("_a", "_b"))
    graph = joined.map_partitions(Named("compare fates", moves), samples=samples, meta=MOVES)
    files = [len(ledger.files(one.out)) for one in (a, b)]
    with console.job("compare", graph.npartitions + sum(files), "partitions") as meter:
        found = gather(client, graph, meter, counted=())
        counts = found[found["documents"] > 0].groupby(_MOVE, as_index=False)[_COUNTS].sum()
        chosen = _smallest(found[found["documents"] == 0], samples)
        rows = [_rows(one.out, chosen["doc_id"].to_numpy(np.uint64), client, meter) for one in (a, b)]
    return {
        "names": [a.name, b.name],
        "settings": settings_that_differ(a.config, b.config),
        "fates": _beside(a, b, fates),
        "sources": _by_source(a, b),
        "moves": _described(counts, chosen, fates, rows),
    }


def in_order(fates: Iterable[str]) -> list[str]:
    """Fates in the order of the steps, those that were kept last."""
    dropped = sorted(
        set(fates) - set(KEPT), key=lambda fate: (ledger.STEPS.index(fate.partition(".")[0]), fate)
    )
    return [*dropped, *(fate for fate in KEPT if fate in set(fates))]


def settings_that_differ(a: Config, b: Config) -> list[dict[str, Any]]:
    """Each setting that is not the same, with both values; None where only the other run has it."""
    was, is_now = (_flat(_by_name(run.said_once(config))) for config in (a, b))
    return [
        {"setting": key, "a": was.get(key), "b": is_now.get(key)}
        for key in dict.fromkeys([*was, *is_now])
        if was.get(key) != is_now.get(key)
    ]


def _by_name(value: Any) -> Any:
    """Lists of sections with names as mappings by these, so that one more source moves no other."""
    if isinstance(value, dict):
        return {key: _by_name(one) for key, one in value.items()}
    if isinstance(value, list) and value and all(isinstance(one, dict) and "name" in one for one in value):
        return {one["name"]: _by_name(one) for one in value}
    return value


def _flat(section: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in section.items():
        flat |= (
            _flat(value, f"{prefix}{name}.") if isinstance(value, dict) and value else {prefix + name: value}
        )
    return flat


def _beside(a: Finished, b: Finished, fates: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of both funnels, the one beside the other."""
    rows = [{row["step"]: row for row in one.content["funnel"]} for one in (a, b)]
    nothing = {"documents": 0, "bytes": 0, "tokens": 0}
    steps = ["read", *(fate for fate in fates if fate not in KEPT), "kept", *(f for f in fates if f in KEPT)]
    return [
        {
            "step": step,
            **{
                side: {name: of_side.get(step, nothing)[name] for name in nothing}
                for side, of_side in zip("ab", rows, strict=True)
            },
        }
        for step in steps
    ]


def _by_source(a: Finished, b: Finished) -> list[dict[str, Any]]:
    crawls = [pd.DataFrame(one.content["crawls"], columns=["source", "documents", "kept"]) for one in (a, b)]
    both = pd.concat([of_side.groupby("source").sum() for of_side in crawls], axis=1, keys=["a", "b"])
    return [
        {
            "source": str(source),
            **{side: {name: int(row[side, name]) for name in ("documents", "kept")} for side in "ab"},
        }
        for source, row in both.fillna(0).sort_index().iterrows()
    ]


# ---------------------------------------------------------------- the documents


def _described(
    counts: pd.DataFrame,
    chosen: pd.DataFrame,
    fates: Sequence[str],
    rows_of: Sequence[dict[int, dict[str, Any]]],
) -> list[dict[str, Any]]:
    """Pairs of fates in the order of the steps; of those that changed, some documents."""
    names = dict(enumerate(fates)) | {-1: ABSENT}
    moved = []
    for count in counts.sort_values(_MOVE).to_dict("records"):
        pair = (chosen["fate_a"] == count["fate_a"]) & (chosen["fate_b"] == count["fate_b"])
        moved.append(
            {
                "from": names[count["fate_a"]],
                "to": names[count["fate_b"]],
                **{name: int(count[name]) for name in _COUNTS},
                "examples": [
                    _document(*(rows.get(int(doc_id)) for rows in rows_of))
                    for doc_id in chosen.loc[pair, "doc_id"]
                ],
            }
        )
    return moved


def documents(path: Path, doc_ids: np.ndarray) -> pd.DataFrame:
    """Some documents of a ledger file, a row each as JSON: integers beyond 2**53 keep their bits, null stays null."""
    wanted = pc.field("doc_id").isin(pa.array(doc_ids))
    rows = folders.read_table(path, columns=DOCUMENT, filters=wanted).to_pylist()
    return pd.DataFrame({"row": [json.dumps(row) for row in rows]}, dtype="string")


def _rows(out: Path, doc_ids: np.ndarray, client: "Client", meter: Meter) -> dict[int, dict[str, Any]]:
    """Rows of the ledger by doc_id."""
    import dask.dataframe as dd

    files = ledger.files(out)
    graph = dd.from_map(documents, files, doc_ids=np.unique(doc_ids), meta=columns(row="string"))
    found = map(json.loads, gather(client, graph, meter, counted=())["row"])
    return {row["doc_id"]: row for row in found}


def _document(in_a: dict[str, Any] | None, in_b: dict[str, Any] | None) -> dict[str, Any]:
    row = dict(in_b or in_a or {})
    del row["kept_by"]
    return row | {"kept_by_a": _other(in_a), "kept_by_b": _other(in_b)}


def _other(row: dict[str, Any] | None) -> int | None:
    """The document that is kept in the place of this one, if that is another."""
    return row["kept_by"] if row and row["kept_by"] != row["doc_id"] else None


def examples(
    found: dict[str, Any], a: Finished, b: Finished, texts: bool = True
) -> dict[str, list[dict[str, Any]]]:
    """The documents of `compare` as a page shows them, by what happened to them, with the beginnings of their texts.

    Raises
    ------
    UserError
        A source can no longer be read.
    """
    shown: dict[str, list[dict[str, Any]]] = {}
    for move in found["moves"]:
        of_run = a if move["to"] == ABSENT else b
        places = [(one["source"], one["path"], one["record"]) for one in move["examples"]]
        text_at = read_texts(places, readable(trace.source_texts(of_run.out))) if texts else {}
        for one, place in zip(move["examples"], places, strict=True):
            text = text_at.get(place)
            shown.setdefault(_title(move), []).append(
                one | {"kept_by": one["kept_by_b"] or one["kept_by_a"], "excerpt": text and excerpt(text)}
            )
    return shown


def _title(move: dict[str, Any]) -> str:
    return f"{move['from']} → {move['to']}: {move['documents']:,}"
