"""Machine operations that Numba has no name for, written in LLVM's language.

They assume a little-endian machine, which Numba's supported platforms are.
"""

import functools
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

LANES = 16
BLOCK = 64  # bytes that are looked at together

_U64 = ir.IntType(64)
_U128 = ir.IntType(128)
_BYTES = ir.VectorType(ir.IntType(8), BLOCK)


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
def count_bits(typing_context: Any, value: types.Integer) -> Any:
    """How many bits of a uint64 are set."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), emit


@intrinsic
def first_bit(typing_context: Any, value: types.Integer) -> Any:
    """Place of the lowest set bit of a uint64 that is not 0."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), emit


@intrinsic
def separators(typing_context: Any, array: types.Array, index: types.Integer) -> Any:
    """Which of the 64 bytes from ``array[index]`` on, a contiguous uint8 array, are NUL or ASCII's white space."""

    def condition(builder: Any, block: Any) -> Any:
        control = builder.sub(block, _every(ord("\t")))
        return builder.or_(_among(builder, block, b"\0 "), builder.icmp_unsigned("<", control, _every(5)))

    return types.uint64(array, types.intp), _where(condition)


@intrinsic
def phrase_letters(typing_context: Any, array: types.Array, index: types.Integer) -> Any:
    """Which of the 64 bytes from ``array[index]`` on are j, k, m or v in any case, ``[``, ``{`` or 0xE2."""

    def condition(builder: Any, block: Any) -> Any:
        return _among(builder, builder.or_(block, _every(0x20)), b"jkmv{\xe2")

    return types.uint64(array, types.intp), _where(condition)


@intrinsic
def sentence_marks(typing_context: Any, array: types.Array, index: types.Integer) -> Any:
    """Which of the 64 bytes from ``array[index]`` on are ``.``, ``!``, ``?`` or no ASCII."""

    def condition(builder: Any, block: Any) -> Any:
        above = builder.icmp_unsigned(">", block, _every(0x7F))
        return builder.or_(_among(builder, block, b".!?"), above)

    return types.uint64(array, types.intp), _where(condition)


@intrinsic
def multiply_fold(typing_context: Any, a: types.Integer, b: types.Integer) -> Any:
    """XOR of the two halves of the 128-bit product of two uint64."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        product = builder.mul(builder.zext(args[0], _U128), builder.zext(args[1], _U128))
        high = builder.lshr(product, ir.Constant(_U128, 64))
        return builder.xor(builder.trunc(product, _U64), builder.trunc(high, _U64))

    return types.uint64(types.uint64, types.uint64), emit


@intrinsic
def prefetch(typing_context: Any, array: types.Array, index: types.Integer) -> Any:
    """Ask for the memory of ``array[index]``, a contiguous array, without waiting for it."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        byte, i32 = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, i32, i32, i32])
        )
        place = builder.bitcast(builder.gep(data, [args[1]]), byte)
        read, into_all_caches, data_cache = 0, 3, 1
        builder.call(function, [place, *(ir.Constant(i32, n) for n in (read, into_all_caches, data_cache))])
        return context.get_dummy_value()

    return types.void(array, types.intp), emit


@intrinsic
def add_floats(
    typing_context: Any, target: types.Array, index: types.Integer, source: types.Array, byte: types.Integer
) -> Any:
    """Add `LANES` float32 that lie at a byte of a contiguous array to ``target[index]`` and those behind it."""
    return types.void(target, types.intp, source, types.intp), _add_floats(LANES)


@intrinsic
def add_float(
    typing_context: Any, target: types.Array, index: types.Integer, source: types.Array, byte: types.Integer
) -> Any:
    """Add the float32 that lies at a byte of a contiguous array to ``target[index]``."""
    return types.void(target, types.intp, source, types.intp), _add_floats(1)


def _add_floats(lanes: int) -> Any:
    pointer, size = ir.VectorType(ir.FloatType(), lanes).as_pointer(), 4

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target, source = (
            context.make_array(signature.args[i])(context, builder, args[i]).data for i in (0, 2)
        )
        to = builder.bitcast(builder.gep(target, [args[1]]), pointer)
        begin = builder.bitcast(source, ir.IntType(8).as_pointer())
        added = builder.load(builder.bitcast(builder.gep(begin, [args[3]]), pointer), align=1)
        builder.store(builder.fadd(builder.load(to, align=size), added), to, align=size)
        return context.get_dummy_value()

    return emit


def _where(condition: Callable[[Any, Any], Any]) -> Any:
    """For which bytes of a block a condition holds: bit i of a uint64 for byte i."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        place = builder.bitcast(builder.gep(data, [args[1]]), _BYTES.as_pointer())
        return builder.bitcast(condition(builder, builder.load(place, align=1)), _U64)

    return emit


def _among(builder: Any, block: Any, values: bytes) -> Any:
    equal = [builder.icmp_unsigned("==", block, _every(value)) for value in values]
    return functools.reduce(builder.or_, equal)


def _every(byte: int) -> Any:
    return ir.Constant(_BYTES, [byte] * BLOCK)


def _load(width: int) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        address = builder.bitcast(builder.gep(array.data, [args[1]]), ir.IntType(width).as_pointer())
        loaded = builder.load(address, align=1)
        return builder.zext(loaded, _U64) if width < 64 else loaded

    return emit
