"""Integers with a scale and a zero point, computed as TensorFlow Lite's reference kernels compute them.

    elements ──► less the zero point ──► exact integers, or a table ──► multiplier of 31 bits ──► elements

Products of convolutions are rows of `emu.operations.integers` with a requantiser. Here is what the kernels compute in
another way: docs/tflite.md has each formula. All of it is integers of the host, the same on every backend.

Sources: TensorFlow Lite, reference kernels; gemmlowp, `fixedpoint.h`; docs/tflite.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import namespace, on_host
from emu.backends.registry import load
from emu.datapath import Affine, Requantiser
from emu.engine import Unit
from emu.engine.requantise import in_31_bits, requantise, twice_rounded
from emu.formats import Fixed, Format, Value
from emu.operations.asked import Asked, Options, Shape, as_first, broadcast
from emu.operations.choices import surround_asks
from emu.operations.fixed_point import reciprocal_of_sum, rounded_high_half, rounded_shift
from emu.operations.operands import FP32, FP64
from emu.operations.row import MOVES, MULTIPLIES, ROUNDS, DoneBy, Role, Row
from emu.operations.selections import windows_asked, windows_of

Array = NDArray[Any]
Integers = NDArray[np.int64]
#: Bits by which ADD and SUB shift differences before they multiply them.
LEFT_SHIFT = 20
#: Fraction bits of the sum of exponentials, which has 12 bits above them.
SUM_FRACTION_BITS = 19


class Written(NamedTuple):
    """How results become elements.

    Attributes:
        how: format, scale and zero point.
        lowest: smallest element, as a fused activation has it.
        highest: largest one.
    """

    how: Affine
    lowest: int
    highest: int


def _integers(x: Value) -> Integers:
    """Return elements, or integers of 32 bits, as int64."""
    numbers = np.asarray(on_host(x.array))
    bits = x.format.frac_bits if isinstance(x.format, Fixed) and x.format.carries_raws else 0
    return (numbers / 2.0**bits if bits else numbers).astype(np.int64)


def _less_zero(x: Value, how: Affine) -> Integers:
    return _integers(x) - int(how.zero)


def _value(role: Role, numbers: Any, fmt: Format) -> Value:
    return Value(load(role.backend).place(np.asarray(numbers).astype(fmt.carrier)), fmt)


def _written(role: Role, numbers: Any, to: Written) -> Value:
    """Return integers, zero point included, as elements; the role's register and flags observe those of the format."""
    own = role.unit()
    unit = Unit(to.how.format, register=own.register, flags=own.flags, backend=role.backend)
    whole = _value(role, np.asarray(numbers), FP64)  # exact: below 2**34
    # register and flags see what leaves the format; the bounds of an activation are applied after them
    elements = np.asarray(on_host(unit.quantize(whole).array))
    return _value(role, np.clip(elements, to.lowest, to.highest), to.how.format)


def _format_of(options: Options) -> Format:
    return options["to"].how.format


# ---- between floats, sums and elements ------------------------------------------------------------------------------


def _reference_quantize(role: Role, x: Value, *, to: Written) -> Value:
    """Round(x / scale) + zero: the quotient is of float32, halves go away from zero.

    Beyond 32 bits the kernel's result is undefined in C; here it saturates. NaN becomes the zero point.
    """
    quotient = Unit(FP32, backend=role.backend).divide(x, _value(role, to.how.scale, FP32))
    numbers = np.asarray(on_host(quotient.array), np.float64)
    # 2**31 itself is left in: rounded and with the zero point it is beyond every element
    bounded = np.clip(np.nan_to_num(numbers, nan=0.0), -(2.0**31), 2.0**31)
    return _written(role, _away(bounded) + int(to.how.zero), to)


def _away(x: Array) -> Array:
    """Return numbers of binary64 rounded to integers, halves away from zero; exact below 2**52."""
    # x - whole is exact: adding 0.5 first would round 0.49999999999999994 up
    whole = np.trunc(x)
    return whole + np.sign(x) * (np.abs(x - whole) >= 0.5)


def _quantize_float64(xp: Any, x: Any, *, to: Written) -> Any:
    return x / float(to.how.scale) + int(to.how.zero)


def _scale_sums(role: Role, sums: Value, *, of: tuple[Array, Array], to: Written) -> Value:
    """Sums times scale * scale / scale of the result in binary64, rounded, halves away from zero, plus the zero point.

    A device that says how its units requantise does it in its own way.

    Args:
        role: of the result.
        sums: integers of 32 bits, (..., n).
        of: scales of the factors, float32: the first one (), the second () or (n,).
        to: how elements are written.
    """
    kind = role.requantiser
    if kind is not None:
        # the requantiser counts what leaves the format; bounds of the activation are left to `_written`
        by = Requantiser(kind, float(to.how.scale), int(to.how.zero))
        a, b = of
        rounded = requantise(_integers(sums), to.how.format, by, a_scale=a, b_scale=b, flags=role.unit().flags)
        return _written(role, on_host(rounded.array), to)
    # sums of 32 bits are exact in binary64: one rounding for the product
    product = _integers(sums).astype(np.float64) * _multiplier_of(of, to)
    return _written(role, _away(np.clip(product, -(2.0**31), 2.0**31)) + int(to.how.zero), to)


def _multiplier_of(of: tuple[Array, Array], to: Written) -> Array:
    """Return scale * scale / scale of the result, each operation of binary64."""
    return of[0].astype(np.float64) * of[1].astype(np.float64) / np.float64(to.how.scale)


def _scale_float64(xp: Any, sums: Any, *, of: tuple[Array, Array], to: Written) -> Any:
    return sums * xp.asarray(_multiplier_of(of, to)) + int(to.how.zero)


def _table_of_elements(role: Role, q: Value, *, table: Array, first: int, to: Written) -> Value:
    """Element `q` becomes entry `q - first` of a table."""
    return _written(role, table[_integers(q) - first], to)


def _table_float64(xp: Any, q: Any, *, table: Array, first: int, to: Written) -> Any:
    return xp.asarray(table)[xp.asarray(q).astype(np.int64) - first].astype(np.float64)


# ---- two operands ---------------------------------------------------------------------------------------------------


def _add_shifted(role: Role, a: Value, b: Value, *, of: tuple[Affine, Affine], to: Written, sign: int = 1) -> Value:
    """(a - za) * 2**20 times a multiplier, plus or minus the same of b, times a third multiplier, plus the zero point.

    Multipliers are scale / (2 * larger scale) of each operand, and 2 * larger scale / (2**20 * scale) of the result;
    each product is rounded twice.
    """
    # both multipliers are at most 1/2: the sum is no larger than a shifted difference can be
    twice = 2.0 * max(float(how.scale) for how in of)
    parts = [
        twice_rounded(_less_zero(x, how) << LEFT_SHIFT, *in_31_bits(float(how.scale) / twice))
        for x, how in zip((a, b), of, strict=True)
    ]
    multiplier = in_31_bits(twice / (2.0**LEFT_SHIFT * float(to.how.scale)))
    return _written(role, twice_rounded(parts[0] + sign * parts[1], *multiplier) + int(to.how.zero), to)


def _add_float64(xp: Any, a: Any, b: Any, *, of: tuple[Affine, Affine], to: Written, sign: int = 1) -> Any:
    x, y = ((v - int(how.zero)) * float(how.scale) for v, how in zip((a, b), of, strict=True))
    return (x + sign * y) / float(to.how.scale) + int(to.how.zero)


def _multiply_requantised(role: Role, a: Value, b: Value, *, of: tuple[Affine, Affine], to: Written) -> Value:
    """(a - za) * (b - zb) times a multiplier, rounded twice, plus the zero point.

    The multiplier is float32(float32(scale * scale) / scale of the result).
    """
    # rounded to float32 twice; `in_31_bits` reads the result as binary64
    multiplier = np.float32(np.float32(of[0].scale * of[1].scale) / to.how.scale)
    product = _less_zero(a, of[0]) * _less_zero(b, of[1])
    return _written(role, twice_rounded(product, *in_31_bits(multiplier)) + int(to.how.zero), to)


def _multiply_float64(xp: Any, a: Any, b: Any, *, of: tuple[Affine, Affine], to: Written) -> Any:
    x, y = ((v - int(how.zero)) * float(how.scale) for v, how in zip((a, b), of, strict=True))
    return x * y / float(to.how.scale) + int(to.how.zero)


# ---- means ----------------------------------------------------------------------------------------------------------


def _average_windows(role: Role, x: Value, *, to: Written, **options: Any) -> Value:
    """The sum of each window of (N, C, H, W) over the number of its elements, without the border; halves go away."""
    q = _integers(x)
    sums = windows_of(q, options).sum(axis=-1)
    # an image of ones counts the elements of each window that are no border
    counts = windows_of(np.ones((1, 1, *q.shape[2:]), np.int64), options).sum(axis=-1)
    # the count's half added to the magnitude: integer division then rounds halves away from zero
    return _written(role, np.sign(sums) * ((np.abs(sums) + counts // 2) // counts), to)


def _average_float64(xp: Any, x: Any, *, to: Written, **options: Any) -> Any:
    counts = windows_of(np.ones((1, 1, *x.shape[2:])), options).sum(axis=-1)
    return windows_of(x, options).sum(axis=-1) / counts


def _mean_of_axes(role: Role, x: Value, *, axes: tuple[int, ...], of: Affine, to: Written) -> Value:
    """The sum of (q - zero) along axes times scale / scale of the result / count, rounded twice, plus the zero point.

    The count is divided out of the multiplier m of 31 bits: m * 2**s // count, s the number of bits of the count less
    one, which the shift gives back.
    """
    q = _integers(x)
    count = math.prod(q.shape[axis] for axis in axes)
    sums = q.sum(axis=axes) - int(of.zero) * count
    # one multiplier for all: scales of the operand and of the result are numbers
    m, shift = (int(part) for part in in_31_bits(float(of.scale) / float(to.how.scale)))
    # 2**bits <= count, so the quotient has 31 bits at most; m << 32 stays in int64, and a shift of at least -31 is left
    bits = min(count.bit_length() - 1, 32, 31 + shift)
    return _written(role, twice_rounded(sums, (m << bits) // count, shift - bits) + int(to.how.zero), to)


def _mean_float64(xp: Any, x: Any, *, axes: tuple[int, ...], of: Affine, to: Written) -> Any:
    return (x.mean(axis=axes) - int(of.zero)) * float(of.scale) / float(to.how.scale) + int(to.how.zero)


def _mean_asks(operands: Sequence[Shape], options: Options) -> Asked:
    return Asked(tuple(size for axis, size in enumerate(operands[0]) if axis not in options["axes"]))


# ---- softmax --------------------------------------------------------------------------------------------------------


def _softmax_of_table(role: Role, x: Value, *, table: Array, to: Written) -> Value:
    """Exponentials of the distance to the largest element, from a table, times the reciprocal of their sum.

    Args:
        role: of the result.
        x: elements, (..., n).
        table: exp of minus 0, 1, .. 255 steps, in units of 2**-31; 0 where the kernel leaves it out.
        to: how elements are written.
    """
    q = _integers(x)
    # distances to the largest are 0..255: elements have 8 bits
    powers = table[q.max(axis=-1, keepdims=True) - q]
    # in units of 2**-19, with 12 integer bits
    sums = rounded_shift(powers, 31 - SUM_FRACTION_BITS).sum(axis=-1, keepdims=True)
    reciprocal, exponent = reciprocal_of_sum(sums, SUM_FRACTION_BITS)
    # reciprocal and powers in units of 2**-31, the result in units of 2**-8
    shares = rounded_shift(rounded_high_half(reciprocal, powers), exponent + 31 - 8)
    return _written(role, shares + int(to.how.zero), to)


def _softmax_float64(xp: Any, x: Any, *, table: Array, to: Written) -> Any:
    q = xp.asarray(x).astype(np.int64)
    powers = table[q.max(axis=-1, keepdims=True) - q].astype(np.float64)
    return powers / powers.sum(axis=-1, keepdims=True) / float(to.how.scale) + int(to.how.zero)


# ---- what moves elements --------------------------------------------------------------------------------------------


def _join_elements(role: Role, *operands: Value, axis: int, to: Format) -> Value:
    """Elements of several tensors with one scale beside one another."""
    parts = [_value(role, _integers(x), to).array for x in operands]
    return Value(namespace(parts[0]).concatenate(parts, axis=axis), to)


def _join_float64(xp: Any, *arrays: Any, axis: int, to: Format) -> Any:
    return xp.concatenate(arrays, axis=axis)


def _join_asks(operands: Sequence[Shape], options: Options) -> Asked:
    axis: int = options["axis"]
    shape = list(operands[0])
    shape[axis] = sum(operand[axis] for operand in operands)
    return Asked(tuple(shape))


def _pad_elements(role: Role, x: Value, *, pads: Sequence[tuple[int, int]], value: int, to: Format) -> Value:
    """Elements with a border of one element around them."""
    return _value(role, np.pad(_integers(x), pads, constant_values=value), to)


def _pad_float64(xp: Any, x: Any, *, pads: Sequence[tuple[int, int]], value: int, to: Format) -> Any:
    return xp.pad(x, pads, constant_values=value)


def _moved_format(options: Options) -> Format:
    return options["to"]


_ADDS = MULTIPLIES._replace(additions=1)

ROWS = (
    Row("reference_quantize", _reference_quantize, _quantize_float64, as_first, DoneBy.LANES, MULTIPLIES,
        takes_any_format=True, format_of=_format_of),
    Row("scale_sums", _scale_sums, _scale_float64, as_first, DoneBy.LANES, MULTIPLIES, takes_any_format=True,
        format_of=_format_of),
    Row("table_of_elements", _table_of_elements, _table_float64, as_first, DoneBy.LANES, ROUNDS,
        takes_any_format=True, format_of=_format_of),
    Row("add_shifted", _add_shifted, _add_float64, broadcast, DoneBy.LANES, _ADDS, takes_any_format=True,
        format_of=_format_of),
    Row("multiply_requantised", _multiply_requantised, _multiply_float64, broadcast, DoneBy.LANES, MULTIPLIES,
        takes_any_format=True, format_of=_format_of),
    Row("average_windows", _average_windows, _average_float64, windows_asked, DoneBy.LANES, ROUNDS,
        takes_any_format=True, format_of=_format_of),
    Row("mean_of_axes", _mean_of_axes, _mean_float64, _mean_asks, DoneBy.LANES, MULTIPLIES, takes_any_format=True,
        format_of=_format_of),
    Row("softmax_of_table", _softmax_of_table, _softmax_float64, as_first, DoneBy.LANES, MULTIPLIES,
        takes_any_format=True, format_of=_format_of),
    Row("join_elements", _join_elements, _join_float64, _join_asks, DoneBy.MOVE, MOVES, takes_any_format=True,
        is_counted=False, format_of=_moved_format),
    Row("pad_elements", _pad_elements, _pad_float64, surround_asks, DoneBy.MOVE, MOVES, takes_any_format=True,
        is_counted=False, format_of=_moved_format),
)  # fmt: skip
