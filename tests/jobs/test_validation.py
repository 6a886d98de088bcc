"""No validation document shares more of its n-grams with training than is allowed, whatever the partitions."""

import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs import ledger, report
from jobs.pipeline import validation
from tests import naive
from tests.conftest import corpus_texts, digests, run_job, write_corpus

N = 13


def shares(out: Path, texts: dict[tuple[str, int], str], n: int = N) -> dict[tuple[str, int], float]:
    """Of each validation document, the share of its different n-grams that training documents hold, by sets."""
    rows = ledger.read(out).compute()
    grams = {
        (row.path, row.record): (
            str(row.fate),
            set(naive.ngrams(naive.gpt3_words(texts[row.path, row.record]), n)),
        )
        for row in rows.itertuples()
        if row.fate in ("train", "validation")
    }
    training = set().union(*(own for fate, own in grams.values() if fate == "train"))
    return {
        place: len(own & training) / max(len(own), 1)
        for place, (fate, own) in grams.items()
        if fate == "validation"
    }


def texts_of(corpus: Path) -> dict[tuple[str, int], str]:
    """Texts by file and record."""
    return {
        (path.name, i): text
        for path in corpus.glob("*.parquet")
        for i, text in enumerate(pq.read_table(path)["text"].to_pylist())
    }


@pytest.fixture(scope="session")
def contained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the first third of the documents, each is in the middle of a longer one that is no near-duplicate."""
    plain = [text for text in dict.fromkeys(corpus_texts(400)) if len(text.split()) > 60]
    short, around = plain[:60], plain[60:]
    longer = [f"{a}\n{text.upper()} {b}" for text, a, b in zip(short, around, around[60:], strict=False)]
    return write_corpus(tmp_path_factory.mktemp("contained"), [*short, *longer, *around])


QUICK = ("near_duplicates.enabled=true", "validation={fraction: 0.2}")


def test_documents_in_longer_ones_go_to_training(contained: Path, cluster: str, tmp_path: Path) -> None:
    texts = texts_of(contained)
    assert run_job(contained, tmp_path / "out", cluster, *QUICK, "validation.max_shared=1") == 0
    before = shares(tmp_path / "out", texts)
    assert max(before.values()) > 0.9  # de-duplication does not see them
    assert report.read(tmp_path / "out")["validation"]["overlap"] is None

    assert run_job(contained, tmp_path / "out", cluster, *QUICK) == 0
    found = report.read(tmp_path / "out")["validation"]["overlap"]
    after = shares(tmp_path / "out", texts)
    assert 0 < len(after) == found["documents"]
    assert max(after.values()) == pytest.approx(found["largest_share"], abs=1e-12)
    assert found["largest_share"] <= 0.5
    table = pq.read_table(tmp_path / "out" / "validation" / "documents.parquet").to_pylist()
    of_validation = {
        (row["path"], row["record"]): row["share"] for row in table if row["fate"] == "validation"
    }
    assert of_validation == pytest.approx(after, abs=1e-12)
    assert 0 < found["moved"]["documents"] == sum(row["fate"] == "train" for row in table)
    [worst, *_] = found["moved"]["largest"]
    assert worst["words"] in " ".join(texts[worst["path"], worst["record"]].split())

    # Whatever the splits and the workers.
    again = ("splits.bytes=20 KB", *QUICK)
    assert run_job(contained, tmp_path / "again", cluster, *again) == 0
    assert digests(tmp_path / "again", "shards", "ledger", "report", "validation") == digests(
        tmp_path / "out", "shards", "ledger", "report", "validation"
    )


def test_what_cannot_be_met_is_said(
    contained: Path, cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    extra = ("validation={fraction: 0.2, ngram: 1, max_shared: 0.01}",)
    assert run_job(contained, tmp_path / "out", cluster, *extra) == 2
    said = capsys.readouterr().err
    assert (
        "too few documents have at most 1% of their 1-grams in training; lower validation.tokens or " in said
    )
    assert "Traceback" not in said


documents = st.lists(
    st.tuples(st.integers(1, 50), st.sets(st.integers(0, 12), max_size=6)), min_size=1, max_size=12
)


@given(
    documents,
    st.sets(st.integers(0, 12), max_size=8),
    st.integers(0, 200),
    st.sampled_from([0.0, 0.3, 0.5, 0.99]),
)
def test_choice(
    candidates: list[tuple[int, set[int]]], elsewhere: set[int], target: int, most: float
) -> None:
    n_tokens = [tokens for tokens, _ in candidates]
    sets = [own for _, own in candidates]
    numbers = np.array([gram for own in sets for gram in sorted(own)], np.int64)
    grams = validation.Grams(np.cumsum([0, *map(len, sets)]), numbers, np.arange(13, dtype=np.uint64))
    there = np.isin(np.arange(13), list(elsewhere))
    found = validation.choose(np.array(n_tokens), grams, there, target, most)
    expected = naive.choose_validation(n_tokens, sets, elsewhere, target, most)
    if expected is None:
        assert found is None
        return
    assert found is not None
    chosen, moved = expected
    assert set(np.flatnonzero(found.validation).tolist()) == chosen
    assert set(np.flatnonzero(found.moved).tolist()) == moved
    training = elsewhere.union(*(own for i, own in enumerate(sets) if i not in chosen))
    assert all(found.shared[i] == len(sets[i] & training) for i in chosen)


@given(st.lists(st.text(st.sampled_from("ab ,.-\né中"), max_size=30), max_size=5), st.integers(1, 4))
def test_ngrams_of_documents(texts: list[str], n: int) -> None:
    found = validation.grams_of([text.encode() for text in texts], n)
    expected = [set(naive.ngrams(naive.gpt3_words(text), n)) for text in texts]
    assert np.diff(found.offsets).tolist() == [len(own) for own in expected]
    assert len(found.hashes) == len(set().union(*expected))
    for one, own in enumerate(expected):
        for other, theirs in enumerate(expected):
            here = np.zeros(len(found.hashes), bool)
            here[found.numbers[found.offsets[other] : found.offsets[other + 1]]] = True
            assert found.counts(here)[one] == len(own & theirs)


@pytest.mark.parametrize("unit", ["1", "@", ".", "-", "a ", "東", "\u0301"])
def test_time_is_bounded_on_hostile_text(unit: str) -> None:
    """The n-grams of candidates, and the words that training has of them."""
    text = (unit * (1_000_000 // len(unit))).encode()
    validation.grams_of([b"warm up"], 1)
    before = time.process_time()
    grams = validation.grams_of([text, text], N)
    assert validation.choose(
        np.array([9, 9]), grams, np.zeros(len(grams.hashes), bool), 9, 0.5
    ) is None or not len(grams.hashes)
    if len(grams.hashes):
        assert validation.shared_words(text, np.ones(len(grams.hashes), bool), grams, N)
    assert time.process_time() - before < 10  # less than 1 on an idle core
