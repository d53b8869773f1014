"""Model striping: the neurons (or output channels) of each layer divided among M neighbouring devices.

    forward    each device has all of the layer's input, gathered from its neighbours, and computes its own neurons
    backward   each device's neurons give a part of the error of all inputs; parts are exchanged and added
    weights    each device has, and updates, those of its own neurons
    entries    each device finds those of its own neurons, and sends them with their places
    loss       each device takes its own outputs; a row's largest value and its sum travel, two numbers for each example

A device gets 1 / M of each operation, rounded up. The network's input is on all devices. Moments of normalisation,
a few numbers for each neuron, are left out.

Source: CN106062786A, model striping; what travels in a loss, and that each device adds the parts of its own errors, are
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

#: Numbers that devices exchange for each example in a loss, a row's largest value and its sum, and bytes of a number.
_LOSS_NUMBERS, _LOSS_NUMBER_BYTES = 2, 4
_LOSS = "loss"
#: The operation that finds the entries of a layer's input.
_ENTRIES = "sparse_entries"


@dataclass(frozen=True)
class Striped(Division):
    """Devices that share each layer: all run the same tasks, each for its own neurons.

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
        for demand in computed:
            part, gathered, partial = _part(demand, self.devices, with_weights)
            if demand.role == "activation" and gathered and not entered:
                entered, gathered = True, 0  # the network's input is on all devices
            # reads the parts of all devices, and writes their sum
            adds = self.kernels.moved_ps((self.devices + 1) * partial) if partial else 0
            parts = parts_of(self.machine, part)
            yield Task(
                demand.layer, pass_of(demand.role), parts, gathered_bytes=gathered, partial_bytes=partial, add_ps=adds
            )

    @override
    def update_of(self, demand: Demand) -> Task:
        return Task(demand.layer, UPDATE, parts_of(self.machine, _divided(demand, self.devices)))


def _part(demand: Demand, devices: int, with_weights: Collection[str]) -> tuple[Demand, int, int]:
    """Return a device's part of an operation, the bytes that each neighbour sends before it, and receives after it."""
    if demand.layer == _LOSS:
        # format None: labels, one for each example
        examples = next((size for fmt, size in demand.operands if fmt is None), 0) if demand.role == _LOSS else 0
        return _divided(demand, devices), _LOSS_NUMBERS * _LOSS_NUMBER_BYTES * examples, 0
    if demand.operation == _ENTRIES:
        # indices of a device's own entries; the others are not read
        return _divided(demand, devices)._replace(index_bytes=-(-demand.index_bytes // devices)), 0, 0
    is_product = demand.multiply_adds and len(demand.operands) > 1 and demand.layer in with_weights
    if not is_product or demand.operation.startswith("embedding"):
        return _divided(demand, devices), 0, 0
    # forward: the input whole, of which each neighbour has 1 / M; own weights, own results
    if demand.role == "activation":
        gathered = _share(*next(iter(demand.operands)), devices) + -(-demand.index_bytes // devices)
        return _divided(demand, devices, unshared=(0,)), gathered, 0
    # error of the input: all of it from each device, as a sum of parts
    if demand.role == "error":
        partial = _share(demand.result_format, demand.results, devices)
        return _divided(demand, devices)._replace(results=demand.results), 0, partial
    # gradient: the layer's input is read whole, operand 1 of a matmul, operand 0 of a convolution
    return _divided(demand, devices, unshared=(1 if demand.operation == "matmul" else 0,)), 0, 0


def _divided(demand: Demand, devices: int, unshared: Collection[int] = ()) -> Demand:
    """Return 1 / M of an operation, rounded up; operands whose index is in `unshared` are read whole."""
    operands = tuple(
        (fmt, size if index in unshared else -(-size // devices)) for index, (fmt, size) in enumerate(demand.operands)
    )
    return demand._replace(
        results=-(-demand.results // devices), multiply_adds=-(-demand.multiply_adds // devices), operands=operands
    )


def _share(fmt: Format | None, size: int, devices: int) -> int:
    """Return the bytes of 1 / M of some numbers, rounded up to whole bytes."""
    return -(-(-(-size // devices) * (0 if fmt is None else fmt.width_bits)) // 8)


def striped_shapes(
    shapes: Mapping[str, tuple[int, int]], devices: int, lines: Lines = "outputs", by_rows: Collection[str] = ()
) -> dict[str, tuple[int, int]]:
    """Return columns and rows of each gradient's part on the device with the widest part, by name.

    Each neuron is a column; it is a row if a column has the weights that leave one input, and in a vector.

    Args:
        shapes: columns and rows of each gradient.
        devices: M.
        lines: which weights a column has.
        by_rows: names of gradients of some rows, whose columns have the weights that leave one input.
    """
    return {
        name: (columns, -(-rows // devices))
        if columns == 1 or lines == "inputs" or name in by_rows
        else (-(-columns // devices), rows)
        for name, (columns, rows) in shapes.items()
    }
