"""Integers with a scale and a zero point, as graphs of quantised networks have them: the graph's bits on all devices.

    float ──► quantize_linear ──► integers ──► integer_conv2d, integer_matmul ──► integers ──► dequantize_linear

What a graph says in integers is computed in integers: the device's formats hold for floats alone. So a device changes
two things: the requantiser, if it says one, and the format in which dequantised numbers are written. Each operation is
a chain of exact sums and of float32 operations, each rounded once, in the order in which onnxruntime's kernels for
AVX2 have them. `Affine` says what elements stand for.

Sources: ONNX, operators QuantizeLinear, QLinearConv, QLinearMatMul and related ones; docs/quantised.md, "Three forms".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu import engine
from emu.backends.arrays import namespace, on_host
from emu.backends.registry import load
from emu.datapath import Affine, Mac, Requantiser, Rounding
from emu.engine import Unit
from emu.engine.description import UnitDescription
from emu.engine.integer_products import IntegerProduct, integer_matrices, integer_sums
from emu.engine.products import write_product
from emu.engine.scaled_output import ScaledOutput
from emu.engine.scaled_products import integer_patches
from emu.engine.sliding import Sliding
from emu.errors import ShapeError
from emu.formats import Fixed, Format, Scaled, ScaledValue, Value, parse
from emu.formats.tiles import Tiles
from emu.operations.asked import Asked, Options, Shape, as_first, broadcast
from emu.operations.choices import is_below, larger_of, middle_of, smaller_of, surround_asks, surrounded
from emu.operations.convolution import conv2d_asks, conv2d_float64
from emu.operations.operands import FP32
from emu.operations.products import matmul_asks, matmul_float64
from emu.operations.row import COMPARES, MOVES, MULTIPLIES, PRODUCTS, ROUNDS, DoneBy, Role, Row
from emu.operations.selections import largest_of_windows, windows_asked, windows_of

Array = NDArray[Any]
#: Sums of products: 32 bits that wrap, as every runtime has them.
SUMS = Fixed(32, 0)
#: Elements of so many bits at most, less their zero point, are numbers of float32: these differences stay below 2**24.
EXACT_BITS = 24
#: Options of a convolution that say how kernels slide.
SLIDE = ("stride", "padding", "dilation", "groups")
_WRAPPING = Mac(accumulator=SUMS, overflow="wrap")


def _value(role: Role, numbers: Any, fmt: Format) -> Value:
    """Return numbers of the host as a value where the role computes."""
    # `place` puts the array where the backend computes: on the device for cuda
    return Value(load(role.backend).place(np.asarray(numbers).astype(fmt.carrier)), fmt)


def _elements(role: Role, x: Value, how: Affine) -> Value:
    """Return an operand in the format of its elements: a constant comes in the file's own dtype."""
    return x if x.format == how.format else _value(role, on_host(x.array), how.format)


def _less_zero(role: Role, x: Value, how: Affine) -> Value:
    """Return elements less their zero points, exactly."""
    q = _elements(role, x, how)
    # float elements have no zero point
    if not isinstance(how.format, Fixed) or not how.zero.any():
        return q
    zero = _value(role, how.beside(len(x.shape))[1], how.format)
    # a bit more holds every difference of two elements: nothing saturates, nothing is flagged
    return Unit(Fixed(how.format.width_bits + 1, 0), backend=role.backend).subtract(q, zero)


def _writing(role: Role, fmt: Format, **options: Any) -> Unit:
    """Return a unit that writes elements; the role's register and flags observe them."""
    # the role's format is that of floats in this layer; the graph says another
    own = role.unit()
    return Unit(fmt, register=own.register, flags=own.flags, backend=role.backend, **options)


# ---- between floats and integers ------------------------------------------------------------------------------------


class Written(NamedTuple):
    """How numbers become elements, if not as QuantizeLinear has it.

    Attributes:
        zero_first: whether the zero point is added before the rounding, in float32.
        times: what a number is multiplied by in place of the division by the scale; None divides.
        rounding: mode, if the zero point is added first, and of float elements.
        lowest: smallest element; None is that of the format.
        highest: largest element.
    """

    zero_first: bool = False
    times: float | None = None
    rounding: Rounding = Rounding.NEAREST_EVEN
    lowest: float | None = None
    highest: float | None = None


#: That of QuantizeLinear.
STANDARD = Written()


def _quantize_linear(role: Role, x: Value, *, to: Affine, how: Written = STANDARD) -> Value:
    """Round(x / scale) + zero, saturated; the quotient is of float32."""
    scale, zero = to.beside(len(x.shape))
    float32 = Unit(FP32, backend=role.backend)
    if how.times is None:
        quotient = float32.divide(x, _value(role, scale, FP32))
    else:
        quotient = float32.multiply(x, _value(role, how.times, FP32))
    if not to.is_integer:
        # float elements have no zero point, and saturate to the largest finite number
        unit = _writing(role, to.format, overflow="satfinite", rounding=how.rounding)
        return _within(role, unit.quantize(quotient), how.lowest, how.highest)
    if how.zero_first:
        quotient = float32.add(quotient, _value(role, zero, FP32))
        elements = _writing(role, to.format, rounding=how.rounding).quantize(quotient)
    else:
        # the quotient is rounded to an integer, nearest even; its sum with the zero point is exact, so it can only
        # saturate
        elements = _writing(role, to.format).add(float32.round_to_integral(quotient), _value(role, zero, FP32))
    return _within(role, elements, how.lowest, how.highest)


def _within(role: Role, x: Value, lowest: float | None, highest: float | None) -> Value:
    """Return elements within bounds."""
    array, xp = x.array, namespace(x.array)
    if lowest is not None:
        # kernels compare where the array lies; a bound is an element, so nothing rounds
        array = larger_of(role, array, xp.asarray(lowest, array.dtype))[0]
    if highest is not None:
        array = smaller_of(role, array, xp.asarray(highest, array.dtype))[0]
    return x.with_array(array)


def _quantize_float64(xp: Any, x: Any, *, to: Affine, how: Written = STANDARD) -> Any:
    scale, zero = to.beside(x.ndim)
    elements = (x / xp.asarray(scale) if how.times is None else x * how.times) + xp.asarray(zero)
    return _clipped(xp, elements, how.lowest, how.highest)


def _clipped(xp: Any, x: Any, lowest: float | None, highest: float | None) -> Any:
    """Return numbers within the bounds of an activation, which are mathematics; those of a format are not."""
    if lowest is not None:
        x = xp.maximum(x, lowest)
    return x if highest is None else xp.minimum(x, highest)


def _bipolar(role: Role, x: Value, *, to: Affine) -> Value:
    """1 where a number is at least 0, else -1."""
    xp = namespace(x.array)
    signs = xp.where(is_below(role, x.array), xp.asarray(-1.0), xp.asarray(1.0))
    return Value(signs.astype(to.format.carrier), to.format)


def _bipolar_float64(xp: Any, x: Any, *, to: Affine) -> Any:
    return xp.where(x >= 0, 1.0, -1.0)


def _dequantize_linear(role: Role, q: Value, *, of: Affine) -> Value:
    """(q - zero) * scale, in the role's format: the difference as float32, as ONNX has it."""
    difference = _less_zero(role, q, of)
    # wider integers become float32 first, by one rounding, and the product is rounded once more
    if isinstance(of.format, Fixed) and of.format.width_bits > EXACT_BITS:
        difference = Unit(FP32, backend=role.backend).quantize(difference)
    return role.unit().multiply(difference, _value(role, of.beside(len(q.shape))[0], FP32))


def _dequantize_float64(xp: Any, q: Any, *, of: Affine) -> Any:
    scale, zero = of.beside(q.ndim)
    return (q - xp.asarray(zero)) * xp.asarray(scale)


#: What `dynamic_quantize` can give: the elements, or what it has chosen for them.
DYNAMIC = ("elements", "scale", "zero")


def _dynamic_quantize(role: Role, x: Value, *, to: Fixed, gives: str) -> Value:
    """ONNX's DynamicQuantizeLinear: a scale and a zero point for the tensor, from its smallest and largest number."""
    # numbers without a format are taken as binary64
    whole = engine.value(np.asarray(x), "fp64") if x.format is None else x
    made = _of_tensor(to)
    # only the elements are written for the layer: scale and zero point come from two more calls, and count nothing
    unit = _writing(role, to) if gives == "elements" else Unit(to, backend=role.backend)
    q: Any = Unit(made, register=unit.register, flags=unit.flags, backend=role.backend).quantize(whole)
    if gives == "elements":
        return _value(role, q.array, to)
    if gives == "scale":
        return _value(role, q.scales[0].reshape(()), FP32)
    return _value(role, q.zero.reshape(()), to)


def _dynamic_float64(xp: Any, x: Any, *, to: Fixed, gives: str) -> Any:
    low, high = min(float(x.min()), 0.0), max(float(x.max()), 0.0)
    scale = (high - low) / (to.max - to.min) or 1.0
    zero = to.min - low / scale
    return {"elements": x / scale + zero, "scale": xp.asarray(scale), "zero": xp.asarray(zero)}[gives]


def _dynamic_asks(operands: Sequence[Shape], options: Options) -> Asked:
    return Asked(operands[0] if options["gives"] == "elements" else ())


def _dynamic_format(options: Options) -> Format:
    return FP32 if options["gives"] == "scale" else options["to"]


# ---- products -------------------------------------------------------------------------------------------------------


@cache
def _scaled(element: Format, tiling: str) -> Scaled:
    # `ort` is the rule of DynamicQuantizeLinear; operands of products bring scales of their own
    fmt = parse(f"block({element}, fp32 {tiling} ort)")
    assert isinstance(fmt, Scaled)
    return fmt


def _of_tensor(element: Format) -> Scaled:
    """Return elements with one scale and one zero point."""
    return _scaled(element, "tensor")


def _operand(x: Value, how: Affine, axis: int, tiling: str, zero: Value | None = None) -> ScaledValue:
    """Return an operand with its scales; an axis, that of k, is the one along which elements share them.

    Args:
        x: elements.
        how: scales and zero points.
        axis: counted from the end.
        tiling: what shares a scale and a zero point, if there are several.
        zero: the zero point, if the graph computes it.
    """
    elements = on_host(x.array).astype(how.format.carrier)
    fmt = _of_tensor(how.format) if how.is_whole else _scaled(how.format, tiling)
    # blocks with the axis of k last, as `ScaledValue` keeps its scales
    counts = Tiles(fmt.tiling, elements.shape, axis).counts
    if how.scale.size not in (1, math.prod(counts)):
        parts = {"row": f"vectors along axis {axis % elements.ndim}", "channel": "kernels"}.get(tiling)
        rule = f"one scale, or one for each of {math.prod(counts)} {parts}" if parts else "one scale"
        raise ShapeError(
            f"elements of shape {elements.shape} must have {rule} in a product, got {how.scale.size}; give one for all"
        )
    points = how.zero if zero is None else np.asarray(on_host(zero.array)).astype(np.int64).reshape(())
    scale, point = _of_blocks(how.scale, counts), _of_blocks(points, counts)
    return ScaledValue.of(elements, (scale.astype(np.float32),), fmt, axis, point.astype(np.int32))


def _of_blocks(part: Array, counts: tuple[int, ...]) -> Array:
    """Return scales or zero points in the shape of the blocks."""
    # one number for all, or one for each block in order
    return np.broadcast_to(part.reshape(-1), (math.prod(counts),)).reshape(counts)


def _bias(rest: Sequence[Value], names: Sequence[str]) -> tuple[Array | None, Value | None]:
    """Return the bias and the zero point of the left operand; None of what `names` does not list."""
    given = dict(zip(names, rest, strict=True))
    # float64 holds integers of 32 bits exactly
    bias = None if "bias" not in given else np.asarray(on_host(given["bias"].array)).astype(np.float64)
    return bias, given.get("zero")


def _on_device(role: Role, by: Requantiser) -> Requantiser:
    """Return the device's requantiser, without the bounds of an activation: flags count what leaves the format."""
    plain = replace(by, lowest=None, highest=None)
    return plain if role.requantiser is None else replace(plain, kind=role.requantiser, rounding=None)


def _bounded(role: Role, elements: Array, by: Requantiser, to: Fixed) -> Value:
    """Return elements within the bounds of an activation."""
    return _within(role, _value(role, elements, to), by.lowest, by.highest)


def _integer_matmul(
    role: Role, a: Value, b: Value, *rest: Value, of: tuple[Affine, Affine], by: Requantiser | None = None,
    to: Fixed = SUMS, names: Sequence[str] = (),
) -> Value:  # fmt: skip
    """Sums of (qa - za) * (qb - zb), and the bias; or elements that a requantiser makes of them."""
    bias, zero = _bias(rest, names)
    # a scale for each row of `a` and each column of `b`, or one for all
    left, right = _operand(a, of[0], -1, "row", zero), _operand(b, of[1], -2, "row")
    unit = _unit(role)
    if by is None:
        return _sums(role, unit, integer_matrices(left, right, bias))
    output = ScaledOutput(_of_tensor(to), requantiser=_on_device(role, by))
    return _bounded(role, output.matmul(unit, left, right, (bias, None)).array, by, to)


def _integer_conv2d(
    role: Role, x: Value, w: Value, *rest: Value, of: tuple[Affine, Affine], by: Requantiser | None = None,
    to: Fixed = SUMS, names: Sequence[str] = (), **slide: Any,
) -> Value:  # fmt: skip
    """The same of a convolution; images are padded by their zero point."""
    bias, zero = _bias(rest, names)
    # kernels: the axis is the last one, and a scale of `channel` serves each first index
    images, kernels = _operand(x, of[0], -1, "tensor", zero), _operand(w, of[1], -1, "channel")
    unit, how = _unit(role), Sliding.of(**slide)
    if by is None:
        return _sums(role, unit, integer_patches(images, kernels, (bias, None), how))
    output = ScaledOutput(_of_tensor(to), requantiser=_on_device(role, by))
    return _bounded(role, output.conv2d(unit, images, kernels, (bias, None), how).array, by, to)


def _conv2d_asks(operands: Sequence[Shape], options: Options) -> Asked:
    return conv2d_asks(operands, {name: options[name] for name in SLIDE if name in options})


@cache
def _adds_integers(backend: str) -> UnitDescription:
    return UnitDescription.of(SUMS, mac=_WRAPPING, backend=backend)


def _unit(role: Role) -> UnitDescription:
    """Return the unit that adds products of elements; the role's register, flags and records are its own."""
    own = role.unit().description
    # the Mac is that of the graph, whatever the device's: sums of 32 bits that wrap
    return _adds_integers(role.backend)._replace(register=own.register, flags=own.flags, records=own.records)


def _sums(role: Role, unit: UnitDescription, product: IntegerProduct) -> Value:
    return _value(role, integer_sums(unit, product, write_product)[0], SUMS)


def _product_float64(product: Any, *, is_convolution: bool = False) -> Any:
    """Return a product of numbers less their zero points, times what a requantiser multiplies it by."""

    def rule(
        xp: Any, a: Any, b: Any, *rest: Any, of: tuple[Affine, Affine], by: Requantiser | None = None,
        to: Fixed = SUMS, names: Sequence[str] = (), **options: Any,
    ) -> Any:  # fmt: skip
        given = dict(zip(names, rest, strict=True))
        # shaped to broadcast: one zero point, or one for each index of an axis
        zeros = [xp.asarray(how.beside(x.ndim)[1]) for how, x in zip(of, (a, b), strict=True)]
        y = product(xp, a - given.get("zero", zeros[0]), b - zeros[1], given.get("bias"), **options)
        if by is None:
            return y
        left, right = of[0].scale, of[1].scale
        # scales of rows lie along the last axis but one, those of columns along the last; of images there is one, and
        # scales of kernels lie along the second axis
        left = left.reshape(-1, 1) if left.ndim else left
        right = right.reshape(-1, 1, 1) if right.ndim and is_convolution else right
        scales = left * right / np.float64(by.scale)
        return _clipped(xp, y * xp.asarray(scales) + by.zero, by.lowest, by.highest)

    return rule


# ---- element by element ---------------------------------------------------------------------------------------------


def _integer_add(role: Role, a: Value, b: Value, *, of: tuple[Affine, Affine], to: Affine) -> Value:
    """A * ra + (b * rb + (zero - (za * ra + zb * rb))), r = scale / scale of the result: three fused operations."""
    ratios = [np.float32(how.scale / to.scale) for how in of]
    # constants of the graph: computed by the reference, the same on every device, and counted nowhere
    known: Any = {"out_format": FP32, "backend": "reference"}
    zeros = [np.float32(how.zero) for how in of]
    # fused in this order, as the kernel for AVX2 folds the zero points into one start
    inner = engine.fma(ratios[0], zeros[0], engine.multiply(ratios[1], zeros[1], **known), **known)
    start = engine.subtract(np.float32(to.zero), inner, **known)
    float32 = Unit(FP32, backend=role.backend)
    x, y = (_elements(role, v, how) for v, how in zip((a, b), of, strict=True))
    rx, ry = (_value(role, ratio, FP32) for ratio in ratios)
    total = float32.fma(x, rx, float32.fma(y, ry, _value(role, start, FP32)))
    return _writing(role, to.format).quantize(total)


def _add_float64(xp: Any, a: Any, b: Any, *, of: tuple[Affine, Affine], to: Affine) -> Any:
    numbers = sum((x - int(how.zero)) * float(how.scale) for x, how in zip((a, b), of, strict=True))
    return numbers / float(to.scale) + int(to.zero)


def _integer_multiply(role: Role, a: Value, b: Value, *, of: tuple[Affine, Affine], to: Affine) -> Value:
    """(a - za) * (b - zb) times float32(float32(scale * scale) / scale), plus the zero point, then rounded."""
    # rounded twice in float32, as the kernel prepares it
    ratio = np.float32(np.float32(of[0].scale * of[1].scale) / to.scale)
    float32 = Unit(FP32, backend=role.backend)
    x, y = (_less_zero(role, v, how) for v, how in zip((a, b), of, strict=True))
    product = float32.multiply(float32.multiply(x, y), _value(role, ratio, FP32))
    total = float32.add(product, _value(role, to.zero, FP32))
    return _writing(role, to.format).quantize(total)


def _multiply_float64(xp: Any, a: Any, b: Any, *, of: tuple[Affine, Affine], to: Affine) -> Any:
    x, y = ((v - int(how.zero)) * float(how.scale) for v, how in zip((a, b), of, strict=True))
    return x * y / float(to.scale) + int(to.zero)


def _integer_max_pool(role: Role, x: Value, **options: Any) -> Value:
    """The largest element of each window, as it is."""
    return x.with_array(largest_of_windows(role.backend, x.array, options)[0])


def _max_pool_float64(xp: Any, x: Any, **options: Any) -> Any:
    return windows_of(x, options, -np.inf).max(axis=-1)


def _integer_surround(role: Role, x: Value, *, pads: Sequence[tuple[int, int]], value: int) -> Value:
    """Elements with one element around them."""
    xp = namespace(x.array)
    # written as it is: nothing rounds or saturates here
    if isinstance(x.format, Fixed) and not x.format.contains(np.asarray(value)):
        raise ShapeError(
            f"`value` of integer_surround must be an element of {x.format}, in {x.format.min_raw}..{x.format.max_raw}, "
            f"got {value}; choose one, or a wider format"
        )
    whole = xp.zeros(surrounded(x.shape, pads), x.array.dtype)
    if value:
        whole[...] = value
    whole[middle_of(x.shape, pads)] = x.array
    return x.with_array(whole)


def _integer_surround_float64(xp: Any, x: Any, *, pads: Sequence[tuple[int, int]], value: int) -> Any:
    return xp.pad(x, pads, constant_values=value)


def _written(options: Options) -> Format:
    return options["to"].format


_ADDS_TWICE = MULTIPLIES._replace(additions=1)

ROWS = (
    Row("quantize_linear", _quantize_linear, _quantize_float64, as_first, DoneBy.LANES, MULTIPLIES,
        takes_any_format=True, format_of=_written),
    Row("bipolar", _bipolar, _bipolar_float64, as_first, DoneBy.LANES, MOVES, takes_any_format=True,
        format_of=_written, is_counted=False),
    Row("dequantize_linear", _dequantize_linear, _dequantize_float64, as_first, DoneBy.LANES, MULTIPLIES,
        takes_any_format=True),
    Row("dynamic_quantize", _dynamic_quantize, _dynamic_float64, _dynamic_asks, DoneBy.LANES, ROUNDS,
        takes_any_format=True, format_of=_dynamic_format),
    Row("integer_matmul", _integer_matmul, _product_float64(matmul_float64), matmul_asks, DoneBy.UNIT, PRODUCTS,
        takes_any_format=True, format_of=lambda options: options.get("to", SUMS)),
    Row("integer_conv2d", _integer_conv2d, _product_float64(conv2d_float64, is_convolution=True), _conv2d_asks,
        DoneBy.UNIT, PRODUCTS, takes_any_format=True, format_of=lambda options: options.get("to", SUMS)),
    Row("integer_add", _integer_add, _add_float64, broadcast, DoneBy.LANES, _ADDS_TWICE, takes_any_format=True,
        format_of=_written),
    Row("integer_multiply", _integer_multiply, _multiply_float64, broadcast, DoneBy.LANES, _ADDS_TWICE,
        takes_any_format=True, format_of=_written),
    Row("integer_surround", _integer_surround, _integer_surround_float64, surround_asks, DoneBy.MOVE, MOVES,
        takes_any_format=True, is_counted=False),
    Row("integer_max_pool", _integer_max_pool, _max_pool_float64, windows_asked, DoneBy.MOVE, COMPARES,
        takes_any_format=True, is_counted=False),
)  # fmt: skip
