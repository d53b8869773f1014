"""Exact products of narrow fixed-point operands, by integer dot-product instructions (`integers.py`)."""

from __future__ import annotations

from emu.backends.interface import Outcome, StageCode, Write
from emu.backends.numba import integers
from emu.backends.numba.in_doubles import declines_points
from emu.backends.numba.prepared import declines_stage
from emu.backends.product import Product, ProductCode, Way


class IntegerDot(Way[Product]):
    """Exact products whose rows pass the output stage while they are in the cache."""

    speed = 30.0

    def declines(self, product: ProductCode, stage: StageCode) -> str | None:
        """Return "" for other paths, or why results would not be written as the exact ones."""
        if product.path != "integer_dot":
            return ""
        if product.divisor != 1:
            return f"sums that are divided by {product.divisor} take another path"
        return declines_stage(stage) or declines_points(product.formats, stage) or None

    def compute(self, product: Product, write: Write) -> Outcome:
        """Write the product."""
        return integers.write_products(product.left, product.right, product.addend, product.code.formats, write)
