"""Every place where a mode decides, drawn from the table of modes, and what has to be written there.

Sign, last bit and place, in fixed point, among normal and subnormal floats, at the top of the range; where random bits
decide, also every first part of what is dropped, and every u.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

import numpy as np

import emu
from emu.datapath.rounding import Place, Rounding
from emu.testing import assert_bits_equal

#: How far above the neighbour toward zero, for each place.
PARTS = {Place.EXACT: 0, Place.BELOW_HALF: 0.25, Place.HALF: 0.5, Place.ABOVE_HALF: 0.75}
RANDOM_BITS = 2
#: Numbers of magnitudes from 0 on: near zero, at the edge of a binade, and up to the largest of each format. The
#: largest of one float has an odd code and infinities above it, that of the other an even one and no infinities.
FORMATS = {
    "fix8f2": [*range(6), *range(124, 129)],
    "e4m3": [*range(10), *range(0x37, 0x41), *range(0x74, 0x78)],
    "fp8_e4m3": [*range(10), *range(0x37, 0x41), *range(0x7B, 0x7F)],
}
#: Modes that draw, and keep no bit that is always 1.
DRAWING = [Rounding.STOCHASTIC, Rounding.STOCHASTIC_NEAREST_EVEN, Rounding.STOCHASTIC_NEAREST_ODD]


class Case(NamedTuple):
    """A number, its random integer, and what becomes of it."""

    x: float
    u: int
    value: float
    overflows: bool


def cases(mode: Rounding, text: str) -> list[Case]:
    """Return the cases of a mode in a format."""
    fmt = emu.parse(text)
    draws = product(range(2**RANDOM_BITS), range(2**RANDOM_BITS)) if mode.draws else [(0, 0)]
    return [
        _case(mode, fmt, number, negative, place, first, u)
        for number, negative, place, (first, u) in product(FORMATS[text], (False, True), Place, list(draws))
    ]


def _case(mode: Rounding, fmt: Any, number: int, negative: bool, place: Place, first: int, u: int) -> Case:
    is_float, meaning = isinstance(fmt, emu.Float), mode.meaning
    steps = meaning.steps(is_float=is_float)
    part = Fraction(PARTS[place])
    if mode.draws:
        part = (first + part) / 2**RANDOM_BITS
        first += steps.at(place, odd=bool(first % 2), negative=negative)
        step = int(u < first if negative and not is_float else first + u >= 2**RANDOM_BITS)
    elif number == 0 and part == 0:
        step = 0 if is_float else steps.at(place, odd=False, negative=False)
    else:
        step = steps.at(place, odd=bool(number % 2), negative=negative)
    low, high = _value(fmt, number), _value(fmt, number + 1)
    x = low + part * (high - low)
    largest = fmt.max_raw + (negative and number + step > fmt.max_raw) if not is_float else fmt.max_code
    overflows = number + step > largest
    written = float(_value(fmt, min(number + step, largest)))
    if overflows and is_float and not meaning.stays[negative]:
        written = np.inf if fmt.infinities else np.nan
    sign = -1.0 if negative else 1.0
    if not is_float and x == 0:
        return Case(sign * 0.0, u, written, overflows)
    return Case(sign * float(x), u, sign * written if is_float or written else 0.0, overflows)


def _value(fmt: Any, number: int) -> Fraction:
    """Return the magnitude with a number, as if the grid went on beyond the largest."""
    if isinstance(fmt, emu.Fixed):
        return Fraction(number, 2**fmt.frac_bits)
    field, fraction = divmod(number, 2**fmt.fraction_bits)
    whole = fraction + (2**fmt.fraction_bits if field else 0)
    return Fraction(whole) * Fraction(2) ** (max(field, 1) - 1 + fmt.emin - fmt.fraction_bits)


def check(mode: Rounding, text: str, quantize: Callable[..., np.ndarray], dtype: Any) -> None:
    """Compare what `quantize` writes and counts with the table, all cases in one array long enough for any kernel."""
    found = cases(mode, text)
    found = [found[i % len(found)] for i in range(max(len(found), 300))]
    x, value = (np.array([case[i] for case in found], dtype) for i in (0, 2))
    flags = emu.Flags()
    options = {"rbits": np.array([case.u for case in found]), "n_rbits": RANDOM_BITS} if mode.draws else {}
    assert_bits_equal(quantize(x, text, rounding=mode, flags=flags, **options), value, text)
    beyond = np.array([case.overflows for case in found])
    assert (flags.overflow, flags.inexact) == (beyond.sum(), (beyond | (value != x)).sum())


def check_far_below(mode: Rounding, add: Callable[..., np.ndarray]) -> None:
    """Compare sums of a multiple of 1/512 and 2**-300 in steps of 1/16, with each of 16 random integers."""
    halves, u = (grid.ravel() for grid in np.meshgrid(np.arange(-32, 32), np.arange(16)))
    x, y = np.sign(halves + 0.5) + halves / 512, np.copysign(2.0**-300, halves)
    written = add(x, y, out_format="fix8f4", rounding=mode, rbits=u, n_rbits=4)
    for a, b, drawn, found in zip(x.tolist(), y.tolist(), u.tolist(), written.tolist(), strict=True):
        exact = (Fraction(a) + Fraction(b)) * 16
        if mode is not Rounding.STOCHASTIC:
            exact = Fraction(round(exact * 16), 16)  # never a tie
        assert found * 16 == math.floor(exact + Fraction(drawn, 16)), (a, b, drawn)
