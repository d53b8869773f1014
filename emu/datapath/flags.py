"""Sticky flags with counts: what happened to the elements a unit wrote."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, cast

from emu.datapath.owed import Debts, Owed


class _Count:
    """A count: what devices owe is collected before it is read."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, flags: Any, owner: type | None = None) -> int:
        if flags is None:
            return 0  # the field's default
        flags.settle()
        return flags.__dict__[self._name]

    def __set__(self, flags: Any, value: int) -> None:
        flags.settle()
        flags.__dict__[self._name] = value


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

    Source: docs/concepts/flags.md; IEEE 754-2019 section 7.
    """

    overflow: int = cast(int, _Count())
    underflow: int = cast(int, _Count())
    inexact: int = cast(int, _Count())
    invalid: int = cast(int, _Count())
    subnormal: int = cast(int, _Count())
    accumulator_overflow: int = cast(int, _Count())

    __slots__ = ("__dict__", "__weakref__", "_debts")  # debts lie beside the counts, which `vars` gives

    def __new__(cls, *_: int, **__: int) -> Flags:
        """Return flags that are owed nothing."""
        made = super().__new__(cls)
        made._debts = Debts()
        return made

    def __getstate__(self) -> dict[str, int]:
        """Return the counts, for a copy; nothing is owed to that."""
        self.settle()
        return dict(self.__dict__)

    def add(self, counts: Iterable[int]) -> None:
        """Add counts, in the order of the attributes."""
        held = self.__dict__
        for name, count in zip(FLAG_NAMES, counts, strict=True):
            held[name] += count

    def owe(self, owed: Owed) -> None:
        """Add counts that a device still holds."""
        self._debts.add(owed)

    def settle(self) -> None:
        """Collect what devices owe."""
        if self._debts:
            self._debts.collect(lambda counted: self.add(counted.flags.tolist()))

    def merge(self, other: Flags) -> None:
        """Add the counts of another unit's flags."""
        self.add(other.counts())

    def reset(self) -> None:
        """Set every count to 0."""
        self._debts = Debts()
        self.__init__()

    def counts(self) -> tuple[int, ...]:
        """Return the counts, in the order of the attributes."""
        return tuple(getattr(self, name) for name in FLAG_NAMES)


#: Flag names in the order kernels count them.
FLAG_NAMES: tuple[str, ...] = tuple(f.name for f in fields(Flags))
