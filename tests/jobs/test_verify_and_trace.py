"""A flipped byte anywhere is named; a token leads back to its document."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from jobs import ledger, scurve, trace, verify
from jobs.errors import UserError
from jobs.formats import llmc
from jobs.loader import ShardLoader
from jobs.runtime import checkpoint, performance
from jobs.runtime.console import Console
from tests.conftest import digests, run_job


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "out"))


def test_a_finished_run_is_proven(finished: Path) -> None:
    assert verify.verify(finished, Console()) == []


def test_one_flipped_byte_in_any_file_is_named(copied: Path) -> None:
    random = np.random.default_rng(0)
    shutil.rmtree(copied / performance.FOLDER)  # another's in every run, so nothing is proven of it
    files = [path for path in copied.rglob("*") if path.is_file() and path.stat().st_size]
    assert len(files) > 30
    for path in files:
        original = path.read_bytes()
        damaged = bytearray(original)
        damaged[random.integers(0, len(damaged))] ^= 1 << int(random.integers(0, 8))
        path.write_bytes(damaged)
        problems = list(verify.check_files(copied))
        assert len(problems) >= 1, path
        assert any(str(path) in problem for problem in problems), (path, problems)
        path.write_bytes(original)
    assert list(verify.check_files(copied)) == []


def test_missing_and_foreign_files_are_named(copied: Path) -> None:
    shard = next((copied / "shards").glob("*.bin"))
    shard.unlink()
    (copied / "ledger" / "stray").write_text("x")
    missing, foreign = verify.check_files(copied)
    assert missing == f"{shard} is missing; to repair it, remove {copied / 'shards'} and run again"
    assert foreign == f"{copied / 'ledger' / 'stray'} was not written by this run; remove it, or move it away"


@pytest.mark.parametrize("job", ["shards", "order", "annotate"])
def test_a_damaged_job_is_repaired_as_verify_says(
    copied: Path, finished: Path, corpus: Path, cluster: str, job: str
) -> None:
    path = max((path for path in (copied / job).iterdir() if path.is_file()), key=lambda p: p.stat().st_size)
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    (problem,) = verify.verify(copied, Console())
    repair = problem.partition("to repair it, remove ")[2].partition(" and run again")[0]
    assert repair == str(copied / job)
    shutil.rmtree(repair)
    assert run_job(corpus, copied, cluster) == 0
    assert digests(copied) == digests(finished)


def test_a_run_that_failed_under_changed_settings_is_named_by_all(
    copied: Path, corpus: Path, cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_job(corpus, copied, cluster, "order.seed=8", "validation={fraction: 0.999}") == 2
    capsys.readouterr()
    for command, arguments in (
        (verify.main, []),
        (trace.main, ["--shard", "train:0", "--token", "1"]),
        (scurve.main, ["--workers", "1", "--output", str(tmp_path / "scurve")]),
    ):
        assert command([str(copied), *arguments]) == 2
        error = capsys.readouterr().err
        assert "the last run stopped before its end, or is still going; run it again" in error
        assert len(error.splitlines()) == 1
    with pytest.warns(UserWarning, match="did not come to its end: its shards may be of earlier settings"):
        ShardLoader("train", 1, 64, copied)
    (copied / "shards" / "manifest.json").unlink()
    with pytest.raises(UserError, match="are not all packed: its last run stopped before; run it again"):
        ShardLoader("train", 1, 64, copied)


def test_a_loader_of_a_finished_run_or_of_a_copied_folder_says_nothing(
    copied: Path, recwarn: pytest.WarningsRecorder
) -> None:
    ShardLoader("train", 1, 64, copied)
    (copied / "shards" / "manifest.json").unlink()
    ShardLoader("train", 1, 64, copied / "shards")
    assert not recwarn


def _rewrite(path: Path, change: object) -> None:
    """Change a ledger file's rows, as one who also made its checksum good would."""
    table = pq.read_table(path)
    pq.write_table(change(table), path)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("n_tokens", 7, "the ledger"),
        ("offset", 3, "do not lie end to end"),
        ("token_hash", 1, "are not where the ledger says"),
        ("record", 5, "do not follow from their places"),
        ("n_bytes", 5, "bytes"),
    ],
)
def test_a_wrong_ledger_with_good_checksums_is_found(
    copied: Path, column: str, value: int, said: str
) -> None:
    path = ledger.files(copied)[0]

    def change(table):  # type: ignore[no-untyped-def]
        values = table[column].to_pylist()
        row = next(i for i, shard in enumerate(table["shard"].to_pylist()) if shard is not None)
        values[row] = value
        import pyarrow as pa

        at = table.schema.get_field_index(column)
        return table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type))

    _rewrite(path, change)
    output = verify.Output(copied)
    problems = [problem for check in verify.CHECKS for problem in check(output)]
    assert any(said in problem for problem in problems), problems


def test_swapped_tokens_are_found(copied: Path) -> None:
    name = next(
        name for split, name, _ in verify.Output(copied).figures["shards"]["shards"] if split == "train"
    )
    tokens = np.array(llmc.open_shard(copied / "shards" / name))
    tokens[[10, 11]] = tokens[[11, 10]] if tokens[10] != tokens[11] else (tokens[10] ^ 1, tokens[11])
    with checkpoint.written(copied / "shards" / name) as file:
        llmc.write_shard(file, tokens)
    assert any("are not where the ledger says" in p for p in verify.check_places(verify.Output(copied)))


def test_a_validation_document_in_a_training_cluster_is_found(copied: Path) -> None:
    import pyarrow as pa

    path = ledger.files(copied)[0]

    def change(table):  # type: ignore[no-untyped-def]
        fate = table["fate"].to_pylist()
        cluster = table["cluster"].to_pylist()
        cluster[fate.index("train")] = cluster[fate.index("validation")] = 77
        at = table.schema.get_field_index("cluster")
        return table.set_column(at, table.schema.field(at), pa.array(cluster, pa.uint64()))

    _rewrite(path, change)
    assert list(verify.check_validation(verify.Output(copied))) == [
        "1 validation documents share a cluster with training"
    ]


def test_a_changed_source_is_one_sentence_and_a_count(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "source_texts", lambda out: lambda *place: ["another text"] * len(place[2]))
    (problem,) = verify.check_texts(verify.Output(finished))
    assert "of 200 sampled documents do not decode to what source 'web' has now" in problem
    assert "did it change since the run?" in problem


def test_a_folder_that_is_no_run_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify.main([str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path} is not a finished run: it has no manifest.json\n"


def test_trace_names_the_document_of_every_token(finished: Path) -> None:
    rows = ledger.read(finished).compute()
    train = rows[rows["fate"] == "train"].sort_values(["shard", "offset"]).reset_index(drop=True)
    for at in (0, 1, len(train) // 2, len(train) - 1):
        row = train.iloc[at]
        found = trace.trace(finished, "train", int(row["shard"]), int(row["offset"]))
        assert found["document"]["doc_id"] == row["doc_id"]
        cluster = found["document"]["cluster"]
        assert cluster == row["cluster"] or (pd.isna(cluster) and pd.isna(row["cluster"]))
        assert found["token_of_document"] == 0
        assert (found["before"] is None) == (at == 0)
        assert (found["after"] is None) == (at == len(train) - 1)
        if at:
            assert found["before"]["doc_id"] == train.iloc[at - 1]["doc_id"]
            assert found["text"][0].endswith("<|endoftext|>")
        (text,) = trace.source_texts(finished)(row["source"], row["path"], [int(row["record"])])
        assert text.startswith(found["text"][1])


def test_trace_in_a_document_cut_by_a_shard(finished: Path) -> None:
    found = trace.trace(finished, "train", 1, 0)
    assert found["document"]["shard"] == (0 if found["token_of_document"] else 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--shard", "train", "--token", "0"], "--shard is 'train'"),
        (["--shard", "train:99", "--token", "0"], "there is no shard train:99"),
        (["--shard", "val:0", "--token", "99999999"], "there is no token 99,999,999"),
    ],
)
def test_trace_refuses_in_a_sentence(
    finished: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trace.main([str(finished), *arguments]) == 2
    assert said in capsys.readouterr().err
