"""Exact duplicates: documents whose texts, as they are or normalised, have the same 128-bit hash (XXH3-128)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from jobs import ledger
from jobs.pipeline.duplicates import against, equal
from jobs.runtime import checkpoint, fingerprint
from jobs.text import hash_halves

if TYPE_CHECKING:
    from jobs.runtime.context import Run

NAME = "exact_duplicates"
EARLIER = ["url_duplicates"]


@dataclass(frozen=True)
class TextHash:
    """The hash that the annotate pass left in a column."""

    column: str

    @property
    def columns(self) -> list[str]:
        """The column."""
        return [self.column]

    def hashes(self, table: pa.Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """See `equal.Hashing`; every document has a text."""
        high, low = hash_halves(table[self.column])
        return high, low, np.ones(len(table), bool)


def hashing(normalised: bool) -> TextHash:
    """The hash of texts as they are, or of normalised ones."""
    return TextHash(ledger.NORMALISED_HASH if normalised else "text_hash")


def job_fingerprint(run: "Run") -> str:
    """Covers the settings, the choice, and the documents that take part."""
    return fingerprint.fingerprint(
        __name__,
        settings=run.config.exact_duplicates.model_dump(),
        keep=run.config.keep.model_dump(),
        against=against.identity(run),
        upstream=[run.fingerprints[name] for name in ("annotate", *EARLIER)],
    )


def run(run: "Run", job: checkpoint.Checkpoint) -> dict[str, Any]:
    """Drop all but one of the documents with the same text."""
    settings = run.config.exact_duplicates
    how = hashing(settings.normalised) if settings.enabled else None
    return equal.run(run, job, NAME, how, settings.scope, EARLIER)
