"""Model striping: the units of each layer divided over M neighbouring devices.

    forward    every device has all of the layer's input, gathered from its neighbours, and computes its own units
    backward   every device's units give a part of the error of all inputs; parts are exchanged and added
    weights    every device has, and moves, those of its own units
    loss       every device takes its own outputs; a row's largest value and its sum travel, two numbers an example

A device gets 1 / M of every operation, rounded up. The network's input is there already. Moments of normalisation,
which are a few numbers a unit, are left out.

Source: CN106062786A, model striping; what travels in a loss, and that parts of errors are added where they belong, are
our choice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from typing_extensions import override

from emu.cluster.lines import Lines
from emu.cluster.timing.kernels import Kernels
from emu.cluster.timing.program import Division, Task, last_gradients, parts_of
from emu.formats import Format
from emu.hardware import Demand, Machine
from emu.operations.kinds import UPDATE, pass_of

#: Numbers of an example that devices exchange in a loss, and bytes of one.
_LOSS_NUMBERS, _LOSS_NUMBER_BYTES = 2, 4
_LOSS = "loss"


@dataclass(frozen=True)
class Striped(Division):
    """Devices that a layer's units are divided over: all run the same tasks, each its part.

    Attributes:
        machine: machine whose times count.
        kernels: kernels of its memory.
        devices: M.
    """

    machine: Machine
    kernels: Kernels
    devices: int

    @override
    def tasks_of(self, computed: Sequence[Demand]) -> Iterator[Task]:
        with_weights, entered = set(last_gradients(computed)), False
        for one in computed:
            mine, gathered, partial = _part(one, self.devices, with_weights)
            if one.role == "activation" and gathered and not entered:
                entered, gathered = True, 0  # the network's input is on every device
            adds = self.kernels.moved_ps((self.devices + 1) * partial) if partial else 0
            parts = parts_of(self.machine, mine)
            yield Task(one.layer, pass_of(one.role), parts, gathered_bytes=gathered, partial_bytes=partial, add_ps=adds)

    @override
    def update_of(self, demand: Demand) -> Task:
        return Task(demand.layer, UPDATE, parts_of(self.machine, _divided(demand, self.devices)))


def _part(one: Demand, devices: int, with_weights: Collection[str]) -> tuple[Demand, int, int]:
    """Return a device's part of an operation, bytes that each neighbour sends before it, and gets after it."""
    if one.layer == _LOSS:
        examples = next((size for fmt, size in one.operands if fmt is None), 0) if one.role == _LOSS else 0
        return _divided(one, devices), _LOSS_NUMBERS * _LOSS_NUMBER_BYTES * examples, 0
    is_product = one.multiply_adds and len(one.operands) > 1 and one.layer in with_weights
    if not is_product or one.operation.startswith("embedding"):
        return _divided(one, devices), 0, 0
    if one.role == "activation":
        return _divided(one, devices, whole=(0,)), _share(*next(iter(one.operands)), devices), 0
    if one.role == "error":
        partial = _share(one.result_format, one.results, devices)
        return _divided(one, devices)._replace(results=one.results), 0, partial
    return _divided(one, devices, whole=(1 if one.operation == "matmul" else 0,)), 0, 0


def _divided(one: Demand, devices: int, whole: Collection[int] = ()) -> Demand:
    """Return 1 / M of an operation, rounded up; operands at the places of `whole` are read whole."""
    operands = tuple(
        (fmt, size if place in whole else -(-size // devices)) for place, (fmt, size) in enumerate(one.operands)
    )
    return one._replace(
        results=-(-one.results // devices), multiply_adds=-(-one.multiply_adds // devices), operands=operands
    )


def _share(fmt: Format | None, size: int, devices: int) -> int:
    """Return the bytes of 1 / M of some numbers."""
    return -(-size // devices) * (0 if fmt is None else fmt.width_bits) // 8


def striped_shapes(
    shapes: Mapping[str, tuple[int, int]], devices: int, lines: Lines = "outputs", by_rows: Collection[str] = ()
) -> dict[str, tuple[int, int]]:
    """Return columns and rows of the widest device's part of every gradient, by name.

    Units are columns; they are rows where a column is what leaves one input, and in a vector.

    Args:
        shapes: columns and rows of every gradient.
        devices: M.
        lines: what a column is.
        by_rows: names of gradients of some rows: a column is what leaves one input.
    """
    return {
        name: (columns, -(-rows // devices))
        if columns == 1 or lines == "inputs" or name in by_rows
        else (-(-columns // devices), rows)
        for name, (columns, rows) in shapes.items()
    }
