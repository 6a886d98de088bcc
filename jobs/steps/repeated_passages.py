"""Passages that occur more than once in the corpus are taken out of the text, all but one occurrence, or all.

The rule. A passage is a line, a paragraph, or three sentences in a row (`kernels.passages`, and when two are equal).
Of each that repeats, `first` keeps one occurrence in the whole corpus: the first one in the first document by `ranks`.
A part of a text (line, paragraph or sentence) goes when it is in an occurrence that is not kept, and in none that is.
So with `first` each passage is still there as a whole, unless the document that keeps it is dropped by the floor or by
a later step. Lines and paragraphs are there once, three sentences perhaps again where others that are kept overlap.

A table of these passages is in `OUT/repeated_passages`, made by `jobs.pipeline.duplicates.passages`: `ranges.npy`,
int64[r], how many are in each range of hashes (r a power of two); and for each range that has any `range-NUMBER.npy`,
uint64[2, n], their hashes in order, and the doc_id of the document that keeps each.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.runtime import folders
from jobs.text import text_buffers
from kernels import minhash, passages, permutation

if TYPE_CHECKING:
    from jobs.settings.duplicates import RepeatedPassages

FLOOR = "repeated_passages.floor"
RANGES = "ranges.npy"
UNITS = {  # what a text is cut into, and how many of these are a passage
    "line": (passages.LINE, 1),
    "paragraph": (passages.PARAGRAPH, 1),
    "three_sentences": (passages.SENTENCE, 3),
}


class Passages(NamedTuple):
    """Passages of a batch, one beginning with each part of its documents.

    Attributes
    ----------
    cut
        The parts.
    hashes
        uint64[p]; those of another unit are other hashes.
    counted
        bool[p], whether there is one that takes part.
    document
        int64[p], whose part it is.
    """

    cut: passages.Parts
    hashes: np.ndarray
    counted: np.ndarray
    document: np.ndarray


@dataclass(frozen=True)
class Edited:
    """What is left of a batch of documents.

    Attributes
    ----------
    text
        large_string[d]; that of a dropped document as it was.
    columns
        int64[d] each, what went, under the ledger's names; of a dropped document what would have gone.
    fate
        string[d], `FLOOR` where too little is left; null for a document that goes on.
    """

    text: pa.LargeStringArray
    columns: dict[str, np.ndarray]
    fate: pa.StringArray


def passages_of(text: pa.LargeStringArray, settings: "RepeatedPassages") -> Passages:
    """Cut documents, and hash their passages."""
    data, offsets = text_buffers(text)
    unit, in_a_passage = UNITS[settings.unit]
    cut = passages.parts(data, offsets, unit)
    hashes, counted = passages.hashes(data, cut, in_a_passage, settings.min_words, settings.min_characters)
    of_unit = np.uint64(permutation.key(f"passages.{settings.unit}", 0))
    return Passages(cut, hashes ^ of_unit, counted, np.repeat(np.arange(len(text)), np.diff(cut.offsets)))


def ranks(doc_ids: np.ndarray) -> np.ndarray:
    """uint64[d], the order in which documents keep passages: a keyed hash, different for different documents."""
    return permutation.keyed_hash(doc_ids, permutation.key("repeated_passages", 0))


def range_of(hashes: np.ndarray, ranges: int) -> np.ndarray:
    """int64[p]: equal parts of the 64-bit hashes; `ranges` is a power of two."""
    bits = ranges.bit_length() - 1
    return (hashes >> np.uint64(64 - bits)).astype(np.int64) if bits else np.zeros(len(hashes), np.int64)


def range_name(number: int) -> str:
    """File name of a range."""
    return f"range-{number:06d}.npy"


def keepers(hashes: np.ndarray, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """bool[p], which passages repeat, and uint64[p], the document that keeps each.

    The table is memory-mapped, so that workers of a machine share what they look at.
    """
    counts = folders.load(folders.local_copy(folder / RANGES))
    repeated, kept_by = np.zeros(len(hashes), bool), np.zeros(len(hashes), np.uint64)
    numbers = range_of(hashes, len(counts))
    for number in np.unique(numbers):
        if counts[number]:
            known, keeper = folders.load(folders.local_copy(folder / range_name(int(number))))
            chosen = np.flatnonzero(numbers == number)
            place = np.minimum(np.searchsorted(known, hashes[chosen]), len(known) - 1)
            found = known[place] == hashes[chosen]
            repeated[chosen], kept_by[chosen] = found, keeper[place]
    return repeated, kept_by


def without(
    text: pa.LargeStringArray, doc_ids: np.ndarray, settings: "RepeatedPassages", folder: Path
) -> Edited:
    """Take out of documents what repeats, and drop those of which too little is left.

    Parameters
    ----------
    text : large_string[d]
        None of them null.
    doc_ids : uint64[d]
        Whose they are.
    settings : RepeatedPassages
        The rule.
    folder : Path
        Where the table is.
    """
    found = passages_of(text, settings)
    repeated, kept_by = keepers(found.hashes, folder)
    repeated &= found.counted
    kept = np.zeros(len(repeated), bool)
    if settings.keep == "first":
        here = np.flatnonzero(repeated & (kept_by == doc_ids[found.document]))
        kept[here[_first_of_each(found.document[here], found.hashes[here])]] = True
    in_a_passage = UNITS[settings.unit][1]
    removed = _covered(repeated & ~kept, in_a_passage) & ~_covered(kept, in_a_passage)
    data, offsets = text_buffers(text)
    left, left_offsets = passages.without(data, offsets, found.cut, removed)
    lost = np.bincount(found.document[removed], minlength=len(text)).astype(np.int64)
    edited = pa.LargeStringArray.from_buffers(len(text), pa.py_buffer(left_offsets), pa.py_buffer(left))
    fate = _under_floor(edited, lost > 0, settings)
    columns = {"removed_passages": lost, "removed_bytes": np.diff(offsets) - np.diff(left_offsets)}
    return Edited(pc.if_else(pc.is_null(fate), edited, text), columns, fate)


def _first_of_each(document: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    """Indices of the first of each hash in each document."""
    order = np.lexsort((hashes, document))  # stable
    document, hashes = document[order], hashes[order]
    starts = np.ones(len(order), bool)
    starts[1:] = (document[1:] != document[:-1]) | (hashes[1:] != hashes[:-1])
    return order[starts]


def _covered(begins: np.ndarray, in_a_passage: int) -> np.ndarray:
    """bool[p]: the part is in a passage that begins where marked; none reaches into another document."""
    covered = begins.copy()
    for later in range(1, in_a_passage):
        covered[later:] |= begins[:-later]
    return covered


def _under_floor(
    edited: pa.LargeStringArray, touched: np.ndarray, settings: "RepeatedPassages"
) -> pa.StringArray:
    """The fate of documents that lost passages and are now too short."""
    rows = np.flatnonzero(touched)
    data, offsets = text_buffers(edited.take(pa.array(rows)))
    _, n_words = minhash.signatures(data, offsets, minhash.SEEDS[:1], 1)
    short = np.zeros(len(edited), bool)
    short[rows] = (n_words < settings.floor_words) | (np.diff(offsets) < settings.floor_bytes)
    return pc.if_else(pa.array(short), pa.scalar(FLOOR), pa.scalar(None, pa.string()))
