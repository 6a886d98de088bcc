"""Train a tokenizer on a keyed sample of the sources, or take an existing one into the output.

`OUT/tokenizer` holds the definition that the run encodes with, and `sample.npy`, the sorted hash prefixes of the
texts that it was trained on: a reference set, which validation must not overlap.
"""

import argparse
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from jobs import ledger, sources, steps
from jobs.errors import UserError
from jobs.pipeline.duplicates import passages
from jobs.runtime import checkpoint, fingerprint, folders
from jobs.runtime.compute import columns, gather
from jobs.text import hash_prefixes, text_buffers, text_hashes
from jobs.tokens import training
from kernels import permutation
from kernels.xxh3 import xxh3_64

if TYPE_CHECKING:
    from jobs.config import Config, Source
    from jobs.runtime.context import Run

NAME = "tokenizer"
TRAINED, SAMPLE = "tokenizer.json", "sample.npy"
MOST = 0.5  # share of the documents that a sample may take
PAGE_TEXT = 0.05  # of a crawled page, how much is its main text, about
GROUPS = 100  # row groups that a sample comes from at least, where there are so many
SAMPLED = columns(
    doc_id="uint64",
    hash="uint64",
    text=pd.ArrowDtype(pa.large_string()),
    fate=pd.ArrowDtype(pa.string()),  # why a step dropped it; null for what one can train on
    documents="int64",
    n_bytes="int64",
)


def sampled(split: sources.Split, by_name: dict[str, "Source"], share: float, seed: int) -> pd.DataFrame:
    """The documents of a row group whose keyed hash falls under `share`, as the steps leave them."""
    frames = [SAMPLED]
    source = by_name[split.source]
    for batch in sources.read(source, split):
        drawn = _drawn(
            ledger.doc_ids(split.source, split.path, batch.records), "tokenizer-document", seed, share
        )
        documents = steps.documents(split.path, batch.take(np.flatnonzero(drawn)), source)
        data, offsets = text_buffers(documents.living_text)
        frames.append(
            pd.DataFrame(
                {
                    "doc_id": documents.doc_ids,
                    "hash": hash_prefixes(text_hashes(data, offsets)),
                    "text": pd.Series(documents.living_text, dtype=SAMPLED["text"].dtype),
                    "fate": pd.Series(documents.fate, dtype=SAMPLED["fate"].dtype),
                    "documents": 1,
                    "n_bytes": np.diff(offsets),
                }
            )
        )
    return pd.concat(frames, ignore_index=True)


def sample_plan(
    groups: list[sources.Split], sample_bytes: int, seed: int, text_shares: dict[str, float] | None = None
) -> tuple[list[sources.Split], float]:
    """The row groups to read, chosen by keyed hash, and the share of their documents to take.

    Both depend only on the files, never on how they are split into tasks. At most half of the documents are taken:
    validation, which must not overlap the sample, is to find some among the others. `text_shares` says for each source
    how much of what is read becomes text, about.
    """
    shares = text_shares or {}
    text_bytes = sum(group.n_bytes * shares.get(group.source, 1) for group in groups)
    share = min(MOST, sample_bytes / max(1, text_bytes))
    group_share = min(1.0, max(10 * share, GROUPS / max(1, len(groups))))
    ids = np.array([xxh3_64(f"{g.source}\0{g.path}\0{g.start}".encode()) for g in groups], np.uint64)
    chosen = _drawn(ids, "tokenizer-row-group", seed, group_share)
    return [group for group, c in zip(groups, chosen, strict=True) if c], share / group_share


def _drawn(ids: np.ndarray, purpose: str, seed: int, share: float) -> np.ndarray:
    """bool[n]: the keyed hash, as a number in [0, 1) of 53 bits, is below `share`."""
    hashes = permutation.keyed_hash(ids, permutation.key(purpose, seed))
    return (hashes >> np.uint64(11)) < share * 2**53


def job_fingerprint(run: "Run") -> str:
    """Covers the existing tokenizer's content, or how and on what one is trained."""
    settings = run.config.tokenizer
    if settings.path:
        content = checkpoint.sha256(existing(run.config))
        return fingerprint.fingerprint(
            __name__, content=content, pattern=settings.pattern, end_of_text=settings.end_of_text
        )
    return fingerprint.fingerprint(
        __name__,
        train=settings.train.model_dump(),
        end_of_text=settings.end_of_text,
        inputs=run.inventory.identity(),
        steps={source.name: steps.identity(source) for source in run.sources},
        repeated_passages=passages.identity(run),
        versions=fingerprint.versions("tokenizers"),
    )


def existing(config: "Config") -> Path:
    """The tokenizer file that the configuration names."""
    path = folders.located(str(config.tokenizer.path))
    if not path.is_file():
        raise UserError(f"tokenizer.path is {str(path)!r}, but there is no such file")
    return path


def run(run: "Run", job: checkpoint.Checkpoint) -> dict[str, Any]:
    """Put the tokenizer in its place."""
    job.begin()
    hashes = np.empty(0, np.uint64)
    if run.config.tokenizer.path:
        path = existing(run.config)
        with checkpoint.written(job.folder / path.name) as file, path.open("rb") as original:
            shutil.copyfileobj(original, file)
        figures: dict[str, Any] = {"file": path.name}
    else:
        drawn, all_there_is = draw_sample(run)
        sample = drawn[drawn["fate"].isna()]
        hashes = np.unique(sample["hash"].to_numpy(np.uint64))
        with run.console.job("train", 1, "tokenizer") as meter:
            try:
                definition = training.train(
                    iter([sample["text"].tolist()]),
                    vocab_size=run.config.tokenizer.train.vocab_size,
                    end_of_text=run.config.tokenizer.end_of_text,
                )
            except training.SampleTooSmallError as error:
                raise UserError(_too_small(run, drawn, error.reached, all_there_is)) from None
            meter.advance(len(sample), int(sample["n_bytes"].sum()))
        with checkpoint.written(job.folder / TRAINED) as file:
            file.write(definition.encode())
        figures = {
            "file": TRAINED,
            "sample_documents": len(sample),
            "sample_bytes": int(sample["n_bytes"].sum()),
        }
    with checkpoint.written(job.folder / SAMPLE) as file:
        checkpoint.save_array(file, hashes)
    return figures


def _too_small(run: "Run", drawn: pd.DataFrame, reached: int, all_there_is: bool) -> str:
    """What is wrong with a sample, and what would help: more of it only where there is more."""
    settings = run.config.tokenizer.train
    sample = drawn[drawn["fate"].isna()]
    fates = drawn["fate"].value_counts().sort_index().items()
    dropped = "".join(f", {count:,} more were dropped as {fate}" for fate, count in fates)
    source = " (half of all: validation needs the others)" if all_there_is else ""
    larger = "" if all_there_is else "raise tokenizer.train.sample_bytes, "
    return (
        f"the tokenizer's sample is enough for {reached:,} ids, not for {settings.vocab_size:,}: it holds "
        f"{len(sample):,} documents of {sample['n_bytes'].sum():,} bytes{source}{dropped}; "
        f"{larger}lower tokenizer.train.vocab_size, or name an existing tokenizer with tokenizer.path"
    )


def draw_sample(run: "Run") -> tuple[pd.DataFrame, bool]:
    """The documents drawn for training, in the order of their doc_ids, and whether no more may be drawn."""
    import dask.dataframe as dd

    settings = run.config.tokenizer.train
    groups = sources.splits(run.inventory, 1)  # each block by itself
    shares = {source.name: PAGE_TEXT if source.has_pages else 1.0 for source in run.sources}
    chosen, share = sample_plan(groups, settings.sample_bytes, settings.seed, shares)
    all_there_is = len(chosen) == len(groups) and share == MOST
    if not chosen:
        return SAMPLED, all_there_is
    graph = dd.from_map(
        sampled,
        chosen,
        by_name={source.name: source for source in run.sources},
        share=share,
        seed=settings.seed,
        meta=SAMPLED,
        label="sample texts",
    )
    with run.console.job("sample", len(chosen), "blocks") as meter:
        drawn = gather(run.client, graph, meter, resources=run.resources).sort_values(
            "doc_id", ignore_index=True
        )
    return drawn, all_there_is


def parser() -> argparse.ArgumentParser:
    """The command line of `python -m jobs.tokenizer`."""
    from jobs import cli
    from jobs import run as main_job

    return cli.run_parser(
        main_job.JOBS, "python -m jobs.tokenizer", "Train a tokenizer on a sample of the sources, and stop."
    )


def main(arguments: list[str] | None = None) -> int:
    """`python -m jobs.tokenizer`: the main job up to the tokenizer."""
    from jobs import cli
    from jobs import run as main_job

    options = parser().parse_args(arguments)
    return cli.guarded(
        lambda: main_job.execute(options, until=NAME), commits=True, log_format=options.log_format
    )


if __name__ == "__main__":
    raise SystemExit(main())
