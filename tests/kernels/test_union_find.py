import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.union_find import star_forest
from tests import naive
from tests.kernels.strategies import checked

NODES = st.sampled_from([*range(12), 2**63, 2**64 - 2, 2**64 - 1])
graphs = st.lists(st.tuples(NODES, NODES), max_size=30)


def as_edges(pairs):
    return np.array(pairs, np.uint64).reshape(-1, 2)


def path(n):
    return [(i, i + 1) for i in range(n)]


def shapes():
    n = 300
    shuffled = np.random.default_rng(0).permutation(n + 1)
    yield "path", path(n)
    yield "path backwards", [(b, a) for a, b in reversed(path(n))]
    yield "path in no order", [(int(shuffled[a]), int(shuffled[b])) for a, b in path(n)]
    yield "star around the smallest", [(0, i) for i in range(n)]
    yield "star around the largest", [(n, i) for i in range(n)]
    yield "clique", [(i, j) for i in range(40) for j in range(i)]
    yield "pairs", [(2 * i, 2 * i + 1) for i in range(n)]


@checked
@given(graphs)
def test_forest_is_the_naive_one(graph):
    forest = star_forest(as_edges(graph))
    assert forest.dtype == np.uint64
    assert [tuple(row) for row in forest.tolist()] == naive.star_forest(graph)


@pytest.mark.parametrize("graph", [pytest.param(graph, id=name) for name, graph in shapes()])
def test_shapes(graph):
    assert [tuple(row) for row in star_forest(as_edges(graph)).tolist()] == naive.star_forest(graph)


@checked
@given(graphs, st.data())
def test_split_in_any_way_and_merged_in_any_order(graph, data):
    whole = star_forest(as_edges(graph))
    owners = data.draw(st.lists(st.integers(0, 4), min_size=len(graph), max_size=len(graph)))
    parts = [
        star_forest(as_edges([edge for edge, owner in zip(graph, owners, strict=True) if owner == part]))
        for part in range(5)
    ]
    while len(parts) > 1:
        a = parts.pop(data.draw(st.integers(0, len(parts) - 1)))
        b = parts.pop(data.draw(st.integers(0, len(parts) - 1)))
        parts.append(star_forest(np.concatenate([a, b])))
    np.testing.assert_array_equal(parts[0], whole)


def test_long_path_takes_no_stack():
    n = 200_000
    order = np.random.default_rng(0).permutation(n)
    forest = star_forest(np.stack([order[:-1], order[1:]], axis=1).astype(np.uint64))
    assert len(forest) == n
    assert (forest[:, 1] == 0).all()


def test_pairs_only():
    with pytest.raises(ValueError, match="two nodes"):
        star_forest(np.zeros((2, 3), np.uint64))
    with pytest.raises(ValueError, match="uint64"):
        star_forest(np.zeros((2, 2), np.int64))
