"""Packing: the shuffled documents of each split, end to end, cut into llm.c shards.

A shard is a task. It reads the ranges of the order that its tokens come from, and from each token store the run of
tokens between them: stores are laid out in the seeded order, so that is one stretch of each file.
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from jobs import ledger
from jobs.formats import llmc
from jobs.pipeline.order import Ranges
from jobs.pipeline.paths import SplitPaths
from jobs.pipeline.validation import ranges
from jobs.runtime import checkpoint, fingerprint, folders
from jobs.runtime.compute import columns, finish_task, map_tasks
from kernels import packing

if TYPE_CHECKING:
    from jobs.runtime.context import Run

NAME = "shards"
SUMMARY = columns(
    key="string",
    tokens="int64",
    n_bytes="int64",
)


@dataclass(frozen=True)
class Shard:
    """Tokens `start` to `stop` of a split's stream, and the file they go to."""

    path: Path
    split: str
    start: int
    stop: int


def pack_shard(
    shard: Shard, order: Ranges, stores: list[SplitPaths], dtype: str, fingerprint: str
) -> pd.DataFrame:
    """Gather a shard's tokens and commit its file.

    Memory: the shard's tokens, and one range of the order at a time.
    """
    tokens = np.empty(shard.stop - shard.start, dtype)
    filled = 0
    for index in order.overlapping(shard.split, shard.start, shard.stop):
        filled += _fill(tokens, _documents(order.read(index), shard), shard, stores)
    if filled != len(tokens):
        raise RuntimeError(f"{shard.path}: {len(tokens):,} tokens belong here, {filled:,} were found")
    with checkpoint.written(shard.path) as file:
        llmc.write_shard(file, tokens)
    figures = {"tokens": len(tokens), "n_bytes": llmc.HEADER_BYTES + tokens.nbytes}
    return finish_task(shard.path.parent, fingerprint, shard.path.stem, [shard.path], figures, SUMMARY)


def _documents(rows: pd.DataFrame, shard: Shard) -> pd.DataFrame:
    """The rows of the shard's split that lie in it, wholly or partly, by token store."""
    of_split = rows["kept"] & (rows["is_validation"] == (shard.split == ledger.VALIDATION))
    inside = (rows["position"] < shard.stop) & (rows["position"] + rows["n_tokens"] > shard.start)
    return rows[of_split & inside].sort_values(["split", "start"], kind="stable")


def _fill(tokens: np.ndarray, documents: pd.DataFrame, shard: Shard, stores: list[SplitPaths]) -> int:
    """Copy the documents' tokens to their places, cutting those that cross the shard's bounds."""
    position, n_tokens = documents["position"].to_numpy(), documents["n_tokens"].to_numpy()
    skipped = np.maximum(shard.start - position, 0)
    lengths = np.minimum(position + n_tokens, shard.stop) - (position + skipped)
    starts, places = documents["start"].to_numpy() + skipped, position + skipped - shard.start
    numbers, first = np.unique(documents["split"].to_numpy(), return_index=True)
    bounds = np.append(first, len(documents))
    begin, end = starts[first], (starts + lengths)[bounds[1:] - 1]
    read = folders.slices([stores[n].tokens for n in numbers], tokens.dtype, np.column_stack((begin, end)))
    for store, base, (a, b) in zip(read, begin, pairwise(bounds), strict=True):
        packing.gather(store, starts[a:b] - base, lengths[a:b], tokens, places[a:b])
    return int(lengths.sum())


def plan(run: "Run", folder: Path) -> list[Shard]:
    """The shards of both splits."""
    settings = run.config.shards
    shards = []
    for split, tokens in run.figures("validation")["tokens"].items():
        sizes = llmc.shard_sizes(sum(tokens), settings.tokens, settings.min_tokens)
        ends = np.cumsum(sizes)
        for number, (start, stop) in enumerate(zip(ends - sizes, ends, strict=True)):
            path = folder / llmc.shard_name(settings.name, LLMC_SPLITS[split], number)
            shards.append(Shard(path, split, int(start), int(stop)))
    return shards


LLMC_SPLITS = {ledger.TRAIN: "train", ledger.VALIDATION: "val"}


def shard_ends(plan: list[Shard]) -> dict[str, np.ndarray]:
    """For each split, the position after the last token of each of its shards."""
    return {
        split: np.array([shard.stop for shard in plan if shard.split == split], np.int64)
        for split in LLMC_SPLITS
    }


def job_fingerprint(run: "Run") -> str:
    """Covers the shards' settings and the split order."""
    return fingerprint.fingerprint(
        __name__,
        settings=run.config.shards.model_dump(exclude={"formats", "rows"}),
        order=run.fingerprints["validation"],
    )


def run(run: "Run", job: checkpoint.Checkpoint) -> dict[str, Any]:
    """Pack every shard that is not there yet."""
    shards = plan(run, job.folder)
    map_tasks(
        run,
        job,
        NAME,
        "shards",
        pack_shard,
        [shard.path.stem for shard in shards],
        shards,
        job.fingerprint,
        SUMMARY,
        order=ranges(run),
        stores=run.annotated,
        dtype=run.dtype,
        fingerprint=job.fingerprint,
    )
    return {
        "dtype": run.dtype,
        "end_of_text": run.end_of_text_id,
        "shards": [[shard.split, shard.path.name, shard.stop - shard.start] for shard in shards],
    }
