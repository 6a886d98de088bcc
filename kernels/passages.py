"""Passages of documents: cut, hashed in a form that small differences do not change, and taken out.

A document is cut into parts, lines, paragraphs or sentences, and the white space between them:

- A line ends at a line feed; blank lines are white space.
- A paragraph ends where a blank line follows.
- A sentence ends at a line feed, or behind a character that ends sentences and the punctuation that follows it, where
  white space or the end follows, or the character is not ASCII (some scripts leave no space there). A full stop that
  belongs to an abbreviation ends none (`kernels.full_stops`).

A passage is a part, or three sentences in a row. Its normal form is lower-case, without accents (marks that do not
take space, in the canonical decomposition of a character), without punctuation and control characters; digits are 0,
and white space is one space. It is known by the XXH3-64 of that.

Sources: CCNet (Wenzek et al. 2019) for lines and the normal form, as its paper describes it; C4 (Raffel et al. 2020)
for spans of three sentences.

Dimensions: documents d, bytes n, parts p.
"""

import functools
import unicodedata
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.accelerate import inlined, kernel
from kernels.arrays import check_offsets, check_slices, read_only
from kernels.characters import PUNCTUATION, SENTENCE_END, VISIBLE, character_at, characters
from kernels.full_stops import is_full_stop
from kernels.line_rules import find_newline, skip_space, skip_space_back
from kernels.words import decode, encode
from kernels.xxh3 import hash_slice

LINE, PARAGRAPH, SENTENCE = range(3)

_REMOVED, _SPACE, _NEWLINE, _DOT = 0, 0x20, 0x0A, 0x2E
_PAGE = 128
_CODE_POINTS = 0x110000
_ASCII_END = 0x80
_ASSIGNED = (*range(0x40000), *range(0xE0000, 0xE1000))  # beyond lies only private use


class Parts(NamedTuple):
    """What documents are cut into.

    Attributes
    ----------
    starts, ends
        int64[p], byte positions of each part in all documents' bytes, without the white space behind it. The first of a
        document begins with the white space before it.
    offsets
        int64[d + 1], which parts are those of each document.
    """

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    offsets: NDArray[np.int64]


class Forms(NamedTuple):
    """What each code point is in the normal form, some 140 kB of it; 0 where it is left out."""

    pages: NDArray[np.int16]  # [8704] the page in `entries` of each run of 128 code points
    entries: NDArray[np.int32]  # [pages * 128]


# ---------------------------------------------------------------- cut


def parts(data: NDArray[np.uint8], offsets: NDArray[np.int64], unit: int) -> Parts:
    """Cut documents into lines, paragraphs or sentences.

    Parameters
    ----------
    data : uint8[n]
        The documents' UTF-8.
    offsets : int64[d + 1]
        Document i is ``data[offsets[i] : offsets[i + 1]]``.
    unit : int
        LINE, PARAGRAPH or SENTENCE.

    Returns
    -------
    Parts
        None of them empty; a document of white space alone has none.

    Raises
    ------
    ValueError
        When the offsets do not lie within `data`.
    """
    data, offsets = read_only(data, np.uint8), read_only(offsets, np.int64)
    check_offsets(offsets, len(data))
    nothing = np.empty(0, np.int64)
    of_document = np.zeros(len(offsets), np.int64)
    n_parts = _cut(data, offsets, unit, characters(), nothing, nothing, of_document)
    starts, ends = np.empty(n_parts, np.int64), np.empty(n_parts, np.int64)
    _cut(data, offsets, unit, characters(), starts, ends, of_document)
    return Parts(starts, ends, of_document)


@kernel
def _cut(data, offsets, unit, table, starts, ends, of_document):
    """Write the parts where there is room for them; count them."""
    n = 0
    for document in range(len(offsets) - 1):
        start, stop = offsets[document], offsets[document + 1]
        position = skip_space(data, start, stop, table)
        while position < stop:
            end = _end_of_part(data, position, stop, unit, table)
            if n < len(starts):
                starts[n], ends[n] = start, end
            n += 1
            position = skip_space(data, end, stop, table)
            start = _line_start(data, end, position) if unit != SENTENCE else position
        of_document[document + 1] = n
    return n


@inlined
def _end_of_part(data, position, stop, unit, table):
    """Where the part ends that begins with the visible character at a position."""
    if unit == SENTENCE:
        return _end_of_sentence(data, position, stop, table)
    end = skip_space_back(data, position, find_newline(data, position, stop), table)
    while unit == PARAGRAPH:
        following = skip_space(data, end, stop, table)
        if following == stop or _newlines(data, end, following) > 1:
            break
        end = skip_space_back(data, following, find_newline(data, following, stop), table)
    return end


@inlined
def _end_of_sentence(data, start, stop, table):
    position = start
    while position < stop and data[position] != _NEWLINE:
        bits, size = character_at(data, position, stop, table)
        ends = bits & SENTENCE_END and (
            data[position] != _DOT or is_full_stop(data, start, position, stop, table)
        )
        spaceless = data[position] >= _ASCII_END
        position += size
        if ends:
            after = _skip_punctuation(data, position, stop, table)
            if after == stop or spaceless or character_at(data, after, stop, table)[0] & VISIBLE == 0:
                return after
    return skip_space_back(data, start, position, table)


@inlined
def _skip_punctuation(data, position, stop, table):
    while position < stop:
        bits, size = character_at(data, position, stop, table)
        if bits & PUNCTUATION == 0:
            break
        position += size
    return position


@inlined
def _line_start(data, end, position):
    """Behind the last line feed before a position, or the position where there is none from `end` on."""
    start = position
    while start > end and data[start - 1] != _NEWLINE:
        start -= 1
    return start if start > end else position


@inlined
def _newlines(data, start, stop):
    count = 0
    for i in range(start, stop):
        count += int(data[i] == _NEWLINE)
    return count


# ---------------------------------------------------------------- hash


def hashes(
    data: NDArray[np.uint8], cut: Parts, in_a_passage: int, min_words: int = 1, min_characters: int = 1
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Hash the passage that begins with each part.

    Parameters
    ----------
    data : uint8[n]
        The documents' UTF-8.
    cut : Parts
        From `parts`.
    in_a_passage : int
        Parts in a passage, at least 1.
    min_words, min_characters : int
        What a passage that counts has at least, in its normal form; words are what white space separates.

    Returns
    -------
    hashes : uint64[p]
        Of the normal forms; 0 where there is no passage.
    counted : bool[p]
        Whether a passage begins here, that is long enough, not empty, and ends in the same document.

    Raises
    ------
    ValueError
        When the parts do not lie within `data`.
    """
    data = read_only(data, np.uint8)
    starts, ends, offsets = (read_only(array, np.int64) for array in cut)
    check_slices(starts, ends, len(data))
    check_offsets(offsets, len(starts))
    last = np.minimum(np.arange(len(starts)) + in_a_passage, np.repeat(offsets[1:], np.diff(offsets))) - 1
    longest = int((ends[last] - starts).max(initial=0))
    scratch = np.empty(_scratch_size(longest), np.uint8)
    least = (max(1, min_words), max(1, min_characters))
    return _hashes(data, starts, ends, offsets, in_a_passage, least, forms(), scratch)


@kernel
def _hashes(data, starts, ends, offsets, in_a_passage, least, table, scratch):
    min_words, min_characters = least
    found, counted = np.zeros(len(starts), np.uint64), np.zeros(len(starts), np.bool_)
    for document in range(len(offsets) - 1):
        for part in range(offsets[document], offsets[document + 1] - in_a_passage + 1):
            length, n_words, n_characters = _normalise(
                data, starts[part], ends[part + in_a_passage - 1], table, scratch
            )
            if n_words >= min_words and n_characters >= min_characters:
                found[part], counted[part] = hash_slice(scratch, 0, length), True
    return found, counted


@inlined
def _normalise(data, position, stop, table, scratch):
    """Write the normal form to the front of `scratch`: its bytes, words and characters, spaces included."""
    length, n_words, n_characters, in_word = 0, 0, 0, False
    while position < stop:
        code_point, size = np.int64(data[position]), 1
        if code_point >= _ASCII_END:
            code_point, size = decode(data, position, stop)
        if size == 0:  # no UTF-8
            code_point, size = np.int64(0xFFFD), 1
        form = np.int64(
            table.entries[_PAGE * np.int64(table.pages[code_point // _PAGE]) + code_point % _PAGE]
        )
        position += size
        if form == _SPACE:
            in_word = False
        elif form != _REMOVED:
            if not in_word and n_words > 0:
                scratch[length] = _SPACE
                length, n_characters = length + 1, n_characters + 1
            n_words += int(not in_word)
            in_word = True
            length, n_characters = encode(scratch, length, form), n_characters + 1
    return length, n_words, n_characters


def _scratch_size(n_bytes: int) -> int:
    """Bytes that a normal form can take: a byte that is not UTF-8 becomes U+FFFD, three bytes; no other grows so."""
    return 3 * n_bytes


def normal_form(text: str) -> str:
    """The form of a text by which it is compared.

    Examples
    --------
    >>> normal_form("  Ça va?  Il est 12:30! ")
    'ca va il est 0000'
    """
    data = np.frombuffer(text.encode(), np.uint8)
    scratch = np.empty(_scratch_size(len(data)), np.uint8)
    length, _, _ = _normal_form(read_only(data, np.uint8), forms(), scratch)
    return scratch[:length].tobytes().decode()


@kernel
def _normal_form(data, table, scratch):
    return _normalise(data, 0, len(data), table, scratch)


@functools.cache
def forms() -> Forms:
    """Build the table from `unicodedata`, once in a process; it takes some 300 ms."""
    mapped = np.arange(_CODE_POINTS, dtype=np.int32)
    for code_point in _ASSIGNED:
        mapped[code_point] = _form(chr(code_point))
    numbers: dict[bytes, int] = {}
    pages = [numbers.setdefault(page.tobytes(), len(numbers)) for page in mapped.reshape(-1, _PAGE)]
    table = np.array(pages, np.int16)
    table.flags.writeable = False
    return Forms(table, np.frombuffer(b"".join(numbers), np.int32))


def _form(character: str) -> int:
    """What a code point becomes; itself where it would be several."""
    if character.isspace():
        return _SPACE
    category = unicodedata.category(character)
    if category in ("Mn", "Me", "Cc", "Cf") or category.startswith("P"):
        return _REMOVED
    if category == "Nd":
        return ord("0")
    if category == "Cs":
        return ord(character)
    decomposed = unicodedata.normalize("NFD", character.lower())
    left = [one for one in decomposed if unicodedata.category(one) != "Mn"]
    return ord(left[0]) if len(left) == 1 else ord(character)


# ---------------------------------------------------------------- take out


def without(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], cut: Parts, removed: NDArray[np.bool_]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Documents without some of their parts.

    A part goes with the white space behind it, and where it was the last of its document, with that before it. Of all
    white space between two parts that become neighbours, that stays which has most line feeds, the first of such.

    Parameters
    ----------
    data : uint8[n]
        The documents' UTF-8.
    offsets : int64[d + 1]
        Document i is ``data[offsets[i] : offsets[i + 1]]``.
    cut : Parts
        From `parts`.
    removed : bool[p]
        The parts that go. A document that loses none stays byte for byte.

    Returns
    -------
    data : uint8[m]
    offsets : int64[d + 1]

    Raises
    ------
    ValueError
        When the arrays do not fit each other.
    """
    data, offsets, removed = read_only(data, np.uint8), read_only(offsets, np.int64), read_only(removed, bool)
    starts, ends, of_document = (read_only(array, np.int64) for array in cut)
    check_offsets(offsets, len(data))
    check_slices(starts, ends, len(data))
    check_offsets(of_document, len(starts))
    if len(removed) != len(starts) or len(of_document) != len(offsets):
        raise ValueError(
            f"{len(removed)} marks and {len(of_document)} offsets of parts, for {len(starts)} parts of "
            f"{len(offsets) - 1} documents"
        )
    left = np.empty(int(offsets[-1] - offsets[0]), np.uint8)
    left_offsets = np.zeros(len(offsets), np.int64)
    length = _without(data, offsets, starts, ends, of_document, removed, left, left_offsets)
    return left[:length], left_offsets


@kernel
def _without(data, offsets, starts, ends, of_document, removed, left, left_offsets):
    length = 0
    for document in range(len(offsets) - 1):
        first, last = of_document[document], of_document[document + 1]
        stop = offsets[document + 1]
        if not removed[first:last].any():
            length = _copy(data, offsets[document], stop, left, length)
        else:
            length = _copy_kept(data, starts, ends, first, last, stop, removed, left, length)
        left_offsets[document + 1] = length
    return length


@inlined
def _copy_kept(data, starts, ends, first, last, stop, removed, left, length):
    """Append the parts of a document that are kept, with white space between them."""
    any_kept, best, space_start, space_stop = False, -1, 0, 0
    for part in range(first, last):
        if not removed[part]:
            if any_kept:
                length = _copy(data, space_start, space_stop, left, length)
            length = _copy(data, starts[part], ends[part], left, length)
            any_kept, best = True, -1
        following = starts[part + 1] if part + 1 < last else stop
        newlines = _newlines(data, ends[part], following)
        if newlines > best:
            best, space_start, space_stop = newlines, ends[part], following
    if any_kept and not removed[last - 1]:
        length = _copy(data, ends[last - 1], stop, left, length)
    return length


@inlined
def _copy(data, start, stop, left, length):
    for i in range(start, stop):
        left[length + i - start] = data[i]
    return length + stop - start
