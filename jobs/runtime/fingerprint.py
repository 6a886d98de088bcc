"""A job's fingerprint covers its settings, its inputs and its code, so that nothing stale is reused."""

import dis
import functools
import hashlib
import importlib.metadata
import json
from pathlib import Path
from types import CodeType
from typing import Any

ROOT = Path(__file__).parents[2]
ORCHESTRATION = ROOT / "jobs" / "run.py"  # says which jobs there are, not what any of them does


def fingerprint(module: str, **inputs: Any) -> str:
    """Hexadecimal digest of a job: its module's code and `inputs`, anything that JSON can hold."""
    return digest({"code": code_digest(module), **inputs})


def digest(described: Any) -> str:
    """Hexadecimal digest of anything that JSON can hold."""
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:32]


@functools.cache
def code_digest(module: str) -> str:
    """Digest of a module's source and of every module of ours that it imports, directly or not."""
    digest = hashlib.sha256()
    for path in sorted(_closure(module)):
        digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def versions(*distributions: str) -> dict[str, str]:
    """Versions of the installed distributions whose release can change a job's bytes."""
    return {name: importlib.metadata.version(name) for name in distributions}


def _closure(module: str) -> set[Path]:
    seen: set[Path] = set()
    waiting = [_source(module)]
    while waiting:
        path = waiting.pop()
        if path is None or path in seen or path == ORCHESTRATION:
            continue
        seen.add(path)
        waiting.extend(_source(name) for name in _imports(path))
    return seen


def _source(module: str) -> Path | None:
    base = ROOT.joinpath(*module.split("."))
    return next((p for p in (base.with_suffix(".py"), base / "__init__.py") if p.exists()), None)


def _imports(path: Path) -> set[str]:
    """Names of the modules of ours that a file imports, within functions too, or names in a string.

    From bytecode, since `ast.parse` can raise SystemError ("recursion depth mismatch") in a process with threads: seen
    under Python 3.11 while the dashboard of a run was read.
    """
    names: set[str] = set()
    waiting: list[Any] = [compile(path.read_text(encoding="utf-8"), path.name, "exec", dont_inherit=True)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, CodeType):
            names |= _imported(value)
            waiting.extend(value.co_consts)
        elif isinstance(value, str):
            names.add(value)  # a module that is loaded by its name, such as a reader
        elif isinstance(value, (tuple, frozenset)):
            waiting.extend(value)
    return {name for name in names if name.split(".")[0] in {"jobs", "kernels"}}


def _imported(code: CodeType) -> set[str]:
    names: set[str] = set()
    module = ""
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            module = instruction.argval
            names.add(module)
        elif instruction.opname == "IMPORT_FROM":
            names.add(f"{module}.{instruction.argval}")
    return names
