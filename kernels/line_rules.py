"""Lines of a document: what they are like, which repeat, and which the rules of C4 keep.

Lines, whitespace and characters are Python's: `str.splitlines`, `str.isspace`, `len`. Two lines are equal
when their 64-bit hashes are.

Sources: C4 (Raffel et al. 2020; ``c4_utils.py`` of TensorFlow Datasets), Gopher (Rae et al. 2021), FineWeb
(Penedo et al. 2024), the last two as datatrove 0.10.1 computes them.

Dimensions: bytes n.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.accelerate import inlined, kernel
from kernels.characters import (
    DIGIT,
    LINE_BREAK,
    LOWER,
    PHRASE,
    PUNCTUATION,
    SENTENCE_END,
    TERMINAL,
    UPPER,
    VISIBLE,
    character_at,
    character_before,
    n_characters,
)
from kernels.full_stops import is_full_stop
from kernels.intrinsics import BLOCK, first_bit, load64, phrase_letters, sentence_marks
from kernels.repetition import cleared, slot_of
from kernels.xxh3 import hash_slice

MOST_LINES = 1 << 22
"""Different lines of a document that are remembered; so memory does not depend on the longest document."""

LOREM_IPSUM, JAVASCRIPT, POLICY, BRACE, BRACKET = 1, 2, 4, 8, 16  # what `phrases` finds in a line
KEPT, LONG_WORD, NO_END_MARK, FEW_WORDS, HAS_JAVASCRIPT, HAS_POLICY = range(6)  # what becomes of a line

_NEWLINE, _DOT, _SPACE, _HYPHEN, _QUOTE, _APOSTROPHE = b"\n. -\"'"
_OPEN, _CLOSE, _BRACE, _EXCLAMATION, _QUESTION = b"[]{!?"
_ASCII_END = 0x80
_at = np.uint64
_EACH_BYTE = np.uint64(0x0101010101010101)
_HIGH_BITS = np.uint64(0x8080808080808080)


def _bytes(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(text.encode(), np.uint8)


_LOREM_IPSUM, _JAVASCRIPT = _bytes("lorem ipsum"), _bytes("javascript")
_TERMS, _PRIVACY, _POLICY = _bytes("terms of use"), _bytes("privacy policy"), _bytes(" policy")
_COO, _IE, _S = _bytes("coo"), _bytes("ie"), _bytes("s")
_USES, _USE_OF, _USE = _bytes("uses "), _bytes("use of "), _bytes("use ")
_EDIT, _CITATION_NEEDED = _bytes("[edit]"), _bytes("[citation needed]")


class LineRules(NamedTuple):
    """How C4 edits a text; see `jobs.steps.quality` for the presets."""

    min_words: int
    max_word_length: int  # characters
    end_marks: int  # 0: a line may end in anything, 1: in one of . ? ! ", 2: also in '
    citations: int  # 1: remove [1], [edit] and [citation needed]
    words_before_citations: int  # 1: count a line's words before that
    javascript: int  # 1: drop lines that mention it
    policy: int  # 1: drop lines that mention terms of use, cookies, privacy


# ---------------------------------------------------------------- where lines begin and end


@inlined
def find_newline(data, position, stop):
    """The first line feed at or behind a position, or `stop`."""
    while position + 8 <= stop:
        block = load64(data, position) ^ (_EACH_BYTE * np.uint64(_NEWLINE))
        if (block - _EACH_BYTE) & ~block & _HIGH_BITS != np.uint64(0):
            break
        position += 8
    while position < stop and data[_at(position)] != _NEWLINE:
        position += 1
    return position


@inlined
def has_other_breaks(data, start, stop):
    """Whether there is a line boundary that is not a line feed; a loop that the compiler vectorises."""
    count = 0
    for i in range(start, stop):
        byte = data[_at(i)]
        count += int((byte >= 0x0B) & (byte <= 0x0D) | (byte >= 0x1C) & (byte <= 0x1E))
    for i in range(start, stop - 1):
        count += int((data[_at(i)] == 0xC2) & (data[_at(i + 1)] == 0x85))
    for i in range(start, stop - 2):
        last = data[_at(i + 2)]
        separator = (data[_at(i)] == 0xE2) & (data[_at(i + 1)] == 0x80) & ((last == 0xA8) | (last == 0xA9))
        count += int(separator)
    return count > 0


@inlined
def next_line(data, position, stop, other_breaks, table):
    """Where the line that begins here ends, and where the next one begins."""
    if not other_breaks:
        end = find_newline(data, position, stop)
        return end, min(end + 1, stop)
    end = position
    while end < stop:
        byte = data[_at(end)]
        if byte < _ASCII_END:
            if table.ascii[_at(byte)] & LINE_BREAK:
                paired = byte == 0x0D and end + 1 < stop and data[end + 1] == _NEWLINE
                return end, end + 1 + paired
        elif byte == 0xC2 or byte == 0xE2:
            bits, size = character_at(data, end, stop, table)
            if bits & LINE_BREAK:
                return end, end + size
        end += 1
    return stop, stop


@inlined
def skip_space(data, start, stop, table):
    """The first character that is not whitespace, or `stop`."""
    while start < stop:
        bits, size = character_at(data, start, stop, table)
        if bits & VISIBLE:
            break
        start += size
    return start


@inlined
def skip_space_back(data, start, stop, table):
    """Where the last character that is not whitespace ends, or `start`."""
    while start < stop:
        bits, size = character_before(data, start, stop, table)
        if bits & VISIBLE:
            break
        stop -= size
    return stop


@inlined
def ends_in_ellipsis(data, start, stop):
    """Whether the last characters are ``...`` or ``…``."""
    if stop - start < 3:
        return False
    a, b, c = data[stop - 3], data[stop - 2], data[stop - 1]
    return (a == _DOT and b == _DOT and c == _DOT) or (a == 0xE2 and b == 0x80 and c == 0xA6)


@inlined
def starts_with_bullet(data, start, stop):
    """Whether the first character is ``•`` or ``-``."""
    if start == stop:
        return False
    if data[start] == _HYPHEN:
        return True
    return stop - start >= 3 and data[start] == 0xE2 and data[start + 1] == 0x80 and data[start + 2] == 0xA2


@inlined
def count_ellipses(data, start, stop):
    """Occurrences of ``...``, none overlapping another, and of ``…``."""
    count = three_dots = 0
    for i in range(start, stop - 2):
        a, b, c = data[_at(i)], data[_at(i + 1)], data[_at(i + 2)]
        count += int((a == 0xE2) & (b == 0x80) & (c == 0xA6))
        three_dots += int((a == _DOT) & (b == _DOT) & (c == _DOT))
    if three_dots == 0:
        return count
    run = 0
    for i in range(start, stop):
        run = run + 1 if data[_at(i)] == _DOT else 0
        if run == 3:
            count, run = count + 1, 0
    return count


# ---------------------------------------------------------------- lines that repeat


class RepeatedLines(NamedTuple):
    """Lines between line feeds."""

    line_feeds: int
    n: int  # runs between runs of line feeds, an empty one at the beginning and end included
    duplicates: int  # of these
    duplicate_characters: int
    not_blank: int  # lines with something other than whitespace
    not_blank_duplicate_characters: int
    terminal: int  # of the lines that are not blank, those that end in a terminal mark
    short: int  # and those of at most so many characters


@kernel
def repeated_lines(data, start, stop, short, table, seen):
    """Count the lines between line feeds, and those that occurred before.

    `short` is the length of a short line in characters; `seen` is a hash table.
    """
    line_feeds = 0
    for i in range(start, stop):
        line_feeds += int(data[_at(i)] == _NEWLINE)
    shift = cleared(seen, line_feeds + 1)
    n = empty = duplicates = duplicate_characters = remembered = 0
    not_blank = not_blank_duplicate_characters = terminal = n_short = 0
    position, at_end = start, False
    while not at_end:
        end = find_newline(data, position, stop)
        at_end = end == stop
        if end == position:
            empty += position == start or at_end  # between line feeds, it is no run
        else:
            n += 1
            blank = skip_space(data, position, end, table) == end
            key = hash_slice(data, position, end) | np.uint64(1)
            slot = slot_of(seen, shift, key)
            if seen.keys[slot] == key:
                characters = n_characters(data, position, end)
                duplicates += 1
                duplicate_characters += characters
                not_blank_duplicate_characters += 0 if blank else characters
            elif remembered < MOST_LINES:
                seen.keys[slot] = key
                remembered += 1
            if not blank:
                not_blank += 1
                terminal += (character_before(data, position, end, table)[0] & TERMINAL) != 0
                if end - position <= 4 * short:
                    n_short += n_characters(data, position, end) <= short
        position = end + 1
    return RepeatedLines(
        line_feeds,
        n + empty,
        duplicates + (empty > 1),
        duplicate_characters,
        not_blank,
        not_blank_duplicate_characters,
        terminal,
        n_short,
    )


@kernel
def repeated_paragraphs(data, start, stop, table, seen):
    """Count the runs between two or more line feeds, whitespace around the text left out.

    Returns how many there are, how many occurred before, and the characters in these.
    """
    start = skip_space(data, start, stop, table)
    stop = skip_space_back(data, start, stop, table)
    most = _paragraph_ends(data, start, stop) + 1
    if most == 1:
        return 1, 0, 0
    shift = cleared(seen, most)
    n = duplicates = duplicate_characters = remembered = 0
    position = start
    while position < stop:
        end = _end_of_paragraph(data, position, stop)
        key = hash_slice(data, position, end) | np.uint64(1)
        slot = slot_of(seen, shift, key)
        n += 1
        if seen.keys[slot] == key:
            duplicates += 1
            duplicate_characters += n_characters(data, position, end)
        elif remembered < MOST_LINES:
            seen.keys[slot] = key
            remembered += 1
        position = end
        while position < stop and data[_at(position)] == _NEWLINE:
            position += 1
    return n, duplicates, duplicate_characters


@inlined
def _paragraph_ends(data, start, stop):
    """Pairs of line feeds."""
    count = 0
    for i in range(start, stop - 1):
        count += int((data[_at(i)] == _NEWLINE) & (data[_at(i + 1)] == _NEWLINE))
    return count


@inlined
def _end_of_paragraph(data, position, stop):
    end = find_newline(data, position, stop)
    while end + 1 < stop and data[end + 1] != _NEWLINE:
        end = find_newline(data, end + 1, stop)
    return end


# ---------------------------------------------------------------- phrases


@inlined
def phrases(data, start, stop, table):
    """What a line holds of the phrases that C4 looks for, whatever their case: a sum of the constants above.

    Each is found by its rarest letter. U+212A, the Kelvin sign, is a k in lower case, as in Python.
    """
    found, position = 0, start
    while position < stop:
        size = min(stop - position, BLOCK)
        if position + BLOCK <= len(data):
            letters = phrase_letters(data, position) & _first_bits(size)
        else:
            letters = _marked(data, position, size, PHRASE, table)
        while letters:
            found |= _phrase_at(data, start, position + np.int64(first_bit(letters)), stop)
            letters &= letters - np.uint64(1)
        position += size
    return found


@inlined
def _first_bits(count):
    """A uint64 with the lowest 1 to 64 bits set."""
    return ~np.uint64(0) >> np.uint64(BLOCK - count)


@inlined
def _marked(data, position, size, bit, table):
    """Which of the next bytes, up to a block of them, have a bit in the table, or are no ASCII."""
    marks = np.uint64(0)
    for i in range(size):
        byte = data[_at(position + i)]
        marked = byte >= _ASCII_END or table.ascii[_at(byte)] & bit
        marks |= np.uint64(marked != 0) << np.uint64(i)
    return marks


@inlined
def _phrase_at(data, start, position, stop):
    letter = data[_at(position)] | 0x20
    if letter >= _ASCII_END:
        kelvin = position + 2 < stop and data[position + 1] == 0x84 and data[position + 2] == 0xAA
        return _cookie(data, start, position, position + 3, stop) if kelvin and letter == 0xE2 else 0
    if letter == 0x6A:  # j
        return JAVASCRIPT * _matches(data, start, position, stop, _JAVASCRIPT)
    if letter == 0x76:  # v
        return POLICY * _matches(data, start, position - 3, stop, _PRIVACY)
    if letter == 0x6B:  # k
        return _cookie(data, start, position, position + 1, stop)
    if letter == 0x6D:  # m
        lorem = _matches(data, start, position - 4, stop, _LOREM_IPSUM)
        return LOREM_IPSUM * lorem | POLICY * _matches(data, start, position - 3, stop, _TERMS)
    return BRACE if data[position] == _BRACE else BRACKET


@inlined
def _cookie(data, start, k, after, stop):
    """Whether a `k`, which lies before `after`, belongs to one of the phrases about cookies."""
    first = k - 3
    if not (_matches(data, start, first, stop, _COO) and _matches(data, start, after, stop, _IE)):
        return 0
    if _matches(data, start, after + 2, stop, _POLICY):
        return POLICY
    plural = _matches(data, start, after + 2, stop, _S)
    used = _matches(data, start, first - 5, stop, _USES) or _matches(data, start, first - 4, stop, _USE)
    return POLICY * (plural and (used or _matches(data, start, first - 7, stop, _USE_OF)))


@inlined
def _matches(data, start, position, stop, phrase):
    """Whether a phrase of lower-case letters lies at a position, in any case."""
    if position < start or position + len(phrase) > stop:
        return False
    for i in range(len(phrase)):
        byte = data[position + i]
        if 0x41 <= byte <= 0x5A:
            byte |= 0x20
        if byte != phrase[i]:
            return False
    return True


# ---------------------------------------------------------------- sentences


@inlined
def count_sentences(data, start, stop, table):
    """Sentences in a line, at least one.

    A sentence ends at a mark of `SENTENCE_ENDS` that whitespace or the end of the line follows, other
    punctuation between them left out, and the next one begins with the first character that is neither.
    A full stop may end none, see `is_full_stop`; between a small letter and a capital it does without whitespace.
    This is the rule of spaCy's sentencizer, with its English tokenizer.
    """
    count, position = 1, _next_mark(data, start, stop, table)
    while position < stop:
        ended, end = _sentence_end(data, start, position, stop, table)
        position = end
        if ended:
            position = _skip_punctuation(data, end, stop, table)
            count += position < stop
        position = _next_mark(data, position, stop, table)
    return count


@inlined
def _next_mark(data, position, stop, table):
    """The next character that may end a sentence, or `stop`."""
    while position < stop:
        size = min(stop - position, BLOCK)
        if position + BLOCK <= len(data):
            marks = sentence_marks(data, position) & _first_bits(size)
        else:
            marks = _marked(data, position, size, SENTENCE_END, table)
        if marks == np.uint64(0):
            position += size
            continue
        position += np.int64(first_bit(marks))
        bits, size = character_at(data, position, stop, table)
        if bits & SENTENCE_END:
            break
        position += size
    return position


@inlined
def _sentence_end(data, start, position, stop, table):
    """Whether a sentence ends with the punctuation at a position, and where that punctuation ends."""
    ended, end = False, position
    while end < stop:
        bits, size = character_at(data, end, stop, table)
        if bits & PUNCTUATION == 0 and bits & SENTENCE_END == 0:
            break
        if bits & SENTENCE_END:
            stops = data[end] == _DOT
            ended |= not stops or is_full_stop(data, start, end, stop, table)
        end += size
    if end == stop:
        return ended, end
    bits, _ = character_at(data, end, stop, table)
    if bits & VISIBLE == 0:
        return ended, end
    before = character_before(data, start, position, table)[0] if position > start else np.int64(0)
    within = end == position + 1 and data[position] == _DOT and before & LOWER and bits & UPPER
    return within != 0, end


@inlined
def _skip_punctuation(data, position, stop, table):
    while position < stop:
        bits, size = character_at(data, position, stop, table)
        if bits & VISIBLE and bits & PUNCTUATION == 0 and bits & SENTENCE_END == 0:
            break
        position += size
    return position


# ---------------------------------------------------------------- C4's verdict on a line


@inlined
def without_citations(data, start, stop, table, out):
    """Copy a line without [1], [], [edit] and [citation needed]; its length."""
    length, position = 0, start
    while position < stop:
        if data[_at(position)] == _OPEN:
            end = _end_of_citation(data, position, stop, table)
            if end > position:
                position = end
                continue
        out[_at(length)] = data[_at(position)]
        length, position = length + 1, position + 1
    return length


@inlined
def _end_of_citation(data, position, stop, table):
    """Behind the citation that begins with this bracket; the bracket itself, where none does."""
    for citation in (_EDIT, _CITATION_NEEDED):
        if _is_exactly(data, position, stop, citation):
            return position + len(citation)
    end = position + 1
    while end < stop and data[end] != _CLOSE:
        bits, size = character_at(data, end, stop, table)
        if bits & DIGIT == 0:
            return position
        end += size
    return end + 1 if end < stop else position


@inlined
def _is_exactly(data, position, stop, expected):
    if position + len(expected) > stop:
        return False
    same = True
    for i in range(len(expected)):
        same &= data[position + i] == expected[i]
    return same


@inlined
def has_words(data, start, stop, table, enough):
    """Whether a line has at least `enough` words between whitespace."""
    count, position = 0, skip_space(data, start, stop, table)
    while position < stop and count < enough:
        count += 1
        position = skip_space(data, _end_of_word(data, position, stop, table), stop, table)
    return count >= enough


@inlined
def has_longer_word(data, start, stop, table, longest):
    """Whether a word between whitespace has more than so many characters."""
    position = start
    while stop - position > longest:  # a character is a byte at least
        position = skip_space(data, position, stop, table)
        end = _end_of_word(data, position, stop, table)
        if end - position > longest and n_characters(data, position, end) > longest:
            return True
        position = end
    return False


@inlined
def _end_of_word(data, position, stop, table):
    while position < stop:
        bits, size = character_at(data, position, stop, table)
        if bits & VISIBLE == 0:
            break
        position += size
    return position


@inlined
def has_end_mark(data, start, stop, end_marks):
    """Whether a line ends in one of C4's marks, but not in three full stops."""
    if start == stop:
        return False
    last = data[stop - 1]
    marked = last in (_DOT, _EXCLAMATION, _QUESTION, _QUOTE)
    marked |= end_marks == 2 and last == _APOSTROPHE
    dots = stop - start >= 3 and data[stop - 3] == _DOT and data[stop - 2] == _DOT and last == _DOT
    return marked and not dots


@inlined
def verdict(line, start, stop, enough_words, found, rules):
    """What becomes of a line without its citations, given the phrases in it."""
    if rules.end_marks > 0 and not has_end_mark(line, start, stop, rules.end_marks):
        return NO_END_MARK
    if not enough_words:
        return FEW_WORDS
    if rules.javascript and found & JAVASCRIPT:
        return HAS_JAVASCRIPT
    if rules.policy and found & POLICY:
        return HAS_POLICY
    return KEPT
