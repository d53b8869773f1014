"""Function values of inputs wider than 16 bits as the output stage must see them: doubles, and what doubles cannot say.

    exp(1000)    float64 inf     finite, beyond every format       flag overflow, and `floor` writes the largest value
    exp(-1000)   float64 0       not 0, below every format         flag underflow, or `ceil` writes the smallest value
    log(-1)      float64 NaN     a NaN out of a number             flag invalid
    log(0)       float64 -inf    a pole                            flag division by zero

Source: docs/concepts/flags.md and docs/concepts/functions.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.functions.double import FUNCTIONS, Doubles
from emu.backends.interface import DIVISION_FLAG, Outcome, Write
from emu.backends.reference.exact import FINITE, NEW_NAN, Exact
from emu.backends.reference.stage import finish

#: Exponents that stand for all numbers beyond float64, and for all below it. They lie outside its range, -1074..1023,
#: outside that of every float format, and of the fixed ones that `write_function` lets through: -1022..1023.
BEYOND, BELOW = 1030, -1100


@dataclass(frozen=True, eq=False)
class WideResult:
    """Values of a function.

    Attributes:
        doubles: float64, the shape of the argument.
        exact: the same as exact results, with what doubles cannot say; None if the doubles say everything.
        poles: where the function of 0 is infinite, or None if it nowhere is.
    """

    doubles: Doubles
    exact: Exact | None
    poles: NDArray[np.bool_] | None = None


def evaluate_wide(name: str, x: Doubles) -> WideResult:
    """Return function `name` of `x`.

    Args:
        name: one of `FUNCTIONS`.
        x: any shape, float64.

    Exactness: the doubles of `double.py`; finite values outside float64's range keep sign and side.
    """
    return completed(name, x, FUNCTIONS[name](x))


def beyond_doubles(xp: Any, name: str, x: Any, y: Any) -> tuple[Any, Any, Any, Any]:
    """Return where doubles `y` do not say what function `name` of `x` is: too large, too small, a new NaN, a pole.

    Args:
        xp: namespace of the arrays.
        name: of the function.
        x: operands.
        y: results.
    """
    # neither 0 nor infinite: then an infinity or a zero is no exact value
    ordinary = xp.isfinite(x) & (x != 0)
    underflowed = ordinary & (y == 0)
    if name == "log":
        underflowed = underflowed & (x != 1)  # log(1) is 0
    return ordinary & xp.isinf(y), underflowed, xp.isnan(y) & ~xp.isnan(x), (x == 0) & xp.isinf(y)


def completed(name: str, x: Doubles, y: Doubles) -> WideResult:
    """Return the result of function `name` of `x` from its doubles `y`; exact if some double does not say all."""
    overflowed, underflowed, made_nan, poles = beyond_doubles(np, name, x, y)
    if not (overflowed | underflowed | made_nan).any():
        return WideResult(y, None, poles)
    overflowed, underflowed, made_nan = (np.atleast_1d(mask) for mask in (overflowed, underflowed, made_nan))
    exact = Exact.from_float(np.atleast_1d(y))  # without an axis the parts would be scalars, which cannot be changed
    exact.kind[overflowed] = FINITE
    exact.kind[made_nan] = NEW_NAN
    exact.negative[made_nan] = False
    exact.significand[overflowed | underflowed] = 3  # not 1: a register counts a negative power of two lower
    exact.exponent[overflowed], exact.exponent[underflowed] = BEYOND, BELOW
    return WideResult(y, exact, poles)


def write_wide(
    result: WideResult,
    quantize: Callable[..., Outcome],
    write: Write,
) -> Outcome:
    """Write the values of a function through an output stage; exact results go through the slow, defining one.

    Args:
        result: the values.
        quantize: kernel of a backend on the host: its counts are in NumPy arrays, to which poles are added.
        write: output stage, random bits, register.
    """
    if result.exact is not None:
        outcome = finish(result.exact, write, by_zero=result.poles)
        return outcome.with_values(outcome.values.reshape(result.doubles.shape))
    outcome = quantize(result.doubles, None, write, None)
    if result.poles is not None:
        # a pole is known from the argument: its double is an infinity like any other
        outcome.flags[DIVISION_FLAG] += np.count_nonzero(result.poles)
    return outcome
