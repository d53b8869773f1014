"""Records of products: sizes, formats and the plan that each followed.

If a unit has a list as its `records`, it adds one record per product. A record has no times.
"""

from __future__ import annotations

from typing import NamedTuple

from emu.engine.planner import Plan
from emu.formats import Format


class ProductRecord(NamedTuple):
    """One product.

    Attributes:
        sizes: matrices, rows, inner size, columns.
        formats: of the left operand, the right operand and the addend; None without an addend.
        plan: the path it took, the proof, and why the backend left it to the reference if it did.
    """

    sizes: tuple[int, int, int, int]
    formats: tuple[Format, Format, Format | None]
    plan: Plan

    @property
    def multiply_adds(self) -> int:
        """Products summed, addends left out."""
        batches, rows, depth, columns = self.sizes
        return batches * rows * depth * columns
