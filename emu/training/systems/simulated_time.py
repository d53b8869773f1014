"""Simulated time in a training run: `emu.training.simulation`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar

from emu.hardware import DynamicPoint, chrome_trace, machine_of
from emu.training.model import Pass
from emu.training.simulation import Simulation
from emu.training.systems.system import Attempt, Row, Surroundings, System

if TYPE_CHECKING:
    from emu.training.run_folder import RunFolder

#: Chrome trace events of the first steps.
TRACE = "trace.json"


class SimulatedTime(System):
    """The time of a device with a clock."""

    key = "simulation"
    tables: ClassVar[Mapping[str, Mapping[str, str]]] = {
        # of each interval's steps: layer and role are empty for the batch; unit is the device's or the host's,
        # `memory`'s time is within its unit's, `link` moves bytes to the host and back; kind is forward, backward,
        # update, redo, host or transfer; operations are multiply-adds, or results where there are none
        "simulation": {
            "step": "int64",
            "layer": "string",
            "role": "string",
            "unit": "string",
            "kind": "string",
            "calls": "int64",
            "cycles": "int64",
            "picoseconds": "int64",
            "operations": "int64",
            "bytes": "int64",
        },
    }

    def __init__(self, run: Surroundings) -> None:
        """Begin at time 0, if the device has a clock and trains alone."""
        self._run, self._time = run, None
        if (machine := machine_of(run.device)) and run.recipe.cluster is None:  # of one node
            on_host = (run.device.dynamic_point or DynamicPoint()).decided_on == "host"
            self._time = Simulation(machine, run.batch_elements, run.batch_bytes, decided_on_host=on_host)
            run.profile.demands = self._time.demands

    def around(self, attempt: Attempt, step: int, *, repeated: bool) -> Attempt:
        """Charge the time of every pass; that of one that runs again as such."""
        if self._time is None:
            return attempt
        demands, passes = self._time.demands, count()

        def charged(scale: float) -> Pass:
            again, begun = next(passes) > 0, len(demands)
            found = attempt(scale)
            if again:
                demands[begun:] = [demand._replace(again=True) for demand in demands[begun:]]
            return found

        return charged

    def end_step(self, steps: int) -> None:
        """Play the step."""
        if self._time is not None:
            self._time.end_step(steps, self._run.phase(steps - 1))

    def interval(self) -> Iterator[Row]:
        """Yield what was spent where."""
        if self._time is not None:
            yield from (("simulation", row) for row in self._time.rows())
            self._time.reset()

    def write(self, folder: RunFolder) -> None:
        """Write the trace."""
        if self._time is not None:
            folder.write_text(TRACE, json.dumps(chrome_trace(self._run.device.name, self._time.events)))

    def about(self) -> dict[str, Any]:
        """Return simulated time, whole and by phase of training."""
        time = self._time
        return {
            "simulated_seconds": None if time is None else time.seconds,
            "simulated_picoseconds_by_phase": {} if time is None else dict(time.by_phase),
        }

    def to_dict(self) -> Any:
        """Return the time so far; None without a clock."""
        return None if self._time is None else self._time.to_dict()

    def load(self, data: Any) -> None:
        """Take what `to_dict` returned."""
        if self._time is not None:
            self._time.load(data)
