"""The sequences of a stage, drawn from the shards of the groups as the schedule says."""

from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from jobs.loader.cache import LocalCache
from jobs.loader.stream import TokenStream
from jobs.loader.windows import Windows
from jobs.mixture.allotment import Plan, StagePlan
from jobs.mixture.epochs import Epochs, seed_of
from jobs.mixture.groups import Groups
from jobs.mixture.schedule import Schedule

MOST_OPEN = 192  # files, of all groups together; a process may often have 256


class Mixed:
    """A stage of a mixture; see `jobs.loader.batches.Sequences`.

    Sequence n is drawn from the group that the schedule names, and is that group's next window in its order. An epoch
    is the whole stage; another one goes on with the draws.

    Parameters
    ----------
    stage : StagePlan
    streams : mapping of int to TokenStream
        By number, of each of the stage's groups that gives a sequence.
    seed : int
        Of the orders in which groups are drawn.
    apart : float
        See `Epochs`.
    """

    def __init__(self, stage: StagePlan, streams: Mapping[int, TokenStream], seed: int, apart: float) -> None:
        self.stage, self.T = stage, stage.length
        self.schedule = Schedule([group.sequences for group in stage.groups])
        self.epochs = {
            g: Epochs(
                group.windows,
                f"{seed}\0{group.name}\0{stage.length}\0{stage.min_document_tokens}",
                apart,
                stage.shuffle,
            )
            for g, group in enumerate(stage.groups)
            if group.sequences
        }
        self._windows = {g: Windows(stream, self.T) for g, stream in streams.items()}
        self._dtype = next(iter(streams.values())).dtype
        self._starts = [0, *accumulate(group.windows for group in stage.groups)]
        self.seed: int | None = seed_of(stage, seed, apart)

    def __len__(self) -> int:
        return self.schedule.n

    def places(self, epoch: int, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Windows of the epoch's sequences of these numbers, int64[n], counted through all groups."""
        group, draw = self.schedule(numbers)
        places = np.empty_like(draw)
        for g in np.unique(group).tolist():
            chosen, plan = np.flatnonzero(group == g), self.stage.groups[g]
            draws = plan.first + epoch * plan.sequences + draw[chosen]
            places[chosen] = self._starts[g] + self.epochs[g](draws)
        return places

    def group_of(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Numbers of the groups, int64[n], that windows at these places are of."""
        return np.searchsorted(self._starts, places, side="right") - 1

    def read(self, places: list[int]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Inputs and targets of these windows, int64[n, T] each; those of a group are read together."""
        of_group: dict[int, list[int]] = {}
        for row, place in enumerate(places):
            of_group.setdefault(bisect_right(self._starts, place) - 1, []).append(row)
        rows = np.empty((len(places), self.T + 1), self._dtype)
        for g, chosen in of_group.items():
            rows[chosen] = self._windows[g].rows([places[row] - self._starts[g] for row in chosen])
        return rows[:, :-1].astype(np.int64), rows[:, 1:].astype(np.int64)


def stages(plan: Plan, groups: Groups, cache: LocalCache | None = None) -> list[Mixed]:
    """The sequences of each stage; stages that draw from the same documents share their files."""
    pools = {
        (group.name, stage.min_document_tokens)
        for stage in plan.stages
        for group in stage.groups
        if group.sequences
    }
    streams = {pool: groups.stream(*pool, cache, MOST_OPEN // len(pools)) for pool in sorted(pools)}
    return [
        Mixed(
            stage,
            {
                g: streams[group.name, stage.min_document_tokens]
                for g, group in enumerate(stage.groups)
                if group.sequences
            },
            plan.seed,
            plan.apart,
        )
        for stage in plan.stages
    ]
