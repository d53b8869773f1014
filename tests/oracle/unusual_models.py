"""Words of sign and magnitude, and floats whose hidden bit is always one, in rational numbers.

They are those of docs/concepts/formats.md. Both are numbered by magnitude, as floats are in `rational_model.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import floor

from rational_model import INFINITE, NAN, FixedModel, FloatModel, Place, Real, Written, nearer_end


@dataclass(frozen=True)
class MagnitudeModel(FixedModel):
    """The highest bit is the sign, the others are |raw|; the sign alone is read as 0, and 0 is written as 0."""

    sign_magnitude: bool = True
    is_complement = False
    zero = True

    @property
    def largest(self) -> int:
        return 2 ** (self.width - 1) - 1

    def decode(self, code: int) -> Real:
        sign, raw = divmod(code, 2 ** (self.width - 1))
        return Real(sign == 1 and raw != 0, raw * Fraction(2) ** -self.frac)

    def encode(self, real: Real) -> int:
        assert isinstance(real.magnitude, Fraction)
        raw = real.magnitude * Fraction(2) ** self.frac
        assert raw.denominator == 1
        return self._code(real.negative, int(raw))

    def _code(self, negative: bool, raw: int) -> int:
        return raw + 2 ** (self.width - 1) if negative and raw else raw

    def place(self, real: Real) -> Place:
        assert isinstance(real.magnitude, Fraction)
        scaled = real.magnitude * Fraction(2) ** self.frac
        below = floor(scaled)
        part = scaled - below
        low, high = below, below + (part != 0)
        if real.negative and real.magnitude:
            return Place(high, low, False, part, nearer_end(1 - part))
        return Place(low, high, True, part, nearer_end(part))

    def step(self, place: Place, up: bool) -> int:
        """Stochastic rounding adds to the magnitude."""
        return max(place.low, place.high) if up else min(place.low, place.high)

    def finish(self, real: Real, rounded: int | None, exact: bool, rule: str, mode: str) -> Written:
        if real.magnitude == NAN:
            return Written(0, frozenset({"invalid"}))
        if real.magnitude == INFINITE:
            return Written(
                self._code(real.negative, 0 if rule == "saturate_zero" else self.largest),
                frozenset({"overflow", "inexact"}),
            )
        assert rounded is not None
        if rounded <= self.largest:
            flags = set() if exact else {"inexact"}
            if real.magnitude != 0 and rounded == 0:
                flags.add("underflow")
            return Written(self._code(real.negative, rounded), frozenset(flags))
        kept = {"wrap": rounded % 2 ** (self.width - 1), "saturate_zero": 0}.get(rule, self.largest)
        return Written(self._code(real.negative, kept), frozenset({"overflow", "inexact"}))


@dataclass(frozen=True)
class HiddenOneModel(FloatModel):
    """Code 0 is zero, every other one of exponent field 0 is 2**-bias * 1.fraction.

    The grid on which results are rounded has the steps of field 0 down to zero, as under FTZ; a result below the
    smallest value, which is that of code 1, becomes 0.
    """

    hidden_one: bool = True

    @property
    def lowest(self) -> int:
        """Number of the grid's 2**-bias, which has no code: code n has the number lowest + n."""
        return 2**self.fraction_bits

    def value_of(self, code: int) -> Fraction:
        if code == 0:
            return Fraction(0)
        field_, fraction = divmod(code, 2**self.fraction_bits)
        default = 2 ** (self.exponent_bits - 1) - 1 if self.exponent_bits else 0
        bias = default if self.bias is None else self.bias
        return Fraction(2) ** (field_ - bias) * (1 + Fraction(fraction, 2**self.fraction_bits))

    @cached_property
    def last(self) -> int:
        return self.lowest + max(n for n in range(2**self.magnitude_bits) if self.special(n) is None)

    @cached_property
    def grid(self) -> list[Fraction]:
        power = self.value_of(1) / (1 + Fraction(1, 2**self.fraction_bits))  # 2**-bias
        below = [power * Fraction(n, self.lowest) for n in range(self.lowest + 1)]
        return below + [self.value_of(n) for n in range(1, self.last - self.lowest + 3)]

    @cached_property
    def infinity_code(self) -> int | None:
        """Its number, as those of finite values are."""
        code = super().infinity_code
        return None if code is None else self.lowest + code

    def decode(self, code: int) -> Real:
        if (kind := self.special(code)) is not None:
            return Real(code >> self.magnitude_bits == 1 and kind == INFINITE, kind)
        return Real(code >> self.magnitude_bits == 1, self.value_of(code & (2**self.magnitude_bits - 1)))

    def finish(self, real: Real, rounded: int | None, exact: bool, rule: str, mode: str) -> Written:
        if real.magnitude == NAN:
            return self._nan(made=False)
        if real.magnitude == INFINITE:
            return self._beyond(real.negative, infinite=True, rule=rule, mode=mode)
        assert rounded is not None
        if rounded > self.last:
            return self._beyond(real.negative, infinite=False, rule=rule, mode=mode)
        if rounded <= self.lowest:
            flags = {"inexact", "underflow"} if real.magnitude else set[str]()
            return Written(self._signed(real.negative, 0), frozenset(flags))
        if real.negative and not self.signed:
            return self._beyond(True, infinite=False, rule=rule, mode=mode)
        return Written(self._signed(real.negative, rounded), frozenset() if exact else frozenset({"inexact"}))

    def _signed(self, negative: bool, number: int) -> int:
        return super()._signed(negative, max(number - self.lowest, 0))
