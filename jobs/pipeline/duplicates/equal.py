"""Documents whose hashes are equal: shuffled by the hash, one kept of each in its scope.

Per partition only the best document of each hash, source and crawl goes into the shuffle, and an edge to it for the
others. So what each scope would remove is counted on the way, and the largest bucket is bounded by the numbers of
partitions and crawls. Of earlier runs (`duplicates.against`) the same, one row for each hash that a partition kept.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa

from jobs.pipeline.duplicates import against, dropped, keep, scope
from jobs.pipeline.duplicates.keep import THIS_RUN, Policy
from jobs.pipeline.paths import SplitPaths
from jobs.runtime import checkpoint, folders
from jobs.runtime.compute import Named, columns, gather

if TYPE_CHECKING:
    import dask.dataframe as dd

    from jobs.runtime.context import Run

# What a row says about `node`, a doc_id.
MEMBER, DROPPED, BESIDE, REPEATED, COUNTED = range(5)
# MEMBER: it has this hash, the best of `documents` of a split that have it and are of one source and crawl.
# DROPPED: in favour of `kept_by`. BESIDE: it is protected and stays beside `kept_by`, which is kept for the others.
# REPEATED: kept, and so is another document with its hash. COUNTED: what each scope would remove, and `rows` shuffled.
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
    run="int16",  # number of an earlier run, of whose documents none is counted, or `THIS_RUN`
    kind="int8",
)
FOUND = columns(
    node="uint64",
    kept_by="uint64",
    kept_in="int16",  # whose document that is
    kind="int8",
    rows="int64",
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
    """What a task needs: how to hash, among which documents, whom to keep, and the jobs before."""

    hashing: Hashing
    scope: str
    policy: Policy
    earlier: tuple[str, ...]


# ---------------------------------------------------------------- partition functions


def hash_rows(paths: SplitPaths, first_row: int, step: Step) -> pd.DataFrame:
    """The best document of each hash, source and crawl of a split, and what is dropped in favour of it."""
    wanted = {"doc_id", "fate", "source", "crawl", *step.hashing.columns, *step.policy.columns}
    table = folders.read_table(paths.rows, columns=sorted(wanted))
    high, low, hashed = step.hashing.hashes(table)
    chosen = hashed & dropped.taking_part(table, paths.out, step.earlier)
    rows = _hashed(table, high, low).assign(
        rank=step.policy.ranks(table, first_row), protected=step.policy.protected(table), run=THIS_RUN
    )[chosen]
    return _reduced(rows)


def earlier_rows(paths: SplitPaths, first_row: int, number: int, step: Step, job: str) -> pd.DataFrame:
    """The first document of each hash, source and crawl that the job kept of a split of an earlier run."""
    wanted = {"doc_id", "fate", "source", "crawl", *step.hashing.columns}
    table = folders.read_table(paths.rows, columns=sorted(wanted))
    high, low, hashed = step.hashing.hashes(table)
    chosen = hashed & dropped.taking_part(table, paths.out, (*step.earlier, job))
    ranks = np.arange(first_row, first_row + len(table), dtype=np.uint64)
    rows = _hashed(table, high, low).assign(rank=ranks, protected=False, run=number)[chosen]
    reduced = _reduced(rows)
    return reduced[reduced["kind"] == MEMBER].assign(documents=0)


def _hashed(table: pa.Table, high: np.ndarray, low: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "high": high,
            "low": low,
            "source": scope.labels(table, scope.SOURCE),
            "crawl": scope.labels(table, scope.CRAWL),
            "node": table["doc_id"].to_numpy(),
        }
    )


def _reduced(rows: pd.DataFrame) -> pd.DataFrame:
    rows, starts = _grouped(rows, ["high", "low", "source", "crawl"])
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
    preference = (rows[name].to_numpy() for name in ("node", "rank"))
    order = np.lexsort((*preference, unprotected, rows["run"].to_numpy(), *by[::-1]))
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
    best, run = node[starts][group], ordered["run"].to_numpy()
    kept_in, earlier = run[starts][group], run < THIS_RUN
    behind = (node != best) & ~earlier
    kept = np.where(protected > 0, protected, ~behind)
    kind = np.where(protected > 0, BESIDE, DROPPED)
    repeated = _repeated(ordered, kept) & ~earlier
    counts = {name: removed(members, name) for name in scope.SCOPES}
    return pd.concat(
        [
            _found(known["node"], known["kept_by"], THIS_RUN, known["kind"]),
            _found(node[behind], best[behind], kept_in[behind], kind[behind]),
            _found(node[repeated], best[repeated], THIS_RUN, REPEATED),
            _found([0], [0], THIS_RUN, COUNTED, rows=len(rows), **counts),
        ],
        ignore_index=True,
    )


def _found(node: Any, kept_by: Any, kept_in: Any, kind: Any, **counts: int) -> pd.DataFrame:
    """Rows of FOUND; a float on the way would round doc_ids."""
    given = {
        "node": np.asarray(node, np.uint64),
        "kept_by": np.asarray(kept_by, np.uint64),
        "kept_in": kept_in,
        "kind": kind,
    }
    values = {"rows": 0, **dict.fromkeys(scope.SCOPES, 0), **counts, **given}
    return pd.DataFrame({name: values[name] for name in FOUND}).astype(FOUND.dtypes)


def _repeated(members: pd.DataFrame, kept: np.ndarray) -> np.ndarray:
    """bool[n]: a document is kept of the member, and of its hash more than one in the whole corpus."""
    in_all = pd.Series(kept, index=members.index).groupby([members["high"], members["low"]]).transform("sum")
    return (kept > 0) & (in_all.to_numpy() > 1)


def removed(members: pd.DataFrame, within: str) -> int:
    """Documents that a scope would remove."""
    if members.empty:
        return 0
    counted = members.assign(stays=members["protected"] + (members["run"] < THIS_RUN))
    totals = counted.groupby(_key(within))[["documents", "protected", "stays"]].sum()
    droppable = totals["documents"] - totals["protected"]
    return int((droppable - (totals["stays"] == 0)).sum())


def _key(within: str) -> list[str]:
    return ["high", "low", *scope.columns(within)]


# ---------------------------------------------------------------- the graph


def equal(
    splits: list[SplitPaths],
    first_rows: list[int],
    earlier: list[tuple[SplitPaths, int, int]],
    step: Step,
    job: str,
    partitions: int,
) -> "dd.DataFrame":
    """Hashes → buckets → what is dropped, a Dask dataframe."""
    import dask.dataframe as dd

    keys = dd.from_map(hash_rows, splits, first_rows, step=step, meta=KEYS, label="read hashes")
    if earlier:
        columns = zip(*earlier, strict=True)
        before = dd.from_map(earlier_rows, *columns, step=step, job=job, meta=KEYS, label="read earlier runs")
        keys = dd.concat([keys, before])
    return keys.shuffle("high", npartitions=partitions).map_partitions(
        Named("find equal documents", decide), within=step.scope, meta=FOUND
    )


def resolved(found: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Dropped documents uint64[n], the one kept in place of each, and whose that is int16[n].

    An edge goes to the best of a split only.
    """
    nodes, kept_by, kept_in, kinds = (
        found[name].to_numpy() for name in ("node", "kept_by", "kept_in", "kind")
    )
    behind = np.isin(kinds, (DROPPED, BESIDE))
    order = np.argsort(nodes[behind])
    place = dropped.find(nodes[behind][order], kept_by)
    if len(order):
        kept_by, kept_in = (
            np.where(place >= 0, values[behind][order][place], values) for values in (kept_by, kept_in)
        )
    gone = kinds == DROPPED
    return nodes[gone], kept_by[gone], kept_in[gone]


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
        step = Step(hashing, within, keep.policy(run), tuple(earlier))
        before = against.splits(run)
        partitions = max(1, (len(splits) + len(before)) // 4, len(run.client.scheduler_info()["workers"]))
        graph = equal(splits, keep.first_rows(run), before, step, name, partitions)
        with run.console.job(name, partitions, "partitions", **run.totals()) as meter:
            found = gather(run.client, graph, meter, counted=())
    doc_ids, kept_by, kept_in = resolved(found)
    repeated = found.loc[found["kind"] == REPEATED, "node"].to_numpy()
    dropped.write(job.folder, doc_ids, kept_by, kept_in, repeated)
    by_scope = {name: int(found[name].sum()) for name in scope.SCOPES}
    if len(doc_ids) != by_scope[within]:
        raise RuntimeError(f"{name}: {by_scope[within]:,} documents are to be dropped, {len(doc_ids):,} are")
    against_each = {"dropped_against": against.counted(kept_in, run.config.against)} if run.earlier else {}
    shuffled = {"rows_shuffled": int(found["rows"].sum())}
    return {"dropped": len(doc_ids), **shuffled, "removed_by_scope": by_scope, **against_each}
