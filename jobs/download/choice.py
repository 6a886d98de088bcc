"""Which row groups a sample takes: evenly from the whole data set, never from its beginning."""

import itertools
from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict


class Choice(BaseModel):
    """How row groups are chosen.

    Attributes
    ----------
    every, offset
        Of each file the row groups offset, offset + every, …
    documents, n_bytes
        Instead: evenly spaced over the whole data set, the fewest that hold at least this much.
    """

    model_config = ConfigDict(frozen=True)

    every: int | None = None
    offset: int = 0
    documents: int | None = None
    n_bytes: int | None = None

    @property
    def unit(self) -> Literal["documents", "n_bytes"]:
        """What a target counts."""
        return "n_bytes" if self.documents is None else "documents"

    @property
    def target(self) -> int | None:
        """How much is wanted, where that was said."""
        return self.n_bytes if self.documents is None else self.documents

    def __str__(self) -> str:
        if self.every:
            return f"--every {self.every} --offset {self.offset}"
        return f"--documents {self.documents}" if self.n_bytes is None else f"--bytes {self.n_bytes}"


def every(counts: Sequence[int], n: int, offset: int) -> list[list[int]]:
    """Row groups offset, offset + n, … of each file of so many row groups."""
    return [list(range(offset, count, n)) for count in counts]


def spread(weights: Sequence[np.ndarray], target: int) -> list[list[int]]:
    """The fewest evenly spaced row groups, over all files as one sequence, that weigh `target` together.

    Parameters
    ----------
    weights
        int64[row groups] of each file: documents or bytes.
    target
        At least 1; where all weigh less, all are taken.
    """
    lengths = [len(one) for one in weights]
    weight = np.concatenate(weights)
    total, groups = int(weight.sum()), len(weight)
    count = min(groups, max(1, target * groups // max(1, total)))
    taken = _evenly(groups, count)
    while count < groups and (missing := target - int(weight[taken].sum())) > 0:
        count = min(groups, count + max(1, missing * groups // total // 2))
        taken = _evenly(groups, count)
    while count > 1 and int(weight[fewer := _evenly(groups, count - 1)].sum()) >= target:
        count, taken = count - 1, fewer
    ends = np.cumsum([0, *lengths])
    return [
        (taken[(taken >= start) & (taken < stop)] - start).tolist()
        for start, stop in itertools.pairwise(ends)
    ]


def _evenly(groups: int, count: int) -> np.ndarray:
    """int64[count], `count` numbers below `groups`, each in the middle of its share."""
    return (2 * np.arange(count, dtype=np.int64) + 1) * groups // (2 * count)
