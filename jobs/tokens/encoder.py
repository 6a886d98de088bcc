"""Encode documents: gigatoken's speed, held to the reference library's ids.

`load` reads a tokenizer and decides which engine encodes. gigatoken does where its ids are the reference's: for
byte-level BPE whose split is one of those that were compared for every code point (`definition.KNOWN_SPLITS`), with
the special tokens dropped, since it would find them in the text. Any other tokenizer is left to the reference, with
a notice. Documents with code points that the two classify differently go to the reference too.

Dimensions: documents d, pieces p, tokens t.
"""

import hashlib
import importlib.metadata
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from jobs.errors import UserError
from jobs.runtime import folders
from jobs.text import text_buffers
from jobs.tokens import definition
from jobs.tokens.definition import Definition, ReferenceLibraryError, is_panic
from jobs.tokens.engines import CACHE_BUDGET, Gigatoken, Reference
from jobs.tokens.pieces import PIECE, disputed, pieces
from kernels import packing

GROUP = 4 * 2**20  # bytes of text given to an engine at once, about

PROBE = (
    "It's the user’s TEXT, isn't it? WE'LL say: 3.14159, 1234567 and ½; snake_case camelCase HTTPServer…\n\n"
    "  Indented\t\ttabs \r\n\r\n trailing spaces   \n«Größe» naïve ﬁ ſ's K'S\u00a0\u2028\u3000"
    "Съешь же ещё этих мягких французских булок; 我能吞下玻璃而不伤身体。ゆきがふる 한국어 नमस्ते दुनिया ภาษาไทย "
    "שלום مرحبا 👩🏽‍🚀🇳🇱 e\u0301 a\u0308\u0323 \u200b\ufeff\x00\x1f /path//to/\n/ if (x != y) { return -1; }\n\n\n    "
)


class EncodingMismatch(Exception):  # noqa: N818 (it is a finding)
    """A document's ids are not what the reference library gives.

    Attributes
    ----------
    row : int
        Which document.
    position : int
        Its first id that differs.
    """

    def __init__(self, row: int, position: int, library: str) -> None:
        super().__init__(row, position, library)  # what unpickling calls this with
        self.row, self.position, self.library = row, position, library

    def __str__(self) -> str:
        return f"the ids of document {self.row} differ from those of {self.library}, at position {self.position} first"


@dataclass(frozen=True)
class Spec:
    """Which tokenizer, and how to encode with it; small enough to go with every task.

    Parameters
    ----------
    path : str
        A `tokenizer.json` or a tiktoken ranks file.
    pattern : {"r50k", "cl100k", "o200k"}, optional
        How a ranks file's text is split.
    engine : {"auto", "gigatoken", "reference"}
        `auto` is gigatoken where it gives the reference's ids, else the reference with a notice.
    end_of_text : str
        The token that ends each document.
    cache_budget : int
        Bytes of resident memory that gigatoken's cache may grow by before it is thrown away.
    """

    path: str
    pattern: str | None = None
    engine: Literal["auto", "gigatoken", "reference"] = "auto"
    end_of_text: str = "<|endoftext|>"
    cache_budget: int = CACHE_BUDGET


def load(spec: Spec) -> "Encoder":
    """Read a tokenizer and choose the engine.

    Raises
    ------
    UserError
        The file or the settings cannot be used, see `definition.read`; or gigatoken is asked for and its ids could
        differ; or the tokenizer makes the end-of-text id of text, so that a document could pretend to end.
    """
    path = folders.local_copy(folders.located(spec.path))
    tokenizer = definition.read(str(path), spec.pattern, spec.end_of_text)
    dtype = np.dtype(np.uint16 if tokenizer.vocab_size <= 2**16 else np.uint32)
    reference = Reference(tokenizer.reference(), dtype)
    if tokenizer.end_of_text_id in reference.ids(spec.end_of_text):
        raise UserError(
            f"the tokenizer {spec.path} makes the end-of-text id of {spec.end_of_text!r} in a document's text; "
            "set tokenizer.end_of_text to a token that no text makes"
        )
    if spec.engine == "reference":
        return Encoder(tokenizer, spec, dtype, reference)
    fast, reason = _gigatoken(tokenizer, spec, reference, dtype)
    if fast is None and spec.engine == "gigatoken":
        raise UserError(f"gigatoken cannot encode with the tokenizer {spec.path}: {reason}")
    notice = (
        f"{tokenizer.library} encodes with the tokenizer {spec.path}, far slower than gigatoken: {reason}"
    )
    return Encoder(tokenizer, spec, dtype, reference, fast, None if fast else notice)


def _gigatoken(
    tokenizer: Definition, spec: Spec, reference: Reference, dtype: np.dtype[Any]
) -> tuple[Gigatoken | None, str | None]:
    """The fast engine, or why there is none."""
    reason = tokenizer.obstacle()
    if reason:
        return None, reason
    try:
        fast = Gigatoken(tokenizer.gigatoken, dtype, spec.cache_budget)
    except ImportError:
        return None, "gigatoken is not installed"
    except BaseException as error:
        if isinstance(error, Exception) or is_panic(error):
            return None, f"gigatoken cannot load it ({error})"
        raise
    trial = np.frombuffer((PROBE + spec.end_of_text).encode(), np.uint8)
    ids, _ = fast.encode(trial, np.array([0, len(trial)]))
    same = ids.tolist() == reference.ids(PROBE + spec.end_of_text)
    return (fast, None) if same else (None, "gigatoken gives other ids for a text on trial")


class Encoder:
    """Documents to ids, and back.

    Made by `load`. Not for two threads at once; `get` gives each thread its own.

    Attributes
    ----------
    engine : {"gigatoken", "reference"}
        What encodes.
    notice : str or None
        Why it is not gigatoken, when it could be expected to.
    end_of_text_id : int
        The id appended to every document; its literal name in a text is spelled out as ordinary tokens.
    vocab_size : int
        One more than the largest id.
    dtype : numpy.dtype
        uint16 where every id fits, else uint32.
    fingerprint : str
        Digest of all that decides a document's ids: the tokenizer's file, the settings, the libraries' versions.
    """

    def __init__(
        self,
        tokenizer: Definition,
        spec: Spec,
        dtype: np.dtype[Any],
        reference: Reference,
        fast: Gigatoken | None = None,
        notice: str | None = None,
    ) -> None:
        self._tokenizer, self._reference, self._fast = tokenizer, reference, fast
        self.engine = "gigatoken" if fast else "reference"
        self.notice = notice
        self.end_of_text_id = tokenizer.end_of_text_id
        self.vocab_size = tokenizer.vocab_size
        self.dtype = dtype
        self.fingerprint = _fingerprint(tokenizer, spec, self.engine)

    def encode(self, text: pa.Array) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Ids of each document, the end-of-text id at its end.

        A document longer than a piece (1 MiB) is encoded in pieces, as `pieces.pieces` says, so memory does not
        depend on the longest one: beside the text and twice its ids, a few times `GROUP` and the cache.

        Parameters
        ----------
        text : pyarrow.Array of large_string [d]
            Valid UTF-8, without nulls.

        Returns
        -------
        ids : dtype[t]
            All documents' ids, one document after another.
        offsets : int64[d + 1]
            Where each document's begin, and t.
        """
        data, bounds, first = _text_pieces(text)
        groups: list[tuple[int, int, NDArray[Any]]] = []
        lengths = [np.empty(0, np.int64)]
        for start, stop in _groups(bounds):
            ids, offsets = self._encode_group(data, bounds[start : stop + 1])
            groups.append((start, stop, ids))
            lengths.append(np.diff(offsets))
        return _documents(groups, np.concatenate(lengths), first, self.end_of_text_id, self.dtype)

    def _encode_group(
        self, data: NDArray[np.uint8], bounds: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Consecutive pieces by gigatoken; by the reference those that it could encode otherwise."""
        if self._fast is None:
            return self._reference.encode(data, bounds)
        marked = disputed(data[bounds[0] : bounds[-1]], bounds - bounds[0])
        if not marked.any():
            return self._fast.encode(data, bounds)
        edges = [0, *np.flatnonzero(np.diff(marked)) + 1, len(marked)]
        runs = [
            (self._reference if marked[a] else self._fast).encode(data, bounds[a : b + 1])
            for a, b in pairwise(edges)
        ]
        lengths = np.concatenate([np.diff(offsets) for _, offsets in runs])
        return np.concatenate([ids for ids, _ in runs]), _cumulative(lengths)

    def reference(self, texts: list[str]) -> list[list[int]]:
        """Ids of each text by the reference library, whole whatever its length, the end-of-text id at its end."""
        return [[*self._reference.ids(text), self.end_of_text_id] for text in texts]

    def check(
        self, text: pa.Array, ids: NDArray[Any], offsets: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> int:
        """Encode some documents again with the reference library; of one longer than a piece, its first piece.

        Parameters
        ----------
        text, ids, offsets
            What `encode` was given and what it returned.
        rows : int64[k]
            The documents.

        Returns
        -------
        int
            How many were compared: k, less those that the reference library itself fails on.

        Raises
        ------
        EncodingMismatch
            At the first difference.
        """
        compared = 0
        for row in np.asarray(rows).tolist():
            data, bounds, _ = _text_pieces(text.slice(row, 1))
            try:
                expected = self._reference.ids(data[: bounds[1]].tobytes().decode())
            except ReferenceLibraryError:
                continue
            found = ids[offsets[row] : offsets[row + 1]]
            if len(bounds) == 2:
                expected.append(self.end_of_text_id)
            else:
                found = found[: len(expected)]
            position = _first_difference(found, np.array(expected, np.int64))
            if position is not None:
                raise EncodingMismatch(row, position, self._tokenizer.library)
            compared += 1
        return compared

    def decode_bytes(self, ids: NDArray[Any]) -> bytes:
        """The bytes that ids stand for: a special token's name, U+FFFD for an id that there is not."""
        return self._tokenizer.decode(np.asarray(ids))

    def decode(self, ids: NDArray[Any]) -> str:
        """The text that ids stand for, U+FFFD for each part of a character that others complete."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")


def _text_pieces(text: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """The bytes of documents and `pieces` of them."""
    if text.type != pa.large_string() or text.null_count:
        raise TypeError(f"documents come as large_string without nulls, not as {text.type}")
    data, offsets = text_buffers(text)
    return data, *pieces(data, offsets)


def _groups(bounds: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Runs of consecutive pieces, as [start, stop), of about `GROUP` bytes each."""
    starts = np.flatnonzero(np.diff(bounds[:-1] // GROUP, prepend=-1))
    return pairwise([*starts.tolist(), len(bounds) - 1])


def _documents(
    groups: list[tuple[int, int, NDArray[Any]]],
    lengths: NDArray[np.int64],
    first: NDArray[np.int64],
    end_of_text_id: int,
    dtype: np.dtype[Any],
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Put together the ids of groups of pieces [start, stop), the end-of-text id appended to each document.

    `lengths` are the ids in each piece, `first` the index of each document's first piece, then the number of pieces.
    `groups` are used up on the way, so that the ids are held twice, not three times.
    """
    starts = _cumulative(lengths)
    offsets = starts[first] + np.arange(len(first))  # an id more for each document before
    places = starts[:-1] + np.repeat(np.arange(len(first) - 1), np.diff(first))
    out = np.empty(offsets[-1], dtype)
    while groups:
        start, stop, ids = groups.pop()
        packing.gather(ids, starts[start:stop] - starts[start], lengths[start:stop], out, places[start:stop])
    out[offsets[1:] - 1] = end_of_text_id
    return out, offsets


def _cumulative(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each of several runs begins, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def _first_difference(a: NDArray[Any], b: NDArray[Any]) -> int | None:
    shorter = min(len(a), len(b))
    different = np.flatnonzero(a[:shorter] != b[:shorter])
    if len(different):
        return int(different[0])
    return None if len(a) == len(b) else shorter


def _fingerprint(tokenizer: Definition, spec: Spec, engine: str) -> str:
    libraries = {tokenizer.library, "gigatoken"} if engine == "gigatoken" else {tokenizer.library}
    decided = {
        "file": hashlib.sha256(tokenizer.raw).hexdigest(),
        "pattern": spec.pattern,
        "end_of_text": spec.end_of_text,
        "piece": PIECE,
        "libraries": {name: importlib.metadata.version(name) for name in sorted(libraries)},
    }
    return hashlib.sha256(json.dumps(decided, sort_keys=True).encode()).hexdigest()[:32]


_of_thread = threading.local()


def get(spec: Spec) -> Encoder:
    """The calling thread's encoder; loaded when it is another than the last one asked for, or its file changed."""
    try:
        stat = folders.local_copy(folders.located(spec.path)).stat()
        wanted = (spec, stat.st_mtime_ns, stat.st_size)
    except OSError:
        wanted = None  # `load` says so
    if wanted is None or getattr(_of_thread, "loaded", None) != wanted:
        _of_thread.loaded = _of_thread.encoder = None
        _of_thread.encoder = load(spec)
        _of_thread.loaded = wanted
    encoder: Encoder = _of_thread.encoder
    return encoder
