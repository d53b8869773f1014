"""Exact products of narrow fixed-point operands, by integer dot-product instructions (`integers.py`)."""

from __future__ import annotations

from emu.backends.interface import Outcome, StageCode, Write
from emu.backends.numba import integers
from emu.backends.numba.in_doubles import scales_exactly_from
from emu.backends.numba.prepared import supports
from emu.backends.product import Product, ProductCode


def declines(product: ProductCode, stage: StageCode) -> str | None:
    """Return "" of other paths, or why results would not be written as the exact ones."""
    if product.path != "integer_dot":
        return ""
    if not supports(stage):
        return "the written format lies outside what float64 loops round"
    if product.divisor != 1:
        return f"sums that are divided by {product.divisor} take another path"
    return None if scales_exactly_from(product.formats, stage) else "the binary points lie too far from each other"


def proof(product: ProductCode) -> str:
    """Return nothing: the planner's proof says it all."""
    return ""


def compute(product: Product, write: Write) -> Outcome:
    """Write the product: rows pass the output stage while they are in the cache."""
    return integers.write_products(product.left, product.right, product.addend, product.code.formats, write)
