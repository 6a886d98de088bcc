"""The main job from and to a store: the bytes of a local run, and everything a person does with an output."""

import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from jobs import ledger, peek, report, trace, verify
from jobs.cli import guarded
from jobs.errors import UserError
from jobs.formats import llmc
from jobs.report.command import main as remake_report
from jobs.run import main
from jobs.runtime import checkpoint, folders
from tests.conftest import ROOT, digests, settings
from tests.servers import S3Server, s3_server

pytest.importorskip("upath", reason="an output behind a URL needs the extra `remote`")


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def folder(s3: S3Server, request: pytest.FixtureRequest) -> Path:
    return folders.located(f"{s3.url}/{request.node.name.partition('[')[0]}-{uuid.uuid4().hex[:8]}")


@pytest.fixture(scope="module")
def source(s3: S3Server, corpus: Path) -> str:
    return s3.upload(corpus, "corpus")


@pytest.fixture(scope="module")
def remote(s3: S3Server, source: str) -> str:
    """The output of a run from the bucket to the bucket on two worker processes of its own."""
    out = f"{s3.url}/a prefix/out"
    assert main([*settings(source), "--output", out, "--workers", "2"]) == 0  # type: ignore[arg-type]
    return out


def digests_of(out: str, *jobs: str) -> dict[str, str]:
    root = folders.located(out)
    return {
        f"{job}/{path.name}": hashlib.sha256(folders.contents([path])[0]).hexdigest()
        for job in jobs or ("shards", "ledger", "report", "tokenizer", "scurve")
        for path in folders.files(root / job)
        if path.parent == root / job and path.name != "manifest.json"
    }


# ---------------------------------------------------------------- whole runs


def test_a_run_from_and_to_a_bucket_gives_the_bytes_of_a_local_one(finished: Path, remote: str) -> None:
    assert digests_of(remote) == digests(finished)


def test_a_second_run_does_nothing_and_says_so(
    s3: S3Server, source: str, remote: str, capsys: pytest.CaptureFixture[str]
) -> None:
    s3.reset()
    assert main([*settings(source), "--output", remote]) == 0  # type: ignore[arg-type]
    assert "nothing to do" in capsys.readouterr().out
    written = [request for request in s3.requests if request.startswith("PUT")]
    assert [request for request in written if not request.endswith(checkpoint.RUNNING)] == []


def test_verify_trace_ledger_and_report_read_it(
    finished: Path, remote: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify.main([remote]) == 0
    assert trace.main([remote, "--shard", "train:1", "--token", "5"]) == 0
    shown = capsys.readouterr().out
    assert trace.main([str(finished), "--shard", "train:1", "--token", "5"]) == 0
    assert shown.endswith(capsys.readouterr().out)
    assert report.read(remote) == report.read(finished)
    assert peek.main([remote, "--fate", "near_duplicate"]) == 0
    shown = capsys.readouterr().out
    assert peek.main([str(finished), "--fate", "near_duplicate"]) == 0
    assert shown == capsys.readouterr().out
    assert remake_report([remote]) == 0
    assert digests_of(remote, "report") == digests(finished, "report")
    assert list(verify.check_files(folders.located(remote))) == []
    assert _rows(remote).equals(_rows(finished))


def _rows(out: str | Path) -> pd.DataFrame:
    """In this process: the tests' other cluster was started before the server."""
    return ledger.read(out).compute(scheduler="synchronous")


def test_flipped_bytes_of_objects_are_named(s3: S3Server, remote: str) -> None:
    root = folders.located(remote)
    files = list(folders.files(root))
    data = [next(path for path in files if fnmatch(str(path), f"*/{pattern}")) for pattern in DATA]
    record = next(path for path in files if path.parent == root / "shards" / "tasks")
    for damaged in (data, [record]):
        originals = {path: folders.contents([path])[0] for path in damaged}
        for path, content in originals.items():
            s3.system.pipe_file(_key(path), content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
        problems = list(verify.check_files(root))
        assert [any(str(path) in problem for problem in problems) for path in damaged] == [True] * len(
            damaged
        )
        for path, content in originals.items():
            s3.system.pipe_file(_key(path), content)
    stray = root / "ledger" / "stray"
    s3.system.pipe_file(_key(stray), b"x")
    (problem,) = verify.check_files(root)
    assert problem.startswith(f"{stray} was not written by this run")
    s3.system.rm_file(_key(stray))
    assert list(verify.check_files(root)) == []


DATA = (
    "shards/*.bin",
    "ledger/*.parquet",
    "annotate/*.tokens.bin",
    "near_duplicates/*.arrow",
    "order/*.parquet",
)


def _key(path: Path) -> str:
    return str(path).removeprefix("s3://")


def test_a_run_to_memory_continues_and_gives_the_same_bytes(
    finished: Path, corpus: Path, in_memory: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A store without conditional writes and requests that overlap, which workers see that are threads."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=":0"
    ) as here:
        arguments = [*settings(corpus), "--output", in_memory, "--scheduler", here.scheduler_address]
        assert main([*arguments, "--until", "annotate"]) == 0
        assert re.search(r"^annotate +[\d,]+ splits in ", capsys.readouterr().out, re.MULTILINE)
        assert main(arguments) == 0
        assert not re.search(r"^annotate +[\d,]+ splits in ", capsys.readouterr().out, re.MULTILINE)
        assert main(arguments) == 0
        assert "nothing to do" in capsys.readouterr().out
    assert digests_of(in_memory) == digests(finished)
    assert verify.main([in_memory]) == 0
    assert trace.main([in_memory, "--shard", "train:1", "--token", "5"]) == 0


@pytest.fixture
def in_memory() -> Iterator[str]:
    yield "memory://bucket/out"
    folders.remove_folder(folders.located("memory://bucket"))


@pytest.mark.slow
def test_killed_and_started_again_it_gives_the_same_bytes(finished: Path, s3: S3Server, source: str) -> None:
    out = f"{s3.url}/killed"
    extra = ["splits.bytes=20 KB"]
    command = [sys.executable, "-m", "jobs.run", *settings(source, *extra), "--output", out, "--workers", "2"]  # type: ignore[arg-type]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    tasks = folders.located(out) / "annotate" / "tasks"
    deadline = time.monotonic() + 120
    while not folders.files(tasks) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    committed = {path: _written(s3, path) for path in folders.files(tasks)}
    assert committed
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "splits were done before" in again.stdout or len(committed) == len(folders.files(tasks))
    assert digests_of(out) == digests(finished)
    assert committed == {path: _written(s3, path) for path in committed}


def _written(s3: S3Server, path: Path) -> object:
    return s3.system.info(_key(path), refresh=True)["LastModified"]


def test_a_tokenizer_is_taken_from_the_bucket(remote: str, corpus: Path, tmp_path: Path) -> None:
    words = [word for word in settings(corpus) if "tokenizer" not in word]
    kept = [
        word
        for word, after in zip(words, [*words[1:], ""], strict=True)
        if (word, after) != ("--set", "--set")
    ]
    definition = f"{remote}/tokenizer/tokenizer.json"
    arguments = [*kept, "--set", f"tokenizer.path={definition}", "--until", "tokenizer"]
    assert main([*arguments, "--output", str(tmp_path)]) == 0
    assert (tmp_path / "tokenizer" / "tokenizer.json").read_bytes() == folders.contents(
        [folders.located(definition)]
    )[0]


# ---------------------------------------------------------------- single promises


def test_a_file_appears_whole_or_not_at_all(folder: Path) -> None:
    with checkpoint.written(folder / "a" / "whole") as file:
        file.write(b"half")
        assert folders.files(folder) == {}
        file.write(b" and half")
    with pytest.raises(TypeError), checkpoint.written(folder / "torn") as file:
        file.write(None)  # type: ignore[arg-type]
    assert folders.files(folder) == {folder / "a" / "whole": 13}
    assert folders.contents([folder / "a" / "whole"]) == [b"half and half"]


def test_what_others_write_is_seen_at_once(s3: S3Server, folder: Path) -> None:
    assert folders.files(folder) == {}
    assert not (folder / "new").exists()
    s3.system.pipe_file(_key(folder / "new"), b"x")  # by another file system object
    assert folders.files(folder) == {folder / "new": 1}
    assert (folder / "new").exists()
    s3.system.rm_file(_key(folder / "new"))
    assert not (folder / "new").exists()


def test_a_folder_is_not_another_whose_name_begins_alike(folder: Path) -> None:
    for name in ("order", "order_old"):
        with checkpoint.written(folder / name / "file") as file:
            file.write(b"x")
    folders.remove_folder(folder / "order")
    assert list(folders.files(folder)) == [folder / "order_old" / "file"]
    folders.remove([folder / "order" / "file"])  # gone already


@pytest.mark.parametrize("at_once", [1, 1000, 2**26])
def test_slices_of_many_files(
    s3: S3Server, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(folders, "SLICES_BYTES", at_once)
    random = np.random.default_rng(0)
    stores = [random.integers(0, 2**16, n, np.uint16) for n in (1, 700, 3000, 10)]
    bounds = np.array([[0, 1], [600, 700], [10, 2999], [4, 5]])
    for root in (folder, tmp_path):
        paths = [root / f"{i}.tokens.bin" for i in range(len(stores))]
        for path, store in zip(paths, stores, strict=True):
            with checkpoint.written(path) as file:
                file.write(store.tobytes())
        s3.reset()
        found = list(folders.slices(paths, np.dtype(np.uint16), bounds))
        for store, piece, (start, stop) in zip(stores, found, bounds, strict=True):
            np.testing.assert_array_equal(piece, store[start:stop])
    assert list(folders.slices([], np.dtype(np.uint16), np.empty((0, 2), np.int64))) == []


def test_packing_reads_no_more_than_the_slices(s3: S3Server, folder: Path) -> None:
    paths = [folder / f"{i}.tokens.bin" for i in range(20)]
    for path in paths:
        with checkpoint.written(path) as file:
            file.write(bytes(100_000))
    s3.reset()
    list(folders.slices(paths, np.dtype(np.uint16), np.array([[1000, 2000]] * 20)))
    assert s3.served == 20 * 2000
    assert len(s3.requests) == 20


def test_a_shard_is_read_where_it_is_sliced(s3: S3Server, folder: Path) -> None:
    tokens = np.arange(50_000, dtype=np.uint16)
    with checkpoint.written(folder / "t_train_000000.bin") as file:
        llmc.write_shard(file, tokens)
    s3.reset()
    shard = llmc.open_shard(folder / "t_train_000000.bin")
    assert len(shard) == 50_000
    np.testing.assert_array_equal(shard[7:9], tokens[7:9])
    np.testing.assert_array_equal(shard[49_999:60_000], tokens[-1:])
    assert len(shard[5:5]) == 0
    assert s3.served < 5_000
    np.testing.assert_array_equal(shard[:], tokens)
    with pytest.raises(UserError, match="cannot be read"):
        llmc.open_shard(folder / "absent.bin")


def test_a_local_copy_is_fetched_once_and_again_when_the_file_changed(s3: S3Server, folder: Path) -> None:
    for content in (b"one", b"two"):  # in the same second and of the same size
        with checkpoint.written(folder / "clusters") as file:
            file.write(content)
        s3.reset()
        copies = {folders.local_copy(folder / "clusters") for _ in range(3)}
        assert [copy.read_bytes() for copy in copies] == [content]
        assert sum(request.startswith("GET") for request in s3.requests) == 1


# ---------------------------------------------------------------- who may write


def test_two_runs_on_one_output_are_refused(folder: Path) -> None:
    holder = folder / checkpoint.RUNNING
    elsewhere = json.dumps({"host": "elsewhere", "pid": 1}).encode()
    folders.create(holder, elsewhere)
    with (
        pytest.raises(UserError, match=r"process 1 on elsewhere; .* or remove s3://\S+/.running when"),
        checkpoint.locked(folder),
    ):
        pass
    assert folders.contents([holder]) == [elsewhere]
    folders.remove([holder])
    living = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    folders.create(holder, json.dumps({"host": socket.gethostname(), "pid": living.pid}).encode())
    with pytest.raises(UserError, match=f"process {living.pid}"), checkpoint.locked(folder):
        pass
    living.communicate(b"\n")
    with checkpoint.locked(folder):  # it is gone, so its lock is taken over
        assert holder.exists()
        assert (folder / checkpoint.LOCK).exists()
    assert not holder.exists()
    assert (folder / checkpoint.LOCK).exists()


def test_someones_own_folder_is_left_alone(
    s3: S3Server, folder: Path, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = _key(folder / "report" / "thesis.tex")
    s3.system.pipe_file(mine, b"years of work")
    assert main([*settings(source), "--output", str(folder), "--fresh"]) == 2  # type: ignore[arg-type]
    assert "was not made by a run, and has a report" in capsys.readouterr().err
    assert s3.system.cat_file(mine) == b"years of work"


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("s4://bucket/out", "s4://bucket/out is not a URL that fsspec can open"),
        ("s3://no-such-bucket-here/out", "s3://no-such-bucket-here/out cannot be reached"),
        ("http://127.0.0.1:9/out", "cannot be reached"),
        ("s3://bucket/a[1]/out", "has `*`, `?` or `[` in its URL"),
    ],
)
def test_an_output_that_cannot_be_is_one_sentence(
    s3: S3Server, source: str, out: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*settings(source), "--output", out]) == 2  # type: ignore[arg-type]
    printed = capsys.readouterr().err
    assert said in printed
    assert len(printed.splitlines()) == 1


def test_no_answer_is_one_sentence(monkeypatch: pytest.MonkeyPatch, s3: S3Server) -> None:
    import s3fs

    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    s3fs.S3FileSystem.clear_instance_cache()
    try:
        with pytest.raises(UserError, match="s3://bucket/out cannot be reached: Could not connect"):
            folders.reached("s3://bucket/out")
    finally:
        s3fs.S3FileSystem.clear_instance_cache()


def test_a_store_that_fails_on_the_way_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    from botocore.exceptions import EndpointConnectionError

    def fail() -> int:
        raise EndpointConnectionError(endpoint_url="http://127.0.0.1:9")

    assert guarded(fail) == 2
    assert capsys.readouterr().err.startswith("error: a store failed: Could not connect to the endpoint URL")


def test_local_paths_stay_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert folders.located("out") == folders.located(Path("out")) == tmp_path / "out"
    assert folders.located(f"file://{tmp_path}/out") == tmp_path / "out"
    assert type(folders.located("out")) is type(tmp_path)
    code = "import sys, jobs.runtime.folders as f; f.located('out'); print({'upath', 'fsspec'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert shown.stdout == "set()\n"
