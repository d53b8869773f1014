"""The simulated time of a training run: every operation on its unit, every transfer to the host, every redo.

    host         prepares batch k + 1 ────────────► sends it            softmax, loss, normalisation; points
    link         ◄──────── registers, operands, points ────────►
    device       batch k: forward ─► backward ─► update, in the order of the run; a redo is the same operation again

A step ends when the device is done and the next batch is there. Steps with equal demands take equal times, so each kind
of step is played once, by `emu.cluster.timing`, which plays steps of clusters and those of `emu simulate`. A device
without a host does everything itself; a device without a clock has no simulated time.

Source: docs/dynamic-fixed-point.md, "What it costs: the machine with a clock". That the host decides points before
the next operation may begin, and that a batch travels as the bytes of its source, is our choice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from emu.cluster.timing import Share, StepSchedule, Use, alone, play
from emu.cluster.timing.program import CLIP, ON_HOST, PORT, QUANTISE, REDO, TRANSFER, prepare_of
from emu.hardware.machine import SECOND_PS, Demand, Machine
from emu.hardware.timeline import Event
from emu.operations.kinds import BACKWARD, FORWARD, UPDATE
from emu.training.time.fused import fused
from emu.training.time.sparse_products import SparseSpent, as_rows, of_rows, sparse_spent

#: Kinds of the time in which messages pass the port.
SEND, RECEIVE = "send", "receive"
#: What time is spent on, in the order of a report.
KINDS = (FORWARD, BACKWARD, UPDATE, REDO, ON_HOST, TRANSFER, QUANTISE, CLIP, SEND, RECEIVE)
#: Steps of each phase that are kept event by event.
TRACED_STEPS = 2
#: Bytes of one operation of the device's program, which is sent once: opcode, addresses, sizes, points.
OPERATION_BYTES = 64


class Spent(NamedTuple):
    """Time and other resources that one role of one layer has spent on one unit.

    Attributes:
        calls: operations or transfers.
        cycles: cycles of the unit; 0 for a link.
        picoseconds: how long they took.
        operations: multiply-adds, or results.
        bytes: through the memory or the link.
    """

    calls: int = 0
    cycles: int = 0
    picoseconds: int = 0
    operations: int = 0
    bytes: int = 0

    def plus(self, other: Spent, times: int = 1) -> Spent:
        """Return the sum of this and `times` times another one."""
        return Spent(*(mine + times * more for mine, more in zip(self, other, strict=True)))


#: What a `Spent` belongs to: layer, role, unit, kind.
SpentKey = tuple[str, str, str, str]


class HostWork(NamedTuple):
    """What the computer beside a device does in a step.

    Attributes:
        elements: numbers of the next batch, which it prepares.
        bytes: bytes of it that it sends.
        decides_points: whether registers go to it and points come back.
    """

    elements: int
    bytes: int
    decides_points: bool = False


class PlayedStep(NamedTuple):
    """The simulated time of one step, with its parts and events.

    Attributes:
        duration_ps: from its first operation until the next step can begin.
        spent: what was spent, by layer, role, unit and kind.
        events: events, their times counted from the start of the step.
        sparse: what gradients of sparse layers cost, by layer; it is part of `spent` as well.
    """

    duration_ps: int
    spent: dict[SpentKey, Spent]
    events: list[Event]
    sparse: dict[str, SparseSpent]


class Simulation:
    """Simulated time of a run.

    Attributes:
        machine: machine whose time is simulated.
        demands: demands of the step in progress; runners append to it.
        total_ps: total of all steps so far.
        by_phase: picoseconds by phase of training.
        events: events of the first steps of each phase.
    """

    def __init__(
        self,
        machine: Machine,
        host: HostWork,
        *,
        sparse_columns: Mapping[str, int] | None = None,
        fused_slots: int | None = None,
    ) -> None:
        """Begin at time 0.

        Args:
            machine: machine that runs.
            host: what its host does.
            sparse_columns: columns of inputs that are sparse, by the layer that multiplies them.
            fused_slots: arrays that the optimiser keeps beside a parameter, if its update is one pass over memory;
                None if it is several operations.
        """
        self.machine = machine
        self.demands: list[Demand] = []
        self.total_ps = 0
        self.by_phase: Counter[str] = Counter()
        self.events: list[Event] = []
        self._traced: Counter[str] = Counter()
        self._host = host
        self._workers: int | None = None
        self._decided_on_host = host.decides_points and machine.host is not None
        # how often each kind of step was taken since `_settle`: equal demands take equal times
        self._pending: Counter[tuple[Demand, ...]] = Counter()
        self._spent: dict[SpentKey, Spent] = {}
        self._sparse: dict[str, SparseSpent] = {}
        self._sparse_columns = dict(sparse_columns or {})
        self._fused_slots = fused_slots
        # the demands are the whole key, so `resize` clears the cache; a step that has dropped out is played again
        self._played = lru_cache(maxsize=128)(self._play)

    # ---- steps ----

    def end_step(self, step: int, phase: str) -> None:
        """Add the time of the demands since the last step.

        Args:
            step: step that ends, from 1.
            phase: phase of training that it belongs to.
        """
        work, began = self._asked_for(), self.total_ps
        self.demands.clear()
        if not began:  # before its first step, the device gets its program and the first batch
            self._begin(len(work), {"step": step, "phase": phase})
        played = self._played(work)
        if self._traced[phase] < TRACED_STEPS:
            self._traced[phase] += 1
            # before the total grows: events of a step count from its start
            self._keep(played.events, {"step": step, "phase": phase})
        self.total_ps += played.duration_ps
        # with the program and the first batch, in the first step
        self.by_phase[phase] += self.total_ps - began
        self._pending[work] += 1

    def _asked_for(self) -> tuple[Demand, ...]:
        """Return the demands of the step in progress, updates as the machine runs them."""
        return tuple(self.demands) if self._fused_slots is None else fused(self.demands, self._fused_slots)

    def resize(self, batch_elements: int, batch_bytes: int, workers: int | None = None) -> None:
        """Set the batch size, and the number of nodes that share a batch, for all later steps.

        Args:
            batch_elements: numbers that a host prepares per step.
            batch_bytes: bytes that it sends.
            workers: nodes of a cluster that take part; None is all of them.
        """
        host = self._host._replace(elements=batch_elements, bytes=batch_bytes)
        if (host, workers) != (self._host, self._workers):
            self._settle()  # steps so far took the times of the old size
            self._played.cache_clear()
            self._host, self._workers = host, workers

    def _keep(self, events: Iterable[Event], where: Mapping[str, Any]) -> None:
        """Keep events whose times are counted from now, with the step and phase that they belong to."""
        for event in events:
            at = event.begin_ps + self.total_ps
            self.events.append(event._replace(begin_ps=at, details={**event.details, **where}))

    def _begin(self, operations: int, where: Mapping[str, Any]) -> None:
        """Send the program and the first batch."""
        size = self._host.bytes + OPERATION_BYTES * operations
        parts = prepare_of(self.machine, self._host.elements, size, "batch 1")
        # one after the other: the device has nothing to do yet
        for use in (use for part in parts for use in part.uses):
            self._keep(use.events(0), where)
            self.total_ps += use.duration_ps
            add_uses(self._spent, [use])

    def _play(self, work: tuple[Demand, ...]) -> PlayedStep:
        demands, schedule = self._planned(work)
        # with events even if none are kept now: the step may be played for a later phase, which is traced
        step, spent = play(schedule, keeps_events=True), dict[SpentKey, Spent]()
        add_uses(spent, schedule.uses)
        if schedule.fabric is not None:
            add_spent(
                spent, ("", "", PORT, SEND), Spent(1, 0, step.send_ps, 0, step.sent_bytes // schedule.teams.count)
            )
            add_spent(spent, ("", "", "", QUANTISE), Spent(1, 0, step.quantise_ps, 0, 0))
        if step.clip_ps:
            add_spent(spent, ("", "", "", CLIP), Spent(1, 0, step.clip_ps, 0, 0))
        return PlayedStep(
            step.step_ps, spent, list(step.events), sparse_spent(self.machine, demands, self._sparse_columns)
        )

    def _planned(self, work: tuple[Demand, ...]) -> tuple[Sequence[Demand], StepSchedule]:
        """Return the demands of one device in a step, and the schedule of the step."""
        share = Share(
            work,
            (),
            {},
            batch_elements=self._host.elements,
            batch_bytes=self._host.bytes,
            decided_on_host=self._decided_on_host,
        )
        return work, alone(self.machine, share)

    # ---- sums ----

    def _settle(self) -> None:
        """Add what the steps since the last call have spent to the sums of the interval."""
        for work, times in self._pending.items():
            # from the cache, as a rule: a kind of step is played once
            played = self._played(work)
            for key, spent in played.spent.items():
                add_spent(self._spent, key, spent, times)
            for layer, sparse in played.sparse.items():
                self._sparse[layer] = self._sparse.get(layer, SparseSpent()).plus(sparse, times)
        self._pending.clear()

    def sparse_rows(self) -> list[dict[str, Any]]:
        """Return what gradients of sparse layers cost since the last `reset`, as plain data (JSON)."""
        self._settle()
        return as_rows(self._sparse)

    def rows(self) -> list[dict[str, Any]]:
        """Return what was spent since the last `reset`, as plain data (JSON) that `load` takes back."""
        self._settle()
        names = ("layer", "role", "unit", "kind")
        return [dict(zip(names, key, strict=True)) | spent._asdict() for key, spent in self._spent.items()]

    def reset(self) -> None:
        """Begin a new interval."""
        # `rows` and `sparse_rows`, which come before, have taken these into the sums that are dropped here
        self._pending.clear()
        self._spent, self._sparse = {}, {}

    @property
    def seconds(self) -> float:
        """Simulated seconds so far."""
        return self.total_ps / SECOND_PS

    # ---- checkpoints ----

    def to_dict(self) -> dict[str, Any]:
        """Return plain data (JSON) that `load` reads back."""
        return {
            "total_ps": self.total_ps,
            "by_phase": dict(self.by_phase),
            "traced": dict(self._traced),
            # the interval in progress, with everything that was pending
            "spent": self.rows(),
            "sparse": self.sparse_rows(),
            "events": [_plain(event) for event in self.events],
        }

    def load(self, data: Mapping[str, Any]) -> None:
        """Take what `to_dict` returned."""
        self.total_ps = data["total_ps"]
        self.by_phase, self._traced = Counter(data["by_phase"]), Counter(data["traced"])
        self.events = [Event(*event) for event in data["events"]]
        self._spent = {
            (row["layer"], row["role"], row["unit"], row["kind"]): Spent(*(row[name] for name in Spent._fields))
            for row in data["spent"]
        }
        self._pending = Counter()
        self._sparse = of_rows(data.get("sparse", ()))
        self.demands.clear()


def add_spent(spent: dict[SpentKey, Spent], key: SpentKey, more: Spent, times: int = 1) -> None:
    """Add `times` times `more` to what `key` has spent."""
    spent[key] = spent.get(key, Spent()).plus(more, times)


def add_uses(spent: dict[SpentKey, Spent], uses: Iterable[Use]) -> None:
    """Add what some uses of units and links take."""
    for use in uses:
        key = (use.layer, use.role, use.unit, use.kind)
        add_spent(spent, key, Spent(1, use.cycles, use.duration_ps, use.operations, use.bytes))


def _plain(event: Event) -> list[Any]:
    """Return an event as plain data (JSON), with the node if it is not the first: older checkpoints have no node."""
    return [*event[:5], dict(event.details), *([event.node] if event.node else [])]
