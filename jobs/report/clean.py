"""Sections on what training must not hold: personal data, repeated passages, evaluation sets, validation documents."""

from typing import Any

from jobs.report import plots
from jobs.report.parts import Plot, Section, Table, percent, share


def sections(content: dict[str, Any]) -> list[Section]:
    """Those of the steps that were on, and validation."""
    return [
        *(repeated_passages(content["repeated_passages"]) if content["repeated_passages"] else []),
        *(contamination(content["contamination"]) if content["contamination"]["sets"] else []),
        *(personal_data(content["personal_data"]) if content["personal_data"] else []),
        validation(content["validation"]),
    ]


def repeated_passages(found: dict[str, Any]) -> list[Section]:
    """What texts lost."""
    names = ("source", "documents", "removed_passages", "removed_bytes", "below_floor")
    rows = [tuple(one[name] for name in names) for one in found["sources"]]
    headings = ("source", "documents that lost some", "passages", "bytes", "dropped for what was left")
    return [
        Section(
            "repeated-passages",
            "Passages that repeat across the corpus",
            tables=[Table("repeated_passages", "Taken out, by source", headings, rows)],
        )
    ]


def contamination(found: dict[str, Any]) -> list[Section]:
    """Evaluation sets: what of them the documents hold."""
    settings = found["settings"]
    rule = (
        f"any {settings['ngram']}-gram of it"
        if settings["match"] == "any"
        else f"at least {settings['share']:.0%} of its {settings['ngram']}-grams"
    )
    done = {
        "drop": "such documents were dropped",
        "cut": "such passages were cut",
        "report": "they were left as they are",
    }
    names = ("items", "items_found", "items_contaminated", "items_clean", "items_too_short")
    rows = [
        (one["name"], *(one[name] for name in names), one["documents"], one["documents_contaminated"])
        for one in found["sets"]
    ]
    headings = ("set", "items", "found", "contaminated", "clean", "too short to be found",
                "documents with any", "contaminated documents")  # fmt: skip
    places = [
        (one["name"], by, value, documents)
        for one in found["sets"]
        for by in ("source", "crawl", "fate")
        for value, documents in one[f"by_{by}"].items()
    ]
    items = [
        (one["name"], row["item"], share(row["share"]), row["documents"], row["ngram"])
        for one in found["sets"]
        for row in one["most_of"]
    ]
    ngrams = [(row["words"], row["documents"]) for row in found["ngrams_by_documents"]]
    return [
        Section(
            "contamination",
            "Evaluation sets in the documents",
            f"A document is contaminated by an item where it has {rule}; {done[settings['action']]}. The items of each "
            "set that no document was contaminated by are in contamination/, so that a score can be reported on them.",
            tables=[
                Table("contamination", "By set", headings, rows),
                Table("contaminated", "Contaminated documents", ("set", "by", "", "documents"), places),
                Table(
                    "contamination_items",
                    "Items of which most was found",
                    ("set", "item", "found", "documents", "such as"),
                    items,
                ),
                Table(
                    "contamination_ngrams",
                    "N-grams of most documents; public texts and phrases are false positives",
                    ("words", "documents"),
                    ngrams,
                ),
            ],
        )
    ]


def personal_data(found: list[dict[str, Any]]) -> list[Section]:
    """How often each kind was found; never what."""
    rows = [
        (
            one["source"],
            one["kind"].replace("_", " "),
            one["found"],
            one["documents"],
            percent(one["documents"], one["looked_through"]),
        )
        for one in found
    ]
    headings = ("source", "kind", "found", "documents", "share of documents")
    return [
        Section(
            "personal-data",
            "Personal data",
            "Counts only: what was found is written nowhere.",
            tables=[Table("personal_data", "By source and kind", headings, rows)],
        )
    ]


def validation(found: dict[str, Any]) -> Section:
    """Why the validation split is clean."""
    text = (
        f"Validation holds {found['documents']:,} documents of {found['tokens']:,} tokens; none has an exact or "
        "flagged near copy in training or in a reference set. Kept documents that overlap a reference set, and so "
        f"cannot be validation: {found['kept_documents_overlapping_references']:,}."
    )
    overlap = found["overlap"]
    if not overlap:
        return Section("validation", "Validation", f"{text} Shared n-grams were not looked for.")
    moved, n = overlap["moved"], overlap["ngram"]
    text += (
        f" Of their {n}-grams, training holds {percent(overlap['shared'], overlap['ngrams']) or 'none'}; "
        f"{overlap['documents_that_share']:,} documents share any, none more than {overlap['largest_share']:.1%} of "
        f"its own ({overlap['max_shared']:.0%} are allowed). {moved['documents']:,} documents of {moved['tokens']:,} "
        "tokens shared more and are training instead."
    )
    bounds = [f"{tenth * 10} to {tenth * 10 + 10} %" for tenth in range(10)]
    together = [a + b for a, b in zip(overlap["by_share"], moved["by_share"], strict=True)]
    drawn = Plot(
        "shared-ngrams",
        f"Validation documents and those moved to training, by the share of their {n}-grams in training",
        plots.bars(bounds, together, "documents"),
    )
    rows = [
        (bound, stayed, gone)
        for bound, stayed, gone in zip(bounds, overlap["by_share"], moved["by_share"], strict=True)
    ]
    largest = [
        (
            row["source"],
            row["url"] or row["id"] or f"{row['path']} · {row['record']}",
            share(row["share"]),
            row["words"],
        )
        for row in moved["largest"]
    ]
    headings = ("source", "document", "share", "words that training has, too")
    return Section(
        "validation",
        "Validation",
        text,
        [drawn],
        [
            Table(
                "shared_ngrams",
                f"Share of {n}-grams in training",
                ("share", "validation", "moved to training"),
                rows,
            ),
            *([Table("moved", "Documents moved to training", headings, largest)] if largest else []),
        ],
    )
