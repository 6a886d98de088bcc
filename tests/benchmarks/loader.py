"""ShardLoader.batch of 16 × 1,024 from the page cache, beside nanoGPT's batch and beside bare copies.

Run with ``python tests/benchmarks/loader.py``. Medians, in one process and in turns, so that a busy machine
slows all alike. The target is 0.1 ms; the exit status says whether it was met.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from jobs.formats import llmc
from jobs.loader import ShardLoader

B, T = 16, 1024
SHARDS, SHARD_TOKENS = 4, 25_000_000
TURNS, CALLS = 30, 100
TARGET_MS = 0.1


def nanogpt_batch(path: Path, dtype: np.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows at random offsets of one file, which is mapped anew for each batch, as nanoGPT's train.py does."""
    data = np.memmap(path, dtype=dtype, mode="r")
    offsets = torch.randint(len(data) - T, (B,))
    x = torch.stack([torch.from_numpy(data[i : i + T].astype(np.int64)) for i in offsets])
    y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + T].astype(np.int64)) for i in offsets])
    return x, y


def candidates(folder: Path, dtype: str) -> dict[str, Callable[[int], object]]:
    rng = np.random.default_rng(0)
    for index in range(SHARDS):
        with (folder / llmc.shard_name("bench", "train", index)).open("wb") as file:
            llmc.write_shard(file, rng.integers(0, 50_000, SHARD_TOKENS, dtype=dtype))
    paths = llmc.find_shards(folder, "train")
    loader = ShardLoader("train", B, T, folder)
    shuffled = rng.permutation(loader.n_batches)
    shard = np.asarray(llmc.open_shard(paths[0]))
    shard.max()  # all of its pages are resident now
    served = loader.window(0, SHARD_TOKENS // 4)
    n = B * T + 1
    return {
        "ShardLoader.batch, in order": loader.batch,
        "ShardLoader.batch, shuffled": lambda i: loader.batch(int(shuffled[i % loader.n_batches])),
        "nanoGPT's random memmap batch": lambda i: nanogpt_batch(paths[0], shard.dtype),
        "copy of the batch as stored": lambda i: shard[i * n % (SHARD_TOKENS - n) :][:n].copy(),
        "copy of the batch as served (int64)": lambda i: served[i * n % (len(served) - n) :][:n].copy(),
    }


def medians_ms(functions: dict[str, Callable[[int], object]]) -> dict[str, float]:
    times: dict[str, list[int]] = {name: [] for name in functions}
    for turn in range(TURNS):
        for name, function in functions.items():
            for i in range(turn * CALLS, (turn + 1) * CALLS):
                begun = time.perf_counter_ns()
                function(i)
                times[name].append(time.perf_counter_ns() - begun)
    return {name: statistics.median(ns) / 1e6 for name, ns in times.items()}


def main() -> int:
    met = True
    for dtype in ("uint16", "uint32"):
        with tempfile.TemporaryDirectory() as folder:
            result = medians_ms(candidates(Path(folder), dtype))
        ours = result["ShardLoader.batch, in order"]
        met &= ours < TARGET_MS
        print(f"{dtype}, batches of {B} x {T:,}")
        for name, ms in result.items():
            print(f"  {name:36} {ms:8.4f} ms  {ms / ours:6.2f} x  {B * T / ms / 1e3:8,.0f} million tokens/s")
    print(f"target below {TARGET_MS} ms: {'met' if met else 'missed'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
