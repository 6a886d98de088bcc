"""Evaluation sets: items from JSON Lines, CSV and Parquet, and their n-grams.

Every item is read, and everything wrong with the file is said, before any document is looked at.
"""

import csv
import functools
import gzip
import io
import itertools
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.errors import UserError
from jobs.runtime.named_files import File, digest, located
from jobs.settings.contamination import Column, Contamination, EvaluationSet
from kernels import ngrams

WANTED = "a file of JSON Lines, CSV or Parquet"
INDEXES = 4  # that a process keeps


class Item(NamedTuple):
    """One question.

    Attributes
    ----------
    id
        Its name.
    fields
        The texts that count; of a list, each member.
    place
        Where it stands, such as `line 3`.
    raw
        Its line or lines as the file has them; b"" in Parquet.
    """

    id: str
    fields: tuple[str, ...]
    place: str
    raw: bytes


class Index(NamedTuple):
    """The n-grams of all sets.

    Attributes
    ----------
    ngrams
        What documents are looked through for.
    data, spans
        The items' texts, uint8[n], and int64[g, 2], where each n-gram g first begins and ends in them.
    items
        Name of the set and id of each item i, in their order.
    set_of_item
        int64[i], which of the sets.
    sizes
        int64[i], different n-grams of each item; 0: it is never found.
    offsets, postings
        int64[g + 1] and int64[p]: n-gram g is of the items ``postings[offsets[g] : offsets[g + 1]]``.
    boilerplate
        Words of n-grams that are of too many items to count, with the number of those.
    common
        Words of n-grams that are in too many documents to count, with the number of those.
    """

    ngrams: ngrams.NgramIndex
    data: np.ndarray
    spans: np.ndarray
    items: tuple[tuple[str, str], ...]
    set_of_item: np.ndarray
    sizes: np.ndarray
    offsets: np.ndarray
    postings: np.ndarray
    boilerplate: dict[str, int]
    common: dict[str, int]

    def text(self, ngram: int) -> str:
        """An n-gram as its first item has it, white space made single."""
        return _text(self.data, *self.spans[ngram])

    def of_items(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Every item of n-grams: for each, the place of the n-gram in `numbers`, and the item."""
        counts = self.offsets[numbers + 1] - self.offsets[numbers]
        place = np.repeat(np.arange(len(numbers)), counts)
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return place, self.postings[np.repeat(self.offsets[numbers], counts) + within]


# ---------------------------------------------------------------- items


def items(settings: EvaluationSet) -> list[Item]:
    """The items of a set.

    Raises
    ------
    UserError
        One sentence that names the file and the line.
    """
    return list(_items(settings, _file(settings)))


def identity(settings: EvaluationSet) -> dict[str, Any]:
    """What fingerprints hold: the content of the file, wherever it lies."""
    return settings.model_dump(exclude={"path"}) | {"content": digest(_file(settings))}


def _file(settings: EvaluationSet) -> File:
    return located(settings.path, f"the evaluation set {settings.name!r}", WANTED)


@functools.lru_cache(16)
def _items(settings: EvaluationSet, file: File) -> tuple[Item, ...]:
    readers = {"jsonl": _json_lines, "csv": _csv_rows, "parquet": _parquet_rows}
    found, seen = [], dict[str, str]()
    for place, record, raw in readers[settings.format or "jsonl"](settings):
        where = f"{file.path} {place}"
        texts = tuple(
            text
            for column in settings.fields
            for text in _texts(_value(record, column, where), column, where)
        )
        if not any(text.strip() for text in texts):
            named = ", ".join(map(str, settings.fields))
            raise UserError(f"{where} has no text in {named}; remove it, or name fields that have some")
        of_id = [_texts(_value(record, column, where), column, where) for column in settings.identifying]
        name = "/".join(part for parts in of_id for part in parts) if of_id else place.split()[-1]
        if name in seen:
            raise UserError(f"{where} has the id {name!r}, as {seen[name]} has; ids must differ")
        seen[name] = place
        found.append(Item(name, texts, place, raw))
    if not found:
        raise UserError(f"{file.path} of the evaluation set {settings.name!r} holds no item")
    return tuple(found)


def _value(record: Any, column: Column, where: str) -> Any:
    if isinstance(column, int):
        if column >= len(record):
            raise UserError(f"{where} has {len(record)} columns, counted from 0; there is no column {column}")
        return record[column]
    value = record
    for step in [column] if column in record else column.split("."):
        if not isinstance(value, dict) or step not in value:
            raise UserError(
                f"{where} has no field {column!r}; it has {', '.join(map(str, record)) or 'none'}"
            )
        value = value[step]
    return value


def _texts(value: Any, column: Column, where: str) -> list[str]:
    """Text and numbers, or a list of them, as texts; nothing of null."""
    if isinstance(value, list):
        return [text for one in value for text in _texts(one, column, where)]
    if isinstance(value, dict):
        raise UserError(f"{where}: field {column!r} is an object; name what counts of it, as {column}.NAME")
    return [] if value is None else [value if isinstance(value, str) else json.dumps(value)]


def _content(path: str) -> bytes:
    content = Path(path).read_bytes()
    if Path(path).suffix != ".gz":
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} is damaged: it cannot be decompressed ({error})") from None


def _lines(path: str) -> Iterator[tuple[int, bytes, str]]:
    """Number, bytes and text of each line, line ends included."""
    for number, line in enumerate(io.BytesIO(_content(path)), 1):
        try:
            yield number, line, line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise UserError(f"{path} line {number} is no UTF-8") from None


def _json_lines(settings: EvaluationSet) -> Iterator[tuple[str, Any, bytes]]:
    for number, line, text in _lines(settings.path):
        if not text.strip():
            continue
        try:
            record = json.loads(text)
        except ValueError:
            raise UserError(
                f"{settings.path} line {number} is no JSON; it should hold an object a line"
            ) from None
        if not isinstance(record, dict):
            raise UserError(f"{settings.path} line {number} holds no object, but {type(record).__name__}")
        yield f"line {number}", record, line


def _csv_rows(settings: EvaluationSet) -> Iterator[tuple[str, Any, bytes]]:
    """Rows with the number of the line where each begins; a quoted field may span lines."""
    lines = list(_lines(settings.path))
    rows = csv.reader((text for _, _, text in lines), strict=True)
    header = None if isinstance(settings.fields[0], int) else next(rows, [])
    while True:
        begun = rows.line_num
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            raise UserError(f"{settings.path} line {begun + 1} is no CSV: {error}") from None
        if not row:
            continue
        if header is not None and len(row) != len(header):
            raise UserError(
                f"{settings.path} line {begun + 1} has {len(row)} columns, the header {len(header)}"
            )
        raw = b"".join(line for _, line, _ in lines[begun : rows.line_num])
        yield f"line {begun + 1}", row if header is None else dict(zip(header, row, strict=True)), raw


def _parquet_rows(settings: EvaluationSet) -> Iterator[tuple[str, Any, bytes]]:
    try:
        table = pq.read_table(settings.path)
    except (pa.ArrowException, OSError) as error:
        raise UserError(
            f"{settings.path} cannot be read as Parquet: {' '.join(str(error).split())}"
        ) from None
    for number, record in enumerate(table.to_pylist(), 1):
        yield f"row {number}", record, b""


def write_subset(settings: EvaluationSet, keep: Sequence[bool], file: Any) -> None:
    """Write the items to keep as the file has them, byte for byte in JSON Lines and CSV; compressed as the file is."""
    if settings.format == "parquet":
        pq.write_table(pq.read_table(settings.path).filter(pa.array(keep)), file)
        return
    header = b""
    if settings.format == "csv" and not isinstance(settings.fields[0], int):
        [(_, header, _)] = itertools.islice(_lines(settings.path), 1)
    content = header + b"".join(
        _ended(item.raw) for item, kept in zip(items(settings), keep, strict=True) if kept
    )
    file.write(gzip.compress(content, mtime=0) if Path(settings.path).suffix == ".gz" else content)


def _ended(line: bytes) -> bytes:
    return line if line.endswith(b"\n") else line + b"\n"


# ---------------------------------------------------------------- their n-grams


def index_of(settings: Contamination) -> Index:
    """Index of all sets, built once in a process for the files as they are now."""
    counts = (
        located(settings.counts, "contamination.counts", "ngrams.parquet of a run")
        if settings.counts
        else None
    )
    return _index(settings, tuple(_file(one) for one in settings.sets), counts)


@functools.lru_cache(INDEXES)
def _index(settings: Contamination, files: tuple[File, ...], counted: File | None) -> Index:
    by_set = [_items(one, file) for one, file in zip(settings.sets, files, strict=True)]
    everything = [item for of_set in by_set for item in of_set]
    words, grams = _grams_of_items(everything, settings)
    # A number for each different n-gram, in the order in which they first occur.
    _, first, number = np.unique(grams.hashes, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    pairs = (
        np.unique(np.stack([rank[number], grams.items], axis=1), axis=0)
        if len(number)
        else np.empty((0, 2), int)
    )
    first = np.sort(first)
    counts = np.bincount(pairs[:, 0], minlength=len(first))
    rare = counts <= (len(everything) if settings.max_items is None else settings.max_items)
    in_many = _in_many_documents(counted, settings.max_documents)
    common = {g: in_many[value] for g, value in enumerate(grams.hashes[first].tolist()) if value in in_many}
    usual = rare.copy()
    usual[list(common)] = False
    last = grams.starts[first] + grams.lengths[first] - 1
    spans = np.stack([words.words.starts[grams.starts[first]], words.words.ends[last]], axis=1)
    boilerplate = {_text(words.data, *spans[g]): int(counts[g]) for g in np.flatnonzero(~rare)}
    new = np.cumsum(usual) - 1
    pairs = pairs[usual[pairs[:, 0]]]
    chosen = first[usual]
    starts, lengths = grams.starts[chosen], grams.lengths[chosen]
    shortest = int(lengths.min()) if len(lengths) else 1
    suffixes = ngrams.ngrams(words.words, starts + lengths - shortest, shortest)
    return Index(
        ngrams.index(grams.hashes[chosen], suffixes, lengths),
        words.data,
        spans[usual],
        tuple(
            (one.name, item.id) for one, of_set in zip(settings.sets, by_set, strict=True) for item in of_set
        ),
        np.repeat(np.arange(len(by_set)), [len(of_set) for of_set in by_set]),
        np.bincount(pairs[:, 1], minlength=len(everything)),
        np.concatenate(([0], np.cumsum(np.bincount(new[pairs[:, 0]], minlength=len(chosen))))).astype(
            np.int64
        ),
        pairs[:, 1],
        boilerplate,
        {_text(words.data, *spans[g]): documents for g, documents in common.items()},
    )


def _in_many_documents(counted: File | None, most: int | None) -> dict[int, int]:
    """Hashes of the n-grams that are in more documents than so many, with the number of those."""
    if counted is None or most is None:
        return {}
    table = _counted(counted.path)
    table = table.filter(pc.greater(table["documents"], most))
    texts = [text.encode() for text in table["words"].to_pylist()]
    words = ngrams.words(np.frombuffer(b"".join(texts), np.uint8), np.cumsum([0, *map(len, texts)]))
    hashes = [
        int(ngrams.ngrams(words, words.offsets[i : i + 1], int(length))[0])
        for i, length in enumerate(np.diff(words.offsets))
    ]
    return dict(zip(hashes, table["documents"].to_pylist(), strict=True))


def _counted(path: str) -> pa.Table:
    """`words` and `documents` of an earlier run's n-grams."""
    try:
        schema = pq.read_schema(path)
        fits = [
            name in schema.names and is_right(schema.field(name).type)
            for name, is_right in (("words", pa.types.is_string), ("documents", pa.types.is_integer))
        ]
        if all(fits):
            return pq.read_table(path, columns=["words", "documents"])
        why = "it has no columns words, of texts, and documents, of whole numbers"
    except (pa.ArrowException, OSError):
        why = "it cannot be read as Parquet"
    raise UserError(
        f"contamination.counts is {path!r}, which is no contamination/ngrams.parquet of an earlier run: {why}"
    )


class _Text(NamedTuple):
    """Texts and their words."""

    data: np.ndarray
    words: ngrams.Words


class _Grams(NamedTuple):
    """Every occurrence of an n-gram in the items."""

    hashes: np.ndarray
    items: np.ndarray
    starts: np.ndarray  # its first word
    lengths: np.ndarray


def _grams_of_items(of: Iterable[Item], settings: Contamination) -> tuple[_Text, _Grams]:
    """N-grams of whole texts, and whole texts and first fields that are shorter than one."""
    texts, owner, whole = [], [], []
    for number, item in enumerate(of):
        parts = ["\n".join(item.fields), *item.fields[: len(item.fields) > 1]]
        texts += [part.encode(errors="surrogatepass") for part in parts]
        owner += [number] * len(parts)
        whole += [True] + [False] * (len(parts) - 1)
    data = np.frombuffer(b"".join(texts), np.uint8)
    words = ngrams.words(data, np.cumsum([0, *map(len, texts)]))
    n, sizes = settings.ngram, np.diff(words.offsets)
    runs = np.where(whole, np.maximum(sizes - n + 1, 0), 0)
    text_of_run = np.repeat(np.arange(len(texts)), runs)
    within = np.arange(runs.sum()) - np.repeat(np.cumsum(runs) - runs, runs)
    short = np.flatnonzero((sizes < n) & (sizes >= settings.min_words))
    starts = [words.offsets[text_of_run] + within]
    hashes, lengths = [ngrams.ngrams(words, starts[0], n)], [np.full(len(starts[0]), n)]
    texts_of = [text_of_run]
    for length in np.unique(sizes[short]):
        of_length = short[sizes[short] == length]
        starts.append(words.offsets[of_length])
        hashes.append(ngrams.ngrams(words, starts[-1], int(length)))
        lengths.append(np.full(len(of_length), length))
        texts_of.append(of_length)
    owners = np.array(owner, np.int64)[np.concatenate(texts_of)] if owner else np.empty(0, np.int64)
    return _Text(data, words), _Grams(
        np.concatenate(hashes), owners, np.concatenate(starts), np.concatenate(lengths).astype(np.int64)
    )


def _text(data: np.ndarray, start: int, end: int) -> str:
    return " ".join(data[start:end].tobytes().decode(errors="replace").split())
