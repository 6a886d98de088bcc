"""WebDataset's tar shard.

Layout: a POSIX tar (ustar). The files of a sample follow each other and have one name up to the first dot::

    KEY.ids.npy        the ids, a NumPy array uint16[l] or uint32[l]
    KEY.n_tokens.txt   of a row that is filled up: the tokens before the filling, in decimals

A document's KEY is its doc_id in 16 hexadecimal digits, as the ledger has it in decimals; a row's is its shard's number
and its number in it. Owner, group and time are 0, so that equal samples are equal bytes.

Source: https://github.com/webdataset/webdataset
"""

import io
import tarfile
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray


def write_documents(
    file: IO[bytes], tokens: NDArray[Any], lengths: NDArray[np.int64], doc_ids: NDArray[np.uint64]
) -> None:
    """Write a shard of documents into an open binary file.

    Parameters
    ----------
    tokens : uint16[t] or uint32[t]
        Of all documents, end to end.
    lengths : int64[d]
        Tokens of each document; they sum to t.
    doc_ids : uint64[d]
    """
    ends = np.cumsum(lengths)
    _write(
        file,
        (
            (f"{doc_id:016x}.ids.npy", _npy(tokens[end - length : end]))
            for doc_id, end, length in zip(doc_ids.tolist(), ends.tolist(), lengths.tolist(), strict=True)
        ),
    )


def write_rows(
    file: IO[bytes], shard: int, rows: NDArray[Any], n_tokens: NDArray[np.int64] | None = None
) -> None:
    """Write a shard of rows of one length into an open binary file.

    Parameters
    ----------
    shard : int
        Its number, for the samples' names.
    rows : uint16[r, l] or uint32[r, l]
    n_tokens : int64[r], optional
        Tokens before each row's filling.
    """

    def members() -> Iterator[tuple[str, bytes]]:
        for number, row in enumerate(rows):
            key = f"{shard:06d}-{number:09d}"
            yield f"{key}.ids.npy", _npy(row)
            if n_tokens is not None:
                yield f"{key}.n_tokens.txt", str(int(n_tokens[number])).encode()

    _write(file, members())


def _npy(ids: NDArray[Any]) -> bytes:
    raw = io.BytesIO()
    np.lib.format.write_array(raw, ids.astype(ids.dtype.newbyteorder("<"), copy=False), version=(1, 0))
    return raw.getvalue()


def _write(file: IO[bytes], members: Iterator[tuple[str, bytes]]) -> None:
    for name, content in members:
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(content), 0o644
        file.write(member.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % tarfile.BLOCKSIZE))
    file.write(bytes(2 * tarfile.BLOCKSIZE))
