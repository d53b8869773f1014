"""Elementwise arithmetic, exact before the one rounding of the output stage.

Sums and products are exact integers. Quotients and roots are computed to more bits than any stage needs; the rest
becomes a sticky last bit. Infinities and NaNs follow IEEE 754-2019 section 6 and 7.

Source: docs/concepts/elementwise.md; IEEE 754-2019 section 5.4.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends import interface as k
from emu.backends.interface import FormatCode, StageCode
from emu.backends.proofs import SAFE_EXPONENT, decides_in_float64, leading_bound
from emu.backends.reference.exact import (
    FINITE,
    INFINITE,
    INT64_BITS,
    NAN,
    NEW_NAN,
    Exact,
    sum_to_odd,
    to_common_exponent,
)
from emu.backends.reference.raws import raw_of
from emu.formats.arrays import as_float64

Array = NDArray[Any]
#: Bits below the target's last place that decide any rounding: up to 32 random bits and their guard bit, then a sticky
#: bit; the others are to spare.
DECIDING_BITS = 40
#: Bits kept above a sticky bit in every stage: the register observes the leading bit, and whether other bits follow.
LEADING_BITS = 4


def exact_of(x: Array, fmt: FormatCode | None) -> Exact:
    """Return the carrier array `x` of `fmt` as exact results; subnormals are 0 if the format is DAZ."""
    if fmt is not None and fmt.carries_raws:
        return Exact.from_integers(raw_of(x, fmt), fmt.quantum)
    return Exact.from_float(flush_operands(x, fmt))


def flush_operands(x: Array, fmt: FormatCode | None) -> Array:
    """Return float operands with subnormals replaced by 0 of their sign if the format is DAZ."""
    if fmt is None or not fmt.daz:
        return x
    # formats without -0, all unsigned ones included, flush to +0
    zero = np.copysign(np.zeros_like(x), x) if fmt.has_negative_zero else np.zeros_like(x)
    return np.where(np.abs(x) < math.ldexp(1.0, fmt.emin), zero, x)


def compute(
    operation: str, operands: tuple[Array, ...], formats: tuple[FormatCode | None, ...], stage: StageCode
) -> Exact:
    """Return `operation` of carriers of equal shape, exact or with a sticky bit below all that `stage` looks at."""
    fast = _through_float64(operation, operands, formats, stage)
    if fast is not None:
        return Exact.from_float(fast)
    return compute_exact(operation, [exact_of(x, fmt) for x, fmt in zip(operands, formats, strict=True)], stage)


def compute_exact(operation: str, parts: list[Exact], stage: StageCode) -> Exact:
    """Return `operation` of exact operands of equal shape, with every bit that decides anything in `stage`."""
    return with_specials(operation, parts, _OPERATIONS[operation](parts, stage))


def _through_float64(
    operation: str, operands: tuple[Array, ...], formats: tuple[FormatCode | None, ...], stage: StageCode
) -> NDArray[np.float64] | None:
    """Return a sum or difference rounded to odd; None if it is not proved that `stage` writes it as the exact one."""
    # raws may have 64 bits, of which float64 holds 53
    if operation not in ("add", "subtract") or any(f is not None and f.carries_raws for f in formats):
        return None
    a, b = (as_float64(flush_operands(x, f)) for x, f in zip(operands, formats, strict=True))
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return None
    # a sum is below twice its larger term
    leading = max(leading_bound(a), leading_bound(b)) + 1
    if leading > SAFE_EXPONENT or not decides_in_float64(stage, leading):
        return None
    # finite numbers below 2**SAFE_EXPONENT: the sum does not overflow
    total = sum_to_odd(a, -b if operation == "subtract" else b)
    if stage.rounding != k.FLOOR:
        return total
    # Toward negative, an exact zero sum is -0 unless both terms are +0 (IEEE 754-2019 section 6.3).
    minus_zero = (total == 0) & (np.signbit(a) | np.signbit(-b if operation == "subtract" else b))
    return np.where(minus_zero, -0.0, total)


def _zeros(parts: list[Exact]) -> NDArray[np.uint8]:
    return np.zeros(parts[0].kind.shape, np.uint8)


def multiply(parts: list[Exact], stage: StageCode) -> Exact:
    """Return the exact product; the sign, of a zero too, is the XOR of the signs (IEEE 754-2019 section 6.3)."""
    a, b = parts
    # Significands of m and n bits have a product of at most m + n bits.
    bits = int(a.bit_length.max(initial=0)) + int(b.bit_length.max(initial=0))
    # int64 holds products of at most 62 bits
    if bits > INT64_BITS:
        a, b = a.as_object(), b.as_object()
    return Exact(a.negative ^ b.negative, a.significand * b.significand, a.exponent + b.exponent, _zeros(parts))


def add(parts: list[Exact], stage: StageCode) -> Exact:
    """Return the exact sum; a zero is -0 if both terms are -0, or under floor if their signs differ, else +0.

    Source: IEEE 754-2019 section 6.3.
    """
    a, b = parts
    # zeros do not lower the common exponent, so that they cost no bits
    (left, right), exponent = to_common_exponent(parts)
    total = left + right
    zero = (total == 0).astype(bool)
    either = a.negative | b.negative
    sign_of_zero = either if stage.rounding == k.FLOOR else a.negative & b.negative
    negative = np.where(zero, sign_of_zero, (total < 0).astype(bool)).astype(bool)
    return Exact(negative, np.where(negative, -total, total), np.full(total.shape, exponent, np.int64), _zeros(parts))


def _subtract(parts: list[Exact], stage: StageCode) -> Exact:
    a, b = parts
    # the sign of a zero is turned too: x - 0 is x + -0
    return add([a, Exact(~b.negative, b.significand, b.exponent, b.kind)], stage)


def _fma(parts: list[Exact], stage: StageCode) -> Exact:
    a, b, c = parts
    return add([multiply([a, b], stage), c], stage)


def _deciding_exponent(stage: StageCode, leading: int) -> int:
    """Return the exponent below which digits only matter as a sticky bit, for a result of 2**leading or half of it."""
    fmt = stage.format
    # A result of 2**e has its last place at e - (precision - 1); `leading` may be e + 1.
    last_place = max(leading - fmt.precision, fmt.quantum) if fmt.is_float else fmt.quantum
    return last_place - DECIDING_BITS


def divides_by_zero(operands: tuple[Array, ...], formats: tuple[FormatCode | None, ...]) -> NDArray[np.bool_]:
    """Return where a finite number other than 0 is divided by 0.

    Source: IEEE 754-2019 section 7.3.
    """
    # a divisor that DAZ takes for 0 divides by zero
    a, b = (flush_operands(x, fmt) for x, fmt in zip(operands, formats, strict=True))
    return np.isfinite(a) & (a != 0) & (b == 0)


def _divide_scalar(a: int, b: int, exponent: int, stage: StageCode) -> tuple[int, int]:
    if a == 0 or b == 0:
        return 0, 0
    # 2**(m - 1) <= a < 2**m and 2**(n - 1) <= b < 2**n: a / b lies above 2**(m - n - 1) and below 2**(m - n + 1).
    leading = a.bit_length() - b.bit_length() + exponent
    # at most `exponent`, so that the shift below is not negative
    last = min(_deciding_exponent(stage, leading), exponent, leading - LEADING_BITS)
    quotient, remainder = divmod(a << (exponent - last), b)
    # the remainder, if it is not 0, becomes the sticky bit
    return quotient | (remainder != 0), last


def _divide(parts: list[Exact], stage: StageCode) -> Exact:
    a, b = (p.as_object() for p in parts)

    def divided(x: int, y: int, exponent: int) -> tuple[int, int]:
        return _divide_scalar(x, y, exponent, stage)

    by_element: Any = np.frompyfunc(divided, 3, 2)
    # by element: each quotient needs its own number of digits, and Python's integers have no limit
    significand, exponent = by_element(a.significand, b.significand, (a.exponent - b.exponent).astype(object))
    return Exact(a.negative ^ b.negative, significand, exponent.astype(np.int64), _zeros(parts))


def divided_by(exact: Exact, divisor: int, stage: StageCode) -> Exact:
    """Return exact results divided by a positive integer: exact by a power of two, else with a sticky bit."""
    if divisor & (divisor - 1) == 0:
        # only the exponent changes, so that nothing is lost
        shift = divisor.bit_length() - 1
        return Exact(exact.negative, exact.significand, exact.exponent - shift, exact.kind)
    quotient = _divide([exact, Exact.from_integers(np.full(exact.kind.shape, divisor), 0)], stage)
    return Exact(exact.negative, quotient.significand, quotient.exponent, exact.kind)


def _sqrt_scalar(a: int, exponent: int, stage: StageCode) -> tuple[int, int]:
    if a == 0:
        return 0, 0
    leading = (a.bit_length() - 1 + exponent) // 2  # floor(log2) of a root is half that of its square, rounded down
    # at most half of the exponent, so that the shift below is not negative
    last = min(_deciding_exponent(stage, leading), exponent // 2, leading - LEADING_BITS)
    shifted = a << (exponent - 2 * last)  # its root is in units of 2**last
    root = math.isqrt(shifted)
    return root | (root * root != shifted), last


def _sqrt(parts: list[Exact], stage: StageCode) -> Exact:
    (a,) = (p.as_object() for p in parts)

    def root(x: int, exponent: int) -> tuple[int, int]:
        return _sqrt_scalar(x, exponent, stage)

    by_element: Any = np.frompyfunc(root, 2, 2)
    significand, exponent = by_element(a.significand, a.exponent.astype(object))
    return Exact(a.negative, significand, exponent.astype(np.int64), _zeros(parts))


def _remainder_scalar(a: int, b: int, up: int) -> int:
    """Return a * 2**up - b * n in units of 2**min(up, 0), n the nearest integer, ties to even.

    Source: IEEE 754-2019 section 5.3.1.
    """
    if b == 0:  # an infinite divisor leaves `a`; by 0 the result is NaN, which `with_specials` puts there
        return a
    # both in units of the smaller exponent, so that the quotient is that of integers
    a, b = a << max(up, 0), b << max(-up, 0)
    quotient, rest = divmod(a, b)
    return rest - b if 2 * rest + (quotient & 1) > b else rest  # a tie, 2 * rest == b, moves an odd quotient only


def _remainder(parts: list[Exact], stage: StageCode) -> Exact:
    a, b = (p.as_object() for p in parts)
    by_element: Any = np.frompyfunc(_remainder_scalar, 3, 1)
    rest: Array = by_element(a.significand, b.significand, (a.exponent - b.exponent).astype(object))
    exponent = np.where((b.significand != 0).astype(bool), np.minimum(a.exponent, b.exponent), a.exponent)
    # `_remainder_scalar` gives a negative rest beyond half the divisor: then the sign turns
    turned = (rest < 0).astype(bool)
    return Exact(a.negative ^ turned, np.where(turned, -rest, rest), exponent, _zeros(parts))


def _float_twin(part: Exact) -> NDArray[np.float64]:
    """Return float64 numbers of the same signs, zeros, infinities and NaNs; each other one is 1 or -1."""
    # Numbers of magnitude 1: no operation on them overflows or underflows.
    twin = np.where((part.significand != 0).astype(bool), 1.0, 0.0)
    # NaN and NEW_NAN are the last kinds
    twin = np.where(part.kind == FINITE, twin, np.where(part.kind >= NAN, np.nan, np.inf))
    return np.where(part.negative, -twin, twin)


def with_specials(operation: str, parts: list[Exact], result: Exact) -> Exact:
    """Replace results that involve infinities, NaN, division by zero or a negative root by what IEEE 754 says.

    Float64 says it: these results depend only on signs, zeros, infinities and NaNs, which the twins have.

    Source: IEEE 754-2019 sections 6.1 (infinities), 6.2 (NaN), 7.2 (invalid operations) and 7.3 (division by zero).
    """
    twins = [_float_twin(p) for p in parts]
    with np.errstate(all="ignore"):
        special = np.asarray(_TWIN_OPERATIONS[operation](*twins))
    # the twins decide if an operand is special, or if finite operands give an infinity or NaN
    operand_special = np.any([p.kind != FINITE for p in parts], axis=0)
    from_nan = np.any([p.kind >= NAN for p in parts], axis=0)
    replaced = operand_special | ~np.isfinite(special)
    if not replaced.any():
        return result
    kind = np.where(np.isnan(special), np.where(from_nan, NAN, NEW_NAN), np.where(np.isinf(special), INFINITE, FINITE))
    significand = result.significand.copy()
    significand[replaced & ~(np.isfinite(special) & (special != 0))] = 0  # but of remainder(x, inf) = x
    return Exact(
        np.where(replaced, np.signbit(special), result.negative),
        significand,
        result.exponent,
        np.where(replaced, kind, result.kind).astype(np.uint8),
    )


_OPERATIONS: dict[str, Callable[[list[Exact], StageCode], Exact]] = {
    "add": add,
    "subtract": _subtract,
    "multiply": multiply,
    "fma": _fma,
    "divide": _divide,
    "sqrt": _sqrt,
    "remainder": _remainder,
}


def _fma_of_floats(a: Array, b: Array, c: Array) -> Array:
    return a * b + c


_TWIN_OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "fma": _fma_of_floats,
    "divide": np.divide,
    "sqrt": np.sqrt,
    "remainder": np.fmod,  # only for specials, as IEEE 754's: NumPy's `remainder` rounds quotients down
}
