"""Gradient descent, with momentum and weight decay.

d = gradient + decay * master       (if decay > 0)      role momentum
m = momentum * m + d                (if momentum > 0)   role momentum
update = -rate * m                                      role update
master = master + update                                role master
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.autodiff import Operation, Runner, Value
from emu.formats import PRESETS

Array = NDArray[Any]
FP32 = PRESETS["fp32"]


@dataclass
class ParameterState:
    """A parameter between two steps.

    Attributes:
        layer: the layer it belongs to.
        part: "weight" or "bias".
        master: high-precision copy.
        slots: what the optimiser keeps beside it, by name.
    """

    layer: str
    part: str
    master: Value
    slots: dict[str, Value] = field(default_factory=dict[str, Value])

    @property
    def name(self) -> str:
        """Name in checkpoints and hashes: `layer.part`."""
        return f"{self.layer}.{self.part}"


def scalar(number: float) -> Value:
    """Return a constant of the optimiser as hardware holds it: rounded to float32."""
    return Value(np.float32(number), FP32)


class GradientDescent:
    """SGD and momentum.

    Attributes:
        momentum: share of the previous direction; 0 for plain SGD.
        weight_decay: lambda of L2 regularisation.
    """

    def __init__(self, momentum: float = 0.0, weight_decay: float = 0.0) -> None:
        self.momentum, self.weight_decay = momentum, weight_decay

    def start(self, state: ParameterState, slot_format: Any) -> None:
        """Put the optimiser's own arrays beside a parameter.

        Args:
            state: the parameter.
            slot_format: format of the `momentum` role in its layer.
        """
        if self.momentum:
            state.slots["momentum"] = Value(np.zeros(state.master.shape, slot_format.carrier), slot_format)

    def apply(self, state: ParameterState, gradient: Value, rate: float, runner: Runner) -> None:
        """Move a parameter one step along its gradient.

        Args:
            state: the parameter; its master and slots are replaced.
            gradient: of the parameter's shape.
            rate: learning rate of this step.
            runner: the datapath.
        """

        def run(name: str, role: str, *operands: Value, step: str = "") -> Value:
            return runner.run(Operation(name, operands, part=f"{state.part}{step}"), role, state.layer)

        direction = gradient
        if self.weight_decay:
            direction = run("fma", "momentum", state.master, scalar(self.weight_decay), gradient, step=".decay")
        if self.momentum:
            direction = run("fma", "momentum", state.slots["momentum"], scalar(self.momentum), direction)
            state.slots["momentum"] = direction
        update = run("multiply", "update", direction, scalar(-rate))
        state.master = run("add", "master", state.master, update)
