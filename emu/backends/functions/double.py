"""Elementary functions in float64 as a fixed sequence of IEEE operations, so that every machine gives the same bits.

    argument ──► reduce to a small interval ──► polynomial for the small part ──► sum, largest last ──► scale by 2**k

Add, subtract, multiply, divide, square root, compare, select and views of the bits: every one of them is exact or
correctly rounded, none is contracted, nothing is reduced over the array, and no library function is called (its bits
depend on the processor). Element i of the result depends on element i of the argument alone. Compiled backends
transcribe these lines one by one.

Bounds: the last addition rounds (1/2 ulp) a sum whose smaller part, at most an eighth of it, carries one or two
roundings of its own. Measured maxima stand with each function, in ulp of the result (2**-1074 if it is subnormal).
`ERROR_ULP` is what the tables rely on; it leaves a factor of more than two.

Source: docs/concepts/functions.md; Muller, "Elementary Functions" (3rd ed. 2016), chapters 10 and 11 for the
reductions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.functions import coefficients as c
from emu.backends.functions.pairs import Doubles, Pair, product_of, quotient_of, sum_of, sum_of_ordered
from emu.backends.proofs import INTO_NORMAL, SUBNORMAL_SHIFT

Integers = NDArray[np.int64]

#: Bound on the error of every function here, in units of the last place.
ERROR_ULP = 4
#: Elements worked on at once: 32 KiB per temporary stays in a processor's first two caches.
BLOCK = 4096
#: Adding this to |x| < 2**51 rounds x to an integer, to nearest: the sum lies in 2**52..2**53, where the last place is
#: 1 (hence 1.5: 2**52 itself would leave that binade for negative x). Its low bits are those of the integer.
MAGIC = 1.5 * 2.0**52
#: The bits of MAGIC, and of the nearest double to sqrt(1/2).
MAGIC_BITS = 0x4338000000000000
BIAS = 1023
SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
SMALLEST_NORMAL = 2.0**-1022


def _by_blocks(kernel: Callable[[Doubles], Doubles]) -> Callable[[Doubles], Doubles]:
    """Return `kernel` for arrays of any shape, worked on in blocks, with every NaN the plain one."""

    @wraps(kernel)
    def function(x: Any) -> Doubles:
        argument = np.ascontiguousarray(x, dtype=np.float64)
        flat, result = argument.reshape(-1), np.empty(argument.size, np.float64)
        with np.errstate(all="ignore"):
            for start in range(0, flat.size, BLOCK):
                result[start : start + BLOCK] = kernel(flat[start : start + BLOCK])
        # true of NaN alone
        result[result != result] = np.nan  # processors disagree about the sign of a NaN they make
        return result.reshape(np.shape(x))

    return function


def _polynomial(x: Doubles, powers: tuple[float, ...]) -> Doubles:
    """Return powers[0] + powers[1] * x + ..., by Horner's rule."""
    # in place from here on: `value` is an array of its own, so that x stays
    value = x * powers[-1]
    value += powers[-2]
    for power in powers[-3::-1]:
        value *= x
        value += power
    return value


def _power_of_two(k: Integers) -> Doubles:
    """Return 2**k for -1022 <= k <= 1023, from the bits."""
    # the exponent field alone: fraction 0 is significand 1
    return ((k + BIAS) << 52).view(np.float64)


def _scale(x: Doubles, k: Integers) -> Doubles:
    """Return x * 2**k, rounded once; overflows to infinity, underflows through the subnormals to 0. |k| <= 2044."""
    half = k >> 1  # 2**k itself may be no normal number; each half is one, and only the last product rounds
    return x * _power_of_two(half) * _power_of_two(k - half)


def _exp_parts(high: Doubles, low: Doubles | float) -> tuple[Doubles, Doubles, Integers]:
    """Return (r, t, k) with exp(high + low) = 2**k * (1 + r + t), |r| <= 0.3466, |t| <= 0.068.

    |high| <= 1200 and |low| <= ulp(high). The error of r + t is below 2**-55: t is r**2/2 and smaller terms.
    """
    # the nearest integer, see MAGIC
    shifted = high * c.INVERSE_LN2 + MAGIC
    k = shifted.view(np.int64) - MAGIC_BITS
    # exact: both are integers
    k_real = shifted - MAGIC
    # |k| <= 1200 / ln 2 has 11 bits, LN2_HIGH has 42: their product is exact
    r, rest = sum_of(high - k_real * c.LN2_HIGH, low - k_real * c.LN2_LOW)
    # e**(r + rest) - 1 - r is rest + r * rest + r**2 * EXP(r), but for smaller products
    return r, rest + r * (rest + r * _polynomial(r, c.EXP)), k


def _exp_pair(high: Doubles, low: Doubles | float) -> tuple[Pair, Integers]:
    """Return exp(high + low) as ((h, l), k): 2**k * (h + l)."""
    r, t, k = _exp_parts(high, low)
    total, error = sum_of_ordered(1.0, r)
    # what the rounding of 1 + r has lost joins the smaller terms
    return sum_of_ordered(total, error + t), k


@_by_blocks
def exp(x: Doubles) -> Doubles:
    """Return e**x: 0 at -inf, 1 at +-0, inf at inf; overflows above 709.78, 0 below -745.13.

    Error: below 0.85 ulp (measured 0.75).
    """
    r, t, k = _exp_parts(np.minimum(np.maximum(x, -c.LARGEST_EXP), c.LARGEST_EXP), 0.0)
    total, error = sum_of_ordered(1.0, r)
    return _scale(total + (error + t), k)


@_by_blocks
def log(x: Doubles) -> Doubles:
    """Return the natural logarithm: -inf at +-0, inf at inf, NaN below 0.

    Error: below 0.55 ulp (measured 0.53), near 1 too.
    """
    # 0 and negative numbers are among them: what comes of them is replaced at the end
    tiny = x < SMALLEST_NORMAL
    bits = np.where(tiny, x * INTO_NORMAL, x).view(np.int64)
    k = (bits - SQRT_HALF_BITS) >> 52  # doubles are ordered as their bits: k is 0 from sqrt(1/2) on, 1 from sqrt(2) on
    m = (bits - (k << 52)).view(np.float64)  # sqrt(1/2) <= m < sqrt(2)
    # an integer added to the bits of MAGIC gives those of MAGIC + k: a conversion without an instruction for it
    k_real = (k - np.where(tiny, SUBNORMAL_SHIFT, 0) + MAGIC_BITS).view(np.float64) - MAGIC
    f = m - 1.0
    # s = (m - 1) / (m + 1) as a pair, since 2 s is nearly the whole logarithm of m
    s, s_rest = quotient_of((f, np.zeros_like(f)), sum_of_ordered(2.0, f))
    z = s * s
    # log(m) is 2 s + s * z * LOG(z), the second part small
    rest = s * (z * _polynomial(z, c.LOG)) + k_real * c.LN2_LOW
    # ordered: k * LN2_HIGH is 0 or at least 0.69, and 2 s at most 0.35
    high, low = sum_of_ordered(k_real * c.LN2_HIGH, 2.0 * s)
    result = high + (low + (2.0 * s_rest + rest))
    result = np.where(x > 0.0, result, np.where(x == 0.0, -np.inf, np.nan))
    return np.where(x == np.inf, np.inf, result)


@_by_blocks
def tanh(x: Doubles) -> Doubles:
    """Return the hyperbolic tangent, (e**2|x| - 1) / (e**2|x| + 1) with the sign of x: +-0 at +-0, +-1 at +-inf.

    Error: below 0.85 ulp (measured 0.77).
    """
    magnitude = np.abs(x)
    r, t, k = _exp_parts(2.0 * np.minimum(magnitude, c.LARGEST_TANH), 0.0)
    power = _power_of_two(k)
    high, low = sum_of_ordered(power - 1.0, power * r)  # power - 1 is 0 or larger than power * r
    # e**2|x| - 1, the numerator; 2 more than that is the denominator
    e = sum_of_ordered(high, low + power * t)
    one_more, error = sum_of(2.0, e[0])
    high, low = quotient_of(e, (one_more, error + e[1]))
    return np.where(magnitude < c.TANH_IS_X, x, np.copysign(high + low, x))


@_by_blocks
def sigmoid(x: Doubles) -> Doubles:
    """Return 1 / (1 + e**-x), for negative x as e**x / (1 + e**x): 0 at -inf, 1 at inf.

    Error: below 0.85 ulp (measured 0.74), in the lower tail too.
    """
    # of -|x|: e**-|x| does not overflow
    (high, low), k = _exp_pair(-np.minimum(np.abs(x), c.LARGEST_EXP), 0.0)
    power = _power_of_two(np.maximum(k, c.LOWEST_POWER))
    one_more, error = sum_of_ordered(1.0, power * high)
    # below 0 the numerator is e**-|x| too; its power of two is left to `_scale`, which rounds subnormals once
    lower = x < 0.0
    numerator = (np.where(lower, high, 1.0), np.where(lower, low, 0.0))
    high, low = quotient_of(numerator, (one_more, error + power * low))
    return _scale(high + low, np.where(lower, k, 0))


def _upper_tail(x: Doubles, scale: float, centre: float, powers: tuple[float, ...]) -> tuple[Pair, Pair, Integers]:
    """Return E and D as pairs and k, with tail(x) = 2**k * E / D: E = exp(-scale * x**2 + v * P(t)), D = 1 + 5x/4.

    0 <= x <= 40; scale is 1 (erfc) or 1/2 (2 Phi).
    """
    # an error of x**2 is a relative one of its exponential, so that the rounding of x**2 must be kept
    square, square_rest = product_of(x, x)
    v = x / (x + centre)
    high, low = sum_of(-scale * square, v * _polynomial(2.0 * v - 1.0, powers))
    e, k = _exp_pair(high, low - scale * square_rest)
    # 5x/4 exactly, as a pair: x/4 is exact
    slope, slope_rest = sum_of_ordered(x, (c.TAIL_SLOPE - 1.0) * x)
    one_more, error = sum_of(1.0, slope)
    return e, (one_more, error + slope_rest), k


@_by_blocks
def erf(x: Doubles) -> Doubles:
    """Return the error function, x + x * P(x**2) up to 1/2 and 1 - erfc beyond: +-0 at +-0, +-1 at +-inf.

    Error: below 0.9 ulp (measured 0.81).
    """
    magnitude = np.abs(x)
    inner = np.minimum(magnitude, 0.5)
    near = inner + inner * _polynomial(inner * inner, c.ERF)
    # erfc serves arguments from 1/2 on; smaller ones take `near`
    e, denominator, k = _upper_tail(np.minimum(np.maximum(magnitude, 0.5), c.LARGEST_ERF), 1.0, c.ERFC_CENTRE, c.ERFC)
    # k lies above -60, so that the power is a normal number
    power = _power_of_two(k)
    high, low = quotient_of(e, denominator)
    far, error = sum_of_ordered(1.0, -power * high)
    return np.copysign(np.where(magnitude < 0.5, near, far + (error - power * low)), x)


@_by_blocks
def gelu(x: Doubles) -> Doubles:
    """Return x * Phi(x), Phi the normal distribution function: +-0 at +-0, inf at inf, -0 at -inf.

    The negative side is -|x|/2 * 2 Phi(-|x|), relatively accurate down to the subnormals; the positive side is x plus
    the same. Error: below 1.4 ulp (measured 1.26, at x < -30; 0.65 at x > 0).
    """
    magnitude = np.abs(x)
    inner = np.minimum(magnitude, c.LARGEST_GELU)
    e, denominator, k = _upper_tail(inner, 0.5, c.PHI_CENTRE, c.PHI)
    # |x| * tail as a pair, divided as a pair
    product, error = product_of(inner, e[0])
    high, low = quotient_of((product, error + inner * e[1]), denominator)
    # half of 2 Phi is Phi, hence - 1
    half_power = _power_of_two(np.maximum(k, c.LOWEST_POWER) - 1)
    # x > 0: x - x * Phi(-x) is x * Phi(x)
    difference, error = sum_of(inner, -half_power * high)
    above = np.where(magnitude > c.LARGEST_GELU, x, difference + (error - half_power * low))
    result = np.where(x > 0.0, above, -_scale(high + low, k - 1))
    return np.where(magnitude < c.GELU_IS_HALF, 0.5 * x, result)


@_by_blocks
def rsqrt(x: Doubles) -> Doubles:
    """Return 1 / sqrt(x): +-inf at +-0 (as rSqrt of IEEE 754-2019 section 9.2.1), 0 at inf, NaN below 0.

    Error: below 0.51 ulp: one step of Newton's iteration, its residual 1 - m * y**2 formed exactly.
    """
    tiny = x < SMALLEST_NORMAL
    bits = np.where(tiny, x * INTO_NORMAL, x).view(np.int64)
    j = ((bits >> 52) - BIAS) >> 1  # x = m * 4**j: its root is sqrt(m) * 2**j
    m = (bits - (j << 53)).view(np.float64)  # 1 <= m < 4
    y = 1.0 / np.sqrt(m)
    # the leading digits of 1 - m * y**2 cancel, so that the products are pairs
    square, square_rest = product_of(y, y)
    product, error = product_of(m, square)
    y = y + 0.5 * y * (((1.0 - product) - error) - m * square_rest)
    # exact: results lie within 2**-512..2**537
    y = y * _power_of_two(np.where(tiny, SUBNORMAL_SHIFT // 2, 0) - j)
    y = np.where(x > 0.0, np.where(x == np.inf, 0.0, y), np.nan)
    return np.where(x == 0.0, np.copysign(np.inf, x), y)


#: The functions by name.
FUNCTIONS: dict[str, Callable[[Doubles], Doubles]] = {
    "exp": exp,
    "log": log,
    "tanh": tanh,
    "sigmoid": sigmoid,
    "erf": erf,
    "gelu": gelu,
    "rsqrt": rsqrt,
}
