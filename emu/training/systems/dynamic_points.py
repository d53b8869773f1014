"""Dynamic fixed point in a training run: `emu.precision.dynamic_point`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from typing_extensions import override

from emu.hardware import DynamicPoint
from emu.precision.dynamic_point import Points, note_decision
from emu.training.systems.system import AskTimes, Attempt, Row, System
from emu.training.workbench import Workbench
from emu.training.workbench.model import Pass


class DynamicPoints(System):
    """Binary points of tensors whose formats leave them open."""

    key = "dynamic_point"
    tables: ClassVar[Mapping[str, Mapping[str, str]]] = {
        # a point that moved; redone: the operation that writes the tensor ran again with it
        "points": {
            "step": "int64",
            "layer": "string",
            "role": "string",
            "part": "string",
            "point": "int32",
            "redone": "bool",
        },
    }

    def __init__(self, bench: Workbench) -> None:
        """Give the model its points, if the device leaves any open."""
        self._runners, self._points = bench.runners, None
        if bench.device.has_open_points:
            self._points = bench.model.points = Points(bench.device.dynamic_point or DynamicPoint(), bench.policy)

    @override
    def around(self, attempt: Attempt, step: int, *, repeated: bool) -> Attempt:
        """Begin every pass of a step at the same points, and finish its counts before any system reads them."""
        points, flush = self._points, self._runners.flush
        # a pass that never runs again needs no copy of the points
        if points is None or not repeated:
            return attempt
        flush()
        # plain data, so passes cannot change it
        before = points.to_dict()

        def restored(scale: float) -> Pass:
            points.load(before)  # a repeated pass gets the same bits only from the same points
            result = attempt(scale)
            flush()
            return result

        return restored

    @override
    def end_step(self, steps: int, phase: str, times: AskTimes) -> None:
        """Set every point, if the interval between two settings is over."""
        if self._points is not None and self._points.is_due(steps):
            # counts by tensor are still at the runners
            self._runners.flush()
            for tensor in self._points.set_all(steps):
                # asked once for each point: it charges the bytes of the registers that are added up
                together = self._points.agreement.on_point_set(tensor)
                note_decision(self._runners.profile, tensor, together=together)

    @override
    def phase(self, step: int) -> str | None:
        """Return "pre-training" for its steps."""
        return "pre-training" if self._points and self._points.in_pretraining(step) else None

    @override
    def events(self) -> Iterator[Row]:
        """Yield points that moved."""
        for moved in self._points.take_events() if self._points else ():
            layer, role, part = moved.tensor
            yield "points", {"layer": layer, "role": role, "part": part, "point": moved.point, "redone": moved.redone}

    @override
    def metrics(self) -> dict[str, Any]:
        """Return how many operations ran again, of how many in pre-training."""
        points = self._points
        return {"redos": points.redos if points else 0, "pretraining_runs": points.runs if points else 0}

    @override
    def to_dict(self) -> Any:
        """Return the points; None without any."""
        return None if self._points is None else self._points.to_dict()

    @override
    def load(self, data: Any) -> None:
        if self._points is not None:
            self._points.load(data)
