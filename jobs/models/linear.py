"""A hashed word-n-gram linear model, as `python -m jobs.train_quality` trains it.

The file is NumPy's `.npz` with `weights`, float32[2**bits], one for each bucket of `kernels.ngram_features`, and
`settings`, JSON in a string: the longest n-gram, the bits, the intercept, and Platt's slope and offset, by which a
document's margin becomes a probability. Without them the margin is the score: a regression's grade.

The score is rounded to six decimals, so that the last bits of a machine's `exp` and `log` do not show.
"""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.models import check_probability_bounds, trained
from jobs.models.trained import Settings
from jobs.runtime import named_files
from jobs.text import text_buffers
from jobs.training.evaluation import logistic
from kernels.linear import score_documents
from kernels.ngram_features import Grams, check_grams

if TYPE_CHECKING:
    from jobs.settings.classifiers import Classifier

COMMAND = "train_quality"
KIND = "hashed n-grams, linear"
DECIMALS = 6


@dataclass(frozen=True)
class Model:
    """Weights of buckets, and what makes a score of them.

    Attributes
    ----------
    weights
        float32[b].
    grams
        Which n-grams.
    intercept
        Added to the weights.
    curve
        Slope and offset of the probability's logistic curve; None for a grade.
    """

    weights: np.ndarray
    grams: Grams
    intercept: float
    curve: tuple[float, float] | None

    def score(self, text: pa.LargeStringArray) -> np.ndarray:
        """float64[d] of large_string[d]: probabilities or grades; null is as good as empty."""
        margins = self.margins(text)
        if self.curve is None:
            return np.round(margins, DECIMALS)
        slope, offset = self.curve
        return np.round(logistic(slope * margins + offset), DECIMALS)

    def margins(self, text: pa.LargeStringArray) -> np.ndarray:
        """float64[d] of large_string[d]: weights times document, and the intercept."""
        data, offsets = text_buffers(pc.fill_null(text, ""))
        return score_documents(data, offsets, self.grams, self.weights, self.intercept)

    def save(self, path: Path) -> None:
        """Write the file; the same model is the same bytes."""
        settings = {
            "kind": KIND,
            "grams": self.grams._asdict(),
            "intercept": self.intercept,
            "curve": self.curve,
        }
        trained.save(path, settings, weights=self.weights)


def check(settings: "Classifier") -> None:
    """Refuse a file that is no such model, and bounds on a probability that nothing can meet.

    Raises
    ------
    UserError
        One sentence that names the file or the bound.
    """
    if load(settings).curve is not None:
        check_probability_bounds(settings)


def identity(settings: Settings) -> dict[str, Any]:
    """What fingerprints hold."""
    return trained.identity(trained.file_of(settings, COMMAND))


def load(settings: Settings) -> Model:
    """The model, which a process loads once."""
    return _loaded(trained.file_of(settings, COMMAND), settings.key("model"))


@functools.lru_cache(4)
def _loaded(file: named_files.File, key: str) -> Model:
    with trained.opened(file, key, KIND, COMMAND) as (arrays, settings):
        weights, grams = arrays["weights"], Grams(**settings["grams"])
        check_grams(grams)
        if (
            weights.dtype != np.float32
            or weights.shape != (1 << grams.bits,)
            or not np.isfinite(weights).all()
        ):
            raise ValueError("its weights are not as its settings say")
        curve = settings["curve"]
        return Model(
            weights, grams, float(settings["intercept"]), None if curve is None else (curve[0], curve[1])
        )
