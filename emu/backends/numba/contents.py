"""What the loops of a way return: the contents of the accumulators, before the output stage."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, TypeVar

from numpy.typing import NDArray

from emu.backends.interface import StageCode, Write
from emu.backends.product import Product, ProductCode, SparseProduct

Array = NDArray[Any]
Read = TypeVar("Read", Product, SparseProduct, contravariant=True)


class Contents(NamedTuple):
    """Contents of accumulators.

    Attributes:
        sums: float32 or float64, (B, M, N); of a sparse product (R, H).
        touched: uint8 of the same shape, 1 if an accumulator touched a limit or became infinite from finite terms; None
            if no loop looked.
        quotients: what the stage writes if the loops divide the sums; None if it writes the sums.
    """

    sums: Array
    touched: Array | None = None
    quotients: Array | None = None


class Loops(Protocol[Read]):
    """A module that computes contents; `ending.Ended` makes a way of it, `ending.EndedSparse` of a sparse one."""

    def declines(self, product: ProductCode, stage: StageCode) -> str | None:
        """Return None, "" or a reason, as `Way.declines` does."""
        ...

    def contents(self, product: Read, write: Write) -> Contents | None:
        """Return the contents; None if these numbers are left to the ways that follow."""
        ...
