"""In which order a group's sequences are drawn, epoch after epoch, so that copies stay apart.

An epoch draws each of the n windows of a group once. It is cut into segments of equal length, the same in every epoch,
and the windows of a segment are permuted anew each time. So a window that comes at place p of one epoch comes in the
same segment of the next, and two copies are at least n - (longest segment) + 1 draws apart.
"""

import hashlib
import math

import numpy as np
import numpy.typing as npt

from jobs.loader.shuffle import Permutation


class Epochs:
    """The windows of a group in the order in which they are drawn: a pure function of the draw.

    Parameters
    ----------
    n : int
        Windows, at least 1.
    key : str
        Of the orders: what makes them those of this group and no other.
    apart : float
        Copies are at least this share of n apart; below 1.
    shuffle : bool
        False: the windows as they are numbered, in every epoch.
    """

    def __init__(self, n: int, key: str, apart: float, shuffle: bool = True) -> None:
        self.n, self.key, self.shuffle = n, key, shuffle
        self.segments = min(n, math.ceil(1 / (1 - apart)))

    @property
    def distance(self) -> int:
        """Draws between two copies of a window, at least."""
        return self.n - -(-self.n // self.segments) + 1 if self.shuffle else self.n

    def __call__(self, draws: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Windows of these draws, int64[m] each."""
        epoch, place = np.divmod(draws, self.n)
        if not self.shuffle:
            return place
        segment = ((place + 1) * self.segments - 1) // self.n
        parts, which = np.unique(epoch * self.segments + segment, return_inverse=True)
        windows = np.empty_like(place)
        for number, part in enumerate(parts.tolist()):
            chosen = np.flatnonzero(which == number)
            windows[chosen] = self._permuted(place[chosen], *divmod(part, self.segments))
        return windows

    def _permuted(self, place: npt.NDArray[np.int64], epoch: int, segment: int) -> npt.NDArray[np.int64]:
        first, last = (j * self.n // self.segments for j in (segment, segment + 1))
        return first + Permutation(last - first, seed_of(self.key, segment), epoch)(place - first)


def seed_of(*words: object) -> int:
    """A number below 2**63 for some words: BLAKE2b of them with zero bytes between."""
    digest = hashlib.blake2b("\0".join(map(str, words)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
