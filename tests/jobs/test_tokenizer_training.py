"""Training a tokenizer: the same bytes from the same sample, and what it holds."""

import argparse
import inspect
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.tokens import definition, training
from jobs.tokens.encoder import Encoder, Spec, load
from tests.conftest import ROOT

END = "<|endoftext|>"
SAMPLE = [
    text
    for module in (argparse, json, tokenizers)
    for text in inspect.getsource(module).split("\n\n")
    if text
]


@pytest.fixture(scope="module")
def trained() -> str:
    return training.train(iter([SAMPLE]), vocab_size=1000)


@pytest.fixture(scope="module")
def coder(trained: str, tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    path = tmp_path_factory.mktemp("trained") / "tokenizer.json"
    path.write_text(trained)
    return load(Spec(str(path), engine="gigatoken"))


def test_the_vocabulary_is_full_and_begins_with_end_of_text_and_the_bytes(trained: str) -> None:
    vocabulary = json.loads(trained)["model"]["vocab"]
    assert list(vocabulary.values()) == list(range(1000))
    assert next(iter(vocabulary)) == END
    assert set(list(vocabulary)[1:257]) == set(definition.BYTE_ALPHABET)


@settings(deadline=None, max_examples=20)
@given(st.randoms(use_true_random=False), st.integers(1, 50))
def test_neither_the_order_of_texts_nor_their_batches_matter(trained: str, random: Random, size: int) -> None:
    texts = random.sample(SAMPLE, len(SAMPLE))
    batches = (texts[start : start + size] for start in range(0, len(texts), size))
    assert training.train(batches, vocab_size=1000) == trained


@pytest.mark.parametrize("environment", [{"TOKENIZERS_PARALLELISM": "false"}, {"RAYON_NUM_THREADS": "3"}])
def test_neither_threads_nor_hash_seeds_matter(trained: str, environment: dict[str, str]) -> None:
    program = (
        "import json, sys; from jobs.tokens.training import train; "
        "sys.stdout.buffer.write(train(iter([json.load(sys.stdin)]), vocab_size=1000).encode())"
    )
    other = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(SAMPLE).encode(),
        capture_output=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, **environment, "PYTHONHASHSEED": "7"},
    )
    assert other.stdout == trained.encode()


def test_the_text_is_canonical(trained: str) -> None:
    described = json.loads(trained)
    vocabulary = described["model"]["vocab"]
    shuffled = {
        **described,
        "model": {**described["model"], "vocab": dict(sorted(vocabulary.items(), reverse=True))},
    }
    assert training.canonical(shuffled) == trained
    assert tokenizers.Tokenizer.from_str(trained).get_vocab() == vocabulary


def test_gigatoken_takes_it_and_the_literal_text_is_spelled_out(coder: Encoder) -> None:
    ids, offsets = coder.encode(pa.array(["The cat sat.", END], pa.large_string()))
    assert (coder.end_of_text_id, coder.vocab_size, coder.dtype) == (0, 1000, np.uint16)
    assert np.flatnonzero(ids == 0).tolist() == (offsets[1:] - 1).tolist()


@settings(deadline=None)
@given(st.text())
def test_any_text_comes_back(coder: Encoder, text: str) -> None:
    ids, _ = coder.encode(pa.array([text], pa.large_string()))
    assert coder.decode(ids[:-1]) == text


def test_the_literal_end_of_text_in_a_sample_is_ordinary_text() -> None:
    plain = ["one two three " * 9, "abc"]
    marked = [text.replace(" ", END) for text in plain]
    vocabulary = json.loads(training.train(iter([marked] * 5), vocab_size=270))["model"]["vocab"]
    assert any("endof" in token for token in vocabulary if token != END)


def test_another_end_of_text() -> None:
    described = json.loads(training.train(iter([SAMPLE]), vocab_size=300, end_of_text="<eos>"))
    assert described["added_tokens"][0]["content"] == "<eos>"
    assert described["model"]["vocab"]["<eos>"] == 0


@pytest.mark.parametrize(("texts", "reached"), [(["a cat, a cat"], "261"), ([], "257")])
def test_a_sample_too_small_is_refused_with_what_it_reached(texts: list[str], reached: str) -> None:
    with pytest.raises(training.SampleTooSmallError, match=f"enough for {reached} ids"):
        training.train(iter([texts]))


def test_a_large_vocabulary_is_uint32(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    letters = random.integers(97, 123, (40_000, 12)).astype(np.uint8)
    words = [row.tobytes().decode() for row in letters]
    path = tmp_path / "tokenizer.json"
    path.write_text(training.train(iter([[" ".join(words)]]), vocab_size=65_537))
    coder = load(Spec(str(path), engine="gigatoken"))
    ids, offsets = coder.encode(pa.array(words[:200], pa.large_string()))
    assert coder.dtype == ids.dtype == np.uint32
    assert coder.check(pa.array(words[:200], pa.large_string()), ids, offsets, np.arange(200)) == 200


@pytest.mark.parametrize("run", [" ", "a", "漢字仮名", "7", "-"])
def test_a_long_run_without_word_breaks_does_not_stall_training(run: str) -> None:
    """Uncut, 5 MB take some two hours."""
    started = time.process_time()
    definition = json.loads(training.train(iter([[*SAMPLE, run * (5_000_000 // len(run.encode()))]]), 1000))
    assert time.process_time() - started < 20
    assert definition["pre_tokenizer"]["type"] == "ByteLevel"
