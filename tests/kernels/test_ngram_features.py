from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.ngram_features import Grams, _ngram_features, new_buffers, ngram_features
from kernels.words import unicode_tables
from tests import naive
from tests.kernels.strategies import as_batch, checked, decoded, documents


def as_dicts(found):
    buckets, counts, offsets = found
    return [dict(zip(buckets[a:b].tolist(), counts[a:b].tolist(), strict=True)) for a, b in pairwise(offsets)]


def expected(document, grams):
    text = decoded(document)
    return {} if text is None else naive.ngram_features(text, grams.longest, grams.bits)


@checked
@given(
    st.lists(documents, max_size=5), st.integers(1, 4), st.sampled_from([1, 3, 20, 28]), st.binary(max_size=3)
)
def test_features_are_the_naive_ones(batch, longest, bits, before):
    data, offsets = as_batch(batch, before)
    grams = Grams(longest, bits)
    found = ngram_features(data, offsets, grams)
    assert as_dicts(found) == [expected(document, grams) for document in batch]
    for a, b in pairwise(found[2]):
        assert (np.diff(found[0][a:b].astype(np.int64)) > 0).all()


@checked
@given(documents, st.integers(1, 4), st.integers(1, 12))
def test_chunks_do_not_show(document, longest, chunk):
    data, offsets = as_batch([document])
    grams = Grams(longest, 20)
    found = _ngram_features(data, offsets, grams, unicode_tables(), new_buffers(offsets, grams, chunk))
    assert as_dicts(found) == [expected(document, grams)]


def test_document_of_many_chunks_with_a_word_longer_than_a_chunk():
    text = " ".join(f"{'word' * (i % 7)}{i}é東" for i in range(4000)) + "x" * 30_000 + " end of it"
    data, offsets = as_batch([text.encode()])
    assert as_dicts(ngram_features(data, offsets, Grams(3, 16))) == [naive.ngram_features(text, 3, 16)]


@pytest.mark.parametrize("grams", [Grams(0, 20), Grams(1, 0), Grams(1, 29)])
def test_impossible_arguments_are_refused(grams):
    with pytest.raises(ValueError, match=r"at least one word|bits"):
        ngram_features(np.zeros(4, np.uint8), np.array([0, 4]), grams)
    with pytest.raises(ValueError, match="offsets"):
        ngram_features(np.zeros(4, np.uint8), np.array([0, 5]), Grams())
