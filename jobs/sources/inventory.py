"""What a source holds, and how it is cut into tasks; the same for every format."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

SPLIT_BYTES = 32 * 2**20


class BadFileError(Exception):
    """A file that cannot be read at all; the message, "it is ...", says why."""


class UnfitFileError(BadFileError):
    """A file without the text column, or with another type in a column than is wanted; "it has ...".

    One among others is a bad file; where no file of a source fits, the settings are wrong.
    """


class NotDataError(Exception):
    """A file beside the data that holds no documents, to be passed over; the message says what it is."""


@dataclass(frozen=True)
class Block:
    """The smallest part of a file that can be read by itself: a Parquet row group, a range of a JSONL file.

    Attributes
    ----------
    records
        Documents in it.
    n_bytes
        Its size before compression, about; other columns may be counted with the text.
    place
        Where the format's reader finds it: the number of a row group, an offset in bytes.
    """

    records: int
    n_bytes: int
    place: int


@dataclass(frozen=True)
class File:
    """A readable file of a source.

    Attributes
    ----------
    source
        Name of the source.
    path
        Relative to the source's root, parts joined by `/`.
    size
        Bytes.
    version
        Modification time or entity tag: changes when the content does.
    blocks
        In the order of the file.
    columns
        Which of the mapped columns it has, under our names.
    """

    source: str
    path: str
    size: int
    version: str
    blocks: tuple[Block, ...]
    columns: tuple[str, ...]

    @property
    def records(self) -> int:
        """Documents in the file."""
        return sum(block.records for block in self.blocks)

    @property
    def n_bytes(self) -> int:
        """Size of the file's blocks before compression, about."""
        return sum(block.n_bytes for block in self.blocks)


@dataclass(frozen=True)
class Skipped:
    """A file that was passed over without a look inside, and why: "hidden"."""

    source: str
    path: str
    reason: str


@dataclass(frozen=True)
class Bad:
    """A file that cannot be read, and why, in one sentence: "it is truncated"."""

    source: str
    path: str
    reason: str


@dataclass(frozen=True)
class Split:
    """The part of one file that one task reads: consecutive blocks.

    Attributes
    ----------
    source, path
        As in `File`.
    start, stop
        Records, `stop` exclusive.
    places
        Of its blocks.
    n_bytes
        Size of its blocks before compression, about.
    size, version
        Of the whole file when it was listed.
    """

    source: str
    path: str
    start: int
    stop: int
    places: tuple[int, ...]
    n_bytes: int
    size: int
    version: str

    @property
    def key(self) -> str:
        """32 hexadecimal digits, fit for a file name; another once the file has changed."""
        identity = [self.source, self.path, self.start, self.stop, self.size, self.version]
        return hashlib.blake2b(json.dumps(identity).encode(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class Inventory:
    """All files of a source or of several, each sorted by path."""

    files: tuple[File, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    bad: tuple[Bad, ...] = ()

    def __add__(self, other: "Inventory") -> "Inventory":
        return Inventory(self.files + other.files, self.skipped + other.skipped, self.bad + other.bad)

    @property
    def records(self) -> int:
        """Documents in all files."""
        return sum(file.records for file in self.files)

    @property
    def n_bytes(self) -> int:
        """Size of all blocks before compression, about."""
        return sum(file.n_bytes for file in self.files)

    def identity(self) -> list[dict[str, Any]]:
        """What fingerprints and manifests hold: every file that is read or bad, as JSON can hold it."""
        return [asdict(file) for file in self.files] + [asdict(file) for file in self.bad]


def to_json(inventory: Inventory) -> dict[str, Any]:
    """An inventory as JSON can hold it."""
    return asdict(inventory)


def from_json(content: dict[str, Any]) -> Inventory:
    """What `to_json` gave."""
    return Inventory(
        tuple(_file(**file) for file in content["files"]),
        tuple(Skipped(**one) for one in content["skipped"]),
        tuple(Bad(**one) for one in content["bad"]),
    )


def _file(blocks: list[dict[str, int]], columns: list[str], **rest: Any) -> File:
    return File(blocks=tuple(Block(**block) for block in blocks), columns=tuple(columns), **rest)


def splits(inventory: Inventory, split_bytes: int = SPLIT_BYTES) -> list[Split]:
    """Cut every file into splits of consecutive blocks.

    Parameters
    ----------
    inventory
        From `list_files`.
    split_bytes
        Size of a split, at most; a block that is larger by itself is a split of its own.
    """
    return [_split(file, *run) for file in inventory.files for run in _runs(file, split_bytes)]


def _runs(file: File, split_bytes: int) -> Iterator[tuple[int, list[Block]]]:
    """First record and blocks of each split; blocks without records are in none."""
    first, size = 0, 0
    run: list[Block] = []
    for block in file.blocks:
        if run and size + block.n_bytes > split_bytes:
            yield first, run
            first, run, size = first + sum(block.records for block in run), [], 0
        if block.records:
            run.append(block)
            size += block.n_bytes
    if run:
        yield first, run


def _split(file: File, first: int, blocks: list[Block]) -> Split:
    return Split(
        file.source,
        file.path,
        start=first,
        stop=first + sum(block.records for block in blocks),
        places=tuple(block.place for block in blocks),
        n_bytes=sum(block.n_bytes for block in blocks),
        size=file.size,
        version=file.version,
    )
