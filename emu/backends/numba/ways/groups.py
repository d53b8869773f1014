"""Sparse products as ordinary ones: results of the same number of terms are computed together, their operands gathered.

Random bits of the output stage are drawn for all results at once, and reach each group as recorded bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.interface import (
    N_FLAGS,
    Outcome,
    StageCode,
    Write,
    carrier_of,
)
from emu.backends.memory import empty
from emu.backends.modes import draws
from emu.backends.product import Product, ProductCode, SparseProduct, Way, choose
from emu.backends.reference.sparse import groups_of
from emu.backends.reference.stage import draw_bits
from emu.datapath.pending import NO_EXPONENT
from emu.datapath.registers import SCALARS

Array = NDArray[Any]
WAY = "operands gathered, results of equal many entries together"


class Groups(Way[SparseProduct]):
    """Sparse products, group by group; their counts are added up."""

    def __init__(self, ways: tuple[Way[Product], ...]) -> None:
        """Compute each group by one of these ways."""
        self.ways = ways

    def declines(self, product: ProductCode, stage: StageCode) -> str | None:
        """Return why a unit is left to the reference."""
        inside = [part for part in (product.mac.product, product.mac.accumulator) if part is not None]
        if any(draws(part) for part in inside):
            return "random bits inside the unit are numbered by result, and gathered operands have numbers of their own"
        return choose(self.ways, product, stage).fallback or None

    def proof(self, product: ProductCode) -> str:
        """Return that operands are gathered."""
        return WAY

    def compute(self, product: SparseProduct, write: Write) -> Outcome:
        """Write the product; no unit draws random bits inside."""
        stage, random, register = write
        choice, shape = choose(self.ways, product.code, stage), product.shape
        # By the index among all results, which a group does not know.
        bits = draw_bits(shape, stage, random)
        values = empty(shape, carrier_of(stage.format))
        counts: Array | None = None if register is None else np.zeros(2 * register.bins + len(SCALARS), np.int64)
        whole = Outcome(values, np.zeros(N_FLAGS, np.int64), counts, NO_EXPONENT)
        for group in groups_of(product):
            # Each result is a matrix of one row: (results, 1, H).
            drawn = random if bits is None else random._replace(recorded=bits[group.results][:, None, :])
            part = choice.compute(
                Product(product.code, group.left, group.right, group.addend), Write(stage, drawn, register)
            )
            values[group.results] = part.values[:, 0, :]
            whole.flags += part.flags
            if counts is not None and part.register is not None:
                counts += part.register
            whole.max_exponent = max(whole.max_exponent, part.max_exponent)
        return whole
