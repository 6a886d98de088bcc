import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kernels.bands import band_keys, collision_probability
from tests import naive
from tests.kernels.strategies import checked

SHAPES = st.tuples(st.integers(0, 4), st.integers(1, 5), st.integers(1, 20))


@checked
@given(SHAPES, st.data())
def test_keys_are_the_naive_ones(shape, data):
    documents, bands, rows = shape
    signatures = data.draw(arrays(np.uint32, (documents, bands * rows)))
    keys = band_keys(signatures, bands, rows)
    assert keys.shape == (documents, bands)
    assert keys.tolist() == [naive.band_keys(signature, bands, rows) for signature in signatures]


def test_equal_values_in_different_bands_have_different_keys():
    keys = band_keys(np.full((1, 112), 7, np.uint32), 14, 8)
    assert len(np.unique(keys)) == 14


def test_one_value_decides_one_key():
    signatures = np.arange(224, dtype=np.uint32).reshape(2, 112) % 112
    signatures[1, 50] += 1
    a, b = band_keys(signatures, 14, 8)
    assert np.flatnonzero(a != b).tolist() == [50 // 8]


def test_bands_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="112"):
        band_keys(np.zeros((1, 111), np.uint32), 14, 8)


@pytest.mark.parametrize(
    ("similarity", "share"), [(0.5, 0.05), (0.75, 0.77), (0.8, 0.92), (0.0, 0.0), (1.0, 1.0)]
)
def test_the_seeds_curve(similarity, share):
    assert round(float(collision_probability(similarity, 14, 8)), 2) == share


def test_curve_over_an_array():
    curve = collision_probability(np.linspace(0, 1, 11), 14, 8)
    assert curve.shape == (11,)
    assert (np.diff(curve) >= 0).all()
