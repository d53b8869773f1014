"""Loss scaling in a training run: `emu.precision.loss_scaler`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from typing_extensions import override

from emu.precision.loss_scaler import LossScaler
from emu.training.systems.system import Attempt, Row, System
from emu.training.workbench import Workbench
from emu.training.workbench.model import Pass


class ScaledLoss(System):
    """Passes at the scale of a policy, repeated at a smaller scale if they overflow."""

    key = "loss_scaling"
    tables: ClassVar[Mapping[str, Mapping[str, str]]] = {
        # what happened to S: `start`, `overflow` (scale: S of the run), `repeat` (S it is repeated at), `skip` (S of
        # the run given up), `growth` and `change` (the new S)
        "loss_scaling": {
            "step": "int64",
            "event": "string",
            "scale": "float64",
        },
    }

    def __init__(self, bench: Workbench) -> None:
        """Begin with the recipe's policy. Passes that may be repeated are counted separately."""
        ranks, runners = bench.ranks, bench.runners
        self._scaler = LossScaler(
            bench.recipe.loss_scaling,
            bench.policy,
            runners.counters,
            runners.backend,
            # all ranks get the same number, and so choose the same S
            lambda largest: max(ranks.every(largest)),
        )
        self.repeats = self._scaler.is_active
        # before the first runner of passes is made; counts of a repeated pass are dropped there
        runners.pass_counters = self._scaler.counters

    @property
    @override
    def scale(self) -> float:
        """S of the next pass."""
        return self._scaler.scale

    @override
    def around(self, attempt: Attempt, step: int, *, repeated: bool) -> Attempt:
        """Return a pass that is repeated until it is finite, or the step is given up."""

        def scaled(scale: float) -> Pass:
            # `scale` comes from outside and is 1 in the loop; S of the policy multiplies it
            done = self._scaler.iterate(lambda s: attempt(scale * s), step)
            return replace(done.run, scale=done.scale, is_applied=done.is_applied)

        return scaled

    @override
    def events(self) -> Iterator[Row]:
        """Yield what happened to S."""
        for event in self._scaler.take_events():
            yield "loss_scaling", {"event": event.event, "scale": event.scale}

    @override
    def metrics(self) -> dict[str, Any]:
        """Return how many passes were repeated, and steps skipped."""
        return {"repeats": self._scaler.repeats, "skips": self._scaler.skips}

    @override
    def to_dict(self) -> Any:
        """Return S and the state of its policy."""
        return self._scaler.to_dict()

    @override
    def load(self, data: Any) -> None:
        self._scaler.load(data)
