"""Units with a fault in a step: a shift, a sticky bit, a sign, a bound; in fractions that share no code with emu.

The units of `BEFORE` were written before any cause that names them was. Those of `AFTER` were written when the causes
were there, and show that each is named.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import isqrt
from typing import Any

import faulty_units as rtl
from faulty_units import Ieee, Word, bounded, floor_log2, word

Unit = Callable[..., Word | None]
TWO = Fraction(2)
FP16, FP32, E5M2 = Ieee(5, 10), Ieee(8, 23), Ieee(5, 2)


def values_of(unit: Ieee, *words: Word) -> list[Fraction] | None:
    """Return what words stand for, None if one is no number."""
    numbers = [unit.read(w) for w in words]
    return [x.value for x in numbers] if all(x.is_number for x in numbers) else None


def total_of(x: list[Fraction]) -> Fraction:
    return sum(x, Fraction(0))


def digits_of(x: Fraction, last: Fraction) -> int:
    """Return a number in last places, rounded to nearest even."""
    kept = int(x / last)
    return kept + rtl.nearest_even(kept, x / last - kept, 0)


def exponent_of(unit: Ieee, w: Word) -> int:
    """Return the exponent field of a word; that of subnormal numbers is 1."""
    return max((w & unit.infinity) >> unit.f, int(not unit.hidden))


def written(x: Fraction, unit: Ieee = FP16) -> Word:
    return unit.write(int(x < 0), abs(x))


# ---- written before the causes ---------------------------------------------------------------------------------------


def rounds_before_it_denormalises(a: Word) -> Word | None:
    x = values_of(FP32, a)
    if x is None or x[0] == 0:
        return None
    last = TWO ** (floor_log2(abs(x[0])) - 10)
    return FP16.write(int(x[0] < 0), digits_of(abs(x[0]), last) * last)


def adds_what_a_subtraction_should_borrow(a: Word, b: Word) -> Word | None:
    """Guard, round and sticky bit, which is or-ed onto a difference, too."""
    x = values_of(FP16, a, b)
    if x is None or 0 in x or total_of(x) == 0:
        return None
    big, small = sorted(x, key=abs, reverse=True)
    grid = TWO ** (max(floor_log2(abs(big)), -14) - 12)
    cut = int(abs(small) / grid)
    total = abs(big) / grid + (cut if (big < 0) == (small < 0) else -cut)
    return FP16.write(int(big < 0), (total + Fraction(int(cut != abs(small) / grid), 2)) * grid)


def sticky_before_the_shift(a: Word, b: Word) -> Word | None:
    """The bit that normalisation shifts out of a product of 2 or more does not reach the sticky bit."""
    x = values_of(FP16, a, b)
    if x is None or 0 in x:
        return None
    m = abs(x[0] * x[1])
    if floor_log2(m) == floor_log2(abs(x[0])) + floor_log2(abs(x[1])) + 1:
        moved = TWO ** (floor_log2(m) - 12)
        m -= moved * (int(m / moved) & 1)
    return FP16.write(int(x[0] * x[1] < 0), m)


def product_far_below(unit: Ieee) -> Unit:
    """A product 13 or more places below the addend is left out, without a sticky bit."""

    def of(a: Word, b: Word, c: Word) -> Word | None:
        x = values_of(unit, a, b, c)
        if x is None or x[0] * x[1] == 0 or x[2] == 0 or x[0] * x[1] + x[2] == 0:
            return None
        product = x[0] * x[1]
        far = floor_log2(abs(x[2])) - floor_log2(abs(product)) > 12
        return written(x[2] if far else product + x[2], unit)

    return of


def quotient_short_of_a_digit(a: Word, b: Word) -> Word | None:
    """Digits for a quotient from 1 on: one below 1 has a guard bit of 0 when it is normalised."""
    x = values_of(FP16, a, b)
    if x is None or 0 in x:
        return None
    q = abs(x[0] / x[1])
    if floor_log2(q) < floor_log2(abs(x[0])) - floor_log2(abs(x[1])):
        last = TWO ** (floor_log2(q) - 10)
        q = int(q / last) * last + (last / 4 if q / last != int(q / last) else 0)
    return FP16.write(int(x[0] / x[1] < 0), q)


def root(x: Fraction, digits: int = 200) -> Fraction:
    scaled = x * TWO ** (2 * digits)
    whole = isqrt(int(scaled))
    return Fraction(2 * whole + (whole * whole != scaled), 2 ** (digits + 1))


def root_of_an_odd_exponent(a: Word) -> Word | None:
    """The exponent is halved toward zero: that of an odd one below 0 is one too high."""
    x = values_of(FP16, a)
    if x is None or x[0] <= 0:
        return None
    exponent = floor_log2(x[0])
    return FP16.write(0, root(x[0]) * (2 if exponent < 0 and exponent % 2 else 1))


def products_of_15_bits(a: list[Word], b: list[Word]) -> Word:
    """-128 times -128 has 16 bits."""
    total = sum(word(word(x, 8) * word(y, 8) % 2**15, 15) for x, y in zip(a, b, strict=True))
    return bounded(total, 20) % 2**20


def pairs_that_wrap(a: list[Word], b: list[Word]) -> Word:
    """Neighbouring products are added in 16 bits, as an instruction for pairs of bytes does that wraps."""
    products = [word(x, 8) * word(y, 8) for x, y in zip(a, b, strict=True)]
    pairs = [word((x + y) % 2**16, 16) for x, y in zip(products[::2], products[1::2], strict=True)]
    return bounded(sum(pairs), 20) % 2**20


def infinite_a_binade_early(a: Word, b: Word) -> Word | None:
    x = values_of(FP16, a, b)
    if x is None:
        return None
    right = FP16.write(a >> 15 ^ b >> 15, abs(x[0] * x[1]))
    return right & 0x8000 | 0x7C00 if right & 0x7C00 == 0x7800 else right


def half_and_a_division(a: Word) -> Word:
    """Half is added to all words, which are then divided as C divides: toward zero."""
    total = word(a, 32) + 2**15
    quotient = abs(total) // 2**16
    return bounded(quotient if total >= 0 else -quotient, 16) % 2**16


# ---- written after the causes ----------------------------------------------------------------------------------------


def overflow_before_the_shift(a: Word, b: Word) -> Word | None:
    """Infinity is looked for before a product of 2 or more is normalised: then its exponent is infinity's."""
    x = values_of(FP16, a, b)
    if x is None or 0 in x:
        return None
    m = abs(x[0] * x[1])
    if floor_log2(m) != 16 or floor_log2(abs(x[0])) + floor_log2(abs(x[1])) != 15:
        return None
    return int(x[0] * x[1] < 0) << 15 | (31 << 10) + digits_of(m, TWO**6) - 1024


def lane_read_as_unsigned(lane: int) -> Unit:
    def of(a: list[Word], b: list[Word]) -> Word:
        factors = [x if k == lane else word(x, 8) for k, x in enumerate(a)]
        return bounded(sum(x * word(y, 8) for x, y in zip(factors, b, strict=True)), 20) % 2**20

    return of


def sums_that_cancel(a: Word, b: Word) -> Word | None:
    """8 or more leading digits that cancel are taken for all of them."""
    x = values_of(FP16, a, b)
    if x is None or 0 in x or total_of(x) == 0:
        return None
    lost = max(floor_log2(abs(y)) for y in x) - floor_log2(abs(total_of(x)))
    return 0 if lost >= 8 else None


def quotient_without_sticky(a: Word, b: Word) -> Word | None:
    x = values_of(FP16, a, b)
    if x is None or 0 in x:
        return None
    q = abs(x[0] / x[1])
    last = TWO ** (floor_log2(q) - 11)
    return FP16.write(int(x[0] / x[1] < 0), int(q / last) * last)


def root_without_sticky(a: Word) -> Word | None:
    x = values_of(FP16, a)
    if x is None or x[0] <= 0:
        return None
    last = TWO ** (floor_log2(root(x[0])) - 11)
    return FP16.write(0, int(root(x[0]) / last) * last)


def shift_modulo(unit: Ieee, bits: int) -> Unit:
    """The count of the alignment shift has so many bits."""

    def of(a: Word, b: Word) -> Word | None:
        x = values_of(unit, a, b)
        if x is None or total_of(x) == 0:
            return None
        apart = exponent_of(unit, a) - exponent_of(unit, b)
        small = x[1] if apart >= 0 else x[0]
        total = total_of(x) - small + small * TWO ** (abs(apart) >> bits << bits)
        return written(total, unit) if total else 0

    return of


def cut_below_the_larger_term(unit: Ieee) -> Unit:
    """Both terms are cut, toward minus infinity, below as many digits as the result has; what cancels is -0."""

    def of(a: Word, b: Word) -> Word | None:
        x = values_of(unit, a, b)
        if x is None or total_of(x) == 0:
            return None
        last = TWO ** (floor_log2(max(map(abs, x))) - unit.f)
        total = total_of([(term // last) * last for term in x])
        return written(total, unit) if total else unit.signed(1, 0)

    return of


def leading_zeros_off_by_one(a: Word, b: Word) -> Word | None:
    """Anticipated where signed digits begin, whatever is borrowed further down, and never corrected."""
    x = values_of(FP16, a, b)
    if x is None or total_of(x) == 0 or (x[0] < 0) == (x[1] < 0):
        return None
    exponent = floor_log2(abs(total_of(x)))
    lost = max(floor_log2(abs(y)) for y in x if y) - exponent
    if lost < 2 or exponent < -13:
        return None
    low, high = sorted(int(abs(y) * 2**24) for y in x)
    digits = [(high >> i & 1) - (low >> i & 1) for i in range(40)]
    first = max(i for i in range(40) if digits[i])
    while first > 0 and digits[first - 1] == -1:
        first -= 1
    if first == (high - low).bit_length() - 1:
        return None
    kept = int(abs(total_of(x)) / TWO ** (exponent - 10))
    return int(total_of(x) < 0) << 15 | (exponent + 16) << 10 | kept >> 1


def rounding_in_32_bits(a: Word) -> Word:
    return bounded(word((a + 2**11) % 2**32, 32) >> 12, 16) % 2**16


def lowest_negated_to_itself(a: Word, b: Word) -> Word:
    x, y = word(a, 16), word(b, 16)
    magnitudes = [v if v == -(2**15) else abs(v) for v in (x, y)]
    product = magnitudes[0] * magnitudes[1]
    return bounded((-product if (x < 0) != (y < 0) else product) >> 8, 16) % 2**16


def lowest_integer_to_minus_zero(a: Word) -> Word:
    return 1 << 31 if a == 1 << 31 else written(Fraction(word(a, 32)), FP32)


def exponent_that_wraps(a: Word, b: Word) -> Word | None:
    x = values_of(FP16, a, b)
    if x is None or x[0] * x[1] == 0:
        return None
    m = abs(x[0] * x[1])
    exponent = max(floor_log2(m), -14)
    code = (exponent + 14 << 10) + digits_of(m, TWO ** (exponent - 10))
    return int(x[0] * x[1] < 0) << 15 | code & 0x7FFF


def aligned_to_products_of_zero(a: list[Word], b: list[Word], c: Word) -> Word | None:
    """24 digits below the largest exponent, which a product of 0 has, too."""
    unit = Ieee(5, 10, up=rtl.toward_zero, largest=True)
    x, y, z = values_of(E5M2, *a), values_of(E5M2, *b), values_of(unit, c)
    if x is None or y is None or z is None:
        return None
    terms = [p * q for p, q in zip(x, y, strict=True)] + z
    if not any(terms):
        return None
    exponents = [exponent_of(E5M2, p) + exponent_of(E5M2, q) - 30 for p, q in zip(a, b, strict=True)]
    grid = TWO ** (max(*exponents, exponent_of(unit, c) - 15) - 23)
    total = total_of([int(term / grid) * grid for term in terms])
    return written(total, unit) if total else 0


def without_subnormals(a: Word) -> Word:
    return a & 0x8000 if a & 0x7C00 == 0 else a


def flushed_operands_and_a_lost_carry(a: Word, b: Word) -> Word:
    return rtl.add(Ieee(5, 10, keeps_exponent=True))(without_subnormals(a), without_subnormals(b))


def lost_bit_and_ties_toward_zero(a: Word) -> Word:
    return rtl.convert(FP32, Ieee(5, 10, up=rtl.half_down))(a & ~1 if a >> 23 & 255 != 255 else a)


#: Operation, operands' formats, result's format; options; the unit; how the cause that is named begins.
Case = tuple[tuple[str, str, str], dict[str, Any], Unit, str]
_DOT: dict[str, Any] = {"depth": 4, "mac": {"accumulator": "fix20f8"}}
_FLOOR = Ieee(5, 10, up=rtl.floor)
BEFORE: dict[str, Case] = {
    "double rounding": (
        ("quantize", "fp32", "fp16"), {}, rounds_before_it_denormalises,
        "subnormal results rounded twice, to full precision first"),
    "no borrow": (
        ("add", "fp16 fp16", "fp16"), {}, adds_what_a_subtraction_should_borrow,
        "terms aligned to 13 digits, the others a sticky bit that only adds"),
    "sticky before the shift": (
        ("multiply", "fp16 fp16", "fp16"), {}, sticky_before_the_shift,
        "a sticky bit that misses bit 1 behind the guard, of results that are not subnormal, products of significands "
        "that reach 2"),
    "a product far below": (
        ("fma", "fp16 fp16 fp16", "fp16"), {"rounding": "floor"}, product_far_below(_FLOOR),
        "terms more than 12 places below the largest left out, by their first digits, of a second term of larger"),
    "a quotient short of a digit": (
        ("divide", "fp16 fp16", "fp16"), {}, quotient_short_of_a_digit,
        "results cut to 11 digits before they are rounded, without a sticky bit, of results that are not subnormal, "
        "quotients of"),
    "odd roots": (
        ("sqrt", "fp16", "fp16"), {}, root_of_an_odd_exponent,
        "results of twice their value, of roots of odd exponents, operands a below 1 alone"),
    "products of 15 bits": (
        ("matmul", "fix8f4 fix8f4", "fix20f8"), _DOT, products_of_15_bits, "products that wrap at 15 bits"),
    "half and a division": (
        ("quantize", "fix32f16", "fix16f0"), {"rounding": "nearest_up"}, half_and_a_division,
        "half added to all, then truncated toward zero"),
}  # fmt: skip
AFTER: dict[str, Case] = {
    "overflow before the shift": (
        ("multiply", "fp16 fp16", "fp16"), {}, overflow_before_the_shift,
        "overflow unseen: exponent and fraction as they are, the infinity's too, of results up to 1024 steps "
        "beyond the range"),
    "an unsigned lane": (
        ("matmul", "fix8f4 fix8f4", "fix20f8"), _DOT, lane_read_as_unsigned(2), "factor a of lane 2 read as unsigned"),
    "sums that cancel": (
        ("add", "fp16 fp16", "fp16"), {}, sums_that_cancel,
        "+0, of sums of which 8 or more leading digits cancel alone"),
    "a quotient without sticky": (
        ("divide", "fp16 fp16", "fp16"), {}, quotient_without_sticky,
        "results cut to 12 digits before they are rounded, without a sticky bit"),
    "a root without sticky": (
        ("sqrt", "fp16", "fp16"), {}, root_without_sticky,
        "a dropped sticky bit: nothing behind the guard bit was looked at"),
    "a shift of three bits": (
        ("add", "fp16 fp16", "fp16"), {}, shift_modulo(FP16, 3), "alignment shifts taken modulo 8"),
    "no guard bit under floor": (
        ("add", "fp16 fp16", "fp16"), {"rounding": "floor"}, cut_below_the_larger_term(_FLOOR),
        "terms aligned to 11 digits, the others cut toward minus infinity"),
    "leading zeros": (
        ("add", "fp16 fp16", "fp16"), {}, leading_zeros_off_by_one,
        "a first digit one place too low, taken for the fraction's, of leading zeros anticipated from the operands"),
    "rounding in 32 bits": (
        ("quantize", "fix32f12", "fix16f0"), {"rounding": "nearest_up"}, rounding_in_32_bits,
        "the rounding constant added in 32 bits, a sum that wraps"),
    "the lowest word": (
        ("multiply", "fix16f8 fix16f8", "fix16f8"), {"rounding": "floor"}, lowest_negated_to_itself,
        "the lowest number of operands negated to itself"),
    "the lowest integer": (
        ("quantize", "fix32f0", "fp32"), {}, lowest_integer_to_minus_zero, "0, of operand a lowest alone"),
    "an exponent that wraps": (
        ("multiply", "fp16 fp16", "fp16"), {}, exponent_that_wraps,
        "overflow unseen: exponent and fraction as they are, the infinity's too"),
    "a product of zero": (
        ("matmul", "fp8_e5m2 fp8_e5m2 fp16", "fp16"), {"depth": 2, "rounding": "toward_zero", "overflow": "satfinite"},
        aligned_to_products_of_zero,
        "terms aligned to 24 digits below the largest exponent, which a product of 0 has, too, the others cut"),
    "pairs that wrap": (
        ("matmul", "fix8f4 fix8f4", "fix20f8"), _DOT, pairs_that_wrap, "sums of 2 products that wrap at 16 bits"),
    "overflow a binade early": (
        ("multiply", "fp16 fp16", "fp16"), {}, infinite_a_binade_early, "numbers of the largest exponent overflow"),
    "flushed operands and a lost carry": (
        ("add", "fp16 fp16", "fp16"), {}, flushed_operands_and_a_lost_carry,
        "subnormal numbers taken as zero of operands, and a lost carry of the rounding adder"),
    "a lost bit and ties": (
        ("quantize", "fp32", "fp16"), {}, lost_bit_and_ties_toward_zero,
        "the last bit not connected of operand a, and rounding nearest_zero instead of nearest_even"),
}  # fmt: skip
