"""Perplexity of documents by an n-gram model that looks words up by their hashes.

A line is a sentence: its words as `kernels.words` has them, ASCII digits as 0, between the begin and the end of the
sentence. Lines without a word do not count, unless a document has no other: it is then one empty sentence. A word's
identity is the XXH3-64 of its bytes; that of an n-gram is folded from its words', last word first.

An `NgramTable` is one open hash table of the n-grams of all orders. Scoring extends each word to the left as long as
the n-gram is in the table, and charges the back-off weights of the contexts that were not (as KenLM does, Heafield
2011, "KenLM: Faster and Smaller Language Model Queries").

Dimensions: documents d, bytes n, tokens t, n-grams g, slots s of the table.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.accelerate import inlined, kernel
from kernels.arrays import check_offsets, read_only
from kernels.kneser_ney import BEGIN, END, UNKNOWN, Order
from kernels.words import INVALID, drop_words, new_cursor, next_words, scratch_size, unicode_tables
from kernels.xxh3 import hash_slice

CHUNK = 8192  # with what is made of it, it stays in the first-level cache
LONGEST_CODE_POINT = 4
LONGEST = 6  # words of an n-gram
MARKS = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)
"""What stands for the hashes of `UNKNOWN`, `BEGIN` and `END`."""
_UNKNOWN, _BEGIN, _END = (np.uint64(MARKS[mark]) for mark in (UNKNOWN, BEGIN, END))
_EARLIER = np.uint64(0xC2B2AE3D27D4EB4F)  # odd: xxHash's PRIME64_2
_FOLD = np.uint64(0x9E3779B185EBCA87)  # odd: xxHash's PRIME64_1
_EMPTY = np.uint64(0)
_LINE_END, _ZERO, _NINE = np.uint8(10), np.uint8(ord("0")), np.uint8(ord("9"))
_at = np.uint64


class Words(NamedTuple):
    """The words of some documents in one stream, each line between `BEGIN` and `END`."""

    hashes: NDArray[np.uint64]  # [t], `MARKS` for begin and end
    starts: NDArray[np.int64]  # [t + 1], of each word in `normal`, a space behind it; marks are of length 0
    normal: NDArray[np.uint8]  # UTF-8


class NgramTable(NamedTuple):
    """N-grams of all orders. Both arrays are views of the same memory, 16 bytes a slot."""

    keys: NDArray[np.uint64]  # [s, 2], the key in the first column; 0 where the slot is empty
    values: NDArray[np.float32]  # [s, 4], log10 of the probability and of the back-off weight in the last two
    longest: int  # order of the model


def line_words(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> Words:
    """The words of documents, line by line; lines without one, and documents that are not UTF-8, are left out.

    Parameters
    ----------
    data : uint8[n]
        The documents' UTF-8.
    offsets : int64[d + 1]
        Document i is ``data[offsets[i] : offsets[i + 1]]``.

    Raises
    ------
    ValueError
        When the offsets do not lie within `data`.
    """
    data, offsets = read_only(data, np.uint8), read_only(offsets, np.int64)
    check_offsets(offsets, len(data))
    return Words(*_line_words(data, offsets, unicode_tables(), *_buffers(offsets)))


def build_table(word_hashes: NDArray[np.uint64], orders: list[Order]) -> NgramTable:
    """The table of a model.

    Parameters
    ----------
    word_hashes : uint64[v]
        Of all words; `MARKS` first.
    orders : list of Order
        From unigrams upwards.

    Raises
    ------
    ValueError
        When two n-grams have the same key.
    """
    hashes = read_only(word_hashes, np.uint64)
    n_ngrams = sum(len(order.last) for order in orders)
    slots = 1 << max(4, int(1.5 * n_ngrams).bit_length())
    memory = np.zeros((slots, 2), np.uint64)
    table = NgramTable(memory, memory.view(np.float32), len(orders))
    for order, keys in zip(orders, ngram_keys(hashes, orders), strict=True):
        values = (read_only(order.log_probs, np.float32), read_only(order.backoffs, np.float32))
        if not _insert(table.keys, table.values, keys, *values):
            raise ValueError("two n-grams have the same key")
    return table


def ngram_keys(hashes: NDArray[np.uint64], orders: list[Order]) -> list[NDArray[np.uint64]]:
    """uint64[g] of each order."""
    found = []
    for words in ngram_words(orders):
        keys = hashes[words[:, -1]]
        for place in range(2, words.shape[1] + 1):
            keys = (keys + hashes[words[:, -place]] * _EARLIER) * _FOLD
        found.append(keys)
    return found


def ngram_words(orders: list[Order]) -> list[NDArray[np.uint32]]:
    """uint32[g, n], the words of the n-grams of each order."""
    words = [orders[0].last[:, None]]
    for order in orders[1:]:
        words.append(np.column_stack([words[-1][order.prefix], order.last]))
    return words


def log_probabilities(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], table: NgramTable
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Log10 of the probability of each document, line by line.

    Parameters
    ----------
    data : uint8[n]
        The documents' UTF-8.
    offsets : int64[d + 1]
        Document i is ``data[offsets[i] : offsets[i + 1]]``. One that is not UTF-8 counts as empty.
    table : NgramTable
        From `build_table`.

    Returns
    -------
    log_probs : float64[d]
        Of the words and of the end of each line.
    n_tokens : int64[d]
        Words and ends of lines, at least 1.
    n_unknown : int64[d]
        Words that the model does not know.

    Raises
    ------
    ValueError
        When the offsets do not lie within `data`, or the model's order is above `LONGEST`.
    """
    data, offsets = read_only(data, np.uint8), read_only(offsets, np.int64)
    check_offsets(offsets, len(data))
    if not 1 <= table.longest <= LONGEST:
        raise ValueError(f"n-grams have 1 to {LONGEST} words, not {table.longest}")
    scratch, starts = _buffers(offsets)
    return _log_probabilities(data, offsets, unicode_tables(), scratch, starts, *table)


def _buffers(offsets):
    """Scratch space for the normal form, and for where its words begin."""
    longest = int(np.diff(offsets).max(initial=0))
    return np.empty(scratch_size(longest), np.uint8), np.empty(CHUNK + 2 * LONGEST_CODE_POINT, np.int64)


# ---------------------------------------------------------------- words


@kernel
def _line_words(data, offsets, tables, scratch, starts):
    n_bytes = offsets[-1] - offsets[0]
    hashes = np.empty(3 * n_bytes, np.uint64)  # a line of one byte is a word and two marks
    places = np.empty(3 * n_bytes + 1, np.int64)
    normal = np.empty(2 * n_bytes + 2 * len(offsets), np.uint8)
    n_tokens = length = 0
    for document in range(len(offsets) - 1):
        document_tokens, document_length = n_tokens, length
        position, stop = offsets[document], offsets[document + 1]
        while position < stop:
            end = _line_end(data, position, stop)
            cursor, begun = new_cursor(position), False
            while INVALID < cursor.position < end:
                cursor, n_complete = next_words(data, end, tables, cursor, scratch, starts, CHUNK)
                if cursor.position == INVALID:
                    break
                if n_complete and not begun:
                    hashes[n_tokens], places[n_tokens], begun = _BEGIN, length, True
                    n_tokens += 1
                _digits_as_zero(scratch, starts, n_complete)
                for word in range(n_complete):
                    hashes[n_tokens] = hash_slice(scratch, starts[word], starts[word + 1] - 1)
                    places[n_tokens] = length
                    n_tokens += 1
                    for i in range(starts[word], starts[word + 1] - 1):
                        normal[length] = scratch[i]
                        length += 1
                    normal[length] = np.uint8(32)
                    length += 1
                cursor = drop_words(cursor, n_complete, scratch, starts)
            if cursor.position == INVALID:
                n_tokens, length = document_tokens, document_length
                break
            if begun:
                hashes[n_tokens], places[n_tokens] = _END, length
                n_tokens += 1
            position = end + 1
    places[n_tokens] = length
    return hashes[:n_tokens].copy(), places[: n_tokens + 1].copy(), normal[:length].copy()


@inlined
def _line_end(data, position, stop):
    while position < stop and data[_at(position)] != _LINE_END:
        position += 1
    return position


@inlined
def _digits_as_zero(scratch, starts, n_words):
    """ASCII digits of the first words become 0, so that numbers of a length are one word, as CCNet does it."""
    for i in range(starts[0], starts[n_words]):
        if _ZERO <= scratch[_at(i)] <= _NINE:
            scratch[_at(i)] = _ZERO


# ---------------------------------------------------------------- the table


@kernel
def _insert(keys, values, new, log_probs, backoffs):
    """Put n-grams into the table; false when one is there already, or has the key of an empty slot."""
    mask = len(keys) - 1
    for row in range(len(new)):
        key = new[row]
        if key == _EMPTY:
            return False
        slot = np.int64(_mixed(key)) & mask
        while keys[slot, 0] != _EMPTY:
            if keys[slot, 0] == key:
                return False
            slot = (slot + 1) & mask
        keys[slot, 0] = key
        values[slot, 2] = log_probs[row]
        values[slot, 3] = backoffs[row]
    return True


@inlined
def _found(keys, key):
    """The slot of an n-gram, or -1."""
    mask = len(keys) - 1
    slot = np.int64(_mixed(key)) & mask
    while True:
        there = keys[_at(slot), 0]
        if there == key:
            return slot
        if there == _EMPTY:
            return -1
        slot = (slot + 1) & mask


@inlined
def _mixed(key):
    """Where the search for a key begins; multiplication mixes its upper half best."""
    return (key >> np.uint64(32)) ^ (key & np.uint64(0x7FFFFFFF))


# ---------------------------------------------------------------- scores


@kernel
def _log_probabilities(data, offsets, tables, scratch, starts, keys, values, longest):
    d = len(offsets) - 1
    log_probs = np.zeros(d)
    n_tokens, n_unknown = np.zeros(d, np.int64), np.zeros(d, np.int64)
    context = np.empty(LONGEST, np.uint64)  # hashes of the words before, the nearest first
    backoffs = np.empty(LONGEST + 1, np.float32)  # of the contexts of 1, 2, … words
    for document in range(d):
        position, stop = offsets[document], offsets[document + 1]
        total, tokens, unknown = 0.0, 0, 0
        while position < stop:
            end = _line_end(data, position, stop)
            cursor, n_context, begun = new_cursor(position), 0, False
            while INVALID < cursor.position < end:
                cursor, n_complete = next_words(data, end, tables, cursor, scratch, starts, CHUNK)
                if cursor.position == INVALID:
                    break
                if n_complete and not begun:
                    n_context, begun = _begin(keys, values, longest, context, backoffs), True
                _digits_as_zero(scratch, starts, n_complete)
                for word in range(n_complete):
                    key = hash_slice(scratch, starts[word], starts[word + 1] - 1)
                    log_prob, n_context, known = _next(
                        keys, values, longest, key, context, n_context, backoffs
                    )
                    total += log_prob
                    unknown += not known
                tokens += n_complete
                cursor = drop_words(cursor, n_complete, scratch, starts)
            if cursor.position == INVALID:
                total, tokens, unknown = 0.0, 0, 0
                break
            if begun:
                total += _next(keys, values, longest, _END, context, n_context, backoffs)[0]
                tokens += 1
            position = end + 1
        if tokens == 0:
            n_context = _begin(keys, values, longest, context, backoffs)
            total = np.float64(_next(keys, values, longest, _END, context, n_context, backoffs)[0])
            tokens = 1
        log_probs[document], n_tokens[document], n_unknown[document] = total, tokens, unknown
    return log_probs, n_tokens, n_unknown


@kernel
def _begin(keys, values, longest, context, backoffs):
    """The context at the begin of a sentence; its length."""
    if longest == 1:
        return 0
    context[0] = _BEGIN
    backoffs[1] = values[_found(keys, _BEGIN), 3]
    return 1


@kernel
def _next(keys, values, longest, word, context, n_context, backoffs):
    """Log10 of a word's probability after its context, the length of the next context, whether the word is known."""
    slot = _found(keys, word)
    known = slot >= 0
    if not known:
        word = _UNKNOWN
        slot = _found(keys, word)
    log_prob = np.float64(values[slot, 2])
    weight = values[slot, 3]  # of the n-gram as the next word's context
    key, matched = word, 1
    previous = word  # shifts the context by one, as far as n-grams match
    for n in range(2, longest + 1):
        if n > n_context + 1:
            break
        key = (key + context[n - 2] * _EARLIER) * _FOLD
        slot = _found(keys, key)
        if slot < 0:
            break
        log_prob = np.float64(values[slot, 2])
        backoffs[n - 1] = weight
        weight = values[slot, 3]
        context[n - 2], previous = previous, context[n - 2]
        matched = n
    for n in range(matched, n_context + 1):
        log_prob += backoffs[n]
    if matched < longest:
        backoffs[matched] = weight
        context[matched - 1] = previous
    return log_prob, min(matched, longest - 1), known
