"""A supervised fastText model as arrays, and the tables that are made from what its file has.

Format: fastText 0.9.2, `Dictionary::load` and `HierarchicalSoftmaxLoss::buildTree`.

Dimensions: entries e (words, then labels), labels l, rows r, columns c.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.accelerate import inlined, kernel
from kernels.arrays import read_only
from kernels.intrinsics import load64

HIERARCHICAL, NEGATIVE_SAMPLING, SOFTMAX, ONE_VS_ALL = range(1, 5)  # losses, numbered as in a model's file
CENTROIDS = 256  # of a part of a quantizer
LONGEST = 256  # n-grams, of characters or words, that the kernels have room for
LARGEST_COUNT = 1e15  # of a node of the tree that has no children yet
SIGMOID_SIZE, SIGMOID_MOST = 512, 8  # steps of the table, and where it ends
HASH_BASE, _HASH_PRIME = np.uint32(2166136261), np.uint32(16777619)
_ENTRY_NUMBERS = 9  # bytes behind the zero of an entry


class Entries(NamedTuple):
    """Words and labels as a model's file has them."""

    starts: NDArray[np.int64]  # [e], where each is written
    ends: NDArray[np.int64]  # [e]
    counts: NDArray[np.int64]  # [e]
    types: NDArray[np.int8]  # [e]
    end: int  # of the last entry and its numbers


class _Texts(NamedTuple):
    """The part of a dictionary by which its entries are compared."""

    text: NDArray[np.uint8]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


class Dictionary(NamedTuple):
    """Words and labels, and which row a bucket of n-grams has."""

    text: NDArray[np.uint8]  # where the entries are written
    starts: NDArray[np.int64]  # [e] of each in `text`
    ends: NDArray[np.int64]  # [e]
    table: NDArray[np.int32]  # entries by hash, -1 where there is none; see `entry_table`
    n_words: int
    buckets: int
    pruned: bool
    kept: NDArray[np.uint64]  # where `pruned`, a bit for each bucket: whether it has a row
    kept_before: NDArray[np.int32]  # how many have one before each 64
    kept_rows: NDArray[np.int32]  # theirs in the order of the buckets, behind the words; one number more
    shortest: int  # characters of n-grams, the word's boundaries included
    longest: int
    longest_words: int  # words of an n-gram of words


class Input(NamedTuple):
    """The rows of words and n-grams: plain, or the centroids that their codes name, times a norm."""

    columns: int
    bytes: NDArray[np.uint8]  # float32[r, c] as bytes, at any alignment; none where there are codes
    first: int  # where they begin
    codes: NDArray[np.uint8]  # [r, parts]
    centroids: NDArray[np.float32]  # 256 of each part, each of `part` columns, in the last part of the rest
    norms: NDArray[np.float32]  # [r]
    part: int


class Output(NamedTuple):
    """What makes probabilities of the mean row."""

    loss: int
    weights: NDArray[np.float32]  # [l, c]
    left: NDArray[np.int32]  # [2 * l - 1] children of the hierarchical loss's nodes, labels first; -1: none
    right: NDArray[np.int32]
    parents: NDArray[np.int32]
    sigmoid: NDArray[np.float32]  # [513]


class Model(NamedTuple):
    """A model, all of its positions within its arrays."""

    dictionary: Dictionary
    input: Input
    output: Output


def new_model(dictionary: Dictionary, rows: Input, output: Output) -> Model:
    """A model whose arrays are read-only views, so that the kernels are compiled once for all."""
    return Model(_frozen(dictionary), _frozen(rows), _frozen(output))


def _frozen(part: Any) -> Any:
    values = (read_only(x, x.dtype, x.ndim) if isinstance(x, np.ndarray) else x for x in part)
    return type(part)(*values)


def find_entries(content: NDArray[np.uint8], place: int, n_entries: int) -> Entries:
    """The entries of a model's file, from a place on: zero-ended text, int64 count and int8 type each.

    Raises
    ------
    ValueError
        When there are not as many.
    """
    if not 0 <= n_entries * (_ENTRY_NUMBERS + 1) <= len(content):
        raise ValueError(f"there are no {n_entries} entries in {len(content)} bytes")
    found = Entries(*_find_entries(read_only(content, np.uint8), place, n_entries))
    if found.end < 0:
        raise ValueError(f"there are no {n_entries} entries")
    return found


def entry_table(
    text: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.int32]:
    """int32[2**k], entries by the hash of their bytes, linear probing; of equal ones the last."""
    return _entry_table(read_only(text, np.uint8), read_only(starts, np.int64), read_only(ends, np.int64))


def kept_buckets(
    buckets: NDArray[np.int32], rows: NDArray[np.int32], n_buckets: int
) -> tuple[NDArray[np.uint64], NDArray[np.int32], NDArray[np.int32]]:
    """Rows of the buckets that a pruned model keeps, as `Dictionary` has them; of equal buckets the last counts.

    Raises
    ------
    ValueError
        When a bucket is none of `n_buckets`.
    """
    if len(buckets) and not 0 <= buckets.min() <= buckets.max() < n_buckets:
        raise ValueError(f"a bucket is not among {n_buckets}")
    different, last = np.unique(buckets[::-1], return_index=True)
    blocks, bits = different >> 6, np.uint64(1) << (different & 63).astype(np.uint64)
    kept, before = np.zeros(n_buckets // 64 + 1, np.uint64), np.zeros(n_buckets // 64 + 1, np.int32)
    np.bitwise_or.at(kept, blocks, bits)
    before[1:] = np.cumsum(np.bincount(blocks, minlength=len(kept)))[:-1]
    return kept, before, np.append(rows[::-1][last], np.int32(0)).astype(np.int32)


def tree(counts: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """The hierarchical loss's Huffman tree.

    Parameters
    ----------
    counts : int64[l]
        Of each label, in the model's order, their sum below `LARGEST_COUNT`.

    Returns
    -------
    left, right, parents : int32[2 * l - 1]
        Of each node, the labels first and the root last; -1 where there is none.
    """
    return _tree(read_only(counts, np.int64))


def sigmoid_table() -> NDArray[np.float32]:
    """float32[513], the sigmoid of -8 to 8, as fastText has it."""
    x = np.arange(SIGMOID_SIZE + 1, dtype=np.float32) * np.float32(2 * SIGMOID_MOST)
    x = x / np.float32(SIGMOID_SIZE) - np.float32(SIGMOID_MOST)
    return (1 / (1 + np.exp(-x).astype(np.float64))).astype(np.float32)


@inlined
def hash_on(value, byte):
    """One more byte; as a signed one it sets the bits above it, too."""
    return np.uint32((value ^ np.uint32(np.int32(np.int8(byte)))) * _HASH_PRIME)


@inlined
def hash_word(data, first, end):
    """Hash as fastText has it, of ``data[first:end]``."""
    value = HASH_BASE
    for i in range(first, end):
        value = hash_on(value, data[i])
    return value


@inlined
def same_text(data, first, end, dictionary, entry):
    """Whether ``data[first:end]`` is an entry."""
    start, i = dictionary.starts[entry], 0
    if dictionary.ends[entry] - start != end - first:
        return False
    while first + i < end and dictionary.text[start + i] == data[first + i]:
        i += 1
    return first + i == end


@kernel
def _find_entries(content, place, n_entries):
    starts, ends = np.empty(n_entries, np.int64), np.empty(n_entries, np.int64)
    counts, types = np.empty(n_entries, np.int64), np.empty(n_entries, np.int8)
    for entry in range(n_entries):
        starts[entry] = place
        while place < len(content) and content[place] != 0:
            place += 1
        if place + _ENTRY_NUMBERS >= len(content):
            return starts, ends, counts, types, -1
        ends[entry] = place
        counts[entry], types[entry] = load64(content, place + 1), content[place + _ENTRY_NUMBERS]
        place += _ENTRY_NUMBERS + 1
    return starts, ends, counts, types, place


@kernel
def _entry_table(text, starts, ends):
    table = np.full(_table_size(len(starts)), -1, np.int32)
    dictionary = _Texts(text, starts, ends)
    for entry in range(len(starts)):
        first, end = starts[entry], ends[entry]
        place = np.int64(hash_word(text, first, end)) & (len(table) - 1)
        while table[place] >= 0 and not same_text(text, first, end, dictionary, table[place]):
            place = (place + 1) & (len(table) - 1)
        table[place] = entry
    return table


@kernel
def _table_size(n):
    """A power of two, half of it empty."""
    size = 1
    while size < 2 * n + 1:
        size *= 2
    return size


@kernel
def _tree(counts):
    n_labels = len(counts)
    n_nodes = 2 * n_labels - 1
    left, right = np.full(n_nodes, -1, np.int32), np.full(n_nodes, -1, np.int32)
    parents, sums = np.full(n_nodes, -1, np.int32), np.full(n_nodes, np.int64(LARGEST_COUNT), np.int64)
    sums[:n_labels] = counts
    leaf, inner = n_labels - 1, n_labels
    for node in range(n_labels, n_nodes):
        children = (left, right)
        for i in range(2):
            if leaf >= 0 and sums[leaf] < sums[inner]:
                child, leaf = leaf, leaf - 1
            else:
                child, inner = inner, inner + 1
            children[i][node], parents[child] = child, node
        sums[node] = sums[left[node]] + sums[right[node]]
    return left, right, parents
