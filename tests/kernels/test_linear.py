import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.linear import LOGISTIC, SQUARED, Sparse, decide, fit, score_documents, unit_values
from kernels.ngram_features import Grams
from tests import naive
from tests.kernels.strategies import as_batch, checked, decoded, documents


def sparse(dense):
    rows, columns = np.nonzero(dense)
    offsets = np.append(0, np.cumsum(np.bincount(rows, minlength=len(dense))))
    return Sparse(offsets, columns.astype(np.uint32), dense[rows, columns])


def problem(seed, d=60, c=12):
    random = np.random.default_rng(seed)
    dense = np.where(random.random((d, c)) < 0.4, random.normal(size=(d, c)), 0.0)
    dense[0, c - 1] = 1.0
    return dense, random


@pytest.mark.parametrize("l2", [1e-4, 1e-2, 1.0])
def test_ridge_is_the_solution_of_its_normal_equations(l2):
    dense, random = problem(1)
    targets = dense @ random.normal(size=dense.shape[1]) + 3 + random.normal(size=len(dense))
    inputs = np.column_stack([dense, np.ones(len(dense))])
    penalty = l2 * np.diag([1.0] * dense.shape[1] + [0.0])
    exact = np.linalg.solve(inputs.T @ inputs / len(dense) + penalty, inputs.T @ targets / len(dense))
    weights, intercept = fit(sparse(dense), targets, l2, SQUARED)
    np.testing.assert_allclose(np.append(weights, intercept), exact, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("l2", [1e-4, 1e-2, 1.0])
def test_logistic_regression_ends_where_the_gradient_is_zero(l2):
    dense, random = problem(2)
    targets = (dense @ random.normal(size=dense.shape[1]) + random.normal(size=len(dense)) > 0).astype(float)
    weights, intercept = fit(sparse(dense), targets, l2, LOGISTIC)
    residuals = (1 / (1 + np.exp(-dense @ weights - intercept)) - targets) / len(dense)
    before = (0.5 - targets) / len(dense)
    first = np.linalg.norm(np.append(dense.T @ before, before.sum()))
    assert np.linalg.norm(dense.T @ residuals + l2 * weights) <= 1e-4 * first
    assert abs(residuals.sum()) <= 1e-4 * first


def test_same_data_same_bits():
    dense, random = problem(3, d=300, c=40)
    targets = (random.random(300) < 0.5).astype(float)
    first, second = (fit(sparse(dense), targets, 1e-3, LOGISTIC) for _ in range(2))
    assert first[0].tobytes() == second[0].tobytes()
    assert first[1] == second[1]


def test_one_class_and_rows_without_features_have_an_answer():
    empty = Sparse(np.zeros(5, np.int64), np.empty(0, np.uint32), np.empty(0))
    weights, intercept = fit(empty, np.array([0.0, 1.0, 1.0, 1.0]), 1e-3, LOGISTIC)
    assert intercept == pytest.approx(math.log(3), rel=1e-3)
    assert decide(empty, weights, intercept).tolist() == [intercept] * 4
    weights, intercept = fit(sparse(np.eye(3)), np.ones(3), 1e-3, LOGISTIC)
    assert np.isfinite(weights).all()
    assert intercept > 0


@checked
@given(st.lists(documents, max_size=5), st.integers(1, 3), st.sampled_from([1, 2, 12]), st.integers(0, 2**32))
def test_scores_are_the_naive_ones(batch, longest, bits, seed):
    data, offsets = as_batch(batch)
    weights = np.random.default_rng(seed).normal(size=1 << bits).astype(np.float32)
    found = score_documents(data, offsets, Grams(longest, bits), weights, 0.25)
    for document, score in zip(batch, found, strict=True):
        text = decoded(document)
        features = {} if text is None else naive.ngram_features(text, longest, bits)
        vector = naive.unit_vector(features)
        expected = 0.25 + sum(value * float(weights[bucket]) for bucket, value in vector.items())
        assert score == pytest.approx(expected, abs=1e-9)


def test_many_occurrences_and_a_batch_of_others_do_not_show():
    text = ("the cat " * 5000).encode()
    weights = np.random.default_rng(0).normal(size=1 << 16).astype(np.float32)
    alone = [score_documents(*as_batch([one]), Grams(2, 16), weights, 0.0)[0] for one in (text, b"a b", text)]
    together = score_documents(*as_batch([text, b"a b", b"\xff", text]), Grams(2, 16), weights, 0.0)
    assert together[[0, 1, 3]].tolist() == alone
    vector = naive.unit_vector(naive.ngram_features(text.decode(), 2, 16))
    assert alone[0] == pytest.approx(sum(v * float(weights[b]) for b, v in vector.items()))


def test_unit_values_have_length_one():
    counts, offsets = np.array([1, 3, 2, 7], np.uint32), np.array([0, 2, 2, 4])
    found = unit_values(counts, offsets)
    assert (found[:2] ** 2).sum() == pytest.approx(1)
    assert found[1] / found[0] == pytest.approx(1 + math.log(3))


def test_impossible_arguments_are_refused():
    rows = sparse(np.eye(3))
    with pytest.raises(ValueError, match="targets"):
        fit(rows, np.ones(2), 1.0, LOGISTIC)
    with pytest.raises(ValueError, match="l2"):
        fit(rows, np.ones(3), 0.0, LOGISTIC)
    with pytest.raises(ValueError, match="weights"):
        score_documents(np.zeros(1, np.uint8), np.array([0, 1]), Grams(1, 4), np.zeros(4, np.float32), 0.0)
