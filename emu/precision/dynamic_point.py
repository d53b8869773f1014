"""Dynamic fixed point at work: every tensor's point from the leading bits of its results.

    pre-training    run at n1, counted ──► n2 from the counts ──► |n2 - n1| > threshold: run again, written at n2
                    n1 of the next time is n2, whether it ran again or not
    main training   run at n, counted; every `interval` steps each point from what was counted since the last time

A tensor is what one operation writes: a role of a layer, and a part of it if there are several (`weight` and `bias`
of the gradients). Selections (relu, pooling, rows of a table) move values and keep their point. An operation that runs
again reads the same operands and draws the same random numbers; what it counts is the same. So the register keeps
the first run's counts, and the flags are those of the run whose result is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from typing_extensions import override

from emu.autodiff import Operation, Runner, Value
from emu.datapath import StatisticsRegister
from emu.formats import DynamicFixed, Fixed
from emu.hardware import DECISION, Demand, DynamicPoint
from emu.hardware.machine import JOINT_DECISION
from emu.hardware.precision_table import LayerTables
from emu.operations import OPERATIONS
from emu.precision.agreement import Agreement, Tensor
from emu.precision.counters import Counters, CounterTable
from emu.precision.point_rules import next_point
from emu.precision.policy import Policy
from emu.precision.profile import Profile
from emu.precision.redo import run_and_redo
from emu.precision.runner import DatapathRunner


@dataclass(frozen=True)
class PointEvent:
    """A point that was moved, or an operation that ran again.

    Attributes:
        step: training step.
        tensor: tensor whose point it is.
        point: fraction bits from there on.
        redone: whether the operation ran again for it.
    """

    step: int
    tensor: Tensor
    point: int
    redone: bool


class Points:
    """The state of dynamic fixed point: what goes into checkpoints.

    Attributes:
        table: rule and schedule.
        of: fraction bits by tensor; those never written are not there.
        redos: operations that ran again, on any node.
        runs: operations that ran in pre-training, those again included.
        agreement: how nodes that train together decide; a node alone decides by itself.
        are_held: whether operations of pre-training leave points where they are.
    """

    def __init__(self, table: DynamicPoint, policy: Policy) -> None:
        self.table, self._policy = table, policy
        self.agreement, self.are_held = Agreement(), False
        self.of: dict[Tensor, int] = {}
        self.redos = self.runs = 0
        self._events: list[PointEvent] = []
        self._window: dict[Tensor, StatisticsRegister] = {}

    def at(self, tensor: Tensor, word: DynamicFixed) -> int:
        """Return a tensor's point: half of the word before anything is known."""
        return self.of.get(tensor, word.width_bits // 2)

    def wanted(self, register: StatisticsRegister, word: DynamicFixed, point: int) -> int:
        """Return the point that follows from a register, as far as the hardware's counters tell."""
        return next_point(register.saturated(self._policy.table.register.counter_bits), word, point, self.table)

    def move(self, tensor: Tensor, point: int, step: int, *, redone: bool = False) -> None:
        """Put a tensor's point there."""
        if redone or self.of.get(tensor) != point:
            self._events.append(PointEvent(step, tensor, point, redone))
        self.of[tensor] = point

    def note(self, tensor: Tensor, register: StatisticsRegister) -> None:
        """Add what a tensor's register counted since the last time its point was set."""
        if tensor not in self._window:
            self._window[tensor] = self._policy.register()
        self._window[tensor].merge(register)

    def in_pretraining(self, step: int) -> bool:
        """Return whether a training step is one of pre-training."""
        return step < self.table.pretraining_steps

    def in_float(self, step: int) -> bool:
        """Return whether a training step runs in float32, before any point is known."""
        return self.table.schedule == "float_pretraining" and self.in_pretraining(step)

    def is_due(self, steps: int) -> bool:
        """Return whether, `steps` steps being done, all points are to be set: main training, or the end of float."""
        done = steps - self.table.pretraining_steps
        begins = done == 0 and self.table.schedule == "float_pretraining"
        return begins or (done > 0 and done % self.table.interval == 0)

    def set_all(self, step: int) -> list[Tensor]:
        """Set every point from what was counted since the last time, and begin to count anew; return whose."""
        decided: list[Tensor] = []
        for tensor, register in self._window.items():
            word = self._word(tensor)
            if word is not None and register.total:
                self.move(tensor, self.wanted(register, word, self.at(tensor, word)), step)
                decided.append(tensor)
            register.reset()
        return decided

    def _word(self, tensor: Tensor) -> DynamicFixed | None:
        """Return the word of a tensor in the steps in which its point is open."""
        words = (policy.word(tensor.layer, tensor.role) for policy in self._policy.every())
        return next((word for word in words if word is not None), None)

    def take_events(self) -> list[PointEvent]:
        """Return the events since the last call, and remove them."""
        events, self._events = self._events, []
        return events

    def to_dict(self) -> dict[str, Any]:
        """Return plain data (JSON) that `load` reads back."""
        window = [[*tensor, register.to_dict()] for tensor, register in self._window.items() if register.total]
        points = [[*tensor, point] for tensor, point in self.of.items()]
        return {"points": points, "window": window, "redos": self.redos, "runs": self.runs}

    def load(self, data: dict[str, Any]) -> None:
        """Take what `to_dict` returned."""
        self.of = {Tensor(*names): point for *names, point in data["points"]}
        self._window = {Tensor(*names): StatisticsRegister.from_dict(held) for *names, held in data["window"]}
        self.redos, self.runs = data["redos"], data["runs"]
        self._events = []

    @contextmanager
    def held(self) -> Generator[None]:
        """Let operations of pre-training leave points where they are: what is written once more moves none."""
        self.are_held = True
        try:
            yield
        finally:
            self.are_held = False

    @contextmanager
    def apart(self, every: Callable[[dict[str, Any]], list[dict[str, Any]]]) -> Generator[None]:
        """At the end, join what nodes of several processes have done inside, each by itself.

        Args:
            every: returns what all processes give (JSON), that of the first node's first.
        """
        before, events = self.to_dict(), self._events
        self._window, self._events = {}, []
        yield
        noted = [[moved.step, *moved.tensor, moved.point, moved.redone] for moved in self._events]
        found = every(self.to_dict() | {"events": noted})
        self.load(before)
        held, moved = dict(self.of), dict[Tensor, int]()
        for one in found:
            for *names, point in one["points"]:
                if held.get(tensor := Tensor(*names)) != point:
                    moved.setdefault(tensor, point)
            for *names, register in one["window"]:
                self.note(Tensor(*names), StatisticsRegister.from_dict(register))
            self.redos += one["redos"] - before["redos"]
            self.runs += one["runs"] - before["runs"]
            for step, *names, point, redone in one["events"]:
                events.append(PointEvent(step, Tensor(*names), point, redone))
        self.of, self._events = held | moved, events


class DynamicPointRunner(Runner):
    """Runs operations at the points of their tensors, and moves these.

    Attributes:
        points: where they stand.
        step: training step.
    """

    def __init__(
        self,
        policy: Policy,
        points: Points,
        *,
        seed: int = 0,
        backend: str = "auto",
        counters: CounterTable | None = None,
        profile: Profile | None = None,
        frozen_at: int | None = None,
    ) -> None:
        """Take a policy whose formats leave points open.

        Args:
            policy: formats, rounding, units.
            points: points of its tensors.
            seed: key of every random number.
            backend: backend that computes.
            counters: registers and flags by layer and role; None observes nothing.
            profile: where the time goes; None measures nothing.
            frozen_at: training step after which the points stay where they are (evaluation); None lets them move.
        """
        self.points, self.counters, self._frozen_at, self._profile = points, counters, frozen_at, profile
        self._step = 0
        options: dict[str, Any] = {"seed": seed, "backend": backend, "profile": profile}
        self._plain = DatapathRunner(policy, counters=counters, **options)
        self._first, self._again, self._tensors = (CounterTable(policy.register) for _ in range(3))
        self._once = DatapathRunner(policy, counters=self._first, **options)
        self._twice = DatapathRunner(policy, counters=self._again, again=True, **options)
        self._counted = _PerTensor(policy, counters=self._tensors, **options)
        kind, counted = (_PerTensor, self._tensors) if self.moving else (DatapathRunner, counters)
        self._in_float = kind(policy, counters=counted, **options)
        self.policy = policy

    @property
    def step(self) -> int:
        """Training step, part of every random number's address."""
        return self._step

    @step.setter
    def step(self, step: int) -> None:
        self._step = step
        for runner in (self._plain, self._once, self._twice, self._counted, self._in_float):
            runner.step = step

    @property
    def node(self) -> int:
        """Node of a cluster, part of every random number's address, too."""
        return self._plain.node

    @node.setter
    def node(self, node: int) -> None:
        for runner in (self._plain, self._once, self._twice, self._counted, self._in_float):
            runner.node = node

    @property
    def policy(self) -> Policy:
        """Formats of everything; may be exchanged between steps."""
        return self._policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self._policy = policy
        for runner in (self._plain, self._once, self._twice, self._counted):
            runner.policy = policy
        self._in_float.policy = _in_full(policy)

    @property
    def moving(self) -> bool:
        """Whether points move."""
        return self._frozen_at is None and self.counters is not None

    @property
    def is_pretraining(self) -> bool:
        """Whether the training step is one of pre-training."""
        return self.points.in_pretraining(self._trained)

    @property
    def _trained(self) -> int:
        """The training step that decides how operations run."""
        return self._step if self._frozen_at is None else self._frozen_at

    @override
    def run(self, operation: Operation, role: str, layer: str) -> Value:
        """Return the operation's result as the unit that writes `role` of `layer` produces it, its point moved."""
        word = self._policy.word(layer, role)
        if word is None:
            return self._plain.run(operation, role, layer)
        if self.points.in_float(self._trained):
            return self._in_float.run(operation, role, layer)
        if OPERATIONS[operation.name].keeps_format:
            held = operation.operands[0].format
            if isinstance(held, Fixed) and (held.width_bits, held.signed) == (word.width_bits, word.signed):
                return self._plain.run(operation, role, layer, held.frac_bits)
        tensor = self.points.agreement.key_of_point(Tensor(layer, role, operation.part), self.node)
        point = self.points.at(tensor, word)
        if not self.moving or (self.points.are_held and self.is_pretraining):
            return self._plain.run(operation, role, layer, point)
        self.points.of.setdefault(tensor, point)
        if not self.is_pretraining:
            return self._counted.run(operation, role, layer, point)
        return self._settled(operation, tensor, word, point)

    def _settled(self, operation: Operation, tensor: Tensor, word: DynamicFixed, point: int) -> Value:
        """Run once, and once more where the point was off."""
        table, always = self.points.table, self.points.table.schedule == "always_redo"
        first, again = (counted.of(tensor.layer, tensor.role) for counted in (self._first, self._again))
        runners, following, agreement = iter((self._once, self._twice)), point, self.points.agreement

        def run(at: int) -> Value:
            return next(runners).run(operation, tensor.role, tensor.layer, at)

        def better(at: int, _: Value) -> int | None:
            nonlocal following
            note_decision(self._profile, tensor, together=agreement.sums_over_nodes(tensor))
            counted = agreement.total(tensor, first.register)
            following = self.points.wanted(counted, word, at)
            return following if always or abs(following - at) > table.threshold else None

        settled = run_and_redo(point, run, better, most=1)
        self.points.redos += settled.redos
        self.points.runs += 1 + settled.redos
        if agreement.may_move(tensor, self.node):
            self.points.move(tensor, following, self._step, redone=settled.redos > 0)
        assert self.counters is not None
        stands = again if settled.redos else first
        self.counters.of(tensor.layer, tensor.role).merge(Counters(first.register, stands.flags))
        for counts in (first, again):
            counts.register.reset()
            counts.flags.reset()
        return settled.result

    def flush(self) -> None:
        """Move counts by tensor to those by layer and role, and to what the next setting reads."""
        if self.counters is None:
            return
        for (name, role), counts in self._tensors.items():
            if counts.register.total:
                layer, part, node = name.split("\n")
                tensor = self.points.agreement.key_of_point(Tensor(layer, role, part), int(node))
                self.points.note(tensor, counts.register)
                self.counters.of(layer, role).merge(counts)
                counts.register.reset()
                counts.flags.reset()

    @override
    def place(self, array: Any) -> Any:
        return self._plain.place(array)

    @override
    def together(self, tasks: Sequence[Callable[[], Value]]) -> list[Value]:
        """Return the results of tasks; one after the other where each may move a point."""
        return [task() for task in tasks] if self.moving and self.is_pretraining else self._plain.together(tasks)


class _PerTensor(DatapathRunner):
    """Counts by tensor: parts of a role, and nodes, apart."""

    @override
    def _counted_as(self, layer: str, part: str) -> str:
        return f"{layer}\n{part}\n{self.node}"


def note_decision(profile: Profile | None, tensor: Tensor, *, together: bool) -> None:
    """Write down that a register is read, or those of several nodes together, and a point chosen from it."""
    if profile is not None and profile.demands is not None:
        what = JOINT_DECISION if together else DECISION
        profile.demands.append(Demand(tensor.layer, tensor.role, what, 0, 0, 0, (), None))


@lru_cache(maxsize=64)
def _in_full(policy: Policy) -> Policy:
    """Return the policy of pre-training in float32."""
    table = policy.table
    full = (*table.layers, LayerTables(match="*", full=True))
    return Policy(table.model_copy(update={"layers": full}))


def make_runner(policy: Policy, points: Points | None, **options: Any) -> DatapathRunner | DynamicPointRunner:
    """Return the runner of a policy: one that moves points, if there are any.

    Args:
        policy: formats of everything.
        points: points of its tensors; None where no format leaves its point open.
        **options: of both runners; `frozen_at` is of the second alone.
    """
    if points is not None:
        return DynamicPointRunner(policy, points, **options)
    options.pop("frozen_at", None)
    return DatapathRunner(policy, **options)
