"""Shingles: the hashes of a document's runs of n consecutive words.

A shingle is a slice of the document's normal form (see `kernels.words`): n words joined by single
spaces, as UTF-8. Its hash is XXH3-64 of those bytes. A document of fewer words, but at least one, has
one shingle: all its words. A document without words has none.

Dimensions: documents d, bytes n, shingles s.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.accelerate import kernel
from kernels.arrays import check_offsets, read_only
from kernels.words import INVALID, drop_words, new_cursor, next_words, scratch_size, unicode_tables
from kernels.xxh3 import hash_slice

NGRAM = 5
CHUNK = 8192  # with what is made of it, it stays in the first-level cache
LONGEST_CODE_POINT = 4
LANES = 32  # room for hashes comes in multiples of it: four vectors of eight


def shingles(text: str, ngram: int = NGRAM) -> NDArray[np.uint64]:
    """Hashes of the different shingles of one text.

    Parameters
    ----------
    text : str
        Any text that can be encoded as UTF-8.
    ngram : int
        Words in a shingle, at least 1.

    Returns
    -------
    uint64[s]
        Sorted, each once.

    Raises
    ------
    ValueError
        When `ngram` is less than 1, or the text cannot be encoded.
    """
    data = np.frombuffer(text.encode(), dtype=np.uint8)
    return shingle_sets(data, np.array([0, len(data)]), ngram)[0]


def shingle_sets(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], ngram: int = NGRAM
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Hashes of the different shingles of each of several documents.

    Parameters
    ----------
    data : uint8[n]
        The documents' UTF-8.
    offsets : int64[d + 1]
        Document i is ``data[offsets[i] : offsets[i + 1]]``.
    ngram : int
        Words in a shingle, at least 1.

    Returns
    -------
    hashes : uint64[s]
        The sets one after the other, each sorted. A document that is not valid UTF-8 has none.
    set_offsets : int64[d + 1]
        Document i's set is ``hashes[set_offsets[i] : set_offsets[i + 1]]``.

    Raises
    ------
    ValueError
        When the offsets do not lie within `data`, or `ngram` is less than 1.
    """
    data, offsets = read_only(data, np.uint8), read_only(offsets, np.int64)
    check_offsets(offsets, len(data))
    check_ngram(ngram)
    return _shingle_sets(data, offsets, ngram, unicode_tables(), new_buffers(offsets, ngram))


def jaccard(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> float:
    """Jaccard similarity of two sets: the size of their intersection over that of their union.

    Parameters
    ----------
    a, b : uint64[s]
        Sorted, each element once, as `shingles` gives them.

    Returns
    -------
    float
        From 0 to 1; two empty sets have nothing in common: 0.
    """
    shared = _intersection_size(read_only(a, np.uint64), read_only(b, np.uint64))
    union = len(a) + len(b) - shared
    return shared / union if union else 0.0


class Buffers(NamedTuple):
    """Scratch space for `next_shingles` over a batch of documents."""

    scratch: NDArray[np.uint8]  # normal form
    starts: NDArray[np.int64]  # of the words in it
    hashes: NDArray[np.uint64]  # of the shingles, in multiples of LANES
    chunk: int  # bytes of a document between two looks at its shingles


def new_buffers(offsets: NDArray[np.int64], ngram: int, chunk: int = CHUNK) -> Buffers:
    """Buffers for the documents at `offsets`.

    The first is as large as the longest document could need, but memory that is not written to is not
    taken: the part in use holds one chunk and the `ngram` words before it.
    """
    longest = int(np.diff(offsets).max(initial=0))
    n_words = chunk + LONGEST_CODE_POINT + ngram
    return Buffers(
        np.empty(scratch_size(longest), np.uint8),
        np.empty(n_words, np.int64),
        np.empty(n_words + LANES, np.uint64),
        chunk,
    )


def check_ngram(ngram: int) -> None:
    """Raise ValueError unless a shingle has at least one word."""
    if ngram < 1:
        raise ValueError(f"a shingle has at least one word, not {ngram}")


@kernel
def _intersection_size(a, b):
    i = j = shared = 0
    while i < len(a) and j < len(b):
        shared += a[i] == b[j]
        i, j = i + (a[i] <= b[j]), j + (b[j] <= a[i])
    return shared


@kernel
def _shingle_sets(data, offsets, ngram, tables, buffers):
    hashes = np.empty(offsets[-1] - offsets[0], np.uint64)  # a shingle begins at a byte of its own
    set_offsets = np.zeros(len(offsets), np.int64)
    for document in range(len(offsets) - 1):
        first = end = set_offsets[document]
        cursor, stop = new_cursor(offsets[document]), offsets[document + 1]
        while INVALID < cursor.position < stop:
            cursor, n_hashes = next_shingles(data, stop, ngram, tables, cursor, buffers)
            hashes[end : end + n_hashes] = buffers.hashes[:n_hashes]
            end += n_hashes
        if cursor.position == INVALID:
            end = first
        set_offsets[document + 1] = first + _sort_unique(hashes[first:end])
    return hashes[: set_offsets[-1]].copy(), set_offsets


@kernel
def _sort_unique(values):
    """Sort in place, bring each value once to the front; how many there are."""
    values.sort()
    n_unique = 0
    for i in range(len(values)):
        if i == 0 or values[i] != values[n_unique - 1]:
            values[n_unique] = values[i]
            n_unique += 1
    return n_unique


@kernel
def next_shingles(data, stop, ngram, tables, cursor, buffers):
    """Hash the shingles that the next chunk of a document completes.

    Parameters
    ----------
    data, stop, tables, cursor
        As for `kernels.words.next_words`.
    ngram : int
        Words in a shingle.
    buffers : Buffers
        From `new_buffers`; receives the hashes.

    Returns
    -------
    cursor : Cursor
        For the next call; at the document's end, its position is `stop`.
    n_hashes : int
        How many hashes were written.
    """
    scratch, starts, hashes, chunk = buffers
    cursor, n_complete = next_words(data, stop, tables, cursor, scratch, starts, chunk)
    if cursor.position == INVALID:
        return cursor, 0
    at_end = cursor.position == stop
    n_hashes = max(n_complete - ngram + 1, 0)
    for i in range(n_hashes):
        hashes[i] = hash_slice(scratch, starts[i], starts[i + ngram] - 1)
    if at_end and 0 < cursor.n_words < ngram:
        hashes[0] = hash_slice(scratch, starts[0], starts[cursor.n_words] - 1)
        return cursor, 1
    return drop_words(cursor, n_hashes, scratch, starts), n_hashes
