"""Fetch the row groups of a plan and write each file's as one Parquet file.

A row group is staged as its column chunks, byte for byte, so that a stopped download goes on from the row group it
was at; once a file's are all here they are decoded, which checks them, and encoded again as row groups of the
same rows with the same codecs.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.download import crawls, footers
from jobs.download.plan import Plan, Staging, Taken
from jobs.download.ranges import Fetcher, Identity, LocalFile, Place, check, place
from jobs.errors import UserError
from jobs.runtime import checkpoint
from jobs.runtime.console import Console

AHEAD = 4  # row groups that may be here before they are written, for each connection

T = TypeVar("T")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Part:
    """One row group to fetch.

    Attributes
    ----------
    taken
        Its file.
    place, identity
        Where it is read: the original, or a copy of it on this machine.
    number, documents
        Of the row group.
    spans
        Its column chunks.
    path
        Where they are staged.
    """

    taken: Taken
    place: Place
    identity: Identity
    metadata: pq.FileMetaData
    number: int
    spans: list[footers.Span]
    path: Path

    @property
    def documents(self) -> int:
        """Rows."""
        rows: int = self.metadata.row_group(self.number).num_rows
        return rows

    @property
    def staged(self) -> bool:
        """Whether it is here, whole."""
        return self.path.is_file() and self.path.stat().st_size == footers.length(self.spans)

    def fetch(self, fetcher: Fetcher) -> None:
        """Bring it here."""
        with checkpoint.written(self.path) as file:
            for span in self.spans:
                for piece in fetcher.stream(self.place, self.identity, *span):
                    file.write(piece)


@dataclass(frozen=True)
class Download:
    """A plan being carried out.

    Attributes
    ----------
    out
        The sample's folder.
    local
        A folder that may hold copies of the originals, which are then read there.
    """

    plan: Plan
    out: Path
    staging: Staging
    fetcher: Fetcher
    local: Path | None = None

    def run(self, pool: Executor, connections: int, console: Console) -> dict[str, dict[str, Any]]:
        """Fetch and write what is not there; records of all files by name."""
        records = {file.name: self.record(file) for file in self.plan.files if file.row_groups}
        missing = [file for file in self.plan.files if file.row_groups and records[file.name] is None]
        groups = sum(
            not self.staging.part(file.name, n).is_file() for file in missing for n in file.row_groups
        )
        if done := sum(len(file.row_groups) for file in self.plan.files) - groups:
            console.line(f"{'download':<16} {done:,} row groups are already there")
        with console.job("download", groups, "row groups") as meter:
            parts = (part for file in missing for part in self.parts(file))
            ready: list[Part] = []
            for part, came in _in_order(pool, self._bring, parts, AHEAD * connections):
                if came:
                    meter.advance(part.documents, footers.length(part.spans))
                ready.append(part)
                if part.number == part.taken.row_groups[-1]:
                    records[part.taken.name] = self.write(part.taken, ready)
                    ready = []
        return {name: record for name, record in records.items() if record is not None}

    def record(self, file: Taken) -> dict[str, Any] | None:
        """What was written for a file, if it is there and still what was written."""
        path = self.staging.record(file.name)
        if not path.is_file():
            return None
        record = checkpoint.read_json(path)
        return record if is_there(self.out / file.name, record) else None

    def parts(self, file: Taken) -> Iterator[Part]:
        """The row groups to fetch of a file."""
        original, footer = place(file.url), self._footer(file)
        metadata = footers.parse(footer, file.url)
        found, identity = self._nearby(file, footer) or (original, file.identity)
        for number in file.row_groups:
            spans = footers.chunks(metadata, number, self.plan.request.columns)
            path = self.staging.part(file.name, number)
            yield Part(file, found, identity, metadata, number, spans, path)

    def _footer(self, file: Taken) -> bytes:
        """The staged footer; fetched again where a finished sample is repaired."""
        path = self.staging.footer(file.name)
        if not path.is_file():
            identity, footer = footers.fetch(self.fetcher, place(file.url))
            check(file.url, file.identity, identity)
            with checkpoint.written(path) as staged:
                staged.write(footer)
        return path.read_bytes()

    def _nearby(self, file: Taken, footer: bytes) -> tuple[Place, Identity] | None:
        """A copy of the original on this machine: of its name, its size and its footer."""
        path = self.local / file.name if self.local else None
        if path is None or not path.is_file() or path.stat().st_size != file.size:
            return None
        copy = LocalFile(path)
        tail, identity = copy.fetch(file.size - len(footer), file.size, self.fetcher.stopped)
        return (copy, identity) if tail == footer else None

    def _bring(self, part: Part) -> tuple[Part, bool]:
        """Fetch a row group unless it is staged; whether it had to be fetched."""
        if part.staged:
            return part, False
        part.fetch(self.fetcher)
        return part, True

    def write(self, file: Taken, parts: Sequence[Part]) -> dict[str, Any]:
        """Make a file of the sample from its staged row groups, record it, and remove them."""
        path, found = self.out / file.name, Counter[str]()
        aside, columns = self.staging.file(file.name), self.plan.request.columns
        with checkpoint.written(aside) as output, _Writer(output) as writer:
            for part in parts:
                table = _decoded(part, columns)
                found.update(crawls.count(table, self.plan.request.crawl))
                writer.write(table, part.metadata.row_group(part.number))
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.replace(path)
        record = {**checkpoint.describe(path), "crawls": dict(sorted(found.items()))}
        checkpoint.write_json(self.staging.record(file.name), record)
        for part in parts:
            part.path.unlink()
        return record


def is_there(path: Path, record: dict[str, Any]) -> bool:
    """Whether a file is the one that a record describes, to the last bit."""
    if not path.is_file() or path.stat().st_size != record["bytes"]:
        return False
    return checkpoint.sha256(path) == record["sha256"]


def _decoded(part: Part, columns: Sequence[str] | None) -> pa.Table:
    """Rows of a staged row group.

    Raises
    ------
    UserError
        They cannot be decoded; what is staged is removed, so that the next run fetches it again.
    """
    try:
        file = footers.opened(part.metadata, part.identity.size, part.spans, part.path.read_bytes())
        table = file.read_row_group(part.number, columns)
        said = (
            f"{table.num_rows:,} rows instead of {part.documents:,}" if len(table) != part.documents else ""
        )
    except (pa.ArrowException, OSError) as error:
        said = str(error).splitlines()[0]
    if said:
        part.path.unlink()
        raise UserError(f"{part.place.url}: row group {part.number} cannot be decoded: {said}")
    return table


class _Writer:
    """Writes tables as row groups with the codecs and dictionaries of their originals."""

    def __init__(self, output: Any) -> None:
        self.output = output
        self.writer: pq.ParquetWriter | None = None

    def __enter__(self) -> "_Writer":
        return self

    def write(self, table: pa.Table, original: pq.RowGroupMetaData) -> None:
        """Write a table as one row group; the first decides how columns are encoded."""
        if self.writer is None:
            self.writer = pq.ParquetWriter(
                self.output, table.schema, **_encoding(original), write_page_checksum=True
            )
        self.writer.write_table(table, row_group_size=max(1, len(table)))

    def __exit__(self, *_: object) -> None:
        if self.writer is not None:
            self.writer.close()


def _encoding(group: pq.RowGroupMetaData) -> dict[str, Any]:
    columns = [group.column(i) for i in range(group.num_columns)]
    codecs = {column.path_in_schema: column.compression.lower() for column in columns}
    dictionaries = [
        column.path_in_schema
        for column in columns
        if any("DICTIONARY" in encoding for encoding in column.encodings)
    ]
    return {
        "compression": {path: "none" if codec == "uncompressed" else codec for path, codec in codecs.items()},
        "use_dictionary": dictionaries or False,
    }


def _in_order(
    pool: Executor, function: Callable[[T], Result], tasks: Iterable[T], ahead: int
) -> Iterator[Result]:
    """Results of a function on threads, in the order of the tasks, of which so many are begun ahead."""
    pending: deque[Future[Result]] = deque()
    for task in tasks:
        pending.append(pool.submit(function, task))
        if len(pending) >= ahead:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()
