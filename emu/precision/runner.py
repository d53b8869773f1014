"""The runner of a static policy.

Every operation goes through the engine with its role's output stage, unit, register and stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from typing_extensions import override

from emu.autodiff import Operation, Runner, Value
from emu.backends.registry import load
from emu.datapath import stream_of
from emu.operations import OPERATIONS
from emu.precision.casting import CAST, with_casts
from emu.precision.counters import CounterTable
from emu.precision.delayed_scales import DelayedScales, OperandKey
from emu.precision.layer_role import LayerRole
from emu.precision.policy import Policy
from emu.precision.profile import Profile
from emu.sparse.value import MadeSparse


class DatapathRunner(Runner):
    """Runs operations on the datapath that a policy describes.

    Attributes:
        policy: formats, rounding, units; may be exchanged between steps.
        counters: registers and flags; None observes nothing (evaluation).
        profile: where the time goes; None measures nothing.
        scales: delayed scales of cast operands; None takes those of their own numbers.
        step: training step, part of every random number's address.
        node: node of a cluster, part of the address, too.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        seed: int = 0,
        backend: str = "auto",
        counters: CounterTable | None = None,
        profile: Profile | None = None,
        scales: DelayedScales | None = None,
        again: bool = False,
    ) -> None:
        self.policy, self.counters, self.profile, self._again = policy, counters, profile, again
        self.scales = scales
        self.seed, self.backend, self.step, self.node = seed, backend, 0, 0
        self._roles: dict[tuple[Policy, str, str, str, bool, int, int], LayerRole] = {}

    def flush(self) -> None:
        """Do nothing: every count is in `counters` at once; `DynamicPointRunner` keeps some back."""

    @override
    def run(self, operation: Operation, role: str, layer: str, point: int = 0) -> Value:
        """Return the operation's result as the unit that writes `role` of `layer` produces it.

        `point` is how many fraction bits the result has if its format leaves them open.
        """
        operation = with_casts(self, self.policy, operation, role, layer)
        row = OPERATIONS[operation.name]
        # units, registers and streams follow from these alone; options and operands do not change them
        key = (self.policy, layer, role, operation.part, row.is_observed, point, self.node)
        layer_role = self._roles.get(key)
        if layer_role is None:
            layer_role = self._role(layer, role, operation.part, observed=row.is_observed, point=point)
            self._roles[key] = layer_role
        # the only part of its addresses that changes while a role is kept
        layer_role.step = self.step
        if operation.name == CAST:
            self._prepare_cast(layer_role, operation, role, layer)
        profile = self.profile
        if profile is None:
            return row.datapath(layer_role, *operation.operands, **operation.options)
        # counted by `on_host` while the operation runs
        layer_role.passes, began = 0, profile.clock()
        value = row.datapath(layer_role, *operation.operands, **operation.options)
        profile.add(layer, role, operation, profile.clock() - began, value, layer_role.passes, again=self._again)
        return value

    def _prepare_cast(self, layer_role: LayerRole, operation: Operation, role: str, layer: str) -> None:
        """Say where a cast's counts go, and what its scale follows from if it is delayed."""
        if self.counters is not None:
            # the part ends with the factor, as `with_casts` made it
            layer_role.scales = self.counters.scales_of(layer, role, operation.part.rpartition(".")[2])
        scaling = operation.options["cast"].scaling
        if self.scales is not None and scaling is not None:
            layer_role.magnitudes = self.scales.magnitudes(OperandKey(layer, role, operation.part), scaling)

    @override
    def place(self, array: Any) -> Any:
        return load(self.backend).place(array)

    @override
    def together(self, tasks: Sequence[Callable[[], Value]]) -> list[Value]:
        """Return the results of independent tasks, computed side by side if the backend can."""
        return load(self.backend).together(tasks)

    def _role(self, layer: str, role: str, part: str, *, observed: bool, point: int) -> LayerRole:
        # parts of a role have streams of their own: bias and weight round independently
        name = f"{layer}.{part}" if part else layer
        counters = self.counters if observed else None
        node = self.node

        def stream_number(intermediate: str) -> int:
            return stream_of(f"{name}.{intermediate}" if intermediate else name, role, node)

        log = None if self.profile is None else self.profile.log
        address = (self.backend, self.seed, stream_number)
        return LayerRole(self.policy, layer, role, *address, counters, log, point, self._counted_as(layer, part))

    def _counted_as(self, layer: str, part: str) -> str:
        """Return the name under which a result is counted."""
        return layer


class RecordingRunner(Runner):
    """Runs operations on another runner and keeps each result that is written.

    Attributes:
        results: (layer, role, part) -> arrays in the order they were written.
    """

    def __init__(self, inner: Runner) -> None:
        self.inner = inner
        self.results: dict[tuple[str, str, str], list[Any]] = {}

    @override
    def run(self, operation: Operation, role: str, layer: str) -> Value:
        value = self.inner.run(operation, role, layer)
        if not isinstance(value, MadeSparse):  # it has an operand's numbers, and how many depends on the arithmetic
            self.results.setdefault((layer, role, operation.part), []).append(value.array)
        return value

    @override
    def place(self, array: Any) -> Any:
        return self.inner.place(array)

    @override
    def together(self, tasks: Sequence[Callable[[], Value]]) -> list[Value]:
        return self.inner.together(tasks)
