"""What a linear classifier sees of a document, and the model that it becomes: hashed n-grams, or embeddings."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from jobs.models import linear, trained
from jobs.runtime import fingerprint
from jobs.text import text_buffers
from kernels.linear import Sparse, unit_values
from kernels.ngram_features import Grams, ngram_features
from kernels.words import unicode_version

if TYPE_CHECKING:
    from jobs.models.embeddings import Folder
    from jobs.training.labelled import Documents

Curve = tuple[float, float] | None


class Saved(Protocol):
    """A model that is trained."""

    def save(self, path: Path) -> None:
        """Write its file; the same model is the same bytes."""


class Features(Protocol):
    """What documents are to the fit, and what its weights become."""

    @property
    def file(self) -> str:
        """Name of the model's file."""

    @property
    def made_with(self) -> Mapping[str, Any]:
        """What the manifest says of them: settings, versions, other models."""

    def rows(self, documents: "Documents") -> Sparse:
        """Documents as rows, before anything is fitted."""

    def model(self, weights: np.ndarray, intercept: float, curve: Curve) -> Saved:
        """The model of weights float64[c] of the rows' columns."""


class HashedNgrams:
    """Hashed word n-grams, those that occur as columns."""

    file = trained.NAME

    def __init__(self, grams: Grams) -> None:
        self.grams = grams
        self.used = np.empty(0, np.int64)  # the bucket of each column, ascending

    @property
    def made_with(self) -> Mapping[str, Any]:
        """Which n-grams."""
        return {**self.grams._asdict(), "unicode": unicode_version()}

    def rows(self, documents: "Documents") -> Sparse:
        """One row of unit length a document."""
        buckets, counts, offsets = ngram_features(*text_buffers(documents.text), self.grams)
        occurs = np.zeros(1 << self.grams.bits, bool)
        occurs[buckets] = True
        self.used = np.flatnonzero(occurs)
        columns = (np.cumsum(occurs) - 1).astype(np.uint32)[buckets]
        return Sparse(offsets, columns, unit_values(counts, offsets))

    def model(self, weights: np.ndarray, intercept: float, curve: Curve) -> Saved:
        """Weights by bucket, 0 for buckets that no document has."""
        by_bucket = np.zeros(1 << self.grams.bits, np.float32)
        by_bucket[self.used[: len(weights)]] = weights[: len(self.used)]
        return linear.Model(by_bucket, self.grams, intercept, curve)


class SentenceEmbeddings:
    """Embeddings of a frozen network, each number a column."""

    file = "head.safetensors"

    def __init__(self, folder: "Folder") -> None:
        self.folder = folder

    @property
    def made_with(self) -> Mapping[str, Any]:
        """Which network, by its content."""
        from jobs.models.embeddings import content_hash

        return {
            "embeddings": content_hash(self.folder),
            "versions": fingerprint.versions("torch", "transformers", "tokenizers"),
        }

    def rows(self, documents: "Documents") -> Sparse:
        """One row a document, on a CPU: the same bits wherever a head is trained."""
        from jobs.models.embeddings import Model

        vectors = Model(self.folder).embed(documents.text).astype(np.float64)
        d, n = vectors.shape
        return Sparse(np.arange(d + 1) * n, np.tile(np.arange(n, dtype=np.uint32), d), vectors.ravel())

    def model(self, weights: np.ndarray, intercept: float, curve: Curve) -> Saved:
        """A head that predicts the grade."""
        return Head(weights, intercept, self.folder)


@dataclass(frozen=True)
class Head:
    """A linear regression on embeddings of n numbers.

    Attributes
    ----------
    weight
        float64[n].
    bias
        Added to the product.
    folder
        Whose embeddings they are.
    """

    weight: np.ndarray
    bias: float
    folder: "Folder"

    def save(self, path: Path) -> None:
        """Write the head as `jobs.models.embeddings` reads it."""
        from jobs.models.embeddings import save_head

        save_head(path, self.weight, self.bias, self.folder)
