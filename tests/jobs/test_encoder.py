"""The encoder against the reference libraries, and what it refuses."""

import argparse
import base64
import inspect
import itertools
import json
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tiktoken
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobs.errors import UserError
from jobs.tokens import definition, training
from jobs.tokens.encoder import Encoder, EncodingMismatch, Spec, get, load
from jobs.tokens.engines import Gigatoken
from jobs.tokens.pieces import PIECE, UNICODE_17, disputed, pieces
from tests.conftest import SHARED, python

END = "<|endoftext|>"
SAMPLE = [
    "The cat sat. The cat doesn't sit; it's 12345 o'clock, and they'll say 3.14!\n\n  if x != y:\n\treturn -1\n",
    "Größe, naïveté und 東京タワー; «ещё раз» ещё, शब्द और ภาษา. The cats sat on the cat's mat.",
] * 3
TRAINING = [*SAMPLE, *(inspect.getsource(module) for module in (argparse, json.decoder, pickle))]
END_TEXTS = ["", END, f"a{END}b {END}{END}\n", f" {END}", "<|endoftext", "|>"]

# Text as it comes, and runs of what splits hinge on.
HINGES = [
    *[
        "'s",
        "'LL",
        "ſ",
        " ",
        "  ",
        "\n",
        "\r\n",
        "\t",
        "\u00a0",
        "\u2028",
        "1",
        "½",
        "ab",
        "É",
        "e\u0301",
        "ǅ",
    ],
    *["ª", "語", "ก็", "_", "...", "/", "-", "🏽", "\u200d", "\x00", "\u1acf", "\U0001e6e0", END],
]
texts = st.one_of(st.text(max_size=60), st.lists(st.sampled_from(HINGES), max_size=20).map("".join))


def large(values: list[str]) -> pa.Array:
    return pa.array(values, pa.large_string())


def ids_of(coder: Encoder, values: list[str]) -> list[list[int]]:
    ids, offsets = coder.encode(large(values))
    assert offsets[0] == 0
    assert offsets[-1] == len(ids)
    return [ids[a:b].tolist() for a, b in itertools.pairwise(offsets)]


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of 400 ids."""
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    path.write_text(training.train(iter([TRAINING]), vocab_size=400))
    return path


def tiny_ranks(path: Path, first: int = 0) -> Path:
    """The bytes and a few merges, as a tiktoken ranks file."""
    tokens = [bytes([byte]) for byte in range(256)] + [b"th", b"the", b" the", b"\n\n", b"in", b"ing", b"12"]
    path.write_bytes(b"".join(base64.b64encode(t) + f" {i}\n".encode() for i, t in enumerate(tokens, first)))
    return path


@pytest.fixture(scope="session")
def coder(trained: Path) -> Encoder:
    return load(Spec(str(trained)))


REAL = {
    "gpt2": Spec(str(SHARED / "tokenizers/gpt2/tokenizer.json")),
    "cl100k": Spec(str(SHARED / "tokenizers/cl100k_base.tiktoken"), "cl100k"),
    "o200k": Spec(str(SHARED / "tokenizers/o200k_base.tiktoken"), "o200k"),
}


@pytest.fixture(scope="session", params=REAL)
def real(request: pytest.FixtureRequest, shared: Path) -> Encoder:
    return load(REAL[request.param])


# ---------------------------------------------------------------- the same ids as the reference


def test_a_document_ends_with_the_end_of_text_id(coder: Encoder) -> None:
    (ids,) = ids_of(coder, ["The cat sat."])
    assert coder.engine == "gigatoken"
    assert coder.end_of_text_id == 0
    assert ids[-1] == 0
    assert 0 not in ids[:-1]
    assert coder.decode(np.array(ids[:-1])) == "The cat sat."


@settings(deadline=None)
@given(st.lists(texts, max_size=5))
@example(END_TEXTS)
@example([])
def test_ids_are_those_of_tokenizers(coder: Encoder, values: list[str]) -> None:
    reference = tokenizers.Tokenizer.from_str(coder._tokenizer.raw.decode())
    reference.encode_special_tokens = True
    expected = [[*reference.encode(value).ids, 0] for value in values]
    assert ids_of(coder, values) == expected == coder.reference(values)


@settings(deadline=None)
@given(st.lists(texts, max_size=5))
@example(END_TEXTS)
def test_ids_of_published_tokenizers_are_the_references(real: Encoder, values: list[str]) -> None:
    found = ids_of(real, values)
    assert real.engine == "gigatoken"
    assert found == real.reference(values)
    assert [real.decode(np.array(ids[:-1], np.int64)) for ids in found] == values


@pytest.mark.parametrize(
    ("name", "end", "vocabulary"), [("cl100k", 100_257, 100_277), ("o200k", 199_999, 200_019)]
)
def test_a_published_encoding_is_tiktokens(shared: Path, name: str, end: int, vocabulary: int) -> None:
    lines = Path(REAL[name].path).read_bytes().splitlines()
    ranks = {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, lines)}
    encoding = tiktoken.Encoding(
        name, pat_str=definition.PATTERNS[name].regex, mergeable_ranks=ranks, special_tokens={END: end}
    )
    real = load(REAL[name])
    assert (real.end_of_text_id, real.vocab_size, real.dtype) == (end, vocabulary, np.uint32)
    assert ids_of(real, [*SAMPLE, *END_TEXTS]) == [
        [*encoding.encode_ordinary(text), end] for text in [*SAMPLE, *END_TEXTS]
    ]


def test_gpt2_is_gpt2(shared: Path) -> None:
    real = load(REAL["gpt2"])
    assert (real.end_of_text_id, real.vocab_size, real.dtype) == (50_256, 50_257, np.uint16)
    assert ids_of(real, ["Hello world"]) == [[15_496, 995, 50_256]]


def test_slices_and_neighbours_do_not_show(coder: Encoder) -> None:
    text = large([*SAMPLE, *END_TEXTS, "after"])
    ids, offsets = coder.encode(text)
    for start, length in [(0, 0), (0, 3), (2, 5), (len(text) - 1, 1), (len(text), 0)]:
        part, bounds = coder.encode(text.slice(start, length))
        assert part.tolist() == ids[offsets[start] : offsets[start + length]].tolist()
        assert bounds.tolist() == (offsets[start : start + length + 1] - offsets[start]).tolist()
    assert coder.encode(text[:0])[1].tolist() == [0]


def test_what_is_no_document_is_refused(coder: Encoder) -> None:
    for wrong in (pa.array(["a"]), pa.array(["a", None], pa.large_string())):
        with pytest.raises(TypeError, match="large_string without nulls"):
            coder.encode(wrong)


def test_a_cache_thrown_away_after_every_group_changes_nothing(trained: Path, coder: Encoder) -> None:
    values = [f"{text} {number}" for number in range(40) for text in SAMPLE]
    assert ids_of(load(Spec(str(trained), cache_budget=-1)), values) == ids_of(coder, values)


@pytest.mark.parametrize(("budget", "built"), [(-1, 4), (2**40, 1)])
def test_the_cache_is_thrown_away_on_its_budget(coder: Encoder, budget: int, built: int) -> None:
    builds: list[int] = []

    def build() -> Any:
        builds.append(1)
        return coder._tokenizer.gigatoken()

    engine = Gigatoken(build, coder.dtype, budget)
    data = np.frombuffer(b"the cat", np.uint8)
    for _ in range(3):
        ids, offsets = engine.encode(data, np.array([0, 3, 3, 7]))
        assert coder.decode_bytes(ids) == b"the cat"
        assert len(offsets) == 4
    assert len(builds) == built


def test_encoding_starts_no_threads(trained: Path) -> None:
    program = f"""
import psutil, pyarrow as pa
from jobs.tokens.encoder import Spec, load
import awkward, gigatoken, tokenizers
before = psutil.Process().num_threads()
text = pa.array(["The cat sat. " * 200_000] * 3, pa.large_string())
for engine in ("gigatoken", "reference"):
    coder = load(Spec({str(trained)!r}, engine=engine))
    ids, offsets = coder.encode(text[: 3 if engine == "gigatoken" else 0])
    coder.check(text, ids, offsets, range(len(offsets) - 1))
print(psutil.Process().num_threads() - before)
"""
    assert python("-c", program).stdout == "0\n"


# ---------------------------------------------------------------- every code point, every split

CONTEXTS = [
    *[
        "x{c}x",
        "1{c}1",
        " {c} ",
        "!{c}!",
        "X{c}X",
        "x'{c}",
        "x'{c}e",
        "x'l{c}",
        "x'{c}l",
        "{c}'s",
        "{c}\n",
        "\n{c}",
    ],
    *["  {c}", "{c}{c}", "/{c}/", "{c} x", "{c}  !", "x{c}'s", " {c}1", "x\t{c}\t1"],
]


def border_tokens() -> tuple[list[bytes], list[tuple[bytes, bytes]]]:
    """A vocabulary that merges across the borders of any character, so that each split shows in the ids."""
    beside = [bytes([byte]) for byte in b"xX1!' \n\t/sel"]
    last = [bytes([byte]) for byte in range(0x80, 0xC0)]
    lead = [bytes([byte]) for byte in range(0xC2, 0xF5)]
    pairs = [(a, b) for b in beside for a in last] + [(a, b) for a in beside for b in [*lead, *beside]]
    return [bytes([byte]) for byte in range(256)] + [a + b for a, b in pairs], pairs


def border_json(pre_tokenizer: dict[str, Any]) -> str:
    characters = {byte: character for character, byte in definition.BYTE_ALPHABET.items()}

    def spell(token: bytes) -> str:
        return "".join(map(characters.__getitem__, token))

    tokens, pairs = border_tokens()
    vocabulary = {spell(token): number for number, token in enumerate(tokens)}
    special = {"id": len(tokens), "content": END, "special": True, "normalized": False}
    flags = {"single_word": False, "lstrip": False, "rstrip": False}
    return json.dumps(
        {
            "version": "1.0",
            "added_tokens": [{**special, **flags}],
            "pre_tokenizer": pre_tokenizer,
            "decoder": {
                "type": "ByteLevel",
                "add_prefix_space": True,
                "trim_offsets": True,
                "use_regex": True,
            },
            "model": {"type": "BPE", "vocab": vocabulary, "merges": [[spell(a), spell(b)] for a, b in pairs]},
        }
    )


def split_by(regex: str) -> dict[str, Any]:
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    spell = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {"type": "Sequence", "pretokenizers": [split, spell]}


SPLITS = {name: split_by(regex) for name, regex in definition.KNOWN_SPLITS.items()} | {
    "ByteLevel": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
}


def border_coder(folder: Path, name: str) -> Encoder:
    path = folder / "tokenizer"
    if name not in SPLITS:
        lines = [base64.b64encode(token) + f" {i}\n".encode() for i, token in enumerate(border_tokens()[0])]
        path.write_bytes(b"".join(lines))
        return load(Spec(str(path), pattern=name.removeprefix("ranks, ")))
    path.write_text(border_json(SPLITS[name]))
    return load(Spec(str(path)))


def all_splits(test: Callable[..., None]) -> Callable[..., None]:
    return pytest.mark.parametrize(
        "name", [*SPLITS, *(f"ranks, {pattern}" for pattern in definition.PATTERNS)]
    )(test)


def assert_equal_around(coder: Encoder, points: list[int]) -> None:
    values = ["\n\nx".join(context.format(c=chr(point)) for context in CONTEXTS) for point in points]
    assert coder.engine == "gigatoken"
    for found, expected, point in zip(ids_of(coder, values), coder.reference(values), points, strict=True):
        assert found == expected, f"U+{point:04X}"


@all_splits
def test_a_sample_of_code_points_and_all_edges_split_as_in_the_reference(tmp_path: Path, name: str) -> None:
    edges = {point + step for bounds in UNICODE_17 for point in bounds for step in (-1, 0, 1)}
    points = {*edges, *range(0x800), *range(0x800, 0x110000, 1999)} - {*range(0xD800, 0xE000)}
    assert_equal_around(border_coder(tmp_path, name), sorted(points))


@pytest.mark.slow
@all_splits
def test_every_code_point_splits_as_in_the_reference(tmp_path: Path, name: str) -> None:
    coder = border_coder(tmp_path, name)
    for start in range(0, 0x110000, 2048):
        if not 0xD800 <= start < 0xE000:
            assert_equal_around(coder, [*range(start, start + 2048)])


def test_disputed_code_points_are_found_and_few_others() -> None:
    values = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    encoded = [value.encode() for value in values]
    bounds = np.cumsum([0, *map(len, encoded)])
    marked = disputed(np.frombuffer(b"".join(encoded), np.uint8), bounds)
    found = {ord(value) for value, mark in zip(values, marked, strict=True) if mark}
    points = {point for first, last in UNICODE_17 for point in range(first, last + 1)}
    assert points <= found
    assert all(point // 64 in {other // 64 for other in points} for point in found - points)
    assert not any(point < 0x10000 for point in found - points)


# ---------------------------------------------------------------- long documents


@settings(deadline=None)
@given(st.lists(texts.map(lambda text: text * 3), max_size=4), st.integers(4, 40))
def test_pieces_are_whole_characters_of_one_document(values: list[str], size: int) -> None:
    encoded = [value.encode() for value in values]
    data = np.frombuffer(b"".join(encoded), np.uint8)
    offsets = np.cumsum([0, *map(len, encoded)])
    bounds, first = pieces(data, offsets, size)
    assert bounds[first].tolist() == offsets.tolist()
    assert first[-1] == len(bounds) - 1
    assert all(0 <= length <= size for length in np.diff(bounds))
    for start, end in itertools.pairwise(bounds):
        data[start:end].tobytes().decode()
    for document, value in enumerate(encoded):
        assert (len(value) > size) == (first[document + 1] - first[document] > 1)


WORDS = ["ab", "7", "É", "語", ", ", ".\n", "'s", " ", "\n", "  ", "!?", "\t", "/\n"]
words = st.lists(st.sampled_from(WORDS), max_size=40)


@all_splits
def test_a_cut_at_a_seam_leaves_the_ids_as_they_are(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    coder = border_coder(tmp_path_factory.mktemp("border"), name)

    def has_seam(window: str) -> bool:
        return any(a.isalnum() and b in " \n" for a, b in itertools.pairwise(window))

    @settings(deadline=None)
    @given(words.map("".join), st.integers(8, 20))
    def check(text: str, size: int) -> None:
        data = np.frombuffer(text.encode(), np.uint8)
        bounds, _ = pieces(data, np.array([0, len(data)]), size)
        windows = [data[a : a + size].tobytes().decode(errors="ignore") for a in bounds[:-2]]
        if all(map(has_seam, windows)):
            parts = [data[a:b].tobytes().decode() for a, b in itertools.pairwise(bounds)]
            joined = [token for ids in coder.reference(parts) for token in ids[:-1]]
            assert joined == coder.reference([text])[0][:-1]

    check()


def test_a_long_document_has_the_references_ids(coder: Encoder) -> None:
    long = " ".join(f"{text} {number}" for number in range(1600) for text in SAMPLE)
    assert len(long.encode()) > PIECE
    values = ["before", long, "", "after"]
    ids, offsets = coder.encode(large(values))
    assert [ids[a:b].tolist() for a, b in itertools.pairwise(offsets)] == coder.reference(values)
    assert coder.check(large(values), ids, offsets, np.arange(4)) == 4
    ids[offsets[1] + 7] += 1
    with pytest.raises(EncodingMismatch):
        coder.check(large(values), ids, offsets, np.array([1]))


def test_a_long_document_without_a_seam_is_cut_and_still_decodes(coder: Encoder) -> None:
    values = ["語" * (PIECE // 2), "x" * (2 * PIECE + 5)]
    ids, offsets = coder.encode(large(values))
    for row, value in enumerate(values):
        assert coder.decode(ids[offsets[row] : offsets[row + 1] - 1]) == value


# ---------------------------------------------------------------- the check


def test_the_check_passes_what_encode_gives_and_catches_what_it_does_not(coder: Encoder) -> None:
    text = large(SAMPLE)
    ids, offsets = coder.encode(text)
    assert coder.check(text, ids, offsets, np.arange(len(text))) == len(text)
    assert coder.check(text, ids, offsets, np.array([], np.int64)) == 0
    wrong = ids.copy()
    wrong[offsets[2] + 5] ^= 1
    assert coder.check(text, wrong, offsets, np.array([0, 1, 3])) == 3
    with pytest.raises(EncodingMismatch) as caught:
        coder.check(text, wrong, offsets, np.array([1, 2]))
    assert (caught.value.row, caught.value.position) == (2, 5)
    assert "cat" not in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_the_check_catches_ids_lost_and_gained(coder: Encoder) -> None:
    text = large(SAMPLE[:1])
    ids, _ = coder.encode(text)
    for end in (len(ids) - 1, len(ids) + 1):
        changed = np.resize(ids, end)
        with pytest.raises(EncodingMismatch) as caught:
            coder.check(text, changed, np.array([0, end]), np.array([0]))
        assert caught.value.position in {len(ids) - 1, len(ids)}


def test_the_check_passes_over_what_the_reference_itself_fails_on(tmp_path: Path) -> None:
    coder = load(Spec(str(tiny_ranks(tmp_path / "ranks")), pattern="o200k"))
    text = large([" " * 10**6, "the"])
    ids, offsets = coder.encode(text)
    assert len(ids) == 10**6 + 3
    assert coder.check(text, ids, offsets, np.array([0, 1])) == 1


# ---------------------------------------------------------------- decoding


def test_decoding_a_part_of_a_character(coder: Encoder) -> None:
    ids, _ = coder.encode(large(["né語"]))
    assert coder.decode_bytes(ids) == "né語<|endoftext|>".encode()
    assert coder.decode(ids[:2]).startswith("n")
    assert b"".join(coder.decode_bytes(ids[i : i + 1]) for i in range(len(ids))) == coder.decode_bytes(ids)
    assert coder.decode(ids[:0]) == ""
    assert coder.decode(np.array([65_000])) == "\ufffd"


# ---------------------------------------------------------------- other tokenizers


def changed(trained: Path, folder: Path, change: Callable[[dict[str, Any]], None]) -> Spec:
    described = json.loads(trained.read_text())
    change(described)
    path = folder / "changed.json"
    path.write_text(json.dumps(described))
    return Spec(str(path))


def add_token(described: dict[str, Any], content: str, **flags: bool) -> None:
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    described["added_tokens"].append({"id": 400, "content": content, **plain, **flags})


def tie_a_merge(vocab: dict[str, int], merges: list[list[str]], **_: Any) -> None:
    """Let a second pair make the token that a first one makes."""
    for place, (a, b) in enumerate(merges, 1):
        splits = [[(a + b)[:n], (a + b)[n:]] for n in range(1, len(a + b))]
        other = [pair for pair in splits if pair != [a, b] and all(part in vocab for part in pair)]
        if other:
            merges.insert(place, other[0])
            return
    raise AssertionError("no token can be made in two ways")


UNSUPPORTED: dict[str, Callable[[dict[str, Any]], None]] = {
    "normalizer": lambda d: d.update(normalizer={"type": "Lowercase"}),
    "prefix space": lambda d: d["pre_tokenizer"].update(add_prefix_space=True),
    "no split": lambda d: d["pre_tokenizer"].update(use_regex=False),
    "no pre-tokenizer": lambda d: d.update(pre_tokenizer=None),
    "another split": lambda d: d.update(pre_tokenizer=split_by(r"\d|\D+")),
    "another behaviour": lambda d: d.update(
        pre_tokenizer=json.loads(json.dumps(SPLITS["Llama 3"]).replace("Isolated", "MergedWithNext"))
    ),
    "digits": lambda d: d.update(
        pre_tokenizer={
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, d["pre_tokenizer"]],
        }
    ),
    "word boundaries": lambda d: add_token(d, "cat", single_word=True),
    "spaces taken along": lambda d: add_token(d, "cat", lstrip=True),
    "overlap with a special token": lambda d: add_token(d, "text|>s"),
    "unknown token": lambda d: d["model"].update(unk_token="!"),
    "a byte spelled twice": lambda d: d["model"]["vocab"].update({" ": 400}),
    "two merges that make one token": lambda d: tie_a_merge(**d["model"]),
}


@pytest.mark.parametrize("feature", UNSUPPORTED)
def test_what_gigatoken_may_do_otherwise_is_left_to_the_reference(
    trained: Path, tmp_path: Path, feature: str
) -> None:
    spec = changed(trained, tmp_path, UNSUPPORTED[feature])
    coder = load(spec)
    assert coder.engine == "reference"
    assert coder.notice is not None
    assert coder.notice.startswith(
        f"tokenizers encodes with the tokenizer {spec.path}, far slower than gigatoken: "
    )
    values = [*SAMPLE, *END_TEXTS, "cat CAT cats concat", f"{END}s"]
    assert ids_of(coder, values) == coder.reference(values)
    with pytest.raises(UserError, match="gigatoken cannot encode with the tokenizer"):
        load(Spec(spec.path, engine="gigatoken"))


def test_another_model_is_left_to_the_reference(tmp_path: Path) -> None:
    word_level = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({"[UNK]": 0, "cat": 1, END: 2}, unk_token="[UNK]")
    )
    word_level.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    word_level.add_special_tokens([END])
    path = tmp_path / "words.json"
    word_level.save(str(path))
    with pytest.raises(UserError, match="makes the end-of-text id of"):
        load(Spec(str(path)))  # the literal text is a word of its vocabulary
    word_level.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    word_level.save(str(path))
    coder = load(Spec(str(path)))
    assert coder.notice is not None
    assert "not byte-level BPE" in coder.notice
    assert ids_of(coder, ["cat dog", ""]) == [[1, 0, 2], [2]]
    assert coder.decode(np.array([1, 0])) == "cat [UNK]"


def test_plain_added_tokens_are_found_in_text_by_both(trained: Path, tmp_path: Path) -> None:
    coder = load(changed(trained, tmp_path, lambda d: add_token(d, "[cat]")))
    assert coder.engine == "gigatoken"
    values = ["a [cat] sat", "[cat][cat]", f"[cat{END}]", " [cat]s"]
    found = ids_of(coder, values)
    assert found == coder.reference(values)
    assert 400 in found[0]


def test_truncation_padding_and_tokens_of_a_post_processor_are_left_out(
    trained: Path, tmp_path: Path, coder: Encoder
) -> None:
    whole = tokenizers.Tokenizer.from_file(str(trained))
    whole.enable_truncation(3)
    whole.enable_padding(length=9)
    whole.post_processor = tokenizers.processors.TemplateProcessing(f"{END} $A {END}", None, [(END, 0)])
    path = tmp_path / "template.json"
    whole.save(str(path))
    for engine in ("gigatoken", "reference"):
        assert ids_of(load(Spec(str(path), engine=engine)), SAMPLE) == ids_of(coder, SAMPLE)


def test_an_end_of_text_token_that_is_not_special_is_spelled_out_all_the_same(
    trained: Path, tmp_path: Path, coder: Encoder
) -> None:
    spec = changed(trained, tmp_path, lambda d: d["added_tokens"][0].update(special=False))
    assert ids_of(load(spec), END_TEXTS) == ids_of(coder, END_TEXTS)


def test_ranks_of_ones_own(tmp_path: Path) -> None:
    dense = load(Spec(str(tiny_ranks(tmp_path / "dense")), pattern="r50k"))
    assert (dense.engine, dense.end_of_text_id, dense.vocab_size) == ("gigatoken", 263, 264)
    assert dense.dtype == np.uint16
    assert ids_of(dense, ["the thing"]) == [[257, 32, 256, 261, 263]]
    assert ids_of(dense, SAMPLE) == dense.reference(SAMPLE)
    sparse = load(Spec(str(tiny_ranks(tmp_path / "sparse", first=7)), pattern="r50k"))
    assert sparse.notice is not None
    assert "ranks do not count up from 0" in sparse.notice
    assert ids_of(sparse, SAMPLE) == sparse.reference(SAMPLE)


# ---------------------------------------------------------------- what is refused


def test_what_cannot_be_used_is_refused_in_a_sentence(trained: Path, tmp_path: Path) -> None:
    ranks = tiny_ranks(tmp_path / "ranks")
    (tmp_path / "broken.json").write_bytes(trained.read_bytes()[:-20])
    (tmp_path / "other.json").write_text('{"model": null}')
    (tmp_path / "added.json").write_text('{"model": {}, "added_tokens": ["a"]}')
    (tmp_path / "model.json").write_text(
        '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]}}'
    )
    (tmp_path / "prose").write_text("not a tokenizer at all")
    (tmp_path / "few").write_bytes(base64.b64encode(b"a") + b" 0\n")
    dropout = changed(trained, tmp_path, lambda d: d["model"].update(dropout=0.1)).path
    cases: list[tuple[Spec, str]] = [
        (Spec(str(tmp_path / "absent")), "cannot be read: No such file"),
        (Spec(str(tmp_path)), "cannot be read: Is a directory"),
        (Spec(str(tmp_path / "broken.json")), "neither a tokenizer.json nor a tiktoken ranks file"),
        (Spec(str(tmp_path / "other.json")), "no tokenizer.json: it has no model"),
        (Spec(str(tmp_path / "added.json")), "or added tokens without content"),
        (Spec(str(tmp_path / "model.json")), "no tokenizer.json that `tokenizers` can load"),
        (Spec(str(tmp_path / "prose"), "r50k"), "line 1 is not a token in base64 and its rank"),
        (Spec(str(tmp_path / "few"), "r50k"), "no token for 255 of the 256 bytes, 0 first"),
        (Spec(dropout), "drops merges at random"),
        (Spec(str(ranks)), "name its pattern: r50k, cl100k, o200k"),
        (Spec(str(ranks), "p50k"), "no pattern 'p50k'; there are r50k, cl100k, o200k"),
        (Spec(str(trained), "r50k"), "leave the pattern out"),
        (Spec(str(trained), end_of_text="<eos>"), "no token '<eos>' .* special tokens are '<|endoftext|>'"),
        (Spec(str(trained), end_of_text="e"), "makes the end-of-text id of 'e' in a document's text"),
    ]
    for spec, sentence in cases:
        with pytest.raises(UserError, match=sentence.replace("|", r"\|")):
            load(spec)


# ---------------------------------------------------------------- one for each thread


def test_get_loads_once_a_thread_and_again_when_the_file_changes(trained: Path, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(trained.read_bytes())
    spec = Spec(str(path))
    coder = get(spec)
    assert get(Spec(str(path))) is coder
    others: list[tuple[Encoder, Encoder]] = []
    threads = [threading.Thread(target=lambda: others.append((get(spec), get(spec)))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(coder), *(id(one) for pair in others for one in pair)}) == 4
    path.write_text(training.train(iter([TRAINING]), vocab_size=300))
    assert get(spec).vocab_size == 300
    path.unlink()
    with pytest.raises(UserError, match="cannot be read"):
        get(spec)


def test_the_fingerprint_covers_what_decides_the_ids(trained: Path, tmp_path: Path, coder: Encoder) -> None:
    ranks = str(tiny_ranks(tmp_path / "ranks"))
    others = [
        load(Spec(str(trained), engine="reference")),
        load(changed(trained, tmp_path, lambda d: d["model"]["merges"].pop())),
        load(Spec(ranks, "r50k")),
        load(Spec(ranks, "cl100k")),
        load(Spec(ranks, "cl100k", end_of_text="<eos>")),
    ]
    assert load(Spec(str(trained))).fingerprint == coder.fingerprint
    assert len({coder.fingerprint, *(other.fingerprint for other in others)}) == 6
