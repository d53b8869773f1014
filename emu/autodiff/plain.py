"""A runner in plain float64: the mathematics of every operation.

It is used to check derivatives, and to measure the errors of a datapath.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from typing_extensions import override

from emu.autodiff.runner import Operation, Runner
from emu.backends.arrays import namespace
from emu.formats import Value
from emu.operations import OPERATIONS
from emu.sparse.value import SparseValue


class PlainRunner(Runner):
    """Runs operations in the arrays' own floating-point arithmetic; formats are ignored."""

    @override
    def run(self, operation: Operation, role: str, layer: str) -> Value:
        """Return the operation's result in float64."""
        arrays = [_whole(value) for value in operation.operands]
        return Value(OPERATIONS[operation.name].float64(namespace(arrays[0]), *arrays, **operation.options))

    @override
    def place(self, array: Any) -> Any:
        """Return the array: operations compute in its own namespace."""
        return array

    @override
    def together(self, tasks: Sequence[Callable[[], Value]]) -> list[Value]:
        """Return the results of tasks, one after the other."""
        return [task() for task in tasks]


def _whole(value: Value) -> Any:
    """Return an operand as a dense array; entries of a sparse matrix with the same row and column are added up."""
    if not isinstance(value, SparseValue):
        return value.array
    xp, x = namespace(value.array), value.structure
    dense = xp.zeros(x.shape, value.array.dtype)
    # unbuffered, so that entries at one place add up; plain assignment would keep the last
    xp.add.at(dense, (x.rows, x.indices), value.array)
    return dense
