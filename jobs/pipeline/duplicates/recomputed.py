"""Clusters of near-duplicates computed again from the signatures alone, for a proof of those that a run committed.

One process, without Dask, the shuffle, the tables of `duplicates.repeats` or any file of the job itself:

1. Band keys of the documents that came as far as this step, split by split. Keys are looked at range by range of their
   values, so that about `KEYS_AT_ONCE` of them are in memory whatever the corpus.
2. Equal keys link the documents of a bucket to its smallest; with `verify: signature` they are compared first, in the
   pairs that `verification.bucket_pairs` names.
3. The links of each range join a star forest.

Documents of earlier runs (`duplicates.against`) take part, and what those runs dropped is linked to what they kept.

With `verify: exact` the links depend on texts as well. Signatures then say which documents can be in a cluster: a
cluster never holds documents of two components of candidates.

Memory: `KEYS_AT_ONCE` keys with their documents, sorted (about 40 bytes each), the documents of one split, and 16 bytes
for each document in a cluster.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs import ledger
from jobs.pipeline.duplicates import scope, verification
from jobs.pipeline.duplicates.dropped import find
from jobs.pipeline.paths import SplitPaths
from jobs.runtime import folders
from kernels import bands, union_find

KEYS_AT_ONCE = 8_000_000
COLUMNS = ["doc_id", "fate", "n_words"]
_CAME_SO_FAR = (
    ledger.TRAIN,
    ledger.VALIDATION,
    *ledger.STEPS[ledger.STEPS.index(ledger.NEAR_DUPLICATE) :],
)


@dataclass(frozen=True)
class Annotated:
    """Documents of a finished run.

    Attributes
    ----------
    out
        The output, whose ledger says which documents came as far.
    splits, documents
        Annotated splits in the ledger's order, and how many documents each has.
    """

    out: Path
    splits: Sequence[SplitPaths]
    documents: Sequence[int]


@dataclass(frozen=True)
class Signed:
    """Signatures, and how they are compared.

    Attributes
    ----------
    runs
        Whose they are, this run and then the earlier ones.
    n_bands, rows
        The banding.
    scope
        Within which documents are compared.
    threshold
        Share of equal values that a link needs; None where every candidate is one.
    """

    runs: Sequence[Annotated]
    n_bands: int
    rows: int
    scope: str = scope.CORPUS
    threshold: float | None = None

    @property
    def documents(self) -> list[int]:
        """Of each split of all runs."""
        return [count for one in self.runs for count in one.documents]


@dataclass
class Keys:
    """Band keys uint64[n], with the doc_id uint64[n] and the place int64[n] in the ledger of the document of each."""

    key: np.ndarray
    node: np.ndarray
    place: np.ndarray


def forest(of: Signed, keys_at_once: int = KEYS_AT_ONCE) -> np.ndarray:
    """Star forest uint64[n, 2], sorted by node, of all documents that have a link.

    Parameters
    ----------
    of
        What is compared.
    keys_at_once
        About how many keys are in memory.
    """
    log2_ranges = max(0, int(np.ceil(np.log2(max(1, sum(of.documents) * of.n_bands / keys_at_once)))))
    found = np.concatenate([np.empty((0, 2), np.uint64), *map(known_links, of.runs[1:])])
    for part in range(2**log2_ranges):
        keys = _repeated(_in_range(of, log2_ranges, part))
        links = _candidates(keys) if of.threshold is None else _similar(of, keys)
        found = union_find.star_forest(np.concatenate((found, links)))
    return found


def _in_range(of: Signed, log2_ranges: int, part: int) -> Keys:
    """The keys whose highest bits are `part`."""
    found, start = [], 0
    columns = [*COLUMNS, *scope.columns(of.scope)]
    tables = (rows for one in of.runs for rows in rows_of_splits(one.out, columns, one.documents))
    splits = (paths for one in of.runs for paths in one.splits)
    for paths, table in zip(splits, tables, strict=True):
        chosen = np.flatnonzero(comparable(table))
        signatures = folders.load(paths.signatures)[chosen]
        keys = bands.band_keys(signatures, of.n_bands, of.rows)
        keys ^= scope.labels(table, of.scope)[chosen, None]
        document, band = np.nonzero((keys >> np.uint64(63 - log2_ranges)) >> np.uint64(1) == part)
        doc_ids = table["doc_id"].to_numpy()[chosen]
        found.append((keys[document, band], doc_ids[document], start + chosen[document]))
        start += len(table)
    return Keys(*(np.concatenate(arrays) for arrays in zip(*found, strict=True)))


def known_links(earlier: Annotated) -> np.ndarray:
    """uint64[n, 2]: what an earlier run dropped, with what it kept in its place, by its ledger."""
    links = [np.empty((0, 2), np.uint64)]
    for path in ledger.files(earlier.out):
        table = folders.read_table(path, columns=["doc_id", "kept_by", "fate"])
        dropped = table.filter(pc.equal(table["fate"].cast(pa.string()), ledger.NEAR_DUPLICATE))
        links.append(np.column_stack([dropped[name].to_numpy() for name in ("doc_id", "kept_by")]))
    return np.concatenate(links)


def comparable(table: pa.Table) -> np.ndarray:
    """bool[d]: documents with words that no earlier step dropped."""
    step = pc.list_element(pc.split_pattern(table["fate"].cast(pa.string()), "."), 0)
    return np.asarray(pc.is_in(step, pa.array(_CAME_SO_FAR))) & (table["n_words"].to_numpy() > 0)


def rows_of_splits(out: Path, columns: list[str], documents: Sequence[int]) -> Iterator[pa.Table]:
    """The ledger's rows of each split, one after the other, no more than a file and a split in memory."""
    files = iter(ledger.files(out))
    left = pa.table({})
    for wanted in documents:
        while len(left) < wanted:
            read = folders.read_table(next(files), columns=columns)
            left = pa.concat_tables([left, read]) if len(left) else read
        yield left.slice(0, wanted)
        left = left.slice(wanted)


def _repeated(keys: Keys) -> Keys:
    """Those that occur more than once, equal ones together."""
    order = np.argsort(keys.key)
    ordered = keys.key[order]
    same = ordered[1:] == ordered[:-1]
    twice = (
        order[np.concatenate((same, [False])) | np.concatenate(([False], same))] if len(same) else order[:0]
    )
    return Keys(keys.key[twice], keys.node[twice], keys.place[twice])


def _candidates(keys: Keys) -> np.ndarray:
    """uint64[n, 2]: each document linked to the smallest that has its key."""
    first, bucket = _buckets(keys)
    smallest = np.minimum.reduceat(keys.node, first) if len(first) else keys.node
    return np.column_stack((keys.node, smallest[bucket]))


def _similar(of: Signed, keys: Keys) -> np.ndarray:
    """uint64[n, 2]: documents that have a key in common and enough values of their signatures."""
    order = np.lexsort((keys.node, keys.key))
    keys = Keys(keys.key[order], keys.node[order], keys.place[order])
    first, _ = _buckets(keys)
    sizes = np.diff(first, append=len(keys.key))
    starts = np.cumsum([0, *of.documents])[:-1]
    splits = tuple(paths for one in of.runs for paths in one.splits)
    compare = verification.BySignature(splits, starts)
    links = [np.empty((0, 2), np.uint64)]
    for size in np.unique(sizes):
        a, b = (
            (first[sizes == size][:, None] + members[None, :]).ravel()
            for members in verification.bucket_pairs(int(size))
        )
        for i in range(0, len(a), verification.PAIRS_AT_ONCE):
            some, others = (rows[i : i + verification.PAIRS_AT_ONCE] for rows in (a, b))
            alike = compare(keys.place[some], keys.place[others]) >= of.threshold
            links.append(np.column_stack((keys.node[some[alike]], keys.node[others[alike]])))
    return np.concatenate(links)


def _buckets(keys: Keys) -> tuple[np.ndarray, np.ndarray]:
    """Where each run of equal keys starts, and the number of each key's run."""
    starts = np.ones(len(keys.key), bool)
    starts[1:] = keys.key[1:] != keys.key[:-1]
    return np.flatnonzero(starts), np.cumsum(starts) - 1


def unlike(stars: np.ndarray, doc_ids: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """Documents that are in another cluster than a star forest says, or in one of the two only.

    Parameters
    ----------
    stars : uint64[n, 2]
        The forest, sorted by node.
    doc_ids, clusters : uint64[m]
        What was committed.
    """
    place = find(stars[:, 0], doc_ids)
    as_said = place >= 0
    as_said[as_said] = stars[place[as_said], 1] == clusters[as_said]
    return np.concatenate((doc_ids[~as_said], np.setdiff1d(stars[:, 0], doc_ids)))


def joined(stars: np.ndarray, doc_ids: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """Documents that are in a cluster with one that the candidates do not link them to, however far; see `unlike`."""
    place = find(stars[:, 0], doc_ids)
    roots = np.where(place >= 0, stars[place, 1], doc_ids) if len(stars) else doc_ids
    named = find(np.sort(doc_ids), clusters)  # a cluster has the name of one of its documents
    of_name = roots[np.argsort(doc_ids)][named]
    return np.asarray(doc_ids[(place < 0) | (named < 0) | (roots != of_name)])
