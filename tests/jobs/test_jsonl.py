"""JSON Lines against the json module, however they are compressed, cut and damaged."""

import contextlib
import functools
import gzip
import itertools
import json
import math
import re
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs import config, ledger, sources
from jobs.errors import UserError
from jobs.sources import compression, jsonl
from tests.conftest import ROOT, run_job
from tests.jobs.test_sources import Settings, read_all, read_records, records_of, texts_of

INVALID, UNREADABLE = "invalid", "unreadable"  # outcomes beside a text or null
Outcome = tuple[str, str | None]


def source_of(path: Path, **options: object) -> Settings:
    return Settings(str(path), format="jsonl", **options)  # type: ignore[arg-type]


def outcomes_of(found: list[sources.Batch]) -> list[Outcome]:
    return [
        (UNREADABLE, None)
        if batch.text is None
        else ("text", batch.text[row].as_py())
        if batch.valid[row]
        else (INVALID, None)
        for batch in found
        for row in range(len(batch))
    ]


def naive(content: bytes) -> list[Outcome]:
    """What the json module makes of each line that is not blank."""
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return [naive_line(line) for line in lines if line.strip(b" \t\r")]


def naive_line(line: bytes) -> Outcome:
    try:
        text = json.loads(line.decode(errors="surrogateescape"))["text"]
    except KeyError:
        return "text", None
    except (ValueError, TypeError):
        return UNREADABLE, None
    if text is not None and not isinstance(text, str):
        return UNREADABLE, None
    try:
        (text or "").encode()
    except UnicodeEncodeError:
        return INVALID, None
    return "text", text


# ---------------------------------------------------------------- writing files


def cut_at(content: bytes, shares: Sequence[float]) -> list[bytes]:
    ends = [0, *sorted(int(share * len(content)) for share in shares), len(content)]
    return [content[start:stop] for start, stop in itertools.pairwise(ends)]


def zstd(content: bytes) -> bytes:
    return bytes(pa.compress(content, codec="zstd", asbytes=True)) if content else EMPTY_FRAME


SKIPPED_FRAME = b"\x53\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"table"
gzipped = functools.partial(gzip.compress, mtime=0)  # the same bytes, and so names of tests, at any time

EMPTY_FRAME = bytes.fromhex("28b52ffd2000010000")
CHECKED_FRAME = bytes.fromhex("28b52ffd0458bd0000887b2274657874223a2261227d0a62227d0a010050cc2f8275550f")
Piece = tuple[bytes, bytes]  # compressed, and as it was


def pieces_of(suffix: str, parts: list[bytes]) -> list[Piece]:
    if suffix == ".jsonl":
        return [(part, part) for part in parts]
    if suffix == ".json.gz":
        return [(gzip.compress(part, 1), part) for part in parts]
    if suffix == ".ndjson.zst":
        return [piece for part in parts for piece in ((SKIPPED_FRAME, b""), (zstd(part), part))]
    return [*((zstd(part), part) for part in parts), (SKIPPED_FRAME, b"")]


SUFFIXES = [".jsonl", ".json.gz", ".ndjson.zst", ".jsonl.zstd"]


def compressed(suffix: str, content: bytes, shares: Sequence[float]) -> bytes:
    """The content in members or frames that end at these shares of it."""
    return b"".join(piece for piece, _ in pieces_of(suffix, cut_at(content, shares)))


@contextlib.contextmanager
def sizes(block_bytes: int, chunk_bytes: int = 2**18) -> Iterator[None]:
    """Blocks and chunks so small that small files have many."""
    with (
        mock.patch.multiple(jsonl, BLOCK_BYTES=block_bytes),
        mock.patch.multiple(compression, CHUNK_BYTES=chunk_bytes, INPUT_BYTES=max(1, chunk_bytes // 3)),
    ):
        yield


def lines_of(count: int) -> list[bytes]:
    return [json.dumps({"text": f"document {i} " * (i % 7), "id": i}).encode() + b"\n" for i in range(count)]


def write(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


# ---------------------------------------------------------------- any file against the json module

any_text = st.text(max_size=30) | st.text(st.characters(codec="ascii"), max_size=30)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=5,
)
objects = st.builds(
    lambda text, beside: {**beside, **text},
    st.fixed_dictionaries({}, optional={"text": any_text | st.none() | values}),
    st.dictionaries(st.sampled_from(["id", "url", "other"]) | any_text, values, max_size=3),
)
good_lines = st.builds(
    lambda value, ascii_only, indent: (indent + json.dumps(value, ensure_ascii=ascii_only)).encode(
        errors="surrogatepass"
    ),
    objects,
    st.booleans(),
    st.sampled_from(["", " ", "\t"]),
)
odd_lines = st.sampled_from(
    [
        b"", b"  ", b"\t", b"{}", b"[]", b'["text"]', b'"text"', b"null", b"7", b"NaN", b"not json", b"\0\0", b"\x0b",
        b'{"text": "half', b'{"text": "a"} {"text": "b"}', b'{"text": "a"', b'{"text": "a",}', b"{'text': 'a'}",
        b'{"text": 5}', b'{"text": ["a"]}', b'{"text": {}}', b'{"text": true}', b'{"text": NaN}', b'{"text": null}',
        b'{"text": "a", "text": "b"}', b'{"text": 1, "text": "b"}', b'{"text": "b", "text": 1}',
        b'{"text": "\\ud800"}', b'{"text": "\\udc00\\ud800"}', b'{"text": "\\ud83d\\ude00"}', b'{"text": "\\u0000"}',
        b'{"text": "\xff"}', b'{"text": "caf\xe9"}', b'{"text": "\xed\xa0\x80"}', b'{"text": "a", "url": "\xff"}',
        b'{"text": "a", "url": "\\udfff"}', b'{"text": "raw \0 zero"}', b'{"text": "raw \x1f"}', b'{"text": "\x7f"}',
        b'{"text": "a", "\xff": 1}', b'{"text": "\xe2\x80\xa8 \xc2\x85 \r"}', b'{"text": "\xe2\x80\xa8\xc2\x85"}',
        b'{"text": "a", "score": 1e999}', b'{"text": "a", "score": -0}', b'\xef\xbb\xbf{"text": "a"}',
    ]
)  # fmt: skip
contents = st.builds(
    lambda mark, lines, ends, last: (
        mark + b"".join(line + end for line, end in zip(lines, itertools.cycle(ends), strict=False)) + last
    ),
    st.sampled_from([b"", b"", b"\xef\xbb\xbf"]),
    st.lists(good_lines | odd_lines, max_size=25),
    st.lists(st.sampled_from([b"\n", b"\r\n", b"\n\n", b"\n \r\n"]), min_size=1, max_size=3),
    st.sampled_from([b"", b'{"text": "last"}', b'{"text": "cut', b" "]),
)


@settings(max_examples=300, deadline=None)
@given(
    content=contents,
    suffix=st.sampled_from(SUFFIXES),
    shares=st.lists(st.floats(0, 1), max_size=6),
    block_bytes=st.sampled_from([1, 7, 50, 400, 2**20]),
    chunk_bytes=st.sampled_from([3, 10, 100, 2**18]),
    split_bytes=st.sampled_from([1, 100, 2**20]),
    batch_bytes=st.sampled_from([1, 40, 2**20]),
)
def test_any_file_gives_what_the_json_module_gives(
    tmp_path_factory, content, suffix, shares, block_bytes, chunk_bytes, split_bytes, batch_bytes
):
    folder = tmp_path_factory.mktemp("any")
    write(folder / "b.jsonl", {"text": "another"})
    path = folder / f"a{suffix}"
    if content.startswith(b"\xef\xbb\xbf"):  # which is found where neither a piece nor a chunk ends within it
        block_bytes, chunk_bytes = max(3, block_bytes), 2**18
        shares = shares if len(next(filter(None, cut_at(content, shares)))) >= 3 else []
    path.write_bytes(compressed(suffix, content, shares))
    with sizes(block_bytes, chunk_bytes):
        inventory = sources.list_files(source_of(folder))
        found = [
            batch
            for split in sources.splits(inventory, split_bytes)
            for batch in sources.read(source_of(folder), split, batch_bytes=batch_bytes)
            if split.path == path.name
        ]
    expected = naive(content)
    assert outcomes_of(found) == expected
    assert records_of(found) == list(range(len(expected)))
    if path.stat().st_size:
        (file,) = (file for file in inventory.files if file.path == path.name)
        assert file.records == len(expected)
        assert file.n_bytes == len(content)
    for batch in found:
        if batch.text is None:
            assert batch.error
        else:
            size = sum(len((text or "").encode()) for text in batch.text.to_pylist())
            assert len(batch) == 1 or size <= batch_bytes


@settings(max_examples=200, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(["id", "url", "dump", "score"]), values), max_size=8))
def test_columns_beside_the_text(tmp_path_factory, beside):
    path = tmp_path_factory.mktemp("columns") / "a.jsonl"
    path.write_text("".join(json.dumps({"text": "t", **record}) + "\n" for record in beside) or "\n")

    def string(value: object) -> str | None:
        if isinstance(value, str):
            return value if all(not 0xD800 <= ord(c) < 0xE000 for c in value) else None
        return None if value is None or isinstance(value, list | dict) else json.dumps(value)

    def number(value: object) -> float | None:
        fits = type(value) in (int, float) and abs(value) <= sys.float_info.max  # type: ignore[arg-type]
        return float(value) if fits else None  # type: ignore[arg-type]

    found = read_all(source_of(path))
    for name, theirs, convert in (
        ("id", "id", string),
        ("url", "url", string),
        ("crawl", "dump", string),
        ("score", "score", number),
    ):
        got = [value for batch in found for value in batch.columns[name].to_pylist()]
        assert got == [convert(record.get(theirs)) for record in beside]


def test_types_of_columns(tmp_path):
    path = write(
        tmp_path / "a.jsonl",
        {"text": "t", "id": 7, "score": 3},
        {"id": True, "url": ["u"], "score": "3"},
        {"score": 10**400},
        {"score": -math.inf},
        {"score": math.nan},
        {"score": True},
    )
    (batch,) = read_all(source_of(path))
    assert batch.text.to_pylist() == ["t", *[None] * 5]
    assert {name: values.to_pylist() for name, values in batch.columns.items()} == {
        "id": ["7", "true", *[None] * 4],
        "url": [None] * 6,
        "crawl": [None] * 6,
        "score": [3.0, *[None] * 5],
        "language": [None] * 6,
        "language_score": [None] * 6,
    }
    assert batch.text.type == batch.columns["url"].type == pa.large_string()
    assert batch.columns["score"].type == pa.float64()
    (batch,) = read_all(source_of(path), columns=["score"])
    assert set(batch.columns) == {"score"}


def test_numbers_and_truth_values_come_back_from_their_text(tmp_path):
    integers = [0, -1, 2**53 + 1, 2**63 - 1, -(2**63)]
    floats = [0.1, -0.0, 5e-324, 1.7976931348623157e308, 1 / 3]
    rows = [
        {"text": "t", "n": n, "x": x, "yes": bool(i % 2)}
        for i, (n, x) in enumerate(zip(integers, floats, strict=True))
    ]
    path = write(tmp_path / "a.jsonl", *rows, {"text": "t", "n": None, "x": [1], "yes": {}})
    (batch,) = read_all(source_of(path, extra=dict.fromkeys(("n", "x", "yes"), "string")))
    assert batch.columns["yes"].to_pylist() == ["false", "true", "false", "true", "false", None]
    for name, kind, wanted in (("n", pa.int64(), integers), ("x", pa.float64(), floats)):
        assert batch.columns[name].cast(kind).to_pylist() == [*wanted, None]
    assert batch.columns["yes"].cast(pa.bool_()).to_pylist() == [False, True, False, True, False, None]


def test_a_column_may_be_a_path(tmp_path):
    path = write(
        tmp_path / "a.jsonl",
        {"body": {"text": "a"}, "metadata": {"url": "u", "a.b": "c"}},
        {"body.text": "b", "metadata": None},
        {"body": "no object", "metadata": {"a": {"b": "d"}}},
    )
    names = {"text": "body.text", "url": "metadata.url", "id": "metadata.a.b"}
    (batch,) = read_all(source_of(path, columns=names))
    assert batch.text.to_pylist() == ["a", "b", None]
    assert batch.columns["url"].to_pylist() == ["u", None, None]
    assert batch.columns["id"].to_pylist() == ["c", None, "d"]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"[1, 2]", "its line holds a list, not an object"),
        (b'"text"', "its line holds text, not an object"),
        (b"null", "its line holds null, not an object"),
        (b"false", "its line holds a truth value, not an object"),
        (b'{"text": 1.5}', "it holds a number in 'text', where text is wanted"),
        (b'{"text": ["a"]}', "it holds a list in 'text', where text is wanted"),
        (b'{"text": "ab', "its line is not JSON: EOF while parsing a string at byte 12"),
        (b'{"text": ' + b"[" * 10**6, "its line is not JSON: recursion limit exceeded at byte 210"),
        (
            b'{"text": "a", "n": ' + b"9" * 10**5 + b"}",
            "its line is not JSON: number out of range at byte 4321",
        ),
    ],
)
def test_one_bad_line_costs_one_document_and_says_why(tmp_path, line, error):
    good = lines_of(9)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join([*good[:4], line + b"\n", *good[4:]]))
    found = read_all(source_of(path))
    assert [batch.records.tolist() for batch in found] == [[0, 1, 2, 3], [4], [5, 6, 7, 8, 9]]
    assert [batch.error for batch in found] == [None, error, None]
    assert texts_of(found) == [json.loads(line)["text"] for line in good]


def test_nesting_is_limited_alike_wherever_it_is_read(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b"".join(b'{"text": "a", "deep": ' + b"[" * d + b"]" * d + b"}\n" for d in range(1, 1100))
    )

    def deeper(levels: int) -> list[Outcome]:
        return deeper(levels - 1) if levels else outcomes_of(read_all(source_of(path)))

    outcomes = outcomes_of(read_all(source_of(path)))
    assert 100 < outcomes.index((UNREADABLE, None)) < 300
    assert deeper(400) == outcomes


# ---------------------------------------------------------------- blocks


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_doc_ids_and_texts_do_not_depend_on_blocks_and_splits(tmp_path, suffix):
    lines = lines_of(300)
    path = tmp_path / f"a{suffix}"
    path.write_bytes(compressed(suffix, b"".join(lines), [i / 23 for i in range(23)]))
    seen, counts = [], []
    for block_bytes, split_bytes in ((2**23, 2**25), (1000, 3000), (1000, 1), (4096, 9000), (1, 1)):
        with sizes(block_bytes, 512):
            counts.append(len(sources.splits(sources.list_files(source_of(path)), split_bytes)))
            found = read_all(source_of(path), split_bytes)
        records = np.concatenate([batch.records for batch in found])
        seen.append((ledger.doc_ids("web", path.name, records).tolist(), texts_of(found)))
    assert all(one == seen[0] for one in seen)
    assert seen[0][1] == [json.loads(line)["text"] for line in lines]
    assert counts[0] == 1
    assert counts[2] > counts[1] > 3


def test_blocks_of_eight_megabytes(tmp_path):
    line = json.dumps({"text": "x" * 99_985}).encode()  # 99,998 bytes with its end
    assert len(line) == 99_998 - 1
    (tmp_path / "a.jsonl").write_bytes((line + b"\n") * 200)
    (file,) = sources.list_files(source_of(tmp_path)).files
    assert [block.place for block in file.blocks] == [0, 2**23, 2**24]
    assert [block.n_bytes for block in file.blocks] == [2**23, 2**23, 200 * 99_998 - 2**24]
    assert [block.records for block in file.blocks] == [84, 84, 32]


@pytest.mark.parametrize("compress", [gzip.compress, zstd])
def test_members_are_joined_to_blocks_and_read_by_themselves(tmp_path, compress):
    members = [compress(json.dumps({"text": f"{i}" * 3000}).encode() + b"\n") for i in range(10)]
    path = tmp_path / "a.jsonl.x"
    path.write_bytes(b"".join(members))
    with sizes(5000):
        (file,) = sources.list_files(source_of(path)).files
        assert len(file.blocks) == 5
        # A line that begins where a block does belongs to the block before, which holds the line end before it.
        assert [block.records for block in file.blocks] == [3, 2, 2, 2, 1]
        # Without what lies before, only the place of the block in the file is left.
        content = bytearray(path.read_bytes())
        content[4 : file.blocks[3].place] = bytes(file.blocks[3].place - 4)
        path.write_bytes(content)
        found = list(jsonl.read(str(path), [file.blocks[3].place], 7, {"text": "text"}, 2**20))
    assert texts_of(found) == [f"{i}" * 3000 for i in (7, 8)]


def test_a_line_longer_than_many_blocks(tmp_path):
    lines = [json.dumps({"text": text * n}).encode() + b"\n" for text, n in (("a", 5), ("b", 5000), ("c", 5))]
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(lines))
    with sizes(100, 30):
        (file,) = sources.list_files(source_of(path)).files
        assert [block.records for block in file.blocks if block.records] == [2, 1]
        assert len(file.blocks) > 50
        assert texts_of(read_all(source_of(path), 1)) == ["aaaaa", "b" * 5000, "ccccc"]
        assert read_records(source_of(path), "a.jsonl", [2, 1]) == ["ccccc", "b" * 5000]


@pytest.mark.parametrize("blanks", [0, 3000])
def test_a_line_beyond_the_limit_is_one_unreadable_record(tmp_path, monkeypatch, blanks):
    monkeypatch.setattr(jsonl, "LINE_BYTES", 2000)
    texts = ["a", "b" * 1900, "c" * 2000, "d" * 9000, "e"]
    lines = [b" " * blanks + json.dumps({"text": text}).encode() for text in texts]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join([*lines, b" " * 5000]))
    for chunk_bytes in (100, 2**18):
        with sizes(2**23, chunk_bytes):
            found = read_all(source_of(tmp_path))
        assert records_of(found) == [0, 1, 2, 3, 4]
        assert texts_of(found) == ["a", "b" * 1900, "e"]
        assert found[1].error == "its line is longer than 2,000 bytes"


def test_random_access(tmp_path):
    lines = lines_of(100)
    lines[42] = b"bad\n"
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines))
    texts = [None if i == 42 else json.loads(line)["text"] for i, line in enumerate(lines)]
    with sizes(500):
        assert read_records(source_of(tmp_path), "a.jsonl", [99, 0, 42, 50, 0]) == [
            texts[i] for i in (99, 0, 42, 50, 0)
        ]
        with pytest.raises(IndexError, match=r"^a.jsonl has records 0 to 99; asked for 100 to 100$"):
            read_records(source_of(tmp_path), "a.jsonl", [100])


# ---------------------------------------------------------------- damage


@settings(max_examples=150, deadline=None)
@given(share=st.floats(0, 1), block_bytes=st.sampled_from([50, 2**20]))
def test_a_plain_file_cut_anywhere_keeps_all_whole_lines(tmp_path_factory, share, block_bytes):
    content = b"".join(lines_of(40))
    content = content[: int(share * len(content))] or b"\n"
    path = tmp_path_factory.mktemp("cut") / "a.jsonl"
    path.write_bytes(content)
    with sizes(block_bytes):
        found = read_all(source_of(path))
    assert outcomes_of(found) == naive(content)
    whole = [json.loads(line)["text"] for line in content.splitlines() if line.endswith(b"}")]
    assert texts_of(found) == whole
    assert len(found) == 0 or (found[-1].text is None) == (not content.endswith((b"}", b"\n")))


@settings(max_examples=300, deadline=None)
@given(
    suffix=st.sampled_from([".json.gz", ".ndjson.zst", ".jsonl.zstd"]),
    shares=st.lists(st.floats(0, 1), max_size=8),
    share=st.floats(0, 1, exclude_max=True),
    block_bytes=st.sampled_from([1, 300, 2**20]),
    chunk_bytes=st.sampled_from([10, 2**18]),
)
def test_a_compressed_file_cut_anywhere_keeps_what_can_be_decompressed(
    tmp_path_factory, suffix, shares, share, block_bytes, chunk_bytes
):
    lines = lines_of(60)
    pieces = pieces_of(suffix, cut_at(b"".join(lines), shares))
    whole = b"".join(piece for piece, _ in pieces)
    cut = max(1, int(share * len(whole)))
    path = tmp_path_factory.mktemp("cut") / f"a{suffix}"
    path.write_bytes(whole[:cut])
    with sizes(block_bytes, chunk_bytes):
        inventory = sources.list_files(source_of(path))
        found = read_all(source_of(path), 1)
    texts, unreadable = texts_of(found), [batch.records.tolist() for batch in found if batch.text is None]
    assert records_of(found) == list(range(inventory.records))
    assert texts == [json.loads(line)["text"] for line in lines[: len(texts)]]
    # Whole members and frames can be decompressed in any case; of gzip, all that comes before the cut.
    ends = list(itertools.accumulate(len(piece) for piece, _ in pieces))
    decoded = b"".join(part for (_, part), end in zip(pieces, ends, strict=True) if end <= cut)
    if suffix == ".json.gz":
        decoded = inflated(whole[:cut])
    assert len(texts) >= decoded.count(b"\n")
    if cut not in ends:  # the loss is said, once
        assert unreadable == ([] if inventory.bad else [[len(texts)]])
        assert not (inventory.bad and decoded)
    elif decoded.endswith((b"}", b"\n")) or not decoded:  # nothing tells that something is missing
        assert unreadable == []
    else:
        assert unreadable == [[len(texts)]]


def inflated(content: bytes) -> bytes:
    """As much of a gzip file as zlib gives."""
    output = b""
    while content:
        member = zlib.decompressobj(wbits=31)
        output += member.decompress(content) + member.flush()
        content = member.unused_data
    return output


@settings(max_examples=200, deadline=None)
@given(
    share=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), block_bytes=st.sampled_from([1, 2**20])
)
def test_a_flipped_bit_in_gzip_does_not_go_unnoticed(tmp_path_factory, share, bit, block_bytes):
    lines = lines_of(60)
    content = bytearray(compressed(".json.gz", b"".join(lines), [0.3, 0.6]))
    content[2 + int(share * (len(content) - 2))] ^= 1 << bit  # the first two bytes say that it is gzip
    folder = tmp_path_factory.mktemp("flip")
    (folder / "a.json.gz").write_bytes(content)
    write(folder / "b.json", {"text": "another"})
    with sizes(block_bytes):
        inventory = sources.list_files(source_of(folder))
        *found, other = read_all(source_of(folder))
    assert texts_of([other]) == ["another"]
    assert records_of(found) == list(range(inventory.records - 1))
    if texts_of(found) != [json.loads(line)["text"] for line in lines]:
        assert inventory.bad or any(batch.text is None for batch in found)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("suffix", [".jsonl.gz", ".jsonl.zst"])
def test_one_long_member_is_read_up_to_the_cut(tmp_path, suffix, share):
    random = np.random.default_rng(0)
    texts = ["".join(map(chr, random.integers(97, 123, 1000))) for _ in range(4000)]
    content = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
    whole = gzip.compress(content) if suffix == ".jsonl.gz" else zstd(content)
    path = tmp_path / f"a{suffix}"
    path.write_bytes(whole[: int(share * len(whole))])
    found = read_all(source_of(path))
    n = len(texts_of(found))
    assert texts_of(found) == texts[:n]
    assert n * len(content) / 4000 > share * len(content) - 2 * 2**17  # two of Zstandard's blocks
    assert found[-1].records.tolist() == [n]
    assert found[-1].error.endswith("; what follows is lost")


@pytest.mark.parametrize(
    ("content", "texts", "error"),
    [
        (gzipped(lines_of(2)[1]) + bytes(70), ["document 1 "], None),
        (gzipped(lines_of(2)[1]) + bytes(70) + gzipped(b'{"text": "b"}'), ["document 1 ", "b"], None),
        (gzipped(b'{"text": "a"}') + b"garbage", [], "its gzip member at byte 33 cannot be decompressed"),
        (gzipped(b'{"text": "a"}\n') + b"garbage", ["a"], "its gzip member at byte 34 cannot be decompressed"),
        (gzipped(b'{"text": "a"}\n')[:-8] + bytes(8), ["a"], "its gzip member at byte 0 cannot be decompressed"),
        (zstd(b'{"text": "a"}\n') + b"garbage", ["a"], "it is no Zstandard from byte 23 on; what follows is lost"),
        (zstd(b'{"text": "a"}\n') + SKIPPED_FRAME[:9], ["a"], "it is truncated: its Zstandard frame at byte 23 has no"),
        (CHECKED_FRAME, ["a", "b"], None),
        (CHECKED_FRAME[:-1] + b"?", ["a", "b"], "its Zstandard frame at byte 0 cannot be decompressed"),
        (CHECKED_FRAME[:-2], ["a", "b"], "it is truncated: its Zstandard frame at byte 0 has no end"),
        (SKIPPED_FRAME + EMPTY_FRAME + zstd(b'{"text": "a"}'), ["a"], None),
        (gzipped(b"") + gzipped(b'{"text": "a"}') + gzipped(b""), ["a"], None),
    ],
)  # fmt: skip
def test_what_follows_a_member_or_frame(tmp_path, content, texts, error):
    (tmp_path / "a.jsonl").write_bytes(content)  # what a file is called does not matter
    for block_bytes in (1, 2**23):
        with sizes(block_bytes):
            found = read_all(source_of(tmp_path))
        assert texts_of(found) == texts
        assert [batch.error[: len(error)] for batch in found if batch.error] == ([error] if error else [])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (gzipped(b"{}")[:10], "it is truncated: its gzip member at byte 0 has no end"),
        (b"\x1f\x8b no gzip", "its gzip member at byte 0 cannot be decompressed ("),
        (
            zstd(b"{}")[:6],
            "it is truncated: its Zstandard frame at byte 0 has no end",
        ),
        (SKIPPED_FRAME[:6], "it is truncated: its Zstandard frame at byte 0 has no end"),
        ('{"text": "a"}\n'.encode("utf-16"), "it is UTF-16, where UTF-8 is wanted"),
        (
            json.dumps([{"text": "a"}], indent=1).encode(),
            "it is one JSON document over many lines, where each",
        ),
        (b'\xef\xbb\xbf{\r\n "text": "a"\r\n}\r\n', "it is one JSON document over many lines, where each"),
    ],
)
def test_files_that_cannot_be_read_at_all(tmp_path, content, reason):
    (tmp_path / "a.json").write_bytes(content)
    write(tmp_path / "b.json", {"text": "whole"})
    inventory = sources.list_files(source_of(tmp_path))
    assert [file.path for file in inventory.files] == ["b.json"]
    assert [(bad.path, bad.reason[: len(reason)]) for bad in inventory.bad] == [("a.json", reason)]


def test_what_lies_beside_the_data_is_passed_over(tmp_path):
    write(tmp_path / "a.json", {"text": "whole"})
    described = {"description": "a set", "features": {"text": {"dtype": "string"}}}
    (tmp_path / "package.json").write_text(json.dumps(described, indent=2))
    (tmp_path / "marked.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(described, indent=2).encode())
    for name in ("dataset_info.json", "dataset_dict.json", "state.json"):
        write(tmp_path / name, described)
    (tmp_path / "pretty.json").write_text(json.dumps({"text": "a document over many lines"}, indent=2))
    (tmp_path / "list.json").write_text(json.dumps([described], indent=2))
    inventory = sources.list_files(source_of(tmp_path))
    assert [file.path for file in inventory.files] == ["a.json"]
    assert [bad.path for bad in inventory.bad] == ["list.json", "pretty.json"]
    assert {one.path: one.reason for one in inventory.skipped} == {
        "dataset_dict.json": "a dataset's description",
        "dataset_info.json": "a dataset's description",
        "marked.json": "one JSON object over many lines, without a text",
        "package.json": "one JSON object over many lines, without a text",
        "state.json": "a dataset's description",
    }
    with pytest.raises(UserError, match=r"holds nothing to read; passed over: package.json, one JSON object"):
        sources.list_files(source_of(tmp_path / "package.json"))


@pytest.mark.parametrize("compress", [gzip.compress, zstd])
def test_what_cannot_be_split_is_said_once_for_a_source(tmp_path, compress):
    content = b"".join(lines_of(2000))
    for name in ("a.jsonl", "b.jsonl", "c.jsonl", "d.jsonl"):
        (tmp_path / name).write_bytes(compress(content))
    parts = cut_at(content, [i / 20 for i in range(20)])
    (tmp_path / "e.jsonl").write_bytes(b"".join(map(compress, parts)))
    (tmp_path / "f.jsonl").write_bytes(content)
    with sizes(1000):
        inventory = sources.list_files(source_of(tmp_path))
    (notice,) = sources.notices_of([source_of(tmp_path)], inventory, len(content) // 10)
    assert notice.startswith(
        "web: 4 files are not split further: a.jsonl (0 MiB), b.jsonl (0 MiB), c.jsonl (0 MiB) and 1"
    )
    assert "a gzip member or Zstandard frame is read by one worker alone" in notice


@pytest.mark.parametrize(
    "content", [b"\n \r\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n", gzipped(b""), EMPTY_FRAME]
)
def test_no_records(tmp_path, content):
    (tmp_path / "a.jsonl").write_bytes(content)
    inventory = sources.list_files(source_of(tmp_path))
    assert inventory.records == 0
    assert len(inventory.files) == 1
    assert read_all(source_of(tmp_path)) == []
    assert sources.notices_of([source_of(tmp_path)], inventory) == [
        "web: one file holds no document: a.jsonl"
    ]


def test_a_failing_machine_is_not_a_damaged_file(tmp_path):
    class Failing:
        def __init__(self, content: bytes) -> None:
            self.content, self.offset = content, 0

        def seek(self, offset: int) -> None:
            self.offset = offset

        def tell(self) -> int:
            return self.offset

        def read(self, size: int) -> bytes:
            if self.offset > 1000:
                raise OSError(5, "Input/output error")
            self.offset += size
            return self.content[self.offset - size : self.offset]

    content = b"".join(lines_of(20_000))
    for whole in (content, gzip.compress(content), zstd(content)):
        with sizes(2**20, 600), pytest.raises(OSError, match="Input/output error"):
            jsonl.blocks(Failing(whole), {"text": "text"})  # type: ignore[arg-type]


# ---------------------------------------------------------------- files of a source


def test_files_and_names(tmp_path):
    for name in ("a.jsonl", "b.JSON", "c.ndjson", "d.jsonl.gz", "e.json.zst", "f.ndjson.zstd"):
        write(tmp_path / name, {"text": name})
    (tmp_path / "g.json.bz2").write_text("x")
    (tmp_path / "h.jsonl").touch()
    inventory = sources.list_files(source_of(tmp_path))
    assert [file.path[0] for file in inventory.files] == list("abcdef")
    assert [(skipped.path, skipped.reason[:9]) for skipped in inventory.skipped] == [
        ("g.json.bz2", "not named"),
        ("h.jsonl", "empty, ze"),
    ]
    assert [text[0] for text in texts_of(read_all(source_of(tmp_path)))] == list("abcdef")


def test_files_with_different_keys(tmp_path):
    write(tmp_path / "a.jsonl", {"text": "a", "url": "u"})
    write(tmp_path / "b.jsonl", {"text": "b", "score": 1})
    write(tmp_path / "c.jsonl", {"name": "no text at all"})
    (tmp_path / "d.jsonl").write_text("not an object\n")
    inventory = sources.list_files(source_of(tmp_path))
    assert [file.columns for file in inventory.files] == [
        ("text", "url"),
        ("text", "score"),
        (),
        ("text", "id", "url", "crawl", "score", "language", "language_score"),
    ]
    assert outcomes_of(read_all(source_of(tmp_path))) == [
        ("text", "a"),
        ("text", "b"),
        ("text", None),
        (UNREADABLE, None),
    ]
    (notice,) = sources.notices_of([source_of(tmp_path)], inventory)
    assert notice.startswith("web: one file is without a text in the first records; ")
    assert notice.endswith(": c.jsonl")


def test_a_column_that_no_file_has_is_a_mistake_in_the_settings(tmp_path):
    write(tmp_path / "a.jsonl", {"body": "a", "url": None})
    write(tmp_path / "b.jsonl", {"body": "a"})
    for names, theirs, ours in (
        ({}, "text", "text"),
        ({"text": "txt"}, "txt", "text"),
        ({"text": "body", "id": "metadata.id"}, "metadata.id", "id"),
    ):
        named_for = "" if ours == theirs else f", named for {ours}"
        sentence = f"^source 'web': no file has the column '{theirs}'{named_for}; a.jsonl has body, url$"
        with pytest.raises(UserError, match=sentence):
            sources.list_files(source_of(tmp_path, columns=names))
    assert len(sources.list_files(source_of(tmp_path, columns={"text": "body", "url": "url"})).files) == 2


def test_remote_files(tmp_path):
    system = fsspec.filesystem("memory")
    lines = lines_of(300)
    try:
        for suffix in SUFFIXES:
            system.pipe(f"/jsonl/a{suffix}", compressed(suffix, b"".join(lines), [0.2, 0.5, 0.7]))
        with sizes(1000, 300):
            found = read_all(Settings("memory://jsonl", format="jsonl"), 3000)
    finally:
        system.rm("/jsonl", recursive=True)
    assert texts_of(found) == [json.loads(line)["text"] for line in lines] * len(SUFFIXES)


def test_the_built_in_corpus_is_no_reference_set():
    with pytest.raises(UserError, match=r"references names 'held', the built-in corpus"):
        config.load("sample", ["validation.references=[{name: held, format: packages}]"])


# ---------------------------------------------------------------- bad input by kind


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_bad_input_by_kind(tmp_path, suffix):
    url = "http://example.org/" + "u" * 10_000
    records = [
        {"text": "a\0b", "id": "1"},
        {"text": "half \ud800 a pair", "id": "1"},
        {"text": "", "id": "1"},
        {"text": "duplicated id", "id": "1"},
        {"text": "x" * 5_000_000, "id": "\udfff"},
        {"text": "long url", "url": url},
    ]
    path = tmp_path / f"a{suffix}"
    path.write_bytes(
        compressed(suffix, "".join(json.dumps(record) + "\n" for record in records).encode(), [0.5])
    )
    found = read_all(source_of(path))
    assert outcomes_of(found) == [
        (INVALID, None) if "\ud800" in record["text"] else ("text", record["text"]) for record in records
    ]
    columns = {
        name: [v for batch in found for v in batch.columns[name].to_pylist()] for name in ("id", "url")
    }
    assert columns == {"id": ["1"] * 4 + [None] * 2, "url": [None] * 5 + [url]}
    assert len({*ledger.doc_ids("web", path.name, np.array(records_of(found)))}) == 6


# ---------------------------------------------------------------- memory and real data

PEAK = """
import re, sys
from pathlib import Path
from types import SimpleNamespace
from jobs import sources
import pandas

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

source = SimpleNamespace(name="web", format="jsonl", path=sys.argv[1], columns={}, extra={})
before = peak()
splits = sources.splits(sources.list_files(source))
listed = peak()
documents = sum(len(batch) for split in splits for batch in sources.read(source, split))
print(listed - before, peak() - before, documents)
"""


@pytest.mark.parametrize("compress", [bytes, functools.partial(gzip.compress, compresslevel=1), zstd])
def test_memory_follows_the_longest_line(tmp_path, compress):
    if not Path("/proc/self/status").exists():
        pytest.skip("needs Linux to tell a process's peak")
    size = 40_000_000
    letters = np.random.default_rng(1).integers(97, 113, size, dtype=np.uint8).tobytes()
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        compress(b'{"text": "short"}\n' * 9 + b'{"text": "' + letters + b'"}\n{"text": "short"}')
    )
    done = subprocess.run(
        [sys.executable, "-c", PEAK, path], cwd=ROOT, capture_output=True, text=True, check=True
    )
    listed, read, documents = map(int, done.stdout.split())
    assert documents == 11
    assert listed < 40_000_000  # the sample, twice, and what decompression takes
    # The line, its string, and its bytes in Arrow, which grow by doubling.
    assert read < 5 * size


def test_a_bomb_costs_its_line(tmp_path, monkeypatch):
    monkeypatch.setattr(jsonl, "LINE_BYTES", 10**6)
    bomb = b'{"text": "a"}\n{"text": "' + b" " * 10**8 + b'"}\n{"text": "b"}'
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(bomb, 9))
    (tmp_path / "b.jsonl.zst").write_bytes(zstd(bomb))
    tracemalloc.start()
    try:
        found = read_all(source_of(tmp_path))
        assert tracemalloc.get_traced_memory()[1] < 25_000_000  # the sample, twice
    finally:
        tracemalloc.stop()
    assert outcomes_of(found) == [("text", "a"), (UNREADABLE, None), ("text", "b")] * 2


def test_what_a_cut_leaves_within_the_decompressor_is_read(tmp_path):
    line = json.dumps({"text": "a" * 70}).encode() + b"\n"
    whole = gzip.compress(line * 50)
    path = tmp_path / "a.jsonl.gz"
    for cut in range(70, len(whole)):
        path.write_bytes(whole[:cut])
        with sizes(2**20, 10):
            assert len(texts_of(read_all(source_of(path)))) == inflated(whole[:cut]).count(b"\n")


def test_real_files(shared):
    names = ["c4/*.json.gz", "web/*.jsonl", "quality/*.jsonl", "eval/*.jsonl.gz"]
    paths = [path for name in names for path in sorted(shared.glob(name))]
    assert len(paths) > 4
    for path in paths:
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
        key = next(
            key for key in ("text", "raw_content", "question", "prompt") if f'"{key}"'.encode() in content
        )
        with sizes(100_000):
            found = read_all(source_of(path, columns={"text": key}), 300_000)
        assert texts_of(found) == [json.loads(line).get(key) for line in content.split(b"\n") if line.strip()]


# ---------------------------------------------------------------- the main job


def write_jsonl(corpus: Path, folder: Path) -> list[str]:
    """The documents of a Parquet corpus as gzip files of many members; their texts."""
    folder.mkdir()
    rows = pa.concat_tables(pq.read_table(path) for path in sorted(corpus.glob("*.parquet"))).to_pylist()
    for number, part in enumerate((rows[:500], rows[500:])):
        content = "".join(json.dumps(row) + "\n" for row in part).encode()
        parts = cut_at(content, [i / 17 for i in range(17)])
        (folder / f"{number}.jsonl.gz").write_bytes(b"".join(map(gzip.compress, parts)))
    return [row["text"] for row in rows]


def test_the_main_job_reads_jsonl(
    corpus: Path, finished: Path, cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = tmp_path / "jsonl", tmp_path / "out"
    write_jsonl(corpus, folder)
    cut = (folder / "0.jsonl.gz").read_bytes()
    (folder / "cut.jsonl.gz").write_bytes(cut[: len(cut) // 3])
    (folder / "odd.jsonl").write_bytes(
        b'{"id": "no text"}\nbad\n{"text": "\\ud800"}\n{"text": ""}\n{"text": null}'
    )
    source = f"sources=[{{name: web, format: jsonl, path: '{folder}'}}]"
    assert run_job(corpus, out, cluster, source) == 1
    assert (
        len(re.findall(r"^unreadable: .*(?:odd.jsonl|cut.jsonl.gz): some", capsys.readouterr().out, re.M))
        == 2
    )
    assert run_job(corpus, out, cluster, source, "allow_bad_files=2") == 0
    rows, parquet = ledger.read(out).compute(), ledger.read(finished).compute()
    carried = ["id", "url", "crawl", "score", "n_bytes", "n_words", "text_hash"]
    by_path = dict(list(rows.groupby("path")))
    assert by_path["odd.jsonl"]["fate"].astype(str).tolist() == [
        f"input.{fate}" for fate in ("null_text", "unreadable", "invalid_utf8", "empty_text", "null_text")
    ]
    *_, last = fates = by_path["cut.jsonl.gz"]["fate"].astype(str).tolist()
    assert fates.count(last) == 1
    assert last == "input.unreadable"
    assert 100 < len(fates) < 250
    for name in carried:
        whole = [*by_path["0.jsonl.gz"][name], *by_path["1.jsonl.gz"][name]]
        assert whole == parquet[name].tolist()
        assert by_path["cut.jsonl.gz"][name].tolist()[:-1] == whole[: len(fates) - 1]


def test_a_reference_set_may_be_jsonl(corpus: Path, cluster: str, tmp_path: Path) -> None:
    folder, out = tmp_path / "references", tmp_path / "out"
    texts = write_jsonl(corpus, folder)
    (folder / "1.jsonl.gz").unlink()  # leaves the first 500 documents
    extra = [
        f"validation.references=[{{name: held, format: jsonl, path: '{folder}'}}]",
        "validation.fraction=0.1",
    ]
    assert run_job(corpus, out, cluster, *extra) == 0
    rows = ledger.read(out).compute()
    validation = rows[rows["fate"] == "validation"]
    assert len(validation) > 0
    places = set(zip(validation["path"], validation["record"].astype(int), strict=True))
    chosen = {int(path.removesuffix(".parquet")) * 300 + record for path, record in places}
    assert not {texts[i] for i in chosen} & set(texts[:500])
