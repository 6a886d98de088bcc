"""Model files of our own training commands: NumPy's `.npz`, with the settings as JSON in a string.

A kind of model has a module of its own, which knows the arrays; what is alike in finding, naming and refusing a file is
here.
"""

import contextlib
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from jobs.errors import UserError
from jobs.runtime import checkpoint, named_files
from kernels.words import unicode_version

NAME = "model.npz"
_BROKEN = (OSError, ValueError, KeyError, TypeError, IndexError, EOFError, zipfile.BadZipFile)


class Settings(Protocol):
    """What of a classifier's settings is used."""

    @property
    def model(self) -> str:
        """The model's file, or the folder that it was trained into."""

    def key(self, setting: str) -> str:
        """What messages call a setting."""


def file_of(settings: Settings, command: str) -> named_files.File:
    """The file that a training command left.

    Raises
    ------
    UserError
        There is none.
    """
    path = Path(settings.model)
    return named_files.located(
        str(path / NAME if path.is_dir() else path), settings.key("model"), f"a {NAME} of {command}"
    )


def identity(file: named_files.File) -> dict[str, Any]:
    """What fingerprints hold: the model's content, and the version of Unicode that says what a word is."""
    return {"model": named_files.digest(file), "unicode": unicode_version()}


def save(path: Path, settings: dict[str, Any], **arrays: Any) -> None:
    """Write a file; the same model is the same bytes."""
    with checkpoint.written(path) as file:
        np.savez(file, settings=np.array(json.dumps(settings)), **arrays)


@contextlib.contextmanager
def opened(file: named_files.File, key: str, kind: str, command: str) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Arrays by name, and the settings; whatever is wrong with them within the block is one sentence.

    Raises
    ------
    UserError
        The file is no whole model of this kind.
    """
    try:
        with np.load(file.path, allow_pickle=False) as arrays:
            settings = json.loads(str(arrays["settings"]))
            if settings["kind"] != kind:
                raise ValueError(f"its kind is {settings['kind']!r}")
            yield arrays, settings
    except _BROKEN:
        raise UserError(
            f"{key} is {file.path!r}, which is no whole model of python -m jobs.{command}"
        ) from None
