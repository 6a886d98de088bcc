"""N-grams in documents against sets of strings."""

import sys
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import ngrams
from tests import naive

ALPHABET = "aB1 .\n'_-İΣß\u0301\u200b\u3000\u203f東ไ\u0e34é\x1c\x85\xad𝔄"
TEXTS = st.one_of(st.text(ALPHABET, max_size=60), st.text(max_size=60).filter(str.isprintable))


def encoded(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    parts = [text.encode() for text in texts]
    return np.frombuffer(b"".join(parts), np.uint8), np.cumsum([0, *map(len, parts)])


def indexed(texts: list[str], lengths: list[int]) -> tuple[ngrams.NgramIndex, dict[str, int]]:
    """Index of all n-grams of some texts, and their numbers by their words."""
    numbers: dict[str, int] = {}
    for text in texts:
        for n in lengths:
            for gram in naive.ngrams(naive.gpt3_words(text), n):
                numbers.setdefault(gram, len(numbers))
    words = ngrams.words(*encoded(list(numbers)))
    firsts, sizes = words.offsets[:-1], np.diff(words.offsets)
    found = [int(ngrams.ngrams(words, firsts[i : i + 1], int(sizes[i]))[0]) for i in range(len(numbers))]
    shortest = int(sizes.min()) if len(sizes) else 1
    tails = ngrams.ngrams(words, words.offsets[1:] - shortest, shortest)
    return ngrams.index(np.array(found, np.uint64), tails, sizes), numbers


def test_words_of_every_code_point() -> None:
    points = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    text = "".join(f"a{point}b " for point in points if unicodedata.category(point) not in ("Co", "Cn"))
    words = ngrams.words(*encoded([text]))
    expected = naive_words(text)
    assert len(words.hashes) == len(expected)
    by_word: dict[str, int] = {}
    for word, value in zip(expected, words.hashes.tolist(), strict=True):
        assert by_word.setdefault(word, value) == value
    assert len(set(by_word.values())) == len(by_word)


def naive_words(text: str) -> list[str]:
    """Of each part between spaces, which is quicker than of the whole."""
    return [word for part in text.split(" ") for word in naive.gpt3_words(part)]


@settings(deadline=None)
@given(TEXTS)
def test_words_begin_and_end_where_they_are(text: str) -> None:
    data, offsets = encoded([text])
    words = ngrams.words(data, offsets)
    parts = [data[a:b].tobytes().decode() for a, b in zip(words.starts, words.ends, strict=True)]
    assert [" ".join(naive.gpt3_words(part)) for part in parts] == naive.gpt3_words(text)
    assert words.offsets.tolist() == [0, len(words.hashes)]


@settings(deadline=None)
@given(st.lists(TEXTS, max_size=3), st.lists(TEXTS, max_size=3), st.sets(st.integers(1, 4), min_size=1))
def test_every_place_is_found(items: list[str], texts: list[str], lengths: set[int]) -> None:
    documents = [*texts, *items, " ".join([*texts, *items])]
    known, numbers = indexed(items, sorted(lengths))
    data, offsets = encoded(documents)
    found = [
        (int(document), int(number), naive.gpt3_words(data[start:end].tobytes().decode()))
        for document, number, start, end in ngrams.find(data, offsets, known)
    ]
    expected = []
    for i, document in enumerate(documents):
        words = naive.gpt3_words(document)
        for end in range(1, len(words) + 1):
            for n in sorted(lengths):
                gram = words[end - n : end] if n <= end else []
                if gram and " ".join(gram) in numbers:
                    expected.append((i, numbers[" ".join(gram)], gram))
    assert found == expected


def test_more_hits_than_room() -> None:
    known, _ = indexed(["to be or not"], [2])
    data, offsets = encoded(["to be or not " * 2000, "nothing", "be or"])
    assert len(ngrams.find(data, offsets, known)) == 3 * 2000 + 1


def test_nothing_to_find() -> None:
    none = np.empty(0, np.uint64)
    known = ngrams.index(none, none, np.empty(0, np.int64))
    assert len(ngrams.find(*encoded(["some text"]), known)) == 0


def test_bad_arguments() -> None:
    data, offsets = encoded(["one two"])
    with pytest.raises(ValueError, match="offsets"):
        ngrams.words(data, np.array([0, 99]))
    with pytest.raises(ValueError, match="does not lie within"):
        ngrams.ngrams(ngrams.words(data, offsets), np.array([1]), 2)
    with pytest.raises(ValueError, match="make no index"):
        ngrams.index(np.ones(2, np.uint64), np.ones(1, np.uint64), np.array([1]))


@pytest.mark.parametrize("unit", ["@", ".", "-", "1", "a ", "東", "\xff", "\u0301"])
def test_hostile_text_takes_linear_time(unit: str) -> None:
    known, _ = indexed(["one two three a a a a"], [3])
    data = np.frombuffer((unit.encode() * 2_000_000)[:2_000_000], np.uint8)
    assert len(ngrams.find(data, np.array([0, len(data)]), known)) == (999_998 if unit == "a " else 0)
