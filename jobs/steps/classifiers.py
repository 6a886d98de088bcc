"""Scores of models, a column each, and bounds on them.

Classifiers run in the order of the settings, each on the documents that are still there: a cheap one first saves the
next one work. One without bounds records its score and drops nothing.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.models import KINDS, kind_of
from jobs.steps.thresholds import outside_bounds

if TYPE_CHECKING:
    from jobs.settings.classifiers import Classifier

STEP = "classifier"
GRADES = (0, 5)
BUCKETS = ("head", "middle", "tail")


def check(classifiers: Sequence["Classifier"]) -> None:
    """Refuse, before any work, a model that cannot be used.

    Raises
    ------
    UserError
        One sentence that names the file.
    """
    for settings in classifiers:
        kind_of(settings).check(settings)


def identity(classifiers: Sequence["Classifier"]) -> list[dict[str, Any]]:
    """What fingerprints hold: names and bounds, and of each model what its kind says."""
    return [
        {
            "name": settings.name,
            "kind": settings.kind,
            "bounds": [settings.min_score, settings.max_score],
            **({"percentiles": list(settings.percentiles)} if settings.percentiles else {}),
            **kind_of(settings).identity(settings),
        }
        for settings in classifiers
    ]


def classified(
    text: pa.LargeStringArray, settings: "Classifier"
) -> tuple[dict[str, pa.Array], pa.StringArray]:
    """The columns of a classifier, and `classifier.NAME` for documents whose score is out of bounds.

    The bounds are held against the score as the column has it, and are themselves kept.

    Parameters
    ----------
    text
        large_string[d].
    settings
        Which model, and the bounds.

    Returns
    -------
    tuple of dict and StringArray
        `NAME_score`, float64[d], for grades `NAME_int_score`, int64[d], and for perplexities with percentiles
        `NAME_bucket`, string[d]; fates string[d], null for a document that goes on.
    """
    model = kind_of(settings).load(settings)
    scores = model.score(text)
    columns = {f"{settings.name}_score": pa.array(scores, pa.float64())}
    if KINDS[settings.kind].whole_grades:
        # FineWeb-Edu's int_score: int(round(max(0, min(score, 5)))), halves to the even grade.
        grades = np.rint(scores.clip(*GRADES)).astype(np.int64)
        columns[f"{settings.name}_int_score"] = pa.array(grades)
    percentiles = settings.percentiles or getattr(model, "percentiles", None)
    if percentiles:
        columns[f"{settings.name}_bucket"] = buckets(scores, percentiles)
    outside = outside_bounds(columns[f"{settings.name}_score"], settings.min_score, settings.max_score)
    return columns, pc.if_else(outside, f"{STEP}.{settings.name}", pa.scalar(None, pa.string()))


def buckets(perplexities: np.ndarray, percentiles: tuple[float, float]) -> pa.StringArray:
    """CCNet's buckets, string[d]: `head` below the first percentile, `middle` below the second, `tail`."""
    return pa.array(BUCKETS, pa.string()).take(pa.array(np.searchsorted(percentiles, perplexities, "right")))
