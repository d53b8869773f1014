"""Whole layers divided among M devices of a node: the largest alone, the small ones together.

    load of a layer     multiply-adds of its products in a pass
    largest layer       on device 0, which takes no other layer if there are other devices
    others              largest first, each to the device with the least load; of equals, to the lowest number
    without products    on the device of the layer before

Devices of a node work one after the other in a pass, each on its layers. If the next layer is on another device, the
activations travel there, and its error travels back. Each device exchanges the gradients and updates the parameters of
its own layers. There are no partial sums, so no bit changes.

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

#: Roles of what travels from layer to layer, and of the results that are computed from it.
_TRAVELS, _READS = ("activation", "error"), ("activation", "slope", "loss", "error", "gradient")


def grouped(loads: Mapping[str, int], devices: int) -> dict[str, int]:
    """Return the device of every layer.

    Args:
        loads: loads of layers, in the order of the network.
        devices: number of devices.

    Examples:
        >>> grouped({"a": 90, "b": 30, "c": 20, "d": 10}, 3)
        {'a': 0, 'b': 1, 'c': 2, 'd': 2}
    """
    # `sorted` is stable: equal loads stay in the order of the network
    largest_first = sorted(loads, key=lambda layer: -loads[layer])
    others = dict.fromkeys(range(min(1, devices - 1), devices), 0)  # all but device 0, unless it is the only one
    device_of = dict.fromkeys(largest_first[:1], 0)
    for layer in largest_first[1:]:
        device_of[layer] = min(others, key=lambda device: others[device])
        others[device_of[layer]] += loads[layer]
    return {layer: device_of[layer] for layer in loads}


def devices_of(computed: Sequence[Demand], devices: int) -> dict[str, int]:
    """Return the device of every layer of a pass.

    Args:
        computed: demands of the pass.
        devices: devices of a node.
    """
    loads: Counter[str] = Counter()
    # layers with gradients have weights; products of other layers are no load
    with_weights = {demand.layer for demand in computed if demand.role == "gradient"}
    for demand in computed:
        if demand.multiply_adds and demand.layer in with_weights:
            loads[demand.layer] += demand.multiply_adds
    loaded = grouped(loads, devices)
    device_of: dict[str, int] = {}
    # layers before the first with a load go to the device of the first one
    device = next(iter(loaded.values()), 0)
    for demand in computed:
        if demand.role in _READS and demand.layer not in device_of:
            device = device_of[demand.layer] = loaded.get(demand.layer, device)
    return device_of


@dataclass(frozen=True)
class Grouped(Division):
    """Devices that share whole layers: each task says on which device it runs.

    Attributes:
        machine: machine whose times count.
        device_of: device of every layer.
    """

    machine: Machine
    device_of: Mapping[str, int]

    @override
    def tasks_of(self, computed: Sequence[Demand]) -> Iterator[Task]:
        """Yield the task of each operation of a pass, in order; it waits for what another device sends first."""
        holder: int | None = None
        size_bytes = 0
        for demand in computed:
            device, gathered, source = self.device_of.get(demand.layer, 0), 0, None
            # `holder`: the device that has the newest activations, or errors
            if demand.role in _READS:
                if holder is not None and holder != device:
                    gathered, source = size_bytes, holder
                holder = device
            # what the next layer reads if it is on another device; rounded up to whole bytes
            if demand.role in _TRAVELS and demand.result_format is not None:
                size_bytes = -(-demand.results * demand.result_format.width_bits // 8)
            parts = parts_of(self.machine, demand)
            yield Task(demand.layer, pass_of(demand.role), parts, gathered_bytes=gathered, device=device, source=source)

    @override
    def update_of(self, demand: Demand) -> Task:
        parts = parts_of(self.machine, demand)
        return Task(demand.layer, UPDATE, parts, device=self.device_of.get(demand.layer, 0))
