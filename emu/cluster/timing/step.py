"""Plays a step of a cluster: programs of devices, exchanges of gradients, and what each waits for.

    none               pass ─► exchange ─► update
    streaming          pass, and each layer's exchange as soon as its gradients are complete ─► update
    double buffering   pass of t beside the exchange of t - 1 ─► update with what has arrived

    clipping           each layer after its gradient, or the next one's, on this device or on another processor

    exchange of a group of tensors:  added within the node ─► encode ─► K - 1 rounds to owners ─► sum, encode
                                     ─► K - 1 rounds to all ─► decode
    of a layer, by a controller:     added within the node ─► encode ─► to the controller ─► mean ─► update
                                     ─► parameters to all

A controller is the only owner of a layer: it updates where other owners encode. The clock of a node that computes no
gradients follows the first node that does.

Kernels of an exchange run on the unit that computes, between two operations. The rounds of a phase go to the fabric
together, phases in the order in which they are ready on the first device.

With double buffering, steps are played until they repeat (`cycle.py`), and a step takes the mean of a cycle. Without
it, all devices begin a step together, and it ends when the last of them is done.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from emu.cluster.timing.cycle import Steps
from emu.cluster.timing.kernels import NUMBER_BYTES
from emu.cluster.timing.program import CLIP, CLIPPER, DEVICE, QUANTISE, Task
from emu.cluster.timing.step_schedule import Group, StepSchedule, StepTime
from emu.cluster.timing.teams import Numbers
from emu.cluster.timing.timelines import DeviceTimelines, Process, Processes, Signal, Times
from emu.hardware import Event, Sent, Traffic, events_of
from emu.operations.kinds import BACKWARD, FORWARD, UPDATE

Flags = npt.NDArray[np.bool_]
#: Name of the bytes that all devices have sent, among what steps spend.
_SENT_BYTES = "sent bytes"
#: Nodes that a trace shows.
TRACED_NODES = 16


def play(schedule: StepSchedule, *, keeps_events: bool = False) -> StepTime:
    """Return how long a step takes.

    If all nodes do the same, two of them are played: the work grows with the rounds, not with their messages.

    Args:
        schedule: what the step consists of.
        keeps_events: whether to keep events of the first nodes, for a trace.
    """
    if keeps_events or not schedule.is_alike:
        return _Playback(schedule, keeps_events=keeps_events).result()
    # times are those of any device; bytes are those of two nodes
    time = _Playback(schedule.of_two(), keeps_events=False).result()
    return replace(time, sent_bytes=time.sent_bytes * schedule.teams.count // 2)


class _Playback:
    """Plays steps of one schedule, one after the other, until they repeat."""

    def __init__(self, schedule: StepSchedule, *, keeps_events: bool) -> None:
        self.schedule, self.teams, self._keeps = schedule, schedule.teams, keeps_events
        self.timelines = DeviceTimelines(len(schedule.teams.part))
        self.traffic = None if schedule.fabric is None else Traffic(schedule.fabric)
        self.processes = Processes()
        self.steps = Steps()
        self.sent_bytes, self._began_ps = 0, 0  # all bytes so far; when the step in progress began
        self._sent: list[tuple[str, Times, Times]] = []  # messages of the step in progress: name, arrived, finished
        self._events: list[Event] = []
        self._leads, self._all_compute = schedule.teams.leads, bool(schedule.teams.computes.all())

    def result(self) -> StepTime:
        """Play until steps repeat; return the mean of a step over a cycle, and the events of the last step."""
        self.processes.start(self._program())
        self.processes.run()
        cycle, nothing = self.steps.cycle, self.timelines.start()
        assert cycle is not None, "the program goes on until steps repeat"
        forward, backward, update, quantise, clip = (
            cycle.spent.get(kind, nothing) for kind in (FORWARD, BACKWARD, UPDATE, QUANTISE, CLIP)
        )
        compute = forward + backward
        busy_ps = compute + quantise + update + (clip if self._clips_on_device else 0)
        busiest, steps = int(busy_ps.argmax()), cycle.steps
        if not cycle.repeats:  # devices may not have waited for the busiest yet, which sets the pace in the long run
            cycle = cycle._replace(duration_ps=max(cycle.duration_ps, cycle.busiest_ps))
        assert cycle.duration_ps >= cycle.busiest_ps, "a step takes at least what its busiest resource does in it"
        # what ports send: "port out", or "port" if both directions share it
        ports = [times for name, times in cycle.busy.items() if name.startswith("port") and not name.endswith(" in")]
        return StepTime(
            step_ps=-(-cycle.duration_ps // steps),  # rounded up, and its parts down: none exceeds it
            compute_ps=int(compute[busiest]) // steps,
            quantise_ps=int(quantise[busiest]) // steps,
            update_ps=int(update[busiest]) // steps,
            wait_ps=max(cycle.duration_ps - int(busy_ps[busiest]), 0) // steps,  # a host may work beside a device
            send_ps=max((int(times.max()) for times in ports), default=0) // steps,
            sent_bytes=int(cycle.spent[_SENT_BYTES][0]) // steps,
            clip_ps=int(clip.max()) // steps,
            events=self._events_of_step() if self._keeps else (),
        )

    def _end_step(self, now: Times) -> None:
        """Add a step that has ended at `now` on each device; stop if steps repeat."""
        timelines = self.timelines
        # totals so far, of which `Steps` takes differences
        ports = {} if self.traffic is None else self.traffic.busy_ps
        spent = {**timelines.spent_ps, _SENT_BYTES: np.array([self.sent_bytes])}
        busy = {**timelines.busy_ps, **ports}
        names, times = self._did() if self._is_buffered else ([], [])  # else one step is a cycle, whatever it did
        self.steps.add(now, spent, busy, names, times, at_rest=not self._is_buffered)
        if self.steps.cycle is not None:
            self.processes.stop()
            return
        # what is kept is only of the step in progress: `_did` and events of the last step
        timelines.booked.clear()
        self._sent.clear()
        self._events.clear()
        self._began_ps = self.steps.end_ps

    def _did(self) -> tuple[list[Hashable], list[Times]]:
        """Return what happened in the step in progress, and when."""
        booked, sent = self.timelines.booked, self._sent
        names: list[Hashable] = [
            *((work.resource, work.name, work.duration_ps.tobytes()) for work in booked),
            *(name for name, _, _ in sent),
        ]
        return names, [*(work.begin_ps for work in booked), *(times for _, *both in sent for times in both)]

    @property
    def _is_buffered(self) -> bool:
        """Whether an exchange goes on during the next step; else all devices begin a step together."""
        return self.schedule.double_buffering and bool(self.schedule.groups)

    @property
    def _clips_on_device(self) -> bool:
        return self.schedule.clips is not None and self.schedule.clips.on == "worker"

    # ---- a device's program ----

    def _program(self) -> Process:
        schedule, now = self.schedule, self.timelines.start()
        before: list[Signal] | None = None  # of the step before
        while self.steps.cycle is None:
            batch_ready = yield from self._prepared(now)
            # new signals for each step; with double buffering those of the step before are still waited for
            signals = _Signals(schedule)
            # an update waits until gradients are exchanged; if none are, until they are clipped
            arrivals = list(signals.done.values()) or list(signals.clipped.values())
            now = yield from self._pass(now, signals, before or ())
            # with double buffering the first step has nothing to apply: `due` is None, not an empty list
            due = before if self._is_buffered else arrivals
            if due is not None:
                for signal in due:
                    now = np.maximum(now, (yield from _at(signal)))
                for task in schedule.program.updates:
                    now = yield from self._compute(task, now)
            before, now = arrivals, np.maximum(now, batch_ready)
            self._end_step(now)

    def _prepared(self, now: Times) -> Generator[Times, None, Times]:
        """Prepare the next batch; return when it is ready."""
        for part in self.schedule.program.prepare:
            # between a yield and the booking after it nothing else books: processes book in the order of being ready
            yield now
            durations = self._of_workers(part.duration_ps)
            now = self.timelines.book(part.resource, "the next batch", durations, now, "prepare", part.uses)
        return now

    def _pass(self, now: Times, signals: _Signals, before: Sequence[Signal]) -> Generator[Times | Signal, None, Times]:
        """Run forward and backward, and begin exchanges as gradients become complete; return when the pass is done."""
        missing = {group.name: set(group.layers) for group in self.schedule.groups}
        # a layer whose partial errors are on their way; the next layer needs their sum
        partial: tuple[str, Signal] | None = None
        self._begin_clipping(signals)
        for task in self.schedule.program.passes:
            if task.gathered_bytes:
                yield now
                now = self._shared(task, self._gathered(task, now))
            if partial is not None and partial[0] != task.layer:
                now, partial = np.maximum(now, (yield from _at(partial[1]))), None
            done = yield from self._compute(task, now, works=self.teams.computes)
            now = self._of_computing(now, self._shared(task, done))
            if task.partial_bytes:
                partial = (task.layer, Signal())
                # partial errors travel while the layer's gradients are still computed
                self.processes.start(self._partial_errors(task, now, partial[1]))
            if task.completes:
                begun = self._complete(task.layer, now, missing, signals, before)
                if self.schedule.clips is not None and self.schedule.clips.trigger == "serial":
                    # serial: the next layer waits until this one is clipped and sent
                    for signal in (signals.clipped[task.layer], *(signals.sent[name] for name in begun)):
                        now = self._of_computing(now, np.maximum(now, (yield from _at(signal))))
        return now

    def _complete(
        self,
        layer: str,
        now: Times,
        missing: dict[str, set[str]],
        signals: _Signals,
        before: Sequence[Signal],
    ) -> list[str]:
        """Signal that a layer's gradients are complete; return the groups whose exchange begins."""
        begun: list[str] = []
        self.processes.set(signals.ready[layer], now)
        for group in self.schedule.groups:
            if layer in missing[group.name]:
                missing[group.name].remove(layer)
                # the last layer of a group has become complete
                if not missing[group.name]:
                    begun.append(group.name)
                    self.processes.start(self._exchange(group, now, signals, before))
        return begun

    def _compute(self, task: Task, now: Times, works: Flags | None = None) -> Generator[Times, None, Times]:
        """Run a task on the devices that `works` marks, None for all; return when each is done."""
        for part in task.parts:
            if part.duration_ps:
                yield now
                durations = part.duration_ps if works is None else np.where(works, part.duration_ps, 0)
                durations = self._at_device(task.device, durations)
                now = self.timelines.book(part.resource, task.name, durations, now, task.kind, part.uses)
        return now

    def _of_workers(self, duration: int) -> int | Times:
        """Return a duration on devices that compute gradients, 0 on others."""
        return duration if self._all_compute else np.where(self.teams.computes, duration, 0)

    def _of_computing(self, before: Times, now: Times) -> Times:
        """Return the time of each device; nodes that compute nothing have that of the first node that does."""
        if self._all_compute:
            return now
        return np.where(self.teams.computes, now, np.maximum(before, now[self.teams.computes].min()))

    def _at_device(self, device: int | None, duration: int | Times) -> int | Times:
        """Return a duration on one device of each model, 0 on others; None leaves it on all."""
        return duration if device is None else np.where(self.teams.part == device, duration, 0)

    def _shared(self, task: Task, now: Times) -> Times:
        """Return the time of each device; if one device of a model runs the task alone, all have its time."""
        if task.device is None:
            return now
        # the clock of the device that works is the clock of all devices of its model
        return np.repeat(now.reshape(-1, self.teams.parts)[:, task.device], self.teams.parts)

    # ---- clipping ----

    def _begin_clipping(self, signals: _Signals) -> None:
        if self.schedule.clips is not None and not self.schedule.clips_at_receivers:
            # all begin at once and wait for their layers; the process that is ready first books first
            for index in range(len(self.schedule.program.layers)):
                self.processes.start(self._clip(index, signals))

    def _clip(self, index: int, signals: _Signals) -> Process:
        """Clip a layer when it, the next one, or the last one is ready."""
        clips, layers = self.schedule.clips, self.schedule.program.layers
        assert clips is not None
        last = len(layers) - 1
        layer, awaited = layers[index], {"next": min(index + 1, last), "after_all": last}.get(clips.trigger, index)
        ready = yield from _at(signals.ready[layers[awaited]])
        device = clips.device_of.get(layer)
        duration = self._at_device(device, self._of_workers(clips.of([layer])))
        # if all devices have the layer, it is clipped after those before it, even if that takes no time
        done = self._clipped(layer, duration, ready, in_turn=device is None)
        self.processes.set(signals.clipped[layer], done)

    def _clipped(self, name: str, duration: int | Times, ready: Times, *, in_turn: bool = False) -> Times:
        resource = DEVICE if self._clips_on_device else CLIPPER
        return self.timelines.book(resource, f"{name}: clip", duration, ready, CLIP, in_turn=in_turn)

    def _owners_clip(self, group: Group, arrived: Times, signals: _Signals) -> Generator[Times | Signal, None, Times]:
        """Clip what workers have sent of a group, when all groups have arrived; return when owners have clipped it."""
        clips, teams = self.schedule.clips, self.teams
        assert clips is not None
        self.processes.set(signals.at_owners[group.name], arrived)
        for signal in signals.at_owners.values():
            arrived = np.maximum(arrived, (yield from _at(signal)))
        yield arrived
        # an owner clips a message of each worker, of its share of the group's numbers
        share = teams.contributions * clips.of(group.layers) * group.messages.numbers
        owner_ps = -(-share // max(group.numbers, 1))  # rounded up
        duration = np.where(self._leads, owner_ps[teams.team], 0)
        return self._clipped(group.name, self._at_device(group.device, duration), arrived)

    # ---- devices that share a model ----

    def _gathered(self, task: Task, ready: Times) -> Times:
        """Send what a task reads from other devices to those that run it; return when it has arrived."""
        if task.source is None or task.device is None:
            return np.maximum(ready, self._between_neighbours(task.gathered_bytes, ready, f"{task.name}: gather"))
        sends = self.teams.computes & (self.teams.part == task.source)
        # to the device of the same model that runs the task
        to = np.where(sends, np.arange(len(sends)) - task.source + task.device, -1)
        return self._arrived((to, task.gathered_bytes), ready, f"{task.name}: gather")

    def _between_neighbours(self, size_bytes: int, ready: Times, name: str) -> Times:
        """Send so many bytes to each other device of the same model; return when each has those of all others."""
        arrived = ready
        for to in self.teams.neighbours():
            arrived = np.maximum(arrived, self._arrived((to, size_bytes), ready, name))
        return arrived

    def _partial_errors(self, task: Task, ready: Times, signal: Signal) -> Process:
        """Exchange partial errors among the devices of a model, and add them up; then set the signal."""
        yield ready
        arrived = self._between_neighbours(task.partial_bytes, ready, f"{task.name}: parts")
        yield arrived
        self.processes.set(
            signal, self.timelines.book(DEVICE, f"{task.name}: add", self._of_workers(task.add_ps), arrived, QUANTISE)
        )

    # ---- an exchange ----

    def _exchange(self, group: Group, ready: Times, signals: _Signals, before: Sequence[Signal]) -> Process:
        """Exchange a group's gradients when they are clipped, after all exchanges of the step before (`before`)."""
        kernels, messages, teams = self.schedule.kernels, group.messages, self.teams
        within = f"{group.name}: within the node"
        if self.schedule.clips is not None and not self.schedule.clips_at_receivers:
            before = (*(signals.clipped[layer] for layer in group.layers), *before)
        for earlier in before:
            ready = np.maximum(ready, (yield from _at(earlier)))
        yield ready
        sent = ready
        if teams.members > 1:
            # within a node gradients are not encoded: float32
            size = NUMBER_BYTES * group.sent_numbers
            arrived = ready
            for to in teams.to_leader():
                arrived = np.maximum(arrived, self._arrived((self._of(group, to), size), ready, within))
            yield arrived
            added = self._of_workers(kernels.add_ps(teams.members, group.sent_numbers))
            sent = ready = self._kernel(group, "add", added, arrived)
        if teams.count > 1:
            yield ready
            coded = self._kernel(group, "encode", self._encode_ps(group), ready)
            yield coded
            arrived, sent = self._to_owners(group, coded)
            self.processes.set(signals.sent[group.name], sent)
            if self.schedule.clips_at_receivers:
                arrived = yield from self._owners_clip(group, arrived, signals)
            yield arrived
            # an owner that computes adds its own gradients as they are; one that does not has none
            own = None if kernels.quantises_own else np.where(teams.nodes_compute, messages.sent_numbers, 0)
            sums = kernels.sum_ps(teams.contributions, messages.numbers, messages.up_bytes, messages.down_bytes, own)
            summed = self._kernel(group, "sum", sums[teams.team], arrived)
            summed = yield from self._updated_by_owners(group, summed)
            yield summed
            ready = self._to_all(group, summed)
        else:
            self.processes.set(signals.sent[group.name], sent)
            ready = yield from self._updated_by_owners(group, ready)
        size = group.down_bytes
        # one replica after the other: the leader's port is used by each in turn
        for to in teams.from_leader():
            yield ready
            ready = np.maximum(ready, self._arrived((self._of(group, to), size), ready, within))
        yield ready
        # within one node gradients are not encoded
        decode = self._at_device(group.device, kernels.decode_ps(group.numbers, size) if teams.count > 1 else 0)
        self.processes.set(
            signals.done[group.name], self.timelines.book(DEVICE, f"{group.name}: decode", decode, ready, QUANTISE)
        )

    def _encode_ps(self, group: Group) -> int | Times:
        """Return how long each worker takes to encode its gradients, or only those of stripes that others own."""
        kernels, messages, whole = self.schedule.kernels, group.messages, (group.sent_numbers, group.up_bytes)
        if kernels.quantises_own:
            return self._of_workers(kernels.encode_ps(*whole))
        by_node = kernels.encode_others_ps(*whole, messages.sent_numbers, messages.up_bytes)
        return np.where(self.teams.computes, by_node[self.teams.team], 0)

    def _updated_by_owners(self, group: Group, ready: Times) -> Generator[Times, None, Times]:
        """Run the updates that a controller runs before it answers, on the first replica of its node."""
        owns = self._leads & (group.messages.numbers > 0)[self.teams.team]
        for task in group.updates:
            ready = yield from self._compute(task, ready, works=owns)
        return ready

    def _kernel(self, group: Group, name: str, duration: int | Times, ready: Times) -> Times:
        """Book a kernel on those devices that exchange a group's gradients."""
        durations = self._at_device(group.device, np.where(self._leads, duration, 0))
        return self.timelines.book(DEVICE, f"{group.name}: {name}", durations, ready, QUANTISE)

    def _of(self, group: Group, to: Numbers) -> Numbers:
        """Return receivers by device, -1 for devices that have nothing of a group."""
        return to if group.device is None else np.where(self.teams.part == group.device, to, -1)

    def _to_owners(self, group: Group, ready: Times) -> tuple[Times, Times]:
        """Phase 1: in round r, node i sends to owner i + r.

        Returns:
            When each owner has everything, and when each node has finished sending.
        """
        return self._phase(group, group.messages.up_bytes, ready, "to owners", of_receiver=True)

    def _to_all(self, group: Group, ready: Times) -> Times:
        """Phase 2: in round r, owner i sends to node i + r; return when each node has everything."""
        return self._phase(group, group.messages.down_bytes, ready, "to all", of_receiver=False)[0]

    def _phase(
        self, group: Group, sizes: Numbers, ready: Times, name: str, *, of_receiver: bool
    ) -> tuple[Times, Times]:
        """Send messages in rounds, of the sizes that their receivers or senders say; return the times of `_send`."""
        teams, name = self.teams, f"{group.name}: {name}"
        assert self.traffic is not None
        # no trace, and no port that two messages share: a loop over members instead of arrays of (rounds, devices)
        if self.traffic.has_own_ports and not self._keeps:
            arrived, finished = ready.copy(), ready.copy()
            # devices of one part exchange among themselves
            for part in range(teams.parts) if group.device is None else (group.device,):
                members = np.flatnonzero(teams.leads & (teams.part == part))
                sends = teams.computes[members] if of_receiver else np.ones(len(members), np.bool_)
                passed = self.traffic.ring(
                    members, ready[members], sizes, of_receiver=of_receiver, sends=sends, rounds=teams.rounds
                )
                arrived[members], finished[members] = passed.arrived_ps, passed.finished_ps
                self.sent_bytes += passed.sent_bytes
            self._sent.append((name, arrived, finished))
            return arrived, finished
        # (rounds, devices); sizes by node, so `teams.team` takes them to devices
        to = self._of(group, teams.receivers)
        if of_receiver and not self._all_compute:
            to = np.where(teams.computes, to, -1)
        return self._send(
            _without_empty(to, sizes, sizes[teams.team][to] if of_receiver else sizes[teams.team]), ready, name
        )

    def _arrived(self, messages: tuple[Numbers, int | Numbers], ready: Times, name: str) -> Times:
        """Send a round, or rounds, of (receivers, sizes); return when each device has all that was sent to it."""
        return self._send(messages, ready, name)[0]

    def _send(self, messages: tuple[Numbers, int | Numbers], ready: Times, name: str) -> tuple[Times, Times]:
        """Send a round, or rounds; return when each device has received everything, and has finished sending."""
        assert self.traffic is not None
        to = np.atleast_2d(messages[0])
        sent = self.traffic.rounds(ready, to, messages[1], self.schedule.chunks)
        is_sent = ... if (to >= 0).all() else to >= 0  # an ellipsis indexes without a copy
        self.sent_bytes += int(sent.size_bytes[is_sent].sum())
        arrived = ready.copy()
        # `at`, because a device may receive several messages of one round
        np.maximum.at(arrived, to[is_sent], sent.arrived_ps[is_sent])
        finished = np.where(to >= 0, sent.arrived_ps, ready).max(axis=0, initial=0)
        self._sent.append((name, arrived, finished))
        if self._keeps:
            self._events += self._message_events(sent, name)
        return arrived, finished

    # ---- events ----

    @property
    def _traced(self) -> range:
        return range(min(1 if self.schedule.fabric is None else self.schedule.fabric.nodes, TRACED_NODES))

    def _events_of_step(self) -> tuple[Event, ...]:
        """Return what was booked in the step in progress, counted from its beginning."""
        events = (*self._booked_events(), *self._events)
        return tuple(event._replace(begin_ps=event.begin_ps - self._began_ps) for event in events)

    def _message_events(self, sent: Sent, name: str) -> Iterable[Event]:
        assert self.schedule.fabric is not None
        return events_of(self.schedule.fabric, sent, name, self._traced)

    def _booked_events(self) -> Iterable[Event]:
        devices = 1 if self.schedule.fabric is None else self.schedule.fabric.devices
        for work in self.timelines.booked:
            for number in range(len(self._traced) * devices):
                if work.duration_ps[number]:
                    at = f", device {number % devices}" if devices > 1 else ""
                    for event in work.events(number):
                        yield event._replace(resource=event.resource + at, node=number // devices)


class _Signals:
    """The signals that processes of one step send each other.

    Attributes:
        ready: by layer: its gradients are complete.
        clipped: by layer: it is clipped; empty if workers do not clip.
        sent: by group: each device has finished sending its messages.
        at_owners: by group: owners have everything.
        done: by group: all nodes have the owners' results.
    """

    def __init__(self, schedule: StepSchedule) -> None:
        layers, names = schedule.program.layers, [group.name for group in schedule.groups]
        clips = schedule.clips is not None and not schedule.clips_at_receivers
        self.ready = {layer: Signal() for layer in layers}
        self.clipped = {layer: Signal() for layer in layers if clips}
        self.sent, self.at_owners, self.done = ({name: Signal() for name in names} for _ in range(3))


def _at(signal: Signal) -> Generator[Signal, None, Times]:
    """Wait for a signal; return its time."""
    yield signal
    assert signal.at_ps is not None, "a process goes on when its signal is set"
    return signal.at_ps


def _without_empty(to: Numbers, by_owner: Numbers, size: Numbers) -> tuple[Numbers, Numbers]:
    """Return receivers and sizes of messages, with receiver -1 for empty messages."""
    if by_owner.all():  # no owner has an empty message
        return to, size
    return np.where(np.broadcast_to(size, to.shape) > 0, to, -1), size
