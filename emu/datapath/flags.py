"""Sticky flags with counts: what happened to the elements a unit wrote."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields


@dataclass
class Flags:
    """How many written elements raised each flag. Sticky: counts only grow until `reset`.

    Attributes:
        overflow: an overflow rule was applied.
        underflow: a nonzero result became 0, by rounding or by flushing.
        inexact: the finite value written differs from the exact result, overflow included.
        invalid: NaN into fixed, or NaN out of operands that were not NaN.
        subnormal: the written code is subnormal.
        accumulator_overflow: a saturating accumulator touched a limit on the way to the output.

    Source: NUMERICS 5; IEEE 754-2019 section 7.
    """

    overflow: int = 0
    underflow: int = 0
    inexact: int = 0
    invalid: int = 0
    subnormal: int = 0
    accumulator_overflow: int = 0

    def add(self, counts: Iterable[int]) -> None:
        """Add counts, in the order of the attributes."""
        overflow, underflow, inexact, invalid, subnormal, accumulator_overflow = counts
        self.overflow += overflow
        self.underflow += underflow
        self.inexact += inexact
        self.invalid += invalid
        self.subnormal += subnormal
        self.accumulator_overflow += accumulator_overflow

    def merge(self, other: Flags) -> None:
        """Add the counts of another unit's flags."""
        self.add(other.counts())

    def reset(self) -> None:
        """Set every count to 0."""
        self.__init__()

    def counts(self) -> tuple[int, ...]:
        """Return the counts, in the order of the attributes."""
        return tuple(getattr(self, name) for name in FLAG_NAMES)


#: Flag names in the order kernels count them.
FLAG_NAMES: tuple[str, ...] = tuple(f.name for f in fields(Flags))
