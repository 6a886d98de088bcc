"""Every notebook runs from its first cell to its last on a finished run, and is kept in git without outputs."""

import json
from pathlib import Path

import matplotlib
import pytest

from tests.conftest import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_and_holds_no_output(
    path: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "sample").symlink_to(finished)
    matplotlib.use("agg")
    code = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in code)
    names: dict[str, object] = {}
    for cell in code:
        exec(compile("".join(cell["source"]), f"{path.name}:{cell['id']}", "exec"), names)
    assert len(code) >= 3
