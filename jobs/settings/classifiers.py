"""Classifiers of a source: a model, what its score is called, and which scores are kept."""

from collections.abc import Sequence
from typing import Any, Literal, Self

from pydantic import Field, PositiveFloat, model_validator

from jobs.models import KINDS
from jobs.settings.section import Name, Section


class Classifier(Section):
    """A model whose score of each document is the ledger's column `NAME_score`.

    FineWeb-Edu keeps a raw score of at least 2.5 (`embeddings`); DCLM goes by the probability of `__label__hq`
    (`fasttext`); CCNet splits by perplexity into head, middle and tail (`kenlm`, `ngram`).
    """

    name: Name = Field(description="of the column NAME_score and of the fate classifier.NAME")
    kind: str = Field(description=f"one of {', '.join(KINDS)}")
    model: str = Field(
        description="the model's file, or the folder of an embedding model; function: package.module:function, or an "
        "entry point of shardmill.filters"
    )
    label: str | None = Field(None, description="fasttext: the label whose probability is the score")
    head: str | None = Field(
        None, description="embeddings: the file of a linear head, where the model's folder has none"
    )
    device: Literal["cpu", "cuda"] | None = Field(
        None, description="embeddings: where it runs; absent: a GPU where a worker has one"
    )
    sentencepiece: str | None = Field(
        None, description="kenlm: the file of the SentencePiece model whose pieces it was trained on"
    )
    percentiles: tuple[PositiveFloat, PositiveFloat] | None = Field(
        None, description="ngram, kenlm: perplexities where the buckets middle and tail of NAME_bucket begin"
    )
    options: dict[str, Any] | None = Field(None, description="function: further arguments, by name")
    min_score: float | None = Field(None, allow_inf_nan=False, description="the least score that is kept")
    max_score: float | None = Field(None, allow_inf_nan=False, description="the highest score that is kept")

    @model_validator(mode="after")
    def _settings_of_the_kind(self) -> Self:
        if self.kind not in KINDS:
            raise ValueError(f"kind is {self.kind!r}; known are {', '.join(KINDS)}")
        kind = KINDS[self.kind]
        taken = {*kind.required, *kind.optional}
        for name in ("label", "head", "device", "sentencepiece", "percentiles", "options"):
            if getattr(self, name) is None and name in kind.required:
                raise ValueError(f"a classifier of kind {self.kind} needs {name}")
            if getattr(self, name) is not None and name not in taken:
                raise ValueError(f"{name} has no meaning for a classifier of kind {self.kind}; remove it")
        return self

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        refuse_empty_range(self.min_score, self.max_score, "min_score", "max_score")
        if self.percentiles and not self.percentiles[0] <= self.percentiles[1] < float("inf"):
            raise ValueError(
                f"percentiles are {list(self.percentiles)}; the second should not be the smaller"
            )
        return self

    @property
    def columns(self) -> dict[str, str]:
        """The ledger's columns that it fills, with their types as `ledger.EXTRA_TYPES` names them."""
        columns = {f"{self.name}_score": "float64"}
        if KINDS[self.kind].whole_grades:
            columns[f"{self.name}_int_score"] = "int64"
        if KINDS[self.kind].buckets or self.percentiles:
            columns[f"{self.name}_bucket"] = "string"
        return columns

    def key(self, setting: str) -> str:
        """What messages call one of its settings."""
        return f"classifier {self.name!r}: {setting}"


def refuse_empty_range(least: float | None, most: float | None, least_name: str, most_name: str) -> None:
    """Refuse bounds that nothing can meet."""
    if least is not None and most is not None and least > most:
        raise ValueError(
            f"{least_name} is {least} and {most_name} is {most}, so nothing would be kept; {least_name} must not be "
            "the greater"
        )


def columns_of(classifiers: Sequence[Classifier]) -> dict[str, str]:
    """The columns of several classifiers.

    Raises
    ------
    ValueError
        Two of them would fill one column.
    """
    columns: dict[str, str] = {}
    for one in classifiers:
        for column, kind in one.columns.items():
            if column in columns:
                raise ValueError(f"two classifiers would fill the column {column!r}; give one another name")
            columns[column] = kind
    return columns
