import itertools
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.characters import SENTENCE_ENDS, SYMBOLS, characters, code_points
from kernels.full_stops import ABBREVIATIONS
from kernels.line_rules import LineRules
from kernels.quality import GROUPS, STATISTICS, measure
from kernels.segmentation import CHUNK, MOST_SEGMENTS, Segments, find_segments, new_segments, segments
from tests import naive
from tests.kernels.strategies import as_batch, checked, texts

STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
ENDS = "".join(map(chr, sorted(code_points(SENTENCE_ENDS))))
NO_WORDS = set(map(chr, code_points(SENTENCE_ENDS) | code_points(SYMBOLS)))
ALL = sum(GROUPS.values())
C4 = LineRules(5, 1000, 1, 1, 0, 1, 1)
COLUMNS = [(group, name) for group, names in STATISTICS.items() for name in names]

PIECES = [
    *[
        "a",
        "b",
        "ab",
        "the",
        "The",
        "to",
        "of",
        "#",
        "-",
        "•",
        "…",
        ".",
        "...",
        "'",
        '"',
        "!",
        "?",
        "{",
        "_",
        "1",
    ],
    *[
        " ",
        "  ",
        "\n",
        "\n\n",
        "\n\n\n",
        "\r\n",
        "\r",
        "\v",
        "\x1c",
        "\x85",
        "\u2028",
        "\u00a0",
        "\t",
        "\u200b",
    ],
    *["[1]", "[", "]", "[edit]", "[citation needed]", "[١]", "[]", "[1", "java", "script", "JavaScript"],
    *["lorem ipsum", "Lorem", " ipsum", "terms of use", "Terms Of Use", "privacy policy", "cookie policy"],
    *["uses cookies", "use of cookies", "use cookies", "coo\u212aies", "use coo\u212aies", "\u212a"],
    *[
        "Mr.",
        "e.g.",
        "U.S.",
        "J.",
        "i.e",
        "a.m.",
        "end.Start",
        "Hi. There",
        "x. ",
        "Yes! No?",
        "東京",
        "。",
        "か\u3099",
    ],
    *[
        "it's",
        "3.5",
        "x@y",
        "COVID-19",
        "1-2",
        "a-b",
        "--",
        "a/b",
        "1/2",
        "|",
        "a,b",
        "1,000",
        "’",
        "–",
        "~",
        "+",
        "=",
    ],
    *[
        "é",
        "e\u0301",
        "\u0301",
        "❤\ufe0f",
        "😀",
        "ไทย",
        "१",
        "！",
        "one two three four five",
        "one two three four five",
    ],
]
documents = st.lists(st.sampled_from(PIECES) | st.characters(exclude_categories=["Cs"]), max_size=60).map(
    "".join
)
repetitive = st.lists(
    st.sampled_from(["a ", "ab ", "b ", "aab ", "ba,", "\n", "abababab ", "x"]), max_size=120
).map("".join)
rules = st.builds(
    LineRules,
    st.integers(0, 6),
    st.sampled_from([3, 8, 1000]),
    st.integers(0, 2),
    *[st.integers(0, 1)] * 4,
)


def measured(documents, line_rules=C4, line_ends=None, groups=ALL, behind=0):
    data, offsets = as_batch([document.encode() for document in documents], b"#.x\xe2")
    statistics, edited, ends = measure(
        data, offsets, groups, STOP_WORDS, line_rules, line_ends, behind=behind
    )
    rows = [dict(zip(COLUMNS, row.tolist(), strict=True)) for row in statistics]
    return rows, [bytes(edited[a:b]).decode() for a, b in itertools.pairwise(ends)]


def expected(text, line_rules=C4, line_ends=ENDS):
    c4, edited = naive.c4(text, line_rules, set(ENDS), ABBREVIATIONS)
    groups = {
        "gopher_quality": naive.gopher_quality(text, NO_WORDS, STOP_WORDS),
        "gopher_repetition": naive.gopher_repetition(text),
        "c4": c4,
        "fineweb": naive.fineweb(text, line_ends, 30),
        "additions": naive.additions(text),
    }
    row = {(group, name): value for group, values in groups.items() for name, value in values.items()}
    return row, edited


@checked
@given(st.lists(documents, max_size=3), rules)
def test_statistics_are_the_naive_ones(documents, line_rules):
    rows, edited = measured(documents, line_rules)
    for document, row, text in zip(documents, rows, edited, strict=True):
        assert (row, text) == expected(document, line_rules)


@checked
@given(st.lists(repetitive | texts, max_size=3))
def test_repetition_is_the_naive_one(documents):
    rows, _ = measured(documents, groups=GROUPS["gopher_repetition"])
    for document, row in zip(documents, rows, strict=True):
        got = {name: value for (group, name), value in row.items() if group == "gopher_repetition"}
        assert got == naive.gopher_repetition(document)


@checked
@given(texts)
def test_segments_are_the_naive_ones(text):
    assert segments(text) == naive.segments(text)


def test_words_of_english():
    """As spaCy's tokenizer has them, but for `n't`, brackets in a word, and web addresses."""
    text = "It's Dr. X of the U.S. Navy: 3.5 or 1,000 a.m... and/or well-known COVID-19 x@y.com end.Start a|b -- 1-2"
    expected = "It|'s|Dr.|X|of|the|U.S.|Navy|:|3.5|or|1,000|a.m|...|and|/|or|well|-|known|COVID-19|x@y.com|end|.|Start"
    assert segments(text) == [*expected.split("|"), "a|b", "--", "1", "-", "2"]


@checked
@given(st.lists(st.binary(max_size=60), max_size=3))
def test_bytes_that_are_not_utf8_do_no_harm(documents):
    data, offsets = as_batch(documents)
    statistics, _, _ = measure(data, offsets, ALL, STOP_WORDS, C4)
    assert np.isfinite(statistics).all()


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_alone_gives_the_same_and_nothing_else(group):
    text = "The cat sat. On the mat, with ... a [1] hat!\n\nThe cat sat.\nThe cat sat.\n- lorem ipsum {"
    (alone,), _ = measured([text], groups=GROUPS[group])
    (together,), _ = measured([text])
    assert alone == {column: value if column[0] == group else 0 for column, value in together.items()}


@checked
@given(
    st.lists(documents, max_size=3),
    rules,
    st.sets(st.sampled_from([name for name in GROUPS if name != "c4"])),
)
def test_groups_behind_c4_are_those_of_the_text_that_it_leaves(documents, line_rules, behind):
    rows, edited = measured(documents, line_rules, behind=sum(GROUPS[name] for name in behind))
    alone, _ = measured(documents, line_rules)
    left, _ = measured(edited, line_rules)
    for row, before, after in zip(rows, alone, left, strict=True):
        assert row == {key: (after if key[0] in behind else before)[key] for key in row}


def test_segments_beyond_the_most_are_counted_and_stay_within_the_buffers():
    """Of so many symbols each is a segment; what lies behind the buffers stays as it was."""
    n, guard = MOST_SEGMENTS + 5 * CHUNK, 100
    data = np.full(n, ord("#"), np.uint8)
    own = new_segments(n)
    larger = Segments(*(np.full(len(array) + guard, 7, array.dtype) for array in own))
    buffers = Segments(*(array[:-guard] for array in larger))
    counts = find_segments(data, 0, n, characters(), buffers)
    assert (counts.n, counts.hash_signs) == (n, n)
    assert MOST_SEGMENTS < counts.n_stored <= MOST_SEGMENTS + CHUNK
    assert all((array[-guard:] == 7).all() for array in larger)


def test_every_character():
    """Each as a line of its own, between words, and at the end of a line."""
    everything = [chr(i) for i in range(sys.maxunicode + 1) if not 0xD800 <= i < 0xE000 and i % 97 == 0]
    everything += map(chr, range(0x3100))
    table = characters()
    assert table.ascii.shape == (128,)
    got, _ = measured([f"{c}a{c}" for c in everything], groups=GROUPS["gopher_quality"] | GROUPS["fineweb"])
    for character, row in zip(everything, got, strict=True):
        text = f"{character}a{character}"
        values = naive.gopher_quality(text, NO_WORDS, STOP_WORDS)
        assert {n: v for (g, n), v in row.items() if g == "gopher_quality"} == values, hex(ord(character))
        values = naive.fineweb(text, ENDS, 30)
        assert {n: v for (g, n), v in row.items() if g == "fineweb"} == values, hex(ord(character))


EDGES = {
    "empty": "",
    "whitespace": " \t \u3000 ",
    "one word": "word",
    "no letters": "12 34 56 !!",
    "line breaks": "\n\r\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029",
    "combining marks": "\u0301\u0302\u0303 \u0301",
    "right to left": "שלום עולם. مرحبا بالعالم؟ שלום",
    "CJK": "東京は日本の首都です。人口は多い。\n東京は日本の首都です。",
    "emoji": "😀😀 👩\u200d👩\u200d👧 ❤\ufe0f",
    "symbols": "#$%&" * 100,
    "NUL": "a\0b \0\0",
}


@pytest.mark.parametrize("text", EDGES.values(), ids=EDGES.keys())
def test_edges(text):
    (row,), (edited,) = measured([text])
    assert (row, edited) == expected(text)
    assert np.isfinite(list(row.values())).all()


def test_line_ends_can_be_chosen():
    (row,), _ = measured(["one;\ntwo.\n"], line_ends=";")
    assert row["fineweb", "terminal_lines"] == 0.5


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("One. Two! Three? Four", 4),
        ("Mr. Smith of the U.S. Navy met J. Doe at 5 a.m. and left.", 1),
        ("Wait... what?", 1),
        ("He said “no.” Then he left.", 2),
        ("the end.The beginning", 2),
        ("version 1.2 of example.com is here.", 1),
        ("東京。 大阪。", 2),
        ("", 1),
        ("!!!", 1),
    ],
)
def test_sentences(line, count):
    assert naive.sentences(line, set(ENDS), set(ABBREVIATIONS)) == count
    (row,), _ = measured([line], LineRules(0, 1000, 0, 0, 0, 0, 0))
    assert row["c4", "sentences"] == (count if line else 0)


def test_offsets_are_checked():
    with pytest.raises(ValueError, match="offsets"):
        measure(np.zeros(3, np.uint8), np.array([0, 4]), ALL, STOP_WORDS, C4)
