"""The output stage of fixed point: round, then the overflow rule, then flags."""

from __future__ import annotations

from dataclasses import dataclass

from emu.datapath import OutputStage, Overflow
from emu.formats import Fixed
from emu.prove.reference.rounding import Dropped, Step, looked_at, step_of
from emu.prove.reference.text import Bits, Module, constant, widened, width_of
from emu.prove.reference.unpack import Exact


@dataclass(frozen=True)
class Written:
    """What a stage writes.

    Attributes:
        code: the result.
        inexact: whether it differs from the exact one.
        underflow: whether it became 0, or IEEE 754's.
        overflow: whether the overflow rule was applied.
        invalid: whether NaN was written into a format without it, or came of numbers.
    """

    code: Bits
    inexact: Bits
    underflow: Bits
    overflow: Bits
    invalid: Bits


def write_fixed(m: Module, exact: Exact, stage: OutputStage, random: Bits | None) -> Written:
    """Return what a stage writes into a fixed-point format."""
    fmt = stage.format
    assert isinstance(fmt, Fixed)
    m.comment(f"output stage: {fmt} {stage.rounding.value} {stage.overflow.value}")
    nonzero = m.bit("nonzero", f"{exact.significand} != {constant(0, exact.significand.width)}")
    # The only zero is positive.
    negative = m.bit("negative", f"{exact.negative} & {nonzero}")
    whole, first, sticky = _split(m, exact, fmt, looked_at(stage))
    step = step_of(m, Dropped(first, sticky, negative, m.bit("odd", whole[0])), stage, random)
    if fmt.sign_magnitude and stage.rounding.moves_exact:  # beside a sign, a zero stays in every mode
        step = Step(*(m.bit("of_a_number", f"{bit} & {nonzero}") for bit in (step.up, step.down, step.inexact)))
    # a step up may carry
    width = whole.width + 2
    rounded = m.wire(
        "rounded", width, f"{widened(whole, width)} + {{{width - 1}'b0, {step.up}}} - {{{width - 1}'b0, {step.down}}}"
    )
    return _bounded(m, exact, stage, Rounded(nonzero, negative, rounded, step.inexact))


@dataclass(frozen=True)
class Rounded:
    """A rounded magnitude before the overflow rule."""

    nonzero: Bits
    negative: Bits
    magnitude: Bits
    inexact: Bits


def _split(m: Module, exact: Exact, fmt: Fixed, looked: int) -> tuple[Bits, Bits, Bits]:
    """Return the whole steps of a magnitude, the bits behind them that decide, and whether any other is 1.

    The significand is shifted left in a word whose last place, `looked` + 1 behind that of the format, is sticky. What
    lies so far left that no bit reaches the format's word only needs to stay beyond it.
    """
    significand, exponent = exact.significand, exact.exponent
    last = -fmt.frac_bits - looked - 1  # exponent of the sticky place
    highest = exponent.offset + exponent.top - last
    lowest = exponent.offset - last
    # a shift to the right beyond the significand leaves nothing but the sticky bit
    right = min(max(-lowest, 0), significand.width)
    # far enough to lie beyond the format's range whatever bit of the significand is the leading one
    left = min(max(highest, 0), fmt.width_bits + looked + 3)
    if exponent.bits is None:
        size = width_of(left + right)
        shift = m.wire("shift", size, constant(min(max(lowest, -right), left) + right, size))
    else:
        shift = _clamped(m, exponent.bits, lowest, right, left)
    total = max(significand.width + left, looked + 2)
    width = total + right
    shifted = m.wire("shifted", width, f"{widened(significand, width)} << {shift}")
    kept = m.wire("kept_word", total, shifted.slice(width - 1, right))
    # place 0 of the kept word is the one behind the bits that are looked at
    sticky = m.bit("sticky", f"{shifted.any_below(right)} | {kept[0]}")
    first = m.wire("first_bits", looked, kept.slice(looked, 1))
    whole = m.wire("whole", total - looked - 1, kept.slice(total - 1, looked + 1))
    return whole, first, sticky


def _clamped(m: Module, bits: Bits, lowest: int, right: int, left: int) -> Bits:
    """Return bits + lowest between -right and left, plus right."""
    width = max(bits.width, width_of(abs(lowest) + right + left)) + 1
    at = m.wire("counted", width, widened(bits, width))
    floor, ceiling = -right - lowest, left - lowest  # of `bits`
    result = width_of(right + left)
    # every exponent is beyond: a constant shift
    if ceiling < 0:
        return m.wire("shift", result, constant(right + left, result))
    inside = f"{at} - {constant(floor, width)}" if floor >= 0 else f"{at} + {constant(-floor, width)}"
    moved = m.wire("moved", width, inside)
    below = f"({at} < {constant(floor, width)}) ? {constant(0, result)} : " if floor > 0 else ""
    above = f"({at} > {constant(ceiling, width)}) ? {constant(right + left, result)} : "
    return m.wire("shift", result, f"{below}{above}{moved.slice(result - 1, 0)}")


def _two_s_complement(m: Module, negative: Bits, magnitude: Bits, word: int) -> str:
    """Return the low bits of a magnitude with a sign, in two's complement."""
    kept = magnitude.slice(word - 1, 0)
    return f"{negative} ? ~{kept} + {constant(1, word)} : {kept}"


def _sign_and_magnitude(m: Module, negative: Bits, magnitude: Bits, word: int) -> str:
    """Return a sign beside the low bits of a magnitude; a zero has none."""
    kept = m.wire("kept_magnitude", word - 1, magnitude.slice(word - 2, 0))
    return f"{{{negative} & (|{kept}), {kept}}}"


def _bounded(m: Module, exact: Exact, stage: OutputStage, rounded: Rounded) -> Written:
    fmt, rule, size = stage.format, stage.overflow, rounded.magnitude
    assert isinstance(fmt, Fixed)
    lowest = -fmt.max_raw if fmt.signed and rule is Overflow.SATURATE_SYMMETRIC else fmt.min_raw
    signed_word = _sign_and_magnitude if fmt.sign_magnitude else _two_s_complement
    finite = m.bit("finite", f"~{exact.is_special}")
    wide = max(size.width, fmt.width_bits + 1)
    # infinities and NaN are decided by their own bits below; their significand must not count
    magnitude = m.wire("magnitude", wide, f"{finite} ? {widened(size, wide)} : {constant(0, wide)}")
    high = m.bit(
        "too_high",
        f"(~{rounded.negative} & {magnitude} > {constant(fmt.max_raw, wide)}) | ({exact.infinite} & ~{exact.negative})",
    )
    low = m.bit(
        "too_low",
        f"({rounded.negative} & {magnitude} > {constant(-lowest, wide)}) | ({exact.infinite} & {exact.negative})",
    )
    overflow = m.bit("overflow", f"{high} | {low}")
    word, mask = fmt.width_bits, fmt.n_codes - 1
    plain = m.wire("plain", word, signed_word(m, rounded.negative, magnitude, word))
    # sign and magnitude: the sign bit beside the largest magnitude
    lowest_code = fmt.max_raw | (1 << (word - 1)) if fmt.sign_magnitude else lowest & mask
    largest, smallest = constant(fmt.max_raw & mask, word), constant(lowest_code, word)
    limits = f"{high} ? {largest} : {low} ? {smallest} : {plain}"
    if rule is Overflow.WRAP:  # an infinity has no residue: it saturates
        limits = f"~{exact.infinite} ? {plain} : {exact.negative} ? {smallest} : {largest}"
    elif rule is Overflow.SATURATE_ZERO:
        limits = f"{overflow} ? {constant(0, word)} : {plain}"
    nan = m.bit("not_a_number", f"{exact.nan} | {exact.made_nan}")
    zero = f"({magnitude} == {constant(0, wide)})"
    return Written(
        m.wire("written", word, f"{nan} ? {constant(0, word)} : {limits}"),
        m.bit("flag_inexact", f"({rounded.inexact} & {finite}) | {overflow}"),
        m.bit("flag_underflow", f"{rounded.nonzero} & ~{overflow} & {zero}"),
        overflow,
        nan,
    )
