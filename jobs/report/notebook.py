"""What notebooks show that is neither a table nor a plot: duplicates beside what was kept, and a text in tokens."""

import html
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.peek.documents import Document, Wanted, chosen, with_texts
from jobs.peek.reasons import place
from jobs.report.examples import Piece, differences
from jobs.runtime import folders

if TYPE_CHECKING:
    from jobs.tokens.encoder import Encoder

DROPPED, KEPT = "#ffd9c7", "#cfe6fb"  # behind words that one text alone has; as on the report's page
TOKENS = ("#dbe9f6", "#fde3cf", "#dcefe2", "#f3dfee")  # in turn, so that neighbours differ
INK = "#24292f"
TEXT = f"white-space: pre-wrap; overflow-wrap: anywhere; font: 13px/1.6 monospace; color: {INK}; text-align: left"


class Html(str):
    """A piece of a page; what a notebook shows."""

    def _repr_html_(self) -> str:
        return str(self)


def pairs(out: str | Path, n: int = 3, seed: int = 0) -> Html:
    """Near-duplicates beside the documents that were kept in their place, the words that differ marked.

    Parameters
    ----------
    out
        Output of a finished run, or its URL.
    n
        How many: a keyed sample.
    seed
        Of the sample.

    Raises
    ------
    UserError
        The run is not finished, or dropped no near-duplicate.
    """
    folder, said = folders.located(out), list[str]()
    found = with_texts(folder, chosen(folder, Wanted("near_duplicate", n=n, seed=seed)), said.append)
    shown = [_pair(document) for document in found]
    return Html("".join([*(f"<p>{html.escape(sentence)}</p>" for sentence in said), *shown]))


def _pair(document: Document) -> str:
    if document.kept is None or document.text is None:
        return f"<p>{html.escape(document.why)}</p>"
    kept, kept_text = document.kept
    left, right = differences(document.text, kept_text)
    columns = _column("dropped", place(document.row), left, DROPPED) + _column(
        "kept", place(kept), right, KEPT
    )
    return (
        f"<h4>similarity {document.similarity:.3f}</h4>"
        f'<div style="display: grid; grid-template-columns: 1fr 1fr; gap: 1em">{columns}</div>'
    )


def _column(title: str, where: str, pieces: Sequence[Piece], colour: str) -> str:
    words = " ".join(
        html.escape(piece.text) if piece.shared else _coloured(piece.text, colour) for piece in pieces
    )
    return (
        f'<div><b>{title}</b> <span style="overflow-wrap: anywhere">{html.escape(where)}</span>'
        f'<div style="{TEXT}; background: #f6f8fa; padding: .6em">{words}</div></div>'
    )


def tokens(encoder: "Encoder", text: str) -> Html:
    """A text with a colour behind each of its tokens.

    Tokens that are parts of one character stand together. The text is shown as its tokens give it back.
    """
    import pyarrow as pa

    ids, _ = encoder.encode(pa.array([text], pa.large_string()))
    parts, begun = list[str](), b""
    for i in range(len(ids) - 1):  # the last one ends the text
        begun += encoder.decode_bytes(ids[i : i + 1])
        try:
            parts.append(begun.decode())
        except UnicodeDecodeError:
            continue
        begun = b""
    shown = (_coloured(part, colour) for part, colour in zip(parts, itertools.cycle(TOKENS), strict=False))
    return Html(f'<div style="{TEXT}">{"".join(shown)}</div>')


def _coloured(text: str, colour: str) -> str:
    return f'<span style="background: {colour}">{html.escape(text)}</span>'
