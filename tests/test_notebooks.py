"""Every notebook runs from its first cell to its last, on runs with much and with little, and has no outputs in git."""

import ast
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, settings

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def code(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def shown(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the cells end with, each drawn as Jupyter draws it; a warning is an error."""
    values: list[Any] = []

    def display(value: Any) -> None:
        if value is not None:
            values.append(value)
            for name in ("_repr_html_", "_repr_png_", "__repr__"):
                if hasattr(value, name):
                    assert getattr(value, name)()

    monkeypatch.setattr(sys, "displayhook", display)
    names: dict[str, object] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for cell in code(path):
            body = ast.Interactive(ast.parse("".join(cell["source"])).body)
            exec(compile(body, f"{path.name}:{cell['id']}", "single"), names)
    return values


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_git_holds_no_output(path: Path) -> None:
    cells = code(path)
    assert len(cells) >= 3
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_defines_nothing_of_its_own(path: Path) -> None:
    tree = ast.parse("\n".join("".join(cell["source"]) for cell in code(path)))
    assert not [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda)
    ]


@pytest.fixture(scope="module")
def lab(corpus: Path, cluster: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of the lab, which makes its run itself: on the tests' corpus and cluster, with its own settings."""
    from jobs import run

    folder, main = tmp_path_factory.mktemp("lab"), run.main
    (folder / "tiny_shakespeare.txt").write_text(
        "First Citizen: before we proceed any further, hear me speak. " * 50
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        small = [*settings(corpus, "quality.gopher_quality.min_stop_words=null"), "--scheduler", cluster]
        patched.setattr(run, "main", lambda arguments: main([*arguments, *small]))
        assert shown(ROOT / "notebooks" / "00_lab.ipynb", patched)
    return folder / "out" / "lab"


# The last one trains on the same shards, whatever made them.
OF_THE_LAB = [pytest.param(path, "lab", id=path.stem) for path in NOTEBOOKS[1:-1]]
OF_LITTLE = [
    pytest.param(path, "finished", id=f"{path.stem}-of-little", marks=pytest.mark.slow)
    for path in NOTEBOOKS[1:-1]
]


@pytest.mark.parametrize(
    ("path", "output"),
    [*OF_THE_LAB, *OF_LITTLE, pytest.param(NOTEBOOKS[-1], "finished", id=NOTEBOOKS[-1].stem)],
)
def test_it_runs(
    path: Path, output: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the lab's run, and on one without quality rules."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "sample").symlink_to(request.getfixturevalue(output))
    assert shown(path, monkeypatch)
