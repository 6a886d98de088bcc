"""Models that give each document a score, one module a kind of model.

A kind is a module with `check`, `identity` and `load` as `ModelKind` describes them; `KINDS` names it. Adding one is
a module and a line here. Kinds import what they need when they are loaded: who does not use one need not install it.
"""

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np
import pyarrow as pa

from jobs.errors import UserError

if TYPE_CHECKING:
    from jobs.settings.classifiers import Classifier


class Kind(NamedTuple):
    """Where a kind of model lives, and what its settings are beside `name`, `kind`, `model` and the bounds.

    Attributes
    ----------
    module
        Full name of a module as `ModelKind` describes it.
    required, optional
        Names of settings that it needs, and that it takes.
    whole_grades
        Whether scores are grades from 0 to 5, so that the rounded one is of use.
    buckets
        Whether scores are perplexities and each model knows percentiles of them, `Model.percentiles`.
    in_file
        Whether `model` is a file or folder.
    """

    module: str
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    whole_grades: bool = False
    buckets: bool = False
    in_file: bool = True


KINDS = {
    "fasttext": Kind("jobs.models.fasttext", required=("label",)),
    "linear": Kind("jobs.models.linear"),
    "embeddings": Kind("jobs.models.embeddings", optional=("head", "device"), whole_grades=True),
    "ngram": Kind("jobs.models.ngram", optional=("percentiles",), buckets=True),
    "kenlm": Kind("jobs.models.kenlm", optional=("sentencepiece", "percentiles")),
    "function": Kind("jobs.models.function", optional=("options",), in_file=False),
}


class Model(Protocol):
    """A model that is loaded."""

    def score(self, text: pa.LargeStringArray) -> np.ndarray:
        """float64[d] of large_string[d], finite; of each document alone, whatever others stand beside it."""


class ModelKind(Protocol):
    """What the module of a kind has."""

    def check(self, settings: "Classifier") -> None:
        """Refuse, before any work, what cannot be used: UserError, one sentence that names the file."""

    def identity(self, settings: "Classifier") -> dict[str, Any]:
        """What fingerprints hold: the content of files, versions of libraries, and what else changes a score."""

    def load(self, settings: "Classifier") -> Model:
        """The model, which a process loads once."""


def check_probability_bounds(settings: "Classifier") -> None:
    """Refuse bounds that would drop every document of a model whose scores are probabilities.

    Raises
    ------
    UserError
        One sentence that names the bound.
    """
    least, most = settings.min_score, settings.max_score
    for name, bound, never in (
        ("min_score", least, least is not None and least > 1),
        ("max_score", most, most is not None and most < 0),
    ):
        if never:
            raise UserError(
                f"{settings.key(name)} is {bound:g}, but the scores are probabilities, from 0 to 1; "
                "nothing would be kept"
            )


def kind_of(settings: "Classifier") -> ModelKind:
    """The module of a classifier's kind."""
    return cast(ModelKind, importlib.import_module(KINDS[settings.kind].module))
