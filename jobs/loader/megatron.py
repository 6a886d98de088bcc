"""The loader of Megatron's pairs (``.bin`` and ``.idx``): their tokens as one stream, as `ShardLoader` serves ours."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jobs.errors import UserError
from jobs.formats import megatron
from jobs.loader.batches import BatchLoader
from jobs.loader.cache import LocalCache, default_folder
from jobs.loader.stream import TokenFile, TokenStream
from jobs.loader.windows import Windows
from jobs.runtime import folders


class MegatronLoader(BatchLoader):
    """Batches (x, y) of B sequences of T tokens from Megatron's pairs; see `jobs.loader.ShardLoader`.

    Parameters
    ----------
    prefixes : path, URL, or several
        What the names of a pair have in common; several are one stream, in this order.
    B, T : int
        Sequences in a batch, tokens in a sequence.
    shuffle, seed, cache_dir, **options
        As of `ShardLoader`; `end_of_text` is not in a pair, and has to be said where it is needed.

    Raises
    ------
    UserError
        A pair is missing or damaged; its sequences do not lie end to end, or are of floats; two pairs are of two types.
    """

    def __init__(
        self,
        prefixes: str | Path | Sequence[str | Path],
        B: int = 16,
        T: int = 1024,
        *,
        shuffle: bool = False,
        seed: int = 1337,
        cache_dir: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        if B < 1 or T < 1:
            raise UserError(f"a batch needs at least one sequence of one token, but B is {B} and T is {T}")
        listed = [prefixes] if isinstance(prefixes, str | os.PathLike) else list(prefixes)
        files, dtypes = zip(*map(_file, listed), strict=True)
        if len(set(dtypes)) > 1:
            raise UserError(
                f"the pairs hold {' and '.join(sorted({str(d) for d in dtypes}))} tokens; they need one type"
            )
        cache = LocalCache(cache_dir or default_folder()) if folders.is_remote(files[0].path) else None
        stream = TokenStream(files, dtypes[0], cache)
        self.n_tokens, self.dtype = stream.n_tokens, stream.dtype
        super().__init__(Windows(stream, T, seed if shuffle else None), B, **options)


def _file(prefix: str | Path) -> tuple[TokenFile, np.dtype[Any]]:
    """The tokens of a pair, which are all of its ``.bin``."""
    documents = megatron.open_documents(prefix)
    lengths = documents.lengths.astype(np.int64)
    dtype = np.dtype(documents.dtype)
    if dtype.kind == "f" or not np.array_equal(documents.starts, np.cumsum(lengths) - lengths):
        raise UserError(
            f"{prefix}.idx does not describe sequences of ids that lie end to end; write the pair anew with Megatron's "
            "tools, or read its documents with jobs.formats.megatron"
        )
    return TokenFile(folders.located(f"{prefix}.bin"), 0, int(lengths.sum())), dtype
