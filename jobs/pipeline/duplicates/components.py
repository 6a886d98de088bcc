"""Connected components of any size: in one worker's memory where they fit, in rounds on all workers where not.

What comes in are star forests, made partition by partition: rows (node, root) whose components together are those of
the whole graph. Either way ends in one star for each component, around its smallest node.

- In memory: forests are merged in a tree, eight at a time (`kernels.union_find`).
- In rounds: alternately, *large-star* links each node's larger neighbours to the smallest node of its neighbourhood,
  and *small-star* links its smaller neighbours and itself to that node, until a round changes nothing. A round is two
  shuffles, and is committed: a run that was stopped goes on with the last one. A partition holds the neighbours of its
  nodes, so the memory of a worker bounds the largest component, but not the number of links.

Source: Kiveris, Lattanzi, Mirrokni, Rastogi and Vassilvitskii, Connected Components in MapReduce and Beyond (2014).
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.runtime import checkpoint, folders
from jobs.runtime.compute import Named, columns, gather
from kernels import permutation

if TYPE_CHECKING:
    import dask.dataframe as dd
    from distributed import Client

    from jobs.runtime.console import Console, Meter

FOREST = columns(
    node="uint64",
    root="uint64",
    kind="int8",
)
EDGE = 1  # the kind of the rows that are links; others are carried along
SUMMARY = columns(
    links="int64",
    checksum="uint64",
)
LINKS_IN_A_PARTITION = 4_000_000
ROUND = "round-"
_KEY = permutation.key("components", 0)


def begin(job: checkpoint.Checkpoint) -> bool:
    """Begin a job, keeping the last round that was committed; whether there is one."""
    last = dict(sorted(_rounds_of(job.tasks_done(job.fingerprint)).items())[-1:])
    job.begin(kept_tasks=last)
    return bool(last)


def commit_forests(
    client: "Client", console: "Console", job: checkpoint.Checkpoint, forests: "dd.DataFrame", **totals: int
) -> None:
    """Write star forests, a Dask dataframe like `FOREST`, as round 0."""
    with console.job("near_duplicates", forests.npartitions, "partitions", **totals) as meter:
        _commit(job, 0, forests, client, meter)


def merged(
    client: "Client",
    console: "Console",
    job: checkpoint.Checkpoint,
    most_links: int,
    merge: Callable[[pd.DataFrame], pd.DataFrame],
) -> pd.DataFrame:
    """The rows of one star forest of the committed ones, and nothing left of the rounds.

    `merge` makes one forest of several in memory, and is used where they have no more than `most_links` links.
    """
    import dask.dataframe as dd

    name, record = _last(job)
    if name == f"{ROUND}000" and record["figures"]["links"] <= most_links:
        parts = dd.from_map(read_part, _files(job, record), meta=FOREST, label="read links")
        graph = parts.reduction(chunk=merge, combine=merge, aggregate=merge, meta=FOREST, split_every=8)
        with console.job("components", 1, "forest") as meter:
            found = gather(client, graph, meter)
    else:
        _rounds(client, console, job)
        found = with_roots(pd.concat([read_part(path) for path in _files(job, _last(job)[1])]))
    for key in _rounds_of(job.tasks()):
        _remove(job, key)
    return found


def _rounds(client: "Client", console: "Console", job: checkpoint.Checkpoint) -> None:
    import dask.dataframe as dd

    name, record = _last(job)
    while not record["figures"]["converged"]:
        links = record["figures"]["links"]
        partitions = max(len(client.nthreads()), links // LINKS_IN_A_PARTITION)
        forests = dd.from_map(read_part, _files(job, record), meta=FOREST, label="read links")
        number = int(name.removeprefix(ROUND)) + 1
        with console.job(f"components {number}", partitions, "partitions") as meter:
            _commit(job, number, alternated(forests, partitions), client, meter)
        _remove(job, name)
        name, record = _last(job)


def alternated(forests: "dd.DataFrame", partitions: int) -> "dd.DataFrame":
    """Large-star, then small-star."""
    large = forests.map_partitions(both_ways, meta=FOREST).shuffle("node", npartitions=partitions)
    small = large.map_partitions(Named("join clusters", large_star), meta=FOREST).shuffle(
        "node", npartitions=partitions
    )
    return small.map_partitions(Named("join clusters", small_star), meta=FOREST)


# ---------------------------------------------------------------- partition functions


def both_ways(rows: pd.DataFrame) -> pd.DataFrame:
    """Each link once more with its ends exchanged, links from a node to itself left out."""
    links = _links(rows)
    return _with(rows, np.concatenate((links, links[:, ::-1])))


def large_star(rows: pd.DataFrame) -> pd.DataFrame:
    """Of nodes with all their neighbours: the larger of them linked to the smallest of all."""
    nodes, others, smallest = _smallest_neighbours(_links(rows))
    larger = others > nodes
    return _with(rows, np.column_stack((others, np.minimum(nodes, smallest)))[larger])


def small_star(rows: pd.DataFrame) -> pd.DataFrame:
    """Of nodes with their smaller neighbours: they and the nodes themselves linked to the smallest."""
    nodes, others, smallest = _smallest_neighbours(_links(rows))
    return _with(
        rows, np.concatenate((np.column_stack((nodes, smallest)), np.column_stack((others, smallest))))
    )


def with_roots(rows: pd.DataFrame) -> pd.DataFrame:
    """Stars with a row for each root, too, as a forest has them."""
    roots = np.unique(_links(rows)[:, 1])
    own = pd.DataFrame({"node": roots, "root": roots, "kind": np.full(len(roots), EDGE, np.int8)})
    return pd.concat([rows, own], ignore_index=True)


def _links(rows: pd.DataFrame) -> np.ndarray:
    """uint64[n, 2] of different nodes."""
    links = rows.loc[rows["kind"] == EDGE, ["node", "root"]].to_numpy(np.uint64)
    return links[links[:, 0] != links[:, 1]]


def _with(rows: pd.DataFrame, links: np.ndarray) -> pd.DataFrame:
    """These links, each once, and the rows that are none."""
    links = links[links[:, 0] != links[:, 1]]
    links = links[np.lexsort((links[:, 1], links[:, 0]))]
    new = np.ones(len(links), bool)
    new[1:] = (links[1:] != links[:-1]).any(axis=1)
    links = links[new]
    found = pd.DataFrame(
        {"node": links[:, 0], "root": links[:, 1], "kind": np.full(len(links), EDGE, np.int8)}
    )
    return pd.concat([rows[rows["kind"] != EDGE], found], ignore_index=True)


def _smallest_neighbours(links: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Links in the order of their nodes: nodes, their neighbours, and each node's smallest neighbour."""
    links = links[np.argsort(links[:, 0])]
    nodes, others = links[:, 0], links[:, 1]
    first = np.flatnonzero(np.concatenate(([True], nodes[1:] != nodes[:-1]))[: len(nodes)])
    smallest = np.minimum.reduceat(others, first) if len(first) else others
    return nodes, others, np.repeat(smallest, np.diff(first, append=len(nodes)))


# ---------------------------------------------------------------- files of a round


def read_part(path: Path) -> pd.DataFrame:
    """One partition of a round."""
    return folders.read_table(path).to_pandas()


def write_part(rows: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Write one partition of a round; its links are counted and summed up whatever their order."""
    with checkpoint.written(path) as file:
        pq.write_table(pa.Table.from_pandas(rows, preserve_index=False), file)
    links = _links(rows)
    hashes = permutation.keyed_hash(links[:, 0] ^ permutation.keyed_hash(links[:, 1], _KEY), _KEY)
    return pd.DataFrame({"links": [len(links)], "checksum": [hashes.sum(dtype=np.uint64)]}).astype(
        SUMMARY.dtypes
    )


def _commit(
    job: checkpoint.Checkpoint, number: int, forests: "dd.DataFrame", client: "Client", meter: "Meter"
) -> None:
    """Compute a round and record it, with whether it left all links as they were."""
    import dask
    import dask.dataframe as dd

    before = _last(job)[1]["figures"] if number else None
    paths = [job.folder / f"{ROUND}{number:03d}-{part:05d}.parquet" for part in range(forests.npartitions)]
    write = dask.delayed(Named("write links", write_part), pure=False)
    parts = [write(rows, path) for rows, path in zip(forests.to_delayed(), paths, strict=True)]
    graph = dd.from_delayed(parts, meta=SUMMARY, prefix="write-links", verify_meta=False)
    summary = gather(client, graph, meter)
    figures = {
        "links": int(summary["links"].sum()),
        "checksum": int(summary["checksum"].to_numpy(np.uint64).sum(dtype=np.uint64)),
    }
    converged = before is not None and all(before[name] == value for name, value in figures.items())
    checkpoint.commit_task(
        job.folder, job.fingerprint, f"{ROUND}{number:03d}", paths, {**figures, "converged": converged}
    )


def _rounds_of(tasks: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {key: task for key, task in tasks.items() if key.startswith(ROUND)}


def _last(job: checkpoint.Checkpoint) -> tuple[str, dict[str, Any]]:
    return max(_rounds_of(job.tasks()).items())


def _files(job: checkpoint.Checkpoint, record: dict[str, Any]) -> Sequence[Path]:
    return [job.folder / name for name in sorted(record["files"])]


def _remove(job: checkpoint.Checkpoint, key: str) -> None:
    """A round's record, then its files."""
    record = job.tasks()[key]
    folders.remove([job.folder / checkpoint.TASKS / f"{key}.json"])
    folders.remove(_files(job, record))
