"""Scores of models, thresholds on them and on columns that came with the documents."""

import json
import struct
from pathlib import Path

import fasttext
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs import ledger, steps
from jobs.config import Config, Source, Threshold, load
from jobs.errors import UserError
from jobs.models import KINDS, kind_of, linear
from jobs.runtime.console import Console
from jobs.settings.classifiers import Classifier
from jobs.sources.batches import Batch
from jobs.steps import classifiers, language, thresholds
from jobs.verify import verify
from kernels.ngram_features import Grams
from tests.conftest import corpus_texts, digests, run_job, write_corpus

LID = language.model_path(None)
GOOD, BAD = "A good and useful sentence about trees.", "buy buy cheap cheap buy"


def write_two_labels(path: Path) -> Path:
    """A model of three words in one dimension: `good` speaks for `hq`, `buy` against it, softmax over both labels."""
    settings = (1, 5, 5, 1, 5, 1, 3, 3, 0, 0, 0, 100, 1e-4)
    words = [("</s>", 0), ("good", 0), ("buy", 0), ("__label__cc", 1), ("__label__hq", 1)]
    path.write_bytes(
        struct.pack("<2i", 793712314, 12)
        + struct.pack("<12id", *settings)
        + struct.pack("<3i2q", 5, 3, 2, 3, -1)
        + b"".join(word.encode() + b"\0" + struct.pack("<qb", 1, kind) for word, kind in words)
        + struct.pack("<?2q", False, 3, 1)
        + np.array([0, 6, -6], "<f4").tobytes()
        + struct.pack("<?2q", False, 2, 1)
        + np.array([-1, 1], "<f4").tobytes()
    )
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_two_labels(tmp_path_factory.mktemp("model") / "hq.bin")


def fast(model: Path | str, label: str = "hq", **more: object) -> Classifier:
    return Classifier.model_validate(
        {"name": "hq", "kind": "fasttext", "model": str(model), "label": label, **more}
    )


def text(*documents: str | None) -> pa.LargeStringArray:
    return pa.array(documents, pa.large_string())


def scores(settings: Classifier, *documents: str | None) -> list[float]:
    found = kind_of(settings).load(settings).score(text(*documents))
    assert found.dtype == np.float64
    return found.tolist()


# ---------------------------------------------------------------- fastText


def test_the_score_is_the_softmax_of_the_models_own_matrices(model: Path) -> None:
    """The mean of the vectors of `good` or `buy` and of the end of the line, times the output."""
    expected = [1 / (1 + np.exp(-2 * mean)) for mean in (6 / 2, -6 / 2, (6 - 6) / 3, 0)]
    documents = ["good", "buy", "good\nbuy", "nothing known"]
    assert scores(fast(model), *documents) == pytest.approx(expected, abs=1e-4)
    assert scores(fast(model, "__label__hq"), *documents) == scores(fast(model), *documents)
    both = np.add(scores(fast(model), *documents), scores(fast(model, "cc"), *documents))
    assert both == pytest.approx(1, abs=1e-4)


def test_the_score_is_what_fasttext_says_of_the_label() -> None:
    documents = [
        GOOD,
        "Das ist ein deutscher Satz.",
        "Ein Satz\nin two languages\r\n",
        "日本語",
        "x",
        "</s> a",
    ]
    referee = fasttext.load_model(LID)
    for document, score in zip(documents, scores(fast(LID, "en"), *documents), strict=True):
        labels, found = referee.predict(document.replace("\n", " "), k=-1)
        expected = min(dict(zip(labels, found, strict=True)).get("__label__en", 0), 1)
        assert score == pytest.approx(expected, abs=1e-5)


def test_texts_without_a_visible_character_have_a_score_too(model: Path) -> None:
    assert scores(fast(model), "", " \n\t", "\0", "\u3000", None) == [0] * 5
    assert scores(fast(model)) == []


def test_bounds_are_kept_and_hold_for_the_score_in_the_column(model: Path) -> None:
    documents = text("good", "buy", "nothing", " ")
    columns, _ = classifiers.classified(documents, fast(model))
    low, high = columns["hq_score"][1].as_py(), columns["hq_score"][2].as_py()
    settings = fast(model, min_score=low, max_score=high)
    again, fate = classifiers.classified(documents, settings)
    assert again == columns
    assert fate.to_pylist() == ["classifier.hq", None, None, "classifier.hq"]
    none = classifiers.classified(documents, fast(model))[1]
    assert none.null_count == 4


def test_a_classifier_sees_what_earlier_steps_left(model: Path) -> None:
    first = fast(model, min_score=0.5)
    second = fast(LID, "en").model_copy(update={"name": "english"})
    source = Source(name="web", path="x", classifiers=(first, second))
    found = steps.documents("a", Batch.checked(0, text(None, "good", "buy", ""), {}), source)
    assert found.fate.to_pylist() == ["input.null_text", None, "classifier.hq", "input.empty_text"]
    assert found.columns["hq_score"].is_valid().to_pylist() == [False, True, True, False]
    assert found.columns["english_score"].is_valid().to_pylist() == [False, True, False, False]


def test_batches_change_nothing(model: Path) -> None:
    documents = [GOOD, "good buy", "", BAD, "x"] * 3
    whole = scores(fast(LID, "en"), *documents)
    assert whole == [score for document in documents for score in scores(fast(LID, "en"), document)]


def refused(settings: Classifier) -> str:
    with pytest.raises(UserError) as caught:
        classifiers.check([settings])
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_models_and_labels_that_cannot_be_used_are_refused(tmp_path: Path, model: Path) -> None:
    said = refused(fast(model, "good"))
    assert said == f"classifier 'hq': label is 'good', but {model} has the labels cc, hq"
    assert "has the labels" in refused(fast(LID, "hq"))
    assert "and 166 more" in refused(fast(LID, "hq"))
    assert "no such file" in refused(fast(tmp_path / "absent.bin"))
    assert "is no file" in refused(fast(tmp_path))
    (tmp_path / "a.bin").write_text("no model")
    assert "is no fastText model; name a supervised model" in refused(fast(tmp_path / "a.bin"))
    (tmp_path / "b.bin").write_bytes(model.read_bytes()[:-1])
    assert "truncated" in refused(fast(tmp_path / "b.bin"))
    classifiers.check([fast(model)])


def test_bounds_that_no_probability_can_meet_are_refused(tmp_path: Path, model: Path) -> None:
    said = "classifier 'hq': min_score is 2, but the scores are probabilities, from 0 to 1; nothing would be kept"
    assert refused(fast(model, min_score=2)) == said
    assert "max_score is -0.1" in refused(fast(model, max_score=-0.1))
    classifiers.check([fast(model, min_score=1), fast(model, min_score=-1, max_score=0)])
    for curve in (None, (1.0, 0.0)):
        trained = linear.Model(np.zeros(4, np.float32), Grams(2, 2), 0.0, curve)
        trained.save(tmp_path / "model.npz")
        graded = Classifier(name="hq", kind="linear", model=str(tmp_path / "model.npz"), min_score=2.5)
        if curve is None:
            classifiers.check([graded])
        else:
            assert "min_score is 2.5" in refused(graded)


def test_the_fingerprint_covers_the_label_the_bounds_and_the_models_content(
    tmp_path: Path, model: Path
) -> None:
    here = classifiers.identity([fast(model)])
    copy = tmp_path / "copy.bin"
    copy.write_bytes(model.read_bytes())
    assert classifiers.identity([fast(copy, "__label__hq")]) == here
    assert classifiers.identity([fast(model, "cc")]) != here
    assert classifiers.identity([fast(model, min_score=0.1)]) != here
    copy.write_bytes(model.read_bytes()[:-1] + b"\x40")
    assert classifiers.identity([fast(copy)]) != here
    assert json.dumps(here)


# ---------------------------------------------------------------- settings


ENTRY = {"name": "hq", "kind": "fasttext", "model": "m.bin", "label": "hq"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "oracle"}, "kind is 'oracle'; known are fasttext, linear, embeddings, ngram, kenlm"),
        ({"label": None}, "a classifier of kind fasttext needs label"),
        ({"head": "h"}, "head has no meaning for a classifier of kind fasttext"),
        ({"kind": "embeddings"}, "label has no meaning for a classifier of kind embeddings"),
        ({"min_score": 2, "max_score": 1}, "nothing would be kept"),
        ({"min_score": float("nan")}, "finite number"),
        ({"name": "language"}, "'language_score', which the ledger has already"),
        ({"name": "mine"}, "'mine_score', which the ledger has already"),
        ({"name": "a b"}, "name is 'a b'"),
        ({"lable": "x"}, "did you mean sources.0.classifiers.0.label"),
    ],
)
def test_settings_without_sense_are_refused(change: dict[str, object], said: str) -> None:
    source = {"name": "web", "path": "x", "extra": {"mine_score": "float64"}, "classifiers": [ENTRY | change]}
    with pytest.raises(UserError, match=said):
        load("sample", [f"sources={json.dumps([source])}"])


def test_two_classifiers_fill_two_columns() -> None:
    embeddings = {"name": "a", "kind": "embeddings", "model": "m"}
    with pytest.raises(UserError, match="two classifiers would fill the column 'hq_score'"):
        load("sample", [f"classifiers={json.dumps([ENTRY, ENTRY])}"])
    with pytest.raises(UserError, match="two classifiers would fill the column 'a_int_score'"):
        load("sample", [f"classifiers={json.dumps([ENTRY | {'name': 'a_int'}, embeddings])}"])
    other = {"name": "web", "path": "x", "classifiers": [ENTRY | {"name": "a_int"}]}
    sources = [other | {"name": "x", "classifiers": [embeddings]}, other]
    with pytest.raises(UserError, match="'a_int_score' the types int64 and float64"):
        load("sample", [f"sources={json.dumps(sources)}"])


def test_a_source_inherits_the_list_of_the_whole_run_or_has_its_own() -> None:
    own = ENTRY | {"name": "own"}
    sources = [
        {"name": "a", "path": "x"},
        {"name": "b", "path": "x", "classifiers": [own], "thresholds": []},
        {"name": "c", "path": "x", "classifiers": []},
    ]
    raw = {"sources": sources, "classifiers": [ENTRY], "thresholds": [{"column": "score", "min": 3}]}
    config = Config.model_validate(raw)
    assert [[one.name for one in source.classifiers] for source in config.sources] == [["hq"], ["own"], []]
    assert [len(source.thresholds) for source in config.sources] == [1, 0, 1]
    assert ("own_score", pa.float64()) in ledger.extra_columns(config.sources)
    assert Path(config.sources[0].resolved(Path("out")).classifiers[0].model).is_absolute()


def test_every_kind_is_a_module_with_settings_that_exist() -> None:
    for name, kind in KINDS.items():
        assert {*kind.required, *kind.optional} <= set(Classifier.model_fields), name


# ---------------------------------------------------------------- thresholds on columns


def test_numbers_out_of_bounds_and_missing_ones_are_dropped() -> None:
    values = pa.array([3.5, 3.49, None, float("nan"), 5.0, 5.01, float("inf")])
    found = thresholds.fates({"score": values}, 7, Threshold(column="score", min=3.5, max=5))
    low, missing = "column.score", "column.score.missing"
    assert found.to_pylist() == [None, low, missing, missing, None, low, low]
    words = pa.array(["4", "3", "x", "", "3.5", None, "-"], pa.string())
    found = thresholds.fates({"score": words}, 7, Threshold(column="score", min=3.5))
    assert found.to_pylist() == [None, low, missing, missing, None, missing, missing]
    assert thresholds.fates({}, 2, Threshold(column="score", max=1)).to_pylist() == [missing] * 2


def test_a_threshold_comes_before_the_text_is_looked_at() -> None:
    source = Source(
        name="web", path="x", content="html", thresholds=(Threshold(column="n", min=2),), extra={"n": "int64"}
    )
    batch = Batch.checked(0, text("<p>a</p>", "<p>b</p>", None), {"n": pa.array([1, 2, 1])})
    found = steps.documents("a", batch, source)
    assert found.fate.to_pylist()[::2] == ["column.n", "input.null_text"]
    assert found.pages == 1


@pytest.mark.parametrize(
    ("threshold", "said"),
    [
        (
            {"column": "url", "min": 1},
            "thresholds names column 'url'; it can be score, language_score, n, or",
        ),
        ({"column": "score"}, "has neither min nor max"),
        ({"column": "score", "min": 2, "max": 1}, "nothing would be kept"),
    ],
)
def test_thresholds_without_sense_are_refused(threshold: dict[str, object], said: str) -> None:
    source = {"name": "web", "path": "x", "extra": {"n": "int64"}, "thresholds": [threshold]}
    with pytest.raises(UserError, match=said):
        load("sample", [f"sources={json.dumps([source])}"])


# ---------------------------------------------------------------- the main job


def test_main_job_scores_drops_and_counts(cluster: str, tmp_path: Path, model: Path) -> None:
    texts = corpus_texts(240)
    marked = [f"{one} {'buy ' * 40 if i % 4 == 0 else 'good'}" for i, one in enumerate(texts)]
    folder = write_corpus(tmp_path / "in", marked)
    entries = [ENTRY | {"model": str(model), "min_score": 0.4}]
    settings = [
        f"classifiers={json.dumps(entries)}",
        "thresholds=[{column: score, min: 2.6}]",
        "tokenizer.train.vocab_size=300",
    ]
    outs = [tmp_path / "one", tmp_path / "two"]
    for out, size in zip(outs, ("1 kB", "10 MB"), strict=True):
        assert run_job(folder, out, cluster, *settings, f"splits.bytes={size}") == 0
    assert digests(outs[0]) == digests(outs[1])
    rows = ledger.read(outs[0]).compute()
    low = rows["score"] < 2.6
    assert (rows["fate"] == "column.score").tolist() == low.tolist()
    assert rows["hq_score"].isna().tolist() == low.tolist()
    given = scores(fast(model), *marked)
    assert rows["hq_score"][~low].tolist() == [given[i] for i in np.flatnonzero(~low)]
    assert (rows["fate"] == "classifier.hq").sum() == (rows["hq_score"] < 0.4).sum() > 20
    funnel = json.loads((outs[0] / "report" / "report.json").read_text())["funnel"]
    seen = [row["step"] for row in funnel]
    assert seen.index("column.score") < seen.index("classifier.hq") < seen.index("kept")
    assert not verify(outs[0], Console())


def test_main_job_refuses_before_any_work(
    cluster: str, tmp_path: Path, corpus: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = json.dumps([ENTRY | {"model": str(model), "label": "good"}])
    out = tmp_path / "out"
    assert run_job(corpus, out, cluster, f"classifiers={entry}") == 2
    assert "has the labels cc, hq" in capsys.readouterr().err
    pq.write_table(pa.table({"text": [GOOD] * 9}), tmp_path / "a.parquet")
    rule = "thresholds=[{column: score, min: 1}]"
    assert run_job(tmp_path / "a.parquet", out, cluster, rule) == 2
    assert "thresholds names column 'score', but no file has it" in capsys.readouterr().err
    assert not (out / "annotate").exists()


def test_only_workers_with_a_gpu_take_what_asks_for_one(
    cluster: str,
    tmp_path: Path,
    corpus: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A cluster without one is told so before any work."""
    monkeypatch.setattr("jobs.steps.classifiers.check", lambda _: None)
    entry = {"name": "edu", "kind": "embeddings", "model": "m", "device": "cuda"}
    out = tmp_path / "out"
    assert run_job(corpus, out, cluster, f"classifiers={json.dumps([entry])}") == 2
    assert "no worker has the resource GPU" in capsys.readouterr().err
    assert not (out / "inventory").exists()
