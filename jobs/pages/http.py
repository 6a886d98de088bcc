"""HTTP responses as crawls store them: status line, headers, body (RFC 9112), read as leniently as browsers do.

What cannot be parsed costs as little as possible: a body without a head is a body, a line that is no header is
passed over, chunks that are none are the body itself, and of a coded body that breaks off its beginning is kept.
"""

import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain

import brotli
import zstandard

PIECE = 2**16
MAX_LAYERS = 5  # a body can be compressed again and again, or decompress to itself
GZIP_MAGIC, ZSTD_MAGIC = b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"

_STATUS_LINE = re.compile(rb"HTTP/\d[\d.]*[ \t]+(\d{3})\b[^\n]*\n?", re.IGNORECASE)
_HEADER = re.compile(rb"([!-9;-~]+)[ \t]*:(.*)", re.DOTALL)
_CHUNK_SIZE = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\n]*)?\r?\n")
_TEXT = re.compile(rb"(?:\xef\xbb\xbf)?\s*<|[\t\r\n -~]{64}")
_NOT_CODED = {"", "identity", "none", "utf-8", "8bit", "binary"}


class TooLargeError(Exception):
    """The decoded body passes its limit."""


class CodingError(Exception):
    """The body is coded in a way that cannot be undone."""


@dataclass(frozen=True)
class Response:
    """A response, its body as transferred.

    Attributes
    ----------
    status
        None where there is no status line: all that came is the body (HTTP/0.9).
    headers
        Lower-case name -> values in order, decoded as Latin-1.
    """

    status: int | None
    body: bytes
    headers: dict[str, list[str]] = field(default_factory=dict)

    def tokens(self, name: str) -> list[str]:
        """Lower-case members of a comma-separated header."""
        members = chain.from_iterable(value.split(",") for value in self.headers.get(name, ()))
        return [member.strip().lower() for member in members]


def parse(content: bytes) -> Response:
    """Split a response into status, headers and body; interim responses (1xx) before it are passed over."""
    start = 0
    while match := _STATUS_LINE.match(content, start):
        headers, start = _headers(content, match.end())
        status = int(match[1])
        if not (100 <= status < 200 and _STATUS_LINE.match(content, start)):
            return Response(status, content[start:], headers)
    return Response(None, content)


def _headers(content: bytes, start: int) -> tuple[dict[str, list[str]], int]:
    """Headers from `start` on, and where the body begins: after an empty line, or where markup does."""
    headers: dict[str, list[str]] = {}
    last: list[str] | None = None
    while start < len(content) and content[start : start + 1] != b"<":
        stop = content.find(b"\n", start) + 1 or len(content)
        line, start = content[start:stop].rstrip(b"\r\n"), stop
        if not line:
            break
        if line[:1] in b" \t" and last:  # folded (RFC 9112, 5.2)
            last[-1] += " " + line.strip().decode("latin-1")
        elif match := _HEADER.fullmatch(line):
            last = headers.setdefault(match[1].decode("latin-1").lower(), [])
            last.append(match[2].strip().decode("latin-1"))
    return headers, start


def decoded_body(response: Response, limit: int) -> bytes:
    """The body with its chunks joined and its content codings undone.

    Crawlers store bodies decoded but keep the headers, or encoded and drop them. So a coding that is declared but
    absent is passed over, and gzip and zstd, which show by their first bytes, are undone though undeclared.

    Raises
    ------
    TooLargeError
        More than `limit` bytes; no more than that are ever held.
    CodingError
        Nothing of the body can be decoded, and it is no text either.
    """
    body = response.body
    if "chunked" in response.tokens("transfer-encoding"):
        body = joined_chunks(body)
    for coding in reversed(response.tokens("content-encoding")[-MAX_LAYERS:]):
        body = _undo(coding, body, limit)
    for _ in range(MAX_LAYERS):
        if not body.startswith((GZIP_MAGIC, ZSTD_MAGIC)):
            break
        body = _undo("gzip" if body.startswith(GZIP_MAGIC) else "zstd", body, limit)
    if len(body) > limit:
        raise TooLargeError
    return body


def joined_chunks(body: bytes) -> bytes:
    """Chunks joined (RFC 9112, 7.1); from where it does not parse as chunks, the body as it is, as in warcio."""
    chunks: list[bytes] = []
    at = 0
    while match := _CHUNK_SIZE.match(body, at):
        size, start = int(match[1], 16), match.end()
        if size == 0:
            return b"".join(chunks)
        chunks.append(body[start : start + size])
        at = start + size
        at += 2 if body[at : at + 2] == b"\r\n" else body[at : at + 1] == b"\n"
    return b"".join([*chunks, body[at:]])


# ---------------------------------------------------------------- content codings


def _inflated(data: bytes, window: int) -> Iterator[bytes]:
    """Pieces of one zlib, gzip or raw deflate stream, and of the gzip members that follow it."""
    decoder = zlib.decompressobj(window)
    pending = _slices(data)
    piece = next(pending, b"")
    while piece:
        yield decoder.decompress(piece, PIECE)
        if not decoder.eof:
            piece = decoder.unconsumed_tail or next(pending, b"")
            continue
        piece = decoder.unused_data + next(pending, b"")
        if not piece.startswith(GZIP_MAGIC):
            return
        decoder = zlib.decompressobj(window)
    yield decoder.flush()


def _gzip(data: bytes) -> Iterator[bytes]:
    return _inflated(data, 16 + zlib.MAX_WBITS)


def _deflate(data: bytes) -> Iterator[bytes]:
    """As RFC 9110 says, in a zlib wrapper, or raw, as some servers send it."""
    wrapped = data[0] & 0x0F == 8 and int.from_bytes(data[:2]) % 31 == 0
    return _inflated(data, zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS)


def _brotli(data: bytes) -> Iterator[bytes]:
    decoder = brotli.Decompressor()
    for piece in _slices(data):
        yield decoder.process(piece, output_buffer_limit=PIECE)
        while not decoder.can_accept_more_data():
            yield decoder.process(b"", output_buffer_limit=PIECE)
        if decoder.is_finished():
            return


def _zstd(data: bytes) -> Iterator[bytes]:
    reader = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)
    while piece := reader.read(PIECE):
        yield piece


_DECODERS: dict[str, Callable[[bytes], Iterator[bytes]]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}


def _slices(data: bytes) -> Iterator[bytes]:
    return (data[at : at + PIECE] for at in range(0, len(data), PIECE))


def _undo(coding: str, data: bytes, limit: int) -> bytes:
    if coding in _NOT_CODED or not data:
        return data
    if coding not in _DECODERS:
        return _as_it_is(data)
    decoded = bytearray()
    try:
        for piece in _DECODERS[coding](data):
            decoded += piece
            if len(decoded) > limit:
                raise TooLargeError
    except (zlib.error, brotli.error, zstandard.ZstdError):
        # Text may begin like a stream, and decode to a few wrong bytes.
        if not decoded or _TEXT.match(data):
            return _as_it_is(data)
    return bytes(decoded)


def _as_it_is(data: bytes) -> bytes:
    if not _TEXT.match(data):
        raise CodingError
    return data
