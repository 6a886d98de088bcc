"""Documents that hold n-grams of evaluation sets: recorded, and reported, dropped or cut.

A document is contaminated by an item where it has any n-gram of it, or, with `match: share`, at least that share of
its different n-grams. Its fate names the first set in the order of the settings that has such an item. What `cut`
removes is every such n-gram with a margin on either side; of the pieces that are left, those under the floor go too,
and the others are joined by a blank line. A document in too many pieces, or without any, is dropped.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from jobs import evaluation_sets
from jobs.evaluation_sets import Index
from jobs.runtime.named_files import digest, located
from jobs.settings.contamination import Contamination
from jobs.text import text_buffers
from kernels import ngrams

STEP = "contaminated"
MATCHES = pa.schema(
    [
        ("row", pa.int64()),  # of the batch
        ("ngram", pa.int64()),  # number in the index of the sets
        ("start", pa.int64()),  # byte of the text that the step was given, where it first occurs
        ("counts", pa.bool_()),  # whether it is of an item that makes the document contaminated
    ]
)


@dataclass(frozen=True)
class Checked:
    """What was found in a batch of documents.

    Attributes
    ----------
    text
        large_string[d], cut where the action says so.
    fate
        string[d], `contaminated.NAME`; null for a document that goes on.
    matches
        `MATCHES`, each n-gram of a document once.
    """

    text: pa.LargeStringArray
    fate: pa.StringArray
    matches: pa.Table


def check(settings: Contamination) -> None:
    """Refuse evaluation sets and counts that cannot be read.

    Raises
    ------
    UserError
        One sentence that names the file and the line.
    """
    for one in settings.sets:
        evaluation_sets.items(one)
    if settings.counts:
        evaluation_sets.index_of(settings)


def never_found(settings: Contamination) -> list[str]:
    """A sentence for each set of which no item can be found."""
    if not settings.used:
        return []
    index, least = evaluation_sets.index_of(settings), min(settings.min_words, settings.ngram)
    left_out = settings.max_items is not None or settings.counts is not None
    said = []
    for number, one in enumerate(settings.sets):
        sizes = index.sizes[index.set_of_item == number]
        if not sizes.any():
            what = f"none of its items ({len(sizes):,}) has {least} words or more"
            more = " that are not left out by max_items or counts" if left_out else ""
            said.append(f"the evaluation set {one.name!r} is looked for in vain: {what}{more}")
    return said


def identity(settings: Contamination) -> dict[str, Any] | None:
    """What fingerprints hold: settings, and the sets by their content; nothing where there are none."""
    if not settings.used:
        return None
    counts = settings.counts and digest(
        located(settings.counts, "contamination.counts", "ngrams.parquet of a run")
    )
    sets = [evaluation_sets.identity(one) for one in settings.sets]
    return settings.model_dump() | {"sets": sets, "counts": counts}


def checked(text: pa.LargeStringArray, settings: Contamination) -> Checked:
    """Look through documents for the sets.

    Parameters
    ----------
    text
        large_string[d], none of them null.
    settings
        Which sets, and what to do.
    """
    index = evaluation_sets.index_of(settings)
    data, offsets = text_buffers(text)
    hits = ngrams.find(data, offsets, index.ngrams)
    fate = np.full(len(text), None, object)
    if not len(hits):
        return Checked(text, pa.array(fate, pa.string()), MATCHES.empty_table())
    found = pd.DataFrame(hits, columns=["row", "ngram", "start", "end"])
    found["start"] -= offsets[found["row"]]
    found["end"] -= offsets[found["row"]]
    matches = found.drop_duplicates(["row", "ngram"])
    items = contaminating(matches, index, settings)
    matches = matches.assign(counts=matches.index.isin(items["match"]))
    fates = items.groupby("row")["set"].min().map(lambda number: f"{STEP}.{settings.sets[number].name}")
    if settings.action == "drop":
        fate[fates.index] = fates
    elif settings.action == "cut":
        counted = matches.loc[matches["counts"], ["row", "ngram"]]
        text, emptied = _cut(text, found.merge(counted, on=["row", "ngram"]), settings)
        fate[emptied] = fates[emptied]
    table = pa.Table.from_pandas(matches[MATCHES.names], MATCHES, preserve_index=False)
    return Checked(text, pa.array(fate, pa.string()), table)


def contaminating(matches: pd.DataFrame, index: Index, settings: Contamination) -> pd.DataFrame:
    """The items that make documents contaminated.

    Parameters
    ----------
    matches
        Columns `row`, any number of the document, and `ngram`: each pair once.
    index
        Of the sets.
    settings
        What counts.

    Returns
    -------
    DataFrame
        A row for each n-gram of each such item in each document: `match`, the label of the row of `matches`, `row`,
        `item`, `set`, and `matched`, how many different n-grams of the item the document has.
    """
    place, items = index.of_items(matches["ngram"].to_numpy())
    pairs = pd.DataFrame(
        {
            "match": matches.index.to_numpy()[place],
            "row": matches["row"].to_numpy()[place],
            "item": items,
            "set": index.set_of_item[items],
        }
    )
    pairs["matched"] = pairs.groupby(["row", "item"])["match"].transform("size")
    least = 1 if settings.match == "any" else np.maximum(settings.share * index.sizes[items], 1)
    # The share is a decimal of the settings: 0.7 of 10 n-grams are 7, whatever the rounding.
    return pairs[pairs["matched"] >= least - 1e-9]


def _cut(
    text: pa.LargeStringArray, spans: pd.DataFrame, settings: Contamination
) -> tuple[pa.LargeStringArray, list[int]]:
    """Texts without the spans, and the rows of those that are to be dropped."""
    texts, emptied = text.to_pylist(), []
    for row, of_document in spans.groupby("row"):
        left = pieces(texts[row], of_document["start"].to_numpy(), of_document["end"].to_numpy(), settings)
        if not left or len(left) > settings.max_pieces:
            emptied.append(int(row))
        else:
            texts[row] = "\n\n".join(left)
    return pa.array(texts, pa.large_string()), emptied


def pieces(text: str, starts: np.ndarray, ends: np.ndarray, settings: Contamination) -> list[str]:
    """What is left of a text when spans, in bytes, and the margin of characters around them are cut; no short ones."""
    data = np.frombuffer(text.encode(), np.uint8)
    characters = np.concatenate(([0], np.cumsum((data & 0xC0) != 0x80)))
    cuts = np.zeros(len(text) + 1, np.int64)
    np.add.at(cuts, np.maximum(characters[starts] - settings.margin, 0), 1)
    np.add.at(cuts, np.minimum(characters[ends] + settings.margin, len(text)), -1)
    kept = np.concatenate(([False], np.cumsum(cuts[:-1]) == 0, [False]))
    edges = np.flatnonzero(np.diff(kept.astype(np.int8)))
    found = [text[a:b].strip() for a, b in edges.reshape(-1, 2)]
    return [piece for piece in found if len(piece) >= max(settings.floor, 1)]
