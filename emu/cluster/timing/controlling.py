"""Layers that controllers update in simulated time: what travels, what a controller does, and who takes which layer.

    from workers    a message of each worker but the controller itself        time of its port
    mean            sum over workers, divided once                            time of its memory
    update          the layer's operations of the optimiser                   time of its units
    to all nodes    the layer's parameters, to each node but itself           time of its port

The load of a layer is the sum of these times. With `placement = "least_busy"` each layer goes to the controller whose
layers so far have the least load, the last layer of the network first.

Source: US 2023/0169333, the least loaded of several controllers; which times are a layer's load, and that latency is
none of them because it keeps nobody busy, is our choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from emu.cluster.controller import layer_of, least_loaded
from emu.cluster.timing.kernels import Kernels
from emu.cluster.timing.messages import Messages
from emu.cluster.timing.program import Program, Task
from emu.cluster.timing.rows import Rows, Sizes, controlled_sizes
from emu.cluster.timing.step_schedule import Group
from emu.cluster.timing.teams import Teams
from emu.hardware.fabric import Path


class Controlled(NamedTuple):
    """A layer as its controller has it.

    Attributes:
        sizes: messages of all its gradients together.
        updates: tasks between the mean and the parameters' way back.
    """

    sizes: Sizes
    updates: tuple[Task, ...]


def controlled_layers(
    program: Program,
    kernels: Kernels,
    shapes: Mapping[str, tuple[int, int]],
    parameter_bytes: Mapping[str, int],
    rows: Mapping[str, Rows],
) -> dict[str, Controlled]:
    """Return the layers of a step, in the order in which their gradients become complete.

    Args:
        program: program of a device.
        kernels: codec of workers.
        shapes: columns and rows of every gradient, by name.
        parameter_bytes: bytes of one code of a parameter, by the same names.
        rows: how many rows gradients of some rows have, by the same names.
    """
    layers: dict[str, Controlled] = {}
    for layer in program.layers:
        total = Sizes(0, 0, 0, 0)
        # tensors of one layer travel together: their numbers and bytes are added
        for name in (name for name in shapes if layer_of(name) == layer):
            some = rows.get(name)
            counts = None if some is None else (some.sent, some.arrived)
            sizes = controlled_sizes(*shapes[name], counts, kernels.codec, parameter_bytes[name])
            total = Sizes(*(sum(pair) for pair in zip(total, sizes, strict=True)))
        # tasks that belong to no layer, as the norm of all gradients, run with the last layer
        last = layer == program.layers[-1]
        updates = (t for t in program.updates if t.layer == layer or (last and t.layer not in program.layers))
        layers[layer] = Controlled(total, tuple(updates))
    return layers


def groups_of(layers: Mapping[str, Controlled], controller_of: Mapping[str, int], nodes: int) -> tuple[Group, ...]:
    """Return a group for each layer; its only owner is the layer's controller, which updates and sends parameters."""
    groups: list[Group] = []
    for layer, (sizes, updates) in layers.items():
        # (fields of `Messages`, nodes): all but the controller's column stay 0
        by_node = np.zeros((len(Messages._fields), nodes), np.int64)
        by_node[:, controller_of[layer]] = sizes
        groups.append(Group.of(layer, frozenset((layer,)), Messages(*by_node), updates=updates))
    return tuple(groups)


def least_busy(
    order: Iterable[str],
    layers: Mapping[str, Controlled],
    controllers: Sequence[int],
    teams: Teams,
    kernels: Kernels,
    port: Path,
) -> dict[str, int]:
    """Return the controller of each layer, by how long the layers so far keep each controller busy.

    Args:
        order: names of layers, in the order in which they are placed.
        layers: what each of them asks of its controller.
        controllers: nodes that are controllers.
        teams: which nodes compute gradients.
        kernels: times of a controller's memory.
        port: link between a node and the crossbar.
    """
    # nodes, although `computes` is of devices
    workers = set(teams.team[teams.computes].tolist())
    return least_loaded({
        layer: {
            node: load_ps(layers[layer], teams, kernels, port, is_worker=node in workers)
            for node in controllers
        }
        for layer in order
    })  # fmt: skip


def load_ps(layer: Controlled, teams: Teams, kernels: Kernels, port: Path, *, is_worker: bool) -> int:
    """Return how long a layer keeps its controller busy.

    Args:
        layer: what it asks.
        teams: number of nodes, and which of them compute gradients.
        kernels: times of the controller's memory.
        port: link between the controller and the crossbar.
        is_worker: whether the controller computes gradients as well, and sends none to itself.
    """
    sizes, updates = layer
    messages_ps = (teams.contributions - is_worker) * port.held_ps(sizes.up_bytes)
    messages_ps += (teams.count - 1) * port.held_ps(sizes.down_bytes)
    # `sum_ps` takes an entry for each owner; here the controller is the only one
    counts = (np.array([count], np.int64) for count in (sizes.numbers, sizes.up_bytes, sizes.down_bytes))
    mean_ps = int(kernels.sum_ps(teams.contributions, *counts)[0])
    return messages_ps + mean_ps + sum(task.duration_ps for task in updates)
