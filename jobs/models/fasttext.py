"""Any supervised fastText model (Joulin et al. 2016), such as DCLM's with its label `__label__hq`.

The score is the probability of one label, as fastText's own `predict` has it: of the text as one line, line ends as
spaces, at most 1. A text without a visible character has the score 0: fastText has nothing to say of it.
"""

import functools
import re
from typing import TYPE_CHECKING, Any

import fasttext
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.errors import UserError
from jobs.models import fasttext_file
from jobs.runtime import fingerprint, named_files

if TYPE_CHECKING:
    from jobs.settings.classifiers import Classifier

PREFIX = "__label__"
VISIBLE = re.compile(r"[^\s\0]")
EVERY_LABEL = -1
SHOWN = 10  # labels in a message


class Model:
    """A fastText model and the label whose probability is the score."""

    def __init__(self, file: named_files.File, label: str) -> None:
        self.label = label
        self.predict = fasttext.load_model(file.path).f.predict

    def score(self, text: pa.LargeStringArray) -> np.ndarray:
        """float64[d] in [0, 1] of large_string[d]; null is as good as empty."""
        lines = pc.replace_substring(pc.fill_null(text, ""), "\n", " ")
        return np.array([self._of(line.as_py()) for line in lines], np.float64)

    def _of(self, line: str) -> float:
        if not VISIBLE.search(line):
            return 0.0
        found = {
            label: probability for probability, label in self.predict(line + "\n", EVERY_LABEL, 0.0, "strict")
        }
        return min(found.get(self.label, 0.0), 1.0)


def check(settings: "Classifier") -> None:
    """Refuse a file that is no supervised model, and a label that it does not have.

    Raises
    ------
    UserError
        One sentence that names the file, and the labels that there are.
    """
    _label(settings)


def identity(settings: "Classifier") -> dict[str, Any]:
    """What fingerprints hold: the label, the model's content, fastText's version."""
    return {
        "label": _label(settings),
        "model": named_files.digest(_file(settings)),
        "versions": fingerprint.versions("fasttext-predict"),
    }


def load(settings: "Classifier") -> Model:
    """The model, which a process loads once."""
    return _loaded(_file(settings), _label(settings))


@functools.lru_cache(4)
def _loaded(file: named_files.File, label: str) -> Model:
    try:
        return Model(file, label)
    except (ValueError, OSError, MemoryError) as error:
        raise UserError(f"{file.path} cannot be loaded by fastText: {error}") from None


def _file(settings: "Classifier") -> named_files.File:
    return named_files.located(settings.model, settings.key("model"), "a .bin or .ftz of fastText")


def _label(settings: "Classifier") -> str:
    """The label as the model has it; it may be given without its prefix."""
    labels = _labels(_file(settings), settings.key("model"))
    found = next((label for label in (settings.label, f"{PREFIX}{settings.label}") if label in labels), None)
    if found is None:
        shown = ", ".join(label.removeprefix(PREFIX) for label in labels[:SHOWN])
        more = f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else ""
        raise UserError(
            f"{settings.key('label')} is {settings.label!r}, but {settings.model} has the labels {shown}{more}"
        )
    return found


@functools.lru_cache(4)
def _labels(file: named_files.File, key: str) -> tuple[str, ...]:
    try:
        return tuple(fasttext_file.labels(file.path))
    except OSError as error:
        raise UserError(f"{key} is {file.path!r}, which cannot be read: {error.strerror}") from None
    except fasttext_file.ModelError as error:
        raise UserError(f"{key} is {file.path!r}, which {error}; name a supervised model") from None
