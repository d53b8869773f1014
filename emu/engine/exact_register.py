"""The fixed-point register that holds every exact result of an elementwise operation: what a unit's register observes.

exact_register("multiply", (fix8f4, fix8f6))    fix16f10
"""

from __future__ import annotations

from functools import lru_cache

from emu.formats import Fixed, Format
from emu.formats.fixed import MAX_WIDTH_BITS


@lru_cache(maxsize=1024)
def exact_register(operation: str, formats: tuple[Format | None, ...]) -> Fixed | None:
    """Return the fixed-point register that holds every exact result of fixed operands, None if results are floats.

    Quotients and roots have no last place; they are observed as floats.

    Args:
        operation: "quantize", or an elementwise operation.
        formats: of the operands; None of plain floats.
    """
    fixed = [fmt for fmt in formats if isinstance(fmt, Fixed)]
    # a float operand among fixed ones makes the result a float
    if len(fixed) < len(formats) or operation in ("divide", "sqrt"):
        return None
    if operation == "quantize":
        return fixed[0]
    if operation == "round_to_integral":
        return _integers_of(fixed[0])
    if operation == "remainder":
        return _remainders_of(*fixed)
    # an fma adds its third operand to the product of the first two; add and subtract have two terms, multiply one
    terms = fixed if operation in ("add", "subtract") else [_product_of(*fixed[:2]), *fixed[2:]]
    signed = operation == "subtract" or any(term.signed for term in terms)
    frac_bits = max(term.frac_bits for term in terms)
    # an unsigned term needs a sign beside its bits; the sum of two terms has a bit more than the larger one
    integer_bits = max(term.width_bits - term.frac_bits + (signed and not term.signed) for term in terms)
    width_bits = frac_bits + integer_bits + (len(terms) > 1)
    return Fixed(min(width_bits, MAX_WIDTH_BITS), frac_bits, signed)


def _product_of(a: Fixed, b: Fixed) -> Fixed:
    width_bits = min(a.width_bits + b.width_bits, MAX_WIDTH_BITS)
    return Fixed(width_bits, a.frac_bits + b.frac_bits, a.signed or b.signed)


def _integers_of(fmt: Fixed) -> Fixed:
    """Return the register of values rounded to integers: upward, the largest one needs a bit more."""
    # bits below the point; the integers that remain have `width_bits - dropped` bits before they are rounded up
    dropped = min(max(fmt.frac_bits, 0), fmt.width_bits)
    return fmt if fmt.frac_bits <= 0 else Fixed(min(fmt.width_bits - dropped + 1, MAX_WIDTH_BITS), 0, fmt.signed)


def _remainders_of(a: Fixed, b: Fixed) -> Fixed:
    """Return the register of remainders: no larger than the dividend, in units of the finer operand, of either sign."""
    frac_bits = max(a.frac_bits, b.frac_bits)
    width_bits = a.width_bits - a.frac_bits + frac_bits + (not a.signed)
    return Fixed(min(width_bits, MAX_WIDTH_BITS), frac_bits)
