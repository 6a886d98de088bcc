"""Arrow IPC against pyarrow's own readers, however it is written, cut and damaged."""

import itertools
import json
import random
import subprocess
import sys
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs import sources
from jobs.errors import UserError
from tests.conftest import ROOT
from tests.jobs.test_sources import Settings, letters, numbered, read_all, read_records, records_of, texts_of

WRITERS = {"stream": pa.ipc.new_stream, "file": pa.ipc.new_file}
TEXTS = st.lists(st.none() | st.text(st.characters(codec="utf-8"), max_size=40), max_size=60)


def source_of(path: Path, **options: object) -> Settings:
    return Settings(str(path), format="arrow", **options)  # type: ignore[arg-type]


def write(path: Path, table: pa.Table, rows: int = 1000, kind: str = "stream", **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with WRITERS[kind](path, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path


def table_of(texts: list[str | None], **columns: object) -> pa.Table:
    return pa.table({"text": pa.array(texts, pa.string()), **columns})


def ends_of(path: Path) -> list[int]:
    """Where each message of a file ends, as pyarrow reads it; the schema's first."""
    start = 8 if path.read_bytes().startswith(b"ARROW1") else 0
    ends = []
    with path.open("rb") as file:
        file.seek(start)
        for _ in pa.ipc.MessageReader.open_stream(pa.PythonFile(file)):
            ends.append(file.tell())  # noqa: PERF401 (each as it is read)
    return ends


@settings(max_examples=150, deadline=None)
@given(
    texts=TEXTS,
    kind=st.sampled_from(list(WRITERS)),
    compression=st.sampled_from([None, "zstd", "lz4"]),
    categories=st.sampled_from([None, ["a", "b"], ["only"]]),
    rows=st.integers(1, 25),
    split_bytes=st.integers(1, 4000),
    batch_bytes=st.integers(1, 300),
)
def test_any_cut_gives_what_the_file_holds(
    tmp_path_factory, texts, kind, compression, categories, rows, split_bytes, batch_bytes
):
    path = tmp_path_factory.mktemp("cut") / "a.arrow"
    url = [f"http://example.org/{i}" for i in range(len(texts))]
    table = table_of(texts, url=pa.array(url, pa.string()), score=pa.array(range(len(texts)), pa.int16()))
    if categories:
        values = (categories * len(texts))[: len(texts)]
        table = table.append_column("dump", pa.array(values, pa.string()).dictionary_encode())
    write(path, table, rows, kind, compression=compression)
    (file,) = sources.list_files(source_of(path)).files
    assert [block.records for block in file.blocks] == [len(batch) for batch in table.to_batches(rows)]
    found = read_all(source_of(path), split_bytes, batch_bytes=batch_bytes)
    assert texts_of(found) == texts
    assert records_of(found) == list(range(len(texts)))
    for ours, theirs in {"url": "url", "score": "score", **({"crawl": "dump"} if categories else {})}.items():
        assert [value for batch in found for value in batch.columns[ours].to_pylist()] == table[
            theirs
        ].to_pylist()
    for batch in found:
        size = sum(len((text or "").encode()) for text in batch.text.to_pylist())
        assert len(batch) == 1 or size <= batch_bytes
        assert batch.text.type == pa.large_string()


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize(
    "text",
    [
        pa.string(), pa.large_string(), pa.string_view(), pa.null(),
        pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int8(), pa.large_string()),
    ],
    ids=str,
)  # fmt: skip
def test_any_kind_of_text(tmp_path, kind, text):
    values = ["one", None, "", "ünïcode, and longer than a view holds in place", "one"]
    values = [None] * 5 if pa.types.is_null(text) else values
    inner = text.value_type if pa.types.is_dictionary(text) else text
    array = pa.array(values, inner).cast(text)
    write(tmp_path / "a.arrow", pa.table({"text": array, "id": array}), 2, kind)
    found = read_all(source_of(tmp_path))
    assert texts_of(found) == values
    assert [value for batch in found for value in batch.columns["id"].to_pylist()] == values
    assert {batch.columns["id"].type for batch in found} == {pa.large_string()}


@pytest.mark.parametrize("deltas", [False, True])
def test_dictionaries_that_change_on_the_way(tmp_path, deltas):
    path = tmp_path / "a.arrow"
    kind = pa.dictionary(pa.int8(), pa.string())
    parts = [["a", "b", "a"], ["a", "b", "c"], ["a", "b", "c", "d"]] if deltas else [["a"], ["x", "y"], ["z"]]
    dictionaries = [list(dict.fromkeys(part)) for part in parts]
    schema = pa.schema([("text", kind)])
    with pa.ipc.new_stream(
        path, schema, options=pa.ipc.IpcWriteOptions(emit_dictionary_deltas=deltas)
    ) as writer:
        for part, values in zip(parts, dictionaries, strict=True):
            indices = pa.array([values.index(value) for value in part], pa.int8())
            column = pa.DictionaryArray.from_arrays(indices, pa.array(values))
            writer.write_batch(pa.RecordBatch.from_arrays([column], schema=schema))
    whole = list(itertools.chain(*parts))
    for split_bytes in (1, 2**20):
        assert texts_of(read_all(source_of(path), split_bytes)) == whole
    assert read_records(source_of(path), "a.arrow", [2, 0]) == [whole[2], whole[0]]


def test_what_first_releases_wrote(tmp_path):
    path = write(
        tmp_path / "a.arrow",
        table_of(numbered(9)),
        4,
        use_legacy_format=True,
        metadata_version=pa.ipc.MetadataVersion.V4,
    )
    assert path.read_bytes()[:4] != b"\xff\xff\xff\xff"
    assert texts_of(read_all(source_of(path), 1)) == numbered(9)


def test_columns_that_are_not_mapped_may_be_anything(tmp_path):
    table = table_of(
        numbered(5),
        image=[{"bytes": b"x", "path": "p"}] * 5,
        tokens=[[1, 2], None, [], [3], [4]],
        label=pa.array(["a", "b", "a", "b", "a"]).dictionary_encode(),
        kept=[True, None, False, True, True],
        day=pa.array([1, 2, None, 3, 4], pa.date32()),
    )
    write(tmp_path / "a.arrow", table, 2)
    found = read_all(source_of(tmp_path, columns={"id": "label", "kept": "kept", "day": "day"}))
    assert texts_of(found) == numbered(5)
    for ours, theirs in (("id", "label"), ("kept", "kept"), ("day", "day")):
        assert [value for batch in found for value in batch.columns[ours].to_pylist()] == table[
            theirs
        ].to_pylist()
    assert set(found[0].columns) == {"id", "kept", "day"}


@pytest.mark.parametrize(
    ("columns", "mapping", "sentence"),
    [
        ({"body": ["t"]}, {}, "has no column 'text' for the text; its columns are body"),
        ({"text": [1]}, {}, "has int64 in column 'text', where text is wanted"),
        ({"text": ["t"], "score": ["2"]}, {}, "has string in column 'score', where the score, a number, is wanted"),
        ({"text": ["t"], "meta": [{"u": 1}]}, {"url": "meta"}, "has struct<u: int64> in column 'meta', where one"),
    ],
)  # fmt: skip
def test_a_column_that_does_not_fit(tmp_path, columns, mapping, sentence):
    write(tmp_path / "a.arrow", pa.table(columns))
    with pytest.raises(UserError, match=f"^source 'web': a.arrow {sentence}"):
        sources.list_files(source_of(tmp_path, columns=mapping))
    write(tmp_path / "b.arrow", table_of(["t"], meta=["u"]))
    inventory = sources.list_files(source_of(tmp_path, columns=mapping))
    assert [file.path for file in inventory.files] == ["b.arrow"]
    assert inventory.bad[0].reason.startswith(f"it {sentence}")


# ---------------------------------------------------------------- as Hugging Face's datasets lie on disk


def save_to_disk(folder: Path, texts: list[str | None], shards: int = 2) -> None:
    """The files that `datasets.Dataset.save_to_disk` writes, and a cache that `map` leaves beside them."""
    folder.mkdir(parents=True)
    names = [f"data-{i:05d}-of-{shards:05d}.arrow" for i in range(shards)]
    size = -(-len(texts) // shards)
    metadata = {
        "huggingface": json.dumps({"info": {"features": {"text": {"dtype": "string", "_type": "Value"}}}})
    }
    for i, name in enumerate(names):
        table = table_of(texts[i * size : (i + 1) * size]).replace_schema_metadata(metadata)
        write(folder / name, table, 3)
    write(folder / "cache-0123456789abcdef.arrow", pa.table({"indices": [1, 0]}))
    write(folder / "cache-fedcba9876543210.arrow", table_of(["a copy"]))
    (folder / "tmpk3j2").write_text("left behind")
    (folder / "state.json").write_text(
        json.dumps({"_data_files": [{"filename": name} for name in names]}, indent=2)
    )
    (folder / "dataset_info.json").write_text(
        json.dumps({"features": {"text": {"dtype": "string"}}}, indent=2)
    )


def test_a_dataset_on_disk(tmp_path):
    save_to_disk(tmp_path / "set", numbered(20), shards=3)
    inventory = sources.list_files(source_of(tmp_path / "set"))
    assert [file.records for file in inventory.files] == [7, 7, 6]
    assert [len(file.blocks) for file in inventory.files] == [3, 3, 2]
    assert texts_of(read_all(source_of(tmp_path / "set"), 1)) == numbered(20)
    reasons = {skipped.path: skipped.reason for skipped in inventory.skipped}
    assert reasons["cache-0123456789abcdef.arrow"] == reasons["cache-fedcba9876543210.arrow"]
    assert reasons["cache-fedcba9876543210.arrow"] == "a cache of the datasets library"
    assert set(reasons) >= {"state.json", "dataset_info.json", "tmpk3j2"}
    assert inventory.bad == ()


def test_a_dataset_of_splits_on_disk(tmp_path):
    for name, count in (("train", 20), ("test", 4)):
        save_to_disk(tmp_path / "set" / name, [f"{name} {i}" for i in range(count)])
    (tmp_path / "set" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    inventory = sources.list_files(source_of(tmp_path / "set"))
    assert sorted({file.path.split("/")[0] for file in inventory.files}) == ["test", "train"]
    assert inventory.records == 24
    notices = sources.notices_of([source_of(tmp_path / "set")], inventory)
    assert "web: all splits are read, test, train; name the folder of one to read it alone" in notices
    assert texts_of(read_all(source_of(tmp_path / "set" / "test"))) == [f"test {i}" for i in range(4)]
    alone = sources.list_files(source_of(tmp_path / "set" / "test"))
    assert not any("splits" in notice for notice in sources.notices_of([source_of(tmp_path)], alone))


def test_other_storage(tmp_path):
    system = fsspec.filesystem("memory")
    table = table_of(numbered(30), dump=pa.array(["a", "b", "c"] * 10).dictionary_encode())
    try:
        for kind in WRITERS:
            system.pipe(f"/arrow/{kind}.arrow", write(tmp_path / "x", table, 7, kind).read_bytes())
        found = read_all(Settings("memory://arrow", format="arrow"), 1)
    finally:
        system.rm("/arrow", recursive=True)
    assert texts_of(found) == numbered(30) * 2
    assert [value for batch in found for value in batch.columns["crawl"].to_pylist()] == table[
        "dump"
    ].to_pylist() * 2


# ---------------------------------------------------------------- damage


@settings(max_examples=250, deadline=None)
@given(
    share=st.floats(0, 1, exclude_max=True),
    kind=st.sampled_from(list(WRITERS)),
    compression=st.sampled_from([None, "zstd"]),
    dictionary=st.booleans(),
)
def test_a_file_cut_anywhere_keeps_all_whole_batches(tmp_path_factory, share, kind, compression, dictionary):
    folder = tmp_path_factory.mktemp("cut")
    texts = numbered(40)
    table = table_of(texts, **({"dump": pa.array(["a", "b"] * 20).dictionary_encode()} if dictionary else {}))
    path = write(folder / "a.arrow", table, 10, kind, compression=compression)
    write(folder / "b.arrow", table_of(["whole"]))
    ends = ends_of(path)[1 + dictionary :]
    content = path.read_bytes()
    cut = int(share * len(content))
    path.write_bytes(content[:cut])
    inventory = sources.list_files(source_of(folder))
    found = [batch for batch in read_all(source_of(folder), 1) if texts_of([batch]) != ["whole"]]
    whole = 10 * sum(end <= cut for end in ends)
    assert texts_of(found) == texts[:whole]
    assert records_of(found) == list(range(inventory.records - 1))
    lost = [batch for batch in found if batch.text is None]
    if cut == 0:
        assert inventory.skipped[0].path == "a.arrow"
    elif len(inventory.files) == 1:
        assert [bad.path for bad in inventory.bad] == ["a.arrow"]
        assert whole == 0
    elif cut >= ends[-1] + 8:  # only a footer is lost, or nothing
        assert not lost
    else:  # the loss is said, once: as many records as the cut batch has, or one where its header is cut
        (batch,) = lost
        assert batch.records.tolist() in ([whole], list(range(whole, whole + 10)))
        assert "truncated" in batch.error


def test_a_cut_batch_costs_its_rows(tmp_path):
    path = write(tmp_path / "a.arrow", table_of(numbered(40)), 10)
    path.write_bytes(path.read_bytes()[: ends_of(path)[3] - 10])
    first, second, cut = read_all(source_of(path), 1)
    assert texts_of([first, second]) == numbered(20)
    assert cut.records.tolist() == list(range(20, 30))
    assert cut.error.startswith("its record batch at byte ")
    assert cut.error.endswith("cannot be decoded: the file is truncated")


@settings(max_examples=400, deadline=None)
@given(
    share=st.floats(0, 1, exclude_max=True),
    bit=st.integers(0, 7),
    kind=st.sampled_from(list(WRITERS)),
    compression=st.sampled_from([None, "zstd"]),
    text=st.sampled_from(
        [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
    ),
)
def test_a_flipped_bit_ends_nothing(tmp_path_factory, share, bit, kind, compression, text):
    folder = tmp_path_factory.mktemp("flip")
    texts = numbered(40)
    column = pa.array(texts).cast(text)
    path = write(
        folder / "a.arrow", pa.table({"text": column, "id": column}), 10, kind, compression=compression
    )
    write(folder / "b.arrow", table_of(["whole"]))
    ends = ends_of(path)
    content = bytearray(path.read_bytes())
    position = int(share * len(content))
    content[position] ^= 1 << bit
    path.write_bytes(content)
    try:
        inventory = sources.list_files(source_of(folder))
    except UserError:
        return  # the name of the text column
    found = read_all(source_of(folder), 1)
    assert len(records_of(found)) == inventory.records
    if position >= ends[0] and not inventory.bad and not pa.types.is_dictionary(text):
        before = 10 * (sum(end <= position for end in ends) - 1)
        assert texts_of(found)[:before] == texts[:before]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"this is no Arrow file at all", "it is truncated: its message at byte 0 has no end"),
        (b"FEA1" + bytes(100), "it is Feather version 1, where version 2 is wanted"),
        (b"PAR1" + bytes(2**20), "it is truncated: its message at byte 0 has no end"),
        (bytes(100), "it is not Arrow: it does not begin with a schema"),
        (b"ARROW1\0\0", "it is truncated: it ends without the end mark of its format"),
        (b"\xff\xff\xff\xff\x40\0\0\0" + bytes(64), "it is not Arrow: it does not begin with a schema"),
        (b"\xff\xff\xff\xff\x40\0\0\0" + b"\xff" * 64, "its message at byte 0 is damaged"),
    ],
)  # fmt: skip
def test_files_that_are_no_arrow(tmp_path, content, reason):
    (tmp_path / "a.arrow").write_bytes(content)
    write(tmp_path / "b.arrow", table_of(["whole"]))
    inventory = sources.list_files(source_of(tmp_path))
    assert inventory.bad == (sources.Bad("web", "a.arrow", reason),)
    assert [file.path for file in inventory.files] == ["b.arrow"]


def test_a_stream_without_its_end_mark_says_so(tmp_path):
    path = write(tmp_path / "a.arrow", table_of(numbered(20)), 10)
    path.write_bytes(path.read_bytes()[:-8])
    first, second, lost = read_all(source_of(path))
    assert texts_of([first, second]) == numbered(20)
    assert lost.records.tolist() == [20]
    assert lost.error == "it is truncated: it ends without the end mark of its format; what follows is lost"


def test_no_rows(tmp_path):
    for kind in WRITERS:
        write(tmp_path / f"{kind}.arrow", table_of([]), kind=kind)
    inventory = sources.list_files(source_of(tmp_path))
    assert inventory.records == 0
    assert len(inventory.files) == 2
    assert read_all(source_of(tmp_path)) == []


@pytest.mark.parametrize("text", [pa.string(), pa.string_view()], ids=str)
def test_text_that_is_not_utf8_is_found(tmp_path, text):
    values = [b"good", b"caf\xe9 and more than a view holds", None, "é\0".encode(), b"", b"\xed\xa0\x80"]
    binary = pa.array(values, pa.binary_view() if pa.types.is_string_view(text) else pa.binary())
    array = binary.view(text)
    write(tmp_path / "a.arrow", pa.table({"text": array, "id": array}))
    (batch,) = read_all(source_of(tmp_path))
    assert batch.valid.tolist() == [True, False, True, True, True, False]
    assert batch.text.to_pylist() == ["good", "", None, "é\0", "", ""]
    assert batch.columns["id"].to_pylist() == ["good", None, None, "é\0", "", None]


def test_bad_input_by_kind(tmp_path):
    url = "http://example.org/" + "u" * 10_000
    texts = ["a\0b", "", "one", "one", "x" * 5_000_000, "long url"]
    table = table_of(texts, id=["1"] * 6, url=[None] * 5 + [url])
    write(tmp_path / "a.arrow", table, 2)
    found = read_all(source_of(tmp_path))
    assert texts_of(found) == texts
    assert records_of(found) == list(range(6))
    for name in ("id", "url"):
        assert [v for batch in found for v in batch.columns[name].to_pylist()] == table[name].to_pylist()


def test_random_access(tmp_path):
    path = write(tmp_path / "a.arrow", table_of(numbered(100)), 7)
    wanted = [99, 0, 42, 50, 0]
    assert read_records(source_of(path), "a.arrow", wanted) == [numbered(100)[i] for i in wanted]


# ---------------------------------------------------------------- memory

PEAK = """
import re, sys
from pathlib import Path
from types import SimpleNamespace
from jobs import sources

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

source = SimpleNamespace(name="web", format="arrow", path=sys.argv[1], columns={}, extra={})
before = peak()
splits = sources.splits(sources.list_files(source))
documents = sum(len(batch) for split in splits for batch in sources.read(source, split))
print(peak() - before, documents)
"""


def peak_of(path: Path) -> tuple[int, int]:
    if not Path("/proc/self/status").exists():
        pytest.skip("needs Linux to tell a process's peak")
    done = subprocess.run(
        [sys.executable, "-c", PEAK, path], cwd=ROOT, capture_output=True, text=True, check=True
    )
    added, documents = done.stdout.split()
    return int(added), int(documents)


@pytest.mark.parametrize("kind", WRITERS)
def test_memory_does_not_follow_the_record_batch(tmp_path, kind):
    text = letters(100_000)
    table = table_of([f"{i}{text[i:]}" for i in range(2400)])  # 240 MB in one record batch
    added, documents = peak_of(write(tmp_path / "a.arrow", table, 2400, kind))
    assert documents == 2400
    assert added < 80_000_000


def test_memory_follows_the_longest_document(tmp_path):
    size = 60_000_000
    path = write(tmp_path / "a.arrow", table_of([*numbered(500), letters(size), *numbered(500)]))
    added, documents = peak_of(path)
    assert documents == 1001
    assert added < 3 * size


def test_splits_in_any_order_give_the_same_documents(tmp_path):
    texts = [" ".join(random.Random(i).choices("abcdef", k=i % 50)) for i in range(500)]
    path = write(tmp_path / "a.arrow", table_of(texts), 11)
    for split_bytes in (1, 5000, 2**25):
        inventory = sources.list_files(source_of(path))
        splits = sources.splits(inventory, split_bytes)
        found = [batch for split in reversed(splits) for batch in sources.read(source_of(path), split)]
        by_record = dict(zip(records_of(found), texts_of(found), strict=True))
        assert [by_record[i] for i in range(500)] == texts
