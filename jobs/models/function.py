"""A function of one's own as a score: `package.module:function`, or the name of an entry point.

It gets the text of a document, and gives a number: a score, or True and False, which are 1 and 0. One that is marked
with `batched` gets many texts at once and gives as many numbers, for what is compiled or works on arrays. Bounds of the
classifier say what is kept; without any the number is only recorded.

The function's module has to be importable wherever documents are read: beside the run, or installed on each worker.
"""

import functools
import hashlib
import importlib
import inspect
import math
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from jobs.errors import UserError, said

ENTRY_POINTS = "shardmill.filters"
SHOWN = 60  # characters of a text on which a function failed
_BATCHED = "takes_a_batch"

Function = TypeVar("Function", bound=Callable[..., Any])


class Settings(Protocol):
    """What of a classifier's settings is used."""

    @property
    def model(self) -> str:
        """The function."""

    @property
    def options(self) -> Mapping[str, Any] | None:
        """Further arguments, by name."""

    def key(self, setting: str) -> str:
        """What messages call a setting."""


def batched(function: Function) -> Function:
    """Mark a function that takes large_string[d], none of them null, and gives d numbers."""
    setattr(function, _BATCHED, True)
    return function


class Model:
    """A function with its options."""

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any], name: str) -> None:
        self.function, self.options, self.name = function, dict(options), name

    def score(self, text: pa.LargeStringArray) -> np.ndarray:
        """float64[d] of large_string[d].

        Raises
        ------
        UserError
            The function failed, or what it gave is no number.
        """
        if getattr(self.function, _BATCHED, False):
            return self._of_batch(text)
        return np.array([self._of_document(one) for one in text.to_pylist()], np.float64)

    def _of_document(self, text: str) -> float:
        try:
            score = float(self.function(text, **self.options))
        except Exception as error:
            raise self._failed(f"{type(error).__name__}: {said(error)}", text) from error
        if not math.isfinite(score):
            raise self._failed(f"it gave {score}", text)
        return score

    def _of_batch(self, text: pa.LargeStringArray) -> np.ndarray:
        try:
            scores = np.asarray(self.function(text, **self.options), np.float64)
        except Exception as error:
            raise UserError(f"{self.name} failed: {type(error).__name__}: {said(error)}") from error
        if scores.shape != (len(text),):
            raise UserError(f"{self.name} gave {scores.shape} numbers for {len(text):,} documents")
        if not np.isfinite(scores).all():
            at = int(np.flatnonzero(~np.isfinite(scores))[0])
            raise self._failed(f"it gave {scores[at]}", text[at].as_py())
        return scores

    def _failed(self, why: str, text: str) -> UserError:
        return UserError(
            f"{self.name} failed on a text of {len(text):,} characters that begins with {text[:SHOWN]!r}: {why}"
        )


def check(settings: Settings) -> None:
    """Refuse what is no function, or takes other options.

    Raises
    ------
    UserError
        One sentence that names it.
    """
    function = _function(settings)
    try:
        signature = inspect.signature(function)
    except ValueError:  # compiled, and says nothing of its arguments
        return
    try:
        signature.bind("", **(settings.options or {}))
    except TypeError as error:
        raise UserError(
            f"{settings.key('options')} are {dict(settings.options or {})}, but {settings.model} does not take a text "
            f"and these: {error}"
        ) from None


def identity(settings: Settings) -> dict[str, Any]:
    """What fingerprints hold: the options, the code, and versions of the packages that it was installed with."""
    module = inspect.getmodule(inspect.unwrap(_function(settings)))
    name = module.__name__ if module else ""
    return {
        "function": settings.model,
        "options": dict(settings.options or {}),
        "code": _code(name),
        "versions": {one: metadata.version(one) for one in _distributions(name)},
    }


def load(settings: Settings) -> Model:
    """The function, imported once by a process."""
    return Model(_function(settings), settings.options or {}, f"{settings.key('model')} {settings.model}")


def _function(settings: Settings) -> Callable[..., Any]:
    key, path = settings.key("model"), settings.model
    if ":" not in path:
        found = metadata.entry_points(group=ENTRY_POINTS, name=path)
        if not found:
            known = ", ".join(sorted(metadata.entry_points(group=ENTRY_POINTS).names)) or "none"
            raise UserError(
                f"{key} is {path!r}, which is neither package.module:function nor an entry point of {ENTRY_POINTS} "
                f"(installed: {known})"
            )
        path = next(iter(found)).value
    module, _, name = path.partition(":")
    try:
        function = functools.reduce(getattr, name.split("."), importlib.import_module(module))
    except Exception as error:
        raise UserError(f"{key} is {settings.model!r}, which cannot be imported: {said(error)}") from None
    if not callable(function):
        raise UserError(f"{key} is {settings.model!r}, which is no function but {type(function).__name__}")
    return function


def _distributions(module: str) -> list[str]:
    """Installed packages that a module belongs to."""
    return sorted(set(metadata.packages_distributions().get(module.partition(".")[0], [])))


def _code(module: str) -> str:
    """Digest of the module's file; of code that is not installed, of all Python files of its package."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return ""
    top = Path(getattr(sys.modules[module.partition(".")[0]], "__file__", None) or file)
    whole = top.name == "__init__.py" and not _distributions(module)
    paths = sorted(top.parent.rglob("*.py")) if whole else [Path(file)]
    digest = hashlib.sha256()
    for path in paths:
        name = path.relative_to(top.parent).as_posix() if whole else path.name
        digest.update(f"{name}\0".encode() + path.read_bytes())
    return digest.hexdigest()
