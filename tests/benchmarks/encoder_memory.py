"""Resident memory while 2 GB of varied text are encoded: flat, because the cache is thrown away on its budget.

Run with ``python tests/benchmarks/encoder_memory.py [gigabytes]``. Source code and documentation of installed packages
over and over, in each round with one letter in a hundred replaced at random, so that new words never end; every tenth
part is base64 noise, where no word ever comes again. The same without a budget, over a quarter of it, for comparison.
The exit status says whether memory stayed flat.
"""

import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa

from jobs.tokens import training
from jobs.tokens.encoder import Spec, load
from jobs.tokens.engines import CACHE_BUDGET

PART = 16_000_000  # bytes encoded at a time, in documents of DOCUMENT bytes
DOCUMENT = 5_000
SLACK = 64 * 2**20  # a part's ids and the encoder's work space, beside the cache


def resident_mb() -> float:
    return float(psutil.Process().memory_info().rss) / 1e6


def source_text() -> bytes:
    """ASCII text of installed packages, PART bytes."""
    collected = bytearray()
    for path in sorted(Path(pa.__file__).parents[1].rglob("*.py")):
        collected += path.read_bytes()
        if len(collected) >= 2 * PART:
            break
    return bytes(collected).decode(errors="ignore").encode("ascii", "ignore")[:PART]


def varied(n_bytes: int, seed: int) -> Iterator[pa.Array]:
    """Parts of PART bytes each that have new words in them."""
    random = np.random.default_rng(seed)
    base = np.frombuffer(source_text(), np.uint8)
    letters = np.flatnonzero((base | 32) - np.uint8(97) < 26)
    base64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
    offsets = pa.py_buffer(np.arange(0, len(base) + 1, DOCUMENT, dtype=np.int64))
    for part in range(n_bytes // PART):
        if part % 10 == 9:
            data = base64[random.integers(0, 64, len(base), dtype=np.uint8)]
        else:
            data = base.copy()
            places = random.choice(letters, len(letters) // 100, replace=False)
            data[places] = random.integers(97, 123, len(places), dtype=np.uint8)
        yield pa.LargeStringArray.from_buffers(len(base) // DOCUMENT, offsets, pa.py_buffer(data))


def grown_mb(spec: Spec, n_bytes: int, every: int = 16) -> float:
    """Encode, print the resident memory on the way, and return by how much it grew at most after the first part."""
    coder = load(spec)
    done, begun, first, most = 0, time.perf_counter(), 0.0, 0.0
    for number, text in enumerate(varied(n_bytes, seed=1)):
        coder.encode(text)
        done += PART
        first = first or resident_mb()
        most = max(most, resident_mb())
        if number % every == every - 1:
            speed = done / 1e6 / (time.perf_counter() - begun)
            print(f"  {done / 1e6:6,.0f} MB {resident_mb():8,.0f} MB resident {speed:8.0f} MB/s", flush=True)
    return most - first


def main() -> int:
    n_bytes = int(float(sys.argv[1] if len(sys.argv) > 1 else 2) * 1e9)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        path.write_text(training.train(iter([source_text().decode().split("\n\n")])))
        print(f"cache budget {CACHE_BUDGET / 2**20:.0f} MiB")
        bounded = grown_mb(Spec(str(path)), n_bytes)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        print(f"  grew by {bounded:,.0f} MB at most; highest of the process {peak:,.0f} MB")
        print("no budget")
        unbounded = grown_mb(Spec(str(path), cache_budget=2**62), n_bytes // 4)
        print(f"  grew by {unbounded:,.0f} MB")
    flat = bounded * 1e6 <= CACHE_BUDGET + SLACK
    print(f"flat, within {(CACHE_BUDGET + SLACK) / 2**20:.0f} MiB: {'yes' if flat else 'no'}")
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
