"""Every statistic that the quality rules need, from the UTF-8 of many documents.

Statistics are float64, a column each, and never NaN: a share of nothing is 0. Shares are of lines, of
segments (see `kernels.segmentation`: words and symbols), or of the document's characters, as the name says.

Dimensions: documents d, bytes n, statistics k.
"""

import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.accelerate import inlined, kernel
from kernels.arrays import check_offsets, read_only
from kernels.characters import Characters, characters, n_characters
from kernels.line_rules import (
    BRACE,
    BRACKET,
    HAS_JAVASCRIPT,
    JAVASCRIPT,
    KEPT,
    LONG_WORD,
    LOREM_IPSUM,
    MOST_LINES,
    POLICY,
    LineRules,
    count_ellipses,
    count_sentences,
    ends_in_ellipsis,
    has_longer_word,
    has_other_breaks,
    has_words,
    next_line,
    phrases,
    repeated_lines,
    repeated_paragraphs,
    skip_space,
    skip_space_back,
    starts_with_bullet,
    verdict,
    without_citations,
)
from kernels.repetition import (
    DUPLICATE_GRAMS,
    TOP_GRAMS,
    Grams,
    Table,
    duplicate_grams,
    hash_segments,
    n_found,
    name_segments,
    new_grams,
    new_table,
    top_grams,
)
from kernels.segmentation import (
    Segments,
    find_segments,
    finished,
    new_segments,
    no_segments,
    take_segments,
)

GOPHER_QUALITY, GOPHER_REPETITION, C4, FINEWEB, ADDITIONS = (
    1,
    2,
    4,
    8,
    16,
)  # groups of statistics, to be added
_WITH_SEGMENTS = GOPHER_QUALITY | GOPHER_REPETITION
_OF_SEGMENTS = _WITH_SEGMENTS | FINEWEB  # which needs no more than their number
GROUPS = {
    "gopher_quality": GOPHER_QUALITY,
    "gopher_repetition": GOPHER_REPETITION,
    "c4": C4,
    "fineweb": FINEWEB,
    "additions": ADDITIONS,
}

STATISTICS: dict[str, tuple[str, ...]] = {
    "gopher_quality": (
        "words",  # segments with a character that is no symbol
        "segments",
        "mean_word_length",  # characters, of the words
        "hashes_per_word",  # number signs to segments
        "ellipses_per_word",  # to segments
        "bullet_lines",  # share of lines
        "ellipsis_lines",
        "words_with_letter",  # share of segments
        "stop_words",  # different ones
        "spaceless_words",  # share of segments, those of scripts without spaces
    ),
    "gopher_repetition": (
        "characters",
        "duplicate_paragraphs",  # share of paragraphs
        "duplicate_paragraph_characters",  # share of characters, as all that follow
        "duplicate_lines",  # share of lines
        "duplicate_line_characters",
        *(f"top_{n}_gram_characters" for n in TOP_GRAMS),
        *(f"duplicate_{n}_gram_characters" for n in DUPLICATE_GRAMS),
    ),
    "c4": (
        "lines",
        "kept_lines",
        "long_word_lines",  # dropped, and why
        "no_end_mark_lines",
        "few_words_lines",
        "javascript_lines",
        "policy_lines",
        "lorem_ipsum_line",  # the first with it, from 1; 0 for none
        "curly_bracket_line",
        "sentences",  # in the lines that are kept
    ),
    "fineweb": (
        "lines",  # that are not blank
        "terminal_lines",  # share of lines
        "short_lines",
        "duplicate_line_characters",  # share of characters without line feeds
        "line_feeds_per_word",  # to segments
    ),
    "additions": (
        "mean_line_length",  # characters, of lines that are not blank
        "boilerplate_lines",  # share of lines that are not blank
        "placeholder_lines",  # number
    ),
}
"""Names of the statistics of each group, in their order; those that count are whole numbers."""

WHOLE = frozenset(
    [
        *("words", "segments", "stop_words", "characters", "sentences", "lines", "kept_lines"),
        *("long_word_lines", "no_end_mark_lines", "few_words_lines", "javascript_lines", "policy_lines"),
        *("lorem_ipsum_line", "curly_bracket_line", "placeholder_lines"),
    ]
)
"""The statistics that are whole numbers."""


UNKNOWN = -1  # a number of segments
_FIRST_COLUMNS = tuple(itertools.accumulate(map(len, STATISTICS.values()), initial=0))[:-1]  # of each group


class Options(NamedTuple):
    """What the statistics depend on, beside the text."""

    short_line: int  # characters
    stop_words: NDArray[np.uint64]  # hashes
    lines: LineRules


class Buffers(NamedTuple):
    """Scratch space for a batch of documents."""

    segments: Segments
    grams: Grams
    seen: Table
    line: NDArray[np.uint8]  # without its citations
    of_line: Segments


class Lines(NamedTuple):
    """What was counted of a document's lines."""

    n: int
    bullets: int  # that begin with one
    ellipses: int  # that end in one
    not_blank: int
    characters: int  # in those that are not blank
    boilerplate: int
    placeholder: int


def measure(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    groups: int,
    stop_words: Sequence[str],
    line_rules: LineRules,
    line_ends: str | None = None,
    short_line: int = 30,
    behind: int = 0,
) -> tuple[NDArray[np.float64], NDArray[np.uint8], NDArray[np.int64]]:
    """Compute the statistics of documents, and the text that C4's rules leave of them.

    Parameters
    ----------
    data : uint8[n]
        The documents' UTF-8.
    offsets : int64[d + 1]
        Document i is ``data[offsets[i] : offsets[i + 1]]``.
    groups : int
        Sum of the GROUPS that are wanted; the columns of the others stay 0.
    stop_words : sequence of str
        As they are written in the text, each one segment.
    line_rules : LineRules
        How C4 edits lines.
    line_ends : str, optional
        Characters in which a line may end for FineWeb's rule; SENTENCE_ENDS where it is absent.
    short_line : int
        Characters of the longest line that is short for FineWeb's rule.
    behind : int
        Sum of those of the groups, never C4 itself, that are measured on the edited text instead.

    Returns
    -------
    statistics : float64[d, k]
        Columns in the order of STATISTICS.
    edited : uint8[:]
        The texts of kept lines, joined by line feeds; empty unless C4 is among the groups.
    edited_offsets : int64[d + 1]
        Document i is ``edited[edited_offsets[i] : edited_offsets[i + 1]]``.

    Raises
    ------
    ValueError
        When the offsets do not lie within `data`.
    """
    data, offsets = read_only(data, np.uint8), read_only(offsets, np.int64)
    check_offsets(offsets, len(data))
    options = Options(short_line, _hashes(tuple(dict.fromkeys(stop_words))), line_rules)
    longest = int(np.diff(offsets).max(initial=0))
    counted = longest if groups & _OF_SEGMENTS else 0
    of_line = longest if groups & C4 else 0
    buffers = Buffers(
        new_segments(counted),
        new_grams(counted),
        new_table(min(longest, MOST_LINES) + 8),
        np.empty(of_line, np.uint8),
        new_segments(of_line),
    )
    statistics = np.zeros((len(offsets) - 1, sum(map(len, STATISTICS.values()))))
    edited = np.empty(len(data) + 1 if groups & C4 else 0, np.uint8)
    edited_offsets = np.zeros(len(offsets), np.int64)
    left = (edited, read_only(edited, np.uint8), behind)
    _measure(
        data,
        offsets,
        groups & ~behind,
        characters(line_ends),
        options,
        buffers,
        statistics,
        left,
        edited_offsets,
    )
    return statistics, edited[: edited_offsets[-1]], edited_offsets


@functools.lru_cache(maxsize=16)
def _hashes(segments: tuple[str, ...]) -> NDArray[np.uint64]:
    """Hashes of segments, uint64[s]."""
    encoded = [segment.encode() for segment in segments]
    joined = np.frombuffer(b"".join(encoded) + bytes(16), np.uint8)
    return hash_segments(joined, np.cumsum([0, *map(len, encoded)]))


@kernel
def _measure(data, offsets, groups, table: Characters, options, buffers, statistics, left, edited_offsets):
    edited, of_edited, behind = left
    for document in range(len(offsets) - 1):
        start, stop, row = offsets[document], offsets[document + 1], statistics[document]
        begun = edited_offsets[document]
        n_left, end = _document(
            data,
            start,
            stop,
            groups,
            behind & _OF_SEGMENTS,
            UNKNOWN,
            table,
            options,
            buffers,
            row,
            edited,
            begun,
        )
        if behind:
            _document(of_edited, begun, end, behind, 0, n_left, table, options, buffers, row, edited, end)
        edited_offsets[document + 1] = end


@kernel
def _document(
    data, start, stop, groups, count_left, n_segments, table, options, buffers, row, edited, edited_end
):
    """Measure a document, and write what C4's rules leave of it.

    `n_segments` is what is known of it already, or UNKNOWN. Returns the number of segments in what is left, UNKNOWN
    unless they are wanted and were counted here, and where that ends.
    """
    second, third, fourth, fifth = _FIRST_COLUMNS[1:]
    n_text = n_characters(data, start, stop)
    segmenting = groups & _WITH_SEGMENTS or (groups & FINEWEB and n_segments == UNKNOWN)
    n_left = UNKNOWN
    if segmenting or groups & (C4 | ADDITIONS):
        counts, found, left, edited_end = _lines(
            data,
            start,
            stop,
            groups,
            segmenting,
            count_left,
            n_text,
            table,
            options,
            buffers,
            row[third:fourth],
            edited,
            edited_end,
        )
    if segmenting:
        n_segments = counts.n
        n_left = left if count_left else UNKNOWN
    if groups & GOPHER_QUALITY:
        _gopher_quality(data, start, stop, counts, found, row)
    if groups & ADDITIONS:
        _additions(found, row[fifth:])
    if groups & _WITH_SEGMENTS:
        shift = name_segments(buffers.segments, counts.n_stored, buffers.grams)
        if groups & GOPHER_QUALITY:
            row[8] = n_found(buffers.grams.table, shift, options.stop_words)
    if groups & GOPHER_REPETITION:
        _gopher_repetition(n_text, counts.n_stored, buffers, row[second:third])
    if groups & (GOPHER_REPETITION | FINEWEB):
        lines = repeated_lines(data, start, stop, options.short_line, table, buffers.seen)
        if groups & GOPHER_REPETITION:
            _share_repeated_lines(lines, n_text, row[second:third])
            _share_paragraphs(data, start, stop, table, buffers, row[second:third])
        if groups & FINEWEB:
            _fineweb(lines, n_text, n_segments, row[fourth:fifth])
    return n_left, edited_end


@inlined
def _share(part, whole):
    return part / whole if whole > 0 else 0.0


@kernel
def _gopher_quality(data, start, stop, counts, found, row):
    row[0], row[1] = counts.not_symbols, counts.n
    row[2] = _share(counts.not_symbol_characters, counts.not_symbols)
    row[3] = _share(counts.hash_signs, counts.n)
    row[4] = _share(count_ellipses(data, start, stop), counts.n)
    row[5], row[6] = _share(found.bullets, found.n), _share(found.ellipses, found.n)
    row[7] = _share(counts.with_letter, counts.n)
    row[9] = _share(counts.spaceless, counts.n)


@inlined
def _additions(found, row):
    row[0] = _share(found.characters, found.not_blank)
    row[1] = _share(found.boilerplate, found.not_blank)
    row[2] = found.placeholder


@kernel
def _gopher_repetition(n_text, n_segments, buffers, row):
    row[0] = n_text
    found = np.zeros(len(DUPLICATE_GRAMS), np.int64)
    top_grams(buffers.segments, n_segments, buffers.grams, found)
    for i in range(len(TOP_GRAMS)):
        row[5 + i] = _share(found[i], n_text)
    duplicate_grams(buffers.segments, n_segments, buffers.grams, found)
    for i in range(len(DUPLICATE_GRAMS)):
        row[5 + len(TOP_GRAMS) + i] = _share(found[i], n_text)


@kernel
def _share_paragraphs(data, start, stop, table, buffers, row):
    n, duplicates, duplicate_characters = repeated_paragraphs(data, start, stop, table, buffers.seen)
    row[1], row[2] = _share(duplicates, n), _share(duplicate_characters, row[0])


@inlined
def _share_repeated_lines(lines, n_text, row):
    row[3] = _share(lines.duplicates, lines.n)
    row[4] = _share(lines.duplicate_characters, n_text)


@inlined
def _fineweb(lines, n_text, n_segments, row):
    row[0] = lines.not_blank
    row[1] = _share(lines.terminal, lines.not_blank)
    row[2] = _share(lines.short, lines.not_blank)
    row[3] = _share(lines.not_blank_duplicate_characters, n_text - lines.line_feeds)
    row[4] = _share(lines.line_feeds, n_segments)


@kernel
def _lines(
    data, start, stop, groups, segmenting, count_left, n_text, table, options, buffers, c4, edited, edited_end
):
    """Segment and judge the lines of a document one by one, and write those that C4's rules keep.

    No segment goes on behind a line, so those of what is left are those of the lines that are kept.

    Returns what was counted of the segments and of the lines, how many segments are left where they are to be
    counted, and where the edited text ends.
    """
    begun, counts, n_left = edited_end, no_segments(), 0
    n_lines = bullets = ellipses = not_blank = outside = boilerplate = placeholder = 0
    position, other_breaks = start, has_other_breaks(data, start, stop)
    while position < stop:
        end, following = next_line(data, position, stop, other_breaks, table)
        first = skip_space(data, position, end, table)
        last = skip_space_back(data, first, end, table)
        n_lines += 1
        bullets += starts_with_bullet(data, first, end)
        ellipses += ends_in_ellipsis(data, first, last)
        not_blank += first < last
        outside += n_characters(data, end if first < last else position, following)
        n_before = counts.n
        if segmenting:
            counts = take_segments(data, start, position, following, stop, table, buffers.segments, counts)
        if groups & (C4 | ADDITIONS):
            found = phrases(data, first, last, table)
            boilerplate += found & (JAVASCRIPT | POLICY) != 0
            placeholder += found & LOREM_IPSUM != 0
        if groups & C4:
            fate, length, edited_end = _c4_line(
                data, first, last, found, table, options, buffers, c4, edited, edited_end
            )
            if count_left and fate == KEPT:
                cut = length < last - first
                n_left += _count_segments(buffers, length, table) if cut else counts.n - n_before
        position = following
    if groups & C4:
        edited_end = _stripped(edited, begun, edited_end, table)
    lines = Lines(n_lines, bullets, ellipses, not_blank, n_text - outside, boilerplate, placeholder)
    return finished(counts, buffers.segments), lines, n_left, edited_end


@kernel
def _count_segments(buffers, length, table):
    """Of a line without its citations."""
    return find_segments(buffers.line, 0, length, table, buffers.of_line).n


@inlined
def _c4_line(data, start, stop, found, table, options, buffers, row, edited, end):
    """Judge a line, and append it to the text where it is kept.

    Returns what becomes of it, its length without citations, and the new end of the text.
    """
    rules = options.lines
    row[0] += 1
    if has_longer_word(data, start, stop, table, rules.max_word_length):
        row[1 + LONG_WORD] += 1
        return LONG_WORD, stop - start, end
    enough_words = has_words(data, start, stop, table, rules.min_words)
    if rules.citations and found & BRACKET:
        line = buffers.line
        length = without_citations(data, start, stop, table, line)
        if not rules.words_before_citations:
            enough_words = has_words(line, 0, length, table, rules.min_words)
        found = phrases(line, 0, length, table)
        return _take_line(line, 0, length, enough_words, found, table, options, row, edited, end)
    return _take_line(data, start, stop, enough_words, found, table, options, row, edited, end)


@inlined
def _take_line(line, start, stop, enough_words, found, table, options, row, edited, end):
    fate = verdict(line, start, stop, enough_words, found, options.lines)
    if fate == KEPT or fate >= HAS_JAVASCRIPT:
        if found & LOREM_IPSUM and row[7] == 0:
            row[7] = row[0]
        if found & BRACE and row[8] == 0 and fate != HAS_JAVASCRIPT:
            row[8] = row[0]
    row[1 + fate] += 1
    if fate != KEPT:
        return fate, stop - start, end
    row[9] += count_sentences(line, start, stop, table)
    if row[1] > 1:
        edited[end] = 0x0A
        end += 1
    for i in range(stop - start):
        edited[end + i] = line[start + i]
    return fate, stop - start, end + stop - start


@kernel
def _stripped(edited, begun, end, table):
    """Take whitespace from both ends of an edited text; its new end."""
    end = skip_space_back(edited, begun, end, table)
    first = skip_space(edited, begun, end, table)
    if first > begun:
        for i in range(end - first):
            edited[begun + i] = edited[first + i]
    return begun + end - first
