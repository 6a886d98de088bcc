import itertools
import os
import pickle
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.errors import UserError
from jobs.formats import llmc
from jobs.loader import ShardLoader


def write_shards(folder: Path, sizes: list[int], dtype: str = "uint16", split: str = "train") -> np.ndarray:
    """Shards of these sizes; returns the whole stream, int64."""
    stream = np.random.default_rng(sizes).integers(
        0, np.iinfo(dtype).max, sum(sizes), dtype=dtype, endpoint=True
    )
    for index, tokens in enumerate(np.split(stream, np.cumsum(sizes)[:-1])):
        with (folder / llmc.shard_name("t", split, index)).open("wb") as file:
            llmc.write_shard(file, tokens)
    return stream.astype(np.int64)


def naive_batch(stream: np.ndarray, i: int, b: int, t: int) -> tuple[list, list]:
    """Batch i by the definition: row by row, y one token after x."""
    i = i % ((len(stream) - 1) // (b * t))
    starts = [i * b * t + row * t for row in range(b)]
    return [stream[s : s + t].tolist() for s in starts], [stream[s + 1 : s + t + 1].tolist() for s in starts]


def as_lists(batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[list, list]:
    return batch[0].tolist(), batch[1].tolist()


@st.composite
def shard_sets(draw):
    b, t = draw(st.integers(1, 5)), draw(st.integers(1, 12))
    sizes = draw(st.lists(st.one_of(st.integers(1, 3), st.integers(1, 150)), min_size=1, max_size=12))
    lacking = b * t + 1 - sum(sizes)
    return [*sizes, lacking] if lacking > 0 else sizes, b, t, draw(st.sampled_from(["uint16", "uint32"]))


@settings(deadline=None)  # it writes files
@given(shard_sets())
def test_batches_are_the_naive_stream(drawn):
    sizes, b, t, dtype = drawn
    with tempfile.TemporaryDirectory() as folder:
        stream = write_shards(Path(folder), sizes, dtype)
        loader = ShardLoader("train", B=b, T=t, data_dir=folder)
        assert loader.n_tokens == len(stream)
        assert loader.n_batches == (len(stream) - 1) // (b * t)
        for i in range(loader.n_batches + 2):
            assert as_lists(loader.batch(i)) == naive_batch(stream, i, b, t)


@settings(deadline=None)  # it writes files
@given(shard_sets(), st.integers(0, 20), st.integers(1, 4))
def test_resuming_equals_iterating(drawn, step, accum):
    sizes, b, t, dtype = drawn
    with tempfile.TemporaryDirectory() as folder:
        write_shards(Path(folder), sizes, dtype)

        def served(step: int, n_batches: int) -> list:
            batches = ShardLoader(B=b, T=t, data_dir=folder).batches(step, accum)
            return [as_lists(batch) for batch in itertools.islice(batches, n_batches)]

        through = served(0, (step + 3) * accum)
        assert served(step, 2 * accum) == through[step * accum : (step + 2) * accum]
        assert served(step + 2, accum) == through[(step + 2) * accum :]  # the second resume


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_types_and_shapes(tmp_path, dtype):
    write_shards(tmp_path, [5000], dtype)
    x, y = ShardLoader("train", B=4, T=64, data_dir=tmp_path).batch(2)
    for tensor in (x, y):
        assert tensor.dtype == torch.int64
        assert tensor.shape == (4, 64)
        assert tensor.is_contiguous()
    assert (x >= 0).all()  # also the ids above 2**31
    assert (x[:, 1:] == y[:, :-1]).all()
    assert (x[1:, 0] == y[:-1, -1]).all()


def test_a_batch_is_the_caller_s_own(tmp_path):
    stream = write_shards(tmp_path, [100])
    loader = ShardLoader(B=2, T=8, data_dir=tmp_path)
    loader.batch(0)[0].fill_(-1)
    assert as_lists(loader.batch(0)) == naive_batch(stream, 0, 2, 8)


def test_defaults_are_the_seed_s(tmp_path, monkeypatch):
    (tmp_path / "out" / "shards").mkdir(parents=True)
    write_shards(tmp_path / "out" / "shards", [40_000, 1])
    monkeypatch.chdir(tmp_path)
    loader = ShardLoader()
    monkeypatch.chdir("/")
    x, _ = loader.batch(1)
    assert x.shape == (16, 1024)
    assert loader.n_batches == 2


def test_splits_are_apart(tmp_path):
    train, val = write_shards(tmp_path, [50, 60]), write_shards(tmp_path, [70], split="val")
    assert as_lists(ShardLoader("train", 2, 5, tmp_path).batch(0)) == naive_batch(train, 0, 2, 5)
    assert as_lists(ShardLoader("val", 2, 5, tmp_path).batch(0)) == naive_batch(val, 0, 2, 5)


def test_more_shards_than_a_process_may_have_open_files(tmp_path):
    resource = pytest.importorskip("resource")
    stream = write_shards(tmp_path, [2] * 300)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        assert as_lists(ShardLoader(B=1, T=599, data_dir=tmp_path).batch(0)) == naive_batch(stream, 0, 1, 599)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_read_only_files_and_folder(tmp_path):
    stream = write_shards(tmp_path, [50, 60])
    for path in tmp_path.iterdir():
        path.chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        assert as_lists(ShardLoader("train", 2, 30, tmp_path).batch(0)) == naive_batch(stream, 0, 2, 30)
    finally:
        tmp_path.chmod(0o755)


def test_pickled_and_threaded(tmp_path):
    stream = write_shards(tmp_path, [500, 3, 700])
    loader = pickle.loads(pickle.dumps(ShardLoader("train", 2, 8, tmp_path)))
    with ThreadPoolExecutor(4) as threads:
        for i, batch in enumerate(threads.map(loader.batch, range(200))):
            assert as_lists(batch) == naive_batch(stream, i, 2, 8)


def test_a_read_cut_short_by_the_system_is_continued(tmp_path, monkeypatch):
    stream = write_shards(tmp_path, [500, 3, 700])
    loader = ShardLoader("train", 2, 300, tmp_path)
    whole = os.pread
    monkeypatch.setattr(os, "pread", lambda file, n, at: whole(file, min(n, 333), at))
    for _ in range(2):  # the file just opened, and the file kept open
        assert as_lists(loader.batch(0)) == naive_batch(stream, 0, 2, 300)


# Refusals


def test_a_stream_too_short_for_a_batch_is_refused(tmp_path):
    write_shards(tmp_path, [10, 6])
    with pytest.raises(UserError, match=r"has 16 tokens, too few for one batch of .* 2 · 8 \+ 1 = 17"):
        ShardLoader("train", 2, 8, tmp_path)
    assert ShardLoader("train", 3, 5, tmp_path).n_batches == 1


def test_impossible_numbers_are_refused(tmp_path):
    write_shards(tmp_path, [100])
    loader = ShardLoader("train", 2, 8, tmp_path)
    with pytest.raises(UserError, match="no batch -1"):
        loader.batch(-1)
    for step, accum in [(-1, 1), (0, 0), (3, -2)]:
        with pytest.raises(UserError, match=f"step is {step} and accum is {accum}"):
            loader.batches(step, accum)
    for b, t in [(0, 8), (2, 0), (-1, -8)]:
        with pytest.raises(UserError, match=f"B is {b} and T is {t}"):
            ShardLoader("train", b, t, tmp_path)
    for start, n in [(-1, 2), (99, 2), (0, 101)]:
        with pytest.raises(IndexError):
            loader.window(start, n)


def test_a_damaged_shard_is_refused_by_name(tmp_path):
    write_shards(tmp_path, [100, 100, 100])
    damaged = tmp_path / "t_train_000001.bin"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"t_train_000001.bin is too short: it is 1,223 bytes long"):
        ShardLoader("train", 2, 8, tmp_path)


def test_two_dtypes_are_refused_by_name(tmp_path):
    write_shards(tmp_path, [100])
    with (tmp_path / "t_train_000001.bin").open("wb") as file:
        llmc.write_shard(file, np.zeros(100, dtype="uint32"))
    with pytest.raises(UserError, match=r"t_train_000001.bin holds uint32"):
        ShardLoader("train", 2, 8, tmp_path)


def test_a_shard_that_shrinks_or_goes_under_the_loader_is_named(tmp_path):
    write_shards(tmp_path, [100])
    loader = ShardLoader("train", 2, 8, tmp_path)
    shard = tmp_path / "t_train_000000.bin"
    shard.write_bytes(shard.read_bytes()[:1100])
    loader.batch(0)
    with pytest.raises(UserError, match=r"t_train_000000.bin has become shorter"):
        loader.batch(5)
    other = pickle.loads(pickle.dumps(loader))
    shard.unlink()
    loader.batch(0)  # from the file that it has open
    with pytest.raises(UserError, match=r"t_train_000000.bin cannot be read: No such file"):
        other.batch(0)


# What it costs


def test_it_needs_neither_dask_nor_numba_and_torch_only_for_a_batch(tmp_path):
    write_shards(tmp_path, [100])
    script = f"""
import sys
from jobs.loader import ShardLoader
loader = ShardLoader("train", 2, 8, {str(tmp_path)!r})
assert loader.window(3, 5).shape == (5,)
unneeded = {{"dask", "distributed", "numba", "llvmlite", "pandas", "pyarrow", "pydantic", "fsspec", "upath"}}
assert not {{*unneeded, "torch"}} & set(sys.modules)
next(loader.batches())
shuffled = ShardLoader("train", 2, 8, {str(tmp_path)!r}, shuffle=True, end_of_text=0)
shuffled.documents(next(iter(shuffled))[0]).mask()
assert "torch" in sys.modules
assert not unneeded & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parents[2])


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_resident_memory_is_flat_over_an_epoch(tmp_path):
    write_shards(tmp_path, [16_000_000, 16_000_000])
    loader = ShardLoader("train", 16, 1024, tmp_path)
    loader.batch(0)
    before = resident_bytes()
    for i in range(loader.n_batches):
        loader.batch(i)
    assert resident_bytes() - before < 8 * 2**20
    # The measure sees what a memory map would have cost: the whole 64 MB.
    maps = [llmc.open_shard(path) for path in llmc.find_shards(tmp_path, "train")]
    assert sum(int(shard.max()) for shard in maps) > 0
    assert resident_bytes() - before > 48 * 2**20


@pytest.mark.parametrize("i", [1.5, "1", None])
def test_a_batch_without_a_whole_number_is_refused(finished: Path, i: object) -> None:
    with pytest.raises(UserError, match="batches are numbered by whole numbers; there is no batch"):
        ShardLoader("train", 1, 64, finished).batch(i)  # type: ignore[arg-type]
