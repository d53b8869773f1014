"""Arrays with their formats, checked once: what every operation takes."""

from __future__ import annotations

from typing import Any, overload

import numpy as np

from emu.backends.arrays import is_on_device
from emu.datapath.stage import require_placed
from emu.engine.operands import as_operand
from emu.engine.scaled import as_scaled
from emu.errors import FormatError
from emu.formats import Format, Scaled, ScaledValue, Value, parse


@overload
def value(array: Any, fmt: Scaled, *, check: bool = True, axis: int | None = None) -> ScaledValue: ...
@overload
def value(array: Any, fmt: str | Format, *, check: bool = True, axis: int | None = None) -> Value: ...
def value(
    array: Any, fmt: str | Format | Scaled, *, check: bool = True, axis: int | None = None
) -> Value | ScaledValue:
    """Return an array with its format, for every operation that takes operands.

    On the host, the value holds its own array, which is read-only, and every NaN is the canonical one: what was checked
    once stays a value of the format. An array of a device stays writable and keeps its NaNs; unchecked and in the
    carrier already, it is the caller's own.

    Args:
        array: values of `fmt`, any shape: numbers, a NumPy or CuPy array. Of a scaled format numbers that its rule
            writes exactly as they are; or a tuple: the elements, then the scales of each level, the finest first.
        fmt: their format.
        check: whether to check that every number is a value of the format.
        axis: of scaled formats: the axis along which blocks lie; None is the last.

    Raises:
        FormatError: a number is not a value of the format; names the first one.
        ShapeError: of scaled formats: no such axis, blocks that do not divide it, or scales of another shape.

    Examples:
        >>> value([0.5, -1.0], "fix8f4")
        Value([ 0.5, -1. ], 'fix8f4')
        >>> value(([1.5, 3.0], [0.5]), "block(fp4_e2m1, fp8_e8m0 1x2 floor)").tolist()
        [0.75, 1.5]

    Source: docs/concepts/units.md, "A value".
    """
    parsed = parse(fmt)
    if isinstance(parsed, Scaled):
        return as_scaled(array, parsed, -1 if axis is None else axis, check=check)
    placed = require_placed(parsed)
    if axis is not None:
        raise FormatError(
            f"`axis` must be left out for a format whose elements share no scales, got {placed}; name a scaled format, "
            "as mxfp8_e4m3"
        )
    if isinstance(array, Value) and array.format not in (None, placed):
        raise FormatError(
            f"`array` must hold numbers, or be a value of {placed}, got a value of {array.format}; convert it with "
            "emu.quantize"
        )
    carrier, own_format = as_operand(array, placed, "array", check=check)
    if not is_on_device(carrier):
        carrier = np.array(carrier)  # it may be the caller's, or what the caller's object gave NumPy
        if carrier.dtype.kind == "f":
            carrier[np.isnan(carrier)] = np.nan  # the canonical one: bits of NaN differ from machine to machine
        carrier.flags.writeable = False
    return Value(carrier, own_format)
