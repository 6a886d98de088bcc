"""Where documents come from: one reader per format behind one small protocol.

`list_files` says what a source holds, `splits` cuts it into tasks, `read` reads one split as batches of Arrow
text, `read_records` reads single documents again. A document is known by source, path relative to the source's
root, and record (its index in the file), none of which depends on how the work is cut.

A format is a module with `SUFFIXES`, `blocks` and `read` as `Format` describes them; `FORMATS` names it.
Storage, splitting, bounding and checking text are shared: `storage`, `inventory`, `batches`.
"""

import importlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import IO, Protocol, cast

import numpy as np

from jobs.errors import UserError
from jobs.sources.batches import BATCH_BYTES, Batch
from jobs.sources.inventory import Bad, BadFileError, Block, File, Inventory, Skipped, Split, splits
from jobs.sources.storage import Entry, Local, Remote, locate

__all__ = [
    "Bad",
    "BadFileError",
    "Batch",
    "Block",
    "File",
    "Inventory",
    "Skipped",
    "SourceSettings",
    "Split",
    "list_files",
    "read",
    "read_records",
    "splits",
]

FORMATS = {"parquet": "jobs.sources.parquet", "jsonl": "jobs.sources.jsonl"}
# FineWeb's names; its `dump` is the crawl.
DEFAULT_COLUMNS = {"text": "text", "id": "id", "url": "url", "crawl": "dump", "score": "score"}


class SourceSettings(Protocol):
    """A source as the configuration describes it.

    Attributes
    ----------
    name
        Unique in a run; part of every document's identity.
    format
        A key of `FORMATS`.
    path
        A file, a folder, a glob or an fsspec URL.
    columns
        Our column -> theirs, where it differs from `DEFAULT_COLUMNS`.
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def format(self) -> str: ...  # noqa: D102
    @property
    def path(self) -> str | None: ...  # noqa: D102
    @property
    def columns(self) -> Mapping[str, str]: ...  # noqa: D102


class Format(Protocol):
    """What a format's module has. A file is given as a local path or a seekable binary file."""

    SUFFIXES: tuple[str, ...]

    def blocks(
        self, file: str | IO[bytes], columns: Mapping[str, str]
    ) -> tuple[tuple[Block, ...], tuple[str, ...]]:
        """Blocks of a file, and which columns it has; raises BadFileError, or UserError for a wrong column."""

    def read(
        self,
        file: str | IO[bytes],
        places: Sequence[int],
        first: int,
        columns: Mapping[str, str],
        batch_bytes: int,
    ) -> Iterator[Batch]:
        """Batches of consecutive blocks, of which the first begins with record `first`."""


def _format(source: SourceSettings) -> Format:
    if source.format not in FORMATS:
        raise UserError(
            f"source {source.name!r} has format {source.format!r}; known are {', '.join(FORMATS)}"
        )
    return cast(Format, importlib.import_module(FORMATS[source.format]))


def _columns(source: SourceSettings, wanted: Collection[str] | None = None) -> dict[str, str]:
    """Our name -> theirs, `text` first; all that are mapped, or those wanted."""
    mapped = {**DEFAULT_COLUMNS, **source.columns}
    return {
        name: theirs for name, theirs in mapped.items() if name == "text" or wanted is None or name in wanted
    }


def list_files(source: SourceSettings) -> Inventory:
    """Find a source's files and look into each.

    Returns
    -------
    Inventory
        Sorted by path, however the storage lists them: files that can be read, files passed over with the
        reason (hidden, empty, a checksum, another kind of file in the folder) and bad files.

    Raises
    ------
    UserError
        There is nothing to read; or no file has the text column or one that the settings name; or a Parquet file
        lacks the text column, or has a mapped column of an unfit type.
    """
    module, place = _format(source), locate(source.path or "")
    listing = place.listing(module.SUFFIXES)
    files, bad = [], []
    for entry in listing.entries:
        try:
            files.append(_look_into(source, module, place, entry))
        except BadFileError as error:
            bad.append(Bad(source.name, entry.path.encode(errors="replace").decode(), str(error)))
    if not files and not bad:
        raise UserError(_nothing(source, listing.skipped, module.SUFFIXES))
    _check_columns(source, files)
    skipped = (Skipped(source.name, path, reason) for path, reason in listing.skipped)
    return Inventory(tuple(files), tuple(skipped), tuple(bad))


def _look_into(source: SourceSettings, module: Format, place: Local | Remote, entry: Entry) -> File:
    if entry.size is None:
        raise BadFileError("it cannot be opened: its storage gives no size for it")
    if not entry.path.isprintable():  # a name that is not UTF-8 among others
        raise BadFileError("its name holds characters that cannot be printed")
    try:
        with place.open(entry.path) as file:
            blocks, columns = module.blocks(file, _columns(source))
    except PermissionError:
        raise BadFileError("it cannot be opened: permission denied") from None
    except UserError as error:
        raise UserError(f"source {source.name!r}: {entry.path} {error}") from None
    return File(source.name, entry.path, entry.size, entry.version, blocks, columns)


def _nothing(source: SourceSettings, skipped: Sequence[tuple[str, str]], suffixes: Collection[str]) -> str:
    if not skipped:
        return f"source {source.name!r}: {source.path} holds no {' or '.join(suffixes)} file"
    path, reason = skipped[0]
    others = f" and {len(skipped) - 1} more" if len(skipped) > 1 else ""
    return (
        f"source {source.name!r}: {source.path} holds nothing to read; passed over: {path}, {reason}{others}"
    )


def _check_columns(source: SourceSettings, files: Sequence[File]) -> None:
    """A column that no file has, the text or one that was named on purpose, is a mistake in the settings."""
    for name, theirs in {"text": DEFAULT_COLUMNS["text"], **source.columns}.items():
        if files and not any(name in file.columns for file in files):
            raise UserError(f"source {source.name!r}: no file has the column {theirs!r}, named for {name}")


def read(
    source: SourceSettings,
    split: Split,
    columns: Collection[str] | None = None,
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[Batch]:
    """Read one split: every record of it once, in order.

    Parameters
    ----------
    source
        The split's source.
    split
        From `splits`.
    columns
        Our names of the mapped columns to read beside the text; all by default. A batch has those that the
        file has.
    batch_bytes
        Text in a batch, at most; a longer document is a batch alone.

    Yields
    ------
    Batch
        Records that cannot be decoded come as batches without text, with the reason in `error`.

    Raises
    ------
    UserError
        The file is no longer the one that was listed.
    """
    place = locate(source.path or "")
    now = place.stat(split.path)
    if (now.size, now.version) != (split.size, split.version):
        what = "is gone" if now.size is None else "has changed"
        raise UserError(f"source {source.name!r}: {split.path} {what} since the run began; start it again")
    with place.open(split.path) as file:
        yield from _format(source).read(
            file, split.places, split.start, _columns(source, columns), batch_bytes
        )


def read_records(source: SourceSettings, path: str, records: Iterable[int]) -> list[str | None]:
    """Texts of single documents, in the order asked for; reads only the blocks that hold them.

    Returns
    -------
    list of str or None
        None where the text is null, is not valid UTF-8 or cannot be read.

    Raises
    ------
    IndexError
        The file has no such record.
    """
    wanted = np.fromiter(records, np.int64)
    columns, module = _columns(source, ()), _format(source)
    found: dict[int, str | None] = {}
    with locate(source.path or "").open(path) as file:
        blocks, _ = module.blocks(file, columns)
        firsts = np.cumsum([0, *(block.records for block in blocks)])
        if len(wanted) and (wanted.min() < 0 or wanted.max() >= firsts[-1]):
            raise IndexError(
                f"{path} has records 0 to {firsts[-1] - 1}; asked for {wanted.min()} to {wanted.max()}"
            )
        for number in np.unique(np.searchsorted(firsts, wanted, side="right") - 1):
            place, first = blocks[number].place, int(firsts[number])
            for batch in module.read(file, (place,), first, columns, BATCH_BYTES):
                rows = np.flatnonzero(np.isin(batch.records, wanted)).tolist()
                found.update((int(batch.records[row]), batch.string(row)) for row in rows)
    return [found[record] for record in wanted.tolist()]
