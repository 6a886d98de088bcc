"""Find the n-grams of a set of texts in documents: normalised words, one rolling hash, one look-up where it may hit.

A document's words are those of GPT-3's test for contamination: lower-cased, punctuation removed, split at white space.
Letters, marks and numbers (Unicode categories L*, M*, N*) are kept, lower-cased code point by code point as
`kernels.words` does; white space and control characters (Z*, Cc) separate words; everything else is removed and
separates nothing, so that ``don't`` is ``dont`` and ``f(x)`` is ``fx``. In scripts written without spaces, each
character is a word, together with the marks that follow it: there, white space would leave no n-grams at all.

The hash of a word is FNV-1a over its code points, finished by MurmurHash3's finalizer; that of the words w_1 … w_n is
w_1 B^(n-1) + … + w_n modulo 2^64, so that one more word costs two multiplications. All lengths that the set holds are
found by the hash of the last m words, m the shortest of them: a bit array says whether an n-gram may end with these,
and only then is each length looked up in a table with open addressing. The time is linear in the bytes of a document,
and at most a constant times the sum of all lengths for each word of a text made to hit. N-grams are told apart by their
64-bit hashes alone: of 10^12 looked up among 10^6, 0.05 are expected to be taken for another.

Sources: Brown et al. 2020, "Language Models are Few-Shot Learners", appendix C; Karp and Rabin 1987; Fowler, Noll and
Vo (FNV-1a); Appleby, MurmurHash3 (``fmix64``).

Dimensions: documents d, bytes n, words w, n-grams g, lengths k, hits h.
"""

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.accelerate import inlined, kernel
from kernels.arrays import check_offsets, read_only
from kernels.permutation import mix64
from kernels.words import MARK, SEPARATOR, SPACELESS, WORD, decode, unicode_tables

BASE = np.uint64(0x9E3779B97F4A7C15)  # odd: no word of an n-gram is multiplied away
BITS_PER_NGRAM = (
    32  # of the bit array, at least; each sets three of one word: 1 look-up in 500 behind it is in vain
)
SLOTS_PER_NGRAM = 2  # of the table, at least

BLOCK = 512  # words that are looked up together

_FNV_OFFSET = np.uint64(0xCBF29CE484222325)
_FNV_PRIME = np.uint64(0x100000001B3)
_ASCII_END = 0x80
_REMOVED, _SPACE = 0, 0x20
_OTHER = 4  # a kind of character beside those of `kernels.words`: it is removed
_PAGE = 128
_I_WITH_DOT, _DOT_ABOVE = 0x130, 0x307  # İ, whose lower case is i and this
_at = np.uint64


class NgramIndex(NamedTuple):
    """N-grams to be found, from `index`: 10^6 take 29 MB, 25 in the table and 4 in the bits; both are powers of two."""

    lengths: NDArray[np.int64]  # [k] numbers of words that n-grams have, ascending
    bits: NDArray[np.uint64]  # [2^b / 64] three bits in one place for the last lengths[0] words of each
    hashes: NDArray[
        np.uint64
    ]  # [2^s] by their lower bits, mixed, or in one of the slots behind; 0: an empty slot
    numbers: NDArray[np.int32]  # [2^s] which n-gram

    @property
    def n_bytes(self) -> int:
        """Memory that it takes."""
        return sum(array.nbytes for array in self)


class Words(NamedTuple):
    """The words of some documents, one document after another."""

    hashes: NDArray[np.uint64]  # [w]
    starts: NDArray[np.int64]  # [w] byte of the data where each begins
    ends: NDArray[np.int64]  # [w] and ends
    offsets: NDArray[np.int64]  # [d + 1] of each document's words


def words(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> Words:
    """Split documents into normalised words.

    Parameters
    ----------
    data : uint8[n]
        The documents' UTF-8; a byte that is not valid is removed.
    offsets : int64[d + 1]
        Document i is ``data[offsets[i] : offsets[i + 1]]``.

    Raises
    ------
    ValueError
        When the offsets do not lie within `data`.
    """
    data, offsets = read_only(data, np.uint8), read_only(offsets, np.int64)
    check_offsets(offsets, len(data))
    return Words(*_words(data, offsets, _ascii(), unicode_tables()))


def ngrams(of: Words, firsts: NDArray[np.int64], length: int) -> NDArray[np.uint64]:
    """Hashes of the n-grams of `length` words that begin at the words `firsts`.

    Raises
    ------
    ValueError
        When one would reach behind the last word.
    """
    if length < 1 or (len(firsts) and (firsts.min() < 0 or firsts.max() + length > len(of.hashes))):
        raise ValueError(f"an n-gram of {length} words does not lie within the {len(of.hashes)} words")
    return _ngrams(read_only(of.hashes, np.uint64), read_only(firsts, np.int64), length)


def index(hashes: NDArray[np.uint64], suffixes: NDArray[np.uint64], lengths: NDArray[np.int64]) -> NgramIndex:
    """Index of n-grams.

    Parameters
    ----------
    hashes : uint64[g]
        Of the n-grams, from `ngrams`, none of them twice; the number of an n-gram is its place here.
    suffixes : uint64[g]
        Of the last ``min(lengths)`` words of each.
    lengths : int64[k]
        All numbers of words that there are.

    Raises
    ------
    ValueError
        There are n-grams without a length, or more than an int32 can number.
    """
    if len(hashes) >= 2**31 or len(hashes) != len(suffixes) or (len(hashes) and not len(lengths)):
        raise ValueError(
            f"{len(hashes)} n-grams, {len(suffixes)} suffixes and {len(lengths)} lengths make no index"
        )
    bits = np.zeros(_power_of_two(BITS_PER_NGRAM * len(hashes), 64) // 64, np.uint64)
    slots = _power_of_two(SLOTS_PER_NGRAM * len(hashes), 2)
    table, numbers = np.zeros(slots, np.uint64), np.zeros(slots, np.int32)
    _fill(read_only(hashes, np.uint64), read_only(suffixes, np.uint64), bits, table, numbers)
    return NgramIndex(np.unique(lengths).astype(np.int64), bits, table, numbers)


def find(data: NDArray[np.uint8], offsets: NDArray[np.int64], known: NgramIndex) -> NDArray[np.int64]:
    """Every place of documents where an n-gram of the index is.

    Parameters
    ----------
    data, offsets
        As for `words`.
    known : NgramIndex
        What is looked for.

    Returns
    -------
    int64[h, 4]
        Document, number of the n-gram, bytes of the data where its first word begins and its last word ends; in the
        order of documents and ends.

    Raises
    ------
    ValueError
        When the offsets do not lie within `data`.
    """
    data, offsets = read_only(data, np.uint8), read_only(offsets, np.int64)
    check_offsets(offsets, len(data))
    hits = np.empty((1024 if len(known.lengths) else 0, 4), np.int64)
    if not len(known.lengths):
        return hits
    n_hits = _find(data, offsets, known, _ascii(), unicode_tables(), hits)
    if n_hits > len(hits):
        hits = np.empty((n_hits, 4), np.int64)
        _find(data, offsets, known, _ascii(), unicode_tables(), hits)
    return hits[:n_hits]


def _power_of_two(least: int, smallest: int) -> int:
    return 1 << max(least - 1, smallest - 1).bit_length()


@functools.cache
def _ascii() -> NDArray[np.uint8]:
    """uint8[128], the lower-cased letter or digit; a space where it separates, 0 where it is removed."""
    table = np.zeros(_ASCII_END, np.uint8)
    for code in range(_ASCII_END):
        if chr(code).isalnum():
            table[code] = ord(chr(code).lower())
        elif code <= _SPACE or code == _ASCII_END - 1:
            table[code] = _SPACE
    table.flags.writeable = False
    return table


@kernel
def _words(data, offsets, ascii_table, tables):
    n_words = np.zeros(len(offsets), np.int64)
    for document in range(len(offsets) - 1):
        position, stop = offsets[document], offsets[document + 1]
        n_words[document + 1] = n_words[document]
        start = 0
        while start >= 0:
            position, start, _, _ = _next_word(data, position, stop, ascii_table, tables)
            n_words[document + 1] += start >= 0
    total = n_words[-1]
    hashes, starts, ends = np.empty(total, np.uint64), np.empty(total, np.int64), np.empty(total, np.int64)
    for document in range(len(offsets) - 1):
        position, stop = offsets[document], offsets[document + 1]
        for word in range(n_words[document], n_words[document + 1]):
            position, start, end, value = _next_word(data, position, stop, ascii_table, tables)
            hashes[word], starts[word], ends[word] = value, start, end
    return hashes, starts, ends, n_words


@kernel
def _ngrams(hashes, firsts, length):
    values = np.zeros(len(firsts), np.uint64)
    for i in range(len(firsts)):
        for word in range(firsts[i], firsts[i] + length):
            values[i] = values[i] * BASE + hashes[word]
    return values


@kernel
def _fill(hashes, suffixes, bits, table, numbers):
    for number in range(len(hashes)):
        word, places = _bit(suffixes[number], bits)
        bits[word] |= places
        slot = _slot(hashes[number], table)
        while table[slot] != 0:
            slot = (slot + 1) & (len(table) - 1)
        table[slot], numbers[slot] = _not_empty(hashes[number]), number


@kernel
def _find(data, offsets, known, ascii_table, tables, hits):
    """Fill `hits` as far as they go; how many there are.

    Words are taken in blocks, so that the bit array, which no fast cache may hold, is asked about many at once.
    """
    shortest, longest = known.lengths[0], known.lengths[-1]
    room = longest + BLOCK  # of words that a block's n-grams begin with, and its own
    values, starts, ends = np.zeros(room, np.uint64), np.zeros(room, np.int64), np.zeros(room, np.int64)
    likely = np.empty(BLOCK, np.int64)
    n_hits = 0
    for document in range(len(offsets) - 1):
        position, stop, first, start = offsets[document], offsets[document + 1], 0, 0
        while start >= 0:
            n_words = first
            while n_words < room and start >= 0:
                position, start, end, value = _next_word(data, position, stop, ascii_table, tables)
                values[_at(n_words)], starts[_at(n_words)], ends[_at(n_words)] = value, start, end
                n_words += start >= 0
            n_likely = _may_end(known.bits, values, shortest, first, n_words, likely)
            for i in range(n_likely):
                n_hits = _look_up(known, values, starts, ends, likely[i], document, hits, n_hits)
            first = min(n_words, longest)
            for i in range(first):
                values[i], starts[i] = values[n_words - first + i], starts[n_words - first + i]
    return n_hits


@kernel
def _may_end(bits, values, shortest, first, n_words, likely):
    """Words from `first` on with which an n-gram may end, by the bits of their last words; how many."""
    leaving, rolling, n_likely = np.uint64(1), np.uint64(0), 0
    for _ in range(shortest):
        leaving *= BASE
    for word in range(max(first - shortest, 0), first):
        rolling = rolling * BASE + values[word]
    for word in range(first, n_words):
        rolling = rolling * BASE + values[_at(word)]
        if word >= shortest:
            rolling -= values[_at(word - shortest)] * leaving
        unit, places = _bit(rolling, bits)
        likely[_at(n_likely)] = word
        n_likely += (bits[unit] & places == places) & (word >= shortest - 1)
    return n_likely


@kernel
def _look_up(known, values, starts, ends, last, document, hits, n_hits):
    """Add the n-grams of each length that end with a word."""
    rolling, power, done = np.uint64(0), np.uint64(1), 0
    for k in range(len(known.lengths)):
        length = known.lengths[k]
        if length > last + 1:
            break
        while done < length:
            rolling += values[last - done] * power
            power *= BASE
            done += 1
        slot = _slot(rolling, known.hashes)
        while known.hashes[slot] != 0:
            if known.hashes[slot] == _not_empty(rolling):
                if n_hits < len(hits):
                    hits[n_hits, 0], hits[n_hits, 1] = document, known.numbers[slot]
                    hits[n_hits, 2], hits[n_hits, 3] = starts[last - length + 1], ends[last]
                n_hits += 1
                break
            slot = (slot + 1) & (len(known.hashes) - 1)
    return n_hits


@inlined
def _bit(value, bits):
    """Word of a hash in the bit array, and its three bits there."""
    mixed = mix64(value)
    one = np.uint64(1)
    places = one << (mixed >> np.uint64(58))
    places |= one << ((mixed >> np.uint64(52)) & np.uint64(63))
    places |= one << ((mixed >> np.uint64(46)) & np.uint64(63))
    return mixed & np.uint64(len(bits) - 1), places


@inlined
def _slot(value, table):
    return np.int64(mix64(value) & np.uint64(len(table) - 1))


@inlined
def _not_empty(value):
    return value if value != 0 else np.uint64(1)


@inlined
def _next_word(data, position, stop, ascii_table, tables):
    """Where to go on, where the next word begins and ends, and its hash; it begins at -1 where there is none."""
    start, end, value = -1, -1, _FNV_OFFSET
    alone = False  # a character of a script without spaces, which only marks may follow
    while position < stop:
        byte = data[_at(position)]
        if byte < _ASCII_END:
            lower = ascii_table[_at(byte)]
            if lower == _SPACE or (alone and lower != _REMOVED):
                if start >= 0:
                    break
            elif lower != _REMOVED:
                start = position if start < 0 else start
                value = (value ^ np.uint64(lower)) * _FNV_PRIME
                end = position + 1
            position += 1
            continue
        kind, code_point, lower, size = _character(data, position, stop, tables)
        if kind != _OTHER:
            begins = kind != MARK and (kind == SPACELESS or alone)
            if start >= 0 and (kind == SEPARATOR or begins):
                break
            if kind != SEPARATOR:
                start = position if start < 0 else start
                value = (value ^ np.uint64(lower)) * _FNV_PRIME
                if code_point == _I_WITH_DOT:
                    value = (value ^ np.uint64(_DOT_ABOVE)) * _FNV_PRIME
                end = position + size
                alone = alone or kind == SPACELESS
        position += size
    return position, start, end, mix64(value)


@inlined
def _character(data, position, stop, tables):
    """Kind, code point, lower case and bytes of a character above U+007F."""
    code_point, size = decode(data, position, stop)
    if size == 0:
        return _OTHER, 0, 0, 1
    entry = tables.entries[_PAGE * tables.pages[code_point // _PAGE] + code_point % _PAGE]
    kind = entry & 3
    if (kind == SEPARATOR and not _is_space(code_point)) or (kind == WORD and _is_connector(code_point)):
        kind = _OTHER
    return kind, code_point, code_point + (entry >> 2), size


@inlined
def _is_space(code):
    """Categories Z* and Cc above U+007F."""
    return (
        code <= 0xA0
        or code == 0x1680
        or 0x2000 <= code <= 0x200A
        or code in (0x2028, 0x2029, 0x202F, 0x205F, 0x3000)
    )


@inlined
def _is_connector(code):
    """Category Pc above U+007F."""
    return code in (0x203F, 0x2040, 0x2054, 0xFE33, 0xFE34, 0xFE4D, 0xFE4E, 0xFE4F, 0xFF3F)
