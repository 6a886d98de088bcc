"""Local copies of remote files, for those who read them at random and again in each epoch."""

import contextlib
import fcntl
import hashlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from jobs.errors import UserError
from jobs.runtime import folders


def default_folder() -> Path:
    """``$XDG_CACHE_HOME/shardmill``, or ``~/.cache/shardmill``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shardmill"


class LocalCache:
    """A folder of copies that all processes of a machine share; it grows by what is read, and is never emptied.

    A file is copied whole when it is first read, under a name that covers its URL and its version in the store, so
    that a file that was written anew is copied anew. One process copies while others that want the same file wait. A
    copy appears whole or not at all.

    Parameters
    ----------
    folder : path
        Made when it is not there.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).absolute()

    def local(self, url: str) -> Path:
        """The copy of a file.

        Raises
        ------
        UserError
            The store does not give the file, or the folder cannot be written to.
        """
        remote = cast(Any, folders.located(url))
        with folders.answering(remote):
            version = remote.fs.ukey(remote.path)
        name = hashlib.sha256(f"{url}\0{version}".encode()).hexdigest()[:16]
        copy = self.folder / f"{name}-{remote.name}"
        if copy.exists():
            return copy
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with _held(copy.with_name(f".{copy.name}.lock")):
                if not copy.exists():
                    self._fetch(remote, copy)
        except OSError as error:
            raise UserError(
                f"the cache {self.folder} cannot keep a copy of {url}: {error.strerror or error}; "
                "set cache_dir to a folder with room for the shards"
            ) from None
        return copy

    def _fetch(self, remote: Any, copy: Path) -> None:
        aside = copy.with_name(f".{uuid.uuid4().hex[:8]}-{copy.name}")
        try:
            with folders.answering(remote):
                remote.fs.get_file(remote.path, str(aside))
            aside.replace(copy)
        finally:
            aside.unlink(missing_ok=True)


@contextlib.contextmanager
def _held(path: Path) -> Iterator[None]:
    """A lock that goes with the process."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
