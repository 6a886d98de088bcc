"""Signatures of the other tools, for `duplicates_quality`; runs in the environment of `referees.txt`.

``signatures_of_others DOCUMENTS.parquet FOLDER`` writes uint64[d, 112] as TOOL.npy for each tool that is installed, and
prints a line for each that is not. Parameters are the same: 112 values, 5-grams of words.

`datatrove`
    Its `MinhashDedupSignature` with its own English words and defaults (64-bit values).
`datatrove, our shingles`
    The same step, given the shingles that the others have.
`datasketch`, `rensa`
    Runs of five ``\\w`` words, lower-cased, as in `other_tools`.
"""

import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from tests.benchmarks.duplicates_quality import HASHES, shingles


def datatrove() -> Callable[[str], Sequence[Any]]:
    step = _step()
    return lambda text: np.concatenate(step.get_signature(step.get_shingles(text)))


def datatrove_our_shingles() -> Callable[[str], Sequence[Any]]:
    step = _step()

    def signature(text: str) -> Sequence[Any]:
        hashes = [step._hash_func(shingle) for shingle in shingles(text)]
        return np.concatenate(step.get_signature(np.array(hashes, np.uint64).reshape(-1, 1)))

    return signature


def _step() -> Any:
    from datatrove.pipeline.dedup.minhash import MinhashConfig, MinhashDedupSignature
    from loguru import logger

    logger.remove()
    return MinhashDedupSignature(tempfile.mkdtemp(), MinhashConfig())


def datasketch() -> Callable[[str], Sequence[Any]]:
    import datasketch
    import xxhash

    def signature(text: str) -> Sequence[Any]:
        minhash = datasketch.MinHash(num_perm=HASHES, hashfunc=xxhash.xxh32_intdigest)
        minhash.update_batch([shingle.encode() for shingle in shingles(text)])
        return minhash.hashvalues

    return signature


def rensa() -> Callable[[str], Sequence[Any]]:
    import rensa

    def signature(text: str) -> Sequence[Any]:
        minhash = rensa.RMinHash(num_perm=HASHES, seed=42)
        minhash.update(shingles(text))
        return minhash.digest()

    return signature


TOOLS = {
    "datatrove": datatrove,
    "datatrove, our shingles": datatrove_our_shingles,
    "datasketch": datasketch,
    "rensa": rensa,
}


def main() -> None:
    texts = pq.read_table(sys.argv[1])["text"].to_pylist()
    for name, tool in TOOLS.items():
        try:
            signature = tool()
        except ImportError as error:
            print(f"{name} is not installed: {error}")
            continue
        np.save(Path(sys.argv[2], f"{name}.npy"), np.array([signature(text) for text in texts], np.uint64))


if __name__ == "__main__":
    main()
