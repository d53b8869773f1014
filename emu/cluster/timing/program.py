"""The step of a node as a sequence of tasks: on which resource each runs, how long, and which gradient it completes.

    demands ──► uses of units and links ──► tasks: a layer's forward, a layer's backward, the update

Devices that share a model share its program, too; a `Division` says which part of each operation a device runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple, Protocol

from typing_extensions import override

from emu.cluster.timing.counts import NO_COUNTS, Counts
from emu.hardware import Demand, Event, Machine
from emu.hardware.machine import DECISIONS, JOINT_DECISION
from emu.operations.kinds import UPDATE, pass_of

#: Resources of a device: the unit that computes, its host, the link to the host, a separate processor that clips. The
#: last one computes nothing: it is in use while a device waits until the registers of all nodes are added up.
DEVICE, HOST_UNIT, HOST_LINK, CLIPPER, COUNTS = "compute", "host", "host link", "clipper", "counts"
#: Kinds of time besides a layer's forward, its backward and the update.
QUANTISE, CLIP = "quantise", "clip"
#: Bytes of a binary point on its way from the host. One byte holds -128..127 fraction bits, which are enough; that is
#: our choice.
POINT_BYTES = 1
#: Kinds of time in a table of times, besides forward, backward and update: of an operation that runs again, of one on
#: the host, and of a transfer.
REDO, ON_HOST, TRANSFER = "redo", "host", "transfer"
#: The link to the host, and the port of the node that adds up registers, as such a table calls them.
LINK, PORT = "link", "port"
#: The memory of a device, in a trace.
MEMORY = "memory"


class Use(NamedTuple):
    """The use of a unit or a link by one operation.

    Attributes:
        layer: layer of the result; empty for the batch.
        role: its role; empty for the batch.
        unit: unit, or link.
        kind: what its time counts as in a table of times.
        name: its name in a trace.
        unit_ps: how long the unit works, or the link.
        memory_ps: how long the memory works beside it.
        start_ps: time before both begin.
        cycles: cycles of the unit; 0 for a link.
        operations: multiply-adds, or results if there are none; 0 for a link.
        bytes: through the memory or the link.
        operation: its name in `emu.operations.OPERATIONS`; empty for a transfer.
    """

    layer: str
    role: str
    unit: str
    kind: str
    name: str
    unit_ps: int
    memory_ps: int = 0
    cycles: int = 0
    operations: int = 0
    bytes: int = 0
    operation: str = ""
    start_ps: int = 0

    @property
    def duration_ps(self) -> int:
        """The start, and the longer of unit and memory."""
        return self.start_ps + max(self.unit_ps, self.memory_ps)

    @property
    def details(self) -> dict[str, Any]:
        """What a trace says about it, as plain data (JSON)."""
        about: dict[str, Any] = {"operation": self.operation} if self.operation else {}
        numbers = {"cycles": self.cycles, "operations": self.operations, "bytes": self.bytes}
        return about | {name: number for name, number in numbers.items() if number or self.operation}

    def events(self, at_ps: int) -> Iterator[Event]:
        """Yield what a trace shows of it, from `at_ps` on: the unit or link, and the memory beside it."""
        yield Event(self.unit, self.name, at_ps, self.duration_ps, self.kind, self.details)
        if self.memory_ps:
            yield Event(MEMORY, self.name, at_ps, self.memory_ps, self.kind, self.details)


class Part(NamedTuple):
    """What a task does on one resource, without a break.

    Attributes:
        resource: resource of the device, on which nothing else happens meanwhile.
        duration_ps: how long it takes.
        uses: what happens, one after the other; empty if nobody asks.
    """

    resource: str
    duration_ps: int
    uses: tuple[Use, ...] = ()

    @classmethod
    def of(cls, resource: str, use: Use) -> Part:
        """Return the part that consists of one use."""
        return cls(resource, use.duration_ps, (use,))


@dataclass(frozen=True)
class Task:
    """A part of a step that a device computes without a break.

    Attributes:
        layer: layer whose results it computes.
        kind: forward, backward or update.
        parts: what it does on resources, one after the other.
        completes: whether the layer's gradients are complete after it.
        gathered_bytes: bytes that each other device of the layer, or `source` alone, sends before the task can begin.
        partial_bytes: bytes of partial errors that go to each other device of the layer after it.
        add_ps: how long adding up partial errors takes.
        device: the only device of a node that runs it; None if all do.
        source: the only device that sends `gathered_bytes`; None if all others do.
    """

    layer: str
    kind: str
    parts: tuple[Part, ...]
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
        return sum(part.duration_ps for part in self.parts)


def uses_of(tasks: Iterable[Task]) -> Iterator[Use]:
    """Return the uses of units and links by some tasks, in order."""
    return (use for task in tasks for part in task.parts for use in part.uses)


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
    prepare: tuple[Part, ...] = ()
    layers: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        # derived here, so that it always fits `passes`; the class is frozen
        object.__setattr__(self, "layers", tuple(task.layer for task in self.passes if task.completes))

    @property
    def uses(self) -> Iterator[Use]:
        """All uses of units and links in a step; those of the next batch come first."""
        prepared = (use for part in self.prepare for use in part.uses)
        return chain(prepared, uses_of(self.passes), uses_of(self.updates))

    def without_time(self) -> Program:
        """Return the same program on devices that compute in no time: only messages take time."""
        # messages stay: `gathered_bytes` and `partial_bytes` are not replaced
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
        counts: what adding up the registers of all nodes takes, for one point.
    """

    machine: Machine
    decided_on_host: bool = False
    counts: Counts = NO_COUNTS

    @override
    def tasks_of(self, computed: Sequence[Demand]) -> Iterator[Task]:
        return (Task(demand.layer, pass_of(demand.role), self._parts(demand)) for demand in computed)

    @override
    def update_of(self, demand: Demand) -> Task:
        return Task(demand.layer, UPDATE, self._parts(demand))

    def _parts(self, demand: Demand) -> tuple[Part, ...]:
        return parts_of(self.machine, demand, self.decided_on_host, self.counts)


def program_of(
    division: Division,
    computed: Sequence[Demand],
    updated: Sequence[Demand],
    prepare: tuple[Part, ...] = (),
) -> Program:
    """Return the program of a step.

    Args:
        division: how the model is divided among devices.
        computed: demands of the pass of one device that has the whole model.
        updated: demands after it.
        prepare: parts of preparing the next batch, see `prepare_of`.
    """
    computed = layer_by_layer(computed)
    # indices into `computed`: a division yields one task for each demand, in order
    completing = set(last_gradients(computed).values())
    passes = (replace(task, completes=i in completing) for i, task in enumerate(division.tasks_of(computed)))
    return Program(merged(passes), merged(map(division.update_of, updated)), prepare)


def layer_by_layer(computed: Sequence[Demand]) -> list[Demand]:
    """Return the demands of a pass; the loss scale leaves a layer's gradients as soon as they are complete.

    A runner notes these demands, of role `unscaled`, after the whole pass. A device need not wait so long.
    """
    last = {demand.layer: i for i, demand in enumerate(computed) if demand.role == "gradient"}
    # by value: two equal demands belong to the same layer and role, and move to the same place
    moved = {demand: last[demand.layer] for demand in computed if demand.role == "unscaled" and demand.layer in last}
    # a moved demand has the index of a gradient, and its own, larger one puts it behind that gradient
    order = sorted(range(len(computed)), key=lambda i: (moved.get(computed[i], i), i))
    return [computed[i] for i in order]


def last_gradients(computed: Sequence[Demand]) -> dict[str, int]:
    """Return, by layer, the index of the demand after which the layer's gradients are complete."""
    return {demand.layer: i for i, demand in enumerate(computed) if demand.role in ("gradient", "unscaled")}


def parts_of(
    machine: Machine, demand: Demand, decided_on_host: bool = False, counts: Counts = NO_COUNTS
) -> tuple[Part, ...]:
    """Return what an operation does, in order.

    It uses its unit, or the link, the host and the link again. The choice of a binary point uses the link alone, to the
    host and back, if the host chooses, else nothing; if nodes choose together, a device waits for their sum first.
    """
    about, name = (demand.layer, demand.role), f"{demand.layer} {demand.role}"
    if demand.operation in DECISIONS:
        # counts travel from node to node; no unit computes, so it has a resource of its own
        summed = Use(*about, PORT, TRANSFER, f"{name}: counts", counts.duration_ps, bytes=counts.size_bytes)
        parts = [Part.of(COUNTS, summed)] if demand.operation == JOINT_DECISION else []
        if decided_on_host and machine.host:
            parts += _transfers(machine, about, f"{name}: register", machine.decision_bytes())
            parts += _transfers(machine, about, f"{name}: point", POINT_BYTES)
        return tuple(parts)
    time = machine.time_of(demand)
    on_host = time.unit == machine.host
    # a repeated operation counts as such, wherever it runs
    kind = REDO if demand.again else ON_HOST if on_host else demand.kind
    use = Use(*about, time.unit, kind, name, time.unit_ps, time.memory_ps, time.cycles, time.operations, time.bytes,
              demand.operation, time.start_ps)  # fmt: skip
    if not on_host:
        return (Part.of(DEVICE, use),)
    up, down = machine.host_bytes(demand)
    return (
        *_transfers(machine, about, f"{name}: to host", up),
        Part.of(HOST_UNIT, use._replace(bytes=0)),  # its bytes pass the link
        *_transfers(machine, about, f"{name}: from host", down),
    )


def _transfers(machine: Machine, about: tuple[str, str], name: str, size_bytes: int) -> tuple[Part, ...]:
    """Return a transfer between device and host; nothing if there is no link, or nothing to move."""
    if not size_bytes or machine.link_bytes_per_s is None:
        return ()
    return (Part.of(HOST_LINK, Use(*about, LINK, TRANSFER, name, machine.transfer_ps(size_bytes), bytes=size_bytes)),)


def prepare_of(
    machine: Machine, batch_elements: int, batch_bytes: int, name: str = "the next batch"
) -> tuple[Part, ...]:
    """Return what preparing a batch takes the host, and sending it; nothing without a host."""
    if machine.host is None or not batch_elements:
        return ()
    one_pass = Demand(
        # no layer and no role: it belongs to the batch
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
    prepared = Use("", "", machine.host, ON_HOST, f"prepare {name}", time.unit_ps)
    return (Part.of(HOST_UNIT, prepared), *_transfers(machine, ("", ""), f"send {name}", batch_bytes))


def merged(tasks: Iterable[Task]) -> tuple[Task, ...]:
    """Return tasks with neighbours of one layer and kind joined, unless a message or exchange comes between them."""
    joined: list[Task] = []
    for task in tasks:
        before = joined[-1] if joined else None
        joins = (
            before is not None
            and (before.layer, before.kind) == (task.layer, task.kind)
            # a layer's last gradient must end a task, and what another device sends must begin one
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


def _joined(parts: Sequence[Part]) -> tuple[Part, ...]:
    joined: list[Part] = []
    for part in parts:
        if joined and joined[-1].resource == part.resource:
            before = joined[-1]
            joined[-1] = Part(before.resource, before.duration_ps + part.duration_ps, before.uses + part.uses)
        else:
            joined.append(part)
    return tuple(joined)
