"""The schedule of a step, from `[cluster]`, a machine, and the demands of one node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from emu.cluster.clipping import ClippingTable
from emu.cluster.codecs import codec_of
from emu.cluster.controller import layer_of, placed
from emu.cluster.layout import Layout
from emu.cluster.settings import ClusterTable
from emu.cluster.timing.controlling import Controlled, controlled_layers, groups_of, least_busy
from emu.cluster.timing.counts import NO_COUNTS, Counts
from emu.cluster.timing.grouping import Grouped, devices_of
from emu.cluster.timing.kernels import Kernels
from emu.cluster.timing.messages import messages_of
from emu.cluster.timing.program import Division, Program, Undivided, prepare_of, program_of
from emu.cluster.timing.rows import Rows
from emu.cluster.timing.step_schedule import Clips, Group, StepSchedule
from emu.cluster.timing.striping import Striped, striped_shapes
from emu.cluster.timing.teams import Teams
from emu.errors import ConfigError
from emu.hardware import Demand, Device, Fabric, Machine


@dataclass(frozen=True)
class Share:
    """The work of one model in a step, over its part of the batch.

    Attributes:
        computed: demands of the pass.
        updated: demands after the exchange.
        shapes: columns and rows of every gradient, by name `layer.part`.
        parameter_bytes: bytes of one code of the parameters that a controller returns, by the same names.
        clipping: by which rules, when and where its gradients are clipped; None clips nothing.
        batch_elements: numbers of its part of the batch, which its host prepares; 0 if it prepares nothing.
        batch_bytes: bytes that the host sends.
        decided_on_host: whether registers go to the host and points come back.
        rows: how many rows gradients of some rows have, by the same names.
        counts: what adding up the registers of all nodes takes, for one point.
        controller_of: controllers of layers, by layer, as a run has placed them; empty if `[cluster]` decides.
    """

    computed: Sequence[Demand]
    updated: Sequence[Demand]
    shapes: Mapping[str, tuple[int, int]]
    parameter_bytes: Mapping[str, int] = field(default_factory=dict[str, int])
    clipping: ClippingTable | None = None
    batch_elements: int = 0
    batch_bytes: int = 0
    decided_on_host: bool = False
    rows: Mapping[str, Rows] = field(default_factory=dict[str, Rows])
    counts: Counts = NO_COUNTS
    controller_of: Mapping[str, int] = field(default_factory=dict[str, int])


def alone(machine: Machine, share: Share) -> StepSchedule:
    """Return the schedule of one device that trains by itself."""
    # a device alone encodes nothing: only clipping asks these kernels for times
    kernels = _kernels(ClusterTable(nodes=1), machine)
    program = _program(_undivided(machine, share), machine, share)
    return StepSchedule(program, None, Teams(1), (), kernels, clips=_clips(share, kernels, share.shapes, {}))


def schedule_of(table: ClusterTable, machine: Machine, fabric: Fabric, share: Share) -> StepSchedule:
    """Return the schedule of a cluster's step.

    Args:
        table: `[cluster]`.
        machine: machine of each device.
        fabric: fabric that connects the devices.
        share: work of one model.

    Raises:
        ConfigError: an owner has no stripe, owners are given with model striping, or devices cannot be divided.
    """
    teams = teams_of(table)
    kernels = _kernels(table, machine)
    divided = _divided(table, machine, kernels, share)
    program, shapes, device_of = divided
    clips = _clips(share, kernels, shapes, device_of)
    groups: tuple[Group, ...] = ()
    if teams.exchanges:
        by_controllers = table.exchange == "controllers"
        if by_controllers:
            groups = _to_controllers(table, fabric, kernels, divided, share)
        else:
            groups = _in_stripes(table, kernels, program, shapes, share.rows, device_of)
        # controllers run the updates (`Group.updates`): nodes that get parameters do not
        program = replace(program, updates=()) if by_controllers else program
    return StepSchedule(
        program,
        fabric,
        teams,
        groups,
        kernels,
        double_buffering=table.double_buffering,
        # a message is cut so that copying to the host overlaps with sending: without hosts there is nothing to copy
        chunks=table.chunks if fabric.over_hosts else 1,
        clips=clips,
    )


def controllers_of(table: ClusterTable, machine: Machine, fabric: Fabric, share: Share) -> dict[str, int]:
    """Return the controller of each layer; arguments as of `schedule_of`."""
    kernels = _kernels(table, machine)
    layers = _controlled(kernels, _divided(table, machine, kernels, share), share)
    return _placed(table, fabric, kernels, layers, share)


class _Divided(NamedTuple):
    """A step as the devices of a node share it.

    Attributes:
        program: program of each device.
        shapes: columns and rows of every gradient's part on a device.
        device_of: device of each layer that one device of a node has alone.
    """

    program: Program
    shapes: Mapping[str, tuple[int, int]]
    device_of: Mapping[str, int]


def _divided(table: ClusterTable, machine: Machine, kernels: Kernels, share: Share) -> _Divided:
    teams = teams_of(table)
    shapes, device_of = share.shapes, dict[str, int]()
    division: Division = _undivided(machine, share)
    if teams.parts > 1 and table.model_split == "layers":
        device_of = devices_of(share.computed, teams.parts)
        division = Grouped(machine, device_of)
    elif teams.parts > 1:
        shapes = striped_shapes(shapes, teams.parts, table.lines, share.rows)
        division = Striped(machine, kernels, teams.parts)
    return _Divided(_program(division, machine, share), shapes, device_of)


def _in_stripes(
    table: ClusterTable,
    kernels: Kernels,
    program: Program,
    shapes: Mapping[str, tuple[int, int]],
    rows: Mapping[str, Rows],
    device_of: Mapping[str, int],
) -> tuple[Group, ...]:
    """Return the groups of a striped exchange: the tensors of a layer, or all tensors, or all of a device."""
    # made for its errors: an owner without a stripe
    Layout(table.nodes, owners=table.owners).require_stripes(shapes.values())
    # with streaming, groups in the order in which layers are completed; else one group, or one for each device
    together: dict[str, list[str]] = {layer: [] for layer in program.layers if table.streaming}
    for tensor in shapes:
        whole = f"gradients of device {device_of[layer_of(tensor)]}" if device_of else "gradients"
        together.setdefault(layer_of(tensor) if table.streaming else whole, []).append(tensor)
    groups: list[Group] = []
    for name, tensors in together.items():
        layers = frozenset(map(layer_of, tensors))
        members, some = [shapes[tensor] for tensor in tensors], [rows.get(tensor) for tensor in tensors]
        messages = messages_of(members, table.nodes, table.owners, kernels.codec, kernels.owner_codec, some)
        groups.append(Group.of(name, layers, messages, device_of.get(layer_of(tensors[0]))))
    return tuple(groups)


def _to_controllers(
    table: ClusterTable, fabric: Fabric, kernels: Kernels, divided: _Divided, share: Share
) -> tuple[Group, ...]:
    """Return a group for each layer, which its controller updates."""
    layers = _controlled(kernels, divided, share)
    controller_of = share.controller_of or _placed(table, fabric, kernels, layers, share)
    groups = groups_of(layers, controller_of, table.nodes)
    # a device that has a layer alone sends its gradients itself
    return tuple(group._replace(device=divided.device_of.get(group.name)) for group in groups)


def _controlled(kernels: Kernels, divided: _Divided, share: Share) -> dict[str, Controlled]:
    return controlled_layers(divided.program, kernels, divided.shapes, share.parameter_bytes, share.rows)


def _placed(
    table: ClusterTable, fabric: Fabric, kernels: Kernels, layers: Mapping[str, Controlled], share: Share
) -> dict[str, int]:
    """Return the controller of each layer, as training places it; by bytes of whole layers, or by time."""
    sizes: dict[str, int] = {}
    # the last layer of the network first, as in `emu.cluster.controller`
    for name in reversed(list(share.shapes)):
        sizes[layer_of(name)] = sizes.get(layer_of(name), 0) + kernels.codec.message_bytes(*share.shapes[name])
    if table.placement != "least_busy":
        return placed(sizes, table.controllers, table.placement)
    return least_busy(sizes, layers, table.controllers, teams_of(table), kernels, fabric.port)


def _kernels(table: ClusterTable, machine: Machine) -> Kernels:
    """Return the times of quantising on a device; what a controller returns is not quantised."""
    codec, owner_codec = table.codecs()
    if table.exchange == "controllers":
        owner_codec = codec_of(32)
    bandwidth = machine.device.compute.memory_bytes_per_s
    start_ps = machine.kernel_start_ps
    return Kernels(codec, owner_codec, bandwidth, table.rule != "none", start_ps, table.quantise_own)


def _clips(
    share: Share,
    kernels: Kernels,
    shapes: Mapping[str, tuple[int, int]],
    device_of: Mapping[str, int],
) -> Clips | None:
    """Return how long clipping takes a worker, by layer; None if nothing is clipped."""
    clipping = share.clipping
    if clipping is None:
        return None
    numbers: Counter[str] = Counter()
    for name, (columns, rows) in shapes.items():
        # of a gradient of some rows, only the rows that were touched are clipped
        some = share.rows.get(name)
        numbers[layer_of(name)] += (columns if some is None else some.touched) * rows
    layer_ps = {layer: kernels.clip_ps(clipping.rules, count) for layer, count in numbers.items()}
    return Clips(clipping.trigger, clipping.on, layer_ps, device_of)


def teams_of(table: ClusterTable) -> Teams:
    """Return which devices of a cluster belong together.

    Raises:
        ConfigError: owners are given with model striping.
    """
    if table.owners and table.model_parallel > 1 and table.model_split == "stripes":
        raise ConfigError(
            f"`owners` must be left out if `model_parallel` is above 1, got {list(table.owners)}: each part of a model "
            "has its own owners; remove one of the two"
        )
    return Teams(table.nodes, table.units, table.model_parallel, workers=table.workers)


def fabric_of(table: ClusterTable, device: Device) -> Fabric:
    """Return the fabric of a cluster's devices: those of a node share hosts, each as many as a host has.

    Raises:
        ConfigError: the device has no crossbar or too few ports, or nodes would lie across hosts.
    """
    topology = device.topology
    at_host = int(topology.devices.value) if topology and topology.devices else 1
    # devices of a node: each of its replicas has `model_parallel`
    of_node = table.units * table.model_parallel
    on_each_host = min(of_node, at_host)
    if of_node % on_each_host:
        raise ConfigError(
            f"the {of_node} devices of a node must fill whole hosts, which have {at_host} devices each on "
            f"{device.name}; change `units` or `model_parallel` of [cluster]"
        )
    # nodes of the fabric are hosts: a node of the cluster may have several
    return Fabric.of(device, nodes=table.nodes * of_node // on_each_host, devices=on_each_host)


def _undivided(machine: Machine, share: Share) -> Undivided:
    return Undivided(machine, share.decided_on_host, share.counts)


def _program(division: Division, machine: Machine, share: Share) -> Program:
    prepare = prepare_of(machine, share.batch_elements, share.batch_bytes)
    return program_of(division, share.computed, share.updated, prepare)
