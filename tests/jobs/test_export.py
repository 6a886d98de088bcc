"""Exports of a finished run: its tokens in other formats, read back by us and by those formats' own tools."""

import json
import shutil
import subprocess
import tarfile
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from jobs import export, ledger, report
from jobs.formats import llmc, megatron
from jobs.verify import verify
from tests.conftest import ROOT, run_job
from tests.jobs.formats_referee import packed, unpacked

TOOLS = ROOT / ".venv-formats" / "bin" / "python"
FORMATS = ("nanogpt", "megatron", "mds", "webdataset", "datatrove", "parquet")
SPLITS = {"train": ledger.TRAIN, "val": ledger.VALIDATION}
POLICIES = ("stream", "padding", "best_fit")
LENGTH = 129
END_OF_TEXT = 0


class Split(NamedTuple):
    """What the run's shards and ledger say."""

    tokens: np.ndarray
    lengths: np.ndarray
    doc_ids: np.ndarray
    shards: np.ndarray  # in which each document begins

    @property
    def documents(self) -> list[np.ndarray]:
        return np.split(self.tokens, np.cumsum(self.lengths)[:-1])


def split_of(out: Path, split: str) -> Split:
    paths = llmc.find_shards(out, split)
    tokens = np.concatenate([llmc.open_shard(path)[:] for path in paths])
    rows = pd.concat(
        ledger.frame(pq.read_table(path, columns=["doc_id", "fate", "shard", "offset", "n_tokens"]))
        for path in ledger.files(out)
    )
    rows = rows[rows["fate"] == SPLITS[split]].sort_values(["shard", "offset"])
    columns = (("n_tokens", np.int64), ("doc_id", np.uint64), ("shard", np.int64))
    return Split(tokens, *(rows[name].to_numpy(kind) for name, kind in columns))


@pytest.fixture(scope="module")
def exported(finished: Path, cluster: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every format of documents, a folder each."""
    to = tmp_path_factory.mktemp("exported") / "to"
    assert run_export(finished, to, cluster, "--format", ",".join(FORMATS)) == 0
    return to


@pytest.fixture(scope="module")
def rows_exported(finished: Path, cluster: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows by each policy, a folder each with a folder for each format in it."""
    to = tmp_path_factory.mktemp("rows")
    for policy in POLICIES:
        options = ("--format", "mds,webdataset,parquet", "--rows", str(LENGTH), "--policy", policy)
        assert run_export(finished, to / policy, cluster, *options) == 0
    return to


def run_export(out: Path, to: Path, cluster: str, *options: str) -> int:
    return export.main([str(out), "--to", str(to), "--scheduler", cluster, *options])


def contents(folder: Path) -> dict[str, bytes]:
    """The files of the splits."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in {"manifest.json", ".lock"} and path.parent.name != "tasks"
    }


# ---------------------------------------------------------------- read by us


@pytest.mark.parametrize("split", SPLITS)
def test_nanogpt_is_the_stream_in_a_memory_map(finished, exported, split):
    tokens = np.memmap(exported / "nanogpt" / f"{split}.bin", np.uint16, mode="r")
    np.testing.assert_array_equal(tokens, split_of(finished, split).tokens)


@pytest.mark.parametrize("split", SPLITS)
def test_documents_lie_whole_in_the_shard_in_which_they_begin(finished, exported, split):
    expected = split_of(finished, split)
    assert len(set(expected.shards.tolist())) > (split == "train")
    found, numbers = [], []
    for path in sorted((exported / "megatron" / split).glob("*.idx")):
        documents = megatron.open_documents(path.with_suffix(""))
        found += [documents.document(i) for i in range(len(documents.lengths))]
        numbers += [int(path.stem[-6:])] * len(documents.lengths)
    assert numbers == expected.shards.tolist()
    for one, document in zip(found, expected.documents, strict=True):
        np.testing.assert_array_equal(one, document)


@pytest.mark.parametrize("split", SPLITS)
def test_parquet_holds_each_document_with_its_id(finished, exported, split):
    expected = split_of(finished, split)
    table = pq.read_table(exported / "parquet" / split)
    assert table["doc_id"].to_pylist() == expected.doc_ids.tolist()
    assert table["ids"].to_pylist() == [document.tolist() for document in expected.documents]


# ---------------------------------------------------------------- rows


def expected_rows(of: Split, policy: str) -> list[list[int]]:
    """Rows without their filling; those of packing in no order."""
    if policy == "stream":
        return of.tokens[: len(of.tokens) // LENGTH * LENGTH].reshape(-1, LENGTH).tolist()
    return [
        document[start : start + LENGTH].tolist()
        for document in of.documents
        for start in range(0, len(document), LENGTH)
    ]


def rows_in_parquet(folder: Path) -> tuple[list[list[int]], list[int]]:
    table = pq.read_table(folder)
    rows = table["ids"].to_pylist()
    n_tokens = table["n_tokens"].to_pylist() if "n_tokens" in table.column_names else [LENGTH] * len(rows)
    return rows, n_tokens


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("policy", POLICIES)
def test_rows_hold_the_tokens_that_their_policy_says(finished, rows_exported, policy, split):
    expected = expected_rows(split_of(finished, split), policy)
    rows, n_tokens = rows_in_parquet(rows_exported / policy / "parquet" / split)
    assert all(row[n:] == [END_OF_TEXT] * (LENGTH - n) for row, n in zip(rows, n_tokens, strict=True))
    held = [row[:n] for row, n in zip(rows, n_tokens, strict=True)]
    if policy != "best_fit":
        assert held == expected
        return
    documents = [piece for row in held for piece in _cut_at_ends(row)]
    assert sorted(map(tuple, documents)) == sorted(map(tuple, expected))
    assert len(rows) < 0.9 * len(expected)


def _cut_at_ends(row: list[int]) -> list[list[int]]:
    """Pieces of a packed row: each but one that fills a row alone ends with a document's end."""
    ends = [0, *(i + 1 for i, token in enumerate(row) if token == END_OF_TEXT)]
    ends += [] if ends[-1] == len(row) else [len(row)]
    return [row[a:b] for a, b in pairwise(ends)]


def test_packed_rows_do_not_begin_with_the_longest(rows_exported):
    """Rows that one long piece fills come anywhere."""
    rows, _ = rows_in_parquet(rows_exported / "best_fit" / "parquet" / "train")
    single = np.array([len(_cut_at_ends(row)) == 1 for row in rows])
    half = len(rows) // 2
    assert single[:half].mean() < 1.3 * single[half:].mean()


def test_the_report_says_what_the_exports_do(finished, rows_exported, cluster, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    rows = f"shards.rows={{length: {LENGTH}}}"
    assert run_job(_corpus_of(finished), out, cluster, "shards.formats=[parquet]", rows) == 0
    figures = report.read(out)["rows"]
    assert figures["length"] == LENGTH
    of = split_of(finished, "train")
    cut = int((of.lengths > LENGTH).sum())
    ends = np.cumsum(of.lengths)
    crossing = (ends - 1) // LENGTH != (ends - of.lengths) // LENGTH
    crossing |= ends > len(of.tokens) // LENGTH * LENGTH
    for policy, said in figures["policies"].items():
        found, n_tokens = rows_in_parquet(rows_exported / policy / "parquet" / "train")
        assert said["rows"] == len(found)
        assert said["share_of_positions_filled_up"] == pytest.approx(
            1 - sum(n_tokens) / (LENGTH * len(found))
        )
        assert said["tokens_left_out"] == len(of.tokens) - sum(n_tokens)
        assert said["documents_cut"] == (int(crossing.sum()) if policy == "stream" else cut)
        assert said["documents_cut_that_fit"] == said["documents_cut"] - cut
    assert figures["policies"]["stream"]["documents_cut_that_fit"] > 0
    assert figures["policies"]["padding"]["documents_per_row"] == 1
    packed_rows, n_tokens = rows_in_parquet(rows_exported / "best_fit" / "parquet" / "train")
    pieces = [_cut_at_ends(row[:n]) for row, n in zip(packed_rows, n_tokens, strict=True)]
    said = figures["policies"]["best_fit"]
    assert said["documents_per_row"] == pytest.approx(np.mean([len(row) for row in pieces]))
    after = sum(len(piece) for row in pieces for piece in row[1:])
    assert said["share_of_tokens_after_boundary"] == pytest.approx(after / len(of.tokens))


# ---------------------------------------------------------------- read by the formats' own tools


def by_the_tools(*arguments: object) -> None:
    if not TOOLS.exists():
        pytest.skip("needs the formats' own tools; run `make formats`")
    command = [TOOLS, "-W", "ignore", "-m", "tests.jobs.formats_referee", *arguments]
    subprocess.run([str(word) for word in command], cwd=ROOT, check=True, capture_output=True)


def read_by_the_tool(name: str, folder: Path, to: Path) -> list[dict[str, Any]]:
    by_the_tools("read", name, folder, to)
    with np.load(to) as arrays:
        return unpacked(arrays)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mds", "webdataset", "megatron", "datatrove"])
def test_the_tool_reads_every_document_back(finished, exported, name, tmp_path):
    for split in SPLITS:
        expected = split_of(finished, split)
        found = read_by_the_tool(name, exported / name / split, tmp_path / "read.npz")
        assert len(found) == len(expected.lengths)
        for sample, document, doc_id in zip(found, expected.documents, expected.doc_ids, strict=True):
            assert sample["ids"].dtype == np.uint16
            np.testing.assert_array_equal(sample["ids"], document)
            assert sample.get("doc_id", doc_id) == doc_id
        assert all(("doc_id" in sample) == (name in {"mds", "webdataset"}) for sample in found)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ["mds", "webdataset"])
def test_the_tool_reads_every_row_back(rows_exported, name, policy, tmp_path):
    rows, n_tokens = rows_in_parquet(rows_exported / policy / "parquet" / "train")
    found = read_by_the_tool(name, rows_exported / policy / name / "train", tmp_path / "read.npz")
    assert [sample["ids"].tolist() for sample in found] == rows
    if policy != "stream":
        assert [int(sample["n_tokens"]) for sample in found] == n_tokens


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
@pytest.mark.parametrize("name", ["mds", "mds rows", "megatron", "datatrove"])
def test_the_tool_s_own_writer_gives_the_same_bytes(name, dtype, tmp_path):
    from jobs.formats import datatrove, mds

    random = np.random.default_rng(0)
    lengths = np.array([50] * 5 if "rows" in name else [1, 255, 256, 70_000, 3])
    most = np.iinfo("int32" if (name, dtype) == ("megatron", "uint32") else dtype).max
    tokens = random.integers(0, most, lengths.sum(), dtype, endpoint=True)
    doc_ids = random.integers(0, 2**64, 5, np.uint64)
    stored = tokens.astype("int32") if (name, dtype) == ("megatron", "uint32") else tokens
    samples: list[dict[str, Any]] = [{"ids": ids} for ids in np.split(stored, np.cumsum(lengths)[:-1])]
    ours: dict[str, BytesIO] = {}

    def file(name: str) -> BytesIO:
        return ours.setdefault(name, BytesIO())

    if name == "mds rows":
        for i, sample in enumerate(samples):
            sample["n_tokens"] = np.uint32(i)
        entries = [mds.write_rows(file("shard.00000.mds"), tokens.reshape(5, 50), np.arange(5))]
    elif name == "mds":
        for sample, doc_id in zip(samples, doc_ids, strict=True):
            sample["doc_id"] = doc_id
        entries = [mds.write_documents(file("shard.00000.mds"), tokens, lengths, doc_ids)]
    elif name == "megatron":
        megatron.write_documents(file("shard.bin"), file("shard.idx"), tokens, lengths, stored.dtype.name)
    else:
        metadata = file("shard.ds.metadata")
        datatrove.write_documents(file("shard.ds"), file("shard.ds.index"), metadata, tokens, lengths, "mine")
    if name.startswith("mds"):
        entries[0]["raw_data"]["basename"] = "shard.00000.mds"
        mds.write_index(file("index.json"), entries)
    np.savez(tmp_path / "samples.npz", **packed(samples))
    (tmp_path / "theirs").mkdir()
    by_the_tools("write", name.split(" ")[0], tmp_path / "samples.npz", tmp_path / "theirs")
    assert contents(tmp_path / "theirs") == {key: ours[key].getvalue() for key in sorted(ours)}


@pytest.mark.slow
def test_both_read_megatron_s_own_pair_alike(shared, tmp_path):
    name = "meg-gpt2-openwebtext_text_document"
    for ending in (".bin", ".idx"):
        shutil.copy(shared / "shards" / f"{name}{ending}", tmp_path)
    found = read_by_the_tool("megatron", tmp_path, tmp_path / "read.npz")
    documents = megatron.open_documents(tmp_path / name)
    assert len(found) == len(documents.document_index) - 1
    for number, sample in enumerate(found):
        np.testing.assert_array_equal(sample["ids"], documents.document(number))


# ---------------------------------------------------------------- llm.c


@pytest.fixture(scope="module")
def dataloader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that reads shards as llm.c's loader does."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    program = tmp_path_factory.mktemp("llmc") / "dataloader"
    subprocess.run(
        [compiler, "-Wall", "-Werror", "-o", program, Path(__file__).with_name("dataloader.c")], check=True
    )
    return program


@pytest.mark.parametrize("ranks", range(1, 9))
def test_llm_c_trains_on_our_shards(finished, dataloader, ranks):
    b, t = 4, 61
    paths = llmc.find_shards(finished, "train")
    done = subprocess.run([dataloader, str(b), str(t), str(ranks), *paths], check=True, capture_output=True)
    read = np.frombuffer(done.stdout, np.uint16).reshape(-1, b * t + 1)
    expected = []
    for path in paths:
        tokens = llmc.open_shard(path)[:]
        batches = (len(tokens) - 1) // (ranks * b * t)
        expected += [tokens[i * b * t : (i + 1) * b * t + 1] for i in range(batches * ranks)]
    np.testing.assert_array_equal(read, np.array(expected))


def test_llm_c_s_rules_are_really_applied(finished, dataloader, tmp_path):
    path = shutil.copy(llmc.find_shards(finished, "train")[0], tmp_path / "shard.bin")
    tokens = len(llmc.open_shard(path))

    def refused(*words: object) -> bytes:
        done = subprocess.run([dataloader, *map(str, words), path], capture_output=True, check=False)
        return done.stderr if done.returncode else b""

    assert not refused(1, tokens - 1, 1)
    assert b"too few tokens" in refused(1, tokens, 1)
    with path.open("ab") as file:
        file.write(b"\0\0")
    assert b"bad size" in refused(1, 10, 1)


# ---------------------------------------------------------------- the job and the command


def _corpus_of(out: Path) -> str:
    config = json.loads((out / "manifest.json").read_text())["config"]
    return str(config["sources"][0]["path"])


def test_a_run_writes_what_the_command_writes(finished, exported, cluster, tmp_path):
    from jobs.runtime.console import Console

    out = tmp_path / "out"
    shutil.copytree(finished, out)
    asked = f"shards.formats=[llmc, {', '.join(FORMATS)}]"
    before = {path: path.stat().st_ino for path in (out / "shards").iterdir()}
    assert run_job(_corpus_of(finished), out, cluster, asked) == 0
    assert {path: path.stat().st_ino for path in (out / "shards").iterdir()} == before
    assert contents(out / "exports") == contents(exported)
    assert verify(out, Console()) == []
    damaged = out / "exports" / "mds" / "train" / "shard.00000.mds"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    assert any(str(damaged) in problem for problem in verify(out, Console()))
    assert run_job(_corpus_of(finished), out, cluster) == 0
    assert [path.name for path in (out / "exports").rglob("*") if path.is_file()] == ["manifest.json"]


def test_the_bytes_do_not_depend_on_where_an_export_stopped(finished, exported, cluster, tmp_path, capsys):
    to = tmp_path / "to"
    assert run_export(finished, to, cluster, "--format", "mds") == 0
    (to / "mds" / "manifest.json").unlink()
    (to / "mds" / "train" / "index.json").unlink()
    (to / "mds" / "tasks" / "mds-train-000001.json").unlink()
    (to / "mds" / "train" / ".aside-1234-shard.00001.mds").write_bytes(b"half")
    kept = (to / "mds" / "train" / "shard.00000.mds").stat().st_ino
    capsys.readouterr()
    assert run_export(finished, to, cluster, "--format", "mds") == 0
    assert "shards were done before" in capsys.readouterr().out
    assert (to / "mds" / "train" / "shard.00000.mds").stat().st_ino == kept
    assert contents(to / "mds") == contents(exported / "mds")
    assert run_export(finished, to, cluster, "--format", "mds") == 0
    assert "done before" not in capsys.readouterr().out  # nothing was looked at again


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--format", "llmc"], "llmc is what the run has written already"),
        (["--format", "mds,mds"], "names 'mds' twice"),
        (["--format", "tar"], "--format is 'tar'"),
        (["--format", "megatron", "--rows", "10"], "--rows has no effect on megatron"),
        (["--format", "mds", "--rows", "1"], "--rows is 1"),
        (["--format", "mds", "--policy", "padding"], "say how long they are with --rows"),
    ],
)
def test_what_cannot_be_exported_is_said_in_a_sentence(finished, cluster, tmp_path, capsys, options, said):
    assert run_export(finished, tmp_path / "to", cluster, *options) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "to").exists()


def test_a_folder_of_someone_else_s_is_left_alone(finished, cluster, tmp_path, capsys):
    (tmp_path / "thesis.tex").write_text("mine")
    for to in (tmp_path, tmp_path / "thesis.tex", finished, finished / "exports"):
        assert run_export(finished, to, cluster, "--format", "mds") == 2
        assert "give a new or empty folder" in capsys.readouterr().err
    assert (tmp_path / "thesis.tex").read_text() == "mine"


def test_an_unfinished_run_is_refused(cluster, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    assert run_export(tmp_path / "out", tmp_path / "to", cluster, "--format", "mds") == 2
    assert "is not a finished run" in capsys.readouterr().err


def test_a_tar_is_a_tar(exported):
    with tarfile.open(next((exported / "webdataset" / "val").glob("*.tar"))) as tar:
        assert all(name.endswith(".ids.npy") for name in tar.getnames())
