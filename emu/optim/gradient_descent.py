"""Gradient descent, with momentum and weight decay.

d = gradient + S * decay * master   (if decay > 0)      role momentum
m = momentum * m + d                (if momentum > 0)   role momentum
                                    without decay d is the gradient, without momentum m is d
update = -rate / S * m                                  role update
master = master + update                                role master

S is the scale that the gradient carries, 1 without loss scaling. -rate / S is rounded to float32 once. Where S is so
large that it lies below 2**-126, it is subnormal and has fewer than 24 bits, and the update is less exact: with a rate
of 0.01 from S = 2**120 on, and with the largest S, 2**126, it has 17 bits. Below 2**-150 it is 0, and nothing moves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from typing_extensions import override

from emu.autodiff import Runner, Value
from emu.formats import Format
from emu.optim.optimiser import Optimiser, ParameterState, UpdateRunner, scalar, zeros


class GradientDescent(Optimiser):
    """SGD and momentum.

    Attributes:
        momentum: share of the previous direction; 0 for plain SGD.
        weight_decay: lambda of L2 regularisation.
    """

    def __init__(self, momentum: float = 0.0, weight_decay: float = 0.0) -> None:
        self.momentum, self.weight_decay = momentum, weight_decay

    @override
    def start(self, state: ParameterState, format_of: Callable[[str], Format]) -> None:
        """Start a parameter's previous direction at 0, if there is momentum."""
        if self.momentum:
            state.slots["momentum"] = zeros(state, format_of("momentum"))

    @property
    @override
    def slot_powers(self) -> Mapping[str, int]:
        """The previous direction grows with the gradient."""
        return {"momentum": 1} if self.momentum else {}

    @property
    @override
    def is_still(self) -> bool:
        """True without momentum and decay."""
        return not self.momentum and not self.weight_decay

    @override
    def roles(self, state: ParameterState) -> frozenset[str]:
        return frozenset(("momentum",)) if self.momentum or self.weight_decay else frozenset()

    @override
    def apply(
        self, state: ParameterState, gradient: Value, rate: float, step: int, runner: Runner, scale: float = 1.0
    ) -> None:
        parameter, direction = UpdateRunner(runner, state), gradient
        if self.weight_decay:
            decay = scalar(self.weight_decay * scale)
            # S * decay: the gradient carries S, and what is added to it must
            direction = parameter.run("fma", "momentum", state.master, decay, gradient, step=".decay")
        if self.momentum:
            direction = parameter.run("fma", "momentum", state.slots["momentum"], scalar(self.momentum), direction)
            state.slots["momentum"] = direction
        # S is taken out here, in the one product that makes the update: slots keep it
        update = parameter.run("multiply", "update", direction, scalar(-rate / scale))
        state.master = parameter.run("add", "master", state.master, update)
