"""The plan of a step, from `[cluster]`, a machine, and the demands of one node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from emu.cluster.layout import Layout
from emu.cluster.settings import ClusterTable
from emu.cluster.timing.kernels import Kernels
from emu.cluster.timing.messages import messages_of
from emu.cluster.timing.program import Program, program_of
from emu.cluster.timing.step import Group, Plan
from emu.cluster.timing.striping import striped_program, striped_shapes
from emu.cluster.timing.teams import Teams
from emu.errors import ConfigError
from emu.hardware import Demand, Device, Fabric, Machine


@dataclass(frozen=True)
class Share:
    """What one model is asked in a step, over its part of the batch.

    Attributes:
        computed: demands of the pass.
        updated: demands behind the exchange.
        shapes: columns and rows of every gradient, by name `layer.part`.
        batch_elements: numbers of its part of the batch, which its host prepares; 0 of nothing.
        batch_bytes: that the host sends.
        decided_on_host: whether registers go to the host and points come back.
    """

    computed: Sequence[Demand]
    updated: Sequence[Demand]
    shapes: Mapping[str, tuple[int, int]]
    batch_elements: int = 0
    batch_bytes: int = 0
    decided_on_host: bool = False


def alone(machine: Machine, share: Share) -> Plan:
    """Return the plan of one device that trains by itself."""
    kernels = Kernels(*ClusterTable(nodes=1).codecs(), bytes_per_s=None)
    return Plan(_program(machine, share), None, Teams(1), (), kernels)


def plan_of(table: ClusterTable, machine: Machine, fabric: Fabric, share: Share) -> Plan:
    """Return the plan of a cluster's step.

    Args:
        table: `[cluster]`.
        machine: every device.
        fabric: that connects them.
        share: of one model.

    Raises:
        ConfigError: an owner has no stripe, owners are given with model striping, or devices cannot be divided.
    """
    teams = teams_of(table)
    codec, owner_codec = table.codecs()
    bandwidth = machine.device.compute.memory_bandwidth_bytes_per_s
    kernels = Kernels(codec, owner_codec, None if bandwidth is None else bandwidth.value, table.rule != "none")
    program, shapes = _program(machine, share), dict(share.shapes)
    if teams.parts > 1:
        shapes = dict(zip(shapes, striped_shapes(shapes.values(), teams.parts), strict=True))
        program = striped_program(
            machine,
            kernels,
            teams.parts,
            share.computed,
            share.updated,
            batch_elements=share.batch_elements,
            batch_bytes=share.batch_bytes,
        )
    by_layer: dict[str, list[tuple[int, int]]] = {layer: [] for layer in program.layers if table.streaming}
    for name, shape in shapes.items():
        by_layer.setdefault(name.rpartition(".")[0] if table.streaming else "gradients", []).append(shape)
    Layout(teams.count, owners=table.owners).require_stripes([columns for columns, _ in shapes.values()])
    groups: list[Group] = []
    for name, members in by_layer.items():
        layers = frozenset((name,) if table.streaming else program.layers)
        messages = messages_of(members, teams.count, table.owners, codec, owner_codec)
        up, down = (int(sizes.sum()) for sizes in (messages.up_bytes, messages.down_bytes))
        groups.append(Group(name, layers, sum(columns * rows for columns, rows in members), up, down, messages))
    return Plan(
        program,
        fabric,
        teams,
        tuple(groups) if teams.replicas > 1 else (),
        kernels,
        double_buffering=table.double_buffering,
        chunks=table.chunks if fabric.over_hosts else 1,
    )


def teams_of(table: ClusterTable) -> Teams:
    """Return who belongs together.

    Raises:
        ConfigError: owners are given with model striping, or gradients do not go from all nodes in stripes.
    """
    if table.exchange != "stripes" or table.workers:
        what = f"`exchange` {table.exchange!r}" if table.exchange != "stripes" else f"`workers` {list(table.workers)}"
        raise ConfigError(
            f"an exchange that is simulated in time must be of stripes, from all nodes, got {what}; leave it out"
        )
    if table.owners and table.model_parallel > 1:
        raise ConfigError(
            f"`owners` must be left out where `model_parallel` is above 1, got {list(table.owners)}: each part of a "
            "model has its own; remove one of the two"
        )
    return Teams(table.nodes, table.units, table.model_parallel)


def fabric_of(table: ClusterTable, device: Device) -> Fabric:
    """Return what connects a cluster's devices: those of a node at one host, as far as a host has so many.

    Raises:
        ConfigError: the device has no crossbar or too few ports, or nodes would lie across hosts.
    """
    topology = device.topology
    at_host = int(topology.devices.value) if topology and topology.devices else 1
    of_node = table.units * table.model_parallel
    taken = min(of_node, at_host)
    if of_node % taken:
        raise ConfigError(
            f"the {of_node} devices of a node must fill hosts of {at_host}, as {device.name} has them; change `units` "
            "or `model_parallel` of [cluster]"
        )
    return Fabric.of(device, nodes=table.nodes * of_node // taken, devices=taken)


def _program(machine: Machine, share: Share) -> Program:
    return program_of(
        machine,
        share.computed,
        share.updated,
        batch_elements=share.batch_elements,
        batch_bytes=share.batch_bytes,
        decided_on_host=share.decided_on_host,
    )
