"""What a supervised fastText model says of a document (Joulin et al. 2016), from the document's bytes.

A document is one line: words between white space, and the end of the line. A word is the row of the input matrix that
the dictionary gives it, and the rows of its character n-grams, found by hash; word n-grams have rows too. The mean of
all rows times the output matrix says how likely each label is, by one of the losses.

The sums of short words are kept in a hash table, each under all its bytes, and a word is added up in the same order
whether it is kept or not: so a document's result depends on nothing but the document. Against fastText itself, which
adds one row after the other, only rounding differs.

Source: fastText 0.9.2, `Dictionary::getLine` and `Model::computeHidden`. Words are found by the mask of white space
in 64 bytes (as simdjson finds structure: Langdale and Lemire 2019).

Dimensions: documents d, bytes n, columns c, slots s.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.accelerate import inlined, kernel
from kernels.arrays import check_slices, read_only
from kernels.fasttext_losses import best_label, logarithm_of
from kernels.fasttext_model import CENTROIDS, HASH_BASE, LONGEST, Model, hash_on, hash_word, same_text
from kernels.intrinsics import (
    LANES,
    add_float,
    add_floats,
    count_bits,
    first_bit,
    load64,
    prefetch,
    separators,
)
from kernels.words import decode

BLOCKS_AHEAD = 4  # of 64 bytes, whose words' sums are asked for before the first is looked at
BATCH = LONGEST  # n-grams whose rows are looked up together, so that the memory's answers overlap
LONGEST_KEPT = 32  # bytes of a word whose sum is kept
KEPT_BYTES = 1 << 22  # of sums that a cache holds, about
MOST_KEPT = 1 << 16

_KEY_SIZE = 8
_CACHE_LINE = 64  # bytes
_BLOCK = 64  # bytes that `separators` looks at
# The bytes of a word of each size in each eight bytes.
_WITHIN = [
    [min(max(size - first, 0), 8) for first in range(0, LONGEST_KEPT, 8)] for size in range(LONGEST_KEPT + 1)
]
_MASKS = np.array([(1 << 8 * n_bytes) - 1 for row in _WITHIN for n_bytes in row], np.uint64)
_LEFT_OUT = -1  # in place of the number of rows: a label, which is no word
_SPACES = np.array([c for c in range(0x3001) if chr(c).isspace()], np.int64)
_PRIMES = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
_P0, _P1, _P2, _P3, _P4 = (np.uint64(prime) for prime in _PRIMES)
_GRAM_PRIME = np.uint64(116049371)
_BEGIN, _END = np.uint8(ord("<")), np.uint8(ord(">"))
_ASCII_END, _SPACE = 0x80, 0x20
_LABEL = np.frombuffer(b"__label__", np.uint8)
_END_OF_LINE = np.frombuffer(b"</s>", np.uint8)
_ONE = np.float32(1)
_at = np.uint64  # an unsigned index is not looked at for being negative


class Cache(NamedTuple):
    """Sums of words that were met; only one call at a time may use it."""

    keys: NDArray[np.uint64]  # [s, 8] without breaks: `_key` of a word, its size, how many rows
    sums: NDArray[np.float32]  # [s, c] without breaks


class _Scratch(NamedTuple):
    total: NDArray[np.float32]  # [c]
    grams: NDArray[np.uint64]  # hashes of the n-grams of words that may go on, the longest first
    bounds: NDArray[np.int64]  # of the words ahead: where each begins and ends
    slots: NDArray[np.int64]  # theirs in the cache
    buckets: NDArray[np.uint32]  # of the n-grams of a word, or of a part of it
    rows: NDArray[np.int64]  # of those
    nodes: NDArray[np.int32]
    scores: NDArray[np.float32]


def new_cache(columns: int) -> Cache:
    """An empty cache for a model of so many columns."""
    slots = MOST_KEPT
    while slots > 1 and 4 * columns * slots > KEPT_BYTES:
        slots //= 2
    return Cache(_aligned(slots * _KEY_SIZE, np.uint64), _aligned(slots * columns, np.float32))


def _aligned(size: int, dtype: type) -> NDArray[Any]:
    """Zeros that begin with a line of the processor's caches."""
    n_bytes = size * np.dtype(dtype).itemsize
    room = np.zeros(n_bytes + _CACHE_LINE, np.uint8)
    begin = -room.ctypes.data % _CACHE_LINE
    return room[begin : begin + n_bytes].view(dtype)


# ---------------------------------------------------------------- documents


def most_likely(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64], model: Model, cache: Cache
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The most likely label of each document and its probability.

    Parameters
    ----------
    data : uint8[n]
        The documents' UTF-8; line ends are white space.
    starts, ends : int64[d]
        Document i is ``data[starts[i] : ends[i]]``.
    model : Model
    cache : Cache
        From `new_cache`; is written to.

    Returns
    -------
    labels : int32[d]
        -1 for a document without a visible character, and for one of which the model knows nothing.
    probabilities : float32[d]
        In [0, 1], 0 for those.

    Raises
    ------
    ValueError
        When a document does not lie within `data`.
    """
    data, starts, ends = _checked(data, starts, ends)
    labels, scores = _predict(data, starts, ends, model, cache, -1)
    return labels, scores


def probabilities(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    model: Model,
    cache: Cache,
    label: int,
) -> NDArray[np.float32]:
    """float32[d] in [0, 1], the probability of one label; parameters and errors are those of `most_likely`.

    It is 0 for a document without a visible character, and for one of which the model knows nothing.
    """
    if not 0 <= label < len(model.output.weights):
        raise ValueError(f"there is no label {label} among {len(model.output.weights)}")
    data, starts, ends = _checked(data, starts, ends)
    _, scores = _predict(data, starts, ends, model, cache, label)
    return scores


def _checked(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    data, starts, ends = read_only(data, np.uint8), read_only(starts, np.int64), read_only(ends, np.int64)
    check_slices(starts, ends, len(data))
    return data, starts, ends


@kernel
def _predict(data, starts, ends, model, cache, label):
    """Labels and probabilities, of the most likely label where `label` is negative."""
    d = len(starts)
    labels, scores = np.full(d, -1, np.int32), np.zeros(d, np.float32)
    scratch = _new_scratch(model)
    for document in range(d):
        start, stop = starts[document], ends[document]
        if not _is_visible(data, start, stop):
            continue
        n_rows = _add_line(data, start, stop, model, cache, scratch)
        if n_rows == 0:
            continue
        share = np.float32(1.0 / n_rows)
        for column in range(len(scratch.total)):
            scratch.total[column] *= share
        if label < 0:
            found, logarithm = best_label(model.output, scratch)
        else:
            found, logarithm = label, logarithm_of(label, model.output, scratch)
        probability = np.exp(logarithm)
        if found >= 0 and probability >= 0:  # not where a model's numbers grew beyond all bounds
            labels[document], scores[document] = found, min(probability, _ONE)
    return labels, scores


@kernel
def _new_scratch(model):
    nodes = len(model.output.left) + len(model.output.weights) + 1
    return _Scratch(
        np.zeros(model.input.columns, np.float32),
        np.zeros(max(model.dictionary.longest_words, 1), np.uint64),
        np.zeros(BLOCKS_AHEAD * _BLOCK + 4, np.int64),
        np.zeros(BLOCKS_AHEAD * _BLOCK + 4, np.int64),
        np.zeros(BATCH, np.uint32),
        np.zeros(BATCH, np.int64),
        np.zeros(nodes, np.int32),
        np.zeros(nodes, np.float32),
    )


@kernel
def _is_visible(data, start, stop):
    """Whether there is a character that is neither white space nor NUL."""
    position = start
    while position < stop:
        byte = data[position]
        if byte < _ASCII_END:
            if byte > _SPACE or (byte != 0 and not _is_space(np.int64(byte))):
                return True
            position += 1
        else:
            code_point, size = decode(data, position, stop)
            if size == 0 or not _is_space(code_point):
                return True
            position += size
    return False


@kernel
def _is_space(code_point):
    return (code_point == _SPACES).any()


# ---------------------------------------------------------------- the sum of rows


@kernel
def _add_line(data, start, stop, model, cache, scratch):
    """Sum of the rows of a document in `scratch.total`; how many there are."""
    scratch.total[:] = 0
    n_rows, n_grams, longest_words, bounds = 0, 0, model.dictionary.longest_words, scratch.bounds
    position, n_bounds = start, 0
    while position < stop:
        position, n_bounds = _next_bounds(data, position, stop, n_bounds, bounds)
        n_words = n_bounds // 2
        _ask_for_sums(data, n_words, cache, scratch, model.input.columns)
        for word in range(n_words):
            first, end = bounds[_at(2 * word)], bounds[_at(2 * word + 1)]
            if end - first == len(_END_OF_LINE) and _begins(data, first, end, _END_OF_LINE):
                position = stop
                break
            n_here = _add_word(data, first, end, scratch.slots[_at(word)], model, cache, scratch)
            if n_here != _LEFT_OUT:
                n_rows += n_here
                if longest_words > 1:
                    more, n_grams = _add_grams_of_words(hash_word(data, first, end), n_grams, model, scratch)
                    n_rows += more
        bounds[0] = bounds[n_bounds - n_bounds % 2]  # a word that goes on
        n_bounds %= 2
    return n_rows + _add_end_of_line(n_grams, model, scratch)


@kernel
def _add_end_of_line(n_grams, model, scratch):
    entry, n_rows = _entry(_END_OF_LINE, 0, len(_END_OF_LINE), model.dictionary), 0
    if 0 <= entry < model.dictionary.n_words:
        _add_row(model.input, entry, scratch.total, 0)
        n_rows = 1
    if model.dictionary.longest_words > 1:
        value = hash_word(_END_OF_LINE, 0, len(_END_OF_LINE))
        n_rows += _add_grams_of_words(value, n_grams, model, scratch)[0]
    return n_rows


@inlined
def _next_bounds(data, position, stop, n_bounds, bounds):
    """Where the next words begin and end, behind the beginning of one that goes on; where to go on, and how many."""
    before = np.uint64(n_bounds == 0)  # whether what is before is no word
    limit = min(position + BLOCKS_AHEAD * _BLOCK, stop)
    while position < limit:
        size = min(stop - position, _BLOCK)
        if position + _BLOCK <= len(data):
            apart = separators(data, position)
        else:
            apart = _separators_at_end(data, position, size)
        if size < _BLOCK:
            apart |= ~np.uint64(0) << np.uint64(size)
        edges = apart ^ (apart << np.uint64(1) | before)
        before = apart >> np.uint64(_BLOCK - 1)
        while edges:
            bounds[_at(n_bounds)] = position + np.int64(first_bit(edges))
            n_bounds += 1
            edges &= edges - np.uint64(1)
        position += size
    if position == stop and n_bounds % 2:
        bounds[n_bounds] = stop
        n_bounds += 1
    return position, n_bounds


@kernel
def _separators_at_end(data, position, size):
    """As `separators`, of fewer bytes."""
    apart = np.uint64(0)
    for i in range(size):
        byte = data[position + i]
        if byte == _SPACE or byte == 0 or 9 <= byte <= 13:
            apart |= np.uint64(1) << np.uint64(i)
    return apart


@inlined
def _ask_for_sums(data, n_words, cache, scratch, columns):
    """Find the slots of words, and have the memory bring what is there."""
    n_slots = len(cache.keys) // _KEY_SIZE
    for word in range(n_words):
        first, end = scratch.bounds[_at(2 * word)], scratch.bounds[_at(2 * word + 1)]
        a, b, c, d = _key(data, first, end - first)
        mixed = a * _P0 + b * _P1 + c * _P2 + d * _P3 + np.uint64(end - first) * _P4
        slot = np.int64(mixed >> np.uint64(32)) & (n_slots - 1)
        prefetch(cache.keys, slot * _KEY_SIZE)
        prefetch(cache.sums, slot * columns)
        scratch.slots[_at(word)] = slot


@inlined
def _add_word(data, first, end, slot, model, cache, scratch):
    """Add the sum of a word's rows to the total, from the cache if it is there; how many rows, or `_LEFT_OUT`."""
    size, columns = end - first, model.input.columns
    a, b, c, d = _key(data, first, size)
    keys, place, length = cache.keys, _at(slot * _KEY_SIZE), np.uint64(size)
    differs = (keys[place] ^ a) | (keys[place + _at(1)] ^ b) | (keys[place + _at(2)] ^ c)
    if differs | (keys[place + _at(3)] ^ d) | (keys[place + _at(4)] ^ length) or size > LONGEST_KEPT:
        n_rows = _sum_word(data, first, end, model, scratch, cache.sums, slot * columns)
        keys[place], keys[place + _at(1)], keys[place + _at(2)], keys[place + _at(3)] = a, b, c, d
        keys[place + _at(4)], keys[place + _at(5)] = length, np.uint64(n_rows)
    _add(scratch.total, 0, cache.sums, slot * columns, columns)
    return np.int64(keys[place + _at(5)])


@inlined
def _key(data, first, size):
    """The first `LONGEST_KEPT` bytes of a word in four numbers, zeros behind its end."""
    place = _at(4 * min(size, LONGEST_KEPT))
    if first + LONGEST_KEPT > len(data):
        return _key_at_end(data, first, size)
    return (
        load64(data, first) & _MASKS[place],
        load64(data, first + 8) & _MASKS[place + _at(1)],
        load64(data, first + 16) & _MASKS[place + _at(2)],
        load64(data, first + 24) & _MASKS[place + _at(3)],
    )


@kernel
def _key_at_end(data, first, size):
    """As `_key`, where there are fewer bytes."""
    a = b = c = d = np.uint64(0)
    for i in range(min(size, LONGEST_KEPT)):
        part = np.uint64(data[first + i]) << np.uint64(8 * (i % 8))
        if i < 8:
            a |= part
        elif i < 16:
            b |= part
        elif i < 24:
            c |= part
        else:
            d |= part
    return a, b, c, d


@inlined
def _sum_word(data, first, end, model, scratch, target, place):
    """Sum of a word's rows at ``target[place]``; how many, or `_LEFT_OUT`."""
    dictionary, rows = model.dictionary, model.input
    for column in range(rows.columns):
        target[place + column] = 0
    entry = _entry(data, first, end, dictionary)
    if entry >= dictionary.n_words or (entry < 0 and _begins(data, first, end, _LABEL)):
        return _LEFT_OUT
    n_rows = 0
    if entry >= 0:
        _add_row(rows, entry, target, place)
        n_rows = 1
    begin = first - 1
    while begin < end:
        begin, n_buckets = _next_grams(data, first, end, begin, dictionary, scratch.buckets)
        n_found = _find_rows(scratch.buckets, n_buckets, dictionary, scratch.rows)
        for i in range(n_found):
            _add_row(rows, scratch.rows[i], target, place)
        n_rows += n_found
    return n_rows


@inlined
def _next_grams(data, first, end, begin, dictionary, buckets):
    """Buckets of a word's character n-grams, with < before the word and > behind it, that begin from `begin` on.

    Where to go on, and how many buckets were written.
    """
    shortest, longest, n_buckets = dictionary.shortest, dictionary.longest, 0
    while begin < end and n_buckets + longest <= len(buckets):
        value, position = HASH_BASE, begin
        for size in range(1, longest + 1):
            byte = _BEGIN if position < first else _END if position == end else data[_at(position)]
            value, position = hash_on(value, byte), position + 1
            while position < end and data[_at(position)] & 0xC0 == 0x80:
                value, position = hash_on(value, data[_at(position)]), position + 1
            at_boundary = begin < first or position > end
            buckets[_at(n_buckets)] = value
            n_buckets += size >= shortest and not (size == 1 and at_boundary)
            if position > end:
                break
        begin += 1
        while begin < end and data[_at(begin)] & 0xC0 == 0x80:
            begin += 1
    n = np.uint32(dictionary.buckets)
    for i in range(n_buckets):
        buckets[i] %= n
    return begin, n_buckets


@inlined
def _find_rows(buckets, n_buckets, dictionary, rows):
    """Rows of the buckets that were not pruned; how many."""
    n_words, n_found = dictionary.n_words, 0
    for i in range(n_buckets):
        row = _row_of(np.int64(buckets[i]), dictionary)
        rows[_at(n_found)] = n_words + row
        n_found += row >= 0
    return n_found


@inlined
def _add_grams_of_words(value, n_grams, model, scratch):
    """Add the rows of the n-grams that end with a word of this hash; how many, and how many may go on."""
    dictionary, grams = model.dictionary, scratch.grams
    word = np.uint64(np.int64(np.int32(value)))  # with its sign, as fastText keeps it
    n_rows = 0
    for i in range(n_grams):
        grams[i] = grams[i] * _GRAM_PRIME + word
        row = _row_of(np.int64(grams[i] % np.uint64(dictionary.buckets)), dictionary)
        if row >= 0:
            _add_row(model.input, dictionary.n_words + row, scratch.total, 0)
            n_rows += 1
    if n_grams == dictionary.longest_words - 1:  # the longest is complete
        for i in range(1, n_grams):
            grams[i - 1] = grams[i]
        n_grams -= 1
    grams[n_grams] = word
    return n_rows, n_grams + 1


@inlined
def _add_row(rows, row, target, place):
    columns = rows.columns
    if len(rows.codes):
        _add_coded(rows, row, target, place)
    else:
        _add_bytes(target, place, rows.bytes, rows.first + 4 * columns * row, columns)


@inlined
def _add(target, place, source, source_place, columns):
    _add_bytes(target, place, source, 4 * source_place, columns)


@inlined
def _add_bytes(target, place, source, byte, columns):
    """Add floats that lie at a byte of an array."""
    whole = columns & ~(LANES - 1)
    for column in range(0, whole, LANES):
        add_floats(target, place + column, source, byte + 4 * column)
    for column in range(whole, columns):
        add_float(target, place + column, source, byte + 4 * column)


@kernel
def _add_coded(rows, row, target, place):
    """Add a row of a product quantizer (Jégou, Douze and Schmid 2011)."""
    parts = (rows.columns + rows.part - 1) // rows.part
    norm = rows.norms[row]
    for part in range(parts):
        width = min(rows.part, rows.columns - part * rows.part)
        centroid = part * CENTROIDS * rows.part + rows.codes[row * parts + part] * width
        for i in range(width):
            target[place + part * rows.part + i] += norm * rows.centroids[centroid + i]


# ---------------------------------------------------------------- hashes


@inlined
def _entry(data, first, end, dictionary):
    """The entry of a word, -1 if there is none."""
    table = dictionary.table
    place = np.int64(hash_word(data, first, end)) & (len(table) - 1)
    while table[place] >= 0 and not same_text(data, first, end, dictionary, table[place]):
        place = (place + 1) & (len(table) - 1)
    return np.int64(table[place])


@inlined
def _begins(data, first, end, beginning):
    i, size = 0, len(beginning)
    while i < size and first + i < end and data[first + i] == beginning[i]:
        i += 1
    return i == size


@inlined
def _row_of(bucket, dictionary):
    """The row of a bucket behind the words, -1 if it was pruned."""
    if not dictionary.pruned:
        return bucket
    block, bit = bucket >> 6, np.uint64(bucket & 63)
    bits = dictionary.kept[_at(block)]
    before = dictionary.kept_before[_at(block)] + np.int64(
        count_bits(bits & ((np.uint64(1) << bit) - np.uint64(1)))
    )
    return np.int64(dictionary.kept_rows[_at(before)]) if bits >> bit & np.uint64(1) else -1
