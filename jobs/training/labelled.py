"""Labelled documents in one fixed order, each text once, whatever the order and number of their files."""

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs import sources
from jobs.errors import UserError
from jobs.text import text_buffers, text_hashes
from jobs.training import reading
from kernels import permutation

TRUTH = {"0": 0.0, "1": 1.0, "0.0": 0.0, "1.0": 1.0, "false": 0.0, "true": 1.0}
OURS = "score"  # what readers call a column of numbers


@dataclass(frozen=True)
class Columns:
    """Where texts and labels are, and what labels mean.

    Attributes
    ----------
    text, label
        Names of columns.
    positive
        The label of good documents; None where labels are 0 and 1.
    score
        Name of a column of grades, in place of the label.
    """

    text: str = "text"
    label: str = "label"
    positive: str | None = None
    score: str | None = None


class Documents(NamedTuple):
    """What a model is trained on, in the order of the texts' hashes.

    Attributes
    ----------
    text
        large_string[d], no two the same.
    targets
        float64[d], 0 and 1, or grades.
    hashes
        uint64[d], the first eight bytes of each text's XXH3-128.
    counts
        Documents by what became of them.
    sha256
        Of all texts and targets.
    """

    text: pa.LargeStringArray
    targets: np.ndarray
    hashes: np.ndarray
    counts: dict[str, int]
    sha256: str


def read(path: str, columns: Columns) -> Documents:
    """Labelled documents of a file, folder, glob or URL of Parquet or JSON lines.

    A text that occurs more than once counts once, and not at all where its labels differ. Texts that are empty or
    null are left out, too.

    Raises
    ------
    UserError
        There is nothing to read, a column is missing, a label has no meaning, or a record cannot be read.
    """
    source = _source(path, columns)
    texts, targets = [], []
    for batch, file in reading.batches(source, {"text", "label", OURS}):
        texts.append(batch.text)
        targets.append(_targets(batch, file, columns))
    text = pa.chunked_array(texts, pa.large_string()).combine_chunks()
    return _arranged(text, np.concatenate([np.empty(0), *targets]))


def _source(path: str, columns: Columns) -> reading.Source:
    mapped = {"text": columns.text, **({OURS: columns.score} if columns.score else {})}
    extra = {} if columns.score else {"label": "string"}
    named = {} if columns.score else {"label": columns.label}
    return reading.source(path, mapped | named, extra)


def _targets(batch: sources.Batch, file: str, columns: Columns) -> np.ndarray:
    """float64[d] of a batch."""
    name = OURS if columns.score else "label"
    theirs = columns.score or columns.label
    values = batch.columns.get(name, pa.nulls(len(batch)))
    if columns.score:
        numbers = np.asarray(values.cast(pa.float64()).fill_null(np.nan), np.float64)
        wrong = ~np.isfinite(numbers)
        wanted = "a number"
    else:
        labels = values.cast(pa.string()).to_pylist()
        numbers = np.array([_target(label, columns.positive) for label in labels], np.float64)
        wrong = np.isnan(numbers)
        wanted = (
            "a label"
            if columns.positive is not None
            else "0 or 1; --positive names the label of good documents"
        )
    if wrong.any():
        row = int(np.argmax(wrong))
        raise UserError(
            f"{file}: record {batch.records[row]} has {values[row].as_py()!r} in column {theirs!r}; "
            f"it should be {wanted}"
        )
    return numbers


def _target(label: str | None, positive: str | None) -> float:
    if label is None:
        return np.nan
    return float(label == positive) if positive is not None else TRUTH.get(label.lower(), np.nan)


def _arranged(text: pa.LargeStringArray, targets: np.ndarray) -> Documents:
    """By text hash, each text once."""
    full = np.asarray(pc.fill_null(pc.greater(pc.binary_length(text), 0), False))
    counts = {"documents": len(text), "without_text": int(len(text) - full.sum())}
    text, targets = text.filter(pa.array(full)), targets[full]
    hashes = text_hashes(*text_buffers(text))
    keys = np.frombuffer(hashes.buffers()[1], ">u8").reshape(-1, 2)[: len(text)]
    order = np.lexsort((targets, keys[:, 1], keys[:, 0]))
    keys, ordered = keys[order], targets[order]
    begins = np.append(True, (keys[1:] != keys[:-1]).any(axis=1))[: len(order)]
    group = np.cumsum(begins) - 1
    ends = np.append(begins[1:], True)[: len(order)]
    same = ordered[begins] == ordered[ends]  # the least of a text's targets is the greatest
    chosen = order[begins][same]
    contradictory = int((~same)[group].sum())
    counts |= {
        "repeated": len(order) - len(chosen) - contradictory,
        "contradictory": contradictory,
        "used": len(chosen),
    }
    keys, targets = keys[begins][same], targets[chosen]
    digest = hashlib.sha256(keys.astype(">u8").tobytes() + targets.astype("<f8").tobytes()).hexdigest()
    return Documents(text.take(pa.array(chosen)), targets, keys[:, 0].astype(np.uint64), counts, digest)


def folds(documents: Documents, good: np.ndarray, k: int, seed: int) -> np.ndarray:
    """int64[d], the fold of each document: both classes spread evenly, by a keyed hash of the text alone.

    Parameters
    ----------
    documents
        d of them.
    good
        bool[d], the classes.
    k
        Folds.
    seed
        Of the hash.
    """
    keyed = permutation.keyed_hash(documents.hashes, permutation.key("train-quality-fold", seed))
    fold = np.empty(len(good), np.int64)
    for members in (np.flatnonzero(good), np.flatnonzero(~good)):
        fold[members[np.argsort(keyed[members], kind="stable")]] = np.arange(len(members)) % k
    return fold
