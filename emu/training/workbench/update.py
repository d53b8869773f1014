"""One update of all parameters: the loss scale taken out, gradients clipped, the optimiser.

    compensation        gradient g, which arrives as gS    clip threshold c   weight decay         learning rate
    ["gradient"]        gS / S                             c                  lambda               rate
    any other           gS as it is                        S * c              S * lambda           rate / S

Both are the same update, and in float32 the same bits, unless something over- or underflows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from emu.autodiff import Operation, RowsValue, Runner, Value
from emu.optim import Optimiser, ParameterState, clip_by_norm, rescale, scalar
from emu.precision.loss_scaling import LossScaling, NoScaling
from emu.training.recipe import Recipe


def leaves_gradients(scaling: LossScaling) -> bool:
    """Return whether S is divided out of the gradients; if not, it is divided out of the learning rate."""
    return "gradient" in scaling.compensation


def gradient_role(scaling: LossScaling) -> str:
    """Return the role of gradients that leave a pass: `unscaled` once S is divided out of them."""
    return "unscaled" if leaves_gradients(scaling) and not isinstance(scaling, NoScaling) else "gradient"


class Update:
    """Applies gradients that carry a scale.

    Attributes:
        optimiser: moves parameters.
        in_gradient: whether the scale is divided out of the gradients; if not, out of the learning rate.
        clip_norm: threshold of the norm; None clips nothing.
        applied: number of updates so far.
        slot_scale: S by which gradients in the optimiser's slots are multiplied.
    """

    def __init__(self, optimiser: Optimiser, compensation: Sequence[str], clip_norm: float | None) -> None:
        self.optimiser, self.clip_norm = optimiser, clip_norm
        self.in_gradient = "gradient" in compensation
        self.applied, self.slot_scale = 0, 1.0

    @classmethod
    def of(cls, recipe: Recipe, optimiser: Optimiser) -> Update:
        """Return the update of a recipe."""
        return cls(optimiser, recipe.loss_scaling.compensation, recipe.training.clip_norm)

    def apply(
        self, states: list[ParameterState], gradients: dict[str, Value], rate: float, scale: float, runner: Runner
    ) -> None:
        """Move every parameter.

        Args:
            states: parameters; masters and slots are replaced.
            gradients: gradients by name, multiplied by `scale`.
            rate: learning rate.
            scale: S.
            runner: the datapath.
        """
        if self.in_gradient:
            # at S = 1 nothing is taken out, and the gradient keeps its bits
            if scale != 1:
                gradients = {state.name: unscaled(state, gradients[state.name], scale, runner) for state in states}
            scale = 1.0
        elif scale != self.slot_scale:  # new gradients carry another S than the slots: these are rescaled
            for state in states:
                rescale(state, self.optimiser.slot_powers, scale / self.slot_scale, runner)
            self.slot_scale = scale
        if self.clip_norm is not None:
            # one norm over all parameters, so clipping comes before the first of them moves
            gradients = clip_by_norm(states, gradients, self.clip_norm * scale, runner)
        for state in states:
            # `applied` counts updates, not steps: a step that is given up does not age the means of Adam
            self._move(state, gradients[state.name], rate, scale, runner)
        self.applied += 1

    def _move(self, state: ParameterState, gradient: Value, rate: float, scale: float, runner: Runner) -> None:
        """Move a parameter. If its gradient has some rows only, move only these rows."""
        if not isinstance(gradient, RowsValue):
            self.optimiser.apply(state, gradient, rate, self.applied, runner, scale)
            return
        rows = state.rows(gradient.rows)
        self.optimiser.apply(rows, Value(gradient.array, gradient.format), rate, self.applied, runner, scale)
        state.put(gradient.rows, rows)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data (JSON) that `load` reads back."""
        return {"applied": self.applied, "slot_scale": self.slot_scale}

    def load(self, data: dict[str, Any]) -> None:
        """Take what `to_dict` returned."""
        self.applied, self.slot_scale = data["applied"], data["slot_scale"]


def unscaled(state: ParameterState, gradient: Value, scale: float, runner: Runner) -> Value:
    """Return a gradient with its scale taken out, as role `unscaled` holds it."""
    # a power of two has the significand 0.5 in frexp, and an exact reciprocal: multiplying gives the same bits as
    # dividing, and a multiplier is what hardware has
    exact = math.frexp(scale)[0] == 0.5
    operands = (gradient, scalar(1 / scale) if exact else scalar(scale))
    operation = Operation("multiply" if exact else "divide", operands, part=state.part)
    return gradient.holding(runner.run(operation, "unscaled", state.layer))
