"""Logistic and ridge regression on sparse documents, and the score of a document straight from its bytes.

A document is the vector of its features' values, scaled to length 1. Fitted is the mean loss and
``l2 / 2 * |weights|²``, the intercept free, by a Newton method whose steps conjugate gradients solve (Lin, Weng and
Keerthi 2008, "Trust Region Newton Method for Large-Scale Logistic Regression", here with a line search). Everything is
added up in one fixed order, so the same input gives the same bits whatever the threads.

Dimensions: documents d, features f (of all documents), columns c, buckets b.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.accelerate import kernel
from kernels.arrays import check_offsets, read_only
from kernels.ngram_features import Grams, check_grams, new_buffers, next_buckets
from kernels.words import INVALID, new_cursor, unicode_tables

LOGISTIC, SQUARED = range(2)
NEWTON_STEPS, CG_STEPS, HALVINGS = 60, 250, 30
GRADIENT_TOLERANCE = 1e-4  # of the gradient's first length
CG_TOLERANCE = 0.1  # of the gradient's length
SUFFICIENT = 1e-4  # share of the decrease that the slope promises


class Sparse(NamedTuple):
    """Documents as rows."""

    offsets: NDArray[np.int64]  # [d + 1]
    columns: NDArray[np.uint32]  # [f], ascending within a row
    values: NDArray[np.float64]  # [f]


def unit_values(counts: NDArray[np.uint32], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """The value of each feature: 1 + ln(count), then each document scaled to length 1.

    Parameters
    ----------
    counts : uint32[f]
        Occurrences, at least 1.
    offsets : int64[d + 1]
        Document i's features are ``[offsets[i] : offsets[i + 1]]``.

    Returns
    -------
    float64[f]
    """
    counts, offsets = read_only(counts, np.uint32), read_only(offsets, np.int64)
    check_offsets(offsets, len(counts))
    return _unit_values(counts, offsets)


def fit(
    documents: Sparse, targets: NDArray[np.float64], l2: float, loss: int
) -> tuple[NDArray[np.float64], float]:
    """Weights and intercept of least mean loss and penalty.

    Parameters
    ----------
    documents : Sparse
        d rows.
    targets : float64[d]
        0 or 1 for `LOGISTIC`, any number for `SQUARED`.
    l2 : float
        Strength of the penalty, above 0.
    loss : int
        `LOGISTIC` or `SQUARED` (half the squared error).

    Returns
    -------
    weights : float64[c]
        Of the columns up to the highest.
    intercept : float

    Raises
    ------
    ValueError
        When the arrays do not fit together, or `l2` is not above 0.
    """
    offsets, columns = read_only(documents.offsets, np.int64), read_only(documents.columns, np.uint32)
    values, targets = read_only(documents.values, np.float64), read_only(targets, np.float64)
    check_offsets(offsets, len(columns))
    if len(values) != len(columns) or len(targets) != len(offsets) - 1:
        raise ValueError(
            f"{len(columns)} columns, {len(values)} values; {len(offsets) - 1} rows, {len(targets)} targets"
        )
    if not l2 > 0:
        raise ValueError(f"l2 must be above 0, not {l2}")
    n_columns = int(columns.max(initial=0)) + 1
    solution = _fit(Sparse(offsets, columns, values), targets, l2, loss, n_columns)
    return solution[:-1], float(solution[-1])


def decide(documents: Sparse, weights: NDArray[np.float64], intercept: float) -> NDArray[np.float64]:
    """float64[d], weights · document + intercept of each; columns beyond the weights count nothing."""
    offsets, columns = read_only(documents.offsets, np.int64), read_only(documents.columns, np.uint32)
    check_offsets(offsets, len(columns))
    rows = Sparse(offsets, columns, read_only(documents.values, np.float64))
    return _margins(rows, np.append(read_only(weights, np.float64), intercept))


def score_documents(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    grams: Grams,
    weights: NDArray[np.float32],
    intercept: float,
) -> NDArray[np.float64]:
    """Score of each document, weights · document + intercept, from its text.

    Parameters
    ----------
    data : uint8[n]
        The documents' UTF-8.
    offsets : int64[d + 1]
        Document i is ``data[offsets[i] : offsets[i + 1]]``.
    grams : Grams
        The features.
    weights : float32[b]
        One for each bucket.
    intercept : float
        Also the score of a document without words, or that is not valid UTF-8.

    Returns
    -------
    float64[d]

    Raises
    ------
    ValueError
        When the offsets do not lie within `data`, or there are not as many weights as buckets.
    """
    data, offsets = read_only(data, np.uint8), read_only(offsets, np.int64)
    weights = read_only(weights, np.float32)
    check_offsets(offsets, len(data))
    check_grams(grams)
    if len(weights) != 1 << grams.bits:
        raise ValueError(f"{len(weights)} weights for {1 << grams.bits} buckets")
    buffers = new_buffers(offsets, grams)
    return _score_documents(data, offsets, grams, unicode_tables(), buffers, weights, intercept)


# ---------------------------------------------------------------- values and scores


@kernel
def _unit_values(counts, offsets):
    values = np.empty(len(counts))
    for document in range(len(offsets) - 1):
        first, end = offsets[document], offsets[document + 1]
        length = 0.0
        for i in range(first, end):
            values[i] = 1.0 + np.log(counts[i])
            length += values[i] * values[i]
        for i in range(first, end):
            values[i] /= np.sqrt(length)
    return values


@kernel
def _score_documents(data, offsets, grams, tables, buffers, weights, intercept):
    scores = np.empty(len(offsets) - 1)
    counts = np.zeros(len(weights), np.uint32)
    met = np.empty(
        len(weights) + 1, np.uint32
    )  # the document's buckets, by their first n-grams; room for one behind
    logarithms = np.log(np.arange(1, 257).astype(np.float64))
    for document in range(len(offsets) - 1):
        n_met = _count_buckets(
            data, offsets[document], offsets[document + 1], grams, tables, buffers, counts, met
        )
        total = squares = 0.0
        for i in range(n_met):
            count = counts[met[i]]
            value = 1.0 + (logarithms[count - 1] if count <= 256 else np.log(count))
            total += value * weights[met[i]]
            squares += value * value
            counts[met[i]] = 0
        scores[document] = intercept + (total / np.sqrt(squares) if squares > 0 else 0.0)
    return scores


@kernel
def _count_buckets(data, start, stop, grams, tables, buffers, counts, met):
    """Occurrences of a document's buckets in `counts`, which are in `met`; how many, none if it is not UTF-8."""
    n_met, cursor = 0, new_cursor(start)
    while INVALID < cursor.position < stop:
        cursor, n_buckets = next_buckets(data, stop, grams, tables, cursor, buffers)
        for i in range(n_buckets):
            bucket = buffers.buckets[i]
            met[n_met] = bucket  # stays only if it is new
            n_met += counts[bucket] == 0
            counts[bucket] += np.uint32(1)
    if cursor.position == INVALID:
        for i in range(n_met):
            counts[met[i]] = 0
        return 0
    return n_met


# ---------------------------------------------------------------- fitting


@kernel
def _fit(documents, targets, l2, loss, n_columns):
    """Weights, and the intercept behind them."""
    solution = np.zeros(n_columns + 1)
    if loss == SQUARED:  # a mean far from 0 would be all that the first gradient says, and so the tolerance
        solution[n_columns] = targets.mean()
    margins = _margins(documents, solution)
    value = _objective(margins, targets, solution, l2, loss)
    first_length = -1.0
    for _ in range(NEWTON_STEPS):
        residuals, curvatures = _derivatives(margins, targets, loss)
        gradient = _transposed(documents, residuals, n_columns)
        _penalise(gradient, solution, l2)
        length = np.sqrt(_dot(gradient, gradient))
        first_length = length if first_length < 0 else first_length
        if length <= GRADIENT_TOLERANCE * first_length:
            break
        step = _newton_step(documents, curvatures, gradient, length, l2)
        slope, taken, decreased = _dot(gradient, step), 1.0, False
        for _ in range(HALVINGS):
            trial = solution + taken * step
            trial_margins = _margins(documents, trial)
            trial_value = _objective(trial_margins, targets, trial, l2, loss)
            decreased = trial_value <= value + SUFFICIENT * taken * slope
            if decreased:
                break
            taken /= 2
        if not decreased:
            break
        solution, margins, value = trial, trial_margins, trial_value
    return solution


@kernel
def _newton_step(documents, curvatures, gradient, length, l2):
    """Conjugate gradients on Hessian · step = -gradient, to a residual of `CG_TOLERANCE` of the gradient."""
    step = np.zeros(len(gradient))
    residual = -gradient
    direction = residual.copy()
    squared = length * length
    for _ in range(CG_STEPS):
        product = _hessian_product(documents, curvatures, direction, l2)
        bend = _dot(direction, product)
        if bend <= 0:
            break
        taken = squared / bend
        for i in range(len(step)):
            step[i] += taken * direction[i]
            residual[i] -= taken * product[i]
        before, squared = squared, _dot(residual, residual)
        if np.sqrt(squared) <= CG_TOLERANCE * length:
            break
        for i in range(len(step)):
            direction[i] = residual[i] + squared / before * direction[i]
    return step


@kernel
def _hessian_product(documents, curvatures, direction, l2):
    product = _transposed(documents, curvatures * _margins(documents, direction), len(direction) - 1)
    _penalise(product, direction, l2)
    return product


@kernel
def _penalise(gradient, solution, l2):
    for column in range(len(solution) - 1):  # the intercept is free
        gradient[column] += l2 * solution[column]


@kernel
def _margins(documents, solution):
    """float64[d]: each row times the weights, and the intercept."""
    offsets, columns, values = documents
    n_columns = len(solution) - 1
    margins = np.empty(len(offsets) - 1)
    for row in range(len(margins)):
        margin = solution[n_columns]
        for i in range(offsets[row], offsets[row + 1]):
            if columns[i] < n_columns:
                margin += values[i] * solution[columns[i]]
        margins[row] = margin
    return margins


@kernel
def _transposed(documents, factors, n_columns):
    """float64[c + 1]: the rows times `factors`, added up; behind them the sum of the factors."""
    offsets, columns, values = documents
    product = np.zeros(n_columns + 1)
    for row in range(len(factors)):
        for i in range(offsets[row], offsets[row + 1]):
            product[columns[i]] += values[i] * factors[row]
        product[n_columns] += factors[row]
    return product


@kernel
def _derivatives(margins, targets, loss):
    """First and second derivative of the mean loss by each margin."""
    residuals, curvatures = np.empty(len(margins)), np.empty(len(margins))
    for row in range(len(margins)):
        if loss == LOGISTIC:
            probability = 1.0 / (1.0 + np.exp(-margins[row]))
            residuals[row] = (probability - targets[row]) / len(margins)
            curvatures[row] = probability * (1.0 - probability) / len(margins)
        else:
            residuals[row] = (margins[row] - targets[row]) / len(margins)
            curvatures[row] = 1.0 / len(margins)
    return residuals, curvatures


@kernel
def _objective(margins, targets, solution, l2, loss):
    total = 0.0
    for row in range(len(margins)):
        margin, target = margins[row], targets[row]
        if loss == LOGISTIC:  # ln(1 + exp(margin)) - target * margin, without overflow
            total += max(margin, 0.0) + np.log1p(np.exp(-abs(margin))) - target * margin
        else:
            total += (margin - target) ** 2 / 2
    weights = solution[:-1]
    return total / len(margins) + l2 / 2 * _dot(weights, weights)


@kernel
def _dot(a, b):
    total = 0.0
    for i in range(len(a)):
        total += a[i] * b[i]
    return total
