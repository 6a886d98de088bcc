"""What a Parquet file's footer tells: where each row group lies, how large it is, which crawls it may hold.

A footer here is the tail of a file: its metadata, their length, and `PAR1`.
"""

import io
from collections.abc import Collection, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.download.ranges import Fetcher, Identity, Place
from jobs.errors import UserError

MAGIC = b"PAR1"
GUESS = 2**16  # the longest tail that is read before the footer's length is known
GUESS_SHARE = 1000  # and at most this part of the file, so that small files are not fetched whole

Span = tuple[int, int]  # bytes from the first up to the second


def fetch(fetcher: Fetcher, place: Place) -> tuple[Identity, bytes]:
    """Read a file's identity and footer in two or three requests.

    Raises
    ------
    UserError
        The file is not to be had, or is no Parquet.
    """
    head, identity = fetcher.identify(place)
    size = identity.size
    if head != MAGIC or size < 12:
        raise UserError(f"{place.url} is not Parquet: it does not begin as Parquet does")
    have = max(8, min(GUESS, size // GUESS_SHARE))
    tail = fetcher.read(place, identity, size - have, size)
    need = int.from_bytes(tail[-8:-4], "little") + 8
    if tail[-4:] != MAGIC or need > size - 4:
        raise UserError(f"{place.url} is truncated: there is no footer at its end")
    if need > have:
        tail = fetcher.read(place, identity, size - need, size - have) + tail
    return identity, tail[-need:]


def parse(footer: bytes, url: str) -> pq.FileMetaData:
    """Decode a footer.

    Raises
    ------
    UserError
        It is damaged.
    """
    try:
        return pq.read_metadata(pa.BufferReader(footer))
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{url}: the footer cannot be read ({str(error).splitlines()[0]})") from None


def names(metadata: pq.FileMetaData) -> list[str]:
    """Top-level columns."""
    return list(dict.fromkeys(path.partition(".")[0] for path in _paths(metadata)))


def _paths(metadata: pq.FileMetaData) -> list[str]:
    return [metadata.schema.column(i).path for i in range(metadata.num_columns)]


def chunks(metadata: pq.FileMetaData, number: int, columns: Collection[str] | None) -> list[Span]:
    """Byte ranges of a row group's column chunks, sorted, those that touch joined.

    Parameters
    ----------
    metadata
        Of the file.
    number
        Of the row group.
    columns
        Top-level columns; all by default.
    """
    group = metadata.row_group(number)
    spans = sorted(
        _chunk(group.column(i))
        for i in range(group.num_columns)
        if columns is None or group.column(i).path_in_schema.partition(".")[0] in columns
    )
    joined = spans[:1]
    for start, stop in spans[1:]:
        if start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(stop, joined[-1][1])
        else:
            joined.append((start, stop))
    return joined


def _chunk(column: pq.ColumnChunkMetaData) -> Span:
    # Some writers say 0 for no dictionary; no page lies there, where the magic is.
    start = min(filter(None, (column.dictionary_page_offset, column.data_page_offset)))
    return start, start + column.total_compressed_size


def length(spans: Sequence[Span]) -> int:
    """Bytes that ranges hold together."""
    return sum(stop - start for start, stop in spans)


def bounds(metadata: pq.FileMetaData, number: int, column: str) -> tuple[str, str] | None:
    """Smallest and largest value of a column in a row group by its statistics; None where they do not tell."""
    paths = _paths(metadata)
    statistics = (
        metadata.row_group(number).column(paths.index(column)).statistics if column in paths else None
    )
    if statistics is None or not statistics.has_min_max:
        return None
    return str(statistics.min), str(statistics.max)


class Pieces(io.RawIOBase):
    """A file of which only some ranges are there; anything else reads as zeros.

    Parameters
    ----------
    size
        Of the whole file, bytes.
    pieces
        Offset -> the bytes there.
    """

    def __init__(self, size: int, pieces: Mapping[int, bytes]) -> None:
        self.size, self.pieces, self.at = size, pieces, 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where the next byte is read."""
        return self.at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move, as in any file."""
        self.at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.size}[whence]
        return self.at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill a buffer as far as the file goes."""
        start, stop = self.at, min(self.at + len(buffer), self.size)
        buffer[: max(0, stop - start)] = bytes(max(0, stop - start))
        for offset, piece in self.pieces.items():
            low, high = max(start, offset), min(stop, offset + len(piece))
            if low < high:
                buffer[low - start : high - start] = memoryview(piece)[low - offset : high - offset]
        self.at = max(start, stop)
        return self.at - start


def opened(metadata: pq.FileMetaData, size: int, spans: Sequence[Span], content: bytes) -> pq.ParquetFile:
    """A Parquet file of which only these ranges are there, `content` holding them one after the other."""
    pieces = dict(_cut(spans, content))
    return pq.ParquetFile(
        pa.PythonFile(Pieces(size, pieces), mode="r"), metadata=metadata, page_checksum_verification=True
    )


def _cut(spans: Sequence[Span], content: bytes) -> Iterator[tuple[int, bytes]]:
    at, view = 0, memoryview(content)
    for start, stop in spans:
        yield start, view[at : at + stop - start]  # type: ignore[misc]
        at += stop - start
