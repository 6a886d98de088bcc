"""Candidates: documents that share a band of their signatures, joined to star forests.

Per partition only one document goes into the shuffle for each band key, and a star to it for the others: the components
are the same, and the largest bucket is bounded by the number of partitions. Keys that occur once in the whole corpus,
nearly all of them, stay out of the shuffle altogether (`duplicates.repeats`).
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from jobs.pipeline.duplicates import dropped, repeats, scope, verification
from jobs.pipeline.duplicates.components import FOREST
from jobs.pipeline.duplicates.repeats import Repeats
from jobs.pipeline.paths import SplitPaths
from jobs.runtime import folders
from jobs.runtime.compute import Named, columns
from kernels import bands, union_find

if TYPE_CHECKING:
    import dask.dataframe as dd

    from jobs.runtime.context import Run

# What a row of the shuffled frame says about `node`, a doc_id.
MEMBER, EDGE, REFERENCE, SHUFFLED = range(4)
# MEMBER: it has this band key. EDGE: it is linked to `root`. REFERENCE: a reference document has this key.
# SHUFFLED: no document, but a count of rows.
KEYS = columns(
    key="uint64",
    node="uint64",
    root="uint64",
    kind="int8",
)
KEYS_IN_A_PARTITION = 4_000_000  # of the shuffle, at most: 100 MB, should all of them repeat but in no split


@dataclass(frozen=True)
class Compared:
    """Which documents are compared: within which scope, and the jobs before, which had dropped some."""

    scope: str = scope.CORPUS
    earlier: tuple[str, ...] = ()


EVERYTHING = Compared()


@dataclass(frozen=True)
class Candidates:
    """Whose band keys are shuffled, and how.

    Attributes
    ----------
    splits, references
        Annotated splits of the sources, and of those of earlier runs; and of the reference sets.
    n_bands, rows
        The banding.
    documents
        How many there are, about.
    folder
        For what the tasks share; it can go afterwards.
    tasks
        How many run at once.
    compared
        Which of the documents, and within what.
    """

    splits: list[SplitPaths]
    references: list[SplitPaths]
    n_bands: int
    rows: int
    documents: int
    folder: Path
    tasks: int
    compared: Compared = EVERYTHING


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
    doc_ids, keys, _ = keys_of_split(paths, n_bands, rows, compared)
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
    keys = np.unique(keys_of_split(paths, n_bands, rows, EVERYTHING)[1])
    if repeated is not None:
        keys = keys[repeated.among(keys)]
    nothing = np.zeros(len(keys), np.uint64)
    return _frame(KEYS, key=keys, node=nothing, root=nothing, kind=REFERENCE)


def member_rows(
    paths: SplitPaths, n_bands: int, rows: int, repeated: Repeats, base: int, compared: Compared
) -> pd.DataFrame:
    """One MEMBER row for each document and key that may occur twice; its root is the document's place, from `base`."""
    doc_ids, keys, places = keys_of_split(paths, n_bands, rows, compared)
    chosen = repeated.among(keys)
    document, _ = np.nonzero(chosen)
    return _frame(
        KEYS,
        key=keys[chosen],
        node=doc_ids[document],
        root=(base + places[document]).astype(np.uint64),
        kind=MEMBER,
    )


def keys_of_split(
    paths: SplitPaths, n_bands: int, rows: int, compared: Compared
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """doc_ids uint64[d], band keys uint64[d, b] and rows int64[d] of documents with words that were not dropped.

    A scope's label is a part of its keys, so that equal bands of different crawls or sources do not meet.
    """
    wanted = ["doc_id", "n_words", "fate", *scope.columns(compared.scope)]
    table = folders.read_table(paths.rows, columns=wanted)
    comparable = (table["n_words"].to_numpy() > 0) & dropped.taking_part(table, paths.out, compared.earlier)
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


# ---------------------------------------------------------------- the graph


def forests(of: Candidates) -> "dd.DataFrame":
    """Star forests of the candidates; `duplicates.components` makes one of them.

    1. Note which keys may occur twice (`duplicates.repeats`).
    2. Shuffle those, equal keys together.
    3. Make stars of the buckets, and a forest of each partition's.
    """
    keys = _shuffled(of, [(partial(band_rows, compared=of.compared), paths) for paths in of.splits])
    return keys.map_partitions(Named("link documents that share a band", forest_of_buckets), meta=FOREST)


def verified_forests(run: "Run", of: Candidates) -> "dd.DataFrame":
    """`forests` of the candidates that `duplicates.verification` finds similar enough."""
    starts = verification.bases(of.splits).tolist()
    chosen = [
        (partial(member_rows, base=base, compared=of.compared), paths)
        for paths, base in zip(of.splits, starts, strict=True)
    ]
    members = _shuffled(of, chosen)
    return verification.links(run, of.splits, members, of.folder, members.npartitions, REFERENCE)


def _shuffled(of: Candidates, chosen: list[Any]) -> "dd.DataFrame":
    """Rows that functions give of splits, and those of the references, equal keys together."""
    import dask
    import dask.dataframe as dd

    keys_of = partial(_flat_keys, n_bands=of.n_bands, rows=of.rows, compared=of.compared)
    n_keys = of.documents * of.n_bands
    repeated = repeats.graph([*of.splits, *of.references], keys_of, n_keys, of.folder, of.tasks)
    frames = [
        dask.delayed(Named("read bands", function), pure=False)(paths, of.n_bands, of.rows, repeated)
        for function, paths in [*chosen, *((reference_rows, paths) for paths in of.references)]
    ]
    keys = dd.from_delayed(frames, meta=KEYS, prefix="band-keys", verify_meta=False)
    return keys.shuffle("key", npartitions=max(of.tasks, n_keys // KEYS_IN_A_PARTITION))


def _flat_keys(paths: SplitPaths, n_bands: int, rows: int, compared: Compared) -> np.ndarray:
    return keys_of_split(paths, n_bands, rows, compared)[1].ravel()
