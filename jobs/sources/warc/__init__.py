"""Web archives: WARC (so WET too) and ARC version 1; plain, gzip, Zstandard or LZ4, told apart by their first bytes.

A document is a record of type response, resource or conversion, and in ARC every record but the first, the file's own
description. What wget says of itself is passed over: its log and its arguments are resources with URLs of metadata://.
A document's number counts the documents. It has the record's content as it stands there: of a response, the whole
HTTP message.

How a file is cut: a record that begins a member of gzip or a frame of Zstandard, and any record of a plain file, can be
read by itself. A block is as many records as it takes to hold 1 MiB, up to the next such place. Files of LZ4, and
those that have all records in one member or frame, are one block.

Damage is one unreadable record, whatever it begins in (a record that was no document counts too): a length that is
wrong, a header that cannot be read, a member that cannot be decompressed, a file that ends within a record; and so is
a record of more than 256 MiB. What follows is read from the next record that is found, and otherwise lost, as the
error says then.

Columns are header fields, by their WARC names whatever their case. These names stand for others: `id` for
WARC-Record-ID, `url` for WARC-Target-URI, `date` for WARC-Date, and `dump` for the crawl, the same for all records:
`isPartOf` of the warcinfo record that the file begins with, or else a name such as CC-MAIN-2024-22 in its path.
"""

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa

from jobs.sources.batches import BATCH_DOCUMENTS, Batch
from jobs.sources.inventory import BadFileError, Block, NotDataError
from jobs.sources.warc.records import NO_RECORD, Record, records_from

SUFFIXES = (
    *(".warc" + compression for compression in ("", ".gz", ".zst", ".lz4")),
    *(".wet" + compression for compression in ("", ".gz", ".zst")),
    *(".arc" + compression for compression in ("", ".gz")),
)
UNSPLIT = (
    "a gzip member or Zstandard frame is read by one worker alone; compress each record by itself to split it"
)
BLOCK_BYTES = 2**20

DOCUMENTS = ("response", "resource", "conversion")
OF_WGET = "metadata://"
FIELDS = {"id": "warc-record-id", "url": "warc-target-uri", "date": "warc-date"}
CRAWL = "dump"
IS_PART_OF = re.compile(rb"^isPartOf:[ \t]*(\S+)", re.IGNORECASE | re.MULTILINE)
CRAWL_IN_PATH = re.compile(r"CC-MAIN-\d{4}-\d{2}(?!\d)")
HTTP_RESPONSE = "application/http; msgtype=response"


def blocks(file: str | IO[bytes], columns: Mapping[str, str]) -> tuple[tuple[Block, ...], tuple[str, ...]]:
    """Blocks of a file, from one pass over all of it, and which of the mapped columns it has.

    Parameters
    ----------
    file
        A local path or a seekable binary file.
    columns
        Our name -> a header field, or one of the names that stand for others. A column counts as present if a
        document has it; `text` always is.

    Raises
    ------
    BadFileError
        No header of a record can be read.
    NotDataError
        There is nothing in the file once it is decompressed.
    """
    counts: Counter[int] = Counter()
    sizes: Counter[int] = Counter()
    names: set[str] = set()
    recognised, error = False, None
    with _opened(file) as raw:
        for block, record in _by_block(raw, 0):
            counts[block] += _is_document(record)
            sizes[block] += record.n_bytes
            recognised |= bool(record.fields)
            error = error or record.error
            if _is_document(record):
                names.update(record.fields)
        if not sizes:
            raise NotDataError("no record is in it")
        if not recognised:
            raise BadFileError("it is neither WARC nor ARC" if error is None or NO_RECORD in error else error)
        if CRAWL in columns.values() and _crawl(raw, file):
            names.add(CRAWL)
    present = (ours for ours, theirs in columns.items() if ours == "text" or _field(theirs) in names)
    return tuple(Block(counts[place], sizes[place], place) for place in sizes), tuple(present)


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
        Of consecutive blocks, from `blocks`.
    first
        Number of the first document of the first of them.
    columns
        As in `blocks`. A batch has those that one of its documents has, as large_string, and `content_type`: the
        record's own. A response that begins as an HTTP message does is one, whatever it says, as in ARC.
    batch_bytes
        Content in a batch, at most; a longer document is a batch alone.
    """
    with _opened(file) as raw:
        crawl = _crawl(raw, file) if CRAWL in columns.values() else None
        for run in _runs(_documents(raw, places), batch_bytes):
            yield _batch(run, first, columns, crawl)
            first += len(run)


def _opened(file: str | IO[bytes]) -> contextlib.AbstractContextManager[IO[bytes]]:
    return Path(file).open("rb") if isinstance(file, str) else contextlib.nullcontext(file)


def _by_block(raw: IO[bytes], place: int) -> Iterator[tuple[int, Record]]:
    """Records from the block at `place` on, each with the place of its block.

    A block ends where reading can begin anew after it holds `BLOCK_BYTES`, or after damage, wherever reading began.
    """
    block, size, damaged = place, 0, False
    for record in records_from(raw, place):
        if record.place is not None and (size >= BLOCK_BYTES or damaged):
            block, size, damaged = record.place, 0, False
        size += record.n_bytes
        damaged |= record.error is not None
        yield block, record


def _is_document(record: Record) -> bool:
    if record.error is not None:
        return True
    return record.type in DOCUMENTS and not record.fields.get("warc-target-uri", "").startswith(OF_WGET)


def _documents(raw: IO[bytes], places: Sequence[int]) -> Iterator[Record]:
    for block, record in _by_block(raw, places[0]):
        if block > places[-1]:
            return
        if _is_document(record):
            yield record


def _runs(documents: Iterator[Record], batch_bytes: int) -> Iterator[list[Record]]:
    """Consecutive documents that make a batch; one that cannot be read is alone."""
    run: list[Record] = []
    size = 0
    for record in documents:
        n_bytes = sum(map(len, record.content))
        full = size + n_bytes > batch_bytes or len(run) == BATCH_DOCUMENTS
        if run and (full or record.error or run[-1].error):
            yield run
            run, size = [], 0
        run.append(record)
        size += n_bytes
    if run:
        yield run


def _batch(run: Sequence[Record], first: int, columns: Mapping[str, str], crawl: str | None) -> Batch:
    d = len(run)
    if run[0].error:
        return Batch.unreadable(first, first + d, run[0].error)
    values = {ours: _values(run, _field(theirs), crawl) for ours, theirs in columns.items()}
    beside = {
        "content_type": [_content_type(record) for record in run],
        **{ours: some for ours, some in values.items() if ours != "text" and any(some)},
    }
    return Batch(
        np.arange(first, first + d),
        None,
        np.ones(d, bool),
        {ours: pa.array(some, pa.large_string()) for ours, some in beside.items()},
        content=_joined([record.content for record in run]),
    )


def _joined(contents: Sequence[tuple[bytes, ...]]) -> pa.LargeBinaryArray:
    offsets = np.cumsum([0, *(sum(map(len, parts)) for parts in contents)], dtype=np.int64)
    data = b"".join(part for parts in contents for part in parts)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(contents), buffers)


# ---------------------------------------------------------------- columns


def _field(theirs: str) -> str:
    return theirs if theirs == CRAWL else FIELDS.get(theirs, theirs.lower())


def _values(run: Sequence[Record], field: str, crawl: str | None) -> list[str | None]:
    return [crawl] * len(run) if field == CRAWL else [record.fields.get(field) for record in run]


def _content_type(record: Record) -> str | None:
    """What the bytes are; ARC gives the type of the body that an HTTP message has."""
    named = record.fields.get("content-type")
    begins = b"".join(part[:5] for part in record.content[:5])
    is_http = record.type == "response" and begins.startswith(b"HTTP/")
    return HTTP_RESPONSE if is_http and not (named or "").startswith("application/http") else named


def _crawl(raw: IO[bytes], file: str | IO[bytes]) -> str | None:
    """The crawl that all records of a file are of, as far as is known."""
    record = next(records_from(raw, 0), Record())
    if record.type == "warcinfo" and (found := IS_PART_OF.search(b"".join(record.content))):
        return found[1].decode(errors="replace")
    path = file if isinstance(file, str) else str(getattr(file, "path", ""))
    names = CRAWL_IN_PATH.findall(path)
    return names[-1] if names else None
