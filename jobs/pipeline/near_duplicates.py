"""Near-duplicates: band keys shuffled and grouped, star forests merged, one document kept of each cluster.

Two documents are candidates when they share a band of their signatures; clusters are the connected
components of the candidates (Leskovec et al., Mining of Massive Datasets, chapter 3; FineWeb's settings by
default). Per partition only one document goes into the shuffle for each band key, and a star to it for the others:
the components are the same, and the largest bucket is bounded by the number of partitions.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from jobs.pipeline.paths import SplitPaths
from jobs.runtime import checkpoint, fingerprint, folders
from jobs.runtime.compute import columns, gather
from jobs.text import hash_prefixes
from kernels import bands, permutation, union_find

if TYPE_CHECKING:
    import dask.dataframe as dd

    from jobs.runtime.context import Run

NAME = "near_duplicates"
CLUSTERS, OVERLAPS = "clusters.arrow", "overlaps.npy"

# What a row of the shuffled frame says about `node`, a doc_id.
MEMBER, EDGE, REFERENCE = (
    0,
    1,
    2,
)  # has this band key / is linked to `root` / a reference document has this key
KEYS = columns(
    key="uint64",
    node="uint64",
    root="uint64",
    kind="int8",
)
FOREST = columns(
    node="uint64",
    root="uint64",
    kind="int8",
)
SCHEMA = pa.schema(
    [("doc_id", pa.uint64()), ("cluster", pa.uint64()), ("kept_by", pa.uint64()), ("overlaps", pa.uint8())]
)


# ---------------------------------------------------------------- partition functions


def band_rows(paths: SplitPaths, n_bands: int, rows: int) -> pd.DataFrame:
    """One MEMBER row for each band key of a split, and an EDGE to its smallest document for all others."""
    doc_ids, keys = _keys_of_split(paths, n_bands, rows)
    flat = keys.ravel()
    nodes = np.repeat(doc_ids, n_bands)
    order = np.lexsort((nodes, flat))
    flat, nodes = flat[order], nodes[order]
    first = _run_starts(flat)
    roots = nodes[first]
    others = np.setdiff1d(np.arange(len(flat)), first, assume_unique=True)
    run = np.searchsorted(first, others, side="right") - 1
    edges = union_find.star_forest(np.column_stack((nodes[others], roots[run])))
    edges = edges[edges[:, 0] != edges[:, 1]]
    return pd.concat(
        [
            _frame(KEYS, key=flat[first], node=roots, root=roots, kind=MEMBER),
            # Edges have met already; spread by their own node they go along to any partition.
            _frame(KEYS, key=edges[:, 0], node=edges[:, 0], root=edges[:, 1], kind=EDGE),
        ],
        ignore_index=True,
    )


def reference_rows(paths: SplitPaths, n_bands: int, rows: int) -> pd.DataFrame:
    """One REFERENCE row for each band key of a split of a reference set."""
    keys = np.unique(_keys_of_split(paths, n_bands, rows)[1])
    nothing = np.zeros(len(keys), np.uint64)
    return _frame(KEYS, key=keys, node=nothing, root=nothing, kind=REFERENCE)


def _keys_of_split(paths: SplitPaths, n_bands: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """doc_ids uint64[d] and band keys uint64[d, b] of the documents that have words and were not dropped."""
    table = folders.read_table(paths.rows, columns=["doc_id", "n_words", "fate"])
    comparable = (table["n_words"].to_numpy() > 0) & np.asarray(table["fate"].is_null())
    signatures = folders.load(paths.signatures)[comparable]
    return table["doc_id"].to_numpy()[comparable], bands.band_keys(signatures, n_bands, rows)


def forest_of_buckets(rows: pd.DataFrame) -> pd.DataFrame:
    """Join the members of each bucket to its smallest; mark the smallest where a reference is in it."""
    kind = rows["kind"].to_numpy()
    bucketed = rows[kind != EDGE].sort_values(["key", "kind", "node"], kind="stable")
    key, node = bucketed["key"].to_numpy(), bucketed["node"].to_numpy()
    is_reference = bucketed["kind"].to_numpy() == REFERENCE
    first = _run_starts(key)
    bucket = np.cumsum(np.isin(np.arange(len(key)), first, assume_unique=True)) - 1
    roots = node[first]  # of the members: they sort before a reference
    stars = np.column_stack((node, roots[bucket]))[~is_reference]
    edges = np.concatenate(
        (rows.loc[kind == EDGE, ["node", "root"]].to_numpy(np.uint64), stars[stars[:, 0] != stars[:, 1]])
    )
    shared = bucket[is_reference]
    overlapping = np.unique(roots[shared[~is_reference[first][shared]]])
    return _forest(edges, overlapping)


def merge_forests(rows: pd.DataFrame) -> pd.DataFrame:
    """One forest and one set of overlap marks of several."""
    kind = rows["kind"].to_numpy()
    edges = rows.loc[kind == EDGE, ["node", "root"]].to_numpy(np.uint64)
    return _forest(edges, np.unique(rows.loc[kind == REFERENCE, "node"].to_numpy(np.uint64)))


def _forest(edges: np.ndarray, overlapping: np.ndarray) -> pd.DataFrame:
    forest = union_find.star_forest(edges)
    return pd.concat(
        [
            _frame(FOREST, node=forest[:, 0], root=forest[:, 1], kind=EDGE),
            _frame(FOREST, node=overlapping, root=overlapping, kind=REFERENCE),
        ],
        ignore_index=True,
    )


def _frame(meta: pd.DataFrame, kind: int, **columns: np.ndarray) -> pd.DataFrame:
    kinds = np.full(len(next(iter(columns.values()))), kind, np.int8)
    return pd.DataFrame({name: {**columns, "kind": kinds}[name] for name in meta.columns})


def _run_starts(ordered: np.ndarray) -> np.ndarray:
    """Indices at which a run of equal values starts."""
    return np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1]))[: len(ordered)])


def flagged_clusters(paths: SplitPaths, folder: Path, reference_hashes: Path) -> pd.DataFrame:
    """Clusters that a document of this split makes overlap with a reference set."""
    table = folders.read_table(paths.rows, columns=["doc_id", "text_hash"])
    clusters = Clusters(folder)
    place = clusters.find(table["doc_id"].to_numpy())
    clustered = place >= 0
    touched = clusters.touched(table, reference_hashes) & clustered
    return pd.DataFrame({"cluster": np.unique(clusters.cluster[place[touched]])})


# ---------------------------------------------------------------- the graph


def forest(
    splits: list[SplitPaths], references: list[SplitPaths], n_bands: int, rows: int, partitions: int
) -> "dd.DataFrame":
    """Band keys → buckets → star forests → one forest, a Dask dataframe of one partition."""
    import dask.dataframe as dd

    keys = dd.from_map(band_rows, splits, n_bands=n_bands, rows=rows, meta=KEYS, label="band-keys")
    if references:
        marks = dd.from_map(
            reference_rows, references, n_bands=n_bands, rows=rows, meta=KEYS, label="reference-keys"
        )
        keys = dd.concat([keys, marks])
    forests = keys.shuffle("key", npartitions=partitions).map_partitions(forest_of_buckets, meta=FOREST)
    return forests.reduction(
        chunk=merge_forests, combine=merge_forests, aggregate=merge_forests, meta=FOREST, split_every=8
    )


# ---------------------------------------------------------------- what was found


class Clusters:
    """The clusters of a run, memory-mapped and sorted by doc_id; documents in no cluster have no row."""

    def __init__(self, folder: Path) -> None:
        table = pa.ipc.open_file(pa.memory_map(str(folders.local_copy(folder / CLUSTERS)))).read_all()
        self.doc_id, self.cluster, self.kept_by, self.overlaps = (
            column.to_numpy() for column in table.combine_chunks().itercolumns()
        )
        self._direct = folders.load(folders.local_copy(folder / OVERLAPS))

    def find(self, doc_ids: np.ndarray) -> np.ndarray:
        """int64[d] row of each document, -1 where it is in no cluster."""
        return _find(self.doc_id, doc_ids)

    def touched(self, table: pa.Table, reference_hashes: Path) -> np.ndarray:
        """bool[d]: the document itself equals, or is a candidate of, a document of a reference set."""
        direct = _find(self._direct, table["doc_id"].to_numpy()) >= 0
        references = folders.load(folders.local_copy(reference_hashes))
        return direct | (_find(references, hash_prefixes(table["text_hash"])) >= 0)


def _find(ordered: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    if not len(ordered):
        return np.full(len(wanted), -1)
    place = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return np.where(ordered[place] == wanted, place, -1)


def keep_list(forest: np.ndarray, seed: int) -> np.ndarray:
    """uint64[n] document kept in place of each row of a star forest uint64[n, 2]: a seeded random choice."""
    nodes, roots = forest[:, 0], forest[:, 1]
    order = np.lexsort((permutation.keyed_hash(nodes, permutation.key("keep", seed)), roots))
    first = _run_starts(roots[order])
    return nodes[order][first][np.searchsorted(roots[order][first], roots)]


# ---------------------------------------------------------------- the job


def job_fingerprint(run: "Run") -> str:
    """Covers the banding, the choice and what was annotated."""
    settings = run.config.near_duplicates.model_dump()
    upstream = {name: run.fingerprints[name] for name in ("annotate", "references")}
    return fingerprint.fingerprint(__name__, settings=settings, **upstream)


def run(run: "Run", job: checkpoint.Checkpoint) -> dict[str, Any]:
    """Find the clusters, choose whom to keep, and mark what overlaps a reference set."""
    import dask.dataframe as dd

    job.begin()
    settings = run.config.near_duplicates
    splits = run.annotated
    references = run.referenced
    found = FOREST
    if settings.enabled and splits:
        partitions = max(1, len(splits) // 4, len(run.client.scheduler_info()["workers"]))
        graph = forest(splits, references, settings.bands, settings.rows, partitions)
        with run.console.job(NAME, 1, "forest", **run.totals()) as meter:
            found = gather(run.client, graph, meter)
    edges = found[found["kind"] == EDGE].sort_values("node")
    stars = edges[["node", "root"]].to_numpy(np.uint64)
    kept_by = keep_list(stars, settings.keep_seed)
    overlaps = np.sort(found.loc[found["kind"] == REFERENCE, "node"].to_numpy(np.uint64))
    with checkpoint.written(job.folder / OVERLAPS) as file:
        np.save(file, overlaps)
    _write(job.folder, stars, kept_by, np.zeros(len(stars), np.uint8))
    flagged = np.empty(0, np.uint64)
    if len(stars):
        graph = dd.from_map(
            flagged_clusters,
            splits,
            folder=job.folder,
            reference_hashes=run.reference_hashes,
            meta=columns(cluster="uint64"),
            label="reference-overlap",
        )
        with run.console.job("overlap", len(splits), "splits", **run.totals()) as meter:
            flagged = np.unique(gather(run.client, graph, meter)["cluster"].to_numpy(np.uint64))
        _write(job.folder, stars, kept_by, np.isin(stars[:, 1], flagged).astype(np.uint8))
    roots, sizes = np.unique(stars[:, 1], return_counts=True)
    return {
        "clusters": len(roots),
        "clustered_documents": len(stars),
        "largest_cluster": int(sizes.max(initial=0)),
        "clusters_overlapping_references": len(flagged),
        "documents_overlapping_references_directly": len(overlaps),
    }


def _write(folder: Path, stars: np.ndarray, kept_by: np.ndarray, overlaps: np.ndarray) -> None:
    table = pa.table([stars[:, 0], stars[:, 1], kept_by, overlaps], schema=SCHEMA)
    with checkpoint.written(folder / CLUSTERS) as file, pa.ipc.new_file(file, SCHEMA) as writer:
        writer.write_table(table)
