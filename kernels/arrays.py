"""What every public kernel does with the arrays it is given, before any compiled code sees them.

Compiled code checks no bounds, so positions are checked here. And Arrow's buffers are read-only while
NumPy's arrays are not, which Numba compiles for separately: all inputs are made read-only views, so
each kernel is compiled once.
"""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


def read_only(array: Any, dtype: DTypeLike, ndim: int = 1) -> NDArray[Any]:
    """A read-only, contiguous view of `array`, without a copy where it is contiguous already.

    Raises
    ------
    ValueError
        When the elements are not of `dtype`, or the dimensions not `ndim`.
    """
    array = np.asarray(array)
    if array.dtype != dtype or array.ndim != ndim:
        wanted = f"{np.dtype(dtype)} in {ndim} dimension(s)"
        raise ValueError(f"expected {wanted}, not {array.dtype} in {array.ndim}")
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def check_offsets(offsets: NDArray[np.int64], size: int) -> None:
    """Raise ValueError unless `offsets` are positions of consecutive pieces within `size` elements."""
    if not len(offsets) or offsets[0] < 0 or offsets[-1] > size or (np.diff(offsets) < 0).any():
        raise ValueError(f"offsets do not run upwards within 0 to {size}")


def check_slices(starts: NDArray[np.int64], ends: NDArray[np.int64], size: int) -> None:
    """Raise ValueError unless ``0 <= starts <= ends <= size`` throughout."""
    if len(starts) != len(ends):
        raise ValueError(f"{len(starts)} starts, but {len(ends)} ends")
    if len(starts) and (starts.min() < 0 or (ends < starts).any() or ends.max() > size):
        raise ValueError(f"a slice does not lie within 0 to {size}")
