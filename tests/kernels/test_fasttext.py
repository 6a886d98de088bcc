"""Models of every kind on any text, against the slow form and fastText itself."""

from pathlib import Path

import fasttext as referee
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.models import fasttext_file
from kernels import fasttext
from kernels.fasttext_model import Model
from tests import naive
from tests.fasttext_files import LOSSES, Example
from tests.kernels.strategies import as_batch, checked

WORDS = (b"</s>", b"the", b"a", "größe".encode(), "東京".encode(), b"__label__odd", b"x" * 33)
LABELS = tuple(b"__label__%d" % i for i in range(6))
COUNTS = (9, 5, 5, 3, 1, 1)
PIECES = [word.decode() for word in (*WORDS, *LABELS)]
PIECES += [
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    "\v",
    "\f",
    "\0",
    "\u3000",
    "\u00a0",
    "\x1c",
    "the cat",
    "😀",
    "e\u0301",
    "y" * 70,
]
PIECES += ["__label__new", "long" * 8, "long" * 8 + "e", "a" * 300]
texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=12), max_size=30).map("".join)
lines = st.lists(texts.map(str.encode) | st.binary(max_size=80), max_size=5)


@st.composite
def examples(draw: st.DrawFn) -> Example:
    quantized = draw(st.booleans())
    buckets = draw(st.integers(1, 300))
    kept = None
    if quantized and draw(st.booleans()):
        chosen = draw(st.lists(st.integers(0, buckets - 1), unique=True, max_size=40))
        kept = {bucket: row for row, bucket in enumerate(chosen)}
    n_labels = draw(st.integers(1, len(LABELS)))
    return Example(
        words=WORDS[draw(st.integers(0, 1)) :],
        labels=LABELS[:n_labels],
        counts=COUNTS[:n_labels],
        dim=draw(st.sampled_from([1, 3, 15, 16, 17, 40])),
        loss=draw(st.sampled_from(sorted(LOSSES))),
        buckets=buckets,
        sizes=draw(st.sampled_from([(0, 0), (1, 3), (2, 4), (3, 3), (0, 2), (5, 3)])),
        word_ngrams=draw(st.integers(1, 4)),
        kept=kept,
        quantized=quantized,
        norms=draw(st.booleans()),
        quantized_output=quantized and draw(st.booleans()),
        part=draw(st.integers(1, 4)),
        seed=draw(st.integers(0, 99)),
    )


def predicted(
    documents: list[bytes], model: Model, cache: fasttext.Cache | None = None
) -> tuple[list[int], np.ndarray, np.ndarray]:
    """The most likely labels, their probabilities, and those of every label, float32[l, d]."""
    data, offsets = as_batch(documents, b"before ")
    cache = cache or fasttext.new_cache(model.input.columns)
    best, most = fasttext.most_likely(data, offsets[:-1], offsets[1:], model, cache)
    every = [
        fasttext.probabilities(data, offsets[:-1], offsets[1:], model, cache, label)
        for label in range(len(model.output.weights))
    ]
    return best.tolist(), most, np.array(every)


def visible(document: bytes) -> bool:
    return bool(document.decode(errors="replace").replace("\0", " ").strip())


def tolerance(loss: str) -> float:
    """Sigmoids come from a table of 512 steps, where rounding may lead to the next one."""
    return 1e-4 if loss in ("hs", "softmax") else 0.01


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@checked
@given(examples(), lines)
def test_probabilities_are_the_naive_ones(folder: Path, example: Example, documents: list[bytes]) -> None:
    rows, weights = example.write(folder / "model.bin")
    labels, model = fasttext_file.read(str(folder / "model.bin"))
    assert [label.encode() for label in labels] == [*example.labels]
    best, most, every = predicted(documents, model)
    for i, document in enumerate(documents):
        found = naive.fasttext_rows(
            document, example.words, example.buckets, example.sizes, example.word_ngrams, example.kept
        )
        if not visible(document) or not found:
            assert (best[i], most[i], every[:, i].any()) == (-1, 0, False)
            continue
        mean = rows[found].astype(float).mean(axis=0)
        expected = naive.fasttext_probabilities(mean, weights, example.counts, example.loss)
        assert every[:, i] == pytest.approx(expected, abs=tolerance(example.loss))
        assert expected[best[i]] == pytest.approx(max(expected), abs=tolerance(example.loss))
        assert most[i] == every[best[i], i]


@checked
@given(examples(), st.lists(texts, max_size=5))
def test_probabilities_are_those_of_fasttext(folder: Path, example: Example, documents: list[str]) -> None:
    path = str(folder / "theirs.bin")
    example.write(Path(path))
    predict = referee.load_model(path).f.predict
    best, most, every = predicted([text.encode() for text in documents], fasttext_file.read(path)[1])
    for i, text in enumerate(documents):
        found = predict(text.replace("\n", " ") + "\n", -1, 0.0, "strict") if visible(text.encode()) else []
        expected = {label: min(probability, 1) for probability, label in found}
        assert every[:, i] == pytest.approx(
            [expected.get(label.decode(), 0) for label in example.labels], abs=tolerance(example.loss)
        )
        assert most[i] == pytest.approx(max(expected.values(), default=0), abs=tolerance(example.loss))
        assert (best[i] < 0) == (not expected)


@checked
@given(examples(), lines, st.integers(0, 99))
def test_what_is_in_the_cache_does_not_show(
    folder: Path, example: Example, documents: list[bytes], seed: int
) -> None:
    example.write(folder / "kept.bin")
    model = fasttext_file.read(str(folder / "kept.bin"))[1]
    columns = model.input.columns
    alone = [predicted([document], model) for document in documents]
    one_slot = fasttext.Cache(np.zeros(8, np.uint64), np.zeros(columns, np.float32))
    for cache in (fasttext.new_cache(columns), one_slot):
        np.random.default_rng(seed).shuffle(order := [*range(len(documents))])
        best, most, every = predicted([documents[i] for i in order], model, cache)
        for place, i in enumerate(order):
            assert best[place] == alone[i][0][0]
            assert most[place] == alone[i][1][0]
            assert (every[:, place] == alone[i][2][:, 0]).all()


def test_codes_that_are_not_decoded_say_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = Example(WORDS, LABELS, COUNTS, dim=17, quantized=True, norms=True, part=3)
    example.write(folder / "codes.bin")
    documents = [b"the cat", "größe 東京".encode(), b"a b c"]
    decoded = predicted(documents, fasttext_file.read(str(folder / "codes.bin"))[1])
    monkeypatch.setattr(fasttext_file, "LARGEST_DECODED", 0)
    coded = predicted(documents, fasttext_file.read(str(folder / "codes.bin"))[1])
    assert decoded[0] == coded[0]
    assert (decoded[2] == coded[2]).all()


def test_the_end_of_the_array_and_of_blocks(folder: Path) -> None:
    """Words are looked at 64 and 32 bytes at a time, whatever lies behind them."""
    Example(WORDS, LABELS, COUNTS, loss="hs").write(folder / "ends.bin")
    model = fasttext_file.read(str(folder / "ends.bin"))[1]
    for size in [*range(1, 70), 127, 128, 129, 255, 256, 257, 1000]:
        for word in (b"w" * size, b"w " * (size // 2) + b"w", b" " * size + b"end", "é".encode() * size):
            assert predicted([word], model)[1] == predicted([word, b"more" * 40], model)[1][:1]
            assert predicted([word], model)[1] == predicted([b" \n" + word + b"\t\0"], model)[1]


@checked
@given(examples(), lines, st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1))
def test_a_damaged_file_is_refused_or_says_something(
    folder: Path, example: Example, documents: list[bytes], damage: list[tuple[int, int]]
) -> None:
    """Nothing is read from beyond the model, whatever its numbers say."""
    path = folder / "damaged.bin"
    example.write(path)
    content = np.frombuffer(path.read_bytes(), np.uint8).copy()
    header = 8 + 56 + 28 + 120
    for place, value in damage:
        content[place % min(len(content), header if place % 3 else len(content))] = value
    path.write_bytes(content.tobytes())
    try:
        model = fasttext_file.read(str(path))[1]
    except fasttext_file.ModelError:
        return
    best, most, _ = predicted(documents, model)
    assert all(-1 <= label < len(model.output.weights) for label in best)
    assert ((most >= 0) & (most <= 1)).all()


def test_impossible_arguments_are_refused(folder: Path) -> None:
    Example(WORDS, LABELS, COUNTS).write(folder / "refused.bin")
    model = fasttext_file.read(str(folder / "refused.bin"))[1]
    data, cache = np.zeros(3, np.uint8), fasttext.new_cache(model.input.columns)
    with pytest.raises(ValueError, match="a slice does not lie within 0 to 3"):
        fasttext.most_likely(data, np.array([0]), np.array([4]), model, cache)
    with pytest.raises(ValueError, match="there is no label 6 among 6"):
        fasttext.probabilities(data, np.array([0]), np.array([3]), model, cache, 6)
