"""What a step of a cluster is made of before it is played, and what is known of it afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from emu.cluster.clipping.schedule import Place, Trigger
from emu.cluster.timing.kernels import Kernels
from emu.cluster.timing.messages import Messages
from emu.cluster.timing.program import Program, Task
from emu.cluster.timing.teams import Teams
from emu.hardware import Event, Fabric


class Group(NamedTuple):
    """Tensors that are exchanged together.

    Attributes:
        name: what a trace calls it.
        layers: layers whose gradients they are.
        numbers: how many gradients, of those that exist after the exchange.
        sent_numbers: how many a node sends.
        up_bytes: bytes of a worker's messages to all owners, itself among them.
        down_bytes: bytes of all owners' messages.
        messages: sizes by owner.
        device: device of every node that has the layers; None where all have a part of them.
        updates: what the owner does before it answers; a controller returns parameters.
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


@dataclass(frozen=True)
class Clips:
    """Gradients clipped layer by layer.

    Attributes:
        trigger: what a clip waits for, see `emu.cluster.clipping.schedule`.
        on: the processor that clips.
        layer_ps: how long it takes for a worker's gradients, by layer.
        device_of: layers that one device of a node has alone.
    """

    trigger: Trigger
    on: Place
    layer_ps: Mapping[str, int]
    device_of: Mapping[str, int] = field(default_factory=dict[str, int])

    def of(self, layers: Iterable[str]) -> int:
        """Return how long some layers take."""
        return sum(self.layer_ps.get(layer, 0) for layer in layers)


@dataclass(frozen=True)
class Plan:
    """Everything that decides how long a step takes.

    Attributes:
        program: program of every device.
        fabric: fabric that messages pass.
        teams: devices by their roles.
        groups: what is exchanged, and together with what; nothing on one node.
        kernels: times of quantising.
        double_buffering: whether a gradient is applied one step late.
        chunks: into which every message is cut where it is copied to hosts.
        clips: what clipping takes; None clips nothing.
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
        """Whether who receives gradients clips them."""
        return self.clips is not None and self.clips.trigger == "after_all" and self.teams.count > 1

    @property
    def is_alike(self) -> bool:
        """Whether every node does the same at the same time, so that two can stand for all."""
        if self.fabric is None or self.teams.parts > 1 or self.teams.count < 3 or not self.teams.computes.all():
            return False
        passed = [self.fabric.port, self.fabric.host] if self.fabric.over_hosts else [self.fabric.port]
        free = not any(path is None or path.half_duplex or path.one_engine for path in passed)
        return free and all(len(set(sizes.tolist())) == 1 for group in self.groups for sizes in group.messages)

    def of_two(self) -> Plan:
        """Return the plan of two nodes that stand for all."""
        assert self.fabric is not None
        groups = [group._replace(messages=Messages(*(sizes[:2] for sizes in group.messages))) for group in self.groups]
        teams = self.teams.standing_for_all()
        return replace(
            self,
            fabric=replace(self.fabric, nodes=2 * self.fabric.nodes // self.teams.count),
            teams=teams,
            groups=tuple(groups),
        )

    def without_computing(self) -> Plan:
        """Return the plan of devices that compute in no time, one step by itself: what is left is communication."""
        kernels = replace(self.kernels, bytes_per_s=None)
        groups = tuple(group._replace(updates=()) for group in self.groups)
        return replace(
            self,
            program=self.program.without_time(),
            kernels=kernels,
            groups=groups,
            double_buffering=False,
            clips=None,
        )

    def pass_alone(self) -> Plan:
        """Return the plan of forward and backward alone, without what comes after or beside it."""
        program = Program(self.program.passes, ())
        return replace(self, program=program, groups=(), double_buffering=False, clips=None)

    def exchange_alone(self) -> Plan:
        """Return the plan of the exchange of gradients that are there at once, on devices that compute in no time."""
        silent = self.without_computing()
        passes = tuple(replace(task, gathered_bytes=0, partial_bytes=0) for task in silent.program.passes)
        return replace(silent, program=Program(passes, ()))


@dataclass(frozen=True)
class StepTime:
    """How long a step takes, and its parts: of the device that does most.

    Attributes:
        step_ps: from one step's end to the next one's.
        compute_ps: forward and backward.
        quantise_ps: encoding, adding up, decoding.
        update_ps: the update.
        wait_ps: the rest, in which the device computes nothing.
        send_ps: for how long the busiest port sends.
        sent_bytes: bytes of all devices in a step.
        clip_ps: clipping, on whichever processor.
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
        """Share of the step for which the busiest port sends."""
        return self.send_ps / self.step_ps if self.step_ps else 0.0
