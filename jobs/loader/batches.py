"""Batches of numbered sequences, for one of several ranks, and the place in a training run."""

import copy
import itertools
import operator
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from jobs.errors import UserError
from jobs.loader.share import PADDING, START, Position, Share, checked

if TYPE_CHECKING:
    import torch

    from jobs.loader.documents import Documents

    Batch = tuple[torch.Tensor, torch.Tensor]

IGNORED = -100  # a target that PyTorch's cross-entropy leaves out by default
UNSHUFFLED = -1  # the seed in a state of sequences in order
AHEAD = 4096  # sequences whose places are computed at once; NumPy's calls cost more than their work


class Sequences(Protocol):
    """What batches are made of: numbered sequences of T tokens, the same number in each epoch.

    Anything that maps a number to tokens can be served, such as a mixture of several streams. The two steps are apart
    so that places are computed for many batches at a time.
    """

    @property
    def T(self) -> int:
        """Tokens in a sequence."""

    @property
    def seed(self) -> int | None:
        """Of the order, which with the length and T says whether a saved place still means the same."""

    def __len__(self) -> int:
        """Sequences in an epoch."""

    def places(self, epoch: int, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Where the epoch's sequences of these numbers, int64[n] below the length, lie: int64[n], not negative."""

    def read(self, places: list[int]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Inputs and targets of the sequences at n places, at least one; int64[n, T] each, contiguous.

        They are the caller's own, and may share memory with each other.
        """


class _Plan(NamedTuple):
    """Places of the sequences of some batches in a row."""

    position: Position
    places: list[list[int]]
    following: Position


class BatchLoader:
    """Batches (x, y) of B sequences of T tokens, for one of `world_size` ranks.

    ``batch(i)`` is a pure function of i. Iterating gives the batches to the end of the present epoch, and the next
    iteration the next epoch; where it is, is four integers (`state_dict`), which mean the same on other ranks, with
    other workers and another B.

    Parameters
    ----------
    sequences : Sequences
    B : int
        Sequences in a batch.
    rank, world_size : int
        Which of how many loaders this is. All ranks together serve each sequence of an epoch once, up to `uneven`, and
        have the same number of batches.
    uneven : {"drop", "wrap", "pad"}
        What happens where an epoch does not divide by world_size · B: the rest is left out; or the next epoch begins
        within the batch; or rows are filled with inputs of 0 and targets of -100. See `jobs.loader.share`. (The mean
        loss of a rank whose rows are all filled is not a number; sum it and divide by the targets that count.)
    pin_memory : bool
        Batches in page-locked memory, where there is an accelerator.
    num_workers, prefetch : int
        Processes that read ahead while iterating, and batches that each reads ahead. 0: read when asked.
    end_of_text : int, optional
        Id that ends each document, for `documents` and `mask_boundaries`.
    mask_boundaries : bool
        Targets behind an end of text, which nothing predicts, are -100.

    Attributes
    ----------
    n_sequences : int
        In an epoch.
    n_batches : int
        Of each rank in an epoch; with ``wrap``, in the first. `len` of the loader is the same.
    position : Position
        Where the next iteration begins.

    Raises
    ------
    UserError
        A number cannot be; or an epoch is too short for one batch of all ranks, and `uneven` is not ``pad``.
    """

    def __init__(
        self,
        sequences: Sequences,
        B: int,
        *,
        rank: int = 0,
        world_size: int = 1,
        uneven: str = "drop",
        pin_memory: bool = False,
        num_workers: int = 0,
        prefetch: int = 2,
        end_of_text: int | None = None,
        mask_boundaries: bool = False,
    ) -> None:
        if mask_boundaries and end_of_text is None:
            raise UserError("mask_boundaries needs end_of_text, the id that ends each document")
        if num_workers < 0 or prefetch < 1:
            raise UserError(
                f"num_workers is at least 0 and prefetch at least 1, but they are {num_workers} and {prefetch}"
            )
        self.sequences, self.B, self.T = sequences, B, sequences.T
        self.n_sequences = len(sequences)
        self.share = checked(Share(self.n_sequences, B, rank, world_size, uneven))
        if self.n_sequences < (1 if uneven == "pad" else self.share.step):
            raise UserError(self._too_short())
        self.n_batches = self.share.n_batches()
        self.pin_memory, self.num_workers, self.prefetch = pin_memory, num_workers, prefetch
        self.end_of_text, self.mask_boundaries = end_of_text, mask_boundaries
        self.position = START
        self._plan = _Plan(START, [], START)

    def _too_short(self) -> str:
        return (
            f"there are {self.n_sequences:,} sequences, too few for one batch of "
            f"world_size · B = {self.share.world_size} · {self.B} = {self.share.step:,}"
        )

    # ------------------------------------------------------------ one batch

    def batch(self, i: int) -> "Batch":
        """Batch i of this rank in a run that began with epoch 0; after the epoch's last comes the next epoch's first.

        Returns
        -------
        x, y : int64[B, T]
            The inputs, and the targets: the inputs shifted by one token. They may be two views of one buffer.

        Raises
        ------
        UserError
            i is negative or no whole number; or a file cannot be read.
        """
        try:
            i = operator.index(i)
        except TypeError:
            raise UserError(f"batches are numbered by whole numbers; there is no batch {i!r}") from None
        if i < 0:
            raise UserError(f"batches are numbered from 0; there is no batch {i}")
        return self.batch_at(self.share.after(START, i))

    def batches(self, step: int = 0, accum: int = 32) -> "Iterator[Batch]":
        """Batches without end, from optimizer step `step` on, with `accum` batches in a step.

        Raises
        ------
        UserError
            `step` is negative or `accum` is not positive.
        """
        if step < 0 or accum < 1:
            raise UserError(
                f"a step is at least 0 and accum at least 1, but step is {step} and accum is {accum}"
            )
        return map(self.batch, itertools.count(step * accum))

    def batch_at(self, position: Position) -> "Batch":
        """The batch of this rank that begins at a place of the run; see `batch`."""
        import torch  # here, so that a loader can be made and asked for its sizes without it

        x, y = map(torch.from_numpy, self._read(self._places(position)))
        if self.pin_memory and torch.accelerator.is_available():
            return x.pin_memory(), y.pin_memory()
        return x, y

    def _places(self, position: Position) -> list[int]:
        """Places of the batch's sequences; planned for many batches at once when batches are asked for in a row."""
        plan = self._plan
        ahead, off = divmod(position.sequence - plan.position.sequence, self.share.step)
        if position.epoch == plan.position.epoch and off == 0 and 0 <= ahead < len(plan.places):
            return plan.places[ahead]
        in_a_row = position == plan.following
        self._plan = plan = self._planned(position, max(1, AHEAD // self.B) if in_a_row else 1)
        return plan.places[0]

    def _planned(self, position: Position, batches: int) -> _Plan:
        batches = min(batches, max(1, self.share.n_batches(position.sequence)))
        numbers = self.share.numbers(position.sequence, batches)
        places = np.full_like(numbers, PADDING)
        within = numbers < self.n_sequences
        places[within] = self.sequences.places(position.epoch, numbers[within])
        if self.share.uneven == "wrap" and not within.all():
            places[~within] = self.sequences.places(position.epoch + 1, numbers[~within] - self.n_sequences)
        return _Plan(position, places.tolist(), self.share.after(position, batches))

    def _read(self, places: list[int]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        if places[-1] == PADDING:  # which comes behind the sequences
            x, y = self._padded([place for place in places if place != PADDING])
        else:
            x, y = self.sequences.read(places)
        if self.mask_boundaries:
            y = np.where(x == self.end_of_text, IGNORED, y)
        return x, y

    def _padded(self, places: list[int]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        x, y = np.zeros((self.B, self.T), np.int64), np.full((self.B, self.T), IGNORED, np.int64)
        if places:
            x[: len(places)], y[: len(places)] = self.sequences.read(places)
        return x, y

    def documents(self, x: "torch.Tensor") -> "Documents":
        """Where the documents of a batch's inputs begin; see `jobs.loader.documents`.

        Raises
        ------
        UserError
            The loader was made without `end_of_text`.
        """
        from jobs.loader.documents import Documents

        if self.end_of_text is None:
            raise UserError("documents are found by their end_of_text, which this loader was not given")
        return Documents.of(x, self.end_of_text)

    # ------------------------------------------------------------ a training run

    def __len__(self) -> int:
        """Batches of this rank in an epoch; with ``wrap``, in the first."""
        return self.n_batches

    @property
    def left(self) -> int:
        """Batches of this rank from `position` to the end of its epoch."""
        return self.share.n_batches(self.position.sequence)

    def ahead(self, i: int) -> "Batch":
        """Batch i of those from `position` on, which stays; see `batch`."""
        return self.batch_at(self.share.after(self.position, i))

    def skip(self, n: int) -> None:
        """Go on as if n batches of each rank were taken."""
        self.position = self.share.after(self.position, n)

    def alone(self) -> Self:
        """A copy that reads by itself, into memory that is not page-locked: for a worker of a DataLoader.

        A forked worker cannot use the accelerator; the DataLoader locks the pages of what it is given.
        """
        twin = copy.copy(self)
        twin.pin_memory, twin.num_workers = False, 0
        return twin

    def __iter__(self) -> "Iterator[Batch]":
        """Batches from `position` to the end of its epoch; `position` counts those that were taken."""
        epoch = self.position.epoch
        batches = self._read_ahead() if self.num_workers else self._read_here()
        while self.position.epoch == epoch:
            batch = next(batches)
            self.skip(1)
            yield batch

    def _read_here(self) -> "Iterator[Batch]":
        while True:
            yield self.batch_at(self.position)

    def _read_ahead(self) -> "Iterator[Batch]":
        from jobs.loader.dataset import read_ahead

        return read_ahead(self)

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch, unless the run is within it already, as after `load_state_dict`.

        Raises
        ------
        UserError
            There is no such epoch.
        """
        if epoch < 0:
            raise UserError(f"epochs are numbered from 0; there is no epoch {epoch}")
        if epoch != self.position.epoch:
            self.position = self.share.start(epoch)

    def state_dict(self) -> dict[str, int]:
        """Where the next iteration begins, and of what: integers that are the same on all ranks."""
        seed = self.sequences.seed
        return {
            **self.position._asdict(),
            "n_sequences": self.n_sequences,
            "T": self.T,
            "seed": UNSHUFFLED if seed is None else seed,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict` of any rank, of a loader with any number of ranks and workers and any B.

        Where fewer sequences of the epoch are left than all ranks now take, `uneven` decides.

        Raises
        ------
        UserError
            The state is none, or is of other data, another T or another order.
        """
        mine = self.state_dict()
        if lacking := sorted(mine.keys() - state.keys()):
            raise UserError(f"this is no state of a loader: it lacks {', '.join(lacking)}")
        here = _said(mine)
        for name, value in _said(state).items():
            if value != here[name]:
                raise UserError(
                    f"the state was saved with {name} {value}, but this loader has {here[name]}; "
                    "its place means nothing here"
                )
        position = Position(int(state["epoch"]), int(state["sequence"]))
        if position.epoch < 0 or not 0 <= position.sequence < self.n_sequences:
            raise UserError(
                f"the state's place is sequence {position.sequence} of epoch {position.epoch}; an epoch has "
                f"{self.n_sequences:,} sequences, counted from 0"
            )
        self.position = self.share.after(position, 0)


def _said(state: Mapping[str, Any]) -> dict[str, Any]:
    """What a state's place depends on, as the loader was told it; what explains another comes before it."""
    return {
        "T": state["T"],
        "shuffle": state["seed"] != UNSHUFFLED,
        "seed": state["seed"],
        "n_sequences": state["n_sequences"],
    }
