"""Reading: files in, batches of Arrow out, in MB/s of what the files hold once decompressed.

WARC as a crawler writes it, gzip by record: the 181 pages of the article extraction benchmark (real HTML, 174 KB on
average), or without them the first corpus as small pages; with a request before each. WET: that corpus as conversion
records. JSON lines in one Zstandard frame, and Parquet: that corpus. `read` is timed over all splits, and for archives
the scan that finds the blocks by itself. In turns with them on the same files, each tool reading every record:

`fastwarc`, `warcio`
    Iterating, HTTP not parsed, content read.
`json loop`
    zstandard's stream reader and `json.loads` on each line.
`pyarrow`
    `iter_batches` of the same columns, one thread.
`datatrove`
    `WarcReader`, which also tells media types and decodes, and `JsonlReader`; where what they need is installed in
    the other tools' environment.
"""

import gzip
import io
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import zstandard
from fastwarc.warc import ArchiveIterator as FastIterator
from warcio.archiveiterator import ArchiveIterator
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from jobs import sources
from jobs.config import Source
from tests.benchmarks.corpora import ROOT, SHARED, SPLIT_BYTES, Corpus, corpora
from tests.benchmarks.measure import RUNS, Result, seconds
from tests.benchmarks.referees import PYTHON

Tools = dict[str, Callable[[], object]]
RESPONSE = StatusAndHeaders("200 OK", [("Content-Type", "text/html")], protocol="HTTP/1.1")
REQUEST = StatusAndHeaders("GET / HTTP/1.1", [("Host", "example.org")], is_http_request=True)


# ---------------------------------------------------------------- files


def html_pages(text: pa.LargeStringArray) -> Iterator[bytes]:
    folder = SHARED / "html" / "articles" / "html"
    if folder.is_dir():
        yield from (gzip.decompress(path.read_bytes()) for path in sorted(folder.glob("*.html.gz")))
    else:
        yield from (f"<html><body><p>{one}</p></body></html>".encode() for one in text.to_pylist())


def write_warc(path: Path, text: pa.LargeStringArray) -> None:
    with path.open("wb") as file:
        writer = WARCWriter(file, gzip=True)
        writer.write_record(writer.create_warcinfo_record(path.name, {"isPartOf": "CC-MAIN-2024-22"}))
        for i, page in enumerate(html_pages(text)):
            url = f"http://example.org/{i}"
            for kind, headers, body in (("request", REQUEST, b""), ("response", RESPONSE, page)):
                writer.write_record(
                    writer.create_warc_record(url, kind, io.BytesIO(body), http_headers=headers)
                )


def write_wet(path: Path, text: pa.LargeStringArray) -> None:
    with path.open("wb") as file:
        writer = WARCWriter(file, gzip=True)
        for i, one in enumerate(text.to_pylist()):
            url, payload = f"http://example.org/{i}", io.BytesIO(one.encode())
            writer.write_record(
                writer.create_warc_record(url, "conversion", payload, warc_content_type="text/plain")
            )


def write_jsonl(path: Path, text: pa.LargeStringArray) -> None:
    with zstandard.open(path, "wt", encoding="utf-8") as file:
        for i, one in enumerate(text.to_pylist()):
            file.write(json.dumps({"id": str(i), "text": one}) + "\n")


# ---------------------------------------------------------------- ours


def source_of(path: Path, kind: str) -> Source:
    return Source(name="benchmark", path=str(path), format=kind)


def read(source: Source, splits: Sequence[sources.Split]) -> None:
    for split in splits:
        for _ in sources.read(source, split, ("id", "url", "crawl")):
            pass


# ---------------------------------------------------------------- the other tools


def with_fastwarc(path: Path) -> None:
    with path.open("rb") as file:
        for record in FastIterator(file, parse_http=False):
            record.reader.read()


def with_warcio(path: Path) -> None:
    with path.open("rb") as file:
        for record in ArchiveIterator(file, no_record_parse=True):
            record.raw_stream.read()


def with_json_loop(path: Path) -> None:
    with zstandard.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            json.loads(line)


def with_pyarrow(paths: Sequence[Path]) -> None:
    for path in paths:
        for _ in pq.ParquetFile(path).iter_batches(columns=["text", "id"], use_threads=False):
            pass


def with_datatrove(reader: str, path: Path) -> float | None:
    """Seconds that datatrove's reader takes in its own environment; None where it cannot run."""
    command = [PYTHON, "-m", "tests.benchmarks.other_readers", reader, path]
    if not PYTHON.exists():
        return None
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return float(process.stdout) if process.returncode == 0 else None


# ---------------------------------------------------------------- measuring


def megabytes(path: Path) -> float:
    opened = zstandard.open if path.suffix == ".zst" else gzip.open
    with opened(path, "rb") as file:
        return sum(map(len, iter(lambda: file.read(2**20), b""))) / 1e6


def turns(
    what: str,
    size: float,
    ours: Callable[[], object],
    tools: Tools,
    scan: Callable[[], object] | None = None,
    datatrove: Callable[[], float | None] = lambda: None,
) -> list[Result]:
    """Rates of ours and the others in turns: a line for each other tool, and one for the scan."""
    rates: dict[str, list[float]] = {}
    calls = {"": ours, **({"scan": scan} if scan else {}), **tools}
    for call in calls.values():
        call()
    for _ in range(RUNS):
        for name, call in calls.items():
            rates.setdefault(name, []).append(size / seconds(call))
        if (taken := datatrove()) is not None:
            rates.setdefault("datatrove", []).append(size / taken)
    first = next(iter(tools))
    lines = [
        Result(f"reading {what}", "MB/s", rates[""], tool, rates[tool])
        for tool in rates
        if tool not in ("", "scan")
    ]
    if scan:
        lines.append(Result(f"scanning {what}", "MB/s", rates["scan"], first, rates[first]))
    return lines


def measure_archive(path: Path, what: str) -> list[Result]:
    source = source_of(path, "warc")
    splits = sources.splits(sources.list_files(source), SPLIT_BYTES)
    return turns(
        what,
        megabytes(path),
        lambda: read(source, splits),
        {"fastwarc": lambda: with_fastwarc(path), "warcio": lambda: with_warcio(path)},
        scan=lambda: sources.list_files(source),
        datatrove=lambda: with_datatrove("warc", path),
    )


def measure_jsonl(path: Path) -> list[Result]:
    source = source_of(path, "jsonl")
    splits = sources.splits(sources.list_files(source), SPLIT_BYTES)
    return turns(
        "JSONL.zst",
        megabytes(path),
        lambda: read(source, splits),
        {"json loop": lambda: with_json_loop(path)},
        datatrove=lambda: with_datatrove("jsonl", path),
    )


def measure_parquet(corpus: Corpus, text: pa.LargeStringArray) -> list[Result]:
    splits, paths = corpus.splits(), sorted(corpus.folder.glob("*.parquet"))
    return turns(
        "Parquet",
        pc.sum(pc.binary_length(text)).as_py() / 1e6,
        lambda: read(corpus.source, splits),
        {"pyarrow": lambda: with_pyarrow(paths)},
    )


def measure() -> list[Result]:
    corpus = corpora()[0]
    text = corpus.text()
    with tempfile.TemporaryDirectory() as folder:
        archive, wet, lines = (Path(folder, name) for name in ("a.warc.gz", "b.wet.gz", "c.jsonl.zst"))
        write_warc(archive, text)
        write_wet(wet, text)
        write_jsonl(lines, text)
        return [
            *measure_archive(archive, "WARC"),
            *measure_archive(wet, "WET"),
            *measure_jsonl(lines),
            *measure_parquet(corpus, text),
        ]
