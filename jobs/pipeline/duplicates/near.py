"""Near-duplicates: band keys shuffled and grouped, star forests merged, one document kept of each cluster.

Two documents are candidates when they share a band of their signatures; clusters are the connected
components of the candidates (Leskovec et al., Mining of Massive Datasets, chapter 3; FineWeb's settings by
default). Per partition only one document goes into the shuffle for each band key, and a star to it for the others:
the components are the same, and the largest bucket is bounded by the number of partitions. Keys that occur once in the
whole corpus, nearly all of them, stay out of the shuffle altogether (`duplicates.repeats`).
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from jobs.pipeline.duplicates import components, dropped, keep, repeats, scope, verification
from jobs.pipeline.duplicates.components import FOREST
from jobs.pipeline.duplicates.dropped import find as _find
from jobs.pipeline.duplicates.keep import Policy
from jobs.pipeline.duplicates.repeats import Repeats
from jobs.pipeline.paths import SplitPaths
from jobs.runtime import checkpoint, fingerprint, folders
from jobs.runtime.compute import columns, gather
from jobs.text import hash_prefixes
from kernels import bands, union_find

if TYPE_CHECKING:
    import dask.dataframe as dd

    from jobs.runtime.context import Run

NAME = "near_duplicates"
EARLIER = ["url_duplicates", "exact_duplicates"]
WIDE = "corpus"  # subfolder, while it runs, of the forest over the whole corpus where the scope is another
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
RANKS = columns(
    doc_id="uint64",
    rank="uint64",
    protected="bool",
)
SCHEMA = pa.schema(
    [("doc_id", pa.uint64()), ("cluster", pa.uint64()), ("kept_by", pa.uint64()), ("overlaps", pa.uint8())]
)


@dataclass(frozen=True)
class Compared:
    """Which documents are compared: within which scope, and what the steps before had dropped."""

    scope: str = scope.CORPUS
    earlier: tuple[Path, ...] = ()


EVERYTHING = Compared()


# ---------------------------------------------------------------- partition functions


def band_rows(
    paths: SplitPaths,
    n_bands: int,
    rows: int,
    repeated: Repeats | None = None,
    compared: Compared = EVERYTHING,
) -> pd.DataFrame:
    """One MEMBER row for each band key of a split, and an EDGE to its smallest document for all others.

    Only keys that may occur twice, where it is known which.
    """
    doc_ids, keys, _ = _keys_of_split(paths, n_bands, rows, compared)
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
    keys = np.unique(_keys_of_split(paths, n_bands, rows, EVERYTHING)[1])
    if repeated is not None:
        keys = keys[repeated.among(keys)]
    nothing = np.zeros(len(keys), np.uint64)
    return _frame(KEYS, key=keys, node=nothing, root=nothing, kind=REFERENCE)


def member_rows(
    paths: SplitPaths, n_bands: int, rows: int, repeated: Repeats, base: int, compared: Compared
) -> pd.DataFrame:
    """One MEMBER row for each document and key that may occur twice; its root is the document's place, from `base`."""
    doc_ids, keys, places = _keys_of_split(paths, n_bands, rows, compared)
    chosen = repeated.among(keys)
    document, _ = np.nonzero(chosen)
    return _frame(
        KEYS,
        key=keys[chosen],
        node=doc_ids[document],
        root=(base + places[document]).astype(np.uint64),
        kind=MEMBER,
    )


def _keys_of_split(
    paths: SplitPaths, n_bands: int, rows: int, compared: Compared
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """doc_ids uint64[d], band keys uint64[d, b] and rows int64[d] of documents with words that were not dropped.

    A scope's label is a part of its keys, so that equal bands of different crawls or sources do not meet.
    """
    wanted = ["doc_id", "n_words", "fate", *scope.columns(compared.scope)]
    table = folders.read_table(paths.rows, columns=wanted)
    comparable = (table["n_words"].to_numpy() > 0) & dropped.taking_part(table, compared.earlier)
    keys = bands.band_keys(folders.load(paths.signatures)[comparable], n_bands, rows)
    labels = scope.labels(table, compared.scope)[comparable]
    return table["doc_id"].to_numpy()[comparable], keys ^ labels[:, None], np.flatnonzero(comparable)


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
    compared: Compared = EVERYTHING,
) -> "dd.DataFrame":
    """Star forests of about so many documents' band keys; `duplicates.components` makes one of them.

    1. Note which keys may occur twice (`duplicates.repeats`), by so many tasks at once, in a folder that can go after.
    2. Shuffle those, equal keys together.
    3. Make stars of the buckets, and a forest of each partition's.
    """
    chosen = [(partial(band_rows, compared=compared), paths) for paths in splits]
    keys = _shuffled(chosen, splits, references, n_bands, rows, documents, folder, tasks, compared)
    return keys.map_partitions(forest_of_buckets, meta=FOREST)


def verified_forests(
    run: "Run",
    splits: list[SplitPaths],
    references: list[SplitPaths],
    documents: int,
    folder: Path,
    tasks: int,
    compared: Compared,
) -> "dd.DataFrame":
    """`forests` of the candidates that `duplicates.verification` finds similar enough."""
    settings = run.config.near_duplicates
    starts = verification.bases(splits).tolist()
    chosen = [
        (partial(member_rows, base=base, compared=compared), paths)
        for paths, base in zip(splits, starts, strict=True)
    ]
    members = _shuffled(
        chosen, splits, references, settings.bands, settings.rows, documents, folder, tasks, compared
    )
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
    compared: Compared,
) -> "dd.DataFrame":
    import dask
    import dask.dataframe as dd

    keys_of = partial(_flat_keys, n_bands=n_bands, rows=rows, compared=compared)
    repeated = repeats.graph([*splits, *references], keys_of, documents * n_bands, folder, tasks)
    sources = [*chosen, *((reference_rows, paths) for paths in references)]
    frames = [
        dask.delayed(function, pure=False)(paths, n_bands, rows, repeated) for function, paths in sources
    ]
    keys = dd.from_delayed(frames, meta=KEYS, prefix="band-keys", verify_meta=False)
    return keys.shuffle("key", npartitions=max(tasks, documents * n_bands // KEYS_IN_A_PARTITION))


def _flat_keys(paths: SplitPaths, n_bands: int, rows: int, compared: Compared) -> np.ndarray:
    return _keys_of_split(paths, n_bands, rows, compared)[1].ravel()


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


def keep_list(forest: np.ndarray, ranks: np.ndarray, protected: np.ndarray) -> np.ndarray:
    """uint64[n] document kept in place of each row of a star forest uint64[n, 2]: the best, or itself if protected."""
    return np.where(protected, forest[:, 0], keep.best(forest[:, 1], protected, ranks, forest[:, 0]))


def beside_another(forest: np.ndarray, kept_by: np.ndarray) -> np.ndarray:
    """bool[n]: of the node's component in a star forest more than one document is kept."""
    roots, place = np.unique(forest[:, 1], return_inverse=True)
    kept = np.bincount(place, weights=forest[:, 0] == kept_by, minlength=len(roots))
    return kept[place] > 1


def ranks_of_split(paths: SplitPaths, first_row: int, doc_ids: Path, policy: Policy) -> pd.DataFrame:
    """What the policy says about the documents of a split that are in a cluster."""
    table = folders.read_table(paths.rows, columns=policy.columns)
    clustered = _find(Clusters(doc_ids).doc_id, table["doc_id"].to_numpy()) >= 0
    columns = {
        "doc_id": table["doc_id"].to_numpy(),
        "rank": policy.ranks(table, first_row),
        "protected": policy.protected(table),
    }
    return pd.DataFrame(columns)[clustered].astype(RANKS.dtypes)


# ---------------------------------------------------------------- the job


def job_fingerprint(run: "Run") -> str:
    """Covers the banding, the choice and what was annotated."""
    near = run.config.near_duplicates
    unused = {"tree_edges", *(["threshold"] if near.verify == "none" else [])}
    settings = near.model_dump(exclude=unused)
    upstream = {name: run.fingerprints[name] for name in ("annotate", "references", *EARLIER)}
    return fingerprint.fingerprint(__name__, settings=settings, keep=run.config.keep.model_dump(), **upstream)


def run(run: "Run", job: checkpoint.Checkpoint) -> dict[str, Any]:
    """Find the clusters, choose whom to keep, and mark what overlaps a reference set or another kept document."""
    resumed = components.begin(job)
    settings = run.config.near_duplicates
    within = settings.scope
    found = _forest_of(run, job, resumed, within, references=within == scope.CORPUS)
    stars, marks = _stars(found)
    wide = stars
    if within != scope.CORPUS:
        # Validation has to be clean of near-copies in the whole corpus, so its clusters are wanted in any scope.
        beneath = checkpoint.Checkpoint(job.folder / WIDE, job.fingerprint)
        resumed = components.begin(beneath)
        wide, marks = _stars(_forest_of(run, beneath, resumed, scope.CORPUS, references=True))
        folders.remove_folder(beneath.folder)
    _write(job.folder, stars, stars[:, 0], np.zeros(len(stars), np.uint8), marks)
    kept_by = _kept_by(run, job.folder, stars)
    place = _find(stars[:, 0], wide[:, 0])
    kept_of_wide = np.where(place >= 0, kept_by[place], wide[:, 0]) if len(stars) else wide[:, 0]
    beside = wide[beside_another(wide, kept_of_wide), 0]
    _write(job.folder, wide, wide[:, 0], np.zeros(len(wide), np.uint8), marks)
    flagged = _flagged(run, job.folder) if len(wide) else np.empty(0, np.uint64)
    overlapping = wide[np.isin(wide[:, 1], flagged), 0]
    overlaps = np.isin(stars[:, 0], overlapping).astype(np.uint8)
    alone = np.setdiff1d(overlapping, stars[:, 0])  # in a cluster of the corpus, in none of its scope
    _write(job.folder, stars, kept_by, overlaps, np.unique(np.concatenate((marks, beside, alone))))
    roots, sizes = np.unique(stars[:, 1], return_counts=True)
    wide_roots = np.unique(wide[:, 1])
    return {
        "rows_shuffled": int(found.loc[found["kind"] == SHUFFLED, "node"].sum()),
        **verification.figures(found, settings.verify),
        "clusters": len(roots),
        "clustered_documents": len(stars),
        "largest_cluster": int(sizes.max(initial=0)),
        "clusters_overlapping_references": len(flagged),
        "documents_overlapping_references_directly": len(marks),
        "documents_kept_beside_a_near_copy": len(beside),
        "in_clusters_by_scope": {
            within: [len(stars), len(roots)],
            scope.CORPUS: [len(wide), len(wide_roots)],
        },
    }


def _forest_of(
    run: "Run", job: checkpoint.Checkpoint, resumed: bool, within: str, references: bool
) -> pd.DataFrame:
    """Rows of one star forest of the candidates of a scope, with the documents that are a reference's."""
    settings, splits = run.config.near_duplicates, run.annotated
    if not settings.enabled or not splits:
        return FOREST
    sets = run.referenced if references else []
    tasks = sum(run.client.nthreads().values())
    documents = run.totals()["documents"] * (len(splits) + len(sets)) // len(splits)
    compared = Compared(within, tuple(run.out / job for job in EARLIER))
    scratch = job.folder / repeats.FOLDER
    if not resumed:
        if settings.verify == "none":
            graph = forests(splits, sets, settings.bands, settings.rows, documents, scratch, tasks, compared)
        else:
            graph = verified_forests(run, splits, sets, documents, scratch, tasks, compared)
        components.commit_forests(run.client, run.console, job, graph, **run.totals())
        folders.remove_folder(scratch)
    return components.merged(run.client, run.console, job, settings.tree_edges, merge_forests)


def _stars(found: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Star forest uint64[n, 2], and documents uint64[m] that are a reference's."""
    stars = found[found["kind"] == EDGE].sort_values("node")[["node", "root"]].to_numpy(np.uint64)
    return stars, np.unique(found.loc[found["kind"] == REFERENCE, "node"].to_numpy(np.uint64))


def _kept_by(run: "Run", folder: Path, stars: np.ndarray) -> np.ndarray:
    """uint64[n] document kept in place of each row of the star forest, by the run's policy."""
    import dask.dataframe as dd

    if not len(stars):
        return np.empty(0, np.uint64)
    if not Policy(run.config.keep).needs_rows:
        ranks = Policy(run.config.keep).random_ranks(stars[:, 0])
        return keep_list(stars, ranks, np.zeros(len(stars), bool))
    graph = dd.from_map(
        ranks_of_split,
        run.annotated,
        keep.first_rows(run),
        doc_ids=folder,
        policy=keep.policy(run),
        meta=RANKS,
        label="keep-ranks",
    )
    with run.console.job("keep", len(run.annotated), "splits", **run.totals()) as meter:
        ranks = gather(run.client, graph, meter).sort_values("doc_id")
    return keep_list(stars, ranks["rank"].to_numpy(np.uint64), ranks["protected"].to_numpy(bool))


def _flagged(run: "Run", folder: Path) -> np.ndarray:
    """uint64[n] the clusters in the folder that overlap a reference set."""
    import dask.dataframe as dd

    graph = dd.from_map(
        flagged_clusters,
        run.annotated,
        folder=folder,
        reference_hashes=run.reference_hashes,
        meta=columns(cluster="uint64"),
        label="reference-overlap",
    )
    with run.console.job("overlap", len(run.annotated), "splits", **run.totals()) as meter:
        return np.unique(gather(run.client, graph, meter)["cluster"].to_numpy(np.uint64))


def _write(
    folder: Path, stars: np.ndarray, kept_by: np.ndarray, overlaps: np.ndarray, marks: np.ndarray
) -> None:
    table = pa.table([stars[:, 0], stars[:, 1], kept_by, overlaps], schema=SCHEMA)
    with checkpoint.written(folder / CLUSTERS) as file, pa.ipc.new_file(file, SCHEMA) as writer:
        writer.write_table(table)
    with checkpoint.written(folder / OVERLAPS) as file:
        np.save(file, marks)
