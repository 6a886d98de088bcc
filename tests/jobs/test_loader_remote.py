"""Shards behind URLs: S3, a local cache, ranks that share it, workers; and what goes wrong."""

import os
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("upath", reason="shards behind a URL need the extra `remote`")

import fsspec

from jobs.errors import UserError
from jobs.formats import llmc
from jobs.loader import ShardLoader
from jobs.loader.cache import LocalCache
from tests.servers import S3Server, s3_server


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


def write_shards(folder: Path, sizes: list[int], seed: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for index, size in enumerate(sizes):
        with (folder / llmc.shard_name("t", "train", index)).open("wb") as file:
            llmc.write_shard(file, np.random.default_rng([seed, index]).integers(0, 9, size, dtype="uint16"))
    return folder


def served(loader: ShardLoader) -> list:
    return [(x.tolist(), y.tolist()) for x, y in loader]


def gets(s3: S3Server, name: str) -> int:
    return sum(request.startswith("GET") and request.endswith(name) for request in s3.requests)


def test_a_bucket_serves_what_the_folder_does_and_each_shard_is_copied_once(tmp_path, s3):
    local = write_shards(tmp_path / "out" / "shards", [500, 300, 200])
    url = s3.upload(tmp_path / "out", "plain")
    cache = tmp_path / "cache"
    expected = served(ShardLoader("train", 3, 8, local, shuffle=True))
    s3.reset()
    loader = ShardLoader("train", 3, 8, url, shuffle=True, cache_dir=cache)
    assert not list(tmp_path.glob("cache/*"))  # nothing is copied before it is read
    assert served(loader) == expected
    assert gets(s3, "000001.bin") == 2  # the header, the file
    assert len([path for path in cache.iterdir() if path.suffix == ".bin"]) == 3
    s3.reset()
    again = ShardLoader("train", 3, 8, url, shuffle=True, cache_dir=cache)
    assert served(again) == expected
    assert gets(s3, "000001.bin") == 1  # the header


def test_worker_processes_read_from_a_bucket(tmp_path, s3):
    local = write_shards(tmp_path / "shards", [500, 300])
    url = s3.upload(local, "workers")
    loader = ShardLoader("train", 3, 8, url, num_workers=2, cache_dir=tmp_path / "cache")
    assert served(loader) == served(ShardLoader("train", 3, 8, local))


def test_ranks_that_share_a_cache_copy_a_shard_once(tmp_path, s3):
    local = write_shards(tmp_path / "shards", [5000])
    url = s3.upload(local, "ranks")
    made = [
        ShardLoader("train", 2, 8, url, rank=rank, world_size=4, cache_dir=tmp_path / "cache")
        for rank in range(4)
    ]
    s3.reset()
    with ThreadPoolExecutor(4) as threads:
        batches = list(threads.map(lambda loader: loader.batch(0)[0].tolist(), made))
    alone = [ShardLoader("train", 2, 8, local, rank=r, world_size=4).batch(0)[0].tolist() for r in range(4)]
    assert batches == alone
    assert gets(s3, "000000.bin") == 1


def test_a_shard_written_anew_is_copied_anew(tmp_path, s3):
    first, second = write_shards(tmp_path / "a", [300]), write_shards(tmp_path / "b", [300], seed=1)
    cache = tmp_path / "cache"
    assert served(ShardLoader("train", 2, 8, s3.upload(first, "anew"), cache_dir=cache)) == served(
        ShardLoader("train", 2, 8, first)
    )
    assert served(ShardLoader("train", 2, 8, s3.upload(second, "anew"), cache_dir=cache)) == served(
        ShardLoader("train", 2, 8, second)
    )


def test_a_copy_that_was_cut_short_leaves_nothing_and_is_made_again(tmp_path, monkeypatch):
    memory = fsspec.filesystem("memory")
    name = f"/{uuid.uuid4().hex}/shard.bin"
    memory.pipe_file(name, b"x" * 1000)
    cache = LocalCache(tmp_path / "cache")
    whole = type(memory).get_file

    def cut(self, remote: str, local: str, **options: object) -> None:
        Path(local).write_bytes(b"x" * 500)
        raise ConnectionError("gone")

    monkeypatch.setattr(type(memory), "get_file", cut)
    with pytest.raises(UserError, match="cannot be reached: gone"):
        cache.local(f"memory:/{name}")
    assert [path for path in (tmp_path / "cache").iterdir() if not path.name.endswith(".lock")] == []
    monkeypatch.setattr(type(memory), "get_file", whole)
    assert cache.local(f"memory:/{name}").read_bytes() == b"x" * 1000


def test_what_cannot_be_loaded_is_said_in_a_sentence(tmp_path, s3, monkeypatch):
    with pytest.raises(UserError, match=r"s3://.*absent.*"):
        ShardLoader("train", 2, 8, f"{s3.url}/absent", cache_dir=tmp_path)
    with pytest.raises(UserError, match="s4://bucket is not a URL that fsspec can open"):
        ShardLoader("train", 2, 8, "s4://bucket", cache_dir=tmp_path)
    url = s3.upload(write_shards(tmp_path / "shards", [300]), "said")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"the cache .*file/cache cannot keep a copy of s3://.*set cache_dir"):
        ShardLoader("train", 2, 8, url, cache_dir=tmp_path / "file" / "cache").batch(0)


def test_an_output_that_a_run_is_writing_behind_a_url_is_refused(tmp_path):
    memory = fsspec.filesystem("memory")
    root = f"/{uuid.uuid4().hex}"
    local = write_shards(tmp_path / "shards", [300])
    for path in local.iterdir():
        memory.pipe_file(f"{root}/shards/{path.name}", path.read_bytes())
    url = f"memory:/{root}"
    assert ShardLoader("train", 2, 8, url, cache_dir=tmp_path / "cache").n_tokens == 300
    memory.pipe_file(f"{root}/.running", b"{}")
    with pytest.raises(UserError, match="not all packed"):
        ShardLoader("train", 2, 8, url, cache_dir=tmp_path / "cache")


def test_the_cache_is_in_the_user_s_cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path))
    memory = fsspec.filesystem("memory")
    root = f"/{uuid.uuid4().hex}"
    for path in write_shards(tmp_path / "shards", [300]).iterdir():
        memory.pipe_file(f"{root}/{path.name}", path.read_bytes())
    ShardLoader("train", 2, 8, f"memory:/{root}").batch(0)
    assert len(list((tmp_path / "shardmill").glob("*-t_train_000000.bin"))) == 1
