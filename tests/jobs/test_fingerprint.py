"""A job's fingerprint covers all code that can change what it makes, and not what only says which jobs there are."""

import ast
from pathlib import Path

from jobs.runtime import fingerprint


def closure(module: str) -> set[str]:
    return {path.relative_to(fingerprint.ROOT).as_posix() for path in fingerprint._closure(module)}


def test_the_closure_holds_readers_that_are_loaded_by_name() -> None:
    files = closure("jobs.pipeline.annotate")
    assert {
        "jobs/sources/parquet.py",
        "jobs/sources/jsonl.py",
        "jobs/tokens/encoder.py",
        "kernels/words.py",
    } <= files
    assert not {"jobs/run.py", "jobs/report.py", "jobs/pipeline/order.py"} & files
    assert "jobs/scurve.py" not in closure("jobs.tokenizer")


def test_settings_and_code_change_it() -> None:
    one = fingerprint.fingerprint("jobs.scurve", a=1)
    assert one == fingerprint.fingerprint("jobs.scurve", a=1)
    assert one != fingerprint.fingerprint("jobs.scurve", a=2)
    assert one != fingerprint.fingerprint("jobs.report", a=1)


def written_imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in names if name.split(".")[0] in {"jobs", "kernels"}}


def test_bytecode_names_what_the_text_imports() -> None:
    for path in (fingerprint.ROOT / "jobs").rglob("*.py"):
        assert written_imports(path) <= fingerprint._imports(path)
