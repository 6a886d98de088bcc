"""XXH3-64 with seed 0, for slices of a byte array.

Source: Yann Collet, xxHash 0.8, ``xxhash.h`` (``XXH3_64bits``) and ``doc/xxhash_spec.md``. The names
of the constants and of the length classes are that file's. Reads are little-endian.

Dimensions: bytes n, slices k.
"""

import numpy as np
from numpy.typing import NDArray

from kernels.accelerate import inlined, kernel
from kernels.arrays import check_slices, read_only
from kernels.intrinsics import byte_swap, load32, load64, multiply_fold

PRIME32_1 = np.uint64(0x9E3779B1)
PRIME32_2 = np.uint64(0x85EBCA77)
PRIME32_3 = np.uint64(0xC2B2AE3D)
PRIME64_1 = np.uint64(0x9E3779B185EBCA87)
PRIME64_2 = np.uint64(0xC2B2AE3D27D4EB4F)
PRIME64_3 = np.uint64(0x165667B19E3779F9)
PRIME64_4 = np.uint64(0x85EBCA77C2B2AE63)
PRIME64_5 = np.uint64(0x27D4EB2F165667C5)
PRIME_MX1 = np.uint64(0x165667919E3779F9)
PRIME_MX2 = np.uint64(0x9FB21C651E98DF25)

SECRET = np.frombuffer(
    bytes.fromhex(
        "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
        "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8"
        "fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb17"
        "0ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
    ),
    dtype=np.uint8,
)

INITIAL = np.array([PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1])
STRIPE = 64  # bytes that the eight accumulators take in at once
STRIPES_PER_BLOCK = 16  # between two scrambles: (192 - 64) / 8


def xxh3_64(data: bytes) -> int:
    """XXH3-64 of some bytes, seed 0.

    Parameters
    ----------
    data : bytes
        Any length, zero included.

    Returns
    -------
    int
        What ``xxhash.xxh3_64_intdigest(data)`` gives.
    """
    array = np.frombuffer(data, dtype=np.uint8)
    return int(hash_slices(array, np.zeros(1, np.int64), np.full(1, len(array), np.int64))[0])


def hash_slices(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """XXH3-64 of each slice ``data[starts[i]:ends[i]]``.

    Parameters
    ----------
    data : uint8[n]
        The bytes, contiguous.
    starts, ends : int64[k]
        Byte positions, ``0 <= starts[i] <= ends[i] <= n``. Slices may overlap.

    Returns
    -------
    uint64[k]
        One hash for each slice.

    Raises
    ------
    ValueError
        When a slice reaches out of `data`, or the two arrays differ in length.
    """
    data = read_only(data, np.uint8)
    starts, ends = read_only(starts, np.int64), read_only(ends, np.int64)
    check_slices(starts, ends, len(data))
    return _hash_slices(data, starts, ends)


@kernel
def _hash_slices(data, starts, ends):
    hashes = np.empty(len(starts), np.uint64)
    for i in range(len(starts)):
        hashes[i] = hash_slice(data, starts[i], ends[i])
    return hashes


@inlined
def hash_slice(data, start, end):
    """XXH3-64 of ``data[start:end]``, for use inside other kernels."""
    length = end - start
    if length > 240:
        return _hash_long(data, start, length)
    if length > 128:
        return _hash_129_to_240(data, start, length)
    if length > 16:
        return _hash_17_to_128(data, start, length)
    return _hash_0_to_16(data, start, length)


@inlined
def _hash_0_to_16(data, start, length):
    size = np.uint64(length)
    last = start + length
    if length > 8:
        low = load64(data, start) ^ load64(SECRET, 24) ^ load64(SECRET, 32)
        high = load64(data, last - 8) ^ load64(SECRET, 40) ^ load64(SECRET, 48)
        return _avalanche(size + byte_swap(low) + high + multiply_fold(low, high))
    if length > 3:
        keyed = load32(data, last - 4) + (load32(data, start) << np.uint64(32))
        return _rrmxmx(keyed ^ load64(SECRET, 8) ^ load64(SECRET, 16), size)
    if length > 0:
        first, middle = np.uint64(data[start]), np.uint64(data[start + (length >> 1)])
        combined = (first << np.uint64(16)) | (middle << np.uint64(24)) | np.uint64(data[last - 1])
        combined |= size << np.uint64(8)
        return _xxh64_avalanche(combined ^ load32(SECRET, 0) ^ load32(SECRET, 4))
    return _xxh64_avalanche(load64(SECRET, 56) ^ load64(SECRET, 64))


@inlined
def _hash_17_to_128(data, start, length):
    last = start + length
    total = np.uint64(length) * PRIME64_1
    if length > 96:
        total += _mix16(data, start + 48, 96) + _mix16(data, last - 64, 112)
    if length > 64:
        total += _mix16(data, start + 32, 64) + _mix16(data, last - 48, 80)
    if length > 32:
        total += _mix16(data, start + 16, 32) + _mix16(data, last - 32, 48)
    total += _mix16(data, start, 0) + _mix16(data, last - 16, 16)
    return _avalanche(total)


@kernel
def _hash_129_to_240(data, start, length):
    total = np.uint64(length) * PRIME64_1
    for i in range(8):
        total += _mix16(data, start + 16 * i, 16 * i)
    total = _avalanche(total)
    for i in range(8, length // 16):
        total += _mix16(data, start + 16 * i, 16 * (i - 8) + 3)
    total += _mix16(data, start + length - 16, 136 - 17)
    return _avalanche(total)


@kernel
def _hash_long(data, start, length):
    total = np.uint64(length) * PRIME64_1
    for i in range(4):
        low = _accumulate(data, start, length, 2 * i) ^ load64(SECRET, 16 * i + 11)
        high = _accumulate(data, start, length, 2 * i + 1) ^ load64(SECRET, 16 * i + 19)
        total += multiply_fold(low, high)
    return _avalanche(total)


@kernel
def _accumulate(data, start, length, lane):
    """One of the eight accumulators over all stripes.

    A pass for each lane needs no array to hold them, and so no reference counting around every hash.
    """
    total = INITIAL[lane]
    n_stripes = (length - 1) // STRIPE
    for stripe in range(n_stripes):
        in_block = stripe % STRIPES_PER_BLOCK
        total += _accumulate_stripe(data, start + STRIPE * stripe, lane, 8 * in_block)
        if in_block == STRIPES_PER_BLOCK - 1:
            total = _scramble(total, lane)
    return total + _accumulate_stripe(data, start + length - STRIPE, lane, 192 - STRIPE - 7)


@kernel
def _accumulate_stripe(data, position, lane, secret):
    """What a stripe of 64 bytes adds to a lane; neighbouring lanes swap their input."""
    keyed = load64(data, position + 8 * lane) ^ load64(SECRET, secret + 8 * lane)
    product = (keyed & np.uint64(0xFFFFFFFF)) * (keyed >> np.uint64(32))
    return product + load64(data, position + 8 * (lane ^ 1))


@kernel
def _scramble(total, lane):
    total ^= (total >> np.uint64(47)) ^ load64(SECRET, 192 - STRIPE + 8 * lane)
    return total * PRIME32_1


@inlined
def _mix16(data, position, secret):
    low = load64(data, position) ^ load64(SECRET, secret)
    high = load64(data, position + 8) ^ load64(SECRET, secret + 8)
    return multiply_fold(low, high)


@inlined
def _avalanche(h):
    h = (h ^ (h >> np.uint64(37))) * PRIME_MX1
    return h ^ (h >> np.uint64(32))


@inlined
def _xxh64_avalanche(h):
    h = (h ^ (h >> np.uint64(33))) * PRIME64_2
    h = (h ^ (h >> np.uint64(29))) * PRIME64_3
    return h ^ (h >> np.uint64(32))


@inlined
def _rrmxmx(h, length):
    h = (h ^ _rotate_left(h, 49) ^ _rotate_left(h, 24)) * PRIME_MX2
    h = (h ^ ((h >> np.uint64(35)) + length)) * PRIME_MX2
    return h ^ (h >> np.uint64(28))


@inlined
def _rotate_left(h, bits):
    return (h << np.uint64(bits)) | (h >> np.uint64(64 - bits))
