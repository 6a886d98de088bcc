"""Write the ledger: every document's fate and, of those kept, the place of its first token.

Places are computed where the order is, range by range, and shuffled by ledger file; each file is then put together
from the annotated splits that its rows come from, and every row must have met its place exactly once.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from jobs import ledger
from jobs.pipeline import shards
from jobs.pipeline.duplicates import against
from jobs.pipeline.order import Decisions, Ranges, decisions
from jobs.pipeline.paths import SplitPaths
from jobs.pipeline.validation import ranges
from jobs.runtime import checkpoint, fingerprint, folders
from jobs.runtime.compute import Named, columns, gather

if TYPE_CHECKING:
    from jobs.runtime.context import Run

NAME = "ledger"
ROWS_PER_GROUP = 50_000
PLACES = columns(
    part="int64",
    row="int64",
    validation="bool",
    shard="int64",  # -1: dropped
    offset="int64",
)
COUNTS = columns(
    fate="string",
    documents="int64",
    n_bytes="int64",
    n_tokens="int64",
)


def places(index: int, order: Ranges, ends: dict[str, np.ndarray]) -> pd.DataFrame:
    """The place of each document of one range of the order."""
    rows = order.read(index)
    validation, kept = rows["is_validation"].to_numpy(), rows["kept"].to_numpy()
    position = rows["position"].to_numpy()
    shard, offset = np.full(len(rows), -1), np.full(len(rows), -1)
    for split, chosen in ((ledger.VALIDATION, validation), (ledger.TRAIN, kept & ~validation)):
        shard[chosen] = np.searchsorted(ends[split], position[chosen], side="right")
        starts = np.concatenate(([0], ends[split]))
        offset[chosen] = position[chosen] - starts[shard[chosen]]
    return pd.DataFrame(
        {
            "part": rows["row"] // ledger.ROWS_PER_FILE,
            "row": rows["row"],
            "validation": validation,
            "shard": shard,
            "offset": offset,
        }
    )


def write_files(
    rows: pd.DataFrame, folder: Path, splits: list[SplitPaths], first_rows: list[int], decisions: Decisions
) -> pd.DataFrame:
    """Write the ledger files whose places this partition holds; return what they count, by fate."""
    counts = []
    for part, placed in rows.groupby("part", sort=True):
        placed = placed.sort_values("row")
        table = _ledger_rows(placed, splits, first_rows, decisions)
        with checkpoint.written(folder / ledger.file_name(int(part))) as file:
            pq.write_table(table, file, compression="zstd", row_group_size=ROWS_PER_GROUP)
        counts.append(
            table.group_by("fate").aggregate([("doc_id", "count"), ("n_bytes", "sum"), ("n_tokens", "sum")])
        )
    if not counts:
        return COUNTS
    return (
        pa.concat_tables(counts, promote_options="default")
        .rename_columns(list(COUNTS))
        .to_pandas()
        .astype(COUNTS.dtypes)
    )


def _ledger_rows(
    placed: pd.DataFrame, splits: list[SplitPaths], first_rows: list[int], decisions: Decisions
) -> pa.Table:
    first, last = int(placed["row"].iloc[0]), int(placed["row"].iloc[-1])
    numbers = range(
        np.searchsorted(first_rows, first, side="right") - 1, np.searchsorted(first_rows, last, side="right")
    )
    tables = []
    for number in numbers:
        table = folders.read_table(splits[number].rows)
        fate, cluster, kept_by, kept_in, _ = decisions.fates(table)
        decided = {
            "fate": pa.array(fate, pa.string()),
            "cluster": _known(cluster),
            "kept_by": _known(kept_by),
        }
        if decisions.against:
            decided[ledger.KEPT_IN] = against.names_of(kept_in, decisions.against)
        for name, column in decided.items():
            table = table.drop_columns(name) if name in table.column_names else table
            table = table.append_column(name, column)
        begin, end = max(first - first_rows[number], 0), last + 1 - first_rows[number]
        tables.append(table.slice(begin, end - begin))
    table = pa.concat_tables(tables)
    if not np.array_equal(placed["row"].to_numpy(), np.arange(first, first + len(table))):
        raise RuntimeError(
            f"ledger rows {first:,} to {last:,}: {len(table):,} documents, {len(placed):,} places"
        )
    return _finished(table, placed)


def _known(ids: np.ndarray) -> pa.Array:
    return pa.array(ids, pa.uint64(), mask=ids == 0)


def _finished(table: pa.Table, placed: pd.DataFrame) -> pa.Table:
    dropped = placed["shard"].to_numpy() < 0
    fate = table["fate"].to_numpy(zero_copy_only=False).astype(object)
    fate[~dropped] = np.where(placed["validation"].to_numpy(), ledger.VALIDATION, ledger.TRAIN)[~dropped]
    columns = {
        "fate": pa.array(fate, pa.string()).dictionary_encode(),
        "shard": pa.array(placed["shard"].to_numpy(), pa.int32(), mask=dropped),
        "offset": pa.array(placed["offset"].to_numpy(), pa.int64(), mask=dropped),
    }
    known = {*ledger.SCHEMA.names, "start"}
    schema = ledger.schema([(field.name, field.type) for field in table.schema if field.name not in known])
    arrays = [columns[name] if name in columns else table[name].combine_chunks() for name in schema.names]
    return pa.table(arrays, schema=schema)


def job_fingerprint(run: "Run") -> str:
    """Covers the order and where the shards are cut."""
    return fingerprint.fingerprint(__name__, shards=run.fingerprints["shards"])


def run(run: "Run", job: checkpoint.Checkpoint) -> dict[str, Any]:
    """Shuffle the places by ledger file, write the files, and check that every document is in them once."""
    import dask.dataframe as dd

    job.begin()
    order = ranges(run)
    ends = shards.shard_ends(shards.plan(run, Path()))
    counts = run.figures("annotate")["documents_of_splits"]
    parts = -(-sum(counts) // ledger.ROWS_PER_FILE)
    frame = dd.from_map(
        places,
        range(len(order.numbers)),
        order=order,
        ends=ends,
        meta=PLACES,
        label="place documents in shards",
    )
    graph = frame.shuffle("part", npartitions=max(parts, 1)).map_partitions(
        Named("write the ledger", write_files),
        folder=job.folder,
        splits=run.annotated,
        first_rows=[int(n) for n in np.cumsum(counts) - counts],
        decisions=decisions(run),
        meta=COUNTS,
    )
    with run.console.job(NAME, max(parts, 1), "files", **run.totals()) as meter:
        by_fate = gather(run.client, graph, meter, counted=()).groupby("fate").sum().sort_index()
    if by_fate["documents"].sum() != sum(counts):
        raise RuntimeError(
            f"{sum(counts):,} documents were read, the ledger holds {by_fate['documents'].sum():,}"
        )
    return {
        "fates": {
            fate: {column: int(values[column]) for column in by_fate.columns}
            for fate, values in by_fate.iterrows()
        }
    }
