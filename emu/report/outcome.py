"""How a run ended: the numbers of its last steps, and one sentence about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.formats.numerals import number
from emu.report.guessing import chance_of, is_guess
from emu.report.run_data import Columns, RunData, table_of
from emu.report.words import accuracy, integer, percent, seconds
from emu.training.folders.status import FINISHED, STOPPED
from emu.training.stop_tests import in_words

#: Loss of accuracy against the best point of the run that counts as a collapse.
COLLAPSE = 0.10


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        status: "finished" if it ran to its last step, else "running" or "stopped".
        steps: number of steps done.
        train_loss: last training loss, or None.
        test_accuracy: last measured test accuracy, 0..1, or None.
        chance: accuracy of guessing, or None if the number of classes is unknown.
        first_nonfinite_step: first logged step from which on every loss is NaN or infinite, or None.
        collapsed_from: best test accuracy and its step, if the last is far below it, or None.
        seconds: wall-clock time, or None.
        failures: failures that the run itself reports.
        stopped_by: stop tests that ended it, in words; none if it took all its steps.
        stopped_because: why it is stopped; empty if it is not.
        passing_nonfinite_step: first logged step with a loss that is NaN or infinite before a finite one, or None.
    """

    status: str
    steps: int
    train_loss: float | None
    test_accuracy: float | None
    chance: float | None
    first_nonfinite_step: int | None
    collapsed_from: tuple[float, int] | None
    seconds: float | None
    failures: tuple[str, ...]
    stopped_by: tuple[str, ...] = ()
    stopped_because: str = ""
    passing_nonfinite_step: int | None = None

    @property
    def at_chance(self) -> bool:
        """Whether the network is no better than guessing."""
        return is_guess(self.test_accuracy, self.chance)

    def sentence(self) -> str:
        """Return the outcome in one sentence; of a run that is stopped, also why, and how to go on."""
        if self.status != STOPPED:
            return self._outcome()
        because = f" It stopped because {self.stopped_because}." if self.stopped_because else ""
        return f"{self._outcome()}{because} Continue it with emu train --resume."

    def _outcome(self) -> str:
        time = f" in {seconds(self.seconds)}" if self.seconds is not None else ""
        done = f"Trained {integer(self.steps)} steps{time}"
        if self.status != FINISHED:
            done = f"{'Stopped' if self.status == STOPPED else 'Still running,'} at step {integer(self.steps)}"
        elif self.stopped_by:
            done += f" until a stop test held ({' and '.join(self.stopped_by)})"
        if self.first_nonfinite_step is not None:
            return f"{done}, but the loss is not a finite number from step {integer(self.first_nonfinite_step)} on."
        if self.at_chance:
            assert self.test_accuracy is not None
            assert self.chance is not None
            reached = f"{accuracy(self.test_accuracy)} test accuracy, where guessing gets {percent(self.chance)}"
            return f"{done} and learned nothing: {reached}."
        reached = [] if self.test_accuracy is None else [f"{accuracy(self.test_accuracy)} test accuracy"]
        reached += [] if self.train_loss is None else [f"training loss {number(self.train_loss, 3)}"]
        return f"{done}: {', '.join(reached)}." if reached else f"{done}; no loss or accuracy was logged."


def outcome_of(run: RunData) -> Outcome:
    """Return how the run ended. While it runs, its tables are newer than `run.json`, so they have precedence."""
    columns, final = run.metrics or {}, run.section("metrics")
    status, done = str(run.info.get("status")), int(run.info.get("steps") or 0)
    # The tables of a running or killed run go further than its `run.json`. A finished run may end between two log
    # points.
    logged = int(columns["step"][-1]) if "step" in columns else done
    steps = max(logged, done) if status == FINISHED else logged
    tests = table_of(table_of(run.section("recipe").get("training")).get("stop"))
    passing, lasting = _nonfinite(columns)
    return Outcome(
        status=status,
        steps=steps,
        train_loss=_last(columns, "train_loss", final),
        test_accuracy=_last(columns, "test_accuracy", final),
        chance=chance_of(run.section("recipe")),
        first_nonfinite_step=lasting,
        collapsed_from=_collapse(columns),
        seconds=_number(run.info.get("seconds")),
        failures=tuple(str(failure) for failure in run.info.get("failures") or ()),
        stopped_because=str(run.info.get("stopped_because") or ""),
        passing_nonfinite_step=passing,
        stopped_by=tuple(in_words(str(name), tests) for name in run.info.get("stopped_by") or ()),
    )


def _number(value: Any) -> float | None:
    # bool is an int in Python.
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _measured(columns: Columns, name: str) -> NDArray[np.intp]:
    return (
        np.flatnonzero(~np.isnan(columns[name].astype(np.float64))) if name in columns else np.array([], dtype=np.intp)
    )


def _last(columns: Columns, name: str, final: Mapping[str, Any]) -> float | None:
    at = _measured(columns, name)
    # Logged at every point: NaN is a result, and not a gap as in the columns of the test set.
    if name == "train_loss" and len(columns.get(name, ())):
        return float(columns[name][-1])
    return float(columns[name][at[-1]]) if len(at) else _number(final.get(name))


def _nonfinite(columns: Columns) -> tuple[int | None, int | None]:
    """Return the first steps with a loss that is not finite: of those before a finite one, of those at the end."""
    if "train_loss" not in columns:
        return None, None
    is_finite = np.isfinite(columns["train_loss"].astype(np.float64))
    # The loss of a step may overflow, and that of the next one be finite: its update was skipped.
    end = int(np.flatnonzero(is_finite)[-1]) + 1 if is_finite.any() else 0
    passing, steps = np.flatnonzero(~is_finite[:end]), columns["step"]
    return int(steps[passing[0]]) if len(passing) else None, int(steps[end]) if end < len(steps) else None


def _collapse(columns: Columns) -> tuple[float, int] | None:
    at = _measured(columns, "test_accuracy")
    # One measurement is its own best.
    if len(at) < 2:
        return None
    measured = columns["test_accuracy"][at].astype(np.float64)
    best = int(np.argmax(measured))
    fallen = float(measured[best] - measured[-1])
    return (float(measured[best]), int(columns["step"][at[best]])) if fallen > COLLAPSE else None
