"""docs/concepts/ for one output of a multiply-accumulate unit, in rational numbers: no code shared with emu.

A number is (negative, magnitude); the magnitude is a Fraction, "inf" or "nan". Formats are only asked for their fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from emu import Fixed, Mac
from emu.formats import Format

RANDOM_BITS = 24
LARGEST = ("toward_zero", "to_odd", "jamming", "magnitude_truncation")


class Number(NamedTuple):
    negative: bool
    magnitude: Any

    @classmethod
    def of(cls, value: float) -> Number:
        text = str(float(value))
        magnitude = text.strip("-") if text.strip("-") in ("nan", "inf") else abs(Fraction(float(value)))
        return cls(text.startswith("-"), magnitude)

    @property
    def is_finite(self) -> bool:
        return isinstance(self.magnitude, Fraction)

    @property
    def signed(self) -> Fraction:
        return -self.magnitude if self.negative else self.magnitude

    def to_float(self) -> float:
        value = float(self.magnitude)
        return -value if self.negative else value


NAN = Number(False, "nan")
ZERO = Number(False, Fraction(0))


def multiply(a: Number, b: Number) -> Number:
    negative, pair = a.negative != b.negative, {a.magnitude, b.magnitude}
    if "nan" in pair or pair == {"inf", 0}:
        return NAN
    return Number(negative, "inf" if "inf" in pair else a.magnitude * b.magnitude)


def add(a: Number, b: Number, rounding: str) -> Number:
    if "nan" in (a.magnitude, b.magnitude):
        return NAN
    if "inf" in (a.magnitude, b.magnitude):
        infinite = [x for x in (a, b) if x.magnitude == "inf"]
        return infinite[0] if len({x.negative for x in infinite}) == 1 else NAN
    total = a.signed + b.signed
    if total == 0:
        return Number((a.negative and b.negative) or (rounding == "floor" and a.negative != b.negative), Fraction(0))
    return Number(total < 0, abs(total))


def default_rule(fmt: Format) -> str:
    if isinstance(fmt, Fixed):
        return "saturate"
    return "ieee" if fmt.infinities or fmt.nans != "none" else "satfinite"


def write(x: Number, fmt: Format, rounding: str, overflow: str | None, u: int) -> tuple[Number, bool]:
    """Return what a stage writes, and whether its overflow rule was applied."""
    rule = overflow or default_rule(fmt)
    if x.magnitude == "nan":
        return (ZERO if isinstance(fmt, Fixed) or fmt.nans == "none" else NAN), False
    if x.magnitude == "inf":
        return _infinite(x, fmt, rule)
    step = Fraction(2) ** (
        -fmt.frac_bits if isinstance(fmt, Fixed) else _exponent(x.magnitude, fmt.emin) - fmt.fraction_bits
    )
    raw = _round(x.magnitude / step, x.negative, rounding, u, isinstance(fmt, Fixed))
    if isinstance(fmt, Fixed):
        return _fixed(-raw if x.negative and x.magnitude else raw, fmt, rule)
    value = raw * step
    if value > Fraction(fmt.max):
        clamps = (
            rule in ("satfinite", "satpropagate")
            or rounding in LARGEST
            or rounding == ("ceil" if x.negative else "floor")
        )
        beyond = "inf" if fmt.infinities else "nan"
        return _clean(Number(x.negative, Fraction(fmt.max) if clamps else beyond), fmt), True
    if fmt.ftz and value < Fraction(2) ** fmt.emin:
        value = Fraction(0)
    return _clean(Number(x.negative, value), fmt), False


def _exponent(magnitude: Fraction, emin: int) -> int:
    if magnitude == 0:
        return emin
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    exponent -= magnitude < Fraction(2) ** exponent
    return max(exponent, emin)


def _round(x: Fraction, negative: bool, rounding: str, u: int, complement: bool) -> int:
    """Round a magnitude in units of the last place."""
    low, part = int(x // 1), x - x // 1
    if rounding.startswith("stochastic"):
        signed = -x if complement and negative else x
        signed = _to_random_bits(signed, rounding)
        return abs(int((signed + Fraction(u, 2**RANDOM_BITS)) // 1))
    if rounding == "jamming":  # the last bit of a two's complement word, or of a magnitude
        return abs(int(-x // 1) | 1) if complement and negative and x else low | 1 if complement or x else 0
    if rounding == "magnitude_truncation":
        return abs(int(-x // 1) + 1) if complement and negative and x else low
    if part == 0:
        return low
    half = Fraction(1, 2)
    up = {
        "nearest_even": part > half or (part == half and low % 2 == 1),
        "nearest_away": part >= half,
        "nearest_up": part > half or (part == half and not negative),
        "nearest_down": part > half or (part == half and negative),
        "nearest_zero": part > half,
        "floor": negative,
        "ceil": not negative,
        "toward_zero": False,
        "to_odd": low % 2 == 0,
        "nearest_odd": part > half or (part == half and low % 2 == 0),
        "away_from_zero": True,
    }[rounding]
    return low + up


def _to_random_bits(x: Fraction, rounding: str) -> Fraction:
    """Round to as many bits behind the last place as are drawn; the plain mode drops the others."""
    scaled = x * 2**RANDOM_BITS
    whole, rest = int(scaled // 1), scaled - scaled // 1
    tie = {
        "stochastic": False,
        "stochastic_nearest_even": whole % 2 == 1,
        "stochastic_nearest_odd": whole % 2 == 0,
        "stochastic_nearest_up": True,
    }[rounding]
    up = rounding != "stochastic" and (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and tie))
    return Fraction(whole + up, 2**RANDOM_BITS)


def _infinite(x: Number, fmt: Format, rule: str) -> tuple[Number, bool]:
    if not isinstance(fmt, Fixed):
        if rule == "satfinite" or (rule == "satpropagate" and not fmt.infinities):
            return Number(x.negative, Fraction(fmt.max)), True
        return (x, False) if fmt.infinities else (_clean(Number(x.negative, "nan"), fmt), True)
    if rule == "saturate_zero":
        return ZERO, True
    low, high = _limits(fmt, rule)
    return _of_raw(low if x.negative else high, fmt), True


def _limits(fmt: Fixed, rule: str) -> tuple[int, int]:
    high = 2 ** (fmt.width_bits - fmt.signed) - 1
    low = 0 if not fmt.signed else -high if rule == "saturate_symmetric" else -high - 1
    return low, high


def _fixed(raw: int, fmt: Fixed, rule: str) -> tuple[Number, bool]:
    low, high = _limits(fmt, rule)
    if low <= raw <= high:
        return _of_raw(raw, fmt), False
    if rule == "wrap":
        raw %= 2**fmt.width_bits
        return _of_raw(raw - 2**fmt.width_bits if raw > high else raw, fmt), True
    return _of_raw(0 if rule == "saturate_zero" else high if raw > high else low, fmt), True


def _of_raw(raw: int, fmt: Fixed) -> Number:
    return Number(raw < 0, abs(raw) * Fraction(2) ** -fmt.frac_bits)


def _clean(x: Number, fmt: Any) -> Number:
    if x.magnitude == "nan":
        return ZERO if fmt.nans == "none" else NAN
    return ZERO if x.magnitude == 0 and fmt.nans == "negative_zero" else x


def philox(counter: tuple[int, int, int, int], seed: int) -> list[int]:
    """Philox4x32-10 (Salmon et al., SC 2011, section 3.2): four words."""
    c, key, mask = list(counter), [seed % 2**32, seed // 2**32], 2**32 - 1
    for _ in range(10):
        p0, p1 = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(p1 >> 32) ^ c[1] ^ key[0], p1 & mask, (p0 >> 32) ^ c[3] ^ key[1], p0 & mask]
        key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
    return c


@dataclass
class Dot:
    """One output: `index` in C order of the logical result, random bits addressed by (seed, stream, step)."""

    mac: Mac
    index: int
    seed: int = 0
    stream: int = 0
    step: int = 0
    touched: bool = False

    def bits(self, draw: int) -> int:
        words = philox((self.index // 4, draw, self.stream, self.step), self.seed)
        return words[self.index % 4] >> (32 - RANDOM_BITS)

    def write(self, x: Number, fmt: Any, draw: int) -> tuple[Number, bool]:
        overflow = self.mac.overflow.value if self.mac.overflow else None
        return write(x, fmt, self.mac.rounding.value, overflow, self.bits(draw))

    def accumulate(self, x: Number, draw: int) -> Number:
        if self.mac.accumulator == "exact":
            return x
        y, over = self.write(x, self.mac.accumulator, draw)
        rule = self.mac.overflow.value if self.mac.overflow else default_rule(self.mac.accumulator)
        self.touched |= over and rule not in ("wrap", "ieee")
        self.touched |= self.became_infinite(x, y, over, self.mac.accumulator)
        return y

    def round_product(self, x: Number, draw: int) -> Number:
        y, over = self.write(x, self.mac.product, draw)
        self.touched |= self.became_infinite(x, y, over, self.mac.product)
        return y

    def became_infinite(self, x: Number, y: Number, over: bool, fmt: Any) -> bool:
        """Whether a finite number became infinite, or what stands for it, and was not clamped to the largest."""
        rule = self.mac.overflow.value if self.mac.overflow else default_rule(fmt)
        return rule == "ieee" and over and x.is_finite and y.magnitude != Fraction(fmt.max)

    def add(self, a: Number, b: Number, draw: int) -> Number:
        return self.accumulate(
            add(a, b, self.mac.rounding.value if self.mac.accumulator != "exact" else "nearest_even"), draw
        )

    def run(self, row: list[float], column: list[float], addend: float | None) -> Number:
        """Return the accumulator's content after products of floats."""
        start = None if addend is None else Number.of(addend)
        return self.sum_of([Number.of(a) for a in row], [Number.of(b) for b in column], start)

    def sum_of(self, row: list[Number], column: list[Number], start: Number | None) -> Number:
        """Return the accumulator's content."""
        depth, order = len(row), str(self.mac.order)
        products = [multiply(a, b) for a, b in zip(row, column, strict=True)]
        if self.mac.product != "exact":
            products = [self.round_product(p, 1 + 2 * k) for k, p in enumerate(products)]
        if order == "sequential":
            state = ZERO if start is None else self.accumulate(start, 2 * depth + 1)
            for k, p in enumerate(products):
                state = self.add(state, p, 2 + 2 * k)
        else:
            state = self._tree(self._leaves(products, order), 2 * depth + 1, start)
        if self.mac.accumulator == "exact" and state.magnitude == 0:
            return ZERO
        return state

    def _leaves(self, products: list[Number], order: str) -> list[Number | None]:
        """None stands for a lane without a product."""
        if order == "pairwise":
            return [self.accumulate(p, 2 + 2 * k) for k, p in enumerate(products)]
        lanes: list[Number | None] = [None] * int(order[6:-1])
        for k, p in enumerate(products):
            lanes[k % len(lanes)] = self.add(lanes[k % len(lanes)] or ZERO, p, 2 + 2 * k)
        return lanes

    def _tree(self, level: list[Number | None], draw: int, start: Number | None) -> Number:
        level = level or [None]
        while len(level) & (len(level) - 1):
            level = [*level, None]
        while len(level) > 1:
            pairs = list(zip(level[::2], level[1::2], strict=True))
            level = [a and self.add(a, b or ZERO, draw + i) for i, (a, b) in enumerate(pairs)]
            draw += len(pairs)
        root = level[0] or ZERO
        return root if start is None else self.add(root, start, draw)
