"""docs/concepts/ in rational numbers, one element at a time: slow, plain, and sharing no code with emu.

A real is `Real(negative, magnitude)`; the magnitude is a Fraction, or INFINITE, or NAN. The nonnegative values of a
float format are numbered from 0 upwards; past the largest the numbering goes on, as the grid does
(docs/concepts/rounding.md). Fixed-point values are numbered by their raw integer. Either way the number's last bit is
the last bit of the code.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import floor, isinf, isnan
from typing import NamedTuple

INFINITE, NAN = "infinite", "nan"
MODES = (
    "nearest_even", "nearest_away", "nearest_up", "nearest_down", "nearest_zero",
    "floor", "ceil", "toward_zero", "to_odd", "stochastic",
    "stochastic_nearest_even", "stochastic_nearest_odd", "stochastic_nearest_up",
    "nearest_odd", "away_from_zero", "jamming", "magnitude_truncation",
)  # fmt: skip
FLAGS = ("overflow", "underflow", "inexact", "invalid", "subnormal")


class Real(NamedTuple):
    negative: bool
    magnitude: Fraction | str

    @classmethod
    def of(cls, value: float) -> Real:
        """A Python float, exactly."""
        if isnan(value):
            return cls(False, NAN)
        negative = str(value).startswith("-")
        return cls(negative, INFINITE if isinf(value) else abs(Fraction(value)))

    @property
    def signed(self) -> Fraction:
        assert isinstance(self.magnitude, Fraction)
        return -self.magnitude if self.negative else self.magnitude


class Place(NamedTuple):
    """Where a real lies: between two neighbours of the grid, or on one (then both numbers are its own).

    `part` is the dropped fraction that stochastic rounding looks at: from `low` up, or from zero outward for floats.
    `nearer` is "low", "high" or "tie".
    """

    low: int
    high: int
    positive: bool
    part: Fraction
    nearer: str


class Written(NamedTuple):
    code: int
    flags: frozenset[str]


@dataclass(frozen=True)
class FixedModel:
    width: int
    frac: int
    signed: bool = True
    is_complement = True
    rules = ("saturate", "saturate_symmetric", "saturate_zero", "wrap")

    @property
    def limits(self) -> tuple[int, int]:
        if self.signed:
            return -(2 ** (self.width - 1)), 2 ** (self.width - 1) - 1
        return 0, 2**self.width - 1

    def decode(self, code: int) -> Real:
        negative = self.signed and code >= 2 ** (self.width - 1)
        raw = code - 2**self.width if negative else code
        return Real(raw < 0, abs(raw) * Fraction(2) ** -self.frac)

    def encode(self, real: Real) -> int:
        raw = real.signed * Fraction(2) ** self.frac
        assert raw.denominator == 1
        return int(raw) % 2**self.width

    def place(self, real: Real) -> Place:
        scaled = real.signed * Fraction(2) ** self.frac
        below = floor(scaled)
        part = scaled - below
        return Place(below, below + (part != 0), not real.negative, part, nearer_end(part))

    def step(self, place: Place, up: bool) -> int:
        """Stochastic rounding adds to the signed number."""
        return place.high if up else place.low

    def finish(self, real: Real, rounded: int | None, exact: bool, rule: str, mode: str) -> Written:
        """Overflow rule and flags (docs/concepts/overflow.md, flags.md). `rounded` is None for what is not finite."""
        low, high = self.limits
        if rule == "saturate_symmetric" and self.signed:
            low = -high
        if real.magnitude == NAN:
            return Written(0, frozenset({"invalid"}))
        if real.magnitude == INFINITE:
            limit = 0 if rule == "saturate_zero" else low if real.negative else high
            return Written(limit % 2**self.width, frozenset({"overflow", "inexact"}))
        assert rounded is not None
        if low <= rounded <= high:
            flags = set() if exact else {"inexact"}
            if real.magnitude != 0 and rounded == 0:
                flags.add("underflow")
            return Written(rounded % 2**self.width, frozenset(flags))
        raw = {"wrap": rounded, "saturate_zero": 0}.get(rule, low if rounded < low else high)
        return Written(raw % 2**self.width, frozenset({"overflow", "inexact"}))


@dataclass(frozen=True)
class FloatModel:
    exponent_bits: int
    fraction_bits: int
    bias: int | None = None
    infinities: bool = True
    nans: str = "ieee"
    ftz: bool = False
    daz: bool = False
    signed: bool = True
    zero: bool = True
    rules = ("ieee", "satfinite", "satpropagate")

    @property
    def magnitude_bits(self) -> int:
        return self.exponent_bits + self.fraction_bits

    def value_at(self, number: int) -> Fraction:
        """The nonnegative value number `number`: the formula of docs/concepts/formats.md, special codes ignored."""
        default = 2 ** (self.exponent_bits - 1) - 1 if self.exponent_bits else 0
        bias = default if self.bias is None else self.bias
        field, fraction = divmod(number, 2**self.fraction_bits)
        part = Fraction(fraction, 2**self.fraction_bits)
        return (
            Fraction(2) ** (field - bias) * (1 + part) if field or not self.zero else Fraction(2) ** (1 - bias) * part
        )

    def special(self, code: int) -> str | None:
        """What a code stands for that is not a finite value."""
        ones = 2**self.magnitude_bits - 1
        magnitude = code & ones
        if self.nans == "ieee":
            field, fraction = divmod(magnitude, 2**self.fraction_bits)
            if field != 2**self.exponent_bits - 1:
                return None
            return INFINITE if self.infinities and fraction == 0 else NAN
        if (self.nans == "top" and magnitude == ones) or (self.nans == "negative_zero" and code == ones + 1):
            return NAN
        return INFINITE if self.infinities and magnitude == ones - (self.nans == "top") else None

    @cached_property
    def last(self) -> int:
        """Number of the largest finite value."""
        return max(n for n in range(2**self.magnitude_bits) if self.special(n) is None)

    @cached_property
    def grid(self) -> list[Fraction]:
        """All nonnegative values in order, and two beyond the largest."""
        return [self.value_at(n) for n in range(self.last + 3)]

    @property
    def nan_code(self) -> int | None:
        ones = 2**self.magnitude_bits - 1
        quiet = 2 ** (self.fraction_bits - 1) if self.fraction_bits else 0
        ieee = (2**self.exponent_bits - 1) * 2**self.fraction_bits + quiet
        return {"ieee": ieee, "top": ones, "negative_zero": ones + 1, "none": None}[self.nans]

    @cached_property
    def infinity_code(self) -> int | None:
        return next((n for n in range(2**self.magnitude_bits) if self.special(n) == INFINITE), None)

    def decode(self, code: int) -> Real:
        negative, number = code >> self.magnitude_bits == 1, code & (2**self.magnitude_bits - 1)
        assert self.signed or not negative
        if (kind := self.special(code)) is not None:
            return Real(negative and kind == INFINITE, kind)
        subnormal = number < 2**self.fraction_bits
        return Real(negative, Fraction(0) if self.daz and subnormal else self.value_at(number))

    def place(self, real: Real) -> Place:
        x = real.magnitude
        assert isinstance(x, Fraction)
        if x < self.grid[0]:
            return Place(-1, -1, not real.negative, Fraction(0), "low")  # below code 0, and there is no zero
        below = min(
            bisect_right(self.grid, x) - 1, self.last + 1
        )  # no mode comes back from beyond the second value past the end
        inner, outer = self.grid[below], self.grid[below + 1]
        part = min((x - inner) / (outer - inner), Fraction(1))
        low, high = below, below + (part != 0)
        if real.negative:
            low, high, nearer = high, low, nearer_end(1 - part)
        else:
            nearer = nearer_end(part)
        return Place(low, high, not real.negative, part, nearer)

    def step(self, place: Place, up: bool) -> int:
        """Stochastic rounding adds to the magnitude."""
        return max(place.low, place.high) if up else min(place.low, place.high)

    def finish(self, real: Real, rounded: int | None, exact: bool, rule: str, mode: str) -> Written:
        """FTZ, overflow rule and flags (docs/concepts/). `rounded` is None for what is not finite."""
        if real.magnitude == NAN:
            return self._nan(made=False)
        if real.magnitude == INFINITE:
            return self._beyond(real.negative, infinite=True, rule=rule, mode=mode)
        assert rounded is not None
        if real.magnitude < self.grid[0]:  # and there is no zero
            return Written(0, frozenset({"inexact", "underflow"} if real.magnitude else {"inexact"}))
        if rounded > self.last:
            return self._beyond(real.negative, infinite=False, rule=rule, mode=mode)
        flags = set() if exact else {"inexact"}
        subnormal = 0 < rounded < 2**self.fraction_bits and self.zero
        if subnormal and self.ftz:
            rounded, subnormal = 0, False
            flags.add("inexact")
        if real.negative and not self.signed and (rounded > 0 or not self.zero):
            return self._beyond(True, infinite=False, rule=rule, mode=mode)
        if subnormal:
            flags.add("subnormal")
        if real.magnitude != 0 and rounded == 0 and self.zero:
            flags.add("underflow")
        return Written(self._signed(real.negative, rounded), frozenset(flags))

    def _signed(self, negative: bool, number: int) -> int:
        if number == 0 and (self.nans == "negative_zero" or not self.signed):
            return 0
        return number + 2**self.magnitude_bits if negative else number

    def _nan(self, *, made: bool) -> Written:
        flags = frozenset({"invalid"}) if made or self.nan_code is None else frozenset()
        return Written(self.nan_code or 0, flags)

    def _beyond(self, negative: bool, *, infinite: bool, rule: str, mode: str) -> Written:
        """Outside the range; an infinity the format has is no overflow."""
        inward = mode in ("toward_zero", "to_odd", "jamming", "magnitude_truncation") or mode == (
            "ceil" if negative else "floor"
        )
        overflow = {"overflow", "inexact"}
        below = negative and not self.signed
        has_this_infinity = self.infinity_code is not None and not below
        clamps = {
            "ieee": inward and not infinite,
            "satfinite": True,
            "satpropagate": not (infinite and has_this_infinity),
        }
        if clamps[rule]:
            if below:
                return Written(0, frozenset(overflow))
            subnormal = {"subnormal"} if self.last < 2**self.fraction_bits and self.zero else set[str]()
            return Written(self._signed(negative, self.last), frozenset(overflow | subnormal))
        if has_this_infinity:
            assert self.infinity_code is not None
            return Written(self._signed(negative, self.infinity_code), frozenset() if infinite else frozenset(overflow))
        return Written(self._nan(made=True).code, frozenset(overflow | {"invalid"}))


Model = FixedModel | FloatModel


def nearer_end(part: Fraction) -> str:
    return "tie" if part == Fraction(1, 2) else "low" if part < Fraction(1, 2) else "high"


def settle(model: Model, place: Place, mode: str, u: int = 0, r: int = 1) -> tuple[int, bool]:
    """The number a mode picks, before FTZ and overflow rule, and whether it is exact (docs/concepts/rounding.md)."""
    low, high = place.low, place.high
    if mode in ("jamming", "magnitude_truncation"):
        moved = _moved(model, place, mode)
        return moved, low == high == moved
    if low == high:
        return low, True
    if mode.startswith("stochastic"):
        return model.step(place, up=to_bits(place.part * 2**r, mode) + u >= 2**r), False
    even, odd = (low, high) if low % 2 == 0 else (high, low)
    nearer_zero, farther = (low, high) if place.positive else (high, low)
    nearest = {"low": low, "high": high}
    picked = {
        "floor": low,
        "ceil": high,
        "toward_zero": nearer_zero,
        "to_odd": odd,
        "nearest_even": nearest.get(place.nearer, even),
        "nearest_away": nearest.get(place.nearer, farther),
        "nearest_up": nearest.get(place.nearer, high),
        "nearest_down": nearest.get(place.nearer, low),
        "nearest_zero": nearest.get(place.nearer, nearer_zero),
        "nearest_odd": nearest.get(place.nearer, odd),
        "away_from_zero": farther,
    }
    return picked[mode], False


def _moved(model: Model, place: Place, mode: str) -> int:
    """What is done to the bits that are kept, whether others were dropped or not."""
    if isinstance(model, FixedModel) and model.is_complement:  # a signed integer
        return place.low | 1 if mode == "jamming" else place.low + (place.low < 0)
    magnitude = min(place.low, place.high)
    is_zero = magnitude == place.high == place.low == 0 and getattr(model, "zero", True)
    return magnitude | 1 if mode == "jamming" and not is_zero else magnitude


def to_bits(part: Fraction, mode: str) -> int:
    """The bits of the dropped part that are added to the random ones."""
    whole = floor(part)
    if mode == "stochastic" or part == whole:
        return whole
    tie = {"even": whole + whole % 2, "odd": whole + 1 - whole % 2, "up": whole + 1}[mode.rsplit("_", 1)[1]]
    return {"low": whole, "high": whole + 1, "tie": tie}[nearer_end(part - whole)]


def write(model: Model, real: Real, mode: str, rule: str, u: int = 0, r: int = 1) -> Written:
    """One element through the whole output stage."""
    if isinstance(real.magnitude, str):
        return model.finish(real, None, True, rule, mode)
    rounded, exact = settle(model, model.place(real), mode, u, r)
    return model.finish(real, rounded, exact, rule, mode)


def leading_exponent(x: Fraction) -> int:
    """The e of docs/concepts/registers.md, from its property: -2**m <= x < 2**m exactly when e <= m - 1. x is not 0."""
    m = floor_log2(abs(x))  # below that 2**m < |x|
    while not -(Fraction(2) ** m) <= x < Fraction(2) ** m:
        m += 1
    return m - 1


def floor_log2(x: Fraction) -> int:
    """floor(log2 x) of a positive rational."""
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if Fraction(2) ** e <= x else e - 1
