r"""Megatron-LM's indexed data set, a pair of files.

Layout, little endian; s sequences, here one for each document::

    PREFIX.bin   the tokens of all sequences, end to end
    PREFIX.idx
      byte 0     b"MMIDIDX\0\0"
      byte 9     uint64        version, 1
      byte 17    uint8         type of a token: 1 uint8, 2 int8, 3 int16, 4 int32, 5 int64, 6 float64, 7 float32,
                               8 uint16
      byte 18    uint64        s
      byte 26    uint64        d + 1, entries of the document index
      byte 34    int32[s]      tokens of each sequence
                 int64[s]      byte of `.bin` at which each begins
                 int64[d + 1]  sequences before each document, and before the end

There is no uint32. Megatron itself takes uint16 for vocabularies below 65,500 ids and int32 for all others; so do we.

Source: ``megatron/core/datasets/indexed_dataset.py`` of https://github.com/NVIDIA/Megatron-LM
"""

import struct
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jobs.errors import UserError
from jobs.runtime import folders

MAGIC = b"MMIDIDX\0\0"
VERSION = 1
CODES: dict[int, np.dtype[Any]] = {
    1: np.dtype("u1"),
    2: np.dtype("i1"),
    3: np.dtype("<i2"),
    4: np.dtype("<i4"),
    5: np.dtype("<i8"),
    6: np.dtype("<f8"),
    7: np.dtype("<f4"),
    8: np.dtype("<u2"),
}
WRITTEN = {"uint16": 8, "int32": 4}
HEADER = struct.Struct("<9sQBQQ")
VOCABULARY_OF_UINT16 = 65_500  # below
LONGEST = 2**31 - 1  # tokens of a sequence


def token_dtype(vocab_size: int) -> str:
    """uint16 for a vocabulary below 65,500 ids, int32 for any other, as Megatron chooses."""
    return "uint16" if vocab_size < VOCABULARY_OF_UINT16 else "int32"


def write_documents(
    bin_file: IO[bytes], idx_file: IO[bytes], tokens: NDArray[Any], lengths: NDArray[np.int64], dtype: str
) -> None:
    """Write documents as one sequence each into two open binary files.

    Parameters
    ----------
    tokens : uint16[t] or uint32[t]
        Of all documents, end to end.
    lengths : int64[d]
        Tokens of each document; they sum to t.
    dtype : {"uint16", "int32"}
        From `token_dtype`.

    Raises
    ------
    UserError
        A document has more than 2**31 - 1 tokens, or a token does not fit into the type.
    """
    if len(lengths) and int(lengths.max()) > LONGEST:
        raise UserError(
            f"a document of {int(lengths.max()):,} tokens is too long for megatron, {LONGEST:,} at most"
        )
    if len(tokens) and int(tokens.max()) > np.iinfo(dtype).max:
        raise UserError(f"token {int(tokens.max()):,} does not fit into megatron's {dtype}")
    stored = CODES[WRITTEN[dtype]]
    bin_file.write(np.ascontiguousarray(tokens.astype(stored, copy=False)).view(np.uint8).data)
    ends = np.cumsum(lengths, dtype=np.int64)
    idx_file.write(HEADER.pack(MAGIC, VERSION, WRITTEN[dtype], len(lengths), len(lengths) + 1))
    idx_file.write(lengths.astype("<i4").tobytes())
    idx_file.write(((ends - lengths) * stored.itemsize).astype("<i8").tobytes())
    idx_file.write(np.arange(len(lengths) + 1, dtype="<i8").tobytes())


class Documents(NamedTuple):
    """An opened pair; `sequence` and `document` give tokens, memory-mapped."""

    tokens: folders.Sliced
    lengths: NDArray[np.int32]
    starts: NDArray[np.int64]  # tokens before each sequence
    document_index: NDArray[np.int64]
    dtype: np.dtype[Any]

    def sequence(self, number: int) -> NDArray[Any]:
        """Tokens of a sequence."""
        start = int(self.starts[number])
        return self.tokens[start : start + int(self.lengths[number])]

    def document(self, number: int) -> NDArray[Any]:
        """Tokens of the sequences of a document, end to end."""
        parts = range(int(self.document_index[number]), int(self.document_index[number + 1]))
        return np.concatenate([self.sequence(part) for part in parts] or [self.tokens[0:0]])


def open_documents(prefix: str | Path) -> Documents:
    """Open a pair by the path that its two names have in common, and hold the two against each other.

    Raises
    ------
    UserError
        A file is missing, is of another format, is damaged, or is not the other's.
    """
    name = str(prefix)
    bin_path, idx_path = folders.located(f"{name}.bin"), folders.located(f"{name}.idx")
    try:
        raw = folders.read_range(idx_path, 0, idx_path.stat().st_size)
        n_bytes = bin_path.stat().st_size
    except OSError as error:
        raise UserError(f"{name}.idx and .bin cannot be read: {error.strerror or error}") from None
    if len(raw) < HEADER.size or raw[: len(MAGIC)] != MAGIC:
        raise UserError(f"{idx_path} is not an index of Megatron's: it does not begin with MMIDIDX")
    _, version, code, n, n_documents = HEADER.unpack_from(raw)
    if version != VERSION or code not in CODES:
        raise UserError(
            f"{idx_path} has version {version} and token type {code}; known are version 1, types 1 to 8"
        )
    # Multimodal data has one byte for each sequence at the end.
    needed = HEADER.size + 12 * n + 8 * n_documents
    if len(raw) not in (needed, needed + n):
        raise UserError(f"{idx_path} is damaged: it has {len(raw):,} bytes, its header makes {needed:,}")
    lengths = np.frombuffer(raw, "<i4", n, HEADER.size)
    pointers = np.frombuffer(raw, "<i8", n, HEADER.size + 4 * n)
    document_index = np.frombuffer(raw, "<i8", n_documents, HEADER.size + 12 * n)
    dtype = CODES[code]
    ends = pointers + lengths.astype(np.int64) * dtype.itemsize
    if n and ((lengths < 0).any() or (pointers < 0).any() or (pointers % dtype.itemsize).any()):
        raise UserError(f"{idx_path} is damaged: a sequence has a length or a place that cannot be")
    if n and int(ends.max()) > n_bytes:
        raise UserError(
            f"{bin_path} is too short: it has {n_bytes:,} bytes, its index ends at {int(ends.max()):,}"
        )
    if n_documents and (
        (np.diff(document_index) < 0).any() or document_index[0] < 0 or document_index[-1] > n
    ):
        raise UserError(f"{idx_path} is damaged: its document index does not run from 0 to {n:,}")
    tokens = folders.mapped(bin_path, dtype, 0, n_bytes // dtype.itemsize)
    return Documents(tokens, lengths, pointers // dtype.itemsize, document_index, dtype)
