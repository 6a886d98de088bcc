"""Plain, gzip and Zstandard files, told apart by their first bytes, decompressed from any of their pieces on.

A piece can be decoded from its first byte on without what stands before it: a stretch of a plain file, a member of gzip
(RFC 1952), a frame of Zstandard (RFC 8878; the seekable format is frames, and one to be skipped with their table).
Its place is the offset of its first byte in the file. Memory follows neither the piece nor the file.
"""

import contextlib
from collections.abc import Iterator
from typing import IO, Any

import zstandard
from zlib_ng import zlib_ng

zlib: Any = zlib_ng  # whose type stub has no `copy` and no exception
CHUNK_BYTES = 2**18  # decoded at a time
INPUT_BYTES = 2**16  # of gzip, read at a time

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ZSTD_SKIPPABLE = range(0x184D2A50, 0x184D2A60)


class DamagedError(Exception):
    """From here on nothing can be decompressed; the message says why."""


def chunks(raw: IO[bytes], place: int, piece_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Decode a file from the piece at `place` on, to its end.

    Parameters
    ----------
    raw
        A seekable binary file.
    place
        0, or a place that was yielded before.
    piece_bytes
        Length of a plain file's pieces.

    Yields
    ------
    (int, bytes)
        The place of a piece, and at most `CHUNK_BYTES` of what it holds.

    Raises
    ------
    DamagedError
        What follows cannot be decompressed; what comes before was yielded.
    """
    raw.seek(0)
    magic = raw.read(4)
    raw.seek(place)
    if magic.startswith(GZIP_MAGIC):
        yield from _gzip_chunks(raw, place)
    elif _is_frame(magic):
        yield from _zstd_chunks(raw)
    else:
        yield from _plain_chunks(raw, place, piece_bytes)


def _plain_chunks(raw: IO[bytes], place: int, piece_bytes: int) -> Iterator[tuple[int, bytes]]:
    offset = place
    while chunk := raw.read(min(CHUNK_BYTES, piece_bytes - offset % piece_bytes)):
        yield offset - offset % piece_bytes, chunk
        offset += len(chunk)


def _gzip_chunks(raw: IO[bytes], place: int) -> Iterator[tuple[int, bytes]]:
    """RFC 1952: members one after another; zeros after a member are padding."""
    data = raw.read(INPUT_BYTES)
    while data:
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            if not data and not (data := raw.read(INPUT_BYTES)):
                yield place, member.flush()
                raise DamagedError(f"it is truncated: its gzip member at byte {place:,} has no end")
            before = member.copy()
            try:
                chunk = member.decompress(data, CHUNK_BYTES)
            except zlib.error as error:
                yield place, _inflated_before_error(before, data)
                raise DamagedError(
                    f"its gzip member at byte {place:,} cannot be decompressed ({error})"
                ) from None
            yield place, chunk
            data = member.unconsumed_tail
        data = member.unused_data.lstrip(b"\0")
        while not data and (read := raw.read(INPUT_BYTES)):
            data = read.lstrip(b"\0")
        place = raw.tell() - len(data)


def _inflated_before_error(member: Any, data: bytes) -> bytes:
    """What an error would take away: output of the call that raises it is lost, so feed single bytes."""
    output = []
    with contextlib.suppress(zlib.error):
        for i in range(len(data)):
            output.append(member.decompress(data[i : i + 1]))  # noqa: PERF401 (what came before the error counts)
    return b"".join(output)


def _zstd_chunks(raw: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """RFC 8878: frames one after another, some of them to be skipped."""
    decompressor = zstandard.ZstdDecompressor()
    while magic := raw.read(4):
        place = raw.tell() - len(magic)
        if int.from_bytes(magic, "little") in ZSTD_SKIPPABLE:
            _skip_frame(raw, place)
        elif ZSTD_MAGIC.startswith(magic):
            raw.seek(place)
            yield from ((place, chunk) for chunk in frame_chunks(raw, decompressor))
        else:
            raise DamagedError(f"it is no Zstandard from byte {place:,} on")


def _is_frame(magic: bytes) -> bool:
    return magic == ZSTD_MAGIC or int.from_bytes(magic, "little") in ZSTD_SKIPPABLE


def _skip_frame(raw: IO[bytes], place: int) -> None:
    size = raw.read(4)
    end = raw.tell() + int.from_bytes(size, "little")
    raw.seek(end - 1)
    if len(size) < 4 or not raw.read(1):
        raise DamagedError(f"it is truncated: its Zstandard frame at byte {place:,} has no end")


def frame_chunks(raw: IO[bytes], decompressor: zstandard.ZstdDecompressor) -> Iterator[bytes]:
    """Decode the Zstandard frame that a file stands at, block by block; then the file stands behind the frame.

    Yields
    ------
    bytes
        At most 128 KiB, of each block before the end or the damage.

    Raises
    ------
    DamagedError
        The frame has no end, or cannot be decoded to it.
    """
    place = raw.tell()
    frame = decompressor.decompressobj()
    for part in _frame_parts(raw):
        try:
            yield frame.decompress(part)
        except zstandard.ZstdError as error:
            raise DamagedError(
                f"its Zstandard frame at byte {place:,} cannot be decompressed ({error})"
            ) from None
    if not frame.eof:
        raise DamagedError(f"it is truncated: its Zstandard frame at byte {place:,} has no end")


def _frame_parts(raw: IO[bytes]) -> Iterator[bytes]:
    """A frame's header, its blocks one by one, and its checksum; less where the file ends.

    Where a call of zstandard fails, what it had decoded is lost. The size before each block says where it ends.
    """
    magic_and_descriptor = raw.read(5)
    yield magic_and_descriptor
    if len(magic_and_descriptor) < 5:
        return
    flags = magic_and_descriptor[4]
    single_segment = flags >> 5 & 1
    window_size = 1 - single_segment
    dictionary_size = (0, 1, 2, 4)[flags & 3]
    content_size = (single_segment, 2, 4, 8)[flags >> 6]
    yield raw.read(window_size + dictionary_size + content_size)
    last = False
    while not last:
        header = raw.read(3)
        if len(header) < 3:
            return
        fields = int.from_bytes(header, "little")
        last, repeated = bool(fields & 1), fields >> 1 & 3 == 1
        yield header + raw.read(1 if repeated else fields >> 3)
    if flags >> 2 & 1:
        yield raw.read(4)
