from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.shingles import _shingle_sets, jaccard, new_buffers, shingle_sets, shingles
from kernels.words import unicode_tables
from tests import naive
from tests.kernels.strategies import as_batch, checked, decoded, documents, texts


def sets(result):
    hashes, offsets = result
    return [hashes[a:b].tolist() for a, b in pairwise(offsets)]


def expected(document, ngram):
    text = decoded(document)
    return [] if text is None else naive.shingles(text, ngram)


def test_sentences_of_the_seed():
    a = shingles("the cat sat on the mat and then slept")
    b = shingles("the cat sat on the mat and then left")
    assert len(a) == len(b) == 5
    assert jaccard(a, b) == 0.6666666666666666


@checked
@given(texts, st.integers(1, 7))
def test_shingles_are_the_naive_ones(text, ngram):
    found = shingles(text, ngram)
    assert found.dtype == np.uint64
    assert found.tolist() == naive.shingles(text, ngram)


@checked
@given(st.lists(documents, max_size=5), st.integers(1, 4), st.binary(max_size=3))
def test_batch(batch, ngram, before):
    data, offsets = as_batch(batch, before)
    assert sets(shingle_sets(data, offsets, ngram)) == [expected(document, ngram) for document in batch]


@checked
@given(documents, st.integers(1, 5), st.integers(1, 12))
def test_chunks_do_not_show(document, ngram, chunk):
    data, offsets = as_batch([document])
    buffers = new_buffers(offsets, ngram, chunk)
    assert sets(_shingle_sets(data, offsets, ngram, unicode_tables(), buffers)) == [expected(document, ngram)]


def test_document_of_many_chunks_with_a_word_longer_than_a_chunk():
    text = " ".join(f"{'word' * (i % 7)}{i}é東" for i in range(4000)) + "x" * 30_000 + " end of it"
    assert shingles(text).tolist() == naive.shingles(text, 5)


def test_repetition_gives_one_shingle_each():
    assert len(shingles("a " * 50_000)) == 1


@pytest.mark.parametrize(("text", "count"), [("", 0), (" . ", 0), ("a", 1), ("a b c d", 1), ("a b c d e", 1)])
def test_short_documents(text, count):
    assert len(shingles(text)) == count


@checked
@given(st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)))
def test_jaccard(a, b):
    as_arrays = (np.array(sorted(s), np.uint64) for s in (a, b))
    assert jaccard(*as_arrays) == naive.jaccard(a, b)


def test_impossible_arguments_are_refused():
    data = np.zeros(4, np.uint8)
    with pytest.raises(ValueError, match="at least one word"):
        shingles("a b c", 0)
    for offsets in ([0, 5], [-1, 4], [3, 2], []):
        with pytest.raises(ValueError, match="offsets"):
            shingle_sets(data, np.array(offsets, np.int64))
