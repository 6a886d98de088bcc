"""The loader, for training code: batches of a split, straight from its shards.

Needs NumPy, PyTorch and three small modules of this project, neither Dask nor Numba.
"""

import itertools
import os
from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from jobs.errors import UserError
from jobs.formats import llmc

if TYPE_CHECKING:
    import torch


class ShardLoader:
    """Batches (x, y) of B sequences of T tokens from the shards of a split.

    The shards are one stream of tokens. Batch i is the window of B · T tokens from token i · B · T on, cut
    into B rows, so ``batch(i)`` is a pure function of i: deterministic, and resumable from any step.

    Memory stays flat: a batch is read from its file at its place, and nothing is kept between batches,
    neither a memory map, whose resident pages would add up to the whole data set, nor an open file. The
    operating system's page cache does the rest. So a loader can be pickled and forked, and used from several
    threads.

    Parameters
    ----------
    split : str
        ``train`` or ``val``.
    B, T : int
        Sequences in a batch, tokens in a sequence.
    data_dir : path
        The output of a run, or a folder of llm.c token files.

    Attributes
    ----------
    n_tokens : int
        Tokens of the split.
    n_batches : int
        Whole batches in it, (n_tokens - 1) // (B · T); a batch's last target is the next one's first input.

    Raises
    ------
    UserError
        A shard is missing, damaged or foreign, or the split is too short for one batch.

    Examples
    --------
    >>> loader = ShardLoader("train", B=16, T=1024, data_dir="out")  # doctest: +SKIP
    >>> batches = loader.batches(step=1200)  # resume at optimizer step 1,200  # doctest: +SKIP
    >>> x, y = next(batches)  # doctest: +SKIP
    """

    def __init__(
        self, split: str = "train", B: int = 16, T: int = 1024, data_dir: str | os.PathLike[str] = "out"
    ) -> None:
        if B < 1 or T < 1:
            raise UserError(f"a batch needs at least one sequence of one token, but B is {B} and T is {T}")
        paths = llmc.find_shards(data_dir, split)
        self.B, self.T = B, T
        self._dtype, sizes = llmc.read_headers(paths)
        self._paths = [os.fspath(path.absolute()) for path in paths]  # training code may change its folder
        self._ends: list[int] = np.cumsum(sizes).tolist()
        self.n_tokens = self._ends[-1]
        self.n_batches = (self.n_tokens - 1) // (B * T)
        if self.n_batches < 1:
            raise UserError(
                f"the split {split!r} in {paths[0].parent} has {self.n_tokens:,} tokens, "
                f"too few for one batch of B · T + 1 = {B} · {T} + 1 = {B * T + 1:,}"
            )

    def window(self, start: int, n: int) -> npt.NDArray[np.int64]:
        """Read n tokens of the stream from token `start` on, int64[n], across as many shards as they span.

        Raises
        ------
        IndexError
            The window is not within the stream.
        UserError
            A shard is gone, or shorter than when the loader was made.
        """
        if not 0 <= start <= start + n <= self.n_tokens:
            raise IndexError(f"tokens {start} to {start + n} of a stream of {self.n_tokens}")
        tokens = np.empty(n, dtype=np.int64)
        k = bisect_right(self._ends, start)
        offset = start - (self._ends[k - 1] if k else 0)
        filled = 0
        while filled < n:
            size = min(n - filled, self._ends[k] - start - filled)
            tokens[filled : filled + size] = llmc.read_tokens(self._paths[k], self._dtype, offset, size)
            filled, k, offset = filled + size, k + 1, 0
        return tokens

    def batch(self, i: int) -> "tuple[torch.Tensor, torch.Tensor]":
        """Batch i, counted on from the start again after `n_batches`.

        Returns
        -------
        x, y : int64[B, T]
            The inputs, and the targets: the inputs shifted by one token. They are two views of one buffer.

        Raises
        ------
        UserError
            i is negative; or see `window`.
        """
        import torch  # here, so that a loader can be made and asked for its sizes without it

        if i < 0:
            raise UserError(f"batches are numbered from 0; there is no batch {i}")
        n = self.B * self.T
        tokens = self.window(i % self.n_batches * n, n + 1)
        x, y = tokens[:-1].reshape(self.B, self.T), tokens[1:].reshape(self.B, self.T)
        return torch.from_numpy(x), torch.from_numpy(y)

    def batches(self, step: int = 0, accum: int = 32) -> "Iterator[tuple[torch.Tensor, torch.Tensor]]":
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
