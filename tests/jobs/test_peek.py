"""Documents in the terminal: which ones, why they have their fate, and in which words two differ."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs import ledger
from jobs.config import Config
from jobs.errors import UserError
from jobs.peek import main
from jobs.peek.difference import hunks
from jobs.peek.documents import Wanted, chosen, fates_like
from jobs.peek.reasons import reason
from jobs.peek.show import printable
from jobs.runtime.checkpoint import read_json, write_json
from kernels import permutation
from tests.conftest import corpus_texts, run_job, write_corpus


def peeked(out: Path, *arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main([str(out), *arguments]) == 0
    return capsys.readouterr().out


def test_the_sample_is_the_documents_with_the_smallest_keyed_hashes(finished: Path) -> None:
    rows = ledger.read(finished, ["doc_id", "fate"]).compute()
    ids = rows["doc_id"].to_numpy(np.uint64)[(rows["fate"] == "near_duplicate").to_numpy()]
    hashes = permutation.keyed_hash(ids, permutation.key("peek", 3))
    found = chosen(finished, Wanted(fate="near_duplicate", n=7, seed=3))
    assert [row["doc_id"] for row in found] == ids[np.argsort(hashes)][:7].tolist()
    assert all(row["fate"] == "near_duplicate" for row in found)
    assert chosen(finished, Wanted(seed=1)) != chosen(finished, Wanted(seed=2))


def test_a_document_by_its_doc_id_its_id_or_its_url(finished: Path) -> None:
    (row,) = chosen(finished, Wanted(id="<urn:17>"))
    assert row["url"] == "https://example.org/17"
    assert chosen(finished, Wanted(id=row["url"])) == [row]
    assert chosen(finished, Wanted(id=str(row["doc_id"]))) == [row]
    with pytest.raises(UserError, match="--id nowhere"):
        chosen(finished, Wanted(id="nowhere"))


def test_steps_and_groups_stand_for_their_fates(finished: Path) -> None:
    assert fates_like(finished, "length") == ["length.min_tokens"]
    assert fates_like(finished, "kept") == ["train", "validation"]
    assert fates_like(finished, "dropped") == ["length.min_tokens", "near_duplicate"]


def test_a_near_duplicate_is_shown_beside_what_was_kept(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = peeked(finished, "--fate", "near_duplicate", "-n", "3", capsys=capsys)
    assert shown == peeked(finished, "--fate", "near_duplicate", "-n", "3", capsys=capsys)
    for row in chosen(finished, Wanted(fate="near_duplicate", n=3)):
        (kept,) = chosen(finished, Wanted(id=str(row["kept_by"])))
        assert f"near_duplicate  doc_id {row['doc_id']}" in shown
        assert f"it is a near-copy of doc_id {kept['doc_id']}, which is kept" in shown
        assert kept["url"] in shown
    assert shown.count("similarity 0.") + shown.count("similarity 1.") == 3
    assert "replaced+}" in shown or "[-replaced" in shown


def test_kept_and_short_documents_say_where_they_are_or_what_they_lack(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = chosen(finished, Wanted(fate="train", n=1))
    shown = peeked(finished, "--fate", "train", "-n", "1", "--chars", "50", capsys=capsys)
    assert f"tokens begin at {row['offset']:,} of sample_train_{row['shard']:06d}.bin" in shown
    short = peeked(finished, "--fate", "length", "-n", "1", capsys=capsys)
    assert "length.min_tokens is 32" in short


def test_sources_that_are_gone_are_said_once(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Path(shutil.copytree(finished, tmp_path / "copy"))
    manifest = read_json(copy / "manifest.json")
    manifest["config"]["sources"][0]["path"] = str(copy / "nowhere")
    write_json(copy / "manifest.json", manifest)
    shown = peeked(copy, "-n", "4", capsys=capsys)
    assert shown.count("warning: source 'web' can no longer be read") == 1
    assert shown.count("(no text)") == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--fate", "nar_duplicate"], "--fate is 'nar_duplicate'; did you mean near_duplicate?"),
        (["--source", "books"], "--source is 'books'"),
        (["-n", "0"], "-n is 0"),
        (["--fate", "train", "--id", "<urn:absent>"], "has --fate train and --id <urn:absent>"),
    ],
)
def test_mistakes_are_one_sentence(
    finished: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(finished), *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1


# ---------------------------------------------------------------- reasons

ROW: dict[str, Any] = {
    "source": "web",
    "score": 2.1,
    "language": "fr",
    "language_score": 0.987,
    "n_tokens": 12,
    "gopher_quality_words": 31,
    "hq_score": 0.25,
    "kept_by": 7,
    "removed_passages": 3,
    "removed_bytes": 1_234,
    "personal_data_email": 2,
}
SETTINGS = {
    "sources": [{"name": "web", "path": "x", "weight": 0.5}],
    "thresholds": [{"column": "score", "min": 2.5, "max": 4}],
    "language": {"enabled": True, "keep": ["en", "de"]},
    "quality": {"enabled": True},
    "classifiers": [{"name": "hq", "kind": "fasttext", "model": "m.bin", "label": "hq", "min_score": 0.5}],
}


@pytest.mark.parametrize(
    ("fate", "said"),
    [
        ("input.null_text", "its text is null"),
        ("input.weight", "it is not in the keyed sample of 0.5 of its source"),
        ("column.score", "score is 2.1; the least is 2.5 and the most is 4"),
        ("column.score.missing", "it has no number as score"),
        ("urls.domain", "its domain is on a list of urls.domains"),
        ("extraction.timeout", "it took longer than extraction.seconds"),
        ("language.keep", "its language is fr with a score of 0.987; language.keep is en, de"),
        ("language.min_score", "its language is fr with a score of 0.987; language.min_score is 0.65"),
        ("quality.gopher_quality.min_words", "gopher_quality_words is 31; gopher_quality.min_words is 50"),
        ("classifier.hq", "hq_score is 0.25; the least is 0.5"),
        (
            "contaminated.gsm8k",
            "it holds items of the evaluation set gsm8k; contamination/diff.md in the output has which",
        ),
        (
            "repeated_passages.floor",
            "too little is left without 3 passages of 1,234 bytes that the corpus has elsewhere",
        ),
        ("personal_data.email", "it holds personal data of the kind email, 2 times"),
        ("url_duplicate", "it has the same URL, in its canonical form, as doc_id 7, which was preferred"),
        ("length.min_tokens", "it has 12 tokens; length.min_tokens is 64"),
        ("a_later_step.rule", "a_later_step.rule"),
    ],
)
def test_each_fate_has_a_reason(fate: str, said: str) -> None:
    assert reason(ROW | {"fate": fate}, Config.model_validate(SETTINGS)) == f"dropped: {said}"


def test_a_document_that_was_preferred_may_be_dropped_itself() -> None:
    kept = ROW | {
        "fate": "length.min_tokens",
        "doc_id": 7,
        "path": "p",
        "record": 1,
        "crawl": None,
        "url": None,
        "id": "i",
    }
    said = reason(ROW | {"fate": "near_duplicate"}, Config.model_validate(SETTINGS), kept)
    assert "which was preferred and then dropped (length.min_tokens; web · p · record 1 · i)" in said


def test_a_document_of_an_earlier_run_is_shown_as_what_was_kept(
    finished: Path, cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copies = write_corpus(tmp_path / "copies", corpus_texts(900)[:60] + corpus_texts(300, seed=5))
    out, name = tmp_path / "later", f"sources=[{{name: later, path: '{copies}'}}]"
    assert run_job(copies, out, cluster, name, f"against=['{finished}']", "validation.fraction=0") == 0
    capsys.readouterr()
    rows = chosen(out, Wanted(fate="near_duplicate", n=500))
    shown = peeked(out, "--fate", "near_duplicate", "-n", "500", capsys=capsys)
    earlier = [row for row in rows if row["kept_in"] is not None]
    assert 5 < len(earlier) < len(rows)
    for row in earlier:
        assert f"it is a near-copy of doc_id {row['kept_by']} of {finished}, which is kept (" in shown
    assert shown.count("  similarity ") == len(rows)


# ---------------------------------------------------------------- differences

WORDS = st.lists(st.sampled_from(["a", "b", "c", "d", "e", "f"]), max_size=60).map(" ".join)


@given(WORDS, WORDS)
def test_differences_stand_where_they_say_and_leave_out_only_what_is_the_same(
    dropped: str, kept: str
) -> None:
    a, b = dropped.split(), kept.split()
    found, i, k = hunks(dropped, kept), 0, 0
    for hunk in found:
        assert a[i : hunk.at_dropped - 1] == b[k : hunk.at_kept - 1]  # between two hunks
        i, k = hunk.at_dropped - 1, hunk.at_kept - 1
        for kind, text in hunk.words:
            words = text.split()
            if kind != "kept":
                assert a[i : i + len(words)] == words
                i += len(words)
            if kind != "dropped":
                assert b[k : k + len(words)] == words
                k += len(words)
    assert a[i:] == b[k:]
    assert bool(found) == (a != b)


def test_a_document_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[2Jb\u202ec\td\n") == "a\ufffd[2Jb\ufffdc\td\n"
