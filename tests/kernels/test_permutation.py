import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kernels.permutation import doc_ids, key, keyed_hash, mix64, seeded_order
from tests import naive
from tests.kernels.strategies import checked

NUMBERS = st.integers(0, 2**64 - 1)
ID_ARRAYS = arrays(np.uint64, st.integers(0, 20), elements=NUMBERS | st.integers(0, 3))


@checked
@given(NUMBERS)
def test_mix64(x):
    assert int(mix64(np.uint64(x))) == naive.mix64(x)


@checked
@given(st.text(), st.integers())
def test_key(purpose, seed):
    assert key(purpose, seed) == naive.key(purpose, seed)


@checked
@given(ID_ARRAYS, NUMBERS)
def test_keyed_hash(ids, some_key):
    assert keyed_hash(ids, some_key).tolist() == [naive.keyed_hash(i, some_key) for i in ids.tolist()]


@checked
@given(NUMBERS, arrays(np.int64, st.integers(0, 20), elements=st.integers(0, 2**63 - 1)))
def test_doc_ids(file_key, records):
    assert doc_ids(file_key, records).tolist() == [naive.doc_id(file_key, r) for r in records.tolist()]


@checked
@given(ID_ARRAYS, NUMBERS)
def test_order(ids, some_key):
    assert seeded_order(ids, some_key).tolist() == naive.seeded_order(ids.tolist(), some_key)


@checked
@given(arrays(np.uint64, st.integers(0, 20), unique=True), st.randoms())
def test_order_does_not_depend_on_how_documents_come(ids, random):
    shuffled = np.array(random.sample(ids.tolist(), len(ids)), np.uint64)
    some_key = key("order", 1337)
    np.testing.assert_array_equal(
        ids[seeded_order(ids, some_key)], shuffled[seeded_order(shuffled, some_key)]
    )


def test_keys_of_two_purposes_give_unrelated_orders():
    ids = doc_ids(1, np.arange(10_000))
    ranks = [np.argsort(seeded_order(ids, key(purpose, 1))) for purpose in ("order", "keep")]
    assert abs(np.corrcoef(*ranks)[0, 1]) < 0.05


def test_hashes_are_uniform():
    hashes = keyed_hash(np.arange(100_000, dtype=np.uint64), key("sample", 0)) / 2**64
    counts = np.histogram(hashes, bins=100, range=(0, 1))[0]
    chi_squared = ((counts - 1000) ** 2 / 1000).sum()
    assert 50 < chi_squared < 165  # 99 degrees of freedom
