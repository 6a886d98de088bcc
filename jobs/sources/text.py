"""Plain text: a file is one document, record 0, known by its path.

Text is UTF-8, and a byte order mark before it is no part of it. There are no other columns.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import pyarrow as pa

from jobs.sources.batches import Batch
from jobs.sources.inventory import Block
from jobs.sources.storage import opened

SUFFIXES = (".txt", ".text", ".md", ".rst")
UNSPLIT = "a text file is one document; for many documents in a file, use JSON lines"
DOCUMENT_BYTES = 256 * 2**20  # a longer file is an unreadable record, and is never held
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def blocks(file: str | IO[bytes], columns: Mapping[str, str]) -> tuple[tuple[Block, ...], tuple[str, ...]]:
    """The one block that a file is, without a look inside.

    Parameters
    ----------
    file
        A local path or a seekable binary file.
    columns
        Ignored: a file holds text and nothing beside it.
    """
    return (Block(records=1, n_bytes=_size(file), place=0),), ("text",)


def _size(file: str | IO[bytes]) -> int:
    return Path(file).stat().st_size if isinstance(file, str) else file.seek(0, 2)


def read(
    file: str | IO[bytes],
    places: Sequence[int],
    first: int,
    columns: Mapping[str, str],
    batch_bytes: int,
) -> Iterator[Batch]:
    """Read the document, whatever the size of a batch.

    Parameters
    ----------
    file
        A local path or a seekable binary file.
    places, first, columns, batch_bytes
        Ignored: a document is read whole, and alone.
    """
    if _size(file) > DOCUMENT_BYTES:
        yield Batch.unreadable(0, 1, f"it is longer than {DOCUMENT_BYTES:,} bytes, too long for one document")
        return
    with opened(file) as raw:
        raw.seek(0)
        content = raw.read()
    start = len(BYTE_ORDER_MARK) if content.startswith(BYTE_ORDER_MARK) else 0
    offsets = pa.array([start, len(content)], pa.int64())
    text = pa.LargeStringArray.from_buffers(1, offsets.buffers()[1], pa.py_buffer(content))
    yield Batch.checked(0, text, {})
