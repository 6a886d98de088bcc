"""How good `train_quality`'s classifier is, next to fastText's supervised mode in the same folds.

``python -m tests.benchmarks.train_quality`` prints cross-validated figures with 95 % intervals for two sets of the
`../shared/data` folder, and the interval of the difference to fastText over the same resampled documents. fastText has
its defaults in one line, and in the other bigrams, lower-cased words as ours, and more epochs at a higher rate. Takes
some minutes.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from jobs import train_quality
from jobs.training import evaluation, labelled
from jobs.training.evaluation import Scored
from jobs.training.features import HashedNgrams
from kernels.ngram_features import Grams
from kernels.words import words
from tests.benchmarks.measure import aligned
from tests.benchmarks.referees import PYTHON

SHARED = Path(__file__).parents[3] / "shared" / "data"
SETS = {
    "quality": ("quality/dclm_majority.jsonl", labelled.Columns(), train_quality.Settings()),
    "fineweb, score >= 3": (
        "fineweb",
        labelled.Columns(score="score"),
        train_quality.Settings(threshold=3),
    ),
}
DEFAULTS: dict[str, Any] = {}
TUNED = {"wordNgrams": 2, "lr": 0.5, "epoch": 25, "dim": 16, "bucket": 200_000}
FIGURES = ("f1", "average_precision", "roc_auc", "brier", "calibration_error")
DRAWS = 1000


def fasttext_scores(
    text: list[str], good: np.ndarray, fold: np.ndarray, options: dict[str, Any]
) -> np.ndarray:
    """float64[d], log odds of the good label on held-out documents."""
    asked = {"text": text, "good": good.tolist(), "fold": fold.tolist(), "options": options}
    script = Path(__file__).with_name("fasttext_supervised.py")
    done = subprocess.run(
        [PYTHON, script], input=json.dumps(asked), capture_output=True, text=True, check=True
    )
    p = np.clip(np.array(json.loads(done.stdout)), 1e-7, 1 - 1e-7)
    return np.log(p / (1 - p))


def compare(path: str, columns: labelled.Columns, settings: train_quality.Settings) -> list[list[str]]:
    documents = labelled.read(str(SHARED / path), columns)
    good = train_quality.is_good(documents, settings)
    fold = labelled.folds(documents, good, settings.folds, settings.seed)
    rows = HashedNgrams(Grams()).rows(documents)
    ours = train_quality.held_out(rows, good.astype(float), fold, settings)
    texts = documents.text.to_pylist()
    lowered = [" ".join(words(text)) for text in texts]
    margins = {
        "ours": ours,
        "fastText, defaults": fasttext_scores(texts, good, fold, DEFAULTS),
        "fastText, tuned": fasttext_scores(lowered, good, fold, TUNED),
    }
    scored = {name: evaluation.cross_fitted(one, good, fold) for name, one in margins.items()}
    return [
        [name, *shown(evaluation.evaluate(one, settings.seed)), difference(scored["ours"], one)]
        for name, one in scored.items()
    ]


def shown(report: dict[str, Any]) -> list[str]:
    return ["{:.3f} ({:.3f}-{:.3f})".format(report[f]["value"], *report[f]["interval"]) for f in FIGURES]


def difference(ours: Scored, theirs: Scored) -> str:
    """Our average precision less theirs, with its interval over the same draws."""
    if theirs is ours:
        return ""
    random = np.random.default_rng(0)
    curves = [evaluation._Curve(one.margins, one.good) for one in (ours, theirs)]
    n = len(ours.good)
    drawn = [np.bincount(random.integers(0, n, n), minlength=n).astype(float) for _ in range(DRAWS)]
    differences = [curves[0].average_precision(w) - curves[1].average_precision(w) for w in drawn]
    value = curves[0].average_precision(np.ones(n)) - curves[1].average_precision(np.ones(n))
    return "{:+.3f} ({:+.3f} to {:+.3f})".format(value, *np.percentile(differences, [2.5, 97.5]))


def main() -> None:
    for name, (path, columns, settings) in SETS.items():
        heading = [
            name,
            *(train_quality.NAMES[figure] for figure in FIGURES),
            "ours - theirs, average precision",
        ]
        print(aligned([heading, *compare(path, columns, settings)]), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
