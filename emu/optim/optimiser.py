"""The protocol of optimisers: state beside a parameter, and one step of it through the datapath."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from emu.autodiff import Operation, Runner, Value
from emu.backends.arrays import namespace
from emu.formats import PRESETS, Format

Array = NDArray[Any]
FP32 = PRESETS["fp32"]


@dataclass
class ParameterState:
    """A parameter between two steps.

    Attributes:
        layer: layer of the parameter.
        part: "weight" or "bias".
        master: high-precision copy.
        slots: arrays that the optimiser keeps beside it, by name.
        by_rows: whether its gradients may have only some of its rows.
        is_table: whether it is never multiplied as a matrix: its rows are looked up or added, or its elements are
            factors of others.
    """

    layer: str
    part: str
    master: Value
    slots: dict[str, Value] = field(default_factory=dict[str, Value])
    by_rows: bool = False
    is_table: bool = False

    @property
    def name(self) -> str:
        """Name in checkpoints and hashes: `layer.part`."""
        return f"{self.layer}.{self.part}"

    @property
    def is_matrix(self) -> bool:
        """Whether its layer multiplies by it: a weight of two or more axes.

        The first axis is the outputs'; that of weights `by_rows` and of transposed convolutions is the inputs'.
        """
        return self.part == "weight" and len(self.master.shape) > 1 and not self.is_table

    def rows(self, chosen: Any) -> ParameterState:
        """Return a copy of the rows whose numbers are `chosen`: an optimiser moves them, and `put` writes them back."""

        def copied(value: Value) -> Value:
            return value.with_array(value.array[namespace(value.array).asarray(chosen)])

        slots = {slot: copied(value) for slot, value in self.slots.items()}
        return replace(self, master=copied(self.master), slots=slots)

    def put(self, chosen: Any, moved: ParameterState) -> None:
        """Write back the rows that `rows` returned, once they have moved; no other row is read or written."""
        self.master = _written(self.master, chosen, moved.master)
        for slot, value in moved.slots.items():
            self.slots[slot] = _written(self.slots[slot], chosen, value)


def _written(whole: Value, chosen: Any, rows: Value) -> Value:
    """Return `whole` with new rows, on the device where they were computed; in place if the array may be written."""
    xp = namespace(rows.array)
    array = xp.asarray(whole.array)
    # a read-only array may be shared with another owner; arrays of CuPy have no such flag
    if array is whole.array and not getattr(array.flags, "writeable", True):
        array = array.copy()
    array[xp.asarray(chosen)] = rows.array
    return whole.with_array(array)


class Optimiser(Protocol):
    """Moves parameters along their gradients."""

    def require(self, states: Sequence[ParameterState]) -> None:
        """Raise ConfigError if the optimiser cannot move these parameters, those of a whole network."""

    def start(self, state: ParameterState, format_of: Callable[[str], Format]) -> None:
        """Create the optimiser's own arrays for a parameter.

        Args:
            state: the parameter.
            format_of: format of a role in its layer.
        """
        ...

    @property
    def slot_powers(self) -> Mapping[str, int]:
        """The power of the gradient that each slot of any parameter holds: 1 for a mean, 2 for a mean of squares."""
        ...

    @property
    def is_still(self) -> bool:
        """Whether an element whose gradient is 0 stays as it is."""
        ...

    def roles(self, state: ParameterState) -> frozenset[str]:
        """Return the roles that a step of a parameter may write, besides `update` and `master`."""
        ...

    def apply(
        self, state: ParameterState, gradient: Value, rate: float, step: int, runner: Runner, scale: float = 1.0
    ) -> None:
        """Move a parameter one step.

        Args:
            state: the parameter; its master and slots are replaced.
            gradient: of the parameter's shape, times `scale`.
            rate: learning rate of this step.
            step: number of steps before this one.
            runner: the datapath.
            scale: S, the factor in gradient and slots; the parameter moves as if it were 1.
        """
        ...


class UpdateRunner:
    """Runs the operations that update one parameter, in a role of its layer."""

    def __init__(self, runner: Runner, state: ParameterState) -> None:
        self.runner, self.state = runner, state

    def run(self, name: str, role: str, *operands: Value, step: str = "") -> Value:
        """Run an operation; `step` names it if its role has several, so that each has its own random numbers."""
        state = self.state
        return self.runner.run(Operation(name, operands, part=f"{state.part}{step}"), role, state.layer)


def move_master(parameter: UpdateRunner, update: Value, rate: float, weight_decay: float) -> None:
    """Add an update to a parameter's master, less the share of the master that decays apart from the gradient.

    Args:
        parameter: runs the operations; its state's master is replaced.
        update: what the gradient gives, in role `update`.
        rate: learning rate of this step.
        weight_decay: lambda, times rate and parameter; 0 for none.
    """
    state = parameter.state
    if weight_decay:
        decay = scalar(-rate * weight_decay)
        update = parameter.run("fma", "update", state.master, decay, update, step=".decay")
    state.master = parameter.run("add", "master", state.master, update)


def rescale(state: ParameterState, powers: Mapping[str, int], ratio: float, runner: Runner) -> None:
    """Change a parameter's slots to the values that they would have if all gradients had been `ratio` times as large.

    Args:
        state: the parameter; its slots are replaced.
        powers: see `Optimiser.slot_powers`.
        ratio: the new scale over the one they carry.
        runner: the datapath; the slots keep their formats.
    """
    for slot in list(state.slots):
        # momentum has a role of its own; all other slots are moments (`emu.precision.policy`)
        role = "momentum" if slot == "momentum" else "moment"
        # a mean of squares grows with the square of the scale
        factor = scalar(ratio ** powers[slot])
        state.slots[slot] = UpdateRunner(runner, state).run(
            "multiply", role, state.slots[slot], factor, step=f".{slot} scale"
        )


def scalar(number: float) -> Value:
    """Return a constant of the optimiser rounded to float32, as hardware stores it."""
    # without axes it broadcasts to any operand; an array, which kernels take as it is
    return Value(np.array(number, np.float32), FP32)


def constant(number: float) -> Value:
    """Return a constant that is not rounded: float32 if that is exact, else float64."""
    if abs(number) <= FP32.max:  # NumPy warns of larger ones
        single = scalar(number)
        if float(single.array) == number:
            return single
    return Value(np.float64(number), PRESETS["fp64"])


def zeros(state: ParameterState, fmt: Format) -> Value:
    """Return zeros of the parameter's shape, on the host: the first step brings them to a device."""
    return Value(np.zeros(state.master.shape, fmt.carrier), fmt)
