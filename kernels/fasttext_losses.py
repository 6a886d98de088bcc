"""How likely a fastText model finds each label, from a document's mean row.

Source: fastText 0.9.2, `HierarchicalSoftmaxLoss`, `SoftmaxLoss` and `OneVsAllLoss` (with which negative sampling
predicts, too). Logarithms, thresholds and ties are theirs: a probability is the exponential of a logarithm of something
1e-5 larger.

Dimensions: labels l, columns c.
"""

import numpy as np

from kernels.accelerate import inlined, kernel
from kernels.fasttext_model import HIERARCHICAL, SIGMOID_MOST, SIGMOID_SIZE, SOFTMAX

_LITTLE = 1e-5  # is added before a logarithm
_ONE = np.float32(1)


@kernel
def best_label(output, scratch):
    """The most likely label, of equal ones as fastText, and the logarithm of its probability."""
    if output.loss == HIERARCHICAL:
        return _best_leaf(output, scratch)
    _fill_scores(output, scratch)
    best, most = -1, np.float32(-np.inf)
    for label in range(len(output.weights)):
        logarithm = _log(scratch.scores[label])
        if logarithm >= most:
            best, most = label, logarithm
    return best, most


@kernel
def logarithm_of(label, output, scratch):
    """The logarithm of one label's probability."""
    if output.loss == HIERARCHICAL:
        return _logarithm_of_leaf(label, output, scratch)
    _fill_scores(output, scratch)
    return _log(scratch.scores[label])


@kernel
def _fill_scores(output, scratch):
    """Each label's probability."""
    scores, n_labels = scratch.scores, len(output.weights)
    for label in range(n_labels):
        scores[label] = _dot(output.weights, label, scratch.total)
    if output.loss != SOFTMAX:
        for label in range(n_labels):
            scores[label] = _sigmoid(scores[label], output.sigmoid)
        return
    most, total = scores[:n_labels].max(), np.float32(0)
    for label in range(n_labels):
        scores[label] = np.exp(np.float64(scores[label] - most))
        total += scores[label]
    for label in range(n_labels):
        scores[label] /= total


@kernel
def _best_leaf(output, scratch):
    """Depth first, the left child first; a node that is less likely than the best leaf is passed over."""
    nodes, scores, n_labels = scratch.nodes, scratch.scores, len(output.weights)
    best, most = -1, _log(np.float32(0))  # fastText's least
    nodes[0], scores[0], n_open = len(output.left) - 1, 0, 1
    while n_open:
        n_open -= 1
        node, score = nodes[n_open], scores[n_open]
        if score < most:
            continue
        if node < n_labels:
            best, most = node, score
            continue
        right = _right_share(output, node, scratch.total)
        nodes[n_open], scores[n_open] = output.right[node], score + _log(right)
        nodes[n_open + 1] = output.left[node]
        scores[n_open + 1] = score + _log(np.float32(1.0 - np.float64(right)))
        n_open += 2
    return best, most


@kernel
def _logarithm_of_leaf(label, output, scratch):
    """From the root down; less than fastText's least counts as impossible."""
    path, n_steps, node = scratch.nodes, 0, label
    while node >= 0:
        path[n_steps], node, n_steps = node, output.parents[node], n_steps + 1
    score = np.float32(0)
    for i in range(n_steps - 2, -1, -1):
        parent, child = path[i + 1], path[i]
        right = _right_share(output, parent, scratch.total)
        share = right if child == output.right[parent] else np.float32(1.0 - np.float64(right))
        score += _log(share)
        if score < _log(np.float32(0)):
            return np.float32(-np.inf)
    return score


@inlined
def _right_share(output, node, hidden):
    """How likely the right child of a node is."""
    exponential = np.exp(-_dot(output.weights, node - len(output.weights), hidden))
    return np.float32(1.0 / np.float64(_ONE + exponential))


@inlined
def _dot(weights, row, hidden):
    total = np.float32(0)
    for column in range(len(hidden)):
        total += weights[row, column] * hidden[column]
    return total


@inlined
def _log(x):
    return np.float32(np.log(np.float64(x) + _LITTLE))


@inlined
def _sigmoid(x, table):
    if x < -SIGMOID_MOST:
        return np.float32(0)
    if x > SIGMOID_MOST:
        return _ONE
    return table[np.int64((x + np.float32(SIGMOID_MOST)) * np.float32(SIGMOID_SIZE / SIGMOID_MOST / 2))]
