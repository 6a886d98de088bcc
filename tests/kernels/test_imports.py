"""Kernels compute: nothing that they import knows Dask, Arrow, configuration or files."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALLOWED = {"numpy", "numba", "llvmlite", "kernels", *sys.stdlib_module_names}
KERNELS = sorted((ROOT / "kernels").rglob("*.py"))


def imported(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide what is imported"
            yield node.module


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_only_numpy_numba_and_the_standard_library(path):
    assert {name.split(".")[0] for name in imported(path)} <= ALLOWED


def test_loading_all_kernels_loads_nothing_else():
    modules = ", ".join(f"kernels.{path.stem}" for path in KERNELS if path.stem != "__init__")
    code = f"import sys, {modules}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"dask", "distributed", "pyarrow", "pandas", "pydantic", "jobs"} & set(run.stdout.split())
