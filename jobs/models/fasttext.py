"""Any supervised fastText model (Joulin et al. 2016), such as DCLM's with its label `__label__hq`.

The score is the probability of one label, as fastText's own `predict` has it: of the text as one line, line ends as
spaces, at most 1. A text without a visible character has the score 0: fastText has nothing to say of it.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.errors import UserError
from jobs.models import check_probability_bounds, fasttext_file
from jobs.runtime import named_files
from jobs.text import text_buffers
from kernels import fasttext as kernel
from kernels.fasttext_model import Model as Arrays

if TYPE_CHECKING:
    from jobs.settings.classifiers import Classifier

T = TypeVar("T")
PREFIX = "__label__"
WANTED = "a supervised model"
SHOWN = 10  # labels in a message
LOADED = 4  # models that a process keeps


class Model:
    """A model as the kernels take it, and the sums of words that it met.

    Attributes
    ----------
    names
        Its labels without their prefix.
    """

    def __init__(self, labels: tuple[str, ...], arrays: Arrays) -> None:
        self.names = [label.removeprefix(PREFIX) for label in labels]
        self._arrays = arrays
        self._caches: list[kernel.Cache] = []  # those that no thread is using

    def most_likely(
        self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """As `kernels.fasttext.most_likely`: labels int32[d] and probabilities float32[d]."""
        cache = self._take_cache()
        found = kernel.most_likely(data, starts, ends, self._arrays, cache)
        self._caches.append(cache)
        return found

    def probabilities(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, label: int) -> np.ndarray:
        """As `kernels.fasttext.probabilities`: float32[d] of one label."""
        cache = self._take_cache()
        found = kernel.probabilities(data, starts, ends, self._arrays, cache, label)
        self._caches.append(cache)
        return found

    def _take_cache(self) -> kernel.Cache:
        try:
            return self._caches.pop()
        except IndexError:
            return kernel.new_cache(self._arrays.input.columns)


class Score:
    """A model and the label whose probability is the score."""

    def __init__(self, model: Model, label: int) -> None:
        self._model, self._label = model, label

    def score(self, text: pa.LargeStringArray) -> np.ndarray:
        """float64[d] in [0, 1] of large_string[d]; null is as good as empty."""
        data, offsets = text_buffers(pc.fill_null(text, ""))
        return self._model.probabilities(data, offsets[:-1], offsets[1:], self._label).astype(np.float64)


def check(settings: "Classifier") -> None:
    """Refuse a file that is no supervised model, a label that it does not have, and bounds that nothing can meet.

    Raises
    ------
    UserError
        One sentence that names the file, and the labels that there are, or the bound.
    """
    _label(settings)
    check_probability_bounds(settings)


def identity(settings: "Classifier") -> dict[str, Any]:
    """What fingerprints hold: the label, and the model's content."""
    return {"label": _label(settings), "model": named_files.digest(_file(settings))}


def load(settings: "Classifier") -> Score:
    """The model, which a process loads once."""
    file, key = _file(settings), settings.key("model")
    return Score(loaded(file, key, WANTED), labels(file, key, WANTED).index(_label(settings)))


@functools.lru_cache(LOADED)
def labels(file: named_files.File, key: str, wanted: str) -> tuple[str, ...]:
    """A model's labels, `__label__` included; the key and what is wanted are for messages.

    Raises
    ------
    UserError
        It cannot be read, or is no supervised model.
    """
    return _read(fasttext_file.labels, file, key, wanted)


@functools.lru_cache(LOADED)
def loaded(file: named_files.File, key: str, wanted: str) -> Model:
    """A model; parameters and errors are those of `labels`."""
    return Model(*_read(fasttext_file.read, file, key, wanted))


def _read(reader: Callable[[str], T], file: named_files.File, key: str, wanted: str) -> T:
    try:
        return reader(file.path)
    except OSError as error:
        raise UserError(f"{key} is {file.path!r}, which cannot be read: {error.strerror}") from None
    except fasttext_file.ModelError as error:
        raise UserError(f"{key} is {file.path!r}, which {error}; name {wanted}") from None


def _file(settings: "Classifier") -> named_files.File:
    return named_files.located(settings.model, settings.key("model"), "a .bin or .ftz of fastText")


def _label(settings: "Classifier") -> str:
    """The label as the model has it; it may be given without its prefix."""
    known = labels(_file(settings), settings.key("model"), WANTED)
    found = next((label for label in (settings.label, f"{PREFIX}{settings.label}") if label in known), None)
    if found is None:
        shown = ", ".join(label.removeprefix(PREFIX) for label in known[:SHOWN])
        more = f" and {len(known) - SHOWN} more" if len(known) > SHOWN else ""
        raise UserError(
            f"{settings.key('label')} is {settings.label!r}, but {settings.model} has the labels {shown}{more}"
        )
    return found
