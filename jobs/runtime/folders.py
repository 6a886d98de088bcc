"""Folders of an output, on this machine or behind a URL; what differs between the two is here and nowhere else.

A local path is a `pathlib.Path`, and its files are memory-mapped. A remote one is a `upath.UPath`, which has the same
methods; its files are written whole, and read whole or in ranges, several at a time. Nothing here lists or caches
what a store holds for longer than a call, since other workers write to it.
"""

import contextlib
import io
import shutil
import stat
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from jobs.errors import UserError, known_protocol, said

if TYPE_CHECKING:
    import pyarrow as pa

STREAM_BYTES = 8 * 2**20  # of a remote file that are read at once from start to end
SLICES_BYTES = 64 * 2**20  # of slices that are read from a store at once, about


# ---------------------------------------------------------------- where


def located(path: str | Path) -> Path:
    """The folder or file that a user names: an absolute local path, or a `UPath` for a URL such as `s3://bucket/out`.

    Raises
    ------
    UserError
        The URL's protocol is unknown, or what it needs is not installed.
    """
    if not isinstance(path, str):
        return path if is_remote(path) else path.absolute()
    text = path.removeprefix("file://")
    if "://" not in text:
        return Path(text).absolute()
    with known_protocol(text):
        from upath import UPath

        # A cached listing would hide what other workers have written since.
        remote = UPath(text, use_listings_cache=False)
        remote.fs  # noqa: B018, imports what the protocol needs
    return cast(Path, remote)


def reached(path: str | Path) -> Path:
    """`located`, of an output in a store that answers.

    Raises
    ------
    UserError
        It does not: no connection, no credentials, no permission; or see `located`. Or the URL holds a sign of a
        pattern, which fsspec would expand where it removes files.
    """
    folder = located(path)
    if is_remote(folder):
        if any(sign in str(path) for sign in "*?["):
            raise UserError(f"the output {path} has `*`, `?` or `[` in its URL; choose a name without them")
        with answering(folder):
            folder.exists()
    return folder


@contextlib.contextmanager
def answering(path: Path) -> Iterator[None]:
    """Within the block, whatever a store's library raises, as one sentence; each raises its own."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{path} cannot be reached: {said(error)}") from error


def is_remote(path: Path) -> bool:
    """Whether a path from `located` lies behind a URL."""
    return not isinstance(path, Path)


# ---------------------------------------------------------------- what is in it


def files(folder: Path) -> dict[Path, int]:
    """Files below a folder, in the order of their paths, with their sizes; none where there is no folder."""
    if not is_remote(folder):
        sizes = {path: _size(path) for path in sorted(folder.rglob("*"))}
        return {path: size for path, size in sizes.items() if size is not None}
    store, root = _store(folder)
    try:
        found = store.find(root, detail=True)
    except FileNotFoundError:
        return {}
    in_order = sorted(found, key=lambda name: name.split("/"))
    return {folder / name[len(root) + 1 :]: found[name]["size"] for name in in_order}


def _size(path: Path) -> int | None:
    """Of a file; None for a folder, and for a file that another process renamed since it was listed."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def remove(paths: Iterable[Path]) -> None:
    """Remove files; one that is gone already is no error."""
    paths = list(paths)
    if paths and is_remote(paths[0]):
        with contextlib.suppress(FileNotFoundError):
            _store(paths[0])[0].rm([_store(path)[1] for path in paths])
    else:
        for path in paths:
            path.unlink(missing_ok=True)


def remove_folder(folder: Path) -> None:
    """Remove a folder and all that is in it, if it is there."""
    if is_remote(folder):
        remove(files(folder))
    else:
        shutil.rmtree(folder, ignore_errors=True)


# ---------------------------------------------------------------- reading


class Sliced(Protocol):
    """A one-dimensional array in a file: `array[start:stop]` gives its elements."""

    def __len__(self) -> int: ...
    def __getitem__(self, elements: slice, /) -> NDArray[Any]: ...


def mapped(path: Path, dtype: np.dtype[Any], offset: int, n: int) -> Sliced:
    """`n` elements of a file from byte `offset` on: a local file as a memory map, a remote one read when sliced."""
    if is_remote(path):
        return RemoteArray(path, dtype, offset, n)
    return np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=(n,))


class RemoteArray:
    """An array in a remote file; each slice is one request, and nothing is kept."""

    def __init__(self, path: Path, dtype: np.dtype[Any], offset: int, n: int) -> None:
        self.path, self.dtype, self.offset, self.n = path, dtype, offset, n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, elements: slice) -> NDArray[Any]:
        start, stop, _ = elements.indices(self.n)
        if stop <= start:
            return np.empty(0, self.dtype)
        begin, end = (self.offset + place * self.dtype.itemsize for place in (start, stop))
        return np.frombuffer(read_range(self.path, begin, end), self.dtype)


def read_range(path: Path, start: int, stop: int) -> bytes:
    """Bytes `start` to `stop` of a file, fewer where it ends before."""
    if is_remote(path):
        store, name = _store(path)
        return bytes(store.cat_file(name, start=start, end=stop))
    with path.open("rb") as file:
        file.seek(start)
        return file.read(stop - start)


def slices(paths: Sequence[Path], dtype: np.dtype[Any], bounds: NDArray[np.int64]) -> Iterator[NDArray[Any]]:
    """Of file i, the elements from `bounds[i, 0]` to `bounds[i, 1]`, which are at least one.

    Local files are memory-mapped. Remote ones are read many at a time, about `SLICES_BYTES` in all.
    """
    if not paths or not is_remote(paths[0]):
        for path, (start, stop) in zip(paths, bounds, strict=True):
            yield np.memmap(path, dtype, mode="r")[start:stop]
        return
    store = _store(paths[0])[0]
    begin, end = (bounds * dtype.itemsize).T
    batch = np.cumsum(end - begin) // SLICES_BYTES
    edges = np.flatnonzero(np.diff(batch, prepend=-1, append=-1)).tolist()
    for first, last in pairwise(edges):
        names = [_store(path)[1] for path in paths[first:last]]
        read = store.cat_ranges(names, begin[first:last].tolist(), end[first:last].tolist(), on_error="raise")
        yield from (np.frombuffer(raw, dtype) for raw in read)


def contents(paths: Sequence[Path]) -> list[bytes]:
    """Whole files, which are small; remote ones are read many at a time."""
    if not paths or not is_remote(paths[0]):
        return [path.read_bytes() for path in paths]
    names = [_store(path)[1] for path in paths]
    return list(_store(paths[0])[0].cat_ranges(names, None, None, on_error="raise"))


def load(path: Path) -> NDArray[Any]:
    """An array that `numpy.save` wrote: memory-mapped, or read whole."""
    if is_remote(path):
        return cast(NDArray[Any], np.load(io.BytesIO(contents([path])[0])))
    return cast(NDArray[Any], np.load(path, mmap_mode="r"))


def streamed(path: Path) -> io.BufferedReader:
    """A file to be read from its start to its end, to be closed by the caller."""
    if not is_remote(path):
        return path.open("rb")
    store, name = _store(path)
    return cast(io.BufferedReader, store.open(name, "rb", block_size=STREAM_BYTES, cache_type="readahead"))


@contextlib.contextmanager
def opened(path: Path) -> Iterator[str | IO[bytes]]:
    """A file as Arrow reads it best: a local one by its name, a remote one in the ranges that Arrow asks for."""
    if not is_remote(path):
        yield str(path)
        return
    store, name = _store(path)
    with store.open(name, "rb", cache_type="none") as file:
        yield file


def read_table(path: Path, **options: Any) -> "pa.Table":
    """A Parquet file; the options are those of `pyarrow.parquet.read_table`."""
    import pyarrow.parquet as pq

    with opened(path) as source:
        return pq.read_table(source, **options)


_copies: dict[Path, tuple[str, tempfile.TemporaryDirectory[str]]] = {}
_copying = threading.Lock()


def local_copy(path: Path) -> Path:
    """The file on this machine: itself, or a copy that all tasks of this process share until the file changes.

    For what every task needs whole and at random, such as the clusters: mapped, it is not in each task's memory.
    """
    if not is_remote(path):
        return path
    store, name = _store(path)
    version = store.ukey(name)
    with _copying:
        held = _copies.get(path)
        if held is None or held[0] != version or not Path(held[1].name, path.name).exists():
            # Errors when it goes: a worker's own folder may go first.
            folder = tempfile.TemporaryDirectory(dir=_scratch(), ignore_cleanup_errors=True)
            store.get_file(name, f"{folder.name}/{path.name}")
            held = _copies[path] = version, folder
        return Path(held[1].name, path.name)


# ---------------------------------------------------------------- writing


@contextlib.contextmanager
def uploaded(path: Path) -> Iterator[IO[bytes]]:
    """A temporary local file that becomes the remote one when the block ends without an error.

    An object store shows an object whole or not at all. Elsewhere a part of a file may be seen, but no record names
    it: a record is written after its file, holds the file's size, and has a digest of itself.
    """
    store, name = _store(path)
    with tempfile.NamedTemporaryFile(dir=_scratch()) as file:
        yield cast(IO[bytes], file)
        file.flush()
        store.put_file(file.name, name)


def create(path: Path, content: bytes) -> None:
    """Write a small remote file that must not be there; raise FileExistsError where it is.

    Of two that try at once one succeeds, where the store has conditional writes and fsspec uses them (S3, Google).
    """
    store, name = _store(path)
    store.pipe_file(name, content, mode="create")


def _scratch() -> str:
    """Where temporary files go: a worker's own folder, which Dask removes even after the worker was killed."""
    if "distributed" in sys.modules:
        from distributed import get_worker

        with contextlib.suppress(ValueError):
            return str(get_worker().local_directory)
    return tempfile.gettempdir()


def _store(path: Path) -> tuple[Any, str]:
    """The fsspec file system of a remote path, and its name there."""
    remote: Any = path
    return remote.fs, str(remote.path).rstrip("/")
