"""What operators of quantised networks share: elements, their scales and zero points, as a node's operands say them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.datapath import Affine, Requantiser
from emu.errors import ConfigError
from emu.formats import Fixed, Format, parse_number
from emu.interop.onnx.node import Dequantised, Known, Node, Requantised, Traced

Array = NDArray[Any]
#: Formats of elements, by the name of their dtype.
_FORMATS = {
    "uint8": "ufix8f0", "int8": "fix8f0", "uint16": "ufix16f0", "int16": "fix16f0", "int32": "fix32f0",
    "uint4": "ufix4f0", "int4": "fix4f0", "uint2": "ufix2f0", "int2": "fix2f0",
    "float8_e4m3fn": "fp8_e4m3", "float8_e5m2": "fp8_e5m2", "float4_e2m1fn": "fp4_e2m1",
}  # fmt: skip
#: Types that QuantizeLinear's `output_dtype` numbers, as TensorProto does.
_TYPES = {
    2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 17: "float8_e4m3fn", 19: "float8_e5m2", 21: "uint4", 22: "int4",
    23: "float4_e2m1fn", 25: "uint2", 26: "int2",
}  # fmt: skip

_BYTE = 8


def format_of(dtype: Any) -> Format:
    """Return the format of elements that a file has in a dtype.

    Raises:
        ConfigError: there is none.
    """
    name = np.dtype(dtype).name
    if name not in _FORMATS:
        raise ConfigError(f"elements must be of {', '.join(_FORMATS)}, got {name}; quantise the network into these")
    return parse_number(_FORMATS[name])


def affine_of(scale: Array, zero: Array | None, attributes: Any, ndim: int, elements: Format | None = None) -> Affine:
    """Return what elements stand for, from the operands and attributes of QuantizeLinear or DequantizeLinear.

    Args:
        scale: one, or one for each index of an axis.
        zero: the same for zero points; None is 0.
        attributes: of the node.
        ndim: axes of the tensor.
        elements: format of the elements, if that is known; else it is that of the zero point.

    Raises:
        ConfigError: scales of blocks, an axis that the tensor has not got, a zero point of another type, a type that
            has no format here, floats that do not saturate, or a quotient that is not of float32.
    """
    if attributes.get("block_size", 0) or scale.ndim > 1:
        raise ConfigError("scales must be those of a tensor or of an axis, got blocks; quantise without block_size")
    # the standard's order: type of the zero point, else `output_dtype`, else uint8, which is type 2
    kind = int(attributes.get("output_dtype", 0) or 2)
    if zero is None and elements is None and kind not in _TYPES:
        raise ConfigError(
            f"`output_dtype` must be that of {', '.join(_TYPES.values())}, got the number {kind}; quantise the network "
            "into these"
        )
    fmt = elements or format_of(_TYPES[kind] if zero is None else zero.dtype)
    # the attribute says nothing of integers, and of floats of 4 bits, which have no infinity and no NaN
    if not isinstance(fmt, Fixed) and fmt.width_bits == _BYTE and not attributes.get("saturate", 1):
        raise ConfigError(f"elements of {fmt} must saturate, got saturate = 0; quantise the network with saturate = 1")
    # 0 is that of the scale, which is float32 here
    if attributes.get("precision", 0) not in (0, 1):
        raise ConfigError(
            f"`precision` of a quotient must be float32, type 1, got type {attributes['precision']}; quantise the "
            "network without it"
        )
    if zero is not None and format_of(zero.dtype) != fmt:
        raise ConfigError(
            f"zero points must have the type of the elements, {fmt}, got {zero.dtype}; quantise the network again"
        )
    axis = int(attributes.get("axis", 1))
    if scale.size > 1 and not -ndim <= axis < ndim:
        raise ConfigError(f"`axis` must be in {-ndim}..{ndim - 1}, got {axis}; export the file again")
    # a scalar has no axis to count
    axis %= max(ndim, 1)
    # elements that are floats have no zero point but 0
    points = 0 if zero is None or not isinstance(fmt, Fixed) else np.asarray(zero).astype(np.int64)
    return Affine.of(fmt, scale, points, axis)


def requantised_of(how: Affine, low: float, high: float) -> Requantised:
    """Return the elements that QuantizeLinear makes of numbers which relu or clip bounds to low..high."""

    def element(number: float) -> int | None:
        if math.isinf(number) or not isinstance(how.format, Fixed):
            return None
        # as QuantizeLinear: quotient in float32, ties to even, zero point after rounding, then saturated
        # a quotient beyond float32, as of a bound that stands for none, is infinite, and saturates too
        with np.errstate(over="ignore"):
            q = float(np.rint(np.float32(number) / how.scale)) + int(how.zero)
        return int(min(max(q, how.format.min), how.format.max))

    return Requantised(how, element(low), element(high))


def elements_of(node: Node, index: int) -> tuple[Traced | Known, Format]:
    """Return an operand that has elements, and their format.

    Raises:
        Refused: it has float32 numbers, or tokens.
    """
    q = node.held(index)
    # format None is that of tokens
    if isinstance(q, Traced) and q.format is not None and not q.is_float:
        return q, q.format
    if isinstance(q, Known) and q.array.dtype != np.float32:
        return q, format_of(q.array.dtype)
    held = "float32" if isinstance(q, Dequantised | Known) or (q is not None and q.is_float) else "none"
    raise node.refuse(f"hold elements as operand {index}", held, "quantise it before this node")


def operand_at(node: Node, first: int) -> Dequantised:
    """Return an operand with its scale and zero point, which are the two operands after it."""
    q, elements = elements_of(node, first)
    return Dequantised(q, points_of(node, first + 1, elements))


def points_of(node: Node, first: int, fmt: Format | None, axis: int = 0) -> Affine:
    """Return a scale and a zero point of a node, in the format of the zero point if none is given."""
    scale, zero = node.constant(first), node.constant(first + 1)
    if scale is None:
        raise node.refuse(f"have a scale as operand {first}", "none", "export the file again")
    return affine_of(scale, zero, {"axis": axis}, 1, fmt or format_of(zero.dtype if zero is not None else np.uint8))


def requantiser_of(reader_makes: Requantised) -> Requantiser:
    """Return what makes elements of sums for the reader of a product."""
    how, bounds = reader_makes.how, (reader_makes.lowest, reader_makes.highest)
    return Requantiser(reader_makes.kind, float(how.scale), int(how.zero), *bounds, reader_makes.rounding)


def traced_elements(node: Node, x: Dequantised) -> Traced:
    """Return elements that must depend on the input.

    Raises:
        Refused: they are constants.
    """
    if isinstance(x.elements, Known):
        raise node.refuse("read what the network computes", "constant elements", "simplify the file with onnxsim")
    return x.elements
