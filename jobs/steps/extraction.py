"""Extraction: the bytes of a record to text, with the reason where there is none.

Pages go to child processes (`jobs.pages`); records that are text as they stand, such as WET's, need none.

The text is what the engine gives: trafilatura's is in Unicode normal form C with LF line endings; resiliparse's and
plain text are as the page has them. NUL characters are removed everywhere.
"""

import importlib.util
from collections import Counter
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.errors import UserError
from jobs.pages import isolation
from jobs.pages.page import PLAIN, Fate, Settings, media_type, sniffed
from jobs.sources.batches import valid_utf8
from jobs.text import text_buffers

__all__ = ["Extracted", "ExtractionSettings", "Fate", "extract"]


class ExtractionSettings(Protocol):
    """How pages are extracted.

    Attributes
    ----------
    engine
        `trafilatura`, or `resiliparse`, which is some 20 times faster.
    seconds
        CPU time of a page, at most; of elapsed time, ten times that.
    memory
        Bytes that a page may add to its process's memory.
    body
        Bytes of a body once decoded, at most.
    pdf
        Whether PDF documents are read (with pypdfium2) or dropped.
    """

    @property
    def engine(self) -> str: ...  # noqa: D102
    @property
    def seconds(self) -> float: ...  # noqa: D102
    @property
    def memory(self) -> int: ...  # noqa: D102
    @property
    def body(self) -> int: ...  # noqa: D102
    @property
    def pdf(self) -> bool: ...  # noqa: D102


@dataclass(frozen=True)
class Extracted:
    """What became of a batch of pages.

    Attributes
    ----------
    text
        large_string[d], `""` where the page is dropped.
    fate
        string[d], a value of `Fate` where the page is dropped, null where there is text.
    bytes_in, bytes_out
        Of the records and of the text.
    seconds
        CPU time spent on the pages by the processes that extracted them.
    """

    text: pa.LargeStringArray
    fate: pa.StringArray
    bytes_in: int
    bytes_out: int
    seconds: float

    @property
    def pages(self) -> Counter[str | None]:
        """Pages by fate, None for those that have text."""
        return Counter(self.fate.to_pylist())


def extract(
    content: pa.LargeBinaryArray, content_type: pa.LargeStringArray, settings: ExtractionSettings
) -> Extracted:
    """Text of each page, extracted in a child process of the calling thread's own.

    Parameters
    ----------
    content
        large_binary[d]: whole HTTP responses or documents.
    content_type
        large_string[d]: the type that the record itself has, `application/http; msgtype=response` for a response.
        A null is a type that is not known.
    settings
        Equal settings give equal results, whatever else is in the batch, in the process and on the machine; but a
        page whose CPU time is close to its limit may pass once and fail once.

    Raises
    ------
    UserError
        PDF documents are wanted and pypdfium2 is not installed.
    """
    if settings.pdf and importlib.util.find_spec("pypdfium2") is None:
        raise UserError("extraction.pdf is true, but pypdfium2 is not installed; install shardmill[pdf]")
    plain = Settings(settings.engine, settings.seconds, settings.memory, settings.body, settings.pdf)
    text, ready = _plain_text(content, content_type, settings.body)
    rows = np.flatnonzero(~ready)
    results = isolation.extract(_pages(content, content_type, rows), plain)
    if results:
        extracted = pa.array([result.text for result in results], pa.large_binary()).cast(pa.large_string())
        text = pc.replace_with_mask(text, pa.array(~ready), extracted)
    fate = np.full(len(content), None, dtype=object)
    fate[rows] = [result.fate and result.fate.value for result in results]
    return Extracted(
        text,
        pa.array(fate, pa.string()),
        bytes_in=len(text_buffers(content)[0]),
        bytes_out=len(text_buffers(text)[0]),
        seconds=sum(result.seconds for result in results),
    )


def _pages(
    content: pa.LargeBinaryArray, content_type: pa.LargeStringArray, rows: np.ndarray
) -> list[isolation.Page]:
    """Some of the records, none of their bytes copied (an Arrow scalar would be a copy)."""
    data, offsets = text_buffers(content)
    bounds = zip(offsets[rows].tolist(), offsets[rows + 1].tolist(), strict=True)
    types = content_type.take(pa.array(rows)).to_pylist()
    return [(data[a:b].data, kind) for (a, b), kind in zip(bounds, types, strict=True)]


def _plain_text(
    content: pa.LargeBinaryArray, content_type: pa.LargeStringArray, limit: int
) -> tuple[pa.LargeStringArray, np.ndarray]:
    """The records that are text as they stand, such as WET's, and bool[d], which those are; `""` for the others.

    They are what a child would return unchanged: plain text in UTF-8, of some length, with nothing to remove.
    """
    empty = pa.scalar("", pa.large_string())
    ready = _is_utf_8_text(content_type)
    if not ready.any():
        return pa.repeat(empty, len(content)), ready
    size = np.asarray(pc.fill_null(pc.binary_length(content), 0))
    starts = pc.fill_null(pc.binary_slice(content, 0, 8), b"").to_pylist()
    ready &= (size > 0) & (size <= limit) & ~_holds_nul(content)
    ready &= np.fromiter((_unmarked(start) for start in starts), bool, len(content))
    text = content.view(pa.large_string())
    ready &= valid_utf8(text)
    text = pc.if_else(pa.array(ready), text, empty)
    ready &= ~np.asarray(pc.utf8_is_space(text))
    return pc.if_else(pa.array(ready), text, empty), ready


def _is_utf_8_text(content_type: pa.LargeStringArray) -> np.ndarray:
    """bool[d], types that are `text/plain` with UTF-8 or no charset."""
    types = content_type.dictionary_encode()
    kinds = (media_type(value) for value in types.dictionary.to_pylist())
    wanted = [kind == PLAIN and (label or "utf-8").strip(' "').lower() == "utf-8" for kind, label in kinds]
    return np.asarray(pc.fill_null(pc.take(pa.array(wanted, pa.bool_()), types.indices), False))


def _holds_nul(content: pa.LargeBinaryArray) -> np.ndarray:
    data, offsets = text_buffers(content)
    holds = np.zeros(len(content), bool)
    holds[np.searchsorted(offsets, np.flatnonzero(data == 0), side="right") - 1] = True
    return holds


def _unmarked(start: bytes) -> bool:
    """Whether the first bytes are neither a byte order mark nor those of another kind of file."""
    return not start.startswith(b"\xef\xbb\xbf") and sniffed(start, PLAIN) == PLAIN
