"""Train a classifier of quality on labelled documents, and say honestly how good it is.

A linear model of hashed word n-grams (`kernels.ngram_features`, `kernels.linear`), which `jobs.models.linear` reads; or
with `--embeddings` FineWeb-Edu's recipe, a linear regression of grades on sentence embeddings of a frozen network, the
head that `jobs.models.embeddings` reads. Each text counts once. Figures come from k-fold cross-validation
(`jobs.training.evaluation`); the model itself is trained on all documents, and Platt's calibration fitted on the
held-out scores of all folds. The same documents give the same bytes, in whatever order and files they come.

What is written to the output folder:

=============== ====================================================================
`model.npz`     the model; with `--embeddings` it is `head.safetensors`
`manifest.json` how it was made: documents, settings, seed, versions, figures
`report.json`   all figures, with reliability bins and the precision-recall curve
`report.png`    both as a picture
=============== ====================================================================
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.cli import guarded
from jobs.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from jobs.runtime.console import Console
    from jobs.training.evaluation import Scored
    from jobs.training.features import Features, Saved
    from jobs.training.labelled import Documents
    from kernels.linear import Sparse

FEWEST = 10  # of each class, and at least one for each fold
MOST_NGRAM = 9
NAMES = {
    "f1": "F1",
    "average_precision": "average precision",
    "roc_auc": "ROC AUC",
    "brier": "Brier score",
    "calibration_error": "calibration error",
}


@dataclass(frozen=True)
class Settings:
    """How a model is trained.

    Attributes
    ----------
    threshold
        Grades from here on are good; None where labels say what is good.
    regression
        Whether the model predicts the grade.
    folds
        Of the cross-validation.
    l2
        See `kernels.linear.fit`.
    seed
        Of folds and bootstrap.
    """

    threshold: float | None = None
    regression: bool = False
    folds: int = 5
    l2: float = 1e-4
    seed: int = 0


@dataclass(frozen=True)
class Trained:
    """A model and what is known of it."""

    model: "Saved"
    scored: "Scored"
    report: dict[str, Any]


# ---------------------------------------------------------------- training


def train(documents: "Documents", features: "Features", settings: Settings) -> Trained:
    """Cross-validate, then train on all documents.

    Parameters
    ----------
    documents
        From `labelled.read`.
    features
        What of a document is looked at.
    settings
        How.

    Raises
    ------
    UserError
        There are too few documents of one class.
    """
    from jobs.training import evaluation, labelled

    good = is_good(documents, settings)
    fold = labelled.folds(documents, good, settings.folds, settings.seed)
    rows = features.rows(documents)
    targets = documents.targets if settings.regression else good.astype(float)
    margins = held_out(rows, targets, fold, settings)
    scored = evaluation.cross_fitted(margins, good, fold)
    curve = None if settings.regression else evaluation.platt(margins, good)
    model = features.model(*_fit(rows, targets, settings), curve)
    report = evaluation.evaluate(scored, settings.seed)
    report["threshold"] = _threshold(margins, good, curve)
    if settings.regression:
        report["root_mean_squared_error"] = float(((margins - targets) ** 2).mean() ** 0.5)
    return Trained(model, scored, report)


def is_good(documents: "Documents", settings: Settings) -> "np.ndarray":
    """bool[d], of which there are enough of both kinds."""
    good = documents.targets >= (1 if settings.threshold is None else settings.threshold)
    least = max(FEWEST, settings.folds)
    n_good, n_bad = int(good.sum()), int((~good).sum())
    if min(n_good, n_bad) < least:
        at = "" if settings.threshold is None else f" at --threshold {settings.threshold:g}"
        raise UserError(
            f"--data has {n_good:,} good and {n_bad:,} other documents with a text of their own{at}; "
            f"training takes at least {least} of each"
        )
    return good


def held_out(rows: "Sparse", targets: "np.ndarray", fold: "np.ndarray", settings: Settings) -> "np.ndarray":
    """float64[d], the margin of each document by a model of the other folds."""
    import numpy as np

    from kernels.linear import decide

    margins = np.empty(len(targets))
    for one in range(settings.folds):
        here = fold == one
        weights, intercept = _fit(_chosen(rows, ~here), targets[~here], settings)
        margins[here] = decide(_chosen(rows, here), weights, intercept)
    return margins


def _fit(rows: "Sparse", targets: "np.ndarray", settings: Settings) -> tuple["np.ndarray", float]:
    from kernels.linear import LOGISTIC, SQUARED, fit

    return fit(rows, targets, settings.l2, SQUARED if settings.regression else LOGISTIC)


def _chosen(rows: "Sparse", chosen: "np.ndarray") -> "Sparse":
    """Some of the rows."""
    import numpy as np

    from kernels.linear import Sparse

    lengths = np.diff(rows.offsets)
    features = np.repeat(chosen, lengths)
    offsets = np.append(0, np.cumsum(lengths[chosen]))
    return Sparse(offsets, rows.columns[features], rows.values[features])


def _threshold(margins: "np.ndarray", good: "np.ndarray", curve: tuple[float, float] | None) -> float:
    """The model's score of the highest F1 on held-out documents."""
    import numpy as np

    from jobs.training import evaluation

    best = evaluation.best_threshold(margins, good)
    if curve is None:
        return best
    return float(evaluation.logistic(curve[0] * np.array([best]) + curve[1])[0])


# ---------------------------------------------------------------- what is written and shown


def write(
    folder: Path, documents: "Documents", features: "Features", settings: Settings, trained: Trained
) -> None:
    """Model, manifest, report and picture."""
    from dataclasses import asdict

    from jobs.runtime import checkpoint, fingerprint

    trained.model.save(folder / features.file)
    checkpoint.write_json(folder / "report.json", trained.report)
    plot(trained.report, folder / "report.png")
    manifest = {
        "model": {"file": features.file, "sha256": checkpoint.sha256(folder / features.file)},
        "documents": {**documents.counts, "sha256": documents.sha256},
        "good": int(trained.scored.good.sum()),
        "settings": asdict(settings),
        "features": dict(features.made_with),
        "versions": fingerprint.versions("numpy", "numba"),
        "figures": {name: trained.report[name] for name in (*NAMES, "threshold")},
    }
    checkpoint.write_json(folder / "manifest.json", manifest)


def show(console: "Console", documents: "Documents", settings: Settings, trained: Trained) -> None:
    """Print what a person wants to know."""
    counts, n_good = documents.counts, int(trained.scored.good.sum())
    left_out = [
        f"{counts[why]:,} {why.replace('_', ' ')}" for why in ("repeated", "contradictory", "without_text")
    ]
    console.line(
        f"{counts['used']:,} of {counts['documents']:,} documents ({', '.join(left_out)}), {n_good:,} of them good"
    )
    console.table(
        f"\n{settings.folds}-fold cross-validation",
        ["", "", "95 % interval"],
        [
            (title, f"{found['value']:.3f}", "{:.3f} to {:.3f}".format(*found["interval"]))
            for title, found in ((title, trained.report[name]) for name, title in NAMES.items())
        ],
    )
    console.table(
        "\nreliability",
        ["probability", "documents", "good"],
        [
            (f"{one['probability']:.2f}", f"{one['documents']:,}", f"{one['good']:.2f}")
            for one in trained.report["reliability"]
        ],
    )
    console.line(f"\nF1 is highest from a score of {trained.report['threshold']:.4f} on")


def plot(report: dict[str, Any], path: Path) -> None:
    """Precision over recall, and reliability, as PNG."""
    import matplotlib

    from jobs.runtime import checkpoint

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained")
    curve, average = report["precision_recall"], report["average_precision"]
    left.plot(curve["recall"], curve["precision"], color="#1f6fb4", drawstyle="steps-post")
    left.set(xlim=(0, 1.01), ylim=(0, 1.02), xlabel="recall", ylabel="precision")
    left.set_title("average precision {:.3f} ({:.3f} to {:.3f})".format(average["value"], *average["interval"]),
                   loc="left", fontsize=10)  # fmt: skip
    bins, error = report["reliability"], report["calibration_error"]
    largest = max(one["documents"] for one in bins)
    right.plot([0, 1], [0, 1], color="#bbbbbb", linewidth=1)
    right.scatter([one["probability"] for one in bins], [one["good"] for one in bins],
                  s=[15 + 150 * one["documents"] / largest for one in bins], color="#1f6fb4", alpha=0.8)  # fmt: skip
    right.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="probability", ylabel="share of good documents")
    right.set_title("calibration error {:.3f} ({:.3f} to {:.3f}); area: documents".format(
        error["value"], *error["interval"]), loc="left", fontsize=10)  # fmt: skip
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    with checkpoint.written(path) as file:
        figure.savefig(file, format="png", dpi=150, metadata={"Software": None})
    plt.close(figure)


# ---------------------------------------------------------------- the command


def parser() -> argparse.ArgumentParser:
    """The command line of `python -m jobs.train_quality`."""
    default = Settings()
    parser = argparse.ArgumentParser(
        prog="python -m jobs.train_quality",
        description="Train a linear classifier of hashed word n-grams on labelled documents, with cross-validated "
        "figures and their intervals. All documents are held in memory, about 12 bytes for each different n-gram of "
        "each.",
    )
    add = parser.add_argument
    add("--data", required=True, metavar="PATH", help="Parquet or JSON lines: a file, folder, glob or URL")
    add("--output", required=True, metavar="DIR", help="folder for the model and its report")
    add("--text", default="text", metavar="COLUMN", help="column of the texts (default: text)")
    add("--label", default="label", metavar="COLUMN", help="column of the labels (default: label)")
    add("--positive", metavar="LABEL", help="the label of good documents (default: labels are 0 and 1)")
    add("--score", metavar="COLUMN", help="column of grades, in place of labels (default: none)")
    add("--threshold", type=float, metavar="GRADE",
        help="with --score: from which grade on a document is good (default: 3)")  # fmt: skip
    add("--regression", action="store_true", help="with --score: predict the grade, not whether it is good")
    add("--folds", type=int, default=default.folds, metavar="K", help="of the cross-validation (default: 5)")
    add("--embeddings", metavar="FOLDER",
        help="with --score: predict the grade from a sentence-transformers model's embeddings")  # fmt: skip
    add("--ngram", type=int, metavar="N", help="words of the longest n-gram (default: 2)")
    add("--bits", type=int, metavar="N", help="2**N buckets of n-grams (default: 20)")
    add("--l2", type=float, default=default.l2, metavar="X", help="strength of the penalty (default: 0.0001)")
    add("--seed", type=int, default=default.seed, metavar="N", help="of folds and bootstrap (default: 0)")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """`python -m jobs.train_quality --data … --output …`."""
    options = parser().parse_args(arguments)
    return guarded(lambda: _main(options))


def settings_of(options: argparse.Namespace) -> Settings:
    """Settings as typed.

    Raises
    ------
    UserError
        They contradict each other, or one is out of its range.
    """
    if options.score is None and (options.regression or options.threshold is not None):
        raise UserError("--threshold and --regression are for grades; name their column with --score")
    if options.score is not None and options.positive is not None:
        raise UserError("--positive is for labels and --score for grades; give one of them")
    for name, fine, wanted in (
        ("folds", options.folds >= 2, "at least 2"),
        ("l2", 0 < options.l2 < float("inf"), "above 0"),
        ("seed", options.seed >= 0, "at least 0"),
    ):
        if not fine:
            raise UserError(f"--{name} is {getattr(options, name)}; it should be {wanted}")
    threshold = options.threshold
    if options.score is not None and threshold is None:
        threshold = 3.0
    return Settings(
        threshold,
        options.regression or options.embeddings is not None,
        options.folds,
        options.l2,
        options.seed,
    )


def features_of(options: argparse.Namespace) -> "Features":
    """What of a document is looked at, as typed.

    Raises
    ------
    UserError
        Options contradict each other, one is out of its range, or the folder is no embedding model.
    """
    from kernels.ngram_features import MOST_BITS, Grams

    grams = Grams()._replace(
        **{
            key: value
            for key, value in (("longest", options.ngram), ("bits", options.bits))
            if value is not None
        }
    )
    for name, value, most in (("ngram", grams.longest, MOST_NGRAM), ("bits", grams.bits, MOST_BITS)):
        if not 1 <= value <= most:
            raise UserError(f"--{name} is {value}; it should be from 1 to {most}")
    from jobs.training.features import HashedNgrams, SentenceEmbeddings

    if options.embeddings is None:
        return HashedNgrams(grams)
    if options.ngram is not None or options.bits is not None:
        raise UserError("--ngram and --bits are for hashed n-grams; leave them out with --embeddings")
    if options.score is None:
        raise UserError("--embeddings predicts grades; name their column with --score")
    from jobs.models.embeddings import read_folder

    folder = read_folder(options.embeddings, "--embeddings")
    if folder.classifies:
        raise UserError(
            f"--embeddings is {options.embeddings!r}, which has a head of its own; name a sentence-transformers model"
        )
    return SentenceEmbeddings(folder)


def _main(options: argparse.Namespace) -> int:
    settings, features = settings_of(options), features_of(options)
    from jobs.runtime import folders
    from jobs.runtime.console import Console
    from jobs.training import labelled

    folder = folders.reached(options.output)
    columns = labelled.Columns(options.text, options.label, options.positive, options.score)
    documents = labelled.read(options.data, columns)
    trained = train(documents, features, settings)
    write(folder, documents, features, settings, trained)
    console = Console()
    show(console, documents, settings, trained)
    console.line(f"{folder}/{features.file}, report.json, report.png")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
