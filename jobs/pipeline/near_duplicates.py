"""Near-duplicates: band keys shuffled and grouped, star forests merged, one document kept of each cluster.

Two documents are candidates when they share a band of their signatures; clusters are the connected
components of the candidates (Leskovec et al., Mining of Massive Datasets, chapter 3; FineWeb's settings by
default). Per partition only one document goes into the shuffle for each band key, and a star to it for the others:
the components are the same, and the largest bucket is bounded by the number of partitions. Keys that occur once in the
whole corpus, nearly all of them, stay out of the shuffle altogether (`duplicates.repeats`).
"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from jobs.pipeline.duplicates import components, repeats, verification
from jobs.pipeline.duplicates.components import FOREST
from jobs.pipeline.duplicates.repeats import Repeats
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
MEMBER, EDGE, REFERENCE, SHUFFLED = (
    0,
    1,
    2,
    3,
)  # has this band key / is linked to `root` / a reference document has this key / is a count of rows
KEYS = columns(
    key="uint64",
    node="uint64",
    root="uint64",
    kind="int8",
)
KEYS_IN_A_PARTITION = 4_000_000  # of the shuffle, at most: 100 MB, should all of them repeat but in no split
SCHEMA = pa.schema(
    [("doc_id", pa.uint64()), ("cluster", pa.uint64()), ("kept_by", pa.uint64()), ("overlaps", pa.uint8())]
)


# ---------------------------------------------------------------- partition functions


def band_rows(paths: SplitPaths, n_bands: int, rows: int, repeated: Repeats | None = None) -> pd.DataFrame:
    """One MEMBER row for each band key of a split, and an EDGE to its smallest document for all others.

    Only keys that may occur twice, where it is known which.
    """
    doc_ids, keys, _ = _keys_of_split(paths, n_bands, rows)
    flat, nodes = keys.ravel(), np.repeat(doc_ids, n_bands)
    if repeated is not None:
        chosen = repeated.among(flat)
        flat, nodes = flat[chosen], nodes[chosen]
    flat, nodes, first, bucket = _buckets(flat, nodes)
    roots = np.minimum.reduceat(nodes, first) if len(first) else nodes
    edges = np.column_stack((nodes, roots[bucket]))
    edges = union_find.star_forest(edges[edges[:, 0] != edges[:, 1]])
    edges = edges[edges[:, 0] != edges[:, 1]]
    return pd.concat(
        [
            _frame(KEYS, key=flat[first], node=roots, root=roots, kind=MEMBER),
            # Edges have met already; spread by their own node they go along to any partition.
            _frame(KEYS, key=edges[:, 0], node=edges[:, 0], root=edges[:, 1], kind=EDGE),
        ],
        ignore_index=True,
    )


def _buckets(keys: np.ndarray, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Both in the order of the keys; where each bucket starts; and the number of each row's bucket."""
    order = np.argsort(keys)  # vectorised, unlike a stable sort or one by two columns; nothing needs more
    keys, nodes = keys[order], nodes[order]
    first = _run_starts(keys)
    return keys, nodes, first, np.repeat(np.arange(len(first)), np.diff(first, append=len(keys)))


def reference_rows(
    paths: SplitPaths, n_bands: int, rows: int, repeated: Repeats | None = None
) -> pd.DataFrame:
    """One REFERENCE row for each band key of a split of a reference set, where it may occur twice."""
    keys = np.unique(_keys_of_split(paths, n_bands, rows)[1])
    if repeated is not None:
        keys = keys[repeated.among(keys)]
    nothing = np.zeros(len(keys), np.uint64)
    return _frame(KEYS, key=keys, node=nothing, root=nothing, kind=REFERENCE)


def member_rows(paths: SplitPaths, n_bands: int, rows: int, repeated: Repeats, base: int) -> pd.DataFrame:
    """One MEMBER row for each document and key that may occur twice; its root is the document's place, from `base`."""
    doc_ids, keys, places = _keys_of_split(paths, n_bands, rows)
    chosen = repeated.among(keys)
    document, _ = np.nonzero(chosen)
    return _frame(
        KEYS,
        key=keys[chosen],
        node=doc_ids[document],
        root=(base + places[document]).astype(np.uint64),
        kind=MEMBER,
    )


def _keys_of_split(paths: SplitPaths, n_bands: int, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """doc_ids uint64[d], band keys uint64[d, b] and rows int64[d] of documents with words that were not dropped."""
    table = folders.read_table(paths.rows, columns=["doc_id", "n_words", "fate"])
    comparable = (table["n_words"].to_numpy() > 0) & np.asarray(table["fate"].is_null())
    signatures = folders.load(paths.signatures)[comparable]
    keys = bands.band_keys(signatures, n_bands, rows)
    return table["doc_id"].to_numpy()[comparable], keys, np.flatnonzero(comparable)


def forest_of_buckets(rows: pd.DataFrame) -> pd.DataFrame:
    """Join the members of each bucket to its smallest; mark the smallest where a reference is in it."""
    kind = rows["kind"].to_numpy()
    members = rows[kind == MEMBER]
    keys, nodes, first, bucket = _buckets(*(members[name].to_numpy(np.uint64) for name in ("key", "node")))
    roots = np.minimum.reduceat(nodes, first) if len(first) else nodes
    stars = np.column_stack((nodes, roots[bucket]))
    edges = np.concatenate((_edges(rows), stars[stars[:, 0] != stars[:, 1]]))
    references = rows.loc[kind == REFERENCE, "key"].to_numpy(np.uint64)
    return _forest(edges, roots[np.isin(keys[first], references)], shuffled=len(rows))


def merge_forests(rows: pd.DataFrame) -> pd.DataFrame:
    """One forest, one set of overlap marks and one count of several."""
    marked, counted = (
        rows.loc[rows["kind"] == kind, "node"].to_numpy(np.uint64) for kind in (REFERENCE, SHUFFLED)
    )
    counts = rows[rows["kind"] == verification.HISTOGRAM].groupby("node", as_index=False).sum()
    histogram = counts.assign(kind=verification.HISTOGRAM)[[*FOREST.columns]].astype(FOREST.dtypes)
    forest = _forest(_edges(rows), marked, int(counted.sum()))
    return pd.concat([forest, histogram], ignore_index=True)


def _edges(rows: pd.DataFrame) -> np.ndarray:
    return rows.loc[rows["kind"] == EDGE, ["node", "root"]].to_numpy(np.uint64)


def _forest(edges: np.ndarray, overlapping: np.ndarray, shuffled: int) -> pd.DataFrame:
    forest = union_find.star_forest(edges)
    marked, count = np.unique(overlapping), np.array([shuffled], np.uint64)
    return pd.concat(
        [
            _frame(FOREST, node=forest[:, 0], root=forest[:, 1], kind=EDGE),
            _frame(FOREST, node=marked, root=marked, kind=REFERENCE),
            _frame(FOREST, node=count, root=count, kind=SHUFFLED),
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


def forests(
    splits: list[SplitPaths],
    references: list[SplitPaths],
    n_bands: int,
    rows: int,
    documents: int,
    folder: Path,
    tasks: int,
) -> "dd.DataFrame":
    """Star forests of about so many documents' band keys; `duplicates.components` makes one of them.

    1. Note which keys may occur twice (`duplicates.repeats`), by so many tasks at once, in a folder that can go after.
    2. Shuffle those, equal keys together.
    3. Make stars of the buckets, and a forest of each partition's.
    """
    chosen = [(band_rows, paths) for paths in splits]
    keys = _shuffled(chosen, splits, references, n_bands, rows, documents, folder, tasks)
    return keys.map_partitions(forest_of_buckets, meta=FOREST)


def verified_forests(
    run: "Run",
    splits: list[SplitPaths],
    references: list[SplitPaths],
    documents: int,
    folder: Path,
    tasks: int,
) -> "dd.DataFrame":
    """`forests` of the candidates that `duplicates.verification` finds similar enough."""
    settings = run.config.near_duplicates
    starts = verification.bases(splits).tolist()
    chosen = [(partial(member_rows, base=base), paths) for paths, base in zip(splits, starts, strict=True)]
    members = _shuffled(chosen, splits, references, settings.bands, settings.rows, documents, folder, tasks)
    return verification.links(run, splits, members, folder, members.npartitions, REFERENCE)


def _shuffled(
    chosen: list[Any],
    splits: list[SplitPaths],
    references: list[SplitPaths],
    n_bands: int,
    rows: int,
    documents: int,
    folder: Path,
    tasks: int,
) -> "dd.DataFrame":
    import dask
    import dask.dataframe as dd

    keys_of = partial(_flat_keys, n_bands=n_bands, rows=rows)
    repeated = repeats.graph([*splits, *references], keys_of, documents * n_bands, folder, tasks)
    sources = [*chosen, *((reference_rows, paths) for paths in references)]
    frames = [
        dask.delayed(function, pure=False)(paths, n_bands, rows, repeated) for function, paths in sources
    ]
    keys = dd.from_delayed(frames, meta=KEYS, prefix="band-keys", verify_meta=False)
    return keys.shuffle("key", npartitions=max(tasks, documents * n_bands // KEYS_IN_A_PARTITION))


def _flat_keys(paths: SplitPaths, n_bands: int, rows: int) -> np.ndarray:
    return _keys_of_split(paths, n_bands, rows)[1].ravel()


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
    near = run.config.near_duplicates
    unused = {"tree_edges", *(["threshold"] if near.verify == "none" else [])}
    settings = near.model_dump(exclude=unused)
    upstream = {name: run.fingerprints[name] for name in ("annotate", "references")}
    return fingerprint.fingerprint(__name__, settings=settings, **upstream)


def run(run: "Run", job: checkpoint.Checkpoint) -> dict[str, Any]:
    """Find the clusters, choose whom to keep, and mark what overlaps a reference set."""
    import dask.dataframe as dd

    resumed = components.begin(job)
    settings = run.config.near_duplicates
    splits = run.annotated
    references = run.referenced
    found = FOREST
    if settings.enabled and splits:
        tasks = sum(run.client.nthreads().values())
        documents = run.totals()["documents"] * (len(splits) + len(references)) // len(splits)
        scratch = job.folder / repeats.FOLDER
        if not resumed:
            if settings.verify == "none":
                graph = forests(splits, references, settings.bands, settings.rows, documents, scratch, tasks)
            else:
                graph = verified_forests(run, splits, references, documents, scratch, tasks)
            components.commit_forests(run.client, run.console, job, graph, **run.totals())
            folders.remove_folder(scratch)
        found = components.merged(run.client, run.console, job, settings.tree_edges, merge_forests)
    edges = found[found["kind"] == EDGE].sort_values("node")
    stars = edges[["node", "root"]].to_numpy(np.uint64)
    kept_by = keep_list(stars, settings.keep_seed)
    overlaps = np.unique(found.loc[found["kind"] == REFERENCE, "node"].to_numpy(np.uint64))
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
        "rows_shuffled": int(found.loc[found["kind"] == SHUFFLED, "node"].sum()),
        **verification.figures(found, settings.verify),
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
