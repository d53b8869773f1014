"""Sticky flags with counts: what happened to the elements a unit wrote."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, cast

from emu.datapath.owed import Debts, Owed


class _Count:
    """A count: what devices owe is collected before it is read."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._place = f"_{name}"

    def __get__(self, flags: Any, owner: type | None = None) -> int:
        if flags is None:
            return 0  # the field's default
        flags.settle()
        return flags.__dict__[self._place]

    def __set__(self, flags: Any, value: int) -> None:
        flags.__dict__[self._place] = value


@dataclass
class Flags:
    """How many written elements raised each flag. Sticky: counts only grow until `reset`.

    What a GPU counted stays there until a count is read.

    Attributes:
        overflow: an overflow rule was applied.
        underflow: a nonzero result became 0, by rounding or by flushing.
        inexact: the finite value written differs from the exact result, overflow included.
        invalid: NaN into fixed, or NaN out of operands that were not NaN.
        subnormal: the written code is subnormal.
        accumulator_overflow: a saturating accumulator touched a limit on the way to the output.

    Source: NUMERICS 5; IEEE 754-2019 section 7.
    """

    overflow: int = cast(int, _Count())
    underflow: int = cast(int, _Count())
    inexact: int = cast(int, _Count())
    invalid: int = cast(int, _Count())
    subnormal: int = cast(int, _Count())
    accumulator_overflow: int = cast(int, _Count())

    def __post_init__(self) -> None:
        """Be owed nothing."""
        self._debts = Debts()

    def add(self, counts: Iterable[int]) -> None:
        """Add counts, in the order of the attributes."""
        held = self.__dict__
        for place, count in zip(_PLACES, counts, strict=True):
            held[place] += count

    def owe(self, owed: Owed) -> None:
        """Add counts that a device still holds."""
        self._debts.add(owed)

    def settle(self) -> None:
        """Collect what devices owe."""
        if self._debts:
            for counted in self._debts.collect():
                self.add(counted.flags.tolist())

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
_PLACES = tuple(f"_{name}" for name in FLAG_NAMES)
