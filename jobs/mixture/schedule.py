"""Which group gives the n-th sequence of a stage: an even mixture at every scale, in constant memory.

The groups are the leaves of a binary tree, joined from the smallest counts up as in Huffman's code. Of the first r
sequences that come to an inner node of C, the left child of c has round(r · c / C): Bresenham's line. So each child's
count is within 1/2 of its share of the parent's, and it is exact when all are drawn. Where a sequence goes, and how
many its group had before, follows from its number alone, by two divisions for each level.

A group's deviation from its share among the first n sequences is at most the sum of 1/2 for each level, each times the
shares of the levels below: seldom more than 1, and 2 over any window of sequences.

Source: J. Bresenham, Algorithm for computer control of a digital plotter, 1965; the problem with many groups is the
chairman assignment problem, R. Tijdeman 1980, for which less than 1 is possible, but not by a formula for each n.

Dimensions: groups g, sequences s.
"""

import heapq
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

MOST = 2**32 - 1  # sequences; a product of two counts is below 2**64


class Schedule:
    """The order in which groups give their sequences; at least one group gives any.

    Parameters
    ----------
    counts : sequence of int, length g
        Sequences that each group gives; 0 is one that gives none.

    Raises
    ------
    ValueError
        There is no sequence, or more than `MOST`.
    """

    def __init__(self, counts: Sequence[int]) -> None:
        self.counts = tuple(counts)
        self.n = sum(self.counts)
        if not 1 <= self.n <= MOST or min(self.counts) < 0:
            raise ValueError(f"a schedule has from 1 to {MOST:,} sequences, not {self.n:,}")
        group = [g for g, count in enumerate(self.counts) if count]
        count = [self.counts[g] for g in group]
        left, right = [-1] * len(group), [-1] * len(group)
        waiting = [(count[node], node) for node in range(len(group))]
        heapq.heapify(waiting)
        while len(waiting) > 1:
            (fewer, smaller), (more, larger) = heapq.heappop(waiting), heapq.heappop(waiting)
            heapq.heappush(waiting, (fewer + more, len(count)))
            group.append(-1)
            count.append(fewer + more)
            left.append(larger)
            right.append(smaller)
        self._root = len(count) - 1
        self._group, self._left, self._right = (np.array(column, np.int64) for column in (group, left, right))
        self._count = np.array(count, np.uint64)

    def __call__(self, numbers: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Who gives the sequences of these numbers, int64[s] from 0 to n - 1.

        Returns
        -------
        group, draw : int64[s]
            The group, and how many sequences it gave before.
        """
        rank = numbers.astype(np.uint64)
        node = np.full(len(numbers), self._root)
        while len(inner := np.flatnonzero(self._group[node] < 0)):
            at, r = node[inner], rank[inner]
            left = self._left[at]
            before = self._of_left(r, at, left)
            goes_left = self._of_left(r + np.uint64(1), at, left) > before
            node[inner] = np.where(goes_left, left, self._right[at])
            rank[inner] = np.where(goes_left, before, r - before)
        return self._group[node], rank.astype(np.int64)

    def _of_left(
        self, rank: npt.NDArray[np.uint64], node: npt.NDArray[np.int64], left: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.uint64]:
        """How many of the first `rank` sequences of a node its left child has."""
        whole = self._count[node]
        return (rank * self._count[left] + whole // np.uint64(2)) // whole

    def deviations(self) -> list[float]:
        """For each group, how far its count among the first n sequences is from its share of n, at most, for any n."""
        bound = np.zeros(len(self._count))
        found = [0.0] * len(self.counts)
        for node in range(self._root, -1, -1):  # parents come behind their children
            if self._group[node] >= 0:
                found[self._group[node]] = float(bound[node])
                continue
            for child in (self._left[node], self._right[node]):
                bound[child] = 0.5 + bound[node] * float(self._count[child]) / float(self._count[node])
        return found
