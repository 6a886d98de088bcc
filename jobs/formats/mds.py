"""MosaicML streaming's shard, MDS.

Layout, little endian; n samples::

    byte 0            uint32         n
    byte 4            uint32[n + 1]  byte at which each sample begins, and the end
    byte 8 + 4 n      JSON           the columns, as in the index
                      samples        for each: uint32 size of each column whose size varies, then the columns' data,
                                     both in the order of the columns' names

``index.json`` beside the shards, ``{"version": 2, "shards": [...]}``, describes each of them. A split is a folder of
its own, its shards ``shard.00000.mds`` and so on. Offsets are uint32, so a shard stays below 2**32 bytes.

Columns here, of a document: `doc_id` uint64 and `ids`, ``ndarray:uint16`` or ``ndarray:uint32``: one byte that holds
the number of dimensions times four and the width of the shape (0 for uint8, 1 for uint16, 2 for uint32), the shape,
the elements. Of a row: `ids`, ``ndarray:uint16:2049``, the elements alone; where rows are filled up, `n_tokens` uint32.
An array without elements is refused, as by the reader.

Source: ``streaming/base/format/mds`` of https://github.com/mosaicml/streaming
"""

import json
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from jobs.errors import UserError

MAX_BYTES = 2**32 - 1
SCALARS = {"uint64": 8, "uint32": 4}


def shard_name(number: int) -> str:
    """Name of a shard's file, as MosaicML's writer gives it."""
    return f"shard.{number:05d}.mds"


def write_documents(
    file: IO[bytes], tokens: NDArray[Any], lengths: NDArray[np.int64], doc_ids: NDArray[np.uint64]
) -> dict[str, Any]:
    """Write a shard of documents into an open binary file.

    Parameters
    ----------
    tokens : uint16[t] or uint32[t]
        Of all documents, end to end.
    lengths : int64[d]
        Tokens of each document; they sum to t.
    doc_ids : uint64[d]

    Returns
    -------
    dict
        The shard's entry in the index, but for its file's name.

    Raises
    ------
    UserError
        A document has no token, or the shard would have 2**32 bytes or more.
    """
    if len(lengths) and int(lengths.min()) < 1:
        raise UserError(
            "a document without a token cannot be written as mds: its reader refuses empty arrays"
        )
    encodings = {"doc_id": "uint64", "ids": f"ndarray:{tokens.dtype.name}"}
    width = np.select([lengths < 2**8, lengths < 2**16], [1, 2], 4)
    sizes = 1 + width + lengths * tokens.itemsize
    entry = _begin(file, encodings, 4 + 8 + sizes)
    stored = _little(tokens)
    start = 0
    for length, size, n, doc_id in zip(
        lengths.tolist(), sizes.tolist(), width.tolist(), doc_ids.tolist(), strict=True
    ):
        shape = bytes([4 | n.bit_length() - 1]) + length.to_bytes(n, "little")
        file.write(size.to_bytes(4, "little") + doc_id.to_bytes(8, "little") + shape)
        file.write(stored[start : start + length].view(np.uint8).data)
        start += length
    return entry


def write_rows(
    file: IO[bytes], rows: NDArray[Any], n_tokens: NDArray[np.int64] | None = None
) -> dict[str, Any]:
    """Write a shard of rows of one length into an open binary file.

    Parameters
    ----------
    rows : uint16[r, l] or uint32[r, l]
    n_tokens : int64[r], optional
        Tokens before each row's filling.

    Returns
    -------
    dict
        The shard's entry in the index, but for its file's name.

    Raises
    ------
    UserError
        Rows have no token, or the shard would have 2**32 bytes or more.
    """
    n, length = rows.shape
    if length < 1:
        raise UserError("rows without a token cannot be written as mds: its reader refuses empty arrays")
    encodings = {"ids": f"ndarray:{rows.dtype.name}:{length}"}
    fields: list[Any] = [("ids", rows.dtype.newbyteorder("<"), length)]
    if n_tokens is not None:
        encodings["n_tokens"] = "uint32"
        fields.append(("n_tokens", "<u4"))
    layout = np.dtype(fields)
    entry = _begin(file, encodings, np.full(n, layout.itemsize))
    samples = np.empty(n, layout)
    samples["ids"] = rows
    if n_tokens is not None:
        samples["n_tokens"] = n_tokens
    file.write(samples.view(np.uint8).data)
    return entry


def write_index(file: IO[bytes], entries: list[dict[str, Any]]) -> None:
    """Write ``index.json`` of shards in their order; `entries` as the writers returned them, with the files' names."""
    file.write(json.dumps({"version": 2, "shards": entries}, sort_keys=True).encode())


def _begin(file: IO[bytes], encodings: dict[str, str], sizes: NDArray[np.int64]) -> dict[str, Any]:
    """Write all that precedes the samples, whose sizes are given; return the shard's entry."""
    columns = {
        "column_encodings": list(encodings.values()),
        "column_names": list(encodings),
        "column_sizes": [_size(encoding) for encoding in encodings.values()],
        "compression": None,
        "format": "mds",
        "hashes": [],
        "size_limit": None,
        "version": 2,
    }
    config = json.dumps(columns, sort_keys=True).encode()
    offsets = np.cumsum([4 + 4 * (len(sizes) + 1) + len(config), *sizes.tolist()], dtype=np.int64)
    n_bytes = int(offsets[-1])
    if n_bytes > MAX_BYTES:
        raise UserError(f"a shard of {n_bytes:,} bytes is too large for mds; lower shards.tokens")
    file.write(np.uint32(len(sizes)).astype("<u4").tobytes() + offsets.astype("<u4").tobytes() + config)
    raw_data = {"basename": "", "bytes": n_bytes, "hashes": {}}
    return {**columns, "raw_data": raw_data, "samples": len(sizes), "zip_data": None}


def _size(encoding: str) -> int | None:
    """Bytes of a column's data; None where they vary."""
    if encoding in SCALARS:
        return SCALARS[encoding]
    kind, _, shape = encoding.removeprefix("ndarray:").partition(":")
    return np.dtype(kind).itemsize * int(shape) if shape else None


def _little(tokens: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(tokens.astype(tokens.dtype.newbyteorder("<"), copy=False))
