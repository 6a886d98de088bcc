"""The bytes of an archive file, decoded: plain, gzip, Zstandard or LZ4, told apart by their first bytes.

A piece can be decoded from its first byte on: a member of gzip, a frame of Zstandard. Its place is the offset of its
first byte in the file. A plain file is one piece from wherever it is read, and a file of LZ4 frames is one piece.

Zstandard's dictionary stands in a frame to be skipped, the file's first, and may itself be compressed
(https://iipc.github.io/warc-specifications/specifications/warc-zstd/).
"""

from collections.abc import Iterator
from typing import IO

import zstandard
from fastwarc.stream_io import Lz4Reader

from jobs.sources import compression
from jobs.sources.compression import CHUNK_BYTES, GZIP_MAGIC, ZSTD_MAGIC, ZSTD_SKIPPABLE, DamagedError

LZ4_MAGIC = b"\x04\x22\x4d\x18"
DICTIONARY = 0x184D2A5D  # magic number of the frame that holds one
DICTIONARY_BYTES = 2**26
SEARCH_BYTES = 2**20


def is_plain(raw: IO[bytes]) -> bool:
    """Whether a file is not compressed: then a record can be read from any offset at which one begins."""
    magic = _magic(raw)
    return not (magic.startswith(GZIP_MAGIC) or magic == LZ4_MAGIC or _is_zstd(magic))


def chunks(raw: IO[bytes], place: int) -> Iterator[tuple[int, bytes]]:
    """Decode a file from the piece at `place` on, to its end.

    Parameters
    ----------
    raw
        A seekable binary file.
    place
        0, or a place that was yielded before; of a plain file, any offset.

    Yields
    ------
    (int, bytes)
        The place of a piece, and a part of what it holds: some 256 KiB at most.

    Raises
    ------
    DamagedError
        The piece that was yielded last cannot be decoded to its end, and nothing behind it was tried.
    """
    magic = _magic(raw)
    if magic.startswith(GZIP_MAGIC):
        yield from compression.chunks(raw, place, CHUNK_BYTES)
    elif _is_zstd(magic):
        yield from _zstd_chunks(raw, place)
    elif magic == LZ4_MAGIC:
        yield from _lz4_chunks(raw)
    else:
        raw.seek(place)
        while chunk := raw.read(CHUNK_BYTES):
            yield place, chunk


def candidates(raw: IO[bytes], place: int) -> Iterator[int]:
    """Where from `place` on a piece may begin, by its magic number; none where there is but one piece."""
    magic = _magic(raw)
    if magic.startswith(GZIP_MAGIC):
        yield from _occurrences(raw, GZIP_MAGIC + b"\x08", place)
    elif _is_zstd(magic):
        yield from _occurrences(raw, ZSTD_MAGIC, place)


def _magic(raw: IO[bytes]) -> bytes:
    raw.seek(0)
    return raw.read(4)


def _is_zstd(magic: bytes) -> bool:
    return magic == ZSTD_MAGIC or int.from_bytes(magic, "little") in ZSTD_SKIPPABLE


def _zstd_chunks(raw: IO[bytes], place: int) -> Iterator[tuple[int, bytes]]:
    """RFC 8878: frames one after another, some of them to be skipped."""
    decompressor = _decompressor(raw)
    raw.seek(place)
    while header := raw.read(8):
        if int.from_bytes(header[:4], "little") in ZSTD_SKIPPABLE:
            place += 8 + int.from_bytes(header[4:], "little")
        else:
            raw.seek(place)
            yield place, b""  # so that damage from the first byte on is known to be this frame's
            for chunk in compression.frame_chunks(raw, decompressor):
                yield place, chunk
            place = raw.tell()
        raw.seek(place)


def _decompressor(raw: IO[bytes]) -> zstandard.ZstdDecompressor:
    raw.seek(0)
    header = raw.read(8)
    if int.from_bytes(header[:4], "little") != DICTIONARY:
        return zstandard.ZstdDecompressor()
    dictionary = raw.read(min(int.from_bytes(header[4:], "little"), DICTIONARY_BYTES))
    try:
        if dictionary.startswith(ZSTD_MAGIC):
            with zstandard.ZstdDecompressor().stream_reader(dictionary) as stream:
                dictionary = stream.read(DICTIONARY_BYTES)
        return zstandard.ZstdDecompressor(dict_data=zstandard.ZstdCompressionDict(dictionary))
    except zstandard.ZstdError:
        return zstandard.ZstdDecompressor()  # every frame that needs the dictionary will say so


def _lz4_chunks(raw: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Frames one after another, of which the reader does not say where they end."""
    raw.seek(0)
    frames = Lz4Reader(raw)
    try:
        while chunk := frames.read(CHUNK_BYTES):
            yield 0, chunk
    except OSError as error:
        if error.errno is not None:  # reading failed, not decoding
            raise
        raise DamagedError(f"its LZ4 frames cannot be decompressed to the end ({error})") from None


def _occurrences(raw: IO[bytes], magic: bytes, start: int) -> Iterator[int]:
    """Offsets from `start` on at which some bytes stand."""
    while True:
        raw.seek(start)
        data = raw.read(SEARCH_BYTES)
        found = data.find(magic)
        while found >= 0:
            yield start + found
            found = data.find(magic, found + 1)
        if len(data) < SEARCH_BYTES:
            return
        start += len(data) - len(magic) + 1
