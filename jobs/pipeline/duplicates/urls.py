"""URL duplicates: documents whose URLs have the same canonical form; those without a URL are none."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from jobs.pipeline.duplicates import against, equal
from jobs.pipeline.duplicates.canonical_urls import Canonical, hashes
from jobs.runtime import checkpoint, fingerprint

if TYPE_CHECKING:
    from jobs.runtime.context import Run
    from jobs.settings.duplicates import UrlDuplicates

NAME = "url_duplicates"


@dataclass(frozen=True)
class UrlHash:
    """The XXH3-128 of the canonical form."""

    rules: Canonical
    columns = ["url"]  # noqa: RUF012

    def hashes(self, table: pa.Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """See `equal.Hashing`."""
        return hashes(table["url"], self.rules)


def hashing(settings: "UrlDuplicates") -> UrlHash:
    """The hash under the rules of the section `url_duplicates`."""
    rules = {name: getattr(settings, name) for name in Canonical._fields}
    return UrlHash(Canonical(**rules))


def job_fingerprint(run: "Run") -> str:
    """Covers the rules, the choice, and the documents that take part."""
    return fingerprint.fingerprint(
        __name__,
        settings=run.config.url_duplicates.model_dump(),
        keep=run.config.keep.model_dump(),
        against=against.identity(run),
        annotated=run.fingerprints["annotate"],
        versions=fingerprint.versions("idna"),
    )


def run(run: "Run", job: checkpoint.Checkpoint) -> dict[str, Any]:
    """Drop all but one of the documents with the same URL."""
    settings = run.config.url_duplicates
    how = hashing(settings) if settings.enabled else None
    return equal.run(run, job, NAME, how, settings.scope, [])
