"""One place that owns every Numba option.

Kernels are compiled without the GIL, so that a worker's heartbeat keeps beating, and never in
parallel: Dask owns the cores. The compiled code is cached in a folder named after the kernels' own
source, because Numba's cache looks at one file at a time and would keep a caller compiled against
yesterday's callee.
"""

import hashlib
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])
OPTIONS = {"nogil": True, "cache": True, "error_model": "numpy", "boundscheck": False}


def source_digest() -> str:
    """Hexadecimal digest of the kernels' source files and of the Numba version."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _cache_dir() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "shardmill" / f"numba-{source_digest()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return str(folder)
    except OSError:  # a read-only home: compile once per process tree instead
        return tempfile.mkdtemp(prefix="shardmill-numba-")


if not numba.config.CACHE_DIR:
    numba.config.CACHE_DIR = _cache_dir()


def compiled() -> int:
    """How many kernels the cache holds."""
    return len(_indices())


def seconds_since_compiled() -> float:
    """Since a kernel was last added to the cache; 0 where it is empty, as while the first is compiled."""
    now = time.time()
    return now - max((path.stat().st_mtime for path in _indices()), default=now)


def _indices() -> list[Path]:
    return list(Path(numba.config.CACHE_DIR).rglob("*.nbi"))


def kernel(function: F) -> F:
    """Compile `function` with the options that every kernel shares."""
    return numba.njit(**OPTIONS)(function)


def inlined(function: F) -> F:
    """Compile `function` as a part of each kernel that calls it: for the small functions of a hot loop.

    A call between kernels counts references to each array it passes, which costs more than hashing a shingle;
    a function that is made part of its caller passes nothing.
    """
    return numba.njit(
        **OPTIONS, forceinline=True, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True
    )(function)
