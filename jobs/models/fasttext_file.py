"""The file of a supervised fastText model: what is checked before any work, and the model as the kernels take it.

A file says how large its parts are; these are added up before anything is made of them. Format: fastText 0.9.2,
`FastText::saveModel` and what it calls, version 12; all numbers little-endian.

========== ==================================================================================================
magic      int32 793712314, int32 version
settings   12 × int32 (dimension, ws, epoch, minCount, neg, wordNgrams, loss, model, bucket, minn, maxn,
           lrUpdateRate), 1 × float64
dictionary int32 entries, words, labels; int64 tokens, pruned; entries: zero-ended UTF-8, int64 count, int8 type,
           words before labels; pruned × 2 × int32, a bucket and its row behind the words (none where it is -1)
matrices   input, then output; each a byte that says whether it is quantized, and then
           plain: int64 m, n; float32[m, n]
           quantized: byte with_norms, int64 m, n, int32 codes; uint8[codes]; a quantizer;
           and with norms uint8[m] and one more quantizer
quantizer  int32 dimension, parts, part, last_part; float32[dimension, 256]
========== ==================================================================================================
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kernels import fasttext_model as kernel

MAGIC, VERSION = 793712314, 12
SUPERVISED = 3
LABEL_TYPE = 1
HEADER = struct.Struct("<2i")
SETTINGS = struct.Struct("<12id")
DICTIONARY = struct.Struct("<3i2q")
ENTRY = struct.Struct("<qb")
PLAIN = struct.Struct("<2q")
QUANTIZED = struct.Struct("<?2qi")
QUANTIZER = struct.Struct("<4i")
LARGEST_DECODED = 1 << 28  # bytes of a quantized matrix that is held as plain numbers: faster, and larger
CHECKED_ROWS = 1 << 16  # at a time
LOSSES = (kernel.HIERARCHICAL, kernel.NEGATIVE_SAMPLING, kernel.SOFTMAX, kernel.ONE_VS_ALL)


class ModelError(Exception):
    """Why a file is no model that can be used: what to say after its name."""


class Settings(NamedTuple):
    """The settings of a model's training, under fastText's names."""

    dim: int
    ws: int
    epoch: int
    min_count: int
    neg: int
    word_ngrams: int
    loss: int
    model: int
    bucket: int
    minn: int
    maxn: int
    lr_update_rate: int
    t: float


@dataclass(frozen=True)
class Matrix:
    """Where a matrix lies in a file.

    Attributes
    ----------
    shape
        Rows and columns.
    place
        Of its numbers, or of its codes.
    end
        Of all that belongs to it.
    quantizer
        Where its quantizer lies; None for a plain matrix.
    norms
        Where the codes of its norms lie; None where it has none.
    """

    shape: tuple[int, int]
    place: int
    end: int
    quantizer: int | None = None
    norms: int | None = None


@dataclass(frozen=True)
class Parts:
    """A file that is as large as it says, in its parts.

    Attributes
    ----------
    content
        uint8[n], the file, mapped.
    settings
        Of the training.
    n_words, labels
        How many words there are, and all labels, `__label__` included.
    entries
        Words, then labels: where each is written, and how often it occurred.
    pruned
        int32[p, 2]: buckets and their rows behind the words; None where every bucket has its own.
    input, output
        The matrices.
    """

    content: np.ndarray
    settings: Settings
    n_words: int
    labels: tuple[str, ...]
    entries: kernel.Entries
    pruned: np.ndarray | None
    input: Matrix
    output: Matrix


def labels(path: str) -> tuple[str, ...]:
    """The labels of a supervised model in the order of its file, `__label__` included.

    Raises
    ------
    ModelError
        It is no fastText model, not a supervised one, or its parts do not fit together.
    OSError
        It cannot be read.
    """
    return _parts(path).labels


def read(path: str) -> tuple[tuple[str, ...], kernel.Model]:
    """The labels of a supervised model and the model itself, whose plain input matrix stays in the file.

    Raises
    ------
    ModelError
        As for `labels`, and where a number of a matrix is none.
    OSError
        It cannot be read.
    """
    parts = _parts(path)
    return parts.labels, kernel.new_model(_dictionary(parts), _input(parts), _output(parts))


# ---------------------------------------------------------------- where things are


def _parts(path: str) -> Parts:
    if not Path(path).stat().st_size:
        raise ModelError("is empty")
    content = np.memmap(path, np.uint8, "r")
    try:
        return _checked(content)
    except (struct.error, UnicodeDecodeError, OverflowError, ValueError, TypeError):
        raise ModelError("is damaged or truncated") from None


def _checked(content: np.ndarray) -> Parts:
    data = content.data
    if len(data) < HEADER.size or HEADER.unpack_from(data) != (MAGIC, VERSION):
        raise ModelError("is no fastText model")
    settings = Settings(*SETTINGS.unpack_from(data, HEADER.size))
    if settings.model != SUPERVISED:
        raise ModelError("is a fastText model of word vectors, which has no labels")
    place = HEADER.size + SETTINGS.size
    n_entries, n_words, n_labels, _, n_pruned = DICTIONARY.unpack_from(data, place)
    entries = kernel.find_entries(content, place + DICTIONARY.size, n_entries)
    labels = _labels(data, entries, n_words, n_labels)
    place = entries.end
    pruned = None if n_pruned < 0 else _numbers(content, "<i4", place, n_pruned, 2)
    place += 8 * max(n_pruned, 0)
    quantized = _byte(data, place)
    input_ = _matrix(data, place + 1, quantized)
    # The output is quantized only where the input is.
    output = _matrix(data, input_.end + 1, _byte(data, input_.end) and quantized)
    if output.end != len(data):
        raise ModelError(
            f"is damaged or truncated: it has {len(data):,} bytes, but by what it says of itself {output.end:,}"
        )
    parts = Parts(content, settings, n_words, labels, entries, pruned, input_, output)
    if not _fits(parts):
        raise ModelError("is damaged: its parts do not fit together")
    return parts


def _labels(data: memoryview, entries: kernel.Entries, n_words: int, n_labels: int) -> tuple[str, ...]:
    places = np.flatnonzero(entries.types == LABEL_TYPE)
    if not len(places) or len(places) != n_labels:
        raise ModelError(f"is damaged: it has {len(places)} labels, but by what it says of itself {n_labels}")
    if len(entries.types) != n_words + n_labels or places[0] != n_words:
        raise ModelError("is damaged: its words are not those before its labels")
    bounds = zip(entries.starts[places].tolist(), entries.ends[places].tolist(), strict=True)
    return tuple(bytes(data[start:end]).decode() for start, end in bounds)


def _matrix(data: memoryview, place: int, quantized: bool) -> Matrix:
    if not quantized:
        m, n = PLAIN.unpack_from(data, place)
        place += PLAIN.size
        return Matrix((m, n), place, place + _size(m, n, 4))
    with_norms, m, n, n_codes = QUANTIZED.unpack_from(data, place)
    place += QUANTIZED.size
    quantizer = place + _size(n_codes)
    end, _, part = _quantizer(data, quantizer)
    norms = end if with_norms else None
    if with_norms:
        end, *_ = _quantizer(data, end + _size(m))
    if _size(m, -(-n // max(part, 1))) != n_codes:
        raise ModelError("is damaged: a matrix has another number of codes than it says")
    return Matrix((m, n), place, end, quantizer, norms)


def _quantizer(data: memoryview, place: int) -> tuple[int, int, int]:
    """Where it ends, its dimension, and how many columns a part has."""
    dimension, n_parts, part, last_part = QUANTIZER.unpack_from(data, place)
    if part < 1 or not 0 < last_part <= part or (n_parts - 1) * part + last_part != dimension:
        raise ModelError("is damaged or truncated: the parts of a quantizer are not its columns")
    return place + QUANTIZER.size + _size(dimension, kernel.CENTROIDS, 4), dimension, part


def _fits(parts: Parts) -> bool:
    """Whether every position that the model can ask for is one that it has."""
    settings, (rows, columns), pruned = parts.settings, parts.input.shape, parts.pruned
    counts = parts.entries.counts[parts.n_words :]
    hashed = settings.maxn > 0 or settings.word_ngrams > 1
    if pruned is not None:
        buckets, behind = pruned[:, 0], pruned[:, 1]
        fits = parts.input.quantizer is not None and int(pruned.min(initial=0)) >= 0
        fits = fits and int(buckets.max(initial=-1)) < max(settings.bucket, 1)
        wanted = 1 + int(behind.max(initial=-1))
    else:
        fits, wanted = True, settings.bucket if hashed else 0
    return (
        fits
        and settings.loss in LOSSES
        and max(settings.maxn, settings.word_ngrams) <= kernel.LONGEST
        and (settings.bucket > 0 or not hashed)
        and rows >= parts.n_words + wanted
        and 0 < settings.dim == columns == parts.output.shape[1]
        and parts.output.shape[0] == len(parts.labels)
        and int(counts.min()) >= 0
        and float(counts.astype(np.float64).sum()) < kernel.LARGEST_COUNT
    )


def _byte(data: memoryview, place: int) -> bool:
    return bool(struct.unpack_from("<?", data, place)[0])


def _size(*factors: int) -> int:
    size = 1
    for factor in factors:
        if factor < 0:
            raise ModelError("is damaged: it has a negative size")
        size *= factor
    return size


# ---------------------------------------------------------------- the model


def _dictionary(parts: Parts) -> kernel.Dictionary:
    content, settings, (starts, ends, *_) = parts.content, parts.settings, parts.entries
    pruned = np.empty((0, 2), np.int32) if parts.pruned is None else parts.pruned
    kept = kernel.kept_buckets(
        pruned[:, 0], pruned[:, 1], max(settings.bucket, 0) if parts.pruned is not None else 0
    )
    return kernel.Dictionary(
        text=content,
        starts=starts,
        ends=ends,
        table=kernel.entry_table(content, starts, ends),
        n_words=parts.n_words,
        buckets=settings.bucket,
        pruned=parts.pruned is not None,
        kept=kept[0],
        kept_before=kept[1],
        kept_rows=kept[2],
        shortest=settings.minn,
        longest=settings.maxn,
        longest_words=settings.word_ngrams,
    )


def _input(parts: Parts) -> kernel.Input:
    """Plain where it is plain in the file or small; else as codes."""
    matrix, columns = parts.input, parts.settings.dim
    codes, centroids = np.empty(0, np.uint8), np.empty(0, np.float32)
    norms, part, place, numbers = np.empty(0, np.float32), 1, 0, parts.content
    if matrix.quantizer is None:
        place = matrix.place
        _check_finite(_numbers(numbers, "<f4", place, *matrix.shape))
    elif 4 * matrix.shape[0] * columns <= LARGEST_DECODED:
        numbers = _decoded(parts.content, matrix).reshape(-1).view(np.uint8)
    else:
        codes, centroids, norms, part = _coded(parts.content, matrix)
        numbers = np.empty(0, np.uint8)
    return kernel.Input(columns, numbers, place, codes.reshape(-1), centroids, norms, part)


def _output(parts: Parts) -> kernel.Output:
    matrix = parts.output
    if matrix.quantizer is None:
        weights = _numbers(parts.content, "<f4", matrix.place, *matrix.shape).astype(np.float32)
    else:
        weights = _decoded(parts.content, matrix)
    _check_finite(weights)
    nodes = kernel.tree(parts.entries.counts[parts.n_words :].copy())
    return kernel.Output(parts.settings.loss, weights, *nodes, kernel.sigmoid_table())


def _decoded(content: np.ndarray, matrix: Matrix) -> np.ndarray:
    """float32[m, n] of a quantized matrix, each number rounded as fastText has it when it adds a row."""
    codes, centroids, norms, part = _coded(content, matrix)
    decoded = np.empty(matrix.shape, np.float32)
    for i, first in enumerate(range(0, matrix.shape[1], part)):
        width = min(part, matrix.shape[1] - first)
        begin = kernel.CENTROIDS * first
        of_part = centroids[begin : begin + kernel.CENTROIDS * width].reshape(-1, width)
        decoded[:, first : first + width] = of_part[codes[:, i]]
    return decoded * norms[:, None]


def _coded(content: np.ndarray, matrix: Matrix) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Codes uint8[m, parts], centroids float32[n * 256], norms float32[m], and the columns of a part."""
    assert matrix.quantizer is not None
    m, n = matrix.shape
    _, n_parts, part, _ = QUANTIZER.unpack_from(content.data, matrix.quantizer)
    centroids = _centroids(content, matrix.quantizer, n)
    codes = _numbers(content, np.uint8, matrix.place, m, n_parts)
    norms = np.ones(m, np.float32)
    if matrix.norms is not None:
        norms = _centroids(content, matrix.norms + m, 1)[_numbers(content, np.uint8, matrix.norms, m)]
    return codes, centroids, norms, part


def _centroids(content: np.ndarray, place: int, columns: int) -> np.ndarray:
    dimension, *_ = QUANTIZER.unpack_from(content.data, place)
    if dimension != columns:
        raise ModelError("is damaged: a quantizer is not of its matrix")
    found = _numbers(content, "<f4", place + QUANTIZER.size, columns * kernel.CENTROIDS).astype(np.float32)
    _check_finite(found)
    return found


def _numbers(content: np.ndarray, dtype: Any, place: int, *shape: int) -> np.ndarray:
    """An array that lies in the file, at any alignment."""
    return np.ndarray(shape, dtype, content, place) if min(shape) else np.empty(shape, dtype)


def _check_finite(numbers: np.ndarray) -> None:
    for first in range(0, len(numbers), CHECKED_ROWS):
        if not np.isfinite(numbers[first : first + CHECKED_ROWS]).all():
            raise ModelError("is damaged: it has weights that are no finite numbers")
