"""Keyed randomness: an order and a number for each document that depend on its id and a seed alone.

Nothing here knows how many documents there are, in which partition or in which order they come.

Source: Austin Appleby, MurmurHash3, 64-bit finalizer (``fmix64``).

Dimensions: documents n.
"""

import numpy as np
from numpy.typing import NDArray

from kernels.accelerate import kernel
from kernels.arrays import read_only
from kernels.xxh3 import xxh3_64


def key(purpose: str, seed: int) -> int:
    """Key of one use of randomness: XXH3-64 of the purpose, a zero byte and the seed in decimals.

    Parameters
    ----------
    purpose : str
        What the randomness is for, so that two uses of one seed are independent.
    seed : int
        The user's seed.

    Returns
    -------
    int
        Below 2**64.
    """
    return xxh3_64(f"{purpose}\0{seed}".encode())


def keyed_hash(ids: NDArray[np.uint64], key: int) -> NDArray[np.uint64]:
    """``mix64(id XOR mix64(key))``: a permutation of all 64-bit numbers, so different ids stay different.

    Parameters
    ----------
    ids : uint64[n]
        Such as doc_ids.
    key : int
        From `key`.

    Returns
    -------
    uint64[n]
        Uniform; divided by 2**64, a draw from [0, 1) for each id.
    """
    return _keyed_hash(read_only(ids, np.uint64), np.uint64(key))


def keyed_hash_inverse(hashes: NDArray[np.uint64], key: int) -> NDArray[np.uint64]:
    """The ids, uint64[n], whose `keyed_hash` under `key` is `hashes`, uint64[n]."""
    return _keyed_hash_inverse(read_only(hashes, np.uint64), np.uint64(key))


def doc_ids(file_key: int, records: NDArray[np.int64]) -> NDArray[np.uint64]:
    """``mix64(file_key XOR mix64(record))``: the ids of documents by their place in a file.

    Parameters
    ----------
    file_key : int
        XXH3-64 of the file's name, below 2**64.
    records : int64[n]
        Index of each document in its file.

    Returns
    -------
    uint64[n]
        Different for different records of a file.
    """
    return _doc_ids(np.uint64(file_key), read_only(records, np.int64))


def seeded_order(ids: NDArray[np.uint64], key: int) -> NDArray[np.int64]:
    """Order of the documents by (keyed hash, id), the same wherever they are held.

    Parameters
    ----------
    ids : uint64[n]
        Such as doc_ids.
    key : int
        From `key`.

    Returns
    -------
    int64[n]
        ``ids[seeded_order(ids, key)]`` is in order. Equal ids keep the order that they came in.
    """
    # Different ids have different hashes (mix64 is a bijection), so the id never has to decide.
    return np.argsort(keyed_hash(ids, key), kind="stable")


@kernel
def mix64(x):
    """MurmurHash3's 64-bit finalizer: every bit of `x` (uint64) reaches every bit of the result."""
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))


@kernel
def unmix64(x):
    """The number whose `mix64` is `x` (uint64)."""
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0x9CB4B2F8129337DB)
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0x4F74430C22A54005)
    return x ^ (x >> np.uint64(33))


@kernel
def _keyed_hash_inverse(hashes, key):
    ids = np.empty(len(hashes), np.uint64)
    for i in range(len(hashes)):
        ids[i] = unmix64(hashes[i]) ^ mix64(key)
    return ids


@kernel
def _keyed_hash(ids, key):
    hashes = np.empty(len(ids), np.uint64)
    for i in range(len(ids)):
        hashes[i] = mix64(ids[i] ^ mix64(key))
    return hashes


@kernel
def _doc_ids(file_key, records):
    ids = np.empty(len(records), np.uint64)
    for i in range(len(records)):
        ids[i] = mix64(file_key ^ mix64(np.uint64(records[i])))
    return ids
