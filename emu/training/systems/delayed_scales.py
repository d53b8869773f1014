"""Delayed scaling in a training run: `emu.precision.delayed_scales`."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from emu.precision.delayed_scales import DelayedScales
from emu.training.systems.system import AskTimes, Attempt, System
from emu.training.workbench import Workbench
from emu.training.workbench.model import Pass


class DelayedScaling(System):
    """Scales of cast operands that follow from earlier steps."""

    key = "delayed_scaling"

    def __init__(self, bench: Workbench) -> None:
        """Give the model its scales, if the device delays any."""
        self._scales, self._ranks = None, bench.ranks
        if bench.device.has_delayed_scales:
            self._scales = bench.model.scales = DelayedScales()

    @override
    def around(self, attempt: Attempt, step: int, *, repeated: bool) -> Attempt:
        """Note the largest magnitudes of the last pass of a step alone."""
        scales = self._scales
        if scales is None:
            return attempt

        def noted(scale: float) -> Pass:
            # a pass that runs again casts anew: what the first pass noted must not count
            scales.begin_pass()
            return attempt(scale)

        return noted

    @override
    def end_step(self, steps: int, phase: str, times: AskTimes) -> None:
        """Choose the scales of the next step."""
        if self._scales is not None:
            # the largest magnitudes of all processes: scales stay equal on all ranks
            self._scales.end_step(self._ranks.every)

    @override
    def to_dict(self) -> Any:
        """Return the largest magnitudes of earlier steps; None without delayed scales."""
        return None if self._scales is None else self._scales.to_dict()

    @override
    def load(self, data: Any) -> None:
        if self._scales is not None:
            self._scales.load(data)
