"""Interpolated modified Kneser-Ney smoothing: n-grams of a text and their probabilities.

A text is a stream of word numbers in which each sentence stands between `BEGIN` and `END`; no n-gram reaches beyond its
sentence. Numbers of words begin at `WORDS`.

Source: Chen and Goodman 1998, "An Empirical Study of Smoothing Techniques for Language Modeling", equations 21 and 26,
with the conventions of KenLM's `lmplz` (Heafield et al. 2013): n-grams that begin a sentence have their own count at
every order; `BEGIN` is never predicted; unigrams are interpolated with the uniform distribution over all words,
`UNKNOWN` and `END` among them.

Dimensions: tokens t, n-grams g (of one order), words v.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.arrays import read_only

UNKNOWN, BEGIN, END = range(3)
WORDS = 3
NEVER = -99.0  # log10 of the probability of what is never predicted, as ARPA files have it
FALLBACK = (0.5, 1.0, 1.5)  # discounts where a text is too small to estimate them: lmplz's


class Counts(NamedTuple):
    """The different n-grams of one order, sorted by their words.

    An n-gram is its first n - 1 words, a row among the n-grams of the order below, and its last word.
    """

    prefix: NDArray[np.uint32]  # [g], zeros for unigrams
    last: NDArray[np.uint32]  # [g]
    suffix: NDArray[np.uint32]  # [g], row of its last n - 1 words; zeros for unigrams
    occurrences: NDArray[np.int64]  # [g]


class Order(NamedTuple):
    """The n-grams of one order with their logarithms to base 10."""

    prefix: NDArray[np.uint32]  # [g]
    last: NDArray[np.uint32]  # [g]
    log_probs: NDArray[np.float32]  # [g], of the last word behind the others
    backoffs: NDArray[np.float32]  # [g], weight of what follows the n-gram unseen; 0 of the highest order


def count_ngrams(tokens: NDArray[np.uint32], n_words: int, longest: int) -> list[Counts]:
    """The n-grams of each order from 1 to `longest`.

    Parameters
    ----------
    tokens : uint32[t]
        Word numbers, each sentence between `BEGIN` and `END`.
    n_words : int
        v, above every number.
    longest : int
        Highest order.

    Returns
    -------
    list of Counts
        All v words are unigrams, whether they occur or not.

    Raises
    ------
    ValueError
        When a number is not below `n_words`.
    """
    tokens = read_only(tokens, np.uint32)
    if len(tokens) and tokens.max() >= n_words:
        raise ValueError(f"word number {tokens.max()} is not below {n_words}")
    none = np.zeros(n_words, np.uint32)
    words = np.arange(n_words, dtype=np.uint32)
    found = [Counts(none, words, none, np.bincount(tokens, minlength=n_words))]
    starts, rows = np.arange(len(tokens)), tokens  # where n-grams begin, and which they are
    for n in range(2, longest + 1):
        row_at = np.zeros(len(tokens), np.uint32)
        row_at[starts] = rows
        goes_on = tokens[starts + n - 2] != END
        starts, prefixes = starts[goes_on], rows[goes_on]
        keys = prefixes.astype(np.uint64) << np.uint64(32) | tokens[starts + n - 1]
        different, first, inverse, occurrences = np.unique(
            keys, return_index=True, return_inverse=True, return_counts=True
        )
        rows = inverse.astype(np.uint32)
        suffix = row_at[starts[first] + 1]
        prefix = (different >> np.uint64(32)).astype(np.uint32)
        found.append(Counts(prefix, different.astype(np.uint32), suffix, occurrences))
    return found


def smooth(counts: list[Counts], n_rare: int = 1) -> list[Order]:
    """Probabilities and back-off weights of all n-grams.

    Parameters
    ----------
    counts : list of Counts
        From `count_ngrams`, at least two orders.
    n_rare : int
        Different words of the text that are `UNKNOWN` in it: each has an equal share of its probability. Without that,
        a text of nothing but unknown words would be a likely one.

    Returns
    -------
    list of Order
        As many, the same rows.
    """
    adjusted = adjusted_counts(counts)
    words = counts[0]
    amounts = discounts(adjusted[0])[np.minimum(adjusted[0], 3)]
    total = int(adjusted[0].sum())
    uniform = 1.0 / (len(words.last) - 1)  # without BEGIN
    weight = amounts.sum() / total if total else 1.0
    all_probs, weights = [(adjusted[0] - amounts) / max(total, 1) + weight * uniform], []
    for below, here, numbers in zip(counts, counts[1:], adjusted[1:], strict=False):
        amounts = discounts(numbers)[np.minimum(numbers, 3)]
        totals = np.bincount(here.prefix, numbers, len(below.last))
        held_back = np.bincount(here.prefix, amounts, len(below.last))
        weight = np.divide(held_back, totals, out=np.ones(len(totals)), where=totals > 0)
        seen = (numbers - amounts) / totals[here.prefix]
        all_probs.append(seen + weight[here.prefix] * all_probs[-1][here.suffix])
        weights.append(weight)
    weights.append(np.ones(len(counts[-1].last)))
    found = [
        Order(one.prefix, one.last, _log10(probs), _log10(weight))
        for one, probs, weight in zip(counts, all_probs, weights, strict=True)
    ]
    found[0].log_probs[BEGIN] = NEVER
    for order in found:
        order.log_probs[order.last == UNKNOWN] -= np.float32(np.log10(max(n_rare, 1)))
    return found


def adjusted_counts(counts: list[Counts]) -> list[NDArray[np.int64]]:
    """int64[g] of each order: words that stand before an n-gram; at the begin and of the highest order, occurrences."""
    adjusted = []
    begins = counts[0].last == BEGIN
    for here, above in pairwise(counts):
        begins = begins if here is counts[0] else begins[here.prefix]
        preceded = np.bincount(above.suffix, minlength=len(here.last))
        adjusted.append(np.where(begins, here.occurrences, preceded))
    adjusted.append(counts[-1].occurrences)
    adjusted[0][BEGIN] = 0
    return adjusted


def discounts(adjusted: NDArray[np.int64]) -> NDArray[np.float64]:
    """float64[4], what is taken from adjusted counts of 0, 1, 2, and 3 or more; `FALLBACK` where that has no sense."""
    n = np.bincount(adjusted[adjusted < 5], minlength=5).astype(np.float64)
    fallback = np.array([0.0, *FALLBACK])
    if not n[1:4].all():
        return fallback
    share = n[1] / (n[1] + 2 * n[2])
    k = np.arange(1.0, 4.0)
    amounts = k - (k + 1) * share * n[2:5] / n[1:4]
    if (amounts < 0).any() or (amounts > k).any():
        return fallback
    return np.append(0.0, amounts)


def _log10(values: NDArray[np.float64]) -> NDArray[np.float32]:
    with np.errstate(divide="ignore"):  # a discount of 0 leaves nothing to what is unseen
        return np.maximum(np.log10(values), NEVER).astype(np.float32)
