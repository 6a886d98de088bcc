"""Section on the mixture: what was asked of each group in each stage, and what it gives."""

from typing import Any

from jobs.report.parts import Section, Table, share


def sections(found: dict[str, Any]) -> list[Section]:
    """What was asked of each group in each stage, and what it gives."""
    rows = [
        (
            stage["name"],
            group,
            share(one["asked"]),
            share(one["share"]),
            one["tokens"],
            f"{one['epochs']:.2f}",
            f"{one['epochs_before']:.2f}",
            one["copies_apart"] or "",
        )
        for stage in found["stages"]
        for group, one in stage["groups"].items()
    ]
    stages = [
        (
            stage["name"],
            stage["length"],
            stage["min_document_tokens"],
            stage["sequences"],
            stage["asked_tokens"] or "",
            stage["tokens"],
            f"{stage['share_off_in_a_window']:.4%}",
        )
        for stage in found["stages"]
    ]
    return [
        Section(
            "mixture",
            "Mixture",
            " ".join([f"Groups by {found['by']}, in shares of tokens.", *found["unmet"]]),
            tables=[
                Table(
                    "mixture",
                    "What each group gives to each stage",
                    ("stage", "group", "asked", "given", "tokens", "epochs", "epochs before", "copies apart"),
                    rows,
                ),
                Table(
                    "stages",
                    "Stages, and how far a share can be off in any 10 million tokens",
                    (
                        "stage",
                        "length",
                        "documents of at least",
                        "sequences",
                        "asked",
                        "tokens",
                        "off by at most",
                    ),
                    stages,
                ),
            ],
        )
    ]
