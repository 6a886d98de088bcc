"""Four machine operations that Numba has no name for, written in LLVM's language.

They assume a little-endian machine, which Numba's supported platforms are.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_U64 = ir.IntType(64)
_U128 = ir.IntType(128)


@intrinsic
def load32(typing_context: Any, array: types.Array, index: types.Integer) -> Any:
    """Read the four bytes at ``array[index]``, a contiguous uint8 array, at any alignment, as uint64."""
    return types.uint64(array, types.intp), _load(32)


@intrinsic
def load64(typing_context: Any, array: types.Array, index: types.Integer) -> Any:
    """Read the eight bytes at ``array[index]``, a contiguous uint8 array, at any alignment, as uint64."""
    return types.uint64(array, types.intp), _load(64)


@intrinsic
def byte_swap(typing_context: Any, value: types.Integer) -> Any:
    """Reverse the eight bytes of a uint64."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bswap(args[0])

    return types.uint64(types.uint64), emit


@intrinsic
def multiply_fold(typing_context: Any, a: types.Integer, b: types.Integer) -> Any:
    """XOR of the two halves of the 128-bit product of two uint64."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        product = builder.mul(builder.zext(args[0], _U128), builder.zext(args[1], _U128))
        high = builder.lshr(product, ir.Constant(_U128, 64))
        return builder.xor(builder.trunc(product, _U64), builder.trunc(high, _U64))

    return types.uint64(types.uint64, types.uint64), emit


def _load(width: int) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        address = builder.bitcast(builder.gep(array.data, [args[1]]), ir.IntType(width).as_pointer())
        loaded = builder.load(address, align=1)
        return builder.zext(loaded, _U64) if width < 64 else loaded

    return emit
