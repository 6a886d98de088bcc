"""Batches of 16 x 1,024 from one process, in order and shuffled, beside other loaders on the same tokens.

Run with ``python -m tests.benchmarks.loading [MILLION_TOKENS]``, in an environment that has the other loaders; those
that are not installed are named and left out: mosaicml-streaming, litdata, webdataset, megatron-core (installed without
what they depend on, they work). nanoGPT's batch is a few lines and stands here.

Every loader has a process of its own, reads its own format from its own folder and ends with int64 tensors x and y.
Warm: everything is in the page cache; all take turns, and the figure is the median of the turns' means. Cold: the
folder is dropped from the page cache before, and the first batches are timed as they come, once each. The copies take
the same windows from an int64 array in memory. The exit status says whether ours was the fastest of each order, and
within twice its copy.
"""

import argparse
import contextlib
import importlib
import io
import itertools
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view

from jobs.formats import llmc
from jobs.loader import ShardLoader
from tests.benchmarks.measure import Result

B, T = 16, 1024
SHARDS = 4
MILLION_TOKENS = 40
DOCUMENT = 1000  # tokens, for Megatron
TURNS, CALLS = 15, 40
COLD_BATCHES = 300
ORDERS = ("in order", "shuffled")
TIMES_COPY = 2.0

Batches = Iterator[tuple[torch.Tensor, torch.Tensor]]


def collated(samples: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """x and y of samples of T + 1 tokens."""
    rows = np.stack([np.asarray(sample) for sample in samples])
    return torch.from_numpy(rows[:, :-1].astype(np.int64)), torch.from_numpy(rows[:, 1:].astype(np.int64))


def in_batches(samples: Iterator[Any]) -> Batches:
    while len(batch := list(itertools.islice(samples, B))) == B:
        yield collated(batch)


def rows_of(tokens: np.ndarray) -> np.ndarray:
    """Samples of T + 1 tokens, as formats of samples hold them."""
    return sliding_window_view(tokens, T + 1)[::T]


# ---------------------------------------------------------------- the loaders


def shardmill(folder: Path, tokens: np.ndarray) -> Callable[[str], Batches]:
    for index, shard in enumerate(np.array_split(tokens, SHARDS)):
        with (folder / llmc.shard_name("bench", "train", index)).open("wb") as file:
            llmc.write_shard(file, shard)
    return lambda order: iter(ShardLoader("train", B, T, folder, shuffle=order == "shuffled"))


def shardmill_workers(folder: Path, tokens: np.ndarray) -> Callable[[str], Batches]:
    shardmill(folder, tokens)
    return lambda order: iter(ShardLoader("train", B, T, folder, shuffle=order == "shuffled", num_workers=1))


def nanogpt(folder: Path, tokens: np.ndarray) -> Callable[[str], Batches | None]:
    """As its train.py: rows at random offsets of one file, which is mapped anew for each batch."""
    tokens.tofile(folder / "train.bin")

    def batches() -> Batches:
        while True:
            data = np.memmap(folder / "train.bin", dtype=np.uint16, mode="r")
            offsets = torch.randint(len(data) - T, (B,))
            x = torch.stack([torch.from_numpy(data[i : i + T].astype(np.int64)) for i in offsets])
            y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + T].astype(np.int64)) for i in offsets])
            yield x, y

    return lambda order: batches() if order == "shuffled" else None


def mosaicml_streaming(folder: Path, tokens: np.ndarray) -> Callable[[str], Batches]:
    streaming = _streaming()
    columns = {"tokens": f"ndarray:uint16:{T + 1}"}
    with streaming.MDSWriter(out=str(folder), columns=columns, size_limit="64mb") as writer:
        for row in rows_of(tokens):
            writer.write({"tokens": row})

    def batches(order: str) -> Batches:
        streaming.base.util.clean_stale_shared_memory()
        dataset = streaming.StreamingDataset(local=str(folder), shuffle=order == "shuffled", batch_size=B)
        return in_batches(sample["tokens"] for sample in dataset)

    return batches


# What mosaicml-streaming imports for pictures and for texts, and does not need here.
STUBS = {
    "torchvision": (),
    "torchvision.datasets": ("VisionDataset", "CIFAR10", "ImageFolder"),
    "torchvision.transforms": (),
    "torchvision.transforms.functional": ("to_tensor",),
    "transformers": (),
    "transformers.models": (),
    "transformers.models.auto": (),
    "transformers.models.auto.tokenization_auto": ("AutoTokenizer",),
    "transformers.feature_extraction_utils": ("BatchFeature",),
    "transformers.tokenization_utils_base": ("BatchEncoding",),
}


def _streaming() -> Any:
    stubs = {name: types.ModuleType(name) for name in STUBS}
    for name, members in STUBS.items():
        for member in members:
            setattr(stubs[name], member, type(member, (), {}))
    sys.modules.update(stubs)
    try:
        return importlib.import_module("streaming")
    finally:
        for name in STUBS:  # other loaders may want the real ones
            del sys.modules[name]


def litdata(folder: Path, tokens: np.ndarray) -> Callable[[str], Batches]:
    from litdata import StreamingDataset, TokensLoader
    from litdata.streaming.writer import BinaryWriter

    loader = TokensLoader(block_size=T + 1)
    writer = BinaryWriter(str(folder), chunk_bytes="64MB", item_loader=loader)
    # Its blocks do not overlap, so that the samples are written one after the other.
    for index, part in enumerate(np.array_split(rows_of(tokens), 64)):
        writer.add_item(index, torch.from_numpy(part.reshape(-1).astype(np.int64)).to(torch.uint16))
    writer.done()
    writer.merge()

    def batches(order: str) -> Batches:
        dataset = StreamingDataset(
            str(folder), item_loader=TokensLoader(block_size=T + 1), shuffle=order == "shuffled"
        )
        return in_batches(iter(dataset))

    return batches


def webdataset(folder: Path, tokens: np.ndarray) -> Callable[[str], Batches]:
    import webdataset

    with contextlib.redirect_stdout(io.StringIO()):
        pattern = str(folder / "train-%06d.tar")
        with webdataset.ShardWriter(pattern, maxsize=64_000_000, maxcount=10**9, verbose=0) as writer:
            for i, row in enumerate(rows_of(tokens)):
                writer.write({"__key__": f"{i:09d}", "tokens.npy": row})
    tars = sorted(map(str, folder.glob("*.tar")))

    def batches(order: str) -> Batches:
        shuffled = order == "shuffled"
        dataset = webdataset.WebDataset(tars, shardshuffle=len(tars) if shuffled else False)
        if shuffled:
            dataset = dataset.shuffle(1000)  # a buffer, as its documentation has it
        return in_batches(sample["tokens.npy"] for sample in dataset.decode())

    return batches


def megatron(folder: Path, tokens: np.ndarray) -> Callable[[str], Batches | None]:
    """Its GPTDataset, which is always shuffled."""
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder
    from megatron.core.datasets.utils import Split

    prefix = str(folder / "train")
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=np.uint16)
    documents = range(0, len(tokens), DOCUMENT)
    for start in documents:
        document = torch.from_numpy(tokens[start : start + DOCUMENT].astype(np.int32))
        builder.add_document(document, [len(document)])
    builder.finalize(f"{prefix}.idx")
    config = GPTDatasetConfig(
        random_seed=1,
        sequence_length=T,
        blend=([prefix], None),
        split="100,0,0",
        tokenizer=types.SimpleNamespace(
            eod=0, pad=0, vocab_size=50_000, unique_identifiers={"name": "bench"}
        ),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
        path_to_cache=str(folder / "cache"),
    )

    def batches() -> Batches:
        dataset = GPTDataset(
            IndexedDataset(prefix),
            prefix,
            np.arange(len(documents), dtype=np.int32),
            None,
            Split.train,
            config,
        )
        samples = (dataset[i] for i in range(len(dataset)))
        while len(batch := list(itertools.islice(samples, B))) == B:
            yield torch.stack([one["tokens"] for one in batch]), torch.stack([one["labels"] for one in batch])

    return lambda order: batches() if order == "shuffled" else None


def copying(folder: Path, tokens: np.ndarray) -> Callable[[str], Batches]:
    """The same windows, copied from int64 in memory."""
    served = tokens.astype(np.int64)
    x, y = sliding_window_view(served[:-1], T)[::T], sliding_window_view(served[1:], T)[::T]
    random = np.random.default_rng(0)

    def batches(order: str) -> Batches:
        if order == "shuffled":
            for rows in random.permutation(len(x) // B * B).reshape(-1, B):
                yield torch.from_numpy(x[rows]), torch.from_numpy(y[rows])
            return
        for start in range(0, len(served) - B * T - 1, B * T):
            window = served[start : start + B * T + 1].copy()
            yield torch.from_numpy(window[:-1].reshape(B, T)), torch.from_numpy(window[1:].reshape(B, T))

    return batches


LOADERS: dict[str, Callable[[Path, np.ndarray], Callable[[str], Batches | None]]] = {
    "ShardLoader": shardmill,
    "ShardLoader, one worker": shardmill_workers,
    "nanoGPT, random memmap": nanogpt,
    "MosaicML streaming": mosaicml_streaming,
    "litdata": litdata,
    "WebDataset": webdataset,
    "Megatron GPTDataset": megatron,
    "copy": copying,
}
OURS, COPY = "ShardLoader", "copy"


# ---------------------------------------------------------------- the clock


class Candidate:
    """A loader in a process of its own, so that the threads of others do not hold its interpreter up."""

    def __init__(self, name: str, folder: Path, tokens: np.ndarray) -> None:
        context = multiprocessing.get_context("fork")
        self._here, there = context.Pipe()
        self.process = context.Process(target=_answer, args=(there, name, folder, tokens))
        self.process.start()
        there.close()

    def ask(self, what: str, order: str = "") -> Any:
        """What `_answer` says; EOFError where the process is gone."""
        self._here.send((what, order))
        return self._here.recv()

    def end(self) -> None:
        """Without waiting for its threads."""
        self.process.kill()
        self.process.join()


def _answer(connection: Connection, name: str, folder: Path, tokens: np.ndarray) -> None:
    try:
        made, missing = LOADERS[name](folder, tokens), ""
    except ImportError as error:
        missing = str(error)
    endless: dict[str, Batches] = {}
    while True:
        what, order = connection.recv()
        if what == "missing":
            connection.send(missing)
        elif what == "able":
            connection.send((batches := made(order)) is not None and _is_right(batches))
        elif what == "cold":
            drop_from_page_cache(folder)
            connection.send(microseconds(made(order), COLD_BATCHES))
        else:
            if order not in endless:
                endless[order] = itertools.chain.from_iterable(made(order) for _ in itertools.count())
                keep_in_page_cache(folder)
                microseconds(endless[order], 2 * CALLS)
            connection.send(microseconds(endless[order], CALLS))


def _is_right(batches: Batches) -> bool:
    x, y = next(batches)
    assert x.shape == y.shape == (B, T)
    assert x.dtype == y.dtype == torch.int64
    assert torch.equal(x[:, 1:], y[:, :-1])
    return True


def microseconds(batches: Batches, n: int) -> float:
    """Mean of the next n batches."""
    begun = time.perf_counter_ns()
    taken = sum(1 for _ in itertools.islice(batches, n))
    return (time.perf_counter_ns() - begun) / taken / 1e3


def drop_from_page_cache(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def keep_in_page_cache(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            path.read_bytes()


# ---------------------------------------------------------------- the program


def started(root: Path, tokens: np.ndarray) -> dict[str, Candidate]:
    """Those that are installed."""
    found = {}
    for name in LOADERS:
        folder = root / name.replace(" ", "_").replace(",", "")
        folder.mkdir()
        candidate = Candidate(name, folder, tokens)
        if missing := candidate.ask("missing"):
            print(f"{name} is left out: {missing}")
            candidate.end()
        else:
            found[name] = candidate
    return found


def warm_turns(candidates: dict[str, Candidate], order: str) -> dict[str, list[float]]:
    """Microseconds for a batch in each turn, by loader; those that cannot serve the order are left out."""
    able = {name: one for name, one in candidates.items() if one.ask("able", order)}
    turns = [{name: one.ask("turn", order) for name, one in able.items()} for _ in range(TURNS)]
    return {name: [turn[name] for turn in turns] for name in able}


def measure() -> list[Result]:
    """Lines of the table: ours beside every loader that is installed, and beside the copy."""
    torch.set_num_threads(1)
    tokens = np.random.default_rng(0).integers(0, 50_000, MILLION_TOKENS * 10**6, dtype=np.uint16)
    found = []
    with tempfile.TemporaryDirectory() as root:
        candidates = started(Path(root), tokens)
        try:
            for order in ORDERS:
                turns = warm_turns(candidates, order)
                found += [
                    Result(
                        f"batch of {B} x {T:,}, uint16, {order}",
                        "us",
                        turns[OURS],
                        name,
                        theirs,
                        times=1 / TIMES_COPY if name == COPY else 1,
                    )
                    for name, theirs in turns.items()
                    if not name.startswith(OURS)
                ]
        finally:
            for candidate in candidates.values():
                candidate.end()
    return found


def compared(candidates: dict[str, Candidate], order: str) -> bool:
    """Measure and print one order; whether ours was fast enough."""
    able = {name: one for name, one in candidates.items() if one.ask("able", order)}
    cold = {name: one.ask("cold", order) for name, one in able.items() if name != COPY}
    turns = warm_turns(candidates, order)
    warm = {name: statistics.median(turns[name]) for name in able}

    def times(name: str, other: str) -> float:
        """How many times longer, turn by turn."""
        return statistics.median(a / b for a, b in zip(turns[name], turns[other], strict=True))

    print(f"\n{order}: microseconds for a batch of {B} x {T:,}, uint16")
    print(f"  {'':28} {'warm':>9} {'x ours':>7} {'x copy':>7} {'cold':>9} {'x ours':>7}")
    for name, us in sorted(warm.items(), key=lambda item: item[1]):
        line = f"  {name:28} {us:9,.1f} {times(name, OURS):7.2f} {times(name, COPY):7.2f}"
        print(line + (f" {cold[name]:9,.1f} {cold[name] / cold[OURS]:7.2f}" if name in cold else ""))
    fastest = all(times(name, OURS) >= 1 for name in warm if name != COPY)
    within = times(OURS, COPY) <= TIMES_COPY
    print(
        f"  ours is {'' if fastest else 'NOT '}the fastest, and {'' if within else 'NOT '}within twice the copy"
    )
    return fastest and within


def main(million_tokens: int) -> int:
    torch.set_num_threads(1)
    tokens = np.random.default_rng(0).integers(0, 50_000, million_tokens * 10**6, dtype=np.uint16)
    with tempfile.TemporaryDirectory() as root:
        candidates = started(Path(root), tokens)
        try:
            met = [compared(candidates, order) for order in ORDERS]
            return 0 if all(met) else 1
        finally:
            for candidate in candidates.values():
                candidate.end()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.loading", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "million_tokens", nargs="?", type=int, default=MILLION_TOKENS, metavar="MILLION_TOKENS"
    )
    sys.exit(main(parser.parse_args().million_tokens))
