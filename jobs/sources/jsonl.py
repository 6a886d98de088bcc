r"""JSON Lines: plain, gzip or Zstandard, told apart by their first bytes.

A document is a line that is not blank; its record is its number among those, from 0. A line that is no JSON
object, or whose text is neither text nor null, is one unreadable record. An absent key is null, and of a key that
occurs twice the last counts. Half a surrogate pair (`\ud800`) and bytes that are not UTF-8 make invalid text.

How a file is cut: it consists of pieces that can be decoded from their first byte on, which are 8 MiB of a plain
file, a member of gzip, a frame of Zstandard. A block is as many pieces as it takes to hold 8 MiB, and its place is
the offset of its first piece in the file. Since a piece need not end where a line does, a line belongs to the block
that holds the line end before it, and the file's first line to the first block: a reader skips to the first line end
in its block, and reads past the block up to the end of its last line. A single member or frame is a single block.

What cannot be decompressed, to the end of the file, counts as one unreadable record: the line that the damage begins
in. How many were lost with it cannot be known.

What lies beside the data under the same suffix is passed over: a single JSON object over many lines without a text,
such as a `package.json`, and the descriptions that Hugging Face's datasets come with.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import IO, Any

import pyarrow as pa
from pydantic_core import from_json

from jobs.sources.batches import Batch, bounded
from jobs.sources.compression import DamagedError, chunks
from jobs.sources.inventory import BadFileError, Block, NotDataError
from jobs.sources.schemas import NUMBERS
from jobs.sources.storage import opened

SUFFIXES = tuple(
    name + compression
    for name in (".jsonl", ".json", ".ndjson")
    for compression in ("", ".gz", ".zst", ".zstd")
)
PASSED_OVER = dict.fromkeys(
    ("dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"), "a dataset's description"
)
UNSPLIT = (
    "a gzip member or Zstandard frame is read by one worker alone; compress in pieces of 8 MiB to split it"
)
BLOCK_BYTES = 8 * 2**20
SAMPLE_BYTES = 8 * 2**20  # of a file, in which its columns are looked for
LINE_BYTES = 256 * 2**20  # a longer line is an unreadable record, and is never held

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
BLANKS = b" \t\r"
_ABSENT = object()


def blocks(file: str | IO[bytes], columns: Mapping[str, str]) -> tuple[tuple[Block, ...], tuple[str, ...]]:
    """Blocks of a file, from one pass over all of it, and which of the mapped columns it has.

    Parameters
    ----------
    file
        A local path or a seekable binary file.
    columns
        Our name -> the file's key, or a path such as `metadata.url`. A column counts as present if one of the
        records in the first 8 MiB has it, or if there is no record to tell.

    Raises
    ------
    BadFileError
        Nothing can be decompressed, or the file is UTF-16 or one JSON document over many lines.
    NotDataError
        The file is one JSON object over many lines that has no text.
    """
    with opened(file) as raw:
        found, sample = _scan(raw)
    if sample.startswith(UTF_16_MARKS):
        raise BadFileError("it is UTF-16, where UTF-8 is wanted")
    lines = _nonblank(sample.split(b"\n"))
    if len(lines) > 1 and lines[0].strip() in (b"[", b"{"):
        if _is_beside_the_data(sample, columns["text"]):
            raise NotDataError("one JSON object over many lines, without a text")
        raise BadFileError("it is one JSON document over many lines, where each line is to be an object")
    return found, _present(lines, columns)


def names(file: str | IO[bytes]) -> list[str]:
    """Keys of the first record of a file."""
    with opened(file) as raw:
        first_chunk = next((chunk for _, chunk in _by_block(raw, 0)), b"")
    records = (_object(line) for line in _nonblank(first_chunk.split(b"\n")))
    return next((list(record) for record in records if isinstance(record, dict)), [])


def read(
    file: str | IO[bytes],
    places: Sequence[int],
    first: int,
    columns: Mapping[str, str],
    batch_bytes: int,
) -> Iterator[Batch]:
    """Read blocks as batches, in order; records that cannot be read come as batches that say why.

    Parameters
    ----------
    file
        A local path or a seekable binary file.
    places
        Of the blocks, from `blocks`.
    first
        Record of the first line of the first of them.
    columns
        Our name -> the file's key or path, `text` first. A batch has all of them: scores as float64, where they are
        finite numbers, the others as large_string, where they are a single value (a number or a truth value as JSON
        writes it, so that a cast gives it back); null elsewhere.
    batch_bytes
        Text in a batch, at most; a longer document is a batch alone.
    """
    with opened(file) as raw:
        for place in places:
            rows = ([_row(line, columns) for line in lines] for lines in _lines(_own(raw, place)))
            for batch in _batches(rows, first, list(columns), batch_bytes):
                yield batch
                first += len(batch)


# ---------------------------------------------------------------- from bytes to blocks


def _by_block(raw: IO[bytes], place: int) -> Iterator[tuple[int, bytes]]:
    """Chunks from the block at `place` on, each with the place of its block.

    A block ends with its first piece at whose end it holds `BLOCK_BYTES`, wherever reading began.
    """
    block = piece = place
    size = 0
    for chunk_piece, chunk in chunks(raw, place, BLOCK_BYTES):
        if chunk_piece != piece:
            piece = chunk_piece
            if size >= BLOCK_BYTES:
                block, size = piece, 0
        if block == size == 0 and chunk.startswith(BYTE_ORDER_MARK):
            chunk = chunk.replace(BYTE_ORDER_MARK, b"   ", 1)  # as long, so that no offset moves
        size += len(chunk)
        yield block, chunk


# ---------------------------------------------------------------- from blocks to lines


def _scan(raw: IO[bytes]) -> tuple[tuple[Block, ...], bytes]:
    """Count bytes and lines of each block; return these and the beginning of the file."""
    records: Counter[int] = Counter()  # by place, as sizes
    sizes: Counter[int] = Counter()
    owner, counted = 0, False  # the block of the line in progress, and whether it was found not to be blank
    sample = bytearray()
    try:
        for place, chunk in _by_block(raw, 0):
            sizes[place] += len(chunk)
            continued, *begun = chunk.split(b"\n")
            if not counted and continued.strip(BLANKS):
                records[owner] += 1
                counted = True
            if begun:
                records[place] += len(_nonblank(begun))
                owner, counted = place, bool(begun[-1].strip(BLANKS))
            if len(sample) < SAMPLE_BYTES:
                sample += chunk
    except DamagedError as error:
        if not sizes.total():
            raise BadFileError(str(error)) from None
        records[owner] += not counted
    return tuple(Block(records[place], sizes[place], place) for place in sizes), bytes(sample)


def _nonblank(lines: list[bytes]) -> list[bytes]:
    """Lines that are not blank, without the blanks that they begin with."""
    return [rest for line in lines if (rest := line.lstrip(BLANKS))]


def _own(raw: IO[bytes], place: int) -> Iterator[bytes]:
    """The lines that belong to a block, in chunks: after its first line end, to the first one behind it."""
    begun = place == 0
    for block, chunk in _by_block(raw, place):
        inside = block == place
        if not begun:
            if not inside:
                return
            _, line_end, chunk = chunk.partition(b"\n")
            begun = bool(line_end)
        end = 0 if inside else chunk.find(b"\n") + 1
        yield chunk[:end] if end else chunk
        if end:
            return


def _lines(chunks: Iterable[bytes]) -> Iterator[Sequence[bytes | str]]:
    """Lines that are not blank, some at a time; in place of the one that damage begins in, what is wrong."""
    parts: list[bytes] = []  # of the line in progress; none as long as it is blank
    size = 0
    try:
        for chunk in chunks:
            end = chunk.rfind(b"\n") + 1
            if end:
                lines = b"".join([*parts, chunk[:end]]).split(b"\n")
                parts, size = [], 0  # a long line is not to be held twice
                yield _nonblank(lines)
            rest = chunk[end:] if parts else chunk[end:].lstrip(BLANKS)
            if rest and size <= LINE_BYTES:
                parts.append(rest)
                size += len(rest)
    except DamagedError as error:
        yield [f"{error}; what follows is lost"]
        return
    if parts:
        lines = [b"".join(parts)]
        parts = []
        yield lines


# ---------------------------------------------------------------- from lines to documents

Row = tuple[Any, ...]  # a value for each column


def _row(line: bytes | str, columns: Mapping[str, str]) -> Row | str:
    """A line's values of the columns, the text first; or, in one sentence, why it cannot be read."""
    record = _object(line) if isinstance(line, bytes) else line
    if isinstance(record, str):
        return record
    text, *beside = (_value(record, theirs) for theirs in columns.values())
    if text is not None and not isinstance(text, str):
        return f"it holds {_kind(text)} in {columns['text']!r}, where text is wanted"
    return text, *beside


def _object(line: bytes) -> dict[str, Any] | str:
    if len(line) > LINE_BYTES:
        return f"its line is longer than {LINE_BYTES:,} bytes"
    try:
        value = from_json(line)
    except ValueError as error:
        said = str(error).replace("line 1 column", "byte")
        # How deep Python's parser may go depends on who calls it.
        value = _ABSENT if "recursion" in said else _with_invalid_text(line)
        if value is _ABSENT:
            return f"its line is not JSON: {said}"
    return value if isinstance(value, dict) else f"its line holds {_kind(value)}, not an object"


def _with_invalid_text(line: bytes) -> Any:
    """The value of a line in which only text is at fault: half a surrogate pair, or bytes that are not UTF-8."""
    try:
        return json.loads(line.decode(errors="surrogateescape"))
    except (ValueError, RecursionError):
        return _ABSENT


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "text", bool: "a truth value", type(None): "null"}
    return kinds.get(type(value), "a number")


def _value(record: dict[str, Any], name: str, absent: object = None) -> Any:
    """The value of a key, or at a path such as `metadata.url`."""
    if "." not in name or name in record:
        return record.get(name, absent)
    outer, _, inner = name.partition(".")
    below = record.get(outer)
    return _value(below, inner, absent) if isinstance(below, dict) else absent


def _is_beside_the_data(document: bytes, text: str) -> bool:
    value = _object(document.removeprefix(BYTE_ORDER_MARK))
    return isinstance(value, dict) and _value(value, text, _ABSENT) is _ABSENT


def _present(lines: list[bytes], columns: Mapping[str, str]) -> tuple[str, ...]:
    found: set[str] = set()
    records = 0
    for line in lines:
        record = _object(line)
        if isinstance(record, dict):
            records += 1
            found.update(
                ours for ours, theirs in columns.items() if _value(record, theirs, _ABSENT) is not _ABSENT
            )
            if len(found) == len(columns):
                break
    return tuple(name for name in columns if name in found or not records)


# ---------------------------------------------------------------- from documents to batches


def _batches(
    rows: Iterable[list[Row | str]], first: int, names: list[str], batch_bytes: int
) -> Iterator[Batch]:
    steps = (step for some in rows for step in _steps(some, names))
    for readable, run in groupby(steps, lambda step: isinstance(step, pa.RecordBatch)):
        for step in bounded(run, batch_bytes) if readable else run:
            batch = _batch(first, step)
            yield batch
            first += len(batch)


def _batch(first: int, step: pa.RecordBatch | tuple[int, str]) -> Batch:
    if isinstance(step, tuple):
        count, error = step
        return Batch.unreadable(first, first + count, error)
    beside = dict(zip(step.schema.names[1:], step.columns[1:], strict=True))
    return Batch.checked(first, step.column(0), beside)


def _steps(rows: list[Row | str], names: list[str]) -> Iterator[pa.RecordBatch | tuple[int, str]]:
    """Consecutive rows as a record batch, or how many there are that cannot be read and why."""
    for error, run in groupby(rows, lambda row: row if isinstance(row, str) else None):
        if error is not None:
            yield sum(1 for _ in run), error
        else:
            columns = zip(names, zip(*run, strict=True), strict=True)
            yield pa.RecordBatch.from_arrays([_array(name, values) for name, values in columns], names)


def _array(name: str, values: Sequence[Any]) -> pa.Array:
    if name in NUMBERS:
        return pa.array([_number(value) for value in values], pa.float64())
    strings = [_string(value) for value in values]
    try:
        return pa.array(strings, pa.large_string())
    except UnicodeEncodeError:  # Half a surrogate pair is to stand there as the invalid UTF-8 that it is.
        encoded = [None if string is None else string.encode(errors="surrogatepass") for string in strings]
        return pa.array(encoded, pa.large_binary()).view(pa.large_string())


def _number(value: Any) -> float | None:
    """A finite number that float64 holds; null for anything else."""
    try:
        return float(value) if type(value) in (int, float) and math.isfinite(value) else None
    except OverflowError:
        return None


def _string(value: Any) -> str | None:
    """Text as it is, another single value as JSON writes it, null for anything else."""
    if isinstance(value, str):
        return value
    return None if value is None or isinstance(value, dict | list) else json.dumps(value)
