"""The `kernel` decorator's twin, for the small functions of a hot loop.

A call between kernels counts references to each array that it passes, which takes longer than hashing a
shingle. Functions compiled here become part of each kernel that calls them and count nothing; so they
must not allocate, and Python cannot call them.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])


def inlined(function: F) -> F:
    """Compile `function` with the options of `kernels.accelerate.kernel`, as part of its callers."""
    return numba.njit(
        nogil=True,
        cache=True,
        error_model="numpy",
        boundscheck=False,
        forceinline=True,
        _nrt=False,
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
    )(function)
