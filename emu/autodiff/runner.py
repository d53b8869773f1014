"""The protocol by which primitives reach arithmetic.

`emu.autodiff` defines it, and `emu.precision` implements it. So layers need no formats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from emu.formats import Value


@dataclass(frozen=True, eq=False)
class Operation:
    """One arithmetic operation on values.

    Attributes:
        name: its row in `emu.operations.OPERATIONS`.
        operands: values it reads.
        options: shapes, strides, axes: all that is not a number of the network.
        part: distinguishes results of one layer and role, e.g. the bias gradient from the weight's.
        factors: roles of the first two operands of a product with weights, which may be cast for it; empty for others.
    """

    name: str
    operands: tuple[Value, ...]
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    part: str = ""
    factors: tuple[str, ...] = ()


class Runner(Protocol):
    """Runs operations on a datapath."""

    def run(self, operation: Operation, role: str, layer: str) -> Value:
        """Return the operation's result as the unit that writes `role` of `layer` produces it."""
        ...

    def place(self, array: Any) -> Any:
        """Return an array in the memory in which operations compute: the host's, or a device's."""
        ...

    def together(self, tasks: Sequence[Callable[[], Value]]) -> list[Value]:
        """Return the results of independent tasks; a device may run them side by side."""
        ...
