"""Sequences of T tokens from a stream of tokens, in order or shuffled."""

from typing import Any

import numpy as np
import numpy.typing as npt

from jobs.loader.shuffle import Permutation
from jobs.loader.stream import TokenStream


class Windows:
    """The windows of T tokens of a stream, and their order in each epoch; see `jobs.loader.batches.Sequences`.

    Window w begins at token w · `stride`; its last target is the token behind it, by default the next window's first.

    Parameters
    ----------
    stream : TokenStream
    T : int
        Tokens in a sequence, at least 1.
    seed : int, optional
        Of the order, another in each epoch. Without it, the order is the stream's.
    stride : int, optional
        Tokens from one window's start to the next one's, at least T; T by default.
    """

    def __init__(
        self, stream: TokenStream, T: int, seed: int | None = None, stride: int | None = None
    ) -> None:
        self.stream, self.T, self.seed, self.stride = stream, T, seed, stride or T

    def __len__(self) -> int:
        return max(0, self.stream.n_tokens - self.T - 1 + self.stride) // self.stride

    def places(self, epoch: int, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Windows of the epoch's sequences of these numbers, int64[n]."""
        return numbers if self.seed is None else Permutation(len(self), self.seed, epoch)(numbers)

    def read(self, places: list[int]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Inputs and targets of these windows, int64[n, T] each; windows in a row are read at once."""
        n, T, first = len(places), self.T, places[0]
        if self.stride == T and places == list(range(first, first + n)):
            tokens = self.stream.window(first * T, n * T + 1)
            return tokens[:-1].reshape(n, T), tokens[1:].reshape(n, T)
        rows = np.frombuffer(
            self.stream.pieces([place * self.stride for place in places], T + 1), self.stream.dtype
        )
        rows = rows.reshape(n, T + 1)
        return rows[:, :-1].astype(np.int64), rows[:, 1:].astype(np.int64)

    def rows(self, places: list[int]) -> npt.NDArray[Any]:
        """Inputs and last target of these windows as they are stored, uint16[n, T + 1] or uint32[n, T + 1]."""
        tokens = self.stream.pieces([place * self.stride for place in places], self.T + 1)
        return np.frombuffer(tokens, self.stream.dtype).reshape(len(places), self.T + 1)
