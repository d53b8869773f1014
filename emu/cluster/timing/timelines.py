"""Timelines of many devices at once: what each resource does, and when.

    book       one call for all devices: each begins when it is ready and its resource is free
    processes  work that goes on side by side; the process that is ready first, on any device, books first

A process is a generator. It yields the time at which it is ready, then books, and yields again; or it yields a signal
that another process sets. Times are arrays of integers, picoseconds, one for each device.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from heapq import heappop, heappush
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from emu.cluster.timing.program import Use
from emu.hardware import Event

Times: TypeAlias = npt.NDArray[np.int64]


class Booked(NamedTuple):
    """Work of a resource on all devices.

    Attributes:
        resource: unit or link.
        name: what was done.
        kind: what it counts as.
        begin_ps: when it began, by device.
        duration_ps: how long it took, by device; 0 on devices that did nothing.
        uses: what happened, one after the other; empty for one thing that has the name.
    """

    resource: str
    name: str
    kind: str
    begin_ps: Times
    duration_ps: Times
    uses: tuple[Use, ...] = ()

    def events(self, device: int) -> Iterator[Event]:
        """Yield what a device that did the work did, with its units and links."""
        at_ps = int(self.begin_ps[device])
        if not self.uses:
            yield Event(self.resource, self.name, at_ps, int(self.duration_ps[device]), self.kind, {})
        for use in self.uses:
            yield from use.events(at_ps)
            at_ps += use.duration_ps


class DeviceTimelines:
    """Resources of devices; each does one thing at a time, in the order in which it is booked.

    Attributes:
        devices: how many.
        spent_ps: time spent, by kind and device.
        booked: what was booked, in this order, until the caller clears it.
        busy_ps: time for which each resource was used, by device.

    Examples:
        >>> timelines = DeviceTimelines(2)
        >>> timelines.book("compute", "fc1", 300, np.array([0, 100])).tolist()
        [300, 400]
        >>> timelines.book("compute", "fc2", np.array([10, 0]), np.array([0, 0])).tolist()  # device 1 does nothing
        [310, 0]
    """

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self.spent_ps: dict[str, Times] = {}
        self.busy_ps: dict[str, Times] = {}
        self.booked: list[Booked] = []
        self._free: dict[str, Times] = {}

    def start(self) -> Times:
        """Return time 0 for each device."""
        return np.zeros(self.devices, np.int64)

    def book(
        self,
        resource: str,
        name: str,
        duration_ps: int | Times,
        after_ps: Times,
        kind: str = "compute",
        uses: tuple[Use, ...] = (),
        *,
        in_turn: bool = False,
    ) -> Times:
        """Book work of a resource on all devices; return when each has done it.

        Args:
            resource: the resource.
            name: name of the work.
            duration_ps: how long it takes; a device whose entry is 0 does nothing, and is done when it is ready.
            after_ps: when each device is ready.
            kind: what the time counts as.
            uses: what happens, for a trace.
            in_turn: whether a device that does nothing waits until the resource is free all the same.
        """
        durations = np.broadcast_to(np.asarray(duration_ps, np.int64), (self.devices,))
        # a resource is free from time 0 on
        free = self._free.setdefault(resource, self.start())
        works = durations > 0
        begin = np.where(np.logical_or(works, in_turn), np.maximum(free, after_ps), after_ps)
        end = begin + durations
        # a device that does nothing leaves the resource as it is
        self._free[resource] = np.where(works, end, free)
        # a new array, not in place: callers keep the totals of earlier steps
        self.spent_ps[kind] = self.spent_ps.get(kind, 0) + durations
        self.busy_ps[resource] = self.busy_ps.get(resource, 0) + durations
        if works.any():
            self.booked.append(Booked(resource, name, kind, begin, durations, uses))
        return end


class Signal:
    """A time that is known later.

    Attributes:
        at_ps: the time, by device; None until it is known.
    """

    def __init__(self) -> None:
        self.at_ps: Times | None = None


Process: TypeAlias = Generator["Times | Signal", None, None]


class Processes:
    """Runs processes side by side; the one that is ready first goes on.

    Examples:
        >>> order, processes = [], Processes()
        >>> def at(name, time):
        ...     yield np.array([time])
        ...     order.append(name)
        >>> processes.start(at("late", 5))
        >>> processes.start(at("early", 3))
        >>> processes.run()
        >>> order
        ['early', 'late']
    """

    def __init__(self) -> None:
        self._ready: list[tuple[int, int, Process]] = []
        self._waiting: dict[int, list[tuple[Signal, Process]]] = {}
        self._count = 0
        self._stopped = False

    @property
    def pending(self) -> bool:
        """Whether a process is ready or waits."""
        return bool(self._ready or self._waiting)

    def start(self, process: Process) -> None:
        """Begin a process: it runs until it first yields."""
        self._resume(process)

    def set(self, signal: Signal, at_ps: Times) -> None:
        """Set a signal's time; processes that wait for it go on."""
        signal.at_ps = at_ps
        for _, process in self._waiting.pop(id(signal), ()):
            self._push(process, at_ps)

    def run(self) -> None:
        """Run until all processes have ended, or one of them stops all."""
        while self._ready and not self._stopped:
            _, _, process = heappop(self._ready)
            self._resume(process)
        assert self._stopped or not self._waiting, "a process waits for a signal that none sets"

    def stop(self) -> None:
        """Let no process go on any more."""
        self._stopped = True

    def _resume(self, process: Process) -> None:
        awaited = next(process, None)
        if isinstance(awaited, Signal):
            if awaited.at_ps is None:
                # the signal is kept beside the process: otherwise another could get its `id`
                self._waiting.setdefault(id(awaited), []).append((awaited, process))
                return
            # a signal that is set already is a time
            awaited = awaited.at_ps
        if awaited is not None:
            self._push(process, awaited)

    def _push(self, process: Process, ready_ps: Times) -> None:
        self._count += 1  # among equal times the process that came first goes on: every run takes the same order
        # the earliest of all devices decides; the count also keeps the heap from comparing generators
        heappush(self._ready, (int(ready_ps.min()), self._count, process))
