"""Mixtures of a run's groups, drawn by the loader and packed: the same token for token, held against the shards."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs import export, feed, ledger, mix, report
from jobs.errors import UserError
from jobs.formats import llmc
from jobs.loader import ShardLoader
from jobs.loader.mixture import MixtureLoader
from jobs.mixture.groups import Groups
from jobs.runtime import folders
from jobs.runtime.console import Console
from jobs.verify import Output, check_mixture, verify
from tests import naive
from tests.conftest import corpus_texts, python, run_job, write_corpus

SOURCES = ("code", "math", "web")
CURRICULUM = {
    "shares": {"web": 0.5, "code": 0.3, "math": 0.2},
    "length": 64,
    "seed": 5,
    "stages": [
        {"name": "broad", "tokens": 40_000},
        {"name": "annealing", "tokens": 10_000, "shares": {"math": 1}, "length": 32},
        {"name": "long", "tokens": 8_000, "length": 200, "min_document_tokens": 200},
    ],
}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three sources of unequal sizes, as a setting."""
    folder = tmp_path_factory.mktemp("sources")
    sizes = dict(zip(SOURCES, (200, 60, 500), strict=True))
    for i, (name, documents) in enumerate(sizes.items()):
        write_corpus(folder / name, corpus_texts(documents, seed=10 + i), files=1)
    listed = ", ".join(f"{{name: {name}, path: '{folder / name}'}}" for name in SOURCES)
    return f"sources=[{listed}]"


@pytest.fixture(scope="module")
def run_of_three(sources: str, cluster: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a run over them with the curriculum, packed."""
    out = tmp_path_factory.mktemp("three") / "out"
    said = json.dumps(CURRICULUM | {"packed": True})
    assert run_job("unused", out, cluster, sources, f"mixture={said}") == 0
    return out


@pytest.fixture(scope="module")
def mixed(run_of_three: Path, cluster: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, made from the finished run by the command."""
    to = tmp_path_factory.mktemp("mixed") / "to"
    assert run_mix(run_of_three, to, cluster, CURRICULUM | {"packed": True}) == 0
    return to


def run_mix(out: Path, to: Path, cluster: str, mixture: dict[str, Any], *options: str) -> int:
    file = to.parent / f"{to.name}.yaml"
    file.write_text(json.dumps(mixture))
    return mix.main([str(out), "--mixture", str(file), "--to", str(to), "--scheduler", cluster, *options])


def documents_of(out: Path, column: str = "source") -> pd.DataFrame:
    """The training documents in the run's order, with their tokens, from the ledger and the shards alone."""
    shards = [llmc.open_shard(path)[:] for path in llmc.find_shards(out, "train")]
    starts = np.cumsum([0, *map(len, shards)])
    stream = np.concatenate(shards)
    wanted = [column, "fate", "shard", "offset", "n_tokens"]
    rows = pd.concat(pq.read_table(path, columns=wanted).to_pandas() for path in ledger.files(out))
    rows = rows[rows["fate"] == "train"].sort_values(["shard", "offset"])
    begins = starts[rows["shard"].astype(int)] + rows["offset"].astype(int)
    rows["tokens"] = [stream[a : a + n] for a, n in zip(begins, rows["n_tokens"], strict=True)]
    return rows


def stream_of(documents: pd.DataFrame, least: int) -> np.ndarray:
    """Documents of at least so many tokens: those of less than 200 first, as they are kept apart."""
    n_tokens = documents["n_tokens"]
    tiers = [documents[(n_tokens >= least) & (n_tokens < 200)], documents[n_tokens >= max(least, 200)]]
    return np.concatenate([one for tier in tiers for one in tier["tokens"]])


def rows_of(loader: Any) -> list[tuple[list[int], list[int]]]:
    return [(x.tolist(), y.tolist()) for batch in loader for x, y in zip(*batch, strict=True)]


# ---------------------------------------------------------------- groups


def test_a_group_s_shards_are_its_documents_in_the_run_s_order(run_of_three, mixed):
    documents, groups = documents_of(run_of_three), Groups.of(mixed)
    assert sorted(groups.sizes) == list(SOURCES)
    for name in SOURCES:
        of_group = documents[documents["source"] == name]
        for least in (0, 200):
            stream = groups.stream(name, least)
            np.testing.assert_array_equal(stream.window(0, stream.n_tokens), stream_of(of_group, least))


def test_a_group_is_a_data_set_of_its_own(mixed):
    loader = ShardLoader("train", 1, 16, mixed / "groups" / "web" / "000000000")
    assert loader.n_tokens == Groups.of(mixed).sizes["web"][0]


# ---------------------------------------------------------------- the same, two ways


def test_packed_and_drawn_are_the_same_token_for_token(mixed):
    drawn, packed = (MixtureLoader(mixed, 3, packed=packed, uneven="pad") for packed in (False, True))
    assert [stage.T for stage in drawn.stages] == [64, 32, 200]
    assert rows_of(drawn) == rows_of(packed)
    assert drawn.state_dict() == packed.state_dict()


def test_the_packed_files_hold_the_naive_stream(run_of_three, mixed):
    documents, plan = documents_of(run_of_three), MixtureLoader(mixed).plan
    for number, stage in enumerate(plan.stages):
        streams = {
            name: stream_of(documents[documents["source"] == name], stage.min_document_tokens)
            for name in SOURCES
        }
        expected = naive.mixture_stage(stage, streams, plan.seed, plan.apart)
        paths = sorted((mixed / "mixture" / f"{number:02d}-{stage.name}").glob("*.bin"))
        found = np.concatenate([llmc.open_shard(path)[:] for path in paths])
        np.testing.assert_array_equal(found.reshape(-1, stage.length + 1)[:, :-1], [x for x, _ in expected])
        np.testing.assert_array_equal(found.reshape(-1, stage.length + 1)[:, 1:], [y for _, y in expected])


def test_totals_are_exact_and_said(mixed):
    figures = json.loads((mixed / "mixture" / "manifest.json").read_text())["figures"]
    broad, annealing, long = figures["stages"]
    assert {name: one["sequences"] for name, one in broad["groups"].items()} == {
        "code": 188,
        "math": 125,
        "web": 312,
    }
    assert broad["tokens"] == broad["asked_tokens"] == 625 * 64 == 40_000
    assert annealing["tokens"] == 312 * 32 == annealing["asked_tokens"] // 32 * 32
    assert annealing["groups"]["math"]["share"] == 1
    assert long["sequences"] == 40
    assert long["min_document_tokens"] == 200
    assert broad["groups"]["math"]["epochs"] == pytest.approx(
        125 * 64 / broad["groups"]["math"]["tokens_there"]
    )


def test_other_weights_need_no_other_shards(mixed):
    said = {"by": "source", "shares": {"web": 0.25, "math": 0.75}, "tokens": 6400, "length": 64}
    loader = MixtureLoader(mixed, 4, said)
    assert len(rows_of(loader)) == 100
    assert {one.name: one.sequences for one in loader.plan.stages[0].groups} == {
        "code": 0,
        "math": 75,
        "web": 25,
    }


# ---------------------------------------------------------------- ranks, resuming


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("packed", [False, True])
def test_ranks_together_serve_each_stage_once(mixed, world_size, packed):
    whole = rows_of(MixtureLoader(mixed, 1, packed=packed))
    ranks = [
        MixtureLoader(mixed, 2, packed=packed, rank=rank, world_size=world_size, uneven="pad")
        for rank in range(world_size)
    ]
    batches = [list(rank) for rank in ranks]
    assert len({len(one) for one in batches}) == 1
    served = [
        (x.tolist(), y.tolist())
        for step in zip(*batches, strict=True)
        for batch in step
        for x, y in zip(*batch, strict=True)
        if not (y == -100).all()
    ]
    assert served == whole


@pytest.mark.parametrize("workers", [0, 2])
def test_resumed_anywhere_it_goes_on_as_if_it_had_not_stopped(mixed, workers):
    def made(**options: Any) -> MixtureLoader:
        return MixtureLoader(mixed, 5, num_workers=workers, **options)

    whole = [x.tolist() for x, _ in made()]
    ends = np.cumsum([stage.n_batches for stage in made().stages]).tolist()
    assert len(whole) == ends[-1] == made().n_batches
    for stops in ([0, 1], [ends[0] - 1, ends[0]], [ends[0], ends[0] + 1], [ends[1], ends[2] - 1], [ends[2]]):
        loader, served = made(), []
        for stop in stops:  # resumed twice in a row
            for x, _ in loader:
                if len(served) == stop:
                    break
                served.append(x.tolist())
                if len(served) == stop:
                    break
            state = json.loads(json.dumps(loader.state_dict()))
            if stop == 0:
                state = made().state_dict()
            loader = made()
            loader.load_state_dict(state)
        served += [x.tolist() for x, _ in loader]
        assert served == whole


def test_a_state_means_the_same_on_other_ranks_and_with_other_batches(mixed):
    loader = MixtureLoader(mixed, 6)
    batches = iter(loader)
    for _ in range(4):
        next(batches)
    state = loader.state_dict()
    rest = rows_of(loader)
    ranks = [MixtureLoader(mixed, 3, rank=rank, world_size=2) for rank in range(2)]
    for rank in ranks:
        rank.load_state_dict(state)
    served = [
        (x.tolist(), y.tolist())
        for step in zip(*ranks, strict=True)
        for batch in step
        for x, y in zip(*batch, strict=True)
    ]
    assert served == rest


def test_a_batch_is_a_function_of_its_number(mixed):
    loader = MixtureLoader(mixed, 7)
    whole = [x.tolist() for x, _ in loader]
    for i in np.random.default_rng(0).permutation(len(whole)).tolist():
        assert loader.batch(i)[0].tolist() == whole[i]
    with pytest.raises(UserError, match="there is no batch"):
        loader.batch(len(whole))


# ---------------------------------------------------------------- groups by another column


def test_groups_by_any_column(finished, cluster, tmp_path):
    crawl = "CC-MAIN-2012-05"
    said = {"by": "crawl", "shares": {crawl: 0.5, "other": 0.5}, "length": 32}
    assert run_mix(finished, tmp_path / "to", cluster, said) == 0
    documents = documents_of(finished, "crawl")
    of_crawl = documents["crawl"] == crawl
    sizes = Groups.of(tmp_path / "to").sizes
    assert sizes == {
        crawl: {0: int(documents[of_crawl]["n_tokens"].sum())},
        "other": {0: int(documents[~of_crawl]["n_tokens"].sum())},
    }


def test_groups_by_buckets_of_a_number(finished, cluster, tmp_path):
    said = {"by": "score", "edges": [2.6, 3.0], "multipliers": {">=3": 3, "<2.6": 0}, "length": 32}
    assert run_mix(finished, tmp_path / "to", cluster, said) == 0
    documents = documents_of(finished, "score")
    bucket = np.searchsorted([2.6, 3.0], documents["score"], side="right")
    sizes = Groups.of(tmp_path / "to").sizes
    for number, name in enumerate(("<2.6", "2.6-3", ">=3")):
        assert sizes[name][0] == int(documents["n_tokens"][bucket == number].sum())
    (stage,) = MixtureLoader(tmp_path / "to").plan.stages
    assert [round(group.epochs, 2) for group in stage.groups] == [0, 1, 3]


# ---------------------------------------------------------------- the command and the job


def test_other_weights_do_not_write_the_groups_anew(run_of_three, mixed, cluster, tmp_path):
    to = tmp_path / "to"
    said = {"shares": {"web": 0.5, "math": 0.5}, "length": 64}
    assert run_mix(run_of_three, to, cluster, said) == 0
    before = {path: path.stat().st_mtime_ns for path in (to / "groups").rglob("*") if path.is_file()}
    assert run_mix(run_of_three, to, cluster, {"shares": {"code": 1}, "length": 64}) == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert MixtureLoader(to, 1).n_batches == Groups.of(to).sizes["code"][0] // 64


def test_the_command_makes_the_files_that_the_run_made(run_of_three, mixed):
    for folder in ("groups", "mixture"):
        theirs = {
            path.relative_to(mixed): path.read_bytes() for path in sorted((mixed / folder).rglob("*.bin"))
        }
        ours = {
            path.relative_to(run_of_three): path.read_bytes()
            for path in sorted((run_of_three / folder).rglob("*.bin"))
        }
        assert ours == theirs
        assert ours


def test_the_report_says_what_was_asked_for_and_what_is_given(run_of_three):
    figures = report.read(run_of_three)["mixture"]
    assert [stage["name"] for stage in figures["stages"]] == ["broad", "annealing", "long"]
    shown = pd.read_csv(run_of_three / "report" / "mixture.csv").set_index(["stage", "group"])
    assert shown.loc[("broad", "math"), ["asked", "given", "tokens"]].tolist() == ["20.0%", "20.0%", 8000]
    assert "annealing" in (run_of_three / "report" / "index.html").read_text()


def test_verify_names_what_is_damaged_and_how_to_repair_it(run_of_three, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(run_of_three, out)
    assert verify(out, Console()) == []
    damaged = next((out / "groups" / "web").rglob("*.bin"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    (problem,) = verify(out, Console())
    assert f"{damaged} is damaged" in problem
    assert f"remove {out / 'groups'} and run again" in problem


def test_verify_counts_groups_and_rows_again(run_of_three, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(run_of_three, out)
    output = Output(out)
    assert list(check_mixture(output)) == []
    output.figures["mixture"]["stages"][0]["sequences"] += 1
    output.figures["groups"]["groups"]["math"][0]["files"] = []
    first, second = check_mixture(output)
    assert "the shards of group math hold 0 tokens, the ledger gives it" in first
    assert second == "stage broad has 626 sequences, its shards hold 625 rows"


def test_mixed_to_a_store_and_read_from_there(run_of_three, mixed, tmp_path):
    pytest.importorskip("upath", reason="an output behind a URL needs the extra `remote`")
    from distributed import LocalCluster

    url = "memory://bucket/mixed"
    file = tmp_path / "curriculum.yaml"
    file.write_text(json.dumps(CURRICULUM | {"packed": True}))
    try:
        with LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=":0"
        ) as here:
            arguments = ["--to", url, "--scheduler", here.scheduler_address]
            assert mix.main([str(run_of_three), "--mixture", str(file), *arguments]) == 0
        expected = rows_of(MixtureLoader(mixed, 4))
        for packed in (False, True):
            loader = MixtureLoader(url, 4, packed=packed, cache_dir=tmp_path / "cache")
            assert rows_of(loader) == expected
    finally:
        folders.remove_folder(folders.located("memory://bucket"))


def test_what_cannot_be_met_is_refused_before_anything_is_written(run_of_three, cluster, tmp_path, capsys):
    said = {"shares": {"web": 0.5, "math": 0.5}, "tokens": "10e6", "max_epochs": {"math": 2}, "length": 64}
    assert run_mix(run_of_three, tmp_path / "to", cluster, said) == 2
    assert "'math' should give 5,000,000 tokens, but max_epochs is 2" in capsys.readouterr().err
    assert not list((tmp_path / "to").rglob("*.bin"))
    assert run_mix(run_of_three, tmp_path / "to", cluster, said, "--set", "closest=true") == 0


def test_a_dry_run_says_what_a_real_one_does_and_neither_starts_a_cluster_nor_writes(
    run_of_three, cluster, tmp_path, capsys, monkeypatch
):
    said = json.dumps({"shares": {"web": 0.5, "math": 0.5}, "tokens": 6400, "length": 64})
    with monkeypatch.context() as patched:
        patched.setattr("jobs.runtime.cluster.connected", None)
        assert mix.main([str(run_of_three), "--set", f"mixture={said}", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "mixture: 100 sequences of 64 tokens, 6,400 tokens" in shown
    assert re.search(r"math +50\.000% \(asked 50\.000%\)  3,200 tokens, \d\.\d\d epochs", shown)
    assert not run_of_three.with_name("out-mixture").exists()
    assert run_mix(run_of_three, tmp_path / "to", cluster, json.loads(said)) == 0
    assert capsys.readouterr().out.endswith(shown)


def test_commands_on_a_mixture_serve_it_or_say_what_it_is(mixed, cluster, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(feed.measured, "__defaults__", (0.01,))
    assert feed.main([str(mixed), "--eats", "1000", "--batch", "4"]) == 0
    shown = capsys.readouterr().out
    for stage, size in (("broad", "4 x 64"), ("annealing", "4 x 32"), ("long", "4 x 200")):
        assert re.search(rf"{stage} +[0-9,]+ +[0-9,.]+ +{size}", shown)
    for option in (["--length", "64"], ["--split", "val"], ["--batch", "1000"]):
        assert feed.main([str(mixed), "--eats", "1000", *option]) == 2
        refused = capsys.readouterr()
        assert refused.out == ""
        assert "mixture" in refused.err
    options = ["--format", "mds", "--to", str(tmp_path / "to"), "--scheduler", cluster]
    assert export.main([str(mixed), *options]) == 2
    assert "is a mixture that jobs.mix made, and no run" in capsys.readouterr().err
    with pytest.raises(UserError, match="is a mixture and has no splits"):
        ShardLoader("train", 4, 64, mixed)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (
            {"shares": {"wed": 1}},
            "names the group 'wed'; the sources are code, math, web; did you mean 'web'?",
        ),
        ({"by": "nope"}, "mixture.by is 'nope', which is no column of the ledger"),
        ({"by": "score"}, "a column of numbers; say with mixture.edges where to cut it"),
        ({"by": "crawl", "shares": {"x": 1}}, "names the group 'x'; those with training documents are other"),
        ({"edges": [1]}, "mixture.edges is for columns of numbers, and 'source' is none"),
        ({"shares": {"web": 2}}, "mixture.shares.web is 2"),
        ({"sharse": {"web": 1}}, "mixture.sharse is not a setting; did you mean mixture.shares?"),
    ],
)
def test_refused_in_a_sentence(run_of_three, cluster, tmp_path, capsys, said, sentence):
    assert run_mix(run_of_three, tmp_path / "to", cluster, said) == 2
    assert sentence in capsys.readouterr().err


def test_a_run_refuses_groups_that_are_no_sources_before_any_work(sources, cluster, tmp_path, capsys):
    assert run_job("unused", tmp_path / "out", cluster, sources, "mixture={shares: {wed: 1}}") == 2
    assert "names the group 'wed'; the sources are code, math, web" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_loaders_refuse_what_does_not_belong_together(finished, mixed):
    with pytest.raises(UserError, match="has no shards of groups"):
        MixtureLoader(finished)
    with pytest.raises(UserError, match="by source"):
        MixtureLoader(mixed, mixture={"by": "crawl"})
    with pytest.raises(UserError, match=r"names the group 'news'; the groups in .* are code, math, web"):
        MixtureLoader(mixed, mixture={"multipliers": {"news": 2}})
    with pytest.raises(UserError, match="do not keep documents of at least 77 tokens apart, only of 0, 200"):
        MixtureLoader(mixed, mixture={"min_document_tokens": 77})
    with pytest.raises(UserError, match=r"mixture\.shares"):
        MixtureLoader(mixed, mixture={"shares": 3})
    with pytest.raises(UserError, match="3 stages"):
        MixtureLoader(mixed, [1, 2])
    state = MixtureLoader(mixed, mixture={"shares": {"web": 1}}).state_dict()
    with pytest.raises(UserError, match="saved in another mixture"):
        MixtureLoader(mixed).load_state_dict(state)


def test_a_training_script_needs_neither_dask_nor_numba():
    code = "import sys, jobs.loader.mixture; print(sorted({'dask', 'numba', 'pandas', 'pyarrow'} & set(sys.modules)))"
    assert python("-c", code).stdout == "[]\n"


def test_null_values_are_a_group(tmp_path):
    from jobs.pipeline.groups import Labels

    values = pa.chunked_array([["a", None, "b", "c"]])
    assert Labels("x", ("a", "null", "other")).groups(values).tolist() == [0, 1, 2, 2]
    numbers = pa.chunked_array([[1.0, None, 2.5, 9.0]])
    assert Labels("x", ("<2.5", ">=2.5", "null"), (2.5,)).groups(numbers).tolist() == [0, 2, 1, 1]
