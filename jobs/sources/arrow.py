"""Arrow IPC, streams and files: what Hugging Face's `Dataset.save_to_disk` writes, and Feather version 2.

A document is a row; its record is its index in the file. A block is a record batch, its place the offset of its message
in the file. Both formats are messages one after another (a schema, dictionaries, record batches); a file only adds a
magic number before them and a footer behind. The footer is not needed, so that a truncated file gives what is there.

A message is a prefix, a header in FlatBuffers and a body. Walking from header to header finds the batches without
their bodies. Local files are memory-mapped, and what was read is given back, so that memory does not follow the
batch, unless its buffers are compressed; of other storage a batch is held whole.

A batch that the file ends within is so many unreadable records; where the end cannot be told from a loss, or a header
is damaged, that counts as one. Formats: https://arrow.apache.org/docs/format/Columnar.html
"""

import contextlib
import mmap
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

import pyarrow as pa

from jobs.sources.batches import Batch, bounded
from jobs.sources.compression import DamagedError
from jobs.sources.inventory import BadFileError, Block
from jobs.sources.schemas import is_text, plain, present_columns
from jobs.sources.storage import opened

SUFFIXES = (".arrow", ".arrows", ".feather", ".ipc")
PASSED_OVER = {"cache-*.arrow": "a cache of the datasets library"}
UNSPLIT = "a record batch is read by one worker alone; write smaller ones to split it"

FILE_MAGIC = b"ARROW1"
FEATHER_1_MAGIC = b"FEA1"
FILE_START = 8  # of the messages, as they are aligned
CONTINUATION = 0xFFFFFFFF
SCHEMA, DICTIONARY, RECORD_BATCH = 1, 2, 3  # kinds of messages
STEP_BYTES = 2**20  # of a batch, made into text at a time, by its mean
STEP_ROWS = 128  # because a mean hides a text of 200 MB, or a dictionary of long texts each used many times
ROWS_A_BYTE = 8  # at most, but for columns of nothing but null, which take no bytes


@dataclass(frozen=True)
class _Message:
    """Where a message lies and what its header says.

    Attributes
    ----------
    kind
        `SCHEMA`, `DICTIONARY`, `RECORD_BATCH` or another.
    place, body, end
        Offsets in the file: of the whole message, of its body, and behind it.
    rows
        Of a record batch.
    n_bytes
        Of a record batch's buffers before compression.
    """

    kind: int
    place: int
    body: int
    end: int
    rows: int = 0
    n_bytes: int = 0


def blocks(file: str | IO[bytes], columns: Mapping[str, str]) -> tuple[tuple[Block, ...], tuple[str, ...]]:
    """Record batches of a file, from its messages' headers, and which of the mapped columns it has.

    Parameters
    ----------
    file
        A local path or a seekable binary file.
    columns
        Our name -> the file's name; `text` must be there.

    Raises
    ------
    BadFileError
        The file is no Arrow, or its schema cannot be read.
    UnfitFileError
        The text column is absent or is no text, or another mapped column holds what the ledger cannot.
    """
    with _opened(file) as raw:
        try:
            schema, _ = _schema(raw)
            present = present_columns(schema, columns)
        except DamagedError as error:
            raise BadFileError(str(error)) from None
        except UnicodeDecodeError:
            raise BadFileError("its schema is damaged: the name of a column is not valid UTF-8") from None
        return tuple(_blocks(raw)), present


def names(file: str | IO[bytes]) -> list[str]:
    """All columns of a file."""
    with _opened(file) as raw:
        return list(_schema(raw)[0].names)


def _blocks(raw: "_Bytes") -> Iterator[Block]:
    place = _start(raw)
    try:
        for message in _messages(raw, place):
            if message.kind == RECORD_BATCH:
                yield Block(message.rows, message.n_bytes, message.place)
            place = message.end
    except DamagedError:
        if place <= raw.size:  # otherwise the loss is that of the last batch, which is known
            yield Block(1, raw.size - place, place)


def read(
    file: str | IO[bytes],
    places: Sequence[int],
    first: int,
    columns: Mapping[str, str],
    batch_bytes: int,
) -> Iterator[Batch]:
    """Read record batches as batches, in order; what cannot be decoded comes as a batch that says so.

    Parameters
    ----------
    file
        A local path or a seekable binary file.
    places
        Of the record batches, from `blocks`.
    first
        Record of the first row of the first of them.
    columns
        Our name -> the file's name; those that the file does not have are left out.
    batch_bytes
        Text in a batch, at most; a longer document is a batch alone.
    """
    with _opened(file) as raw:
        decoder = _Decoder(raw, columns)
        for place in places:
            for batch in decoder.batches(place, first, batch_bytes):
                yield batch
                first += len(batch)


# ---------------------------------------------------------------- bytes


class _Bytes:
    """A file's bytes by offset."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.size = file, file.seek(0, 2)

    def read(self, start: int, stop: int) -> pa.Buffer:
        """The bytes from `start` to `stop`; fewer where the file ends."""
        self.file.seek(start)
        return pa.py_buffer(self.file.read(max(0, stop - start)))

    def give_back(self) -> None:
        """Nothing of the file stays in memory but what is still referred to."""


class _Mapped(_Bytes):
    """A local file's bytes by offset, mapped into memory."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file)
        self.map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self.size else b""

    def read(self, start: int, stop: int) -> pa.Buffer:
        return pa.py_buffer(self.map).slice(min(start, self.size), max(0, min(stop, self.size) - start))

    def give_back(self) -> None:
        """Pages that were read count as this process's memory until then; they are read again when needed."""
        if isinstance(self.map, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            self.map.madvise(mmap.MADV_DONTNEED)


@contextlib.contextmanager
def _opened(file: str | IO[bytes]) -> Iterator[_Bytes]:
    with opened(file) as raw:
        yield _Mapped(raw) if isinstance(file, str) else _Bytes(raw)


# ---------------------------------------------------------------- messages


def _is_file_format(raw: _Bytes) -> bool:
    return raw.read(0, len(FILE_MAGIC)).to_pybytes() == FILE_MAGIC


def _start(raw: _Bytes) -> int:
    return FILE_START if _is_file_format(raw) else 0


def _stop(raw: _Bytes) -> int | None:
    """Where a file's footer begins; None where there is none, or it is lost."""
    ending = raw.read(max(0, raw.size - 10), raw.size).to_pybytes()
    if not _is_file_format(raw) or ending[4:] != FILE_MAGIC:
        return None
    return raw.size - 10 - int.from_bytes(ending[:4], "little")


def _schema(raw: _Bytes) -> tuple[pa.Schema, _Message]:
    """The file's schema and its message, which comes first."""
    if raw.read(0, 4).to_pybytes() == FEATHER_1_MAGIC:
        raise DamagedError("it is Feather version 1, where version 2 is wanted")
    try:
        message = next(_messages(raw, _start(raw)), None)
        if message is None or message.kind != SCHEMA:
            raise DamagedError("it is not Arrow: it does not begin with a schema")
        return pa.ipc.read_schema(raw.read(message.place, message.end)), message
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DamagedError(f"its schema cannot be read ({_said(error)})") from None


def _messages(raw: _Bytes, place: int) -> Iterator[_Message]:
    """The messages from `place` on; a record batch that the file ends within is the last of them.

    Raises
    ------
    DamagedError
        After these: the file ends without the end mark, or what follows is no message.
    """
    stop = _stop(raw)
    while place != stop:
        message = _message(raw, place)
        if message is None:
            return
        whole = message.end <= raw.size
        if whole or message.kind == RECORD_BATCH:
            yield message
        if not whole:
            raise DamagedError(_without_end(place))
        place = message.end


def _message(raw: _Bytes, place: int) -> _Message | None:
    """The message at `place`; None for the end mark."""
    prefix = raw.read(place, place + 8).to_pybytes()
    if not prefix:
        raise DamagedError("it is truncated: it ends without the end mark of its format")
    size = int.from_bytes(prefix[:4], "little")
    header = place + 4
    if size == CONTINUATION:  # which Arrow's first releases did not write
        size = int.from_bytes(prefix[4:], "little")
        header = place + 8
    if len(prefix) < header - place or header + size > raw.size:
        raise DamagedError(_without_end(place))
    if size == 0:
        return None
    try:
        return _parsed(raw, place, header, header + size)
    except (struct.error, OverflowError):
        raise DamagedError(f"its message at byte {place:,} is damaged") from None


def _without_end(place: int) -> str:
    return f"it is truncated: its message at byte {place:,} has no end"


def _parsed(raw: _Bytes, place: int, header: int, body: int) -> _Message:
    """Read a message's header (Message.fbs): version, kind, the kind's own table, and length of the body."""
    data = raw.read(header, body).to_pybytes()
    table = _Table(data, *struct.unpack_from("<I", data))
    kind, length = table.number(1, "<B"), table.number(3, "<q")
    if length < 0:
        raise struct.error
    if kind != RECORD_BATCH:
        return _Message(kind, place, body, body + length)
    # Its rows, each column's rows and nulls (16 bytes), its buffers' offsets and lengths, and how they are compressed.
    batch = table.below(2)
    rows, nodes, buffers = batch.number(0, "<q"), batch.vector(1), batch.vector(2)
    size = sum(
        _decompressed(raw, body + offset, size) if batch.has(3) else size for offset, size in buffers if size
    )
    if not 0 <= rows <= ROWS_A_BYTE * max(size, 2**20) or (nodes and nodes[0][0] != rows):
        raise struct.error
    return _Message(kind, place, body, body + length, rows, size)


def _decompressed(raw: _Bytes, place: int, size: int) -> int:
    """Size of a compressed buffer before compression, which stands before it; -1 means it was left as it was."""
    if place < 0:
        raise struct.error
    said = int.from_bytes(raw.read(place, place + 8).to_pybytes(), "little", signed=True)
    return max(size, said)


class _Table:
    """A table of FlatBuffers: fields by number, all of them optional; struct.error where it is damaged."""

    def __init__(self, data: bytes, place: int) -> None:
        self.data, self.place = data, place
        (distance,) = self._at("<i", place)
        self.fields = place - distance
        (self.fields_end,) = self._at("<H", self.fields)

    def _at(self, kind: str, place: int) -> tuple[int, ...]:
        if place < 0:
            raise struct.error
        return struct.unpack_from(kind, self.data, place)

    def has(self, field: int) -> int:
        """Where a field lies, counted from the table; 0 where there is none."""
        entry = 4 + 2 * field
        return self._at("<H", self.fields + entry)[0] if entry < self.fields_end else 0

    def number(self, field: int, kind: str) -> int:
        """A number, 0 where there is none."""
        offset = self.has(field)
        return self._at(kind, self.place + offset)[0] if offset else 0

    def _referred(self, field: int) -> int:
        place = self.place + self.has(field)
        return place + self._at("<I", place)[0]

    def below(self, field: int) -> "_Table":
        """The table that a field refers to."""
        return _Table(self.data, self._referred(field))

    def vector(self, field: int) -> list[tuple[int, int]]:
        """Pairs of int64."""
        if not self.has(field):
            return []
        place = self._referred(field)
        (count,) = self._at("<I", place)
        if place + 4 + 16 * count > len(self.data):
            raise struct.error
        return [self._at("<qq", place + 4 + 16 * i) for i in range(count)]  # type: ignore[misc]


# ---------------------------------------------------------------- from messages to documents


class _Decoder:
    """Record batches of one file, each decoded by itself."""

    def __init__(self, raw: _Bytes, columns: Mapping[str, str]) -> None:
        self.raw = raw
        self.schema, message = _schema(raw)
        self.columns = {ours: theirs for ours, theirs in columns.items() if theirs in self.schema.names}
        # A batch refers to the dictionaries before it; in a file, to any.
        self.dictionaries = [message, *_dictionaries(raw)] if _has_dictionary(self.schema) else []

    def batches(self, place: int, first: int, batch_bytes: int) -> Iterator[Batch]:
        """Every row of the record batch at `place` once: with its text, or as one that could not be read."""
        try:
            message = _batch_message(self.raw, place)
        except DamagedError as error:
            yield Batch.unreadable(first, first + 1, f"{error}; what follows is lost")
            return
        try:
            rows = self._decoded(message)
        except (pa.ArrowException, OSError, IndexError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            said = f"its record batch at byte {place:,} cannot be decoded: {_said(error)}"
            yield Batch.unreadable(first, first + message.rows, said)
            return
        step = max(1, min(STEP_ROWS, STEP_BYTES * message.rows // max(1, message.n_bytes)))
        for some in bounded(self._steps(rows, step), batch_bytes):
            beside = dict(zip(some.schema.names[1:], some.columns[1:], strict=True))
            yield Batch.checked(first, some.column(0), beside)
            first += len(some)
            self.raw.give_back()

    def _decoded(self, message: _Message) -> pa.RecordBatch:
        """The mapped columns, without a copy of what is not compressed; sound but for UTF-8."""
        if message.end > self.raw.size:
            raise pa.ArrowInvalid("the file is truncated")
        if self.dictionaries:
            batch = self._with_dictionaries(message)
        else:
            buffer = self.raw.read(message.place, message.end)
            batch = pa.ipc.read_record_batch(pa.ipc.read_message(buffer), self.schema)
        if len(batch) != message.rows:
            raise pa.ArrowInvalid("its header contradicts itself about the number of rows")
        arrays = [batch.column(theirs) for theirs in self.columns.values()]
        for values in arrays:
            _check(values)
            self.raw.give_back()
        return pa.RecordBatch.from_arrays(arrays, names=list(self.columns))

    def _with_dictionaries(self, message: _Message) -> pa.RecordBatch:
        """A batch as a stream of its own: the schema, the dictionaries, the batch."""
        everywhere = _is_file_format(self.raw)
        needed = (one for one in self.dictionaries if everywhere or one.place < message.place)
        parts = [self.raw.read(one.place, one.end) for one in (*needed, message)]
        with pa.ipc.open_stream(pa.BufferReader(b"".join(parts))) as stream:
            return stream.read_next_batch()

    def _steps(self, batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(batch), rows):
            some = batch.slice(start, rows)
            yield pa.RecordBatch.from_arrays(
                [plain(values) for values in some.columns], names=batch.schema.names
            )


def _batch_message(raw: _Bytes, place: int) -> _Message:
    message = _message(raw, place)
    if message is None or message.kind != RECORD_BATCH:
        raise DamagedError(_without_end(place))
    return message


def _dictionaries(raw: _Bytes) -> Iterator[_Message]:
    with contextlib.suppress(DamagedError):
        yield from (
            message
            for message in _messages(raw, _start(raw))
            if message.kind == DICTIONARY and message.end <= raw.size
        )


def _has_dictionary(schema: pa.Schema) -> bool:
    def within(kind: pa.DataType) -> bool:
        if isinstance(kind, pa.BaseExtensionType):
            return within(kind.storage_type)
        if pa.types.is_dictionary(kind):
            return True
        fields = (kind.field(i) for i in range(kind.num_fields))
        return any(within(field.type) for field in fields)

    return any(within(field.type) for field in schema)


def _check(values: pa.Array) -> None:
    """Refuse offsets and indices that lie outside; whether text is UTF-8 is for another to check."""
    if pa.types.is_dictionary(values.type):
        _check(values.dictionary)
        pa.DictionaryArray.from_arrays(values.indices, pa.nulls(len(values.dictionary)))
    elif is_text(values.type):
        _as_binary(values).validate(full=True)
    else:
        values.validate(full=True)


def _as_binary(values: pa.Array) -> pa.Array:
    kinds = {
        pa.string(): pa.binary(),
        pa.large_string(): pa.large_binary(),
        pa.string_view(): pa.binary_view(),
    }
    return values.view(kinds[values.type]) if values.type in kinds else values


def _said(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
