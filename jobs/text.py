"""Arrow text as the kernels see it, and the hashes that stand for it."""

import unicodedata
from itertools import pairwise

import numpy as np
import pyarrow as pa
import xxhash

LONGEST_CHARACTER = 4  # bytes in UTF-8


def text_buffers(text: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The bytes uint8[n] and offsets int64[d + 1] of a large_string array, without copying."""
    _, offsets, data = text.buffers()
    window = np.frombuffer(offsets, np.int64)[text.offset : text.offset + len(text) + 1]
    everything = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
    return everything[window[0] : window[-1]], window - window[0]


def heads(data: np.ndarray, offsets: np.ndarray, n_bytes: int | None) -> np.ndarray:
    """int64[d], where the whole characters within each document's first bytes end; without a limit, the document."""
    if n_bytes is None:
        return offsets[1:]
    ends = np.minimum(offsets[:-1] + n_bytes, offsets[1:])
    for _ in range(LONGEST_CHARACTER - 1):
        cut = np.flatnonzero(ends < offsets[1:])
        ends[cut] -= data[ends[cut]] & 0xC0 == 0x80
    return ends


def text_hashes(data: np.ndarray, offsets: np.ndarray) -> pa.Array:
    """XXH3-128 of each document's bytes, as fixed_size_binary[16]."""
    view, digest = np.ascontiguousarray(data).data, xxhash.xxh3_128_digest
    bounds = offsets.tolist()
    joined = b"".join(digest(view[a:b]) for a, b in pairwise(bounds))
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(bounds) - 1, [None, pa.py_buffer(joined)])


def hash_prefixes(text_hash: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """uint64[d], the first eight bytes of each text hash, by which sets of texts are compared."""
    return hash_halves(text_hash)[0]


def hash_halves(text_hash: pa.Array | pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Upper and lower half of each text hash, uint64[d], 0 where there is none."""
    array = text_hash.combine_chunks() if isinstance(text_hash, pa.ChunkedArray) else text_hash
    words = np.frombuffer(array.buffers()[1], ">u8").astype(np.uint64).reshape(-1, 2)
    halves = words[array.offset : array.offset + len(array)]
    if array.null_count:
        halves = np.where(np.asarray(array.is_null())[:, None], np.uint64(0), halves)
    return halves[:, 0], halves[:, 1]


def normalised(text: pa.Array, case: bool, white_space: bool, unicode: bool) -> pa.Array:
    """large_string[d] without the differences that do not matter: case, white space, and spelling in Unicode (NFC)."""
    return pa.array(
        [_normalised(value, case, white_space, unicode) for value in text.to_pylist()], pa.large_string()
    )


def _normalised(text: str, case: bool, white_space: bool, unicode: bool) -> str:
    if unicode:
        text = unicodedata.normalize("NFC", text)
    if case:
        text = text.casefold()
        text = unicodedata.normalize("NFC", text) if unicode else text  # folding may undo the form
    return " ".join(text.split()) if white_space else text
