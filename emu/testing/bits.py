"""Comparison of bits, and the picture of the first difference.

actual differs from expected in 1 of 4 elements of fp16
first at index (2,)
  actual    0x3c01  0|01111|0000000001  1.0009765625
  expected  0x3c00  0|01111|0000000000  1.0
  distance  1 ulp
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emu.errors import FormatError
from emu.formats import Fixed, Float, Format, parse_number
from emu.formats.arrays import as_float64

Array = NDArray[Any]
MAX_SHOWN = 4
_FLOAT_DTYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}


def assert_bits_equal(actual: ArrayLike, expected: ArrayLike, fmt: str | Format | None = None) -> None:
    """Raise unless two arrays hold the same bits: equal shapes, equal codes.

    Every NaN counts as the canonical one; -0.0 differs from +0.0.

    Args:
        actual: what was computed, any shape. Floats are values; unsigned integers are codes of `fmt`; signed integers
            are raws if `fmt` carries raws, else values.
        expected: what should have come out, the same shape.
        fmt: the format whose codes are compared. None takes it from the dtype: float16, float32 and float64 arrays are
            binary16, 32 and 64, integers are compared as they are, and the dtypes must be equal.

    Raises:
        AssertionError: they differ; the message shows index, codes, fields, values and the distance in ulp.

    Examples:
        >>> assert_bits_equal([1.0, float("nan")], [1.0, -float("nan")], "fp16")
        >>> assert_bits_equal([0.5, -0.0], [0.5, 0.0], "fp16")
        Traceback (most recent call last):
        AssertionError: actual differs from expected in 1 of 2 elements of fp16
        first at index (1,)
          actual    0x8000  1|00000|0000000000  -0.0
          expected  0x0000  0|00000|0000000000  0.0
          distance  0 ulp: the zeros differ in sign
    """
    __tracebackhide__ = True  # pytest then points at the test
    actual, expected = _array_of("actual", actual), _array_of("expected", expected)
    if actual.shape != expected.shape:
        raise AssertionError(f"shapes must be equal, got {actual.shape} and {expected.shape}")
    # without a format each array would be read in that of its own dtype, and codes of two formats cannot be compared
    if fmt is None and actual.dtype != expected.dtype:
        raise AssertionError(
            f"dtypes must be equal to compare bits, got {actual.dtype} and {expected.dtype}; "
            "name the format with `fmt=`"
        )
    known: Format = _format_of(actual.dtype) if fmt is None else parse_number(fmt)
    ours, theirs = codes_of("actual", actual, known), codes_of("expected", expected, known)
    differs = differing(known, ours, theirs, actual, expected)
    if differs.any():
        raise AssertionError(_picture(known, ours, theirs, differs, actual, expected))


def _array_of(name: str, x: Any) -> Array:
    try:
        return np.asarray(x)
    except ValueError:
        raise AssertionError(f"`{name}` must be an array, got {type(x).__name__} of uneven lengths") from None


def differing(fmt: Format, ours: Array, theirs: Array, actual: Array, expected: Array) -> NDArray[np.bool_]:
    """Return where codes differ, or zeros in sign if the format's codes do not tell zeros apart."""
    differs = np.asarray(ours != theirs)
    # such a format encodes -0.0 as 0, so the codes of both zeros are equal, and only the elements show the sign
    if not (isinstance(fmt, Float) and fmt.has_negative_zero):
        differs |= negative_zeros(actual) != negative_zeros(expected)
    return differs


def _format_of(dtype: np.dtype[Any]) -> Format:
    if dtype.name in _FLOAT_DTYPES:
        return parse_number(_FLOAT_DTYPES[dtype.name])
    if dtype.kind in "iu":
        # without fraction bits value and raw are the same integer
        return Fixed(8 * dtype.itemsize, 0, signed=dtype.kind == "i")
    if dtype.kind == "b":
        return Fixed(1, 0, signed=False)
    raise AssertionError(f"arrays must hold floats or integers, got dtype {dtype}; name the format with `fmt=`")


def codes_of(name: str, array: Array, fmt: Format) -> NDArray[np.uint64]:
    """Return codes with every NaN mapped to the canonical one.

    Raises:
        AssertionError: an element is no value of the format.
    """
    plain = replace(fmt, daz=False) if isinstance(fmt, Float) else fmt  # DAZ would decode subnormal codes as 0
    try:
        # unsigned integers are codes already; decoding and encoding them maps every NaN to the canonical code
        if array.dtype.kind in "ub":
            array = plain.decode(array.astype(np.uint64))
        return plain.encode(array).astype(np.uint64)
    except FormatError as error:
        raise AssertionError(f"`{name}` does not hold values of {fmt}: {error}") from None


def negative_zeros(array: Array) -> NDArray[np.bool_]:
    """Return where a float array holds -0.0."""
    if array.dtype.kind in "iub":
        return np.zeros(array.shape, dtype=bool)
    wide = as_float64(array)
    return np.asarray((wide == 0) & np.signbit(wide))


def _picture(
    fmt: Format, ours: Array, theirs: Array, differs: NDArray[np.bool_], actual: Array, expected: Array
) -> str:
    where = np.argwhere(differs)
    lines = [f"actual differs from expected in {len(where)} of {differs.size} elements of {fmt}"]
    for row in where[:MAX_SHOWN]:
        index = tuple(int(i) for i in row)
        lines.append(f"{'first' if len(lines) == 1 else 'then'} at index {index}")
        lines += describe_pair(fmt, (int(ours[index]), int(theirs[index])), (actual[index], expected[index]))
    if len(where) > MAX_SHOWN:
        lines.append(f"... and {len(where) - MAX_SHOWN} more")
    return "\n".join(lines)


def describe_pair(fmt: Format, codes: tuple[int, int], elements: tuple[Any, Any]) -> list[str]:
    """Return the lines that show an actual and an expected code, and their distance."""
    return [
        f"  actual    {describe_code(fmt, codes[0], elements[0])}",
        f"  expected  {describe_code(fmt, codes[1], elements[1])}",
        f"  distance  {_distance(fmt, *codes)}",
    ]


def describe_code(fmt: Format, code: int, element: Any = None) -> str:
    """Return a code in hex, in binary with field separators, and its value.

    Floats are written sign|exponent|fraction, fixed-point words sign integer.fraction (no point if it lies outside
    the word); unsigned ones have no sign.

    Args:
        fmt: the code's format.
        code: a code of it.
        element: the array element it came from; a -0.0 that the format cannot encode is pointed out.

    Examples:
        >>> describe_code(Fixed(8, 4), 0xE8)
        '0xe8  1 110.1000  -1.5'
    """
    digits = -(-fmt.width_bits // 4)
    return f"0x{code:0{digits}x}  {fields_of(fmt, code)}  {_value(fmt, code, element)}"


def fields_of(fmt: Format, code: int) -> str:
    """Return a code in binary with field separators, as `describe_code` has it."""
    bits = f"{code:0{fmt.width_bits}b}"
    if isinstance(fmt, Float):
        sign, field = f"{bits[0]}|" * fmt.signed, fmt.signed + fmt.exponent_bits
        return f"{sign}{bits[fmt.signed : field]}|{bits[field:]}"
    # bits to the left of the point, the sign among them: negative, or above width_bits, if the point lies outside the
    # word
    point = fmt.width_bits - fmt.frac_bits
    sign = 1 if fmt.signed else 0
    whole, fraction = bits[sign:point], bits[max(point, sign) :]
    word = f"{whole}.{fraction}" if sign <= point < fmt.width_bits else bits[sign:]
    return f"{bits[0]} {word}".rstrip() if fmt.signed else word


def _value(fmt: Format, code: int, element: Any) -> str:
    if code == 0 and element is not None and negative_zeros(np.asarray(element)):
        return "-0.0, which the format does not have"
    value = fmt.decode(np.array(code, dtype=np.uint64))[()]
    if fmt.carries_raws:
        return f"raw {int(value)}"
    return repr(float(value))


def _distance(fmt: Format, ours: int, theirs: int) -> str:
    # a NaN has no place among the values, so no distance to them
    if isinstance(fmt, Float) and any(math.isnan(fmt.decode(np.array(c, dtype=np.uint64))[()]) for c in (ours, theirs)):
        return "undefined: one is NaN"
    # Both zeros have ordinal 0. So two codes at distance 0 are the zeros, or elements whose zeros the format's codes do
    # not tell apart (`differing`).
    steps = abs(_ordinal(fmt, ours) - _ordinal(fmt, theirs))
    return f"{steps} ulp" if steps else "0 ulp: the zeros differ in sign"


def _ordinal(fmt: Format, code: int) -> int:
    """Return the position of a code among the format's values: neighbours differ by 1."""
    # the sign bit; of an unsigned format the bit above the word, which no code has
    sign = 1 << (fmt.width_bits - fmt.signed)
    if isinstance(fmt, Float) or fmt.sign_magnitude:
        # sign and magnitude: the codes of one sign ascend with the magnitude, subnormals and binades alike
        return -(code - sign) if code & sign else code
    # two's complement: the sign bit weighs -2**(width_bits - 1)
    return code - 2 * sign if fmt.signed and code & sign else code
