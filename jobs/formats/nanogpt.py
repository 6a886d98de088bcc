"""nanoGPT's token file.

Layout: uint16 little endian, nothing before and nothing after them; ``train.bin`` and ``val.bin``, one file each.
Each document is followed by its end-of-text token. nanoGPT's ``meta.pkl`` holds the alphabet of character data;
for a tokenizer's ids it has none, and takes the vocabulary's size from its own configuration.

Source: ``data/openwebtext/prepare.py`` and ``train.py`` of https://github.com/karpathy/nanoGPT
"""

from collections.abc import Iterable
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from jobs.errors import UserError

LARGEST_VOCABULARY = 65_536


def token_dtype(vocab_size: int) -> str:
    """uint16, or nothing: the format knows no other type.

    Raises
    ------
    UserError
        The vocabulary does not fit.
    """
    if vocab_size > LARGEST_VOCABULARY:
        raise UserError(
            f"nanogpt files hold uint16 ids, 65,536 of them, but the tokenizer has {vocab_size:,}; "
            "choose a format with uint32, such as llmc"
        )
    return "uint16"


def write_tokens(file: IO[bytes], pieces: Iterable[NDArray[Any]]) -> int:
    """Write a split's stream, uint16[t] at a time, into an open binary file; return the number of tokens.

    Raises
    ------
    TypeError
        Tokens of a type that does not fit into uint16: none is cut.
    """
    written = 0
    for tokens in pieces:
        file.write(np.ascontiguousarray(tokens.astype("<u2", casting="safe", copy=False)).view(np.uint8).data)
        written += len(tokens)
    return written
