"""Models that fastText trained and quantized: our probabilities are its own."""

import gzip
import json
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

from jobs.models import fasttext_file
from jobs.text import text_buffers
from kernels import fasttext

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-referees" / "bin" / "python"
TRAINING = {"epoch": 3, "lr": 0.5, "dim": 16, "bucket": 5000}
MODELS = {
    "softmax": [{"loss": "softmax", "wordNgrams": 2}, None],
    "hs": [{"loss": "hs", "minn": 2, "maxn": 5}, None],
    "ova": [{"loss": "ova", "minn": 3, "maxn": 3, "wordNgrams": 3, "dim": 10}, None],
    "ns": [{"loss": "ns", "dim": 100}, None],
    "quantized": [{"loss": "hs", "minn": 2, "maxn": 4}, {}],
    "norms": [{"loss": "softmax", "wordNgrams": 2, "dim": 9}, {"qnorm": True, "dsub": 4}],
    "cutoff": [{"loss": "hs", "minn": 2, "maxn": 4}, {"cutoff": 1000, "qnorm": True}],
    "retrained": [{"loss": "softmax", "wordNgrams": 3}, {"cutoff": 600, "retrain": True, "qout": True}],
    "words": [{"loss": "softmax", "wordNgrams": 1}, {"cutoff": 300, "qnorm": True}],
}
N_LABELS = 260  # an output of fewer rows cannot be quantized


@pytest.fixture(scope="module")
def trained(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not PYTHON.exists():
        pytest.skip("needs the other tools; run `make referees`")
    with gzip.open(next((shared / "c4").glob("*.gz")), "rt") as file:
        lines = [" ".join(json.loads(line)["text"].split()) for line in [*file][:600]]
    folder = tmp_path_factory.mktemp("trained")
    (folder / "train.txt").write_text(
        "".join(f"__label__{i % N_LABELS} {line[:600]}\n" for i, line in enumerate(lines))
    )
    (folder / "lines.json").write_text(json.dumps(lines[:100]))
    (folder / "models.json").write_text(
        json.dumps({name: [TRAINING | options, quantized] for name, (options, quantized) in MODELS.items()})
    )
    subprocess.run([PYTHON, "-m", "tests.jobs.fasttext_referee", folder], cwd=ROOT, check=True)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_probabilities_are_those_of_fasttext(trained: Path, name: str) -> None:
    data, offsets = text_buffers(
        pa.array(json.loads((trained / "lines.json").read_text()), pa.large_string())
    )
    expected = json.loads((trained / f"{name}.json").read_text())
    labels, model = fasttext_file.read(str(trained / f"{name}.bin"))
    cache = fasttext.new_cache(model.input.columns)
    best, most = fasttext.most_likely(data, offsets[:-1], offsets[1:], model, cache)
    tables = name in ("ova", "ns")  # of sigmoids, in which rounding may lead to the next step
    for one, probability, found in zip(best, most, expected, strict=True):
        assert found[labels[one]] == pytest.approx(max(found.values()), abs=0.01 if tables else 1e-5)
        assert probability == pytest.approx(min(max(found.values()), 1), abs=0.01 if tables else 1e-5)
    for label in range(0, len(labels), 20):
        ours = fasttext.probabilities(data, offsets[:-1], offsets[1:], model, cache, label)
        theirs = [min(found.get(labels[label], 0), 1) for found in expected]
        assert ours == pytest.approx(theirs, abs=0.01 if tables else 1e-5)
