"""Integers with scales and zero points once more, in Python's integers and fractions, as the sources say.

Nothing of emu is used. binary32 and binary64 are those of NumPy's scalars, whose operations round once.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

INT32 = (-(2**31), 2**31 - 1)


def wrap32(x: int) -> int:
    return (x + 2**31) % 2**32 - 2**31


def nearest(x: Fraction, *, away: bool = False) -> int:
    """Return the nearest integer; of two the even one, or that away from zero."""
    if not away:
        return round(x)
    return math.floor(abs(x) + Fraction(1, 2)) * (1 if x >= 0 else -1)


def q31(a: float, b: float, y: float) -> tuple[int, int]:
    """Return the multiplier of 31 bits and the shift of gemmlowp's `QuantizeMultiplier`."""
    fraction, shift = math.frexp(float(np.float64(a) * np.float64(b) / np.float64(y)))
    m = nearest(Fraction(fraction) * 2**31, away=True)
    if m == 2**31:
        m, shift = m // 2, shift + 1
    return (0, 0) if shift < -31 else (m, shift)


def double_rounding(x: int, m: int, shift: int) -> int:
    """gemmlowp: saturating rounding doubling high multiply, then a rounding divide by a power of two."""
    x = wrap32(x * 2 ** max(shift, 0))
    product = x * m
    nudge = 2**30 if product >= 0 else 1 - 2**30
    high = abs(product + nudge) // 2**31 * (1 if product + nudge >= 0 else -1)
    return nearest(Fraction(high, 2 ** max(-shift, 0)), away=True)


def single_rounding(x: int, m: int, shift: int) -> int:
    rounded = (x * m + (1 << (30 - shift))) >> (31 - shift)
    return min(max(rounded, INT32[0]), INT32[1])


def float32(x: int, a: float, b: float, y: float) -> int:
    with np.errstate(all="ignore"):
        s = np.float32(np.float32(a) * np.float32(b)) / np.float32(y)
        product = np.float32(x) * s
    return round(float(product)) if abs(product) < 2**40 else (2**40 if product > 0 else -(2**40))


def exact(x: int, a: float, b: float, y: float) -> int:
    return nearest(x * Fraction(a) * Fraction(b) / Fraction(y))


def requantised(kind: str, x: int, a: float, b: float, y: float, zero: int, ends: tuple[int, int]) -> int:
    """Return the element of one sum."""
    if kind in ("float32", "exact"):
        rounded = {"float32": float32, "exact": exact}[kind](x, a, b, y)
    else:
        m, shift = q31(a, b, y)
        rounded = {"double_rounding": double_rounding, "single_rounding": single_rounding}[kind](x, m, shift)
    return min(max(rounded + zero, ends[0]), ends[1])


def chosen_by_ort(numbers: list[float], ends: tuple[int, int]) -> tuple[np.float32, int]:
    """Return scale and zero point of ONNX's DynamicQuantizeLinear."""
    low, high = np.float32(min(*numbers, 0.0)), np.float32(max(*numbers, 0.0))
    with np.errstate(all="ignore"):
        scale = np.float32(high - low) / np.float32(ends[1] - ends[0])
        if scale == 0:  # a range of 0, or below binary32
            scale = np.float32(1)
        start = np.float32(ends[0]) - np.float32(low / scale)
    return scale, round(float(min(max(start, np.float32(ends[0])), np.float32(ends[1]))))


def chosen_by_tflite(numbers: list[float], ends: tuple[int, int]) -> tuple[np.float32, int]:
    """Return scale and zero point of TensorFlow Lite's `ChooseQuantizationParams`, in binary64."""
    low, high = min(*numbers, 0.0), max(*numbers, 0.0)
    if low == high:
        return np.float32(1), 0
    scale = (high - low) / (ends[1] - ends[0])
    with np.errstate(all="ignore"):
        from_low, from_high = np.float64(ends[0]) - np.float64(low) / scale, ends[1] - np.float64(high) / scale
        errors = abs(ends[0]) + abs(np.float64(low) / scale), abs(ends[1]) + abs(np.float64(high) / scale)
        point = from_low if errors[0] < errors[1] else from_high
        stored = np.float32(scale)
    return np.float32(1) if stored == 0 else stored, nearest(
        Fraction(float(min(max(point, ends[0]), ends[1]))), away=True
    )


def element(x: float, scale: np.float32, zero: int, ends: tuple[int, int], *, away: bool) -> int:
    """Return QuantizeLinear of a number: divided in binary32, rounded, moved by the zero point, bounded."""
    with np.errstate(all="ignore"):
        quotient = np.float32(x) / scale
    if not np.isfinite(quotient):
        return ends[1] if quotient > 0 else ends[0]
    return min(max(nearest(Fraction(float(quotient)), away=away) + zero, ends[0]), ends[1])
