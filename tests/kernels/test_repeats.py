import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import repeats
from kernels.permutation import keyed_hash
from tests import naive
from tests.kernels.strategies import checked

# Keys that differ in their first bits, in their last ones, or not at all.
KEYS = st.sampled_from(
    [*range(4), *(i << 57 for i in range(12)), *((i << 57) + 1 for i in range(12)), 2**64 - 1]
)
lists = st.lists(KEYS, max_size=40)


def as_keys(keys):
    return np.array(keys, np.uint64)


@checked
@given(st.lists(lists, min_size=1, max_size=4), st.integers(5, 8), st.integers(0, 2))
def test_flags_are_the_naive_ones_however_the_keys_are_split(groups, log2_places, log2_ranges):
    keys = [key for group in groups for key in group]
    expected = naive.may_repeat(keys, log2_places + log2_ranges)
    found = np.zeros(len(keys), bool)
    for part in range(2**log2_ranges):
        tables = []
        for group in groups:
            tables.append(repeats.new_table(log2_places))
            repeats.note(tables[-1], as_keys(group), log2_ranges, part)
        flags = repeats.twice(repeats.merge(tables))
        found |= repeats.may_repeat(flags, as_keys(keys), log2_ranges, part)
    assert found.tolist() == expected


def test_few_that_occur_once_pass():
    once = keyed_hash(np.arange(20_000, dtype=np.uint64), 1)
    table = repeats.new_table(18)
    repeats.note(table, once)
    share = repeats.may_repeat(repeats.twice(table), once).mean()
    assert share == pytest.approx(1 - np.exp(-20_000 / 2**18), rel=0.1)


def test_refusals():
    with pytest.raises(ValueError, match="places"):
        repeats.new_table(4)
    with pytest.raises(ValueError, match="merged"):
        repeats.merge([repeats.new_table(5), repeats.new_table(6)])
