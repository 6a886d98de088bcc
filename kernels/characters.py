"""What the quality rules need to know of each character, as bits of one table.

Whitespace, line boundaries, letters and digits are those of Python's `str.isspace`, `str.splitlines`,
`str.isalpha` and `str.isdecimal`.

Sources: Unicode as the running Python's `unicodedata` holds it; the two sets of punctuation are those
of datatrove 0.10.1 (``utils/text.py``), which count for the decisions of its filters.
"""

import functools
import unicodedata
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.accelerate import inlined
from kernels.words import MARK, SPACELESS, WORD, decode, unicode_tables

IN_WORD = 1 << 0  # letters, digits, connectors and marks of scripts with spaces, and the vertical bar
IS_MARK = 1 << 1
VISIBLE = 1 << 2  # not whitespace
LETTER = 1 << 3
NOT_SYMBOL = 1 << 4  # visible, and not in SYMBOLS or SENTENCE_ENDS
LINE_BREAK = 1 << 5
TERMINAL = 1 << 6  # may end a line as FineWeb's rule wants it
SENTENCE_END = 1 << 7
PUNCTUATION = 1 << 8  # Unicode categories P*
DIGIT = 1 << 9
LOWER = 1 << 10
UPPER = 1 << 11
PHRASE = 1 << 12  # the letter by which a phrase is found, see `kernels.line_rules`
SPACELESS_SCRIPT = 1 << 13  # not a mark
ICON = 1 << 14  # Unicode category So, such as emoji

SENTENCE_ENDS = (
    "21 2E 3F 589 61D-61F 6D4 700-702 7F9 837 839 83D-83E 964-965 104A-104B 1362 1367-1368 166E 1735-1736 "
    "17D4-17D6 17D9-17DA 1803 1809 1944-1945 1AA8-1AAB 1B5A-1B5B 1B5E-1B5F 1B7D-1B7E 1C3B-1C3C 1C7E-1C7F "
    "203C-203D 2047-2049 2E2E 2E3C 2E53-2E54 3002 A4FF A60E-A60F A6F3 A6F7 A876-A877 A8CE-A8CF A92F A9C8-A9C9 "
    "AA5D-AA5F AAF0-AAF1 ABEB FE52 FE56-FE57 FF01 FF0E FF1F FF61 10A56-10A57 10F55-10F59 10F86-10F89 "
    "11047-11048 110BE-110C1 11141-11143 111C5-111C6 111CD 111DE-111DF 11238-11239 1123B-1123C 112A9 "
    "1144B-1144C 115C2-115C3 115C9-115D7 11641-11642 1173C-1173E 11944 11946 11A42-11A43 11A9B-11A9C "
    "11C41-11C42 11EF7-11EF8 11F43-11F44 16A6E-16A6F 16AF5 16B37-16B38 16B44 16E98 1BC9F 1DA88"
)
"""Code points that end a sentence, of all scripts, in hexadecimal: datatrove's `TERMINAL_PUNCTUATION`."""

SYMBOLS = (
    "0-8 B-1F 22-2D 2F 3A-3E 40 5B-60 7B-9F AB B4 BB 2013-2014 2019 201C-201E 2026 2236 2501 25BA 3001 "
    "3008-300D 3010-3011 FF05 FF08-FF09 FF0C FF11 FF1A-FF1B FF5E"
)
"""The others that make no word where they stand alone: the rest of datatrove's `PUNCTUATION_SET`."""

PHRASE_LETTERS = "jkmvJKMV{["

_PAGE = 128
_CODE_POINTS = 0x110000
_ASCII_END = 0x80
_ASSIGNED = (*range(0x40000), *range(0xE0000, 0xE1000))  # beyond lies only private use


class Characters(NamedTuple):
    """The bits of every code point, some 100 kB of them."""

    ascii: NDArray[np.uint16]  # [128]
    pages: NDArray[np.int16]  # [8704] the page in `entries` of each run of 128 code points
    entries: NDArray[np.uint16]  # [pages * 128]


def code_points(ranges: str) -> set[int]:
    """The code points of a list such as ``"2E 3B-3F"``, hexadecimal, ends included."""
    found: set[int] = set()
    for item in ranges.split():
        first, _, last = item.partition("-")
        found.update(range(int(first, 16), int(last or first, 16) + 1))
    return found


@functools.lru_cache(maxsize=16)
def characters(line_ends: str | None = None) -> Characters:
    """Build the table; it takes some 300 ms, once in a process for each set of line ends.

    Parameters
    ----------
    line_ends : str, optional
        Characters that have the bit TERMINAL; SENTENCE_ENDS where it is absent.
    """
    bits = _bits().copy()
    terminal = code_points(SENTENCE_ENDS) if line_ends is None else set(map(ord, line_ends))
    bits[sorted(terminal)] |= TERMINAL
    ascii_bits, (pages, entries) = bits[:_ASCII_END].copy(), _paged(bits)
    return Characters(_frozen(ascii_bits), _frozen(pages), _frozen(entries))


@functools.cache
def _bits() -> NDArray[np.uint16]:
    """All bits but TERMINAL, uint16[0x110000]."""
    _, word_pages, word_entries = unicode_tables()
    kinds = word_entries.reshape(-1, _PAGE)[word_pages].reshape(-1) & 3
    sentence_ends = code_points(SENTENCE_ENDS)
    symbols = sentence_ends | code_points(SYMBOLS)
    bits = np.full(_CODE_POINTS, VISIBLE | NOT_SYMBOL, np.uint16)
    bits[(kinds == WORD) | (kinds == MARK)] |= IN_WORD
    bits[ord("|")] |= IN_WORD
    bits[kinds == MARK] |= IS_MARK
    bits[kinds == SPACELESS] |= SPACELESS_SCRIPT
    bits[sorted(symbols)] &= ~np.uint16(NOT_SYMBOL)
    bits[sorted(sentence_ends)] |= SENTENCE_END
    bits[[ord(character) for character in PHRASE_LETTERS]] |= PHRASE
    for code_point in _ASSIGNED:
        bits[code_point] = _with_properties(int(bits[code_point]), chr(code_point))
    return bits


def _with_properties(bits: int, character: str) -> int:
    """Add what Python knows of a character."""
    if character.isspace():
        bits &= ~(VISIBLE | NOT_SYMBOL)
    category = unicodedata.category(character)
    return (
        bits
        | LETTER * character.isalpha()
        | DIGIT * character.isdecimal()
        | LOWER * (category == "Ll")
        | UPPER * (category == "Lu")
        | ICON * (category == "So")
        | PUNCTUATION * category.startswith("P")
        | LINE_BREAK * (len(f"a{character}b".splitlines()) > 1)
    )


def _paged(bits: NDArray[np.uint16]) -> tuple[NDArray[np.int16], NDArray[np.uint16]]:
    """Two-level form of the table: equal pages are held once."""
    numbers: dict[bytes, int] = {}
    pages = [numbers.setdefault(page.tobytes(), len(numbers)) for page in bits.reshape(-1, _PAGE)]
    return np.array(pages, np.int16), np.frombuffer(b"".join(numbers), np.uint16).copy()


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


@inlined
def character_at(data, position, stop, table):
    """Bits and size in bytes of the character at a position; a byte that is not UTF-8 counts as a symbol."""
    byte = data[np.uint64(position)]
    if byte < _ASCII_END:
        return np.int64(table.ascii[np.uint64(byte)]), 1
    code_point, size = decode(data, position, stop)
    if size == 0:
        return np.int64(VISIBLE), 1
    return np.int64(
        table.entries[_PAGE * np.int64(table.pages[code_point // _PAGE]) + code_point % _PAGE]
    ), size


@inlined
def character_before(data, start, position, table):
    """Bits and size of the character that ends at a position, which lies behind `start`."""
    first = position - 1
    while first > start and position - first < 4 and data[first] & 0xC0 == 0x80:
        first -= 1
    bits, size = character_at(data, first, position, table)
    if first + size != position:
        return np.int64(VISIBLE), 1
    return bits, size


@inlined
def n_characters(data, start, stop):
    """Characters in a slice: bytes that do not continue one."""
    count = 0
    for i in range(start, stop):
        count += int(data[np.uint64(i)] & 0xC0 != 0x80)
    return count
