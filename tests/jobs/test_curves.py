"""What each threshold would remove at every setting, against counting one by one; and the page with its sliders."""

import html
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from jobs import ledger
from jobs.steps.quality import Rule
from jobs.whatif.curves import Curve, curves, removed
from jobs.whatif.explore import explore


@pytest.mark.parametrize("drops", [np.less, np.less_equal, np.greater, np.greater_equal])
def test_shares_are_those_of_counting_one_by_one(drops: np.ufunc) -> None:
    random = np.random.default_rng(0)
    values = pd.array(np.round(random.random(200), 1), "double[pyarrow]")  # many are equal to a setting
    values[:7] = None
    frame = pd.DataFrame({"x": values, "n_bytes": pd.array(random.integers(1, 99, 200), "int64[pyarrow]")})
    settings = np.linspace(0, 1, 11).round(1)
    found = removed(frame, [Rule("r.min_x", "x", 0.5, drops)], {"r.min_x": settings}).set_index("place")
    known = frame.dropna().astype("float64")
    assert found.loc[-1, ["documents", "bytes"]].tolist() == [193, known["n_bytes"].sum()]
    for place, setting in enumerate(settings):
        gone = known[drops(known["x"], setting)]
        assert found.loc[place, ["documents", "bytes"]].tolist() == [len(gone), gone["n_bytes"].sum()]


def test_a_run_without_rules_is_asked_about_scores_and_lengths(finished: Path) -> None:
    found = {curve.rule: curve for curve in curves(finished)}
    assert set(found) == {"score.min", "n_tokens.min"}
    rows = ledger.read(finished, ["n_tokens"])["n_tokens"].compute()
    lengths = found["n_tokens.min"]
    assert lengths.settings[[0, -1]].tolist() == [rows.min(), rows.max()]
    assert lengths.documents[50] == pytest.approx(100 * (rows < lengths.settings[50]).mean())
    assert lengths.threshold is None


def test_the_page_with_sliders_needs_nothing_from_elsewhere() -> None:
    shares = np.linspace(0, 100, 5)
    shown = explore([Curve("a.min_x", 0.5, np.linspace(0, 1, 5), shares, shares)])._repr_html_()
    page = html.unescape(shown)
    assert "a.min_x" in page
    assert not re.findall(r"<(?:script|link)[^>]+(?:src|href)=", page)
