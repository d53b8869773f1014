"""Write the contents of accumulators, which the loops of a way compute, through the output stage.

    contents ──► register observes ──► divided ──► output stage       flags that only the accumulator shows

The register observes contents before they are divided.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from typing_extensions import override

from emu.backends import interface as k
from emu.backends.interface import Outcome, StageCode, Write
from emu.backends.numba import infinite_sums
from emu.backends.numba.contents import Array, Contents, Loops
from emu.backends.numba.gathering import materialised
from emu.backends.numba.prepared import declines_stage
from emu.backends.numba.stage import run_stage
from emu.backends.numba.ways import strips, wide_sums
from emu.backends.product import Given, Product, ProductCode, SparseProduct, Way
from emu.backends.proofs import decides_in_float64
from emu.backends.reference.accumulators import nan_among


class _Ended(Way[Given]):
    """A way whose loops compute contents."""

    def __init__(
        self,
        loops: Loops[Given],
        words: str = "",
        *,
        is_partial: bool = False,
        divides: bool = False,
        reads_alignment: bool = False,
    ) -> None:
        """Make a way of a module's loops.

        Args:
            loops: a module: `declines` says which products it does not compute, `contents` computes the others.
            words: what to say after the planner's proof.
            is_partial: whether `contents` leaves some numbers to the ways that follow.
            divides: whether `contents` returns quotients too.
            reads_alignment: whether operands may have their exponents beside them.
        """
        self.loops, self.words, self.is_partial, self.divides = loops, words, is_partial, divides
        self.reads_alignment, self.speed = reads_alignment, getattr(loops, "SPEED", None)

    @override
    def declines(self, product: ProductCode, stage: StageCode) -> str | None:
        own = self.loops.declines(product, stage)
        # "" says that the product is of another kind, and needs no reason; None that nothing is against the loops.
        if own == "":
            return own
        # A reason that holds for all compiled loops goes before the loops' own.
        general = _declines(product, stage) or (None if self.divides else _declines_quotient(product, stage))
        return general or own

    @override
    def proof(self, product: ProductCode) -> str:
        return self.words

    @override
    def compute(self, product: Given, write: Write) -> Outcome | None:
        contents = self.loops.contents(product, write)
        if contents is None:
            return None
        outcome = _written(contents, product.code.divisor, write)
        if not product.code.is_exact:
            self._count_events(outcome, contents, product, write)
        return outcome

    def _count_events(self, outcome: Outcome, contents: Contents, product: Given, write: Write) -> None:
        """Add the flags that only the accumulator shows.

        These are limits touched, sums that became infinite, and NaNs from operands without NaN.
        """
        sums, touched, writes_nan = contents.sums, contents.touched, write.stage.format.has_nan
        # Loops that return marks looked at each add.
        searches = touched is None and infinite_sums.can_overflow(product.code.mac)
        if (searches or writes_nan) and not np.isfinite(sums).all():
            if searches:
                touched = self._overflowed(sums, product, write)
            if writes_nan and (nans := np.isnan(sums)).any():
                outcome.flags[k.INVALID_FLAG] += int((nans & ~self._reads_nan(sums, product)).sum())
        if touched is not None:
            outcome.flags[k.ACCUMULATOR_FLAG] += int(np.count_nonzero(touched))

    @abstractmethod
    def _overflowed(self, sums: Array, product: Given, write: Write) -> Array:
        """Return which sums became infinite from finite terms."""

    @abstractmethod
    def _reads_nan(self, sums: Array, product: Given) -> Array:
        """Return which sums have an operand that is NaN."""


class Ended(_Ended[Product]):
    """A way whose loops compute the contents of a product of matrices."""

    @override
    def _overflowed(self, sums: Array, product: Product, write: Write) -> Array:
        return infinite_sums.overflowed(sums, product, write)

    @override
    def _reads_nan(self, sums: Array, product: Product) -> Array:
        return nan_among(*product.stacks(materialised), product.addend, sums.shape)


class EndedSparse(_Ended[SparseProduct]):
    """A way whose loops compute the contents of a sparse product."""

    @override
    def _overflowed(self, sums: Array, product: SparseProduct, write: Write) -> Array:
        return infinite_sums.overflowed_sparse(sums, product, write.random)

    @override
    def _reads_nan(self, sums: Array, product: SparseProduct) -> Array:
        return strips.any_operand(np.isnan, product)


def _declines(product: ProductCode, stage: StageCode) -> str | None:
    """Return why no compiled loop writes what a unit holds; None if nothing is against it."""
    reason = declines_stage(stage) or None
    if reason or product.is_exact:
        return reason
    parts = (part for part in (product.mac.product, product.mac.accumulator) if part is not None)
    if any(part.format.is_float and not part.format.signed for part in parts):
        return "unsigned floats inside the unit have no compiled loop"
    return infinite_sums.hides(product.mac) or None


def _declines_quotient(product: ProductCode, stage: StageCode) -> str | None:
    """Return why the number written for a quotient that is rounded to odd first might not be that of the exact one.

    None if it always is.
    """
    # 2**span is a fixed format's modulus: larger quotients saturate, or wrap by `wide_sums.quotients`.
    span = stage.format.width_bits + stage.format.quantum
    undecided = not decides_in_float64(stage, span + (stage.overflow == k.WRAP))
    too_large = product.divisor.bit_length() > wide_sums.MAX_DIVISOR_BITS
    if product.divides_oddly and (too_large or undecided):
        return f"a quotient by {product.divisor} is not decided in float64"
    return None


def _written(contents: Contents, divisor: int, write: Write) -> Outcome:
    """Observe contents, and write them divided by a positive integer."""
    sums = contents.sums
    if contents.quotients is None and divisor == 1:
        return run_stage("quantize", (sums,), write)
    # What is divided is written without the register, which observes the contents afterwards.
    unseen = write._replace(register=None)
    if contents.quotients is not None:
        outcome = run_stage("quantize", (contents.quotients,), unseen)
    elif divisor & (divisor - 1) == 0:  # a power of two: the product with its inverse is exact
        outcome = run_stage("quantize", (sums,), unseen, scale=1.0 / divisor)
    elif write.stage.overflow == k.WRAP:
        outcome = run_stage("quantize", (wide_sums.quotients(sums, write.stage, divisor),), unseen)
    else:
        outcome = run_stage("divide", (sums, np.full(sums.shape, divisor, sums.dtype)), unseen)
    if write.register is not None:
        # Written once more, into nothing that is kept, for the register and the largest exponent alone.
        seen = run_stage("quantize", (sums,), write)
        outcome.register, outcome.max_exponent = seen.register, seen.max_exponent
    return outcome
