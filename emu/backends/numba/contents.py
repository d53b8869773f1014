"""What the loops of a way leave behind: the contents of the accumulators, before the output stage."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

from emu.backends.interface import StageCode, Write
from emu.backends.product import Given, ProductCode

Array = NDArray[Any]


class Contents(NamedTuple):
    """Contents of accumulators.

    Attributes:
        sums: float32 or float64, (B, M, N); of a sparse product (R, H).
        touched: uint8 of the same shape, where an accumulator touched a limit or became infinite from finite terms;
            None where no loop looked.
        quotients: what the stage writes, where the loops divide, too; None where it writes the sums.
    """

    sums: Array
    touched: Array | None = None
    quotients: Array | None = None


class Loops(Protocol[Given]):
    """A module that computes contents; `ending.Ended` makes a way of it."""

    def declines(self, product: ProductCode, stage: StageCode) -> str | None:
        """Return None, "" or a reason, as `Way.declines`."""
        ...

    def proof(self, product: ProductCode) -> str:
        """Return what to say behind the planner's proof."""
        ...

    def contents(self, product: Given, write: Write) -> Contents | None:
        """Return the contents; None if these numbers are left to the ways that follow."""
        ...
