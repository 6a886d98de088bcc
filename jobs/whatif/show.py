"""What is printed of an answer."""

from typing import Any

from jobs.runtime.console import Console

ROWS = 20  # of a table by source or crawl
SUMMARY = {
    "judged": "judged",
    "would_go": "would go",
    "of_them_in_the_shards": "- of them in the shards",
    "would_come_back": "would come back",
}


def show(console: Console, found: dict[str, Any], measure: str = "documents") -> None:
    """Print the change, the rules, the sums, sources and crawls, and the sample."""
    whole = found["whole"]
    for note in found["notes"]:
        console.warn(note)
    for change in found["changes"]:
        before, after = (_value(change[side]) for side in ("before", "after"))
        console.line(f"{change['source']}: {change['setting']} {before} → {after}")
    for bound, sign in (("min", "≥"), ("max", "≤")):
        for text in found["columns"][bound]:
            console.line(f"{text.replace('=', f' {sign} ')}")
    _rules(console, whole, measure)
    _sums(console, whole)
    for key in ("source", "crawl"):
        _parts(console, found[f"by_{key}"], key)
    _samples(console, found["samples"])
    console.line()
    console.line(_sentence(whole))


def _value(setting: Any) -> str:
    """As it is written in YAML; null is a rule that is off."""
    return "off" if setting is None else str(setting)


def _rules(console: Console, whole: dict[str, Any], measure: str) -> None:
    """A row a rule: what it drops alone, what no other rule drops, and what it is the first to drop."""
    rows = []
    for name, after in whole["after"]["rules"].items():
        before = whole["before"]["rules"][name]
        cells = [
            _moved(before[topic][measure], after[topic][measure]) for topic in ("alone", "only", "first")
        ]
        missing = after["documents_without_value"]
        if any(cell != "0" for cell in cells) or missing:
            rows.append((f"{name} ({missing:,} without a value)" if missing else name, *cells))
    console.table("", [f"{measure} dropped", "alone", "by no other", "in order"], rows)


def _sums(console: Console, whole: dict[str, Any]) -> None:
    judged = whole["judged"]
    rows = [_row(f"not judged: {fate}", counts, None) for fate, counts in whole["not_judged"].items()]
    rows.append(_row("judged", judged, judged))
    rows += [_row(f"kept {side}", whole[side]["kept"], judged) for side in ("before", "after")]
    rows += [_row(title, whole[key], judged) for key, title in SUMMARY.items() if key != "judged"]
    console.table("", ["", "documents", "", "bytes", "tokens"], rows)


def _row(title: str, counts: dict[str, int], judged: dict[str, int] | None) -> tuple[str, ...]:
    about = "about " if counts["estimated_tokens"] else ""
    share = _percent(counts["documents"], judged["documents"]) if judged else ""
    return title, f"{counts['documents']:,}", share, f"{counts['bytes']:,}", f"{about}{counts['tokens']:,}"


def _parts(console: Console, parts: list[dict[str, Any]], key: str) -> None:
    if len(parts) < 2:
        return
    largest = sorted(parts, key=lambda part: -part["judged"]["documents"])[:ROWS]
    rows = [
        (
            part[key] or "(none)",
            f"{part['judged']['documents']:,}",
            *(
                _percent(part[side]["kept"]["documents"], part["judged"]["documents"])
                for side in ("before", "after")
            ),
            f"{part['would_go']['documents']:,}",
        )
        for part in largest
    ]
    console.table("", [key, "judged", "kept before", "kept after", "would go"], rows)
    if len(parts) > ROWS:
        console.line(f"… and {len(parts) - ROWS} others, which the JSON has")


def _samples(console: Console, samples: list[dict[str, Any]]) -> None:
    for sample in samples:
        console.line()
        place = f"{sample['source']} {sample['path']} record {sample['record']}"
        console.line(
            f"{sample['rule']}: {sample['statistic']} is {sample['value']:.6g}, the threshold {sample['threshold']:g}"
        )
        console.line(f"  {place}  {sample['url'] or ''}".rstrip())
        console.line(f"  {sample['excerpt'] or '(the source no longer has this text)'}")


def _sentence(whole: dict[str, Any]) -> str:
    documents = whole["judged"]["documents"]
    before, after = (_percent(whole[side]["kept"]["documents"], documents) for side in ("before", "after"))
    return (
        f"would keep {after} of the {documents:,} documents judged (before: {before}); "
        "near-duplicates are not searched again"
    )


def _moved(before: int, after: int) -> str:
    return f"{after:,}" if before == after else f"{before:,} → {after:,}"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else ""
