"""The segments of a document, words and symbols alike, which the quality rules count and compare.

A segment is a run of word characters (letters, digits, connectors, marks, ``|``), or one character of a script without
spaces, or one of any other kind that is not whitespace; the last two with the marks (M*) that follow them. Beyond that,
much as spaCy's English tokenizer has it, with whose words datatrove uses the published thresholds:

- A symbol between two word characters belongs to the word (``3.5``, ``x@y.com``, ``COVID-19``), except a full stop
  between a small letter and a capital, a comma or hyphen between letters, ``-+*^`` between digits, ``:<>=/`` before a
  letter, an ellipsis or icon anywhere.
- An apostrophe before a letter begins a word (``it's`` is ``it`` and ``'s``).
- A full stop that ends no sentence belongs to the word before it (``U.S.``, ``Dr.``).
- Runs of full stops and of hyphens are one segment.

Case stays as it is.

Dimensions: documents d, bytes n, segments s.
"""

import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.accelerate import inlined, kernel
from kernels.characters import (
    DIGIT,
    ICON,
    IN_WORD,
    IS_MARK,
    LETTER,
    LOWER,
    NOT_SYMBOL,
    SPACELESS_SCRIPT,
    UPPER,
    VISIBLE,
    Characters,
    character_at,
    character_before,
    characters,
)
from kernels.full_stops import is_full_stop

MOST_SEGMENTS = 1 << 22
"""Segments of a document that are kept to be compared; so memory does not depend on the longest document."""

CHUNK = 8192  # bytes between two looks at whether there are enough segments
_ASCII_END = 0x80
_HASH_SIGN, _DOT, _HYPHEN, _COMMA, _APOSTROPHE, _TILDE = b"#.-,'~"
_PLUS, _ASTERISK, _CARET, _COLON, _LESS, _EQUALS, _GREATER, _SLASH = b"+*^:<=>/"
_at = np.uint64  # an unsigned index is not looked at for being negative


class Segments(NamedTuple):
    """Buffers: where the segments of one document lie."""

    joined: NDArray[np.uint8]  # all of them, with nothing between them
    starts: NDArray[np.int64]  # of each in `joined`, and the end of the last
    characters: NDArray[np.int64]  # how many characters lie before each, and in all


class Counts(NamedTuple):
    """What was counted on the way, and how far the way is."""

    n_stored: int  # segments in the buffers
    n: int  # all segments
    with_letter: int
    not_symbols: int  # segments with a character that is no symbol
    not_symbol_characters: int  # in them
    hash_signs: int
    spaceless: int  # segments in scripts without spaces
    length: int  # bytes in `joined`
    characters: int  # characters in `joined`
    run: int  # OUTSIDE, WORD_RUN or SINGLE: what a mark or word character would belong to
    bits: int  # of the characters of the last segment, together
    size: int  # characters of the last segment


OUTSIDE, WORD_RUN, SINGLE = range(3)
APART, WITHIN, CLOSING, OPENING = range(4)


def segments(text: str) -> list[str]:
    """Split a text into its segments.

    Examples
    --------
    >>> segments("It's 東京, Dr. X: 3.5...")
    ['It', "'s", '東', '京', ',', 'Dr.', 'X', ':', '3.5', '...']
    """
    data = np.frombuffer(text.encode(), dtype=np.uint8)
    buffers = new_segments(len(data))
    counts = find_segments(data, 0, len(data), characters(), buffers)
    bounds = buffers.starts[: counts.n_stored + 1].tolist()
    joined = buffers.joined.tobytes()
    return [joined[a:b].decode() for a, b in itertools.pairwise(bounds)]


def new_segments(longest: int) -> Segments:
    """Buffers for documents of up to so many bytes; what is not written to takes no memory."""
    n_segments = min(longest, MOST_SEGMENTS + 2 * CHUNK) + 8  # the chunk that reaches the limit, and the next
    return Segments(
        np.empty(longest + 16, np.uint8), np.empty(n_segments, np.int64), np.empty(n_segments, np.int64)
    )


@kernel
def find_segments(data, start, stop, table: Characters, buffers: Segments):
    """Write the segments of ``data[start:stop]`` into the buffers and count.

    Of a document with more than MOST_SEGMENTS, about so many are kept; all are counted.
    """
    counts = take_segments(data, start, start, stop, stop, table, buffers, no_segments())
    return finished(counts, buffers)


@inlined
def no_segments():
    """The counts before the first character."""
    return Counts(0, 0, 0, 0, 0, 0, 0, 0, 0, OUTSIDE, 0, 0)


@inlined
def take_segments(data, start, position, limit, stop, table, buffers, counts):
    """Go on from a position to a limit, both between characters of the document ``data[start:stop]``."""
    while position < limit:
        before, end = counts, min(position + CHUNK, limit)
        while position < end:
            # A symbol is looked at with the character behind it, so the last one is not part of a run.
            last = min(end, stop - 1)
            position, counts = _take_ascii_run(data, start, position, last, table, buffers, counts)
            if position < end:
                position, counts = _take_character(data, start, position, stop, table, buffers, counts)
        if before.n_stored > MOST_SEGMENTS:
            counts = _rewound(counts, before)
    return counts


@inlined
def finished(counts, buffers):
    """Count the last segment, and write where it ends."""
    counts = _counted(counts)
    buffers.starts[counts.n_stored] = counts.length
    buffers.characters[counts.n_stored] = counts.characters
    return counts


@inlined
def _take_ascii_run(data, start, position, limit, table, buffers, counts):
    """Take bytes below 0x80 up to a symbol that may belong to a word, without a branch at other boundaries."""
    joined, starts, before = buffers
    n_stored, n, with_letter, not_symbols, not_symbol_characters, hash_signs, spaceless = counts[:7]
    length, n_characters, run, bits, size = counts[7:]
    in_word, first = np.int64(run == WORD_RUN), n_stored
    last = data[position - 1] if position > start else np.uint8(0)
    while position < limit and data[_at(position)] < _ASCII_END:
        byte = data[_at(position)]
        kind = np.int64(table.ascii[_at(byte)])
        word, visible = kind & IN_WORD, (kind // VISIBLE) & 1
        if in_word & visible & ~word and _may_join(data, position, byte, table):
            break
        repeats = (byte == last) & ((byte == _DOT) | (byte == _HYPHEN))
        begins = visible & ~(word & in_word) & ~np.int64(repeats)
        counted = begins & (bits // NOT_SYMBOL)
        with_letter += begins & (bits // LETTER)
        not_symbols += counted
        not_symbol_characters += counted * size
        starts[_at(n_stored)] = length
        before[_at(n_stored)] = n_characters
        n_stored += begins
        bits = (bits & (begins - 1)) | kind
        size = (size & (begins - 1)) + visible
        joined[_at(length)] = byte
        length += visible
        n_characters += visible
        hash_signs += byte == _HASH_SIGN
        in_word, run, last = word, visible * (SINGLE - word), byte
        position += 1
    counts = Counts(
        n_stored,
        n + n_stored - first,
        with_letter,
        not_symbols,
        not_symbol_characters,
        hash_signs,
        spaceless,
        length,
        n_characters,
        run,
        bits,
        size,
    )
    return position, counts


@inlined
def _may_join(data, position, byte, table):
    """Whether an ASCII symbol behind a word may be part of it or open the next one."""
    following = data[_at(position + 1)]
    return byte == _DOT or following >= _ASCII_END or table.ascii[_at(following)] & IN_WORD != 0


@inlined
def _take_character(data, start, position, stop, table, buffers, counts):
    """Take one character of any kind."""
    kind, n_bytes = character_at(data, position, stop, table)
    n_stored, n, with_letter, not_symbols, not_symbol_characters, hash_signs, spaceless = counts[:7]
    length, n_characters, run, bits, size = counts[7:]
    goes_on, run = _goes_on(data, start, position, stop, table, kind, n_bytes, run)
    if kind & VISIBLE == 0:
        run = OUTSIDE
    elif goes_on:
        bits, size = bits | kind, size + 1
    else:
        counted = (bits // NOT_SYMBOL) & 1
        with_letter += (bits // LETTER) & 1
        not_symbols += counted
        not_symbol_characters += counted * size
        buffers.starts[n_stored] = length
        buffers.characters[n_stored] = n_characters
        n_stored, n, spaceless = n_stored + 1, n + 1, spaceless + (kind // SPACELESS_SCRIPT & 1)
        bits, size = kind, 1
    if kind & VISIBLE:
        for i in range(n_bytes):
            buffers.joined[length + i] = data[position + i]
        length, n_characters = length + n_bytes, n_characters + 1
        hash_signs += data[position] == _HASH_SIGN
    counts = Counts(
        n_stored,
        n,
        with_letter,
        not_symbols,
        not_symbol_characters,
        hash_signs,
        spaceless,
        length,
        n_characters,
        run,
        bits,
        size,
    )
    return position + n_bytes, counts


@inlined
def _goes_on(data, start, position, stop, table, kind, n_bytes, run):
    """Whether a character belongs to the segment before it, and what would belong to this one."""
    if run == WORD_RUN and kind & (IN_WORD | SPACELESS_SCRIPT) == 0:
        joint = _joint(data, start, position, stop, table, kind, n_bytes)
        return (
            joint in (WITHIN, CLOSING),
            WORD_RUN if joint in (WITHIN, OPENING) else SINGLE,
        )
    if run == SINGLE:
        byte = data[position]
        repeats = byte in (_DOT, _HYPHEN) and data[position - 1] == byte
        if repeats or kind & IS_MARK:
            return True, SINGLE
    return run == WORD_RUN and kind & IN_WORD != 0, WORD_RUN if kind & IN_WORD else SINGLE


@inlined
def _joint(data, start, position, stop, table, kind, n_bytes):
    """What a symbol is to the word before it: APART, WITHIN it, CLOSING it, or OPENING the next."""
    byte, following = data[position], position + n_bytes
    if following < stop:
        after, _ = character_at(data, following, stop, table)
        if after & IN_WORD and after & IS_MARK == 0:
            if after & LETTER and (byte == _APOSTROPHE or _is_general(data, position, n_bytes, 0x99, 0x99)):
                return OPENING
            before, _ = character_before(data, start, position, table)
            if not _splits(data, position, n_bytes, kind, before, after):
                return WITHIN
    in_ellipsis = following < stop and data[following] == _DOT
    if byte == _DOT and not in_ellipsis and not is_full_stop(data, start, position, stop, table):
        return CLOSING
    return APART


@inlined
def _splits(data, position, n_bytes, kind, before, after):
    """Whether a symbol between two word characters stands for itself."""
    byte, letters, digits = data[position], before & after & LETTER, before & after & DIGIT
    if n_bytes > 1:
        dash = _is_general(data, position, n_bytes, 0x93, 0x94)
        return kind & ICON or _is_general(data, position, n_bytes, 0xA6, 0xA6) or (dash and letters)
    if byte == _DOT:
        return before & LOWER and after & UPPER
    if byte in (_COMMA, _TILDE):
        return letters
    if byte == _HYPHEN:
        return letters or digits
    if byte in (_PLUS, _ASTERISK, _CARET):
        return digits
    if byte in (_COLON, _LESS, _EQUALS, _GREATER, _SLASH):
        return after & LETTER
    return kind & ICON


@inlined
def _is_general(data, position, n_bytes, first, last):
    """Whether a character is of U+2000 to U+203F with its last byte in a range: dashes, quotation marks, ellipsis."""
    if n_bytes != 3 or data[position] != 0xE2 or data[position + 1] != 0x80:
        return False
    return first <= data[position + 2] <= last


@inlined
def _rewound(counts, full):
    """Go on counting, but write over what comes after the segments that are kept."""
    return Counts(
        full.n_stored,
        counts.n,
        counts.with_letter,
        counts.not_symbols,
        counts.not_symbol_characters,
        counts.hash_signs,
        counts.spaceless,
        full.length,
        full.characters,
        counts.run,
        counts.bits,
        counts.size,
    )


@inlined
def _counted(counts):
    """Count the last segment."""
    counted = (counts.bits // NOT_SYMBOL) & 1
    return Counts(
        counts.n_stored,
        counts.n,
        counts.with_letter + (counts.bits // LETTER & 1),
        counts.not_symbols + counted,
        counts.not_symbol_characters + counted * counts.size,
        counts.hash_signs,
        counts.spaceless,
        counts.length,
        counts.characters,
        counts.run,
        counts.bits,
        counts.size,
    )
