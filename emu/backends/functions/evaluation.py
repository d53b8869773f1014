"""Exact function values of many arguments, shortened to the bits on which an output stage depends.

Four methods, each used only where it is certain:

    exact      0, 1, infinities, NaN, poles, rsqrt(4**n): the value itself
    limit      f = T + d, T simple, |d| bounded (tanh x = x - ..., sigmoid = 1 - ...): T's bits, and the side f lies on
    double     `double.py`, where no number within its error bound shortens to other bits
    Ziv        one by one in growing precision: the few that remain

A fifth one finds the leading bit of a value far out of range (exp of 1000) from its logarithm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.functions.double import ERROR_ULP, FUNCTIONS, Doubles
from emu.backends.functions.grid import Grid, Integers
from emu.backends.functions.ziv import shortened
from emu.backends.reference.exact import FINITE, INFINITE, NAN, NEW_NAN, Exact

Mask = NDArray[np.bool_]

#: `leading` of zeros, infinities and NaN, and the largest magnitude of any other: exponents beyond are cut to it.
NO_LEADING = -(1 << 31)
LEADING_LIMIT = 1 << 30
LOG2_E = 1.4426950408889634
#: log(1 / sqrt(2 pi)): gelu(x) tends to -exp(-x**2/2) / sqrt(2 pi) from below.
LOG_TAIL = -0.9189385332046727
#: The largest shift of an int64 that leaves its sign alone.
_LAST_SHIFT = 62


@dataclass
class Shortened:
    """Function values, shortened to odd: integers whose last bit says whether anything nonzero follows.

    Attributes:
        exact: what the output stage rounds, as if it were the exact value.
        leading: floor(log2|value|) of the exact value, or NO_LEADING.
        is_power: where the exact value is plus or minus a power of two.
    """

    exact: Exact
    leading: Integers
    is_power: Mask


@dataclass
class _Attempt:
    """The results of one method, and where it is certain of them."""

    certain: Mask
    significand: Integers | NDArray[Any]
    exponent: Integers
    leading: Integers


def evaluate(name: str, x: Doubles, grid: Grid) -> Shortened:
    """Return the exact values of function `name` at `x`, shortened to `grid`.

    Args:
        name: one of `FUNCTIONS`.
        x: arguments, shape (n,), float64, taken as exact.
        grid: see `Grid`.
    """
    # doubles decide most values, and are exact for special ones
    y = FUNCTIONS[name](x)
    special = _is_exact(name, x, y)
    # a start: what is undecided is replaced
    values = Exact.from_float(y)
    values.kind[np.isnan(y) & ~np.isnan(x)] = NEW_NAN
    # an infinite double of a finite value is decided by other methods
    values.kind[~special] = FINITE
    values.negative[values.kind >= NAN] = False
    # special values are 0, powers of two, infinities and NaN
    is_power = special & (values.kind == FINITE) & (y != 0)
    leading = np.where(is_power, values.leading, NO_LEADING)
    _reduce(values, grid)
    undecided = ~special
    with np.errstate(all="ignore"):
        # each method decides what those before it left open
        for attempt in (_by_double(y, grid), _by_limit(name, x, grid), _by_logarithm(name, x, grid)):
            decided = undecided & attempt.certain
            # a single array holds all significands: as Python's integers as soon as a method needs them
            if attempt.significand.dtype == object:
                values = values.as_object()
            np.copyto(values.significand, attempt.significand, where=decided)
            np.copyto(values.exponent, attempt.exponent, where=decided)
            np.copyto(leading, attempt.leading, where=decided)
            undecided &= ~decided
    # last, since it computes one value after the other, in mpmath
    values = _by_ziv(name, x, grid, undecided, values, leading)
    _cut_beyond(values, leading, grid)
    return Shortened(values, leading, is_power)


def _is_exact(name: str, x: Doubles, y: Doubles) -> Mask:
    """Return where `y`, the float64 value, is the exact value of the function."""
    special = (x == 0) | np.isinf(x) | np.isnan(y)
    if name == "log":
        special |= x == 1
    if name == "rsqrt":  # x = 4**n exactly where y = 2**-n and x * y * y = 1, all exact
        # frexp gives 0.5 for powers of two
        with np.errstate(all="ignore"):
            special |= (np.frexp(y)[0] == 0.5) & (x * y * y == 1)
    return special


def _reduce(values: Exact, grid: Grid) -> None:
    """Strip the trailing zeros of the exact cases, which are 0 or powers of two, so that they need no wide shifts."""
    nonzero = values.significand != 0
    values.exponent[:] = np.where(nonzero, values.leading, grid.quantum)
    values.significand[:] = nonzero


def _by_double(y: Doubles, grid: Grid) -> _Attempt:
    """Shorten y; certain if every number within the error of y shortens to the same bits."""
    bits = y.view(np.int64)
    field = (bits >> 52) & 0x7FF
    # |y| = m * 2**last of a normal number: 1075 is the bias 1023 and 52 fraction bits
    m, last = (bits & ((1 << 52) - 1)) | (1 << 52), field - 1075
    leading = last + 52
    step = grid.step(leading)
    drop = step - last
    shift = np.clip(drop, 0, _LAST_SHIFT)
    # one unit more than the bound, so that the exact value lies strictly inside
    low, high = m - (ERROR_ULP + 1), m + (ERROR_ULP + 1)
    # both ends in the binade of y: then the leading bit is certain
    leading_sure = (field > 1) & (field < 0x7FF) & (low >> 52 == 1) & (high >> 52 == 1)
    digits_sure = grid.is_beyond(leading) | ((drop > 0) & (low >> shift == high >> shift))
    # odd: the exact value is no multiple of the step, so that something follows below it
    return _Attempt(leading_sure & digits_sure, 2 * (low >> shift) + 1, step - 1, leading)


def _by_limit(name: str, x: Doubles, grid: Grid) -> _Attempt:
    """Shorten a value near a simple limit T; certain if it lies within a step (or a last place of T) of T."""
    limit, shrinks, bound = _limit(name, x)
    bits = limit.view(np.int64)
    field = (bits >> 52) & 0x7FF
    m, last = (bits & ((1 << 52) - 1)) | (1 << 52), field - 1075
    leading = last + 52 - (shrinks & (m == 1 << 52))  # just below a power of two the leading bit is one lower
    step = grid.step(leading)
    drop = step - last
    shift = np.clip(drop, 0, _LAST_SHIFT)
    # whether T itself is a multiple of the step
    on_grid = ((m >> shift) << shift) == m
    beyond = grid.is_beyond(leading)
    certain = (field > 0) & (field < 0x7FF) & (bound <= np.where(on_grid & ~beyond, step, last))
    grow = np.where(certain & ~beyond, np.maximum(-drop, 0), 0)
    kept = m >> shift
    if grow.max(initial=0) > _LAST_SHIFT - 54:  # 53 bits, shifted by `grow` and doubled, must stay below 2**62
        kept, grow = kept.astype(object), grow.astype(object)
    # f lies just above T, or, if |f| < |T| and T is on the grid, in the step below it
    return _Attempt(certain, 2 * ((kept << grow) - (shrinks & on_grid).astype(kept.dtype)) + 1, step - 1, leading)


def _decay(rate: Doubles) -> Integers:
    """Return an integer b with 2**-rate <= 2**b, the least one down to -2**40."""
    return -np.floor(np.minimum(rate, 2.0**40)).astype(np.int64)


def _limit(name: str, x: Doubles) -> tuple[Doubles, Mask, Integers]:
    """Return T, whether |f| < |T|, and b with |f - T| < 2**b, for finite x but 0; T is NaN if there is none."""
    # |x| < 2**(e+1). Rates are rounded down from log2(e) = 1.44269..., 2 log2(e) = 2.88539... and log2(e)/2 =
    # 0.72134...: e**-x = 2**(-1.44269 x) <= 2**(-1.442 x)
    size = np.abs(x)
    e = np.frexp(x)[1].astype(np.int64) - 1
    # |x| below 1/2, and well above the subnormals
    small = (e < -1) & (e > -1000)
    nowhere = np.full(x.shape, np.nan)
    everywhere = np.ones(x.shape, bool)
    side = np.copysign(1.0, x)
    if name == "exp":  # |e**x - 1| < 2 |x|
        return np.where(small, 1.0, nowhere), x < 0, e + 2
    if name == "sigmoid":  # |sigmoid - 1/2| < |x|/4;  1 - sigmoid < e**-x
        limit = np.where(small, 0.5, np.where(x > 4, 1.0, nowhere))
        return limit, np.where(small, x < 0, everywhere), np.where(small, e - 1, _decay(1.442 * size))
    if name == "tanh":  # x - tanh x < x**3/3;  1 - tanh x < 2 e**-2x
        limit = np.where(small, x, np.where(size > 4, side, nowhere))
        return limit, everywhere, np.where(small, 3 * e + 2, 1 + _decay(2.885 * size))
    if name == "erf":  # 1 - erf x < e**-x**2 from 1 on
        return np.where(size > 2, side, nowhere), everywhere, _decay(1.442 * size * size)
    if name == "gelu":  # 0 < gelu - x/2 < 0.4 x**2;  0 < x - gelu < 0.4 e**-x**2/2
        limit = np.where(small, 0.5 * x, np.where(x > 4, x, nowhere))
        return limit, np.where(small, x < 0, everywhere), np.where(small, 2 * e + 1, _decay(0.7213 * size * size))
    return nowhere, everywhere, e


def _by_logarithm(name: str, x: Doubles, grid: Grid) -> _Attempt:
    """Find the leading bit, if only this bit matters, from log2 of the value; uncertain near an integer."""
    logarithm, error = np.full(x.shape, np.nan), np.zeros(x.shape)
    if name == "exp":
        logarithm = x * LOG2_E
    elif name == "sigmoid":
        logarithm = np.where(x < -64, x * LOG2_E, np.nan)
    elif name == "gelu":  # x Phi(x) exp(x**2/2) sqrt(2 pi) lies between -1 and -1 + 1/x**2
        logarithm = np.where(x < -16, (LOG_TAIL - 0.5 * x * x) * LOG2_E, np.nan)
        # -log2(1 - 1/x**2) is below 1.45 / x**2 from |x| = 16 on
        error = 1.6 / (x * x)
    # the roundings above add up to less than 2**-50 of the logarithm
    error = error + np.abs(logarithm) * 2.0**-48 + 2.0**-40
    outside = np.abs(logarithm) > LEADING_LIMIT + 1
    sure = outside | (np.floor(logarithm - error) == np.floor(logarithm + error))
    cut = np.clip(logarithm, -LEADING_LIMIT, LEADING_LIMIT)
    leading = np.floor(np.where(np.isnan(cut), 0.0, cut)).astype(np.int64)
    step = grid.step(leading)
    # beyond the grid, or below its last step: in both cases only the leading bit counts
    certain = sure & ~np.isnan(logarithm) & (grid.is_beyond(leading) | (leading < step))
    return _Attempt(certain, np.ones(x.shape, np.int64), step - 1, leading)


def _by_ziv(name: str, x: Doubles, grid: Grid, undecided: Mask, values: Exact, leading: Integers) -> Exact:
    """Fill in the undecided elements one by one; significands become Python integers if 62 bits are too few."""
    where = np.flatnonzero(undecided)
    results = [shortened(name, float(x[i]), grid) for i in where]
    significands = [significand for significand, _, _ in results]
    if max((s.bit_length() for s in significands), default=0) > _LAST_SHIFT:
        values = values.as_object()
    for i, (significand, exponent, lead) in zip(where, results, strict=True):
        values.significand[i], values.exponent[i], leading[i] = significand, exponent, lead
    return values


def _cut_beyond(values: Exact, leading: Integers, grid: Grid) -> None:
    """Replace what overflows in every mode by something small enough to shift: 3 * 2**top, or infinity under wrap."""
    beyond: Any = (values.kind == FINITE) & (leading != NO_LEADING) & grid.is_beyond(leading)
    values.significand[beyond] = 0 if grid.wraps else 3
    values.exponent[beyond] = grid.quantum if grid.wraps else grid.top + 1
    if grid.wraps:
        values.kind[beyond] = INFINITE
