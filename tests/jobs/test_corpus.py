import itertools
import re
import site
import sys
from collections import defaultdict
from importlib import metadata
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs import corpus
from jobs.errors import UserError
from jobs.runtime.checkpoint import sha256

LONG = " ".join(f"word{i}" for i in range(corpus.STANDALONE))
SHORT = "This says what it does in ten words, no more."


def install(
    folder: Path, name: str, files: dict[str, bytes], version: str = "1.0", headers: str = "", **more: str
) -> metadata.Distribution:
    """Lay out a distribution as pip does, its RECORD in the order in which files are given."""
    info = f"{name}-{version}.dist-info"
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{headers}\n"
    everything = {**files, f"{info}/METADATA": (head + more.pop("readme", "")).encode()}
    everything |= {f"{info}/{file}": text.encode() for file, text in more.items()}
    for path, content in everything.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    (folder / info / "RECORD").write_text("".join(f"{path},,\n" for path in everything))
    return metadata.Distribution.at(folder / info)


def pages(distribution: metadata.Distribution) -> dict[str, str]:
    return {document.url.partition("#")[2]: document.text for document in corpus.documents(distribution)}


MODULE = f'''
"""{SHORT}"""
import sys

def short(a, /, b, *args, key=1, **options):
    """Short one."""

if sys:
    async def long(x):
        """{LONG}"""

        def within():
            """{LONG} hidden within a function"""

class Small:
    """Small class."""

    def method(self):
        "Small method."

class Large:
    """Large class."""

    def method(self):
        """{LONG} and more"""

    def bare(self): ...
'''.encode()


def test_long_docstrings_stand_alone_and_short_ones_stay_with_what_holds_them(tmp_path):
    found = pages(install(tmp_path, "sample", {"sample/core.py": MODULE}))
    assert found == {
        "sample.core": f"sample.core\n\n{SHORT}\n\nshort(a, b, *args, key, **options)\n\nShort one."
        "\n\nclass Small\n\nSmall class.\n\nSmall.method(self)\n\nSmall method.\n\nclass Large\n\nLarge class.",
        "long": f"long(x)\n\n{LONG}",
        "Large.method": f"Large.method(self)\n\n{LONG} and more",
    }


def test_what_identifies_a_document(tmp_path):
    distribution = install(tmp_path, "Some.Package", {"some/__init__.py": MODULE}, version="2.1")
    first, second, _ = corpus.documents(distribution)
    assert first.id == "<urn:pydoc:some-package/some/__init__.py:some>"
    assert second == corpus.Document(
        text=f"long(x)\n\n{LONG}",
        id="<urn:pydoc:some-package/some/__init__.py:long>",
        dump="Some.Package-2.1",
        url="pydoc://some-package/some/__init__.py#long",
        file_path="some/__init__.py",
        language="en",
    )


def test_two_definitions_of_one_name_have_two_ids(tmp_path):
    source = (
        f'if 1:\n    def f():\n        """{LONG}"""\nelse:\n    def f():\n        """{LONG}"""\n'.encode()
    )
    found = [document.id for document in corpus.documents(install(tmp_path, "two", {"two.py": source}))]
    assert found == ["<urn:pydoc:two/two.py:f>", "<urn:pydoc:two/two.py:f~2>"]


def test_docstrings_that_a_call_attaches(tmp_path):
    source = f'''
add_newdoc("numpy._core", "flatiter", ("base",
    """
    {LONG}
    """))
add_docstr(torch.abs, r"""abs(input)
""" + r"""{LONG}
""".format(**common))
print("""too short""")
'''.encode()
    found = pages(install(tmp_path, "attached", {"attached.py": source}))
    assert found == {"numpy._core.flatiter.base": LONG, "torch.abs": f"abs(input)\n{LONG}"}


def test_cython_docstrings_without_a_parser(tmp_path):
    source = f'''
cdef class Table:
    """
    {LONG}
    """
    def column(self, i):
        """{SHORT}"""

    cpdef int rows(self):
        \'\'\'{LONG}\'\'\'

def read():
    """{LONG}"""
'''.encode()
    found = pages(install(tmp_path, "cy", {"cy/lib.pyx": source}))
    assert found == {
        "cy.lib": f"cy.lib\n\nTable.column\n\n{SHORT}",
        "Table": f"Table\n\n{LONG}",
        "Table.rows": f"Table.rows\n\n{LONG}",
        "read": f"read\n\n{LONG}",
    }


@pytest.mark.parametrize(
    ("path", "taken"),
    [
        ("p/README.md", True),
        ("p/guide.rst", True),
        ("p/LICENSE", True),
        ("p-1.0.dist-info/licenses/AUTHORS.txt", True),
        ("p/NUMPY_LICENSE.txt", True),
        ("p/CMakeLists.txt", False),
        ("p/top_level.txt", False),
        ("p/data.json", False),
        ("p/tests/README.md", False),
        ("p/test_core.py", False),
        ("p/.hidden/notes.md", False),
        ("../../bin/license", False),
    ],
)
def test_which_text_files_are_documentation(path, taken):
    assert (corpus._reader(path) is not None) == taken


def test_the_readme_in_the_metadata(tmp_path):
    assert pages(install(tmp_path, "p", {}, readme=f"# Title\n\n{LONG}\n")) == {
        "description": f"# Title\n\n{LONG}"
    }


def test_a_file_that_cannot_be_used_costs_that_file(tmp_path):
    good = f'"""{LONG}"""'.encode()
    files = {
        "p/a_syntax.py": b'"""' + LONG.encode() + b'"""\ndef f(:',
        "p/b_nul.py": good + b"\0",
        "p/c_latin.py": '"""é'.encode("latin-1") + good,
        "p/d_deep.py": good + b"\nx = " + b"(" * 100_000,
        "p/e_gone.py": good,
        "p/f_latin.md": "é ".encode("latin-1") * 50,
        "p/g_good.py": good,
    }
    distribution = install(tmp_path, "p", files)
    (tmp_path / "p/e_gone.py").unlink()
    assert pages(distribution) == {"p.g_good": f"p.g_good\n\n{LONG}"}


def test_half_a_surrogate_pair_becomes_a_question_mark(tmp_path):
    found = pages(install(tmp_path, "p", {"p.py": f'"""\\ud800 {LONG}"""'.encode()}))
    assert found == {"p": f"p\n\n? {LONG}"}


def test_code_with_hardly_any_documentation_is_not_parsed(tmp_path):
    source = f'"""{LONG}"""\n'.encode() + b"x = 1\n" * 1000
    assert pages(install(tmp_path, "p", {"p.py": source})) == {}


# ---------------------------------------------------------------- dependencies


def test_dependencies_follow_extras_and_markers_and_leave_out_what_is_editable(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    needs = [
        "zz-direct",
        "zz-with[fast]",
        'zz-other ; python_version < "3"',
        'zz-tests ; extra == "test"',
        "zz-editable",
        "zz-absent",
    ]
    install(tmp_path, "zz_root", {}, headers="".join(f"Requires-Dist: {need}\n" for need in needs))
    install(tmp_path, "zz_direct", {}, headers="Requires-Dist: zz-root\n")
    install(
        tmp_path, "zz_with", {}, headers='Provides-Extra: fast\nRequires-Dist: zz-speed ; extra == "fast"\n'
    )
    for name in ("zz_speed", "zz_other", "zz_tests"):
        install(tmp_path, name, {})
    install(tmp_path, "zz_editable", {}, **{"direct_url.json": '{"dir_info": {"editable": true}}'})
    assert list(corpus.dependencies("zz-root")) == ["zz-direct", "zz-speed", "zz-with"]


def test_the_projects_own_dependencies_without_development_tools():
    found = corpus.dependencies()
    assert {"numpy", "pandas", "dask", "distributed", "torch", "pyarrow", "numba"} <= set(found)
    assert not {"shardmill", "pytest", "mypy", "ruff", "hypothesis"} & set(found)


def test_not_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "dependencies", dict)
    with pytest.raises(UserError, match=r"^shardmill is not installed, so .*; run `pip install -e \.`$"):
        corpus.build(tmp_path)


# ---------------------------------------------------------------- the files


def numbered(count: int) -> dict[str, bytes]:
    """Modules with ten documents each."""
    function = 'def f{}():\n    """{} of {} ' + LONG + '"""\n'
    return {
        f"p/m{i:03d}.py": "".join(function.format(j, j, i) for j in range(10)).encode() for i in range(count)
    }


@pytest.fixture
def small(tmp_path, monkeypatch):
    """The corpus is one package of 250 documents, in files of 100 and row groups of 30."""
    monkeypatch.setattr(corpus, "FILE_DOCUMENTS", 100)
    monkeypatch.setattr(corpus, "ROW_GROUP", 30)
    distribution = install(tmp_path / "site", "p", numbered(25))
    monkeypatch.setattr(corpus, "dependencies", lambda: {"p": distribution})


def test_files_and_row_groups(small, tmp_path):
    told = []
    figures = corpus.build(tmp_path / "out", told=lambda *counts: told.append(counts))
    files = sorted((tmp_path / "out").iterdir())
    groups = [
        [pq.read_metadata(f).row_group(i).num_rows for i in range(pq.read_metadata(f).num_row_groups)]
        for f in files
    ]
    assert [file.name for file in files] == [f"packages-0000{i}.parquet" for i in range(3)]
    assert groups == [[30, 30, 30, 10], [30, 30, 30, 10], [30, 20]]
    table = pa.concat_tables(pq.read_table(file) for file in files)
    assert table.schema == corpus.SCHEMA
    texts = table["text"].to_pylist()
    assert [text.split("\n\n")[1][:9] for text in texts[:11]] == [f"{i} of 0 wo" for i in range(10)] + [
        "0 of 1 wo"
    ]
    assert table["score"].to_pylist() == [corpus.score(text) for text in texts]
    n_bytes = sum(len(text.encode()) for text in texts)
    assert figures == {"documents": 250, "n_bytes": n_bytes, "files": 3, "packages": {"p": "1.0"}}
    assert told == [(250, n_bytes)]


def test_same_bytes_wherever_packages_are_and_however_their_files_are_listed(tmp_path, monkeypatch):
    files = numbered(30)
    shuffled = dict(sorted(files.items(), key=lambda item: item[0][::-1]))
    digests = []
    for place, contents in {"a": files, "elsewhere/deeper": shuffled}.items():
        distribution = install(tmp_path / place, "p", contents, readme=LONG)
        monkeypatch.setattr(corpus, "dependencies", lambda found=distribution: {"p": found})
        corpus.build(tmp_path / "out" / place)
        digests.append([sha256(file) for file in sorted((tmp_path / "out" / place).glob("*.parquet"))])
    assert digests[0] == digests[1]


def test_the_command_writes_once(small, tmp_path, capsys):
    folder = tmp_path / "out"
    assert corpus.main([str(folder)]) == 0
    said = capsys.readouterr().out
    assert re.fullmatch(r".*out: 250 documents, 0\.1 MB of text from 1 packages in 3 files\n", said)
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert corpus.main([str(folder)]) == 0
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_another_release_is_written_anew(small, tmp_path, monkeypatch):
    folder = tmp_path / "out"
    corpus.main([str(folder)])
    newer = install(tmp_path / "newer", "p", numbered(3), version="1.1")
    monkeypatch.setattr(corpus, "dependencies", lambda: {"p": newer})
    assert corpus.main([str(folder)]) == 0
    (file,) = folder.glob("*.parquet")
    assert set(pq.read_table(file)["dump"].to_pylist()) == {"p-1.1"}


def test_a_stopped_build_leaves_no_half_file_and_is_finished_later(small, tmp_path, monkeypatch):
    folder = tmp_path / "out"
    with monkeypatch.context() as patch:
        calls = itertools.count()
        whole = corpus._table
        patch.setattr(corpus, "_table", lambda part: 1 / 0 if next(calls) == 1 else whole(part))
        with pytest.raises(ZeroDivisionError):
            corpus.main([str(folder)])
    assert [path.name for path in folder.iterdir()] == ["packages-00000.parquet"]
    assert corpus.main([str(folder)]) == 0
    assert len(list(folder.glob("*.parquet"))) == 3


def test_a_folder_of_someone_elses_is_refused(small, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("mine")
    assert corpus.main([str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.endswith(
        "holds 'thesis.tex', which this command did not write; give a new folder\n"
    )
    assert (tmp_path / "out" / "thesis.tex").read_text() == "mine"


def test_score():
    assert corpus.score("") == 0
    assert corpus.score(LONG) == round(60 / 300 + 60 / 150, 4)
    rich = "\n".join(
        [f"Sentence {i} says what {i} is." for i in range(80)]
        + ["Parameters", "Returns", "Notes", "Examples"]
    )
    vocabulary = len(set(rich.lower().split())) / 150
    assert corpus.score(rich) == round(3 + vocabulary, 4)
    assert corpus.score(rich + "\n>>> f()" * 5) == round(4 + vocabulary + 2 / 150, 4)


# ---------------------------------------------------------------- the real thing


@pytest.fixture(scope="module")
def dask_and_pandas(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    corpus.build(folder, ["dask", "pandas"])
    return pa.concat_tables(pq.read_table(file) for file in sorted(folder.glob("*.parquet")))


def shingles(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[i : i + 5]) for i in range(max(1, len(words) - 4))}


def test_dask_repeats_pandas(dask_and_pandas):
    by_name = defaultdict(lambda: ([], []))
    for row in dask_and_pandas.select(["id", "dump", "text"]).to_pylist():
        name = row["id"].rpartition(".")[2]
        by_name[name][row["dump"].startswith("dask")].append(shingles(row["text"]))
    similar = [
        max((len(copy & original) / len(copy | original) for original in pandas), default=0)
        for pandas, dask in by_name.values()
        for copy in dask
    ]
    assert sum(similarity > 0.5 for similarity in similar) > 50


def test_real_documents_are_clean(dask_and_pandas):
    assert len(set(dask_and_pandas["id"].to_pylist())) == len(dask_and_pandas) > 2_000
    assert set(dask_and_pandas["int_score"].to_pylist()) == {0, 1, 2, 3, 4, 5}
    assert all(len(text.split()) >= corpus.SHORTEST for text in dask_and_pandas["text"].to_pylist())
    machine = {*site.getsitepackages(), sys.prefix, str(Path.cwd())}
    for column in ("text", "id", "url", "file_path"):
        values = "\n".join(dask_and_pandas[column].to_pylist())
        assert not any(place in values for place in machine)


@pytest.mark.slow
def test_the_whole_corpus(tmp_path):
    figures = corpus.build(tmp_path)
    assert figures["documents"] > 15_000
    assert 20e6 < figures["n_bytes"] < 60e6
    assert figures["files"] >= 2
