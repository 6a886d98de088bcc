"""Every notebook runs from its first cell to its last, on runs with much and with little, and has no outputs in git."""

import ast
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

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


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "sample").symlink_to(finished)
    assert shown(path, monkeypatch)
