"""Parts of a text, the form in which they are compared, and texts without some of them, against slow references."""

import unicodedata
from itertools import pairwise

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from kernels import passages
from kernels.characters import SENTENCE_ENDS, code_points
from tests import naive
from tests.kernels.strategies import as_batch, checked, documents

UNITS = {"line": passages.LINE, "paragraph": passages.PARAGRAPH, "sentence": passages.SENTENCE}
ENDS = set(map(chr, code_points(SENTENCE_ENDS)))
PIECES = [
    "a",
    "B",
    "Mr",
    "é",
    "e\u0301",
    "7",
    ".",
    ".",
    "!",
    "?",
    '"',
    ")",
    "。",
    "」",
    "…",
    "|",
    "-",
    "\u200d",
]
SPACES = [" ", " ", "  ", "\n", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u2028", "\x1c"]
texts = st.lists(
    st.sampled_from(PIECES + SPACES) | st.characters(exclude_categories=["Cs"]), max_size=30
).map("".join)
batches = st.lists(texts, min_size=1, max_size=4)


@checked
@given(st.text(st.characters(exclude_categories=["Cs"])) | texts)
def test_normal_form(text: str) -> None:
    assert passages.normal_form(text) == naive.normal_form(text)


def test_normal_form_of_every_character() -> None:
    everything = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) != "Cs"]
    wanted = [form for one in everything if (form := naive.normal_form(one))]
    assert passages.normal_form(" ".join(everything)).split(" ") == wanted


def test_what_is_equal() -> None:
    forms = map(
        passages.normal_form, ["© 2019 Müller, Inc.", "  © 2024\nMU\u0308LLER – Inc ", "© 2024 Mueller Inc"]
    )
    assert len(set(forms)) == 2


@checked
@given(batches, st.sampled_from([*UNITS]), st.data())
def test_parts_and_what_is_left(batch: list[str], unit: str, draw: st.DataObject) -> None:
    data, offsets = as_batch([text.encode() for text in batch], before=b"x ")
    cut = passages.parts(data, offsets, UNITS[unit])
    expected = [naive.text_parts(text, unit, ENDS) for text in batch]
    found = [bytes(data[a:b]).decode() for a, b in zip(cut.starts, cut.ends, strict=True)]
    assert found == [part for parts in expected for part, _ in parts]
    assert np.diff(cut.offsets).tolist() == [*map(len, expected)]
    removed = draw.draw(st.lists(st.booleans(), min_size=len(found), max_size=len(found)))
    left, left_offsets = passages.without(data, offsets, cut, np.array(removed, bool))
    of_document = [removed[a:b] for a, b in pairwise(cut.offsets)]
    assert [bytes(left[a:b]).decode() for a, b in pairwise(left_offsets)] == [
        naive.without_parts(*one) for one in zip(batch, expected, of_document, strict=True)
    ]


@checked
@given(batches, st.integers(1, 3), st.integers(1, 3), st.integers(1, 6))
def test_hashes(batch: list[str], in_a_passage: int, min_words: int, min_characters: int) -> None:
    data, offsets = as_batch([text.encode() for text in batch])
    cut = passages.parts(data, offsets, passages.SENTENCE)
    hashes, counted = passages.hashes(data, cut, in_a_passage, min_words, min_characters)
    expected = []
    for first, last in pairwise(cut.offsets):
        for part in range(first, last):
            stop = cut.ends[min(part + in_a_passage, last) - 1]
            form = naive.normal_form(bytes(data[cut.starts[part] : stop]).decode())
            long_enough = len(form.split()) >= min_words and len(form) >= min_characters
            whole = part + in_a_passage <= last
            expected.append(xxhash.xxh3_64_intdigest(form.encode()) if whole and long_enough else None)
    assert [h if c else None for h, c in zip(hashes.tolist(), counted, strict=True)] == expected


@checked
@given(st.lists(documents, min_size=1, max_size=3), st.sampled_from([*UNITS]))
def test_bytes_that_are_no_text(batch: list[bytes], unit: str) -> None:
    data, offsets = as_batch(batch)
    cut = passages.parts(data, offsets, UNITS[unit])
    hashes, _ = passages.hashes(data, cut, 1)
    assert len(hashes) == len(cut.starts)
    left, _ = passages.without(data, offsets, cut, np.zeros(len(hashes), bool))
    assert bytes(left) == bytes(data)


@pytest.mark.parametrize(
    ("text", "removed", "left"),
    [
        ("a!  b! c!", [1], "a!  c!"),  # of equal white space the first
        ("a! b!\nc! d!", [1, 2], "a!\nd!"),  # most line feeds
        ("  a! b! ", [0], "b! "),
        ("  a! b! ", [1], "  a!"),
        (" a! b! ", [0, 1], ""),
    ],
)
def test_white_space_between_what_is_left(text: str, removed: list[int], left: str) -> None:
    data, offsets = as_batch([text.encode()])
    cut = passages.parts(data, offsets, passages.SENTENCE)
    found, _ = passages.without(data, offsets, cut, np.isin(np.arange(len(cut.starts)), removed))
    assert bytes(found).decode() == left


def test_refuses_arrays_that_do_not_fit() -> None:
    data, offsets = as_batch([b"a\nb", b"c"])
    cut = passages.parts(data, offsets, passages.LINE)
    with pytest.raises(ValueError, match="2 marks and 3 offsets of parts, for 3 parts of 2 documents"):
        passages.without(data, offsets, cut, np.zeros(2, bool))
    with pytest.raises(ValueError, match="a slice"):
        passages.hashes(data[:2], cut, 1)
