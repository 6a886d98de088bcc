"""Connected components as star forests, which can be merged in any order.

A star forest has one row for each node, (node, root), where the root is the smallest node of its
component. Its rows are edges of the same components, so that forests are merged by taking the forest
of their rows together. The result is the same whatever the order and the grouping.

Source: union-find with path halving, Tarjan and van Leeuwen, "Worst-case analysis of set union
algorithms" (1984); linked by smallest index rather than by rank, for the root to be the smallest.

Dimensions: edges e, nodes n.
"""

import numpy as np
from numpy.typing import NDArray

from kernels.accelerate import kernel
from kernels.arrays import read_only


def star_forest(edges: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Star forest of a graph.

    Parameters
    ----------
    edges : uint64[e, 2]
        Pairs of nodes, or the rows of forests to be merged. Order, direction and repetition do not
        matter; an edge from a node to itself makes it known.

    Returns
    -------
    uint64[n, 2]
        (node, root) for each node that occurs in an edge, sorted by node.

    Raises
    ------
    ValueError
        When `edges` are not pairs of uint64.
    """
    edges = read_only(edges, np.uint64, ndim=2)
    if edges.shape[1] != 2:
        raise ValueError(f"an edge has two nodes, not {edges.shape[1]}")
    nodes, indices = np.unique(edges, return_inverse=True)
    roots = _roots(read_only(indices.reshape(edges.shape), np.int64, ndim=2), len(nodes))
    return np.stack([nodes, nodes[roots]], axis=1)


@kernel
def _roots(edges, n_nodes):
    """Index of the smallest node of each node's component, for nodes 0 to `n_nodes` - 1."""
    parents = np.arange(n_nodes)
    for edge in range(len(edges)):
        a, b = _find(parents, edges[edge, 0]), _find(parents, edges[edge, 1])
        parents[max(a, b)] = min(a, b)
    for node in range(n_nodes):  # a parent comes before its children, so it knows its root already
        parents[node] = parents[parents[node]]
    return parents


@kernel
def _find(parents, node):
    """Root of a node; each second node on the way is hung under its grandparent (path halving)."""
    while parents[node] != node:
        parents[node] = parents[parents[node]]
        node = parents[node]
    return node
