"""Where documents come from: one reader per format behind one small protocol.

`list_files` says what a source holds, `splits` cuts it into tasks, `read` reads one split as batches of Arrow
text, `read_batches` reads single documents again. A document is known by source, path relative to the source's
root, and record (its index in the file), none of which depends on how the work is cut.

A format is a module with `SUFFIXES`, `blocks` and `read` as `Format` describes them; `FORMATS` names it.
Storage, splitting, bounding and checking text are shared: `storage`, `inventory`, `batches`.
"""

import fnmatch
import importlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import IO, Protocol, cast

import numpy as np

from jobs.errors import UserError
from jobs.sources.batches import BATCH_BYTES, Batch
from jobs.sources.inventory import (
    SPLIT_BYTES,
    Bad,
    BadFileError,
    Block,
    File,
    Inventory,
    NotDataError,
    Skipped,
    Split,
    UnfitFileError,
    splits,
)
from jobs.sources.notices import joined_splits, passed_over, unsplittable, without_documents, without_text
from jobs.sources.storage import Entry, Local, Remote, locate

__all__ = [
    "Bad",
    "BadFileError",
    "Batch",
    "Block",
    "Entry",
    "File",
    "Found",
    "Inventory",
    "NotDataError",
    "Skipped",
    "SourceSettings",
    "Split",
    "UnfitFileError",
    "change",
    "list_files",
    "look_into",
    "look_into_each",
    "notices_of",
    "read",
    "read_batches",
    "splits",
]

Found = File | BadFileError | NotDataError

FORMATS = {
    "parquet": "jobs.sources.parquet",
    "jsonl": "jobs.sources.jsonl",
    "text": "jobs.sources.text",
    "arrow": "jobs.sources.arrow",
    "warc": "jobs.sources.warc",
}
# FineWeb's names; its `dump` is the crawl.
DEFAULT_COLUMNS = {
    "text": "text",
    "id": "id",
    "url": "url",
    "crawl": "dump",
    "score": "score",
    "language": "language",
    "language_score": "language_score",
}


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
    extra
        More columns of ours; theirs have the same names unless `columns` says otherwise.
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def format(self) -> str: ...  # noqa: D102
    @property
    def path(self) -> str | None: ...  # noqa: D102
    @property
    def columns(self) -> Mapping[str, str]: ...  # noqa: D102
    @property
    def extra(self) -> Mapping[str, str]: ...  # noqa: D102


class Format(Protocol):
    """What a format's module has. A file is given as a local path or a seekable binary file.

    It may have `PASSED_OVER` too: a pattern for names of files that are no data -> what they are; `UNSPLIT`: what
    keeps a large file in one piece, and what to do about it; and `names(file)`: all columns that a file has.
    """

    SUFFIXES: tuple[str, ...]

    def blocks(
        self, file: str | IO[bytes], columns: Mapping[str, str]
    ) -> tuple[tuple[Block, ...], tuple[str, ...]]:
        """Blocks of a file, and which columns it has; raises BadFileError, UnfitFileError or NotDataError."""

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
    mapped = {**DEFAULT_COLUMNS, **{name: name for name in source.extra}, **source.columns}
    return {
        name: theirs for name, theirs in mapped.items() if name == "text" or wanted is None or name in wanted
    }


def look_into_each(source: SourceSettings, entries: Sequence[Entry]) -> list[Found]:
    """Look into files one after another, in this process."""
    return [look_into(source, entry) for entry in entries]


def list_files(
    source: SourceSettings,
    known: Iterable[File] = (),
    look: Callable[[SourceSettings, Sequence[Entry]], list[Found]] = look_into_each,
) -> Inventory:
    """Find a source's files and look into each.

    Parameters
    ----------
    source
        The source.
    known
        Files of an earlier inventory of the same source, read in the same way; those that have neither another size
        nor another version now are not looked into again.
    look
        How the others are: here, or on a cluster.

    Returns
    -------
    Inventory
        Sorted by path, however the storage lists them: files that can be read, files passed over with the
        reason (hidden, empty, a checksum, another kind of file in the folder) and bad files.

    Raises
    ------
    UserError
        There is nothing to read; or no file has the text column or one that the settings name, each of a fit
        type.
    """
    module = _format(source)
    listing = locate(source.path or "").listing(module.SUFFIXES)
    found: dict[str, Found] = {file.path: file for file in known}
    entries = {entry.path: entry for entry in listing.entries}
    new = [entry for entry in listing.entries if not _same(found.get(entry.path), entry)]
    found |= dict(zip((entry.path for entry in new), look(source, new), strict=True))
    files, bad, skipped, unfit = [], [], listing.skipped, ""
    for path in entries:
        what = found[path]
        if isinstance(what, File):
            files.append(what)
        elif isinstance(what, NotDataError):
            skipped.append((path, str(what)))
        else:
            name = path.encode(errors="replace").decode()
            bad.append(Bad(source.name, name, str(what)))
            if isinstance(what, UnfitFileError):
                unfit = unfit or f"source {source.name!r}: {name} {str(what).removeprefix('it ')}"
    if unfit and not files:
        raise UserError(unfit)
    if not files and not bad:
        raise UserError(_nothing(source, skipped, module.SUFFIXES))
    _check_columns(source, files)
    return Inventory(tuple(files), tuple(Skipped(source.name, *one) for one in sorted(skipped)), tuple(bad))


def _same(file: Found | None, entry: Entry) -> bool:
    return isinstance(file, File) and (file.size, file.version) == (entry.size, entry.version)


def look_into(source: SourceSettings, entry: Entry) -> Found:
    """A file with its blocks; or, as a value, why it is none that can be read."""
    module = _format(source)
    try:
        return _look_into(source, module, locate(source.path or ""), entry)
    except (BadFileError, NotDataError) as reason:
        return reason


def _look_into(source: SourceSettings, module: Format, place: Local | Remote, entry: Entry) -> File:
    if entry.size is None:
        raise BadFileError("it cannot be opened: its storage gives no size for it")
    if not entry.path.isprintable():  # a name that is not UTF-8 among others
        raise BadFileError("its name holds characters that cannot be printed")
    for pattern, what in getattr(module, "PASSED_OVER", {}).items():
        if fnmatch.fnmatchcase(entry.path.rpartition("/")[2], pattern):
            raise NotDataError(what)
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
    named = {name: name for name in source.extra} | dict(source.columns)
    for name, theirs in {"text": DEFAULT_COLUMNS["text"], **named}.items():
        if files and not any(name in file.columns for file in files):
            named_for = "" if name == theirs else f", named for {name}"
            raise UserError(
                f"source {source.name!r}: no file has the column {theirs!r}{named_for}{_there_are(source, files[0])}"
            )


def _there_are(source: SourceSettings, file: File) -> str:
    """What columns a file has, where its format can say."""
    module = _format(source)
    if not hasattr(module, "names"):
        return ""
    with locate(source.path or "").open(file.path) as opened:
        return f"; {file.path} has {', '.join(module.names(opened))}"


def _read_twice(sources: Iterable[SourceSettings], inventory: Inventory) -> Iterator[str]:
    """For each two sources, whether both read the same files."""
    places = {source.name: locate(source.path or "") for source in sources}
    readers: dict[str, str] = {}
    shared: Counter[tuple[str, str]] = Counter()
    for file in inventory.files:
        address = f"{places[file.source].root}/{file.path}"
        first = readers.setdefault(address, file.source)
        shared[first, file.source] += first != file.source
    for (first, second), count in shared.items():
        if count:
            files = "one file" if count == 1 else f"{count:,} files"
            yield f"{first} and {second}: both read {files} of the same path; each document is in the run twice"


def notices_of(
    sources: Iterable[SourceSettings], inventory: Inventory, split_bytes: int = SPLIT_BYTES
) -> list[str]:
    """What a person should know of the sources before they are read: a sentence for each source and kind.

    Parameters
    ----------
    sources
        Those that the inventory is of.
    inventory
        From `list_files`.
    split_bytes
        Size of a split, at most.
    """
    sources = list(sources)
    advice = {source.name: getattr(_format(source), "UNSPLIT", "") for source in sources}
    return [
        *_read_twice(sources, inventory),
        *passed_over(inventory),
        *without_text(inventory),
        *without_documents(inventory),
        *joined_splits(inventory),
        *unsplittable(inventory, {name: said for name, said in advice.items() if said}, split_bytes),
    ]


def change(source: SourceSettings, listed: File | Split) -> str | None:
    """What has become of a file since it was listed, `is gone` or `has changed`; None where it is the same."""
    now = locate(source.path or "").stat(listed.path)
    if now.size is None:
        return "is gone"
    return None if (now.size, now.version) == (listed.size, listed.version) else "has changed"


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
    if what := change(source, split):
        raise UserError(f"source {source.name!r}: {split.path} {what} since the run began; start it again")
    with locate(source.path or "").open(split.path) as file:
        yield from _format(source).read(
            file, split.places, split.start, _columns(source, columns), batch_bytes
        )


def read_batches(
    source: SourceSettings, path: str, records: Iterable[int], blocks: Sequence[Block] | None = None
) -> Iterator[Batch]:
    """Single documents of a file, in the order of the file; reads only the blocks that hold them.

    Parameters
    ----------
    source
        The source that the file belongs to.
    path
        Of the file, relative to the source's root.
    records
        Numbers of documents in the file.
    blocks
        Of the file, where they are known from an inventory; found anew otherwise, which takes a pass over a file
        of JSON lines.

    Raises
    ------
    IndexError
        The file has no such record.
    """
    wanted = np.fromiter(records, np.int64)
    module = _format(source)
    with locate(source.path or "").open(path) as file:
        blocks = module.blocks(file, _columns(source))[0] if blocks is None else blocks
        firsts = np.cumsum([0, *(block.records for block in blocks)])
        if len(wanted) and (wanted.min() < 0 or wanted.max() >= firsts[-1]):
            raise IndexError(
                f"{path} has records 0 to {firsts[-1] - 1}; asked for {wanted.min()} to {wanted.max()}"
            )
        for number in np.unique(np.searchsorted(firsts, wanted, side="right") - 1):
            place, first = blocks[number].place, int(firsts[number])
            for batch in module.read(file, (place,), first, _columns(source), BATCH_BYTES):
                rows = np.flatnonzero(np.isin(batch.records, wanted))
                if len(rows):
                    yield batch.take(rows)
