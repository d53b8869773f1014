"""A node's step as tasks in order: on which resource each runs, for how long, and which gradient is then ready.

    demands ──► parts: (resource, picoseconds) ──► tasks: a layer's forward, a layer's backward, the update

A task says whether a layer's gradient is complete after it. Devices that share a model share its program, too; a
`Division` says what becomes of each operation on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from typing_extensions import override

from emu.hardware import Demand, Machine
from emu.hardware.machine import DECISIONS, JOINT_DECISION
from emu.operations.kinds import UPDATE, pass_of

#: Resources of a device: the unit that computes, its host, the link there, another processor that clips, and what is
#: held while counts of nodes are added up.
DEVICE, HOST_UNIT, HOST_LINK, CLIPPER, COUNTS = "compute", "host", "host link", "clipper", "counts"
#: What time is spent on besides a layer's forward, its backward and the update.
QUANTISE, CLIP = "quantise", "clip"
#: Bytes of a point on its way from the host.
_POINT_BYTES = 1


@dataclass(frozen=True)
class Task:
    """Something that a device computes.

    Attributes:
        layer: whose.
        kind: forward, backward or update.
        parts: resources and picoseconds, one after the other.
        completes: whether the layer's gradients are complete after it.
        gathered_bytes: bytes that each of the layer's other devices sends before it can begin, or the one at `source`.
        partial_bytes: bytes of partial errors that go to each of the layer's other devices after it.
        add_ps: what adding these up takes.
        device: device of a node that alone runs it; None is all of them.
        source: device that alone sends; None is all others.
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
        """What a trace calls it."""
        return f"{self.layer} {self.kind}"

    @property
    def duration_ps(self) -> int:
        """Of all parts."""
        return sum(ps for _, ps in self.parts)


@dataclass(frozen=True)
class Program:
    """What a device does in every step.

    Attributes:
        passes: forward and backward, in order.
        updates: what is done with gradients that have arrived, in order.
        prepare: parts of preparing the next batch beside it.
        layers: layers whose gradients become complete, in that order.
    """

    passes: tuple[Task, ...]
    updates: tuple[Task, ...]
    prepare: tuple[tuple[str, int], ...] = ()
    layers: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(task.layer for task in self.passes if task.completes))

    def without_time(self) -> Program:
        """Return the same program on devices that compute in no time: what is left is the messages'."""
        passes, updates = (
            tuple(replace(task, parts=(), add_ps=0) for task in tasks) for tasks in (self.passes, self.updates)
        )
        return Program(passes, updates)


class Division(Protocol):
    """What becomes of operations on the devices that share a model: the rule in which ways to share one differ."""

    def tasks_of(self, computed: Sequence[Demand]) -> Iterator[Task]:
        """Yield the task of every operation of a pass, in their order."""
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
        counts_ps: what adding up the registers of all nodes takes, for one point.
    """

    machine: Machine
    decided_on_host: bool = False
    counts_ps: int = 0

    @override
    def tasks_of(self, computed: Sequence[Demand]) -> Iterator[Task]:
        return (Task(one.layer, pass_of(one.role), self._parts(one)) for one in computed)

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
        division: what becomes of operations on the devices that share the model.
        computed: demands of the pass of one device that has all of the model.
        updated: demands after it.
        prepare: parts of preparing the next batch, see `prepare_of`.
    """
    computed = layer_by_layer(computed)
    last = set(last_gradients(computed).values())
    passes = (replace(task, completes=i in last) for i, task in enumerate(division.tasks_of(computed)))
    return Program(merged(passes), merged(map(division.update_of, updated)), prepare)


def layer_by_layer(computed: Sequence[Demand]) -> list[Demand]:
    """Return demands of a pass in which a layer's loss scale is taken out as soon as its gradients are complete."""
    last = {one.layer: i for i, one in enumerate(computed) if one.role == "gradient"}
    places = {one: last[one.layer] for one in computed if one.role == "unscaled" and one.layer in last}
    order = sorted(range(len(computed)), key=lambda i: (places.get(computed[i], i), i))
    return [computed[i] for i in order]


def last_gradients(computed: Sequence[Demand]) -> dict[str, int]:
    """Return the place, by layer, of the demand after which a layer's gradients are complete."""
    return {one.layer: i for i, one in enumerate(computed) if one.role in ("gradient", "unscaled")}


def parts_of(
    machine: Machine, demand: Demand, decided_on_host: bool = False, counts_ps: int = 0
) -> tuple[tuple[str, int], ...]:
    """Return what an operation takes: its unit, or the link to the host, the host, and the link again."""
    if demand.operation in DECISIONS:
        summed = [(COUNTS, counts_ps)] if demand.operation == JOINT_DECISION else []
        sizes = (machine.decision_bytes(), _POINT_BYTES) if decided_on_host and machine.host else ()
        return _without_nothing([*summed, *((HOST_LINK, machine.transfer_ps(size)) for size in sizes)])
    cost = machine.cost(demand)
    if cost.unit != machine.host:
        return _without_nothing([(DEVICE, cost.duration_ps)])
    up, down = (machine.transfer_ps(size) if size else 0 for size in machine.host_bytes(demand))
    return _without_nothing([(HOST_LINK, up), (HOST_UNIT, cost.unit_ps), (HOST_LINK, down)])


def prepare_of(machine: Machine, batch_elements: int, batch_bytes: int) -> tuple[tuple[str, int], ...]:
    """Return what the host takes for the next batch: to prepare it, to send it; nothing without a host."""
    if machine.host is None or not batch_elements:
        return ()
    cost = machine.cost(Demand("", "", "prepare", batch_elements, 0, 1, (), None))
    return ((HOST_UNIT, cost.unit_ps), (HOST_LINK, machine.transfer_ps(batch_bytes)))


def _without_nothing(parts: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    return tuple((resource, ps) for resource, ps in parts if ps)


def merged(tasks: Iterable[Task]) -> tuple[Task, ...]:
    """Join neighbours of one layer and kind where nothing happens between them."""
    found: list[Task] = []
    for task in tasks:
        before = found[-1] if found else None
        joins = (
            before is not None
            and (before.layer, before.kind) == (task.layer, task.kind)
            and not (before.completes or before.partial_bytes or task.gathered_bytes)
        )
        if before is None or not joins:
            found.append(task)
            continue
        found[-1] = replace(
            before,
            parts=_joined(before.parts + task.parts),
            completes=task.completes,
            partial_bytes=task.partial_bytes,
            add_ps=task.add_ps,
        )
    return tuple(found)


def _joined(parts: Sequence[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    found: list[tuple[str, int]] = []
    for resource, ps in parts:
        if found and found[-1][0] == resource:
            found[-1] = (resource, found[-1][1] + ps)
        else:
            found.append((resource, ps))
    return tuple(found)
