"""How good a classifier is, from scores of documents that it was not trained on, with bootstrap intervals.

Scores of all folds stand together. What is chosen on scores, Platt's calibration and the threshold of F1, is chosen for
each fold on the other folds' scores. Intervals are the 2.5th and 97.5th percentile over documents drawn with
replacement; they hold the scores as given, so they do not show how another training set would have turned out. The
calibration error adds up absolute values, so noise makes it larger, and drawing adds noise: its interval is moved back
by the difference between the mean over draws and the figure itself.
"""

from typing import Any, NamedTuple

import numpy as np

RESAMPLES = 1000
LEVEL = 95
BINS = 10  # of reliability
NEWTON_STEPS = 100


class Scored(NamedTuple):
    """Held-out scores.

    Attributes
    ----------
    margins
        float64[d], the higher, the better a document.
    good
        bool[d], what people say.
    probabilities
        float64[d], calibrated on the other folds.
    chosen
        bool[d], whether it is above the threshold that is best on the other folds.
    """

    margins: np.ndarray
    good: np.ndarray
    probabilities: np.ndarray
    chosen: np.ndarray


def platt(margins: np.ndarray, good: np.ndarray) -> tuple[float, float]:
    """Slope and offset of the logistic curve through margins.

    With Platt's smoothed targets, by Newton's method (Platt 1999; Lin, Lin and Weng 2007).

    Parameters
    ----------
    margins
        float64[d].
    good
        bool[d], both values among them.
    """
    n_good, n_bad = int(good.sum()), int((~good).sum())
    targets = np.where(good, (n_good + 1) / (n_good + 2), 1 / (n_bad + 2))
    centre, scale = margins.mean(), margins.std() or 1.0
    inputs = np.stack([(margins - centre) / scale, np.ones(len(margins))], axis=1)
    curve = np.array([0.0, np.log((n_good + 1) / (n_bad + 1))])
    value = _cross_entropy(inputs, targets, curve)
    for _ in range(NEWTON_STEPS):
        found = logistic(_times(inputs, curve))
        gradient = (inputs * (found - targets)[:, None]).sum(axis=0)
        weights = (found * (1 - found))[:, None, None]
        hessian = (inputs[:, :, None] * inputs[:, None, :] * weights).sum(axis=0) + 1e-10 * np.eye(2)
        step = -np.linalg.solve(hessian, gradient)
        taken = 1.0
        while _cross_entropy(inputs, targets, curve + taken * step) > value and taken > 1e-8:
            taken /= 2
        curve = curve + taken * step
        before, value = value, _cross_entropy(inputs, targets, curve + 0 * step)
        if before - value <= 1e-12 * abs(before):
            break
    slope = curve[0] / scale
    return float(slope), float(curve[1] - slope * centre)


def _times(inputs: np.ndarray, curve: np.ndarray) -> np.ndarray:
    return inputs[:, 0] * curve[0] + inputs[:, 1] * curve[1]


def _cross_entropy(inputs: np.ndarray, targets: np.ndarray, curve: np.ndarray) -> float:
    margins = _times(inputs, curve)
    return float((np.logaddexp(0, margins) - targets * margins).sum())


def logistic(margins: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-margins)), without overflow."""
    return np.exp(-np.logaddexp(0, -margins))


def cross_fitted(margins: np.ndarray, good: np.ndarray, fold: np.ndarray) -> Scored:
    """Calibrate and choose for each fold on the others.

    Parameters
    ----------
    margins
        float64[d] of models that were not trained on the document.
    good
        bool[d].
    fold
        int64[d].
    """
    probabilities, chosen = np.empty(len(margins)), np.empty(len(margins), bool)
    for one in np.unique(fold):
        here = fold == one
        slope, offset = platt(margins[~here], good[~here])
        probabilities[here] = logistic(slope * margins[here] + offset)
        chosen[here] = margins[here] >= best_threshold(margins[~here], good[~here])
    return Scored(margins, good, probabilities, chosen)


def best_threshold(scores: np.ndarray, good: np.ndarray) -> float:
    """The score from which on to keep, for the highest F1; half-way between it and the next lower one."""
    curve = _Curve(scores, good)
    taken, right = curve.totals(np.ones(len(scores)))
    best = int(np.argmax(2 * right / (taken + good.sum())))
    levels = scores[curve.order][curve.ends]
    return float(levels[best] if best + 1 == len(levels) else (levels[best] + levels[best + 1]) / 2)


class _Curve:
    """Documents by falling score, equal scores together."""

    def __init__(self, scores: np.ndarray, good: np.ndarray) -> None:
        self.order = np.argsort(-scores, kind="stable")
        ordered = scores[self.order]
        self.ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
        self.good = good[self.order]

    def totals(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Documents, and good ones, with each of the different scores or a higher one."""
        ordered = weights[self.order]
        return np.cumsum(ordered)[self.ends], np.cumsum(ordered * self.good)[self.ends]

    def average_precision(self, weights: np.ndarray) -> float:
        """Mean precision at each good document."""
        taken, right = self.totals(weights)
        precision = right / np.maximum(taken, 1)
        return float((precision * np.diff(right, prepend=0)).sum() / right[-1])

    def roc_auc(self, weights: np.ndarray) -> float:
        """Chance that a good document has the higher score; half of it for equal ones."""
        taken, right = self.totals(weights)
        wrong = taken - right
        steps = np.diff(wrong, prepend=0)
        before = np.append(0, right[:-1])
        return float((steps * (right + before) / 2).sum() / (right[-1] * wrong[-1]))


def evaluate(scored: Scored, seed: int) -> dict[str, Any]:
    """Figures with intervals, reliability bins and the curve of precision and recall.

    Parameters
    ----------
    scored
        Held-out scores of d documents.
    seed
        Of the bootstrap.

    Returns
    -------
    dict
        `f1`, `average_precision`, `roc_auc`, `brier`, `calibration_error` (expected calibration error over `BINS` bins
        of equal width), each a value and its interval; `reliability`; `precision_recall`.
    """
    curve = _Curve(scored.margins, scored.good)
    ones = np.ones(len(scored.good))
    values = _figures(scored, curve, ones)
    random = np.random.default_rng(seed)
    drawn = []
    for _ in range(RESAMPLES):
        weights = np.bincount(random.integers(0, len(ones), len(ones)), minlength=len(ones)).astype(float)
        if 0 < weights[scored.good].sum() < len(ones):
            drawn.append(_figures(scored, curve, weights))
    found: dict[str, Any] = {
        name: {"value": value, "interval": _interval(name, value, [one[name] for one in drawn])}
        for name, value in values.items()
    }
    taken, right = curve.totals(ones)
    points = np.unique(np.linspace(0, len(taken) - 1, 200).astype(int))
    found["reliability"] = _reliability(scored)
    found["precision_recall"] = {
        "precision": (right / taken)[points].tolist(),
        "recall": (right / right[-1])[points].tolist(),
    }
    return found


def _interval(name: str, value: float, drawn: list[float]) -> list[float]:
    """Low and high end; that of the calibration error moved back by what drawing adds to it."""
    tail = (100 - LEVEL) / 2
    bias = float(np.mean(drawn)) - value if name == "calibration_error" else 0.0
    low, high = np.percentile(drawn, [tail, 100 - tail]) - bias
    return [max(float(low), 0.0), float(high)]


def _figures(scored: Scored, curve: _Curve, weights: np.ndarray) -> dict[str, float]:
    right = (weights * (scored.good & scored.chosen)).sum()
    n_good, n_chosen = (weights * scored.good).sum(), (weights * scored.chosen).sum()
    return {
        "f1": float(2 * right / (n_good + n_chosen)),
        "average_precision": curve.average_precision(weights),
        "roc_auc": curve.roc_auc(weights),
        "brier": float((weights * (scored.probabilities - scored.good) ** 2).sum() / weights.sum()),
        "calibration_error": _calibration_error(scored, weights),
    }


def _bins(probabilities: np.ndarray) -> np.ndarray:
    return np.minimum((probabilities * BINS).astype(int), BINS - 1)


def _calibration_error(scored: Scored, weights: np.ndarray) -> float:
    gaps = np.bincount(_bins(scored.probabilities), weights * (scored.probabilities - scored.good), BINS)
    return float(np.abs(gaps).sum() / weights.sum())


def _reliability(scored: Scored) -> list[dict[str, float]]:
    """Of each bin that is not empty: documents, mean probability, share of good ones."""
    number = _bins(scored.probabilities)
    return [
        {
            "documents": int((number == one).sum()),
            "probability": float(scored.probabilities[number == one].mean()),
            "good": float(scored.good[number == one].mean()),
        }
        for one in np.unique(number)
    ]
