"""Among which documents duplicates are looked for: the whole corpus, each crawl, or each source."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kernels.xxh3 import xxh3_64

CORPUS, CRAWL, SOURCE = SCOPES = ("corpus", "crawl", "source")


def columns(scope: str) -> list[str]:
    """Of the rows of a split, or of the ledger, that `labels` reads."""
    return [] if scope == CORPUS else [scope]


def labels(table: pa.Table, scope: str) -> np.ndarray:
    """uint64[d], equal for documents that are compared with each other; 0 for all where the scope is the corpus."""
    if scope == CORPUS:
        return np.zeros(len(table), np.uint64)
    names = pc.dictionary_encode(table[scope].cast(pa.string()).fill_null("")).combine_chunks()
    hashes = np.array([xxh3_64(name.encode()) for name in names.dictionary.to_pylist()], np.uint64)
    return hashes[names.indices.to_numpy()] if len(hashes) else np.empty(0, np.uint64)
