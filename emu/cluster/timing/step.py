"""A step of a cluster in time: programs of devices, exchanges of gradients, and what they wait for.

    none               pass ─► exchange ─► update
    streaming          pass, and each layer's exchange as soon as its gradients are complete ─► update
    double buffering   pass of t beside the exchange of t - 1 ─► update with what has arrived

    exchange of a group of tensors:  added within the node ─► encode ─► K - 1 rounds to owners ─► sum, encode
                                     ─► K - 1 rounds to all ─► decode

Kernels of an exchange run on the unit that computes, between two operations. A phase's rounds are given to the fabric
together, in the order in which phases are ready on the first device.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from emu.cluster.timing.kernels import NUMBER_BYTES, Kernels
from emu.cluster.timing.line import Line, Process, Processes, Signal, Times
from emu.cluster.timing.messages import Messages
from emu.cluster.timing.program import BACKWARD, DEVICE, FORWARD, QUANTISE, UPDATE, Program, Task
from emu.cluster.timing.teams import Numbers, Teams
from emu.hardware import Event, Fabric, Sent, Traffic, events_of

#: Steps that are played with double buffering: the first has nothing to wait for, the last two are alike.
_BUFFERED_STEPS = 4
#: Nodes that a trace shows.
TRACED_NODES = 16


class Group(NamedTuple):
    """Tensors that are exchanged together.

    Attributes:
        name: what a trace calls it.
        layers: whose gradients they are.
        numbers: how many gradients.
        up_bytes: of a worker's messages to all owners, itself among them.
        down_bytes: of all owners' messages.
        messages: sizes by owner.
    """

    name: str
    layers: frozenset[str]
    numbers: int
    up_bytes: int
    down_bytes: int
    messages: Messages


@dataclass(frozen=True)
class Plan:
    """Everything that decides how long a step takes.

    Attributes:
        program: of every device.
        fabric: that messages pass.
        teams: devices by their roles.
        groups: what is exchanged, and together with what; nothing on one node.
        kernels: times of quantising.
        double_buffering: whether a gradient is applied one step late.
        chunks: into which every message is cut where it is copied to hosts.
    """

    program: Program
    fabric: Fabric | None
    teams: Teams
    groups: tuple[Group, ...]
    kernels: Kernels
    double_buffering: bool = False
    chunks: int = 1

    @property
    def is_alike(self) -> bool:
        """Whether every node does the same at the same time, so that two can stand for all."""
        if self.fabric is None or self.teams.parts > 1 or self.teams.count < 3:
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
        return replace(self, program=self.program.without_time(), kernels=kernels, double_buffering=False)


@dataclass(frozen=True)
class StepTime:
    """How long a step takes, and its parts: of the device that waits least.

    Attributes:
        step_ps: from one step's end to the next one's.
        compute_ps: forward and backward.
        quantise_ps: encoding, adding up, decoding.
        update_ps: the update.
        wait_ps: the rest, in which the device computes nothing.
        send_ps: for how long the busiest port sends.
        sent_bytes: of all devices in a step.
        events: of the first nodes, if they were kept.
    """

    step_ps: int
    compute_ps: int
    quantise_ps: int
    update_ps: int
    wait_ps: int
    send_ps: int
    sent_bytes: int
    events: tuple[Event, ...] = ()

    @property
    def link_use(self) -> float:
        """Share of the step for which the busiest port sends."""
        return self.send_ps / self.step_ps if self.step_ps else 0.0


def play(plan: Plan, *, keeps_events: bool = False) -> StepTime:
    """Return how long a step takes.

    Where every node does the same, two stand for all: the cost grows with the rounds, not with their messages.

    Args:
        plan: of the step.
        keeps_events: whether to keep what the first nodes do, for a trace.
    """
    if keeps_events or not plan.is_alike:
        return _Run(plan, keeps_events=keeps_events).result()
    found = _Run(plan.of_two(), keeps_events=False).result()
    return replace(found, sent_bytes=found.sent_bytes * plan.teams.count // 2)


class _Run:
    """Steps of one plan, played."""

    def __init__(self, plan: Plan, *, keeps_events: bool) -> None:
        self.plan, self.teams, self._keeps = plan, plan.teams, keeps_events
        self.line = Line(len(plan.teams.part), keeps=keeps_events)
        self.traffic = None if plan.fabric is None else Traffic(plan.fabric)
        self.processes = Processes()
        self.steps = _BUFFERED_STEPS if plan.double_buffering and plan.groups else 1
        self.ends: list[Times] = []
        self.sent_bytes = 0
        self._events: list[Event] = []
        self._leads = plan.teams.leads

    def result(self) -> StepTime:
        """Play all steps; return the last one."""
        self.processes.start(self._program())
        self.processes.run()
        ends, spent = [int(end.max()) for end in self.ends], self.line.spent_ps
        step_ps = ends[-1] - (ends[-2] if len(ends) > 1 else 0)
        task_ps: dict[str, int] = dict.fromkeys((FORWARD, BACKWARD, UPDATE), 0)
        for task in (*self.plan.program.passes, *self.plan.program.updates):
            task_ps[task.kind] += task.duration_ps
        quantise = spent.get(QUANTISE)
        quantise_ps = 0 if quantise is None else int(quantise.max()) // self.steps
        compute_ps = task_ps[FORWARD] + task_ps[BACKWARD]
        wait_ps = step_ps - compute_ps - quantise_ps - task_ps[UPDATE]
        busy = {} if self.traffic is None else self.traffic.busy_ps
        ports = [times for name, times in busy.items() if name.startswith("port") and not name.endswith(" in")]
        send_ps = max((int(times.max()) for times in ports), default=0) // self.steps
        return StepTime(
            step_ps,
            compute_ps,
            quantise_ps,
            task_ps[UPDATE],
            wait_ps,
            send_ps,
            self.sent_bytes // self.steps,
            (*self._booked_events(), *self._events),
        )

    # ---- a device's program ----

    def _program(self) -> Process:
        plan, now = self.plan, self.line.start()
        arrivals: list[list[Signal]] = []
        for step in range(self.steps):
            there = yield from self._prepared(now)
            gradients = [(group, Signal()) for group in plan.groups]
            before = arrivals[-1] if arrivals else []
            arrivals.append([signal for _, signal in gradients])
            now = yield from self._pass(now, gradients, before)
            due = step - 1 if plan.double_buffering and plan.groups else step
            if due >= 0:
                for signal in arrivals[due]:
                    now = np.maximum(now, (yield from _at(signal)))
                for task in plan.program.updates:
                    now = yield from self._compute(task, now)
            now = np.maximum(now, there)
            self.ends.append(now)

    def _prepared(self, now: Times) -> Generator[Times, None, Times]:
        """Prepare the next batch; return when it is there."""
        for resource, duration in self.plan.program.prepare:
            yield now
            now = self.line.book(resource, "the next batch", duration, now, "prepare")
        return now

    def _pass(
        self, now: Times, gradients: Sequence[tuple[Group, Signal]], before: Sequence[Signal]
    ) -> Generator[Times | Signal, None, Times]:
        """Run forward and backward, and begin exchanges as their gradients become complete; return when it is done."""
        missing = {group.name: set(group.layers) for group, _ in gradients}
        partial: tuple[str, Signal] | None = None
        for task in self.plan.program.passes:
            if task.gathered_bytes:
                yield now
                now = np.maximum(now, self._between_neighbours(task.gathered_bytes, now, f"{task.name}: gather"))
            if partial is not None and partial[0] != task.layer:
                now, partial = np.maximum(now, (yield from _at(partial[1]))), None
            now = yield from self._compute(task, now)
            if task.partial_bytes:
                partial = (task.layer, Signal())
                self.processes.start(self._partial_errors(task, now, partial[1]))
            for group, signal in gradients:
                if task.completes and task.layer in missing[group.name]:
                    missing[group.name].remove(task.layer)
                    if not missing[group.name]:
                        self.processes.start(self._exchange(group, now, signal, before))
        return now

    def _compute(self, task: Task, now: Times) -> Generator[Times, None, Times]:
        for resource, duration in task.parts:
            yield now
            now = self.line.book(resource, task.name, duration, now, task.kind)
        return now

    # ---- model striping ----

    def _between_neighbours(self, size_bytes: int, ready: Times, name: str) -> Times:
        """Send as many bytes to every other device of the same model; return when those of all have come."""
        arrived = ready
        for to in self.teams.neighbours():
            arrived = np.maximum(arrived, self._sent((to, size_bytes), ready, name))
        return arrived

    def _partial_errors(self, task: Task, ready: Times, signal: Signal) -> Process:
        yield ready
        arrived = self._between_neighbours(task.partial_bytes, ready, f"{task.name}: parts")
        yield arrived
        self.processes.set(signal, self.line.book(DEVICE, f"{task.name}: add", task.add_ps, arrived, QUANTISE))

    # ---- an exchange ----

    def _exchange(self, group: Group, ready: Times, signal: Signal, before: Sequence[Signal]) -> Process:
        """Exchange a group's gradients, behind all exchanges of the step before."""
        kernels, messages, teams = self.plan.kernels, group.messages, self.teams
        for earlier in before:
            ready = np.maximum(ready, (yield from _at(earlier)))
        yield ready
        if teams.members > 1:
            size = NUMBER_BYTES * group.numbers
            arrived = ready
            for to in teams.to_leader():
                arrived = np.maximum(arrived, self._sent((to, size), ready, f"{group.name}: within the node"))
            yield arrived
            ready = self._kernel(f"{group.name}: add", kernels.add_ps(teams.members, group.numbers), arrived)
        if teams.count > 1:
            yield ready
            encode = kernels.encode_ps(group.numbers, group.up_bytes)
            coded = self._kernel(f"{group.name}: encode", encode, ready)
            yield coded
            arrived = self._to_owners(group, coded)
            yield arrived
            sums = kernels.sum_ps(teams.rounds + 1, *messages)
            summed = self._kernel(f"{group.name}: sum", sums[teams.team], arrived)
            yield summed
            ready = self._to_all(group, summed)
        size = group.down_bytes
        for to in teams.from_leader():
            yield ready
            ready = np.maximum(ready, self._sent((to, size), ready, f"{group.name}: within the node"))
        yield ready
        decode = kernels.decode_ps(group.numbers, size) if teams.count > 1 else 0
        self.processes.set(signal, self.line.book(DEVICE, f"{group.name}: decode", decode, ready, QUANTISE))

    def _kernel(self, name: str, duration: int | Times, ready: Times) -> Times:
        """Book a kernel on those devices that exchange gradients."""
        return self.line.book(DEVICE, name, np.where(self._leads, duration, 0), ready, QUANTISE)

    def _to_owners(self, group: Group, ready: Times) -> Times:
        """Phase 1: in round r, node i sends to owner i + r; return when an owner has everything."""
        to, sizes = self.teams.receivers, group.messages.up_bytes
        return self._sent(_only(to, sizes, sizes[self.teams.team][to]), ready, f"{group.name}: to owners")

    def _to_all(self, group: Group, ready: Times) -> Times:
        """Phase 2: in round r, owner i sends to node i + r; return when a node has everything."""
        to, sizes = self.teams.receivers, group.messages.down_bytes
        return self._sent(_only(to, sizes, sizes[self.teams.team]), ready, f"{group.name}: to all")

    def _sent(self, messages: tuple[Numbers, int | Numbers], ready: Times, name: str) -> Times:
        """Send a round, or rounds: receivers and sizes; return when each device has all that was sent to it."""
        assert self.traffic is not None
        to = np.atleast_2d(messages[0])
        sent = self.traffic.rounds(ready, to, messages[1], self.plan.chunks)
        goes = ... if (to >= 0).all() else to >= 0
        self.sent_bytes += int(sent.size_bytes[goes].sum())
        arrived = ready.copy()
        np.maximum.at(arrived, to[goes], sent.arrived_ps[goes])
        if self._keeps:
            self._events += self._message_events(sent, name)
        return arrived

    # ---- events ----

    @property
    def _traced(self) -> range:
        return range(min(1 if self.plan.fabric is None else self.plan.fabric.nodes, TRACED_NODES))

    def _message_events(self, sent: Sent, name: str) -> Iterable[Event]:
        assert self.plan.fabric is not None
        return events_of(self.plan.fabric, sent, name, self._traced)

    def _booked_events(self) -> Iterable[Event]:
        devices = 1 if self.plan.fabric is None else self.plan.fabric.devices
        for one in self.line.booked:
            for number in range(len(self._traced) * devices):
                if one.duration_ps[number]:
                    resource = one.resource if devices == 1 else f"{one.resource}, device {number % devices}"
                    begin, duration = int(one.begin_ps[number]), int(one.duration_ps[number])
                    yield Event(resource, one.name, begin, duration, one.kind, {}, number // devices)


def _at(signal: Signal) -> Generator[Signal, None, Times]:
    """Wait for a signal; return its time."""
    yield signal
    assert signal.at_ps is not None, "a process goes on when its signal is set"
    return signal.at_ps


def _only(to: Numbers, by_owner: Numbers, size: Numbers) -> tuple[Numbers, Numbers]:
    """Return receivers, -1 where the message of an owner is empty, and sizes."""
    if by_owner.all():
        return to, size
    return np.where(np.broadcast_to(size, to.shape) > 0, to, -1), size
