"""The S-curve check holds for our hash functions, and fails for the seed's broken ones."""

import json
from pathlib import Path

import dask
import numpy as np
import pandas as pd
import pytest

from jobs import scurve, trace
from jobs.runtime.console import Console
from jobs.runtime.context import Run
from tests.conftest import corpus_texts

EXPERIMENT = scurve.Experiment(
    copies=20, max_replaced=0.12, seed=0, ngram=5, hashes=112, bands=14, rows=8, hash_seed=42
)


def measured(documents: int, family: scurve.Family) -> dict[str, object]:
    experiment = scurve.Experiment(**{**EXPERIMENT.__dict__, "family": family})
    texts = [text for text in corpus_texts(documents * 3, seed=9) if len(text.split()) > 60][:documents]
    vocabulary = sorted({word for text in texts for word in text.lower().replace(".", "").split()})
    pairs = [scurve.measure_copies((i, text), experiment, vocabulary) for i, text in enumerate(texts)]
    return scurve.judge(pd.concat(pairs), experiment)


def test_ours_agrees_with_the_formula() -> None:
    found = measured(150, "mix64")
    assert found["pairs"] == 3000
    assert found["agrees"]
    assert len(found["bins"]) >= 8  # type: ignore[arg-type]


def test_the_seeds_broken_family_fails() -> None:
    found = measured(150, "narrow")
    assert not found["agrees"]
    assert not found["every_bin_within_its_interval"]


def test_a_bin_off_by_a_tenth_fails() -> None:
    random = np.random.default_rng(0)
    similarity = random.uniform(0.6, 0.9, 4000)
    chance = EXPERIMENT.expected(similarity)
    for shift, agrees in ((0.0, True), (0.1, False)):
        flagged = random.random(4000) < np.clip(chance + shift, 0, 1)
        pairs = pd.DataFrame({"document": np.arange(4000) // 4, "similarity": similarity, "flagged": flagged})
        assert scurve.judge(pairs, EXPERIMENT)["agrees"] == agrees


def test_command_on_a_finished_run(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(finished), "--documents", "250", "--workers", "2", "--output"]
    assert scurve.main([*arguments, str(tmp_path / "good")]) == 0
    assert "agrees with 1 - (1 - s^8)^14" in capsys.readouterr().out
    assert scurve.main([*arguments, str(tmp_path / "bad"), "--hash-family", "narrow"]) == 1
    assert "does NOT agree" in capsys.readouterr().out
    figures = json.loads((tmp_path / "good" / "scurve.json").read_text())
    assert figures["pairs"] == 5000
    for suffix in ("png", "svg"):
        assert (tmp_path / "good" / f"scurve.{suffix}").stat().st_size > 5000


def test_no_documents_is_no_failure(tmp_path: Path) -> None:
    found = scurve.judge(scurve.PAIRS, EXPERIMENT)
    assert found["pairs"] == 0
    assert not found["agrees"]
    scurve.plot(found, EXPERIMENT, tmp_path)


def test_texts_do_not_go_through_the_scheduler(
    finished: Path, cluster: str, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    with Run(trace.configuration(finished), finished, Console(), cluster) as run:
        assert run.client  # connecting reads Dask's configuration anew
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "200 KB"}):
            found = scurve.measure(run, 600, scurve.experiment_of(run, copies=1), tmp_path)
    assert found["documents"] > 500
    assert not [warning for warning in recwarn if "large graph" in str(warning.message)]
