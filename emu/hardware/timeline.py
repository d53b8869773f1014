"""A timeline of events on units, memories and links, which a viewer shows as Chrome trace events.

A resource of a node does one thing at a time. A booking gives its earliest time. The event begins when its resource is
free. Times are integers, picoseconds from the beginning.

Source: Chrome's "Trace Event Format" (complete events, metadata); Perfetto and chrome://tracing open it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

#: Picoseconds of the format's unit, a microsecond.
MICROSECOND_PS = 10**6


class Event(NamedTuple):
    """Work of a resource.

    Attributes:
        resource: unit, memory or link.
        name: what was done.
        begin_ps: when it began.
        duration_ps: how long it took.
        kind: what it counts as, e.g. `redo`.
        details: plain data (JSON) that a viewer shows with the event.
        node: node of the resource.
    """

    resource: str
    name: str
    begin_ps: int
    duration_ps: int
    kind: str
    details: Mapping[str, Any]
    node: int = 0

    @property
    def end_ps(self) -> int:
        """When it ended."""
        return self.begin_ps + self.duration_ps


class Timeline:
    """Events of resources.

    Attributes:
        events: in the order in which they were booked.

    Examples:
        >>> timeline = Timeline()
        >>> timeline.book("link", "batch 1", 500), timeline.book("link", "batch 2", 500)
        (500, 1000)
        >>> timeline.book("vector", "conv1, batch 1", 300, after=500)
        800
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.events: list[Event] = list(events)
        self._free: dict[tuple[int, str], int] = {}
        # a timeline may continue the events of another one
        for event in self.events:
            at = (event.node, event.resource)
            self._free[at] = max(self._free.get(at, 0), event.end_ps)

    def free(self, resource: str, node: int = 0) -> int:
        """Return when a resource of a node is free."""
        return self._free.get((node, resource), 0)

    @property
    def end_ps(self) -> int:
        """When the last event ends."""
        return max(self._free.values(), default=0)

    def book(
        self,
        resource: str,
        name: str,
        duration_ps: int,
        *,
        after: int = 0,
        kind: str = "work",
        node: int = 0,
        **details: Any,
    ) -> int:
        """Add an event; return when it ends.

        Args:
            resource: resource that does it.
            name: name of the event.
            duration_ps: how long it takes.
            after: picoseconds before which it cannot begin.
            kind: see `Event`.
            node: node of the resource.
            **details: see `Event`.
        """
        event = Event(resource, name, max(after, self.free(resource, node)), duration_ps, kind, details, node)
        self.events.append(event)
        self._free[node, resource] = event.end_ps
        return event.end_ps

    def resources(self) -> list[str]:
        """Return the resources in the order of first use."""
        return list(dict.fromkeys(event.resource for event in self.events))


def chrome_trace(name: str, events: Sequence[Event]) -> dict[str, Any]:
    """Return events as Chrome trace events: plain data (JSON), a process per node, a track per resource.

    Args:
        name: name of the machine.
        events: in any order.
    """
    nodes = sorted({event.node for event in events} or {0})
    # numbers of tracks run over all nodes, in the order of first use
    tracks = {at: i for i, at in enumerate(dict.fromkeys((event.node, event.resource) for event in events))}
    titles = {node: name if nodes == [0] else f"{name}, node {node}" for node in nodes}
    named = [_metadata("process_name", node, 0, title) for node, title in titles.items()]
    named += [_metadata("thread_name", node, track, resource) for (node, resource), track in tracks.items()]
    done = [
        {
            "name": event.name,
            "cat": event.kind,
            "ph": "X",
            "ts": event.begin_ps / MICROSECOND_PS,
            "dur": event.duration_ps / MICROSECOND_PS,
            "pid": event.node,
            "tid": tracks[event.node, event.resource],
            "args": dict(event.details),
        }
        for event in sorted(events, key=lambda event: event.begin_ps)
    ]
    return {"displayTimeUnit": "ns", "traceEvents": named + done}


def _metadata(kind: str, node: int, track: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": node, "tid": track, "args": {"name": name}}
