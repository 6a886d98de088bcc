"""Ranks, shuffled epochs, uneven ends, resuming, workers and documents, against the slow forms in `tests.naive`."""

import itertools
import json
import os
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from jobs.errors import UserError
from jobs.formats import llmc
from jobs.loader import ShardLoader
from jobs.loader.dataset import ShardDataset
from jobs.loader.documents import Documents
from jobs.loader.shuffle import Permutation
from tests import naive

files = settings(deadline=None, max_examples=60)  # they write files


def write_shards(folder: Path, sizes: list[int], dtype: str = "uint16", high: int | None = None) -> list[int]:
    stream = np.random.default_rng(sizes).integers(0, high or np.iinfo(dtype).max, sum(sizes), dtype=dtype)
    for index, tokens in enumerate(np.split(stream, np.cumsum(sizes)[:-1])):
        with (folder / llmc.shard_name("t", "train", index)).open("wb") as file:
            llmc.write_shard(file, tokens)
    return stream.tolist()


def rows(batch: tuple[torch.Tensor, torch.Tensor]) -> list[tuple[list[int], list[int]]]:
    assert batch[0].is_contiguous()
    assert batch[1].is_contiguous()
    return list(zip(batch[0].tolist(), batch[1].tolist(), strict=True))


def together(batches_of_ranks: list[list]) -> list[list]:
    """Batches of all ranks: rank after rank in each. Every rank must have as many."""
    return [[row for batch in ranks for row in rows(batch)] for ranks in zip(*batches_of_ranks, strict=True)]


@st.composite
def loads(draw, uneven=("drop", "wrap", "pad")):
    """Shard sizes, and what loaders of them are made with."""
    b, t, world_size = draw(st.integers(1, 4)), draw(st.integers(1, 9)), draw(st.integers(1, 4))
    sizes = draw(st.lists(st.one_of(st.integers(1, 3), st.integers(1, 120)), min_size=1, max_size=8))
    rule = draw(st.sampled_from(uneven))
    lacking = (t if rule == "pad" else b * t * world_size) + 1 - sum(sizes)
    return {
        "sizes": [*sizes, lacking] if lacking > 0 else sizes,
        "dtype": draw(st.sampled_from(["uint16", "uint32"])),
        "B": b,
        "T": t,
        "world_size": world_size,
        "uneven": rule,
        "shuffle": draw(st.booleans()),
        "seed": draw(st.integers(0, 3)),
    }


def loaders(folder: str, load: dict, **changed) -> list[ShardLoader]:
    """One for each rank."""
    options = {name: value for name, value in {**load, **changed}.items() if name not in ("sizes", "dtype")}
    return [
        ShardLoader("train", data_dir=folder, rank=rank, **options) for rank in range(options["world_size"])
    ]


def expected(stream: list[int], load: dict, epochs: int, begun=(0, 0)) -> list:
    seed = load["seed"] if load["shuffle"] else None
    n_rows = load["B"] * load["world_size"]
    return naive.loader_epochs(stream, load["T"], n_rows, load["uneven"], epochs, seed, begun)


# Which sequences


@files
@given(loads())
def test_all_ranks_together_serve_the_naive_stream(load):
    with tempfile.TemporaryDirectory() as folder:
        stream = write_shards(Path(folder), load["sizes"], load["dtype"])
        batches = [batch for _, batch in expected(stream, load, 3)]
        made = loaders(folder, load)
        assert together([[one.batch(i) for i in range(len(batches))] for one in made]) == batches
        # Each in any order, as when training is resumed anywhere.
        order = np.random.default_rng(0).permutation(len(batches)).tolist()
        shuffled = together([[one.batch(i) for i in order] for one in loaders(folder, load)])
        assert shuffled == [batches[i] for i in order]


@files
@given(loads())
def test_iterating_gives_the_naive_epochs(load):
    with tempfile.TemporaryDirectory() as folder:
        stream = write_shards(Path(folder), load["sizes"], load["dtype"])
        batches = expected(stream, load, 4)
        made = loaders(folder, load)
        assert made[0].n_batches == sum(epoch == 0 for epoch, _ in batches)
        for epoch in range(3):
            served = together([list(one) for one in made])  # equally many on each rank
            assert served == [batch for began, batch in batches if began == epoch]


@files
@given(loads(uneven=("wrap", "pad")))
def test_each_window_once_in_an_epoch(load):
    with tempfile.TemporaryDirectory() as folder:
        sizes = load["sizes"]
        # Every token is another, so a row says which window it is.
        with (Path(folder) / "t_train_000000.bin").open("wb") as file:
            llmc.write_shard(file, np.arange(sum(sizes), dtype="uint16"))
        made = loaders(folder, load)
        n, epochs = made[0].n_sequences, 2
        counted: Counter[int] = Counter()
        for batch in together([[one.batch(i) for i in range(n * epochs)] for one in made]):
            counted.update(row[0][0] // load["T"] for row in batch if row[1][0] != -100)
            assert max(counted.values()) - min(counted[w] for w in range(n)) <= (
                1 if load["uneven"] == "pad" else 2
            )
            if sum(counted.values()) == n:
                assert counted == dict.fromkeys(range(n), 1)


def test_what_drop_leaves_out_is_less_than_a_batch_of_all_ranks_and_changes(tmp_path):
    with (tmp_path / "t_train_000000.bin").open("wb") as file:
        llmc.write_shard(file, np.arange(11 * 3 + 1, dtype="uint16"))
    made = [ShardLoader("train", 2, 3, tmp_path, rank=r, world_size=2, shuffle=True) for r in (0, 1)]
    left_out = []
    for _ in range(20):
        served = {x[0] // 3 for batch in together([list(one) for one in made]) for x, _ in batch}
        assert len(served) == 8
        left_out.append(frozenset(set(range(11)) - served))
    assert len(set(left_out)) > 10


@given(st.integers(1, 5000), st.integers(0, 2**63), st.integers(0, 2**40))
@settings(max_examples=200, deadline=None)
def test_the_permutation_is_one(n, seed, epoch):
    images = Permutation(n, seed, epoch)(np.arange(n))
    assert np.array_equal(np.sort(images), np.arange(n))


@given(st.integers(1, 300), st.integers(0, 5), st.integers(0, 5))
@settings(deadline=None)
def test_the_permutation_is_the_naive_one(n, seed, epoch):
    assert Permutation(n, seed, epoch)(np.arange(n)).tolist() == naive.loader_order(n, seed, epoch)


@pytest.mark.parametrize("n", [2, 3, 5, 16, 17])
def test_each_place_is_as_likely(n):
    turns = 2000
    images = np.array([Permutation(n, 7, epoch)(np.arange(n)) for epoch in range(turns)])
    for place in range(n):
        counts = np.bincount(images[:, place], minlength=n)
        chi2 = ((counts - turns / n) ** 2 / (turns / n)).sum()
        assert chi2 < n - 1 + 5 * np.sqrt(2 * (n - 1)) + 6


def test_a_permutation_of_very_many():
    n = 2**41 + 12345
    permutation = Permutation(n, 1, 0)
    images = permutation(np.arange(n - 5000, n))
    assert images.min() >= 0
    assert images.max() < n
    assert len(set(images.tolist())) == 5000
    assert abs(images.mean() / n - 0.5) < 0.03
    assert np.array_equal(permutation(np.array([n - 1])), images[-1:])


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="needs posix_fadvise")
def test_the_disk_is_told_of_a_batch_s_other_rows_when_one_came_from_it(tmp_path, monkeypatch):
    stream = write_shards(tmp_path, [700, 800])
    loader = ShardLoader("train", 6, 16, tmp_path, shuffle=True)
    loader.batch(0)
    loader.batch(1)  # both shards are open
    told = []
    monkeypatch.setattr(os, "posix_fadvise", lambda file, start, n, advice: told.append((start, n, advice)))
    monkeypatch.setattr("jobs.loader.stream.FROM_DISK", 3600)
    quick = loader.batch(2)
    assert told == []
    monkeypatch.setattr("jobs.loader.stream.FROM_DISK", 0)
    slow = loader.batch(2)
    assert rows(slow) == rows(quick)
    order = naive.loader_order(93, 1337, 0)[12:18]
    bases = [1024 + 32 * window - (0 if 16 * window < 700 else 1400) for window in order]
    assert len(told) == 5
    assert set(told) <= {(base, 34, os.POSIX_FADV_WILLNEED) for base in bases}
    assert rows(slow)[0][0] == stream[16 * order[0] : 16 * order[0] + 16]


# Resuming


@files
@given(loads(), st.data())
def test_resuming_equals_no_interruption_however_often_and_with_other_ranks_and_batches(load, data):
    with tempfile.TemporaryDirectory() as folder:
        stream = write_shards(Path(folder), load["sizes"], load["dtype"])
        n = (len(stream) - 1) // load["T"]
        place = (0, 0)
        for _ in range(3):  # three runs, one after the other
            batches = expected(stream, load, place[0] + 2, place)
            made = loaders(folder, load)
            for one in made:
                one.load_state_dict(
                    json.loads(json.dumps({**one.state_dict(), "epoch": place[0], "sequence": place[1]}))
                )
            here = made[0].position.epoch  # the next, where less is left than all ranks take
            in_epoch = [batch for began, batch in batches if began == here]
            stop = data.draw(st.one_of(st.just(0), st.just(len(in_epoch)), st.integers(0, len(in_epoch))))
            iterators = [iter(one) for one in made]
            served = together([[next(iterator) for _ in range(stop)] for iterator in iterators])
            assert served == in_epoch[:stop]
            states = [one.state_dict() for one in made]
            assert all(state == states[0] for state in states)
            assert all(type(value) is int for value in states[0].values())
            place = states[0]["epoch"], states[0]["sequence"]
            # Another split of the same rows for the next run.
            if load["uneven"] == "pad" or n >= 4:
                load = {**load, "B": data.draw(st.integers(1, 2)), "world_size": data.draw(st.integers(1, 2))}


def test_the_same_rows_whatever_ranks_and_batch(tmp_path):
    write_shards(tmp_path, [997])
    whole = ShardLoader("train", 12, 7, tmp_path, shuffle=True)
    for _ in range(5):
        next(iter(whole))
    state = whole.state_dict()
    through = [row for batch in whole for row in rows(batch)]
    for b, world_size in [(12, 1), (1, 12), (3, 4), (4, 3), (2, 6)]:
        made = [
            ShardLoader("train", b, 7, tmp_path, shuffle=True, rank=r, world_size=world_size)
            for r in range(world_size)
        ]
        for one in made:
            one.load_state_dict(state)
        assert [row for batch in together([list(one) for one in made]) for row in batch] == through


def test_a_state_saved_at_the_end_goes_on_with_the_next_epoch(tmp_path):
    write_shards(tmp_path, [500])
    loader = ShardLoader("train", 4, 8, tmp_path, shuffle=True)
    list(loader)
    state = loader.state_dict()
    assert (state["epoch"], state["sequence"]) == (1, 0)
    second = [rows(batch) for batch in loader]
    other = ShardLoader("train", 4, 8, tmp_path, shuffle=True)
    other.load_state_dict(state)
    other.set_epoch(1)  # as a training loop does; it is there already
    assert [rows(batch) for batch in other] == second
    other.set_epoch(0)
    assert [rows(batch) for batch in other] != second


def test_a_loader_that_has_read_ahead_goes_on_from_any_place(tmp_path):
    write_shards(tmp_path, [500])
    loader, fresh = (ShardLoader("train", 4, 8, tmp_path, shuffle=True) for _ in range(2))
    list(itertools.islice(loader, 3))  # places are planned from here on
    state = {**loader.state_dict(), "epoch": 0, "sequence": 21}  # saved by another B
    for one in (loader, fresh):
        one.load_state_dict(state)
    assert [rows(batch) for batch in loader] == [rows(batch) for batch in fresh]


def test_where_less_is_left_than_all_ranks_take_the_rule_decides(tmp_path):
    stream = write_shards(tmp_path, [500])  # 62 sequences of 8
    for uneven, epoch in (("drop", 1), ("wrap", 0), ("pad", 0)):
        loader = ShardLoader("train", 4, 8, tmp_path, uneven=uneven)
        loader.load_state_dict({**loader.state_dict(), "epoch": 0, "sequence": 60})
        assert loader.position.epoch == epoch
        assert rows(next(iter(loader))) == naive.loader_epochs(stream, 8, 4, uneven, 2, None, (0, 60))[0][1]


@pytest.mark.parametrize("uneven", ["drop", "wrap", "pad"])
def test_an_epoch_that_is_set_is_the_one_that_a_whole_run_comes_to(tmp_path, uneven):
    write_shards(tmp_path, [500])
    through = ShardLoader("train", 4, 8, tmp_path, shuffle=True, uneven=uneven)
    for epoch in range(4):
        chosen = ShardLoader("train", 4, 8, tmp_path, shuffle=True, uneven=uneven)
        chosen.set_epoch(epoch)
        assert [rows(batch) for batch in chosen] == [rows(batch) for batch in through]


def test_states_that_mean_nothing_are_refused(tmp_path):
    write_shards(tmp_path, [500])
    loader = ShardLoader("train", 4, 8, tmp_path, shuffle=True)
    state = loader.state_dict()
    for wrong, words in [
        ({"T": 16}, "saved with T 16, but this loader has 8"),
        ({"n_sequences": 61}, "saved with n_sequences 61, but this loader has 62"),
        ({"T": 16, "n_sequences": 31}, "saved with T 16, but this loader has 8"),
        ({"seed": -1}, "saved with shuffle False, but this loader has True"),
        ({"seed": 7}, "saved with seed 7, but this loader has 1337"),
        ({"sequence": 62}, "sequence 62 of epoch 0; an epoch has 62 sequences"),
        ({"epoch": -1}, "sequence 0 of epoch -1"),
    ]:
        with pytest.raises(UserError, match=words):
            loader.load_state_dict({**state, **wrong})
    with pytest.raises(UserError, match="no state of a loader: it lacks T, n_sequences, seed, sequence"):
        loader.load_state_dict({"epoch": 1})
    with pytest.raises(UserError, match="there is no epoch -1"):
        loader.set_epoch(-1)


def test_impossible_numbers_are_refused(tmp_path):
    write_shards(tmp_path, [100])
    for options, words in [
        ({"rank": 2, "world_size": 2}, "rank is 2 and world_size is 2"),
        ({"rank": -1}, "rank is -1"),
        ({"world_size": 0}, "world_size is 0"),
        ({"uneven": "hang"}, "uneven is 'hang'; it should be one of drop, wrap, pad"),
        ({"num_workers": -1}, "num_workers is at least 0"),
        ({"num_workers": 1, "prefetch": 0}, "prefetch at least 1"),
        ({"mask_boundaries": True}, "mask_boundaries needs end_of_text"),
        ({"seed": -1}, "seed is -1"),
    ]:
        with pytest.raises(UserError, match=words):
            ShardLoader("train", 2, 8, tmp_path, **options)


def test_less_than_one_batch_of_all_ranks_is_refused_unless_it_is_padded(tmp_path):
    stream = write_shards(tmp_path, [32])
    for uneven in ("drop", "wrap"):
        with pytest.raises(
            UserError,
            match=r"has 32 tokens, too few for one batch of world_size · B · T \+ 1 = 2 · 2 · 8 \+ 1 = 33",
        ):
            ShardLoader("train", 2, 8, tmp_path, world_size=2, uneven=uneven)
    made = [ShardLoader("train", 2, 8, tmp_path, world_size=2, rank=r, uneven="pad") for r in (0, 1)]
    assert together([list(one) for one in made]) == [naive.loader_epochs(stream, 8, 4, "pad", 1, None)[0][1]]
    with pytest.raises(UserError, match="too few for one batch"):
        ShardLoader("train", 1, 32, tmp_path, uneven="pad")


# Workers


@pytest.mark.parametrize("uneven", ["drop", "wrap", "pad"])
def test_workers_give_what_the_loader_gives_and_the_state_does_not_know_them(tmp_path, uneven):
    write_shards(tmp_path, [700, 61])
    options = {"shuffle": True, "uneven": uneven, "world_size": 2, "rank": 1}
    plain = ShardLoader("train", 3, 8, tmp_path, **options)
    epochs = [[rows(batch) for batch in plain] for _ in range(3)]
    workers = ShardLoader("train", 3, 8, tmp_path, num_workers=2, **options)
    assert [rows(batch) for batch in workers] == epochs[0]
    begun = iter(workers)
    served = [rows(next(begun)) for _ in range(5)]
    del begun
    for num_workers in (1, 0):  # resumed twice, with fewer
        state = workers.state_dict()
        workers = ShardLoader("train", 3, 8, tmp_path, num_workers=num_workers, **options)
        workers.load_state_dict(state)
        iterator = iter(workers)
        served += [rows(next(iterator)) for _ in range(4)]
        del iterator
    served += [rows(batch) for batch in workers]
    assert served == epochs[1]
    assert [rows(batch) for batch in workers] == epochs[2]


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_the_dataset_of_torch_s_dataloader(tmp_path, num_workers):
    write_shards(tmp_path, [400])
    loader = ShardLoader("train", 2, 8, tmp_path, shuffle=True)
    dataset = ShardDataset(loader)
    for epoch in range(2):
        dataset.set_epoch(epoch)
        batches = DataLoader(dataset, batch_size=None, num_workers=num_workers)
        assert len(batches) == len(loader) == loader.n_batches
        served = [rows(batch) for batch in batches]
        assert served == [rows(loader.batch(epoch * loader.n_batches + i)) for i in range(loader.n_batches)]


def test_a_dataset_without_workers_goes_on_with_the_next_epoch(tmp_path):
    write_shards(tmp_path, [400])
    loader = ShardLoader("train", 2, 8, tmp_path, shuffle=True)
    dataset = ShardDataset(loader)
    for _ in range(3):
        assert [rows(batch) for batch in dataset] == [rows(batch) for batch in loader]


def test_a_worker_s_state_with_other_workers_is_refused_and_not_served_wrongly(tmp_path):
    write_shards(tmp_path, [400])
    dataset = ShardDataset(ShardLoader("train", 2, 8, tmp_path))
    iterator = iter(dataset)
    served = [rows(next(iterator)) for _ in range(3)]
    state = dataset.state_dict()
    resumed = ShardDataset(ShardLoader("train", 2, 8, tmp_path))
    resumed.load_state_dict(state)
    assert served + [rows(batch) for batch in resumed] == [
        rows(b) for b in ShardLoader("train", 2, 8, tmp_path)
    ]
    resumed.load_state_dict({**state, "n_workers": 3})
    with pytest.raises(UserError, match="saved by one of 3 workers, and there are 1 now"):
        next(iter(resumed))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_torchdata_s_stateful_dataloader_resumes_twice(tmp_path, num_workers):
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    write_shards(tmp_path, [700])

    def made(epoch: int) -> tuple:
        dataset = ShardDataset(ShardLoader("train", 2, 8, tmp_path, shuffle=True))
        dataset.set_epoch(epoch)
        return dataset, stateful.StatefulDataLoader(dataset, batch_size=None, num_workers=num_workers)

    loader = ShardLoader("train", 2, 8, tmp_path, shuffle=True)
    epochs = [[rows(batch) for batch in loader] for _ in range(2)]
    dataset, batches = made(0)
    assert [rows(batch) for batch in batches] == epochs[0]
    dataset.set_epoch(1)
    iterator, served = iter(batches), []
    for n_batches in (1, 7, 4):
        served += [rows(next(iterator)) for _ in range(n_batches)]
        state = batches.state_dict()
        del iterator
        dataset, batches = made(1)
        batches.load_state_dict(state)
        iterator = iter(batches)
    served += [rows(batch) for batch in iterator]
    assert served == epochs[1]


# Documents


@given(st.integers(1, 4), st.integers(1, 12), st.integers(0, 2**32))
@settings(deadline=None)
def test_documents_are_the_naive_ones(b, t, seed):
    x = np.random.default_rng(seed).integers(0, 4, (b, t))
    found = Documents.of(torch.from_numpy(x), 0)
    edges, positions, masks = naive.loader_documents(x.tolist(), 0)
    assert found.cu_seqlens.tolist() == edges
    assert found.cu_seqlens.dtype == torch.int32
    assert found.max_seqlen == max(np.diff(edges))
    assert found.position_ids.tolist() == positions
    assert found.mask().tolist() == masks


def test_a_mask_keeps_documents_apart_in_torch_s_attention(tmp_path):
    write_shards(tmp_path, [200], high=5)
    loader = ShardLoader("train", 2, 16, tmp_path, end_of_text=0)
    x, _ = loader.batch(0)
    documents = loader.documents(x)
    q, k, v = torch.randn(3, 2, 1, 16, 4)
    masked = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=documents.mask())
    edges = documents.cu_seqlens.tolist()
    assert len(edges) > 5
    flat = [tensor.reshape(32, 4) for tensor in (q, k, v)]
    for start, stop in itertools.pairwise(edges):
        alone = [tensor[None, start:stop] for tensor in flat]
        expected = torch.nn.functional.scaled_dot_product_attention(*alone, is_causal=True)
        torch.testing.assert_close(masked.reshape(32, 4)[start:stop], expected[0])


@pytest.mark.parametrize("shuffle", [False, True])
def test_targets_at_a_boundary_are_ignored_and_inputs_stay(tmp_path, shuffle):
    write_shards(tmp_path, [500], high=5)
    plain = ShardLoader("train", 3, 8, tmp_path, shuffle=shuffle)
    masking = ShardLoader("train", 3, 8, tmp_path, shuffle=shuffle, end_of_text=0, mask_boundaries=True)
    for (x, y), (same, masked) in zip(plain, masking, strict=True):
        assert torch.equal(x, same)
        assert torch.equal(masked, torch.where(x == 0, -100, y))
        assert (masked == -100).any()
    with pytest.raises(UserError, match="which this loader was not given"):
        plain.documents(x)


def test_end_of_text_is_what_the_run_says(finished: Path):
    loader = ShardLoader("train", 2, 64, finished, mask_boundaries=True)
    assert loader.end_of_text == 0
    assert ShardLoader("train", 2, 64, finished / "shards").end_of_text == 0
    x, y = loader.batch(0)
    assert ((x == 0) == (y == -100)).all()


# Memory


def test_pinned_where_there_is_an_accelerator(tmp_path, monkeypatch):
    write_shards(tmp_path, [100])
    loader = ShardLoader("train", 2, 8, tmp_path, pin_memory=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader.batch(0)  # without one, it is no error
    pinned = []
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned.append(tensor.shape) or tensor)
    loader.batch(0)
    assert pinned == [(2, 8), (2, 8)]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_resident_memory_is_flat_over_a_shuffled_epoch(tmp_path):
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    write_shards(tmp_path, [24_000_000, 8_000_000])
    loader = ShardLoader("train", 16, 1024, tmp_path, shuffle=True)
    iterator = iter(loader)
    for _ in range(5):
        next(iterator)
    before = resident()
    for _ in iterator:
        pass
    assert loader.position.epoch == 1
    assert resident() - before < 8 * 2**20
