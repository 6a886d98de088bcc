"""Perplexity by a KenLM model, such as CCNet publishes for many languages (Wenzek et al. 2020).

The model is an `.arpa` or a `.bin` of KenLM. With `sentencepiece`, texts are scored as CCNet's pipeline does it: the
whole document is normalised (see `normalised`), which takes its line ends away, and cut into pieces, one sentence.
Without, each line is normalised by itself and its words are what white space separates (CCNet's `DocLM`).

Perplexity is 10 to the power of -log10(probability) / (words + sentences), rounded to two decimals; CCNet keeps one.
CCNet's published cut-offs (`cutoff.csv`, the 30th and 60th percentile) can be given as `percentiles`.
"""

import functools
import importlib
import importlib.util
import re
import unicodedata
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.errors import UserError
from jobs.models.ngram import perplexity
from jobs.runtime import fingerprint, named_files

if TYPE_CHECKING:
    from jobs.settings.classifiers import Classifier

EXTRA = "pip install 'shardmill[perplexity]'"
DIGIT = re.compile(r"\d")
CONTROL = re.compile("[\0-\x1f\x7f-\x9f]")
PUNCTUATION = str.maketrans(
    dict(zip("，。、∶：？！（）；～〈〉【】％´’–━►", ",.,::?!();~<>[]%''---", strict=True))
    | dict.fromkeys("„”“«»」「《》", '"')
    | {"—": " - ", "．": ". ", "…": "..."}
)


class Model:
    """A KenLM model, and the SentencePiece model that its words are pieces of."""

    def __init__(self, file: named_files.File, pieces: named_files.File | None) -> None:
        import kenlm

        config = kenlm.Config()
        config.show_progress = False
        config.arpa_complain = kenlm.ARPALoadComplain.NONE
        self.model = kenlm.Model(file.path, config)
        self.pieces = _pieces(pieces) if pieces else None

    def score(self, text: pa.LargeStringArray) -> np.ndarray:
        """float64[d] of large_string[d], the perplexities; null is as good as empty."""
        found = [self._of(value.as_py()) for value in pc.fill_null(text, "")]
        return perplexity(*np.array(found, np.float64).reshape(-1, 2).T)

    def _of(self, text: str) -> tuple[float, int]:
        """Log10 of the probability, words and ends of sentences."""
        total, n_tokens = 0.0, 0
        for sentence in self._sentences(text):
            total += self.model.score(sentence)
            n_tokens += len(sentence.split()) + 1
        return total, n_tokens

    def _sentences(self, text: str) -> Iterator[str]:
        if self.pieces:
            yield " ".join(self.pieces.encode(normalised(text), out_type=str))
        else:
            yield from (normalised(line) for line in text.split("\n"))


def normalised(text: str) -> str:
    """As CCNet's `text_normalizer` does it: lower case, no accents, 0 for digits, plain punctuation, no controls."""
    lower = text.strip().lower()
    bare = "".join(c for c in unicodedata.normalize("NFD", lower) if unicodedata.category(c) != "Mn")
    return CONTROL.sub("", DIGIT.sub("0", bare).translate(PUNCTUATION))


def check(settings: "Classifier") -> None:
    """Refuse a file that is no such model, and packages that are not installed.

    Raises
    ------
    UserError
        One sentence that names the file or the package.
    """
    load(settings)


def identity(settings: "Classifier") -> dict[str, Any]:
    """What fingerprints hold: the content of both models, versions of libraries, and of Unicode."""
    return {
        "model": named_files.digest(_model_file(settings)),
        "sentencepiece": settings.sentencepiece and named_files.digest(_pieces_file(settings)),
        "unicode": unicodedata.unidata_version,
        "versions": fingerprint.versions("kenlm", *(["sentencepiece"] if settings.sentencepiece else [])),
    }


def load(settings: "Classifier") -> Model:
    """The model, which a process loads once."""
    _require("kenlm", settings.key("kind"))
    file = _model_file(settings)
    pieces = None
    if settings.sentencepiece:
        _require("sentencepiece", settings.key("sentencepiece"))
        pieces = _pieces_file(settings)
    return _loaded(file, pieces, settings.key("model"), settings.key("sentencepiece"))


def _model_file(settings: "Classifier") -> named_files.File:
    return named_files.located(settings.model, settings.key("model"), "an .arpa or .bin of KenLM")


def _pieces_file(settings: "Classifier") -> named_files.File:
    return named_files.located(
        str(settings.sentencepiece), settings.key("sentencepiece"), "a .model of SentencePiece"
    )


def _require(package: str, key: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise UserError(f"{key}: a classifier of kind kenlm needs the package {package} here: {EXTRA}")


@functools.lru_cache(4)
def _loaded(file: named_files.File, pieces: named_files.File | None, key: str, pieces_key: str) -> Model:
    try:
        return Model(file, pieces)
    except _PiecesError as error:
        raise UserError(
            f"{pieces_key} is {error.args[0]!r}, which is no model that SentencePiece can read"
        ) from None
    except (OSError, RuntimeError, ValueError):  # its own messages are a page long
        raise UserError(f"{key} is {file.path!r}, which is no .arpa or .bin that KenLM can read") from None


class _PiecesError(Exception):
    """A file that is no SentencePiece model."""


def _pieces(file: named_files.File) -> Any:
    import sentencepiece

    try:
        return sentencepiece.SentencePieceProcessor(model_file=file.path)
    except (OSError, RuntimeError):
        raise _PiecesError(file.path) from None
