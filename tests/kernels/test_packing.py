import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from kernels.packing import PackingState, accumulate, gather, slice_hashes, summarise
from tests import naive
from tests.kernels.strategies import checked

LENGTHS = st.lists(st.integers(1, 40), max_size=40)
TOKEN_TYPES = pytest.mark.parametrize("dtype", [np.uint16, np.uint32])


@checked
@given(LENGTHS, st.integers(1, 20))
def test_figures_are_the_naive_ones(lengths, window):
    summary = summarise(accumulate(PackingState(window), np.array(lengths, np.int64)))
    assert summary._asdict() == pytest.approx(naive.packing(lengths, window))


@checked
@given(LENGTHS, st.integers(1, 20), st.data())
def test_stream_in_any_pieces(lengths, window, data):
    lengths = np.array(lengths, np.int64)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(lengths)), max_size=6)))
    state = PackingState(window)
    for piece in np.split(lengths, cuts):
        state = accumulate(state, piece)
    assert state == accumulate(PackingState(window), lengths)


def test_definitions_by_hand():
    # windows of four: aabb | bbbb | bbcd | d
    summary = summarise(accumulate(PackingState(4), np.array([2, 8, 1, 2])))
    assert summary.windows == 3
    assert summary.remainder == 1
    assert summary.share_with_boundary == 2 / 3
    assert summary.documents_per_window == (2 + 1 + 3) / 3
    assert summary.share_after_boundary == (2 + 0 + 2) / 12
    assert summary.padded_rows == 1 + 2 + 1 + 1
    assert summary.padding_share == (20 - 13) / 20


def test_boundary_between_windows_is_in_neither():
    summary = summarise(accumulate(PackingState(4), np.array([4, 8, 4])))
    assert summary.share_with_boundary == 0
    assert summary.documents_per_window == 1


def test_definitions_agree_with_the_seeds_figures():
    """Lengths of the seed's mean and median, as a log-normal distribution has them."""
    sigma = np.sqrt(2 * np.log(1043 / 627))
    lengths = np.random.default_rng(0).lognormal(np.log(627), sigma, 300_000).astype(np.int64) + 1
    summary = summarise(accumulate(PackingState(1024), lengths))
    assert summary.share_with_boundary == pytest.approx(0.61, abs=0.02)
    assert summary.documents_per_window == pytest.approx(1.98, abs=0.02)
    assert summary.share_after_boundary == pytest.approx(0.375, abs=0.02)
    assert summary.padding_share == pytest.approx(0.347, abs=0.02)


def test_counts_pass_32_bits():
    state = PackingState(1024)
    for _ in range(5):
        state = accumulate(state, np.full(1000, 2**31))
    assert state.tokens == 5000 * 2**31


@pytest.mark.parametrize(("window", "lengths"), [(0, [1]), (4, [3, 0]), (4, [-1])])
def test_empty_documents_and_windows_are_refused(window, lengths):
    with pytest.raises(ValueError, match="at least one token"):
        accumulate(PackingState(window), np.array(lengths))


runs = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 10)), max_size=10)


@TOKEN_TYPES
@checked
@given(runs=runs)
def test_gather(dtype, runs):
    store = np.arange(100, dtype=dtype) * 7
    starts, lengths = np.array(runs, np.int64).reshape(-1, 2).T
    out_starts = np.cumsum(lengths) - lengths + 3
    out, expected = np.zeros((2, lengths.sum() + 5), dtype)
    gather(store, starts, lengths, out, out_starts)
    naive.gather(store, starts, lengths, expected, out_starts)
    np.testing.assert_array_equal(out, expected)


@TOKEN_TYPES
@checked
@given(runs=runs)
def test_slice_hashes(dtype, runs):
    tokens = np.arange(100, dtype=dtype) * 601
    starts, lengths = np.array(runs, np.int64).reshape(-1, 2).T
    expected = [xxhash.xxh3_64_intdigest(tokens[a : a + n].tobytes()) for a, n in runs]
    assert slice_hashes(tokens, starts, lengths).tolist() == expected


def test_memory_mapped_store(tmp_path):
    tokens = np.arange(1000, dtype=np.uint16)
    tokens.tofile(tmp_path / "tokens")
    mapped = np.memmap(tmp_path / "tokens", np.uint16, "r")
    out = np.empty(10, np.uint16)
    gather(mapped, np.array([5]), np.array([10]), out, np.array([0]))
    np.testing.assert_array_equal(out, tokens[5:15])
    one = np.array([5]), np.array([10])
    assert slice_hashes(mapped, *one) == slice_hashes(tokens, *one)


@pytest.mark.parametrize(
    ("start", "length", "out_start"), [(5, 6, 0), (-1, 2, 0), (0, -1, 0), (0, 4, 7), (0, 4, -1)]
)
def test_runs_outside_are_refused(start, length, out_start):
    store, out = np.zeros(10, np.uint16), np.zeros(10, np.uint16)
    with pytest.raises(ValueError, match="slice"):
        gather(store, np.array([start]), np.array([length]), out, np.array([out_start]))


def test_other_element_types_are_refused():
    zero, one = np.array([0]), np.array([1])
    with pytest.raises(ValueError, match="uint16"):
        gather(np.zeros(2, np.uint16), zero, one, np.zeros(2, np.uint32), zero)
