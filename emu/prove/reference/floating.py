"""The output stage of floats: normalise, round, then the overflow rule, then flags.

Magnitudes are counted in steps from zero: an index is (binade << fraction_bits) + fraction, and a step beyond the last
fraction of a binade is the first of the next. So rounding up carries into the exponent, out of the subnormals too.
"""

from __future__ import annotations

from dataclasses import dataclass

from emu.datapath import OutputStage, Overflow, Tininess
from emu.formats import Float
from emu.prove.reference.fixed import Written
from emu.prove.reference.rounding import Dropped, Step, looked_at, step_of
from emu.prove.reference.text import Bits, Exponent, Module, constant, padded, shifted_right, widened, width_of
from emu.prove.reference.unpack import Exact


@dataclass(frozen=True)
class Normal:
    """A magnitude whose leading bit is its leftmost one.

    Attributes:
        nonzero: whether there is a leading bit.
        word: the significand, shifted left.
        leading: exponent of the leading bit.
    """

    nonzero: Bits
    word: Bits
    leading: Exponent


def normalised(m: Module, significand: Bits, exponent: Exponent) -> Normal:
    """Shift a significand left until its leading bit is 1."""
    width = significand.width
    nonzero = m.bit("nonzero", f"{significand} != {constant(0, width)}")
    word, taken = significand, list[Bits]()
    # a barrel shifter: the widest shift first, each taken if the places that it would drop are empty
    for level in reversed(range((width - 1).bit_length())):
        places = 1 << level
        is_empty = m.bit("is_empty", f"{word.slice(width - 1, width - places)} == {constant(0, places)}")
        word = m.wire("aligned", width, f"{is_empty} ? {word} << {places} : {word}")
        taken.append(is_empty)
    if not taken:
        return Normal(nonzero, word, exponent)
    # `left` is 1 for each shift that was not taken: so it counts down from `most`, and exponents need no subtraction
    most = (1 << len(taken)) - 1
    left = m.wire("left_bits", len(taken), f"~{{{', '.join(bit.name for bit in taken)}}}")  # most - places shifted by
    top = exponent.top + most
    bits = left
    if exponent.bits is not None:
        size = width_of(top)
        bits = m.wire("leading", size, f"{widened(exponent.bits, max(size, exponent.bits.width))} + {left}")
    return Normal(nonzero, word, Exponent(bits, top, exponent.offset + width - 1 - most))


@dataclass(frozen=True)
class Rounded:
    """A rounded magnitude, as an index, and what was noted on the way."""

    index: Bits
    largest: int
    step: Step
    below: Bits
    tiny: Bits


def write_float(m: Module, exact: Exact, stage: OutputStage, random: Bits | None, tininess: Tininess | None) -> Written:
    """Return what a stage writes into a float format; `tininess` None: underflow means that a result became 0."""
    fmt = stage.format
    assert isinstance(fmt, Float)
    m.comment(f"output stage: {fmt} {stage.rounding.value} {stage.overflow.value}")
    normal = normalised(m, exact.significand, exact.exponent)
    rounded = _rounded(m, exact, normal, stage, random, tininess)
    return _bounded(m, exact, normal, rounded, stage, counts_zeros=tininess is None)


def _rounded(
    m: Module, exact: Exact, normal: Normal, stage: OutputStage, random: Bits | None, tininess: Tininess | None
) -> Rounded:
    fmt = stage.format
    assert isinstance(fmt, Float)
    precision, looked = fmt.significand_bits, looked_at(stage)
    # the digits, the bits that modes look at, and one place for the sticky bit
    enough = precision + looked + 1
    word = normal.word
    if word.width < enough:
        word = m.wire("longer", enough, padded(word, enough - word.width))
    distance = fmt.emin - normal.leading.offset  # of the smallest normal number from the least leading exponent
    bits, top = normal.leading.bits, normal.leading.top
    if bits is None:
        bits = m.bit("leading", "1'b0")
    below, binade, highest = _place(m, normal, bits, top, distance)
    shifted = word
    if distance > 0:
        most = min(distance, enough)
        size = max(bits.width, width_of(distance))
        gap = m.wire("gap", size, f"{below} ? {constant(distance, size)} - {widened(bits, size)} : {constant(0, size)}")
        amount = gap
        if distance > most:
            amount = m.wire(
                "amount", width_of(most), f"({gap} > {constant(most, size)}) ? {constant(most, width_of(most))} : {gap}"
            )
        shifted = shifted_right(m, "denormal", word, amount, most)
    # bound of the rounded index: significands are below 2**precision, and a step up reaches it at most
    largest = (highest << fmt.fraction_bits) + (1 << precision)
    size = width_of(largest)
    # the whole digits contain the hidden bit, which adds the binade's first step: subnormals lack it, and stay in
    # binade 0
    index = m.wire("index", size, f"{{{binade}, {fmt.fraction_bits}'b0}} + {_whole(shifted, precision)}"
                   if fmt.fraction_bits else f"{binade} + {_whole(shifted, precision)}")  # fmt: skip
    # In a format without zero, code 0 has the index 2**fraction_bits: an odd number of steps if that is 1.
    turned = not fmt.zero and fmt.fraction_bits == 0
    odd = m.bit("odd", f"~{index[0]}" if turned else index[0])
    step = _step(m, shifted, exact.negative, odd, stage, random, normal)
    moved = m.wire("rounded", size, f"{index} + {{{size - 1}'b0, {step.up}}}" if size > 1 else f"{index} + {step.up}")
    tiny = m.bit("below_normal", f"{normal.nonzero} & {below}")
    if tininess is Tininess.AFTER_ROUNDING and not stage.rounding.draws:
        tiny = _tiny_after(m, normal, word, bits, distance, exact, stage, tiny)
    if fmt.hidden_one:  # the smallest normal number is a step above the power of two
        seen = moved if tininess is Tininess.AFTER_ROUNDING and not stage.rounding.draws else index
        tiny = m.bit("below_normal", f"{normal.nonzero} & {seen} <= {constant(fmt.lowest_index, size)}")
    return Rounded(moved, largest, step, below, tiny)


def _place(m: Module, normal: Normal, bits: Bits, top: int, distance: int) -> tuple[Bits, Bits, int]:
    """Return whether a number is below the normal ones, its binade from the lowest, and the highest binade."""
    below = "1'b0"
    if distance > 0:
        below = "1'b1" if distance > top else f"{bits} < {constant(distance, max(bits.width, width_of(distance)))}"
    below = m.bit("below", below)
    highest = max(top - distance, 0)
    size = max(bits.width, width_of(abs(distance)), width_of(highest))
    wide = widened(bits, size)
    over = f"{wide} - {constant(distance, size)}" if distance >= 0 else f"{wide} + {constant(-distance, size)}"
    over_bits = m.wire("over", size, f"({below} | ~{normal.nonzero}) ? {constant(0, size)} : {over}")
    return below, m.wire("binade", width_of(highest), over_bits.slice(width_of(highest) - 1, 0)), highest


def _whole(word: Bits, precision: int) -> str:
    return word.slice(word.width - 1, word.width - precision)


def _step(
    m: Module, word: Bits, negative: Bits, odd: Bits, stage: OutputStage, random: Bits | None, normal: Normal
) -> Step:
    """Return the step of a magnitude whose whole bits stand on the left of a word; a zero stays in every mode."""
    assert isinstance(stage.format, Float)
    looked, rest = looked_at(stage), word.width - stage.format.significand_bits
    first = m.wire("first_bits", looked, word.slice(rest - 1, rest - looked))
    sticky = m.bit("sticky", word.any_below(rest - looked))
    step = step_of(m, Dropped(first, sticky, negative, odd), stage, random)
    up = m.bit("away", f"{step.up} & {normal.nonzero}")
    return Step(up, step.down, m.bit("moved_or_cut", f"{step.inexact} & {normal.nonzero}"))


def _tiny_after(
    m: Module, normal: Normal, word: Bits, bits: Bits, distance: int, exact: Exact, stage: OutputStage, tiny: Bits
) -> Bits:
    """Return whether a result is tiny, rounded as if exponents had no end: it does not reach the normal numbers."""
    fmt = stage.format
    assert isinstance(fmt, Float)
    if not 0 < distance <= normal.leading.top + 1:
        return tiny
    whole = m.wire("unbounded", fmt.significand_bits, _whole(word, fmt.significand_bits))
    # Just below the smallest normal number. With one bit of precision, the last bit of a code is that of its binade:
    # one step below the lowest one.
    odd = whole[0] if fmt.fraction_bits else ("1'b1" if not fmt.zero else "1'b0")
    step = _step(m, word, exact.negative, m.bit("unbounded_odd", odd), stage, None, normal)
    size = max(bits.width, width_of(distance))
    # only from the binade just below, with all digits 1, can a step up reach the smallest normal number
    is_next = f"({widened(bits, size)} == {constant(distance - 1, size)})"
    reaches = m.bit("reaches", f"{is_next} & (&{whole}) & {step.up}")
    return m.bit("tiny", f"{tiny} & ~{reaches}")


def _bounded(
    m: Module, exact: Exact, normal: Normal, rounded: Rounded, stage: OutputStage, *, counts_zeros: bool
) -> Written:
    fmt = stage.format
    assert isinstance(fmt, Float)
    # wide enough for the index, for the comparison with the largest one, and for a code cut out of it
    size = max(rounded.index.width, width_of(fmt.max_index), fmt.exponent_bits + fmt.fraction_bits)
    index = m.wire("magnitude", size, widened(rounded.index, size))
    finite = m.bit("finite", f"~{exact.is_special}")
    inexact, zero = rounded.step.inexact, m.bit("is_zero", f"{index} == {constant(0, size)}")
    if fmt.ftz or fmt.hidden_one:
        # index of the smallest number that is not flushed
        least_kept = (1 << fmt.fraction_bits) + fmt.hidden_one
        flushed = m.bit("flushed", f"~{zero} & {index} < {constant(least_kept, size)}")
        index = m.wire("magnitude", size, f"{flushed} ? {constant(0, size)} : {index}")
        inexact, zero = m.bit("inexact", f"{inexact} | {flushed}"), m.bit("is_zero", f"{zero} | {flushed}")
    least = fmt.lowest_index
    if not fmt.zero:  # what is smaller than the least value, 0 too, is written as it
        lifted = m.bit("lifted", f"{finite} & ~({normal.nonzero} & ~{rounded.below})")
        index = m.wire("magnitude", size, f"{lifted} ? {constant(least, size)} : {index}")
        inexact, zero = m.bit("inexact", f"{inexact} | {lifted}"), m.bit("is_zero", f"{zero} | {lifted}")
    beyond_least = "1'b0"
    # an unsigned format has nothing below 0 but -0 and what rounds to it
    if not fmt.signed:
        beyond_least = f"{exact.negative} & ({exact.infinite} | ~{zero})"
    under = m.bit("under_range", beyond_least)
    over = f"({index} > {constant(fmt.max_index, size)}) | ({under} & ~{exact.infinite})"
    overflow = m.bit("beyond_range", over)
    outside = _outside(m, exact, overflow, under, stage)
    code_width = max(fmt.exponent_bits + fmt.fraction_bits, 1)
    # codes count from the index of code 0
    code = f"{index} - {constant(least, size)}"
    inside = m.wire("inside_code", size, f"{zero} ? {constant(0, size)} : {code}" if fmt.hidden_one else code)
    magnitude = m.wire(
        "code", code_width, f"({overflow} | {exact.infinite}) ? {outside.code} : {inside.slice(code_width - 1, 0)}"
    )
    applied = m.bit("applied", f"{overflow} | ({exact.infinite} & ~{outside.is_infinity})")
    made = m.bit("makes_nan", f"{outside.is_nan} | {exact.made_nan}")
    nan = m.bit("not_a_number", f"{made} | {exact.nan}")
    underflow = f"{normal.nonzero} & {zero}" if counts_zeros else f"{inexact} & {rounded.tiny} & ~{overflow}"
    return Written(
        _coded(m, magnitude, exact.negative, nan, fmt),
        m.bit("flag_inexact", f"{inexact} | {applied}"),
        m.bit("flag_underflow", f"({underflow}) & ~{nan}"),
        applied,
        m.bit("flag_invalid", made.name if fmt.nan_code is not None else nan.name),
    )


@dataclass(frozen=True)
class Outside:
    """What is written for a result outside the range."""

    code: Bits
    is_infinity: Bits
    is_nan: Bits


def _outside(m: Module, exact: Exact, overflow: Bits, under: Bits, stage: OutputStage) -> Outside:
    """Return the limit on the result's side, or infinity, or NaN where the format has none."""
    fmt = stage.format
    assert isinstance(fmt, Float)
    width = max(fmt.exponent_bits + fmt.fraction_bits, 1)
    no_infinity = m.bit("no_infinity", under.name if fmt.infinity_code is not None else "1'b1")
    if stage.overflow is Overflow.SATFINITE:
        limited = "1'b1"
    elif stage.overflow is Overflow.SATPROPAGATE:
        limited = f"{overflow} | {no_infinity}"
    else:
        # modes that round toward zero on a side stay at the largest number there (IEEE 754-2019 7.4)
        positive, negative = ("1'b1" if stays else "1'b0" for stays in stage.rounding.meaning.stays)
        limited = f"({exact.negative} ? {negative} : {positive}) & {overflow}"
    limited = m.bit("limited", limited)
    limit = f"({under} ? {constant(0, width)} : {constant(fmt.max_code, width)})"
    code = f"{limited} ? {limit} : {constant(fmt.infinity_code or 0, width)}"
    beyond = f"({overflow} | {exact.infinite}) & ~{limited}"
    return Outside(
        m.wire("outside_code", width, code),
        m.bit("writes_infinity", f"{beyond} & ~{no_infinity}"),
        m.bit("writes_nan", f"{beyond} & {no_infinity}"),
    )


def _coded(m: Module, magnitude: Bits, negative: Bits, nan: Bits, fmt: Float) -> Bits:
    """Return the code of a magnitude, its sign and NaN; a format without NaN has its least value instead."""
    sign = negative.name
    # then the code of -0 is 0, or a NaN's
    if not fmt.has_negative_zero:
        sign = f"{negative} & ({magnitude} != {constant(0, magnitude.width)})"
    sign = m.bit("sign", sign)
    if fmt.exponent_bits + fmt.fraction_bits == 0:
        word = sign.name
    else:
        word = f"{{{sign}, {magnitude}}}" if fmt.signed else magnitude.name
    return m.wire("written", fmt.width_bits, f"{nan} ? {constant(fmt.nan_code or 0, fmt.width_bits)} : {word}")
