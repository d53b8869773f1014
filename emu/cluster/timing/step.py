"""A step of a cluster in time: programs of devices, exchanges of gradients, and what they wait for.

    none               pass ─► exchange ─► update
    streaming          pass, and each layer's exchange as soon as its gradients are complete ─► update
    double buffering   pass of t beside the exchange of t - 1 ─► update with what has arrived

    clipping           each layer after its gradient, or the next one's, on this device or on another processor

    exchange of a group of tensors:  added within the node ─► encode ─► K - 1 rounds to owners ─► sum, encode
                                     ─► K - 1 rounds to all ─► decode
    of a layer, by a controller:     added within the node ─► encode ─► to the controller ─► mean ─► update
                                     ─► parameters to all

A controller is the one owner of a layer: it updates where other owners encode. A node that computes nothing keeps the
time of the first one that does.

Kernels of an exchange run on the unit that computes, between two operations. A phase's rounds are given to the fabric
together, in the order in which phases are ready on the first device.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from emu.cluster.timing.kernels import NUMBER_BYTES
from emu.cluster.timing.line import Line, Process, Processes, Signal, Times
from emu.cluster.timing.program import CLIP, CLIPPER, DEVICE, QUANTISE, Task
from emu.cluster.timing.step_plan import Group, Plan, StepTime
from emu.cluster.timing.teams import Numbers
from emu.hardware import Event, Sent, Traffic, events_of
from emu.operations.kinds import BACKWARD, FORWARD, UPDATE

Flags = npt.NDArray[np.bool_]
#: Steps that are played with double buffering: the first has nothing to wait for, the last two are alike.
_BUFFERED_STEPS = 4
#: Nodes that a trace shows.
TRACED_NODES = 16


def play(plan: Plan, *, keeps_events: bool = False) -> StepTime:
    """Return how long a step takes.

    If every node does the same, two stand for all: the cost grows with the rounds, not with their messages.

    Args:
        plan: plan of the step.
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
        self._leads, self._all_compute = plan.teams.leads, bool(plan.teams.computes.all())

    def result(self) -> StepTime:
        """Play all steps; return the last one."""
        self.processes.start(self._program())
        self.processes.run()
        ends = [int(end.max()) for end in self.ends]
        step_ps = ends[-1] - (ends[-2] if len(ends) > 1 else 0)
        compute, quantise, clip = self._spent(FORWARD) + self._spent(BACKWARD), self._spent(QUANTISE), self._spent(CLIP)
        update = self._spent(UPDATE)
        busy_ps = compute + quantise + update + (clip if self._clips_on_device else 0)
        most = int(busy_ps.argmax())
        busy = {} if self.traffic is None else self.traffic.busy_ps
        ports = [times for name, times in busy.items() if name.startswith("port") and not name.endswith(" in")]
        send_ps = max((int(times.max()) for times in ports), default=0) // self.steps
        return StepTime(
            step_ps,
            int(compute[most]),
            int(quantise[most]),
            int(update[most]),
            max(step_ps - int(busy_ps[most]), 0),
            send_ps,
            self.sent_bytes // self.steps,
            int(clip.max()),
            (*self._booked_events(), *self._events),
        )

    def _spent(self, kind: str) -> Times:
        """Return what every device spent on something in a step."""
        late = self.steps > 1 and kind == UPDATE and bool(self.plan.program.updates)
        return self.line.spent_ps.get(kind, self.line.start()) // (self.steps - 1 if late else self.steps)

    @property
    def _clips_on_device(self) -> bool:
        return self.plan.clips is not None and self.plan.clips.on == "worker"

    # ---- a device's program ----

    def _program(self) -> Process:
        plan, now = self.plan, self.line.start()
        arrivals: list[list[Signal]] = []
        for step in range(self.steps):
            there = yield from self._prepared(now)
            signals = _Signals(plan)
            before = arrivals[-1] if arrivals else []
            arrivals.append(list(signals.done.values()) or list(signals.clipped.values()))
            now = yield from self._pass(now, signals, before)
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
            now = self.line.book(resource, "the next batch", self._of_workers(duration), now, "prepare")
        return now

    def _pass(self, now: Times, signals: _Signals, before: Sequence[Signal]) -> Generator[Times | Signal, None, Times]:
        """Run forward and backward, and begin exchanges as their gradients become complete; return when it is done."""
        missing = {group.name: set(group.layers) for group in self.plan.groups}
        partial: tuple[str, Signal] | None = None
        self._begin_clipping(signals)
        for task in self.plan.program.passes:
            if task.gathered_bytes:
                yield now
                now = self._shared(task, self._gathered(task, now))
            if partial is not None and partial[0] != task.layer:
                now, partial = np.maximum(now, (yield from _at(partial[1]))), None
            then = yield from self._compute(task, now, works=self.teams.computes)
            now = self._kept(now, self._shared(task, then))
            if task.partial_bytes:
                partial = (task.layer, Signal())
                self.processes.start(self._partial_errors(task, now, partial[1]))
            if task.completes:
                begun = self._complete(task.layer, now, missing, signals, before)
                if self.plan.clips is not None and self.plan.clips.trigger == "serial":
                    for signal in (signals.clipped[task.layer], *(signals.sent[name] for name in begun)):
                        now = self._kept(now, np.maximum(now, (yield from _at(signal))))
        return now

    def _complete(
        self,
        layer: str,
        now: Times,
        missing: dict[str, set[str]],
        signals: _Signals,
        before: Sequence[Signal],
    ) -> list[str]:
        """Say that a layer's gradients are complete; return the groups whose exchange begins."""
        begun: list[str] = []
        self.processes.set(signals.ready[layer], now)
        for group in self.plan.groups:
            if layer in missing[group.name]:
                missing[group.name].remove(layer)
                if not missing[group.name]:
                    begun.append(group.name)
                    self.processes.start(self._exchange(group, now, signals, before))
        return begun

    def _compute(self, task: Task, now: Times, works: Flags | None = None) -> Generator[Times, None, Times]:
        for resource, duration in task.parts:
            yield now
            taken = duration if works is None else np.where(works, duration, 0)
            taken = self._at_device(task.device, taken)
            now = self.line.book(resource, task.name, taken, now, task.kind)
        return now

    def _of_workers(self, duration: int) -> int | Times:
        return duration if self._all_compute else np.where(self.teams.computes, duration, 0)

    def _kept(self, before: Times, now: Times) -> Times:
        """Return the time, of nodes that compute nothing that of the first one that does."""
        if self._all_compute:
            return now
        return np.where(self.teams.computes, now, np.maximum(before, now[self.teams.computes].min()))

    def _at_device(self, device: int | None, duration: int | Times) -> int | Times:
        return duration if device is None else np.where(self.teams.part == device, duration, 0)

    def _shared(self, task: Task, now: Times) -> Times:
        """Return the time, of all devices of a model that of the one that alone runs a task."""
        if task.device is None:
            return now
        return np.repeat(now.reshape(-1, self.teams.parts)[:, task.device], self.teams.parts)

    # ---- clipping ----

    def _begin_clipping(self, signals: _Signals) -> None:
        if self.plan.clips is not None and not self.plan.clips_at_receivers:
            for place in range(len(self.plan.program.layers)):
                self.processes.start(self._clip(place, signals))

    def _clip(self, place: int, signals: _Signals) -> Process:
        """Clip a layer when it, the next one, or the last one is ready."""
        clips, layers = self.plan.clips, self.plan.program.layers
        assert clips is not None
        last = len(layers) - 1
        awaited = {"next": min(place + 1, last), "after_all": last}.get(clips.trigger, place)
        ready = yield from _at(signals.ready[layers[awaited]])
        device = clips.device_of.get(layers[place])
        duration = self._at_device(device, self._of_workers(clips.of([layers[place]])))
        done = self._clipped(layers[place], duration, ready, in_turn=device is None)
        self.processes.set(signals.clipped[layers[place]], done)

    def _clipped(self, name: str, duration: int | Times, ready: Times, *, in_turn: bool = False) -> Times:
        resource = DEVICE if self._clips_on_device else CLIPPER
        return self.line.book(resource, f"{name}: clip", duration, ready, CLIP, in_turn=in_turn)

    def _received(self, group: Group, arrived: Times, signals: _Signals) -> Generator[Times | Signal, None, Times]:
        """Clip what all workers have sent, when all groups are there."""
        clips, teams = self.plan.clips, self.teams
        assert clips is not None
        self.processes.set(signals.there[group.name], arrived)
        for signal in signals.there.values():
            arrived = np.maximum(arrived, (yield from _at(signal)))
        yield arrived
        share = teams.contributions * clips.of(group.layers) * group.messages.numbers
        duration = np.where(self._leads, (-(-share // max(group.numbers, 1)))[teams.team], 0)
        return self._clipped(group.name, self._at_device(group.device, duration), arrived)

    # ---- devices that share a model ----

    def _gathered(self, task: Task, ready: Times) -> Times:
        """Send what a task reads from other devices to those that run it; return when it is there."""
        if task.source is None or task.device is None:
            return np.maximum(ready, self._between_neighbours(task.gathered_bytes, ready, f"{task.name}: gather"))
        sends = self.teams.computes & (self.teams.part == task.source)
        to = np.where(sends, np.arange(len(sends)) - task.source + task.device, -1)
        return self._sent((to, task.gathered_bytes), ready, f"{task.name}: gather")

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
        self.processes.set(
            signal, self.line.book(DEVICE, f"{task.name}: add", self._of_workers(task.add_ps), arrived, QUANTISE)
        )

    # ---- an exchange ----

    def _exchange(self, group: Group, ready: Times, signals: _Signals, before: Sequence[Signal]) -> Process:
        """Exchange a group's gradients when they are clipped, after all exchanges of the step before."""
        kernels, messages, teams = self.plan.kernels, group.messages, self.teams
        if self.plan.clips is not None and not self.plan.clips_at_receivers:
            before = (*(signals.clipped[layer] for layer in group.layers), *before)
        for earlier in before:
            ready = np.maximum(ready, (yield from _at(earlier)))
        yield ready
        sent = ready
        if teams.members > 1:
            size = NUMBER_BYTES * group.sent_numbers
            arrived = ready
            for to in teams.to_leader():
                arrived = np.maximum(
                    arrived, self._sent((self._of(group, to), size), ready, f"{group.name}: within the node")
                )
            yield arrived
            added = self._of_workers(kernels.add_ps(teams.members, group.sent_numbers))
            sent = ready = self._kernel(group, "add", added, arrived)
        if teams.count > 1:
            yield ready
            encode = self._of_workers(kernels.encode_ps(group.sent_numbers, group.up_bytes))
            coded = self._kernel(group, "encode", encode, ready)
            yield coded
            arrived, sent = self._to_owners(group, coded)
            self.processes.set(signals.sent[group.name], sent)
            if self.plan.clips_at_receivers:
                arrived = yield from self._received(group, arrived, signals)
            yield arrived
            sums = kernels.sum_ps(teams.contributions, messages.numbers, messages.up_bytes, messages.down_bytes)
            summed = self._kernel(group, "sum", sums[teams.team], arrived)
            for task in group.updates:
                summed = yield from self._compute(task, summed, works=self._leads & (messages.numbers > 0)[teams.team])
            yield summed
            ready = self._to_all(group, summed)
        else:
            self.processes.set(signals.sent[group.name], sent)
        size = group.down_bytes
        for to in teams.from_leader():
            yield ready
            ready = np.maximum(ready, self._sent((self._of(group, to), size), ready, f"{group.name}: within the node"))
        yield ready
        decode = self._at_device(group.device, kernels.decode_ps(group.numbers, size) if teams.count > 1 else 0)
        self.processes.set(
            signals.done[group.name], self.line.book(DEVICE, f"{group.name}: decode", decode, ready, QUANTISE)
        )

    def _kernel(self, group: Group, name: str, duration: int | Times, ready: Times) -> Times:
        """Book a kernel on those devices that exchange a group's gradients."""
        taken = self._at_device(group.device, np.where(self._leads, duration, 0))
        return self.line.book(DEVICE, f"{group.name}: {name}", taken, ready, QUANTISE)

    def _of(self, group: Group, to: Numbers) -> Numbers:
        """Return receivers, -1 of devices that have nothing of a group."""
        return to if group.device is None else np.where(self.teams.part == group.device, to, -1)

    def _to_owners(self, group: Group, ready: Times) -> tuple[Times, Times]:
        """Phase 1: in round r, node i sends to owner i + r; return when an owner has everything, a node sent it."""
        to, sizes = self._of(group, self.teams.receivers), group.messages.up_bytes
        if not self._all_compute:
            to = np.where(self.teams.computes, to, -1)
        return self._passed(_only(to, sizes, sizes[self.teams.team][to]), ready, f"{group.name}: to owners")

    def _to_all(self, group: Group, ready: Times) -> Times:
        """Phase 2: in round r, owner i sends to node i + r; return when a node has everything."""
        to, sizes = self._of(group, self.teams.receivers), group.messages.down_bytes
        return self._sent(_only(to, sizes, sizes[self.teams.team]), ready, f"{group.name}: to all")

    def _sent(self, messages: tuple[Numbers, int | Numbers], ready: Times, name: str) -> Times:
        """Send a round, or rounds: receivers and sizes; return when each device has all that was sent to it."""
        return self._passed(messages, ready, name)[0]

    def _passed(self, messages: tuple[Numbers, int | Numbers], ready: Times, name: str) -> tuple[Times, Times]:
        """Send a round, or rounds; return when each device has all that was sent to it, and is rid of its own."""
        assert self.traffic is not None
        to = np.atleast_2d(messages[0])
        sent = self.traffic.rounds(ready, to, messages[1], self.plan.chunks)
        goes = ... if (to >= 0).all() else to >= 0
        self.sent_bytes += int(sent.size_bytes[goes].sum())
        arrived = ready.copy()
        np.maximum.at(arrived, to[goes], sent.arrived_ps[goes])
        if self._keeps:
            self._events += self._message_events(sent, name)
        return arrived, np.where(to >= 0, sent.arrived_ps, ready).max(axis=0, initial=0)

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


class _Signals:
    """What processes of one step tell each other.

    Attributes:
        ready: by layer: its gradients are complete.
        clipped: by layer, where devices clip what they have found.
        sent: by group: a device is rid of its messages.
        there: by group: owners have everything.
        done: by group: all nodes have what owners made of it.
    """

    def __init__(self, plan: Plan) -> None:
        layers, names = plan.program.layers, [group.name for group in plan.groups]
        clips = plan.clips is not None and not plan.clips_at_receivers
        self.ready = {layer: Signal() for layer in layers}
        self.clipped = {layer: Signal() for layer in layers if clips}
        self.sent, self.there, self.done = ({name: Signal() for name in names} for _ in range(3))


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
