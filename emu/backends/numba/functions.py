"""Elementary functions of wide inputs: the lines of `emu/backends/functions/double.py`, for one number, compiled.

The same float64 operations in the same order, none contracted: the results are those of the definition, whose lines say
why they are right. Everything is inlined and nothing branches, so that the loop over an array vectorises.

Source: docs/concepts/functions.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
from llvmlite import ir  # pyright: ignore[reportMissingTypeStubs]
from numba import types
from numpy.typing import NDArray

from emu.backends.functions import FUNCTIONS, WideResult, completed
from emu.backends.functions import coefficients as c
from emu.backends.functions.double import MAGIC, MAGIC_BITS, SMALLEST_NORMAL, SQRT_HALF_BITS
from emu.backends.memory import empty
from emu.backends.numba.bits import BIAS, bits_of, float_of, numeric, power_of_two, product_error
from emu.backends.numba.compiling import kernel, over_ranges
from emu.backends.proofs import INTO_NORMAL, SUBNORMAL_SHIFT

Array = NDArray[Any]
#: Elements below which a second thread is not worth waking.
GRAIN = 1 << 15
EXP, LOG, TANH, SIGMOID, ERF, GELU, RSQRT = range(7)
_NUMBER = {"exp": EXP, "log": LOG, "tanh": TANH, "sigmoid": SIGMOID, "erf": ERF, "gelu": GELU, "rsqrt": RSQRT}
assert list(_NUMBER) == list(FUNCTIONS)
inlined: Any = partial(kernel, inlined=True)


# ---- pairs of doubles -----------------------------------------------------------------------------------------------


@inlined
def _sum_of_ordered(a: float, b: float) -> tuple[float, float]:
    # Dekker's sum: exact if a is 0 or has an exponent not below b's.
    high = a + b
    return high, b - (high - a)


@inlined
def _sum_of(a: float, b: float) -> tuple[float, float]:
    # Knuth's sum: exact whichever is larger.
    high = a + b
    other = high - a
    return high, (a - (high - other)) + (b - other)


@inlined
def _product_of(a: float, b: float) -> tuple[float, float]:
    high = a * b
    return high, product_error(a, b, high)


@inlined
def _quotient_of(a: float, a_low: float, b: float, b_low: float) -> tuple[float, float]:
    high = a / b
    # The remainder of high parts is exact; low parts add (a_low - high * b_low) to it, to first order.
    product, error = _product_of(high, b)
    return high, (((a - product) - error) + (a_low - high * b_low)) / b


# ---- parts of the functions -----------------------------------------------------------------------------------------


def _polynomial_of(powers: tuple[float, ...]) -> Callable[[float], float]:
    """Return powers[0] + powers[1] * x + ... by Horner's rule, unrolled: a loop would keep callers from vectorising."""

    @numeric
    def polynomial(typing_context: Any, x: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = ir.DoubleType()(powers[-1])
            for power in powers[-2::-1]:
                value = builder.fadd(builder.fmul(value, args[0]), ir.DoubleType()(power))
            return value

        return types.float64(types.float64), generate

    return polynomial


_of_exp, _of_log, _of_erf, _of_erfc, _of_phi = map(_polynomial_of, (c.EXP, c.LOG, c.ERF, c.ERFC, c.PHI))


@inlined
def _at_most(x: float, limit: float) -> float:
    return limit if x > limit else x


@inlined
def _scale(x: float, k: int) -> float:
    half = k >> 1  # 2**k may be no normal number, its two halves are: |k| <= 2044
    return x * power_of_two(half) * power_of_two(k - half)


@inlined
def _exp_parts(high: float, low: float) -> tuple[float, float, int]:
    # Adding 1.5 * 2**52 rounds to an integer, which the low bits of the sum hold.
    shifted = high * c.INVERSE_LN2 + MAGIC
    k = bits_of(shifted) - MAGIC_BITS
    k_real = shifted - MAGIC
    r, rest = _sum_of(high - k_real * c.LN2_HIGH, low - k_real * c.LN2_LOW)
    return r, rest + r * (rest + r * _of_exp(r)), k


@inlined
def _exp_pair(high: float, low: float) -> tuple[float, float, int]:
    r, t, k = _exp_parts(high, low)
    one, error = _sum_of_ordered(1.0, r)
    one, error = _sum_of_ordered(one, error + t)
    return one, error, k


@inlined
def _upper_tail(x: float, scale: float, correction: float) -> tuple[float, float, float, float, int]:
    square, square_rest = _product_of(x, x)
    high, low = _sum_of(-scale * square, correction)
    e, e_low, k = _exp_pair(high, low - scale * square_rest)
    slope, slope_rest = _sum_of_ordered(x, (c.TAIL_SLOPE - 1.0) * x)
    one_more, error = _sum_of(1.0, slope)
    return e, e_low, one_more, error + slope_rest, k


# ---- the functions --------------------------------------------------------------------------------------------------


@inlined
def _exp(x: float) -> float:
    r, t, k = _exp_parts(_at_most(-c.LARGEST_EXP if x < -c.LARGEST_EXP else x, c.LARGEST_EXP), 0.0)
    one, error = _sum_of_ordered(1.0, r)
    return _scale(one + (error + t), k)


@inlined
def _log(x: float) -> float:
    tiny = x < SMALLEST_NORMAL
    bits = bits_of(x * INTO_NORMAL if tiny else x)
    k = (bits - SQRT_HALF_BITS) >> 52  # x = 2**k * (1 + f), 1 + f between the roots of 1/2 and 2
    f = float_of(bits - (k << 52)) - 1.0
    # Added to the bits of MAGIC, an integer gives those of MAGIC + k: a conversion without an instruction for it.
    k_real = float_of(k - (SUBNORMAL_SHIFT if tiny else 0) + MAGIC_BITS) - MAGIC
    two_more, error = _sum_of_ordered(2.0, f)
    s, s_rest = _quotient_of(f, 0.0, two_more, error)
    z = s * s
    rest = s * (z * _of_log(z)) + k_real * c.LN2_LOW
    high, low = _sum_of_ordered(k_real * c.LN2_HIGH, 2.0 * s)
    result = high + (low + (2.0 * s_rest + rest))
    result = result if x > 0.0 else (-np.inf if x == 0.0 else np.nan)
    return np.inf if x == np.inf else result


@inlined
def _tanh(x: float) -> float:
    magnitude = abs(x)
    r, t, k = _exp_parts(2.0 * _at_most(magnitude, c.LARGEST_TANH), 0.0)
    power = power_of_two(k)
    # power - 1 is 0, or larger than power * r.
    high, low = _sum_of_ordered(power - 1.0, power * r)
    e, e_low = _sum_of_ordered(high, low + power * t)
    one_more, error = _sum_of(2.0, e)
    high, low = _quotient_of(e, e_low, one_more, error + e_low)
    return x if magnitude < c.TANH_IS_X else math.copysign(high + low, x)


@inlined
def _sigmoid(x: float) -> float:
    high, low, k = _exp_pair(-_at_most(abs(x), c.LARGEST_EXP), 0.0)
    power = power_of_two(max(k, c.LOWEST_POWER))
    one_more, error = _sum_of_ordered(1.0, power * high)
    lower = x < 0.0
    high, rest = _quotient_of(high if lower else 1.0, low if lower else 0.0, one_more, error + power * low)
    return _scale(high + rest, k if lower else 0)


@inlined
def _erf(x: float) -> float:
    magnitude = abs(x)
    # Both sides of 1/2 are computed, each of arguments within its own interval: nothing branches.
    inner = _at_most(magnitude, 0.5)
    near = inner + inner * _of_erf(inner * inner)
    outer = _at_most(0.5 if magnitude < 0.5 else magnitude, c.LARGEST_ERF)
    v = outer / (outer + c.ERFC_CENTRE)
    e, e_low, d, d_low, k = _upper_tail(outer, 1.0, v * _of_erfc(2.0 * v - 1.0))
    power = power_of_two(k)
    high, low = _quotient_of(e, e_low, d, d_low)
    one, error = _sum_of_ordered(1.0, -power * high)
    return math.copysign(near if magnitude < 0.5 else one + (error - power * low), x)


@inlined
def _gelu(x: float) -> float:
    magnitude = abs(x)
    inner = _at_most(magnitude, c.LARGEST_GELU)
    v = inner / (inner + c.PHI_CENTRE)
    e, e_low, d, d_low, k = _upper_tail(inner, 0.5, v * _of_phi(2.0 * v - 1.0))
    product, error = _product_of(inner, e)
    high, low = _quotient_of(product, error + inner * e_low, d, d_low)
    half_power = power_of_two(max(k, c.LOWEST_POWER) - 1)
    difference, error = _sum_of(inner, -half_power * high)
    above = x if magnitude > c.LARGEST_GELU else difference + (error - half_power * low)
    result = above if x > 0.0 else -_scale(high + low, k - 1)
    return 0.5 * x if magnitude < c.GELU_IS_HALF else result


@inlined
def _rsqrt(x: float) -> float:
    tiny = x < SMALLEST_NORMAL
    bits = bits_of(x * INTO_NORMAL if tiny else x)
    j = ((bits >> 52) - BIAS) >> 1
    m = float_of(bits - (j << 53))  # x = 4**j * m, 1 <= m < 4
    y = 1.0 / math.sqrt(m)
    square, square_rest = _product_of(y, y)
    product, error = _product_of(m, square)
    # One step of Newton's iteration, from the residual 1 - m * y**2.
    y = y + 0.5 * y * (((1.0 - product) - error) - m * square_rest)
    y = y * power_of_two((SUBNORMAL_SHIFT // 2 if tiny else 0) - j)
    y = (0.0 if x == np.inf else y) if x > 0.0 else np.nan
    return math.copysign(np.inf, x) if x == 0.0 else y


@lru_cache(maxsize=len(_NUMBER))
def _range_of(number: int) -> Callable[[Array, Array], int]:
    """Return the loop of one function."""

    @kernel
    def evaluate(x: Any, y: Any) -> Any:
        """Write doubles; return how many are 0, infinite or NaN: `completed` knows what these stand for."""
        strange: Any = 0
        for i in range(x.size):
            p = x[i]
            value = 0.0
            if number == EXP:
                value = _exp(p)
            elif number == LOG:
                value = _log(p)
            elif number == TANH:
                value = _tanh(p)
            elif number == SIGMOID:
                value = _sigmoid(p)
            elif number == ERF:
                value = _erf(p)
            elif number == GELU:
                value = _gelu(p)
            else:
                value = _rsqrt(p)
            strange += np.int64(not 0.0 < abs(value) < np.inf)
            y[i] = np.nan if value != value else value  # processors make NaNs of different signs
        return strange

    return evaluate


def evaluate_wide(name: str, x: Array) -> WideResult:
    """Return function `name` of `x` (any shape, float64), as the definition does."""
    flat, doubles = np.ascontiguousarray(x).reshape(-1), empty((x.size,), np.dtype(np.float64))
    evaluate, strange = _range_of(_NUMBER[name]), list[int]()  # threads append at once

    def work(_: int, start: int, stop: int) -> None:
        strange.append(evaluate(flat[start:stop], doubles[start:stop]))

    over_ranges(work, x.size, 64, GRAIN)
    doubles = doubles.reshape(x.shape)
    return completed(name, x, doubles) if any(strange) else WideResult(doubles, None)
