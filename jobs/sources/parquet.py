"""Parquet, by row group.

A document is a row; its record is its index in the file. Row groups are decoded a few rows at a time, so
that memory follows the batch and not the row group.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.sources.batches import Batch, bounded
from jobs.sources.inventory import BadFileError, Block
from jobs.sources.schemas import plain, present_columns
from jobs.sources.storage import opened

SUFFIXES = (".parquet", ".parq", ".pq")
UNSPLIT = "a row group is read by one worker alone; write smaller ones to split it"
MAGIC = b"PAR1"

# A decoding step: about this much text by the row group's mean, and few rows, because a mean hides a text
# of 200 MB, or a dictionary of long texts each used many times.
STEP_BYTES = 2**20
STEP_ROWS = 128
# Column chunks are read through a window of this size instead of whole.
WINDOW_BYTES = 2**20

_UNDECODABLE = (pa.ArrowException, OSError, UnicodeDecodeError)


def blocks(file: str | IO[bytes], columns: Mapping[str, str]) -> tuple[tuple[Block, ...], tuple[str, ...]]:
    """Row groups of a file, and which of the mapped columns it has.

    Parameters
    ----------
    file
        A local path or a seekable binary file.
    columns
        Our name -> the file's name; `text` must be there.

    Raises
    ------
    BadFileError
        The file cannot be read as Parquet; says why.
    UnfitFileError
        The text column is absent or is no text, or another mapped column holds what the ledger cannot.
    """
    try:
        with _open(file) as parquet:
            metadata, schema = parquet.metadata, parquet.schema_arrow
            present = present_columns(schema, columns)
            found = tuple(_block(metadata, number) for number in range(metadata.num_row_groups))
    except _UNDECODABLE as error:
        if _environment(error):
            raise
        raise BadFileError(_why(file, error)) from None
    records = [block.records for block in found]
    if min(records, default=0) < 0 or sum(records) != metadata.num_rows:
        raise BadFileError("its footer contradicts itself about the number of rows")
    return found, present


def names(file: str | IO[bytes]) -> list[str]:
    """All columns of a file."""
    with _open(file) as parquet:
        return list(parquet.schema_arrow.names)


def _open(file: str | IO[bytes]) -> pq.ParquetFile:
    return pq.ParquetFile(file, pre_buffer=False, buffer_size=WINDOW_BYTES, page_checksum_verification=True)


def _block(metadata: pq.FileMetaData, number: int) -> Block:
    """A row group with its size in all columns: pyarrow ends the process on a damaged column's own metadata."""
    group = metadata.row_group(number)
    return Block(group.num_rows, max(0, group.total_byte_size), number)


def _why(file: str | IO[bytes], error: Exception) -> str:
    """Say in one sentence what is wrong with a file that Arrow cannot open."""
    with opened(file) as raw:
        raw.seek(0)
        begins = raw.read(4)
        raw.seek(0, 2)
        size = raw.tell()
        raw.seek(max(size - 4, 0))
        ends = raw.read(4)
    if MAGIC not in (begins, ends):
        return "it is not Parquet: it neither begins nor ends as Parquet does"
    if begins == MAGIC and (ends != MAGIC or size < 12):
        return f"it is truncated: it begins as Parquet does, but after {size:,} bytes there is no footer"
    return f"its footer cannot be read ({_said(error)})"


def _said(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def _environment(error: Exception) -> bool:
    """Whether opening or fetching failed, not decoding: then nothing is known about the content."""
    return isinstance(error, OSError) and (error.errno is not None or type(error) is not OSError)


def read(
    file: str | IO[bytes],
    row_groups: Sequence[int],
    first: int,
    columns: Mapping[str, str],
    batch_bytes: int,
) -> Iterator[Batch]:
    """Read row groups as batches, in order; what cannot be decoded comes as a batch that says so.

    Parameters
    ----------
    file
        A local path or a seekable binary file.
    row_groups
        Numbers of consecutive row groups.
    first
        Record of the first row of the first of them.
    columns
        Our name -> the file's name; those that the file does not have are left out.
    batch_bytes
        Text in a batch, at most; a longer document is a batch alone.
    """
    with _open(file) as parquet:
        names = parquet.schema_arrow.names
        present = {ours: theirs for ours, theirs in columns.items() if theirs in names}
        for number in row_groups:
            row_group = _RowGroup(parquet, number, present)
            yield from row_group.batches(first, batch_bytes)
            first += row_group.rows


class _RowGroup:
    """One row group, decoded in steps."""

    def __init__(self, parquet: pq.ParquetFile, number: int, columns: Mapping[str, str]) -> None:
        self.parquet, self.number, self.columns = parquet, number, columns
        block = _block(parquet.metadata, number)
        self.rows = block.records
        self.step = max(1, min(STEP_ROWS, STEP_BYTES * block.records // max(1, block.n_bytes)))
        self.error = f"row group {number} ends before its last row"

    def batches(self, first: int, batch_bytes: int) -> Iterator[Batch]:
        """Every row once: with its text, or as a row that could not be read.

        Where a column beside the text is damaged, the rest of the row group comes without any.
        """
        delivered, error = 0, None
        for columns in (self.columns, {"text": self.columns["text"]}):
            for rows in bounded(self._steps(columns, delivered), batch_bytes):
                beside = dict(zip(rows.schema.names[1:], rows.columns[1:], strict=True))
                yield Batch.checked(first + delivered, rows.column(0), beside, error)
                delivered += len(rows)
            if delivered == self.rows:
                return
            error = self.error
        yield Batch.unreadable(first + delivered, first + self.rows, self.error)

    def _steps(self, columns: Mapping[str, str], skip: int) -> Iterator[pa.RecordBatch]:
        """Rows from `skip` on, the text first; stops at what cannot be decoded and leaves why in `error`."""
        theirs = list(columns.values())
        try:
            for rows in self.parquet.iter_batches(self.step, [self.number], theirs, use_threads=False):
                passed = min(skip, len(rows))
                skip -= passed
                values = [plain(rows.column(name).slice(passed)) for name in theirs]
                yield pa.RecordBatch.from_arrays(values, names=list(columns))
        except _UNDECODABLE as error:
            if _environment(error):
                raise
            self.error = f"row group {self.number} cannot be decoded: {_said(error)}"
