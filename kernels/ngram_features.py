"""Hashed word n-grams: what a linear classifier sees of a document.

The n-grams of a document are its runs of 1, 2, … n consecutive words (see `kernels.words`), each as a slice of the
normal form: words joined by single spaces, as UTF-8. An n-gram's bucket is the upper `bits` bits of the XXH3-64 of its
bytes; different n-grams may share one (Weinberger et al. 2009, "Feature Hashing for Large Scale Multitask Learning",
without the sign).

Dimensions: documents d, bytes n, features f (different buckets of the documents), buckets b.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.accelerate import kernel
from kernels.arrays import check_offsets, read_only
from kernels.words import INVALID, drop_words, new_cursor, next_words, scratch_size, unicode_tables
from kernels.xxh3 import hash_slice

CHUNK = 8192  # with what is made of it, it stays in the first-level cache
LONGEST_CODE_POINT = 4
MOST_BITS = 28


class Grams(NamedTuple):
    """Which n-grams are looked at.

    Attributes
    ----------
    longest
        Words of the longest n-gram, at least 1.
    bits
        2**bits buckets; from 1 to `MOST_BITS`.
    """

    longest: int = 2
    bits: int = 20


class Buffers(NamedTuple):
    """Scratch space for `next_buckets` over a batch of documents."""

    scratch: NDArray[np.uint8]  # normal form
    starts: NDArray[np.int64]  # of the words in it
    buckets: NDArray[np.uint32]  # of the n-grams that begin in a chunk
    chunk: int  # bytes of a document between two looks at its n-grams


def ngram_features(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], grams: Grams
) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.int64]]:
    """Buckets of the n-grams of each of several documents, and how often each occurs.

    Parameters
    ----------
    data : uint8[n]
        The documents' UTF-8.
    offsets : int64[d + 1]
        Document i is ``data[offsets[i] : offsets[i + 1]]``.
    grams : Grams
        Which n-grams are looked at.

    Returns
    -------
    buckets : uint32[f]
        One document after the other, each document's ascending. A document that is not valid UTF-8 has none.
    counts : uint32[f]
        Occurrences of each in its document.
    feature_offsets : int64[d + 1]
        Document i's features are ``[feature_offsets[i] : feature_offsets[i + 1]]``.

    Raises
    ------
    ValueError
        When the offsets do not lie within `data`, or `grams` cannot be.
    """
    data, offsets = read_only(data, np.uint8), read_only(offsets, np.int64)
    check_offsets(offsets, len(data))
    check_grams(grams)
    return _ngram_features(data, offsets, grams, unicode_tables(), new_buffers(offsets, grams))


def check_grams(grams: Grams) -> None:
    """Raise ValueError unless there is an n-gram, and a bucket, and not too many of them."""
    if grams.longest < 1:
        raise ValueError(f"an n-gram has at least one word, not {grams.longest}")
    if not 1 <= grams.bits <= MOST_BITS:
        raise ValueError(f"buckets have 1 to {MOST_BITS} bits, not {grams.bits}")


def new_buffers(offsets: NDArray[np.int64], grams: Grams, chunk: int = CHUNK) -> Buffers:
    """Buffers for the documents at `offsets`; see `kernels.shingles.new_buffers`."""
    longest = int(np.diff(offsets).max(initial=0))
    n_words = chunk + LONGEST_CODE_POINT + grams.longest
    return Buffers(
        np.empty(scratch_size(longest), np.uint8),
        np.empty(n_words, np.int64),
        np.empty(n_words * grams.longest, np.uint32),
        chunk,
    )


@kernel
def _ngram_features(data, offsets, grams, tables, buffers):
    n_bytes = offsets[-1] - offsets[0]
    buckets = np.empty(n_bytes * grams.longest, np.uint32)  # a word begins at a byte of its own
    counts = np.empty(len(buckets), np.uint32)
    feature_offsets = np.zeros(len(offsets), np.int64)
    for document in range(len(offsets) - 1):
        first = end = feature_offsets[document]
        cursor, stop = new_cursor(offsets[document]), offsets[document + 1]
        while INVALID < cursor.position < stop:
            cursor, n_buckets = next_buckets(data, stop, grams, tables, cursor, buffers)
            buckets[end : end + n_buckets] = buffers.buckets[:n_buckets]
            end += n_buckets
        if cursor.position == INVALID:
            end = first
        feature_offsets[document + 1] = first + _count(buckets[first:end], counts[first:end])
    n_features = feature_offsets[-1]
    return buckets[:n_features].copy(), counts[:n_features].copy(), feature_offsets


@kernel
def _count(buckets, counts):
    """Sort in place, bring each bucket once to the front and its occurrences to `counts`; how many there are."""
    buckets.sort()
    n_different = 0
    for i in range(len(buckets)):
        if i == 0 or buckets[i] != buckets[n_different - 1]:
            buckets[n_different] = buckets[i]
            counts[n_different] = 0
            n_different += 1
        counts[n_different - 1] += np.uint32(1)
    return n_different


@kernel
def next_buckets(data, stop, grams, tables, cursor, buffers):
    """Buckets of the n-grams that begin in the next chunk of a document, in the order of their first words.

    Parameters
    ----------
    data, stop, cursor
        As for `kernels.words.next_words`.
    grams : Grams
        Which n-grams are looked at.
    tables : Tables
        From `unicode_tables`.
    buffers : Buffers
        From `new_buffers`; receives the buckets.

    Returns
    -------
    cursor : Cursor
        For the next call; at the document's end, its position is `stop`.
    n_buckets : int
        How many buckets were written.
    """
    scratch, starts, buckets, chunk = buffers
    cursor, n_complete = next_words(data, stop, tables, cursor, scratch, starts, chunk)
    if cursor.position == INVALID:
        return cursor, 0
    at_end = cursor.position == stop
    n_starts = n_complete if at_end else max(n_complete - grams.longest + 1, 0)
    shift = np.uint64(64 - grams.bits)
    n_buckets = 0
    for word in range(n_starts):
        for end in range(word + 1, min(word + grams.longest, n_complete) + 1):
            buckets[n_buckets] = hash_slice(scratch, starts[word], starts[end] - 1) >> shift
            n_buckets += 1
    return drop_words(cursor, n_starts, scratch, starts), n_buckets
