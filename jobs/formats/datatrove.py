"""datatrove's tokenized file.

Layout, little endian::

    NAME.ds           uint16[t] or uint32[t], the tokens of all documents, end to end
    NAME.ds.index     uint64[d], the token after each document's last; no count
    NAME.ds.metadata  three lines of text, without a line feed at the end: the tokenizer's name, a bar and the bytes
                      of a token; t; and t as people say it, such as `1.23 MT`

A token has 2 bytes for vocabularies of up to 65,536 ids and 4 for larger ones; its reader is told so.

Source: ``src/datatrove/pipeline/tokens/tokenizer.py`` of https://github.com/huggingface/datatrove
"""

from typing import IO, Any

import numpy as np
from numpy.typing import NDArray


def write_documents(
    ds: IO[bytes],
    index: IO[bytes],
    metadata: IO[bytes],
    tokens: NDArray[Any],
    lengths: NDArray[np.int64],
    tokenizer: str,
) -> None:
    """Write documents into three open binary files.

    Parameters
    ----------
    tokens : uint16[t] or uint32[t]
        Of all documents, end to end.
    lengths : int64[d]
        Tokens of each document; they sum to t.
    tokenizer : str
        Its name, as the metadata have it.
    """
    stored = tokens.dtype.newbyteorder("<")
    ds.write(np.ascontiguousarray(tokens.astype(stored, copy=False)).view(np.uint8).data)
    index.write(np.cumsum(lengths).astype("<u8").tobytes())
    lines = [f"{tokenizer}|{stored.itemsize}", str(len(tokens)), _said(len(tokens))]
    metadata.write("\n".join(lines).encode())


def _said(tokens: int) -> str:
    """Three significant digits with an SI prefix, as `humanize.metric(tokens, unit="T")` says it."""
    if tokens == 0:
        return "0.00 T"
    power = min((len(str(tokens)) - 1) // 3, 6)
    value = tokens / 10 ** (3 * power)
    digits = 2 - (len(str(tokens)) - 1) % 3
    return f"{value:.{max(digits, 0)}f} {' kMGTPE'[power].strip()}T"
