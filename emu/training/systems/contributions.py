"""Gradients of several processing units in one pass, before they are added up: `layer.part@unit`.

Processing units are numbered over all nodes: those of a node are neighbours. A name has no number if there is only one
unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from emu.autodiff import Operation, RowsValue, Value
from emu.backends.arrays import on_host
from emu.cluster.lines import Lines, lines_of, shaped
from emu.cluster.wires import Touched
from emu.optim import ParameterState
from emu.training.workbench.model import StepRunner

Array = NDArray[Any]
_AT = "@"


def of_unit(name: str, unit: int | None) -> str:
    """Return the name of a processing unit's gradient; None if there is one unit only.

    Examples:
        >>> of_unit("fc1.weight", 3), of_unit("fc1.weight", None)
        ('fc1.weight@3', 'fc1.weight')
    """
    return name if unit is None else f"{name}{_AT}{unit}"


def joined(units: Mapping[int, Mapping[str, Value]]) -> dict[str, Value]:
    """Return the gradients of all processing units in one mapping, each under a name with its unit's number."""
    return {of_unit(name, unit): value for unit, gradients in units.items() for name, value in gradients.items()}


def units_of(name: str, gradients: Mapping[str, Value]) -> Sequence[int | None]:
    """Return the processing units that have a gradient of a parameter, ascending; [None] if its name has no number.

    Args:
        name: name of the parameter.
        gradients: gradients of a pass.
    """
    # sorted as numbers: as text, 10 would come before 2
    units = [other.removeprefix(name + _AT) for other in gradients if other.startswith(name + _AT)]
    return sorted(map(int, units)) or ([None] if name in gradients else [])


def columns_of(state: ParameterState, array: Any = None, lines: Lines = "outputs") -> Array:
    """Return a parameter, or an array of its shape, as lines of numbers that belong together; a vector is one line.

    If the parameter is read by rows, each line is a row, and the array may have only some of them.
    """
    return lines_of(on_host(state.master.array if array is None else array), _lines_of(state, lines))


def _lines_of(state: ParameterState, lines: Lines) -> Lines:
    return "outputs" if state.by_rows else lines


def written(
    state: ParameterState, columns: Array | Touched, role: str, runner: StepRunner, lines: Lines = "outputs"
) -> Value:
    """Return lines as a gradient in the format of a role.

    Args:
        state: the parameter.
        columns: columns of the shape that `columns_of` gives, or some of them.
        role: "gradient", or "unscaled" after loss scaling.
        runner: the datapath.
        lines: which numbers form a line, as for `columns_of`.
    """
    if isinstance(columns, Touched):
        # only the rows that were touched are written and counted
        rows = RowsValue(runner.place(columns.lines), rows=columns.indices)
        return rows.holding(runner.run(Operation("quantize", (rows,), part=state.part), role, state.layer))
    array = runner.place(shaped(columns, state.master.array.shape, _lines_of(state, lines)))
    return runner.run(Operation("quantize", (Value(array),), part=state.part), role, state.layer)
