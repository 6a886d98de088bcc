"""Count the places of texts where an entry of a list of words and phrases begins.

Entries form a trie of bytes in the order of a breadth-first walk, so that the node at the end of edge i is node i + 1
and the edges of a node lie together, sorted. At each place the walk ends with the first byte that no entry has, so the
time for a text of n bytes is at most n × the length of the longest entry × the binary search among a node's edges.

Dimensions: documents d, bytes n, edges e.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.accelerate import inlined, kernel
from kernels.arrays import check_offsets, read_only
from kernels.characters import IN_WORD, SPACELESS_SCRIPT, character_at, characters

_BAR = ord("|")


class WordList(NamedTuple):
    """The trie of a list of entries."""

    labels: NDArray[np.uint8]  # [e] of each edge
    first: NDArray[np.int64]  # [e + 2] of each node, where its edges begin
    ends: NDArray[np.bool_]  # [e + 1] whether an entry ends at a node


def word_list(entries: Iterable[bytes]) -> WordList:
    """Build the trie of entries; an empty one is passed over."""
    level = [sorted({entry for entry in entries if entry})]
    labels: list[int] = []
    first: list[int] = []
    ends: list[bool] = []
    depth = 0
    while level:
        following = []
        for of_node in level:
            first.append(len(labels))
            ends.append(depth > 0 and len(of_node[0]) == depth)
            longer = of_node[1:] if ends[-1] else of_node
            for byte in sorted({entry[depth] for entry in longer}):
                labels.append(byte)
                following.append([entry for entry in longer if entry[depth] == byte])
        level, depth = following, depth + 1
    return WordList(np.array(labels, np.uint8), np.array([*first, len(labels)]), np.array(ends, np.bool_))


def count_places(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], entries: WordList, whole_words: bool
) -> NDArray[np.int64]:
    """Count the places of each document where an entry begins; several that begin at one place count once.

    Parameters
    ----------
    data : uint8[n]
        The documents' UTF-8, in the case of the entries.
    offsets : int64[d + 1]
        Document i is ``data[offsets[i] : offsets[i + 1]]``.
    entries : WordList
        Words and phrases.
    whole_words : bool
        Whether a character of a word (a letter, mark, digit or connector) must stand neither before an entry nor behind
        it.

    Returns
    -------
    int64[d]

    Raises
    ------
    ValueError
        When the offsets do not lie within `data`.
    """
    data, offsets = read_only(data, np.uint8), read_only(offsets, np.int64)
    check_offsets(offsets, len(data))
    found = np.zeros(len(offsets) - 1, np.int64)
    if len(entries.labels):
        _count_places(data, offsets, entries, whole_words, characters(), found)
    return found


@kernel
def _count_places(data, offsets, entries, whole_words, table, found):
    for document in range(len(offsets) - 1):
        start, stop = offsets[document], offsets[document + 1]
        position = start
        in_word = False  # whether the character before belongs to a word
        while position < stop:
            bits, size = character_at(data, position, stop, table)
            if not (whole_words and in_word):
                found[document] += _begins(data, position, stop, entries, whole_words, table)
            in_word = _is_of_word(bits, data[position])
            position += size


@inlined
def _is_of_word(bits, byte):
    return bits & (IN_WORD | SPACELESS_SCRIPT) != 0 and byte != _BAR


@kernel
def _begins(data, position, stop, entries, whole_words, table):
    """Whether an entry begins at a position."""
    node = 0
    while position < stop:
        edge = _edge(entries, node, data[position])
        if edge < 0:
            return False
        node, position = edge + 1, position + 1
        if entries.ends[node]:
            if not whole_words or position == stop:
                return True
            bits, _ = character_at(data, position, stop, table)
            if not _is_of_word(bits, data[position]):
                return True
    return False


@inlined
def _edge(entries, node, byte):
    """The edge of a node with a label; -1 where it has none."""
    low, high = entries.first[node], entries.first[node + 1]
    while low < high:
        middle = (low + high) >> 1
        if entries.labels[middle] < byte:
            low = middle + 1
        else:
            high = middle
    return low if low < entries.first[node + 1] and entries.labels[low] == byte else -1
