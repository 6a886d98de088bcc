"""C4's rule about bad words, and stop words by language: which list, what it finds, what is refused."""

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from jobs import ledger, steps
from jobs.config import Source
from jobs.errors import UserError
from jobs.runtime.console import Console
from jobs.settings.quality import Quality
from jobs.sources.batches import Batch
from jobs.steps import bad_words, quality
from jobs.steps.quality import filtered
from jobs.verify import verify
from jobs.whatif.answer import answer
from jobs.whatif.change import Change
from tests.conftest import run_job, write_corpus
from tests.jobs.test_quality import GOOD, prose, text

ORDER = ["gopher_quality", "bad_words"]


@pytest.fixture
def lists(tmp_path: Path) -> dict[str, str]:
    written = {"en": "Darn\nby  golly\n\ndrat it \n", "de": "mist\n", "ja": "グロ\nスカトロ\n"}
    for name, words in written.items():
        (tmp_path / name).write_text(words, encoding="utf-8")
    return {name: str(tmp_path / name) for name in written}


def settings(lists: dict[str, str], **more: object) -> Quality:
    return Quality.model_validate({"enabled": True, "order": ORDER, "bad_words": {"files": lists, **more}})


def test_the_list_of_the_documents_language_decides(lists: dict[str, str]) -> None:
    documents = [
        *["DARN!", "darned mist", "drat it all", "so ein MIST", "darn"],
        *["グロいスカトロとか", "グロい", "darn", "darn"],
    ]
    languages = pa.array(["en", None, "English", "deu", "de", "ja", "ja", "fr", "und"])
    found = bad_words.measure(text(*documents), languages, lists)
    assert found.places.to_pylist() == [1, 0, 1, 1, 0, 1, 0, None, 1]
    assert found.per_word.to_pylist() == [1, 0, 1 / 3, 1 / 3, 0, 1 / 9, 0, None, 1]
    assert bad_words.measure(text("darn"), None, lists).places.to_pylist() == [1]


def test_fates_and_thresholds(lists: dict[str, str]) -> None:
    documents = text(GOOD, f"{GOOD}\nDarn it all, darn.", f"{GOOD}\nDarn.")
    fate = "quality.bad_words.max_matches"
    assert filtered(documents, settings(lists)).fate.to_pylist() == [None, fate, fate]
    assert filtered(documents, settings(lists, max_matches=1)).fate.to_pylist() == [None, fate, None]
    rate = settings(lists, max_matches=None, max_matches_per_word=0.01)
    assert filtered(documents, rate).fate.to_pylist() == [None, f"{fate}_per_word", None]
    french = filtered(documents, settings(lists), pa.array(["fr"] * 3))
    assert french.fate.null_count == 3


def test_behind_c4_the_edited_text_is_looked_at(lists: dict[str, str]) -> None:
    document = text(f"{GOOD}\nUse cookies, darn fools.")
    for order, places in ((["bad_words", "c4"], 1), (["c4", "bad_words"], 0)):
        rules = Quality.model_validate({"enabled": True, "order": order, "bad_words": {"files": lists}})
        assert filtered(document, rules).statistics["bad_words_matches"].to_pylist() == [places]


def test_as_the_references_regular_expression(shared: Path) -> None:
    """datatrove's expression on real documents; no word of theirs has a mark or | beside it."""
    listed = shared / "pii" / "ldnoobw" / "en"
    entries = {line.strip().lower() for line in listed.read_text(encoding="utf-8").splitlines()}
    theirs = re.compile(r"(?:\W|^)({})(?:\W|$)".format("|".join(map(re.escape, entries))))
    table = pq.read_table(next((shared / "fineweb").glob("*.parquet")), columns=["text"])["text"]
    documents = [*table.to_pylist(), "porn", "my porn.", "porno", "g-spot", "S&M"]
    places = bad_words.measure(text(*documents), None, {"en": str(listed)}).places.to_pylist()
    assert [n > 0 for n in places] == [bool(theirs.search(document.lower())) for document in documents]
    assert sum(n > 0 for n in places) > 4


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("en", None, "files.en is .*but there is no such file"),
        ("en", b"\n  \n", "holds no word"),
        ("en", b"word\n\xff\xfe\n", "line 2 is no UTF-8"),
        ("xx", b"word", "'xx', which is no language"),
    ],
)
def test_lists_that_cannot_be_used(name: str, content: bytes | None, named: str, tmp_path: Path) -> None:
    path = tmp_path / "list"
    if content is not None:
        path.write_bytes(content)
    source = Source(name="web", path="x", quality=settings({name: str(path)}))
    with pytest.raises(UserError, match=named):
        steps.check(source)


def test_files_and_order_belong_together(lists: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="names no list"):
        Quality.model_validate({"enabled": True, "order": ORDER})
    with pytest.raises(ValidationError, match="order does not name bad_words"):
        Quality.model_validate({"enabled": True, "bad_words": {"files": lists}})


def test_fingerprints_hold_the_lists_content(lists: dict[str, str]) -> None:
    before = quality.identity(settings(lists))
    moved = {name: str(Path(path).rename(f"{path}.txt")) for name, path in lists.items()}
    assert quality.identity(settings(moved)) == before
    Path(moved["en"]).write_text("other", encoding="utf-8")
    assert quality.identity(settings(moved)) != before


# ---------------------------------------------------------------- stop words by language


BY_LANGUAGE = {"en": ("the", "of", "and"), "de": ("der", "die", "und"), "zh": ("的", "是")}
GERMAN = "Der Hund und die Katze liegen in der Sonne und schlafen."


def stop_words(**more: object) -> Quality:
    return Quality.model_validate(
        {"enabled": True, "order": ["gopher_quality"], "gopher_quality": {"stop_words": BY_LANGUAGE, **more}}
    )


def test_stop_words_are_those_of_the_documents_language() -> None:
    documents = text(GERMAN, GERMAN, GERMAN, "The end of the day and night.", "我的書是你的", GERMAN)
    languages = pa.array(["de", "German", "fr", None, "zh", "en"])
    found = filtered(documents, stop_words(), languages).statistics["gopher_quality_stop_words"]
    assert found.to_pylist() == [3, 3, None, 3, 2, 0]  # Der is another word than der


def test_only_stop_words_depend_on_the_list_and_order_stays() -> None:
    documents = text(*(f"{GOOD}\nNumber {i}." for i in range(9)))
    languages = pa.array(["de", "en", "fr"] * 3)
    by_language = filtered(documents, stop_words(), languages)
    plain = filtered(documents, stop_words().model_copy(update={"gopher_quality": Quality().gopher_quality}))
    name = "gopher_quality_stop_words"
    assert by_language.statistics.drop_columns([name]) == plain.statistics.drop_columns([name])
    assert by_language.fate.to_pylist() == ["quality.gopher_quality.min_stop_words", None, None] * 3
    assert by_language.text == documents


def test_no_documents() -> None:
    assert len(filtered(text(), stop_words(), pa.array([], pa.string())).fate) == 0
    assert len(filtered(text(), stop_words()).fate) == 0


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ({"zh": ["我的"]}, r"stop_words.zh has '我的', which is 2 words here \(我, 的\)"),
        ({"en": ["don't"]}, "stop_words.en has"),
        ({"xx": ["a"]}, "'xx' is no language"),
        (["it is"], "stop_words has 'it is'"),
    ],
)
def test_stop_words_that_no_text_can_have(words: object, named: str) -> None:
    rules = Quality.model_validate({"enabled": True, "gopher_quality": {"stop_words": words}})
    with pytest.raises(UserError, match=named):
        steps.check(Source(name="web", path="x", quality=rules))


def test_a_document_is_judged_in_the_language_that_the_step_before_found() -> None:
    source = Source.model_validate(
        {"name": "web", "path": "x", "language": {"enabled": True}, "quality": stop_words(min_words=1)}
    )
    batch = Batch.checked(0, text(GERMAN, GERMAN), {})
    found = steps.documents("a", batch, source)
    assert found.columns["language"].to_pylist() == ["de", "de"]
    assert found.columns["gopher_quality_stop_words"].to_pylist() == [3, 3]


def test_main_job_by_language(cluster: str, tmp_path: Path, lists: dict[str, str]) -> None:
    """Texts read again are those that were packed, though their language decides what C4's rules leave."""
    import numpy as np

    random = np.random.default_rng(0)
    german = [f"{GERMAN[:-1]} im Haus Nummer {i}.\n" * 12 + "Und das ist das Ende[1]." for i in range(40)]
    good = [prose(random) for _ in range(150)]
    folder = write_corpus(
        tmp_path / "in", [*good, *(f"{prose(random)}\nDarn it all, we say." for _ in range(9)), *german]
    )
    order = "quality.order=[gopher_quality, c4, bad_words]"
    words = "quality.gopher_quality.stop_words={en: [the, of], de: [der, und]}"
    files = f"quality.bad_words.files={{en: '{lists['en']}'}}"
    out = tmp_path / "out"
    more = ["quality.enabled=true", "language.enabled=true", "tokenizer.train.vocab_size=300"]
    assert run_job(folder, out, cluster, *more, order, words, files) == 0
    rows = ledger.read(out).compute()
    fates = rows["fate"].value_counts()
    assert 5 <= fates["quality.bad_words.max_matches"] <= 9  # those that count as English
    of_german = rows[rows["language"] == "de"]
    assert len(of_german) == 40
    assert of_german["bad_words_matches"].isna().all()
    assert (of_german["gopher_quality_stop_words"] == 2).all()
    assert (of_german["fate"] == ledger.TRAIN).any()
    assert not of_german["fate"].astype(str).str.startswith("quality").any()
    assert not verify(out, Console())
    found = answer(out, Change(["bad_words.max_matches=null"]), samples=0)
    assert found["whole"]["would_come_back"]["documents"] == fates["quality.bad_words.max_matches"]
    assert not [note for note in found["notes"] if "report" in note]
    with pytest.raises(UserError, match=r"bad_words\.files changes what is measured"):
        answer(out, Change(["bad_words.files={de: x}"]))
