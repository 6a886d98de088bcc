"""Where a source's files are: local folders and globs, or anything fsspec reaches."""

import contextlib
import functools
import glob
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import fsspec

from jobs.errors import UserError, known_protocol, said

# What file systems call a file's identity, best first; a size and one of these tell whether it changed.
_VERSION_KEYS = (
    "etag",
    "ETag",
    "blob_id",
    "md5Hash",
    "mtime",
    "LastModified",
    "last_modified",
    "updated",
    "created",
)
# Storage whose listing says as much of each file as asking for it does, a request for each.
_TELLING = ("s3://", "s3a://", "gs://", "gcs://", "hf://")
# What a remote file is read in, and how many such blocks of it stay in memory. File systems' own read-ahead, 50 MiB
# in s3fs, would fetch a whole file for a split of it, and again for each column that is read in turn.
_BLOCK_BYTES = 2 * 2**20
_BLOCKS = 16


@dataclass(frozen=True)
class Entry:
    """A file as its storage describes it.

    Attributes
    ----------
    path
        Relative to the source's root, parts joined by `/`.
    size
        Bytes; None where the storage does not tell.
    version
        Changes when the content does: modification time, or entity tag.
    """

    path: str
    size: int | None
    version: str


@dataclass
class Listing:
    """What lies at a source's path: files worth opening, and those passed over with the reason."""

    entries: list[Entry] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)

    def add(self, entry: Entry, suffixes: tuple[str, ...], named: bool = False) -> None:
        """File an entry under what is to be opened, or under what is not; one `named` as such is not hidden."""
        reason = "empty, zero bytes" if entry.size == 0 else None if named else _passed_over(entry, suffixes)
        if reason:
            self.skipped.append((entry.path, reason))
        else:
            self.entries.append(entry)

    def sorted(self) -> "Listing":
        """The order in which a storage lists its files must not matter."""
        return Listing(sorted(self.entries, key=lambda entry: entry.path), sorted(self.skipped))


def _passed_over(entry: Entry, suffixes: tuple[str, ...]) -> str | None:
    parts = entry.path.split("/")
    if any(part.startswith(".") for part in parts):
        return "hidden"
    # Spark's and Hive's markers; a partition folder such as `_date=2024-01-01` holds data.
    if any(part.startswith("_") and "=" not in part for part in parts):
        return "hidden, as its name begins with `_`"
    if entry.path.endswith(".crc"):
        return "a checksum file"
    if suffixes and not entry.path.lower().endswith(suffixes):
        return f"not named {' or '.join(suffixes)}"
    return None


def locate(path: str) -> "Local | Remote":
    """The storage that a source's `path` points into.

    Raises
    ------
    UserError
        The URL's protocol is unknown, or what it needs is not installed.
    """
    if "://" not in path:
        return Local(path)
    with known_protocol(path):
        system, inner = fsspec.core.url_to_fs(path)
    return Local(inner) if path.startswith(("file://", "local://")) else Remote(path, system, inner)


class Local:
    """Files on this machine, without fsspec's cost for each."""

    def __init__(self, path: str) -> None:
        self.path = Path(path).expanduser()
        self.pattern = ""  # relative to the root
        if self.path.is_file():
            self.root = self.path.parent
        elif not self.path.exists() and glob.has_magic(str(self.path)):
            folder, self.pattern = _fixed_part(self.path.as_posix(), os.path.isdir)
            self.root = Path(folder or ".")
        else:
            self.root = self.path

    def listing(self, suffixes: tuple[str, ...]) -> Listing:
        """Everything below the path, sorted; `suffixes` select only within a folder that was named as such.

        Raises
        ------
        UserError
            There is nothing at the path.
        """
        listing = Listing()
        if self.pattern:
            for path in self.root.glob(self.pattern):
                if path.is_file():
                    listing.add(self.stat(path.relative_to(self.root).as_posix()), ())
        elif self.path.is_file():
            listing.add(self.stat(self.path.name), (), named=True)
        elif self.path.is_dir():
            self._walk(listing, suffixes)
        if not listing.entries and not listing.skipped and not self.path.is_dir():
            raise UserError(
                f"no file matches {self.path}" if self.pattern else f"there is no file or folder {self.path}"
            )
        return listing.sorted()

    def _walk(self, listing: Listing, suffixes: tuple[str, ...]) -> None:
        for folder, folders, names in os.walk(self.root, onerror=_cannot_list):
            relative = Path(folder).relative_to(self.root)
            for name in names:
                listing.add(self.stat((relative / name).as_posix()), suffixes)
            for name in folders:
                if Path(folder, name).is_symlink():
                    listing.skipped.append(((relative / name).as_posix(), "a link to a folder"))

    def stat(self, relative: str) -> Entry:
        """Describe one file as it is now; a file that is gone has no size."""
        try:
            status = (self.root / relative).stat()
        except FileNotFoundError:
            return Entry(relative, None, "gone")
        return Entry(relative, status.st_size, str(status.st_mtime_ns))

    @contextlib.contextmanager
    def open(self, relative: str) -> Iterator[str]:
        """The path itself: Arrow opens local files by name, without a Python object in between."""
        yield str(self.root / relative)


class Remote:
    """Files behind a URL, through fsspec."""

    def __init__(self, url: str, system: Any, inner: str) -> None:
        self.url, self.system, self.inner = url, system, inner.rstrip("/")
        # `?` stands for itself in a URL.
        self.pattern = self.inner if any(sign in self.inner for sign in "*[") else ""

    @functools.cached_property
    def root(self) -> str:
        """What relative paths are relative to."""
        if self.pattern:
            return _fixed_part(self.inner)[0]
        try:
            kind = self._info(self.inner)["type"]
        except FileNotFoundError:  # a prefix is no object of its own
            kind = "directory"
        return self.inner if kind == "directory" else self.inner.rpartition("/")[0]

    def listing(self, suffixes: tuple[str, ...]) -> Listing:
        """Everything below the URL, sorted; `suffixes` select only within a folder that was named as such.

        Raises
        ------
        UserError
            There is nothing at the URL, or it cannot be reached.
        """
        try:
            self.system.invalidate_cache()  # what an earlier listing found may have changed
            found, folder = self._find()
            named = list(found) == [self.inner]
        except UserError:
            raise
        except Exception as error:  # every file system raises its own
            raise UserError(f"{self.url} cannot be listed: {said(error)}") from error
        listing = Listing()
        for path, info in found.items():
            relative = path[len(self.root) :].lstrip("/")
            told = _entry(relative, info) if self.url.startswith(_TELLING) else self.stat(relative)
            listing.add(told, suffixes if folder else (), named)
        if not listing.entries and not listing.skipped:
            raise UserError(f"there is nothing at {self.url}")
        return listing.sorted()

    def _find(self) -> tuple[dict[str, dict[str, Any]], bool]:
        """What is there by full name, and whether the URL names a folder."""
        if self.pattern:
            found = self.system.glob(self.pattern, detail=True)
            return {path: info for path, info in found.items() if info["type"] != "directory"}, False
        if self.root != self.inner:
            return {self.inner: self._info(self.inner)}, False
        return self.system.find(self.inner, detail=True), True

    def stat(self, relative: str) -> Entry:
        """Describe one file as it is now; a file that is gone has no size."""
        path = f"{self.root}/{relative}"
        self.system.invalidate_cache(path)
        try:
            info = self._info(path)
        except FileNotFoundError:
            return Entry(relative, None, "gone")
        return _entry(relative, info)

    def _info(self, path: str) -> dict[str, Any]:
        """What the file system says of a file; FileNotFoundError only where there is none.

        fsspec's HTTP calls whatever goes wrong "not found" and keeps the real error as the cause.
        """
        try:
            info: dict[str, Any] = self.system.info(path)
        except FileNotFoundError as error:
            cause = error.__cause__
            status = getattr(cause, "status", None)
            if cause is None or not self.url.startswith(("http://", "https://")) or status in (404, 410):
                raise
            if status is None:
                raise UserError(f"{self.url} cannot be reached: {said(cause)}") from error
            answer = f"{status} {getattr(cause, 'message', '')}".strip()
            raise UserError(f"{self.url} cannot be read: the server answers {answer}") from error
        return info

    def open(self, relative: str) -> IO[bytes]:
        """A seekable binary file, to be closed by the caller."""
        file: IO[bytes] = self.system.open(
            f"{self.root}/{relative}",
            "rb",
            block_size=_BLOCK_BYTES,
            cache_type="blockcache",
            cache_options={"maxblocks": _BLOCKS},
        )
        return file


def _entry(relative: str, info: Mapping[str, Any]) -> Entry:
    return Entry(relative, info.get("size"), version_of(info))


def opened(file: str | IO[bytes]) -> contextlib.AbstractContextManager[IO[bytes]]:
    """A file as readers are given it, a local path or a binary file, as a binary file; a path is closed again."""
    return Path(file).open("rb") if isinstance(file, str) else contextlib.nullcontext(file)


def version_of(info: Mapping[str, Any]) -> str:
    """What tells a file's content from an earlier or later one, out of what a file system says of it."""
    return next((str(info[key]) for key in _VERSION_KEYS if info.get(key)), "")


def _cannot_list(error: OSError) -> None:
    raise UserError(f"{error.filename} cannot be listed: {error.strerror}")


def _fixed_part(pattern: str, exists: Callable[[str], bool] = lambda path: False) -> tuple[str, str]:
    """Cut a pattern before its first part with a wildcard: `a/b*/c` into `a` and `b*/c`.

    A folder that `exists` under a name with brackets in it is taken at its name.
    """
    parts = pattern.split("/")
    first = next(
        i for i, part in enumerate(parts) if glob.has_magic(part) and not exists("/".join(parts[: i + 1]))
    )
    return "/".join(parts[:first]) or ("/" if pattern.startswith("/") else ""), "/".join(parts[first:])
