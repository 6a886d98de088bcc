"""What is printed of a document."""

import re
from typing import Any

from jobs import ledger
from jobs.peek.difference import Hunk, hunks
from jobs.peek.documents import Document
from jobs.peek.reasons import place
from jobs.report.examples import excerpt
from jobs.runtime.console import Console

MOST_HUNKS = 8
MARKS = {"same": ("", "", ""), "dropped": ("[-", "-]", "red"), "kept": ("{+", "+}", "green")}

# What moves the cursor, hides text or turns its direction on a terminal.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def show(console: Console, document: Document, chars: int) -> None:
    """Print where a document came from, why it has its fate, and its text or the difference."""
    row = document.row
    kept = row["fate"] in (ledger.TRAIN, ledger.VALIDATION)
    console.line(f"{row['fate']}  doc_id {row['doc_id']}", style="bold green" if kept else "bold red")
    console.line(f"  {printable(place(row))}")
    console.line(f"  {printable(document.why)}")
    console.line(f"  {printable(_measures(row))}")
    if document.kept is not None and document.text is not None:
        console.line(f"  similarity {document.similarity:.3f} (exact Jaccard similarity of the shingles)")
        _difference(console, hunks(document.text, document.kept[1]))
    elif document.text is None:
        console.line("  (no text)", style="dim")
    else:
        console.line(printable(excerpt(document.text, chars)))
    console.line()


def _measures(row: dict[str, Any]) -> str:
    told = [
        f"{row[name]:,} {unit}"
        for name, unit in (("n_bytes", "bytes"), ("n_words", "words"), ("n_tokens", "tokens"))
    ]
    if row["language"]:
        score = row["language_score"]
        told.append(f"language {row['language']}" + (f" {score:.2f}" if score is not None else ""))
    if row["score"] is not None:
        told.append(f"score {row['score']:g}")
    return ", ".join(told)


def _difference(console: Console, found: list[Hunk]) -> None:
    if not found:
        console.line("  the words of the two are the same")
    for hunk in found[:MOST_HUNKS]:
        console.line(
            f"  word {hunk.at_dropped:,} of the dropped, {hunk.at_kept:,} of the kept:", style="cyan"
        )
        parts = []
        for words in hunk.words:
            begin, end, style = MARKS[words.kind]
            parts.append((f"{begin}{printable(words.text)}{end} ", style))
        console.styled(parts)
    if len(found) > MOST_HUNKS:
        console.line(f"  … and {len(found) - MOST_HUNKS:,} more differences")


def printable(text: str) -> str:
    """Without what a document could do to a terminal."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)
