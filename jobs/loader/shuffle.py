"""A keyed permutation of 0 … n - 1 in constant memory: the order of the sequences in an epoch.

A Feistel network permutes the numbers below 4**h, the smallest such power that is at least n; a number that leaves the
range is sent through again until it is back (cycle walking), which keeps the map a bijection and takes fewer than four
turns on average.

Source: M. Luby and C. Rackoff, How to construct pseudorandom permutations, 1988; J. Black and P. Rogaway, Ciphers with
arbitrary finite domains, 2002; the round function is MurmurHash3's 64-bit finalizer, as in ``kernels.permutation``,
which needs Numba.
"""

import hashlib

import numpy as np
import numpy.typing as npt

ROUNDS = 6


def round_keys(seed: int, epoch: int) -> npt.NDArray[np.uint64]:
    """Keys of the rounds, uint64[6]: BLAKE2b of the purpose, the seed and the epoch in decimals."""
    digest = hashlib.blake2b(f"loader order\0{seed}\0{epoch}".encode(), digest_size=8 * ROUNDS).digest()
    return np.frombuffer(digest, dtype="<u8")


class Permutation:
    """A permutation of n numbers that depends on n, a seed and an epoch alone.

    Parameters
    ----------
    n : int
        At least 1, at most 2**62.
    seed, epoch : int
        Each pair gives another permutation.
    """

    def __init__(self, n: int, seed: int, epoch: int) -> None:
        self.n = n
        half = max(1, -(-(n - 1).bit_length() // 2))
        self._half = np.uint64(half)
        self._mask = np.uint64(2**half - 1)
        self._keys = round_keys(seed, epoch)

    def __call__(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Images of the numbers, int64[m]; each is from 0 to n - 1."""
        images = self._turned(numbers.astype(np.uint64))
        while len(outside := np.flatnonzero(images >= self.n)):
            images[outside] = self._turned(images[outside])
        return images.astype(np.int64)

    def _turned(self, numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        left, right = numbers >> self._half, numbers & self._mask
        for key in self._keys:
            left, right = right, left ^ (_mix64(right ^ key) & self._mask)
        return left << self._half | right


def _mix64(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))
