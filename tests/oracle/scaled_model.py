"""Scaled formats once more, in fractions: scales and codes of one block, as the sources of each rule say.

Nothing of emu is used. Codes of elements and scales are those of ml_dtypes.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

Number = Fraction | float  # a float is an infinity or NaN
MAX = Fraction(2**24 - 1) * Fraction(2) ** 104
LEAST = Fraction(1, 10**4)


def all_codes(dtype: Any, *, width_bits: int = 8) -> list[Number]:
    """Return the value of each code."""
    kind = np.dtype(dtype)
    values = np.arange(1 << width_bits, dtype=np.uint8).view(kind).astype(np.float64)
    return [Fraction(v) if math.isfinite(v) else v for v in values.tolist()]


def of_float(x: float) -> Number:
    return Fraction(x) if math.isfinite(x) else x


class Codes:
    """A format as its codes: the value of each.

    Attributes:
        values: of each code.
        finite: magnitudes, ascending, and their codes.
    """

    def __init__(self, values: list[Number], *, signed: bool = True) -> None:
        self.values = values
        magnitudes = values[: len(values) // 2] if signed else values
        known = ((v, code) for code, v in enumerate(magnitudes) if isinstance(v, Fraction) and v >= 0)
        self.finite = sorted(known)
        self.largest = self.finite[-1][0]

    def nearest(self, magnitude: Fraction) -> int:
        """Return the code nearest to a magnitude, the even one of two, the largest beyond the range."""
        above = min(bisect_left(self.finite, (magnitude, 0)), len(self.finite) - 1)
        (low, low_code), (high, high_code) = self.finite[max(above - 1, 0)], self.finite[above]
        if magnitude - low == high - magnitude:
            return low_code if low_code % 2 == 0 else high_code
        return low_code if magnitude - low < high - magnitude else high_code


E4M3 = Codes(all_codes(ml_dtypes.float8_e4m3fn))
E5M2 = Codes(all_codes(ml_dtypes.float8_e5m2))
E2M3 = Codes(all_codes(ml_dtypes.float6_e2m3fn, width_bits=6))
E3M2 = Codes(all_codes(ml_dtypes.float6_e3m2fn, width_bits=6))
E2M1 = Codes(all_codes(ml_dtypes.float4_e2m1fn, width_bits=4))
UE4M3 = Codes(all_codes(ml_dtypes.float8_e4m3fn)[:128], signed=False)
#: Fraction bits of each element format, its leading exponent and its largest value, as the OCP standard lists them.
ELEMENTS = {
    "fp8_e4m3": (E4M3, 3, 8),
    "fp8_e5m2": (E5M2, 2, 15),
    "fp6_e2m3": (E2M3, 3, 2),
    "fp6_e3m2": (E3M2, 2, 4),
    "fp4_e2m1": (E2M1, 1, 2),
}


def floor_log2(x: Fraction) -> int:
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if Fraction(2) ** e <= x else e - 1


def ceil_log2(x: Fraction) -> int:
    e = floor_log2(x)
    return e if Fraction(2) ** e == x else e + 1


def f32(x: Number) -> Number:
    """Return a number rounded to binary32, to nearest even, subnormals kept."""
    if not isinstance(x, Fraction) or x == 0:
        return x
    step = Fraction(2) ** (max(floor_log2(abs(x)), -126) - 23)
    rounded = round(x / step) * step  # of Python: to nearest even
    if abs(rounded) > MAX:
        return math.inf if x > 0 else -math.inf
    return rounded


def as_fraction(x: Number) -> Fraction:
    assert isinstance(x, Fraction)
    return x


def times(a: Number, b: Number) -> Number:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return f32(a * b)
    return float(a) * float(b)


def over(a: Number, b: Number) -> Number:
    if isinstance(a, Fraction) and isinstance(b, Fraction) and b:
        return f32(a / b)
    with np.errstate(all="ignore"):
        return of_float(float(np.float64(float(a)) / np.float64(float(b))))


def least_of(a: Number, b: Number) -> Number:
    """Return the smaller; of a number and NaN the number."""
    return b if isinstance(a, float) and math.isnan(a) else a if isinstance(b, float) and math.isnan(b) else min(a, b)


def power(e: int) -> Fraction:
    return Fraction(2) ** min(max(e, -127), 127)


def half_away(x: Fraction, bits: int) -> Number:
    """Return binary32 rounded to fewer fraction bits by its code: half a step is added, and the rest dropped."""
    code = int(np.array(float(x), np.float32).view(np.uint32))
    drop = 23 - bits
    code = (code + (1 << drop >> 1)) >> drop << drop
    return of_float(float(np.array(code, np.uint32).view(np.float32)))


@dataclass(frozen=True)
class Block:
    """What a block becomes: the numbers of its levels, codes without sign, and signs."""

    scale: Number
    outer: Number | None
    codes: list[int]


def power_scale(rule: str, amax: Fraction, element: str) -> Number:
    """Return the scale of E8M0 rules for a largest magnitude that is finite."""
    codes, bits, emax = ELEMENTS[element]
    if rule == "rceil":
        d = times(amax, f32(1 / codes.largest))
        assert isinstance(d, Fraction)
        return power(-127 if d <= Fraction(2) ** -127 else ceil_log2(d))
    if rule == "deepgemm_power":
        s = over(max(amax, f32(LEAST)), codes.largest)
        assert isinstance(s, Fraction)
        return power(ceil_log2(s))
    if rule == "te_power":
        encode = Fraction(1) if amax == 0 else least_of(over(codes.largest, amax), MAX)
        assert isinstance(encode, Fraction)
        return 1 / power(floor_log2(encode))
    if amax == 0:
        return power(-127)
    if rule == "floor":
        return power(floor_log2(amax) - emax)
    if rule == "ceil":
        return power(ceil_log2(amax) - emax)
    assert rule == "even"
    rounded = half_away(amax, bits)
    if rounded == 0:
        return power(-127)
    return power(floor_log2(rounded) - emax) if isinstance(rounded, Fraction) else math.inf


def powers_of_two(rule: str, block: list[float], element: str, *, ignore_nan: bool) -> Block:
    """Return a block under a rule whose scales are powers of two."""
    codes = ELEMENTS[element][0]
    numbers = [of_float(x) for x in block]
    special = [x for x in numbers if not isinstance(x, Fraction)]
    if special and not ignore_nan:
        return Block(math.nan, None, [0] * len(block))
    known = [abs(x) for x in numbers if not (isinstance(x, float) and math.isnan(x))]
    if not known:
        return Block(math.nan, None, [0] * len(block))
    amax = max(known)
    if isinstance(amax, Fraction):
        scale = power_scale(rule, amax, element)
    elif rule == "te_power":
        scale = Fraction(1)
    else:
        scale = power(127)
    if not isinstance(scale, Fraction):  # torchao: a finite block becomes NaN; no source lets it ignore NaN
        if not ignore_nan:
            return Block(math.nan, None, [0] * len(block))
        scale = power(127)
    return Block(
        scale,
        None,
        [code_of(x, y / scale if isinstance(y, Fraction) else y, codes) for x, y in zip(block, numbers, strict=True)],
    )


def code_of(x: float, y: Number, codes: Codes) -> int:
    """Return the code of y, with the sign of x: saturated; NaN has the format's code, or else that of 0."""
    if isinstance(y, float) and math.isnan(y):
        nans = [c for c, v in enumerate(codes.values) if isinstance(v, float) and math.isnan(v)]
        # the canonical one of each format: the highest of e4m3, the quiet one of e5m2
        return 0 if not nans else (0x7F if codes is E4M3 else 0x7E)
    magnitude = codes.nearest(min(abs(y), codes.largest) if isinstance(y, Fraction) else codes.largest)
    negative = math.copysign(1, x) < 0
    return magnitude | (len(codes.values) // 2 if negative else 0)


def floats(rule: str, block: list[float], element: str, top: Number | None) -> Block:
    """Return a block under a rule whose operations are those of binary32.

    Args:
        rule: its name.
        block: numbers of binary32.
        element: format of the elements.
        top: largest magnitude of the tensor, NaN left out under rules that ignore it; None of rules for one level.
    """
    codes = ELEMENTS[element][0]
    numbers = [of_float(x) for x in block]
    ignores = rule in ("nvfp4", "nvfp4_paper", "te")
    known = [abs(x) for x in numbers if not (isinstance(x, float) and math.isnan(x))]
    is_bad = any(not isinstance(x, Fraction) for x in numbers) or not (top is None or isinstance(top, Fraction))
    if is_bad and not ignores:
        return Block(math.nan, top and over(top, Fraction(2688)), [0] * len(block))
    amax: Number = max(known, default=Fraction(0))
    if rule in ("nvfp4", "nvfp4_paper"):
        assert top is not None
        s = least_of(over(Fraction(2688), top), MAX) if top != 0 else Fraction(1)
        s = s if s != 0 else Fraction(1)
        in_order = times(amax, times(s, f32(Fraction(1, 6)))), times(over(amax, Fraction(6)), s)
        wanted = in_order[rule == "nvfp4_paper"]
        scale = UE4M3.values[UE4M3.nearest(as_fraction(least_of(wanted, UE4M3.largest)))]
        r = least_of(over(Fraction(1), times(scale, over(Fraction(1), s))), MAX)
        return Block(scale, top, [code_of(x, times(y, r), codes) for x, y in zip(block, numbers, strict=True)])
    if rule in ("nvfp4_torchao", "nvfp4_one_level"):
        t = None if top is None else over(top, Fraction(2688))
        b = over(amax, Fraction(6))
        if t is not None:
            b = Fraction(0) if t == 0 else over(b, t)
        clamped = min(max(b, Fraction(1, 64)), Fraction(448))
        scale = UE4M3.values[UE4M3.nearest(as_fraction(clamped))]
        inverse = Fraction(1) if t is None else Fraction(0) if t == 0 else over(Fraction(1), t)
        return Block(
            scale, t, [code_of(x, times(y, over(inverse, scale)), codes) for x, y in zip(block, numbers, strict=True)]
        )
    if rule == "te":
        e = Fraction(1) if amax == 0 or not isinstance(amax, Fraction) else least_of(over(codes.largest, amax), MAX)
        return Block(
            over(Fraction(1), e), None, [code_of(x, times(y, e), codes) for x, y in zip(block, numbers, strict=True)]
        )
    scale = over(max(amax, f32(LEAST)), codes.largest)
    if rule == "deepseek":
        return Block(scale, None, [code_of(x, over(y, scale), codes) for x, y in zip(block, numbers, strict=True)])
    assert rule == "deepgemm"
    return Block(
        scale,
        None,
        [code_of(x, times(y, over(Fraction(1), scale)), codes) for x, y in zip(block, numbers, strict=True)],
    )
