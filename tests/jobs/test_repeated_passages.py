"""Repeated passages: the rule against a slow reference, whatever the partitions; the whole job; FineWeb's documents."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs import ledger, report, trace, verify
from jobs.pipeline.duplicates import passages
from jobs.runtime.console import Console
from jobs.settings.duplicates import RepeatedPassages
from jobs.steps import repeated_passages
from kernels import permutation
from kernels.characters import SENTENCE_ENDS, code_points
from kernels.passages import normal_form
from tests import naive
from tests.conftest import corpus_texts, digests, run_job, write_corpus

ON = "repeated_passages.enabled=true"
ENDS = set(map(chr, code_points(SENTENCE_ENDS)))
NAIVE_UNITS = {"line": ("line", 1), "paragraph": ("paragraph", 1), "three_sentences": ("sentence", 3)}
KEY = permutation.key("repeated_passages", 0)


def expected_texts(texts: dict[int, str], unit: str, keep: str = "first") -> dict[int, str]:
    """The slow way."""
    cut, in_a_passage = NAIVE_UNITS[unit]
    return naive.without_repeats(
        texts, cut, in_a_passage, ENDS, keep, lambda doc_id: naive.keyed_hash(doc_id, KEY)
    )


PIECES = ["One. ", "Two! ", "Three? ", "Four. ", "one, ", "7", "8", "é", "e", "\n", "\n", "\n\n"]
texts_of_few_parts = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.integers(1, 2**64 - 1), texts_of_few_parts, min_size=1, max_size=9),
    st.sampled_from([*NAIVE_UNITS]),
    st.sampled_from(["first", "none"]),
    st.integers(1, 4),
    st.sampled_from([1, 2, 8]),
)
def test_the_rule_in_any_partitioning(
    tmp_path_factory: pytest.TempPathFactory,
    texts: dict[int, str],
    unit: str,
    keep: str,
    size: int,
    ranges: int,
) -> None:
    rule = RepeatedPassages(enabled=True, unit=unit, keep=keep, floor_words=0)
    folder = tmp_path_factory.mktemp("table")
    doc_ids = np.array([*texts], np.uint64)
    column = pa.array(texts.values(), pa.large_string())
    rows = []
    for start in range(0, len(texts), size):
        part = slice(start, start + size)
        hashes, documents, occurrences = passages.count(column[part], doc_ids[part], rule)
        number = repeated_passages.range_of(hashes, ranges)
        of_split = {"range": number, "hash": hashes, "doc_id": documents, "occurrences": occurrences}
        rows.append(pd.DataFrame(of_split))
    found = passages.write_ranges(pd.concat(rows), folder)
    counts = np.zeros(ranges, np.int64)
    counts[found["range"].to_numpy()] = found["passages"].to_numpy()
    np.save(folder / repeated_passages.RANGES, counts)
    edited = [
        text
        for start in range(0, len(texts), size + 1)
        for text in edited_texts(
            column[start : start + size + 1], doc_ids[start : start + size + 1], rule, folder
        )
    ]
    assert dict(zip(texts, edited, strict=True)) == expected_texts(texts, unit, keep)


def test_sentences_that_a_kept_span_needs_stay(tmp_path: Path) -> None:
    """Of s3 to s6, the second document keeps s4 to s6, since it comes first of those that have them."""
    ids = np.arange(1, 4, dtype=np.uint64)
    first, second, third = ids[np.argsort(repeated_passages.ranks(ids))].tolist()
    texts = {
        third: "S four. S five. S six. S seven.",
        second: "S two. S three. S four. S five. S six.",
        first: "S one. S three. S four. S five.",
    }
    rule = RepeatedPassages(enabled=True, unit="three_sentences", floor_words=0)
    column, doc_ids = pa.array(texts.values(), pa.large_string()), np.array([*texts], np.uint64)
    table = passages.count(column, doc_ids, rule)
    rows = pd.DataFrame(dict(zip(("hash", "doc_id", "occurrences"), table, strict=True))).assign(range=0)
    found = passages.write_ranges(rows, tmp_path)
    np.save(tmp_path / repeated_passages.RANGES, found["passages"].to_numpy())
    left = dict(zip(texts, edited_texts(column, doc_ids, rule, tmp_path), strict=True))
    assert left == expected_texts(texts, "three_sentences")
    assert left == {
        first: texts[first],
        second: "S two. S four. S five. S six.",
        third: "S seven.",
    }


def edited_texts(column: pa.Array, doc_ids: np.ndarray, rule: RepeatedPassages, folder: Path) -> list[str]:
    found = repeated_passages.without(column, doc_ids, rule, folder)
    sizes = np.array([len(text.encode()) for text in column.to_pylist()])
    # A text of which nothing is left is below the least floor, and stays as it was.
    dropped = np.array(found.fate.is_valid())
    left = ["" if gone else text for gone, text in zip(dropped.tolist(), found.text.to_pylist(), strict=True)]
    lost = sizes - np.array([len(text.encode()) for text in left])
    assert (lost == found.columns["removed_bytes"]).all()
    assert ((found.columns["removed_passages"] > 0) >= (lost > 0)).all()
    return left


def boilerplate_texts(documents: int) -> list[str]:
    """Texts of their own between a header and one of a few footers, with differences that do not count."""
    random = np.random.default_rng(3)
    texts = []
    for i, text in enumerate(corpus_texts(documents, seed=9)):
        header = ["Home | About us", "HOME | About us!", "home | about üs"][i % 3]
        footer = f"Copyright {2000 + i % 20}, all rights reserved."
        body = text.replace(". ", ".\n") if random.random() < 0.5 else text
        texts.append(f"{header}\n\n{body}\n\n{footer}\n")
    return texts


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return boilerplate_texts(300)


@pytest.fixture(scope="module")
def corpus(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("boilerplate") / "corpus", texts)


FLOOR = "repeated_passages.floor_words=20"


@pytest.fixture(scope="module")
def cleaned(corpus: Path, cluster: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cleaned") / "out"
    assert run_job(corpus, out, cluster, ON, FLOOR) == 0
    return out


def rows_of(out: Path) -> pd.DataFrame:
    rows = ledger.read(out).compute()
    return rows.assign(doc_id=rows["doc_id"].astype("uint64"), fate=rows["fate"].astype("string"))


def test_texts_are_those_of_the_slow_way(cleaned: Path, texts: list[str]) -> None:
    rows = rows_of(cleaned)
    by_id = dict(zip(rows["doc_id"].tolist(), texts, strict=True))
    expected = expected_texts(by_id, "line")
    gone = rows["fate"] == repeated_passages.FLOOR
    assert 0 < gone.sum() < 50
    again = trace.source_texts(cleaned)
    for path, of_file in rows.groupby("path"):
        found = again("web", str(path), of_file["record"].astype(int).tolist())
        for row, text in zip(of_file.itertuples(), found, strict=True):
            left = expected[row.doc_id]
            assert text == (by_id[row.doc_id] if row.fate == repeated_passages.FLOOR else left)
            assert row.removed_bytes == len(by_id[row.doc_id].encode()) - len(left.encode())
            assert row.n_bytes == len(text.encode())
            short = len(naive.words(left)) < 20 and row.removed_passages > 0
            assert (row.fate == repeated_passages.FLOOR) == short
    headers = [text for text in expected.values() if normal_form(text).startswith("home | about us")]
    assert len(headers) == 1
    assert sum("Copyright" in text for text in expected.values()) == 1


def test_report_and_verification(cleaned: Path) -> None:
    rows = rows_of(cleaned)
    gone = rows["fate"] == repeated_passages.FLOOR
    section = report.read(cleaned)["repeated_passages"]
    kept = rows[~gone]
    (web,) = section.pop("sources")
    assert web == {
        "source": "web",
        "documents": (kept["removed_passages"] > 0).sum(),
        "removed_passages": kept["removed_passages"].sum(),
        "removed_bytes": kept["removed_bytes"].sum(),
        "below_floor": gone.sum(),
    }
    assert section["documents"] == 300
    assert section["their_occurrences"] - section["repeated_passages"] == rows["removed_passages"].sum()
    assert verify.verify(cleaned, Console()) == []


def test_same_bytes_for_other_splits(cleaned: Path, corpus: Path, cluster: str, tmp_path: Path) -> None:
    assert run_job(corpus, tmp_path / "out", cluster, ON, FLOOR, "splits.bytes=20 KB") == 0
    assert digests(tmp_path / "out") == digests(cleaned)
    for path in (cleaned / "repeated_passages").glob("ran*.npy"):
        assert (tmp_path / "out" / "repeated_passages" / path.name).read_bytes() == path.read_bytes()


def test_off_changes_nothing(corpus: Path, cluster: str, tmp_path: Path) -> None:
    assert run_job(corpus, tmp_path / "out", cluster) == 0
    rows = ledger.read(tmp_path / "out")
    assert "removed_passages" not in rows.columns
    assert report.read(tmp_path / "out")["repeated_passages"] is None
    assert [path.name for path in (tmp_path / "out" / "repeated_passages").iterdir()] == ["manifest.json"]


def test_one_source_only(texts: list[str], cluster: str, tmp_path: Path) -> None:
    """The passages of a source that does not use this do not count, and it loses none."""
    listed = []
    for name, own, use in (("mine", texts[:80], "true"), ("theirs", texts[80:], "false")):
        write_corpus(tmp_path / name, own, files=1)
        listed.append(
            f"{{name: {name}, path: '{tmp_path / name}', repeated_passages: {{enabled: {use}, unit: three_sentences}}}}"
        )
    assert run_job(tmp_path, tmp_path / "out", cluster, f"sources=[{', '.join(listed)}]") == 0
    rows = rows_of(tmp_path / "out")
    assert rows.loc[rows["source"] == "theirs", "removed_passages"].isna().all()
    mine = rows[rows["source"] == "mine"]
    by_id = dict(zip(mine["doc_id"].tolist(), texts[:80], strict=True))
    left = expected_texts(by_id, "three_sentences")
    lost = [len(by_id[doc_id].encode()) - len(left[doc_id].encode()) for doc_id in by_id]
    assert mine["removed_bytes"].tolist() == lost
    assert sum(lost) > 0


@pytest.mark.slow
def test_fine_webs_boilerplate(shared: Path, cluster: str, tmp_path: Path) -> None:
    """Of 3,000 documents, 200 of them copies, each line that occurs more than once is left once."""
    found = pa.concat_tables([pq.read_table(p) for p in sorted((shared / "fineweb").glob("*.parquet"))])
    lines = [line for text in found["text"].to_pylist() for line in text.split("\n")]
    occurrences = pd.Series([form for line in lines if (form := naive.normal_form(line))]).value_counts()
    extra = [ON, "validation.fraction=0.01", "near_duplicates.enabled=false", "length.min_tokens=0"]
    assert run_job(shared / "fineweb", tmp_path / "out", cluster, *extra) == 0
    rows = rows_of(tmp_path / "out")
    figures = report.read(tmp_path / "out")["repeated_passages"]
    assert figures["passages"] == occurrences.sum()
    assert figures["repeated_passages"] == (occurrences > 1).sum() > 1000
    assert figures["their_occurrences"] == occurrences[occurrences > 1].sum()
    assert rows["removed_passages"].sum() == (occurrences - 1).sum()
    # Of two copies one loses all its lines.
    assert (rows["fate"] == repeated_passages.FLOOR).sum() >= 200
