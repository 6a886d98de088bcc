"""Which bands and rows are recommended, and what the main job says of those in use."""

import pytest

from jobs import bands, config
from jobs.bands import Banding


def test_the_least_error_is_datasketchs() -> None:
    """What `datasketch.lsh._optimal_param` of 1.6 gives, equal weights."""
    assert bands.least_error(0.8, 128) == Banding(9, 13)
    assert bands.least_error(0.5, 128) == Banding(25, 5)


def test_integrals_are_those_of_the_polynomial() -> None:
    """One row, two bands: P(s) = 2 s - s^2."""
    positives, negatives = Banding(2, 1).errors(0.5)
    assert positives == pytest.approx(0.25 - 0.125 / 3, abs=1e-5)
    assert negatives == pytest.approx((1 - 0.5) - (0.75 - 0.875 / 3), abs=1e-5)


def test_the_cheapest_that_finds_enough() -> None:
    found = bands.least_candidates(0.8, 128, 0.95)
    assert found is not None
    assert found.flags(0.8) >= 0.95
    for other in bands.bandings(128):
        assert other.flags(0.8) < 0.95 or other.errors(0.8)[0] >= found.errors(0.8)[0]
    assert bands.least_candidates(0.3, 2, 0.95) is None


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert bands.main(["--threshold", "0.8", "--hashes", "128"]) == 0
    said = capsys.readouterr().out
    assert "9 bands of 13 rows, 117 hashes" in said
    assert "13 bands of 7 rows, 91 hashes" in said
    assert bands.main(["--threshold", "0.1", "--hashes", "3"]) == 0
    assert "use more hashes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--threshold", "1.5"], "--threshold is 1.5; it should lie between 0 and 1"),
        (["--recall", "0"], "--recall is 0; it should lie between 0 and 1"),
        (["--hashes", "0"], "--hashes is 0; it should be 1 to 16,384"),
    ],
)
def test_refusals(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bands.main(arguments) == 2
    assert capsys.readouterr().err == f"error: {sentence}\n"


def test_a_banding_that_misses_much_is_warned_of() -> None:
    strict, ours = (config.load(f"sample,{name}").near_duplicates for name in ("seed-128", "fineweb"))
    assert "8 bands of 16 rows flag only 20% of the pairs" in str(bands.misses(strict))
    assert bands.misses(ours) is None
    assert bands.misses(config.load("sample").near_duplicates) is None
    assert bands.describe(ours) == (
        "14 bands of 8 rows flag pairs of similarity s with 1 - (1 - s^8)^14: 5% at 0.5, 21% at 0.6, 56% at 0.7, "
        "77% at 0.75, 92% at 0.8, 99% at 0.85, 100% at 0.9, 100% at 0.95"
    )
