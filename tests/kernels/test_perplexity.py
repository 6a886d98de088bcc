"""Counting, smoothing and looking up n-grams, against the definitions and whatever the batch."""

from itertools import pairwise

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from kernels import perplexity
from kernels.kneser_ney import BEGIN, END, FALLBACK, NEVER, WORDS, count_ngrams, discounts, smooth
from kernels.perplexity import MARKS, build_table, line_words, log_probabilities, ngram_words
from tests import naive
from tests.kernels.strategies import as_batch, checked, decoded, documents

lines = st.lists(st.lists(st.sampled_from(["a", "b", "c", "dd", "e1"]), min_size=1, max_size=7), max_size=12)


def trained(text, order, known=None):
    """A table, its orders and the words of a text, of those that are known."""
    found = line_words(*as_batch([text.encode()]))
    pieces = found.normal.tobytes()
    starts = found.starts.tolist()
    by_hash = {
        int(key): pieces[a:b].decode().strip()
        for key, (a, b) in zip(found.hashes, pairwise(starts), strict=True)
        if b > a
    }
    vocabulary = sorted((word, key) for key, word in by_hash.items() if known is None or word in known)
    hashes = np.concatenate([MARKS, np.array([key for _, key in vocabulary], np.uint64)])
    number = {int(key): i for i, key in enumerate(hashes)}
    tokens = np.array([number.get(int(key), 0) for key in found.hashes], np.uint32)
    orders = smooth(count_ngrams(tokens, len(hashes), order), len(by_hash) - len(vocabulary))
    words = ["<unk>", "<s>", "</s>", *(word for word, _ in vocabulary)]
    return build_table(hashes, orders), orders, words


@checked
@given(st.lists(documents, max_size=4), st.binary(max_size=3))
def test_words_of_lines_are_the_naive_ones(batch, before):
    found = line_words(*as_batch(batch, before))
    expected = [line for one in batch for line in naive.line_words(decoded(one) or "")]
    tokens = [token for line in expected for token in ["", *line, ""]]
    pieces, starts = found.normal.tobytes(), found.starts.tolist()
    shown = [pieces[a:b].decode() for a, b in pairwise(starts)]
    assert shown == [token and token + " " for token in tokens]
    hashes = [xxhash.xxh3_64_intdigest(word.encode()) for line in expected for word in line]
    assert found.hashes[[bool(token) for token in tokens]].tolist() == hashes
    assert (found.hashes == MARKS[BEGIN]).sum() == (found.hashes == MARKS[END]).sum() == len(expected)


@checked
@given(lines, st.lists(documents | st.sampled_from([b"a b a", b"e2\nzz b", b"a b c dd"]), max_size=4),
       st.integers(2, 5), st.booleans())  # fmt: skip
def test_probabilities_are_the_naive_ones(sentences, batch, order, all_known):
    text = "\n".join(map(" ".join, sentences))
    sentences = naive.line_words(text)
    table, _, words = trained(text, order, None if all_known else ("a", "b"))
    referee = naive.KneserNey(sentences, order, words[WORDS:])
    log_probs, n_tokens, n_unknown = log_probabilities(*as_batch(batch), table)
    for i, document in enumerate(batch):
        expected = naive.line_words(decoded(document) or "")
        assert n_tokens[i] == (sum(len(line) + 1 for line in expected) or 1)
        assert n_unknown[i] == sum(word not in words for line in expected for word in line)
        total = sum(referee.log10(line) for line in expected or [[]])
        assert log_probs[i] == pytest.approx(total, abs=1e-5 * n_tokens[i], rel=1e-5)


@pytest.mark.parametrize("order", [2, 3, 5])
def test_probabilities_of_all_words_add_up_to_one(order):
    """Of the reference, which the kernel is held to."""
    random = np.random.default_rng(0)
    sentences = [list(random.choice(list("abcdefgh"), random.integers(1, 9))) for _ in range(200)]
    referee = naive.KneserNey(sentences, order, "abcdefgh")
    for context in ((), ("<s>",), ("<s>", "a"), ("a", "b"), ("<unk>", "a")):
        total = sum(referee.probability(word, context) for word in referee.vocabulary)
        assert total == pytest.approx(1)


def test_discounts_by_chen_and_goodman_or_the_fallback():
    counts = np.repeat([0, 1, 2, 3, 4, 9], [7, 100, 40, 20, 12, 3])
    share = 100 / 180
    expected = [0, 1 - 2 * share * 40 / 100, 2 - 3 * share * 20 / 40, 3 - 4 * share * 12 / 20]
    np.testing.assert_allclose(discounts(counts), expected)
    for without in ([1, 2], [1, 3, 4], []):
        assert discounts(np.array(without, np.int64)).tolist() == [0, *FALLBACK]


def test_ngrams_are_sorted_and_never_cross_a_line():
    table, orders, words = trained("b a\na b\na b", 3)
    grams = [[" ".join(words[i] for i in row) for row in rows] for rows in ngram_words(orders)]
    assert grams[1] == ["<s> a", "<s> b", "a </s>", "a b", "b </s>", "b a"]
    assert grams[2] == ["<s> a b", "<s> b a", "a b </s>", "b a </s>"]
    assert orders[0].log_probs[BEGIN] == np.float32(NEVER)
    assert (table.keys[:, 0] != 0).sum() == sum(len(order.last) for order in orders)


@pytest.mark.parametrize("chunk", [1, 3, 8])
def test_chunks_and_the_batch_do_not_show(chunk, monkeypatch):
    text = "ab 12 東京 cd\n\nab cd ab\nwords of a line that is longer"
    table, _, _ = trained(text, 3)
    batch = [text.encode(), b"", b"zz", text.encode()[:9]]
    whole = log_probabilities(*as_batch(batch), table)
    alone = [log_probabilities(*as_batch([one]), table) for one in batch]
    for i, one in enumerate(alone):
        assert [values[i] for values in whole] == [values[0] for values in one]
    python = log_probabilities_in_chunks(batch, table, chunk, monkeypatch)
    assert python == [values.tolist() for values in whole]


def log_probabilities_in_chunks(batch, table, chunk, monkeypatch):
    """With another size of chunks, which is a constant of the compiled kernel: compiled once more."""
    monkeypatch.setattr(perplexity, "CHUNK", chunk)
    from numba import njit

    kernel = njit(perplexity._log_probabilities.py_func)
    data, offsets = as_batch(batch)
    scratch, starts = perplexity._buffers(offsets)
    starts = np.empty(8200, np.int64)
    found = kernel(data, offsets, perplexity.unicode_tables(), scratch, starts, *table)
    return [values.tolist() for values in found]


def test_text_that_says_nothing_has_the_perplexity_of_an_empty_line():
    table, _, _ = trained("a b\nb a", 3)
    found, n_tokens, n_unknown = log_probabilities(*as_batch([b"", b" \n.", b"\xff a", b"a\n\xff"]), table)
    assert len(set(found.tolist())) == 1
    assert np.isfinite(found).all()
    assert n_tokens.tolist() == [1] * 4
    assert n_unknown.tolist() == [0] * 4


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="not below 3"):
        count_ngrams(np.array([1, 3, 2], np.uint32), 3, 2)
    _, orders, _ = trained("a b", 2)
    same = np.append(MARKS, np.array([7, 7], np.uint64))
    with pytest.raises(ValueError, match="same key"):
        build_table(same, orders)
    with pytest.raises(ValueError, match="offsets"):
        line_words(np.zeros(1, np.uint8), np.array([0, 2]))
