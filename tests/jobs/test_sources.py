import functools
import http.server
import itertools
import json
import os
import pickle
import random
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs import sources
from jobs.errors import UserError
from jobs.sources import batches, parquet, storage


@dataclass(frozen=True)
class Settings:
    path: str
    name: str = "web"
    format: str = "parquet"
    columns: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, str] = field(default_factory=dict)


def write(path: Path, texts: list[str | None] | pa.Array, row_group: int = 1000, **columns: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"text": pa.array(texts, pa.string()) if isinstance(texts, list) else texts, **columns})
    pq.write_table(table, path, row_group_size=row_group, write_page_checksum=True)
    return path


def numbered(count: int, words: int = 5) -> list[str | None]:
    return [f"document {i} " * words for i in range(count)]


def source_of(path: Path, **options: object) -> Settings:
    return Settings(str(path), **options)  # type: ignore[arg-type]


def read_all(source: Settings, split_bytes: int = 2**25, **options: object) -> list[sources.Batch]:
    inventory = sources.list_files(source)
    return [
        batch
        for split in sources.splits(inventory, split_bytes)
        for batch in sources.read(source, split, **options)  # type: ignore[arg-type]
    ]


def texts_of(found: list[sources.Batch]) -> list[str | None]:
    return [text for batch in found if batch.text is not None for text in batch.text.to_pylist()]


def records_of(found: list[sources.Batch]) -> list[int]:
    return [record for batch in found for record in batch.records.tolist()]


def read_records(source: Settings, path: str, records: Iterable[int], *blocks: object) -> list[str | None]:
    wanted = list(records)
    found = {
        record: batch.string(row)
        for batch in sources.read_batches(source, path, wanted, *blocks)
        for row, record in enumerate(batch.records.tolist())
    }
    return [found[record] for record in wanted]


# ---------------------------------------------------------------- reading


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.none() | st.text(st.characters(codec="utf-8"), max_size=40), max_size=60),
    row_group=st.integers(1, 25),
    split_bytes=st.integers(1, 4000),
    batch_bytes=st.integers(1, 300),
)
def test_any_cut_gives_what_the_file_holds(tmp_path_factory, texts, row_group, split_bytes, batch_bytes):
    path = tmp_path_factory.mktemp("cut") / "a.parquet"
    url = pa.array([f"http://example.org/{i}" for i in range(len(texts))], pa.string())
    write(path, texts, row_group, url=url)
    found = read_all(source_of(path), split_bytes, batch_bytes=batch_bytes)
    assert texts_of(found) == texts
    assert records_of(found) == list(range(len(texts)))
    assert [value for batch in found for value in batch.columns["url"].to_pylist()] == url.to_pylist()
    for batch in found:
        size = sum(len((text or "").encode()) for text in batch.text.to_pylist())
        assert len(batch) == 1 or size <= batch_bytes
        assert batch.text.type == pa.large_string()
        assert batch.valid.all()


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.integers(0, 30), max_size=12), split_bytes=st.integers(1, 40_000))
def test_splits_cover_each_record_once_and_are_as_large_as_they_may(rows, split_bytes):
    blocks = tuple(sources.Block(n, n * 100, place) for place, n in enumerate(rows))
    file = sources.File("web", "a.parquet", 1, "1", blocks, ("text",))
    found = sources.splits(sources.Inventory((file,)), split_bytes)
    assert [r for split in found for r in range(split.start, split.stop)] == list(range(sum(rows)))
    assert [place for split in found for place in split.places] == [i for i, n in enumerate(rows) if n]
    for split, following in itertools.pairwise(found):
        assert split.n_bytes + rows[following.places[0]] * 100 > split_bytes
    for split in found:
        assert split.n_bytes <= split_bytes or len(split.places) == 1
        assert split.stop - split.start == sum(rows[place] for place in split.places)


def test_batches_stay_below_eight_megabytes(tmp_path):
    path = write(tmp_path / "a.parquet", ["x" * 100_000] * 200, row_group=200)
    found = read_all(source_of(path))
    assert [len(batch) for batch in found] == [83, 83, 34]  # 83 × 100,000 ≤ 8 MiB < 84 × 100,000


def test_a_long_document_is_a_batch_alone(tmp_path):
    path = write(tmp_path / "a.parquet", ["a", "b", "x" * 9_000_000, "c", ""])
    assert [batch.records.tolist() for batch in read_all(source_of(path))] == [[0, 1], [2], [3, 4]]


def test_a_batch_has_a_limit_of_documents_too(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "BATCH_DOCUMENTS", 100)
    path = write(tmp_path / "a.parquet", [None] * 250)
    assert [len(batch) for batch in read_all(source_of(path))] == [100, 100, 50]


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int32(), pa.string()),
        pa.dictionary(pa.int8(), pa.large_string()),
    ],
    ids=str,
)
def test_any_kind_of_text(tmp_path, kind):
    values = ["one", None, "", "ünïcode", "one"]
    array = pa.array(values, kind.value_type if pa.types.is_dictionary(kind) else kind).cast(kind)
    write(tmp_path / "a.parquet", array, id=array)
    (batch,) = read_all(source_of(tmp_path))
    assert batch.text.type == batch.columns["id"].type == pa.large_string()
    assert batch.text.to_pylist() == batch.columns["id"].to_pylist() == values


def test_a_column_of_nothing_but_null(tmp_path):
    write(tmp_path / "a.parquet", pa.nulls(3))
    (batch,) = read_all(source_of(tmp_path))
    assert batch.text.to_pylist() == [None, None, None]
    assert batch.valid.all()


def test_columns_by_default_and_by_name(tmp_path):
    table = {"id": ["i"], "dump": ["CC-MAIN-2024-10"], "score": [2.5], "other": ["o"], "body": ["b"]}
    write(tmp_path / "a.parquet", ["t"], **table)
    (batch,) = read_all(source_of(tmp_path))
    found = {name: values.to_pylist() for name, values in batch.columns.items()}
    assert found == {"id": ["i"], "crawl": ["CC-MAIN-2024-10"], "score": [2.5]}
    (batch,) = read_all(source_of(tmp_path, columns={"text": "body", "id": "other"}), columns=["id"])
    assert batch.text.to_pylist() == ["b"]
    assert {name: values.to_pylist() for name, values in batch.columns.items()} == {"id": ["o"]}


def test_two_columns_may_come_from_one_and_a_name_may_have_a_dot(tmp_path):
    write(tmp_path / "a.parquet", ["t"], **{"meta.uri": ["u"], "meta": [1], "text.lang": ["en"]})
    (batch,) = read_all(source_of(tmp_path, columns={"id": "meta.uri", "url": "meta.uri"}))
    assert {name: values.to_pylist() for name, values in batch.columns.items()} == {"id": ["u"], "url": ["u"]}
    assert batch.text.to_pylist() == ["t"]


def test_files_with_different_schemas(tmp_path):
    write(tmp_path / "a.parquet", ["a"], url=["u"], score=pa.array([1], pa.int8()))
    write(tmp_path / "b.parquet", pa.array(["b"], pa.large_string()), more=[[1, 2]])
    inventory = sources.list_files(source_of(tmp_path))
    assert [file.columns for file in inventory.files] == [("text", "url", "score"), ("text",)]
    first, second = read_all(source_of(tmp_path))
    assert set(first.columns) == {"url", "score"}
    assert second.columns == {}


@pytest.mark.parametrize(
    "invalid", [b"\xff", b"caf\xe9", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xe2\x82"]
)
def test_text_that_is_not_utf8_is_found(tmp_path, invalid):
    values = [b"good", invalid, None, "é\0".encode(), b"", invalid + b" and more"]
    binary = pa.array(values, pa.binary())
    array = pa.StringArray.from_buffers(len(values), *binary.buffers()[1:], binary.buffers()[0])
    path = write(tmp_path / "a.parquet", array, id=array)
    (batch,) = read_all(source_of(tmp_path))
    assert batch.valid.tolist() == [True, False, True, True, True, False]
    assert batch.text.to_pylist() == ["good", "", None, "é\0", "", ""]
    assert batch.columns["id"].to_pylist() == ["good", None, None, "é\0", "", None]
    assert read_records(source_of(path), "a.parquet", range(4)) == ["good", None, None, "é\0"]


@given(st.lists(st.none() | st.binary(max_size=6), max_size=20), st.integers(0, 5))
def test_validity_is_that_of_python(values, start):
    binary = pa.array(values, pa.large_binary())
    text = pa.LargeStringArray.from_buffers(len(values), *binary.buffers()[1:], binary.buffers()[0])

    def decodes(value: bytes | None) -> bool:
        try:
            return value is None or bool(value.decode()) or True
        except UnicodeDecodeError:
            return False

    assert batches.valid_utf8(text[start:]).tolist() == [decodes(value) for value in values[start:]]


def test_random_access(tmp_path):
    texts = numbered(100)
    texts[42] = None
    path = write(tmp_path / "folder" / "a.parquet", texts, row_group=7)
    wanted = [99, 0, 42, 50, 0]
    for source, relative in ((source_of(tmp_path), "folder/a.parquet"), (source_of(path), "a.parquet")):
        assert read_records(source, relative, wanted) == [texts[record] for record in wanted]
        assert read_records(source, relative, []) == []
    with pytest.raises(IndexError, match=r"^a.parquet has records 0 to 99; asked for -1 to 100$"):
        read_records(source, "a.parquet", [-1, 100])


def test_random_access_with_known_blocks_looks_for_none(tmp_path, monkeypatch):
    write(tmp_path / "a.parquet", numbered(100), row_group=7)
    (file,) = sources.list_files(source_of(tmp_path)).files
    monkeypatch.setattr(parquet, "blocks", None)
    found = read_records(source_of(tmp_path), "a.parquet", [99, 0], file.blocks)
    assert found == [numbered(100)[99], numbered(100)[0]]


def test_random_access_reads_only_the_row_groups_it_needs(tmp_path):
    path = write(tmp_path / "a.parquet", numbered(100, 50), row_group=10)
    flip(path, 4, len(path.read_bytes()) // 2)  # the first half of the row groups
    assert read_records(source_of(path), "a.parquet", [95, 99]) == [
        numbered(100, 50)[95],
        numbered(100, 50)[99],
    ]
    assert read_records(source_of(path), "a.parquet", [5]) == [None]


# ---------------------------------------------------------------- what lies in a folder


def test_what_is_passed_over_and_why(tmp_path):
    for name in ("b.parquet", "sub/a.parquet", "_date=1/p.PARQUET", ".hidden.parquet", ".git/a.parquet"):
        write(tmp_path / name, ["t"])
    write(tmp_path / "_temporary/0/a.parquet", ["t"])
    for name in ("_SUCCESS", "b.parquet.crc", "README.md", "part.crc"):
        (tmp_path / name).write_text("something")
    (tmp_path / "empty.parquet").touch()
    (tmp_path / "link").symlink_to(tmp_path / "sub")
    inventory = sources.list_files(source_of(tmp_path))
    assert [file.path for file in inventory.files] == ["_date=1/p.PARQUET", "b.parquet", "sub/a.parquet"]
    assert {skipped.path: skipped.reason for skipped in inventory.skipped} == {
        ".git/a.parquet": "hidden",
        ".hidden.parquet": "hidden",
        "README.md": "not named .parquet or .parq or .pq",
        "_SUCCESS": "hidden, as its name begins with `_`",
        "_temporary/0/a.parquet": "hidden, as its name begins with `_`",
        "b.parquet.crc": "a checksum file",
        "empty.parquet": "empty, zero bytes",
        "link": "a link to a folder",
        "part.crc": "a checksum file",
    }
    assert inventory.bad == ()


def test_the_order_of_creation_does_not_matter(tmp_path):
    names = ["a.parquet", "a/b.parquet", "a/a.parquet", "a-b.parquet", "B.parquet", "z/y/x.parquet"]
    listings = []
    for seed in range(3):
        folder = tmp_path / str(seed)
        for name in random.Random(seed).sample(names, len(names)):
            os.utime(write(folder / name, numbered(10), row_group=3), ns=(1, 1))
        listings.append(sources.list_files(source_of(folder)))
    assert listings[0] == listings[1] == listings[2]
    assert [file.path for file in listings[0].files] == sorted(names)


def test_file_folder_and_glob_name_the_same_documents(tmp_path):
    write(tmp_path / "d" / "a.parquet", ["t"])
    write(tmp_path / "d" / "s" / "b.data", ["t"])
    (tmp_path / "d" / "empty.parquet").touch()

    def listed(path: str) -> list[str]:
        return [file.path for file in sources.list_files(Settings(path)).files]

    assert listed(f"{tmp_path}/d") == ["a.parquet"]
    assert listed(f"{tmp_path}/d/a.parquet") == ["a.parquet"]
    assert listed(f"{tmp_path}/d/*.parquet") == ["a.parquet"]
    assert listed(f"{tmp_path}/d/**/*.*") == ["a.parquet", "s/b.data"]
    assert listed(f"{tmp_path}/*/s/?.data") == ["d/s/b.data"]
    assert listed(f"{tmp_path}/d/s/b.data") == ["b.data"]


def test_a_file_named_as_such_is_never_hidden(tmp_path):
    path = write(tmp_path / "_part", ["t"])
    assert [file.path for file in sources.list_files(source_of(path)).files] == ["_part"]


def test_brackets_in_the_name_of_a_folder_or_file(tmp_path):
    folder = tmp_path / "out[1]"
    write(folder / "a[2].parquet", ["t"])
    for path in (folder, folder / "a[2].parquet", folder / "*.parquet"):
        assert [file.path for file in sources.list_files(source_of(path)).files] == ["a[2].parquet"]


def test_a_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.parquet", ["t"])
    for path in ("a.parquet", ".", "*.parquet", "./a.parquet"):
        assert [batch.text.to_pylist() for batch in read_all(Settings(path))] == [["t"]]


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("gone", "there is no file or folder {}/gone"),
        ("gone/*.parquet", "no file matches {}/gone/*.parquet"),
        ("bare", "source 'web': {}/bare holds no .parquet or .parq or .pq file"),
        (
            "wrong",
            "source 'web': {}/wrong holds nothing to read; passed over: "
            "a.json, not named .parquet or .parq or .pq and 1 more",
        ),
        (
            "wrong/b.parquet",
            "source 'web': {}/wrong/b.parquet holds nothing to read; passed over: b.parquet, empty, zero bytes",
        ),
        ("nosuch://bucket/a", "nosuch://bucket/a is not a URL that fsspec can open: Protocol not known: nosuch"),
    ],
)  # fmt: skip
def test_nothing_to_read(tmp_path, path, sentence):
    (tmp_path / "bare").mkdir()
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong" / "a.json").write_text("{}")
    (tmp_path / "wrong" / "b.parquet").touch()
    with pytest.raises(UserError) as error:
        sources.list_files(Settings(path if "://" in path else f"{tmp_path}/{path}"))
    assert str(error.value) == sentence.format(tmp_path)


def test_an_unknown_format(tmp_path):
    with pytest.raises(
        UserError, match=rf"^source 'web' has format 'csv'; known are {', '.join(sources.FORMATS)}$"
    ):
        sources.list_files(Settings(str(tmp_path), format="csv"))


def test_a_folder_that_cannot_be_listed_is_an_error(tmp_path):
    with pytest.raises(UserError, match=r"^/somewhere cannot be listed: Permission denied$"):
        storage._cannot_list(PermissionError(13, "Permission denied", "/somewhere"))


# ---------------------------------------------------------------- columns that do not fit


@pytest.mark.parametrize(
    ("columns", "mapping", "sentence"),
    [
        ({"body": ["t"], "url": ["u"]}, {}, "has no column 'text' for the text; its columns are body, url"),
        ({"text": ["t"]}, {"text": "body"}, "has no column 'body' for the text; its columns are text"),
        ({"text": [1]}, {}, "has int64 in column 'text', where text is wanted"),
        ({"text": [b"t"]}, {}, "has binary in column 'text', where text is wanted"),
        ({"text": [["t"]]}, {}, "has list<element: string> in column 'text', where text is wanted"),
        ({"text": ["t"], "score": ["2"]}, {}, "has string in column 'score', where the score, a number, is wanted"),
        ({"text": ["t"], "id": [b"i"]}, {}, "has binary in column 'id', where one plain value is wanted for id"),
        (
            {"text": ["t"], "meta": [{"u": 1}]},
            {"url": "meta"},
            "has struct<u: int64> in column 'meta', where one plain value is wanted for url",
        ),
    ],
)  # fmt: skip
def test_a_column_that_does_not_fit_is_named(tmp_path, columns, mapping, sentence):
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(UserError) as error:
        sources.list_files(source_of(tmp_path, columns=mapping))
    assert str(error.value) == f"source 'web': a.parquet {sentence}"


def test_one_file_that_does_not_fit_is_bad_and_costs_only_itself(tmp_path):
    for i in range(5):
        write(tmp_path / f"{i}.parquet", ["t"], score=pa.array([i], pa.int64() if i % 2 else pa.float32()))
    pq.write_table(pa.table({"body": ["t"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": ["t"], "score": ["2"]}), tmp_path / "b.parquet")
    inventory = sources.list_files(source_of(tmp_path))
    assert inventory.records == 5
    assert {bad.path: bad.reason for bad in inventory.bad} == {
        "a.parquet": "it has no column 'text' for the text; its columns are body",
        "b.parquet": "it has string in column 'score', where the score, a number, is wanted",
    }


def test_any_plain_column_may_be_carried(tmp_path):
    columns = {
        "n": pa.array([1, None], pa.uint8()),
        "big": pa.array([2**62 + 1, -1]),
        "half": pa.array([0.1, float("nan")], pa.float32()),
        "yes": [True, None],
        "day": pa.array([1, 2], pa.date32()),
        "at": pa.array([1, 2], pa.timestamp("us", "UTC")),
        "price": pa.array([1, 2]).cast(pa.decimal128(30, 2)),
        "level": pa.array([7, 8]).dictionary_encode(),
        "name": pa.array(["a", "b"]).dictionary_encode(),
    }
    write(tmp_path / "a.parquet", ["t", "u"], **columns)
    (batch,) = read_all(source_of(tmp_path, extra=dict.fromkeys(columns, "string")))
    table = pa.table(columns)
    for name in columns:
        assert str(batch.columns[name].to_pylist()) == str(table[name].to_pylist())
        assert not pa.types.is_dictionary(batch.columns[name].type)


def test_two_columns_of_one_name(tmp_path):
    table = pa.table([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"a.parquet has 2 columns named 'text'; its columns are text, text$"):
        sources.list_files(source_of(tmp_path))


def test_a_column_that_no_file_has_is_a_mistake_in_the_settings(tmp_path):
    write(tmp_path / "a.parquet", ["t"])
    with pytest.raises(
        UserError, match=r"^source 'web': no file has the column 'link', named for url; a.parquet has text$"
    ):
        sources.list_files(source_of(tmp_path, columns={"url": "link"}))
    write(tmp_path / "b.parquet", ["t"], link=["u"])
    assert len(sources.list_files(source_of(tmp_path, columns={"url": "link"})).files) == 2


# ---------------------------------------------------------------- damage


def flip(path: Path, start: int, stop: int) -> None:
    content = bytearray(path.read_bytes())
    content[start:stop] = bytes(byte ^ 0xFF for byte in content[start:stop])
    path.write_bytes(content)


def footer_of(path: Path) -> int:
    """Where the footer begins."""
    content = path.read_bytes()
    return len(content) - 8 - int.from_bytes(content[-8:-4], "little")


def test_no_rows(tmp_path):
    write(tmp_path / "a.parquet", [])
    inventory = sources.list_files(source_of(tmp_path))
    assert inventory.records == 0
    assert len(inventory.files) == 1
    assert sources.splits(inventory) == []
    assert read_records(source_of(tmp_path), "a.parquet", []) == []


@settings(max_examples=40, deadline=None)
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_bad_and_costs_only_itself(tmp_path_factory, share):
    folder = tmp_path_factory.mktemp("cut")
    path = write(folder / "a.parquet", numbered(50), row_group=10)
    write(folder / "b.parquet", ["whole"])
    size = int(share * path.stat().st_size)
    os.truncate(path, size)
    inventory = sources.list_files(source_of(folder))
    assert [file.path for file in inventory.files] == ["b.parquet"]
    if size == 0:
        assert inventory.skipped == (sources.Skipped("web", "a.parquet", "empty, zero bytes"),)
    elif size < 4:
        reason = "it is not Parquet: it neither begins nor ends as Parquet does"
        assert inventory.bad == (sources.Bad("web", "a.parquet", reason),)
    else:
        reason = f"it is truncated: it begins as Parquet does, but after {size:,} bytes there is no footer"
        assert inventory.bad == (sources.Bad("web", "a.parquet", reason),)


def test_other_bad_files(tmp_path):
    (tmp_path / "a.parquet").write_text("this is no Parquet file at all")
    (tmp_path / "b.parquet").write_bytes(b"PAR1" + b"\0" * 100 + b"\xff\xff\0\0PAR1")
    (tmp_path / "c.parquet").symlink_to(tmp_path / "gone")
    flip(path := write(tmp_path / "d.parquet", numbered(10)), footer_of(path), footer_of(path) + 1)
    write(tmp_path / "e.parquet", ["whole"])
    (tmp_path / "g\udcff.parquet").write_text("a name that is not UTF-8")
    inventory = sources.list_files(source_of(tmp_path))
    assert [file.path for file in inventory.files] == ["e.parquet"]
    reasons = {bad.path: bad.reason for bad in inventory.bad}
    assert reasons["a.parquet"] == "it is not Parquet: it neither begins nor ends as Parquet does"
    assert reasons["b.parquet"].startswith("its footer cannot be read (")
    assert reasons["c.parquet"] == "it cannot be opened: its storage gives no size for it"
    assert reasons["d.parquet"].startswith("its footer cannot be read (")
    assert reasons["g?.parquet"] == "its name holds characters that cannot be printed"
    json.dumps(inventory.identity())


@settings(max_examples=150, deadline=None)
@given(
    share=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), split_bytes=st.sampled_from([1, 10**6])
)
def test_a_flipped_bit_in_a_page_costs_at_most_its_row_group(tmp_path_factory, share, bit, split_bytes):
    texts = numbered(60, 20)
    path = write(tmp_path_factory.mktemp("flip") / "a.parquet", texts, row_group=20, url=numbered(60, 2))
    content = bytearray(path.read_bytes())
    position = 4 + int(share * (footer_of(path) - 4))
    content[position] ^= 1 << bit
    path.write_bytes(content)
    found = read_all(source_of(path), split_bytes)
    assert records_of(found) == list(range(60))
    lost = set()
    for batch in found:
        if batch.text is None:
            assert batch.error.startswith("row group ")
            assert not batch.valid.any()
            lost.update(record // 20 for record in batch.records.tolist())
        else:
            assert batch.text.to_pylist() == [texts[record] for record in batch.records]
    assert len(lost) <= 1


def test_a_damaged_text_column_gives_rows_that_say_so(tmp_path):
    path = write(tmp_path / "a.parquet", numbered(60, 20), row_group=20)
    group = pq.read_metadata(path).row_group(1).column(0)
    middle = (group.dictionary_page_offset + group.data_page_offset) // 2
    flip(path, middle, middle + 1)
    found = read_all(source_of(path))
    assert records_of(found) == list(range(60))
    lost = [batch for batch in found if batch.text is None]
    assert [batch.records.tolist() for batch in lost] == [list(range(20, 40))]
    assert lost[0].error.startswith("row group 1 cannot be decoded: ")
    assert lost[0].string(0) is None
    assert read_records(source_of(path), "a.parquet", [5, 25, 45]) == [
        numbered(60, 20)[5],
        None,
        numbered(60, 20)[45],
    ]


def test_a_damaged_column_beside_the_text_does_not_cost_the_text(tmp_path):
    path = write(tmp_path / "a.parquet", numbered(60), row_group=20, url=numbered(60))
    chunk = pq.read_metadata(path).row_group(1).column(1)
    middle = (chunk.dictionary_page_offset + chunk.data_page_offset) // 2
    flip(path, middle, middle + 1)
    found = read_all(source_of(path))
    assert texts_of(found) == numbered(60)
    assert [(batch.records[0], "url" in batch.columns, batch.error is None) for batch in found] == [
        (0, True, True),
        (20, False, False),
        (40, True, True),
    ]


@pytest.mark.parametrize("batch_bytes", [1000, 2**23])
def test_a_column_damaged_late_is_kept_up_to_there(tmp_path, batch_bytes):
    path, urls = tmp_path / "a.parquet", [f"http://example.org/{i}" for i in range(700)]
    pages = {
        "use_dictionary": False,
        "data_page_size": 500,
        "write_batch_size": 10,
        "write_page_checksum": True,
    }
    pq.write_table(pa.table({"text": numbered(700), "url": urls}), path, compression=None, **pages)
    damaged = path.read_bytes().rindex(b"http://example.org/600", 0, footer_of(path))
    flip(path, damaged, damaged + 1)
    found = read_all(source_of(path), batch_bytes=batch_bytes)
    assert texts_of(found) == numbered(700)
    assert records_of(found) == list(range(700))
    kept = [url for batch in found if "url" in batch.columns for url in batch.columns["url"].to_pylist()]
    assert kept == urls[:512]  # four decoding steps of 128 rows


def test_rows_before_the_damage_are_read(tmp_path):
    texts = [f"document {i} ".ljust(20_000, "x") + str(random.Random(i).random()) for i in range(400)]
    path = tmp_path / "a.parquet"
    pages = {"use_dictionary": False, "compression": None, "data_page_size": 2**18, "write_batch_size": 1}
    pq.write_table(pa.table({"text": texts}), path, write_page_checksum=True, **pages)
    flip(path, 6_000_000, 6_000_001)
    found = read_all(source_of(path))
    assert records_of(found) == list(range(400))
    assert texts_of(found) == texts[: found[-1].records[0]]
    assert 200 < found[-1].records[0] <= 300  # record 300 holds the byte
    assert found[-1].text is None


def test_a_failing_machine_is_not_a_damaged_file(tmp_path, monkeypatch):
    path = write(tmp_path / "a.parquet", ["t"])
    for error in (OSError(5, "Input/output error"), TimeoutError("no answer"), ConnectionError("reset")):
        with monkeypatch.context() as patch:

            def fail(*arguments: object, error: OSError = error, **options: object) -> None:
                raise error

            patch.setattr(pq.ParquetFile, "iter_batches", fail)
            with pytest.raises(type(error)):
                read_all(source_of(path))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda path: write(path, ["other"]), "has changed"),
        (lambda path: os.utime(path, ns=(1, 1)), "has changed"),
        (lambda path: path.unlink(), "is gone"),
    ],
)
def test_a_file_that_changes_during_a_run_stops_it(tmp_path, change, said):
    path = write(tmp_path / "a.parquet", ["t"])
    (split,) = sources.splits(sources.list_files(source_of(tmp_path)))
    change(path)
    sentence = f"^source 'web': a.parquet {said} since the run began; start it again$"
    with pytest.raises(UserError, match=sentence):
        list(sources.read(source_of(tmp_path), split))


# ---------------------------------------------------------------- splits and inventories as values


def test_keys(tmp_path):
    write(tmp_path / "a.parquet", numbered(30), row_group=10)
    write(tmp_path / "b.parquet", numbered(30), row_group=10)
    found = sources.splits(sources.list_files(source_of(tmp_path)), 1)
    keys = [split.key for split in found]
    assert len(set(keys)) == 6
    assert all(len(key) == 32 and int(key, 16) >= 0 for key in keys)
    again = sources.splits(sources.list_files(source_of(tmp_path)), 1)
    assert [split.key for split in again] == keys
    os.utime(tmp_path / "a.parquet", ns=(1, 1))
    changed = [split.key for split in sources.splits(sources.list_files(source_of(tmp_path)), 1)]
    assert set(changed[:3]).isdisjoint(keys)
    assert changed[3:] == keys[3:]
    other = sources.splits(sources.list_files(source_of(tmp_path, name="books")), 1)
    assert {split.key for split in other}.isdisjoint(keys)


def test_values_travel(tmp_path):
    write(tmp_path / "a.parquet", numbered(30), row_group=10)
    inventory = sources.list_files(source_of(tmp_path))
    (split,) = sources.splits(inventory)
    assert pickle.loads(pickle.dumps(inventory)) == inventory
    assert pickle.loads(pickle.dumps(split)) == split
    restored = json.loads(json.dumps(asdict(split)))
    assert sources.Split(**{**restored, "places": tuple(restored["places"])}) == split
    (described,) = json.loads(json.dumps(inventory.identity()))
    assert described["path"] == "a.parquet"
    assert [block["records"] for block in described["blocks"]] == [10, 10, 10]
    assert str(tmp_path) not in json.dumps(inventory.identity())


def test_inventories_add_up(tmp_path):
    write(tmp_path / "a" / "a.parquet", numbered(3))
    write(tmp_path / "b" / "a.parquet", numbered(4))
    both = sum((sources.list_files(source_of(tmp_path / n, name=n)) for n in "ab"), sources.Inventory())
    assert [(file.source, file.records) for file in both.files] == [("a", 3), ("b", 4)]
    assert both.records == 7
    assert both.n_bytes == sum(file.n_bytes for file in both.files) > 0


# ---------------------------------------------------------------- what a person is told


def notices_of(inventory: sources.Inventory, *formats: str, split_bytes: int = 2**25) -> list[str]:
    described = [Settings("", name=f"{one}-source", format=one) for one in formats]
    return sources.notices_of(described, inventory, split_bytes)


def test_one_line_says_what_is_passed_over(tmp_path):
    write(tmp_path / "a.parquet", ["t"])
    for name in ("_SUCCESS", *(f"{i:04d}.parquet.crc" for i in range(1000))):
        (tmp_path / name).write_text("x")
    inventory = sources.list_files(source_of(tmp_path, name="parquet-source"))
    assert notices_of(inventory, "parquet") == [
        "parquet-source: 1,001 files are passed over: "
        "0000.parquet.crc, 0001.parquet.crc, 0002.parquet.crc and 997 more "
        "(a checksum file); _SUCCESS (hidden, as its name begins with `_`)"
    ]
    assert (
        notices_of(sources.list_files(source_of(tmp_path / "a.parquet", name="parquet-source")), "parquet")
        == []
    )


def test_one_line_says_what_is_not_split(tmp_path):
    for name, row_group in (("a", 1), ("b", 100), ("c", 100)):
        write(tmp_path / f"{name}.parquet", [letters(10_000)] * 2 + numbered(98), row_group=row_group)
    inventory = sources.list_files(source_of(tmp_path, name="parquet-source"))
    assert notices_of(inventory, "parquet") == []
    (notice,) = notices_of(inventory, "parquet", split_bytes=2_000)
    assert notice.startswith(
        "parquet-source: 2 files are not split further: b.parquet (0 MiB), c.parquet (0 MiB); a row"
    )
    assert notice.endswith("; a row group is read by one worker alone; write smaller ones to split it")


# ---------------------------------------------------------------- other storage


@pytest.fixture
def memory(tmp_path):
    system = fsspec.filesystem("memory")
    for name, count in {"b.parquet": 30, "sub/a.parquet": 5}.items():
        system.pipe(
            f"/data/{name}", write(tmp_path / "x.parquet", numbered(count), row_group=10).read_bytes()
        )
    system.pipe("/data/_SUCCESS", b"")
    system.pipe("/data/c.parquet", b"PAR1 cut")
    yield system
    system.rm("/data", recursive=True)


@pytest.mark.parametrize(
    ("url", "paths"),
    [
        ("memory://data", ["b.parquet", "sub/a.parquet"]),
        ("memory://data/", ["b.parquet", "sub/a.parquet"]),
        ("memory://data/b.parquet", ["b.parquet"]),
        ("memory://data/*/*.parquet", ["sub/a.parquet"]),
    ],
)
def test_fsspec_urls(memory, url, paths):
    inventory = sources.list_files(Settings(url))
    assert [file.path for file in inventory.files] == paths
    found = read_all(Settings(url), 1)
    assert texts_of(found) == [text for path in paths for text in numbered(30 if path == "b.parquet" else 5)]
    assert read_records(Settings(url), paths[0], [3]) == [numbered(30)[3]]
    if url == "memory://data":
        assert [(bad.path, bad.reason[:15]) for bad in inventory.bad] == [("c.parquet", "it is truncated")]


def test_fsspec_finds_changes_and_absence(memory):
    source = Settings("memory://data/b.parquet")
    (split,) = sources.splits(sources.list_files(source))
    memory.pipe("/data/b.parquet", memory.cat("/data/b.parquet") + b"more")
    with pytest.raises(UserError, match=r"b.parquet has changed since the run began"):
        list(sources.read(source, split))
    memory.rm("/data/sub/a.parquet")
    for url in ("memory://data/sub", "memory://nothing/*.parquet"):
        with pytest.raises(UserError, match=f"^there is nothing at {url.replace('*', '[*]')}$"):
            sources.list_files(Settings(url))


def test_a_file_url_is_a_local_path(tmp_path):
    write(tmp_path / "a.parquet", ["t"])
    assert isinstance(storage.locate(f"file://{tmp_path}"), storage.Local)
    assert [batch.text.to_pylist() for batch in read_all(Settings(f"file://{tmp_path}"))] == [["t"]]


def test_a_protocol_whose_package_is_absent(monkeypatch):
    def absent(url: str) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec.core, "url_to_fs", absent)
    sentence = r"^s3://b needs `pip install shardmill\[remote\]`: Install s3fs to access S3$"
    with pytest.raises(UserError, match=sentence):
        sources.list_files(Settings("s3://b"))


def test_http(tmp_path):
    pytest.importorskip("aiohttp", reason="https needs the extra `remote`")
    write(tmp_path / "data" / "a.parquet", numbered(30), row_group=10)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        root = f"http://127.0.0.1:{server.server_port}/data"
        for url in (f"{root}/a.parquet", f"{root}/*.parquet"):
            assert [file.path for file in sources.list_files(Settings(url)).files] == ["a.parquet"]
            assert texts_of(read_all(Settings(url))) == numbered(30)
        with pytest.raises(UserError, match=r"^there is nothing at http"):
            sources.list_files(Settings(f"{root}/gone.parquet"))
        server.shutdown()


# ---------------------------------------------------------------- memory and real data

PEAK = """
import re, sys
from pathlib import Path
from types import SimpleNamespace
from jobs import sources

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

source = SimpleNamespace(name="web", format="parquet", path=sys.argv[1], columns={}, extra={})
splits = sources.splits(sources.list_files(source))
before = peak()
documents = sum(len(batch) for split in splits for batch in sources.read(source, split))
print(peak() - before, documents)
"""


def peak_of(path: Path) -> tuple[int, int]:
    """How many bytes reading a file adds to a fresh process at most, and how many documents it has."""
    if not Path("/proc/self/status").exists():
        pytest.skip("needs Linux to tell a process's peak")
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", PEAK, path], cwd=root, capture_output=True, text=True, check=True
    )
    added, documents = done.stdout.split()
    return int(added), int(documents)


def letters(count: int) -> str:
    """Text that compresses as text does, about."""
    return np.random.default_rng(1).integers(97, 113, count, dtype=np.uint8).tobytes().decode()


@pytest.mark.parametrize("size", [60_000_000, pytest.param(200_000_000, marks=pytest.mark.slow)])
def test_memory_follows_the_longest_document(tmp_path, size):
    path = write(tmp_path / "a.parquet", [*numbered(500), letters(size), *numbered(500)])
    added, documents = peak_of(path)
    assert documents == 1001
    # Compressed page, decompressed page, values as decoded, and what the allocator keeps.
    assert added < 5 * size


def test_memory_does_not_follow_the_row_group(tmp_path):
    text = letters(100_000)
    table = pa.table({"text": [f"{i}{text[i:]}" for i in range(2400)]})  # 240 MB in one row group
    pq.write_table(table, tmp_path / "a.parquet", write_batch_size=10)  # and in pages of 1 MB
    added, documents = peak_of(tmp_path / "a.parquet")
    assert documents == 2400
    assert added < 120_000_000


def test_real_web_text(shared):
    files = sorted((shared / "fineweb").glob("*.parquet"))
    naive = pa.concat_tables(pq.read_table(file, columns=["text", "id", "url", "score"]) for file in files)
    found = read_all(source_of(shared / "fineweb"), 200_000)
    assert texts_of(found) == naive["text"].to_pylist()
    for name in ("id", "url", "score"):
        assert [value for batch in found for value in batch.columns[name].to_pylist()] == naive[
            name
        ].to_pylist()
