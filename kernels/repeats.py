"""Which of very many keys may occur more than once: a table of two bits for each place that keys fall on.

A key's place is its leading bits, so keys must be uniform, as hashes are. Of the two bits of a place, the lower says
that a key was seen there and the upper that one was seen twice. A key that occurs twice finds its upper bit set; one
that occurs once finds it set when another key has its place, of n keys and p places with probability 1 - exp(-n/p).
Tables of parts of the keys merge to the table of all, in any order.

A table holds the keys of one range of the key space, as numbered by their leading bits, so that the ranges can be
done one after the other.

Source: a counting Bloom filter (Fan et al., Summary Cache, 2000) of one hash function and two-bit counters.

Dimensions: keys n, places p, words of a table w = p / 32.
"""

import numpy as np
from numpy.typing import NDArray

from kernels.accelerate import inlined, kernel
from kernels.arrays import read_only

PLACES_IN_A_WORD = 32
SEEN = np.uint64(0x5555555555555555)  # the lower bits of all places


def new_table(log2_places: int) -> NDArray[np.uint64]:
    """A table in which nothing was seen.

    Parameters
    ----------
    log2_places : int
        5 to 58; the table takes ``2**log2_places / 4`` bytes.

    Returns
    -------
    uint64[w]
        Zeros.

    Raises
    ------
    ValueError
        When `log2_places` is out of its bounds.
    """
    if not 5 <= log2_places <= 58:
        raise ValueError(f"a table has 2**5 to 2**58 places, not 2**{log2_places}")
    return np.zeros(2**log2_places // PLACES_IN_A_WORD, np.uint64)


def note(table: NDArray[np.uint64], keys: NDArray[np.uint64], log2_ranges: int = 0, part: int = 0) -> None:
    """Note keys in a table, in place; keys of other ranges are passed over.

    Parameters
    ----------
    table : uint64[w]
        From `new_table`.
    keys : uint64[n]
        Uniform hashes; one that occurs twice among them counts twice.
    log2_ranges, part : int
        The key space is cut into ``2**log2_ranges`` ranges, of which the table holds number `part`.
    """
    _note(
        table, read_only(keys, np.uint64), np.uint64(log2_ranges), np.uint64(part), _shift(table, log2_ranges)
    )


def merge(tables: list[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    """The table of the keys of all of these tables, which are of one size and range.

    Parameters
    ----------
    tables : list of uint64[w]
        At least one.

    Returns
    -------
    uint64[w]
        A new table.

    Raises
    ------
    ValueError
        When the tables are not of one size.
    """
    merged = tables[0].copy()
    for table in tables[1:]:
        if len(table) != len(merged):
            raise ValueError(f"tables of {len(merged)} and {len(table)} words cannot be merged")
        _merge(merged, read_only(table, np.uint64))
    return merged


def twice(table: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """The upper bit of each place alone, which is all that `may_repeat` asks for.

    Parameters
    ----------
    table : uint64[w]
        From `note` or `merge`.

    Returns
    -------
    uint32[w]
        Bit i of word j belongs to place ``32 * j + i``.
    """
    return _twice(read_only(table, np.uint64))


def may_repeat(
    flags: NDArray[np.uint32], keys: NDArray[np.uint64], log2_ranges: int = 0, part: int = 0
) -> NDArray[np.bool_]:
    """Whether each key may have been noted twice; never False for one that was.

    Parameters
    ----------
    flags : uint32[w]
        From `twice`.
    keys : uint64[n]
        Those of other ranges are False.
    log2_ranges, part : int
        As for `note`.

    Returns
    -------
    bool[n]
    """
    keys = read_only(keys, np.uint64)
    flags = read_only(flags, np.uint32)
    return _may_repeat(flags, keys, np.uint64(log2_ranges), np.uint64(part), _shift(flags, log2_ranges))


def _shift(table, log2_ranges):
    """Bits of a key that follow those which are its place."""
    log2_places = (len(table) * PLACES_IN_A_WORD).bit_length() - 1
    return np.uint64(64 - log2_ranges - log2_places)


@inlined
def _in_range(key, log2_ranges, part):
    return log2_ranges == 0 or key >> (np.uint64(64) - log2_ranges) == part


@inlined
def _place(key, log2_ranges, shift):
    """Word of a key, and the number of its place in the word."""
    place = (key << log2_ranges) >> (shift + log2_ranges)
    return place >> np.uint64(5), place & np.uint64(31)


@kernel
def _note(table, keys, log2_ranges, part, shift):
    for i in range(len(keys)):
        if _in_range(keys[i], log2_ranges, part):
            word, place = _place(keys[i], log2_ranges, shift)
            before, seen = table[word], np.uint64(1) << (np.uint64(2) * place)
            table[word] = before | seen | ((before & seen) << np.uint64(1))


@kernel
def _merge(merged, table):
    for word in range(len(table)):
        a, b = merged[word], table[word]
        merged[word] = a | b | ((a & b & SEEN) << np.uint64(1))


@kernel
def _twice(table):
    flags = np.empty(len(table), np.uint32)
    for word in range(len(table)):
        # The bits at odd places, brought together: in pairs, in fours, and so on.
        x = (table[word] >> np.uint64(1)) & SEEN
        x = (x | (x >> np.uint64(1))) & np.uint64(0x3333333333333333)
        x = (x | (x >> np.uint64(2))) & np.uint64(0x0F0F0F0F0F0F0F0F)
        x = (x | (x >> np.uint64(4))) & np.uint64(0x00FF00FF00FF00FF)
        x = (x | (x >> np.uint64(8))) & np.uint64(0x0000FFFF0000FFFF)
        flags[word] = np.uint32(x | (x >> np.uint64(16)))
    return flags


@kernel
def _may_repeat(flags, keys, log2_ranges, part, shift):
    found = np.zeros(len(keys), np.bool_)
    for i in range(len(keys)):
        if _in_range(keys[i], log2_ranges, part):
            word, place = _place(keys[i], log2_ranges, shift)
            found[i] = (np.uint64(flags[word]) >> place) & np.uint64(1)
    return found
