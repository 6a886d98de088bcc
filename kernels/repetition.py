"""How much of a document repeats itself: runs of n consecutive segments, for n from 2 to 10.

Two runs of 2 to 4 segments are equal when their segments are; two of 5 to 10 when their segments are
equal once joined without a space. That is how datatrove's filter compares them, and the published
thresholds (Rae et al. 2021, table A1) are used with it. Equality is that of 64-bit hashes.

Few runs are looked at that do not occur twice. A run of n + 1 segments occurs twice only where the two
runs of n in it do; equal runs of five or more begin with the same bytes, at least so far as they go.

Dimensions: segments s, candidates c, slots of a hash table k.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.accelerate import inlined, kernel
from kernels.intrinsics import load64, multiply_fold
from kernels.segmentation import CHUNK, MOST_SEGMENTS
from kernels.xxh3 import hash_slice

TOP_GRAMS = (2, 3, 4)
DUPLICATE_GRAMS = (5, 6, 7, 8, 9, 10)
_SHORTEST = DUPLICATE_GRAMS[0]
_WINDOW = 16  # bytes that are hashed at once
_WINDOWS = (16, 8)  # bytes to sieve the candidates by
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_KEY1, _KEY2 = np.uint64(0x1CAD21F72C81017C), np.uint64(0xDB979083E96DD4DE)
_MASKS = np.array([2 ** (8 * min(size, 8)) - 1 for size in range(_WINDOW + 1)], np.uint64)
_PLACES = 8  # for each candidate, or more: of 100 that occur once, 12 or fewer share a place with another
ONCE, TWICE = 1, 3
_at = np.uint64


class Table(NamedTuple):
    """A hash table with open addressing; its first power of two of slots that suffices is used."""

    keys: NDArray[np.uint64]  # [k], 0 where a slot is free
    values: NDArray[np.int32]  # [k]


class Grams(NamedTuple):
    """Buffers: the table, and the runs that are candidates."""

    table: Table
    identities: NDArray[np.int32]  # [s] a number for each segment, the same for equal ones
    candidates: NDArray[np.int32]  # [c] the segment at which a run begins
    prefixes: NDArray[np.int32]  # [c] a number for the run but its last segment
    slots: NDArray[np.int32]  # [c] where the run is in the table, or in `seen`
    seen: NDArray[np.uint8]  # [k] of each place that hashes fall on: 0, ONCE or TWICE


def new_table(most: int) -> Table:
    """A table for up to `most` keys."""
    size = 16
    while size < 2 * most:
        size *= 2
    return Table(np.empty(size, np.uint64), np.empty(size, np.int32))


def new_grams(longest: int) -> Grams:
    """Buffers for documents of up to so many bytes; what is not written to takes no memory."""
    most = min(longest, MOST_SEGMENTS + CHUNK) + 8  # segments that are left to compare
    identities, candidates, prefixes, slots = (np.empty(most, np.int32) for _ in range(4))
    table = new_table(most)
    seen = np.empty(_PLACES * len(table.keys) // 2, np.uint8)
    return Grams(table, identities, candidates, prefixes, slots, seen)


@kernel
def cleared(table, most):
    """Empty as many slots as `most` keys need; the shift that makes a slot of a hash."""
    size, shift = 16, 60
    while size < 2 * most and size < len(table.keys):
        size, shift = 2 * size, shift - 1
    table.keys[:size] = np.uint64(0)
    return shift


@inlined
def slot_of(table, shift, key):
    """The slot of a key other than 0, or the free slot where it belongs."""
    mask = (np.uint64(1) << np.uint64(64 - shift)) - np.uint64(1)
    slot = (key * _SPREAD) >> np.uint64(shift)
    while table.keys[slot] != np.uint64(0) and table.keys[slot] != key:
        slot = (slot + np.uint64(1)) & mask
    return slot


@inlined
def hash_segment(joined, start, end):
    """Hash of a segment, not 0; up to 16 bytes, which is nearly always, without a branch on its length.

    Reads 16 bytes from `start`, whatever the length.
    """
    size = end - start
    if size > _WINDOW:
        return hash_slice(joined, start, end) | np.uint64(1)
    low = load64(joined, start) & _MASKS[_at(size)]
    high = load64(joined, start + 8) & _MASKS[_at(max(size - 8, 0))]
    return multiply_fold(low ^ _KEY1, high ^ _KEY2 ^ np.uint64(size)) | np.uint64(1)


@kernel
def name_segments(segments, n, grams):
    """Give equal segments the same number: the place of the first of them.

    They stay in the table; the shift that makes a slot of a hash is returned.
    """
    keys, values = grams.table
    shift = cleared(grams.table, n)
    for i in range(n):
        key = hash_segment(segments.joined, segments.starts[_at(i)], segments.starts[_at(i + 1)])
        slot = slot_of(grams.table, shift, key)
        name = i if keys[slot] == np.uint64(0) else values[slot]
        keys[slot], values[slot] = key, name
        grams.identities[_at(i)] = name
    return shift


@kernel
def n_found(table, shift, hashes):
    """How many of some hashes of segments are in the table."""
    found = 0
    for i in range(len(hashes)):
        found += table.keys[slot_of(table, shift, hashes[i])] == hashes[i]
    return found


@kernel
def hash_segments(joined, starts):
    """Hashes uint64[s] of segments; `joined` goes on for 16 bytes behind the last."""
    hashes = np.empty(len(starts) - 1, np.uint64)
    for i in range(len(hashes)):
        hashes[i] = hash_segment(joined, starts[i], starts[i + 1])
    return hashes


@kernel
def top_grams(segments, n, grams, tops):
    """Characters in all occurrences of the most frequent run of 2, 3 and 4 segments, with single spaces.

    Of several that are equally frequent, the one that occurs first counts. Writes `tops` int64[3].
    """
    n_candidates = _sieve_pairs(grams, max(n - 1, 0))
    for level in range(len(TOP_GRAMS)):
        gram = TOP_GRAMS[level]
        _count_grams(grams, n_candidates, gram)
        count, first = _most_frequent(grams, n_candidates)
        tops[level] = 0
        if n >= gram:
            characters = segments.characters[first + gram] - segments.characters[first]
            tops[level] = count * (characters + gram - 1)
        n_candidates = _repeated(grams, n_candidates, n - gram)


@kernel
def _sieve_pairs(grams, n_pairs):
    """Make candidates of the runs of two that may occur twice; how many there are."""
    shift, identities = _emptied(grams.seen, n_pairs), grams.identities
    for i in range(n_pairs):
        _note(grams, i, _pair(identities[_at(i)], identities[_at(i + 1)]), shift)
    kept = 0
    for i in range(n_pairs):
        grams.candidates[_at(kept)], grams.prefixes[_at(kept)] = i, identities[_at(i)]
        kept += grams.seen[_at(grams.slots[_at(i)])] == TWICE
    return kept


@inlined
def _pair(prefix, last):
    """A key, not 0, of two numbers."""
    return np.uint64(((np.int64(prefix) << 32) | np.int64(last)) + 1)


@kernel
def _emptied(seen, n):
    """Empty as many places as `n` hashes need; the shift that makes a place of a hash."""
    size, shift = 16, 60
    while size < _PLACES * n and size < len(seen):
        size, shift = 2 * size, shift - 1
    seen[:size] = 0
    return shift


@inlined
def _note(grams, i, key, shift):
    """Note that the hash of candidate i was met."""
    place = np.int64((key * _SPREAD) >> np.uint64(shift))
    grams.slots[_at(i)] = place
    grams.seen[_at(place)] = (grams.seen[_at(place)] << 1 | ONCE) & TWICE


@kernel
def _count_grams(grams, n_candidates, gram):
    """Count each run, known by its prefix and its last segment."""
    table = grams.table
    shift = cleared(table, n_candidates)
    for i in range(n_candidates):
        last = grams.identities[_at(grams.candidates[_at(i)] + gram - 1)]
        key = _pair(grams.prefixes[_at(i)], last)
        slot = slot_of(table, shift, key)
        table.values[slot] = 1 + (table.values[slot] if table.keys[slot] == key else 0)
        table.keys[slot] = key
        grams.slots[_at(i)] = slot


@kernel
def _most_frequent(grams, n_candidates):
    """Count of the most frequent run, and where it begins; that of the first run where none is repeated."""
    count, first = 1, 0
    for i in range(n_candidates):
        occurrences = grams.table.values[_at(grams.slots[_at(i)])]
        if occurrences > count:
            count, first = occurrences, grams.candidates[_at(i)]
    return count, first


@kernel
def _repeated(grams, n_candidates, last):
    """Keep the candidates, up to a last one, whose run and the next one occur twice; how many there are."""
    kept = 0
    counts, candidates, slots = grams.table.values, grams.candidates, grams.slots
    for i in range(n_candidates - 1):
        here, slot = candidates[_at(i)], slots[_at(i)]
        follows = candidates[_at(i + 1)] == here + 1 and here < last
        if follows and counts[_at(slot)] > 1 and counts[_at(slots[_at(i + 1)])] > 1:
            candidates[_at(kept)], grams.prefixes[_at(kept)] = here, slot
            kept += 1
    return kept


@kernel
def duplicate_grams(segments, n, grams, duplicates):
    """Characters in runs of 5 to 10 segments that occurred before, none counted twice.

    After a run that occurred before, the search goes on behind it. Writes `duplicates` int64[6].
    """
    n_candidates = max(n - _SHORTEST + 1, 0)
    for i in range(n_candidates):
        grams.candidates[_at(i)] = i
    for window in _WINDOWS:
        n_candidates = _sieve(segments, grams, n_candidates, window)
    for level in range(len(DUPLICATE_GRAMS)):
        duplicates[level] = _duplicate_characters(segments, n, grams, n_candidates, DUPLICATE_GRAMS[level])


@kernel
def _sieve(segments, grams, n_candidates, window):
    """Keep the candidates whose first `window` bytes occur twice, a few others, and those with a shorter run of five.

    Runs of five segments or more that are equal, and as long as the window, are equal in it. At the end
    of the document, what lies behind in the buffer does no harm: a run that reaches there is shorter.
    """
    joined, starts, _ = segments
    candidates, shift = grams.candidates, _emptied(grams.seen, n_candidates)
    for i in range(n_candidates):
        start = starts[_at(candidates[_at(i)])]
        low, high = load64(joined, start), np.uint64(0)
        if window > 8:
            high = load64(joined, start + 8)
        _note(grams, i, multiply_fold(low ^ _KEY1, high ^ _KEY2), shift)
    kept = 0
    for i in range(n_candidates):
        first = candidates[_at(i)]
        is_short = starts[_at(first + _SHORTEST)] - starts[_at(first)] < window
        candidates[_at(kept)] = first
        kept += is_short | (grams.seen[_at(grams.slots[_at(i)])] == TWICE)
    return kept


@kernel
def _duplicate_characters(segments, n, grams, n_candidates, gram):
    joined, starts, characters = segments
    table, total, position = grams.table, 0, 0
    shift = cleared(table, n_candidates)
    for i in range(n_candidates):
        first = grams.candidates[_at(i)]
        if first < position or first + gram > n:
            continue
        key = _hash_run(joined, starts[_at(first)], starts[_at(first + gram)])
        slot = slot_of(table, shift, key)
        if table.keys[slot] == key:
            total += characters[_at(first + gram)] - characters[_at(first)]
            position = first + gram
        else:
            table.keys[slot] = key
    return total


@inlined
def _hash_run(joined, start, end):
    """Hash of a run's bytes, not 0, 16 at a time; reads as many behind them at most."""
    value = np.uint64(end - start)
    while end - start > _WINDOW:
        value = multiply_fold(load64(joined, start) ^ _KEY1 ^ value, load64(joined, start + 8) ^ _KEY2)
        start += _WINDOW
    size = end - start
    low = load64(joined, start) & _MASKS[_at(size)]
    high = load64(joined, start + 8) & _MASKS[_at(max(size - 8, 0))]
    return multiply_fold(low ^ _KEY1 ^ value, high ^ _KEY2) | np.uint64(1)
