"""WARC and ARC against warcio's and fastwarc's own readers, however they are written, cut and damaged."""

import functools
import gzip
import io
import random
import re
import tracemalloc
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pytest
import zstandard
from fastwarc.warc import ArchiveIterator as FastIterator
from hypothesis import given, settings
from hypothesis import strategies as st
from warcio.archiveiterator import ArchiveIterator
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from jobs import sources
from jobs.sources import warc
from jobs.sources.warc import records as warc_records
from tests.conftest import sentences
from tests.jobs.test_sources import Settings, read_all, records_of

HTTP = "application/http; msgtype=response"
COLUMNS = {"text": "text", "id": "id", "url": "url", "crawl": "dump"}


@dataclass(frozen=True)
class Page:
    """A document as a reader gives it, or `error` in place of what could not be read."""

    content: bytes = b""
    url: str | None = None
    id: str | None = None
    content_type: str | None = None
    error: str | None = None


def source_of(path: Path, **options: object) -> Settings:
    return Settings(str(path), format="warc", **options)  # type: ignore[arg-type]


def pages_of(batches: Sequence[sources.Batch]) -> list[Page]:
    return [page for batch in batches for page in _pages(batch)]


def _pages(batch: sources.Batch) -> Iterator[Page]:
    if batch.content is None:
        yield from [Page(error=batch.error)] * len(batch)
        return
    nothing = [None] * len(batch)
    columns = [
        batch.columns[name].to_pylist() if name in batch.columns else nothing
        for name in ("url", "id", "content_type")
    ]
    yield from map(Page, batch.content.to_pylist(), *columns)


def read_pages(path: Path, **options: Any) -> list[Page]:
    return pages_of(read_all(source_of(path), **options))


def direct(content: bytes) -> list[Page]:
    """Pages of a file by the reader alone, from a file object."""
    raw = io.BytesIO(content)
    blocks, _ = warc.blocks(raw, COLUMNS)
    if not any(block.records for block in blocks):
        return []
    return pages_of(list(warc.read(raw, [block.place for block in blocks], 0, COLUMNS, 2**23)))


def by_block(content: bytes) -> list[Page]:
    """The same, each block by itself."""
    raw = io.BytesIO(content)
    blocks, _ = warc.blocks(raw, COLUMNS)
    found = []
    for block in blocks:
        pages = pages_of(list(warc.read(raw, [block.place], 0, COLUMNS, 2**23))) if block.records else []
        assert len(pages) == block.records
        found += pages
    return found


# ---------------------------------------------------------------- writing


def record(
    content: bytes, url: str | bytes = "http://example.org/", kind: str = "response", **fields: str
) -> bytes:
    """A record byte by byte; fields by name with `_` for `-`, and None for none."""
    lines = {
        "WARC-Type": kind,
        "WARC-Record-ID": f"<urn:uuid:{zlib.crc32(content):08x}>",
        "WARC-Target-URI": url,
        "WARC-Date": "2024-05-18T01:58:10Z",
        "Content-Type": HTTP if kind == "response" else "text/plain",
        "Content-Length": str(len(content)),
        **{name.replace("_", "-"): value for name, value in fields.items()},
    }
    header = b"".join(
        name.encode() + b": " + (value if isinstance(value, bytes) else value.encode()) + b"\r\n"
        for name, value in lines.items()
        if value is not None
    )
    return b"WARC/1.0\r\n" + header + b"\r\n" + content + b"\r\n\r\n"


def numbered(count: int, n_bytes: int = 200) -> list[bytes]:
    """Contents that compress badly and are all different."""
    return [random.Random(i).randbytes(n_bytes) + b"%d" % i for i in range(count)]


def zipped(parts: Sequence[bytes]) -> bytes:
    return b"".join(gzip.compress(part, mtime=0) for part in parts)


def framed(parts: Sequence[bytes]) -> bytes:
    return b"".join(zstandard.ZstdCompressor(write_checksum=True).compress(part) for part in parts)


@functools.cache
def dictionary() -> zstandard.ZstdCompressionDict:
    return zstandard.train_dictionary(4096, [record(content) for content in numbered(100)])


def with_dictionary(parts: Sequence[bytes], compressed: bool) -> bytes:
    """As the WARC draft for Zstandard has it: the dictionary in a frame to be skipped, the file's first."""
    data = dictionary().as_bytes()
    data = zstandard.compress(data) if compressed else data
    skipped = (0x184D2A5D).to_bytes(4, "little") + len(data).to_bytes(4, "little") + data
    compressor = zstandard.ZstdCompressor(dict_data=dictionary())
    return skipped + b"".join(compressor.compress(part) for part in parts)


def lz4(parts: Sequence[bytes]) -> bytes:
    sink = pa.BufferOutputStream()
    for part in parts:
        frame = pa.BufferOutputStream()
        with pa.CompressedOutputStream(frame, "lz4") as file:
            file.write(part)
        sink.write(frame.getvalue())
    return sink.getvalue().to_pybytes()


def in_members_of(n_bytes: int) -> Callable[[Sequence[bytes]], bytes]:
    """Members that begin and end anywhere, as BGZF's do, with its empty one at the end."""

    def write(parts: Sequence[bytes]) -> bytes:
        whole = b"".join(parts)
        return zipped([whole[i : i + n_bytes] for i in range(0, len(whole), n_bytes)] + [b""])

    return write


BY_RECORD: dict[str, Callable[[Sequence[bytes]], bytes]] = {
    "plain": b"".join,
    "gzip": zipped,
    "zstd": framed,
    "zstd, dictionary": lambda parts: with_dictionary(parts, compressed=False),
    "zstd, compressed dictionary": lambda parts: with_dictionary(parts, compressed=True),
}
AS_ONE: dict[str, Callable[[Sequence[bytes]], bytes]] = {
    "gzip, one member": lambda parts: gzip.compress(b"".join(parts), mtime=0),
    "gzip, members of 1,000 bytes": in_members_of(1000),
    "zstd, one frame": lambda parts: framed([b"".join(parts)]),
    "lz4": lz4,
    "lz4, one frame": lambda parts: lz4([b"".join(parts)]),
}
WRITERS = BY_RECORD | AS_ONE


@pytest.fixture(scope="session")
def archive() -> tuple[list[bytes], list[Page]]:
    """200 pages written with warcio as a crawler writes them, record by record; and its documents, by warcio."""
    random = np.random.default_rng(0)
    text = sentences(random, 5000)
    file = io.BytesIO()
    writer = WARCWriter(file, gzip=False)
    parts: list[bytes] = []

    def add(one: Any) -> None:
        begun = file.tell()
        writer.write_record(one)
        parts.append(file.getvalue()[begun:])

    info = {"software": "a test", "isPartOf": "CC-MAIN-2024-22"}
    add(writer.create_warcinfo_record("a.warc.gz", info))
    for i in range(200):
        url = f"http://example.org/{i % 50}"
        begun, size = int(random.integers(0, 5000)), int(random.lognormal(7, 1))
        body = f"<html><title>{i}</title>{text[begun : begun + size]}</html>".encode()
        get = StatusAndHeaders("GET / HTTP/1.1", [("Host", "example.org")], is_http_request=True)
        add(writer.create_warc_record(url, "request", http_headers=get))
        answer = StatusAndHeaders("200 OK", [("Content-Type", "text/html")], protocol="HTTP/1.1")
        add(writer.create_warc_record(url, "response", payload=io.BytesIO(body), http_headers=answer))
        if i % 7 == 0:
            add(writer.create_warc_record(url, "resource", io.BytesIO(body), warc_content_type="text/html"))
            add(writer.create_warc_record(url, "metadata", io.BytesIO(b"fetchTimeMs: 4")))
    return parts, by_warcio(b"".join(parts))


# ---------------------------------------------------------------- the referees


def by_warcio(content: bytes) -> list[Page]:
    """Documents as warcio reads them, up to where it gives up."""
    found = []
    try:
        for one in ArchiveIterator(io.BytesIO(content), no_record_parse=True):
            fields = one.rec_headers.get_header
            if one.format == "arc" and one.rec_type != "arc_header":
                data = one.raw_stream.read()
                kind = HTTP if data.startswith(b"HTTP/") else fields("content-type")
                found.append(Page(data, fields("uri"), None, kind))
            elif one.rec_type in warc.DOCUMENTS:
                kind = fields("Content-Type")
                name = fields("WARC-Record-ID")
                found.append(Page(one.raw_stream.read(), fields("WARC-Target-URI"), name, kind))
    except Exception as error:  # it raises whatever comes
        found.append(Page(error=str(error) or type(error).__name__))
    return _without_wgets_own(found)


def by_fastwarc(content: bytes) -> list[Page]:
    """Documents as fastwarc reads them, up to where it gives up; it leaves Wget's brackets around URLs."""
    found = []
    try:
        for one in FastIterator(io.BytesIO(content), parse_http=False):
            get = one.headers.get
            if get("WARC-Type") in warc.DOCUMENTS:
                url = (get("WARC-Target-URI") or "").strip("<>") or None
                found.append(Page(one.reader.read(), url, get("WARC-Record-ID"), get("Content-Type")))
    except Exception as error:
        found.append(Page(error=str(error) or type(error).__name__))
    return _without_wgets_own(found)


def _without_wgets_own(pages: Sequence[Page]) -> list[Page]:
    return [page for page in pages if not (page.url or "").startswith("metadata://")]


# Documents of each file (what wget says of itself is none), unreadable ones, and who reads it otherwise: warcio neither
# Zstandard nor LZ4 nor a gzip member with several records, fastwarc no ARC.
FOREIGN = {
    "commoncrawl/whirlwind.warc.gz": (1, 0, ""),
    "commoncrawl/whirlwind.warc.wat": (0, 0, ""),
    "commoncrawl/whirlwind.warc.wet.gz": (1, 0, ""),
    # Of one gzip member. The third record has no date and a length past its end, the fourth and fifth as well.
    "warc/aut_heritrix/badexample.arc.gz": (5, 3, "neither"),
    "warc/aut_heritrix/example.arc.gz": (299, 0, "not fastwarc"),
    "warc/aut_heritrix/example.docs.warc.gz": (9, 0, ""),
    "warc/aut_heritrix/example.pdf.warc.gz": (35, 0, ""),
    "warc/aut_heritrix/example.txt.warc.gz": (2, 0, ""),
    "warc/aut_heritrix/example.warc.gz": (299, 0, ""),
    "warc/aut_heritrix/issue-493.warc": (10, 0, ""),
    "warc/aut_heritrix/issue-514.warc": (2, 0, ""),
    "warc/derived/warcfile.dict_prefixed.warc.zst": (16, 0, "not warcio"),
    "warc/derived/warcfile.per_record.warc.zst": (16, 0, "not warcio"),
    "warc/derived/warcfile.single_frame.warc.zst": (16, 0, "not warcio"),
    "warc/dolma/sample-0000.warc.gz": (22, 0, ""),
    "warc/dolma/sample-0001.warc.gz": (15, 0, ""),
    "warc/example-bad.warc.gz.bad": (2, 0, "not warcio"),  # two records in a member
    "warc/example-iana.org-chunked.warc": (1, 0, ""),
    # The response is two NUL bytes longer than its header says: warcio cuts it, fastwarc stops behind it.
    "warc/example-trunc.warc": (1, 1, "neither"),
    "warc/example-wrong-chunks.warc.gz": (1, 0, "not warcio"),  # which takes its chunks apart, unasked
    "warc/example.arc.gz": (1, 0, "not fastwarc"),
    "warc/example.warc": (1, 0, ""),
    "warc/example.warc.gz": (1, 0, ""),
    "warc/resiliparse_fastwarc/block-sized-records.warc": (0, 0, ""),
    "warc/resiliparse_fastwarc/block-sized-records.warc.gz": (0, 0, ""),
    "warc/resiliparse_fastwarc/block-sized-records.warc.lz4": (0, 0, "not warcio"),
    "warc/resiliparse_fastwarc/clipped.warc.gz": (1, 1, "neither"),  # both give what is left of the content
    "warc/resiliparse_fastwarc/clueweb-quirk.warc.gz": (29, 0, ""),
    "warc/resiliparse_fastwarc/warcfile.warc": (16, 0, ""),
    "warc/resiliparse_fastwarc/warcfile.warc.gz": (16, 0, ""),
    "warc/resiliparse_fastwarc/warcfile.warc.lz4": (16, 0, "not warcio"),
    "warc/solrwayback_encodings/transfer_compression_brotli.warc": (1, 0, ""),
    "warc/solrwayback_encodings/transfer_compression_brotli.warc.gz": (1, 0, ""),
    "warc/solrwayback_encodings/transfer_compression_gzip.warc": (1, 0, ""),
    "warc/solrwayback_encodings/transfer_compression_gzip.warc.gz": (1, 0, ""),
    "warc/solrwayback_encodings/transfer_compression_gzip_chunked.warc.gz": (1, 0, ""),
    "warc/solrwayback_encodings/transfer_compression_none.warc": (1, 0, ""),
    "warc/solrwayback_encodings/transfer_compression_none.warc.gz": (1, 0, ""),
    "warc/solrwayback_encodings/transfer_compression_none_truncated.warc.gz": (1, 1, "neither"),
    # warcio takes a record's first line for a header here.
    "warc/webarchive_commons/IAH-20080430204825-00000-blackbook-truncated.arc": (8, 0, "neither"),
    "warc/webarchive_commons/IAH-urls-wget.warc": (16, 0, ""),
    "warc/webarchive_commons/IAH-urls-wget.warc.gz": (16, 0, ""),
    "warc/webarchive_commons/link-extraction-test.warc": (7, 0, "not warcio"),
    "warc/webarchive_commons/mutliple-headers.warc": (1, 0, ""),
    "warc/webarchive_commons/abcd.gz": "it is neither WARC nor ARC",
    "warc/webarchive_commons/double-single-inflate-error.gz": "it is neither WARC nor ARC",
    "warc/webarchive_commons/empty.gz": "no record is in it",
    "warc/webarchive_commons/hi-2.gz": "it is neither WARC nor ARC",
    "warc/webarchive_commons/hi.gz": "it is neither WARC nor ARC",
}


def test_every_file_there_is_has_its_line(shared):
    folders = (shared / "commoncrawl", shared / "warc")
    files = {path.relative_to(shared) for folder in folders for path in folder.rglob("*") if path.is_file()}
    assert {str(path) for path in files if path.suffix != ".md"} == FOREIGN.keys()


@pytest.mark.parametrize("name", FOREIGN)
def test_record_by_record_as_the_referees_read_it(shared, name):
    content, expected = (shared / name).read_bytes(), FOREIGN[name]
    if isinstance(expected, str):
        with pytest.raises((sources.BadFileError, sources.NotDataError), match=expected):
            warc.blocks(io.BytesIO(content), COLUMNS)
        return
    found = direct(content)
    assert by_block(content) == found
    documents, unreadable, otherwise = expected
    assert (len(found), sum(page.error is not None for page in found)) == (documents, unreadable)
    for referee, reader in (("warcio", by_warcio), ("fastwarc", by_fastwarc)):
        agrees = otherwise not in ("neither", f"not {referee}")
        assert (reader(content) == found) == agrees, referee


def test_an_archive_as_warc_and_as_arc(shared):
    """The same crawl twice, except for one record that only the WARC has."""
    folder = shared / "warc" / "aut_heritrix"
    arc, warc_ = (direct((folder / f"example.{kind}.gz").read_bytes()) for kind in ("arc", "warc"))
    contents = {page.content for page in arc} & {page.content for page in warc_}
    assert len(contents) > 0.9 * len({page.content for page in arc})


# ---------------------------------------------------------------- splitting


@pytest.mark.parametrize("kind", WRITERS)
def test_any_split_gives_the_same_documents(tmp_path, monkeypatch, archive, kind):
    monkeypatch.setattr(warc, "BLOCK_BYTES", 20_000)
    parts, expected = archive
    path = tmp_path / "a.warc"
    path.write_bytes(WRITERS[kind](parts))
    (file,) = sources.list_files(source_of(path)).files
    assert file.records == len(expected) == 229
    assert file.columns == ("text", "id", "url", "crawl")
    assert len(file.blocks) > 10 if kind in BY_RECORD else len(file.blocks) < 10
    assert file.n_bytes == pytest.approx(sum(map(len, parts)), rel=0.01)
    for split_bytes, batch_bytes in ((1, 10**9), (30_000, 5_000), (100_000, 1), (10**9, 10**9)):
        found = read_all(source_of(path), split_bytes, batch_bytes=batch_bytes)
        assert pages_of(found) == expected
        assert records_of(found) == list(range(len(expected)))
        for batch in found:
            assert batch.text is None
            assert batch.valid.all()
            assert batch.content.type == pa.large_binary()
            assert {values.type for values in batch.columns.values()} == {pa.large_string()}
            assert set(batch.columns["crawl"].to_pylist()) == {"CC-MAIN-2024-22"}
            assert len(batch) == 1 or len(b"".join(batch.content.to_pylist())) <= batch_bytes


def test_single_documents_are_read_again(tmp_path, monkeypatch, archive):
    monkeypatch.setattr(warc, "BLOCK_BYTES", 20_000)
    parts, expected = archive
    path = tmp_path / "a.warc.gz"
    path.write_bytes(zipped(parts))
    wanted = [225, 3, 77, 0, 228]
    batches = list(sources.read_batches(source_of(path), path.name, wanted))
    assert dict(zip(records_of(batches), pages_of(batches), strict=True)) == {i: expected[i] for i in wanted}


def test_a_large_file_is_blocks_of_a_mebibyte(tmp_path):
    path = tmp_path / "a.warc.gz"
    path.write_bytes(zipped([record(b"x" * 100_000)] * 100))
    (file,) = sources.list_files(source_of(path)).files
    assert [block.records for block in file.blocks] == [11] * 9 + [1]
    assert sources.notices_of([source_of(path)], sources.Inventory((file,)), 2**20) == []


def test_a_file_that_cannot_be_split_is_said_to_be_one(tmp_path):
    path = tmp_path / "a.warc.gz"
    path.write_bytes(gzip.compress(record(b"x" * 100_000) * 100))
    inventory = sources.list_files(source_of(path))
    (notice,) = sources.notices_of([source_of(path)], inventory, 2**20)
    assert "a.warc.gz (10 MiB)" in notice
    assert "compress each record by itself" in notice


# ---------------------------------------------------------------- truncation and damage


@settings(max_examples=150, deadline=None)
@given(kind=st.sampled_from(list(WRITERS)), where=st.floats(0, 1, exclude_max=True))
def test_truncation_costs_the_record_that_it_is_in(kind, where):
    contents = numbered(12)
    kinds = ["response", "request", "conversion"]
    parts = [record(content, kind=kinds[i % 3]) for i, content in enumerate(contents)]
    whole = WRITERS[kind](parts)
    cut = whole[: 1 + int(where * (len(whole) - 1))]
    before = _whole_before(kind, parts, cut)
    expected = [contents[i] for i in range(before) if i % 3 != 1]
    try:
        found = direct(cut)
    except (sources.BadFileError, sources.NotDataError):
        assert before == 0
        return
    assert by_block(cut) == found
    assert [page.content for page in found if page.error is None][: len(expected)] == expected
    assert [page.error is not None for page in found].count(True) <= 1
    assert all(page.error is None for page in found[:-1])
    assert all(page.content in contents for page in found if page.error is None)


def _whole_before(kind: str, parts: list[bytes], cut: bytes) -> int:
    """How many records lie wholly before a cut, of those that can be decoded alone or without the end."""
    if kind in BY_RECORD:
        ends = [len(BY_RECORD[kind](parts[: i + 1])) for i in range(len(parts))]
        line_ends = 4 if kind == "plain" else 0
        return sum(end - line_ends <= len(cut) for end in ends)
    if kind != "gzip, one member":
        return 0
    size = len(zlib.decompressobj(31).decompress(cut))
    # The first begins the member, and is handed on when the member is seen to go on.
    count = sum(int(end) <= size for end in np.cumsum([len(part) for part in parts]))
    return count if count > 1 else 0


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(list(WRITERS)),
    where=st.floats(0, 1, exclude_max=True),
    value=st.integers(1, 255),
    block_bytes=st.sampled_from([1, 600, 2**20]),
)
def test_a_changed_byte_never_stops_reading(kind, where, value, block_bytes):
    contents = numbered(12)
    damaged = bytearray(WRITERS[kind]([record(content) for content in contents]))
    place = int(where * len(damaged))
    damaged[place] ^= value
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warc, "BLOCK_BYTES", block_bytes)
        try:
            found = direct(bytes(damaged))
        except (sources.BadFileError, sources.NotDataError):
            return
        assert by_block(bytes(damaged)) == found
    if (
        kind in ("gzip", "zstd") and place > 8
    ):  # checksums; without the file's own magic number nothing is known
        good = [page.content for page in found if page.error is None]
        assert set(good) <= set(contents)
        assert len(good) >= len(contents) - 2
        assert len(good) < len(contents) or not any(page.error for page in found)


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=300), kind=st.sampled_from(["", "WARC/1.0\r\n", "filedesc:", "\x1f\x8b\x08"]))
def test_any_bytes_are_read_or_refused(data, kind):
    content = kind.encode("latin-1") + data
    try:
        found = direct(content)
    except (sources.BadFileError, sources.NotDataError) as error:
        assert str(error)  # noqa: PT017
        return
    assert by_block(content) == found


@pytest.mark.parametrize("kind", ["plain", "gzip", "zstd", "gzip, one member", "zstd, one frame", "lz4"])
@pytest.mark.parametrize(
    ("length", "said"),
    [
        ("150", "it does not end after the 150 bytes"),
        ("250", "does not end after the 250 bytes|its content is shorter than it says"),
        ("1000", "does not end after the 1,000 bytes|its content is shorter than it says"),
        ("1000000", "it is truncated: the file ends within its content|its content is shorter than it says"),
        ("9" * 30, "it is truncated|its content is shorter than it says"),
        ("-1", "its header has no length, but '-1'"),
        ("", "its header has no length, but ''"),
        ("٣", "its header has no length"),
        (None, "its header has no length, but ''"),
    ],
)
def test_a_wrong_length_costs_one_record(kind, length, said):
    contents = numbered(6)
    parts = [record(content) for content in contents]
    parts[2] = record(contents[2], Content_Length=length)
    found = direct(WRITERS[kind](parts))
    if length == "9" * 30 and kind in AS_ONE:  # too long to be held, so that there is no way back
        found = [*found, *map(Page, contents[3:])]
    assert [page.content for page in found if not page.error] == contents[:2] + contents[3:]
    (error,) = [page.error for page in found if page.error]
    assert re.search(said, error)


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_damage_within_a_member_costs_one_record(kind):
    contents = numbered(6)
    whole = [WRITERS[kind]([record(content)]) for content in contents]
    for place in range(len(whole[2])):
        damaged = whole[2][:place] + bytes([whole[2][place] ^ 0x55]) + whole[2][place + 1 :]
        found = direct(b"".join([*whole[:2], damaged, *whole[3:]]))
        good = [page.content for page in found if page.error is None]
        if len(good) == 6:  # in a gzip header, a time or a system that do not matter
            assert good == contents
            continue
        assert good == contents[:2] + contents[3:], place
        assert [page.error is not None for page in found] == [False, False, True, False, False, False]


def test_damage_between_members_is_named_and_the_rest_is_read():
    contents = numbered(4)
    whole = [zipped([record(content)]) for content in contents]
    found = direct(b"".join([*whole[:2], b"\x1f\x8b\x08 garbage", *whole[2:]]))
    assert [page.content for page in found] == [*contents[:2], b"", *contents[2:]]
    assert "its gzip member at byte" in found[2].error
    assert "lost" not in found[2].error
    found = direct(b"".join([*whole, b"garbage"]))
    assert [page.content for page in found] == [*contents, b""]
    assert "what follows is lost" in found[4].error


def test_padding_behind_a_member_is_none():
    assert [page.content for page in direct(zipped([record(b"a")]) + b"\0" * 100)] == [b"a"]


def test_the_checksum_of_a_record_that_is_alone_counts():
    whole = bytearray(zipped([record(b"a" * 50)]))
    whole[-8] ^= 1
    (page,) = direct(bytes(whole))
    assert "its gzip member at byte 0 cannot be decompressed" in page.error


# ---------------------------------------------------------------- headers and records of all kinds


def test_records_of_all_kinds():
    parts = [
        record(b"a=1", kind="warcinfo"),
        record(b"", url="http://empty/"),
        record(b"one", url="http://example.org/" + "x" * 10_000),
        record(b"not HTTP", url="dns:example.org", Content_Type="text/dns"),
        record(b"two", kind="revisit"),
        record(b"three", kind="RESOURCE"),
        record(b"four", kind="conversion"),
        record(b"five", kind="continuation"),
        record(b"six", url="http://example.org/caf\xe9".encode("latin-1")),
        record(b"seven", url="http://example.org/ü"),
        record(b"eight", WARC_Record_ID=None, Content_Type=None, WARC_Target_URI=None),
        record(b"nine", WARC_Record_ID="<urn:twice>"),
        record(b"nine", WARC_Record_ID="<urn:twice>"),
        record(b"\r\n\r\nWARC/1.0\r\n\r\n\r\n"),
    ]
    found = direct(b"".join(parts))
    assert [page.content for page in found] == [
        b"", b"one", b"not HTTP", b"three", b"four", b"six", b"seven", b"eight", b"nine", b"nine",
        b"\r\n\r\nWARC/1.0\r\n\r\n\r\n",
    ]  # fmt: skip
    assert found[1].url == "http://example.org/" + "x" * 10_000
    assert found[2].content_type == "text/dns"
    assert [found[5].url, found[6].url] == ["http://example.org/café", "http://example.org/ü"]
    assert found[7] == Page(b"eight", None, None, None)
    assert [found[8].id, found[9].id] == ["<urn:twice>"] * 2


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one.replace(b"\r\n", b"\n"),
        lambda one: one.replace(b"WARC-Target-URI: ", b"WARC-Target-URI:\r\n\t"),
        lambda one: one.replace(b": ", b":"),
        lambda one: one.replace(b": ", b" : "),
        lambda one: one.replace(b"WARC-Target-URI", b"warc-TARGET-uri"),
        lambda one: one.replace(b"http://example.org/", b"<http://example.org/>"),
        lambda one: one.replace(b"WARC/1.0", b"WARC/0.18"),
        lambda one: one.replace(b"WARC-Date", b"no colon\r\nWARC-Date"),
        lambda one: one.replace(b"\r\n\r\nab", b"\r\nWARC-Target-URI: http://other/\r\n\r\nab"),
        lambda one: one[:-4],
        lambda one: one[:-2],
        lambda one: one + b"\r\n\r\n\r\n",
        lambda one: b"\r\n" + one,
    ],
)
@pytest.mark.parametrize("kind", ["plain", "gzip"])
def test_headers_as_they_are_written(change, kind):
    whole = WRITERS[kind]([change(record(b"abc"))] * 3)
    assert [(page.content, page.url) for page in direct(whole)] == [(b"abc", "http://example.org/")] * 3


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (b"WARC/1.0\r\nContent-Length: 3\r\n\r\nabc\r\n\r\n", "its header has no WARC-Type"),
        (b"WARC/1.0\r\n" + b"X: y\r\n" * 300_000 + b"\r\n", "its header is longer than 1,048,576 bytes"),
    ],
)
def test_headers_that_cannot_be_read(header, said):
    found = direct(record(b"a") + header + record(b"b"))
    assert [page.content for page in found] == [b"a", b"", b"b"]
    assert said in found[1].error


def test_what_holds_no_record_is_bad_or_no_data():
    for content in (b"text", gzip.compress(b"text"), b"WARC/1.0", b"\x1f\x8b", b"filedesc:"):
        with pytest.raises(sources.BadFileError):
            warc.blocks(io.BytesIO(content), COLUMNS)
    for content in (b"\r\n", gzip.compress(b"")):
        with pytest.raises(sources.NotDataError, match="no record is in it"):
            warc.blocks(io.BytesIO(content), COLUMNS)


# ---------------------------------------------------------------- columns


def test_columns_are_header_fields(tmp_path):
    parts = [record(b"a", WARC_IP_Address="10.0.0.1"), record(b"b")]
    (tmp_path / "a.warc").write_bytes(b"".join(parts))
    source = source_of(tmp_path, columns={"id": "warc-ip-address"}, extra={"date": "string"})
    (file,) = sources.list_files(source).files
    assert file.columns == ("text", "id", "url", "date")
    (batch,) = read_all(source)
    assert {name: values.to_pylist() for name, values in batch.columns.items()} == {
        "id": ["10.0.0.1", None],
        "url": ["http://example.org/"] * 2,
        "date": ["2024-05-18T01:58:10Z"] * 2,
        "content_type": [HTTP] * 2,
    }
    (batch,) = read_all(source, columns=())
    assert list(batch.columns) == ["content_type"]


@pytest.mark.parametrize(
    ("path", "info", "crawl"),
    [
        ("a.warc", b"software: x\r\nispartof:  CC-MAIN-2024-22\r\n", "CC-MAIN-2024-22"),
        ("CC-MAIN-2013-20/CC-MAIN-20130516092621-00000.warc", b"software: x\r\n", "CC-MAIN-2013-20"),
        ("CC-MAIN-2013-20/a.warc", b"isPartOf: mine", "mine"),
        ("CC-MAIN-20130516092621-00000.warc", b"", None),
    ],
)
def test_the_crawl(tmp_path, path, info, crawl):
    place = tmp_path / path
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(record(info, kind="warcinfo") + record(b"a"))
    (batch,) = read_all(source_of(place))
    assert batch.columns.get("crawl", pa.array([None])).to_pylist() == [crawl]
    memory = fsspec.filesystem("memory")
    memory.pipe(f"/crawls/{path}", place.read_bytes())
    (batch,) = read_all(Settings(f"memory://crawls/{path}", format="warc"))
    assert batch.columns.get("crawl", pa.array([None])).to_pylist() == [crawl]
    memory.rm("/crawls", recursive=True)


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_a_bomb_costs_one_record_and_no_memory(kind, monkeypatch):
    monkeypatch.setattr(warc_records, "RECORD_BYTES", 10**6)
    bomb = record(bytes(10**8))
    liar = record(bytes(10**8), Content_Length="1000")
    parts = [record(b"a"), bomb, record(b"b"), liar, record(b"c")]
    whole = WRITERS[kind](parts)
    tracemalloc.start()
    found = direct(whole)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [page.content for page in found] == [b"a", b"", b"b", b"", b"c"]
    assert found[1].error == "it is longer than 1,000,000 bytes, too long for one document"
    assert "it does not end after the 1,000 bytes" in found[3].error
    assert peak < 60 * 10**6


# ---------------------------------------------------------------- ARC


def arc_record(content: bytes, url: str = "http://example.org/", kind: str = "text/html") -> bytes:
    return f"{url} 10.0.0.1 20080430204825 {kind} {len(content)}\n".encode() + content + b"\n"


def arc(contents: Sequence[bytes]) -> list[bytes]:
    version = b"1 0 InternetArchive\nURL IP-address Archive-date Content-type Archive-length\n"
    return [arc_record(version, "filedesc://a.arc", "text/plain"), *map(arc_record, contents)]


@pytest.mark.parametrize("kind", ["plain", "gzip", "gzip, one member"])
def test_arc(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(warc, "BLOCK_BYTES", 1000)
    contents = numbered(30)
    contents[3] = b"HTTP/1.1 200 OK\r\n\r\nbody\n"
    contents[4] = b""
    whole = WRITERS[kind](arc(contents))
    (tmp_path / "a.arc").write_bytes(whole)
    for split_bytes in (1, 10**6):
        found = read_pages(tmp_path, split_bytes=split_bytes)
        assert [page.content for page in found] == contents
        assert [page.content_type for page in found[3:5]] == [HTTP, "text/html"]
        assert {(page.url, page.id) for page in found} == {("http://example.org/", None)}
    (batch, *_) = read_all(source_of(tmp_path, extra={"date": "string"}))
    assert batch.columns["date"][0].as_py() == "2008-04-30T20:48:25Z"
    if kind != "gzip, one member":  # which warcio does not read
        assert by_warcio(whole) == found


def test_arc_headers_as_they_are_written():
    parts = arc([])
    parts += [
        b"http://example.org/a b 10.0.0.1 20080430204825 text/html 1\na\n",
        b"http://example.org/2 10.0.0.1 20080430204825 text/html 200 sum - 77 a.arc 1\nb\n",
        b"http://example.org/3 10.0.0.1 null text/html 1\nc\n",
        b"dns:example.org 10.0.0.1 20080430204825 text/dns 1\nd\n",
    ]
    found = direct(b"".join(parts))
    assert [page.content for page in found] == [b"a", b"b", b"c", b"d"]
    assert [page.url for page in found] == [
        "http://example.org/a b", "http://example.org/2", "http://example.org/3", "dns:example.org",
    ]  # fmt: skip
    assert found[1].content_type == "text/html"


@settings(max_examples=100, deadline=None)
@given(kind=st.sampled_from(["plain", "gzip", "gzip, one member"]), where=st.floats(0, 1, exclude_max=True))
def test_truncated_arc(kind, where):
    contents = numbered(12)
    whole = WRITERS[kind](arc(contents))
    cut = whole[: 1 + int(where * (len(whole) - 1))]
    try:
        found = direct(cut)
    except (sources.BadFileError, sources.NotDataError):
        found = []
    good = [page.content for page in found if not page.error]
    assert good == contents[: len(good)]
    assert len(found) <= len(good) + 1
    if kind == "gzip":
        assert len(good) == max(0, sum(len(zipped(arc(contents[:i]))) <= len(cut) for i in range(13)) - 1)


def test_damaged_arc():
    contents = numbered(6)
    parts = arc(contents)
    parts[3] = parts[3].replace(b" 201\n", b" 150\n")
    for kind in ("plain", "gzip", "gzip, one member"):
        found = direct(WRITERS[kind](parts))
        assert [page.content for page in found] == [*contents[:2], b"", *contents[3:]]
        assert "it does not end after the 150 bytes" in found[2].error
