"""Writers of each format: layouts byte by byte, what they refuse, and Megatron's pair read again."""

import io
import json
import struct
import tarfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from jobs.errors import UserError
from jobs.formats import datatrove, mds, megatron, nanogpt, parquet, webdataset
from jobs.settings.formats import token_dtype

DTYPES = pytest.mark.parametrize("dtype", ["uint16", "uint32"])
LENGTHS = np.array([3, 1, 300, 70_000], np.int64)
DOC_IDS = np.array([7, 2**64 - 1, 0, 12], np.uint64)
PLACES = [(0, 3), (3, 4), (4, 304), (304, 70_304)]


def tokens_of(dtype: str) -> np.ndarray:
    return np.random.default_rng(0).integers(0, np.iinfo(dtype).max, LENGTHS.sum(), dtype, endpoint=True)


# nanoGPT


def test_nanogpt_is_bare_uint16():
    file = io.BytesIO()
    tokens = tokens_of("uint16")
    assert nanogpt.write_tokens(file, np.array_split(tokens, 5)) == len(tokens)
    assert file.getvalue() == struct.pack(f"<{len(tokens)}H", *tokens.tolist())


def test_nanogpt_cuts_no_token():
    with pytest.raises(TypeError):
        nanogpt.write_tokens(io.BytesIO(), [np.zeros(3, np.uint32)])


# Megatron


def megatron_pair(tokens: np.ndarray, dtype: str, folder: Path) -> Path:
    with (folder / "shard.bin").open("wb") as tokens_file, (folder / "shard.idx").open("wb") as index:
        megatron.write_documents(tokens_file, index, tokens, LENGTHS, dtype)
    return folder / "shard"


@pytest.mark.parametrize(("dtype", "code", "letter"), [("uint16", 8, "H"), ("int32", 4, "i")])
def test_megatron_byte_by_byte(dtype, code, letter, tmp_path):
    tokens, size = tokens_of("uint16"), np.dtype(dtype).itemsize
    prefix = megatron_pair(tokens, dtype, tmp_path)
    assert Path(f"{prefix}.bin").read_bytes() == struct.pack(f"<{len(tokens)}{letter}", *tokens.tolist())
    assert Path(f"{prefix}.idx").read_bytes() == (
        b"MMIDIDX\x00\x00"
        + struct.pack("<QBQQ", 1, code, 4, 5)
        + struct.pack("<4i", *LENGTHS)
        + struct.pack("<4q", *(start * size for start, _ in PLACES))
        + struct.pack("<5q", 0, 1, 2, 3, 4)
    )


def test_megatron_round_trip(tmp_path):
    tokens = tokens_of("uint16")
    documents = megatron.open_documents(megatron_pair(tokens, "uint16", tmp_path))
    for number, (start, stop) in enumerate(PLACES):
        np.testing.assert_array_equal(documents.document(number), tokens[start:stop])
        np.testing.assert_array_equal(documents.sequence(number), tokens[start:stop])


def test_a_token_too_large_for_megatron_is_refused():
    with pytest.raises(UserError, match=r"65,535 does not fit|does not fit into megatron's uint16"):
        megatron.write_documents(
            io.BytesIO(), io.BytesIO(), np.array([70_000], np.uint32), np.array([1]), "uint16"
        )


def test_megatron_s_own_pair_is_read(shared):
    """A pair of Megatron-DeepSpeed's tests: 1,000 documents, one sequence each, GPT-2's ids of at most 5,000."""
    prefix = shared / "shards" / "meg-gpt2-openwebtext_text_document"
    documents = megatron.open_documents(prefix)
    raw = np.fromfile(f"{prefix}.bin", "<u2")
    assert len(documents.lengths) == len(documents.document_index) - 1
    assert documents.lengths.sum() == len(raw)
    np.testing.assert_array_equal(
        np.concatenate([documents.document(i) for i in range(len(documents.document_index) - 1)]), raw
    )


def test_a_damaged_pair_is_refused(tmp_path):
    prefix = megatron_pair(tokens_of("uint16"), "uint16", tmp_path)
    index, tokens = Path(f"{prefix}.idx"), Path(f"{prefix}.bin")
    whole = index.read_bytes()
    for length in range(len(whole)):
        index.write_bytes(whole[:length])
        with pytest.raises(UserError, match="idx"):
            megatron.open_documents(prefix)
    index.write_bytes(b"MMIDIDX\0\0" + struct.pack("<Q", 2) + whole[17:])
    with pytest.raises(UserError, match="version 2"):
        megatron.open_documents(prefix)
    index.write_bytes(whole)
    tokens.write_bytes(tokens.read_bytes()[:-2])
    with pytest.raises(UserError, match="too short"):
        megatron.open_documents(prefix)
    tokens.unlink()
    with pytest.raises(UserError, match="cannot be read"):
        megatron.open_documents(prefix)


# datatrove


@DTYPES
def test_datatrove_byte_by_byte(dtype):
    tokens, letter = tokens_of(dtype), {"uint16": "H", "uint32": "I"}[dtype]
    ds, index, metadata = io.BytesIO(), io.BytesIO(), io.BytesIO()
    datatrove.write_documents(ds, index, metadata, tokens, LENGTHS, "mine")
    assert ds.getvalue() == struct.pack(f"<{len(tokens)}{letter}", *tokens.tolist())
    assert index.getvalue() == struct.pack("<4Q", *(stop for _, stop in PLACES))
    assert metadata.getvalue() == f"mine|{tokens.itemsize}\n70304\n70.3 kT".encode()


# MDS


def mds_samples(raw: bytes) -> tuple[dict, list[bytes]]:
    (n,) = struct.unpack_from("<I", raw)
    offsets = struct.unpack_from(f"<{n + 1}I", raw, 4)
    assert offsets[-1] == len(raw)
    config = json.loads(raw[8 + 4 * n : offsets[0]])
    return config, [raw[a:b] for a, b in pairwise(offsets)]


@DTYPES
def test_mds_documents_byte_by_byte(dtype):
    tokens, file = tokens_of(dtype), io.BytesIO()
    entry = mds.write_documents(file, tokens, LENGTHS, DOC_IDS)
    config, samples = mds_samples(file.getvalue())
    assert config["column_names"] == ["doc_id", "ids"]
    assert config["column_encodings"] == ["uint64", f"ndarray:{dtype}"]
    assert config["column_sizes"] == [8, None]
    assert entry == {
        **config,
        "samples": 4,
        "raw_data": {"basename": "", "bytes": len(file.getvalue()), "hashes": {}},
        "zip_data": None,
    }
    shapes = [b"\x04\x03", b"\x04\x01", b"\x05\x2c\x01", b"\x06\x70\x11\x01\x00"]
    for sample, shape, doc_id, (start, stop) in zip(samples, shapes, DOC_IDS, PLACES, strict=True):
        data = shape + tokens[start:stop].tobytes()
        assert sample == struct.pack("<IQ", len(data), doc_id) + data


@DTYPES
@pytest.mark.parametrize("with_counts", [False, True])
def test_mds_rows_byte_by_byte(dtype, with_counts):
    rows, file = tokens_of(dtype)[:60].reshape(6, 10), io.BytesIO()
    counts = np.arange(1, 7) if with_counts else None
    mds.write_rows(file, rows, counts)
    config, samples = mds_samples(file.getvalue())
    assert config["column_encodings"] == [f"ndarray:{dtype}:10", *(["uint32"] if with_counts else [])]
    assert config["column_sizes"] == [rows[0].nbytes, *([4] if with_counts else [])]
    ends = [struct.pack("<I", i + 1) if with_counts else b"" for i in range(6)]
    assert samples == [row.tobytes() + end for row, end in zip(rows, ends, strict=True)]


def test_what_mds_cannot_hold_is_refused(monkeypatch):
    with pytest.raises(UserError, match="without a token"):
        mds.write_documents(io.BytesIO(), np.zeros(3, np.uint16), np.array([3, 0]), DOC_IDS[:2])
    with pytest.raises(UserError, match="without a token"):
        mds.write_rows(io.BytesIO(), np.zeros((3, 0), np.uint16))
    row = np.broadcast_to(np.uint16(0), (2**12, 2**19))  # 4 GiB that take no memory
    with pytest.raises(UserError, match="too large for mds"):
        mds.write_rows(io.BytesIO(), row)


# WebDataset


@DTYPES
def test_webdataset_samples(dtype):
    tokens, file = tokens_of(dtype), io.BytesIO()
    webdataset.write_documents(file, tokens, LENGTHS, DOC_IDS)
    file.seek(0)
    with tarfile.open(fileobj=file) as tar:
        members = tar.getmembers()
        for member, doc_id, (start, stop) in zip(members, DOC_IDS, PLACES, strict=True):
            assert member.name == f"{doc_id:016x}.ids.npy"
            assert (member.mtime, member.uid, member.gid, member.uname, member.gname) == (0, 0, 0, "", "")
            ids = np.load(io.BytesIO(tar.extractfile(member).read()))
            assert ids.dtype == dtype
            np.testing.assert_array_equal(ids, tokens[start:stop])
    assert len(file.getvalue()) % 512 == 0


def test_webdataset_rows():
    rows, file = tokens_of("uint16")[:60].reshape(6, 10), io.BytesIO()
    webdataset.write_rows(file, 3, rows, np.arange(6))
    file.seek(0)
    with tarfile.open(fileobj=file) as tar:
        names = tar.getnames()
        assert names[:2] == ["000003-000000000.ids.npy", "000003-000000000.n_tokens.txt"]
        assert len(names) == 12
        assert tar.extractfile("000003-000000005.n_tokens.txt").read() == b"5"


# Parquet


@DTYPES
def test_parquet_documents(dtype, monkeypatch):
    monkeypatch.setattr(parquet, "GROUP_TOKENS", 200)
    tokens, file = tokens_of(dtype), io.BytesIO()
    parquet.write_documents(file, tokens, LENGTHS, DOC_IDS)
    table = pq.read_table(file)
    assert pq.ParquetFile(file).num_row_groups == 2  # a group ends with a document
    assert table["doc_id"].to_pylist() == DOC_IDS.tolist()
    assert str(table.schema.field("ids").type.value_type) == dtype
    assert table["ids"].to_pylist() == [tokens[start:stop].tolist() for start, stop in PLACES]


@DTYPES
def test_parquet_rows(dtype, monkeypatch):
    monkeypatch.setattr(parquet, "GROUP_TOKENS", 25)
    rows, file = tokens_of(dtype)[:60].reshape(6, 10), io.BytesIO()
    parquet.write_rows(file, rows, np.arange(6))
    table = pq.read_table(file)
    assert table["ids"].to_pylist() == rows.tolist()
    assert table["n_tokens"].to_pylist() == list(range(6))


# Types of tokens


@pytest.mark.parametrize(
    ("name", "vocab_size", "wanted", "expected"),
    [
        ("nanogpt", 65_536, "auto", "uint16"),
        ("megatron", 65_499, "auto", "uint16"),
        ("megatron", 65_499, "uint32", "uint16"),
        ("megatron", 65_500, "auto", "int32"),
        ("megatron", 200_019, "uint32", "int32"),
        ("mds", 70_000, "uint32", "uint32"),
    ],
)
def test_the_type_follows_the_vocabulary(name, vocab_size, wanted, expected):
    assert token_dtype(name, vocab_size, wanted) == expected


def test_a_type_that_is_too_small_is_refused():
    with pytest.raises(UserError, match=r"nanogpt files hold uint16 ids, 65,536 of them, but .* has 65,537"):
        token_dtype("nanogpt", 65_537, "auto")
    with pytest.raises(UserError, match="below 65,500, but the tokenizer has 65,536 ids"):
        token_dtype("megatron", 65_536, "uint16")
