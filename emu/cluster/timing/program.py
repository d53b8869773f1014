"""The step of a node as a sequence of tasks: on which resource each runs, how long, and which gradient it completes.

    demands ──► parts: (resource, picoseconds) ──► tasks: a layer's forward, a layer's backward, the update

Devices that share a model share its program, too; a `Division` says which part of each operation a device runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from typing_extensions import override

from emu.hardware import Demand, Machine
from emu.hardware.machine import DECISIONS, JOINT_DECISION
from emu.operations.kinds import UPDATE, pass_of

#: Resources of a device: the unit that computes, its host, the link to the host, a separate processor that clips. The
#: last one computes nothing: it is in use while a device waits until the registers of all nodes are added up.
DEVICE, HOST_UNIT, HOST_LINK, CLIPPER, COUNTS = "compute", "host", "host link", "clipper", "counts"
#: Kinds of time besides a layer's forward, its backward and the update.
QUANTISE, CLIP = "quantise", "clip"
#: Bytes of a binary point on its way from the host. One byte holds -128..127 fraction bits, which are enough; that is
#: our choice.
_POINT_BYTES = 1


@dataclass(frozen=True)
class Task:
    """A part of a step that a device computes without a break.

    Attributes:
        layer: layer whose results it computes.
        kind: forward, backward or update.
        parts: resources, and how many picoseconds each is used, one after the other.
        completes: whether the layer's gradients are complete after it.
        gathered_bytes: bytes that each other device of the layer, or `source` alone, sends before the task can begin.
        partial_bytes: bytes of partial errors that go to each other device of the layer after it.
        add_ps: how long adding up partial errors takes.
        device: the only device of a node that runs it; None if all do.
        source: the only device that sends `gathered_bytes`; None if all others do.
    """

    layer: str
    kind: str
    parts: tuple[tuple[str, int], ...]
    completes: bool = False
    gathered_bytes: int = 0
    partial_bytes: int = 0
    add_ps: int = 0
    device: int | None = None
    source: int | None = None

    @property
    def name(self) -> str:
        """Its name in a trace."""
        return f"{self.layer} {self.kind}"

    @property
    def duration_ps(self) -> int:
        """How long all parts take."""
        return sum(ps for _, ps in self.parts)


@dataclass(frozen=True)
class Program:
    """The tasks of a device in a step.

    Attributes:
        passes: forward and backward, in order.
        updates: what is done with gradients that have arrived, in order.
        prepare: parts of preparing the next batch meanwhile.
        layers: layers whose gradients become complete, in that order; always taken from `passes`.
    """

    passes: tuple[Task, ...]
    updates: tuple[Task, ...]
    prepare: tuple[tuple[str, int], ...] = ()
    layers: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(task.layer for task in self.passes if task.completes))

    def without_time(self) -> Program:
        """Return the same program on devices that compute in no time: only messages take time."""
        passes, updates = (
            tuple(replace(task, parts=(), add_ps=0) for task in tasks) for tasks in (self.passes, self.updates)
        )
        return Program(passes, updates)


class Division(Protocol):
    """A way to divide a model among devices: which part of each operation a device runs, and what travels."""

    def tasks_of(self, computed: Sequence[Demand]) -> Iterator[Task]:
        """Yield the task of each operation of a pass, in order."""
        ...

    def update_of(self, demand: Demand) -> Task:
        """Return the task of an operation after the exchange."""
        ...


@dataclass(frozen=True)
class Undivided(Division):
    """A device that has the whole model.

    Attributes:
        machine: machine whose times count.
        decided_on_host: whether registers go to the host and points come back.
        counts_ps: how long adding up the registers of all nodes takes, for one point.
    """

    machine: Machine
    decided_on_host: bool = False
    counts_ps: int = 0

    @override
    def tasks_of(self, computed: Sequence[Demand]) -> Iterator[Task]:
        return (Task(demand.layer, pass_of(demand.role), self._parts(demand)) for demand in computed)

    @override
    def update_of(self, demand: Demand) -> Task:
        return Task(demand.layer, UPDATE, self._parts(demand))

    def _parts(self, demand: Demand) -> tuple[tuple[str, int], ...]:
        return parts_of(self.machine, demand, self.decided_on_host, self.counts_ps)


def program_of(
    division: Division,
    computed: Sequence[Demand],
    updated: Sequence[Demand],
    prepare: tuple[tuple[str, int], ...] = (),
) -> Program:
    """Return the program of a step.

    Args:
        division: how the model is divided among devices.
        computed: demands of the pass of one device that has the whole model.
        updated: demands after it.
        prepare: parts of preparing the next batch, see `prepare_of`.
    """
    computed = layer_by_layer(computed)
    completing = set(last_gradients(computed).values())
    passes = (replace(task, completes=i in completing) for i, task in enumerate(division.tasks_of(computed)))
    return Program(merged(passes), merged(map(division.update_of, updated)), prepare)


def layer_by_layer(computed: Sequence[Demand]) -> list[Demand]:
    """Return the demands of a pass; the loss scale leaves a layer's gradients as soon as they are complete.

    A runner notes these demands, of role `unscaled`, after the whole pass. A device need not wait so long.
    """
    last = {demand.layer: i for i, demand in enumerate(computed) if demand.role == "gradient"}
    moved = {demand: last[demand.layer] for demand in computed if demand.role == "unscaled" and demand.layer in last}
    # a moved demand has the index of a gradient, and its own, larger one puts it behind that gradient
    order = sorted(range(len(computed)), key=lambda i: (moved.get(computed[i], i), i))
    return [computed[i] for i in order]


def last_gradients(computed: Sequence[Demand]) -> dict[str, int]:
    """Return, by layer, the index of the demand after which the layer's gradients are complete."""
    return {demand.layer: i for i, demand in enumerate(computed) if demand.role in ("gradient", "unscaled")}


def parts_of(
    machine: Machine, demand: Demand, decided_on_host: bool = False, counts_ps: int = 0
) -> tuple[tuple[str, int], ...]:
    """Return the resources that an operation uses, and how long.

    It uses its unit, or the link, the host and the link again. The choice of a binary point uses the link alone, to the
    host and back, if the host chooses, else nothing; if nodes choose together, a device waits for their sum first.
    """
    if demand.operation in DECISIONS:
        waits = [(COUNTS, counts_ps)] if demand.operation == JOINT_DECISION else []
        sizes = (machine.decision_bytes(), _POINT_BYTES) if decided_on_host and machine.host else ()
        return _that_take_time([*waits, *((HOST_LINK, machine.transfer_ps(size)) for size in sizes)])
    time = machine.time_of(demand)
    if time.unit != machine.host:
        return _that_take_time([(DEVICE, time.duration_ps)])
    # no bytes are no transfer, which would take the link's latency
    up, down = (machine.transfer_ps(size) if size else 0 for size in machine.host_bytes(demand))
    return _that_take_time([(HOST_LINK, up), (HOST_UNIT, time.unit_ps), (HOST_LINK, down)])


def prepare_of(machine: Machine, batch_elements: int, batch_bytes: int) -> tuple[tuple[str, int], ...]:
    """Return how long the host takes to prepare the next batch, and to send it; nothing without a host."""
    if machine.host is None or not batch_elements:
        return ()
    one_pass = Demand(
        layer="",
        role="",
        operation="prepare",
        results=batch_elements,
        multiply_adds=0,
        passes=1,
        operands=(),
        result_format=None,
    )
    time = machine.time_of(one_pass)
    return ((HOST_UNIT, time.unit_ps), (HOST_LINK, machine.transfer_ps(batch_bytes)))


def _that_take_time(parts: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    return tuple((resource, ps) for resource, ps in parts if ps)


def merged(tasks: Iterable[Task]) -> tuple[Task, ...]:
    """Return tasks with neighbours of one layer and kind joined, unless a message or exchange comes between them."""
    joined: list[Task] = []
    for task in tasks:
        before = joined[-1] if joined else None
        joins = (
            before is not None
            and (before.layer, before.kind) == (task.layer, task.kind)
            and not (before.completes or before.partial_bytes or task.gathered_bytes)
        )
        if before is None or not joins:
            joined.append(task)
            continue
        joined[-1] = replace(  # waits for what the first one waits for, and sends what the last one sends
            before,
            parts=_joined(before.parts + task.parts),
            completes=task.completes,
            partial_bytes=task.partial_bytes,
            add_ps=task.add_ps,
        )
    return tuple(joined)


def _joined(parts: Sequence[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    joined: list[tuple[str, int]] = []
    for resource, ps in parts:
        if joined and joined[-1][0] == resource:
            joined[-1] = (resource, joined[-1][1] + ps)
        else:
            joined.append((resource, ps))
    return tuple(joined)
