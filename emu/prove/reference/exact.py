"""Sums and products before anything rounds, and infinities and NaN as IEEE 754 has them.

A sum is exact in a word that holds every place of both terms, or ends in a sticky bit: its last bit is 1 if anything
behind it is. Then it stands so far behind the result's last place that every mode rounds as it rounds the exact sum.

    a   1xxxxxxx 000000000000
    b   -------> 0001xxxx|xxx     what leaves on the right is or-ed into the last bit

Source: IEEE 754-2019 sections 5.4.1, 6.1 to 6.3; Boldo & Melquiond, "Emulation of a FMA and correctly rounded sums:
proved algorithms using rounding to odd", IEEE Transactions on Computers 57(4), 2008.
"""

from __future__ import annotations

from emu.datapath import OutputStage, Rounding
from emu.formats import Fixed
from emu.prove.reference.floating import Normal, normalised
from emu.prove.reference.rounding import looked_at
from emu.prove.reference.text import Bits, Exponent, Module, constant, minimum, padded, shifted_right, widened, width_of
from emu.prove.reference.unpack import Exact

#: A sum is exact in a word of up to so many bits; a longer one ends in a sticky bit.
WIDEST_EXACT = 64


def negated(m: Module, a: Exact) -> Exact:
    """Return -a, of a zero too."""
    turned = m.bit("turned", f"~{a.negative}")
    return Exact(turned, a.significand, a.exponent, a.infinite, a.nan, a.made_nan)


def multiply(m: Module, a: Exact, b: Exact) -> Exact:
    """Return the exact product; its sign, of a zero too, is the XOR of the signs."""
    m.comment("product")
    width = a.significand.width + b.significand.width
    zeros = [f"({x.significand} == {constant(0, x.significand.width)} & ~{x.is_special})" for x in (a, b)]
    nan = m.bit("product_nan", f"{a.nan} | {b.nan}")
    # infinity times 0 is invalid (IEEE 754-2019 7.2)
    made = m.bit("product_made_nan", f"~{nan} & (({a.infinite} & {zeros[1]}) | ({b.infinite} & {zeros[0]}))")
    infinite = m.bit("product_infinite", f"({a.infinite} | {b.infinite}) & ~{nan} & ~{made}")
    return Exact(
        m.bit("product_negative", f"{a.negative} ^ {b.negative}"),
        m.wire("product", width, f"{widened(a.significand, width)} * {widened(b.significand, width)}"),
        _sum_of_exponents(m, a.exponent, b.exponent),
        infinite,
        nan,
        made,
    )


def add(m: Module, a: Exact, b: Exact, stage: OutputStage, widest: int = WIDEST_EXACT) -> Exact:
    """Return the sum, exact or with a sticky last bit.

    A zero is -0 if both terms are negative, or under floor if one of them is.

    Args:
        m: the module.
        a: one term.
        b: the other.
        stage: what the sum is written by.
        widest: bits up to which the sum is exact; sums that fixed point writes always are.
    """
    m.comment("sum")
    lowest = min(a.exponent.offset, b.exponent.offset)
    # of any value that the terms can have: exponents of all places lie from lowest to highest - 1
    highest = max(x.significand.width + x.exponent.top + x.exponent.offset for x in (a, b))
    if isinstance(stage.format, Fixed) or highest - lowest <= widest:
        total, negative, exponent = _in_a_long_word(m, a, b, lowest, highest)
    else:
        total, negative, exponent = _with_a_sticky_bit(m, a, b, stage)
    zero = m.bit("sum_is_zero", f"{total} == {constant(0, total.width)}")
    # x + (-x) is +0, and -0 under floor (IEEE 754-2019 6.3)
    rule = "|" if stage.rounding is Rounding.FLOOR else "&"
    nan = m.bit("sum_nan", f"{a.nan} | {b.nan}")
    opposite = f"({a.infinite} & {b.infinite} & ({a.negative} ^ {b.negative}))"
    made = m.bit("sum_made_nan", f"~{nan} & ({a.made_nan} | {b.made_nan} | {opposite})")
    infinite = m.bit("sum_infinite", f"({a.infinite} | {b.infinite}) & ~{nan} & ~{made}")
    special = m.bit("sum_is_special", f"{nan} | {made} | {infinite}")
    sign_of_infinity = f"({a.infinite} ? {a.negative} : {b.negative})"
    finite_sign = f"({zero} ? ({a.negative} {rule} {b.negative}) : {negative})"
    return Exact(
        m.bit("sum_negative", f"{infinite} ? {sign_of_infinity} : {finite_sign}"),
        m.wire("sum_significand", total.width, f"{special} ? {constant(0, total.width)} : {total}"),
        exponent,
        infinite,
        nan,
        made,
    )


def _sum_of_exponents(m: Module, a: Exponent, b: Exponent) -> Exponent:
    top, offset = a.top + b.top, a.offset + b.offset
    parts = [part for part in (a.bits, b.bits) if part is not None]
    if len(parts) < 2:
        return Exponent(parts[0] if parts else None, top, offset)
    width = width_of(top)
    # both parts as wide as the sum: Verilog adds in the width of the widest operand
    total = " + ".join(widened(part, max(width, part.width)) for part in parts)
    return Exponent(m.wire("exponent", width, total), top, offset)


def _in_a_long_word(m: Module, a: Exact, b: Exact, lowest: int, highest: int) -> tuple[Bits, Bits, Exponent]:
    """Return the magnitude of a sum whose every place has a bit, its sign, and the exponent of its last place."""
    width = highest - lowest + 2  # a carry, and the sign
    terms = list[Bits]()
    for x in (a, b):
        up = x.exponent.offset - lowest
        term = f"{widened(x.significand, width)} << {up}"
        if x.exponent.bits is not None:
            term = f"({term}) << {x.exponent.bits}"
        term_bits = m.wire("term", width, term)
        # two's complement, so that one addition serves all signs
        terms.append(m.wire("signed_term", width, f"{x.negative} ? ~{term_bits} + {constant(1, width)} : {term_bits}"))
    total = m.wire("total", width, f"{terms[0]} + {terms[1]}")
    negative = m.bit("total_negative", total.top)
    size = m.wire("total_size", width - 1, f"{negative} ? ~{total} + {constant(1, width)} : {total}")
    return size, negative, Exponent(None, 0, lowest)


def _with_a_sticky_bit(m: Module, a: Exact, b: Exact, stage: OutputStage) -> tuple[Bits, Bits, Exponent]:
    """Return magnitude, sign and exponent of the last place of a sum that may end in a sticky bit.

    Both terms are normalised, the one with the smaller leading bit is shifted right. If bits of it leave, the sum has
    its leading bit at most one place below that of the larger term, and enough places behind it.
    """
    precision = max(a.significand.width, b.significand.width)
    # Places behind the larger term: at least the result's digits, those that modes look at, and room for the leading
    # bit, which a subtraction may move by one place.
    spare = stage.format.width_bits + looked_at(stage) + 4
    parts = [_left_aligned(m, x, precision) for x in (a, b)]
    base = min(part.leading.offset for part in parts)
    top = max(part.leading.top + part.leading.offset for part in parts) - base + 1
    key_width = width_of(top)
    keys = [_key(m, part, base, key_width) for part in parts]
    # by the leading exponents alone; equal ones may leave a negative difference, which `total_size` turns
    swap = m.bit("swap", f"{keys[1]} > {keys[0]}")
    (a_word, b_word), (a_key, b_key) = (part.word for part in parts), keys
    large = m.wire("larger_word", precision, f"{swap} ? {b_word} : {a_word}")
    small = m.wire("smaller_word", precision, f"{swap} ? {a_word} : {b_word}")
    key = m.wire("large_key", key_width, f"{swap} ? {b_key} : {a_key}")
    away = m.wire("distance", key_width, f"{swap} ? {b_key} - {a_key} : {a_key} - {b_key}")
    sign = m.bit("large_negative", f"{swap} ? {b.negative} : {a.negative}")
    word = precision + spare
    # further than the word is long, a shift leaves the sticky bit alone
    amount = minimum(m, "amount", away, word, top)
    right = m.wire("right", word, padded(small, spare))
    right = shifted_right(m, "right_term", right, amount, min(word, top))
    # a carry and the sign
    width = word + 2
    left = m.wire("left_term", width, f"{{2'b0, {padded(large, spare)}}}")
    differs = m.bit("signs_differ", f"{a.negative} ^ {b.negative}")
    wide = widened(right, width)
    total = m.wire("total", width, f"{differs} ? {left} - {wide} : {left} + {wide}")
    negative = m.bit("total_negative", f"{sign} ^ {total.top}")
    size = m.wire("total_size", width - 1, f"{total.top} ? ~{total} + {constant(1, width)} : {total}")
    # A key is the leading exponent - base + 1, and the last place stands word - 1 places behind the leading one.
    return size, negative, Exponent(key, top, base - 1 - (word - 1))


def _left_aligned(m: Module, x: Exact, precision: int) -> Normal:
    # zeros on the right: the value stays if the exponent of the last place goes down by as many
    missing = precision - x.significand.width
    significand = x.significand
    if missing:
        significand = m.wire("widened_term", precision, padded(significand, missing))
    return normalised(m, significand, x.exponent.plus(-missing))


def _key(m: Module, part: Normal, base: int, width: int) -> Bits:
    """Return the leading exponent, counted from base - 1; 0 for a zero."""
    bits, up = part.leading.bits, part.leading.offset - base + 1
    counted = (
        constant(up, width) if bits is None else f"{widened(bits, max(width, bits.width))} + {constant(up, width)}"
    )
    return m.wire("key", width, f"{part.nonzero} ? {counted} : {constant(0, width)}")
