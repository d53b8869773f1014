"""Reverse-mode differentiation, small and table-driven.

runner.py    the protocol by which a primitive reaches arithmetic: run(operation, role, layer) -> value
graph.py     the tape: applies primitives and records them for the backward pass
context.py   what rules receive
rules.py     forward and backward of every primitive, in operations of emu.operations; layer_rules.py: of layers
plain.py     a runner in float64, for checking derivatives
check.py     derivatives against differences along random directions
"""

from emu.autodiff.check import check_gradient, check_second_derivative
from emu.autodiff.graph import Graph, Tensor
from emu.autodiff.plain import PlainRunner
from emu.autodiff.runner import Operation, Runner
from emu.formats import Value
from emu.sparse.value import RowsValue, SparseValue

__all__ = [
    "Graph",
    "Operation",
    "PlainRunner",
    "RowsValue",
    "Runner",
    "SparseValue",
    "Tensor",
    "Value",
    "check_gradient",
    "check_second_derivative",
]
