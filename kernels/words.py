"""The words of a document: lower-cased, joined by single spaces, for every script.

Lower-casing is done code point by code point, each by its full, context-free mapping, which is what
``str.lower()`` gives for a string of that one character: Σ always becomes σ, and İ becomes i and
U+0307. A word is a maximal run of word characters, those of the Unicode categories L*, M*, N* and Pc
(connector punctuation, such as ``_``). Everything else separates words. The scripts of
`SPACELESS_SCRIPTS` are written without spaces between words; in them each character that is not a mark
is a word of its own, together with the marks (M*) that follow it.

The normal form of a document is its words joined by single spaces, as UTF-8. A document is brought to
normal form a chunk at a time, so that the memory in use depends on the chunk and on the longest words,
not on the document.

Sources: Unicode categories and mappings as the running Python's `unicodedata` holds them (see
`unicode_version`); the scripts written without spaces are those of Unicode Standard Annex 14's line
breaking classes SA (South East Asian) and ID/CJ (of them Han, kana and Bopomofo).

Dimensions: bytes n, words w.
"""

import collections
import functools
import unicodedata
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.accelerate import inlined, kernel

SPACELESS_SCRIPTS = {
    "Thai, Lao": (0x0E00, 0x0EFF),
    "Myanmar": (0x1000, 0x109F),
    "Khmer": (0x1780, 0x17FF),
    "Tai Le, New Tai Lue, Khmer symbols": (0x1950, 0x19FF),
    "Tai Tham": (0x1A20, 0x1AAF),
    "Han iteration marks and numerals": (0x3005, 0x303C),
    "Hiragana, Katakana, Bopomofo": (0x3040, 0x312F),
    "Bopomofo extended": (0x31A0, 0x31BF),
    "Katakana phonetic extensions": (0x31F0, 0x31FF),
    "Han extension A": (0x3400, 0x4DBF),
    "Han": (0x4E00, 0x9FFF),
    "Myanmar extended B": (0xA9E0, 0xA9FF),
    "Myanmar extended A, Tai Viet": (0xAA60, 0xAADF),
    "Han compatibility": (0xF900, 0xFAFF),
    "half-width Katakana": (0xFF66, 0xFF9F),
    "Myanmar extended C": (0x116D0, 0x116FF),
    "Ahom": (0x11700, 0x1174F),
    "kana supplements": (0x1AFF0, 0x1B16F),
    "Han extensions B to J": (0x20000, 0x3FFFF),
}
"""First and last code point of each range of scripts written without spaces between words."""

SEPARATOR, WORD, MARK, SPACELESS = range(4)  # what a code point is
INVALID = -1  # the position of a cursor that met bytes that are not UTF-8

_PAGE = 128  # code points in a page of the second level of the table
_CODE_POINTS = 0x110000
_ASSIGNED = ((0, 0x40000), (0xE0000, 0xE1000))  # beyond lie only private use and planes never used
_ASCII_END = 0x80
_at = np.uint64  # an unsigned index is not looked at for being negative: twice the speed
_SPACE = 0x20
_I_WITH_DOT = 0x130  # İ, the one code point whose lower case is two:
_DOT_ABOVE = 0x307  # i and this
_KIND = collections.defaultdict(
    lambda: SEPARATOR,
    dict.fromkeys(("Lu", "Ll", "Lt", "Lm", "Lo", "Nd", "Nl", "No", "Pc"), WORD)
    | dict.fromkeys(("Mn", "Mc", "Me"), MARK),
)


class Cursor(NamedTuple):
    """How far a document has been brought to normal form, and what of that is in the buffers."""

    position: int  # the next byte of the document, or INVALID
    length: int  # bytes of normal form in the scratch buffer
    n_words: int  # words begun in the scratch buffer
    in_word: int  # 1 when the last word may go on, 0 when a space follows it already
    attach: int  # where in the document a mark would belong to the spaceless character before it
    n_dropped: int  # words of the document before those in the scratch buffer


class Tables(NamedTuple):
    """What the kernels need to know of Unicode, some 130 kB of it."""

    ascii: NDArray[np.uint8]  # [128] lower-cased byte, or a space where the byte separates
    pages: NDArray[np.int16]  # [8704] the page in `entries` of each run of 128 code points
    entries: NDArray[np.int32]  # [pages * 128] 4 * (lower-cased - code point) + class


def unicode_version() -> str:
    """Version of the Unicode tables in use, such as ``"14.0.0"``; another may give other words."""
    return unicodedata.unidata_version


def words(text: str) -> list[str]:
    """Split a text into its lower-cased words.

    Parameters
    ----------
    text : str
        Any text that can be encoded as UTF-8.

    Returns
    -------
    list of str
        The words in their order; none for a text without word characters.

    Raises
    ------
    UnicodeEncodeError
        When the text holds a lone surrogate.

    Examples
    --------
    >>> words("The cat's İzmir, 東京 in ไทย")
    ['the', 'cat', 's', 'i̇zmir', '東', '京', 'in', 'ไ', 'ท', 'ย']
    """
    data = np.frombuffer(text.encode(), dtype=np.uint8)
    scratch = np.empty(scratch_size(len(data)), np.uint8)
    starts = np.empty(len(data) + 1, np.int64)
    cursor = normalise(data, len(data), len(data), unicode_tables(), new_cursor(0), scratch, starts)
    normal_form = scratch[: cursor.length].tobytes().decode()
    return normal_form.split()


def scratch_size(n_bytes: int) -> int:
    """Bytes that the normal form of `n_bytes` of a document can take: at most two for each.

    The worst is a separator or spaceless character after each one-byte character (1 byte to 2), and
    Ⱥ between them (2 bytes to 4).
    """
    return 2 * n_bytes + 2


@kernel
def new_cursor(position):
    """Cursor of a document that begins at a byte position, with nothing in the buffers."""
    return Cursor(position, 0, 0, 0, INVALID, 0)


@kernel
def normalise(data, limit, stop, tables, cursor, scratch, starts):
    """Bring the next bytes of one document to normal form, behind what `scratch` holds already.

    Parameters
    ----------
    data : uint8[n]
        UTF-8 of which the document is a part.
    limit, stop : int
        Go on until a code point ends at or after `limit`; the document ends at `stop`.
    tables : Tables
        From `unicode_tables`.
    cursor : Cursor
        `new_cursor` or what the last call gave, perhaps after `drop_words`.
    scratch : uint8[:]
        Receives the words, a space after each but an unfinished one.
    starts : int64[:]
        Receives where in `scratch` each word begins; room for one more than there are words.

    Returns
    -------
    Cursor
        Its position is INVALID where the bytes are not UTF-8 (overlong forms, surrogates, truncated
        sequences and code points above U+10FFFF included). ``starts[n_words]`` holds where the next
        word would begin, so that word i is ``scratch[starts[i] : starts[i + 1] - 1]``.
    """
    ascii_lower, pages, entries = tables
    while INVALID < cursor.position < limit:
        if data[cursor.position] < _ASCII_END:
            cursor = _take_ascii_run(data, limit, ascii_lower, cursor, scratch, starts)
        else:
            cursor = _take_code_point(data, stop, pages, entries, cursor, scratch, starts)
    starts[cursor.n_words] = cursor.length + cursor.in_word
    return cursor


@kernel
def next_words(data, stop, tables, cursor, scratch, starts, chunk):
    """Bring the next `chunk` bytes of one document to normal form, as `normalise` does; what of it is complete.

    Returns
    -------
    cursor : Cursor
        From `normalise`.
    n_complete : int
        Words in `scratch` that the next chunk cannot go on with: all but the last, and all at the document's end.
    """
    limit = min(cursor.position + chunk, stop)
    cursor = normalise(data, limit, stop, tables, cursor, scratch, starts)
    return cursor, cursor.n_words if cursor.position == stop else cursor.n_words - 1


@inlined
def _take_ascii_run(data, limit, lower_case, cursor, scratch, starts):
    """Bring bytes below 0x80 to normal form, without a branch at word boundaries."""
    position, length, n_words, in_word, attach, n_dropped = cursor
    while position < limit and data[_at(position)] < _ASCII_END:
        lower = lower_case[data[_at(position)]]
        is_word = np.int64(lower != _SPACE)
        starts[_at(n_words)] = length
        n_words += is_word & ~in_word
        scratch[_at(length)] = lower
        length += is_word | in_word
        in_word = is_word
        position += 1
    return Cursor(position, length, n_words, in_word, attach, n_dropped)


@inlined
def _take_code_point(data, stop, pages, entries, cursor, scratch, starts):
    """Bring one code point above U+007F to normal form."""
    position, length, n_words, in_word, attach, n_dropped = cursor
    code_point, size = decode(data, position, stop)
    entry = entries[_PAGE * pages[code_point // _PAGE] + code_point % _PAGE]
    kind, lower = entry & 3, code_point + (entry >> 2)
    following = position + size if size > 0 else INVALID
    attached = kind == MARK and position == attach
    if attached:  # take back the space after the character that the mark belongs to
        length, in_word = length - 1, 1
    elif in_word == 1 and kind in (SEPARATOR, SPACELESS):
        length, in_word = _close(scratch, length), 0
    if kind != SEPARATOR:
        if in_word == 0:
            starts[n_words] = length
            n_words += 1
        length, in_word = encode(scratch, length, lower), 1
    if code_point == _I_WITH_DOT:
        length = encode(scratch, length, _DOT_ABOVE)
    if kind == SPACELESS or attached:
        length, in_word, attach = _close(scratch, length), 0, following
    return Cursor(following, length, n_words, in_word, attach, n_dropped)


@kernel
def drop_words(cursor, n_dropped, scratch, starts):
    """Move what follows the first `n_dropped` words to the front of the buffers."""
    if n_dropped == 0:  # a word of many chunks is not copied with each of them
        return cursor
    shift = starts[n_dropped]
    for i in range(shift, cursor.length):
        scratch[i - shift] = scratch[i]
    n_words = cursor.n_words - n_dropped
    for word in range(n_words + 1):
        starts[word] = starts[word + n_dropped] - shift
    total = cursor.n_dropped + n_dropped
    return Cursor(cursor.position, cursor.length - shift, n_words, cursor.in_word, cursor.attach, total)


@inlined
def decode(data, position, stop):
    """One code point above U+007F from strict UTF-8, and its bytes; (0, 0) where it is not valid.

    Source: Unicode Standard, table 3-7 (well-formed UTF-8 byte sequences).
    """
    first = np.int64(data[position])
    size = 2 + (first >= 0xE0) + (first >= 0xF0)
    valid = 0xC2 <= first <= 0xF4 and position + size <= stop
    code_point = first & (0x7F >> size)
    for i in range(1, size if valid else 0):
        byte = data[position + i]
        valid &= byte & 0xC0 == 0x80
        code_point = code_point << 6 | (byte & 0x3F)
    overlong = (size == 3 and code_point < 0x800) or (size == 4 and code_point < 0x10000)
    surrogate = 0xD800 <= code_point < 0xE000
    if not valid or overlong or surrogate or code_point >= _CODE_POINTS:
        return 0, 0
    return code_point, size


@inlined
def encode(scratch, length, code_point):
    """Append a code point as UTF-8; the new length."""
    size = 1 + (code_point >= 0x80) + (code_point >= 0x800) + (code_point >= 0x10000)
    for i in range(length + size - 1, length, -1):
        scratch[i] = 0x80 | (code_point & 0x3F)
        code_point >>= 6
    mark = 0xF00 >> size & 0xFF if size > 1 else 0
    scratch[length] = mark | code_point
    return length + size


@inlined
def _close(scratch, length):
    """End a word with a space; the new length."""
    scratch[length] = _SPACE
    return length + 1


@functools.cache
def unicode_tables() -> Tables:
    """Build the tables from `unicodedata`, once in a process; it takes some 60 ms."""
    kinds = np.full(_CODE_POINTS, SEPARATOR, np.int32)
    lower = np.arange(_CODE_POINTS, dtype=np.int32)
    for first, end in _ASSIGNED:
        text = lower[first:end].astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")
        kinds[first:end] = np.fromiter(map(_KIND.__getitem__, map(unicodedata.category, text)), np.int32)
        # Σ and İ are the two whose lower case in a longer text is not that of their own.
        lowered = text.replace("Σ", "σ").replace("İ", "i").lower()
        lower[first:end] = np.frombuffer(lowered.encode("utf-32-le", "surrogatepass"), "<u4")
    for first, last in SPACELESS_SCRIPTS.values():
        script = kinds[first : last + 1]
        script[script == WORD] = SPACELESS
    entries = (4 * (lower - np.arange(_CODE_POINTS)) + kinds).astype(np.int32)
    ascii_lower = np.where(kinds[:_ASCII_END] == SEPARATOR, _SPACE, lower[:_ASCII_END]).astype(np.uint8)
    return Tables(_frozen(ascii_lower), *_paged(entries))


def _paged(entries: NDArray[np.int32]) -> tuple[NDArray[np.int16], NDArray[np.int32]]:
    """Two-level form of a table: equal pages are held once."""
    numbers: dict[bytes, int] = {}
    pages = [numbers.setdefault(page.tobytes(), len(numbers)) for page in entries.reshape(-1, _PAGE)]
    return _frozen(np.array(pages, np.int16)), np.frombuffer(b"".join(numbers), np.int32)


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array
