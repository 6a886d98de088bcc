"""The file of a fastText model, as far as it must be known before fastText itself may read it.

fastText trusts a file's sizes: a truncated one makes it wait for ever or ends the process. Here they are added up
first. Format: fastText 0.9.2, `FastText::saveModel` and what it calls, version 12; all numbers little-endian.

========== ==================================================================================================
magic      int32 793712314, int32 version
settings   12 × int32 (the 8th says what was trained, the 9th how many buckets), 1 × float64
dictionary int32 entries, words, labels; int64 tokens, pruned; entries: zero-ended UTF-8, int64 count, int8 type;
           pruned × 2 × int32 (none where it is -1)
matrices   input, then output; each a byte that says whether it is quantized, and then
           plain: int64 m, n; float32[m, n]
           quantized: byte with_norms, int64 m, n, int32 codes; uint8[codes]; a quantizer;
           and with norms uint8[m] and one more quantizer
quantizer  int32 dimension, parts, part, last_part; float32[dimension, 256]
========== ==================================================================================================
"""

import mmap
import struct
from pathlib import Path

MAGIC, VERSION = 793712314, 12
SUPERVISED = 3
LABEL_TYPE = 1
SETTINGS = struct.Struct("<12id")
DICTIONARY = struct.Struct("<3i2q")
ENTRY = struct.Struct("<qb")
QUANTIZED = struct.Struct("<?2qi")
CENTROIDS = 256


class ModelError(Exception):
    """Why a file is no model that can be used: what to say after its name."""


def labels(path: str) -> list[str]:
    """The labels of a supervised model in the order of its file, `__label__` included.

    Raises
    ------
    ModelError
        It is no fastText model, not a supervised one, or its size is not what it says of itself.
    OSError
        It cannot be read.
    """
    with Path(path).open("rb") as file:
        if not file.seek(0, 2):
            raise ModelError("is empty")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return _checked_labels(data)
            except (struct.error, UnicodeDecodeError, OverflowError):
                raise ModelError("is damaged or truncated") from None


def _checked_labels(data: mmap.mmap) -> list[str]:
    if len(data) < 8 or struct.unpack_from("<2i", data) != (MAGIC, VERSION):
        raise ModelError("is no fastText model")
    settings = SETTINGS.unpack_from(data, 8)
    if settings[7] != SUPERVISED:
        raise ModelError("is a fastText model of word vectors, which has no labels")
    found, place = _dictionary(data, 8 + SETTINGS.size)
    quantized = _byte(data, place)
    place = _matrix_end(data, place + 1, quantized)
    # The output is quantized only where the input is.
    place = _matrix_end(data, place + 1, quantized and _byte(data, place))
    if place != len(data):
        raise ModelError(
            f"is damaged or truncated: it has {len(data):,} bytes, but by what it says of itself {place:,}"
        )
    return found


def _dictionary(data: mmap.mmap, place: int) -> tuple[list[str], int]:
    """Its labels, and where it ends."""
    entries, _, n_labels, _, pruned = DICTIONARY.unpack_from(data, place)
    place += DICTIONARY.size
    found = []
    for _ in range(entries):
        end = data.find(b"\0", place)
        if end < 0:
            raise ModelError("is truncated")
        _, kind = ENTRY.unpack_from(data, end + 1)
        if kind == LABEL_TYPE:
            found.append(data[place:end].decode())
        place = end + 1 + ENTRY.size
    if not found or len(found) != n_labels:
        raise ModelError(f"is damaged: it has {len(found)} labels, but by what it says of itself {n_labels}")
    return found, place + 8 * max(pruned, 0)


def _matrix_end(data: mmap.mmap, place: int, quantized: bool) -> int:
    if not quantized:
        m, n = struct.unpack_from("<2q", data, place)
        return place + 16 + _size(m, n, 4)
    with_norms, m, _, codes = QUANTIZED.unpack_from(data, place)
    place = _quantizer_end(data, place + QUANTIZED.size + _size(codes))
    return _quantizer_end(data, place + _size(m)) if with_norms else place


def _quantizer_end(data: mmap.mmap, place: int) -> int:
    dimension, *_ = struct.unpack_from("<4i", data, place)
    return place + 16 + _size(dimension, CENTROIDS, 4)


def _byte(data: mmap.mmap, place: int) -> bool:
    return bool(struct.unpack_from("<?", data, place)[0])


def _size(*factors: int) -> int:
    size = 1
    for factor in factors:
        if factor < 0:
            raise ModelError("is damaged: it has a negative size")
        size *= factor
    return size
