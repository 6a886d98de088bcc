"""Documents that a model is trained on, as a command names them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jobs import sources
from jobs.errors import UserError


@dataclass(frozen=True)
class Source:
    """What readers want to know of Parquet or JSON lines behind `--data`."""

    path: str
    format: str
    columns: Mapping[str, str]
    extra: Mapping[str, str]
    name: str = "--data"


def source(path: str, columns: Mapping[str, str], extra: Mapping[str, str]) -> Source:
    """A file, folder, glob or URL, Parquet where it is named so."""
    is_parquet = path.endswith(".parquet") or (Path(path).is_dir() and any(Path(path).rglob("*.parquet")))
    return Source(path, "parquet" if is_parquet else "jsonl", columns, extra)


def batches(source: Source, columns: set[str]) -> Iterator[tuple[sources.Batch, str]]:
    """Batches of documents with these columns, and the file of each.

    Raises
    ------
    UserError
        There is nothing to read, or a record cannot be read.
    """
    inventory = sources.list_files(source)
    if inventory.bad:
        bad = inventory.bad[0]
        raise UserError(f"{bad.path} cannot be read: {bad.reason}")
    for split in sources.splits(inventory, sources.inventory.SPLIT_BYTES):
        for batch in sources.read(source, split, columns):
            if batch.text is None or not batch.valid.all():
                record = int(batch.records[np.argmin(batch.valid)])
                why = (batch.error or "is not valid UTF-8").removeprefix("it ")
                raise UserError(f"{split.path}: record {record} cannot be used: {why}")
            yield batch, split.path
