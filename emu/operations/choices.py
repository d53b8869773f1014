"""Operations that choose between two numbers, element by element, and those that join or surround arrays.

A choice between numbers of one format rounds nothing: so each operand is first written in the format of the result, if
it has another one, and then one of them is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from emu import engine
from emu.backends.arrays import namespace, negated
from emu.errors import ShapeError
from emu.formats import Value
from emu.operations.asked import Asked, Options, Shape, as_first, as_first_on_host, broadcast
from emu.operations.operands import FP32, FP64, number, rounded
from emu.operations.row import MOVES, MULTIPLIES, TABLE_AND_LINE, DoneBy, Role, Row, one_array
from emu.operations.selections import selected


def real(role: Role, x: Value) -> Any:
    """Return the numbers of a value as floats; those of wide integers are rounded to float64."""
    if not getattr(x.format, "carries_raws", False):
        return x.array
    return engine.quantize(x.array, FP64, x_format=x.format, backend=role.backend)


def _written(role: Role, x: float, like: Value) -> Any:
    """Return a constant as a carrier of the role's format, rounded to float32 first; nothing is counted."""
    # a constant is no result of the layer: the unit has neither its register nor its flags here
    written = role.unit().replace(register=None, flags=None).quantize(np.float32(x))
    return namespace(like.array).asarray(written.array)


def larger_of(role: Role, x: Any, y: Any) -> tuple[Any, Any]:
    """Return the larger of two carriers, as pooling chooses it, and whether it is the second: of equals it is not.

    Kernels compare, not the array's own library: CuPy takes subnormals for 0.

    Raises:
        ShapeError: the carriers do not broadcast together.
    """
    xp = namespace(x)
    try:
        shape = np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        raise ShapeError(
            f"operands of which the larger or smaller is chosen must broadcast together, got shapes {x.shape} and "
            f"{y.shape}; give axes of size 1 where they differ"
        ) from None
    # (..., 2): windows of two numbers, of which pooling takes the first of equals
    pairs = xp.stack([xp.broadcast_to(x, shape), xp.broadcast_to(y, shape)], axis=-1)
    best, place = engine.max_pool(pairs, backend=role.backend)
    return best, place == 1


def smaller_of(role: Role, x: Any, y: Any) -> tuple[Any, Any]:
    """Return the smaller of two carriers, and whether it is the second: of equals it is not."""
    # negation is exact, and it turns the order round: the smaller is the larger of the negated ones
    best, is_second = larger_of(role, negated(x), negated(y))
    return negated(best), is_second


def _is_above(role: Role, x: Any) -> Any:
    """Return whether numbers are above 0; NaN is."""
    # as the second of a window: a number equal to 0, of either sign, or below it leaves the first, +0
    return larger_of(role, namespace(x).zeros((), x.dtype), x)[1]


def is_below(role: Role, x: Any) -> Any:
    """Return whether numbers are below 0; NaN is, too, as it is above."""
    return _is_above(role, negated(x))


def _clip(role: Role, x: Value, *, least: float, most: float) -> Value:
    """The nearest number in least..most, whose ends are written in the result's format; and whether it is the operand.

    NaN stays.
    """
    # written first: bounds are compared with what the layer stores
    y = selected(role, x)
    array, moved = y.array, namespace(y.array).zeros(y.shape, bool)
    if least > -math.inf:
        array, below = larger_of(role, array, _written(role, least, y))
        moved = moved | below
    if most < math.inf:
        array, above = smaller_of(role, array, _written(role, most, y))
        moved = moved | above
    # `~moved` is what the backward pass keeps gradients by
    return Value((array, ~moved), y.format)


def _clip_float64(xp: Any, x: Any, *, least: float, most: float) -> Any:
    return xp.minimum(xp.maximum(x, least), most), (x >= least) & (x <= most)


def _larger(role: Role, a: Value, b: Value) -> Value:
    """The larger of two numbers, the first of equals, and whether it is the first; NaN if one of them is."""
    return _chosen(role, a, b, larger_of)


def _smaller(role: Role, a: Value, b: Value) -> Value:
    return _chosen(role, a, b, smaller_of)


def _chosen(role: Role, a: Value, b: Value, choose: Callable[[Role, Any, Any], tuple[Any, Any]]) -> Value:
    x, y = selected(role, a), selected(role, b)
    best, is_second = choose(role, x.array, y.array)
    return Value((best, ~is_second), x.format)


def _larger_float64(xp: Any, a: Any, b: Any) -> Any:
    return xp.maximum(a, b), a >= b


def _smaller_float64(xp: Any, a: Any, b: Any) -> Any:
    return xp.minimum(a, b), a <= b


def _kept(role: Role, g: Value, *, saved: Any, where: bool) -> Value:
    """Gradients where what was saved is `where`, +0 elsewhere."""
    return selected(role, g.with_array(_kept_float64(namespace(g.array), g.array, saved=saved, where=where)))


def _kept_float64(xp: Any, g: Any, *, saved: Any, where: bool) -> Any:
    # a zero of the gradients' dtype: a Python 0 would leave the dtype to the library's promotion
    zero = xp.zeros((), g.dtype)
    return xp.where(saved, g, zero) if where else xp.where(saved, zero, g)


def _by_sign(role: Role, a: Value, x: Value) -> Value:
    """The product of a with the sign of x: -1, 0, 1.

    Of NaN the sign is -1, where float64 has NaN: a unit compares, and NaN passes both of its comparators.
    """
    xp = namespace(x.array)
    one, none = xp.ones((), np.float32), xp.zeros((), np.float32)
    # exact factors: the product is written by the unit, so that overflow and flags are those of a multiplication
    signs = xp.where(is_below(role, x.array), negated(one), xp.where(_is_above(role, x.array), one, none))
    return role.unit().multiply(a, Value(signs, FP32))


def _by_slope(role: Role, a: Value, x: Value, slope: Value) -> Value:
    """The product of a with 1 where x is not below 0, and with a slope elsewhere, also where x is NaN.

    Float64 has 1 for NaN. Where a is x, as in a forward pass, the product is NaN either way.
    """
    xp = namespace(x.array)
    slopes = xp.asarray(real(role, slope))  # a constant lies on the host
    factors: Any = xp.where(is_below(role, x.array), slopes, xp.ones((), slopes.dtype))
    return role.unit().multiply(a, _floats(factors))


def _floats(numbers: Any) -> Value:
    """Return float32 or float64 as a value."""
    return Value(numbers, FP32 if numbers.dtype == np.float32 else FP64)


def _by_slope_float64(xp: Any, a: Any, x: Any, slope: Any) -> Any:
    return a * xp.where(x < 0, slope, 1.0)


def _elu(role: Role, x: Value, *, alpha: float) -> Value:
    """X where it is not below 0, alpha * (exp(x) - 1) elsewhere: the host computes the function."""
    xp, below = namespace(x.array), is_below(role, x.array)
    # two operations of the host, each rounded, and one writing of the result
    less_one = role.on_host("less one").subtract(_exponential(role, x, below), number(1))
    bent = role.on_host("scaled").multiply(less_one, rounded(alpha))
    return role.unit().quantize(_floats(xp.where(below, real(role, bent), real(role, x))))


def _exponential(role: Role, x: Value, below: Any) -> Value:
    """Return exp(x) where x is below 0, and 1 elsewhere."""
    # exp never sees a large number, whose result would overflow and then be thrown away
    zero = namespace(x.array).zeros((), x.array.dtype)
    return role.on_host("exponential").exp(x.with_array(namespace(x.array).where(below, x.array, zero)))


def _elu_float64(xp: Any, x: Any, *, alpha: float) -> Any:
    return xp.where(x < 0, alpha * (xp.exp(xp.minimum(x, 0.0)) - 1), x)


def _elu_slope(role: Role, x: Value, *, alpha: float) -> Value:
    """1 where x is not below 0, alpha * exp(x) elsewhere; of NaN it is NaN, where float64 has 1."""
    xp, below = namespace(x.array), is_below(role, x.array)
    slopes = real(role, role.on_host("slope").multiply(_exponential(role, x, below), rounded(alpha)))
    return role.unit().quantize(_floats(xp.where(below, slopes, xp.ones((), slopes.dtype))))


def _elu_slope_float64(xp: Any, x: Any, *, alpha: float) -> Any:
    return xp.where(x < 0, alpha * xp.exp(xp.minimum(x, 0.0)), 1.0)


def _concatenate(role: Role, *operands: Value, axis: int) -> Value:
    shapes = [x.shape for x in operands]
    place = axis % max(len(shapes[0]), 1)
    if len({(len(shape), *shape[:place], *shape[place + 1 :]) for shape in shapes}) > 1:
        raise ShapeError(
            f"concatenate: operands must have the same sizes along all axes but {axis}, got shapes "
            f"{' and '.join(map(str, shapes))}; reshape one of them"
        )
    # each operand in one format first: arrays of one dtype can be joined
    written = [selected(role, x) for x in operands]
    return written[0].with_array(namespace(written[0].array).concatenate([x.array for x in written], axis=axis))


def _concatenate_float64(xp: Any, *arrays: Any, axis: int) -> Any:
    return xp.concatenate(arrays, axis=axis)


def _concatenate_asks(operands: Sequence[Shape], options: Options) -> Asked:
    # shapes of other axes agree, so the first operand's stand for all
    axis: int = options["axis"] % len(operands[0])
    shape = list(operands[0])
    shape[axis] = sum(operand[axis] for operand in operands)
    return Asked(tuple(shape))


def _surround(role: Role, x: Value, *, pads: Sequence[tuple[int, int]], value: float) -> Value:
    """X with elements of one value around it, which is written in the result's format."""
    y = selected(role, x)
    xp = namespace(y.array)
    whole = xp.zeros(surrounded(x.shape, pads), y.array.dtype)
    # a border of 0 is there already
    if value:
        whole[...] = _written(role, value, y)
    whole[middle_of(x.shape, pads)] = y.array
    return y.with_array(whole)


def surrounded(shape: Shape, pads: Sequence[tuple[int, int]]) -> Shape:
    """Return the shape with what is added at both ends of each axis."""
    return tuple(size + before + after for size, (before, after) in zip(shape, pads, strict=True))


def middle_of(shape: Shape, pads: Sequence[tuple[int, int]]) -> tuple[slice, ...]:
    """Return the slices at which an array lies in what surrounds it."""
    return tuple(slice(before, before + size) for size, (before, _) in zip(shape, pads, strict=True))


def _surround_float64(xp: Any, x: Any, *, pads: Sequence[tuple[int, int]], value: float) -> Any:
    return xp.pad(x, pads, constant_values=value)


def surround_asks(operands: Sequence[Shape], options: Options) -> Asked:
    """Ask for an array and what is around it."""
    return Asked(surrounded(operands[0], options["pads"]))


ROWS = (
    Row("clip", _clip, _clip_float64, as_first, DoneBy.SELECTION, MOVES, beside=one_array),
    Row("larger", _larger, _larger_float64, broadcast, DoneBy.SELECTION, MOVES, beside=one_array),
    Row("smaller", _smaller, _smaller_float64, broadcast, DoneBy.SELECTION, MOVES, beside=one_array),
    Row("kept", _kept, _kept_float64, as_first, DoneBy.SELECTION, MOVES),
    Row("by_sign", _by_sign, lambda xp, a, x: a * xp.sign(x), as_first, DoneBy.LANES, MULTIPLIES),
    Row("by_slope", _by_slope, _by_slope_float64, as_first, DoneBy.LANES, MULTIPLIES),
    Row("elu", _elu, _elu_float64, as_first_on_host(3), DoneBy.HOST, TABLE_AND_LINE),
    Row("elu_slope", _elu_slope, _elu_slope_float64, as_first_on_host(2), DoneBy.HOST, TABLE_AND_LINE),
    Row("concatenate", _concatenate, _concatenate_float64, _concatenate_asks, DoneBy.SELECTION, MOVES),
    Row("surround", _surround, _surround_float64, surround_asks, DoneBy.SELECTION, MOVES),
)
