"""The stream of tokens that several files hold, one after the other."""

import os
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jobs.errors import UserError
from jobs.loader.cache import LocalCache
from jobs.runtime import folders

KEPT_OPEN = 64  # files; a process may often have 256
FROM_DISK = 50e-6  # seconds; what is in memory is read in a few microseconds


class TokenFile(NamedTuple):
    """Tokens that lie in a file one after the other, whatever stands before and behind them."""

    path: Path
    offset: int  # bytes before the first token
    n_tokens: int


class TokenStream:
    """Tokens of several files as one stream, read where they are.

    Memory stays flat: tokens are read from their file at their place, without a memory map, whose resident pages would
    add up to the whole data set. Some files stay open. Reads name their place (``pread``), so a stream can be forked
    and used from several threads; it can be pickled.

    Parameters
    ----------
    files : sequence of TokenFile
        At least one; local, or from `jobs.runtime.folders.located`.
    dtype : dtype
        Of all files: uint16 or uint32, little endian.
    cache : LocalCache, optional
        Where copies of remote files are kept.
    kept_open : int
        Files that stay open, at most; the others are opened for each read.

    Attributes
    ----------
    n_tokens : int
    dtype : dtype
    """

    def __init__(
        self,
        files: Sequence[TokenFile],
        dtype: np.dtype[Any],
        cache: LocalCache | None = None,
        kept_open: int = KEPT_OPEN,
    ) -> None:
        self.dtype = dtype
        self._kept_open = kept_open
        self._itemsize = dtype.itemsize
        self._cache = cache
        # Training code may change its folder; a remote path does not survive a fork, its URL does.
        self._paths = [
            str(file.path) if folders.is_remote(file.path) else os.fspath(file.path.absolute())
            for file in files
        ]
        self._ends: list[int] = np.cumsum([file.n_tokens for file in files]).tolist()
        # Where the stream's first token would lie in each file.
        self._bases = [
            file.offset - (end - file.n_tokens) * self._itemsize
            for file, end in zip(files, self._ends, strict=True)
        ]
        self._descriptors: dict[int, int] = {}
        self.n_tokens = self._ends[-1]

    def window(self, start: int, n: int) -> npt.NDArray[np.int64]:
        """Read n tokens from token `start` on, int64[n], across as many files as they span.

        Raises
        ------
        IndexError
            The window is not within the stream.
        UserError
            A file is gone, or shorter than when the stream was made.
        """
        if not 0 <= start <= start + n <= self.n_tokens:
            raise IndexError(
                f"there are no tokens {start:,} to {start + n:,}: the split has {self.n_tokens:,}, counted from 0"
            )
        return np.frombuffer(self.raw(start, n), self.dtype).astype(np.int64)

    def raw(self, start: int, n: int) -> bytes:
        """Read n tokens from token `start` on, which must be there, as they are stored."""
        k = bisect_right(self._ends, start)
        if start + n <= self._ends[k]:
            return self._read(k, start, n)
        pieces = []
        while n:
            size = min(n, self._ends[k] - start)
            pieces.append(self._read(k, start, size))
            start, n, k = start + size, n - size, k + 1
        return b"".join(pieces)

    def pieces(self, starts: Sequence[int], n: int) -> bytes:
        """Read n tokens from each of these tokens on, which must be there, as they are stored, one after the other.

        Where one had to come from the disk, the disk is told of those that follow, so that it fetches them side by
        side and not one by one.
        """
        found: list[bytes] = []
        told = False
        for i, start in enumerate(starts):
            begun = perf_counter()
            k = bisect_right(self._ends, start)
            descriptor = self._descriptors.get(k)
            if descriptor is None or start + n > self._ends[k]:
                found.append(self.raw(start, n))
                continue
            n_bytes, position = n * self._itemsize, self._bases[k] + start * self._itemsize
            read = os.pread(descriptor, n_bytes, position)
            found.append(
                read if len(read) == n_bytes else self._continued(k, descriptor, read, n_bytes, position)
            )
            if not told and perf_counter() - begun > FROM_DISK:
                told = True
                self._tell(starts[i + 1 :], n)
        return b"".join(found)

    def _tell(self, starts: Sequence[int], n: int) -> None:
        if not hasattr(os, "posix_fadvise"):  # macOS
            return
        for start in starts:
            k = bisect_right(self._ends, start)
            if (descriptor := self._descriptors.get(k)) is not None:
                position = self._bases[k] + start * self._itemsize
                os.posix_fadvise(descriptor, position, n * self._itemsize, os.POSIX_FADV_WILLNEED)

    def _read(self, k: int, start: int, n: int) -> bytes:
        """Tokens of file k, from this one of the stream on."""
        n_bytes, position = n * self._itemsize, self._bases[k] + start * self._itemsize
        descriptor = self._descriptors.get(k)
        if descriptor is not None:
            read = os.pread(descriptor, n_bytes, position)
            return read if len(read) == n_bytes else self._continued(k, descriptor, read, n_bytes, position)
        descriptor = self._opened(k)
        try:
            return self._continued(k, descriptor, b"", n_bytes, position)
        finally:
            self._keep(k, descriptor)

    def _continued(self, k: int, descriptor: int, read: bytes, n_bytes: int, position: int) -> bytes:
        """Go on where the system cut a read short."""
        while len(read) < n_bytes:
            more = os.pread(descriptor, n_bytes - len(read), position + len(read))
            if not more:
                raise UserError(f"{self._paths[k]} has become shorter than it was when its header was read")
            read += more
        return read

    def _opened(self, k: int) -> int:
        path = self._paths[k]
        if self._cache is not None:
            path = os.fspath(self._cache.local(path))
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}") from None

    def _keep(self, k: int, descriptor: int) -> None:
        # A kept descriptor is not closed while the stream lives: another thread may be reading from it.
        if (
            len(self._descriptors) >= self._kept_open
            or self._descriptors.setdefault(k, descriptor) != descriptor
        ):
            os.close(descriptor)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_descriptors": {}}

    def __del__(self) -> None:
        for descriptor in self.__dict__.get("_descriptors", {}).values():
            os.close(descriptor)
