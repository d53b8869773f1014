"""A vector as people read it: operands, the exact result with guard, round and sticky bit, the right and given code.

    exact     0.03125 = 0x1.0000000000000p-5
                    0 000.0000|1 0 0  guard, round, sticky; last place 2**-4: a tie
    expected  0x00  0 000.0000  0.0
    given     0x01  0 000.0001  0.0625

Source of the words guard, round and sticky: IEEE 754 arithmetic as built (Hennessy & Patterson, appendix J).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from emu.formats import Fixed, Format
from emu.testing.bits import describe_code, fields_of
from emu.testing.vectors.causes.flags import NAMES as FLAG_NAMES
from emu.testing.vectors.definition import exact_value, last_place
from emu.testing.vectors.description import NAMES, Codes, Vectors
from emu.testing.vectors.evidence import Evidence

#: Terms of a product that are shown, and bits of a word.
MOST_TERMS, MOST_BITS = 6, 64
HALF = Fraction(1, 2)


def picture(vectors: Vectors, given: Codes | None, index: int) -> Iterator[str]:
    """Yield the lines that show a vector; `given` are a dump's codes, None if only its flags are wrong."""
    d, fmt = vectors.description, vectors.description.stage.format
    for name, source, codes in zip(NAMES, d.operand_formats, vectors.operands, strict=False):
        terms = np.atleast_1d(codes[index])
        for k, code in enumerate(terms[:MOST_TERMS]):
            label = f"{name}[{k}]" if terms.size > 1 else name
            yield f"{label:<10}{describe_code(source, int(code))}"
        if terms.size > MOST_TERMS:
            yield f"{'':<10}... {terms.size - MOST_TERMS} more"
    exact = exact_value(d, vectors.operands, index)
    # asked of this vector alone: others may be rounded on the way
    if exact is not None and d.operation == "matmul" and not Evidence(vectors.at(np.array([index]))).adds_exactly:
        yield f"{'exact sum':<10}{_number(exact)}; the accumulator rounds or overflows on the way"
    elif exact is not None:
        label = "exact" if d.blocks is None else "quotient"
        yield from _exact_lines(exact, fmt, label, integral=d.operation == "round_to_integral")
    if vectors.rbits is not None:
        yield f"{'random':<10}0x{int(vectors.rbits[index]):x} of {d.n_rbits} bits"
    yield f"{'expected':<10}{describe_code(fmt, int(vectors.results[index]))}"
    if given is not None:
        yield f"{'given':<10}{describe_code(fmt, int(given[index]))}"
    yield f"{'flags':<10}{flags_in_words(int(vectors.flags[index]))}"


def _exact_lines(exact: Fraction, fmt: Format, label: str, *, integral: bool = False) -> Iterator[str]:
    """Yield the exact result: its value, and its bits above those of the result, dropped ones behind a bar."""
    yield f"{label:<10}{_number(exact)}"
    if exact == 0:
        return
    last = max(last_place(exact, fmt), 0) if integral else last_place(exact, fmt)
    scaled = abs(exact) / Fraction(2) ** last
    kept = scaled.numerator // scaled.denominator
    rest = scaled - kept
    # two's complement floors: dropped bits are counted from the next lower word up
    if isinstance(fmt, Fixed) and not fmt.sign_magnitude and exact < 0:
        kept, rest = (-kept, rest) if rest == 0 else (-kept - 1, 1 - rest)
    how = "exact" if rest == 0 else "a tie" if rest == HALF else "above half" if rest > HALF else "below half"
    fields = _kept_fields(exact, fmt, kept, last)
    # the first dropped bit, the second, and whether any other is 1
    guard, behind = divmod(2 * rest, 1)
    round_bit, sticky = divmod(2 * behind, 1)
    dropped = f"{int(guard)} {int(round_bit)} {int(sticky > 0)}"
    # the bits stand above those of the result, which has its hexadecimal code before them
    column = len(describe_code(fmt, 0).rpartition("  ")[0])
    yield f"{'':<10}{fields:>{column}}|{dropped}  guard, round, sticky; last place 2**{last}: {how}"


def _kept_fields(exact: Fraction, fmt: Format, kept: int, last: int) -> str:
    """Return the bits that are kept, in the fields of a code; what lies beyond the range has more of them in front."""
    if isinstance(fmt, Fixed):
        # bits that the number has beyond the word, so that the fields of a wider word can show it
        more = max((kept if kept >= 0 else ~kept).bit_length() + fmt.signed - fmt.width_bits, 0)
        more += exact < 0 and not fmt.signed
        has_minus = exact < 0 and fmt.sign_magnitude  # `kept` is a magnitude then
        if fmt.width_bits + more > MOST_BITS:
            return f"{-kept if has_minus else kept:b}"
        wide = Fixed(fmt.width_bits + more, fmt.frac_bits, fmt.signed, fmt.sign_magnitude)
        return fields_of(wide, kept & (wide.n_codes - 1) | has_minus << (wide.width_bits - 1))
    quantum = fmt.emin - fmt.fraction_bits
    if kept >> fmt.fraction_bits or last == quantum:
        # each exponent above the lowest adds 2**fraction_bits steps; what lies beyond the range has a larger field
        index = ((last - quantum) << fmt.fraction_bits) + kept - fmt.lowest_index
    else:  # a whole number of fewer digits than the format has
        index = int(fmt.encode(np.array(float(kept) * 2.0**last))) & (fmt.sign_code - 1)
    fraction = index & ((1 << fmt.fraction_bits) - 1)
    sign = f"{int(exact < 0)}|" if fmt.signed else ""
    digits = f"{fraction:0{fmt.fraction_bits}b}" if fmt.fraction_bits else ""
    return f"{sign}{index >> fmt.fraction_bits:0{fmt.exponent_bits}b}|{digits}"


def _number(exact: Fraction) -> str:
    try:
        near = float(exact)
    except OverflowError:
        return "beyond float64"
    if Fraction(near) == exact:
        return f"{near!r} = {near.hex()}"
    return f"about {near!r}"


def flags_in_words(bits: int) -> str:
    """Return the names of raised flags."""
    return ", ".join(name for bit, name in enumerate(FLAG_NAMES) if bits >> bit & 1) or "none"
