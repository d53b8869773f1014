"""Events of ports and links of a few nodes, for a timeline; a thousand nodes would have millions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from emu.hardware.fabric import Fabric, Path
from emu.hardware.timeline import Event
from emu.hardware.traffic import Copied, Held, Integers, Sent

#: Kinds of these events.
SEND, RECEIVE, COPY = "send", "receive", "copy"


class _Part(NamedTuple):
    """The messages at one kind of resource."""

    resource: str
    kind: str
    path: Path
    device: Integers
    times: Held


def events_of(
    fabric: Fabric, done: Sent | Copied, name: str, nodes: Iterable[int] = (0,), **details: Any
) -> list[Event]:
    """Return the events of ports and links to hosts of some nodes for messages or copies.

    Resources are called `port out`, `port in`, `host link out`, `host link in`, without direction where it is half
    duplex, and with the device's number in its node where each has one. Kinds are `send`, `receive` and `copy`.

    Args:
        fabric: fabric of the messages.
        done: what `Traffic.send`, `rounds` or `copy` returned.
        name: name of the events.
        nodes: nodes whose events are returned.
        **details: details of each event, besides `bytes`, and `sender` and `receiver` of a message.
    """
    chosen = np.isin(np.arange(fabric.processors) // fabric.devices, list(nodes))
    events: list[Event] = []
    for part in _parts(fabric, done):
        # of rounds, times are (R, P), and senders (P,) are the same in each
        device = np.broadcast_to(part.device, part.times.begin_ps.shape)
        # a receiver of -1 picks the last device here; such a message has a begin of -1, and is left out
        for at in map(tuple, np.argwhere((part.times.begin_ps >= 0) & chosen[device])):
            number = int(device[at])
            about: dict[str, Any] = {"bytes": int(done.size_bytes[at])}
            if isinstance(done, Sent):
                about |= {"sender": int(at[-1]), "receiver": int(done.to[at])}
            own = not part.path.per_node and fabric.devices > 1
            resource = f"{part.resource}, device {number % fabric.devices}" if own else part.resource
            begin, end = int(part.times.begin_ps[at]), int(part.times.end_ps[at])
            node = fabric.node_of(number)
            events.append(Event(resource, name, begin, end - begin, part.kind, {**about, **details}, node))
    return events


def _parts(fabric: Fabric, done: Sent | Copied) -> Iterator[_Part]:
    port, host = fabric.port, fabric.host
    own = np.arange(fabric.processors)
    if isinstance(done, Copied):
        assert host is not None
        times = Held(done.begin_ps, done.end_ps)
        yield _Part(_called("host link", host, outward=done.to_host), COPY, host, own, times)
        return
    if host is not None and done.up is not None:
        yield _Part(_called("host link", host, outward=True), COPY, host, own, done.up)
    yield _Part(_called("port", port, outward=True), SEND, port, own, done.wire)
    # the same message occupies both ports for the same time
    yield _Part(_called("port", port, outward=False), RECEIVE, port, done.to, done.wire)
    if host is not None and done.down is not None:
        yield _Part(_called("host link", host, outward=False), COPY, host, done.to, done.down)


def _called(name: str, path: Path, *, outward: bool) -> str:
    return name if path.half_duplex else f"{name} {'out' if outward else 'in'}"
