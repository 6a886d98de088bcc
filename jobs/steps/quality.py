"""The quality rules: every statistic in one pass, and decisions from the statistics alone.

A column is named after its rule set and statistic, such as ``gopher_quality_words``; a rule after its rule set and
setting, such as ``gopher_quality.min_words``, and its fate is ``quality.gopher_quality.min_words``.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs import ledger
from jobs.errors import UserError
from jobs.settings.quality import C4, Quality
from jobs.steps import bad_words, language_codes
from jobs.text import text_buffers
from kernels import quality as kernel
from kernels.line_rules import LineRules
from kernels.segmentation import segments

STEP = "quality"
_END_MARKS = ("", '.?!"', ".?!\"'")
_PHRASES = ("lorem_ipsum", "curly_bracket")
_BOUNDS = {"min": (np.less, np.less_equal), "max": (np.greater, np.greater_equal)}  # strict, and inclusive

SCHEMA = pa.schema(ledger.QUALITY)
"""All statistics of the text alone. None is ever NaN, nor null but for stop words of a language without a list."""
_STATISTICS = {*SCHEMA.names, *dict(ledger.BAD_WORDS)}


@dataclass(frozen=True)
class Filtered:
    """What the rules make of a batch of documents.

    Attributes
    ----------
    statistics
        RecordBatch[d] in `SCHEMA`, and of bad words where there are lists of them.
    text
        large_string[d], as C4's rules leave it where they are in the order; that of a dropped document as it was.
    fate
        string[d], `quality.` and the first rule that drops a document; null for one that goes on.
    """

    statistics: pa.RecordBatch
    text: pa.LargeStringArray
    fate: pa.StringArray


def filtered(
    text: pa.LargeStringArray, settings: Quality, language: pa.StringArray | None = None
) -> Filtered:
    """Measure, judge and edit documents.

    Rule sets that stand behind C4 in the order are measured on the text that C4's rules leave; all others, those that
    are not in the order included, on the text as it is.

    Parameters
    ----------
    text : large_string[d]
        None of them null.
    settings : Quality
        Which rules there are, and their order.
    language : string[d], optional
        Of each document, null where it is not known; it chooses the stop words and the list of bad words.
    """
    measured, edited = _measure_by_language(text, settings, language)
    fate = pc.coalesce(fates(measured, settings), _emptied(text, edited))
    return Filtered(measured, pc.if_else(pc.is_null(fate), edited, text), fate)


def by_language(settings: Quality) -> bool:
    """Whether a document's language decides about it."""
    return isinstance(settings.gopher_quality.stop_words, dict) or bool(settings.bad_words.files)


def check(settings: Quality) -> None:
    """Refuse stop words that no text can have and lists of bad words that cannot be used.

    Raises
    ------
    UserError
        One sentence that names the word, the language or the file.
    """
    if not settings.enabled:
        return
    bad_words.check(settings.bad_words.files)
    stop_words = settings.gopher_quality.stop_words
    for language, words in stop_words.items() if isinstance(stop_words, dict) else [("", stop_words)]:
        key = f"quality.gopher_quality.stop_words{language and '.'}{language}"
        if language and not language_codes.is_language(language):
            raise UserError(f"{key}: {language!r} is no language; name a code such as en")
        for word in words:
            if segments(word) != [word]:
                raise UserError(
                    f"{key} has {word!r}, which is {len(segments(word))} words here ({', '.join(segments(word))}) and "
                    "would never be found; give single words, and single characters in scripts without spaces"
                )


def fates(statistics: pa.RecordBatch | pa.Table, settings: Quality) -> pa.StringArray:
    """Name the first rule in the order that drops each document; null where none does."""
    rules = rules_of(settings)
    if not rules:
        return pa.nulls(statistics.num_rows, pa.string())
    first = first_rules(rules, dropped_by(rules, statistics), statistics)
    names = pa.array([f"{STEP}.{rule.name}" for rule in rules], pa.string())
    return names.take(pa.array(first, mask=first < 0))


@dataclass(frozen=True)
class Rule:
    """A rule that is on.

    Attributes
    ----------
    name
        After its rule set and setting, such as `gopher_quality.min_words`.
    statistic
        The ledger's column that it looks at.
    threshold
        What the statistic is compared with.
    drops
        How: `drops(statistic, threshold)` says of each document whether it goes.
    """

    name: str
    statistic: str
    threshold: float
    drops: Callable[[np.ndarray, float], np.ndarray]


NO_LINE_LEFT = Rule("c4.no_line_left", "c4_kept_lines", 0, np.less_equal)
"""Behind all others where C4's rules are on, whatever the thresholds."""


def rules_of(settings: Quality) -> list[Rule]:
    """The rules that are on, in their order."""
    return [rule for group in settings.order for rule in _rules(group, settings)]


def dropped_by(rules: Sequence[Rule], statistics: pa.RecordBatch | pa.Table) -> np.ndarray:
    """bool[r, d], whether each rule alone would drop each document."""
    drops = [rule.drops(_column(statistics, rule.statistic), rule.threshold) for rule in rules]
    return np.array(drops, bool).reshape(len(rules), statistics.num_rows)


def first_rules(
    rules: Sequence[Rule], drops: np.ndarray, statistics: pa.RecordBatch | pa.Table
) -> np.ndarray:
    """int64[d], the index of the first rule that drops a document, -1 where none does.

    Of C4's two rules about a phrase, the one is first whose line comes first.
    """
    first = np.where(drops.any(axis=0), drops.argmax(axis=0), -1) if len(rules) else -1
    first = np.broadcast_to(first, statistics.num_rows).astype(np.int64)
    places = {rule.name: place for place, rule in enumerate(rules)}
    lorem, curly = (places.get(f"c4.{name}") for name in _PHRASES)
    if lorem is not None and curly is not None:
        line_of_lorem, line_of_curly = (
            _column(statistics, rules[place].statistic) for place in (lorem, curly)
        )
        first[(first == lorem) & drops[curly] & (line_of_curly < line_of_lorem)] = curly
    return first


def identity(settings: Quality) -> dict[str, Any] | None:
    """What fingerprints hold: nothing where the rules are off."""
    if not settings.enabled:
        return None
    listed = {"bad_words": {"files": bad_words.identity(settings.bad_words.files)}}
    return settings.model_dump() | {"bad_words": settings.bad_words.model_dump() | listed["bad_words"]}


def _emptied(text: pa.LargeStringArray, edited: pa.LargeStringArray) -> pa.StringArray:
    """A document of which no line is left goes no further, whatever the thresholds."""
    gone = pc.and_(pc.equal(pc.binary_length(edited), 0), pc.greater(pc.binary_length(text), 0))
    return pc.if_else(gone, f"{STEP}.{NO_LINE_LEFT.name}", pa.scalar(None, pa.string()))


def _measure_by_language(
    text: pa.LargeStringArray, settings: Quality, language: pa.StringArray | None
) -> tuple[pa.RecordBatch, pa.LargeStringArray]:
    """Statistics and edited texts, the documents of each list of stop words at a time."""
    lists = settings.gopher_quality.stop_words
    if not isinstance(lists, dict):
        return _measure(text, settings, lists, language)
    of_document = bad_words.languages_of(language, len(text), list(lists))
    order, batches, texts = [np.empty(0, np.int64)], [], []
    for name in (*lists, None):
        rows = np.flatnonzero([one == name for one in of_document])
        chosen = pa.array(rows)
        measured, edited = _measure(
            text.take(chosen), settings, lists[name] if name else (), language and language.take(chosen)
        )
        order.append(rows)
        batches.append(measured if name else _without(measured, "gopher_quality_stop_words"))
        texts.append(edited)
    back = pa.array(np.argsort(np.concatenate(order), kind="stable"))
    return pa.concat_batches(batches).take(back), pa.concat_arrays(texts).take(back)


def _without(measured: pa.RecordBatch, name: str) -> pa.RecordBatch:
    """With null in a column: there was nothing to look for."""
    field = measured.schema.field(name)
    return measured.set_column(
        measured.schema.get_field_index(name), field, pa.nulls(len(measured), field.type)
    )


def _measure(
    text: pa.LargeStringArray, settings: Quality, stop_words: Sequence[str], language: pa.StringArray | None
) -> tuple[pa.RecordBatch, pa.LargeStringArray]:
    behind = settings.order[settings.order.index("c4") + 1 :] if "c4" in settings.order else ()
    data, offsets = text_buffers(text)
    measured, edited, edited_offsets = kernel.measure(
        data,
        offsets,
        sum(kernel.GROUPS.values()),
        stop_words,
        _line_rules(settings.c4),
        settings.fineweb.line_ends,
        settings.fineweb.short_line_length,
        sum(kernel.GROUPS.get(group, 0) for group in behind),
    )
    left = _as_text(edited, edited_offsets) if "c4" in settings.order else text
    columns = [pa.array(column).cast(field.type) for column, field in zip(measured.T, SCHEMA, strict=True)]
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    if settings.bad_words.files:
        found = bad_words.measure(left if "bad_words" in behind else text, language, settings.bad_words.files)
        for (name, _), column in zip(ledger.BAD_WORDS, found, strict=True):
            batch = batch.append_column(name, column)
    return batch, left


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


def _rules(group: str, settings: Quality) -> Iterator[Rule]:
    """Each rule of a set that is on."""
    rule_set = getattr(settings, group)
    inclusive = getattr(rule_set, "inclusive", False)
    for name in type(rule_set).model_fields:
        threshold, (bound, _, statistic) = getattr(rule_set, name), name.partition("_")
        if name in _PHRASES and threshold:
            yield Rule(f"{group}.{name}", f"{group}_{name}_line", 0, np.greater)
        elif bound in _BOUNDS and f"{group}_{statistic}" in _STATISTICS and threshold is not None:
            compare = _BOUNDS[bound][inclusive and name != "min_lines"]
            yield Rule(f"{group}.{name}", f"{group}_{statistic}", threshold, compare)


def _column(statistics: pa.RecordBatch | pa.Table, name: str) -> np.ndarray:
    return statistics.column(name).to_numpy(zero_copy_only=False)
