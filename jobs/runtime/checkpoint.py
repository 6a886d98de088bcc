"""A file exists whole or not at all, and a job is done when its manifest says so.

Files are written aside, fsynced and renamed, or uploaded whole where the output is remote; the manifest, which holds
their checksums and the job's fingerprint, comes last. Every JSON file holds a digest of itself, so that a flipped byte
anywhere in an output is found by name.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import socket
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import psutil  # type: ignore[import-untyped]

from jobs.errors import UserError
from jobs.runtime import folders

if TYPE_CHECKING:
    from numpy.typing import NDArray

MANIFEST = "manifest.json"
LOCK = ".lock"  # held while a run writes; says for good that the folder is a run's
RUNNING = ".running"  # who writes to a remote output, which has no lock that goes with a process
TASKS = "tasks"  # folder of the records of single tasks
_ASIDE = ".aside-"


@contextlib.contextmanager
def written(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that appears at `path`, whole, when the block ends without an error.

    That it is there after a power cut is sure once a JSON record of it was written.
    """
    with folders.uploaded(path) if folders.is_remote(path) else _renamed(path) as file:
        yield file


@contextlib.contextmanager
def _renamed(path: Path) -> Iterator[IO[bytes]]:
    path.parent.mkdir(parents=True, exist_ok=True)
    # A name of its own: Dask may run a task a second time while the first still writes.
    aside = path.with_name(f"{_ASIDE}{uuid.uuid4().hex[:8]}-{path.name}")
    try:
        with aside.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def save_array(file: IO[bytes], array: "NDArray[Any]") -> None:
    """`numpy.save` through Python's own writes: NumPy's say nothing of the cause where a disk is full."""
    np.save(_Writer(file), array)


class _Writer:
    """Of a file, the writing alone, so that NumPy does not take the file from Python."""

    def __init__(self, file: IO[bytes]) -> None:
        self.write = file.write


def _fsync_folder(folder: Path) -> None:
    if folders.is_remote(folder):
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file."""
    with folders.streamed(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def describe(path: Path) -> dict[str, Any]:
    """Size and checksum of a file, as manifests hold them."""
    return {"bytes": path.stat().st_size, "sha256": sha256(path)}


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON object with a digest of itself as its last key."""
    with written(path) as file:
        file.write(_encoded(content))
    _fsync_folder(path.parent)


def read_json(path: Path) -> dict[str, Any]:
    """Read what `write_json` wrote.

    Raises
    ------
    DamagedFileError
        The file is not what was written.
    """
    (content,) = read_jsons([path])
    return content


def read_jsons(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Read several as `read_json` does, remote ones at once."""
    return [_decoded(path, raw) for path, raw in zip(paths, folders.contents(paths), strict=True)]


def _decoded(path: Path, raw: bytes) -> dict[str, Any]:
    try:
        content = json.loads(raw)
        del content["digest"]
    except (ValueError, KeyError, TypeError):
        raise DamagedFileError(f"{path} is damaged: it is not the JSON that was written") from None
    if raw != _encoded(content):
        raise DamagedFileError(f"{path} is damaged: its content does not match its digest")
    return content


def _encoded(content: dict[str, Any]) -> bytes:
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return json.dumps({**content, "digest": digest}, indent=1, ensure_ascii=False).encode() + b"\n"


class DamagedFileError(UserError):
    """A file of an output is not the one that was committed."""


def commit_task(
    folder: Path, fingerprint: str, key: str, paths: Iterable[Path], figures: dict[str, Any]
) -> None:
    """Record that one task of a job is done, with the files it wrote and what it counted."""
    paths = list(paths)
    files = {_relative(path, folder): describe(path) for path in paths}
    for place in sorted({folder, *(path.parent for path in paths)}):
        _fsync_folder(place)
    write_json(
        folder / TASKS / f"{key}.json", {"fingerprint": fingerprint, "files": files, "figures": figures}
    )


@dataclass(frozen=True)
class Checkpoint:
    """The folder of one job in an output, with the fingerprint of what the job would do now."""

    folder: Path
    fingerprint: str

    def manifest(self) -> dict[str, Any] | None:
        """What was committed under this very fingerprint, or None."""
        try:
            manifest = read_json(self.folder / MANIFEST)
        except (FileNotFoundError, DamagedFileError):
            return None
        return manifest if manifest["fingerprint"] == self.fingerprint else None

    def begin(self, kept_tasks: dict[str, dict[str, Any]] | None = None) -> None:
        """Withdraw the manifest and remove every file but those of the tasks that are kept."""
        if not folders.is_remote(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        folders.remove([self.folder / MANIFEST])
        kept = {self.folder / TASKS / f"{key}.json" for key in kept_tasks or {}}
        kept |= {self.folder / name for record in (kept_tasks or {}).values() for name in record["files"]}
        folders.remove(path for path in folders.files(self.folder) if path not in kept)

    def commit(self, figures: dict[str, Any], cost: dict[str, Any] | None = None) -> dict[str, Any]:
        """Describe the files that no task has described, and record the figures and the cost; the job is done."""
        found = folders.files(self.folder)
        folders.remove(path for path in found if _aside(path))  # what a worker wrote when it was killed
        described = {name for record in self.tasks().values() for name in record["files"]}
        files = {
            _relative(path, self.folder): describe(path)
            for path in found
            if _relative(path, self.folder) not in described
            and path != self.folder / MANIFEST
            and path.parent != self.folder / TASKS
            and not _aside(path)
        }
        manifest = {"fingerprint": self.fingerprint, "files": files, "figures": figures, "cost": cost}
        _fsync_folder(self.folder)
        write_json(self.folder / MANIFEST, manifest)
        return manifest

    def tasks(self) -> dict[str, dict[str, Any]]:
        """The records of the job's tasks, by key."""
        paths = self._records(folders.files(self.folder))
        return {path.stem: record for path, record in zip(paths, read_jsons(paths), strict=True)}

    def tasks_done(self, fingerprint: str) -> dict[str, dict[str, Any]]:
        """The records of the tasks that were committed under `fingerprint` and whose files are still there, by key."""
        sizes = folders.files(self.folder)
        done = {}
        paths = self._records(sizes)
        for path, raw in zip(paths, folders.contents(paths), strict=True):
            try:
                record = _decoded(path, raw)
            except DamagedFileError:
                continue
            described = record["files"].items()
            whole = all(sizes.get(self.folder / name) == file["bytes"] for name, file in described)
            if whole and record["fingerprint"] == fingerprint:
                done[path.stem] = record
        return done

    def _records(self, files: Iterable[Path]) -> list[Path]:
        folder = self.folder / TASKS
        return [path for path in files if path.parent == folder and not _aside(path)]


def remove_asides(out: Path) -> None:
    """Remove what a run wrote directly in its output when it was killed; the lock is held."""
    folders.remove([path for path in out.iterdir() if _aside(path)])


def _relative(path: Path, folder: Path) -> str:
    """A file's name in its job's folder, with slashes where it lies deeper."""
    return path.relative_to(folder).as_posix()


def _aside(path: Path) -> bool:
    return path.name.startswith(_ASIDE)


@contextlib.contextmanager
def locked(out: Path) -> Iterator[None]:
    """Hold an output for this process alone.

    A local lock goes with the process, however it ends. A remote one is an object that says who holds it. It is taken
    over from a process of this machine that is gone; another machine's has to be removed by a person. Of two runs
    that start at once one is refused, but not of two that take over at once.
    """
    with _held(out) if folders.is_remote(out) else _flocked(out):
        yield


@contextlib.contextmanager
def _held(out: Path) -> Iterator[None]:
    holder, me = out / RUNNING, {"host": socket.gethostname(), "pid": os.getpid()}
    with folders.answering(out):
        try:
            folders.create(holder, json.dumps(me).encode())
        except FileExistsError:
            other = json.loads(folders.contents([holder])[0])
            if not _is_gone(other, me):
                raise UserError(
                    f"another run is writing to {out}, process {other['pid']} on {other['host']}; wait for it or "
                    f"choose another --output, or remove {holder} when that run is no more"
                ) from None
            folders.remove([holder])
            folders.create(holder, json.dumps(me).encode())
        if not (out / LOCK).exists():
            with written(out / LOCK):
                pass
    try:
        yield
    finally:
        # The store may be what failed; then the next run from here takes the lock over.
        with contextlib.suppress(Exception):
            folders.remove([holder])


def _is_gone(other: dict[str, Any], me: dict[str, Any]) -> bool:
    """Whether a holder was a process of this machine and runs no more."""
    if other["host"] != me["host"]:
        return False
    # A container that is started again gives its process the same number.
    return bool(other["pid"] == me["pid"] or not psutil.pid_exists(other["pid"]))


@contextlib.contextmanager
def _flocked(out: Path) -> Iterator[None]:
    out.mkdir(parents=True, exist_ok=True)
    with (out / LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"another run is writing to {out}; wait for it or choose another --output"
            ) from None
        yield


def is_mixture(out: Path) -> bool:
    """Whether `jobs.mix` made an output, which has groups and no splits."""
    return (out / "groups" / MANIFEST).exists() and not (out / "shards").exists()


def why_unfinished(out: Path) -> str:
    """Why an output without a manifest cannot be used, and what to do."""
    if is_mixture(out):
        return (
            f"{out} is a mixture that jobs.mix made, and no run: name the run that was mixed; the mixture is served by "
            "jobs.loader.mixture.MixtureLoader, and its packed stages, if any, are llm.c shards"
        )
    if (out / LOCK).exists():
        return f"{out} is not a finished run: the last run stopped before its end, or is still going; run it again"
    return f"{out} is not a finished run: it has no {MANIFEST}"
