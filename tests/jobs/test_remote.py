"""Sources in a bucket: what is listed, read and noticed, here and on workers."""

import gzip
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs import sources
from jobs.errors import UserError
from jobs.runtime.cluster import connected
from jobs.sources import storage
from tests.conftest import digests, run_job
from tests.jobs.test_sources import Settings, numbered, read_all, read_records, records_of, texts_of, write
from tests.servers import S3Server, files_server, s3_server


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


def lines(texts: list[str | None]) -> bytes:
    return b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts)


@pytest.fixture
def prefix(s3: S3Server, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A prefix of the test's own with Parquet at two levels, and what is passed over."""
    write(tmp_path / "b.parquet", numbered(30), row_group=10, url=pa.array(["http://x"] * 30))
    write(tmp_path / "sub" / "a.parquet", numbered(5))
    for name in ("_SUCCESS", "sub/.a.parquet.crc", "_temporary/0/c.parquet", "notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"-")
    (tmp_path / "empty.parquet").touch()
    return s3.upload(tmp_path, request.node.name.replace("[", "-").strip("]"))


def test_a_prefix_is_listed_as_a_folder_is(s3, prefix, tmp_path):
    remote, local = (storage.locate(path).listing((".parquet",)) for path in (prefix, str(tmp_path)))
    assert [(entry.path, entry.size) for entry in remote.entries] == [
        (entry.path, entry.size) for entry in local.entries
    ]
    assert remote.skipped == local.skipped
    assert [entry.path for entry in remote.entries] == ["b.parquet", "sub/a.parquet"]


def test_the_version_is_the_entity_tag(s3, prefix):
    place = storage.locate(prefix)
    (entry, _) = place.listing((".parquet",)).entries
    assert entry.version == s3.system.info(f"{prefix}/b.parquet")["ETag"]
    assert entry == place.stat("b.parquet")


def test_listing_does_not_ask_for_each_object(s3, prefix):
    s3.reset()
    assert len(storage.locate(prefix).listing((".parquet",)).entries) == 2
    assert len(s3.requests) <= 3
    s3.system.pipe_file(f"{prefix}/c.parquet", b"later")
    assert len(storage.locate(prefix).listing((".parquet",)).entries) == 3


@pytest.mark.parametrize(
    ("below", "paths"),
    [
        ("", ["b.parquet", "sub/a.parquet"]),
        ("/", ["b.parquet", "sub/a.parquet"]),
        ("/b.parquet", ["b.parquet"]),
        ("/*/*.parquet", ["sub/a.parquet"]),
    ],
    ids=["prefix", "slash", "object", "glob"],
)
def test_parquet(prefix, below, paths):
    source = Settings(f"{prefix}{below}")
    assert [file.path for file in sources.list_files(source).files] == paths
    texts = [text for path in paths for text in numbered(30 if path == "b.parquet" else 5)]
    for split_bytes in (1, 2**25):
        assert texts_of(read_all(source, split_bytes)) == texts
    assert read_records(source, paths[0], [3, 0]) == [numbered(30)[3], numbered(30)[0]]


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz"])
def test_jsonl(s3, suffix):
    content = lines(numbered(500))
    s3.system.pipe_file(
        f"{s3.bucket}/lines/a.{suffix}", gzip.compress(content) if "gz" in suffix else content
    )
    source = Settings(f"{s3.url}/lines/*.{suffix}", format="jsonl")
    for split_bytes in (2000, 2**25):
        found = read_all(source, split_bytes)
        assert texts_of(found) == numbered(500)
        assert records_of(found) == list(range(500))


def test_warc(s3, shared):
    if "warc" not in sources.FORMATS:
        pytest.skip("this version has no WARC reader")
    path = min((shared / "commoncrawl").glob("*.warc.gz"), key=lambda path: path.stat().st_size)
    s3.system.pipe_file(f"{s3.bucket}/crawl/{path.name}", path.read_bytes())
    remote, local = (Settings(at, format="warc") for at in (f"{s3.url}/crawl", str(path)))
    there, here = read_all(remote), read_all(local)
    assert records_of(there) == records_of(here)
    assert [batch.content for batch in there] == [batch.content for batch in here]


def test_a_changed_object_is_noticed(s3, prefix):
    """Of the same size, so that only its tag tells."""
    source = Settings(prefix)
    splits = sources.splits(sources.list_files(source), 1)
    whole = s3.system.cat_file(f"{prefix}/b.parquet")
    s3.system.pipe_file(f"{prefix}/b.parquet", whole.replace(b"http://x", b"http://y"))
    with pytest.raises(UserError, match=r"b\.parquet has changed since the run began"):
        list(sources.read(source, splits[0]))
    assert texts_of(list(sources.read(source, splits[-1]))) == numbered(5)
    s3.system.rm(f"{prefix}/b.parquet")
    with pytest.raises(UserError, match=r"b\.parquet is gone since the run began"):
        list(sources.read(source, splits[0]))


def test_a_row_group_is_read_without_the_others(s3, tmp_path):
    """A worker reads its split and not the object, and nothing twice although columns are read in turn."""
    path = tmp_path / "wide" / "a.parquet"
    path.parent.mkdir()
    texts = [random.Random(i).randbytes(20_000).hex() for i in range(500)]
    table = pa.table({"text": texts, "id": texts, "url": texts})
    pq.write_table(table, path, row_group_size=50, compression="none", use_dictionary=False)
    source = Settings(s3.upload(path.parent, "wide"))
    splits = sources.splits(sources.list_files(source), 1)
    assert len(splits) == 10
    s3.reset()
    (batch, *_) = found = list(sources.read(source, splits[5]))
    assert batch.columns["url"][0].as_py() == texts[250]
    assert texts_of(found) == texts[250:300]
    row_group = path.stat().st_size / 10
    assert row_group < s3.served < row_group + 3 * 2 * 2**20  # blocks at both ends, and the footer's


@pytest.mark.parametrize("where", ["no-such-bucket-here", "no-such-bucket-here/data/*.parquet"])
def test_a_bucket_that_is_not_there(s3, where):
    with pytest.raises(UserError, match=rf"s3://{where.replace('*', '[*]')}"):
        sources.list_files(Settings(f"s3://{where}"))


def test_workers_reach_the_bucket_by_the_environment(s3, prefix):
    """A LocalCluster's processes inherit it; nothing of the configuration is passed along."""
    source = Settings(prefix)
    splits = sources.splits(sources.list_files(source), 1)

    def task(source: Settings, split: sources.Split) -> tuple[int, list[str | None]]:
        texts = [text for batch in sources.read(source, split) for text in batch.text.to_pylist()]
        return os.getpid(), texts

    with connected(workers=1) as client:
        found = client.gather(client.map(task, [source] * len(splits), splits))
    assert [text for _, texts in found for text in texts] == numbered(30) + numbered(5)
    assert {pid for pid, _ in found}.isdisjoint({os.getpid()})


def test_the_main_job_reads_a_bucket(s3, corpus, finished, cluster, tmp_path):
    """To the same bytes as from a folder."""
    from distributed import Client

    def lead(environment: dict[str, str]) -> None:
        os.environ.update(environment)

    with Client(cluster) as client:
        client.run(lead, s3.environment)
    assert run_job(s3.upload(corpus, "corpus"), tmp_path / "out", cluster) == 0
    assert digests(tmp_path / "out", "shards", "ledger") == digests(finished, "shards", "ledger")


# ---------------------------------------------------------------- what fsspec's HTTP calls "not found"


def test_an_http_server_that_is_down_is_not_an_absent_file(tmp_path):
    pytest.importorskip("aiohttp", reason="https needs the extra `remote`")
    path = write(tmp_path / "a.parquet", numbered(3))
    with files_server(tmp_path) as server:
        source = Settings(f"{server.url}/a.parquet")
        (split,) = sources.splits(sources.list_files(source))
        with pytest.raises(UserError, match=r"^there is nothing at http.*/b\.parquet$"):
            sources.list_files(Settings(f"{server.url}/b.parquet"))
        assert texts_of(list(sources.read(source, split))) == numbered(3)
        server.status = 403
        path.unlink()  # so that the HEAD fails too, and the answer to the GET is what counts
        with pytest.raises(UserError, match=r"/a\.parquet cannot be read: the server answers 403 Forbidden$"):
            sources.list_files(source)
    for attempt in (lambda: sources.list_files(source), lambda: list(sources.read(source, split))):
        with pytest.raises(UserError, match=r"/a\.parquet cannot be reached: Cannot connect to host"):
            attempt()
