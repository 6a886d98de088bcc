"""Folders of text files: a file is a document."""

import subprocess
import sys
from pathlib import Path

import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs import sources
from jobs.errors import UserError
from jobs.sources import text
from tests.conftest import ROOT
from tests.jobs.test_arrow_source import PEAK
from tests.jobs.test_sources import Settings, read_all, read_records


def source_of(path: Path, **options: object) -> Settings:
    return Settings(str(path), format="text", **options)  # type: ignore[arg-type]


def decoded(content: bytes) -> str | None:
    try:
        return content.removeprefix(b"\xef\xbb\xbf").decode()
    except UnicodeDecodeError:
        return None


@settings(deadline=None)
@given(content=st.binary(min_size=1, max_size=30) | st.text(min_size=1).map(str.encode), mark=st.booleans())
def test_a_file_is_its_text_without_the_mark(tmp_path_factory, content, mark):
    path = tmp_path_factory.mktemp("any") / "a.txt"
    content = b"\xef\xbb\xbf" * mark + content
    path.write_bytes(content)
    (batch,) = read_all(source_of(path), 1)
    assert batch.records.tolist() == [0]
    assert batch.string(0) == decoded(content)
    assert batch.valid.tolist() == [decoded(content) is not None]
    assert read_records(source_of(path), "a.txt", [0, 0]) == [decoded(content)] * 2


def test_a_folder(tmp_path):
    names = ["a.txt", "b/c.md", "b/d.RST", "e.text"]
    for name in (*names, ".hidden.txt", "_SUCCESS", "a.txt.crc", "photo.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{name}\r\n\nis one document\n")
    (tmp_path / "zero.txt").touch()
    inventory = sources.list_files(source_of(tmp_path))
    assert [(file.path, file.records, file.columns) for file in inventory.files] == [
        (name, 1, ("text",)) for name in names
    ]
    assert [file.n_bytes for file in inventory.files] == [file.size for file in inventory.files]
    assert len(inventory.skipped) == 5
    found = read_all(source_of(tmp_path))
    assert [batch.string(0) for batch in found] == [f"{name}\r\n\nis one document\n" for name in names]
    assert all(batch.columns == {} for batch in found)
    with pytest.raises(UserError, match=r"^source 'web': no file has the column 'link', named for url$"):
        sources.list_files(source_of(tmp_path, columns={"url": "link"}))


def test_utf_16_is_invalid(tmp_path):
    (tmp_path / "a.txt").write_bytes("text".encode("utf-16"))
    (batch,) = read_all(source_of(tmp_path))
    assert not batch.valid.any()


def test_only_a_mark_is_an_empty_document(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf")
    (batch,) = read_all(source_of(tmp_path))
    assert batch.text.to_pylist() == [""]


def test_a_file_too_long_for_a_document(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "DOCUMENT_BYTES", 1000)
    (tmp_path / "a.txt").write_bytes(b"x" * 1000)
    (tmp_path / "b.txt").write_bytes(b"x" * 1001)
    whole, too_long = read_all(source_of(tmp_path))
    assert whole.text.to_pylist() == ["x" * 1000]
    assert too_long.text is None
    assert too_long.error == "it is longer than 1,000 bytes, too long for one document"


def test_other_storage():
    system = fsspec.filesystem("memory")
    try:
        system.pipe({"/text/a.txt": b"\xef\xbb\xbfone", "/text/b.md": b"two"})
        source = Settings("memory://text", format="text")
        assert [file.n_bytes for file in sources.list_files(source).files] == [6, 3]
        assert [batch.string(0) for batch in read_all(source)] == ["one", "two"]
    finally:
        system.rm("/text", recursive=True)


def test_looking_at_a_file_does_not_open_it(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("text")
    path.chmod(0)
    (block,), _ = text.blocks(str(path), {"text": "text"})
    assert (block.records, block.n_bytes) == (1, 4)


def test_memory_of_a_document_of_200_mb_is_the_document(tmp_path):
    if not Path("/proc/self/status").exists():
        pytest.skip("needs Linux to tell a process's peak")
    size = 200_000_000
    with (tmp_path / "a.txt").open("wb") as file:
        file.writelines([b"a line of some length\n" * 1000] * (size // 22_000))
    script = PEAK.replace('"arrow"', '"text"')
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "a.txt"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    added, documents = map(int, done.stdout.split())
    assert documents == 1
    assert added < 1.3 * size
