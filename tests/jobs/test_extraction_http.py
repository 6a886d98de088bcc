"""HTTP responses: heads in any state, chunks, content codings, decompression bombs."""

import gzip
import random
import tracemalloc
import zlib
from collections.abc import Callable

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from jobs.pages.http import CodingError, TooLargeError, decoded_body, joined_chunks, parse

PAGE = b"<html><body>" + b"A page of some length. " * 200 + b"</body></html>"
LIMIT = 2**20


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda data: brotli.compress(data, quality=3),
    "zstd": zstandard.compress,
}


def response(body: bytes, *headers: str) -> bytes:
    return "\r\n".join(["HTTP/1.1 200 OK", *headers, "", ""]).encode("latin-1") + body


def undone(body: bytes, *headers: str, limit: int = LIMIT) -> bytes:
    return decoded_body(parse(response(body, *headers)), limit)


@pytest.mark.parametrize(
    ("content", "status", "kind", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\nbody", 200, ["text/html"], b"body"),
        (b"HTTP/1.1 200 OK\nContent-Type: text/html\n\nbody", 200, ["text/html"], b"body"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\n\r\nbody\r\n\r\n",
            200,
            ["text/html"],
            b"body\r\n\r\n",
        ),
        (b"HTTP/1.1 200 OK\r\n\r\nbody", 200, None, b"body"),
        (b"HTTP/1.1 404\r\n\r\n", 404, None, b""),
        (b"HTTP/1.1 200 OK", 200, None, b""),
        (b"HTTP/2 200\r\ncontent-type:text/html\r\n\r\nbody", 200, ["text/html"], b"body"),
        (b"HTTP/1.0 200 OK\r\nCONTENT-TYPE : text/html\r\n\r\nbody", 200, ["text/html"], b"body"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: a;\r\n charset=x\r\n\r\nb", 200, ["a; charset=x"], b"b"),
        (b"HTTP/1.1 200 OK\r\n\tstray\r\nContent-Type: a\r\n\r\nb", 200, ["a"], b"b"),
        (
            b"HTTP/1.1 200 OK\r\nno header\r\n: none\r\nContent-Type: \xff\xfe\r\n\r\nb",
            200,
            ["\xff\xfe"],
            b"b",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Type: a\r\nContent-Type: b\r\n\r\nb", 200, ["a", "b"], b"b"),
        (b"HTTP/1.1 200 OK\r\nServer: x\r\n<html>no empty line", 200, None, b"<html>no empty line"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: a\r\n\r\nb", 200, ["a"], b"b"),
        (b"<html>HTTP/0.9", None, None, b"<html>HTTP/0.9"),
        (b"\x00\xffjunk\n\n", None, None, b"\x00\xffjunk\n\n"),
        (b"", None, None, b""),
    ],
)
def test_heads(content: bytes, status: int | None, kind: list[str] | None, body: bytes) -> None:
    parsed = parse(content)
    assert (parsed.status, parsed.headers.get("content-type"), parsed.body) == (status, kind, body)


@given(st.binary(max_size=300))
def test_no_bytes_are_too_odd_for_a_head(content: bytes) -> None:
    parsed = parse(b"HTTP/1.1 200 OK\r\n" + content)
    assert content.endswith(parsed.body)


@pytest.mark.parametrize(
    ("body", "joined"),
    [
        (b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", b"hello world"),
        (b"5;name=value\r\nhello\r\n0\r\nTrailer: x\r\n\r\n", b"hello"),
        (b"005 \nhello\n0\n\n", b"hello"),
        (b"A\r\n0123456789\r\n0\r\n\r\n", b"0123456789"),
        (b"<html>no chunks</html>", b"<html>no chunks</html>"),
        (b"5\r\nhello\r\nno size\r\nrest", b"hellono size\r\nrest"),
        (b"5\r\nhello\r\nff\r\ncut", b"hellocut"),
        (b"5\r\nhello", b"hello"),
        (b"", b""),
    ],
)
def test_chunks_are_joined_and_what_is_none_is_kept(body: bytes, joined: bytes) -> None:
    assert joined_chunks(body) == joined
    assert undone(body, "Transfer-Encoding: chunked") == joined


def test_chunks_are_looked_for_only_where_declared() -> None:
    body = b"5\r\nhello\r\n0\r\n\r\n"
    assert undone(body) == body
    assert undone(body, "X-Crawler-Transfer-Encoding: chunked") == body


@pytest.mark.parametrize("coding", CODINGS)
def test_codings(coding: str) -> None:
    coded = CODINGS[coding](PAGE)
    assert undone(coded, f"Content-Encoding: {coding}") == PAGE
    assert undone(coded, f"CONTENT-ENCODING:  {coding.upper()} ") == PAGE
    assert undone(PAGE, f"Content-Encoding: {coding}") == PAGE  # stored decoded, header kept
    chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(coded), coded)
    assert undone(chunked, f"Content-Encoding: {coding}", "Transfer-Encoding: chunked") == PAGE


@pytest.mark.parametrize("inner", CODINGS)
@pytest.mark.parametrize("outer", CODINGS)
def test_doubled_codings(inner: str, outer: str) -> None:
    doubled = CODINGS[outer](CODINGS[inner](PAGE))
    assert undone(doubled, f"Content-Encoding: {inner}, {outer}") == PAGE
    assert undone(doubled, f"Content-Encoding: {inner}", f"Content-Encoding: {outer}") == PAGE


def test_codings_that_servers_send_otherwise() -> None:
    assert undone(raw_deflate(PAGE), "Content-Encoding: deflate") == PAGE
    assert undone(gzip.compress(PAGE), "Content-Encoding: x-gzip") == PAGE
    assert undone(gzip.compress(PAGE[:9]) + gzip.compress(PAGE[9:]), "Content-Encoding: gzip") == PAGE
    assert undone(gzip.compress(PAGE) + b"trailing", "Content-Encoding: gzip") == PAGE
    assert undone(gzip.compress(gzip.compress(PAGE)), "Content-Encoding: gzip") == PAGE
    assert undone(gzip.compress(PAGE)) == PAGE
    assert undone(zstandard.compress(PAGE), "X-Crawler-Content-Encoding: zstd") == PAGE
    assert undone(PAGE, "Content-Encoding: UTF-8") == PAGE
    assert undone(PAGE, "Content-Encoding: compress") == PAGE
    assert undone(b"", "Content-Encoding: gzip") == b""


@pytest.mark.parametrize("coding", CODINGS)
def test_of_a_body_that_breaks_off_the_good_beginning_is_kept(coding: str) -> None:
    noise = bytes(random.Random(0).choices(range(32, 96), k=1_000_000))
    coded = CODINGS[coding](noise)
    kept = undone(coded[: len(coded) // 2], f"Content-Encoding: {coding}")
    assert len(kept) > 100_000
    assert noise.startswith(kept)


@pytest.mark.parametrize("coding", [*CODINGS, "compress"])
def test_bytes_that_cannot_be_decoded_are_no_page(coding: str) -> None:
    with pytest.raises(CodingError):
        undone(b"\xfe\xff\x80\x81" * 10, f"Content-Encoding: {coding}")


@pytest.mark.parametrize("coding", CODINGS)
def test_a_decompression_bomb_stops_at_the_limit(coding: str) -> None:
    """A few kilobytes that would be 64 MiB of zeros, packed once and twice, are unpacked in little memory."""
    bomb = CODINGS[coding](bytes(2**26))
    tracemalloc.start()
    for packed, codings in ((bomb, coding), (CODINGS[coding](bomb), f"{coding}, {coding}")):
        with pytest.raises(TooLargeError):
            undone(packed, f"Content-Encoding: {codings}")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * LIMIT


def test_the_limit_is_of_the_decoded_body() -> None:
    coded = gzip.compress(PAGE)
    assert undone(coded, "Content-Encoding: gzip", limit=len(PAGE)) == PAGE
    with pytest.raises(TooLargeError):
        undone(coded, "Content-Encoding: gzip", limit=len(PAGE) - 1)
    with pytest.raises(TooLargeError):
        undone(PAGE, limit=len(PAGE) - 1)


def test_a_body_that_decompresses_to_itself_ends() -> None:
    layers = PAGE
    for _ in range(20):
        layers = gzip.compress(layers)
    assert undone(layers).startswith(b"\x1f\x8b")
