"""Why a document was kept or dropped, in a sentence, from its row of the ledger and the run's settings."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jobs import ledger
from jobs.steps.quality import NO_LINE_LEFT, rules_of

if TYPE_CHECKING:
    from jobs.config import Config, Source

INPUT = {
    ledger.NULL_TEXT: "its text is null",
    ledger.EMPTY_TEXT: "its text is empty",
    ledger.INVALID_UTF8: "its text is not UTF-8",
    ledger.UNREADABLE: "its record cannot be read",
}
URLS = {
    "urls.domain": "its domain is on a list of urls.domains",
    "urls.url": "its URL is on a list of urls.domains",
    "urls.word": "its URL holds a word of urls.words",
}
PAGES = {
    "status": "the server did not answer with the page",
    "content_type": "it is neither HTML nor text",
    "coding": "its content coding is unknown or broken",
    "too_large": "decoded, it is larger than extraction.body",
    "empty": "its body has no bytes",
    "no_text": "the engine found no text in it",
    "error": "the engine failed on it",
    "timeout": "it took longer than extraction.seconds",
    "memory": "it took more memory than extraction.memory",
    "crash": "it ended the process that extracted it",
}
REPEATED = {
    ledger.URL_DUPLICATE: "it has the same URL, in its canonical form, as",
    ledger.EXACT_DUPLICATE: "it has the same text as",
    ledger.NEAR_DUPLICATE: "it is a near-copy of",
}


def reason(
    row: Mapping[str, Any],
    config: "Config",
    kept: Mapping[str, Any] | None = None,
    shards: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """Why a document has its fate.

    Parameters
    ----------
    row
        Of the ledger.
    config
        The run's.
    kept
        The row of the document that was kept in its place.
    shards
        Names of the shards of each split.
    """
    fate = row["fate"]
    if fate in (ledger.TRAIN, ledger.VALIDATION):
        names = (shards or {}).get(fate, ())
        where = f" {names[row['shard']]}" if names else f" shard {row['shard']}"
        return f"kept: its {row['n_tokens']:,} tokens begin at {row['offset']:,} of{where}"
    source = next(one for one in config.sources if one.name == row["source"])
    return f"dropped: {_dropped(fate, row, source, config, kept)}"


def _dropped(
    fate: str, row: Mapping[str, Any], source: "Source", config: "Config", kept: Mapping[str, Any] | None
) -> str:
    step, _, rest = fate.partition(".")
    if fate in REPEATED:
        return f"{REPEATED[fate]} {_other(row, kept)}"
    if fate == ledger.SAMPLED_OUT:
        return f"it is not in the keyed sample of {source.weight:g} of its source"
    if fate in INPUT or fate in URLS:
        return INPUT.get(fate) or URLS[fate]
    if step == "column":
        return _threshold(rest, row, source)
    if step == "extraction":
        return PAGES.get(rest, rest)
    if step == "language":
        return _language(rest, row, source)
    if step == "quality":
        return _quality(rest, row, source)
    if step == "classifier":
        return _classifier(rest, row, source)
    if step == "contaminated":
        return f"it holds items of the evaluation set {rest}; contamination/diff.md in the output has which"
    if step == "repeated_passages":
        passages, lost = row["removed_passages"], row["removed_bytes"]
        return f"too little is left without {passages:,} passages of {lost:,} bytes that the corpus has elsewhere"
    if step == "personal_data":
        return f"it holds personal data of the kind {rest}, {row[f'personal_data_{rest}']:,} times"
    if fate == ledger.MIN_TOKENS:
        return f"it has {row['n_tokens']:,} tokens; length.min_tokens is {config.length.min_tokens:,}"
    return fate


def _other(row: Mapping[str, Any], kept: Mapping[str, Any] | None) -> str:
    if kept is None:
        where = f" of {row[ledger.KEPT_IN]}" if row.get(ledger.KEPT_IN) else ""
        return f"doc_id {row['kept_by']}{where}, which was preferred"
    what = (
        "is kept" if kept["fate"] in (ledger.TRAIN, ledger.VALIDATION) else "was preferred and then dropped"
    )
    where = f" of {row[ledger.KEPT_IN]}" if row.get(ledger.KEPT_IN) else ""
    return f"doc_id {kept['doc_id']}{where}, which {what} ({kept['fate']}; {place(kept)})"


def place(row: Mapping[str, Any]) -> str:
    """Where a document came from."""
    named = [row["source"], row["path"], f"record {row['record']:,}", row["crawl"], row["url"] or row["id"]]
    return " · ".join(str(one) for one in named if one)


def _threshold(rest: str, row: Mapping[str, Any], source: "Source") -> str:
    name, _, missing = rest.partition(".")
    if missing:
        return f"it has no number as {name}"
    bounds = next(one for one in source.thresholds if one.column == name)
    return f"{name} is {row[name]:g}; {_bounds(bounds.min, bounds.max)}"


def _bounds(least: float | None, most: float | None) -> str:
    told = [*([f"the least is {least:g}"] if least is not None else []),
            *([f"the most is {most:g}"] if most is not None else [])]  # fmt: skip
    return " and ".join(told)


def _language(rest: str, row: Mapping[str, Any], source: "Source") -> str:
    found = f"its language is {row['language']} with a score of {row['language_score']:.3f}"
    if rest == "min_score":
        return f"{found}; language.min_score is {source.language.min_score:g}"
    return f"{found}; language.keep is {', '.join(source.language.keep)}"


def _quality(rest: str, row: Mapping[str, Any], source: "Source") -> str:
    rules = {rule.name: rule for rule in (*rules_of(source.quality), NO_LINE_LEFT)}
    rule = rules.get(rest)
    if rule is None:
        return f"of the rule {rest}"
    value = row[rule.statistic]
    return f"{rule.statistic} is {value:g}; {rest} is {rule.threshold:g}"


def _classifier(rest: str, row: Mapping[str, Any], source: "Source") -> str:
    settings = next(one for one in source.classifiers if one.name == rest)
    return f"{rest}_score is {row[f'{rest}_score']:g}; {_bounds(settings.min_score, settings.max_score)}"
