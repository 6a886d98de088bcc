"""The quality rules as a step: decisions, edited text, statistics in the ledger, counts in the report."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from jobs import ledger, steps
from jobs.config import Source
from jobs.runtime.console import Console
from jobs.settings.quality import Quality
from jobs.sources.batches import Batch
from jobs.steps.quality import SCHEMA, fates, filtered
from jobs.trace import source_texts
from jobs.verify import verify
from tests.conftest import digests, run_job, write_corpus
from tests.kernels.test_quality import EDGES

WORDS = ["the", "be", "to", "of", "and", *(f"word{i}" for i in range(60))]


def prose(random: np.random.Generator, end: str = "[1].") -> str:
    """Twelve lines that every rule keeps; two stop words at least."""
    lines = [" ".join(["The", "of", "that", *random.choice(WORDS, 9)]) + end for _ in range(12)]
    return "\n".join(lines)


GOOD = prose(np.random.default_rng(1))
SHORT = (
    "Each of these few words occurs once here, so that nothing but their number is to blame when such an unusually "
    "brief piece gets dropped by some rule about length."
)
EDITED = GOOD.replace("[1]", "")
RULES = Quality(enabled=True)


def text(*documents: str | None) -> pa.LargeStringArray:
    return pa.array(documents, pa.large_string())


def rules(**settings: object) -> Quality:
    return Quality.model_validate({"enabled": True, **settings})


def test_the_first_rule_in_the_order_names_the_fate() -> None:
    short, repeated = SHORT, "Again and again.\n" * 30
    found = filtered(text(GOOD, short, repeated, ""), RULES)
    assert found.fate.to_pylist() == [
        None,
        "quality.gopher_quality.min_words",
        "quality.gopher_repetition.max_duplicate_lines",
        "quality.gopher_repetition.min_characters",
    ]
    c4_first = filtered(text(short, repeated), rules(order=["c4", "gopher_quality", "gopher_repetition"]))
    assert c4_first.fate.to_pylist() == [
        "quality.c4.min_sentences",
        "quality.gopher_quality.min_words_with_letter",
    ]


def test_kept_documents_are_edited_and_dropped_ones_left_as_they_were() -> None:
    notice = GOOD + "\nThis site uses cookies and JavaScript.\ntwo words"
    brace = GOOD + "\nThis { is code."
    found = filtered(text(notice, brace), RULES)
    assert found.text.to_pylist() == [EDITED, brace]
    assert found.fate.to_pylist() == [None, "quality.c4.curly_bracket"]


def test_rule_sets_behind_c4_judge_the_edited_text_and_all_others_the_text_as_it_is() -> None:
    document = GOOD + "\n" + "x\n" * 100
    for order in (["gopher_repetition", "c4", "fineweb"], ["fineweb", "c4", "gopher_repetition"]):
        row = filtered(text(document), rules(order=order)).statistics.to_pylist()[0]
        first = filtered(text(document), rules(order=order[:1])).statistics.to_pylist()[0]
        second = filtered(
            filtered(text(document), rules(order=["c4"])).text, rules(order=order[2:])
        ).statistics.to_pylist()[0]
        expected = {name: (second if name.startswith(order[2]) else first)[name] for name in row}
        assert row == expected


def test_a_document_without_a_line_left_is_dropped_whatever_the_thresholds() -> None:
    lenient = rules(order=["c4"], c4={"min_sentences": None})
    assert filtered(text("two words", ""), lenient).fate.to_pylist() == ["quality.c4.no_line_left", None]


def test_thresholds_are_strict_except_for_the_papers_of_fineweb() -> None:
    half = "A line that is long enough to be no short one.\na short line"
    settings = {"max_short_lines": 0.5, "min_terminal_lines": 0.5}
    assert filtered(text(half), rules(order=["fineweb"], fineweb=settings)).fate[0].as_py() == (
        "quality.fineweb.min_terminal_lines"
    )
    code = {"preset": "fineweb-code", **settings}
    assert filtered(text(half), rules(order=["fineweb"], fineweb=code)).fate.to_pylist() == [None]


@pytest.mark.parametrize("document", EDGES.values(), ids=EDGES.keys())
def test_statistics_are_never_null_or_nan(document: str) -> None:
    row = filtered(text(document), RULES).statistics.to_pylist()[0]
    assert np.isfinite(list(row.values())).all()
    assert list(row) == SCHEMA.names


@pytest.mark.parametrize("piece", ["a", "#", "[1", "A.", "the cat ", "e\u0301", "東", "\r\n"])
def test_ten_megabytes_of_one_kind_take_no_more_than_seconds(piece: str) -> None:
    document = piece * (10_000_000 // len(piece.encode()))
    started = time.process_time()
    row = filtered(text(document), RULES).statistics.to_pylist()[0]
    assert time.process_time() - started < 10
    assert np.isfinite(list(row.values())).all()
    assert row["gopher_repetition_characters"] == len(document)


def test_off_means_nothing_is_measured_or_dropped() -> None:
    batch = Batch.checked(0, text(GOOD, "x"), {})
    found = steps.documents("a", batch, Source(name="web", path="x"))
    assert found.fate.null_count == 2
    assert not set(found.columns) & set(SCHEMA.names)
    assert steps.identity(Source(name="web", path="x"))["quality"] is None


def test_documents_without_text_have_no_statistics() -> None:
    batch = Batch.checked(0, text(None, GOOD, "", "x"), {})
    found = steps.documents("a", batch, Source(name="web", path="x", quality=RULES))
    assert found.columns["gopher_quality_words"].is_null().to_pylist() == [True, False, True, False]
    assert found.fate[0].as_py() == ledger.NULL_TEXT
    assert found.fate[1].as_py() is None
    assert found.alive.tolist() == [False, True, False, False]


def test_main_job_judges_records_and_counts(cluster: str, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    good = [prose(random) for _ in range(200)]
    bad = [f"{SHORT} {i}" for i in range(20)] + [f"{prose(random)}\nHere {{ is code." for _ in range(20)]
    folder = write_corpus(tmp_path / "in", good + bad)
    rows_of = {}
    outs = [tmp_path / "one", tmp_path / "two"]
    for out, size in zip(outs, ("1 kB", "10 MB"), strict=True):
        settings = ["quality.enabled=true", "tokenizer.train.vocab_size=300", f"splits.bytes={size}"]
        assert run_job(folder, out, cluster, *settings) == 0
        rows_of[size] = ledger.read(out).compute()
    assert digests(outs[0]) == digests(outs[1])
    rows = rows_of["1 kB"]
    counts = rows["fate"].value_counts()
    assert counts["quality.gopher_quality.min_words"] == 20
    assert counts["quality.c4.curly_bracket"] == 20
    kept = rows[rows["fate"] == ledger.TRAIN]
    assert (kept["n_source_bytes"] - kept["n_bytes"] == 12 * len("[1]")).all()
    assert again(rows, RULES) == [fate for fate in rows["fate"] if fate.startswith("quality.")]
    report = json.loads((outs[0] / "report" / "report.json").read_text())
    (of_source,) = report["quality"]
    assert of_source["documents"] == 240
    assert of_source["dropped"]["quality.c4.curly_bracket"]["documents"] == 20
    assert of_source["kept"]["documents"] == 200
    first = kept.iloc[0]
    (found,) = source_texts(outs[0])("web", first["path"], [int(first["record"])])
    assert found
    assert "[1]" not in found
    assert not verify(outs[0], Console())


def again(rows: object, settings: Quality) -> list[str]:
    """The fates that the ledger's statistics give."""
    table = pa.RecordBatch.from_pandas(rows[SCHEMA.names], schema=SCHEMA, preserve_index=False)  # type: ignore[index]
    return [fate for fate in fates(table, settings).to_pylist() if fate]


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"gopher_quality": {"min_words": 100, "max_words": 10}}, "min_words is 100 and max_words is 10"),
        ({"gopher_quality": {"min_words": -5}}, "min_words is -5; give a number of at least 0"),
        ({"fineweb": {"max_short_lines": float("nan")}}, "max_short_lines is nan"),
    ],
)
def test_thresholds_that_cannot_be_meant_are_refused(rules: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Quality.model_validate({"enabled": True, **rules})
