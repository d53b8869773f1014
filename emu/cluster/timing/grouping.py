"""Whole layers divided over M devices of a node: the largest alone, the small ones together.

    load of a layer     multiply-adds of its products in a pass
    largest layer       on device 0, which takes no other one while there are other devices
    others              largest first, each to the device with the least load; of equals, to the lowest number
    without products    where the layer before is

Devices of a node work one after the other in a pass, each on its layers. If the next layer is on another device, the
activations travel there, and its error travels back. Gradients are exchanged, and parameters updated, by each
device for its own layers. There are no partial sums, so that no bit changes.

Source: CN106062786A, grouping of small layers with the largest alone; the rule of loads is our choice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from typing_extensions import override

from emu.cluster.timing.program import Division, Task, parts_of
from emu.hardware import Demand, Machine
from emu.operations.kinds import UPDATE, pass_of

#: Roles of what travels from layer to layer, and of all that reads it.
_TRAVELS, _READS = ("activation", "error"), ("activation", "slope", "loss", "error", "gradient")


def grouped(loads: Mapping[str, int], devices: int) -> dict[str, int]:
    """Return the device of every layer.

    Args:
        loads: loads of layers, in the order of the network.
        devices: how many.

    Examples:
        >>> grouped({"a": 90, "b": 30, "c": 20, "d": 10}, 3)
        {'a': 0, 'b': 1, 'c': 2, 'd': 2}
    """
    largest_first = sorted(loads, key=lambda layer: -loads[layer])
    others = dict.fromkeys(range(min(1, devices - 1), devices), 0)
    found = dict.fromkeys(largest_first[:1], 0)
    for layer in largest_first[1:]:
        found[layer] = min(others, key=lambda device: others[device])
        others[found[layer]] += loads[layer]
    return {layer: found[layer] for layer in loads}


def devices_of(computed: Sequence[Demand], devices: int) -> dict[str, int]:
    """Return the device of every layer of a pass.

    Args:
        computed: demands of the pass.
        devices: devices of a node.
    """
    loads: Counter[str] = Counter()
    with_weights = {one.layer for one in computed if one.role == "gradient"}
    for one in computed:
        if one.multiply_adds and one.layer in with_weights:
            loads[one.layer] += one.multiply_adds
    placed = grouped(loads, devices)
    found: dict[str, int] = {}
    at = next(iter(placed.values()), 0)
    for one in computed:
        if one.role in _READS and one.layer not in found:
            at = found[one.layer] = placed.get(one.layer, at)
    return found


@dataclass(frozen=True)
class Grouped(Division):
    """Devices that share whole layers: every task says on which device it runs.

    Attributes:
        machine: machine whose times count.
        device_of: device of every layer.
    """

    machine: Machine
    device_of: Mapping[str, int]

    @override
    def tasks_of(self, computed: Sequence[Demand]) -> Iterator[Task]:
        """Yield the task of every operation of a pass, in their order; what another device has made travels before."""
        holder: int | None = None
        size_bytes = 0
        for one in computed:
            device, gathered, source = self.device_of.get(one.layer, 0), 0, None
            if one.role in _READS:
                if holder is not None and holder != device:
                    gathered, source = size_bytes, holder
                holder = device
            if one.role in _TRAVELS and one.result_format is not None:
                size_bytes = -(-one.results * one.result_format.width_bits // 8)
            parts = parts_of(self.machine, one)
            yield Task(one.layer, pass_of(one.role), parts, gathered_bytes=gathered, device=device, source=source)

    @override
    def update_of(self, demand: Demand) -> Task:
        parts = parts_of(self.machine, demand)
        return Task(demand.layer, UPDATE, parts, device=self.device_of.get(demand.layer, 0))
