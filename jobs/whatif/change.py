"""The change that is asked about: the rules of each source before it and after it."""

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import TypeAdapter, ValidationError

from jobs import config
from jobs.config import Source
from jobs.errors import UserError
from jobs.settings.quality import MEASURING, Quality
from jobs.steps.quality import NO_LINE_LEFT, Rule, rules_of
from jobs.steps.thresholds import STEP as COLUMN

SECTION = "quality"
THRESHOLDS = "thresholds"


@dataclass(frozen=True)
class Change:
    """What is asked, as it was typed: settings of `quality` and `thresholds`, least and greatest numbers of columns.

    A bound of `least` or `most` counts behind all rules, one of `thresholds` before them, as in a run.
    """

    settings: Sequence[str] = ()
    least: Sequence[str] = ()
    most: Sequence[str] = ()

    @property
    def asked(self) -> bool:
        """Whether anything changes."""
        return bool(self.settings or self.least or self.most)


@dataclass(frozen=True)
class SourceRules:
    """The rules of one source, in their order.

    Attributes
    ----------
    before, after
        Without the change and with it.
    measured
        Whether the run recorded the statistics of the quality rules.
    thresholds
        Whether those on columns are among the rules.
    changes
        Settings that differ: name, value before, value after.
    """

    before: tuple[Rule, ...]
    after: tuple[Rule, ...]
    measured: bool
    thresholds: bool = False
    changes: tuple[tuple[str, Any, Any], ...] = ()

    @property
    def columns(self) -> list[str]:
        """The ledger's columns that the rules look at."""
        return list(dict.fromkeys(rule.statistic for rule in (*self.before, *self.after)))


class Planned(NamedTuple):
    """The rules of each source, and what has to be said about them."""

    rules: dict[str, SourceRules]
    notes: list[str]


def plan(sources: Sequence[Source], schema: pa.Schema, change: Change) -> Planned:
    """The rules of every source before the change and after it.

    Parameters
    ----------
    sources
        Those of the run.
    schema
        Of the run's ledger.
    change
        What is asked.

    Raises
    ------
    UserError
        A setting or a column that there is not, or one that the recorded statistics say nothing about.
    """
    thresholds = tuple(_threshold(text, "min", schema) for text in change.least)
    thresholds += tuple(_threshold(text, "max", schema) for text in change.most)
    earlier = [one for one in change.settings if _is_of_thresholds(one)]
    settings = [one for one in change.settings if not _is_of_thresholds(one)]
    measured = [source for source in sources if source.quality.enabled]
    if settings and not measured:
        raise UserError(
            "the run had no quality rules, so that their statistics were not recorded and --set has nothing to go by; "
            "run with quality.enabled=true, or ask about a column with --min and --max"
        )
    if not change.asked and not measured:
        raise UserError("the run had no quality rules; ask about a column of its ledger with --min and --max")
    rules, notes = {}, []
    for source in sources:
        found, said = _of_source(source, settings, thresholds)
        rules[source.name] = _with_thresholds(found, source, earlier, schema) if earlier else found
        notes += said
    if earlier:
        notes.append(
            "what thresholds dropped in the run was not seen by later steps: which of it those would drop is not known"
        )
    if settings and len(measured) < len(sources):
        unmeasured = ", ".join(source.name for source in sources if not source.quality.enabled)
        notes.append(
            f"--set says nothing of {unmeasured}: run without quality rules, no statistics were recorded"
        )
    return Planned(rules, list(dict.fromkeys(notes)))


def _of_source(
    source: Source, settings: Sequence[str], thresholds: tuple[Rule, ...]
) -> tuple[SourceRules, list[str]]:
    if not source.quality.enabled:
        return SourceRules((), thresholds, False), []
    after, notes = _changed(source.quality, settings)
    rules = SourceRules(
        _rules(source.quality),
        (*_rules(after), *thresholds),
        True,
        changes=tuple(_differences(source.quality, after)),
    )
    return rules, notes


def _rules(quality: Quality) -> tuple[Rule, ...]:
    return (*rules_of(quality), *([NO_LINE_LEFT] if "c4" in quality.order else []))


# ---------------------------------------------------------------- settings of the quality rules


def _changed(before: Quality, settings: Sequence[str]) -> tuple[Quality, list[str]]:
    """The settings after the change; rule sets that it names and the run did not use come into the order."""
    raw = {SECTION: before.model_dump()}
    named = []
    for setting in settings:
        key, equals, value = setting.partition("=")
        keys = _keys(key, bool(equals))
        named.append(keys[0])
        if keys[0] in MEASURING and keys[1:] == ["preset"]:
            _forget_preset(raw[SECTION][keys[0]], before, keys[0])
        config.apply(raw, f"{SECTION}.{'.'.join(keys)}={value}")
    after = _validated(raw[SECTION])
    _refuse_unmeasured(before, after)
    unused = [name for name in dict.fromkeys(named) if name in MEASURING and name not in after.order]
    notes = [f"{name} was not in the order of the rules; it is now" for name in unused]
    after = _validated(after.model_dump() | {"order": _with(after.order, unused)})
    _refuse_other_text(before.order, after.order)
    if ("c4" in before.order) != ("c4" in after.order):
        notes.append("bytes and tokens are of the texts as the run had them; C4's rules edit texts")
    return after, notes


def _validated(raw: dict[str, Any]) -> Quality:
    try:
        return Quality.model_validate(raw)
    except ValidationError as error:
        raise UserError(config.said(error, (SECTION,))) from None


def _keys(key: str, has_value: bool) -> list[str]:
    """A key below `quality`, which may be left out."""
    keys = key.strip().removeprefix(f"{SECTION}.").split(".")
    if not has_value or not keys[0]:
        raise UserError(f"--set takes KEY=VALUE such as gopher_quality.min_words=100, but was given {key!r}")
    if keys == ["enabled"]:
        raise UserError(
            "--set quality.enabled cannot be asked about; --set quality.order=[] is a run without rules"
        )
    if keys[0] in config.Config.model_fields and keys[0] not in Quality.model_fields:
        raise UserError(
            f"--set {key}: only settings of {SECTION} can be asked about; a threshold on a column of the ledger is "
            "asked about with --min and --max, such as --min n_tokens=128"
        )
    return keys


def _forget_preset(raw: dict[str, Any], before: Quality, group: str) -> None:
    """A preset counts where nothing else is set, so what the presets set is taken back."""
    presets = getattr(type(getattr(before, group)), "presets", {})
    for name in {name for values in presets.values() for name in values}:
        raw.pop(name, None)


def _refuse_unmeasured(before: Quality, after: Quality) -> None:
    for group, names in MEASURING.items():
        for name in names:
            was, would_be = (getattr(getattr(quality, group), name) for quality in (before, after))
            if was != would_be:
                raise UserError(
                    f"{SECTION}.{group}.{name} changes what is measured, not a threshold, so that the recorded "
                    f"statistics do not say what {would_be!r} would do; it was {was!r}, and another takes a run"
                )


def _refuse_other_text(before: Sequence[str], after: Sequence[str]) -> None:
    """Rule sets behind C4 in the order are measured on the text that C4 leaves, all others on the text as it is."""
    for group in after:
        if (group in _behind(before)) != (group in _behind(after)):
            was = "what C4's rules leave of the text" if group in _behind(before) else "the text as it is"
            raise UserError(
                f"{SECTION}.order: the statistics of {group} were recorded of {was}, and in this order they would not "
                "be; leave it on its side of c4, or run again"
            )


def _behind(order: Sequence[str]) -> Sequence[str]:
    return order[order.index("c4") + 1 :] if "c4" in order else ()


def _with(order: Sequence[str], names: Sequence[str]) -> tuple[Any, ...]:
    """The order with more rule sets: in front of C4, since they were measured on the text as it is; C4 itself last."""
    place = order.index("c4") if "c4" in order else len(order)
    return (*order[:place], *(name for name in names if name != "c4"), *order[place:], *({"c4"} & set(names)))


def _differences(before: Quality, after: Quality) -> list[tuple[str, Any, Any]]:
    was, would_be = _flat(before.model_dump()), _flat(after.model_dump())
    return [(name, was[name], would_be[name]) for name in was if was[name] != would_be[name]]


def _flat(section: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in section.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


# ---------------------------------------------------------------- thresholds on columns


def _is_of_thresholds(setting: str) -> bool:
    return setting.strip().partition("=")[0].split(".")[0] == THRESHOLDS


def _with_thresholds(
    rules: SourceRules, source: Source, settings: Sequence[str], schema: pa.Schema
) -> SourceRules:
    """The thresholds of a source in front of its other rules, as they were and as they would be."""
    raw: dict[str, Any] = {THRESHOLDS: [one.model_dump() for one in source.thresholds]}
    for setting in settings:
        config.apply(raw, setting)
    try:
        after = TypeAdapter(tuple[config.Threshold, ...]).validate_python(raw[THRESHOLDS])
    except ValidationError as error:
        raise UserError(config.said(error, (THRESHOLDS,))) from None
    was, would_be = (
        [rule for one in them for rule in _bounds(one, schema)] for them in (source.thresholds, after)
    )
    changed = () if was == would_be else ((THRESHOLDS, _shown(was), _shown(would_be)),)
    return replace(
        rules,
        before=(*was, *rules.before),
        after=(*would_be, *rules.after),
        thresholds=True,
        changes=(*changed, *rules.changes),
    )


def _bounds(threshold: config.Threshold, schema: pa.Schema) -> list[Rule]:
    column = threshold.column
    _refuse_unless_numeric(column, schema, f"--set {THRESHOLDS}")
    bounds = (("min", threshold.min, _not_at_least), ("max", threshold.max, _not_at_most))
    return [
        Rule(f"{COLUMN}.{column}.{name}", column, value, drops)
        for name, value, drops in bounds
        if value is not None
    ]


def _not_at_least(values: np.ndarray, least: float) -> np.ndarray:
    """A document without the number is dropped, too."""
    return ~(values.astype(np.float64) >= least)


def _not_at_most(values: np.ndarray, most: float) -> np.ndarray:
    return ~(values.astype(np.float64) <= most)


def _shown(rules: Sequence[Rule]) -> str:
    bounds = [(rule, "≥" if rule.drops is _not_at_least else "≤") for rule in rules]
    return ", ".join(f"{rule.statistic} {sign} {rule.threshold:g}" for rule, sign in bounds) or "none"


def _threshold(text: str, bound: str, schema: pa.Schema) -> Rule:
    column, equals, number = (part.strip() for part in text.partition("="))
    if not equals or not column:
        raise UserError(f"--{bound} takes COLUMN=NUMBER such as score=3.5, but was given {text!r}")
    _refuse_unless_numeric(column, schema, f"--{bound} {text}")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise UserError(f"--{bound} {text}: {number!r} is no number")
    return Rule(f"{column}.{bound}", column, value, np.less if bound == "min" else np.greater)


def _refuse_unless_numeric(column: str, schema: pa.Schema, asked: str) -> None:
    numeric = [one.name for one in schema if pa.types.is_integer(one.type) or pa.types.is_floating(one.type)]
    if column not in numeric:
        known = difflib.get_close_matches(column, numeric, n=1) or ["score"]
        why = "is no number" if column in schema.names else "is no column of the ledger"
        raise UserError(f"{asked}: {column} {why}; one such as {known[0]} is meant")
