import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.minhash import SEEDS, _signatures, hash_seeds, minhash, signatures
from kernels.shingles import jaccard, new_buffers, shingles
from kernels.words import unicode_tables
from tests import naive
from tests.kernels.strategies import as_batch, checked, decoded, documents, texts

FEW = SEEDS[:9]
NO_WORDS = [0xFFFFFFFF] * len(FEW)
ROOT = Path(__file__).parents[2]


def expected(document, ngram):
    """Signature and number of words of what may not be UTF-8."""
    text = decoded(document)
    return (NO_WORDS, -1) if text is None else (naive.signature(text, FEW, ngram), len(naive.words(text)))


def as_pairs(result):
    values, n_words = result
    assert values.dtype == np.uint32
    assert n_words.dtype == np.int64
    return list(zip(values.tolist(), n_words.tolist(), strict=True))


def test_sentences_of_the_seed():
    a = minhash("the cat sat on the mat and then slept")
    b = minhash("the cat sat on the mat and then left")
    assert a.shape == (112,)
    assert (a == b).mean() == 0.7410714285714286


def test_seeds_are_the_seeds():
    by_numpy = np.random.default_rng(42).integers(0, 2**63, 112, dtype=np.uint64)
    np.testing.assert_array_equal(SEEDS, by_numpy)
    assert len(hash_seeds(5, seed=1)) == 5


@checked
@given(texts)
def test_signature_is_the_naive_one(text):
    assert minhash(text, FEW).tolist() == naive.signature(text, FEW, 5)


@checked
@given(st.lists(documents, max_size=5), st.integers(1, 4), st.binary(max_size=3))
def test_batch(batch, ngram, before):
    data, offsets = as_batch(batch, before)
    assert as_pairs(signatures(data, offsets, FEW, ngram)) == [
        expected(document, ngram) for document in batch
    ]


@checked
@given(documents, st.integers(1, 5), st.integers(1, 12))
def test_chunks_do_not_show(document, ngram, chunk):
    data, offsets = as_batch([document])
    result = _signatures(data, offsets, FEW, ngram, unicode_tables(), new_buffers(offsets, ngram, chunk))
    assert as_pairs(result) == [expected(document, ngram)]


@pytest.mark.parametrize("lead", range(0x80, 0x100))
def test_utf8_is_read_strictly(lead):
    """Every lead byte with continuations at the edges of what is allowed, whole and cut short."""
    edges = (0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0)
    candidates = [bytes([lead])]
    for _ in range(3):
        candidates += [start + bytes([edge]) for start in candidates for edge in edges]
    candidates = [b"a " + candidate for candidate in set(candidates)]
    n_words = signatures(*as_batch(candidates), FEW, 5)[1]
    assert [n >= 0 for n in n_words] == [decoded(candidate) is not None for candidate in candidates]


@checked
@given(texts, st.data())
def test_documents_cut_within_a_character(text, data):
    """The rest of a character in the next document must not make the first one valid."""
    whole = text.encode()
    cut = data.draw(st.integers(0, len(whole)))
    batch = [whole[:cut], whole[cut:]]
    assert as_pairs(signatures(*as_batch(batch), FEW, 5)) == [expected(document, 5) for document in batch]


def test_agreement_estimates_similarity():
    words = [f"w{i}" for i in range(3000)]
    changed = [f"x{i}" if i % 60 == 0 else word for i, word in enumerate(words)]
    a, b = " ".join(words), " ".join(changed)
    similarity = jaccard(shingles(a), shingles(b))
    seeds = hash_seeds(4000)
    agreement = (minhash(a, seeds) == minhash(b, seeds)).mean()
    assert abs(agreement - similarity) < 4 * np.sqrt(similarity * (1 - similarity) / 4000)


def test_longer_than_a_block_of_hashes():
    text = " ".join(str(i) for i in range(20_000))
    assert minhash(text, FEW).tolist() == naive.signature(text, FEW, 5)


def test_impossible_arguments_are_refused():
    with pytest.raises(ValueError, match="offsets"):
        signatures(np.zeros(3, np.uint8), np.array([0, 4]), SEEDS, 5)
    with pytest.raises(ValueError, match="at least one word"):
        signatures(np.zeros(3, np.uint8), np.array([0, 3]), SEEDS, 0)


MEMORY = """
import resource
import numpy as np
from kernels.minhash import SEEDS, signatures

text = np.frombuffer(b"Sixty-four bytes of text, with words as long as words mostly are. "[:64], np.uint8)
signatures(text, np.array([0, 64]), SEEDS, 5)
document = np.tile(text, 200_000_000 // 64)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
n_words = signatures(document, np.array([0, len(document)]), SEEDS, 5)[1]
assert n_words[0] > 30_000_000
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts memory in Linux's units")
def test_memory_is_flat_on_a_document_of_200_mb():
    run = subprocess.run([sys.executable, "-c", MEMORY], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(run.stdout) < 16_000  # kB
