"""The words in which two texts differ, with a few of those around them."""

import difflib
from typing import Literal, NamedTuple

CONTEXT = 12  # words that are the same, before and after a difference
MOST_WORDS = 50_000  # of each text

Kind = Literal["same", "dropped", "kept"]


class Words(NamedTuple):
    """Words that both texts have in this place, or one alone."""

    kind: Kind
    text: str


class Hunk(NamedTuple):
    """Differences that lie close together.

    Attributes
    ----------
    at_dropped, at_kept
        The number of the first word in either text, from 1.
    words
        In order.
    """

    at_dropped: int
    at_kept: int
    words: tuple[Words, ...]


def hunks(dropped: str, kept: str) -> list[Hunk]:
    """What to change in the first text to get the second, word by word; nothing where the words are the same."""
    a, b = (text.split()[:MOST_WORDS] for text in (dropped, kept))
    found = []
    for group in difflib.SequenceMatcher(None, a, b).get_grouped_opcodes(CONTEXT):
        words: list[Words] = []
        for change, i, j, k, m in group:
            if change == "equal":
                words.append(Words("same", " ".join(a[i:j])))
                continue
            words += [Words("dropped", " ".join(a[i:j]))] if i < j else []
            words += [Words("kept", " ".join(b[k:m]))] if k < m else []
        found.append(Hunk(group[0][1] + 1, group[0][3] + 1, tuple(words)))
    return found
