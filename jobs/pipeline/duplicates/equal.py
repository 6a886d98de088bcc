"""Documents whose hashes are equal: shuffled by the hash, one kept of each in its scope.

Per partition only the best document of each hash, source and crawl goes into the shuffle, and an edge to it for the
others. So what each scope would remove is counted on the way, and the largest bucket is bounded by the numbers of
partitions and crawls.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa

from jobs.pipeline.duplicates import dropped, keep, scope
from jobs.pipeline.duplicates.keep import Policy
from jobs.pipeline.paths import SplitPaths
from jobs.runtime import checkpoint, folders
from jobs.runtime.compute import columns, gather

if TYPE_CHECKING:
    import dask.dataframe as dd

    from jobs.runtime.context import Run

# What a row says about `node`, a doc_id.
MEMBER, DROPPED, BESIDE, REPEATED, COUNTED = range(5)
# MEMBER: it has this hash, the best of `documents` of a split that have it and are of one source and crawl.
# DROPPED: in favour of `kept_by`. BESIDE: it is protected and stays beside `kept_by`, which is kept for the others.
# REPEATED: kept, and so is another document with its hash. COUNTED: what each scope would remove.
KEYS = columns(
    high="uint64",
    low="uint64",
    source="uint64",
    crawl="uint64",
    node="uint64",
    rank="uint64",
    kept_by="uint64",
    documents="int64",
    protected="int64",  # of the documents, those that are never dropped
    kind="int8",
)
FOUND = columns(
    node="uint64",
    kept_by="uint64",
    kind="int8",
    **dict.fromkeys(scope.SCOPES, "int64"),
)


class Hashing(Protocol):
    """How documents are hashed."""

    @property
    def columns(self) -> list[str]:
        """Of the rows of a split that it reads."""
        ...

    def hashes(self, table: pa.Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Upper and lower half of the hash, uint64[d], and bool[d] the documents that have one."""
        ...


@dataclass(frozen=True)
class Step:
    """What a task needs: how to hash, among which documents, whom to keep, and the steps before."""

    hashing: Hashing
    scope: str
    policy: Policy
    earlier: tuple[Path, ...]


# ---------------------------------------------------------------- partition functions


def hash_rows(paths: SplitPaths, first_row: int, step: Step) -> pd.DataFrame:
    """The best document of each hash, source and crawl of a split, and what is dropped in favour of it."""
    wanted = {"doc_id", "fate", "source", "crawl", *step.hashing.columns, *step.policy.columns}
    table = folders.read_table(paths.rows, columns=sorted(wanted))
    high, low, hashed = step.hashing.hashes(table)
    chosen = hashed & dropped.taking_part(table, step.earlier)
    rows = pd.DataFrame(
        {
            "high": high,
            "low": low,
            "source": scope.labels(table, scope.SOURCE),
            "crawl": scope.labels(table, scope.CRAWL),
            "node": table["doc_id"].to_numpy(),
            "rank": step.policy.ranks(table, first_row),
            "protected": step.policy.protected(table),
        }
    )[chosen]
    return _reduced(rows, ["high", "low", "source", "crawl"])


def _reduced(rows: pd.DataFrame, key: list[str]) -> pd.DataFrame:
    rows, starts = _grouped(rows, key)
    group = np.cumsum(starts) - 1
    protected = rows["protected"].to_numpy()
    best = rows["node"].to_numpy()[starts][group]
    members = rows[starts].assign(
        kept_by=rows["node"].to_numpy()[starts],
        documents=np.bincount(group).astype(np.int64),
        protected=np.bincount(group, weights=protected).astype(np.int64),
        kind=MEMBER,
    )
    # Known already; spread by their own node they go along to any partition.
    others = rows.assign(high=rows["node"], low=0, kept_by=best, documents=0)
    edges = others[~starts & ~protected].assign(protected=0, kind=DROPPED)
    several = members["protected"].to_numpy()[group] > 1
    beside = others[several & protected].assign(protected=1, kind=REPEATED)
    return pd.concat([members, edges, beside], ignore_index=True)[list(KEYS)].astype(KEYS.dtypes)


def _grouped(rows: pd.DataFrame, key: list[str]) -> tuple[pd.DataFrame, np.ndarray]:
    """Rows by key, the best of each key first; and bool[n], which are the first."""
    by = [rows[name].to_numpy() for name in key]
    unprotected = rows["protected"].to_numpy() == 0
    order = np.lexsort((rows["node"].to_numpy(), rows["rank"].to_numpy(), unprotected, *by[::-1]))
    starts = np.zeros(len(rows), bool)
    starts[:1] = True
    for values in by:
        starts[1:] |= values[order][1:] != values[order][:-1]
    return rows.iloc[order], starts


def decide(rows: pd.DataFrame, within: str) -> pd.DataFrame:
    """Whom each hash of a partition keeps and drops, what stays repeated, and what each scope would remove."""
    members = rows[rows["kind"] == MEMBER]
    known = rows[rows["kind"] != MEMBER]
    ordered, starts = _grouped(members, _key(within))
    group = np.cumsum(starts) - 1
    node, protected = ordered["node"].to_numpy(), ordered["protected"].to_numpy()
    best = node[starts][group]
    behind = node != best
    kept = np.where(protected > 0, protected, ~behind)
    kind = np.where(protected > 0, BESIDE, DROPPED)
    repeated = _repeated(ordered, kept)
    counts = {name: removed(members, name) for name in scope.SCOPES}
    return pd.concat(
        [
            _found(known["node"], known["kept_by"], known["kind"]),
            _found(node[behind], best[behind], kind[behind]),
            _found(node[repeated], best[repeated], REPEATED),
            _found([0], [0], COUNTED, **counts),
        ],
        ignore_index=True,
    )


def _found(node: Any, kept_by: Any, kind: Any, **counts: int) -> pd.DataFrame:
    """Rows of FOUND; a float on the way would round doc_ids."""
    given = {"node": np.asarray(node, np.uint64), "kept_by": np.asarray(kept_by, np.uint64), "kind": kind}
    values = {**dict.fromkeys(scope.SCOPES, 0), **counts, **given}
    return pd.DataFrame({name: values[name] for name in FOUND}).astype(FOUND.dtypes)


def _repeated(members: pd.DataFrame, kept: np.ndarray) -> np.ndarray:
    """bool[n]: a document is kept of the member, and of its hash more than one in the whole corpus."""
    in_all = pd.Series(kept, index=members.index).groupby([members["high"], members["low"]]).transform("sum")
    return (kept > 0) & (in_all.to_numpy() > 1)


def removed(members: pd.DataFrame, within: str) -> int:
    """Documents that a scope would remove."""
    if members.empty:
        return 0
    totals = members.groupby(_key(within))[["documents", "protected"]].sum()
    droppable = totals["documents"] - totals["protected"]
    return int((droppable - (totals["protected"] == 0)).sum())


def _key(within: str) -> list[str]:
    return ["high", "low", *scope.columns(within)]


# ---------------------------------------------------------------- the graph


def equal(splits: list[SplitPaths], first_rows: list[int], step: Step, partitions: int) -> "dd.DataFrame":
    """Hashes → buckets → what is dropped, a Dask dataframe."""
    import dask.dataframe as dd

    keys = dd.from_map(hash_rows, splits, first_rows, step=step, meta=KEYS, label="hashes")
    return keys.shuffle("high", npartitions=partitions).map_partitions(decide, within=step.scope, meta=FOUND)


def resolved(found: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Dropped documents uint64[n], and the one kept in place of each: an edge goes to the best of a split only."""
    nodes, kept_by, kinds = (found[name].to_numpy() for name in ("node", "kept_by", "kind"))
    behind = np.isin(kinds, (DROPPED, BESIDE))
    order = np.argsort(nodes[behind])
    place = dropped.find(nodes[behind][order], kept_by)
    last = np.where(place >= 0, kept_by[behind][order][place], kept_by) if len(order) else kept_by
    gone = kinds == DROPPED
    return nodes[gone], last[gone]


# ---------------------------------------------------------------- the job


def run(
    run: "Run",
    job: checkpoint.Checkpoint,
    name: str,
    hashing: Hashing | None,
    within: str,
    earlier: list[str],
) -> dict[str, Any]:
    """Drop all but one of the documents with equal hashes; nothing where there is no hashing."""
    job.begin()
    found = FOUND
    splits = run.annotated
    if hashing is not None and splits:
        step = Step(hashing, within, keep.policy(run), tuple(run.out / other for other in earlier))
        partitions = max(1, len(splits) // 4, len(run.client.scheduler_info()["workers"]))
        graph = equal(splits, keep.first_rows(run), step, partitions)
        with run.console.job(name, partitions, "partitions", **run.totals()) as meter:
            found = gather(run.client, graph, meter, counted=())
    doc_ids, kept_by = resolved(found)
    dropped.write(job.folder, doc_ids, kept_by, found.loc[found["kind"] == REPEATED, "node"].to_numpy())
    by_scope = {name: int(found[name].sum()) for name in scope.SCOPES}
    if len(doc_ids) != by_scope[within]:
        raise RuntimeError(f"{name}: {by_scope[within]:,} documents are to be dropped, {len(doc_ids):,} are")
    return {"dropped": len(doc_ids), "removed_by_scope": by_scope}
