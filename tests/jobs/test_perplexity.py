"""Perplexity of documents: our own n-gram models, KenLM's, buckets, and the command that trains."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs import steps, train_perplexity
from jobs.config import Source, load
from jobs.errors import UserError
from jobs.models import kenlm as kenlm_kind
from jobs.models import ngram
from jobs.settings.classifiers import Classifier
from jobs.sources.batches import Batch
from jobs.steps import classifiers
from tests import naive
from tests.conftest import corpus_texts, digests, run_job, write_corpus


def text(*documents: str | None) -> pa.LargeStringArray:
    return pa.array(documents, pa.large_string())


def texts(documents: int = 300) -> list[str]:
    """Of several lines, some of them without a word."""
    made = enumerate(corpus_texts(documents, seed=3))
    return [f"{one[:90]}\n\n- {one[90:200]} {i % 7} 19{i % 90 + 10}" for i, one in made]


def write(path: Path, documents: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": one}) + "\n" for one in documents), encoding="utf-8")
    return path


def train(data: Path, out: Path, *extra: str) -> dict[str, Any]:
    options = ["--data", str(data), "--output", str(out), "--held-out", "0.2", *extra]
    assert train_perplexity.main(options) == 0
    return json.loads((out / "manifest.json").read_text())  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ngram")
    train(write(folder / "a.jsonl", texts()), folder / "out", "--arpa", "--min-count", "3")
    return folder / "out"


def classifier(kind: str, model: Path | str, **more: object) -> Classifier:
    return Classifier.model_validate({"name": "wiki", "kind": kind, "model": str(model), **more})


# ---------------------------------------------------------------- our own models


def test_scores_are_perplexities_of_words_and_lines(trained: Path) -> None:
    """Against the definition: the model that was trained on all texts but those held out."""
    documents, settings = texts(), train_perplexity.Settings(min_count=3, held_out=0.2)
    corpus = train_perplexity.read(str(trained.parent / "a.jsonl"), "text", settings)
    held_out = set(corpus.held_out.to_pylist())
    sentences = [line for one in documents if one not in held_out for line in naive.line_words(one)]
    words = [word for line in sentences for word in line]
    referee = naive.KneserNey(sentences, 3, {word for word in set(words) if words.count(word) >= 3})
    asked = [*sorted(held_out)[:6], "Nothing of this, known.", "shamta ri\nta"]
    found = ngram.load(classifier("ngram", trained)).score(text(*asked))
    for document, score in zip(asked, found, strict=True):
        lines = naive.line_words(document)
        log10 = sum(map(referee.log10, lines))
        assert score == pytest.approx(
            10 ** (-log10 / sum(len(line) + 1 for line in lines)), rel=1e-4, abs=0.006
        )


def test_the_manifest_says_what_was_held_out(trained: Path) -> None:
    manifest = json.loads((trained / "manifest.json").read_text())
    model, figures = ngram.load(classifier("ngram", trained)), manifest["figures"]
    settings = train_perplexity.Settings(min_count=3, held_out=0.2)
    held_out = train_perplexity.read(str(trained.parent / "a.jsonl"), "text", settings).held_out
    assert manifest["documents"]["held_out"] == len(held_out)
    assert 40 < len(held_out) < 80
    scores = model.score(held_out)
    assert model.percentiles == tuple(figures["percentiles"])
    np.testing.assert_allclose(model.percentiles, np.percentile(scores, [33, 66]), atol=0.01)
    assert figures["held_out"]["percentiles"]["50"] == pytest.approx(np.median(scores), abs=0.01)
    low, high = scores.min(), scores.max()
    assert low < figures["held_out"]["perplexity"] < high


def test_what_is_usual_has_the_lower_perplexity(trained: Path) -> None:
    usual = texts()[0]
    shuffled = " ".join(np.random.default_rng(0).permutation(usual.split()))
    a, b, c = ngram.load(classifier("ngram", trained)).score(text(usual, shuffled, "qwx zzv " * 20))
    assert a < b < c


def test_documents_without_words_have_a_finite_perplexity_too(trained: Path) -> None:
    model = ngram.load(classifier("ngram", trained))
    found = model.score(text("", None, " \n.\n", "東京", "a" * 5000))
    assert np.isfinite(found).all()
    assert found[0] == found[1] == found[2]
    assert model.score(text()).tolist() == []


def test_order_and_files_do_not_show(tmp_path: Path, trained: Path) -> None:
    documents = texts()
    shuffled = [documents[i] for i in np.random.default_rng(0).permutation(len(documents))]
    (tmp_path / "many").mkdir()
    for i in range(3):
        table = pa.table({"text": [*shuffled[i::3], None, "", documents[0]]})
        pq.write_table(table, tmp_path / "many" / f"{i}.parquet", row_group_size=17)
    manifest = train(tmp_path / "many", tmp_path / "out", "--min-count", "3")
    counts = manifest["documents"]
    assert (counts["documents"], counts["without_text"], counts["repeated"]) == (309, 6, 3)
    assert (tmp_path / "out/model.npz").read_bytes() == (trained / "model.npz").read_bytes()
    train(write(tmp_path / "b.jsonl", documents[1:]), tmp_path / "other", "--min-count", "3")
    assert (tmp_path / "other/model.npz").read_bytes() != (trained / "model.npz").read_bytes()


@pytest.mark.parametrize(
    ("documents", "extra", "said"),
    [
        (["a", "b"], (), "has 2 different texts, of which"),
        (texts(20), ("--text", "body"), "body"),
        (["a"], ("--order", "7"), "--order is 7; it should be from 2 to 6"),
        (["a"], ("--min-count", "0"), "--min-count is 0; it should be at least 1"),
        (["a"], ("--held-out", "1"), "--held-out is 1.0; it should be above 0 and below 1"),
        (["a"], ("--percentiles", "66", "33"), "two numbers that rise"),
        (["a"], ("--seed", "-1"), "--seed is -1; it should be at least 0"),
    ],
)
def test_mistakes_are_one_sentence(
    documents: list[str],
    extra: tuple[str, ...],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = write(tmp_path / "a.jsonl", documents)
    assert train_perplexity.main(["--data", str(data), "--output", str(tmp_path / "out"), *extra]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out" / "model.npz").exists()


def refused(settings: Classifier) -> str:
    with pytest.raises(UserError) as caught:
        classifiers.check([settings])
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_models_that_cannot_be_used_are_refused(tmp_path: Path, trained: Path) -> None:
    assert "no such file" in refused(classifier("ngram", tmp_path / "absent"))
    whole = (trained / "model.npz").read_bytes()
    with np.load(trained / "model.npz") as arrays:
        content = dict(arrays)
    broken = {
        "short": {"words": content["words"][:-4]},
        "beyond": {"last_2": content["last_2"] + np.uint32(10**6)},
        "prefix": {"prefix_3": content["prefix_3"] + np.uint32(10**6)},
        "twice": {"last_2": content["last_2"] * np.uint32(0), "prefix_2": content["prefix_2"] * np.uint32(0)},
        "nan": {"log_probs_1": content["log_probs_1"] * np.float32("nan")},
        "length": {"backoffs_3": content["backoffs_3"][:-1]},
        "kind": {"settings": np.array(json.dumps({"kind": "x"}))},
    }
    for name, change in broken.items():
        np.savez(tmp_path / f"{name}.npz", **(content | change))
        assert "which is no whole model of python -m" in refused(
            classifier("ngram", tmp_path / f"{name}.npz")
        )
    for i, some in enumerate((b"", b"text", whole[:-100])):
        (tmp_path / f"{i}.npz").write_bytes(some)
        assert "which is no whole model of python -m" in refused(classifier("ngram", tmp_path / f"{i}.npz"))
    classifiers.check([classifier("ngram", trained), classifier("ngram", trained / "model.npz")])


# ---------------------------------------------------------------- buckets and settings


def test_buckets_are_those_of_ccnet(trained: Path) -> None:
    found = classifiers.buckets(np.array([1.0, 29.9, 30.0, 59.9, 60.0, 1e9]), (30.0, 60.0))
    assert found.to_pylist() == ["head", "head", "middle", "middle", "tail", "tail"]
    documents = text(*texts()[:60])
    columns, _ = classifiers.classified(documents, classifier("ngram", trained))
    low, high = ngram.load(classifier("ngram", trained)).percentiles
    scores = np.asarray(columns["wiki_score"])
    assert columns["wiki_bucket"] == classifiers.buckets(scores, (low, high))
    own = classifier("ngram", trained, percentiles=[1e8, 1e9])
    assert set(classifiers.classified(documents, own)[0]["wiki_bucket"].to_pylist()) == {"head"}
    assert classifiers.identity([own]) != classifiers.identity([classifier("ngram", trained)])


def test_columns_are_known_before_any_work() -> None:
    assert classifier("ngram", "m").columns == {"wiki_score": "float64", "wiki_bucket": "string"}
    assert classifier("kenlm", "m").columns == {"wiki_score": "float64"}
    with_buckets = classifier("kenlm", "m", percentiles=[10, 20])
    assert with_buckets.columns == {"wiki_score": "float64", "wiki_bucket": "string"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"percentiles": [2, 1]}, "the second should not be the smaller"),
        ({"percentiles": [0, 1]}, "greater than 0"),
        ({"percentiles": [1]}, "percentiles"),
        ({"sentencepiece": "x"}, "sentencepiece has no meaning for a classifier of kind ngram"),
        ({"kind": "linear", "percentiles": [1, 2]}, "percentiles has no meaning for a classifier of kind linear"),
    ],
)  # fmt: skip
def test_settings_without_sense_are_refused(change: dict[str, object], said: str) -> None:
    entry = {"name": "wiki", "kind": "ngram", "model": "m", **change}
    source = {"name": "web", "path": "x", "classifiers": [entry]}
    with pytest.raises(UserError, match=said):
        load("sample", [f"sources={json.dumps([source])}"])


def test_a_bound_drops_what_is_unusual(trained: Path) -> None:
    usual, unusual = texts()[0], "qwx zzv " * 20
    low, high = ngram.load(classifier("ngram", trained)).score(text(usual, unusual))
    mine = {"name": "wiki", "kind": "ngram", "model": str(trained), "max_score": (low + high) / 2}
    source = Source.model_validate({"name": "web", "path": "x", "classifiers": [mine]})
    steps.check(source)
    found = steps.documents("a", Batch.checked(0, text(usual, unusual), {}), source)
    assert found.fate.to_pylist() == [None, "classifier.wiki"]
    assert found.columns["wiki_bucket"].to_pylist()[1] == "tail"


def test_main_job_has_the_buckets_in_its_ledger(cluster: str, tmp_path: Path, trained: Path) -> None:
    from jobs import ledger

    documents = corpus_texts(120, seed=5)
    folder = write_corpus(tmp_path / "in", documents)
    settings = [
        f"classifiers={json.dumps([{'name': 'wiki', 'kind': 'ngram', 'model': str(trained)}])}",
        "tokenizer.train.vocab_size=300",
    ]
    outs = [tmp_path / "one", tmp_path / "two"]
    for out, size in zip(outs, ("1 kB", "10 MB"), strict=True):
        assert run_job(folder, out, cluster, *settings, f"splits.bytes={size}") == 0
    assert digests(outs[0]) == digests(outs[1])
    rows = ledger.read(outs[0]).compute()
    expected = ngram.load(classifier("ngram", trained)).score(text(*documents))
    assert sorted(rows["wiki_score"]) == sorted(expected)
    assert set(rows["wiki_bucket"]) <= {"head", "middle", "tail"}


# ---------------------------------------------------------------- KenLM


def test_without_the_package_a_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m.arpa").write_text("")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    said = refused(classifier("kenlm", tmp_path / "m.arpa"))
    assert said == (
        "classifier 'wiki': kind: a classifier of kind kenlm needs the package kenlm here: "
        "pip install 'shardmill[perplexity]'"
    )


def test_normalisation_is_that_of_ccnet() -> None:
    given = "  Ärger “in” Łódź—1984…\n\tnaïve\x00 ３\u0301 《東京》。 "
    assert kenlm_kind.normalised(given) == 'arger "in" łodz - 0000...naive 0 "東京".'
    assert kenlm_kind.normalised(" \n") == ""


def test_kenlm_reads_our_arpa_and_gives_the_same_scores(trained: Path) -> None:
    kenlm = pytest.importorskip("kenlm")
    theirs = kenlm.Model(str(trained / "model.arpa"))
    ours = ngram.load(classifier("ngram", trained))
    lines = [" ".join(line) for one in texts() for line in naive.line_words(one)]
    lines += ["", "shamta zz ri", "zz", "zz qq zz"]
    found, n_tokens, _ = ours.log_probabilities(text(*lines))
    expected = [theirs.score(line) for line in lines]
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-5)
    assert n_tokens.tolist() == [len(line.split()) + 1 for line in lines]


def test_kenlm_scores_line_by_line(trained: Path) -> None:
    kenlm = pytest.importorskip("kenlm")
    settings = classifier("kenlm", trained / "model.arpa", percentiles=[50, 5000])
    theirs = kenlm.Model(str(trained / "model.arpa"))
    document = "Shamta ri, 12\n\nÉta"
    lines = ["shamta ri, 00", "", "eta"]
    log10 = sum(theirs.score(line) for line in lines)
    expected = 10 ** (-log10 / (3 + 0 + 1 + 3))
    columns, _ = classifiers.classified(text(document, "", None), settings)
    scores = columns["wiki_score"].to_pylist()
    assert scores[0] == pytest.approx(expected, abs=0.01)
    assert scores[1] == scores[2] == pytest.approx(10 ** -theirs.score(""), abs=0.01)
    assert len(columns["wiki_bucket"]) == 3
    assert classifiers.identity([settings])[0]["versions"].keys() == {"kenlm"}


def test_kenlm_scores_pieces_of_the_whole_document(tmp_path: Path) -> None:
    kenlm = pytest.importorskip("kenlm")
    sentencepiece = pytest.importorskip("sentencepiece")
    write(tmp_path / "a.jsonl", texts())
    (tmp_path / "a.txt").write_text("\n".join(kenlm_kind.normalised(one) for one in texts()))
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "a.txt"), model_prefix=str(tmp_path / "sp"), vocab_size=120, minloglevel=2
    )
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "sp.model"))
    model = tmp_path / "pieces.arpa"  # KenLM takes no model without bigrams
    vocabulary = ["<unk>", "<s>", "</s>", *(f"{pieces.id_to_piece(i)}" for i in range(3, 120))]
    weights = np.linspace(-3, -1, len(vocabulary))
    grams = "".join(f"{weight:.4f}\t{word}\t-0.1\n" for weight, word in zip(weights, vocabulary, strict=True))
    model.write_text(f"\\data\\\nngram 1={len(vocabulary)}\nngram 2=1\n\n\\1-grams:\n{grams}\n"
                     f"\\2-grams:\n-0.5\t<s> {vocabulary[5]}\n\n\\end\\\n")  # fmt: skip
    settings = classifier("kenlm", model, sentencepiece=str(tmp_path / "sp.model"))
    document = texts()[1] + "\nLast Line!"
    cut = pieces.encode(kenlm_kind.normalised(document), out_type=str)
    expected = 10 ** (-kenlm.Model(str(model)).score(" ".join(cut)) / (len(cut) + 1))
    classifiers.check([settings])
    (score,) = classifiers.classified(text(document), settings)[0]["wiki_score"].to_pylist()
    assert math.isclose(score, expected, abs_tol=0.01)
    assert classifiers.identity([settings]) != classifiers.identity([classifier("kenlm", model)])
    (tmp_path / "no.model").write_bytes(b"no model")
    said = refused(classifier("kenlm", model, sentencepiece=str(tmp_path / "no.model")))
    assert "no.model', which is no model that SentencePiece can read" in said
    assert "no such file" in refused(classifier("kenlm", model, sentencepiece=str(tmp_path / "absent")))


def test_kenlm_models_that_cannot_be_used_are_refused(tmp_path: Path, trained: Path) -> None:
    pytest.importorskip("kenlm")
    assert "no such file" in refused(classifier("kenlm", tmp_path / "absent.bin"))
    assert "is no file; name an .arpa or .bin" in refused(classifier("kenlm", tmp_path))
    for i, content in enumerate((b"", b"no model\n", (trained / "model.arpa").read_bytes()[:-2000])):
        (tmp_path / f"{i}.arpa").write_bytes(content)
        said = refused(classifier("kenlm", tmp_path / f"{i}.arpa"))
        assert said.endswith("which is no .arpa or .bin that KenLM can read")
