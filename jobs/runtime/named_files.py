"""Files that settings name, as they are now: what is known of one does not outlive its replacement."""

import functools
import hashlib
import stat
from pathlib import Path
from typing import NamedTuple

from jobs.errors import UserError


class File(NamedTuple):
    """A key of caches."""

    path: str
    size: int
    modified: int


def located(path: str, key: str, wanted: str) -> File:
    """A regular file that a setting names.

    Parameters
    ----------
    path
        Where it is.
    key
        The setting, for the message.
    wanted
        What would be right, for the message.

    Raises
    ------
    UserError
        There is none, or it cannot be read.
    """
    try:
        status = Path(path).stat()
    except FileNotFoundError:
        raise UserError(f"{key} is {path!r}, but there is no such file") from None
    except OSError as error:
        raise UserError(f"{key} is {path!r}, which cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(status.st_mode):
        raise UserError(f"{key} is {path!r}, which is no file; name {wanted}")
    return File(path, status.st_size, status.st_mtime_ns)


@functools.lru_cache(64)
def digest(file: File) -> str:
    """Hexadecimal SHA-256 of its content."""
    with Path(file.path).open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
