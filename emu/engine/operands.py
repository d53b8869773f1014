"""The first station of every operation: an operand becomes a carrier array and its format.

v = emu.value([0.5, -1.0], "fix8f4")    the format said once, the values checked once
as_operand(v, None, "a", check=True)    a value as it is; a plain array with the format beside it
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import is_on_device, namespace, on_host
from emu.backends.interface import FormatCode, RandomCode, encode_format, encode_stage
from emu.backends.registry import load
from emu.datapath import OutputStage, Overflow
from emu.datapath.stage import require_placed
from emu.errors import FormatError
from emu.formats import PRESETS, Fixed, Float, Format, Value, parse

Array = NDArray[Any]
_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def value(array: Any, fmt: str | Format, *, check: bool = True) -> Value:
    """Return an array with its format, for every operation that takes operands.

    The value holds its own array, which is read-only: what was checked once stays a value of the format.

    Args:
        array: values of `fmt`, any shape: numbers, a NumPy or CuPy array.
        fmt: their format.
        check: whether to check that every number is a value of the format.

    Raises:
        FormatError: a number is not a value of the format; names the first one.

    Examples:
        >>> value([0.5, -1.0], "fix8f4")
        Value([ 0.5, -1. ], 'fix8f4')

    Source: docs/concepts/units.md, "A value".
    """
    placed = require_placed(parse(fmt))
    if isinstance(array, Value) and array.format not in (None, placed):
        raise FormatError(
            f"`array` must hold numbers, or be a value of {placed}, got a value of {array.format}; convert it with "
            "emu.quantize"
        )
    carrier, found = as_operand(array, placed, "array", check=check)
    if carrier is array and not is_on_device(carrier):
        carrier = carrier.copy()
    if type(carrier) is np.ndarray:
        if carrier.base is not None:
            carrier = carrier.copy()
        carrier.flags.writeable = False
    return Value(carrier, found)


def as_operand(x: Any, fmt: str | Format | None, name: str, *, check: bool) -> tuple[Array, Format | None]:
    """Return an operand's carrier and format: those of a value, or a plain array's, its elements checked.

    Args:
        x: a `Value`, or numbers.
        fmt: format of numbers; None takes floats and integers at their exact values. With a value: None, or its own.
        name: what the caller calls it.
        check: whether to check that numbers belong to the format; a value was checked when it was made.

    Raises:
        FormatError: a number does not belong to the format; names the operand, the first offender and the remedy. A
            value has another format.
    """
    is_array = type(x) is np.ndarray
    if not is_array:
        if isinstance(x, Value):
            x, fmt, check = _of_value(x, fmt, name, check=check)
        is_array = type(x) is np.ndarray or is_on_device(x)
    if fmt is None:
        return as_carrier(x, name)
    if is_array and not check and isinstance(fmt, (Fixed, Float)) and x.dtype == fmt.carrier:
        return x, fmt
    parsed = parse(fmt)
    if is_on_device(x):
        return _on_device(x, parsed, name, check=check), parsed
    array = np.asarray(x)
    if check:
        inside = parsed.contains(array)
        if not inside.all():
            try:
                parsed.encode(array)
            except FormatError as error:
                raise FormatError(f"`{name}`: {error}") from None
    carrier = np.asarray(array, dtype=parsed.carrier)
    if check and carrier.dtype.kind == "f" and not (isinstance(parsed, Float) and parsed.has_negative_zero):
        carrier = carrier + 0.0  # -0.0 counts as 0 where the format has no -0
    return carrier, parsed


def _of_value(x: Value, fmt: str | Format | None, name: str, *, check: bool) -> tuple[Any, Any, bool]:
    """Return array, format, and whether its elements are still to be checked."""
    if x.format is None:
        return x.array, fmt, check
    if fmt is not None and parse(fmt) != x.format:
        raise FormatError(
            f"`{name}` is a value of {x.format}, and `{name}_format` says {fmt}; leave `{name}_format` out"
        )
    return x.array, x.format, False


def in_format(x: Any, fmt: str | Format | None, name: str, *, check: bool) -> tuple[Array, Format]:
    """Return the carrier and format of an operand that needs one.

    Raises:
        FormatError: a plain array without a format; see `as_operand`.
    """
    if fmt is None and (not isinstance(x, Value) or x.format is None):
        raise FormatError(
            f"`{name}` must have a format, got an array without one; give emu.value(array, FORMAT), `{name}_format` "
            "of a function, or `inputs` of a unit"
        )
    array, found = as_operand(x, fmt, name, check=check)
    assert found is not None
    return array, found


def as_carrier(x: Any, name: str = "x") -> tuple[Array, Fixed | None]:
    """Return any real array as float32, float64, or int64/uint64 with the integer format that says so.

    Every integer dtype, and bool, is the same 64-bit integer (unsigned for uint64): registers and flags never depend
    on how narrow an array the caller used.

    Raises:
        FormatError: the array holds neither integers nor floats.
    """
    array = as_array(x)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype == np.float16:
        array = array.astype(np.float32)
    if array.dtype in _FLOATS:
        return array, None
    if array.dtype.kind in "iub":
        unsigned = array.dtype == np.uint64
        return array.astype(np.uint64 if unsigned else np.int64), Fixed(64, 0, signed=not unsigned)
    raise FormatError(f"`{name}` must be an array of real numbers, got dtype {array.dtype}")


def _on_device(x: Any, fmt: Format, name: str, *, check: bool) -> Array:
    """Return an operand's carrier where it is; its values are checked on the host."""
    if not check:
        return x if x.dtype == fmt.carrier else _converted(x, fmt.carrier)
    checked = as_operand(on_host(x), fmt, name, check=True)[0]
    return namespace(x).asarray(checked)


def _converted(x: Any, carrier: np.dtype[Any]) -> Array:
    """Return a device's array in another carrier; floats by kernels, since CuPy takes float32 subnormals for 0."""
    if x.dtype not in _FLOATS or carrier not in _FLOATS:
        return x.astype(carrier)
    stage = encode_stage(OutputStage(PRESETS["fp64" if carrier == np.float64 else "fp32"], overflow=Overflow.IEEE))
    return load("cuda").quantize(x, None, stage, RandomCode(0, 0, 0, 0, None), None, None).values


def as_array(x: Any) -> Array:
    """Return an array of the host or of a device as it is, anything else as NumPy's."""
    return x if is_on_device(x) else np.asarray(x)


@lru_cache(maxsize=1024)
def codes_of(formats: tuple[Format | None, ...]) -> tuple[FormatCode | None, ...]:
    """Return the integers of several formats."""
    return tuple(code_of(fmt) for fmt in formats)


def code_of(fmt: Format | None) -> FormatCode | None:
    """Return the integers of a format, None for a plain float array."""
    return None if fmt is None else encode_format(fmt)
