"""How many words of 64 bits the exact results of a unit have, and what their last bit weighs.

Every value of a format is a multiple of 2**last and below 2**top in magnitude. So all sums are integers of known width:
of binary64 products, which are multiples of 2**-2148 and below 2**2048, with room for 2**64 terms about 4,300 bits.
"""

from __future__ import annotations

from typing import NamedTuple

from emu.datapath import OutputStage
from emu.datapath.order import Blocks
from emu.formats import Fixed, Float, Format
from emu.testing.vectors import Description

WORD_BITS = 64
#: Bits by which a sum of as many terms as `size_t` counts is wider than a term.
COUNT_BITS = 64
#: Bits of a quotient or root below the last place, besides random bits: one for a result half of what was expected, a
#: guard bit, one for the tininess of a result with a wider exponent, and the last one, which stands for all others.
BELOW_BITS = 4


class Span(NamedTuple):
    """Magnitudes are multiples of 2**last and below 2**top."""

    last: int
    top: int

    def times(self, other: Span) -> Span:
        """Return the span of products."""
        return Span(self.last + other.last, self.top + other.top)

    def joined(self, other: Span) -> Span:
        """Return the span of both."""
        return Span(min(self.last, other.last), max(self.top, other.top))


def span_of(fmt: Format) -> Span:
    """Return the span of a format's values."""
    if isinstance(fmt, Fixed):
        # Loose by a bit for signed formats, whose magnitudes reach 2**(width - 1 - frac_bits), inclusive.
        return Span(-fmt.frac_bits, fmt.width_bits - fmt.frac_bits)
    return Span(fmt.emin - fmt.fraction_bits, fmt.emax + 1)


def bits_of(fmt: Format) -> int:
    """Return the bits of the widest significand."""
    return fmt.width_bits if isinstance(fmt, Fixed) else fmt.significand_bits


def below_bits(stage: OutputStage) -> int:
    """Return how many bits below the last place a quotient or root has."""
    return BELOW_BITS + (stage.n_rbits if stage.rounding.draws else 0)


class Widths(NamedTuple):
    """Widths of a unit's numbers.

    Attributes:
        words: of 64 bits that an exact result has.
        lowest: what the last bit of exact sums weighs, 2**lowest.
        wide_products: whether a product of significands has more than 64 bits.
    """

    words: int
    lowest: int
    wide_products: bool


def widths_of(description: Description) -> Widths:
    """Return the widths of a unit."""
    d, formats = description, description.operand_formats
    spans = [span_of(fmt) for fmt in formats]
    multiplies = d.operation in ("multiply", "fma", "matmul")
    product_bits = bits_of(formats[0]) + bits_of(formats[1]) if multiplies else 0
    bits, lowest = max(WORD_BITS, product_bits), 0
    match d.operation:
        case "add" | "subtract" | "fma" | "minimum" | "maximum" | "minimum_number" | "maximum_number":
            span = spans[0].joined(spans[1]) if d.operation != "fma" else spans[0].times(spans[1]).joined(spans[2])
            # Of two terms below 2**top the sum is below 2**(top + 1); one more bit is the sign of two's complement.
            bits, lowest = max(bits, span.top - span.last + 2), span.last
        case "divide":
            # |a| < 2**top and |b| >= 2**last, so the quotient is below 2**(top - last).
            bits = _digits(d.stage, spans[0].top - spans[1].last)
        case "sqrt":
            bits = (
                _digits(d.stage, (spans[0].top + 1) // 2) + 3
            )  # a rest is twice as large as the root, then two digits
        case "round_to_integral":
            # A step away from zero can reach 2**top itself. Modes that leave exact results alone step only below the
            # binary point, where 64 bits hold the operand's whole significand.
            bits = max(bits, spans[0].top + 1 if d.stage.rounding.moves_exact else 0)
        case "matmul":
            matmul_bits, lowest = _of_sums(d, spans)
            bits = max(bits, matmul_bits)
        case _:
            pass
    return Widths(-(-bits // WORD_BITS), lowest, product_bits > WORD_BITS)


def _digits(stage: OutputStage, leading: int) -> int:
    """Return how many digits of a quotient or root below 2**leading are computed for a stage."""
    fmt = stage.format
    if isinstance(fmt, Float):
        # The hidden bit, the bits of the fraction, and a bit more: the leading digit may turn out to be 0.
        return fmt.fraction_bits + 2 + below_bits(stage)
    return max(leading + fmt.frac_bits, 0) + 1 + below_bits(stage)


def _of_sums(description: Description, spans: list[Span]) -> tuple[int, int]:
    """Return the bits of the sums of a unit that multiplies and accumulates, and their last bit's exponent."""
    mac = description.mac.mac()
    span = spans[0].times(spans[1]) if mac.product == "exact" else span_of(mac.product)
    if len(spans) > 2:
        span = span.joined(spans[2])
    if mac.accumulator == "exact":
        # 2**64 terms below 2**top sum to less than 2**(top + 64), and there is a sign.
        return span.top - span.last + 1 + COUNT_BITS, span.last
    accumulator = span_of(mac.accumulator)
    if not isinstance(mac.order, Blocks):
        span = span.joined(accumulator)
        return span.top - span.last + 2, span.last
    # Cut terms are below 4 * 2**fraction_bits; n products, the accumulator and a sign take n.bit_length() + 1 more.
    block_bits = mac.order.fraction_bits + 2 + mac.order.n.bit_length() + 1
    after_bits = accumulator.top - accumulator.last + 2
    # LOWEST is the accumulator's last bit: only the adder behind the blocks uses it. Blocks align to their own
    # exponent.
    return max(block_bits, after_bits if mac.order.addend == "after" else 0), accumulator.last
