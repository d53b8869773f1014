"""Time on many devices at once: what each resource does, and in which order it is used.

    book       one call for all devices: each begins when it is ready and its resource is free
    processes  work that goes on side by side; the one that is ready first, on any device, books first

A process is a generator. It yields when it is ready, then books, and yields again; or it yields a signal that another
process sets. Times are integers, picoseconds, one for every device.
"""

from __future__ import annotations

from collections.abc import Generator
from heapq import heappop, heappush
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Times: TypeAlias = npt.NDArray[np.int64]


class Booked(NamedTuple):
    """Something that a resource of every device did.

    Attributes:
        resource: unit, link.
        name: what was done.
        kind: what it counts as.
        begin_ps: when it began, by device.
        duration_ps: how long it took, by device; 0 where it was not done.
    """

    resource: str
    name: str
    kind: str
    begin_ps: Times
    duration_ps: Times


class Line:
    """Resources of devices; each does one thing at a time, in the order in which it is booked.

    Attributes:
        devices: how many.
        spent_ps: by kind and device.
        booked: everything, where it is kept.

    Examples:
        >>> line = Line(2)
        >>> line.book("compute", "fc1", 300, np.array([0, 100])).tolist()
        [300, 400]
        >>> line.book("compute", "fc2", np.array([10, 0]), np.array([0, 0])).tolist()  # the second one does nothing
        [310, 0]
    """

    def __init__(self, devices: int, *, keeps: bool = False) -> None:
        self.devices, self._keeps = devices, keeps
        self.spent_ps: dict[str, Times] = {}
        self.booked: list[Booked] = []
        self._free: dict[str, Times] = {}

    def start(self) -> Times:
        """Return time 0 of every device."""
        return np.zeros(self.devices, np.int64)

    def book(
        self,
        resource: str,
        name: str,
        duration_ps: int | Times,
        after_ps: Times,
        kind: str = "compute",
        *,
        in_turn: bool = False,
    ) -> Times:
        """Let a resource of every device do something; return when each has done it.

        Args:
            resource: which.
            name: name of what is done.
            duration_ps: for how long; a device whose entry is 0 does nothing, and is done when it is ready.
            after_ps: when each is ready.
            kind: what it counts as.
            in_turn: whether a device that does nothing is done when the resource is free, too.
        """
        taken = np.broadcast_to(np.asarray(duration_ps, np.int64), (self.devices,))
        free = self._free.setdefault(resource, self.start())
        works = taken > 0
        begin = np.where(np.logical_or(works, in_turn), np.maximum(free, after_ps), after_ps)
        end = begin + taken
        self._free[resource] = np.where(works, end, free)
        self.spent_ps[kind] = self.spent_ps.get(kind, 0) + taken
        if self._keeps and works.any():
            self.booked.append(Booked(resource, name, kind, begin, taken))
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
    """Runs processes side by side, whoever is ready first.

    Examples:
        >>> line, order, run = Line(1), [], Processes()
        >>> def at(name, time):
        ...     yield np.array([time])
        ...     order.append(name)
        >>> run.start(at("late", 5))
        >>> run.start(at("early", 3))
        >>> run.run()
        >>> order
        ['early', 'late']
    """

    def __init__(self) -> None:
        self._ready: list[tuple[int, int, Process]] = []
        self._waiting: dict[int, list[tuple[Signal, Process]]] = {}
        self._count = 0

    def start(self, process: Process) -> None:
        """Begin a process: it runs until it first yields."""
        self._resume(process)

    def set(self, signal: Signal, at_ps: Times) -> None:
        """Make a signal's time known; who waits for it goes on."""
        signal.at_ps = at_ps
        for _, process in self._waiting.pop(id(signal), ()):
            self._push(process, at_ps)

    def run(self) -> None:
        """Go on until nobody is left."""
        while self._ready:
            _, _, process = heappop(self._ready)
            self._resume(process)
        assert not self._waiting, "every signal is set by somebody"

    def _resume(self, process: Process) -> None:
        found = next(process, None)
        if isinstance(found, Signal):
            if found.at_ps is None:
                self._waiting.setdefault(id(found), []).append((found, process))
                return
            found = found.at_ps
        if found is not None:
            self._push(process, found)

    def _push(self, process: Process, ready_ps: Times) -> None:
        self._count += 1
        heappush(self._ready, (int(ready_ps.min()), self._count, process))
