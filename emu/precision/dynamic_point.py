"""Dynamic fixed point at work: every tensor's point from the leading bits of its results.

    pre-training    run at n1, counted ──► n2 from the counts ──► |n2 - n1| > threshold: run again, written at n2
                    the next run begins at n2, whether this one was repeated or not
    main training   run at n, counted; every `interval` steps each point is set from the counts of the interval

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
from emu.precision.delayed_scales import DelayedScales
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
        point: fraction bits from this event on.
        redone: whether the operation ran again for it.
    """

    step: int
    tensor: Tensor
    point: int
    redone: bool


class Points:
    """The state of dynamic fixed point, as checkpoints hold it.

    Attributes:
        table: rule and schedule.
        of: fraction bits by tensor; a tensor is missing until it is written.
        redos: operations that ran again, on any node.
        runs: runs of operations in pre-training, repeated ones included.
        agreement: how nodes that train together decide; a node alone decides by itself.
        is_frozen: whether operations of pre-training leave points as they are.
    """

    def __init__(self, table: DynamicPoint, policy: Policy) -> None:
        self.table, self._policy = table, policy
        self.agreement, self.is_frozen = Agreement(), False
        self.of: dict[Tensor, int] = {}
        self.redos = self.runs = 0
        self._events: list[PointEvent] = []
        # registers of the interval in progress, which `set_all` empties
        self._window: dict[Tensor, StatisticsRegister] = {}

    def at(self, tensor: Tensor, word: DynamicFixed) -> int:
        """Return a tensor's point: half of the word before the tensor is written for the first time."""
        # half before the binary point, half behind it: nothing is known yet
        return self.of.get(tensor, word.width_bits // 2)

    def wanted(self, register: StatisticsRegister, word: DynamicFixed, point: int) -> int:
        """Return the point that follows from a register whose counts stop at the largest of the hardware's counters."""
        return next_point(register.saturated(self._policy.table.register.counter_bits), word, point, self.table)

    def move(self, tensor: Tensor, point: int, step: int, *, redone: bool = False) -> None:
        """Set a tensor's point, and note an event if it is another one or an operation ran again."""
        # a run that was repeated is an event even if the point came back to where it was
        if redone or self.of.get(tensor) != point:
            self._events.append(PointEvent(step, tensor, point, redone))
        self.of[tensor] = point

    def note(self, tensor: Tensor, register: StatisticsRegister) -> None:
        """Add the counts of a tensor's register to those of its interval."""
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
        """Return whether all points are to be set after `steps` steps.

        That is the case after each interval of main training, and at the end of pre-training in float32.
        """
        done = steps - self.table.pretraining_steps
        begins = done == 0 and self.table.schedule == "float_pretraining"
        return begins or (done > 0 and done % self.table.interval == 0)

    def set_all(self, step: int) -> list[Tensor]:
        """Set each point from the counts of its interval, and begin a new interval; return the tensors."""
        decided: list[Tensor] = []
        for tensor, register in self._window.items():
            word = self._word(tensor)
            # a tensor that was not written in the interval keeps its point
            if word is not None and register.total:
                self.move(tensor, self.wanted(register, word, self.at(tensor, word)), step)
                decided.append(tensor)
            # the next interval counts from 0, whether the point moved or not
            register.reset()
        return decided

    def _word(self, tensor: Tensor) -> DynamicFixed | None:
        """Return the word of a tensor in the steps in which its point is open; None if there are none."""
        words = (policy.word(tensor.layer, tensor.role) for policy in self._policy.every())
        return next((word for word in words if word is not None), None)

    def take_events(self) -> list[PointEvent]:
        """Return the events since the last call, and remove them."""
        events, self._events = self._events, []
        return events

    def to_dict(self) -> dict[str, Any]:
        """Return plain data (JSON) that `load` reads back."""
        # empty registers are left out: a resumed run makes them again
        window = [[*tensor, register.to_dict()] for tensor, register in self._window.items() if register.total]
        points = [[*tensor, point] for tensor, point in self.of.items()]
        return {"points": points, "window": window, "redos": self.redos, "runs": self.runs}

    def load(self, data: dict[str, Any]) -> None:
        """Take what `to_dict` returned."""
        self.of = {Tensor(*names): point for *names, point in data["points"]}
        self._window = {Tensor(*names): StatisticsRegister.from_dict(counts) for *names, counts in data["window"]}
        self.redos, self.runs = data["redos"], data["runs"]
        self._events = []

    @contextmanager
    def frozen(self) -> Generator[None]:
        """Keep all points as they are inside, in pre-training too: what is written a second time moves none."""
        self.is_frozen = True
        try:
            yield
        finally:
            self.is_frozen = False

    @contextmanager
    def joined_afterwards(self, gather: Callable[[dict[str, Any]], list[dict[str, Any]]]) -> Generator[None]:
        """Count and move points in this process alone inside; at the end, join what all processes have done.

        Args:
            gather: returns what all processes give (JSON), in the order of their nodes.
        """
        # what this process adds inside is measured from here: a state of its own, joined at the end
        before, events = self.to_dict(), self._events
        self._window, self._events = {}, []
        yield
        noted = [[event.step, *event.tensor, event.point, event.redone] for event in self._events]
        states = gather(self.to_dict() | {"events": noted})
        # back to what all processes shared, then the changes of each process in the order of the nodes
        self.load(before)
        old_points, moved = dict(self.of), dict[Tensor, int]()
        for state in states:
            for *names, point in state["points"]:
                # points that a process has not moved say nothing
                if old_points.get(tensor := Tensor(*names)) != point:
                    moved.setdefault(tensor, point)  # the first node decides, as if all nodes shared a process
            for *names, register in state["window"]:
                self.note(Tensor(*names), StatisticsRegister.from_dict(register))
            self.redos += state["redos"] - before["redos"]
            self.runs += state["runs"] - before["runs"]
            for step, *names, point, redone in state["events"]:
                events.append(PointEvent(step, Tensor(*names), point, redone))
        self.of, self._events = old_points | moved, events


class DynamicPointRunner(Runner):
    """Runs operations at the points of their tensors, and moves the points.

    Attributes:
        points: the points of all tensors.
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
        scales: DelayedScales | None = None,
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
            scales: delayed scales of cast operands; None takes those of their own numbers.
            frozen_at: training step after which the points stay as they are (evaluation); None lets them move.
        """
        self.points, self.counters, self._frozen_at, self._profile = points, counters, frozen_at, profile
        self._step = 0
        options: dict[str, Any] = {"seed": seed, "backend": backend, "profile": profile, "scales": scales}
        # one runner for each way in which results are counted
        self._plain = DatapathRunner(policy, counters=counters, **options)
        # tables of one operation's runs, emptied after each (`_run_and_redo`), and of tensors, emptied by `flush`
        self._first, self._again, self._tensors = (CounterTable(policy.register) for _ in range(3))
        self._once = DatapathRunner(policy, counters=self._first, **options)
        # `again` marks demands of repeated runs in the profile
        self._twice = DatapathRunner(policy, counters=self._again, again=True, **options)
        self._counted = _PerTensor(policy, counters=self._tensors, **options)
        kind, counted = (_PerTensor, self._tensors) if self.moving else (DatapathRunner, counters)
        # float32 results of pre-training are counted by tensor, since the first points follow from them
        self._in_float = kind(policy, counters=counted, **options)
        # by the setter, which gives the float runner its own policy
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
        """Node of a cluster, part of every random number's address as well."""
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
        """Whether operations run as in pre-training."""
        return self.points.in_pretraining(self._deciding_step)

    @property
    def _deciding_step(self) -> int:
        """The training step that decides how operations run: in evaluation, the last one that was trained."""
        return self._step if self._frozen_at is None else self._frozen_at

    @override
    def run(self, operation: Operation, role: str, layer: str) -> Value:
        """Return the operation's result as the unit that writes `role` of `layer` produces it; move its point."""
        word = self._policy.word(layer, role)
        # a fixed format, or an operation that writes no number with a point
        if word is None or OPERATIONS[operation.name].only_chooses:
            return self._plain.run(operation, role, layer)
        if self.points.in_float(self._deciding_step):
            return self._in_float.run(operation, role, layer)
        if OPERATIONS[operation.name].keeps_format:
            fmt = operation.operands[0].format
            # a value that has this word already keeps its point: a selection does not round
            own = (word.width_bits, word.signed, word.sign_magnitude)
            if isinstance(fmt, Fixed) and (fmt.width_bits, fmt.signed, fmt.sign_magnitude) == own:
                return self._plain.run(operation, role, layer, fmt.frac_bits)
        tensor = self.points.agreement.key_of_point(Tensor(layer, role, operation.part), self.node)
        point = self.points.at(tensor, word)
        # evaluation, and what is written a second time in pre-training (`frozen`)
        if not self.moving or (self.points.is_frozen and self.is_pretraining):
            return self._plain.run(operation, role, layer, point)
        # noted even if nothing has moved it: `of` lists each tensor that was written
        self.points.of.setdefault(tensor, point)
        if not self.is_pretraining:
            # main training: counted by tensor until `flush`; points move between steps, in `set_all`
            return self._counted.run(operation, role, layer, point)
        return self._run_and_redo(operation, tensor, word, point)

    def _run_and_redo(self, operation: Operation, tensor: Tensor, word: DynamicFixed, point: int) -> Value:
        """Run once, and once more if the point was off; move the point."""
        table, always = self.points.table, self.points.table.schedule == "always_redo"
        first, again = (counted.of(tensor.layer, tensor.role) for counted in (self._first, self._again))
        # the second runner counts into a table of its own: only one of both flags is kept
        runners, following, agreement = iter((self._once, self._twice)), point, self.points.agreement

        def run(at: int) -> Value:
            return next(runners).run(operation, tensor.role, tensor.layer, at)

        def better(at: int, _: Value) -> int | None:
            nonlocal following
            note_decision(self._profile, tensor, together=agreement.sums_over_nodes(tensor))
            counted = agreement.total(tensor, first.register)
            # the point for the next run of this operation, whether this one is repeated or not
            following = self.points.wanted(counted, word, at)
            return following if always or abs(following - at) > table.threshold else None

        # once more at most: a second run counts the same, so a third could do no better
        settled = run_and_redo(point, run, better, most=1)
        self.points.redos += settled.redos
        self.points.runs += 1 + settled.redos
        # several nodes in one process share a point: the first has decided, the others keep it
        if agreement.may_move(tensor, self.node):
            self.points.move(tensor, following, self._step, redone=settled.redos > 0)
        assert self.counters is not None
        # the register sees results before they are rounded: both runs count the same; flags depend on the point
        flags = (again if settled.redos else first).flags
        self.counters.of(tensor.layer, tensor.role).merge(Counters(first.register, flags))
        # emptied for the next operation of this layer and role: they share these counters
        for counts in (first, again):
            counts.register.reset()
            counts.flags.reset()
        return settled.result

    def flush(self) -> None:
        """Move counts by tensor to those by layer and role, and to those of the interval."""
        if self.counters is None:
            return
        for (name, role), counts in self._tensors.items():
            if counts.register.total:
                # the name that `_PerTensor` made
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
        """Return the results of tasks; computed one after the other if each may move a point."""
        # tasks of a layer share its tables of runs, and points move in between
        return [task() for task in tasks] if self.moving and self.is_pretraining else self._plain.together(tasks)


class _PerTensor(DatapathRunner):
    """Counts by tensor: each part of a role, and each node, has counters of its own."""

    @override
    def _counted_as(self, layer: str, part: str) -> str:
        return f"{layer}\n{part}\n{self.node}"


def note_decision(profile: Profile | None, tensor: Tensor, *, together: bool) -> None:
    """Note in a profile that a point is chosen from a register, or from the sum of several nodes' registers."""
    if profile is not None and profile.demands is not None:
        decision = JOINT_DECISION if together else DECISION
        profile.demands.append(Demand(tensor.layer, tensor.role, decision, 0, 0, 0, (), None))


@lru_cache(maxsize=64)
def _in_full(policy: Policy) -> Policy:
    """Return the policy of pre-training in float32."""
    table = policy.table
    # behind all other tables: of several that match, the last is valid
    full = (*table.layers, LayerTables(match="*", full=True))
    return Policy(table.model_copy(update={"layers": full}))


def make_runner(policy: Policy, points: Points | None, **options: Any) -> DatapathRunner | DynamicPointRunner:
    """Return the runner of a policy; it moves points if there are any.

    Args:
        policy: formats of everything.
        points: points of its tensors; None if no format leaves its point open.
        **options: keyword arguments of the runner; `frozen_at` is ignored without points.
    """
    if points is not None:
        return DynamicPointRunner(policy, points, **options)
    options.pop("frozen_at", None)
    return DatapathRunner(policy, **options)
