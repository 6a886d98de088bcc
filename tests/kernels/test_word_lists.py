import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.word_lists import count_places, word_list
from tests import naive
from tests.kernels.strategies import as_batch, checked, documents, texts

FEW = st.text("ab -é東🖕_|\u0301", max_size=12)


def counted(text: str, entries: list[str], whole_words: bool) -> int:
    data, offsets = as_batch([text.encode()])
    return int(count_places(data, offsets, word_list(map(str.encode, entries)), whole_words)[0])


@checked
@given(FEW | texts, st.lists(st.text("ab -é東🖕_|\u0301", max_size=4), max_size=6), st.booleans())
def test_places_are_the_naive_ones(text, entries, whole_words):
    assert counted(text, entries, whole_words) == naive.places(text, entries, whole_words)


@checked
@given(texts, st.data())
def test_pieces_of_the_text_are_found(text, data):
    entries = [text[i : i + 3] for i in data.draw(st.lists(st.integers(0, len(text)), max_size=4))]
    assert counted(text, entries, False) == naive.places(text, entries, False)
    assert counted(text, entries, True) == naive.places(text, entries, True)


@checked
@given(st.lists(documents, max_size=4), st.lists(st.binary(max_size=3), max_size=4))
def test_any_bytes_and_any_batch(batch, entries):
    data, offsets = as_batch(batch, b"before")
    found = count_places(data, offsets, word_list(entries), True)
    alone = [count_places(*as_batch([document]), word_list(entries), True)[0] for document in batch]
    assert found.tolist() == alone


def test_where_words_end() -> None:
    assert counted("ass, class assess ass-ass ass", ["ass"], True) == 4
    assert counted("a_ass ass9 assé ass\u0301 |ass|", ["ass"], True) == 1
    assert (
        counted("two girls one; two  girls", ["two girls", "girls"], True) == 3
    )  # a phrase's spaces are its own
    assert counted("スカトロとか", ["スカトロ"], False) == 1
    assert counted("", ["a"], True) == counted("a", [""], True) == counted("a", [], True) == 0


@pytest.mark.parametrize("piece", ["a", "a ", "- "])
def test_ten_megabytes_of_partial_matches_take_bounded_time(piece: str) -> None:
    data, offsets = as_batch([piece.encode() * (10_000_000 // len(piece))])
    entries = word_list([(piece * 20).encode() + b"b"])
    count_places(data[:10], np.array([0, 10]), entries, False)
    started = time.process_time()
    assert count_places(data, offsets, entries, False)[0] == 0
    assert time.process_time() - started < 10


def test_offsets_are_checked() -> None:
    with pytest.raises(ValueError, match="offsets"):
        count_places(np.zeros(3, np.uint8), np.array([0, 4]), word_list([b"a"]), True)
