"""Languages: what fastText says, by any name, from a model that is one."""

import contextlib
import gzip
import json
import shutil
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import fasttext
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.config import Language
from jobs.errors import UserError
from jobs.models import fasttext_file
from jobs.steps import language, language_codes

MODEL = language.model_path(None)
EVERY = Language(enabled=True)
GERMAN = "Das ist ein deutscher Satz, der von einem Hund und einer Katze handelt, die im Garten spielen."
ENGLISH = "This is an English sentence about a dog and a cat that play in the garden all day long."
PIECES = [ENGLISH, GERMAN, "\n", "\r\n", "\0", "😀", "日本語のテキスト", " ", "</s>", "__label__de"]
texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=20)).map("".join)


@pytest.fixture(scope="module")
def referee() -> fasttext.FastText._FastText:
    return fasttext.load_model(MODEL)


def identify(found: list[str | None], prefix: int | None = None) -> tuple[list[str], np.ndarray]:
    settings = Language(enabled=True, prefix=prefix)
    codes, scores = language.identify(pa.array(found, pa.large_string()), settings)
    return codes.to_pylist(), scores


def keep(*names: str, **more: object) -> Language:
    return Language(enabled=True, keep=names, **more)


def expected(referee: fasttext.FastText._FastText, text: str) -> tuple[str, Any]:
    labels, scores = referee.predict(text.replace("\n", " "))
    return labels[0].removeprefix("__label__"), pytest.approx(min(scores[0], 1.0), abs=1e-5)


# ---------------------------------------------------------------- what fastText says


@settings(max_examples=100, deadline=None)
@given(st.lists(texts, max_size=6))
def test_every_text_is_what_fasttext_says_of_it_alone(
    referee: fasttext.FastText._FastText, found: list[str]
) -> None:
    codes, scores = identify([*found])
    assert scores.dtype == np.float32
    for text, code, score in zip(found, codes, scores, strict=True):
        if text.replace("\0", "").strip():
            assert (code, score) == expected(referee, text)
        else:
            assert (code, score) == ("und", 0)


def test_real_texts(shared: Path, referee: fasttext.FastText._FastText) -> None:
    with gzip.open(next((shared / "c4").glob("*.gz")), "rt") as file:
        found = [json.loads(line)["text"] for line in [*file][:200]]
    codes, scores = identify(found)
    assert [*zip(codes, scores, strict=True)] == [expected(referee, text) for text in found]
    assert Counter(codes)["en"] > 190


def test_texts_in_several_languages(shared: Path) -> None:
    lines = (shared / "dedup" / "demo-dataset-deduplication.jsonl").read_text().splitlines()
    codes, _ = identify([json.loads(line)["text"] for line in lines])
    assert {"en", "fr", "zh"} <= set(codes)


def test_without_a_visible_character_there_is_no_language() -> None:
    codes, scores = identify(["", " ", "\n\t\r\v\f", "\0 \0", "\u3000\u00a0", None])
    assert codes == ["und"] * 6
    assert not scores.any()
    assert identify([])[0] == []


def test_batches_and_slices_change_nothing() -> None:
    column = pa.array([ENGLISH, GERMAN, "", "日本語のテキストです。", "x"] * 3, pa.large_string())
    whole, part = language.identify(column, EVERY), language.identify(column[4:11], EVERY)
    assert part[0].equals(whole[0][4:11])
    assert (part[1] == whole[1][4:11]).all()


@given(st.text(max_size=30), st.integers(1, 40))
@settings(max_examples=100, deadline=None)
def test_a_prefix_ends_with_a_whole_character(text: str, prefix: int) -> None:
    head = ""
    for character in text:
        if len((head + character).encode()) > prefix:
            break
        head += character
    assert identify([text], prefix) == identify([head])


def test_a_prefix_is_all_that_is_looked_at() -> None:
    assert identify([ENGLISH + GERMAN * 20], len(ENGLISH))[0] == ["en"]
    assert identify([ENGLISH + GERMAN * 20])[0] == ["de"]


# ---------------------------------------------------------------- what is kept


def test_fates() -> None:
    codes = pa.array(["en", "en", "en", "de", "und"], pa.string())
    scores = np.array([0.9, 0.65, 0.6499, 0.9, 0], np.float32)
    found = language.fates(codes, scores, keep("en")).to_pylist()
    assert found == [None, None, "language.min_score", "language.keep", "language.keep"]
    found = language.fates(codes, scores, keep("German", "english", min_score=0)).to_pylist()
    assert found == [None, None, None, None, "language.keep"]
    assert language.fates(codes, scores, keep()).null_count == 5
    assert language.fates(codes[:0], scores[:0], keep("en")).to_pylist() == []


SPELLINGS = {
    "en": ["en", "EN", "eng", "English", " english ", "en-US", "en_GB", "eng_Latn", "American English"],
    "zh": ["zh", "zho", "chi", "cmn", "Chinese", "zh-cn", "zh_Hans", "zh-Hans-CN", "Mandarin"],
    "de": ["de", "deu", "ger", "German", "de-AT"],
    "fa": ["fa", "fas", "per", "pes", "Persian", "Farsi"],
    "he": ["he", "iw", "heb", "Hebrew"],
    "no": ["no", "nor", "nb", "nob", "Norwegian", "Norwegian Bokmål"],
    "nn": ["nn", "nno", "Nynorsk"],
    "sq": ["sq", "sqi", "alb", "Albanian"],
    "als": ["als", "gsw", "Alemannic", "Swiss German"],
    "sr": ["sr", "srp", "Serbian", "sr-Latn"],
    "sh": ["sh", "hbs", "Serbo-Croatian"],
    "tl": ["tl", "tgl", "fil", "Tagalog", "Filipino"],
    "bh": ["bh", "bih", "Bihari"],
    "bn": ["bn", "ben", "Bengali", "Bangla"],
}


@pytest.mark.parametrize("code", SPELLINGS)
def test_names_of_a_language_mean_one_thing(code: str) -> None:
    found = {name: language.kept(keep(name)) for name in SPELLINGS[code]}
    assert found == {name: [code] for name in SPELLINGS[code]}


def test_every_label_means_itself_and_has_an_english_name_of_its_own() -> None:
    from babel.core import Locale

    labels = [label.removeprefix("__label__") for label in fasttext_file.labels(MODEL)]
    names = {name: [code] for code, name in Locale("en").languages.items() if code in labels}
    assert len(labels) == len(set(labels)) == 176
    assert [language_codes.matching(label, labels) for label in labels] == [[label] for label in labels]
    assert {name: language_codes.matching(name, labels) for name in names} == names
    assert all(language_codes.matching(name, labels) for name in language_codes.NAMES)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("elvish", "is it english or"),
        ("germna", "is it german or"),
        ("Old English", "is it english or"),
        ("und", "is it nds"),
        ("xx", "it knows 176 others, such as en"),
        ("", "it knows 176 others"),
    ],
)
def test_unknown_languages_are_refused_with_what_is_near(name: str, said: str) -> None:
    message = rf"language\.keep names {name!r}, which the model does not know.*{said}"
    with pytest.raises(UserError, match=message):
        language.check(keep("en", name))


@given(st.text(max_size=12))
@settings(deadline=None)
def test_any_name_is_known_or_refused(name: str) -> None:
    with contextlib.suppress(UserError):
        assert language.kept(keep(name))


def test_labels_with_scripts() -> None:
    """As NLLB's and GlotLID's models have them, whose `als` is Albanian."""
    labels = [
        *["eng_Latn", "srp_Cyrl", "srp_Latn", "als_Latn", "nob_Latn"],
        *["nno_Latn", "cmn_Hani", "yue_Hani"],
    ]
    expected = {
        "en": ["eng_Latn"],
        "sr": ["srp_Cyrl", "srp_Latn"],
        "sr-Latn": ["srp_Latn"],
        "sq": ["als_Latn"],
        "Albanian": ["als_Latn"],
        "no": ["nob_Latn"],
        "nn": ["nno_Latn"],
        "Chinese": ["cmn_Hani"],
        "eng_latn": ["eng_Latn"],
        "gsw": [],
        "Cantonese": ["yue_Hani"],
    }
    assert {name: language_codes.matching(name, labels) for name in expected} == expected


# ---------------------------------------------------------------- the model's file


def write_model(path: Path, labels: list[str], kind: int = fasttext_file.SUPERVISED) -> Path:
    """A model of one word and two dimensions whose first label is always the likeliest."""
    softmax = 3
    settings = (2, 5, 5, 1, 5, 1, softmax, kind, 0, 0, 0, 100, 1e-4)
    words = [("</s>", 0), *((f"__label__{label}", 1) for label in labels)]
    output = np.zeros((len(labels), 2), "<f4")
    output[:1] = 1
    path.write_bytes(
        struct.pack("<2i", 793712314, 12)
        + struct.pack("<12id", *settings)
        + struct.pack("<3i2q", len(words), 1, len(labels), 1, -1)
        + b"".join(word.encode() + b"\0" + struct.pack("<qb", 1, kind) for word, kind in words)
        + struct.pack("<?2q", False, 1, 2)
        + np.ones((1, 2), "<f4").tobytes()
        + struct.pack("<?2q", False, len(labels), 2)
        + output.tobytes()
    )
    return path


def refused(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        language.check(keep("en", model=str(path)))
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_another_model(tmp_path: Path) -> None:
    """Its labels are those of the rows and of what is kept."""
    path = write_model(tmp_path / "own.bin", ["eng_Latn", "deu_Latn"])
    chosen = keep("English", model=str(path))
    codes, scores = language.identify(pa.array([GERMAN], pa.large_string()), chosen)
    assert codes.to_pylist() == ["eng_Latn"]
    assert scores[0] == pytest.approx(1 / (1 + np.exp(-2)), rel=1e-3)
    assert language.fates(codes, scores, chosen).to_pylist() == [None]
    with pytest.raises(UserError, match="'fr', which the model does not know"):
        language.check(keep("fr", model=str(path)))


def test_files_that_are_no_model_of_languages_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.bin").touch()
    (tmp_path / "odd.bin").write_bytes(b"no model at all")
    assert "there is no such file" in refused(tmp_path / "absent.bin")
    assert "is no file" in refused(tmp_path)
    assert "is empty" in refused(tmp_path / "empty.bin")
    assert "is no fastText model" in refused(tmp_path / "odd.bin")
    moods, grades = (
        write_model(tmp_path / "a.bin", ["pos", "neg"]),
        write_model(tmp_path / "b.bin", ["hq", "cc"]),
    )
    assert "whose labels (neg, pos, …) are no languages" in refused(moods)
    assert "whose labels (cc, hq, …) are no languages" in refused(grades)
    assert "word vectors" in refused(write_model(tmp_path / "c.bin", ["en"], kind=2))
    assert "0 labels" in refused(write_model(tmp_path / "d.bin", []))


def test_a_truncated_model_is_refused(tmp_path: Path) -> None:
    """fastText itself waits for ever on most of these, or ends the process."""
    whole, path = Path(MODEL).read_bytes(), tmp_path / "cut.ftz"
    places = np.random.default_rng(0).integers(0, len(whole), 40).tolist()
    for size in [1, 4, 8, 20, 60, 95, 96, 97, len(whole) - 1, *places]:
        path.write_bytes(whole[:size])
        said = refused(path)
        assert "truncated" in said or "no fastText model" in said
    dense = write_model(tmp_path / "dense.bin", ["en", "de"]).read_bytes()
    for size in range(1, len(dense)):
        path.write_bytes(dense[:size])
        refused(path)
    path.write_bytes(dense + b"\0")
    assert f"it has {len(dense) + 1} bytes, but by what it says of itself {len(dense)}" in refused(path)


@given(st.binary(max_size=200), st.integers(0, 200))
@settings(deadline=None)
def test_any_bytes_give_labels_or_a_reason(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, place: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "junk.bin"
    good = write_model(path, ["en", "de"]).read_bytes()
    path.write_bytes(good[:place] + junk + good[place + len(junk) :])
    with contextlib.suppress(fasttext_file.ModelError):
        assert fasttext_file.labels(str(path))


def test_the_fingerprint_covers_the_model_and_not_how_things_are_spelled(tmp_path: Path) -> None:
    copy = tmp_path / "copy.ftz"
    shutil.copy(MODEL, copy)
    here = language.identity(keep("en", "de"))
    assert here == language.identity(keep("German", "English", "eng", model=str(copy)))
    assert here != language.identity(keep("en", "fr"))
    assert language.identity(Language()) is None
    before = language.identity(keep("en", model=str(write_model(copy, ["en", "de"]))))
    assert before != language.identity(keep("en", model=str(write_model(copy, ["en", "fr"]))))
    assert before != here
