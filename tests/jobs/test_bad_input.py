"""Bad input costs itself and nothing else: a clear sentence, or a row in the ledger."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs import ledger
from tests.conftest import ROOT, digests, run_job, settings


@pytest.fixture
def copied(corpus: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(corpus, tmp_path / "corpus"))


def fates(out: Path) -> dict[str, int]:
    return dict(ledger.read(out).compute()["fate"].astype(str).value_counts())


def test_empty_hidden_and_foreign_files_are_passed_over_with_a_notice(
    copied: Path, finished: Path, cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (copied / "empty.parquet").touch()
    (copied / "_SUCCESS").touch()
    (copied / ".000.parquet.crc").write_bytes(b"crc")
    assert run_job(copied, tmp_path / "out", cluster) == 0
    printed = capsys.readouterr().out
    assert printed.count("passed over") == 1
    assert "empty.parquet (empty, zero bytes)" in printed
    assert digests(tmp_path / "out", "shards", "ledger") == digests(finished, "shards", "ledger")


def test_a_parquet_without_the_text_column_is_a_bad_file_among_others(
    copied: Path, finished: Path, cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(pa.table({"body": ["a", "b"]}), copied / "odd.parquet")
    assert run_job(copied, tmp_path / "out", cluster) == 1
    printed = capsys.readouterr().out
    assert "odd.parquet: it has no column 'text' for the text; its columns are body" in printed
    assert digests(tmp_path / "out", "shards") == digests(finished, "shards")


def test_a_source_without_any_text_column_is_refused_before_work(
    cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"body": ["a", "b"]}), tmp_path / "in" / "odd.parquet")
    assert run_job(tmp_path / "in", tmp_path / "out", cluster) == 2
    error = capsys.readouterr().err
    assert "odd.parquet has no column 'text'" in error
    assert "body" in error
    assert not (tmp_path / "out" / "annotate").exists()


def test_null_empty_wordless_and_invalid_texts_get_a_row_each(
    copied: Path, cluster: str, tmp_path: Path
) -> None:
    invalid = pa.array([b"good", b"bad \xff\xfe utf-8", b"caf\xc3"], pa.binary()).cast(pa.binary())
    odd = pa.StringArray.from_buffers(3, *invalid.buffers()[1:])
    texts = pa.chunked_array(
        [pa.array([None, "", "   \n\t ", "!!! ... ???", "\x00\x00", "İ"], pa.string()), odd]
    )
    pq.write_table(pa.table({"text": texts}), copied / "odd.parquet")
    out = tmp_path / "out"
    assert run_job(copied, out, cluster) == 0
    rows = ledger.read(out).compute()
    odd_rows = rows[rows["path"] == "odd.parquet"].sort_values("record")
    assert odd_rows["fate"].astype(str).tolist() == [
        "input.null_text", "input.empty_text", *["length.min_tokens"] * 5, "input.invalid_utf8", "input.invalid_utf8"
    ]  # fmt: skip
    assert odd_rows["cluster"].isna().all()
    assert len(rows) == 909


def test_a_truncated_parquet_fails_the_run_unless_allowed_and_loses_nothing_else(
    copied: Path, finished: Path, cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = (copied / "000.parquet").read_bytes()
    (copied / "truncated.parquet").write_bytes(whole[: len(whole) // 2])
    out = tmp_path / "out"
    assert run_job(copied, out, cluster) == 1
    printed = capsys.readouterr().out
    assert "truncated.parquet" in printed
    assert "--allow-bad-files" in printed
    assert digests(out, "shards", "ledger") == digests(finished, "shards", "ledger")
    assert run_job(copied, out, cluster, "allow_bad_files=1") == 0


def test_a_damaged_page_costs_its_row_group(copied: Path, cluster: str, tmp_path: Path) -> None:
    path = copied / "001.parquet"
    column = pq.read_metadata(path).row_group(2).column(0)
    damaged = bytearray(path.read_bytes())
    start = column.dictionary_page_offset or column.data_page_offset
    middle = start + column.total_compressed_size // 2
    damaged[middle : middle + 40] = b"\xff" * 40
    path.write_bytes(damaged)
    out = tmp_path / "out"
    assert run_job(copied, out, cluster) == 1
    rows = ledger.read(out).compute()
    unreadable = rows[rows["fate"] == "input.unreadable"]
    assert unreadable["record"].tolist() == list(range(100, 150))
    assert set(unreadable["path"]) == {"001.parquet"}
    assert len(rows) == 900


def test_only_bad_files_is_refused(cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "a.parquet").write_bytes(b"PAR1 and then nothing more")
    assert run_job(folder, tmp_path / "out", cluster) == 2
    assert "hold no document" in capsys.readouterr().err


def test_a_long_document_among_others(copied: Path, cluster: str, tmp_path: Path) -> None:
    """30 MB here; 200 MB under the memory limit in the slow suite."""
    words = np.random.default_rng(0).choice(["alpha", "beta", "gamma", "delta", "epsilon"], 5_000_000)
    pq.write_table(pa.table({"text": [" ".join(words), "a short text"]}), copied / "long.parquet")
    out = tmp_path / "out"
    assert run_job(copied, out, cluster, "shards.tokens=5000000", "tokenizer.train.vocab_size=300") == 0
    rows = ledger.read(out).compute()
    longest = rows.loc[rows["n_bytes"].idxmax()]
    assert longest["n_words"] == 5_000_000
    assert longest["fate"] in ("train", "validation")


@pytest.mark.slow
def test_200_mb_in_one_document_within_2_gib(copied: Path, tmp_path: Path) -> None:
    """About two minutes."""
    words = np.random.default_rng(0).choice([f"word{i}" for i in range(50_000)], 22_000_000)
    text = " ".join(words)
    assert len(text) > 200e6
    pq.write_table(pa.table({"text": [text]}), copied / "long.parquet")
    command = [
        sys.executable,
        "-m",
        "jobs.run",
        *settings(copied, "shards.tokens=100000000", "tokenizer.train.vocab_size=300"),
    ]
    arguments = ["--output", str(tmp_path / "out"), "--workers", "1", "--memory-limit", "2GiB"]
    done = subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_full_disk_is_one_sentence_and_the_run_continues_with_room(
    corpus: Path, finished: Path, tmp_path: Path
) -> None:
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("needs to mount a small file system")
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1M", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("cannot mount a small file system here")
    try:
        out = small / "out"
        command = [
            sys.executable,
            "-m",
            "jobs.run",
            *settings(corpus),
            "--output",
            str(out),
            "--workers",
            "1",
        ]
        full = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert full.returncode == 2, full.stdout + full.stderr
        assert "No space left on device" in full.stderr
        assert "Traceback" not in full.stderr
        subprocess.run(["mount", "-o", "remount,size=64M", str(small)], check=True)
        again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert again.returncode == 0, again.stdout + again.stderr
        assert digests(out) == digests(finished)
    finally:
        subprocess.run(["umount", str(small)], check=True)
