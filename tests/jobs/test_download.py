"""Samples by byte ranges, from servers on the loopback that count what they send and can be told to fail."""

import contextlib
import errno
import functools
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs import download, sources
from jobs.download import choice, footers, plan, ranges
from jobs.errors import UserError
from jobs.runtime import checkpoint, console
from jobs.sources import storage
from tests.conftest import ROOT, default_interrupt
from tests.jobs.test_sources import Settings
from tests.servers import FilesServer, S3Server, files_server, s3_server

FILES, GROUPS, ROWS = 3, 16, 30
CRAWLS_OF_A_FILE = 4


def write_data_set(folder: Path, files: int = FILES, groups: int = GROUPS, statistics: bool = True) -> Path:
    """Files sorted by crawl, as FineWeb-Edu's are: each holds 4 crawls of its own, each crawl some row groups."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(5)
    rows = groups * ROWS
    for i in range(files):
        table = pa.table(
            {
                "text": [random.bytes(900).hex() for _ in range(rows)],
                "id": [f"<urn:{i}:{row}>" for row in range(rows)],
                "dump": [
                    f"CC-{CRAWLS_OF_A_FILE * i + CRAWLS_OF_A_FILE * row // rows:04d}" for row in range(rows)
                ],
                "links": [[f"a{row}", "b"] for row in range(rows)],
                "score": random.random(rows),
            }
        )
        pq.write_table(
            table,
            folder / f"{i:03d}.parquet",
            row_group_size=ROWS,
            compression={"text": "zstd", "id": "snappy", "dump": "snappy", "score": "none"},
            use_dictionary=["dump"],
            write_statistics=statistics,
        )
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data_set(tmp_path_factory.mktemp("data"))


@pytest.fixture
def server(data: Path) -> Iterator[FilesServer]:
    pytest.importorskip("aiohttp", reason="https needs the extra `remote`")
    with files_server(data) as files:
        yield files


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "FIRST_WAIT", 0.001)


Download = Callable[..., SimpleNamespace]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Download:
    """The command in this process, with what it printed."""

    def run(*arguments: object) -> SimpleNamespace:
        status = download.main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return SimpleNamespace(status=status, out=printed.out, err=printed.err)

    return run


def urls(server: FilesServer, files: int = FILES) -> list[str]:
    return [f"{server.url}/{i:03d}.parquet" for i in range(files)]


def row_groups(
    path: Path, numbers: list[int] | None = None, columns: list[str] | None = None
) -> list[pa.Table]:
    file = pq.ParquetFile(path)
    wanted = range(file.num_row_groups) if numbers is None else numbers
    return [file.read_row_group(number, columns=columns) for number in wanted]


def content(out: Path) -> dict[str, bytes]:
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in sorted(out.rglob("*.parquet"))}


def footer_bytes(path: Path) -> int:
    return int.from_bytes(path.read_bytes()[-8:-4], "little") + 8


def stored_bytes(path: Path, numbers: range, columns: set[str]) -> int:
    metadata = pq.read_metadata(path)
    groups = [metadata.row_group(number) for number in numbers]
    chunks = [group.column(i) for group in groups for i in range(group.num_columns)]
    return sum(
        chunk.total_compressed_size for chunk in chunks if chunk.path_in_schema.split(".")[0] in columns
    )


ALL = {"text", "id", "dump", "links", "score"}


# ---------------------------------------------------------------- what is taken


@pytest.mark.parametrize(("every", "offset"), [(4, 0), (4, 3), (5, 1), (1, 0), (16, 15)])
def test_every_nth_row_group_of_every_file(run, server, data, tmp_path, every, offset):
    out = tmp_path / "out"
    done = run(*urls(server), "--every", every, "--offset", offset, "--output", out)
    assert done.status == 0, done.err
    for path in sorted(data.iterdir()):
        assert row_groups(out / path.name) == row_groups(path, list(range(offset, GROUPS, every)))
    assert not (out / ".download").exists()


def test_codecs_and_dictionaries_are_kept(run, server, data, tmp_path):
    assert run(*urls(server), "--every", 8, "--output", tmp_path / "out").status == 0
    ours = pq.read_metadata(tmp_path / "out" / "000.parquet").row_group(1)
    theirs = pq.read_metadata(data / "000.parquet").row_group(8)
    for i in range(theirs.num_columns):
        assert ours.column(i).compression == theirs.column(i).compression
        assert ("RLE_DICTIONARY" in ours.column(i).encodings) == (
            "RLE_DICTIONARY" in theirs.column(i).encodings
        )


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
def test_row_groups_are_kept_with_codec_schema_and_metadata(run, tmp_path, codec):
    """Also empty row groups, whose place among the others counts."""
    table = pa.table(
        {
            "text": ["words " * 20] * 5,
            "place": [{"x": 1, "y": None}] * 5,
            "dump": pa.array(["CC-1"] * 5).dictionary_encode(),
        },
        metadata={"huggingface": '{"info": {}}'},
    )
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "a.parquet"
    with pq.ParquetWriter(path, table.schema, compression=codec) as writer:
        for rows in (3, 1, 0, 5, 2):
            writer.write_table(table.slice(0, rows))
    assert run(tmp_path / "data", "--every", 2, "--output", tmp_path / "out").status == 0
    theirs, ours = pq.ParquetFile(path), pq.ParquetFile(tmp_path / "out" / "a.parquet")
    assert ours.schema_arrow.equals(theirs.schema_arrow, check_metadata=True)
    assert row_groups(tmp_path / "out" / "a.parquet") == row_groups(path, [0, 2, 4])
    column = theirs.metadata.row_group(0).column(0)
    assert ours.metadata.row_group(0).column(0).compression == column.compression


@pytest.mark.parametrize("columns", [("text", "dump"), ("id", "links"), ("score",)], ids=",".join)
def test_columns(run, server, data, tmp_path, columns):
    out = tmp_path / "out"
    done = run(*urls(server), "--every", 5, "--columns", ",".join(columns), "--output", out)
    assert done.status == 0, done.err
    assert row_groups(out / "002.parquet") == row_groups(data / "002.parquet", [0, 5, 10, 15], list(columns))
    absent = run(*urls(server), "--every", 5, "--columns", "text,words", "--output", tmp_path / "other")
    assert absent.status == 2
    assert "has no column 'words'; its columns are text, id, dump, links, score" in absent.err


def test_the_sample_is_a_source(run, server, tmp_path):
    assert run(*urls(server), "--every", 4, "--output", tmp_path / "out").status == 0
    source = Settings(str(tmp_path / "out"))
    assert sources.list_files(source).records == FILES * GROUPS // 4 * ROWS
    assert pq.read_table(tmp_path / "out").num_rows == FILES * GROUPS // 4 * ROWS


@settings(max_examples=300, deadline=None)
@given(
    files=st.lists(st.lists(st.integers(0, 50), min_size=0, max_size=12), min_size=1, max_size=6).filter(
        lambda files: any(files)
    ),
    target=st.integers(1, 1500),
)
def test_a_target_is_reached_with_evenly_spaced_row_groups(files, target):
    weights = [np.array(one, np.int64) for one in files]
    chosen = choice.spread(weights, target)
    flat = np.concatenate(weights)
    starts = np.cumsum([0, *map(len, files)])
    taken = [
        int(start) + number for start, numbers in zip(starts, chosen, strict=False) for number in numbers
    ]
    assert taken == sorted(set(taken))
    assert all(
        0 <= number < len(one) for one, numbers in zip(files, chosen, strict=True) for number in numbers
    )
    assert flat[taken].sum() >= target or len(taken) == len(flat)
    gaps = np.diff(taken)
    assert len(gaps) == 0 or gaps.max() - gaps.min() <= 1
    if len(taken) > 1:  # one row group fewer, spaced as evenly, would not do
        fewer = [int((2 * i + 1) * len(flat) / (2 * (len(taken) - 1))) for i in range(len(taken) - 1)]
        assert flat[fewer].sum() < target


@pytest.mark.parametrize(
    "target", [["--documents", "400"], ["--bytes", "500KB"]], ids=lambda target: target[0]
)
def test_targets(run, server, data, tmp_path, target):
    out = tmp_path / "out"
    assert run(*urls(server), *target, "--output", out).status == 0
    metadata = [pq.read_metadata(path) for path in sorted(out.glob("*.parquet"))]
    assert len(metadata) == FILES
    groups = sum(one.num_row_groups for one in metadata)
    if target[0] == "--documents":
        assert groups == 14  # of 30 documents each
    else:
        a_group = stored_bytes(data / "000.parquet", range(1), ALL)
        assert (groups - 1.1) * a_group < 500_000 < (groups + 0.1) * a_group


def test_a_target_beyond_the_data_set(run, server, tmp_path):
    done = run(*urls(server), "--documents", 10**6, "--output", tmp_path / "out")
    assert done.status == 0
    assert "warning: the whole data set holds less than --documents 1000000; all of it is taken" in done.out
    assert f"{FILES * GROUPS * ROWS:,} documents" in done.out


def test_files_of_few_row_groups(run, data, tmp_path):
    write_data_set(tmp_path / "small", files=8, groups=1)
    done = run(tmp_path / "small", "--every", 4, "--output", tmp_path / "all")
    assert done.status == 0
    assert "warning: files of fewer than 4 row groups give one each, so the sample is 8 of 8" in done.out
    assert run(tmp_path / "small", "--documents", 2 * ROWS, "--output", tmp_path / "two").status == 0
    assert sorted(content(tmp_path / "two")) == ["002.parquet", "006.parquet"]
    none = run(tmp_path / "small", "--every", 4, "--offset", 2, "--output", tmp_path / "none")
    assert none.status == 2
    assert "no file has so many row groups; the largest has 1" in none.err


# ---------------------------------------------------------------- crawls


def crawls_of_first_files(data: Path, out: Path) -> tuple[int, int]:
    """Slowly: crawls in the sample, and in row groups from the beginning with as many bytes in them."""
    budget = json.loads((out / "_manifest.json").read_text())["figures"]["n_bytes"]
    sample = {crawl for path in out.glob("*.parquet") for crawl in pq.read_table(path)["dump"].to_pylist()}
    first: set[str] = set()
    for path in sorted(data.glob("*.parquet")):
        for number in range(pq.read_metadata(path).num_row_groups):
            if budget > 0:
                first |= set(pq.ParquetFile(path).read_row_group(number)["dump"].to_pylist())
                budget -= stored_bytes(path, range(number, number + 1), ALL)
    return len(sample), len(first)


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("groups", [16, 3])
def test_crawls_against_the_first_files(run, tmp_path, monkeypatch, statistics, groups):
    """With 3 row groups of 4 crawls in a file, none has one crawl only."""
    monkeypatch.setattr("jobs.download.crawls.COST", 0.1)  # the row groups here are tiny
    data, out = write_data_set(tmp_path / "data", groups=groups, statistics=statistics), tmp_path / "out"
    with files_server(data) as server:
        done = run(*urls(server), "--every", 3, "--output", out)
    sample, first = crawls_of_first_files(data, out)
    assert first < sample
    files = json.loads((out / "_manifest.json").read_text())["plan"]["first_files"]["files"]
    named = "the first file" if files == 1 else f"the first {files} files"
    assert f"crawls: {sample} in the sample, {first} in as many bytes from {named}\n" in done.out


def test_crawls_that_would_cost_too_much_to_count(run, tmp_path, monkeypatch):
    monkeypatch.setattr("jobs.download.crawls.COST", 0)
    data, out = write_data_set(tmp_path / "data", groups=3), tmp_path / "out"
    with files_server(data) as server:
        done = run(*urls(server), "--every", 3, "--output", out)
    sample, first = crawls_of_first_files(data, out)
    assert f"crawls: {sample} in the sample, at least " in done.out
    said = json.loads((out / "_manifest.json").read_text())["plan"]["first_files"]
    assert not said["exact"]
    assert said["crawls"] <= first


def test_no_crawl_column(run, server, tmp_path):
    done = run(*urls(server), "--every", 4, "--crawl", "snapshot", "--output", tmp_path / "out")
    assert "crawls not counted: no column 'snapshot' names them (tell which with --crawl)" in done.out
    left_out = run(*urls(server), "--every", 4, "--columns", "text", "--output", tmp_path / "text")
    assert "crawls not counted: no column 'dump' names them" in left_out.out
    a_list = run(*urls(server), "--every", 4, "--crawl", "links", "--output", tmp_path / "links")
    assert (a_list.status, a_list.err) == (0, "")
    assert "crawls not counted: no column 'links' names them" in a_list.out


# ---------------------------------------------------------------- bytes


@pytest.mark.parametrize("columns", [None, {"text", "dump"}, {"id", "score"}])
def test_only_the_wanted_bytes_are_fetched(run, server, data, tmp_path, columns):
    chosen = ["--columns", ",".join(sorted(columns))] if columns else []
    done = run(*urls(server), "--every", 4, *chosen, "--output", tmp_path / "out")
    assert done.status == 0
    paths = sorted(data.iterdir())
    wanted = sum(stored_bytes(path, range(0, GROUPS, 4), columns or ALL) for path in paths)
    overhead = sum(map(footer_bytes, paths))
    assert wanted + overhead <= server.served < 1.05 * wanted + overhead
    assert f"fetched {server.served / 1e6:,.1f} MB in {len(server.requests)} requests" in done.out


def test_a_long_tail_is_guessed_and_the_rest_fetched_once(data, monkeypatch):
    whole = (data / "000.parquet").read_bytes()
    for share in (1, 10, 10**6):  # the guess is longer than the footer, shorter, and the least possible
        monkeypatch.setattr(footers, "GUESS_SHARE", share)
        fetcher = ranges.Fetcher(retries=0)
        _, footer = footers.fetch(fetcher, ranges.place(str(data / "000.parquet")))
        assert footer == whole[-footer_bytes(data / "000.parquet") :]
        guess = max(8, min(footers.GUESS, len(whole) // share))
        assert fetcher.n_bytes == 4 + max(guess, len(footer))


@settings(max_examples=200, deadline=None)
@given(
    pieces=st.dictionaries(st.integers(0, 60), st.binary(max_size=20), max_size=4),
    start=st.integers(0, 90),
    length=st.integers(0, 90),
)
def test_a_file_of_pieces(pieces, start, length):
    size, whole = 80, bytearray(80)
    for offset, piece in pieces.items():
        whole[offset : offset + len(piece)] = piece
    file = footers.Pieces(size, pieces)
    file.seek(start)
    assert file.read(length) == bytes(whole[start : start + length])
    assert file.tell() == (start if start >= size else min(start + length, size))


def test_pieces_of_a_large_row_group(run, server, tmp_path, monkeypatch):
    assert run(*urls(server), "--every", 4, "--output", tmp_path / "whole").status == 0
    requests = len(server.requests)
    monkeypatch.setattr(ranges, "PIECE", 5000)
    server.reset()
    assert run(*urls(server), "--every", 4, "--output", tmp_path / "pieces").status == 0
    assert len(server.requests) > 2 * requests
    assert content(tmp_path / "pieces") == content(tmp_path / "whole")


# ---------------------------------------------------------------- servers that misbehave


@pytest.fixture
def expected(run, data, tmp_path) -> dict[str, bytes]:
    """The sample by one connection from local files."""
    out = tmp_path / "expected"
    assert run(data, "--every", 4, "--connections", 1, "--output", out).status == 0
    return content(out)


@pytest.mark.parametrize("connections", [1, 8])
def test_every_third_request_fails(run, server, tmp_path, expected, connections):
    server.fail_every = 3
    done = run(*urls(server), "--every", 4, "--connections", connections, "--output", tmp_path / "out")
    assert done.status == 0, done.err
    assert f" requests; {len(server.requests) // 3} more failed and were repeated\n" in done.out
    assert content(tmp_path / "out") == expected


def test_every_third_body_ends_half_way(run, server, tmp_path, expected):
    server.cut_every = 3
    done = run(*urls(server), "--every", 4, "--output", tmp_path / "out")
    assert done.status == 0, done.err
    assert content(tmp_path / "out") == expected


def test_a_server_that_always_fails(run, server, tmp_path):
    server.fail_every = 1
    done = run(urls(server)[0], "--every", 4, "--retries", 2, "--output", tmp_path / "out")
    assert done.status == 2
    assert "000.parquet cannot be fetched: the server answers 503 Service Unavailable" in done.err
    assert "given up after 3 attempts" in done.err
    assert len(server.requests) == 3


@pytest.mark.parametrize("connections", [1, 3])
def test_so_many_requests_at_a_time_and_no_more(run, server, tmp_path, connections):
    server.before = lambda number: time.sleep(0.01)
    done = run(*urls(server), "--every", 2, "--connections", connections, "--output", tmp_path / "out")
    assert done.status == 0
    assert server.most_at_a_time == connections


def test_waits_double_and_the_servers_wish_is_heard(monkeypatch):
    waits: list[float] = []
    fetcher = ranges.Fetcher(retries=8)
    monkeypatch.setattr(ranges, "FIRST_WAIT", 0.5)
    monkeypatch.setattr(fetcher.stopped, "wait", waits.append)
    wishes = iter([0.0, 0.0, 7.0, 0.0, 0.0, 0.0, 0.0, 900.0, 0.0])

    def fails(start: int, stop: int, stopped: threading.Event) -> tuple[bytes, ranges.Identity]:
        raise ranges.PassingError("busy", next(wishes))

    with pytest.raises(UserError, match=r"^there cannot be fetched: busy \(given up after 9 attempts\)$"):
        fetcher.identify(SimpleNamespace(url="there", fetch=fails))
    assert waits == [0.5, 1, 7, 4, 8, 16, 32, 60]


def test_retry_after_is_read_from_the_answer(server, monkeypatch):
    server.status, server.retry_after = 429, 11
    with pytest.raises(ranges.PassingError, match="429 Too Many Requests") as raised:
        ranges.place(urls(server)[0]).fetch(0, 4, threading.Event())
    assert raised.value.after == 11


def test_a_server_that_ignores_ranges_is_refused_and_not_read(run, tmp_path):
    (tmp_path / "data").mkdir()
    with (tmp_path / "data" / "000.parquet").open("wb") as file:
        file.truncate(2**28)
    with files_server(tmp_path / "data") as server:
        server.ignore_ranges = True
        done = run(urls(server)[0], "--every", 4, "--output", tmp_path / "out")
    assert done.status == 2
    assert "000.parquet: the server ignores byte ranges and answers with the whole file" in done.err
    assert "Traceback" not in done.err
    assert len(server.requests) == 1
    assert server.served < 2**25  # what the sockets' buffers took


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (404, "there is nothing at {url} (the server answers 404 Not Found)"),
        (403, "{url} refuses access (the server answers 403 Forbidden)"),
        (401, "{url} refuses access (the server answers 401 Unauthorized)"),
        (418, "{url}: the server does not answer with the range asked for, but 418"),
    ],
)
def test_refusals_name_the_url_and_are_not_tried_again(run, server, tmp_path, status, sentence):
    server.status = status
    (url,) = urls(server, 1)
    done = run(url, "--every", 4, "--output", tmp_path / "out")
    assert done.status == 2
    assert done.err.startswith(f"error: {sentence.format(url=url)}")
    assert len(server.requests) == 1


def test_no_server(run, tmp_path):
    with files_server(tmp_path) as server:
        (url,) = urls(server, 1)
    done = run(url, "--every", 4, "--retries", 1, "--output", tmp_path / "out")
    assert done.status == 2
    assert f"{url} cannot be fetched: no connection to 127.0.0.1:" in done.err
    assert "(Connection refused) (given up after 2 attempts)" in done.err


def test_a_file_that_changes_on_the_way(run, tmp_path):
    data = write_data_set(tmp_path / "data")
    with files_server(data) as server:

        def change(number: int) -> None:
            if number == 12:  # after the footers
                os.utime(data / "001.parquet", ns=(1, 1))

        server.before = change
        done = run(*urls(server), "--every", 2, "--connections", 1, "--output", tmp_path / "out")
    assert done.status == 2
    assert "001.parquet has changed since the download began" in done.err


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty or shorter than before"),
        (b"PAR", "is not Parquet"),
        (b"<html>not what you think</html>", "is not Parquet"),
        (b"PAR1" + bytes(100), "is truncated: there is no footer at its end"),
        (b"PAR1" + bytes(20) + b"\xff\xff\x00\x00PAR1", "is truncated: there is no footer at its end"),
        (b"PAR1" + bytes(20) + b"\x08\x00\x00\x00PAR1", "the footer cannot be read"),
    ],
)
def test_what_is_no_parquet(run, tmp_path, content, sentence):
    (tmp_path / "000.parquet").write_bytes(content)
    with files_server(tmp_path) as server:
        done = run(urls(server)[0], "--every", 4, "--output", tmp_path / "out")
    assert done.status == 2
    assert sentence in done.err


def test_a_damaged_row_group_is_named_and_fetched_anew(run, tmp_path):
    data = write_data_set(tmp_path / "data")
    path = data / "001.parquet"
    good = path.read_bytes()
    (span,) = footers.chunks(pq.read_metadata(path), 4, {"text"})
    path.write_bytes(good[: span[0]] + bytes(span[1] - span[0]) + good[span[1] :])
    os.utime(path, ns=(5, 5))
    with files_server(data) as server:
        arguments = (*urls(server), "--every", 4, "--output", tmp_path / "out")
        done = run(*arguments)
        assert done.status == 2
        assert "001.parquet: row group 4 cannot be decoded" in done.err
        path.write_bytes(good)
        os.utime(path, ns=(5, 5))
        assert run(*arguments).status == 0
    assert row_groups(tmp_path / "out" / "001.parquet") == row_groups(path, [0, 4, 8, 12])


# ---------------------------------------------------------------- going on


def test_a_stopped_download_goes_on_from_its_row_group(run, server, data, tmp_path, expected):
    out = tmp_path / "out"
    arguments = (*urls(server), "--every", 4, "--connections", 2, "--retries", 0, "--output", out)
    stops = 0
    for limit in (5, 13, 2, 2):  # among the footers, then among the row groups

        def dies(number: int, limit: int = limit) -> None:
            server.status = 503 if number > limit else None

        server.before, server.requests = dies, []
        stops += run(*arguments).status == 2
    assert stops == 4
    server.before, server.status = lambda number: None, None
    done = run(*arguments)
    assert done.status == 0, done.err
    assert "row groups are already there" in done.out
    assert content(out) == expected
    wanted = sum(stored_bytes(path, range(0, GROUPS, 4), ALL) for path in sorted(data.iterdir()))
    overhead = sum(map(footer_bytes, sorted(data.iterdir())))
    assert server.served < 1.2 * (wanted + overhead)  # two may have been on the way at each stop


def test_a_finished_sample_is_left_alone(run, server, tmp_path):
    arguments = (*urls(server), "--every", 4, "--output", tmp_path / "out")
    first = run(*arguments)
    before = content(tmp_path / "out")
    server.reset()
    again = run(*arguments, "--connections", 3)
    assert again.status == 0
    assert server.requests == []
    assert "is complete and whole; nothing to fetch" in again.out
    assert again.out.splitlines()[-1] == first.out.splitlines()[-1]
    assert content(tmp_path / "out") == before


def test_only_a_damaged_file_is_fetched_again(run, server, tmp_path, expected):
    out = tmp_path / "out"
    arguments = (*urls(server), "--every", 4, "--output", out)
    assert run(*arguments).status == 0
    damaged = bytearray((out / "001.parquet").read_bytes())
    damaged[1000] ^= 1
    (out / "001.parquet").write_bytes(damaged)
    server.reset()
    assert run(*arguments).status == 0
    assert {path for path, _ in server.requests} == {"/001.parquet"}
    assert content(out) == expected


def test_a_killed_download_goes_on(server, tmp_path, expected):
    out = tmp_path / "out"
    command = [sys.executable, "-m", "jobs.download", *urls(server), "--every", "4", "--output", str(out)]
    server.before = lambda number: time.sleep(0.02 if number < 14 else 60 if number == 14 else 0)
    process = subprocess.Popen([*command, "--connections", "1"], cwd=ROOT)
    while len(server.requests) < 14:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (out / "_manifest.json").exists()
    server.before = lambda number: None
    server.reset()
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    assert content(out) == expected
    assert sorted(path.name for path in out.iterdir()) == [".lock", *sorted(expected), "_manifest.json"]
    assert len(server.requests) < 12


def test_an_interrupt_ends_a_download_whose_server_is_silent(server, tmp_path, expected):
    out, silence = tmp_path / "out", threading.Event()
    command = [sys.executable, "-m", "jobs.download", *urls(server), "--every", "4", "--output", str(out)]
    server.before = lambda number: silence.wait(60 if number > 14 else 0)
    process = subprocess.Popen(
        command, cwd=ROOT, stderr=subprocess.PIPE, text=True, preexec_fn=default_interrupt
    )
    while len(server.requests) < 17:
        assert process.poll() is None
        time.sleep(0.01)
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert time.monotonic() - started < 20
    assert (process.returncode, said) == (
        130,
        "stopped; what is committed stays, and the same command continues from there\n",
    )
    silence.set()
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    assert content(out) == expected


@pytest.mark.parametrize("after", [1, 9, 16])
def test_a_full_disk(run, server, tmp_path, monkeypatch, expected, after):
    """Among the footers, the row groups, and the files of the sample."""
    out, begun = tmp_path / "out", itertools.count(1)
    written = checkpoint.written

    def full(path: Path) -> contextlib.AbstractContextManager[Any]:
        if next(begun) > after:
            raise OSError(errno.ENOSPC, "No space left on device")
        return written(path)

    arguments = (*urls(server), "--every", 4, "--connections", 1, "--output", out)
    monkeypatch.setattr(checkpoint, "written", full)
    done = run(*arguments)
    assert done.status == 2
    assert done.err == (
        "error: No space left on device; what is committed stays, and the same command continues from there\n"
    )
    monkeypatch.setattr(checkpoint, "written", written)
    assert run(*arguments).status == 0
    assert content(out) == expected


def test_progress_where_there_is_no_terminal(run, server, tmp_path, monkeypatch):
    monkeypatch.setattr(console, "LINE_EVERY", 0.01)
    server.before = lambda number: time.sleep(0.05)
    done = run(*urls(server), "--every", 4, "--connections", 1, "--output", tmp_path / "out")
    assert re.search(r"^footers          [12] of 3 files, ", done.out, re.M)
    assert "\nfooters          3 files in " in done.out
    assert re.search(
        r"^download         \d+ of 12 row groups, [\d,]+ documents/s, [\d.]+ MB/s", done.out, re.M
    )
    assert re.search(r"^download         12 row groups in [\d.]+ s \([\d,]+ documents/s", done.out, re.M)


def test_another_sample_is_not_mixed_in(run, server, tmp_path):
    out = tmp_path / "out"
    assert run(*urls(server), "--every", 4, "--output", out).status == 0
    for changed in (["--every", "5"], ["--every", "4", "--columns", "text"], ["--documents", "9"]):
        done = run(*urls(server), *changed, "--output", out)
        assert done.status == 2
        assert "holds another sample (--every 4 --offset 0; columns all; http://127.0.0.1" in done.err
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    done = run(*urls(server), "--every", 4, "--output", tmp_path / "mine")
    assert done.status == 2
    assert "holds 'notes.txt', which this command did not write" in done.err


# ---------------------------------------------------------------- where files are


def test_local_files(run, data, tmp_path, expected):
    for source in (data, data / "*.parquet", f"file://{data}"):
        out = tmp_path / str(len(str(source)))
        assert run(source, "--every", 4, "--output", out).status == 0
        assert content(out) == expected


def test_files_passed_over_are_named(run, data, tmp_path):
    here = shutil.copytree(data, tmp_path / "here")
    (here / "004.parquet").touch()
    (here / "_SUCCESS").touch()
    done = run(here, "--every", 4, "--output", tmp_path / "out")
    assert done.status == 0
    assert f"warning: {here}: passed over 004.parquet (empty, zero bytes) and 1 more\n" in done.out
    for path in here.glob("00?.parquet"):
        path.unlink()
    none = run(here, "--every", 4, "--output", tmp_path / "none")
    assert none.err == f"error: there is no Parquet file at {here}\n"


def test_files_that_are_here_are_not_fetched(run, server, data, tmp_path, expected):
    """One copy is whole, one has another size, and one another content of the same size."""
    here = tmp_path / "here"
    here.mkdir()
    whole = {path.name: path.read_bytes() for path in data.iterdir()}
    (here / "000.parquet").write_bytes(whole["000.parquet"])
    (here / "001.parquet").write_bytes(whole["001.parquet"][:-1])
    (here / "002.parquet").write_bytes(bytes(len(whole["002.parquet"])))
    done = run(*urls(server), "--every", 4, "--local", here, "--output", tmp_path / "out")
    assert done.status == 0
    assert content(tmp_path / "out") == expected
    served = [path for path, _ in server.requests]
    assert served.count("/000.parquet") == 3  # the size, the footer's length, the footer
    assert served.count("/001.parquet") == served.count("/002.parquet") == 7


def test_a_file_of_urls(run, server, tmp_path, expected):
    listed = tmp_path / "urls.txt"
    listed.write_text("# FineWeb\n" + "\n\n".join(f"{url}?download=true" for url in urls(server)[:2]) + "\n")
    assert run(urls(server)[2], "--urls", listed, "--every", 4, "--output", tmp_path / "out").status == 0
    assert content(tmp_path / "out") == expected
    for lines, sentence in (
        ("", "name a SOURCE"),
        (f"{urls(server)[0]}\n" * 2, "would both become 000.parquet"),
    ):
        listed.write_text(lines)
        assert sentence in run("--urls", listed, "--every", 4, "--output", tmp_path / "other").err
    assert (
        "cannot be read" in run("--urls", tmp_path / "no", "--every", 4, "--output", tmp_path / "other").err
    )


@pytest.mark.parametrize(
    ("urls", "names"),
    [
        (["s3://b/x/1.parquet"], ["1.parquet"]),
        (["s3://b/x/1.parquet", "s3://b/x/y/1.parquet"], ["1.parquet", "y/1.parquet"]),
        (["https://h/a/1.parquet?x=y", "https://h/b/1.parquet#z"], ["a/1.parquet", "b/1.parquet"]),
        (["https://h/a/1", "https://i/a/1"], ["h/a/1.parquet", "i/a/1.parquet"]),
        (["../d/../d/1.pq", "/e/1.PARQUET"], ["d/d/1.pq", "e/1.PARQUET"]),
        (["s3://b/k=1/a.parquet", "s3://b/k=2/a.parquet"], ["k=1/a.parquet", "k=2/a.parquet"]),
    ],
)
def test_names_in_the_sample(urls, names):
    assert plan.names(urls) == names


@pytest.mark.parametrize("wrong", [["--offset", "4"], ["--offset", "-1"]], ids=lambda wrong: wrong[1])
def test_an_offset_that_does_not_exist(run, server, tmp_path, wrong):
    done = run(*urls(server), "--every", 4, *wrong, "--output", tmp_path / "out")
    assert done.status == 2
    assert "is not one of 0 to 3" in done.err
    done = run(*urls(server), "--documents", 4, *wrong, "--output", tmp_path / "out")
    assert "--offset goes with --every" in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--every", "0"], "argument --every: '0' is not a whole number of at least 1"),
        (["--documents", "many"], "argument --documents: 'many' is not a whole number of at least 1"),
        (["--bytes", "lots"], "argument --bytes: 'lots' is not a size, such as 500MB or 2GiB"),
        (["--every", "2", "--documents", "5"], "argument --documents: not allowed with argument --every"),
        (["--every", "2", "--connections", "0"], "argument --connections: '0' is not a whole number"),
        ([], "one of the arguments --every --documents --bytes is required"),
    ],
)
def test_wrong_arguments(capsys, arguments, said):
    with pytest.raises(SystemExit, match="2"):
        download.main(["data", "--output", "out", *arguments])
    assert said in capsys.readouterr().err


def test_an_output_that_is_no_folder_here(run, data, tmp_path):
    done = run(data, "--every", 4, "--output", "s3://bucket/sample")
    assert done.status == 2
    assert "--output s3://bucket/sample is a URL; a sample is written to a folder of this machine" in done.err
    done = run(data, "--every", 4, "--columns", ",", "--output", tmp_path / "out")
    assert done.err == "error: --columns names no column\n"


def test_the_hub_is_read_by_its_addresses(run, server, tmp_path, monkeypatch, expected):
    """A range costs one request to the file's own address, with the user's token, and none to the Hub's API."""
    pytest.importorskip("huggingface_hub", reason="hf:// needs the extra `remote`")
    hub = SimpleNamespace(
        token="hf_secret",
        url=lambda path: f"{server.url}/{path.rpartition('/')[2]}",
        unstrip_protocol=lambda path: f"hf://{path}",
        info=lambda path: {"type": "directory" if path.endswith("x/y") else "file", "size": 9},
        find=lambda path, detail: {f"datasets/x/y/{i:03d}.parquet": {"size": 9} for i in range(FILES)},
        invalidate_cache=lambda path=None: None,
    )
    real = storage.locate

    def locate(path: str) -> storage.Local | storage.Remote:
        hf = path.startswith("hf://")
        return storage.Remote(path, hub, path.removeprefix("hf://")) if hf else real(path)

    monkeypatch.setattr(storage, "locate", locate)
    place = ranges.place("hf://datasets/x/y/000.parquet")
    assert isinstance(place, ranges.HttpFile)
    assert place.headers["authorization"] == "Bearer hf_secret"
    assert run("hf://datasets/x/y", "--every", 4, "--output", tmp_path / "out").status == 0
    assert content(tmp_path / "out") == expected


# ---------------------------------------------------------------- object stores


def test_s3(run, s3, data, tmp_path, expected):
    url = s3.upload(data, "sample")
    s3.reset()
    done = run(url, "--every", 4, "--output", tmp_path / "out")
    assert done.status == 0, done.err
    assert content(tmp_path / "out") == expected
    paths = sorted(data.iterdir())
    wanted = sum(stored_bytes(path, range(0, GROUPS, 4), ALL) for path in paths)
    listing = 4000
    assert s3.served < 1.05 * wanted + sum(map(footer_bytes, paths)) + listing
    s3.reset()
    assert run(url, "--every", 4, "--output", tmp_path / "out").status == 0
    assert s3.requests == []


def test_an_object_that_changes_on_the_way(run, s3, data, tmp_path, monkeypatch):
    url = s3.upload(data, "changing")
    whole = (data / "001.parquet").read_bytes()
    fetch = ranges.StoredFile.fetch

    def changing(
        self: ranges.StoredFile, start: int, stop: int, stopped: threading.Event
    ) -> tuple[bytes, ranges.Identity]:
        if self.url.endswith("001.parquet") and 4 < start < len(whole) // 2:
            s3.system.pipe_file(f"{s3.bucket}/changing/001.parquet", whole[:-1] + b"2")
        return fetch(self, start, stop, stopped)

    monkeypatch.setattr(ranges.StoredFile, "fetch", changing)
    done = run(url, "--every", 4, "--output", tmp_path / "out")
    assert done.status == 2
    assert "001.parquet has changed since the download began" in done.err


@pytest.mark.parametrize("path", ["nothing", "nothing/*.parquet", "no.parquet"])
def test_nothing_in_the_bucket(run, s3, tmp_path, path):
    done = run(f"{s3.url}/{path}", "--every", 4, "--output", tmp_path / "out")
    assert done.status == 2
    assert f"there is nothing at {s3.url}/{path}" in done.err


def test_any_other_file_system(run, data, tmp_path, expected):
    memory = fsspec.filesystem("memory")
    try:
        for path in sorted(data.iterdir()):
            memory.pipe_file(f"/sampled/{path.name}", path.read_bytes())
        assert run("memory://sampled", "--every", 4, "--output", tmp_path / "out").status == 0
        assert content(tmp_path / "out") == expected
    finally:
        memory.rm("/sampled", recursive=True)


def test_an_unknown_protocol():
    with pytest.raises(UserError, match="is not a URL that fsspec can open"):
        ranges.place("gopher://host/a.parquet")


def test_fineweb_shaped_files(run, shared, tmp_path):
    """Files of one row group each, real text: evenly spaced over the files."""
    out = tmp_path / "out"
    with files_server(shared / "fineweb") as server:
        listed = [f"{server.url}/{path.name}" for path in sorted((shared / "fineweb").glob("*.parquet"))]
        done = run(*listed, "--documents", 500, "--crawl", "model", "--output", out)
    assert done.status == 0, done.err
    read = functools.partial(pq.read_table, columns=["id", "text", "timestamp"])
    assert len(content(out)) == 5
    for name in content(out):
        assert read(out / name) == read(shared / "fineweb" / name)
