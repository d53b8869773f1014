"""The schedule of a cluster's step, which `step.py` plays, and the time that it takes; `_ps` are picoseconds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from emu.cluster.clipping.schedule import Processor, Trigger
from emu.cluster.timing.kernels import Kernels
from emu.cluster.timing.messages import Messages
from emu.cluster.timing.program import Program, Task, Use, uses_of
from emu.cluster.timing.teams import Teams
from emu.hardware import Event, Fabric


class Group(NamedTuple):
    """Tensors that are exchanged together.

    Attributes:
        name: what a trace calls it.
        layers: layers whose gradients they are.
        numbers: how many gradients all owners together have after the exchange.
        sent_numbers: how many gradients a worker sends; fewer than `numbers` if it sends only the rows that it touched.
        up_bytes: bytes of a worker's messages to all owners, including itself.
        down_bytes: bytes of all owners' messages to one node.
        messages: sizes by owner.
        device: the device of a node that has the layers; None if each device has a part of them.
        updates: tasks that the owner runs before it answers: a controller updates parameters and returns them.
    """

    name: str
    layers: frozenset[str]
    numbers: int
    sent_numbers: int
    up_bytes: int
    down_bytes: int
    messages: Messages
    device: int | None = None
    updates: tuple[Task, ...] = ()

    @classmethod
    def of(
        cls,
        name: str,
        layers: frozenset[str],
        messages: Messages,
        device: int | None = None,
        updates: tuple[Task, ...] = (),
    ) -> Group:
        """Return a group whose numbers and bytes are those of its messages to and from all owners."""
        numbers, up_bytes, down_bytes, sent_numbers = (int(sizes.sum()) for sizes in messages)
        return cls(name, layers, numbers, sent_numbers, up_bytes, down_bytes, messages, device, updates)


@dataclass(frozen=True)
class Clips:
    """Gradients clipped layer by layer.

    Attributes:
        trigger: what a clip waits for, see `emu.cluster.clipping.schedule`.
        on: the processor that clips.
        layer_ps: how long clipping a worker's gradients takes, by layer.
        device_of: device of each layer that one device of a node has alone.
    """

    trigger: Trigger
    on: Processor
    layer_ps: Mapping[str, int]
    device_of: Mapping[str, int] = field(default_factory=dict[str, int])

    def of(self, layers: Iterable[str]) -> int:
        """Return how long clipping some layers takes."""
        return sum(self.layer_ps.get(layer, 0) for layer in layers)


@dataclass(frozen=True)
class StepSchedule:
    """Everything that decides how long a step takes.

    Attributes:
        program: program of each device.
        fabric: fabric that messages pass; None for a device alone.
        teams: devices by their roles.
        groups: tensors that are exchanged, by group; empty if nothing is exchanged.
        kernels: times of quantising.
        double_buffering: whether a gradient is applied one step late.
        chunks: number of parts into which each message is cut if it is copied to hosts.
        clips: time of clipping; None clips nothing.
    """

    program: Program
    fabric: Fabric | None
    teams: Teams
    groups: tuple[Group, ...]
    kernels: Kernels
    double_buffering: bool = False
    chunks: int = 1
    clips: Clips | None = None

    @property
    def clips_at_receivers(self) -> bool:
        """Whether receivers of gradients clip them; a node alone receives none."""
        return self.clips is not None and self.clips.trigger == "after_all" and self.teams.count > 1

    @property
    def uses(self) -> Iterator[Use]:
        """All uses of units and links by one node in a step; a controller updates only its layers."""
        yield from self.program.uses
        for group in self.groups:
            yield from uses_of(group.updates)

    @property
    def is_alike(self) -> bool:
        """Whether all nodes do the same at the same time, so that two can stand for all."""
        # nothing is saved with two nodes; nodes of several devices, or without gradients, differ from each other
        if self.fabric is None or self.teams.parts > 1 or self.teams.count < 3 or not self.teams.computes.all():
            return False
        links = [self.fabric.port, self.fabric.host] if self.fabric.over_hosts else [self.fabric.port]
        # if both directions share a resource, messages of a round compete, and two nodes do not stand for more
        separate = not any(link is None or link.half_duplex or link.one_engine for link in links)
        # equal sizes for all owners: each node sends and receives the same
        return separate and all(len(set(sizes.tolist())) == 1 for group in self.groups for sizes in group.messages)

    def of_two(self) -> StepSchedule:
        """Return the schedule of two nodes that stand for all."""
        assert self.fabric is not None
        # any two entries: all are equal
        groups = [group._replace(messages=Messages(*(sizes[:2] for sizes in group.messages))) for group in self.groups]
        teams = self.teams.standing_for_all()
        # the fabric counts hosts, of which each node may have several
        return replace(
            self,
            fabric=replace(self.fabric, nodes=2 * self.fabric.nodes // self.teams.count),
            teams=teams,
            groups=tuple(groups),
        )

    def without_computing(self) -> StepSchedule:
        """Return the schedule of one step on devices that compute in no time: communication is left."""
        # no bandwidth: kernels of the memory take no time
        kernels = replace(self.kernels, bytes_per_s=None)
        groups = tuple(group._replace(updates=()) for group in self.groups)
        return replace(
            self,
            program=self.program.without_time(),
            kernels=kernels,
            groups=groups,
            # one step by itself: no exchange of an earlier step runs beside it
            double_buffering=False,
            clips=None,
        )

    def pass_alone(self) -> StepSchedule:
        """Return the schedule of forward and backward alone, without exchange and update."""
        program = Program(self.program.passes, ())
        return replace(self, program=program, groups=(), double_buffering=False, clips=None)

    def exchange_alone(self) -> StepSchedule:
        """Return the schedule of the exchange alone: all gradients are ready at the start, computing takes no time."""
        silent = self.without_computing()
        # without what devices that share a model send each other
        passes = tuple(replace(task, gathered_bytes=0, partial_bytes=0) for task in silent.program.passes)
        return replace(silent, program=Program(passes, ()))


@dataclass(frozen=True)
class StepTime:
    """How long a step takes, and its parts on the busiest device.

    Attributes:
        step_ps: from the end of one step to the end of the next.
        compute_ps: forward and backward.
        quantise_ps: encoding, adding up, decoding.
        update_ps: the update.
        wait_ps: the rest, in which the device computes nothing; 0 if its host computes beside it for longer.
        send_ps: how long the busiest port sends.
        sent_bytes: bytes of all devices in a step.
        clip_ps: clipping, on any processor.
        events: events of the first nodes, if they were kept.
    """

    step_ps: int
    compute_ps: int
    quantise_ps: int
    update_ps: int
    wait_ps: int
    send_ps: int
    sent_bytes: int
    clip_ps: int = 0
    events: tuple[Event, ...] = ()

    @property
    def link_use(self) -> float:
        """Share of the step in which the busiest port sends."""
        return self.send_ps / self.step_ps if self.step_ps else 0.0
