"""Recommend bands and rows, and say how often a banding flags a pair.

A pair of similarity s is flagged with probability P(s) = 1 − (1 − s^rows)^bands. For a threshold t, the share of false
positives is taken as the integral of P from 0 to t, that of false negatives as the integral of 1 − P from t to 1, and
the banding with the least weighted sum of both is recommended, as datasketch's MinHashLSH does (its default weights
are equal). That banding misses many pairs just above t; where candidates are verified, false positives cost
time alone, so the cheapest banding that flags pairs at t with a stated probability is recommended as well.

Source: Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, section 3.4; datasketch, `lsh._optimal_param`.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from jobs.cli import guarded
from jobs.config import MOST_HASHES, NearDuplicates
from jobs.errors import UserError
from jobs.runtime.console import Console
from kernels.bands import collision_probability

SHOWN = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
RECALL = 0.95
MISSES_MUCH = 0.75  # a banding that flags fewer of the pairs at the user's threshold is warned of
STEPS = 200  # of the integrals


@dataclass(frozen=True)
class Banding:
    """So many bands of so many rows."""

    bands: int
    rows: int

    def flags(self, similarity: float) -> float:
        """Probability that a pair of this similarity is flagged."""
        return float(collision_probability(similarity, self.bands, self.rows))

    def errors(self, threshold: float) -> tuple[float, float]:
        """Integrals of the false positives below the threshold and of the false negatives above it."""
        below, above = _midpoints(0, threshold), _midpoints(threshold, 1)
        positives = collision_probability(below, self.bands, self.rows).mean() * threshold
        negatives = (1 - collision_probability(above, self.bands, self.rows)).mean() * (1 - threshold)
        return float(positives), float(negatives)

    def __str__(self) -> str:
        return f"{self.bands} {'band' if self.bands == 1 else 'bands'} of {self.rows}"


def _midpoints(start: float, stop: float) -> np.ndarray:
    return start + (stop - start) * (np.arange(STEPS) + 0.5) / STEPS


def bandings(hashes: int) -> Iterator[Banding]:
    """All that need at most so many hashes."""
    for rows in range(1, hashes + 1):
        for bands in range(1, hashes // rows + 1):
            yield Banding(bands, rows)


def least_error(threshold: float, hashes: int, false_negative_weight: float = 0.5) -> Banding:
    """The banding of at most so many hashes with the least weighted error."""
    weights = np.array([1 - false_negative_weight, false_negative_weight])
    return min(bandings(hashes), key=lambda banding: weights @ banding.errors(threshold))


def least_candidates(threshold: float, hashes: int, recall: float) -> Banding | None:
    """The banding with the fewest false positives of those that flag pairs at the threshold so often, if any does."""
    able = [banding for banding in bandings(hashes) if banding.flags(threshold) >= recall]
    return min(able, key=lambda banding: banding.errors(threshold)[0], default=None)


# ---------------------------------------------------------------- in the main job


def describe(settings: NearDuplicates) -> str:
    """One line for the terminal: how often pairs of some similarities are flagged."""
    banding = Banding(settings.bands, settings.rows)
    shares = ", ".join(f"{_percent(banding.flags(s))} at {s:g}" for s in SHOWN)
    return f"{banding} rows flag pairs of similarity s with 1 - (1 - s^{settings.rows})^{settings.bands}: {shares}"


def misses(settings: NearDuplicates) -> str | None:
    """A warning, where the banding misses much of what the user's threshold asks for."""
    if settings.threshold is None:
        return None
    share = Banding(settings.bands, settings.rows).flags(settings.threshold)
    if share >= MISSES_MUCH:
        return None
    return (
        f"near_duplicates.threshold is {settings.threshold:g}, but {settings.bands} bands of {settings.rows} rows flag "
        f"only {_percent(share)} of the pairs at that similarity; `python -m jobs.bands --threshold "
        f"{settings.threshold:g} --hashes {settings.hashes}` recommends others"
    )


def _percent(share: float) -> str:
    """Three digits near 0 and 1, where they matter."""
    return f"{share:.1%}" if share < 0.01 or 0.99 <= share < 0.9995 else f"{share:.0%}"


# ---------------------------------------------------------------- the command


def parser() -> argparse.ArgumentParser:
    """The command line of `python -m jobs.bands`."""
    parser = argparse.ArgumentParser(
        prog="python -m jobs.bands",
        description="Recommend bands and rows for a similarity above which pairs should be found, and say how often "
        "they flag a pair.",
    )
    parser.add_argument(
        "--threshold", type=float, default=0.8, metavar="S", help="similarity, 0 to 1 (default: 0.8)"
    )
    parser.add_argument(
        "--hashes", type=int, default=128, metavar="N", help="values of a signature, at most (default: 128)"
    )
    parser.add_argument(
        "--recall",
        type=float,
        default=RECALL,
        metavar="P",
        help=f"probability with which a pair at the threshold should be flagged (default: {RECALL})",
    )
    return parser


def main(arguments: list[str] | None = None) -> int:
    """`python -m jobs.bands`."""
    options = parser().parse_args(arguments)
    return guarded(lambda: _main(options))


def _main(options: argparse.Namespace) -> int:
    for name, value in (("threshold", options.threshold), ("recall", options.recall)):
        if not 0 < value < 1:
            raise UserError(f"--{name} is {value:g}; it should lie between 0 and 1")
    if not 1 <= options.hashes <= MOST_HASHES:
        raise UserError(f"--hashes is {options.hashes}; it should be 1 to {MOST_HASHES:,}")
    console = Console()
    least = least_error(options.threshold, options.hashes)
    _print(console, f"least error around {options.threshold:g}", least, options.threshold)
    able = least_candidates(options.threshold, options.hashes, options.recall)
    finds = f"{options.recall:g} of the pairs at {options.threshold:g}"
    if able is None:
        console.line(f"\nno banding of {options.hashes:,} hashes flags {finds}; use more hashes")
    else:
        _print(console, f"\nfewest candidates to be verified, flags {finds}", able, options.threshold)
    return 0


def _print(console: Console, title: str, banding: Banding, threshold: float) -> None:
    positives, negatives = banding.errors(threshold)
    hashes = banding.bands * banding.rows
    console.line(f"{title}: {banding} rows, {hashes:,} hashes")
    console.line(
        f"  --set near_duplicates.bands={banding.bands} --set near_duplicates.rows={banding.rows} "
        f"--set near_duplicates.hashes={hashes}"
    )
    console.line(
        f"  false positives {positives:.4f}, false negatives {negatives:.4f} (integrals of the curve)"
    )
    console.table(
        "",
        ["similarity", *(f"{s:g}" for s in SHOWN)],
        [("flagged", *(_percent(banding.flags(s)) for s in SHOWN))],
    )


if __name__ == "__main__":
    sys.exit(main())
