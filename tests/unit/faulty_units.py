"""Arithmetic units in fractions and integers, each with a fault that RTL has had; none shares code with emu.

Words are IEEE 754 codes of `Ieee(exponent bits, fraction bits)`, or two's complement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

Word = int
HALF = Fraction(1, 2)


def floor_log2(x: Fraction) -> int:
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    return exponent - (x < Fraction(2) ** exponent)


@dataclass(frozen=True)
class Number:
    """What a word stands for: a sign, and a magnitude, "inf" or "nan"."""

    sign: int
    magnitude: Fraction | str

    @property
    def value(self) -> Fraction:
        assert isinstance(self.magnitude, Fraction)
        return -self.magnitude if self.sign else self.magnitude

    @property
    def is_number(self) -> bool:
        return isinstance(self.magnitude, Fraction)


def nearest_even(kept: int, rest: Fraction, sign: int) -> bool:
    return rest > HALF or (rest == HALF and kept & 1 == 1)


def half_up(kept: int, rest: Fraction, sign: int) -> bool:
    return rest >= HALF


def half_down(kept: int, rest: Fraction, sign: int) -> bool:
    return rest > HALF


def toward_zero(kept: int, rest: Fraction, sign: int) -> bool:
    return False


def floor(kept: int, rest: Fraction, sign: int) -> bool:
    return rest > 0 and sign == 1


def sticky_of(bits: int) -> Callable[[int, Fraction, int], bool]:
    """To nearest even by the guard and so many bits behind it."""

    def up(kept: int, rest: Fraction, sign: int) -> bool:
        return nearest_even(kept, Fraction(int(rest * 2 ** (bits + 1)), 2 ** (bits + 1)), sign)

    return up


@dataclass(frozen=True)
class Ieee:
    """A format, and the faults of its unit.

    Attributes:
        e, f: bits of exponent and fraction.
        up: whether the magnitude is rounded up.
        keeps_exponent: the carry of rounding does not reach the exponent.
        largest: what is beyond the range becomes the largest number.
        hidden: exponent 0 has a hidden bit, and no other numbers but 0 lie below.
    """

    e: int
    f: int
    up: Callable[[int, Fraction, int], bool] = nearest_even
    keeps_exponent: bool = False
    largest: bool = False
    hidden: bool = False

    @property
    def infinity(self) -> int:
        return ((1 << self.e) - 1) << self.f

    @property
    def nan(self) -> int:
        return self.infinity | 1 << (self.f - 1)

    @property
    def bias(self) -> int:
        return (1 << (self.e - 1)) - 1

    def signed(self, sign: int, code: int) -> int:
        return sign << (self.e + self.f) | code

    def read(self, word: Word) -> Number:
        sign, field, fraction = word >> (self.e + self.f), (word & self.infinity) >> self.f, word & ((1 << self.f) - 1)
        if field << self.f == self.infinity:
            return Number(sign, "nan" if fraction else "inf")
        normal = field > 0 or (self.hidden and fraction > 0)
        exponent = field if field or self.hidden else 1
        return Number(sign, (fraction + (normal << self.f)) * Fraction(2) ** (exponent - self.bias - self.f))

    def write(self, sign: int, x: Fraction) -> Word:
        emin = -self.bias if self.hidden else 1 - self.bias
        if x == 0 or (self.hidden and floor_log2(x) < emin):
            return self.signed(sign, 0)
        last = max(floor_log2(x), emin) - self.f
        kept = int(x / Fraction(2) ** last)
        up = self.up(kept, x / Fraction(2) ** last - kept, sign)
        field = max(last + self.f - emin + (not self.hidden), 0) if kept >> self.f else 0
        code = (field << self.f) + kept + up - (1 << self.f if field or self.hidden else 0)
        if self.keeps_exponent and field and (kept + up) >> (self.f + 1):
            code -= 1 << self.f
        if code >= self.infinity:
            stays = self.largest or self.up is toward_zero or (self.up is floor and sign == 0)
            code = self.infinity - stays
        return self.signed(sign, code)

    def sum(self, x: Fraction, signs: tuple[int, int], sign_of_cancelled: int = 0) -> Word:
        if x:
            return self.write(int(x < 0), abs(x))
        return self.signed(signs[0] if signs[0] == signs[1] else sign_of_cancelled, 0)


def add(unit: Ieee, cancelled: int = 0) -> Callable[[Word, Word], Word]:
    def of(a: Word, b: Word) -> Word:
        x, y = unit.read(a), unit.read(b)
        if x.is_number and y.is_number:
            zeros = x.magnitude == 0 and y.magnitude == 0
            signs = (x.sign, y.sign) if zeros else (0, 1)
            return unit.sum(x.value + y.value, signs, cancelled * (not zeros))
        if "nan" in (x.magnitude, y.magnitude) or (x.magnitude == y.magnitude and x.sign != y.sign):
            return unit.nan
        return unit.signed(x.sign if x.magnitude == "inf" else y.sign, unit.infinity)

    return of


def multiply(unit: Ieee, zero_times_infinity: int | None = None, zero_sign: int | None = None) -> Callable[..., Word]:
    def of(a: Word, b: Word) -> Word:
        x, y = unit.read(a), unit.read(b)
        sign = x.sign ^ y.sign
        if "nan" in (x.magnitude, y.magnitude):
            return unit.nan
        if "inf" in (x.magnitude, y.magnitude):
            if 0 in (x.magnitude, y.magnitude):
                return unit.nan if zero_times_infinity is None else unit.signed(sign, zero_times_infinity)
            return unit.signed(sign, unit.infinity)
        if zero_sign is not None and 0 in (x.magnitude, y.magnitude):
            return unit.signed(zero_sign, 0)
        return unit.write(sign, abs(x.value * y.value))

    return of


def divide(unit: Ieee, subnormal: Ieee) -> Callable[[Word, Word], Word]:
    """Quotients; those below the smallest normal number are rounded as another unit does."""

    def of(a: Word, b: Word) -> Word:
        x, y = unit.read(a), unit.read(b)
        sign = x.sign ^ y.sign
        if "nan" in (x.magnitude, y.magnitude) or (x.magnitude == y.magnitude and x.magnitude in (0, "inf")):
            return unit.nan
        if x.magnitude == "inf" or y.magnitude == 0:
            return unit.signed(sign, unit.infinity)
        if y.magnitude == "inf":
            return unit.signed(sign, 0)
        quotient = abs(x.value / y.value)
        is_small = quotient < Fraction(2) ** (1 - unit.bias)
        return (subnormal if is_small else unit).write(sign, quotient)

    return of


def convert(source: Ieee, unit: Ieee, nan: Callable[[Word], Word] | None = None) -> Callable[[Word], Word]:
    def of(a: Word) -> Word:
        x = source.read(a)
        if x.magnitude == "nan":
            return unit.nan if nan is None else nan(a)
        if x.magnitude == "inf":
            return unit.signed(x.sign, unit.infinity - unit.largest)
        return unit.write(x.sign, abs(x.value))

    return of


def to_integer(source: Ieee, bits: int, beyond: int) -> Callable[[Word], Word]:
    """Toward zero; what lies beyond the range, and NaN, gives one code."""

    def of(a: Word) -> Word:
        x = source.read(a)
        if not x.is_number:
            return beyond
        whole = int(x.value)
        return whole % 2**bits if -(2 ** (bits - 1)) <= whole < 2 ** (bits - 1) else beyond

    return of


def word(code: int, bits: int) -> int:
    return code - (1 << bits) if code >> (bits - 1) else code


def bounded(x: int, bits: int) -> int:
    return max(min(x, 2 ** (bits - 1) - 1), -(2 ** (bits - 1)))


def add_and_shift(shift: int, middle: int = 99, window: int = 99) -> Callable[[Word, Word], Word]:
    """34-bit words added, bounded to `middle` bits, shifted to nearest away by guard and sticky, bounded to 32 bits."""

    def of(a: Word, b: Word) -> Word:
        total = bounded(word(a, 34) + word(b, 34), middle)
        kept, rest = total >> shift, total & ((1 << shift) - 1)
        guard, sticky = rest >> (shift - 1), rest & ((1 << (shift - 1)) - 1)
        sticky >>= max(shift - 1 - window, 0)
        return bounded(kept + (guard == 1 and (total >= 0 or sticky != 0)), 32) % 2**32

    return of


def sign_and_magnitude_product(a: Word, b: Word) -> Word:
    product = (a & 0x7FFF) * (b & 0x7FFF) >> 8
    return (a ^ b) & 0x8000 | product & 0x7FFF


def dot_in_two_steps(unit: Ieee, narrow: Ieee, width: int) -> Callable[..., Word]:
    """a0 * b0 + a1 * b1 + c; each term is cut toward minus infinity so many digits below the largest one's first."""

    def of(a: list[int], b: list[int], c: Word) -> Word | None:
        factors = [(narrow.read(x), narrow.read(y)) for x, y in zip(a, b, strict=True)]
        last = unit.read(c)
        if not all(x.is_number and y.is_number for x, y in factors) or not last.is_number:
            return None
        terms = [x.value * y.value for x, y in factors] + [last.value]
        if not any(terms):
            return None
        grid = Fraction(2) ** (floor_log2(max(map(abs, terms))) - width + 1)
        total = sum((term // grid) * grid for term in terms)
        return unit.write(int(total < 0), abs(total)) if total else 0

    return of
