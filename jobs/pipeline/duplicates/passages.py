"""Passages that occur more than once in the corpus, and which document keeps each.

A pass over the text of its own, before the tokenizer and the annotate pass, which can only take out what is known to
repeat. It takes documents through the same steps, so extraction and classifiers work twice where this is on; a
document that a step drops does not count.

1. Each split's passages, by hash: the document of the split that comes first, and how often it has the passage;
   `KEY.passages.npy`, uint64[3, n], hashes in order, 24 bytes a different passage.
2. Hashes that occur once in the corpus stay out of the shuffle (`duplicates.repeats`).
3. The others are shuffled by ranges of the hash and reduced; those that repeat become the table that
   `jobs.steps.repeated_passages` describes, 16 bytes a passage, which workers memory-map.

Memory of a worker: the passages of a split, or the rows of a range, and the tables of `duplicates.repeats`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from jobs import sources, steps
from jobs.pipeline.duplicates import repeats
from jobs.pipeline.duplicates.repeats import Repeats
from jobs.runtime import checkpoint, fingerprint, folders
from jobs.runtime.compute import Named, columns, finish_task, gather, map_tasks
from jobs.settings.contamination import Contamination
from jobs.steps import repeated_passages
from kernels import words

if TYPE_CHECKING:
    from jobs.config import Source
    from jobs.runtime.context import Run
    from jobs.settings.duplicates import RepeatedPassages

NAME = "repeated_passages"
PASSAGES_IN_A_RANGE = 4_000_000  # at most, about; before those that occur once are left out
COUNTED = columns(
    key="string",
    documents="int64",
    n_bytes="int64",
    passages="int64",
)
ROWS = columns(
    range="int64",
    hash="uint64",
    doc_id="uint64",
    occurrences="uint64",
)
SUMMARY = columns(
    range="int64",
    passages="int64",
    occurrences="int64",
)


@dataclass(frozen=True)
class Step:
    """All that a task needs."""

    folder: Path
    sources: dict[str, "Source"]
    fingerprint: str


# ---------------------------------------------------------------- partition functions


def count_split(split: sources.Split, step: Step) -> pd.DataFrame:
    """Write the different passages of a split, and return one row of counts."""
    source, found = step.sources[split.source], [np.empty((3, 0), np.uint64)]
    documents = n_bytes = 0
    for batch in sources.read(source, split):
        begun = steps.before_repeats(split.path, batch, source)
        alive = np.flatnonzero(begun.alive)
        text = begun.text.take(pa.array(alive))
        found.append(count(text, begun.doc_ids[alive], source.repeated_passages))
        documents, n_bytes = documents + len(text), n_bytes + sum(map(len, text.buffers()[2:]))
    table = reduced(*np.concatenate(found, axis=1))
    path = passages_path(step.folder, split.key)
    with checkpoint.written(path) as file:
        checkpoint.save_array(file, table)
    figures = {"documents": documents, "n_bytes": n_bytes, "passages": int(table[2].sum())}
    return finish_task(step.folder, step.fingerprint, split.key, [path], figures, COUNTED)


def count(text: pa.LargeStringArray, doc_ids: np.ndarray, settings: "RepeatedPassages") -> np.ndarray:
    """uint64[3, n]: the different passages of documents, as `reduced` has them."""
    passages = repeated_passages.passages_of(text, settings)
    hashes, document = passages.hashes[passages.counted], passages.document[passages.counted]
    return reduced(hashes, doc_ids[document], np.ones(len(hashes), np.uint64))


def passages_path(folder: Path, key: str) -> Path:
    """Where the passages of a split are."""
    return folder / f"{key}.passages.npy"


def reduced(hashes: np.ndarray, doc_ids: np.ndarray, occurrences: np.ndarray) -> np.ndarray:
    """uint64[3, n]: each hash once and in order, with the first document that has it and the sum of occurrences."""
    order = np.lexsort((repeated_passages.ranks(doc_ids), hashes))
    hashes = hashes[order]
    starts = np.flatnonzero(np.concatenate(([True], hashes[1:] != hashes[:-1]))[: len(hashes)])
    totals = np.add.reduceat(occurrences[order], starts) if len(starts) else occurrences
    return np.stack((hashes[starts], doc_ids[order][starts], totals))


def noted(path: Path) -> np.ndarray:
    """uint64[n], the hashes of a split's passages, twice where they occur there more than once."""
    hashes, _, occurrences = folders.load(path)
    return np.repeat(hashes, np.minimum(occurrences, 2).astype(np.int64))


def rows_of_split(path: Path, repeated: Repeats, ranges: int) -> pd.DataFrame:
    """The passages of a split that may occur twice in the corpus."""
    table = folders.load(path)
    hashes, doc_ids, occurrences = table[:, repeated.among(table[0]) | (table[2] > 1)]
    number = repeated_passages.range_of(hashes, ranges)
    return pd.DataFrame({"range": number, "hash": hashes, "doc_id": doc_ids, "occurrences": occurrences})


def write_ranges(rows: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Write what repeats of each range of this partition, and return its totals."""
    summaries = []
    for number, part in rows.groupby("range", sort=True):
        table = reduced(*(part[name].to_numpy(np.uint64) for name in ("hash", "doc_id", "occurrences")))
        table = table[:, table[2] > 1]
        if table.shape[1]:
            with checkpoint.written(folder / repeated_passages.range_name(int(number))) as file:
                checkpoint.save_array(file, table[:2])
        summaries.append({"range": number, "passages": table.shape[1], "occurrences": int(table[2].sum())})
    return pd.DataFrame(summaries, columns=SUMMARY.columns).astype(SUMMARY.dtypes)


# ---------------------------------------------------------------- the job


def identity(run: "Run") -> str | None:
    """What fingerprints of later jobs hold; nothing where no source uses this, whatever files there are."""
    return run.fingerprints[NAME] if _sources(run) else None


def job_fingerprint(run: "Run") -> str:
    """Covers how passages are made, and the files as they are now."""
    inputs = run.inventory.identity() if _sources(run) else None
    return fingerprint.fingerprint(__name__, step=_step_fingerprint(run), inputs=inputs)


def _step_fingerprint(run: "Run") -> str:
    """Covers what happens to a split, whichever others there are."""
    found = _sources(run).values()
    return fingerprint.fingerprint(
        __name__,
        columns={source.name: [source.columns, source.extra] for source in found},
        steps={source.name: steps.identity(source) for source in found},
        unicode=words.unicode_version(),
        versions=fingerprint.versions("pyarrow"),
    )


def _sources(run: "Run") -> dict[str, "Source"]:
    """The sources whose passages count, by name, with what matters to them."""
    later = {"contamination": Contamination()}
    return {
        source.name: source.model_copy(
            update={"repeated_passages": source.repeated_passages.counting, **later}
        )
        for source in run.sources
        if source.repeated_passages.enabled
    }


def run(run: "Run", job: checkpoint.Checkpoint) -> dict[str, Any]:
    """Find the passages that repeat; nothing where no source uses this."""
    step = Step(job.folder, _sources(run), _step_fingerprint(run))
    splits = [split for split in run.splits if split.source in step.sources]
    if not splits:
        job.begin()
        return {"documents": 0, "passages": 0, "repeated_passages": 0, "their_occurrences": 0}
    counted = map_tasks(
        run,
        job,
        NAME,
        "splits",
        count_split,
        [split.key for split in splits],
        splits,
        step.fingerprint,
        COUNTED,
        resources=run.resources,
        step=step,
    )
    passages = int(counted["passages"].sum())
    found = _repeated(run, job.folder, [passages_path(job.folder, split.key) for split in splits], passages)
    return {
        "documents": int(counted["documents"].sum()),
        "passages": passages,
        "repeated_passages": int(found["passages"].sum()),
        "their_occurrences": int(found["occurrences"].sum()),
    }


def _repeated(run: "Run", folder: Path, paths: list[Path], passages: int) -> pd.DataFrame:
    """Write the table of what repeats; return its totals by range."""
    import dask
    import dask.dataframe as dd

    scratch, tasks = folder / repeats.FOLDER, sum(run.client.nthreads().values())
    ranges = 1 << max(0, (passages - 1) // PASSAGES_IN_A_RANGE).bit_length()
    repeated = repeats.graph(paths, noted, passages, scratch, tasks)
    frames = [
        dask.delayed(Named("read passages", rows_of_split), pure=False)(path, repeated, ranges)
        for path in paths
    ]
    rows = dd.from_delayed(frames, meta=ROWS, prefix="passages", verify_meta=False)
    graph = rows.shuffle("range", npartitions=ranges).map_partitions(
        Named("choose passages", write_ranges), folder=folder, meta=SUMMARY
    )
    with run.console.job(NAME, ranges, "ranges") as meter:
        found = gather(run.client, graph, meter, counted=())
    folders.remove_folder(scratch)
    counts = np.zeros(ranges, np.int64)
    counts[found["range"].to_numpy()] = found["passages"].to_numpy()
    with checkpoint.written(folder / repeated_passages.RANGES) as file:
        checkpoint.save_array(file, counts)
    return found
