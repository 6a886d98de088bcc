"""Token stores read back: documents of a split, decoded."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from jobs.pipeline.paths import SplitPaths
from jobs.runtime import folders
from jobs.tokens.encoder import Encoder

BATCH = 8 * 2**20  # bytes of text that are decoded at a time, about; a document is decoded whole


def decoded(
    paths: SplitPaths, rows: pa.Table, dtype: str, coder: Encoder
) -> Iterator[tuple[np.ndarray, list[bytes]]]:
    """UTF-8 of tokenized documents, some after another, in the order in which the store has them.

    Parameters
    ----------
    paths
        Of the split.
    rows
        Documents with columns `start`, `n_tokens` and `n_bytes`; `n_tokens` is not 0.
    dtype, coder
        Of the store, and the tokenizer that made it.

    Yields
    ------
    int64[k], list of bytes
        Places of documents in `rows`, and their texts without the end-of-text token.
    """
    starts, n_tokens = rows["start"].to_numpy(), rows["n_tokens"].to_numpy()
    order = np.argsort(starts, kind="stable")
    batch_of = np.cumsum(rows["n_bytes"].to_numpy()[order]) // BATCH
    for places in np.split(order, np.flatnonzero(np.diff(batch_of)) + 1):
        if not len(places):
            continue
        first, last = int(starts[places[0]]), int(starts[places[-1]] + n_tokens[places[-1]])
        size = np.dtype(dtype).itemsize
        tokens = np.frombuffer(folders.read_range(paths.tokens, first * size, last * size), dtype)
        begins = starts[places] - first
        yield (
            places,
            [
                coder.decode_bytes(tokens[a : a + n - 1])
                for a, n in zip(begins, n_tokens[places], strict=True)
            ],
        )
