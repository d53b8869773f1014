"""A value on the tape: an array, and the format whose values it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class Value:
    """An array of any namespace, and its format.

    Attributes:
        array: carrier array.
        format: a number format, opaque here; None for plain floats and for integers that are no operands
            (labels, indices).
    """

    array: Any
    format: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.array.shape

    def with_array(self, array: Any) -> Value:
        """Return the same format around another array: what a move, a selection or a reshape makes."""
        return Value(array, self.format)
