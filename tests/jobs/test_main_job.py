"""The main job on real clusters: what comes out, that it is the same bytes however made, and that it can resume."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from jobs import ledger, report
from jobs.loader import ShardLoader
from jobs.run import JOBS
from jobs.runtime.checkpoint import read_json
from jobs.trace import tokenizer_of
from tests.conftest import ROOT, corpus_texts, default_interrupt, digests, run_job, settings, write_corpus


def test_ledger_accounts_for_every_document(finished: Path, corpus: Path) -> None:
    rows = ledger.read(finished).compute()
    written = sum(pq.read_metadata(path).num_rows for path in corpus.glob("*.parquet"))
    assert len(rows) == written == 900
    assert rows["doc_id"].nunique() == written
    fates = rows["fate"].astype(str).value_counts().to_dict()
    assert set(fates) == {"train", "validation", "near_duplicate", "length.min_tokens"}
    assert rows.loc[rows["fate"].isin(["train", "validation"]), "shard"].notna().all()
    assert rows.loc[~rows["fate"].isin(["train", "validation"]), "shard"].isna().all()
    figures = {row["step"]: row for row in report.read(finished)["funnel"]}
    assert figures["read"]["documents"] == sum(fates.values())
    assert figures["kept"]["tokens"] == rows.loc[rows["shard"].notna(), "n_tokens"].sum()


def test_loader_serves_the_documents_in_the_ledgers_order(finished: Path, corpus: Path) -> None:
    loader = ShardLoader("train", B=2, T=64, data_dir=finished)
    stream = np.concatenate([loader.batch(i)[0].numpy().ravel() for i in range(loader.n_batches)])
    rows = ledger.read(finished).compute()
    train = rows[rows["fate"] == "train"].sort_values(["shard", "offset"])
    assert loader.n_tokens == train["n_tokens"].sum()
    coder = tokenizer_of(finished)
    texts = {
        (path.name, i): text
        for path in corpus.glob("*.parquet")
        for i, text in enumerate(pq.read_table(path)["text"].to_pylist())
    }
    expected = "".join(texts[row.path, row.record] + "<|endoftext|>" for row in train.itertuples())
    decoded = coder.decode(stream)
    assert decoded == expected[: len(decoded)]


def test_same_bytes_for_other_workers_splits_and_file_order(
    finished: Path, corpus: Path, tmp_path: Path
) -> None:
    shuffled = tmp_path / "corpus"
    shuffled.mkdir()
    for path in sorted(corpus.glob("*.parquet"), reverse=True):  # listed in another order by the file system
        shutil.copy(path, shuffled / path.name)
    from jobs.run import main

    for workers, split_bytes in ((1, "20 KB"), (2, "1 GB")):
        out = tmp_path / f"out-{workers}"
        arguments = [*settings(shuffled, f"splits.bytes={split_bytes}"), "--workers", str(workers)]
        assert main([*arguments, "--output", str(out)]) == 0
        assert digests(out) == digests(finished)


def test_a_second_run_does_nothing_and_says_so(
    finished: Path, corpus: Path, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*") if path.is_file()}
    started = time.perf_counter()
    assert run_job(corpus, finished, cluster) == 0
    assert time.perf_counter() - started < 10
    assert "nothing to do" in capsys.readouterr().out
    assert before == {path: path.stat().st_mtime_ns for path in finished.rglob("*") if path.is_file()} | {
        finished / ".lock": before[finished / ".lock"]
    }


@pytest.mark.parametrize(
    ("setting", "redone"),
    [
        ("report.window=128", {"report"}),
        ("scurve.copies=6", {"scurve", "report"}),
        ("shards.tokens=40000", {"shards", "ledger", "exports", "scurve", "report"}),
        ("order.seed=5", {"order", "validation", "shards", "ledger", "exports", "scurve", "report"}),
        ("validation.fraction=0.03", {"validation", "shards", "ledger", "exports", "scurve", "report"}),
        ("splits.bytes=1 MB", set()),
    ],
)
def test_a_changed_setting_redoes_just_what_it_affects(
    finished: Path, corpus: Path, cluster: str, tmp_path: Path, setting: str, redone: set[str]
) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    before = {job: _inode(out / job / "manifest.json") for job in JOBS if job != "corpus"}
    assert run_job(corpus, out, cluster, setting) == 0
    changed = {job for job in before if _inode(out / job / "manifest.json") != before[job]}
    assert changed == redone


def _inode(path: Path) -> tuple[int, int]:
    return path.stat().st_ino, path.stat().st_mtime_ns


@pytest.mark.parametrize(
    "after",
    [
        "annotate/tasks",
        pytest.param("order", marks=pytest.mark.slow),
        "shards/tasks",
        pytest.param("report", marks=pytest.mark.slow),
    ],
)
def test_killed_and_started_again_gives_the_same_bytes(
    finished: Path, corpus: Path, tmp_path: Path, after: str
) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "jobs.run", *settings(corpus), "--output", str(out), "--workers", "2"]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    deadline = time.monotonic() + 300
    while not list((out / after).glob("*")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    committed = {path: _inode(path) for path in (out / "annotate" / "tasks").glob("*.json")}
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert again.returncode == 0, again.stdout + again.stderr
    assert digests(out) == digests(finished)
    assert committed.items() <= {path: _inode(path) for path in committed}.items()


def test_what_a_killed_run_wrote_of_its_manifest_goes(
    finished: Path, corpus: Path, cluster: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    (out / ".aside-0123abcd-manifest.json").write_text("{")
    assert run_job(corpus, out, cluster) == 0
    assert not list(out.glob(".aside-*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_with_all_its_processes_it_says_one_sentence(
    corpus: Path, tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "jobs.run", *settings(corpus), "--output", str(out), "--workers", "2"]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=default_interrupt,
    )
    while not list((out / "annotate").glob("*")):
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, number)  # as a terminal does
    printed, said = process.communicate(timeout=120)
    assert "stopping in annotate: 3 jobs before it are committed" in printed
    assert said == "stopped; what is committed stays, and the same command continues from there\n"
    assert process.returncode == 128 + number


def test_a_lost_worker_costs_nothing(finished: Path, corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [
        sys.executable,
        "-m",
        "jobs.run",
        *settings(corpus, "splits.bytes=20 KB"),
        "--output",
        str(out),
    ]
    process = subprocess.Popen(
        [*command, "--workers", "2"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    while not list((out / "annotate" / "tasks").glob("*")):
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(_a_worker_of(process.pid), signal.SIGKILL)
    printed, _ = process.communicate(timeout=300)
    assert process.returncode == 0, printed
    assert digests(out) == digests(finished)


def _a_worker_of(pid: int) -> int:
    """A child that was spawned by multiprocessing and runs tasks: the one with the most memory."""
    import psutil

    children = psutil.Process(pid).children(recursive=True)
    return max(children, key=lambda child: child.memory_info().rss).pid


def test_until_stops_after_a_job_and_dry_run_says_what_would_run(
    corpus: Path, cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from jobs.run import main

    out = tmp_path / "out"
    arguments = [*settings(corpus), "--output", str(out), "--scheduler", cluster]
    assert main([*arguments, "--until", "annotate"]) == 0
    assert (out / "annotate" / "manifest.json").exists()
    assert not (out / "order").exists()
    capsys.readouterr()
    assert main([*arguments, "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "annotate         done before" in printed
    assert "near_duplicates  would run" in printed
    assert "web 000.parquet records 0 to" in printed
    assert "vocab_size: 700" in printed
    assert "14 bands of 8 rows" in printed


def test_two_runs_on_one_output_are_refused(corpus: Path, cluster: str, tmp_path: Path) -> None:
    from jobs.runtime.checkpoint import locked

    with locked(tmp_path):
        assert run_job(corpus, tmp_path, cluster) == 2


def test_someones_own_folder_is_left_alone(
    corpus: Path, cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "report" / "thesis.tex"
    mine.parent.mkdir()
    mine.write_text("years of work")
    for extra in ([], ["--fresh"]):
        from jobs.run import main

        assert main([*settings(corpus), "--output", str(tmp_path), "--scheduler", cluster, *extra]) == 2
        assert "was not made by a run, and has a report" in capsys.readouterr().err
        assert mine.read_text() == "years of work"


@pytest.mark.parametrize("by_a_run", [False, True])
def test_a_folder_with_other_files_is_refused_before_work(
    corpus: Path, cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], by_a_run: bool
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    if by_a_run:
        (tmp_path / ".lock").touch()
    assert run_job(corpus, tmp_path, cluster) == 2
    assert "holds 'notes.txt', which no run wrote; move it away, or" in capsys.readouterr().err
    assert not (tmp_path / "inventory").exists()


def test_an_output_that_is_a_file_is_refused(
    corpus: Path, cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").write_text("mine")
    assert run_job(corpus, tmp_path / "out", cluster) == 2
    assert "out is a file; give a new or empty folder" in capsys.readouterr().err


def test_a_run_whose_verification_fails_is_not_done(
    finished: Path, corpus: Path, cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    (out / "ledger" / "stray").touch()
    assert run_job(corpus, out, cluster) == 1
    printed = capsys.readouterr().out
    assert f"{out}: verification failed; " in printed
    assert ": done" not in printed


def test_report_holds_the_seeds_figures(finished: Path) -> None:
    figures = report.read(finished)
    assert 1 < figures["bytes_per_token"] < 10
    found = figures["near_duplicates"]
    assert found["clusters"] == found["clusters_inside_one_crawl"] + found["clusters_across_crawls"] > 0
    assert found["documents_removed"] == found["documents_in_clusters"] - found["clusters"]
    assert found["largest_cluster"] >= 2
    assert all(0 <= pair["similarity"] <= 1 for pair in found["pairs"])
    assert len(found["pairs"]) == 5
    floors = figures["length_floors"]
    assert [row["floor"] for row in floors] == [32, 64, 128, 256, 512]
    assert [row["documents"] for row in floors] == sorted(row["documents"] for row in floors)
    assert 2.5 <= figures["scores"]["median"] <= 4.5
    assert sum(figures["scores"]["by_rounded_score"].values()) == 900
    packed = figures["packing"]
    assert 0 < packed["padding_share"] < 1
    assert figures["scurve"]["pairs"] == 50


def test_figures_recomputed_by_hand(finished: Path) -> None:
    rows = ledger.read(finished).compute()
    figures = report.read(finished)
    assert figures["bytes_per_token"] == rows["n_bytes"].sum() / rows["n_tokens"].sum()
    for row in figures["length_floors"]:
        short = rows[rows["n_tokens"] < row["floor"]]
        assert row["documents"] == len(short)
        assert row["tokens"] == short["n_tokens"].sum()
        if len(short):
            assert row["mean_score"] == pytest.approx(short["score"].astype(float).mean())
    clusters = rows[rows["cluster"].notna()].groupby("cluster")
    assert figures["near_duplicates"]["clusters"] == clusters.ngroups
    assert figures["near_duplicates"]["clusters_inside_one_crawl"] == (clusters["crawl"].nunique() == 1).sum()
    median = figures["scores"]["median"]
    assert (
        (rows["score"].astype(float) < median).mean()
        <= 0.5
        <= (rows["score"].astype(float) < median + 0.01).mean()
    )


def test_validation_overlaps_no_reference_set(corpus: Path, cluster: str, tmp_path: Path) -> None:
    texts = [text for path in sorted(corpus.glob("*")) for text in pq.read_table(path)["text"].to_pylist()]
    # A reference set of exact and of near copies of half of the corpus.
    references = [text if i % 2 else text + " And one more sentence." for i, text in enumerate(texts[:450])]
    folder = write_corpus(tmp_path / "references", references, files=1)
    out = tmp_path / "out"
    extra = [f"validation.references=[{{name: evaluation, path: '{folder}'}}]", "validation.fraction=0.1"]
    assert run_job(corpus, out, cluster, *extra) == 0
    rows = ledger.read(out).compute()
    validation = rows[rows["fate"] == "validation"]
    assert len(validation) > 0
    covered = {(path.name, i) for path in corpus.glob("*") for i in range(pq.read_metadata(path).num_rows)}
    first = {("000.parquet", i) for i in range(300)} | {("001.parquet", i) for i in range(150)}
    places = set(zip(validation["path"], validation["record"].astype(int), strict=True))
    long_enough = rows["n_words"] >= 100
    near = {(r.path, int(r.record)) for r in rows[long_enough].itertuples()} & first & covered
    assert not places & near
    exact = {place for place in first if place[1] % 2}
    assert not places & exact


def test_more_validation_than_there_is_text_is_refused_before_work(
    corpus: Path, cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    extra = ["validation.fraction=null", "validation.tokens=99000000"]
    assert run_job(corpus, out, cluster, *extra) == 2
    assert "validation.tokens is 99,000,000, but the sources can hold" in capsys.readouterr().err
    assert not (out / "annotate").exists()


def test_output_names_no_machine(finished: Path, corpus: Path) -> None:
    content = json.dumps([read_json(path) for path in (finished / "report").glob("*.json")])
    assert str(finished) not in content
    assert str(corpus) not in content


def test_an_existing_tokenizer_is_used(finished: Path, corpus: Path, cluster: str, tmp_path: Path) -> None:
    from jobs.run import main

    out = tmp_path / "out"
    kept = [s for s in settings(corpus) if s != "--set" and "tokenizer.train" not in s]
    kept.append(f"tokenizer.path={finished / 'tokenizer' / 'tokenizer.json'}")
    arguments = [word for s in kept for word in ("--set", s)]
    assert main([*arguments, "--output", str(out), "--scheduler", cluster]) == 0
    assert (out / "tokenizer" / "tokenizer.json").read_bytes() == (
        finished / "tokenizer" / "tokenizer.json"
    ).read_bytes()


def test_more_documents_than_a_ledger_file_or_a_range_holds(
    monkeypatch: pytest.MonkeyPatch, finished: Path, corpus: Path, tmp_path: Path
) -> None:
    """Many ranges and ledger files: only their sizes are smaller here than in a large run."""
    from jobs.pipeline import accounting, order
    from jobs.run import main

    monkeypatch.setattr(order, "DOCUMENTS_PER_RANGE", 40)
    monkeypatch.setattr(ledger, "ROWS_PER_FILE", 130)
    monkeypatch.setattr(accounting.ledger, "ROWS_PER_FILE", 130)
    out = tmp_path / "out"
    monkeypatch.setenv("SHARDMILL_TEST", "1")
    from distributed import Client, LocalCluster

    with (
        LocalCluster(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=None) as local,
        Client(local),
    ):
        assert main([*settings(corpus), "--output", str(out), "--scheduler", local.scheduler_address]) == 0
    assert len(ledger.files(out)) == 7
    assert len(list((out / "order").glob("range-*"))) > 10
    assert digests(out, "shards") == digests(finished, "shards")


def test_one_document_without_validation(cluster: str, tmp_path: Path) -> None:
    write_corpus(tmp_path / "in", corpus_texts(1), files=1)
    quick = ("tokenizer.train.vocab_size=257", "validation.fraction=0", "length.min_tokens=1")
    assert run_job(tmp_path / "in", tmp_path / "out", cluster, *quick) == 0
    assert ledger.read(tmp_path / "out").compute()["fate"].tolist() == [ledger.TRAIN]
    assert [path.name[:10] for path in (tmp_path / "out" / "shards").glob("*.bin")] == ["sample_tra"]


def test_where_all_documents_went(cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_corpus(tmp_path / "in", [*corpus_texts(20), ""], files=1)
    quick = ("tokenizer.train.vocab_size=260", "length.min_tokens=100000")
    assert run_job(tmp_path / "in", tmp_path / "out", cluster, *quick) == 2
    said = "of 21 documents none is kept; dropped were 1 by input.empty_text, 20 by near_duplicate or length.min_tokens"
    assert said in capsys.readouterr().err


def test_nothing_but_duplicates_and_short_texts(cluster: str, tmp_path: Path) -> None:
    texts = [
        *corpus_texts(40, seed=3),
        *["the same words again and again " * 40] * 60,
        *["short"] * 50,
        "!!! ...",
    ]
    folder = write_corpus(tmp_path / "corpus", texts, files=2, row_group=7)
    out = tmp_path / "out"
    extra = ["tokenizer.train.vocab_size=300", "validation.exclude_tokenizer_sample=false"]
    assert run_job(folder, out, cluster, *extra) == 0
    counts = ledger.read(out).compute()["fate"].astype(str).value_counts()
    assert counts["near_duplicate"] >= 59 + 49
