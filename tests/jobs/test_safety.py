"""The README's example of the safety step: who is dropped by what, what is recorded, what other bounds would drop."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from jobs import ledger
from jobs.whatif.answer import answer
from jobs.whatif.change import Change
from tests.conftest import run_job, write_corpus
from tests.jobs.test_classifiers import write_two_labels
from tests.jobs.test_quality import prose
from tests.test_readme import blocks

GOOD, RARE, OFTEN, TOXIC = 60, 8, 6, 5


def example(folder: Path) -> dict[str, Any]:
    """Of the README, with lists and a model that exist."""
    (settings,) = [
        yaml.safe_load(code) for language, code in blocks() if language == "yaml" and "toxic" in code
    ]
    adult = folder / "adult"
    adult.mkdir()
    (adult / "domains").write_text("bad.example\n")
    (adult / "urls").write_text("example.org/3\nexample.org/4\n")
    (folder / "words").write_text("casino\n")
    (folder / "en").write_text("darn\n")
    settings["urls"] = {"domains": [str(adult)], "words": [str(folder / "words")]}
    settings["quality"]["bad_words"]["files"]["en"] = str(folder / "en")
    settings["classifiers"][0] |= {"model": str(write_two_labels(folder / "model.bin")), "label": "cc"}
    return settings


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory, cluster: str) -> Path:
    folder = tmp_path_factory.mktemp("safety")
    random = np.random.default_rng(5)
    texts = [f"{prose(random)} good good" for _ in range(GOOD)]
    texts += [f"{prose(random)} good good\nThat darn text is [1]." for _ in range(RARE)]
    texts += [f"{prose(random)} good good\nThat darn, darn, darn text of [1]." for _ in range(OFTEN)]
    texts += [f"{prose(random)}\nThe buy of buy and buy of them [1]." for _ in range(TOXIC)]
    given = [
        f"{name}={yaml.safe_dump(one, default_flow_style=True)}" for name, one in example(folder).items()
    ]
    corpus = write_corpus(folder / "in", texts)
    assert run_job(corpus, folder / "out", cluster, *given, "tokenizer.train.vocab_size=300") == 0
    return folder / "out"


def test_fates_and_records(out: Path) -> None:
    rows = ledger.read(out).compute()
    fates = rows["fate"].astype(str).value_counts().to_dict()
    kept = fates.pop("train") + fates.pop("validation")
    assert fates == {
        "urls.url": 2,
        "quality.bad_words.max_matches_per_word": OFTEN,
        "classifier.toxic": TOXIC,
    }
    assert kept == GOOD - 2 + RARE
    assert (rows["bad_words_matches"] == 1).sum() == RARE
    assert (rows["toxic_score"] > 0.5).sum() == TOXIC
    assert rows["toxic_score"].notna().sum() == GOOD - 2 + RARE + TOXIC


def test_whatif_foretells_other_bounds(out: Path) -> None:
    strict = answer(out, Change(["bad_words.max_matches=0"]), samples=0)["whole"]
    assert strict["after"]["rules"]["bad_words.max_matches"]["alone"]["documents"] == RARE + OFTEN
    assert strict["would_go"]["documents"] == strict["of_them_in_the_shards"]["documents"] == RARE
    scored = answer(out, Change(most=["toxic_score=0.3"]), samples=0)["whole"]
    assert scored["after"]["rules"]["toxic_score.max"]["alone"]["documents"] == TOXIC
    assert scored["of_them_in_the_shards"]["documents"] == 0  # the run's own bound dropped them
    scored = answer(out, Change(most=["toxic_score=0.0001"]), samples=0)["whole"]
    assert scored["of_them_in_the_shards"]["documents"] == GOOD - 2 + RARE
