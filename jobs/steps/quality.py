"""The quality rules: every statistic in one pass, and decisions from the statistics alone.

A column is named after its rule set and statistic, such as ``gopher_quality_words``; a rule after its rule set and
setting, such as ``gopher_quality.min_words``, and its fate is ``quality.gopher_quality.min_words``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs import ledger
from jobs.quality_settings import C4, Quality
from jobs.text import text_buffers
from kernels import quality as kernel
from kernels.line_rules import LineRules

STEP = "quality"
_END_MARKS = ("", '.?!"', ".?!\"'")
_PHRASES = ("lorem_ipsum", "curly_bracket")
_BOUNDS = {"min": (np.less, np.less_equal), "max": (np.greater, np.greater_equal)}  # strict, and inclusive

SCHEMA = pa.schema(ledger.QUALITY)
"""All statistics. None is ever null or NaN."""


@dataclass(frozen=True)
class Filtered:
    """What the rules make of a batch of documents.

    Attributes
    ----------
    statistics
        RecordBatch[d] in `SCHEMA`.
    text
        large_string[d], as C4's rules leave it where they are in the order; that of a dropped document as it was.
    fate
        string[d], `quality.` and the first rule that drops a document; null for one that goes on.
    """

    statistics: pa.RecordBatch
    text: pa.LargeStringArray
    fate: pa.StringArray


def filtered(text: pa.LargeStringArray, settings: Quality) -> Filtered:
    """Measure, judge and edit documents.

    Rule sets that stand behind C4 in the order are measured on the text that C4's rules leave; all others, those that
    are not in the order included, on the text as it is.

    Parameters
    ----------
    text : large_string[d]
        None of them null.
    settings : Quality
        Which rules there are, and their order.
    """
    measured, edited = _measure(text, settings)
    fate = pc.coalesce(fates(measured, settings), _emptied(text, edited))
    return Filtered(measured, pc.if_else(pc.is_null(fate), edited, text), fate)


def fates(statistics: pa.RecordBatch, settings: Quality) -> pa.StringArray:
    """Name the first rule in the order that drops each document; null where none does."""
    rules = [rule for name in settings.order for rule in _in_order(name, statistics, settings)]
    names = pa.array([f"{STEP}.{name}" for name, _ in rules], pa.string())
    if not rules:
        return pa.nulls(statistics.num_rows, pa.string())
    drops = np.stack([drop for _, drop in rules])
    first = pa.array(drops.argmax(axis=0), mask=~drops.any(axis=0))
    return names.take(first)


def identity(settings: Quality) -> dict[str, Any] | None:
    """What fingerprints hold: nothing where the rules are off."""
    return settings.model_dump() if settings.enabled else None


def _emptied(text: pa.LargeStringArray, edited: pa.LargeStringArray) -> pa.StringArray:
    """A document of which no line is left goes no further, whatever the thresholds."""
    gone = pc.and_(pc.equal(pc.binary_length(edited), 0), pc.greater(pc.binary_length(text), 0))
    return pc.if_else(gone, f"{STEP}.c4.no_line_left", pa.scalar(None, pa.string()))


def _measure(text: pa.LargeStringArray, settings: Quality) -> tuple[pa.RecordBatch, pa.LargeStringArray]:
    groups = dict(kernel.GROUPS)
    behind = settings.order[settings.order.index("c4") + 1 :] if "c4" in settings.order else ()
    first = sum(number for group, number in groups.items() if group not in behind)
    measured, edited = _columns(text, first, settings)
    if behind:
        again, _ = _columns(edited, sum(groups[group] for group in behind), settings)
        measured = measured + again  # a column is 0 where it was not asked for
    columns = [pa.array(column).cast(field.type) for column, field in zip(measured.T, SCHEMA, strict=True)]
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    return batch, edited if "c4" in settings.order else text


def _columns(
    text: pa.LargeStringArray, groups: int, settings: Quality
) -> tuple[np.ndarray, pa.LargeStringArray]:
    data, offsets = text_buffers(text)
    measured, edited, edited_offsets = kernel.measure(
        data,
        offsets,
        groups,
        settings.gopher_quality.stop_words,
        _line_rules(settings.c4),
        settings.fineweb.line_ends,
        settings.fineweb.short_line_length,
    )
    return measured, _as_text(edited, edited_offsets)


def _line_rules(settings: C4) -> LineRules:
    return LineRules(
        settings.min_words_per_line,
        settings.max_word_length,
        _END_MARKS.index(settings.end_marks),
        int(settings.remove_citations),
        int(settings.words_before_citations),
        int(settings.drop_javascript_lines),
        int(settings.drop_policy_lines),
    )


def _as_text(data: np.ndarray, offsets: np.ndarray) -> pa.LargeStringArray:
    return pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))


def _in_order(group: str, statistics: pa.RecordBatch, settings: Quality) -> Iterator[tuple[str, np.ndarray]]:
    """The rules of a set; of C4's two about a phrase, the one whose line comes first."""
    rules = dict(_rules(group, statistics, settings))
    if {f"{group}.{name}" for name in _PHRASES} <= set(rules):
        lorem, curly = (_column(statistics, f"{group}_{name}_line") for name in _PHRASES)
        yield f"{group}.curly_bracket", (curly > 0) & ((lorem == 0) | (curly < lorem))
    yield from rules.items()


def _rules(group: str, statistics: pa.RecordBatch, settings: Quality) -> Iterator[tuple[str, np.ndarray]]:
    """Each rule of a set that is on, with the documents that it drops."""
    rule_set = getattr(settings, group)
    inclusive = getattr(rule_set, "inclusive", False)
    for name in type(rule_set).model_fields:
        threshold, (bound, _, statistic) = getattr(rule_set, name), name.partition("_")
        if name in _PHRASES and threshold:
            yield f"{group}.{name}", _column(statistics, f"{group}_{name}_line") > 0
        elif bound in _BOUNDS and f"{group}_{statistic}" in SCHEMA.names and threshold is not None:
            compare = _BOUNDS[bound][inclusive and name != "min_lines"]
            yield f"{group}.{name}", compare(_column(statistics, f"{group}_{statistic}"), threshold)


def _column(statistics: pa.RecordBatch, name: str) -> np.ndarray:
    return statistics.column(name).to_numpy(zero_copy_only=False)
