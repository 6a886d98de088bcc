"""The main job on a web archive of thousands of real pages: all of them accounted for, by any split, on all workers."""

import subprocess
from collections import defaultdict
from io import BytesIO
from pathlib import Path

import pytest
from distributed import Client, get_task_stream
from warcio.archiveiterator import ArchiveIterator
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from jobs import ledger
from jobs.run import main
from tests.conftest import digests, settings

# Documentation with pages in a dozen languages and character sets, and one with long pages; 7 MB to download.
PACKAGES = ("apache2-doc", "postgresql-doc-15")
PAGES = 2_500


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Path and content of the shortest HTML pages of some Debian packages."""
    folder = tmp_path_factory.mktemp("packages")
    try:
        subprocess.run(
            ["apt-get", "download", *PACKAGES], cwd=folder, check=True, capture_output=True, timeout=120
        )
        for package in folder.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, folder], check=True, capture_output=True, timeout=120)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"needs apt-get, and its packages {' and '.join(PACKAGES)}: {error}")
    sizes = {path: path.stat().st_size for path in sorted(folder.rglob("*.html*")) if path.is_file()}
    shortest = sorted(sizes, key=lambda path: sizes[path])[:PAGES]
    return {str(path.relative_to(folder)): path.read_bytes() for path in shortest}


@pytest.fixture(scope="module")
def archive(pages: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file, gzip by record, with a request and metadata beside each page."""
    path = tmp_path_factory.mktemp("crawl") / "CC-MAIN-2024-22.warc.gz"
    with path.open("wb") as file:
        writer = WARCWriter(file, gzip=True)
        writer.write_record(writer.create_warcinfo_record(path.name, {"software": "shardmill's tests"}))
        for name, content in pages.items():
            url, head = f"https://example.org/{name}", [("Content-Type", "text/html")]
            response = StatusAndHeaders("200 OK", head, protocol="HTTP/1.1")
            record = writer.create_warc_record(
                url, "response", payload=BytesIO(content), http_headers=response
            )
            request = StatusAndHeaders("GET / HTTP/1.1", [("Host", "example.org")], is_http_request=True)
            asked = writer.create_warc_record(url, "request", http_headers=request)
            writer.write_request_response_pair(asked, record)
    return path


def run(archive: Path, out: Path, cluster: str, *extra: str, options: tuple[str, ...] = ()) -> int:
    source = f"sources=[{{name: crawl, format: warc, path: '{archive}', extra: {{date: string}}}}]"
    quick = ("extraction.engine=resiliparse", "language.enabled=true", "language.keep=[en, de, fr, ja]")
    chosen = [word for setting in (source, *quick, *extra) for word in ("--set", setting)]
    where = ("--output", str(out), "--scheduler", cluster)
    return main(["--config", "common-crawl", *settings(None), *chosen, *where, *options])


@pytest.fixture(scope="module")
def finished(
    archive: Path, cluster: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, float]]:
    """A run's output, and for each worker the seconds that it spent on annotating."""
    out = tmp_path_factory.mktemp("archive-run") / "out"
    with Client(cluster) as client, get_task_stream(client) as stream:
        assert run(archive, out, cluster, "splits.bytes=2 MiB") == 0
    busy: dict[str, float] = defaultdict(float)
    for task in stream.data:
        if "annotate" in str(task["key"]):
            busy[task["worker"]] += sum(span["stop"] - span["start"] for span in task["startstops"])
    return out, busy


def test_every_record_is_in_the_ledger_once(finished, archive, pages):
    out, _ = finished
    rows = ledger.read(out).compute().sort_values("record")
    with archive.open("rb") as file:
        urls = [r.rec_headers["WARC-Target-URI"] for r in ArchiveIterator(file) if r.rec_type == "response"]
    assert len(urls) == len(pages) == PAGES
    assert rows["record"].tolist() == list(range(len(urls)))
    assert rows["url"].tolist() == urls
    assert rows["date"].notna().all()
    assert set(rows["crawl"]) == {"CC-MAIN-2024-22"}
    assert {"language.keep", "near_duplicate", "train", "validation"} <= set(rows["fate"])
    assert rows["language"].nunique() > 5


def test_both_workers_are_busy_on_one_file(finished):
    _, busy = finished
    assert len(busy) == 2
    assert min(busy.values()) > 0.25 * sum(busy.values())


@pytest.mark.parametrize("size", ["300 KB", "1 GiB"])
def test_any_split_gives_the_same_bytes(finished, archive, cluster, tmp_path, size):
    out, _ = finished
    assert run(archive, tmp_path / "out", cluster, f"splits.bytes={size}", options=("--until", "ledger")) == 0
    assert digests(tmp_path / "out", "ledger", "shards") == digests(out, "ledger", "shards")
