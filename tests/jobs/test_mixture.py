"""Mixtures: what each group gives, in which order, and that shares hold in every window; against slow forms."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from jobs.errors import UserError
from jobs.mixture.allotment import allot, plan
from jobs.mixture.epochs import Epochs
from jobs.mixture.schedule import MOST, Schedule
from jobs.settings.mixture import Mixture
from tests import naive

COUNTS = st.lists(st.integers(0, 200), min_size=1, max_size=8).filter(any)


def mixture(**said) -> Mixture:
    return Mixture.model_validate(said)


# ---------------------------------------------------------------- the schedule


@given(COUNTS)
@settings(deadline=None)
def test_a_schedule_gives_each_group_its_count_in_its_order(counts):
    group, draw = Schedule(counts)(np.arange(sum(counts)))
    assert group.tolist() == naive.schedule(counts)
    assert np.bincount(group, minlength=len(counts)).tolist() == counts
    for g, count in enumerate(counts):
        assert draw[group == g].tolist() == list(range(count))


@given(COUNTS, st.data())
@settings(deadline=None)
def test_a_schedule_is_a_function_of_the_number(counts, data):
    schedule, n = Schedule(counts), sum(counts)
    whole = np.stack(schedule(np.arange(n)))
    numbers = np.array(data.draw(st.lists(st.integers(0, n - 1), max_size=20)), np.int64)
    np.testing.assert_array_equal(np.stack(schedule(numbers)), whole[:, numbers])


@given(COUNTS)
@settings(deadline=None)
def test_no_prefix_is_further_off_than_is_said(counts):
    schedule, n = Schedule(counts), sum(counts)
    group, _ = schedule(np.arange(n))
    given_so_far = np.cumsum(group[:, None] == np.arange(len(counts)), axis=0)
    expected = np.arange(1, n + 1)[:, None] * np.array(counts) / n
    off = np.abs(given_so_far - expected).max(axis=0)
    assert (off <= np.array(schedule.deviations()) + 1e-9).all()


@pytest.mark.parametrize(
    "shares",
    [
        (0.3, 0.5, 0.2),
        (0.001, 0.999),
        (0.4, 0.35, 0.15, 0.07, 0.03),
        (0.62, 0.24, 0.09, 0.03, 0.013, 0.005, 0.002),
        tuple([0.05] * 20),
        tuple(2.0 ** -np.arange(1, 12)),
    ],
    ids=str,
)
@pytest.mark.parametrize("length", [1024, 2048])
def test_shares_hold_within_a_thousandth_in_every_window_of_ten_million_tokens(shares, length):
    window = 10_000_000 // length
    n = 12 * window
    counts = list(allot(n, _fractions(shares), dict.fromkeys(range(len(shares)))).values())
    group, _ = Schedule(counts)(np.arange(n))
    for g, share in enumerate(np.array(shares) / sum(shares)):
        so_far = np.concatenate([[0], np.cumsum(group == g)])
        realised = (so_far[window:] - so_far[:-window]) / window
        assert np.abs(realised - share).max() <= 0.001


def test_a_schedule_of_trillions_of_tokens_is_exact_at_its_end():
    counts = [MOST - 3 - 7, 3, 0, 7]
    schedule = Schedule(counts)
    group, draw = schedule(np.arange(MOST - 10**6, MOST))
    for g, count in enumerate(counts):
        last = draw[group == g]
        assert len(last) == 0 or last[-1] == count - 1
        np.testing.assert_array_equal(last, np.arange(count - len(last), count))
    with pytest.raises(ValueError, match="from 1 to"):
        Schedule([MOST, 1])


# ---------------------------------------------------------------- epochs


@given(st.integers(1, 300), st.floats(0, 0.99), st.integers(0, 2**32))
@settings(deadline=None)
def test_epochs_draw_every_window_once_in_new_orders_and_keep_copies_apart(n, apart, seed):
    order = Epochs(n, str(seed), apart)
    drawn = order(np.arange(4 * n))
    for epoch in drawn.reshape(4, n):
        assert sorted(epoch.tolist()) == list(range(n))
    places = np.argsort(drawn, kind="stable").reshape(n, 4)
    assert np.diff(places, axis=1).min() >= order.distance >= apart * n
    if n >= 64 and apart <= 0.5:
        assert len({tuple(epoch) for epoch in drawn.reshape(4, n).tolist()}) == 4
    np.testing.assert_array_equal(order(np.arange(4 * n)[::-3]), drawn[::-3])


def test_epochs_in_order_are_the_windows_as_they_lie():
    assert Epochs(3, "", 0.5, shuffle=False)(np.arange(7)).tolist() == [0, 1, 2, 0, 1, 2, 0]


# ---------------------------------------------------------------- what each group gives


def _fractions(shares):
    whole = sum(map(Fraction, shares))
    return {g: Fraction(share) / whole for g, share in enumerate(shares)}


@given(
    st.integers(0, 300),
    st.lists(st.tuples(st.integers(0, 20), st.none() | st.integers(0, 100)), min_size=1, max_size=6),
)
@settings(deadline=None)
def test_allotting_is_water_filling(n, groups):
    weights = [weight for weight, _ in groups]
    if not any(weights):
        return
    shares, most = _fractions(weights), {g: cap for g, (_, cap) in enumerate(groups)}
    counts = allot(n, shares, most)
    slowly = naive.water_filling(n, shares, most)
    assert sum(counts.values()) == sum(slowly.values())
    assert all(most[g] is None or count <= most[g] for g, count in counts.items())
    assert all(abs(counts[g] - slowly[g]) <= 2 for g in counts)  # rounded in another way
    assert all(
        (counts[g] == most[g]) == (slowly[g] == most[g]) or abs(counts[g] - slowly[g]) <= 1 for g in counts
    )


SIZES = {"code": {0: 3001, 500: 2000}, "math": {0: 1001}, "web": {0: 100_001}}


def counts_of(stage) -> dict[str, int]:
    return {group.name: group.sequences for group in stage.groups}


def test_shares_are_of_the_tokens():
    (stage,) = plan(
        mixture(shares={"web": 0.5, "code": 0.3, "math": 0.2}, tokens=4099, length=10), SIZES
    ).stages
    assert counts_of(stage) == {"code": 123, "math": 82, "web": 204}  # 409 sequences: 122.7, 81.8 and 204.5


def test_multipliers_are_epochs():
    (stage,) = plan(mixture(multipliers={"math": 5, "code": 3}, length=10), SIZES).stages
    assert counts_of(stage) == {"code": 1500, "math": 500, "web": 10_000}
    assert [group.epochs for group in stage.groups] == [3, 5, 1]


def test_multipliers_of_a_budget_are_weights():
    (stage,) = plan(mixture(multipliers={"math": 5, "code": 3}, tokens=1_200, length=10), SIZES).stages
    assert counts_of(stage) == {"code": 15, "math": 5, "web": 100}


def test_shares_without_tokens_last_until_the_first_group_is_used_up():
    said = {"shares": {"web": 0.5, "math": 0.5}, "length": 10}
    (stage,) = plan(mixture(**said), SIZES).stages
    assert counts_of(stage) == {"code": 0, "math": 100, "web": 100}
    (stage,) = plan(mixture(**said, max_epochs={"math": 2.5}), SIZES).stages
    assert counts_of(stage) == {"code": 0, "math": 250, "web": 250}


def test_what_cannot_be_met_is_said_with_the_closest():
    said = {
        "shares": {"web": 0.6, "code": 0.2, "math": 0.2},
        "tokens": 40_000,
        "max_epochs": {"math": 4},
        "length": 10,
    }
    with pytest.raises(UserError) as error:
        plan(mixture(**said), SIZES)
    assert str(error.value) == (
        "Stage 'mixture' of the mixture cannot be met: 'math' should give 8,000 tokens, but max_epochs is 4 of its "
        "1,000 tokens. The closest has 40,000 tokens: code 0.225, math 0.1, web 0.675. "
        "Set mixture.closest: true to take it, or change the mixture"
    )
    closest = plan(mixture(**said, closest=True), SIZES)
    assert counts_of(closest.stages[0]) == {"code": 900, "math": 400, "web": 2700}
    assert len(closest.unmet) == 1


def test_a_group_that_takes_over_what_another_lacks_is_not_what_is_short():
    said = {"shares": {"web": 0.2, "code": 0.3, "math": 0.5}, "tokens": 8000, "length": 10, "closest": True}
    found = plan(mixture(**said, max_epochs={"math": 2, "code": 1}), SIZES)
    assert counts_of(found.stages[0]) == {"code": 360, "math": 200, "web": 240}
    assert "'math' should" in found.unmet[0]
    assert "'code'" not in found.unmet[0]
    found = plan(mixture(**said, max_epochs={"math": 2, "code": 0.6}), SIZES)
    assert counts_of(found.stages[0]) == {"code": 300, "math": 200, "web": 300}
    assert "'code' should" not in found.unmet[0]


def test_when_every_group_is_used_up_the_budget_is_what_cannot_be_met():
    said = {
        "shares": {"web": 0.5, "math": 0.5},
        "tokens": 10**6,
        "max_epochs": 1,
        "length": 10,
        "closest": True,
    }
    (stage,) = plan(mixture(**said), SIZES).stages
    assert counts_of(stage) == {"code": 0, "math": 100, "web": 10_000}


def test_a_capped_multiplier_does_not_raise_the_others():
    said = {"multipliers": {"math": 5}, "max_epochs": {"math": 2}, "length": 10, "closest": True}
    (stage,) = plan(mixture(**said), SIZES).stages
    assert counts_of(stage) == {"code": 500, "math": 200, "web": 10_000}


def test_caps_hold_over_all_stages_and_draws_go_on_where_they_ended():
    said = {
        "shares": {"web": 0.5, "math": 0.5},
        "length": 10,
        "max_epochs": {"math": 2},
        "closest": True,
        "stages": [
            {"name": "first", "tokens": 2400},
            {"name": "second", "tokens": 2400},
            {"name": "long", "tokens": 800, "length": 20},
        ],
    }
    found = plan(mixture(**said), SIZES)
    assert [counts_of(stage)["math"] for stage in found.stages] == [120, 80, 0]
    assert [counts_of(stage)["web"] for stage in found.stages] == [120, 160, 40]
    assert [stage.groups[1].first for stage in found.stages] == [0, 120, 0]
    assert [stage.groups[2].first for stage in found.stages] == [0, 120, 0]  # another length, other windows
    assert len(found.unmet) == 2


def test_a_stage_of_long_documents_draws_from_them_alone():
    said = {
        "shares": {"code": 1},
        "stages": [{"name": "long", "tokens": 4000, "length": 100, "min_document_tokens": 500}],
    }
    found = plan(mixture(**said), SIZES)
    assert counts_of(found.stages[0]) == {"code": 40, "math": 0, "web": 0}
    assert found.stages[0].groups[0].windows == 19


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (
            {"shares": {"web": 0.5, "kode": 0.5}},
            "names the group 'kode'; those with training documents are code, math, web; did you",
        ),
        ({"max_epochs": {"wiki": 2}}, "names the group 'wiki'"),
        (
            {"shares": {"math": 1}, "length": 2000},
            "draws from 'math', which does not hold one sequence of 2,000",
        ),
        ({"tokens": 5, "length": 10}, "tokens for no sequence of 10"),
        ({"multipliers": {"web": 10**9}, "length": 2}, "at most 4,294,967,295, so make it two"),
    ],
)
def test_refused_with_the_groups_at_hand(said, sentence):
    with pytest.raises(UserError, match=sentence):
        plan(mixture(**said), SIZES)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"shares": {"a": 1}, "multipliers": {"a": 1}}, "shares and multipliers contradict each other"),
        ({"shares": {"a": 0.5, "b": 0.6}}, "shares sum to 1.1"),
        ({"multipliers": {"a": 5}, "max_epochs": 4}, "'a' has the multiplier 5, but max_epochs allows 4"),
        ({"tokens": 10, "stages": [{"name": "a"}]}, "give each stage its tokens"),
        ({"stages": [{"name": "a"}, {"name": "a"}]}, "two entries named 'a'"),
        ({"edges": [3, 2]}, "greater than the one before"),
        (
            {"edges": [2.5], "shares": {">2.5": 1}},
            "'>2.5' is no group of these edges; there are <2.5, >=2.5, null",
        ),
    ],
)
def test_contradictions_are_refused(said, sentence):
    with pytest.raises(ValidationError, match=sentence):
        mixture(**said)


def test_settings_survive_a_round_trip_and_tokens_are_read_as_numbers():
    found = mixture(tokens="10e9", multipliers={"a": 2})
    assert found.tokens == 10**10
    assert Mixture.model_validate(found.model_dump(mode="json")) == found


def test_a_stage_has_what_it_does_not_say_from_the_mixture():
    found = mixture(
        shares={"a": 1},
        length=512,
        stages=[{"name": "x"}, {"name": "y", "multipliers": {"b": 2}, "length": 64}],
    ).resolved_stages
    assert [(one.shares, one.multipliers, one.length) for one in found] == [
        ({"a": 1}, None, 512),
        (None, {"b": 2}, 64),
    ]
    assert Counter(one.shuffle for one in found) == {True: 2}
