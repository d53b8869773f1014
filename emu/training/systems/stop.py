"""Stop tests in a training run: `emu.training.stop_tests`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from emu.errors import ConfigError
from emu.training.stop_tests import COLUMNS
from emu.training.systems.system import System
from emu.training.workbench import Workbench


class Stop(System):
    """Tests of the recipe that end a run."""

    key = "stop"

    def __init__(self, bench: Workbench) -> None:
        self._tests, self._device, self._ranks = bench.recipe.training.stop, bench.device.name, bench.ranks
        self._past: dict[str, list[float]] = {name: [] for name in COLUMNS}
        self._stopped_by: list[str] = []

    @override
    def require(self, about: Mapping[str, Any]) -> None:
        """Raise ConfigError if a test counts simulated seconds and no time is simulated."""
        if self._tests and self._tests.simulated_seconds and about["simulated_seconds"] is None:
            raise ConfigError(
                "`simulated_seconds` of [training.stop] must be left out if no time is simulated, got "
                f"{self._tests.simulated_seconds:g} on {self._device!r}; use `seconds`, or a device with a clock"
            )

    @override
    def logged(self, measured: Mapping[str, Any]) -> None:
        """Test what was measured."""
        if self._tests is None:
            return
        for name, past in self._past.items():
            # null: not measured at this log point
            if measured[name] is not None:
                past.append(measured[name])
        if self._tests.seconds is not None:
            # of rank 0: clocks of ranks differ, and all must end at the same step
            measured = {**measured, "seconds": self._ranks.agree(measured["seconds"])}
        holding = self._tests.holding(measured, self._past)
        # tests that were met at an earlier log point do not count here
        self._stopped_by = list(holding) if self._tests.is_met(holding) else []

    @property
    @override
    def is_over(self) -> bool:
        """Whether enough tests hold."""
        return bool(self._stopped_by)

    @override
    def about(self) -> dict[str, Any]:
        """Return the tests that ended the run; none if it took all its steps."""
        return {"stopped_by": self._stopped_by}

    @override
    def to_dict(self) -> Any:
        """Return what was measured; None without tests."""
        return None if self._tests is None else {"past": self._past, "stopped_by": self._stopped_by}

    @override
    def load(self, data: Any) -> None:
        self._past, self._stopped_by = data["past"], data["stopped_by"]
