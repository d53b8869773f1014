"""What ends every product whose loops give the contents of accumulators.

    contents ──► register observes ──► divided ──► output stage       flags that only the accumulator shows

The register observes contents, whatever they are divided by.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from emu.backends import interface as k
from emu.backends.interface import Outcome, StageCode, Write
from emu.backends.numba import infinite_sums
from emu.backends.numba.contents import Array, Contents, Loops
from emu.backends.numba.gathering import materialised
from emu.backends.numba.prepared import supports
from emu.backends.numba.stage import run_stage
from emu.backends.numba.ways import strips, wide_sums
from emu.backends.product import Product, ProductCode, SparseProduct
from emu.backends.proofs import decides_in_float64
from emu.backends.reference.accumulators import nan_among


def _declines(product: ProductCode, stage: StageCode) -> str:
    """Return why no compiled loop writes what a unit holds, "" if one may."""
    if not supports(stage):
        return "the written format lies outside what float64 loops round"
    if product.is_exact:
        return ""
    parts = (part for part in (product.mac.product, product.mac.accumulator) if part is not None)
    if any(part.format.is_float and not part.format.signed for part in parts):
        return "unsigned floats inside the unit have no compiled loop"
    return infinite_sums.hides(product.mac)


def _declines_quotient(product: ProductCode, stage: StageCode) -> str:
    """Return why `_divided` is not exact, "" if it is."""
    span = stage.format.width_bits + stage.format.quantum
    undecided = not decides_in_float64(stage, span + (stage.overflow == k.WRAP))
    too_large = product.divisor.bit_length() > wide_sums.MAX_DIVISOR_BITS
    if product.divides_oddly and (too_large or undecided):
        return f"a quotient by {product.divisor} is not decided in float64"
    return ""


@dataclass(frozen=True)
class Ended:
    """A way of loops that give contents.

    Attributes:
        loops: module with `declines`, `proof` and `contents`.
        divides: whether its contents come with quotients.
    """

    loops: Loops[Product]
    divides: bool = False

    def declines(self, product: ProductCode, stage: StageCode) -> str | None:
        """Return None, "" or a reason: the loops' own, or that of all."""
        own = self.loops.declines(product, stage)
        if own == "":
            return own
        general = _declines(product, stage) or ("" if self.divides else _declines_quotient(product, stage))
        return general or own

    def proof(self, product: ProductCode) -> str:
        """Return what the loops say."""
        return self.loops.proof(product)

    def compute(self, product: Product, write: Write) -> Outcome | None:
        """Write the product, unless the loops leave these numbers to others."""
        contents = self.loops.contents(product, write)
        if contents is None:
            return None
        outcome = _written(contents, product.code.divisor, write)
        if not product.code.is_exact:
            _count_events(outcome, contents, product, write)
        return outcome


@dataclass(frozen=True)
class EndedSparse:
    """The same of a sparse product."""

    loops: Loops[SparseProduct]

    def declines(self, product: ProductCode, stage: StageCode) -> str | None:
        """Return None, "" or a reason."""
        own = self.loops.declines(product, stage)
        return own if own == "" else _declines(product, stage) or own

    def proof(self, product: ProductCode) -> str:
        """Return what the loops say."""
        return self.loops.proof(product)

    def compute(self, product: SparseProduct, write: Write) -> Outcome | None:
        """Write the product."""
        contents = self.loops.contents(product, write)
        if contents is None:
            return None
        outcome = run_stage("quantize", (contents.sums,), write)
        asks_where = contents.touched is None and infinite_sums.is_watched(product.code.mac)
        touched, writes_nan = contents.touched, write.stage.format.has_nan
        if (asks_where or writes_nan) and not np.isfinite(contents.sums).all():
            if asks_where:
                touched = infinite_sums.overflowed_sparse(contents.sums, product, write.random)
            if writes_nan and (nans := np.isnan(contents.sums)).any():
                seen = strips.any_operand(np.isnan, product)
                outcome.flags[k.INVALID_FLAG] += int((nans & ~seen).sum())
        _count_touched(outcome, touched)
        return outcome


def _written(contents: Contents, divisor: int, write: Write) -> Outcome:
    """Observe contents, and write them divided by a positive integer."""
    sums = contents.sums
    if contents.quotients is None and divisor == 1:
        return run_stage("quantize", (sums,), write)
    unseen = write._replace(register=None)
    if contents.quotients is not None:
        outcome = run_stage("quantize", (contents.quotients,), unseen)
    elif divisor & (divisor - 1) == 0:
        outcome = run_stage("quantize", (sums,), unseen, scale=1.0 / divisor)
    elif write.stage.overflow == k.WRAP:
        outcome = run_stage("quantize", (wide_sums.quotients(sums, write.stage, divisor),), unseen)
    else:
        outcome = run_stage("divide", (sums, np.full(sums.shape, divisor, sums.dtype)), unseen)
    if write.register is not None:
        seen = run_stage("quantize", (sums,), write)
        outcome.register, outcome.max_exponent = seen.register, seen.max_exponent
    return outcome


def _count_events(outcome: Outcome, contents: Contents, product: Product, write: Write) -> None:
    """Add the flags that only the accumulator shows.

    Limits touched, numbers that became infinite, NaN out of operands that were not NaN.
    """
    sums, touched = contents.sums, contents.touched
    # Loops with marks of their own looked on the way.
    asks_where = touched is None and infinite_sums.is_watched(product.code.mac)
    if (asks_where or write.stage.format.has_nan) and not np.isfinite(sums).all():
        a, b = product.stacks(materialised)
        if asks_where:
            touched = infinite_sums.overflowed(sums, product, write)
        if write.stage.format.has_nan and (nans := np.isnan(sums)).any():
            outcome.flags[k.INVALID_FLAG] += int((nans & ~nan_among(a, b, product.addend, sums.shape)).sum())
    _count_touched(outcome, touched)


def _count_touched(outcome: Outcome, touched: Array | None) -> None:
    if touched is not None:
        outcome.flags[k.ACCUMULATOR_FLAG] += int(np.count_nonzero(touched))
