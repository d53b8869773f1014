"""One output of a matrix unit, in rational numbers: no code shared with emu, formats are only asked for their fields.

A number is a Python float; finite ones are handled as Fractions. `bits(draw)` gives the integer of stochastic rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from math import copysign, floor, inf, isfinite, isnan, nan
from typing import Any

from rational_model import floor_log2

RANDOM_BITS = 24
TWO = Fraction(2)


def exponent_of(x: float, fmt: Any) -> int:
    """What stands in the exponent field, subnormals at the smallest one."""
    return max(floor_log2(abs(Fraction(x))), fmt.emin)


def rounded(x: Fraction, fmt: Any, mode: str, u: int) -> Fraction:
    """The grid value a mode picks for a magnitude and its sign, the grid going on past the largest value."""
    if x == 0:
        return x
    step = TWO ** (max(floor_log2(abs(x)), fmt.emin) - fmt.fraction_bits)
    if mode == "stochastic":
        return floor(abs(x) / step + Fraction(u, 2**RANDOM_BITS)) * step * (1 if x > 0 else -1)
    low = floor(x / step)
    if x == low * step and mode == "jamming" and low % 2 == 0:
        return x + step * (1 if x > 0 else -1)
    if x == low * step:
        return x
    part, high, zeroward = x / step - low, low + 1, low if x > 0 else low + 1
    even = low if low % 2 == 0 else high
    ties = {
        "nearest_even": even, "nearest_up": high, "nearest_down": low, "nearest_zero": zeroward,
        "nearest_away": low + high - zeroward, "nearest_odd": low + high - even,
    }  # fmt: skip
    directed = {
        "floor": low, "ceil": high, "toward_zero": zeroward, "magnitude_truncation": zeroward,
        "away_from_zero": low + high - zeroward, "to_odd": low + high - even, "jamming": low + high - even,
    }  # fmt: skip
    if mode in directed:
        return directed[mode] * step
    half = Fraction(1, 2)
    return (low if part < half else high if part > half else ties[mode]) * step


class MatrixUnit:
    """A Mac whose order is blocks."""

    def __init__(self, mac: Any, a_format: Any, b_format: Any, bits: Callable[[int], int] = lambda draw: 0) -> None:
        self.formats, self.bits = (a_format, b_format), bits
        self.fmt, self.order, self.mode = mac.accumulator, mac.order, str(mac.rounding.value)
        has_neither = not self.fmt.infinities and self.fmt.nans == "none"
        rule = "ieee" if mac.overflow is None else mac.overflow.value
        self.clamps = has_neither if mac.overflow is None else rule in ("satfinite", "satpropagate")
        self.propagates = rule == "satpropagate" and self.fmt.infinities
        self.touched = False

    def run(self, row: list[float], column: list[float], addend: float | None) -> float:
        """What the accumulator holds in the end."""
        row, column = ([flushed(x, f) for x in xs] for xs, f in zip((row, column), self.formats, strict=True))
        state = 0.0 if addend is None else self.hold(addend, 2 * len(row) + 1)
        for start, period in self.periods(len(row)):
            total = 0.0 if self.order.addend == "after" else state
            for position, steps in period:
                pairs = [(row[k], column[k]) for k in steps if k < len(row)]
                total = self.block(total, pairs, 2 + 2 * (start + position))
            state = self.ieee_sum(state, total) if self.order.addend == "after" else total
        return state

    def periods(self, depth: int) -> Iterator[tuple[int, list[tuple[int, list[int]]]]]:
        """For each period its start, and for each of its blocks the position and the k."""
        n = self.order.n
        if self.order.index_order == "consecutive":
            for start in range(0, depth, n):
                yield start, [(0, list(range(start, start + n)))]
            return
        for start in range(0, depth, 2 * n):
            inside = range(start, start + 2 * n)
            halves = [[k for k in inside if (k - start) % 4 in pair] for pair in ((0, 1), (2, 3))]
            yield start, [(0, halves[0]), (n, halves[1])]

    def block(self, state: float, pairs: list[tuple[float, float]], draw: int) -> float:
        special = 0.0
        terms: list[tuple[Fraction, int]] = []
        for x, y in pairs:
            if not (isfinite(x) and isfinite(y)):
                special += x * y
            elif x and y:
                exponents = (exponent_of(v, f) for v, f in zip((x, y), self.formats, strict=True))
                terms.append((Fraction(x) * Fraction(y), sum(exponents)))
        if not isfinite(state):
            special += state
        elif state:
            terms.append((Fraction(state), exponent_of(state, self.fmt)))
        if special != 0:
            return self.hold(special, draw)
        if not terms:
            return 0.0
        top = max(exponent for _, exponent in terms)
        if self.order.min_exponent is not None:
            top = max(top, self.order.min_exponent)
        unit = TWO ** (top - self.order.fraction_bits)
        value = self.hold_exact(sum(int(value / unit) for value, _ in terms) * unit, self.mode, draw)
        return value if value else 0.0

    def ieee_sum(self, x: float, y: float) -> float:
        if not (isfinite(x) and isfinite(y)):
            return self.hold(x + y, 0)
        total = Fraction(x) + Fraction(y)
        both_negative = copysign(1, x) < 0 and copysign(1, y) < 0
        return self.zero(both_negative) if total == 0 else self.hold_exact(total, "nearest_even", 0)

    def hold(self, x: float, draw: int) -> float:
        """R of a float, which may be infinite or NaN."""
        if isnan(x):
            return 0.0 if self.fmt.nans == "none" else nan
        if not isfinite(x):
            return x if self.propagates else self.beyond(x < 0)
        return self.zero(copysign(1, x) < 0) if x == 0 else self.hold_exact(Fraction(x), self.mode, draw)

    def hold_exact(self, x: Fraction, mode: str, draw: int) -> float:
        value = rounded(x, self.fmt, mode, self.bits(draw))
        if abs(value) > Fraction(self.fmt.max):
            self.touched = True  # clamped, or infinite although every term is finite
            return self.beyond(x < 0)
        if value == 0 or (self.fmt.ftz and abs(value) < TWO**self.fmt.emin):
            return self.zero(x < 0)
        return float(value)

    def beyond(self, negative: bool) -> float:
        sign = -1.0 if negative else 1.0
        if self.clamps:
            self.touched = True
            return sign * self.fmt.max
        return sign * inf if self.fmt.infinities else 0.0 if self.fmt.nans == "none" else nan

    def zero(self, negative: bool) -> float:
        return -0.0 if negative and self.fmt.nans != "negative_zero" else 0.0


def flushed(x: float, fmt: Any) -> float:
    if not (fmt.daz and abs(x) < 2.0**fmt.emin):
        return x
    return copysign(0.0, x)
