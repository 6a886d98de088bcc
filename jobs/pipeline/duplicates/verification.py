"""Candidates that are similar indeed: pairs of a bucket are compared before components are formed.

1. Documents that share a band key meet in a bucket; a bucket gives pairs. Of up to `ALL_PAIRS` members all are compared
   with all. In a larger one, where that would cost the square, each member is compared with the `SMALLEST` members of
   the bucket (by doc_id) and with the one before it: a template's copies still hang together, through those.
2. The pairs, each once, are written by the split of their second document; of a template's, the first are few.
3. `exact`: the shingle sets of the documents in a pair are computed split by split, and written.
4. The pairs of each file are compared: by the share of equal values of their signatures (`signature`), or by the
   Jaccard similarity of their sets (`exact`), both mapped, not read whole. Those at or above the threshold are links.

What a task holds is bounded by the pairs of a file (`PAIRS_AT_ONCE` of them with their signatures or sets at a time)
and, in step 3, by the texts of `TEXT_AT_ONCE` bytes or one document.

Source: Broder, "On the resemblance and containment of documents" (1997), for both estimates.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from jobs import steps
from jobs.pipeline.duplicates.components import EDGE, FOREST
from jobs.pipeline.paths import SplitPaths
from jobs.runtime import checkpoint, folders
from jobs.runtime.compute import Named, columns, gather
from jobs.sources import Block
from kernels import shingles

if TYPE_CHECKING:
    import dask.dataframe as dd

    from jobs.runtime.context import Run

FOLDER = "verification"
ALL_PAIRS, SMALLEST = 32, 4
PAIRS_AT_ONCE = 50_000
TEXT_AT_ONCE = 32 * 2**20
BINS = 20  # of the histogram of similarities
# Kinds of rows: a document that shares a key with a reference, a count of rows, and pairs in a bin; bin `BINS` has
# those below the threshold once more.
REFERENCE, SHUFFLED, HISTOGRAM = 2, 3, 4
PAIRS = columns(
    a="uint64",
    b="uint64",
    place_a="uint64",
    place_b="uint64",
    part="int64",
    kind="int8",
)
PLACES = columns(place="uint64")
WRITTEN = columns(documents="int64")


# ---------------------------------------------------------------- pairs of buckets


def bucket_pairs(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Which members of a bucket of so many, in their order, are compared: int64[p] first and second, first < second."""
    if size <= ALL_PAIRS:
        return np.triu_indices(size, 1)
    after = [np.arange(rank + 1, size) for rank in range(SMALLEST)]
    behind = np.arange(SMALLEST + 1, size)  # those before it have met the member before them
    first = np.concatenate([*(np.full(len(one), rank) for rank, one in enumerate(after)), behind - 1])
    return first, np.concatenate([*after, behind])


def pairs_of_buckets(rows: pd.DataFrame, bases: np.ndarray, reference: int) -> pd.DataFrame:
    """Pairs of the members (key, node, root = place) of each bucket, and a mark for members beside a reference."""
    is_reference = rows["kind"].to_numpy() == reference
    key, node, place = (rows.loc[~is_reference, name].to_numpy(np.uint64) for name in ("key", "node", "root"))
    order = np.lexsort((node, key))
    key, node, place = key[order], node[order], place[order]
    first = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1]))[: len(key)])
    sizes = np.diff(first, append=len(key))
    chosen = [
        (first[sizes == size][:, None] + index[None, :]).ravel()
        for size in np.unique(sizes[sizes > 1])
        for index in bucket_pairs(int(size))
    ]
    a, b = (np.concatenate([np.empty(0, np.int64), *chosen[end::2]]) for end in (0, 1))
    marked = np.unique(node[np.isin(key, rows.loc[is_reference, "key"].to_numpy(np.uint64))])
    part = np.searchsorted(bases, place[b].astype(np.int64), side="right") - 1
    pairs = _frame(PAIRS, a=node[a], b=node[b], place_a=place[a], place_b=place[b], part=part, kind=EDGE)
    marks = _frame(PAIRS, a=marked, b=marked, place_a=0, place_b=0, part=0, kind=REFERENCE)
    # The key tells this count from another partition's.
    count = _frame(
        PAIRS, a=np.full(len(key[:1]), len(rows)), b=key[:1], place_a=0, place_b=0, part=0, kind=SHUFFLED
    )
    return pd.concat([pairs.drop_duplicates(["a", "b"]), marks, count], ignore_index=True)


def _frame(meta: pd.DataFrame, **values: Any) -> pd.DataFrame:
    """Columns of these values; each has its dtype before frames are joined, so that no id becomes a float."""
    rows = max(np.size(value) for value in values.values() if np.ndim(value))
    filled = {
        name: np.broadcast_to(np.asarray(values[name], dtype=dtype), rows)
        for name, dtype in meta.dtypes.items()
    }
    return pd.DataFrame(filled)


def write_pairs(rows: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Write the pairs of one partition, each once, and say which places they are at."""
    rows = rows.drop_duplicates(["kind", "a", "b"]).sort_values(["kind", "place_a", "place_b"])
    with checkpoint.written(path) as file:
        pq.write_table(pa.Table.from_pandas(rows, preserve_index=False), file)
    pairs = rows.loc[rows["kind"] == EDGE, ["place_a", "place_b"]].to_numpy(np.uint64)
    return pd.DataFrame({"place": np.unique(pairs)})


# ---------------------------------------------------------------- what is compared


@dataclass(frozen=True)
class Shingled:
    """How the shingle sets of candidates are computed and where they are written."""

    folder: Path
    ngram: int

    def path(self, split: int, what: str) -> Path:
        """`rows` int64[n] of a split, `offsets` int64[n + 1] and `hashes` uint64[s] of their sets."""
        return self.folder / f"sets-{split:06d}.{what}.npy"


@dataclass(frozen=True)
class Wanted:
    """Rows of a split whose sets are wanted, int64[n] in order, the split's number, and the file that it is of."""

    paths: SplitPaths
    rows: np.ndarray
    split: int
    source: Any
    path: str
    blocks: tuple[Block, ...]


def write_sets(wanted: Wanted, how: Shingled) -> pd.DataFrame:
    """Write the shingle sets of some documents of a split, reading so many bytes of text at a time."""
    table = folders.read_table(wanted.paths.rows, columns=["record", "n_bytes"]).take(pa.array(wanted.rows))
    records, batch = table["record"].to_numpy(), np.cumsum(table["n_bytes"].to_numpy()) // TEXT_AT_ONCE
    sets = [np.empty(0, np.uint64)]
    for number in np.unique(batch):
        some = records[batch == number].tolist()
        texts = steps.texts(wanted.source, wanted.path, some, wanted.blocks)
        sets += [shingles.shingles(text or "", how.ngram) for text in texts]
    arrays = {
        "rows": wanted.rows,
        "offsets": np.cumsum([len(one) for one in sets]),
        "hashes": np.concatenate(sets),
    }
    for what, array in arrays.items():
        with checkpoint.written(how.path(wanted.split, what)) as file:
            checkpoint.save_array(file, array)
    return pd.DataFrame({"documents": [len(wanted.rows)]})


Compare = Callable[[np.ndarray, np.ndarray], np.ndarray]  # places int64[p], int64[p] -> similarity float64[p]


@dataclass(frozen=True)
class BySignature:
    """Share of equal values of two signatures, which estimates their similarity."""

    splits: tuple[SplitPaths, ...]
    bases: np.ndarray  # int64[splits], place of the first row of each

    def __call__(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """float64[p] of the documents at places int64[p] and int64[p]."""
        return np.asarray(self.equal(a, b).mean(axis=1))

    def equal(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """bool[p, h] of the documents at places int64[p] and int64[p]: which of their values are equal."""
        places, index = np.unique(np.concatenate((a, b)), return_inverse=True)
        of_split = np.searchsorted(self.bases, places, side="right") - 1
        signatures = np.concatenate(
            [
                np.asarray(folders.load(self.splits[i].signatures)[places[of_split == i] - self.bases[i]])
                for i in np.unique(of_split)
            ]
        )
        return np.asarray(signatures[index[: len(a)]] == signatures[index[len(a) :]])


@dataclass(frozen=True)
class ByShingles:
    """Jaccard similarity of two sets of shingles."""

    splits: tuple[SplitPaths, ...]
    bases: np.ndarray
    how: Shingled

    def __call__(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """float64[p] of the documents at places int64[p] and int64[p]."""
        places, index = np.unique(np.concatenate((a, b)), return_inverse=True)
        of_split = np.searchsorted(self.bases, places, side="right") - 1
        sets: list[np.ndarray] = []
        for i in np.unique(of_split):
            rows, offsets, hashes = (
                folders.load(self.how.path(int(i), what)) for what in ("rows", "offsets", "hashes")
            )
            found = np.searchsorted(rows, places[of_split == i] - self.bases[i])
            sets += [np.asarray(hashes[offsets[row] : offsets[row + 1]]) for row in found]
        pairs = zip(index[: len(a)], index[len(a) :], strict=True)
        return np.array([shingles.jaccard(sets[one], sets[other]) for one, other in pairs])


def verified(path: Path, compare: Compare, threshold: float) -> pd.DataFrame:
    """Links of the pairs in a file that are similar enough, the marks, and how many pairs have which similarity."""
    rows = folders.read_table(path).to_pandas()
    pairs = rows[rows["kind"] == EDGE]
    similarity = np.concatenate(
        [
            np.empty(0),
            *(
                compare(
                    *(
                        pairs[name].to_numpy(np.int64)[i : i + PAIRS_AT_ONCE]
                        for name in ("place_a", "place_b")
                    )
                )
                for i in range(0, len(pairs), PAIRS_AT_ONCE)
            ),
        ]
    )
    chosen = pairs[similarity >= threshold]
    a, b = chosen["a"].to_numpy(np.uint64), chosen["b"].to_numpy(np.uint64)
    others = rows[rows["kind"] != EDGE]
    bins, counts = np.unique(np.minimum((similarity * BINS).astype(int), BINS - 1), return_counts=True)
    fell = int((similarity < threshold).sum())
    return pd.concat(
        [
            _frame(FOREST, node=b, root=a, kind=EDGE),  # of a pair, b has the larger doc_id
            _frame(FOREST, node=others["a"], root=others["b"], kind=others["kind"]),
            _frame(FOREST, node=[*bins, BINS], root=[*counts, fell], kind=HISTOGRAM),
        ],
        ignore_index=True,
    )


# ---------------------------------------------------------------- the graph


def bases(splits: Sequence[SplitPaths]) -> np.ndarray:
    """int64[splits]: place of the first row of each split, where the rows of all are numbered through."""
    sizes = []
    for paths in splits:
        with folders.opened(paths.rows) as source:
            sizes.append(pq.read_metadata(source).num_rows)
    return np.cumsum([0, *sizes])[:-1]


def links(
    run: "Run",
    splits: Sequence[SplitPaths],
    members: "dd.DataFrame",
    folder: Path,
    partitions: int,
    reference: int,
) -> "dd.DataFrame":
    """Links that are similar enough, a Dask dataframe like `FOREST`, from the members of buckets, equal keys together.

    The pairs are written, and the sets of their documents, before this returns.
    """
    import dask
    import dask.dataframe as dd

    settings, starts = run.config.near_duplicates, bases(splits)
    pairs = members.map_partitions(pairs_of_buckets, bases=starts, reference=reference, meta=PAIRS)
    pairs = pairs.shuffle("part", npartitions=partitions)
    files = [folder / f"pairs-{part:05d}.parquet" for part in range(partitions)]
    write = dask.delayed(Named("write pairs", write_pairs), pure=False)
    written = [write(rows, path) for rows, path in zip(pairs.to_delayed(), files, strict=True)]
    graph = dd.from_delayed(written, meta=PLACES, prefix="write-pairs", verify_meta=False)
    with run.console.job("candidates", partitions, "partitions", **run.totals()) as meter:
        places = np.unique(gather(run.client, graph, meter)["place"].to_numpy(np.int64))
    if settings.verify == "exact":
        compare: Compare = ByShingles(
            tuple(splits), starts, _write_all_sets(run, splits, places, starts, folder)
        )
    else:
        compare = BySignature(tuple(splits), starts)
    threshold = settings.threshold
    return dd.from_map(
        verified, files, compare=compare, threshold=threshold, meta=FOREST, label="verify pairs"
    )


def _write_all_sets(
    run: "Run", splits: Sequence[SplitPaths], places: np.ndarray, starts: np.ndarray, folder: Path
) -> Shingled:
    import dask.dataframe as dd

    how = Shingled(folder, run.config.near_duplicates.ngram)
    edges = np.searchsorted(places, [*starts, np.iinfo(np.int64).max])
    jobs = []
    for i, paths in enumerate(splits):
        rows = places[edges[i] : edges[i + 1]] - starts[i]
        if len(rows):
            jobs.append(Wanted(paths, rows, i, *run.text_source(paths, i)))
    if jobs:
        graph = dd.from_map(write_sets, jobs, how=how, meta=WRITTEN, label="shingle texts")
        with run.console.job("shingle sets", len(jobs), "splits", documents=len(places)) as meter:
            gather(run.client, graph, meter)
    return how


def figures(found: pd.DataFrame, verify: str) -> dict[str, Any]:
    """For the report: how many pairs were compared, how many fell, and how many have which similarity.

    The histogram's bins are 1 / `BINS` wide, the last with pairs at 1. Nothing where none was compared.
    """
    if verify == "none":
        return {}
    rows = found[found["kind"] == HISTOGRAM]
    counts = np.bincount(rows["node"].to_numpy(np.int64), rows["root"].to_numpy(np.int64), BINS + 1).astype(
        int
    )
    return {
        "candidate_pairs": int(counts[:BINS].sum()),
        "pairs_below_threshold": int(counts[BINS]),
        "similarity_histogram": counts[:BINS].tolist(),
    }
