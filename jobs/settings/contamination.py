"""Which evaluation sets must not be in the training data, and what is done about documents that hold some of them.

The words of a text are GPT-3's: lower-cased, punctuation removed, split at white space (see `kernels.ngrams`). The text
of an item is its fields, one after another. Its n-grams are those of that text. A whole text, or the first field (the
question), of fewer than `ngram` and at least `min_words` words counts as one n-gram; GPT-3 looked for no fewer than 8
words either, since shorter ones are found everywhere by chance. Other fields are found with the words around them only:
of 4,000 web documents, 5 had one of MMLU's choices by chance (the equal protection clause of the Fourteenth Amendment).
An item without any n-gram is never found; the report counts such items.
"""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from jobs.settings.section import Name, Section

Column = str | int
Format = Literal["jsonl", "csv", "parquet"]
_FORMATS: dict[str, Format] = {".jsonl": "jsonl", ".json": "jsonl", ".csv": "csv", ".parquet": "parquet"}


class EvaluationSet(Section):
    """A file with an item a line or row."""

    name: Name = Field(description="of the fate contaminated.NAME")
    path: str = Field(description="JSON Lines or CSV, plain or gzip, or Parquet, by its suffix")
    fields: tuple[Column, ...] = Field(
        min_length=1,
        description="that count: question, choices, answer; by position from 0 in a CSV file without a header",
    )
    id: Column | tuple[Column, ...] | None = Field(
        None, description="field, or fields, that name an item; absent: the number of its line or row"
    )

    @property
    def format(self) -> Format | None:
        """By the file's suffix; None where that says nothing."""
        path = Path(self.path)
        return _FORMATS.get((path.with_suffix("") if path.suffix == ".gz" else path).suffix)

    @property
    def identifying(self) -> tuple[Column, ...]:
        """The fields that name an item."""
        return self.id if isinstance(self.id, tuple) else () if self.id is None else (self.id,)

    @model_validator(mode="after")
    def _readable(self) -> Self:
        if self.format is None:
            raise ValueError(
                f"path is {self.path!r}; it should end in {', '.join(_FORMATS)}, or in one of these and .gz"
            )
        positions = {isinstance(column, int) for column in (*self.fields, *self.identifying)}
        if True in positions and (self.format != "csv" or False in positions):
            raise ValueError(
                "fields and id can be positions in a CSV file without a header, all of them; otherwise give names"
            )
        return self


class Contamination(Section):
    """Training documents that hold items of evaluation sets (Brown et al. 2020, appendix C; Touvron et al. 2023)."""

    sets: tuple[EvaluationSet, ...] = Field((), description="that must not be in the training data")
    ngram: int = Field(13, ge=1, le=64, description="words in an n-gram (GPT-3)")
    min_words: int = Field(
        8, ge=1, description="of what is shorter than an n-gram and matched whole (GPT-3: 8)"
    )
    match: Literal["any", "share"] = Field(
        "any", description="whether any n-gram of an item makes a document contaminated, or a share of them"
    )
    share: float = Field(
        0.7, gt=0, le=1, description="match: share; of an item's n-grams, in one document (Llama 2)"
    )
    max_items: int | None = Field(
        None, ge=1, description="n-grams of more items than this are boilerplate of the sets and do not count"
    )
    counts: str | None = Field(
        None, description="ngrams.parquet of an earlier run over these documents, with action: report"
    )
    max_documents: int | None = Field(
        None, ge=1, description="n-grams that are in more documents than this, by counts, do not count"
    )
    action: Literal["report", "drop", "cut"] = Field(
        "drop", description="what is done about documents that hold items; cut: what matched is cut out"
    )
    margin: int = Field(200, ge=0, description="action: cut; characters cut on either side (GPT-3)")
    floor: int = Field(
        200, ge=0, description="action: cut; characters of a piece that is kept, at least (GPT-3)"
    )
    max_pieces: int = Field(10, ge=1, description="action: cut; a document in more pieces is dropped (GPT-3)")

    @property
    def used(self) -> bool:
        """Whether anything is looked for."""
        return bool(self.sets)

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        names = [one.name for one in self.sets]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"sets has two entries named {twice[0]!r}; each needs a name of its own")
        return self

    @model_validator(mode="after")
    def _counted(self) -> Self:
        if (self.max_documents is None) != (self.counts is None):
            raise ValueError(
                "counts and max_documents belong together: n-grams of many documents are known after a run with "
                "action: report, whose contamination/ngrams.parquet has them"
            )
        return self
