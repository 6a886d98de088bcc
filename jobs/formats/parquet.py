"""Parquet files of token ids.

Columns, of a document, a row each: `doc_id` uint64 and `ids`, list<uint16> or list<uint32>. Of a packed row: `ids`,
fixed_size_list<uint16>[l] or of uint32; and where rows are filled up, `n_tokens` int32, those before the filling.
Zstandard; a row group holds about 4 million tokens.
"""

from itertools import pairwise
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

GROUP_TOKENS = 4_000_000


def write_documents(
    file: IO[bytes], tokens: NDArray[Any], lengths: NDArray[np.int64], doc_ids: NDArray[np.uint64]
) -> None:
    """Write documents into an open binary file.

    Parameters
    ----------
    tokens : uint16[t] or uint32[t]
        Of all documents, end to end.
    lengths : int64[d]
        Tokens of each document; they sum to t.
    doc_ids : uint64[d]
    """
    ids = pa.large_list(pa.from_numpy_dtype(tokens.dtype))
    schema = pa.schema([("doc_id", pa.uint64()), ("ids", ids)])
    bounds = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    cuts = np.searchsorted(bounds, np.arange(0, bounds[-1], GROUP_TOKENS)[1:])
    groups = np.unique([0, *cuts.tolist(), len(lengths)])
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for first, last in pairwise(groups):
            part = bounds[first : last + 1]
            lists = pa.LargeListArray.from_arrays(
                part - part[0], pa.array(tokens[part[0] : part[-1]]), type=ids
            )
            writer.write_table(pa.table([pa.array(doc_ids[first:last]), lists], schema=schema))


def write_rows(file: IO[bytes], rows: NDArray[Any], n_tokens: NDArray[np.int64] | None = None) -> None:
    """Write rows of one length into an open binary file.

    Parameters
    ----------
    rows : uint16[r, l] or uint32[r, l]
    n_tokens : int64[r], optional
        Tokens before each row's filling.
    """
    n, length = rows.shape
    ids = pa.list_(pa.from_numpy_dtype(rows.dtype), length)
    fields = [("ids", ids), *([("n_tokens", pa.int32())] if n_tokens is not None else [])]
    schema = pa.schema(fields)
    step = max(1, GROUP_TOKENS // length)
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for first in range(0, n, step):
            part = rows[first : first + step]
            columns = [pa.FixedSizeListArray.from_arrays(pa.array(part.ravel()), type=ids)]
            if n_tokens is not None:
                columns.append(pa.array(n_tokens[first : first + step], pa.int32()))
            writer.write_table(pa.table(columns, schema=schema))
