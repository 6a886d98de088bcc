"""A file exists whole or not at all, and a job is done when its manifest says so.

Files are written aside, fsynced and renamed; the manifest, which holds their checksums and the job's
fingerprint, comes last. Every JSON file holds a digest of itself, so that a flipped byte anywhere in an
output is found by name.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from jobs.errors import UserError

MANIFEST = "manifest.json"
LOCK = ".lock"  # held while a run writes; says for good that the folder is a run's
TASKS = "tasks"  # folder of the records of single tasks
_ASIDE = ".aside-"


@contextlib.contextmanager
def written(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that appears at `path`, whole, when the block ends without an error.

    That it is there after a power cut is sure once a JSON record of it was written.
    """
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


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file."""
    with path.open("rb") as file:
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
    raw = path.read_bytes()
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
    files = {path.name: describe(path) for path in paths}
    _fsync_folder(folder)
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

    def task(self, key: str, fingerprint: str) -> dict[str, Any] | None:
        """The record of a task that was committed under `fingerprint` and whose files are still there."""
        try:
            record = read_json(self.folder / TASKS / f"{key}.json")
        except (FileNotFoundError, DamagedFileError):
            return None
        whole = all(_size(self.folder / name) == file["bytes"] for name, file in record["files"].items())
        return record if whole and record["fingerprint"] == fingerprint else None

    def begin(self, kept_tasks: dict[str, dict[str, Any]] | None = None) -> None:
        """Withdraw the manifest and remove every file but those of the tasks that are kept."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / MANIFEST).unlink(missing_ok=True)
        kept = {Path(TASKS, f"{key}.json") for key in kept_tasks or {}}
        kept |= {Path(name) for record in (kept_tasks or {}).values() for name in record["files"]}
        for path in self.folder.rglob("*"):
            if path.is_file() and path.relative_to(self.folder) not in kept:
                path.unlink()

    def commit(self, figures: dict[str, Any]) -> dict[str, Any]:
        """Describe the files that no task has described, and record the figures; the job is done."""
        for path in self.folder.rglob(f"{_ASIDE}*"):  # what a worker wrote when it was killed
            path.unlink(missing_ok=True)
        described = {name for record in self.tasks().values() for name in record["files"]}
        files = {
            path.name: describe(path)
            for path in sorted(self.folder.iterdir())
            if path.is_file() and path.name != MANIFEST and path.name not in described and not _aside(path)
        }
        manifest = {"fingerprint": self.fingerprint, "files": files, "figures": figures}
        _fsync_folder(self.folder)
        write_json(self.folder / MANIFEST, manifest)
        return manifest

    def tasks(self) -> dict[str, dict[str, Any]]:
        """The records of the job's tasks, by key."""
        return {
            path.stem: read_json(path)
            for path in sorted((self.folder / TASKS).glob("*.json"))
            if not _aside(path)
        }


def _aside(path: Path) -> bool:
    return path.name.startswith(_ASIDE)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1


@contextlib.contextmanager
def locked(out: Path) -> Iterator[None]:
    """Hold an output for this process alone; the lock goes with the process, however it ends."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"another run is writing to {out}; wait for it or choose another --output"
            ) from None
        yield


def why_unfinished(out: Path) -> str:
    """Why an output without a manifest cannot be used, and what to do."""
    if (out / LOCK).exists():
        return f"{out} is not a finished run: the last run stopped before its end, or is still going; run it again"
    return f"{out} is not a finished run: it has no {MANIFEST}"
