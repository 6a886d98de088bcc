"""The loader of mixtures over small groups of random tokens: stages, ranks, batches and resuming, against lists."""

import itertools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from jobs.errors import UserError
from jobs.formats import llmc
from jobs.loader.dataset import ShardDataset
from jobs.loader.mixture import MixtureLoader
from jobs.mixture import sequences
from jobs.mixture.allotment import plan
from jobs.mixture.groups import Groups
from jobs.mixture.sequences import stages
from jobs.pipeline.mixture import figures_of, pack, packed_shards
from jobs.runtime import checkpoint
from jobs.settings.mixture import Mixture
from tests import naive
from tests.jobs.test_loader_ranks import files, together

NAMES = "abcde"
LONG = 50  # tokens of documents that stages may ask for


def write_groups(
    out: Path, sizes: dict[str, list[list[int]]], dtype: str = "uint16"
) -> dict[str, list[np.ndarray]]:
    """Files of so many tokens for each group and tier; returns the tokens of each tier."""
    random, tokens, groups = np.random.default_rng(0), {}, {}
    for name, tiers in sizes.items():
        tokens[name], groups[name] = [], []
        for least, parts in zip((0, LONG), tiers, strict=True):
            held = [random.integers(1, np.iinfo(dtype).max, n, dtype=dtype) for n in parts]
            listed = []
            for index, part in enumerate(held):
                file = f"{name}/{least:09d}/{llmc.shard_name('t', 'train', index)}"
                with checkpoint.written(out / "groups" / file) as opened:
                    llmc.write_shard(opened, part)
                listed.append([file, len(part)])
            tokens[name].append(np.concatenate([np.empty(0, dtype), *held]))
            groups[name].append({"min_document_tokens": least, "tokens": sum(parts), "files": listed})
    figures = {
        "by": "source",
        "edges": [],
        "tiers": [0, LONG],
        "dtype": dtype,
        "end_of_text": 0,
        "groups": groups,
    }
    checkpoint.write_json(out / "groups" / checkpoint.MANIFEST, {"figures": figures})
    return tokens


@st.composite
def mixtures(draw) -> dict[str, Any]:
    """Groups, a curriculum over them, and what loaders are made with."""
    names = NAMES[: draw(st.integers(1, 5))]
    part = st.lists(st.integers(1, 150), max_size=3)
    sizes = {name: [[*draw(part), 30], [*draw(part), 30]] for name in names}
    stages = []
    for number in range(draw(st.integers(1, 3))):
        weights = draw(st.lists(st.integers(0, 6), min_size=len(names), max_size=len(names)).filter(any))
        length = draw(st.sampled_from([2, 3, 7, 16]))
        stages.append({
            "name": f"stage{number}",
            "shares": {name: weight / sum(weights) for name, weight in zip(names, weights, strict=True)},
            "length": length,
            "tokens": length * draw(st.integers(1, 90)),
            "min_document_tokens": draw(st.sampled_from([0, LONG])),
            "shuffle": draw(st.booleans()),
        })  # fmt: skip
    return {
        "sizes": sizes,
        "mixture": {
            "stages": stages,
            "seed": draw(st.integers(0, 3)),
            "apart": draw(st.sampled_from([0, 0.5, 0.7])),
        },
        "dtype": draw(st.sampled_from(["uint16", "uint32"])),
        "B": draw(st.integers(1, 4)),
        "world_size": draw(st.integers(1, 3)),
    }


def loaders(out: str, load: dict[str, Any], **changed: Any) -> list[MixtureLoader]:
    options = {
        "B": load["B"],
        "world_size": load["world_size"],
        "uneven": "pad",
        "mixture": load["mixture"],
        **changed,
    }
    return [MixtureLoader(out, rank=rank, **options) for rank in range(options["world_size"])]


def naive_stages(load: dict[str, Any], tokens: dict[str, list[np.ndarray]]) -> list[list[tuple[list, list]]]:
    """Sequences of each stage as lists."""
    said = Mixture.model_validate(load["mixture"])
    planned = plan(said, {name: {0: len(short), LONG: len(long)} for name, (short, long) in tokens.items()})
    found = []
    for stage in planned.stages:
        streams = {
            name: long if stage.min_document_tokens else np.concatenate([short, long])
            for name, (short, long) in tokens.items()
        }
        rows = naive.mixture_stage(stage, streams, said.seed, said.apart)
        found.append([(x.tolist(), y.tolist()) for x, y in rows])
    return found


def batches_of(rows: list, size: int) -> list[list]:
    """Batches of all ranks, the last filled up."""
    batches = [rows[i : i + size] for i in range(0, len(rows), size)]
    t = len(rows[0][0])
    batches[-1] += [([0] * t, [-100] * t)] * (size - len(batches[-1]))
    return batches


@files
@given(mixtures())
def test_ranks_together_serve_the_naive_stages(load):
    with tempfile.TemporaryDirectory() as out:
        tokens = write_groups(Path(out), load["sizes"], load["dtype"])
        size = load["B"] * load["world_size"]
        expected = [batch for rows in naive_stages(load, tokens) for batch in batches_of(rows, size)]
        assert together([list(one) for one in loaders(out, load)]) == expected
        order = np.random.default_rng(0).permutation(len(expected)).tolist()
        shuffled = together([[one.batch(i) for i in order] for one in loaders(out, load)])
        assert shuffled == [expected[i] for i in order]


@files
@given(mixtures(), st.data())
def test_resumed_twice_on_other_ranks_it_serves_the_rest(load, data):
    with tempfile.TemporaryDirectory() as out:
        tokens = write_groups(Path(out), load["sizes"], load["dtype"])
        whole = naive_stages(load, tokens)
        served, state = [], loaders(out, load)[0].state_dict()
        for last in (False, False, True):
            b, world_size = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
            made = loaders(out, load, B=b, world_size=world_size)
            for one in made:
                one.load_state_dict(state)
            left = made[0].n_batches if last else data.draw(st.integers(0, made[0].n_batches))
            taken = [list(itertools.islice(one, left)) for one in made]
            served += [row for batch in together(taken) for row in batch if row[1][0] != -100]
            (state,) = {tuple(one.state_dict().items()) for one in made}
            state = dict(state)
        assert served == [row for rows in whole for row in rows]


@settings(deadline=None, max_examples=20)  # every file is synced
@given(mixtures())
def test_packed_rows_are_those_that_are_drawn(load):
    with tempfile.TemporaryDirectory() as out:
        folder = Path(out)
        tokens = write_groups(folder, load["sizes"], load["dtype"])
        groups = Groups.of(folder)
        planned = plan(Mixture.model_validate(load["mixture"]), groups.sizes)
        found: dict[int, list] = {}
        for shard in packed_shards(planned, folder / "mixture", "t", shard_tokens=60):
            pack(shard, stages(planned, groups), load["dtype"], folder / "mixture", "")
            length = planned.stages[shard.stage].length + 1
            assert shard.stop - shard.start == 1 or (shard.stop - shard.start) * length <= 60
            found.setdefault(shard.stage, []).append(llmc.open_shard(shard.path)[:].reshape(-1, length))
        for number, rows in enumerate(naive_stages(load, tokens)):
            packed = np.concatenate(found[number])
            np.testing.assert_array_equal(packed[:, :-1], [x for x, _ in rows])
            np.testing.assert_array_equal(packed[:, 1:], [y for _, y in rows])


@settings(deadline=None, max_examples=40)
@given(st.integers(20, 60), st.integers(1, 60), st.integers(1, 400), st.floats(0, 0.9), st.booleans())
def test_copies_are_as_far_apart_as_is_said(windows, others, sequences, apart, shuffle):
    length = 3
    with tempfile.TemporaryDirectory() as out:
        write_groups(Path(out), {"a": [[windows * length + 1], []], "b": [[9 * length], []]})
        said = {"a": windows / (windows + others), "b": others / (windows + others)}
        settings_ = Mixture(
            shares=said, tokens=sequences * length, length=length, apart=apart, shuffle=shuffle
        )
        groups = Groups.of(Path(out))
        (mixed,) = stages(plan(settings_, groups.sizes), groups)
        figures = figures_of(mixed)["groups"]["a"]
        places = mixed.places(0, np.arange(len(mixed)))
        nearest = min(
            (int(np.diff(np.flatnonzero(places == w)).min(initial=10**9)) for w in range(windows)),
            default=10**9,
        )
        if figures["copies_apart"] is None:
            assert nearest == 10**9
        else:
            assert nearest * length >= figures["copies_apart"]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_workers_serve_the_same(tmp_path, num_workers):
    write_groups(tmp_path, {"a": [[500], []], "b": [[300], [200]]})
    alone, helped = (MixtureLoader(tmp_path, 4, TWO_STAGES, num_workers=n) for n in (0, num_workers))
    assert together([list(alone)]) == together([list(helped)])


TWO_STAGES = {
    "shares": {"a": 0.5, "b": 0.5},
    "stages": [{"name": "x", "tokens": 300, "length": 4}, {"name": "y", "tokens": 200, "length": 8}],
}


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_the_dataset_of_torch_s_dataloader(tmp_path, num_workers):
    write_groups(tmp_path, {"a": [[500], []], "b": [[300], [200]]})
    loader = MixtureLoader(tmp_path, 4, TWO_STAGES, uneven="pad")
    dataset = ShardDataset(loader)
    batches = DataLoader(dataset, batch_size=None, num_workers=num_workers)
    assert len(batches) == len(loader)
    whole = together([list(MixtureLoader(tmp_path, 4, TWO_STAGES, uneven="pad"))])
    assert together([list(batches)]) == whole
    assert loader.position == (0, 0)  # the data set has a copy
    dataset.load_state_dict({**loader.state_dict(), "stage": 1, "sequence": 8})
    assert together([list(batches)]) == whole[loader.stages[0].n_batches + 2 :]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_torchdata_s_stateful_dataloader_resumes_twice(tmp_path, num_workers):
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    write_groups(tmp_path, {"a": [[500], []], "b": [[300], [200]]})

    def made() -> Any:
        dataset = ShardDataset(MixtureLoader(tmp_path, 4, TWO_STAGES))
        return stateful.StatefulDataLoader(dataset, batch_size=None, num_workers=num_workers)

    batches, served = made(), []
    for n_batches in (5, 15):  # the second in the second stage
        iterator = iter(batches)
        served += list(itertools.islice(iterator, n_batches))
        state = batches.state_dict()
        del iterator
        batches = made()
        batches.load_state_dict(state)
    served += list(batches)
    assert together([served]) == together([list(MixtureLoader(tmp_path, 4, TWO_STAGES))])


def test_too_few_sequences_for_a_batch_are_refused_or_filled_up(tmp_path):
    write_groups(tmp_path, {"a": [[100], []]})
    said = {"tokens": 12, "length": 4}
    with pytest.raises(
        UserError, match="stage 0 of the mixture: there are 3 sequences, too few for one batch"
    ):
        MixtureLoader(tmp_path, 4, said)
    assert MixtureLoader(tmp_path, 4, said, uneven="pad").n_batches == 1
    with pytest.raises(UserError, match="uneven is drop or pad"):
        MixtureLoader(tmp_path, 4, said, uneven="wrap")


def test_few_files_stay_open_however_many_groups_there_are(tmp_path, monkeypatch):
    load = {name: [[40, 50, 60], [30, 20]] for name in NAMES}
    write_groups(tmp_path, load)
    expected = together([list(MixtureLoader(tmp_path, 4, {"length": 4}))])
    monkeypatch.setattr(sequences, "MOST_OPEN", 10)
    before = psutil.Process().num_fds()
    loader = MixtureLoader(tmp_path, 4, {"length": 4})
    assert together([list(loader)]) == expected
    assert psutil.Process().num_fds() <= before + 10


def test_a_loader_that_has_served_goes_back_to_a_state(tmp_path):
    write_groups(tmp_path, {"a": [[500], []]})
    said = {"stages": [{"name": name, "tokens": 100, "length": 4} for name in ("x", "y", "z")]}
    loader = MixtureLoader(tmp_path, 4, said)
    begin = loader.state_dict()
    whole = together([list(loader)])
    assert len(whole) == len(loader) == 18
    assert list(loader) == []  # a mixture has an end
    resumed = MixtureLoader(tmp_path, 4, said)
    resumed.load_state_dict(loader.state_dict())
    assert list(resumed) == []
    loader.load_state_dict(begin)
    loader.set_epoch(0)  # as a training loop does
    with pytest.raises(UserError, match="ends with its last stage, so there is no epoch 1"):
        loader.set_epoch(1)
    assert together([list(loader)]) == whole


def test_a_stage_s_next_epoch_goes_on_with_the_draws(tmp_path):
    write_groups(tmp_path, {"a": [[101], []], "b": [[301], []]})
    (stage,) = MixtureLoader(tmp_path, 4, {"length": 4}).stages
    numbers = np.arange(len(stage.sequences))
    first, second = (stage.sequences.places(epoch, numbers).tolist() for epoch in (0, 1))
    assert sorted(first) == sorted(second) == list(range(100))
    assert first != second


def test_documents_end_with_what_the_groups_say(tmp_path):
    write_groups(tmp_path, {"a": [[100], []]})
    loader = MixtureLoader(tmp_path, 2, {"length": 8}, mask_boundaries=True)
    assert loader.stages[0].end_of_text == 0
    x, _ = loader.batch(0)
    assert loader.documents(x).cu_seqlens.tolist() == [0, 8, 16]
