import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from kernels.xxh3 import hash_slices, xxh3_64
from tests.kernels.strategies import checked

BYTES = np.random.default_rng(0).integers(0, 256, 20_000, dtype=np.uint8)


def reference(data, starts, ends):
    return [xxhash.xxh3_64_intdigest(data[a:b].tobytes()) for a, b in zip(starts, ends, strict=True)]


@checked
@given(st.binary(max_size=300))
def test_any_bytes(data):
    assert xxh3_64(data) == xxhash.xxh3_64_intdigest(data)


def test_every_length_at_every_alignment():
    lengths = np.arange(1200)
    for start in range(9):
        starts = np.full(len(lengths), start)
        ends = starts + lengths
        assert hash_slices(BYTES, starts, ends).tolist() == reference(BYTES, starts, ends)


@checked
@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_long_slices(start, length):
    starts, ends = np.array([start]), np.array([start + length])
    assert hash_slices(BYTES, starts, ends).tolist() == reference(BYTES, starts, ends)


def test_no_slices():
    none = np.empty(0, np.int64)
    assert hash_slices(BYTES, none, none).shape == (0,)


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (5, 4), (0, 20_001)])
def test_slices_outside_the_data_are_refused(start, end):
    with pytest.raises(ValueError, match="slice"):
        hash_slices(BYTES, np.array([start]), np.array([end]))


def test_other_types_are_refused():
    with pytest.raises(ValueError, match="uint8"):
        hash_slices(BYTES.astype(np.int64), np.array([0]), np.array([1]))
    with pytest.raises(ValueError, match="int64"):
        hash_slices(BYTES, np.array([0.0]), np.array([1.0]))
