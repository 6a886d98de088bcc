"""What other thresholds would remove: against runs that have them, on columns, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs import ledger
from jobs.config import Source
from jobs.errors import UserError
from jobs.ledger import STEPS
from jobs.settings.quality import MEASURING, Quality
from jobs.steps.quality import rules_of
from jobs.whatif import main
from jobs.whatif.answer import answer
from jobs.whatif.change import Change, plan
from tests.conftest import run_job, write_corpus
from tests.jobs.test_quality import SHORT, prose

ON = ["quality.enabled=true", "tokenizer.train.vocab_size=300", "language.enabled=true", "language.keep=[en]"]
CHANGED = [
    "gopher_quality.min_words=140",
    "quality.gopher_quality.max_mean_word_length=null",
    "fineweb.preset=fineweb-code",
    "additions.min_mean_line_length=60",
]
FRENCH = "Le petit chat dort dans la maison de sa grand-mère, et personne ne le dérange pendant la nuit. " * 4


def documents() -> list[str]:
    random = np.random.default_rng(0)
    good = [prose(random) for _ in range(150)]
    brief = [prose(random).rpartition("\n")[0].rpartition("\n")[0] for _ in range(60)]
    listed = [
        f"{prose(random)}\n" + "\n".join(f"- the item of that list with number {i}" for i in range(200))
        for _ in range(20)
    ]
    bad = [f"{SHORT} {i}" for i in range(20)] + [f"{prose(random)}\nHere {{ is code." for _ in range(10)]
    return [*good, *brief, *listed, *bad, *(f"{FRENCH}{i}" for i in range(15))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("whatif") / "in", documents())


@pytest.fixture(scope="module")
def judged(folder: Path, cluster: str) -> Path:
    out = folder.parent / "judged"
    assert run_job(folder, out, cluster, *ON) == 0
    return out


@pytest.fixture(scope="module")
def again(folder: Path, cluster: str) -> Path:
    """A run with the change, which the answers must foretell."""
    out = folder.parent / "again"
    order = "quality.order=[gopher_repetition, gopher_quality, additions, c4, fineweb]"
    settings = [f"quality.{setting.removeprefix('quality.')}" for setting in CHANGED]
    assert run_job(folder, out, cluster, *ON, order, *settings) == 0
    return out


def counted(out: Path) -> dict[str, dict[str, int]]:
    """Documents and bytes of each fate of the quality rules, and of what they keep."""
    rows = ledger.read(out, ["fate", "n_bytes"]).compute()
    earlier = STEPS[: STEPS.index("quality")]
    rows = rows[[fate.partition(".")[0] not in earlier for fate in rows["fate"]]]
    name = [fate if fate.startswith("quality.") else "kept" for fate in rows["fate"]]
    found = rows["n_bytes"].astype("int64").groupby(name).agg(["size", "sum"])
    return {key: {"documents": int(row["size"]), "bytes": int(row["sum"])} for key, row in found.iterrows()}


def first_drops(side: dict[str, Any]) -> dict[str, int]:
    named = {f"quality.{name}": counts["first"]["documents"] for name, counts in side["rules"].items()}
    return {name: documents for name, documents in named.items() if documents}


def test_an_answer_is_what_a_run_with_the_change_does(judged: Path, again: Path) -> None:
    found = answer(judged, Change(CHANGED), samples=0)
    assert not [note for note in found["notes"] if "report" in note]
    assert len(found["changes"]) == 8  # with the preset and its three, and the order
    for side, out in (("before", judged), ("after", again)):
        expected = {name: counts["documents"] for name, counts in counted(out).items()}
        assert found["whole"][side]["kept"]["documents"] == expected.pop("kept")
        assert first_drops(found["whole"][side]) == expected
        assert len(expected) >= 3
    assert found["whole"]["before"]["kept"]["bytes"] == counted(judged)["kept"]["bytes"]
    assert found["whole"]["after"]["kept"]["bytes"] == counted(again)["kept"]["bytes"]
    assert found["whole"]["not_judged"]["language.keep"]["documents"] == 15


@pytest.fixture(scope="module")
def bounded(folder: Path, cluster: str) -> Path:
    """A run with a threshold on a column, which comes before the quality rules."""
    out = folder.parent / "bounded"
    assert run_job(folder, out, cluster, *ON, "thresholds=[{column: score, min: 2.7, max: 4.5}]") == 0
    return out


def test_thresholds_of_columns_are_the_first_rules(judged: Path, bounded: Path) -> None:
    found = answer(judged, Change(["thresholds=[{column: score, min: 2.7, max: 4.5}]"]), samples=1)
    (change,) = found["changes"]
    assert (change["before"], change["after"]) == ("none", "score ≥ 2.7, score ≤ 4.5")
    expected = {name: counts["documents"] for name, counts in counted(bounded).items()}
    assert found["whole"]["after"]["kept"]["documents"] == expected.pop("kept")
    drops = first_drops(found["whole"]["after"])
    by_column = [drops.pop(f"quality.column.score.{bound}", 0) for bound in ("min", "max")]
    assert drops == expected
    rows = ledger.read(judged).compute()
    judged_rows = rows[~rows["fate"].astype(str).str.startswith("language")]
    assert by_column == [(judged_rows["score"] < 2.7).sum(), (judged_rows["score"] > 4.5).sum()]
    assert not [note for note in found["notes"] if "report" in note]


def test_a_threshold_that_the_run_had_is_loosened_and_tightened(bounded: Path) -> None:
    rows = ledger.read(bounded).compute()
    dropped = rows[rows["fate"] == "column.score"]
    found = answer(bounded, Change(["thresholds=[]"]), samples=0)
    assert found["whole"]["would_come_back"]["documents"] == len(dropped) > 50
    assert any("not seen by later steps" in note for note in found["notes"])
    assert "column.score" not in found["whole"]["not_judged"]
    found = answer(bounded, Change(["thresholds.0.min=3"]), samples=1)
    scores = rows["score"][~rows["fate"].astype(str).str.startswith("language")]
    rule = found["whole"]["after"]["rules"]["column.score.min"]
    assert rule["first"]["documents"] == rule["alone"]["documents"] == (scores < 3).sum()
    kept = rows[~rows["fate"].astype(str).str.startswith(("language", "quality", "column"))]
    assert found["whole"]["would_go"]["documents"] == (kept["score"] < 3).sum()
    assert found["whole"]["would_come_back"]["documents"] == 0
    assert found["whole"]["before"]["kept"]["documents"] == len(kept)
    assert all(sample["value"] < 3 for sample in found["samples"])


def test_alone_only_and_what_goes(judged: Path) -> None:
    rows = ledger.read(judged).compute()
    rows = rows[rows["gopher_quality_words"].notna()]
    middle = float(rows["gopher_quality_mean_word_length"].median())
    few = rows["gopher_quality_words"].astype(int) < 140
    long = rows["gopher_quality_mean_word_length"].astype(float) > middle
    kept = ~rows["fate"].astype(str).str.startswith("quality.")
    assert (kept & few & long).any()
    changes = ["gopher_quality.min_words=140", f"gopher_quality.max_mean_word_length={middle}"]
    found = answer(judged, Change(changes), 0)
    whole = found["whole"]
    after = whole["after"]["rules"]
    assert after["gopher_quality.min_words"]["alone"]["documents"] == few.sum()
    assert after["gopher_quality.max_mean_word_length"]["alone"]["documents"] == long.sum()
    assert after["gopher_quality.max_mean_word_length"]["only"]["documents"] == (kept & long & ~few).sum()
    only_before = whole["before"]["rules"]["gopher_quality.min_words"]["only"]["documents"]
    assert not long[rows["fate"] == "quality.gopher_quality.min_words"].any()
    only = after["gopher_quality.min_words"]["only"]["documents"]
    assert only == (kept & few & ~long).sum() + only_before > only_before
    goes = kept & (few | long)
    assert whole["would_go"]["documents"] == goes.sum()
    assert whole["of_them_in_the_shards"]["documents"] == (goes & rows["shard"].notna()).sum() > 0
    for part in ("by_source", "by_crawl"):
        assert sum(one["would_go"]["documents"] for one in found[part]) == goes.sum()
        assert sum(one["judged"]["documents"] for one in found[part]) == len(rows)
    assert len(found["by_crawl"]) == 7


def test_what_comes_back_has_estimated_tokens(judged: Path) -> None:
    whole = answer(judged, Change(["order=[]"]), 0)["whole"]
    assert whole["after"]["kept"]["documents"] == whole["judged"]["documents"]
    back = whole["would_come_back"]
    assert back["documents"] == whole["judged"]["documents"] - whole["before"]["kept"]["documents"]
    assert back["tokens"] == back["estimated_tokens"] > 0
    kept = whole["before"]["kept"]
    assert kept["estimated_tokens"] == 0
    assert back["tokens"] / back["bytes"] == pytest.approx(kept["tokens"] / kept["bytes"], rel=0.01)


def test_without_a_change_the_runs_own_rules(judged: Path) -> None:
    found = answer(judged, Change(), samples=2)
    assert found["whole"]["before"] == found["whole"]["after"]
    of_rule = [one for one in found["samples"] if one["rule"] == "gopher_quality.min_words"]
    assert len(of_rule) == 2
    assert all(one["value"] < one["threshold"] == 50 and one["excerpt"].startswith(SHORT) for one in of_rule)


def test_samples_are_of_what_would_go(judged: Path) -> None:
    (sample,) = answer(judged, Change(["gopher_quality.min_words=140"]), samples=1)["samples"]
    assert sample["statistic"] == "gopher_quality_words"
    assert 50 <= sample["value"] < sample["threshold"] == 140
    assert sample["url"].startswith("https://example.org/")
    assert sample["excerpt"].startswith("The of that")


def test_a_threshold_on_any_column_of_a_run_without_rules(finished: Path) -> None:
    rows = ledger.read(finished).compute()
    found = answer(finished, Change(least=["score=3.5"], most=["n_tokens=300"]), samples=1)
    kept = (rows["score"] >= 3.5) & (rows["n_tokens"] <= 300)
    assert found["whole"]["after"]["kept"]["documents"] == kept.sum()
    assert found["whole"]["before"]["share_kept"] == 1
    rules = found["whole"]["after"]["rules"]
    assert rules["score.min"]["alone"]["documents"] == (rows["score"] < 3.5).sum()
    assert {sample["rule"] for sample in found["samples"]} == {"score.min", "n_tokens.max"}


def test_documents_without_a_value_stay_and_are_counted(judged: Path, finished: Path) -> None:
    whole = answer(finished, Change(least=["language_score=0.5"]), 0)["whole"]
    assert whole["after"]["rules"]["language_score.min"]["documents_without_value"] == 900
    assert whole["after"]["share_kept"] == 1


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (Change(["gopher_quality.stop_words=[a]"]), "quality.gopher_quality.stop_words"),
        (Change(["c4.preset=c4"]), "quality.c4.min_words_per_line"),
        (Change(["fineweb.line_ends=."]), "quality.fineweb.line_ends"),
        (Change(["order=[c4, gopher_quality]"]), "gopher_quality were recorded of the text as it is"),
        (Change(["gopher_quality.min_word=3"]), "did you mean quality.gopher_quality.min_words"),
        (Change(["length.min_tokens=3"]), "--min n_tokens=128"),
        (Change(["enabled=false"]), "order="),
        (Change(["thresholds.0.min=3"]), "no place in a list of 0"),
        (Change(["thresholds=[{column: url, min: 3}]"]), "url is no number"),
        (Change(["thresholds=[{column: score}]"]), "has neither min nor max"),
        (Change(["min_words"]), "KEY=VALUE"),
        (Change(["bogus.preset=c4"]), "quality.bogus is not a setting"),
        (Change(least=["scores=3"]), "such as score is meant"),
        (Change(most=["url=3"]), "url is no number"),
        (Change(most=["score=high"]), "'high' is no number"),
        (Change(most=["score"]), "COLUMN=NUMBER"),
    ],
)
def test_what_cannot_be_answered_is_refused_by_name(judged: Path, change: Change, named: str) -> None:
    with pytest.raises(UserError, match=named.replace("[", r"\[")):
        answer(judged, change)


def test_rules_cannot_be_asked_about_where_nothing_was_measured(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no quality rules"):
        answer(finished, Change(["gopher_quality.min_words=3"]))
    with pytest.raises(UserError, match="no quality rules"):
        answer(finished, Change())
    with pytest.raises(UserError):
        answer(tmp_path, Change(least=["score=1"]))


def test_every_setting_is_a_threshold_or_known_to_change_what_is_measured() -> None:
    quality = Quality(enabled=True)
    for group, measuring in MEASURING.items():
        section = type(getattr(quality, group))
        others = set(section.model_fields) - set(measuring) - {"preset", "inclusive"}
        everything: dict[str, object] = {name: 1 for name in others if name.startswith(("min_", "max_"))}
        everything |= {"files": {"en": "list"}} if group == "bad_words" else {}
        on = Quality.model_validate({"enabled": True, "order": [group], group: everything})
        assert {rule.name for rule in rules_of(on)} == {f"{group}.{name}" for name in others}


def test_the_command(judged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(judged), "--set", "gopher_quality.min_words=140", "--min", "score=3"]
    assert main([*arguments, "--samples", "1", "--json", str(tmp_path / "what.json")]) == 0
    shown = capsys.readouterr().out
    found = json.loads((tmp_path / "what.json").read_text())
    assert "web: gopher_quality.min_words 50 → 140" in shown
    assert "score ≥ 3" in shown
    assert f"would keep {100 * found['whole']['after']['share_kept']:.1f} %" in shown
    assert found["samples"][0]["excerpt"] in shown
    assert main([str(judged), "--set", "gopher_quality.min_words=null", "--samples", "0"]) == 0
    assert "web: gopher_quality.min_words 50 → off" in capsys.readouterr().out
    assert main([str(judged), "--min", "nothing=3"]) == 2


def test_a_source_without_rules_is_named_and_has_thresholds_only() -> None:
    web = Source(name="web", path="x", quality=Quality(enabled=True))
    schema = ledger.schema(ledger.extra_columns([web]))
    change = Change(["gopher_quality.min_words=9"], least=["score=3"])
    planned = plan([web, Source(name="books", path="x")], schema, change)
    assert [rule.name for rule in planned.rules["books"].after] == ["score.min"]
    assert planned.rules["books"].before == ()
    assert planned.rules["web"].changes == (("gopher_quality.min_words", 50, 9),)
    assert ["books" in note for note in planned.notes] == [True]
