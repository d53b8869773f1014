"""AdaGrad and Adam: steps divided by the size of past gradients.

AdaGrad                                             role
    s = s + g * g                                   moment
    direction = g / (sqrt(s) + S * eps)             moment
    update = -rate * direction                      update

Adam, t = 1 for the first step
    m = beta1 * m + (1 - beta1) * g                 moment
    v = beta2 * v + (1 - beta2) * g * g             moment
    direction = m / (sqrt(v) / sqrt(1 - beta2**t) + S * eps)             moment
    update = -rate / (1 - beta1**t) * direction                          update
    update = update - rate * decay * master         (if decay > 0)       update

and master = master + update, role master. The host computes and keeps moments in the format of the `loss` role. Each
product is rounded once; a product that is added is one fused multiply-add. AdaGrad adds S * decay * master to g, as
gradient descent does; Adam's decay does not pass through g. S is the scale that gradients and moments carry, 1 without
loss scaling. It cancels in directions.

Sources: Duchi, Hazan & Singer, JMLR 12 (2011); Kingma & Ba, ICLR 2015; Loshchilov & Hutter, ICLR 2019.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from typing_extensions import override

from emu.autodiff import Runner, Value
from emu.errors import ConfigError
from emu.formats import Format
from emu.formats.integers import as_integer
from emu.optim.optimiser import Optimiser, ParameterState, UpdateRunner, move_master, scalar, zeros

MOMENT = "moment"


class AdaGrad(Optimiser):
    """Gradients divided by the root of the sum of their squares.

    Attributes:
        eps: added to the root.
        weight_decay: lambda of L2 regularisation.
    """

    def __init__(self, eps: float = 1e-8, weight_decay: float = 0.0) -> None:
        self.eps, self.weight_decay = eps, weight_decay

    @override
    def start(self, state: ParameterState, format_of: Callable[[str], Format]) -> None:
        """Start a parameter's sum of squares at 0."""
        state.slots["squares"] = zeros(state, format_of(MOMENT))

    @property
    @override
    def slot_powers(self) -> Mapping[str, int]:
        """The sum holds squares of gradients."""
        return {"squares": 2}

    @property
    @override
    def is_still(self) -> bool:
        """True without decay: a step is the gradient, 0, over a root of past squares."""
        return not self.weight_decay

    @override
    def roles(self, state: ParameterState) -> frozenset[str]:
        return frozenset((MOMENT,))

    @override
    def apply(
        self, state: ParameterState, gradient: Value, rate: float, step: int, runner: Runner, scale: float = 1.0
    ) -> None:
        parameter = UpdateRunner(runner, state)
        if self.weight_decay:
            # the gradient is S times as large as without loss scaling, so what is added to it is, too
            decay = scalar(self.weight_decay * scale)
            gradient = parameter.run("fma", MOMENT, state.master, decay, gradient, step=".decay")
        state.slots["squares"] = parameter.run(
            "fma", MOMENT, gradient, gradient, state.slots["squares"], step=".squares"
        )
        root = parameter.run("sqrt", MOMENT, state.slots["squares"], step=".root")
        # the root carries S as the gradients do: eps is scaled with them, and S cancels in the quotient
        size = parameter.run("add", MOMENT, root, scalar(self.eps * scale), step=".size")
        direction = parameter.run("divide", MOMENT, gradient, size, step=".direction")
        update = parameter.run("multiply", "update", direction, scalar(-rate))
        state.master = parameter.run("add", "master", state.master, update)


class Adam(Optimiser):
    """Running means of gradients, divided by the root of those of their squares.

    Attributes:
        beta1: share of the previous mean.
        beta2: share of the previous mean of squares.
        eps: added to the root.
        weight_decay: lambda, times rate and parameter, apart from the gradient.

    Raises:
        ConfigError: `beta1` or `beta2` is not in 0..1, 1 left out.
    """

    def __init__(self, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8, weight_decay: float = 0.0) -> None:
        for name, share in (("beta1", beta1), ("beta2", beta2)):
            # steps divide by 1 less its powers; NaN is refused, too
            if not 0 <= share < 1:
                raise ConfigError(
                    f"`{name}` of optimiser 'adam' must be at least 0 and below 1, got {share}; choose one such as 0.9"
                )
        self.beta1, self.beta2, self.eps, self.weight_decay = beta1, beta2, eps, weight_decay

    @override
    def start(self, state: ParameterState, format_of: Callable[[str], Format]) -> None:
        """Start both means of a parameter at 0."""
        for slot in ("mean", "squares"):
            state.slots[slot] = zeros(state, format_of(MOMENT))

    @property
    @override
    def slot_powers(self) -> Mapping[str, int]:
        """One mean holds gradients, the other their squares."""
        return {"mean": 1, "squares": 2}

    @property
    @override
    def is_still(self) -> bool:
        """False: the mean of past gradients moves an element whose gradient is 0."""
        return False

    @override
    def roles(self, state: ParameterState) -> frozenset[str]:
        return frozenset((MOMENT,))

    @override
    def apply(
        self, state: ParameterState, gradient: Value, rate: float, step: int, runner: Runner, scale: float = 1.0
    ) -> None:
        step = as_integer("step", step, 0)
        parameter, slots = UpdateRunner(runner, state), state.slots
        share = parameter.run("multiply", MOMENT, gradient, scalar(1 - self.beta1), step=".share")
        slots["mean"] = parameter.run("fma", MOMENT, slots["mean"], scalar(self.beta1), share, step=".mean")
        # the share of the new square is rounded; the old mean times beta is added to it in one fused multiply-add
        square = parameter.run("multiply", MOMENT, gradient, gradient, step=".square")
        part = parameter.run("multiply", MOMENT, square, scalar(1 - self.beta2), step=".square share")
        slots["squares"] = parameter.run("fma", MOMENT, slots["squares"], scalar(self.beta2), part, step=".squares")
        root = parameter.run("sqrt", MOMENT, slots["squares"], step=".root")
        # the bias is corrected here and not in v: the slot stays the running mean
        # sqrt(v / (1 - beta2**t)) = sqrt(v) / sqrt(1 - beta2**t): a factor of the root, in float64
        widened = 1 / math.sqrt(1 - power(self.beta2, step + 1))
        size = parameter.run("fma", MOMENT, root, scalar(widened), scalar(self.eps * scale), step=".size")
        direction = parameter.run("divide", MOMENT, slots["mean"], size, step=".direction")
        # the bias of m, 1 - beta1**t, is corrected by the rate: one multiplication for both
        update = parameter.run("multiply", "update", direction, scalar(-rate / (1 - power(self.beta1, step + 1))))
        move_master(parameter, update, rate, self.weight_decay)


def power(base: float, exponent: int) -> float:
    """Return a power by the same float64 multiplications on every machine: squares, from the lowest bit up.

    The `pow` of C libraries is not correctly rounded, so its bits differ between machines.

    Raises:
        FormatError: `exponent` is not an integer from 0 on.

    Examples:
        >>> power(0.5, 10) == 2.0**-10
        True
    """
    result, exponent = 1.0, as_integer("exponent", exponent, 0)
    # square and multiply: `base` is the given one to the power 2**i
    while exponent:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result
