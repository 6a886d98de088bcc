"""Documents as readers hand them on: bounded batches of Arrow text whose UTF-8 was checked."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

BATCH_BYTES = 8 * 2**20
BATCH_DOCUMENTS = 2**16


@dataclass(frozen=True)
class Batch:
    """Consecutive documents of one file.

    Attributes
    ----------
    records
        int64[d], index of each document in its file.
    text
        large_string[d], or None for records that could not be read or have `content` instead. Null where the
        input is null, and empty where the input was not valid UTF-8.
    valid
        bool[d], False where the text was not valid UTF-8 or could not be read.
    columns
        The mapped columns that the file has, under our names: each an Arrow array of d values, strings as
        large_string.
    error
        Why these records could not be read, or, where there is text, why some of their columns could not;
        one plain sentence.
    content
        large_binary[d], in place of the text, from containers of raw pages; the column `content_type` says what
        the bytes are.
    """

    records: np.ndarray
    text: pa.LargeStringArray | None
    valid: np.ndarray
    columns: dict[str, pa.Array] = field(default_factory=dict)
    error: str | None = None
    content: pa.LargeBinaryArray | None = None

    def __len__(self) -> int:
        return len(self.records)

    def string(self, row: int) -> str | None:
        """Text of one document; None where it is null, invalid or unreadable."""
        return self.text[row].as_py() if self.text is not None and self.valid[row] else None

    def take(self, rows: np.ndarray) -> "Batch":
        """Some of the documents: those at `rows`."""
        chosen = pa.array(rows)
        return Batch(
            self.records[rows],
            self.text.take(chosen) if self.text is not None else None,
            self.valid[rows],
            {name: values.take(chosen) for name, values in self.columns.items()},
            self.error,
            self.content.take(chosen) if self.content is not None else None,
        )

    @classmethod
    def checked(
        cls, first: int, text: pa.LargeStringArray, columns: dict[str, pa.Array], error: str | None = None
    ) -> "Batch":
        """Documents from record `first` on, each column's UTF-8 checked; an invalid id or url becomes null."""
        valid = valid_utf8(text)
        if not valid.all():
            text = pc.if_else(pa.array(valid), text, pa.scalar("", text.type))
        columns = {name: _valid_or_null(values) for name, values in columns.items()}
        return cls(np.arange(first, first + len(text)), text, valid, columns, error)

    @classmethod
    def unreadable(cls, first: int, stop: int, error: str) -> "Batch":
        """Records of which nothing is known but that they are there."""
        return cls(np.arange(first, stop), None, np.zeros(stop - first, bool), error=error)


def _valid_or_null(values: pa.Array) -> pa.Array:
    if not pa.types.is_large_string(values.type):
        return values
    valid = valid_utf8(values)
    return values if valid.all() else pc.if_else(pa.array(valid), values, pa.scalar(None, values.type))


def valid_utf8(text: pa.LargeStringArray) -> np.ndarray:
    """bool[d], whether each string is valid UTF-8 (which Arrow does not check on reading); null is valid."""
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return np.fromiter(map(_decodes, text.cast(pa.large_binary())), bool, len(text))
    return np.ones(len(text), bool)


def _decodes(value: pa.LargeBinaryScalar) -> bool:
    if not value.is_valid:
        return True
    try:
        str(value.as_buffer(), "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def bounded(steps: Iterable[pa.RecordBatch], limit: int = BATCH_BYTES) -> Iterator[pa.RecordBatch]:
    """Cut and join record batches so that none holds more than `limit` bytes of text or `BATCH_DOCUMENTS`.

    The first column of each is the text, a large_string. A document longer than `limit` is a batch alone.
    """
    pending: list[pa.RecordBatch] = []
    room, seats = limit, BATCH_DOCUMENTS
    for step in filter(len, steps):
        offsets, start = _offsets(step.column(0)), 0
        while start < len(step):
            fitting = int(np.searchsorted(offsets, offsets[start] + room, side="right")) - 1
            stop = min(fitting, start + seats)
            if stop <= start and pending:
                yield _joined(pending)
                pending, room, seats = [], limit, BATCH_DOCUMENTS
                continue
            stop = max(stop, start + 1)
            pending.append(step.slice(start, stop - start))
            room -= int(offsets[stop] - offsets[start])
            seats -= stop - start
            start = stop
    if pending:
        yield _joined(pending)


def _offsets(text: pa.LargeStringArray) -> np.ndarray:
    return np.frombuffer(text.buffers()[1], np.int64)[text.offset : text.offset + len(text) + 1]


def _joined(pieces: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(pieces) == 1:
        return pieces[0]
    columns = zip(*(piece.columns for piece in pieces), strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.concat_arrays(column) for column in columns], schema=pieces[0].schema
    )
