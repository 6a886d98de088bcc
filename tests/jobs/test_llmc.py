import io
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.errors import UserError
from jobs.formats import llmc

DTYPES = ("uint16", "uint32")


def tokens_of(n: int, dtype: str) -> np.ndarray:
    return np.random.default_rng(n).integers(0, np.iinfo(dtype).max, n, dtype=dtype, endpoint=True)


def file_of(tokens: np.ndarray) -> bytes:
    file = io.BytesIO()
    llmc.write_shard(file, tokens)
    return file.getvalue()


# The layout


@pytest.mark.parametrize(
    ("dtype", "magic", "version", "code"), [("uint16", 20240520, 1, "H"), ("uint32", 20240801, 7, "I")]
)
def test_layout_byte_by_byte(dtype, magic, version, code):
    tokens = tokens_of(300, dtype)
    expected = struct.pack("<256i", magic, version, 300, *[0] * 253) + struct.pack(
        f"<300{code}", *tokens.tolist()
    )
    assert file_of(tokens) == expected


def test_header_is_256_int32():
    header = llmc.header(7, "uint16")
    assert header.dtype == np.int32
    assert header.shape == (256,)


@pytest.mark.parametrize("dtype", DTYPES)
def test_files_stay_below_2_gib(dtype):
    most = llmc.max_tokens(dtype)
    assert 1024 + most * np.dtype(dtype).itemsize < 2**31 <= 1024 + (most + 1) * np.dtype(dtype).itemsize
    assert llmc.header(most, dtype)[2] == most
    for n in (most + 1, 2**31, 0, -1):
        with pytest.raises(UserError, match="cannot be written"):
            llmc.header(n, dtype)


@pytest.mark.parametrize("dtype", ["int64", "uint8", "int32", "float32", ">u2"])
def test_other_dtypes_are_refused(dtype):
    with pytest.raises(UserError, match="uint16 or uint32 tokens, not"):
        llmc.header(1, dtype)


# Writing


@given(st.lists(st.integers(0, 50), min_size=1), st.sampled_from(DTYPES))
def test_pieces_make_the_same_file_as_the_whole(pieces, dtype):
    tokens = tokens_of(sum(pieces) + 1, dtype)
    file = io.BytesIO()
    with llmc.ShardWriter(file, len(tokens), dtype) as writer:
        for piece in np.split(tokens, np.cumsum(pieces)):
            writer.append(piece)
    assert file.getvalue() == file_of(tokens)


def test_strided_and_narrower_tokens_are_written_right():
    tokens = tokens_of(100, "uint16")
    assert file_of(tokens[::-2]) == file_of(tokens[::-2].copy())
    file = io.BytesIO()
    with llmc.ShardWriter(file, 100, "uint32") as writer:
        writer.append(tokens)
    assert file.getvalue() == file_of(tokens.astype("uint32"))


def test_a_token_is_never_cut_to_fit():
    writer = llmc.ShardWriter(io.BytesIO(), 2, "uint16")
    for dtype in ("uint32", "int64", "int16"):
        with pytest.raises(TypeError):
            writer.append(np.zeros(2, dtype=dtype))


def test_the_announced_count_is_held_to():
    with pytest.raises(ValueError, match="lacks only 2"):
        llmc.ShardWriter(io.BytesIO(), 2, "uint16").append(tokens_of(3, "uint16"))
    with pytest.raises(ValueError, match="lacks 1"), llmc.ShardWriter(io.BytesIO(), 3, "uint16") as writer:
        writer.append(tokens_of(2, "uint16"))
    with pytest.raises(KeyError), llmc.ShardWriter(io.BytesIO(), 3, "uint16"):
        raise KeyError("the error of the block, not that of the count")


# Reading


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 5000])
def test_round_trip(tmp_path, dtype, n):
    path, tokens = tmp_path / "shard.bin", tokens_of(n, dtype)
    path.write_bytes(file_of(tokens))
    path.chmod(0o444)
    assert llmc.read_header(path) == (np.dtype(dtype), n)
    shard = llmc.open_shard(path)
    assert isinstance(shard, np.memmap)
    assert shard.dtype == dtype
    assert not shard.flags.writeable
    np.testing.assert_array_equal(shard, tokens)


def refusal(path: Path) -> str:
    with pytest.raises(UserError) as refused:
        llmc.open_shard(path)
    assert str(path) in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_file_truncated_at_any_byte_is_refused(tmp_path, dtype):
    path, whole = tmp_path / "shard.bin", file_of(tokens_of(20, dtype))
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert f"{length:,} bytes long" in refusal(path)


@pytest.mark.parametrize("extra", [1, 2, 4, 1024])
def test_a_file_that_is_too_long_is_refused(tmp_path, extra):
    path = tmp_path / "shard.bin"
    path.write_bytes(file_of(tokens_of(20, "uint16")) + bytes(extra))
    assert refusal(path) == (
        f"{path} is too long: it is {1064 + extra:,} bytes long, "
        "but its header says 20 uint16 tokens, which make 1,064 bytes"
    )


@pytest.mark.parametrize(
    ("magic", "version"), [(20240520, 7), (20240801, 1), (20240522, 1), (0, 0), (0x4649444D, 1), (-1, -1)]
)
def test_foreign_files_are_refused(tmp_path, magic, version):
    path, whole = tmp_path / "shard.bin", bytearray(file_of(tokens_of(20, "uint16")))
    whole[:8] = struct.pack("<2i", magic, version)
    path.write_bytes(whole)
    assert f"begins with magic {magic} version {version}, not magic 20240520 version 1" in refusal(path)


@pytest.mark.parametrize("count", [-(2**31), -1, 0, 19, 21, 2**31 - 1])
def test_a_wrong_count_is_refused(tmp_path, count):
    path, whole = tmp_path / "shard.bin", bytearray(file_of(tokens_of(20, "uint16")))
    whole[8:12] = struct.pack("<i", count)
    path.write_bytes(whole)
    assert f"header says {count:,}" in refusal(path)


def test_an_empty_shard_is_refused(tmp_path):
    path = tmp_path / "shard.bin"
    path.write_bytes(file_of(tokens_of(20, "uint16"))[:8] + bytes(1016))
    assert "header says 0 tokens" in refusal(path)


def test_what_is_no_file_is_refused(tmp_path):
    assert "No such file" in refusal(tmp_path / "absent.bin")
    assert "directory" in refusal(tmp_path)


# The files of a split


def folder_of(path: Path, *names: str) -> Path:
    path.mkdir(exist_ok=True)
    for name in names:
        (path / name).write_bytes(file_of(tokens_of(3, "uint16")))
    return path


def names_of(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def test_shard_name():
    assert llmc.shard_name("fineweb_edu", "train", 3) == "fineweb_edu_train_000003.bin"


def test_shards_are_found_in_the_order_of_their_numbers(tmp_path, monkeypatch):
    expected = [llmc.shard_name("web", "train", i) for i in range(12)]
    folder_of(tmp_path, *expected, "web_val_000000.bin", "web_train_0.bin", "web_train_000000.txt")
    listed = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda path: sorted(listed(path), reverse=True))
    assert names_of(llmc.find_shards(tmp_path, "train")) == expected
    assert names_of(llmc.find_shards(tmp_path, "val")) == ["web_val_000000.bin"]


def test_numbers_are_compared_as_numbers(tmp_path):
    expected = [*(llmc.shard_name("a", "train", i) for i in range(10)), "a_train_0000010.bin"]
    folder_of(tmp_path, *expected)
    assert names_of(llmc.find_shards(tmp_path, "train")) == expected


def test_shards_without_a_name_are_found(tmp_path):
    folder_of(tmp_path, "train_000000.bin", "train_000001.bin", "val_000000.bin")
    assert names_of(llmc.find_shards(str(tmp_path), "train")) == ["train_000000.bin", "train_000001.bin"]


def test_a_run_s_output_leads_to_its_shards(tmp_path):
    folder_of(tmp_path / "shards", "a_train_000000.bin")
    assert llmc.find_shards(tmp_path, "train") == [tmp_path / "shards" / "a_train_000000.bin"]
    assert llmc.find_shards(tmp_path / "shards", "train") == llmc.find_shards(tmp_path, "train")


def test_a_name_may_hold_the_name_of_a_split(tmp_path):
    folder_of(tmp_path, "my_train_train_000000.bin", "my_train_val_000000.bin")
    assert names_of(llmc.find_shards(tmp_path, "train")) == ["my_train_train_000000.bin"]
    assert names_of(llmc.find_shards(tmp_path, "val")) == ["my_train_val_000000.bin"]


def test_files_still_being_written_are_no_shards(tmp_path):
    folder_of(tmp_path, "a_train_000000.bin", ".aside-1234-a_train_000001.bin", ".train_000001.bin")
    assert names_of(llmc.find_shards(tmp_path, "train")) == ["a_train_000000.bin"]


@pytest.mark.parametrize("missing", [0, 1, 3])
def test_a_gap_is_refused(tmp_path, missing):
    folder_of(tmp_path, *(llmc.shard_name("a", "train", i) for i in range(5) if i != missing))
    with pytest.raises(
        UserError, match=f"lacks shard {missing} of the split 'train', where a_train_{missing + 1:06d}.bin"
    ):
        llmc.find_shards(tmp_path, "train")


def test_a_number_twice_is_refused(tmp_path):
    folder_of(tmp_path, "a_train_000000.bin", "a_train_000001.bin", "a_train_0000001.bin")
    with pytest.raises(UserError, match="lacks shard 2"):
        llmc.find_shards(tmp_path, "train")


@pytest.mark.parametrize(
    "other", ["b_train_000000.bin", "b_train_000001.bin", "b_train_000007.bin", "train_000001.bin"]
)
def test_two_names_are_refused(tmp_path, other):
    folder_of(tmp_path, "a_train_000000.bin", other)
    with pytest.raises(UserError, match="two data sets") as refused:
        llmc.find_shards(tmp_path, "train")
    assert "a_train_000000.bin" in str(refused.value)
    assert other in str(refused.value)


def test_two_dtypes_are_refused(tmp_path):
    folder_of(tmp_path, "a_train_000000.bin")
    (tmp_path / "a_train_000001.bin").write_bytes(file_of(tokens_of(3, "uint32")))
    with pytest.raises(
        UserError, match=r"a_train_000001.bin holds uint32 tokens, but a_train_000000.bin .* uint16"
    ):
        llmc.read_headers(llmc.find_shards(tmp_path, "train"))


def test_no_folder_and_no_shards_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"absent is not a folder of shards: No such file"):
        llmc.find_shards(tmp_path / "absent", "train")
    folder_of(tmp_path, "a_train_000000.bin")
    with pytest.raises(UserError, match=r"no shard of the split 'validation': .* NAME_validation_000000.bin"):
        llmc.find_shards(tmp_path, "validation")


# Cutting the stream


@given(st.integers(0, 10_000), st.integers(1, 1000), st.integers(1, 1000))
def test_shard_sizes(n_tokens, shard_tokens, min_tokens):
    sizes = llmc.shard_sizes(n_tokens, shard_tokens, min_tokens)
    assert sizes.dtype == np.int64
    assert sizes.sum() == n_tokens
    assert len(sizes) == -(-n_tokens // shard_tokens)
    assert ((sizes >= 1) & (sizes <= shard_tokens)).all()
    if (sizes < min_tokens).any():
        # No number of shards would do: these are the fewest, and even so there is not enough for each.
        assert n_tokens < min_tokens * len(sizes)
    if 2 * min_tokens <= shard_tokens:
        assert n_tokens < min_tokens or (sizes >= min_tokens).all()
        assert (sizes[:-2] == shard_tokens).all()


@pytest.mark.parametrize(
    ("n_tokens", "shard_tokens", "min_tokens", "sizes"),
    [
        (0, 100, 10, []),
        (5, 100, 10, [5]),
        (100, 100, 10, [100]),
        (210, 100, 10, [100, 100, 10]),
        (209, 100, 10, [100, 55, 54]),  # 9 are too few, so the last two share 109
        (420, 100, 70, [100, 100, 74, 73, 73]),  # two would have 60 each
        (310, 100, 77, [78, 78, 77, 77]),
        (120, 100, 90, [100, 20]),  # no cut avoids it
        (2_469_151_566, 100_000_000, 131_073, [100_000_000] * 24 + [69_151_566]),
    ],
)
def test_shard_sizes_by_example(n_tokens, shard_tokens, min_tokens, sizes):
    assert llmc.shard_sizes(n_tokens, shard_tokens, min_tokens).tolist() == sizes


# llm.c


@pytest.fixture(scope="session")
def llmc_reader(tmp_path_factory):
    """A C program that reads by llm.c's rules: (path, ranks, B, T) -> exit status, output."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    program = tmp_path_factory.mktemp("c") / "llmc_reader"
    source = Path(__file__).with_name("llmc_reader.c")
    subprocess.run([compiler, "-std=c99", "-O1", "-Wall", "-Werror", "-o", program, source], check=True)

    def read(*arguments: object) -> tuple[int, str]:
        done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)
        return done.returncode, (done.stdout + done.stderr).strip()

    return read


def test_c_reads_the_same_tokens(tmp_path, llmc_reader):
    path, tokens = tmp_path / "shard.bin", tokens_of(50_000, "uint16")
    path.write_bytes(file_of(tokens))
    places = np.arange(1, 50_001, dtype=np.uint64)
    checksum = int((places * tokens).sum(dtype=np.uint64))
    assert llmc_reader(path, 1, 4, 1024) == (0, f"50000 {checksum}")


def test_c_takes_every_shard_of_a_cut_stream_for_1_to_8_ranks(tmp_path, llmc_reader):
    b, t = 4, 64
    for ranks in range(1, 9):
        enough = ranks * b * t + 1
        for n_tokens in (enough, 5000, 10_001, 10_000 + enough - 1):
            for size in llmc.shard_sizes(n_tokens, 5000, enough):
                path = tmp_path / "shard.bin"
                path.write_bytes(file_of(tokens_of(int(size), "uint16")))
                assert llmc_reader(path, ranks, b, t)[0] == 0
        path.write_bytes(file_of(tokens_of(enough - 1, "uint16")))
        assert llmc_reader(path, ranks, b, t) == (1, "fewer tokens than one batch of all ranks and one more")


def test_c_and_python_refuse_the_same_files(tmp_path, llmc_reader):
    path, whole = tmp_path / "shard.bin", file_of(tokens_of(20, "uint16"))
    for raw, why in [
        (whole[:1000], "no header"),
        (whole[:-1], "bad size"),
        (whole + b"\0", "bad size"),
        (b"\0" + whole[1:], "bad magic"),
        (whole[:4] + b"\2" + whole[5:], "bad version"),
        (whole[:8] + bytes(1016), "no tokens"),
    ]:
        path.write_bytes(raw)
        assert llmc_reader(path, 1, 1, 1) == (1, why)
        assert refusal(path)
    # The Llama-3 style is read here, but not by llm.c's loader.
    path.write_bytes(file_of(tokens_of(20, "uint32")))
    assert llmc_reader(path, 1, 1, 1) == (1, "bad magic")


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_split_is_one_dask_array_in_chunks(dtype, tmp_path, monkeypatch):
    monkeypatch.setattr(llmc, "CHUNK", 7)
    shards = [tokens_of(n, dtype) for n in (20, 7, 3)]
    for i, tokens in enumerate(shards):
        (tmp_path / llmc.shard_name("web", "train", i)).write_bytes(file_of(tokens))
    read = llmc.read(tmp_path, "train")
    assert read.dtype == dtype
    assert read.chunks == ((7, 7, 6, 7, 3),)
    np.testing.assert_array_equal(read.compute(), np.concatenate(shards))
    with pytest.raises(UserError, match="no shard of the split 'val'"):
        llmc.read(tmp_path, "val")
