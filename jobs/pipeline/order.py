"""The order: which documents are kept, and one seeded permutation of them.

Documents are shuffled by ranges of their order key (a keyed hash of the doc_id) and sorted within each, so that
`OUT/order/range-*.parquet`, read one after another, hold every document once in the seeded order. How many tokens lie
before each range follows from their totals.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs import ledger
from jobs.errors import UserError
from jobs.pipeline.duplicates import keep
from jobs.pipeline.duplicates.dropped import REPEATED, Dropped, find
from jobs.pipeline.duplicates.near import Clusters
from jobs.pipeline.paths import SplitPaths
from jobs.runtime import checkpoint, fingerprint, folders
from jobs.runtime.compute import Named, columns, gather
from kernels import permutation

if TYPE_CHECKING:
    from jobs.runtime.context import Run

NAME = "order"
STEPS = {ledger.URL_DUPLICATE: "url_duplicates", ledger.EXACT_DUPLICATE: "exact_duplicates"}  # fate -> job
DOCUMENTS_PER_RANGE = 1_000_000  # a worker sorts so many at a time

ROWS = columns(
    range="int64",
    order_key="uint64",
    row="int64",  # in the ledger
    split="int64",  # number of the split whose store holds the tokens
    start="int64",  # of its tokens in that store
    n_tokens="int64",
    kept="bool",
    overlaps="bool",  # a reference set; it cannot be validation
)
SUMMARY = columns(
    range="int64",
    documents="int64",
    tokens="int64",
    overlapping="int64",
)


# ---------------------------------------------------------------- partition functions


@dataclass(frozen=True)
class Decisions:
    """What decides a document's fate once the whole corpus was seen."""

    dropped: tuple[tuple[str, Path], ...]  # fate and folder of the steps before near-duplicates, in order
    clusters: Path  # folder
    reference_hashes: Path
    min_tokens: int
    against: tuple[str, ...] = ()  # names of the earlier runs

    def fates(self, table: pa.Table) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Of an annotated split: fate object[d] (None: kept), cluster and kept_by uint64[d], kept_in, overlaps bool[d].

        kept_in int16[d] is the number of the earlier run whose document kept_by is, or `keep.THIS_RUN`.

        The order: what was unusable, then URL, exact and near-duplicates, then the length floor (the seed's).
        """
        clusters = Clusters(self.clusters)
        doc_ids = table["doc_id"].to_numpy()
        place = clusters.find(doc_ids)
        clustered = place >= 0
        cluster, kept_by = doc_ids.copy(), doc_ids.copy()
        kept_in = np.full(len(doc_ids), keep.THIS_RUN, np.int16)
        cluster[clustered], kept_by[clustered], kept_in[clustered] = (
            clusters.cluster[place[clustered]],
            clusters.kept_by[place[clustered]],
            clusters.kept_in[place[clustered]],
        )
        kept_by[~clustered] = 0
        fate = table["fate"].to_numpy(zero_copy_only=False).astype(object)
        alive = np.asarray(pc.is_null(table["fate"])).copy()
        overlaps = clusters.touched(table, self.reference_hashes)
        for name, folder in self.dropped:
            step = Dropped(folder)
            found = step.find(doc_ids)
            gone = found >= 0
            fate[gone], kept_by[gone] = name, step.kept_by[found[gone]]
            kept_in[gone] = step.kept_in[found[gone]]
            alive &= ~gone
            overlaps |= find(folders.load(folders.local_copy(folder / REPEATED)), doc_ids) >= 0
        duplicate = alive & clustered & (kept_by != doc_ids)
        fate[duplicate] = ledger.NEAR_DUPLICATE
        fate[alive & ~duplicate & (table["n_tokens"].to_numpy() < self.min_tokens)] = ledger.MIN_TOKENS
        overlaps[clustered] |= clusters.overlaps[place[clustered]].astype(bool)
        return fate, np.where(clustered, cluster, 0), kept_by, kept_in, overlaps


def order_rows(
    paths: SplitPaths, split: int, first_row: int, ranges: int, seed: int, decisions: Decisions
) -> pd.DataFrame:
    """A row for each document of a split, with the range of the order that it falls in."""
    columns = ["doc_id", "text_hash", "n_tokens", "fate", "start"]
    table = folders.read_table(paths.rows, columns=columns)
    fate, _, _, _, overlaps = decisions.fates(table)
    order_key = permutation.keyed_hash(table["doc_id"].to_numpy(), permutation.key("order", seed))
    return pd.DataFrame(
        {
            "range": range_of(order_key, ranges),
            "order_key": order_key,
            "row": first_row + np.arange(len(table)),
            "split": np.full(len(table), split),
            "start": table["start"].to_numpy(),
            "n_tokens": table["n_tokens"].to_numpy(),
            "kept": pd.isna(fate),
            "overlaps": overlaps,
        }
    )


def range_of(order_key: np.ndarray, ranges: int) -> np.ndarray:
    """int64[d]: equal parts of the 64-bit keys; `ranges` is a power of two."""
    bits = ranges.bit_length() - 1
    return (
        (order_key >> np.uint64(64 - bits)).astype(np.int64) if bits else np.zeros(len(order_key), np.int64)
    )


def write_ranges(rows: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Sort each range of this partition, write it, and return its totals."""
    summaries = []
    for number, part in rows.groupby("range", sort=True):
        part = part.sort_values("order_key", kind="stable")
        keys = part["order_key"].to_numpy()
        if (keys[1:] == keys[:-1]).any():
            # The order key is a bijection of the doc_id, so equal keys are equal doc_ids.
            raise UserError("two documents have the same doc_id, a 64-bit hash; rename one of the sources")
        with checkpoint.written(folder / range_name(int(number))) as file:
            pq.write_table(
                pa.Table.from_pandas(part.drop(columns="range"), preserve_index=False),
                file,
                compression="zstd",
            )
        kept = part[part["kept"]]
        totals = {"tokens": kept["n_tokens"].sum(), "overlapping": kept["overlaps"].sum()}
        summaries.append({"range": number, "documents": len(part), **totals})
    return pd.DataFrame(summaries, columns=SUMMARY.columns).astype(SUMMARY.dtypes)


def range_name(number: int) -> str:
    """File name of a range."""
    return f"range-{number:06d}.parquet"


# ---------------------------------------------------------------- the order as later jobs read it


@dataclass(frozen=True)
class Ranges:
    """The ranges in order, where the validation split ends, and the tokens of each split before each range."""

    folder: Path
    validation_until: int  # order key of the last validation document; -1: there is none
    moved: tuple[int, ...]  # order keys of documents before it that are training all the same
    numbers: tuple[int, ...]
    before: dict[str, tuple[int, ...]]  # split -> tokens before each range, and in all

    def read(self, index: int) -> pd.DataFrame:
        """A range's rows in order, with `is_validation` and `position`, a kept document's first token in its stream."""
        rows = folders.read_table(self.folder / range_name(self.numbers[index])).to_pandas()
        rows["is_validation"] = is_validation(rows, self.validation_until, self.moved)
        kept_tokens = np.where(rows["kept"], rows["n_tokens"], 0)
        position = np.full(len(rows), -1)
        for split, chosen in (
            (ledger.VALIDATION, rows["is_validation"]),
            (ledger.TRAIN, rows["kept"] & ~rows["is_validation"]),
        ):
            tokens = np.where(chosen, kept_tokens, 0)
            position[chosen] = (self.before[split][index] + np.cumsum(tokens) - tokens)[chosen]
        rows["position"] = position
        return rows

    def overlapping(self, split: str, start: int, stop: int) -> range:
        """Indices of the ranges that hold tokens of a split's stream from `start` to `stop`."""
        before = np.asarray(self.before[split])
        return range(
            int(np.searchsorted(before, start, side="right")) - 1, int(np.searchsorted(before, stop))
        )


def is_validation(rows: pd.DataFrame, until: int, moved: tuple[int, ...]) -> pd.Series:
    """bool[d]: kept, free of overlap, no later in the order than the last validation document, and not moved."""
    if until < 0:
        return pd.Series(np.zeros(len(rows), bool), index=rows.index)
    early = rows["kept"] & ~rows["overlaps"] & (rows["order_key"] <= np.uint64(until))
    return early & ~rows["order_key"].isin(np.array(moved, np.uint64))


# ---------------------------------------------------------------- the job


def job_fingerprint(run: "Run") -> str:
    """Covers the floor, the seed and the clusters."""
    config = run.config
    return fingerprint.fingerprint(
        __name__,
        order=config.order.model_dump(),
        min_tokens=config.length.min_tokens,
        upstream=[
            run.fingerprints[name] for name in (*STEPS.values(), "annotate", "references", "near_duplicates")
        ],
    )


def decisions(run: "Run") -> Decisions:
    """What decides fates in this run."""
    dropped = tuple((fate, run.out / job) for fate, job in STEPS.items())
    floor, names = run.config.length.min_tokens, run.config.against
    return Decisions(dropped, run.out / "near_duplicates", run.reference_hashes, floor, names)


def run(run: "Run", job: checkpoint.Checkpoint) -> dict[str, Any]:
    """Shuffle all documents into ranges of the order."""
    import dask.dataframe as dd

    job.begin()
    counts = run.figures("annotate")["documents_of_splits"]
    documents = sum(counts)
    ranges = 1 << max(0, int(documents // DOCUMENTS_PER_RANGE).bit_length())
    rows = dd.from_map(
        order_rows,
        run.annotated,
        list(range(len(counts))),
        [int(n) for n in np.cumsum(counts) - counts],
        ranges=ranges,
        seed=run.config.order.seed,
        decisions=decisions(run),
        meta=ROWS,
        label="decide fates",
    )
    graph = rows.shuffle("range", npartitions=ranges).map_partitions(
        Named("order documents", write_ranges), folder=job.folder, meta=SUMMARY
    )
    with run.console.job(NAME, ranges, "ranges", **run.totals()) as meter:
        summary = gather(run.client, graph, meter, counted=()).sort_values("range")
    if summary["documents"].sum() != documents:
        raise RuntimeError(
            f"{documents:,} documents went into the order and {summary['documents'].sum():,} came out"
        )
    numbers, kept = [int(n) for n in summary["range"]], [int(n) for n in summary["tokens"]]
    if not sum(kept):
        raise UserError(f"of {documents:,} documents none is kept; {_why_none(run, documents)}")
    return {
        "documents": documents,
        "ranges": numbers,
        "kept_documents_overlapping_references": int(summary["overlapping"].sum()),
        "tokens": kept,
    }


def _why_none(run: "Run", documents: int) -> str:
    """Where they went, in the order of the steps."""
    fates = pd.concat(folders.read_table(paths.rows, columns=["fate"]).to_pandas() for paths in run.annotated)
    counts = {str(fate): int(n) for fate, n in fates["fate"].value_counts().items()}
    if rest := documents - sum(counts.values()):
        counts[f"{_duplicate_fates(run)} or length.min_tokens ({run.config.length.min_tokens})"] = rest
    return "dropped were " + ", ".join(f"{n:,} by {fate}" for fate, n in counts.items())


def _duplicate_fates(run: "Run") -> str:
    """Of the steps on duplicates that are on."""
    fates = [fate for fate, job in STEPS.items() if getattr(run.config, job).enabled]
    return ", ".join([*fates, ledger.NEAR_DUPLICATE])
