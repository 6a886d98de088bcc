"""Which sequences a rank's batch holds, and what happens where an epoch does not divide.

All ranks together take `world_size` · B sequences at a time, in the epoch's order: rank r the B from r · B on. So the
place in a training run is one for all ranks, an epoch and a number of sequences, and stays meaningful when the ranks
or B change. All ranks have the same number of batches, by one of three rules:

``drop``
    An epoch ends where fewer sequences are left than all ranks take; these are not served in it. Shuffled, they are
    others in each epoch.
``wrap``
    The batch goes on with the next epoch's first sequences, which therefore begins in its midst. Each sequence is
    served exactly once in each epoch.
``pad``
    The batch is filled with rows that hold no sequence. Each sequence is served exactly once in each epoch, and an
    epoch is never mixed with the next: for validation.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from jobs.errors import UserError

UNEVEN = ("drop", "wrap", "pad")
PADDING = -1


class Position(NamedTuple):
    """A place in a training run: what all ranks together were served of an epoch, in sequences."""

    epoch: int
    sequence: int


START = Position(0, 0)


class Share(NamedTuple):
    """A rank's share of epochs of n sequences."""

    n: int
    B: int
    rank: int
    world_size: int
    uneven: str

    @property
    def step(self) -> int:
        """Sequences that all ranks take at a time."""
        return self.B * self.world_size

    def n_batches(self, sequence: int = 0) -> int:
        """Batches of each rank that begin in an epoch from this sequence on."""
        left = self.n - sequence
        return left // self.step if self.uneven == "drop" else -(-left // self.step)

    def after(self, position: Position, batches: int) -> Position:
        """The place where `batches` more batches of each rank were served; never an epoch's end, but a start."""
        if self.uneven == "wrap":
            epochs, sequence = divmod(position.sequence + batches * self.step, self.n)
            return Position(position.epoch + epochs, sequence)
        left = self.n_batches(position.sequence)
        if batches < left:
            return Position(position.epoch, position.sequence + batches * self.step)
        epochs, batches = divmod(batches - left, self.n_batches())
        return Position(position.epoch + 1 + epochs, batches * self.step)

    def start(self, epoch: int) -> Position:
        """Where the first batch of an epoch begins, in a run that began with epoch 0."""
        return Position(epoch, -epoch * self.n % self.step if self.uneven == "wrap" else 0)

    def numbers(self, sequence: int, batches: int) -> npt.NDArray[np.int64]:
        """Numbers of the sequences in the rank's next batches, int64[batches, B].

        From n on, they are the next epoch's, which begins with n, or padding.
        """
        first = sequence + self.rank * self.B + np.arange(batches, dtype=np.int64) * self.step
        return first[:, np.newaxis] + np.arange(self.B)


def checked(share: Share) -> Share:
    """A share that can be served.

    Raises
    ------
    UserError
        There is no such rank, or no such rule.
    """
    if not 0 <= share.rank < share.world_size:
        raise UserError(
            f"ranks are numbered from 0 to world_size - 1, but rank is {share.rank} and world_size is "
            f"{share.world_size}"
        )
    if share.uneven not in UNEVEN:
        raise UserError(f"uneven is {share.uneven!r}; it should be one of {', '.join(UNEVEN)}")
    return share
