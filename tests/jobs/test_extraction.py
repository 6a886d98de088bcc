"""Extraction as the pipeline calls it: arrays of records in, text and fates out."""

import gzip
import json
import subprocess
import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import brotli
import pyarrow as pa
import pytest
import zstandard
from fastwarc.warc import ArchiveIterator, WarcRecordType
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from jobs.errors import UserError
from jobs.pages import engines, isolation
from jobs.pages.page import Settings as PageSettings
from jobs.steps.extraction import Extracted, extract
from tests.benchmarks.extraction import articles, quality

ROOT = Path(__file__).parents[2]
HTTP = "application/http; msgtype=response"
BODY = (
    "The quick brown fox jumps over the lazy dog, and it does so every single morning before breakfast. " * 6
)
PAGE = f"<html><head><title>t</title></head><body><article><h1>Fox</h1><p>{BODY}</p></article></body></html>"
both_engines = pytest.mark.parametrize("engine", ["trafilatura", "resiliparse"])


@dataclass(frozen=True)
class Settings:
    engine: str = "resiliparse"
    seconds: float = 5
    memory: int = 2**30
    body: int = 64 * 2**20
    pdf: bool = False


def run(
    *pages: str | bytes | None,
    kind: str | Sequence[str | None] | None = HTTP,
    settings: Settings = Settings(),
) -> Extracted:
    kinds = [kind] * len(pages) if kind is None or isinstance(kind, str) else kind
    content = [page.encode() if isinstance(page, str) else page for page in pages]
    return extract(pa.array(content, pa.large_binary()), pa.array(kinds, pa.large_string()), settings)


def fates(*pages: str | bytes | None, **options: object) -> list[str | None]:
    return run(*pages, **options).fate.to_pylist()  # type: ignore[arg-type]


def http(
    body: str | bytes = PAGE, *headers: str, status: str = "200 OK", kind: str | None = "text/html"
) -> bytes:
    types = [f"Content-Type: {kind}"] if kind is not None else []
    head = "\r\n".join([f"HTTP/1.1 {status}", *types, *headers, "", ""])
    return head.encode() + (body.encode() if isinstance(body, str) else body)


@both_engines
def test_text_of_pages_by_either_engine(engine: str) -> None:
    found = run(http(), http("<html></html>"), http(), settings=Settings(engine))
    assert found.text.type == pa.large_string()
    assert found.fate.to_pylist() == [None, "extraction.no_text", None]
    first, second, third = found.text.to_pylist()
    assert BODY.strip() in first
    assert (second, third) == ("", first)
    assert found.pages == {None: 2, "extraction.no_text": 1}
    assert found.bytes_in == 2 * len(http()) + len(http("<html></html>"))
    assert found.bytes_out == 2 * len(first)
    assert 0 < found.seconds < 5


@pytest.mark.parametrize("status", ["301 Moved", "404 Not Found", "500 Error", "304"])
def test_only_what_a_server_gave_successfully_is_a_page(status: str) -> None:
    assert fates(http(status=status), http(status="203 Ok")) == ["extraction.status", None]


def test_kinds_of_content() -> None:
    png, pdf = b"\x89PNG\r\n\x1a\n" + bytes(50), b"%PDF-1.4\n" + bytes(50)
    expected = {
        http(kind="text/html"): None,
        http(kind="TEXT/HTML;charset=utf-8"): None,
        http(kind="application/xhtml+xml"): None,
        http(kind=None): None,
        http(kind=""): None,
        http(kind="application/octet-stream"): None,
        http(f"\n<!-- licence --><!DOCTYPE html>{PAGE}", kind=None): None,
        PAGE.encode(): None,  # HTTP/0.9
        http("Just text.", kind="text/plain"): None,
        http("Just text.", kind=None): "extraction.content_type",
        http("{}", kind="application/json"): "extraction.content_type",
        http("body {}", kind="text/css"): "extraction.content_type",
        http(png, kind="image/png"): "extraction.content_type",
        http(png, kind="text/html"): "extraction.content_type",
        http(png, kind=None): "extraction.content_type",
        http(pdf, kind="application/pdf"): "extraction.content_type",
        http(pdf, kind="text/html"): "extraction.content_type",
        http(""): "extraction.empty",
        http("", kind=None): "extraction.empty",
        http(" \n ", kind="text/plain"): "extraction.no_text",
        http(b"\x80\x81\xfe" * 50, "Content-Encoding: br"): "extraction.coding",
    }
    assert fates(*expected) == list(expected.values())


def test_records_that_are_no_responses() -> None:
    kinds = ["text/html", None, "text/plain", None, None, "image/x", "application/warc-fields"]
    assert fates(PAGE, PAGE, "Text", b"", None, PAGE, "a: b", kind=kinds) == [
        *[None] * 3,
        *["extraction.empty"] * 2,
        *["extraction.content_type"] * 2,
    ]
    request = b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"
    assert fates(request, kind="application/http; msgtype=request") == ["extraction.content_type"]
    assert fates(http(), kind="application/http;msgtype=response") == [None]


def test_character_sets_end_to_end() -> None:
    text = BODY + "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. " * 3
    html = PAGE.replace(BODY, text)
    pages = [
        http(html, kind="text/html; charset=iso-8859-1"),  # wrong: it is UTF-8
        http(html.encode("latin-1"), kind="text/html; charset=utf-8"),  # wrong: it is not
        http(html.encode("latin-1")),
        http(html.replace("<title>", "<meta charset=latin1><title>").encode("latin-1")),
        http(html.encode("utf-16")),
        http(html.replace("fox", "f\0ox")),
    ]
    assert [text.strip() in found for found in run(*pages).text.to_pylist()] == [True] * len(pages)


def test_lone_surrogates_and_nul_characters_never_come_out() -> None:
    odd = PAGE.replace("fox", "f&#xD800;&#0;ox &#xDFFF;").encode() + b"\xed\xa0\x80"
    for engine in ("trafilatura", "resiliparse"):
        found = run(http(odd), settings=Settings(engine))
        found.text.validate(full=True)
        assert found.fate.to_pylist() == [None]
        assert "\0" not in found.text[0].as_py()


def test_the_limit_of_a_body_is_that_of_the_settings() -> None:
    assert fates(http(), settings=Settings(body=len(PAGE) - 1)) == ["extraction.too_large"]
    assert fates(http(), settings=Settings(body=len(PAGE))) == [None]


# ---------------------------------------------------------------- pages that are hard to read

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda data: brotli.compress(data, quality=3),
    "zstd": zstandard.compress,
}


@pytest.mark.parametrize("coding", PACKERS)
def test_a_decompression_bomb_is_dropped_alone(coding: str) -> None:
    bomb = http(PACKERS[coding](b"<html>" + bytes(2**26)), f"Content-Encoding: {coding}")
    small = Settings(body=2**20, memory=64 * 2**20)
    assert fates(http(), bomb, http(), settings=small) == [None, "extraction.too_large", None]


LARGE = {
    "50 MB": lambda: f"<html><body>{f'<p>{BODY}</p>' * (50_000_000 // len(BODY))}</body></html>",
    "a million rows": lambda: (
        f"<html><body><table>{'<tr><td>1</td><td>2</td></tr>' * 1_000_000}</table></body></html>"
    ),
    "100,000 nested tags": lambda: f"<html><body>{'<div>' * 100_000}<p>{BODY}</p></body></html>",
    "one tag": lambda: "<" + "a" * 5_000_000,
    "attributes": lambda: "<html><body><p " + " ".join(f"a{i}=b" for i in range(500_000)) + ">",
}
OUTCOMES = {None, *(f"extraction.{why}" for why in ("timeout", "memory", "no_text", "error", "crash"))}


@both_engines
@pytest.mark.parametrize("what", LARGE)
def test_a_page_that_is_hard_to_read_costs_no_more_than_its_limits(what: str, engine: str) -> None:
    settings = Settings(engine, seconds=0.8, memory=2**29)
    found = run(http(), http(LARGE[what]()), http(), settings=settings)
    first, hard, last = found.fate.to_pylist()
    assert hard in OUTCOMES
    assert (first, last) == (None, None)
    assert found.text[0] == found.text[2]
    assert found.seconds < 2


@both_engines
def test_a_table_of_a_million_rows_is_dropped_alone(engine: str) -> None:
    """Either engine takes far more than the default limit for it (adbar/trafilatura#704)."""
    found = run(http(), http(LARGE["a million rows"]()), http(), settings=Settings(engine, seconds=0.5))
    assert found.fate.to_pylist() == [None, "extraction.timeout", None]


# ---------------------------------------------------------------- the same text wherever and whenever


@both_engines
def test_a_page_gives_the_same_text_wherever_and_whenever_it_is_read(shared: Path, engine: str) -> None:
    """Three times in a batch, in another order, in another child and in another parent."""
    pages = [page.html for page in articles(shared / "html" / "articles")[:12]]
    settings = Settings(engine)
    repeated = run(*pages * 3, kind="text/html", settings=settings).text.to_pylist()
    texts = repeated[: len(pages)]
    assert repeated == texts * 3
    backwards = run(*pages[::-1], kind="text/html", settings=settings).text.to_pylist()
    assert backwards[::-1] == texts
    isolation.close()
    assert run(pages[5], kind="text/html", settings=settings).text.to_pylist() == [texts[5]]
    code = f"""
import sys
from jobs.pages import isolation
from jobs.pages.page import Settings
settings = Settings({engine!r}, 5.0, {settings.memory}, {settings.body}, False)
sys.stdout.buffer.write(isolation.extract([(sys.stdin.buffer.read(), "text/html")], settings)[0].text)
"""
    other = subprocess.run(
        [sys.executable, "-c", code], input=pages[5], capture_output=True, cwd=ROOT, check=True
    )
    assert other.stdout.decode() == texts[5]


# ---------------------------------------------------------------- text that needs no engine

ODD_TEXT = [b"\xef\xbb\xbfmark", b"%PDF-1.4", b"GIF89a", b" \x1c\x85 ", b"a\0b", b"\xff\xfea\0"]
KINDS = ["text/plain", "text/plain; charset=UTF-8", "text/plain;charset=koi8-r", "text/html", None]
CONTENT = st.one_of(
    st.none(), st.binary(max_size=20), st.text(max_size=20).map(str.encode), st.sampled_from(ODD_TEXT)
)


@given(st.lists(st.tuples(CONTENT, st.sampled_from(KINDS)), max_size=8))
@example(
    [
        ("é".encode() * 20, "text/plain"),
        (b"", "text/plain"),
        (b"<p>x", "text/html"),
        (b"x" * 30, "text/plain"),
    ]
)
@hypothesis_settings(deadline=None, max_examples=60)
def test_plain_text_comes_out_as_a_child_would_give_it(
    records: list[tuple[bytes | None, str | None]],
) -> None:
    settings = Settings(body=25)
    found = run(*(content for content, _ in records), kind=[kind for _, kind in records], settings=settings)
    pages = [(content or b"", kind) for content, kind in records]
    by_child = isolation.extract(pages, PageSettings("resiliparse", 5, settings.memory, 25, False))
    assert found.text.to_pylist() == [result.text.decode() for result in by_child]
    assert found.fate.to_pylist() == [result.fate for result in by_child]


def test_plain_text_in_utf_8_needs_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "Child", None)
    found = run("Eins", "Zwei\r\nDrei", kind="text/plain")
    assert found.text.to_pylist() == ["Eins", "Zwei\r\nDrei"]
    assert found.pages == {None: 2}


def test_slices_of_arrays() -> None:
    content = pa.array([PAGE.encode(), b"one", b"two", PAGE.encode()], pa.large_binary())
    kinds = pa.array(["text/html", "text/plain", "text/plain", "text/html"], pa.large_string())
    whole = extract(content, kinds, Settings())
    for start, length in ((1, 2), (2, 2), (3, 1), (1, 0)):
        part = extract(content.slice(start, length), kinds.slice(start, length), Settings())
        assert part.text.to_pylist() == whole.text.slice(start, length).to_pylist()
        assert part.bytes_in == sum(map(len, content.slice(start, length).to_pylist()))


# ---------------------------------------------------------------- PDF


def pdf(*pages: str) -> bytes:
    """A document with a line of Latin text on each page, as plain as PDF can be."""
    kids = " ".join(f"{4 + 2 * i} 0 R" for i in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for i, text in enumerate(pages):
        stream = f"BT /F1 12 Tf 50 700 Td ({text}) Tj ET"
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * i} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>",
            f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        ]
    body = "".join(f"{number} 0 obj\n{text}\nendobj\n" for number, text in enumerate(objects, 1))
    return f"%PDF-1.4\n{body}trailer\n<< /Root 1 0 R /Size {len(objects) + 1} >>\n%%EOF\n".encode()


def test_pdf_documents_where_wanted() -> None:
    document, wanted = pdf("Hello there", "Second page"), Settings(pdf=True)
    found = run(http(document, kind="application/pdf"), http(document, kind=None), settings=wanted)
    assert found.text.to_pylist() == ["Hello there\n\nSecond page"] * 2
    plain = fates(b"%PDF-1.4 broken", document, pdf(""), kind="application/pdf", settings=wanted)
    assert plain == ["extraction.error", None, "extraction.no_text"]


def test_pdf_documents_need_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="pypdfium2 is not installed"):
        run(http(), settings=Settings(pdf=True))


# ---------------------------------------------------------------- real crawls


def responses(path: Path) -> list[bytes]:
    with path.open("rb") as file:
        records = ArchiveIterator(file, record_types=WarcRecordType.response, parse_http=False)
        return [record.reader.read() for record in records]


@both_engines
def test_one_page_in_several_encodings_gives_one_text(shared: Path, engine: str) -> None:
    folder = shared / "warc" / "solrwayback_encodings"
    names = [
        f"transfer_compression_{kind}.warc{gz}" for kind in ("none", "gzip", "brotli") for gz in ("", ".gz")
    ]
    found = run(*(responses(folder / name)[0] for name in names), settings=Settings(engine))
    assert found.fate.null_count == len(names)
    (text,) = set(found.text.to_pylist())
    assert "Extremely simple webpage used for testing GZip and Brotli transmission compression." in text


def test_a_page_that_came_in_chunks_of_gzip(shared: Path) -> None:
    folder = shared / "warc" / "solrwayback_encodings"
    found = run(*responses(folder / "transfer_compression_gzip_chunked.warc.gz"))
    assert "Országos Széchényi Könyvtár" in found.text[0].as_py()


@both_engines
def test_real_crawled_pages(shared: Path, engine: str) -> None:
    pages = [
        page for path in sorted((shared / "warc" / "dolma").glob("*.warc.gz")) for page in responses(path)
    ]
    assert len(pages) == 37
    found = run(*pages, settings=Settings(engine))
    assert set(found.pages) <= {None, "extraction.no_text"}
    assert found.fate.null_count >= 30


def test_real_pdf_documents(shared: Path) -> None:
    pages = responses(shared / "warc" / "aut_heritrix" / "example.pdf.warc.gz")
    documents = [page for page in pages if b"%PDF-" in page[:4096]]
    found = run(*documents, settings=Settings(pdf=True))
    assert len(documents) == found.fate.null_count > 0
    assert all(len(text) > 100 for text in found.text.to_pylist())


@both_engines
def test_quality_is_that_of_the_engine(shared: Path, engine: str) -> None:
    """Precision, recall and F1 over 4-grams of the article extraction benchmark, on every sixth page."""
    pages = articles(shared / "html" / "articles")[::6]
    found = run(*(page.html for page in pages), kind="text/html", settings=Settings(engine)).text.to_pylist()
    extractor = engines.load(engine)
    alone = [extractor(page.html.decode()) or "" for page in pages]
    true = [page.text for page in pages]
    ours, theirs = quality(zip(true, found, strict=True)), quality(zip(true, alone, strict=True))
    assert all(ours[score] >= theirs[score] for score in theirs)
    assert ours["F1"] > 0.85


def test_the_measure_of_quality_is_the_benchmarks(shared: Path) -> None:
    """What its `evaluate.py` makes of the text that it published for trafilatura 2.0 (its README)."""
    folder = shared / "html" / "articles"
    published = json.loads((folder / "output" / "trafilatura.json").read_text())["output"]
    scores = quality((page.text, published[page.name]["articleBody"]) for page in articles(folder))
    assert {name: round(score, 3) for name, score in scores.items()} == {
        "F1": 0.958,
        "precision": 0.938,
        "recall": 0.978,
    }
