"""A second referee: the expected outputs that data-prep-kit publishes with its annotators, computed by other code.

C4 (preset `c4-datatrove`): each count of lines, each reason and each text that is left is the same on 12 documents.
Where a phrase drops a document, its counts stop there and ours go on. Two documents fall to mC4's rule about
paragraphs, which is not one of ours.

FineWeb: three of four statistics are the same on 10 documents; line feeds are counted per word, and words are split
otherwise, which changes 7 figures and no decision.

Gopher's repetition: statistics of lines and paragraphs are the same on 10 documents, those of n-grams on 7; words are
split otherwise, which changes 15 figures, and of 7 rules whether they would drop a document, which another rule drops
before them.
"""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.settings.quality import Quality
from jobs.steps.quality import Filtered, dropped_by, fates, filtered, rules_of

C4_LINES = {
    "line-total": "lines",
    "line-kept": "kept_lines",
    "line-filter-no_terminal_punc": "no_end_mark_lines",
    "line-filter-too_few_words": "few_words_lines",
    "line-filter-policy": "policy_lines",
    "line-filter-javascript": "javascript_lines",
    "line-filter-too_long_word": "long_word_lines",
}
C4_REASONS = {
    "": None,
    "drop_too_few_sentences": "quality.c4.min_sentences",
    "drop_curly_bracket": "quality.c4.curly_bracket",
    "drop_lorem_ipsum": "quality.c4.lorem_ipsum",
}
PARAGRAPHS = ("drop_too_short_paragraphs", "drop_too_few_paragraphs")  # mC4's
FINEWEB = {
    "frac_line_punct": "terminal_lines",
    "short_line_frac": "short_lines",
    "dup_line_char_frac": "duplicate_line_characters",
    "new_line_ratio": "line_feeds_per_word",
}
REPETITION = {
    "dup_line_frac": "duplicate_lines",
    "dup_para_frac": "duplicate_paragraphs",
    "dup_line_char_frac": "duplicate_line_characters",
    "dup_para_char_frac": "duplicate_paragraph_characters",
    **{f"top_{n}_grams": f"top_{n}_gram_characters" for n in (2, 3, 4)},
    **{f"dup_{n}_grams": f"duplicate_{n}_gram_characters" for n in range(5, 11)},
}


def both(shared: Path, name: str, **settings: object) -> tuple[list[dict[str, Any]], Quality, Filtered]:
    """Their rows, our settings, and what we make of the same texts."""
    path = shared / "reference_outputs" / name / "expected" / "test1.parquet"
    rows = pq.read_table(path).to_pylist()
    rules = Quality.model_validate({"enabled": True, **settings})
    return rows, rules, filtered(pa.array([row["text"] for row in rows], pa.large_string()), rules)


def test_c4_counts_reasons_and_texts(shared: Path) -> None:
    rows, _, ours = both(shared, "c4_annotator", order=["c4"], c4={"preset": "c4-datatrove"})
    statistics = ours.statistics.to_pylist()
    seen = set()
    for row, fate, text, counts in zip(
        rows, ours.fate.to_pylist(), ours.text.to_pylist(), statistics, strict=True
    ):
        reason, lines = row["drop_reason"] or "", json.loads(row["doc_stats"])
        seen.add(reason)
        assert fate == C4_REASONS.get(reason), row["url"]
        assert reason in C4_REASONS or reason in PARAGRAPHS
        if reason in {"drop_curly_bracket", "drop_lorem_ipsum"}:
            assert counts[f"{fate.removeprefix('quality.').replace('.', '_')}_line"] == lines["line-total"]
            continue
        assert {name: counts[f"c4_{name}"] for name in C4_LINES.values()} == {
            ours_is: lines.get(theirs, 0) for theirs, ours_is in C4_LINES.items()
        }
        if not reason:
            assert text == row["clean_contents"]
    assert seen == {*C4_REASONS, *PARAGRAPHS}


@pytest.mark.parametrize(
    ("name", "group", "preset", "names", "of_words", "differing"),
    [
        ("fineweb_quality_annotator", "fineweb", {"preset": "fineweb-code"}, FINEWEB, 1, (7, 0)),
        ("gopher_repetition_annotator", "gopher_repetition", {}, REPETITION, 9, (15, 7)),
    ],
)
def test_statistics_and_decisions(
    name: str,
    group: str,
    preset: dict[str, str],
    names: dict[str, str],
    of_words: int,
    differing: tuple[int, int],
    shared: Path,
) -> None:
    """The last statistics are of words; all others are the same, and so is what each rule drops."""
    rows, rules, ours = both(shared, name, order=[group], **{group: preset})
    theirs = ours.statistics
    unlike = []
    for place, (their_name, our_name) in enumerate(names.items()):
        values = [row[their_name] for row in rows]
        mine = ours.statistics.column(f"{group}_{our_name}").to_pylist()
        if place < len(names) - of_words:
            assert mine == pytest.approx(values, abs=1e-12), their_name
        unlike += [(their_name, a, b) for a, b in zip(values, mine, strict=True) if abs(a - b) > 1e-9]
        index = theirs.schema.get_field_index(f"{group}_{our_name}")
        theirs = theirs.set_column(index, theirs.schema.field(index), pa.array(values, pa.float64()))
    assert fates(theirs, rules) == ours.fate
    assert 0 < ours.fate.null_count < len(rows)
    on = rules_of(rules)
    assert (len(unlike), (dropped_by(on, theirs) != dropped_by(on, ours.statistics)).sum()) == differing, (
        unlike
    )
