"""Delayed scaling at work: the scale of each cast operand from the largest magnitudes of earlier steps.

    step t: operand cast, scale of steps before t ──► its largest magnitude noted ──► end of step: kept in a window
    scale of step t + 1: of the largest in the window, and `margin` powers of two more

Before anything is known the scale is 1. While an infinity is in the window, the scale stays as it was, and so it does
if the window holds nothing but zeros.

Source: NVIDIA TransformerEngine, recipe DelayedScaling, its algorithm "max".
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import astuple
from typing import Any, NamedTuple

from emu.datapath.cast import DelayedScaling, Magnitudes
from emu.formats import PRESETS


class OperandKey(NamedTuple):
    """An operand that is cast for one product.

    Attributes:
        layer: layer whose result the product gives.
        role: role of the result.
        part: part of the operation, which ends with the factor: `weight`, `q.activation`.
    """

    layer: str
    role: str
    part: str


class _Window:
    """The largest magnitudes of an operand in the last steps, and what was noted in this one."""

    def __init__(self, scaling: DelayedScaling) -> None:
        self.magnitudes, self.scaling = Magnitudes(), scaling
        self.steps: deque[float] = deque(maxlen=scaling.history)

    def add(self, largest: float) -> None:
        """Add a step, and choose what the scale follows from next."""
        self.steps.append(largest)
        # the algorithm "max": the largest of the whole window, not the newest
        top = max(self.steps)
        if 0 < top < math.inf:
            # bounded to binary32, in which the rule computes the scale
            self.magnitudes.assumed = min(math.ldexp(top, self.scaling.margin), PRESETS["fp32"].max)


class DelayedScales:
    """The state of delayed scaling, as checkpoints hold it."""

    def __init__(self) -> None:
        self._windows: dict[OperandKey, _Window] = {}

    def magnitudes(self, key: OperandKey, scaling: DelayedScaling) -> Magnitudes:
        """Return what the scale of an operand follows from, and where its largest magnitude is noted."""
        return self._window(key, scaling).magnitudes

    def _window(self, key: OperandKey, scaling: DelayedScaling) -> _Window:
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window(scaling)
        return window

    def begin_pass(self) -> None:
        """Forget what was noted since the step began: in an evaluation, or in a pass that is repeated."""
        for window in self._windows.values():
            # None, not 0: an operand that this step does not cast keeps its window as it is
            window.magnitudes.noted = None

    def end_step(self, every: Callable[[Any], list[Any]]) -> None:
        """Move each window on by a step.

        Args:
            every: returns what all processes that train together give (JSON).
        """
        # an operand may be known to one process only: each row has the whole key and its scaling
        noted = [[*key, *astuple(w.scaling), w.magnitudes.noted] for key, w in self._windows.items()]
        largest: dict[_Window, float] = {}
        # the same rows in the same order reach every process, so that all choose the same scales
        for process in every([row for row in noted if row[-1] is not None]):
            for *names, history, margin, top in process:
                # made here if only another process has cast the operand
                window = self._window(OperandKey(*names), DelayedScaling(history, margin))
                largest[window] = max(top, largest.get(window, 0.0))
        for window, top in largest.items():
            window.add(top)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data (JSON) that `load` reads back."""
        rows = [[*key, *astuple(w.scaling), w.magnitudes.assumed, list(w.steps)] for key, w in self._windows.items()]
        return {"windows": rows}

    def load(self, data: dict[str, Any]) -> None:
        """Take what `to_dict` returned."""
        self._windows = {}
        for *names, history, margin, assumed, steps in data["windows"]:
            window = self._window(OperandKey(*names), DelayedScaling(history, margin))
            window.magnitudes.assumed = assumed
            window.steps.extend(steps)
