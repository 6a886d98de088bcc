"""The two ways to encode: gigatoken, and the reference library a document at a time.

Dimensions: bytes n, pieces p, tokens t.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import psutil  # type: ignore[import-untyped]
from numpy.typing import NDArray

from jobs.tokens.definition import Tokenize

# What gigatoken's cache may add to a worker's resident memory before it is thrown away. Measured: program sources and
# documentation add 41 MB with their first 27 MB, 63 MB with 400 and 125 MB with 890; words that never repeat add 6 to
# 12 bytes for each of theirs.
CACHE_BUDGET = 128 * 2**20


class Engine(Protocol):
    """Something that encodes a batch of texts."""

    def encode(
        self, data: NDArray[np.uint8], bounds: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Ids dtype[t] of the texts ``data[bounds[i]:bounds[i + 1]]``, and int64[p + 1] where each one's begin."""


class Gigatoken:
    """The fast engine, on the calling thread alone.

    gigatoken 0.10 remembers every word that it ever met. When the process's resident memory has grown by `budget`
    bytes in calls to this engine, it is replaced by a new one, which costs the time to load it (0.1 s for GPT-2,
    0.4 to 0.7 s for cl100k and o200k) and a cold cache, and changes nothing that comes out.

    Parameters
    ----------
    build : callable
        Returns a new `gigatoken.Tokenizer`.
    dtype : numpy.dtype
        Of the ids.
    budget : int
        Bytes of resident memory.
    """

    def __init__(self, build: Callable[[], Any], dtype: np.dtype[Any], budget: int = CACHE_BUDGET) -> None:
        self._build, self._dtype, self._budget = build, dtype, budget
        self._tokenizer, self._grown = build(), 0
        self._scratch = np.empty(0, np.uint32)

    def encode(
        self, data: NDArray[np.uint8], bounds: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """See `Engine`."""
        texts = _awkward_strings(data, bounds)
        before = _resident_memory()
        n_ids, offsets = self._fill_scratch(texts)
        self._grown += max(0, _resident_memory() - before)
        if self._grown > self._budget:
            self._tokenizer = None  # two would not fit
            self._tokenizer, self._grown = self._build(), 0
        return self._scratch[:n_ids].astype(self._dtype), offsets

    def _fill_scratch(self, texts: Any) -> tuple[int, NDArray[np.int64]]:
        """Put the ids where the last call's were, so that what memory grows by on the way is the cache alone."""
        encoded = self._tokenizer.encode_batch(texts, parallel=False).layout
        ids = encoded.content.data
        if len(ids) > len(self._scratch):
            self._scratch = np.empty_like(ids)
        self._scratch[: len(ids)] = ids
        return len(ids), encoded.offsets.data


class Reference:
    """The reference library, one text after another on the calling thread.

    Its batch functions would do the same on a thread pool of their own.
    """

    def __init__(self, ids: Tokenize, dtype: np.dtype[Any]) -> None:
        self.ids, self._dtype = ids, dtype

    def encode(
        self, data: NDArray[np.uint8], bounds: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """See `Engine`."""
        ids = [
            np.array(self.ids(data[start:end].tobytes().decode()), self._dtype)
            for start, end in pairwise(bounds.tolist())
        ]
        offsets = np.zeros(len(bounds), np.int64)
        np.cumsum([len(one) for one in ids], out=offsets[1:])
        return np.concatenate(ids), offsets


def _awkward_strings(data: NDArray[np.uint8], bounds: NDArray[np.int64]) -> Any:
    """The texts as gigatoken takes them without a Python object for each."""
    import awkward as ak

    window = data[bounds[0] : bounds[-1]]
    characters = ak.contents.NumpyArray(window, parameters={"__array__": "char"})
    offsets = ak.index.Index64(bounds - bounds[0])
    return ak.Array(ak.contents.ListOffsetArray(offsets, characters, parameters={"__array__": "string"}))


def _resident_memory() -> int:
    """Bytes of this process's memory in RAM."""
    return int(psutil.Process().memory_info().rss)
