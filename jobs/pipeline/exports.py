"""Exports: the same tokens in other formats than llm.c's, read from the shards, never tokenized again.

A shard of a format, one file or those that belong together, is a task. Documents go where their first token is: whole
into the shard with the number of the llm.c shard in which they begin. A row of the stream goes where it begins.
nanoGPT has one file for each split. A shard in which nothing begins is left out, and its number with it.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from jobs.formats import datatrove, mds, megatron, nanogpt, parquet, webdataset
from jobs.pipeline.shards import LLMC_SPLITS, Shard
from jobs.pipeline.streams import Stream, streams, windows
from jobs.runtime import checkpoint, fingerprint
from jobs.runtime.compute import columns, finish_task, map_tasks
from jobs.settings.formats import WITH_ROWS, Format, Rows, token_dtype
from kernels import permutation, rows

if TYPE_CHECKING:
    from jobs.runtime.context import Run

NAME = "exports"
SUMMARY = columns(
    key="string",
    samples="int64",
    tokens="int64",
    n_bytes="int64",
    entry="string",  # of an MDS shard in its index
)


# ---------------------------------------------------------------- what goes into a shard


class Samples:
    """What goes into one shard of an export: whole documents, or rows of one length."""

    def __init__(self, stream: Stream, shard: Shard, settings: Rows | None) -> None:
        self.rows: NDArray[Any] | None = None
        self.n_tokens: NDArray[np.int64] | None = None  # before the filling of each row
        if settings and settings.policy == "stream":
            start, stop = windows(stream, shard, settings.length)
            self.tokens = stream.tokens(start, stop)
            self.rows = self.tokens.reshape(-1, settings.length)
            return
        documents = stream.documents(shard.start, shard.stop)
        documents = documents[documents["position"] >= shard.start]
        self.doc_ids = documents["doc_id"].to_numpy(np.uint64)
        self.lengths = documents["n_tokens"].to_numpy(np.int64)
        first = int(documents["position"].iloc[0]) if len(documents) else 0
        self.tokens = stream.tokens(first, first + int(self.lengths.sum()))
        if settings:
            self.rows, self.n_tokens = filled_rows(
                self.tokens, self.lengths, settings, stream.end_of_text, first
            )

    def __len__(self) -> int:
        return len(self.lengths) if self.rows is None else len(self.rows)


def filled_rows(
    tokens: NDArray[Any], lengths: NDArray[np.int64], settings: Rows, filling: int, position: int
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Rows of whole documents, filled up with the end-of-text token.

    Packing begins with the longest pieces; so that a training run does not, packed rows are put in the order of a
    keyed hash of the place in the stream of their first token.
    """
    starts = np.cumsum(lengths) - lengths
    if settings.policy == "padding":
        return rows.fill(rows.padded(lengths, settings.length), tokens, starts, settings.length, filling)
    pieces = rows.best_fit(lengths, settings.length)
    first = np.flatnonzero(np.diff(pieces.row, prepend=-1))
    places = (starts[pieces.document[first]] + pieces.start[first] + position).astype(np.uint64)
    order = permutation.seeded_order(places, permutation.key("rows", 0))
    packed, n_tokens = rows.fill(pieces, tokens, starts, settings.length, filling)
    return packed[order], n_tokens[order]


# ---------------------------------------------------------------- the tasks


@dataclass(frozen=True)
class Task:
    """One shard of an export, or nanoGPT's file of a split."""

    format: Format
    folder: Path  # of the split in the format
    split: str
    number: int
    dtype: str

    @property
    def key(self) -> str:
        """Its name among the tasks of the job."""
        return f"{self.format}-{LLMC_SPLITS[self.split]}-{self.number:06d}"


def export_shard(
    task: Task, streams: dict[str, Stream], settings: Rows | None, folder: Path, fingerprint: str
) -> pd.DataFrame:
    """Write one task's files and commit them.

    Memory: the tokens of one llm.c shard and of the document that crosses its end, twice where they become rows.
    """
    stream = streams[task.split]
    if task.format == "nanogpt":
        paths, figures = write_stream(task, stream)
    else:
        samples = Samples(stream, stream.shards[task.number], settings if task.format in WITH_ROWS else None)
        paths, entry = WRITE[task.format](task, stream, samples) if len(samples) else ([], {})
        figures = {"samples": len(samples), "tokens": len(samples.tokens), "entry": json.dumps(entry)}
    figures["n_bytes"] = sum(path.stat().st_size for path in paths)
    return finish_task(folder, fingerprint, task.key, paths, figures, SUMMARY)


def write_stream(task: Task, stream: Stream) -> tuple[list[Path], dict[str, Any]]:
    """A split's one file, a shard's tokens at a time."""
    path = task.folder / f"{LLMC_SPLITS[task.split]}.bin"
    pieces = (
        stream.tokens(shard.start, shard.stop).astype(task.dtype, copy=False) for shard in stream.shards
    )
    with checkpoint.written(path) as file:
        tokens = nanogpt.write_tokens(file, pieces)
    return [path], {"samples": 1, "tokens": tokens, "entry": ""}


def _named(task: Task, stream: Stream, *endings: str) -> list[Path]:
    stem = f"{stream.name}_{LLMC_SPLITS[task.split]}_{task.number:06d}"
    return [task.folder / f"{stem}{ending}" for ending in endings]


def _megatron(task: Task, stream: Stream, samples: Samples) -> tuple[list[Path], dict[str, Any]]:
    paths = _named(task, stream, ".bin", ".idx")
    with checkpoint.written(paths[0]) as tokens, checkpoint.written(paths[1]) as index:
        megatron.write_documents(tokens, index, samples.tokens, samples.lengths, task.dtype)
    return paths, {}


def _datatrove(task: Task, stream: Stream, samples: Samples) -> tuple[list[Path], dict[str, Any]]:
    paths = _named(task, stream, ".ds", ".ds.index", ".ds.metadata")
    ds, index, metadata = map(checkpoint.written, paths)
    with ds as tokens, index as ends, metadata as text:
        datatrove.write_documents(tokens, ends, text, samples.tokens, samples.lengths, stream.tokenizer)
    return paths, {}


def _mds(task: Task, stream: Stream, samples: Samples) -> tuple[list[Path], dict[str, Any]]:
    path = task.folder / mds.shard_name(task.number)
    with checkpoint.written(path) as file:
        if samples.rows is None:
            entry = mds.write_documents(file, samples.tokens, samples.lengths, samples.doc_ids)
        else:
            entry = mds.write_rows(file, samples.rows, samples.n_tokens)
    entry["raw_data"]["basename"] = path.name
    return [path], entry


def _webdataset(task: Task, stream: Stream, samples: Samples) -> tuple[list[Path], dict[str, Any]]:
    (path,) = _named(task, stream, ".tar")
    with checkpoint.written(path) as file:
        if samples.rows is None:
            webdataset.write_documents(file, samples.tokens, samples.lengths, samples.doc_ids)
        else:
            webdataset.write_rows(file, task.number, samples.rows, samples.n_tokens)
    return [path], {}


def _parquet(task: Task, stream: Stream, samples: Samples) -> tuple[list[Path], dict[str, Any]]:
    (path,) = _named(task, stream, ".parquet")
    with checkpoint.written(path) as file:
        if samples.rows is None:
            parquet.write_documents(file, samples.tokens, samples.lengths, samples.doc_ids)
        else:
            parquet.write_rows(file, samples.rows, samples.n_tokens)
    return [path], {}


WRITE = {
    "megatron": _megatron,
    "datatrove": _datatrove,
    "mds": _mds,
    "webdataset": _webdataset,
    "parquet": _parquet,
}


# ---------------------------------------------------------------- the job


def tasks(
    streams: dict[str, Stream], folders: dict[Format, Path], dtypes: dict[Format, str]
) -> Iterator[Task]:
    """One for each shard of each format, and one for each of nanoGPT's files."""
    for name, folder in folders.items():
        for split, stream in streams.items():
            one_file = name == "nanogpt"
            place = folder if one_file else folder / LLMC_SPLITS[split]
            for number in range(1 if one_file else len(stream.shards)):
                yield Task(name, place, split, number, dtypes[name])


def export(
    run: "Run", job: checkpoint.Checkpoint, folders: dict[Format, Path], task_fingerprint: str
) -> dict[str, Any]:
    """Write every shard that is not there yet, and the indexes; count again that no token is missing."""
    settings, of_split = run.config.shards.rows, streams(run)
    dtypes = {name: token_dtype(name, run.vocab_size, run.config.shards.dtype) for name in folders}
    planned = list(tasks(of_split, folders, dtypes))
    summary = map_tasks(
        run,
        job,
        NAME,
        "shards",
        export_shard,
        [task.key for task in planned],
        planned,
        task_fingerprint,
        SUMMARY,
        streams=of_split,
        settings=settings,
        folder=job.folder,
        fingerprint=task_fingerprint,
    )
    figures: dict[str, Any] = {}
    by_split = summary.assign(
        format=[task.format for task in planned], split=[task.split for task in planned]
    ).groupby(["format", "split"], sort=False)
    for (name, split), rows_of_split in by_split:
        held, stream = int(rows_of_split["tokens"].sum()), of_split[split]
        expected = expected_tokens(stream, settings if name in WITH_ROWS else None)
        if held != expected:
            raise RuntimeError(f"{name} of {split}: {held:,} tokens were written, {expected:,} belong there")
        if name == "mds":
            write_index(folders[name] / LLMC_SPLITS[split], rows_of_split["entry"])
        totals = {column: int(rows_of_split[column].sum()) for column in ("samples", "tokens", "n_bytes")}
        figures.setdefault(name, {})[split] = totals
    return figures


def expected_tokens(stream: Stream, settings: Rows | None) -> int:
    """All of them, but for those too few for a last row of the stream."""
    if settings and settings.policy == "stream":
        return stream.n_tokens // settings.length * settings.length
    return stream.n_tokens


def write_index(folder: Path, entries: pd.Series) -> None:
    """MDS's index of a split."""
    described = [entry for text in entries if (entry := json.loads(text))]
    with checkpoint.written(folder / "index.json") as file:
        mds.write_index(file, described)


def task_fingerprint(run: "Run") -> str:
    """Covers the rows and the shards that are read, and not the formats: one more leaves the others as they are."""
    rows = run.config.shards.rows
    return fingerprint.fingerprint(
        __name__,
        rows=rows and rows.model_dump(),
        dtype=run.config.shards.dtype,
        shards=run.fingerprints["shards"],
    )


def job_fingerprint(run: "Run") -> str:
    """Covers what the tasks' does, and the formats."""
    return fingerprint.fingerprint(__name__, formats=run.config.shards.formats, tasks=task_fingerprint(run))


def run(run: "Run", job: checkpoint.Checkpoint) -> dict[str, Any]:
    """Export to every format that is asked for beside llm.c's."""
    folders: dict[Format, Path] = {
        name: job.folder / name for name in run.config.shards.formats if name != "llmc"
    }
    if not folders:
        job.begin()
        return {}
    return export(run, job, folders, task_fingerprint(run))
