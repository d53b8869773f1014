"""QONNX: numbers that are rounded to a few bits and stay floats, as Brevitas, FINN and hls4ml exchange them.

    x ──► Quant(scale, zero point, bits) ──► Conv ──► Relu ──► Quant ──► ...

What a Quant gives is known by its elements. So a product of two adds integers, exactly, and a Quant behind it rounds
the exact quotient once: the requantiser `exact`, in the rounding mode of the Quant.

Source: QONNX 1.0, qonnx.custom_op.general: Quant (IntQuant), BipolarQuant, Trunc, FloatQuant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu import engine
from emu.datapath import Affine, RequantiserKind, Rounding
from emu.errors import ConfigError
from emu.formats import Fixed, Float
from emu.interop.onnx.node import Dequantised, Held, Known, Node, Requantised
from emu.operations.integers import Written

Array = NDArray[Any]
#: The domains that QONNX has had.
DOMAINS = ("qonnx.custom_op.general", "finn.custom_op.general", "onnx.brevitas")
#: Emu's names of the rounding modes. "Half up" and "up" are away from zero there.
ROUNDING = {
    "ROUND": Rounding.NEAREST_EVEN, "HALF_EVEN": Rounding.NEAREST_EVEN, "CEIL": Rounding.CEIL,
    "FLOOR": Rounding.FLOOR, "UP": Rounding.AWAY_FROM_ZERO, "DOWN": Rounding.TOWARD_ZERO,
    "HALF_UP": Rounding.NEAREST_AWAY, "HALF_DOWN": Rounding.NEAREST_ZERO,
}  # fmt: skip
#: Widest elements.
MOST_BITS = 32


def _rounding(attributes: Mapping[str, Any], default: str = "ROUND") -> Rounding:
    name = str(attributes.get("rounding_mode", default)).upper()
    if name not in ROUNDING:
        raise ConfigError(f"`rounding_mode` must be one of {', '.join(ROUNDING)}, got {name}; export it again")
    return ROUNDING[name]


def _whole(name: str, array: Array | None) -> float:
    """Return a number that serves the whole tensor."""
    # repetitions of one number serve as well
    if array is None or np.unique(array).size != 1:
        raise ConfigError(f"`{name}` must be one number for the tensor, got {array}; export it with one")
    return float(array.reshape(-1)[0])


def _scales(scale: Array, ndim: int) -> tuple[Array, int | None]:
    """Return scales as a vector, and the axis along which they differ; a single scale as a scalar, and None."""
    long = [axis for axis, size in enumerate(scale.shape) if size > 1]
    if not long:
        return scale.reshape(()), None
    if len(long) > 1:
        raise ConfigError(f"scales must be those of a tensor or of an axis, got the shape {scale.shape}; export one")
    # counted from the front of the tensor: shapes of scales broadcast from the last axis on
    return scale.reshape(-1), long[0] + ndim - scale.ndim


def quantiser_of(arrays: Sequence[Array], attributes: Mapping[str, Any], ndim: int) -> tuple[Affine, Written]:
    """Return what the elements of a Quant stand for, and how numbers become elements.

    Args:
        arrays: scale, zero point and bits.
        attributes: of the node.
        ndim: axes of the tensor.

    Raises:
        ConfigError: bits that no element has, scales of several axes, an unknown rounding mode.
    """
    bits, signed, narrow = _whole("bitwidth", arrays[2]), bool(attributes.get("signed", 1)), attributes.get("narrow", 0)
    if bits != int(bits) or not 1 <= bits <= MOST_BITS or (bits == 1 and signed):
        raise ConfigError(
            f"`bitwidth` must be an integer in 1..{MOST_BITS}, from 2 on with a sign, got {bits:g}; use BipolarQuant "
            "for -1 and 1"
        )
    fmt = Fixed(int(bits), 0, signed=signed)
    scale, axis = _scales(np.asarray(arrays[0], np.float32), ndim)
    zero = _whole("zeropt", arrays[1])
    if zero != int(zero):
        raise ConfigError(f"`zeropt` must be an integer, got {zero:g}; export the network with integer zero points")
    # narrow: symmetric with a sign, without the largest code otherwise
    lowest, highest = (float(fmt.min) + 1 if signed else None), (None if signed else float(fmt.max) - 1)
    bounds = (lowest, highest) if narrow else (None, None)
    return Affine.of(fmt, scale, int(zero), axis), Written(True, None, _rounding(attributes), *bounds)


def requantised_by_quant(
    arrays: Sequence[Array], attributes: Mapping[str, Any], low: float, high: float
) -> Requantised | None:
    """Return the elements that a Quant makes of numbers that relu bounds to low..high; None if it cannot be said.

    With a zero point the order of rounding and adding matters at ties, so that such a Quant stays a step of its own.
    """
    how, written = quantiser_of(arrays, attributes, 1)
    # a bound above that is finite, of clip, cannot be told from the largest element here
    if not how.is_whole or how.zero.any() or not np.isinf(high):
        return None
    assert isinstance(how.format, Fixed)
    if how.format.width_bits > 16:
        return None
    bounds = [None if bound is None else int(bound) for bound in (written.lowest, written.highest)]
    if np.isfinite(low):
        # relu: without a zero point, element 0 stands for 0
        if low != 0:
            return None
        bounds[0] = 0
    return Requantised(how, bounds[0], bounds[1], RequantiserKind.EXACT, written.rounding)


def _constants(node: Node, count: int) -> list[Array]:
    arrays = [node.constant(i) for i in range(1, count + 1)]
    if any(array is None for array in arrays):
        raise node.refuse(f"have {count + 1} operands", len(node.inputs), "export the file again")
    return [array for array in arrays if array is not None]


def _quant(node: Node) -> Sequence[Held]:
    x = node.held(0)
    assert x is not None
    how, written = quantiser_of(_constants(node, 3), node.attributes, len(x.shape))
    return [_elements(node, x, how, written)]


def _elements(node: Node, x: Held, how: Affine, written: Written, part: str = "") -> Dequantised:
    """Return a tensor by the elements that it becomes; those of constants are computed at once."""
    if isinstance(x, Dequantised) and x.how.equals(how) and (written.lowest, written.highest) == (None, None):
        return x
    if isinstance(x, Dequantised) and _is_within(x, written) and x.how.equals(how):
        return x
    tensor = node.as_float(x) if isinstance(x, Dequantised) else x
    if not isinstance(tensor, Known):
        return Dequantised(node.apply("quantize_linear", tensor, part=part, to=how, how=written), how)
    scale, zero = how.beside(tensor.array.ndim)
    # as a step does it: zero point added to the quotient before it is rounded
    quotient = tensor.array.astype(np.float32) / scale + zero.astype(np.float32)
    # elements that are floats saturate at the largest finite one
    rule: Any = {} if how.is_integer else {"overflow": "satfinite"}
    array = np.asarray(engine.quantize(quotient, how.format, rounding=written.rounding, backend="reference", **rule))
    array = (
        np.clip(array, written.lowest, written.highest) if (written.lowest, written.highest) != (None, None) else array
    )
    return Dequantised(Known(array.astype(np.int64) if how.is_integer else array, tensor.name), how)


def _is_within(x: Dequantised, written: Written) -> bool:
    is_above = written.lowest is None or (x.lowest is not None and x.lowest >= written.lowest)
    return is_above and (written.highest is None or (x.highest is not None and x.highest <= written.highest))


def _bipolar(node: Node) -> Sequence[Held]:
    """The signs of numbers, 1 of 0."""
    x, [given] = node.operand(0), _constants(node, 1)
    scale, axis = _scales(np.asarray(given, np.float32), len(x.shape))
    # two bits: one signed bit has -1 and 0
    how = Affine.of("fix2f0", scale, 0, axis)
    if isinstance(x, Known):
        return [Dequantised(Known(np.where(x.array >= 0, 1, -1), x.name), how)]
    return [Dequantised(node.apply("bipolar", x, to=how), how)]


def _trunc(node: Node) -> Sequence[Held]:
    """Low bits of elements dropped. Version 1 keeps the scale of the input; version 2 has a scale of its own."""
    x = node.held(0)
    assert x is not None
    given = _constants(node, 5 if len(node.inputs) > 5 else 4)
    scale, zero, bits = _whole("scale", given[0]), _whole("zeropt", given[1]), int(_whole("in_bitwidth", given[2]))
    is_second = len(given) == 5
    out_bits = int(_whole("out_bitwidth", given[-1]))
    drop = round(float(np.log2(_whole("out_scale", given[3]) / scale))) if is_second else bits - out_bits
    if zero:
        raise node.refuse("have the zero point 0", f"{zero:g}", "export the network without zero points")
    signed = bool(node.get("signed", 1)) if is_second else True
    # elements at the input's scale, in the widest format
    wide = Affine.of(Fixed(MOST_BITS, 0), scale)
    elements = _elements(node, x, wide, Written(True), part="elements")
    narrow, rounding = bool(node.get("narrow", 0)) and is_second, _rounding(node.attributes, "FLOOR")
    fmt = Fixed(out_bits, 0, signed=signed) if is_second else Fixed(MOST_BITS, 0)
    bounds = (float(fmt.min) + 1 if narrow and signed else None, float(fmt.max) - 1 if narrow and not signed else None)
    # elements as numbers: dividing by 2**drop and rounding drops the low bits
    to = Affine.of(fmt, 2.0**drop)
    q = _elements(node, elements.elements, to, Written(True, None, rounding, *bounds), part="kept")
    result = _whole("out_scale", given[3]) if is_second else scale
    return [Dequantised(q.elements, Affine.of(fmt, result))]


def _float_quant(node: Node) -> Sequence[Held]:
    """Elements are floats of a few bits; they saturate at the largest one, or at `max_val`."""
    x = node.held(0)
    assert x is not None
    given = _constants(node, 5)
    names = ("exponent_bitwidth", "mantissa_bitwidth", "exponent_bias", "max_val")
    exponent, mantissa, bias, largest = (_whole(name, array) for name, array in zip(names, given[1:], strict=True))
    if not node.get("saturation", 1):
        raise node.refuse("saturate", "saturation = 0", "export the network with saturating floats")
    signed = bool(node.get("signed", 1))
    fmt = Float(int(exponent), int(mantissa), int(bias), infinities=False, nans="none", signed=signed)
    scale, axis = _scales(np.asarray(given[0], np.float32), len(x.shape))
    bounds = (None, None) if largest >= float(fmt.max) else (-largest if signed else 0.0, largest)
    how = Affine.of(fmt, scale, 0, axis)
    return [_elements(node, x, how, Written(False, None, _rounding(node.attributes), *bounds))]


ROWS: dict[str, Callable[[Node], Sequence[Held]]] = {
    "Quant": _quant,
    "IntQuant": _quant,
    "BipolarQuant": _bipolar,
    "Trunc": _trunc,
    "FloatQuant": _float_quant,
}
