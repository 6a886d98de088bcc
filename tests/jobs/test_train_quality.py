"""A classifier learns what can be learnt, says how well, and is the same bytes for the same documents."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs import steps, train_quality
from jobs.config import Source
from jobs.errors import UserError
from jobs.models import linear
from jobs.sources.batches import Batch
from jobs.training import evaluation, labelled
from tests.conftest import corpus_texts, digests


class Classifier:
    """What a model's module wants to know."""

    def __init__(self, model: Path) -> None:
        self.model = str(model)

    def key(self, setting: str) -> str:
        return f"classifier 'test': {setting}"


def separable(documents: int = 120) -> list[dict[str, Any]]:
    """Good ones have a word of their own."""
    texts = corpus_texts(documents, seed=4)
    return [
        {"text": f"{i} {text[:150]} {'theorem' if i % 3 else 'discount'}", "label": int(i % 3 > 0)}
        for i, text in enumerate(texts)
    ]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def train(data: Path, out: Path, *extra: str) -> dict[str, Any]:
    assert train_quality.main(["--data", str(data), "--output", str(out), "--bits", "14", *extra]) == 0
    return json.loads((out / "report.json").read_text())  # type: ignore[no-any-return]


def test_what_is_separable_is_learnt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = train(write(tmp_path / "a.jsonl", separable()), tmp_path / "out")
    assert report["average_precision"]["value"] > 0.99
    assert report["f1"]["value"] > 0.97
    for name in train_quality.NAMES:
        low, high = report[name]["interval"]
        assert low <= report[name]["value"] <= high
    shown = capsys.readouterr().out
    assert "120 of 120 documents (0 repeated, 0 contradictory, 0 without text), 80 of them good" in shown
    assert "average precision" in shown
    assert (tmp_path / "out" / "report.png").stat().st_size > 5000
    model = linear.load(Classifier(tmp_path / "out"))
    text = pa.array(["a theorem of it", "a discount of it", None, ""], pa.large_string())
    good, bad, null, empty = model.score(text)
    assert good > report["threshold"] > bad
    assert null == empty
    assert model.score(text.slice(1, 1)).tolist() == [bad]


def test_what_was_trained_is_a_classifier_of_a_run(tmp_path: Path) -> None:
    train(write(tmp_path / "a.jsonl", separable()), tmp_path / "model")
    mine = {"name": "mine", "kind": "linear", "model": str(tmp_path / "model"), "min_score": 0.5}
    source = Source.model_validate({"name": "web", "path": "x", "classifiers": [mine]})
    steps.check(source)
    texts = pa.array(["a theorem of it", "a discount of it"], pa.large_string())
    found = steps.documents("a", Batch.checked(0, texts, {}), source)
    assert found.fate.to_pylist() == [None, "classifier.mine"]
    good, bad = found.columns["mine_score"].to_pylist()
    assert bad < 0.5 < good


def test_noise_is_not_learnt(tmp_path: Path) -> None:
    rows = [{**row, "label": int(i * 7 % 10 < 5)} for i, row in enumerate(separable(200))]
    report = train(write(tmp_path / "a.jsonl", rows), tmp_path / "out")
    low, high = report["roc_auc"]["interval"]
    assert low < 0.55
    assert high > 0.4


def test_order_and_files_do_not_show(tmp_path: Path) -> None:
    rows = separable()
    train(write(tmp_path / "a.jsonl", rows), tmp_path / "one")
    shuffled = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]
    (tmp_path / "many").mkdir()
    for i in range(3):
        table = pa.Table.from_pylist(shuffled[i::3])
        pq.write_table(table, tmp_path / "many" / f"{i}.parquet")
    train(tmp_path / "many", tmp_path / "two")
    names = ("model.npz", "manifest.json", "report.json", "report.png")
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name
    assert digests(tmp_path, "one") != {}
    train(write(tmp_path / "b.jsonl", rows[1:]), tmp_path / "three")
    assert (tmp_path / "one/model.npz").read_bytes() != (tmp_path / "three/model.npz").read_bytes()


def test_labels_and_grades(tmp_path: Path) -> None:
    rows = separable()
    reports = [
        train(
            write(tmp_path / f"{i}.jsonl", [{"text": r["text"], **to(r["label"])} for r in rows]),
            tmp_path / "o",
            *x,
        )
        for i, (to, x) in enumerate(
            [
                (lambda one: {"label": one}, ()),
                (lambda one: {"label": bool(one)}, ()),
                (lambda one: {"kind": "hq" if one else "cc"}, ("--label", "kind", "--positive", "hq")),
                (lambda one: {"grade": 4 if one else 1.5}, ("--score", "grade")),
                (lambda one: {"grade": 2 if one else 1}, ("--score", "grade", "--threshold", "2")),
            ]
        )
    ]
    assert all(report == reports[0] for report in reports)


def test_regression_predicts_grades(tmp_path: Path) -> None:
    rows = [{"text": row["text"], "score": 1 + 3 * row["label"]} for row in separable()]
    report = train(write(tmp_path / "a.jsonl", rows), tmp_path / "out", "--score", "score", "--regression")
    assert report["root_mean_squared_error"] < 1
    model = linear.load(Classifier(tmp_path / "out" / "model.npz"))
    found = model.score(pa.array([row["text"] for row in rows], pa.large_string()))
    np.testing.assert_allclose(found, [row["score"] for row in rows], atol=0.5)


def test_each_text_counts_once_and_not_where_its_labels_differ(tmp_path: Path) -> None:
    rows = [
        *[{"text": "same", "label": 1}] * 3,
        *[{"text": "both", "label": label} for label in (0, 1, 1)],
        {"text": "", "label": 0},
        {"text": None, "label": 1},
        {"text": "other", "label": 0},
    ]
    found = labelled.read(str(write(tmp_path / "a.jsonl", rows)), labelled.Columns())
    assert dict(zip(found.text.to_pylist(), found.targets, strict=True)) == {"same": 1, "other": 0}
    assert found.counts == {"documents": 9, "without_text": 2, "repeated": 2, "contradictory": 3, "used": 2}


GOOD = '{"text": "x", "label": 1}\n'


@pytest.mark.parametrize(
    ("content", "extra", "said"),
    [
        (b'{"text": "x"}\n', (), "no file has the column 'label'"),
        (GOOD.encode() * 20, ("--text", "body"), "body"),
        (
            b'{"text": "x", "label": "good"}\n',
            (),
            "record 0 has 'good' in column 'label'; it should be 0 or 1; --positive",
        ),
        (
            b'{"text": "x", "label": 1}\n{"text": "y", "label": null}\n',
            (),
            "record 1 has None in column 'label'",
        ),
        (
            b'{"text": "x", "s": "many"}\n',
            ("--score", "s"),
            "record 0 has None in column 's'; it should be a number",
        ),
        (b'{"text": "\xff", "label": 1}\n', (), "a.jsonl: record 0 cannot be used: is not valid UTF-8"),
        (GOOD.encode() + b"{broken\n", (), "a.jsonl: record 1 cannot be used"),
        (b"", (), "a.jsonl"),
        (GOOD.encode(), ("--folds", "1"), "--folds is 1; it should be at least 2"),
        (GOOD.encode(), ("--l2", "0"), "--l2 is 0.0; it should be above 0"),
        (GOOD.encode(), ("--bits", "40"), "--bits is 40; it should be from 1 to 28"),
        (GOOD.encode(), ("--regression",), "--threshold and --regression are for grades"),
    ],
)
def test_mistakes_are_one_sentence(
    content: bytes, extra: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    assert train_quality.main(["--data", str(path), "--output", str(tmp_path / "out"), *extra]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out" / "model.npz").exists()


def test_one_class_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"text": f"x {i}", "label": 1} for i in range(40)]
    path = write(tmp_path / "a.jsonl", rows)
    assert train_quality.main(["--data", str(path), "--output", str(tmp_path / "out")]) == 2
    assert (
        "has 40 good and 0 other documents with a text of their own; training takes at least 10 of each"
        in (capsys.readouterr().err)
    )


def test_models_that_cannot_be_used(tmp_path: Path) -> None:
    train(write(tmp_path / "a.jsonl", separable(60)), tmp_path / "out")
    whole = (tmp_path / "out" / "model.npz").read_bytes()
    identity = linear.identity(Classifier(tmp_path / "out"))
    assert identity == linear.identity(Classifier(tmp_path / "out" / "model.npz"))
    with pytest.raises(UserError, match="there is no such file"):
        linear.check(Classifier(tmp_path / "absent"))
    np.savez(tmp_path / "other.npz", weights=np.zeros(4, np.float32))
    for i, content in enumerate((b"", b"text", whole[:-100], (tmp_path / "other.npz").read_bytes())):
        path = tmp_path / f"{i}.npz"
        path.write_bytes(content)
        with pytest.raises(UserError, match="which is no whole model"):
            linear.check(Classifier(path))


# ---------------------------------------------------------------- figures


def test_figures_against_their_definitions() -> None:
    random = np.random.default_rng(0)
    margins = np.round(random.normal(size=80), 1)  # with ties
    good = random.random(80) < evaluation.logistic(2 * margins)
    curve = evaluation._Curve(margins, good)
    pairs = [(a > b) + (a == b) / 2 for a in margins[good] for b in margins[~good]]
    assert curve.roc_auc(np.ones(80)) == pytest.approx(np.mean(pairs))
    precisions = [good[margins >= level].mean() for level in margins[good]]
    assert curve.average_precision(np.ones(80)) == pytest.approx(np.mean(precisions))
    weights = random.integers(0, 3, 80)
    repeated = evaluation._Curve(np.repeat(margins, weights), np.repeat(good, weights))
    ones = np.ones(int(weights.sum()))
    assert curve.roc_auc(weights) == pytest.approx(repeated.roc_auc(ones))
    assert curve.average_precision(weights) == pytest.approx(repeated.average_precision(ones))

    def f1(level: float) -> float:
        return float(2 * (good & (margins >= level)).sum() / (good.sum() + (margins >= level).sum()))

    best = evaluation.best_threshold(margins, good)
    assert f1(best) == pytest.approx(max(f1(level) for level in np.unique(margins)))


def test_platt_finds_the_curve_that_made_the_labels() -> None:
    random = np.random.default_rng(1)
    margins = random.normal(size=20_000)
    good = random.random(20_000) < evaluation.logistic(1.7 * margins - 0.6)
    slope, offset = evaluation.platt(margins, good)
    assert slope == pytest.approx(1.7, abs=0.08)
    assert offset == pytest.approx(-0.6, abs=0.08)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_platt_of_separable_margins_is_finite(scale: float) -> None:
    margins = scale * np.array([-2.0, -1, 1, 2] * 5)
    slope, offset = evaluation.platt(margins, margins > 0)
    assert slope > 0
    assert np.isfinite([slope, offset]).all()


def test_intervals_hold_the_true_value_about_as_often_as_they_say() -> None:
    random = np.random.default_rng(2)
    covered = 0
    for _ in range(40):
        good = random.random(150) < 0.5
        margins = random.normal(size=150) + good  # the area is Φ(1 / √2)
        found = evaluation.evaluate(evaluation.cross_fitted(margins, good, np.arange(150) % 5), 0)
        low, high = found["roc_auc"]["interval"]
        covered += low <= 0.7602 <= high
    assert covered >= 34


def test_folds_hold_both_classes_evenly_and_depend_on_the_text_alone(tmp_path: Path) -> None:
    rows = separable(100)
    found = labelled.read(str(write(tmp_path / "a.jsonl", rows)), labelled.Columns())
    fold = labelled.folds(found, found.targets > 0, 5, 0)
    for part in (fold, fold[found.targets > 0]):
        sizes = np.bincount(part, minlength=5)
        assert sizes.max() - sizes.min() <= 2
    assert (fold != labelled.folds(found, found.targets > 0, 5, 1)).any()
