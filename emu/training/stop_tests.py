"""`[training.stop]`: tests that end a run before its last planned step, at the first log point at which they hold.

[training.stop]              when, test_accuracy, train_error, seconds, epochs, ...
[training.stop.improvement]  below, of, points
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal, cast

from pydantic import Field, model_validator

from emu._config import Table
from emu.errors import ConfigError

#: Columns of `metrics` that tests read.
Column = Literal["train_loss", "test_loss", "train_accuracy", "test_accuracy"]
COLUMNS: tuple[Column, ...] = ("train_loss", "test_loss", "train_accuracy", "test_accuracy")


def in_words(name: str, tests: Mapping[str, Any]) -> str:
    """Return a test and its limit.

    Args:
        name: name of the test.
        tests: `[training.stop]` as `run.json` has it.

    Examples:
        >>> in_words("test_error", {"test_error": 0.03})
        'test_error at most 0.03'
    """
    limit = tests.get(name)
    if name == "improvement" and isinstance(limit, dict):
        improvement = cast("dict[str, Any]", limit)
        points = improvement.get("points", 1)
        over = "the last log point" if points == 1 else f"the last {points} log points"
        return f"{improvement.get('of', 'train_loss')} improved by less than {improvement['below']:g} over {over}"
    if limit is None:
        return name
    # errors and losses are to fall; accuracies, seconds and epochs are to rise
    return f"{name} {'at most' if name.endswith(('error', 'loss')) else 'at least'} {limit:g}"


class Improvement(Table):
    """A test that holds if too little was gained: a loss has hardly fallen, or an accuracy has hardly risen.

    Attributes:
        below: the test holds if the gain is less, in the unit of the metric.
        of: the metric.
        points: number of log points over which the gain is measured.
    """

    below: float
    of: Column = "train_loss"
    points: int = Field(default=1, ge=1)

    def holds(self, measured: Sequence[float]) -> bool:
        """Return whether the gain over the last points is below the limit; a gain that is NaN counts as none.

        Args:
            measured: values of the metric at all log points so far, the newest last.

        Examples:
            >>> Improvement(below=0.1, points=2).holds([0.9, 0.5, 0.45, 0.42])
            True
            >>> Improvement(below=0.1, points=3).holds([0.9, 0.5, 0.45, 0.42])
            False
        """
        # a gain over n points needs n + 1 values
        if len(measured) <= self.points:
            return False
        # positive if the value fell, which is a gain for a loss and a loss for an accuracy
        gain = measured[-1 - self.points] - measured[-1]
        return not (gain if self.of.endswith("loss") else -gain) >= self.below  # `not >=`, because NaN is never >=


class StopTests(Table):
    """`[training.stop]` of a recipe.

    Attributes:
        when: how many tests must hold: "any" of them, "all", or at least this number.
        train_accuracy: accuracy of the interval before a log point, at least this.
        test_accuracy: as it was measured last, at least this.
        train_error: 1 - `train_accuracy`, at most this.
        test_error: 1 - `test_accuracy`, at most this.
        train_loss: loss of the interval, at most this.
        test_loss: as it was measured last, at most this.
        seconds: seconds that training has taken on the computer, at least; a run that is repeated may end at another
            step.
        simulated_seconds: on the clock of the machine that is emulated, at least.
        epochs: passes over the training data, at least.
        improvement: improvement of a metric, less than a limit.
    """

    when: Literal["any", "all"] | int = "any"
    train_accuracy: float | None = Field(default=None, gt=0, le=1)
    test_accuracy: float | None = Field(default=None, gt=0, le=1)
    train_error: float | None = Field(default=None, ge=0, lt=1)
    test_error: float | None = Field(default=None, ge=0, lt=1)
    train_loss: float | None = Field(default=None, ge=0)
    test_loss: float | None = Field(default=None, ge=0)
    seconds: float | None = Field(default=None, gt=0)
    simulated_seconds: float | None = Field(default=None, gt=0)
    epochs: float | None = Field(default=None, gt=0)
    improvement: Improvement | None = None

    @model_validator(mode="after")
    def _has_tests(self) -> StopTests:
        tests = self.names
        if not tests:
            known = ", ".join(name for name in type(self).model_fields if name != "when")
            raise ConfigError(f"[training.stop] must have at least one test, got none; give one of {known}")
        # never a bool: in strict mode pydantic takes none for an integer
        if isinstance(self.when, int) and not 1 <= self.when <= len(tests):
            raise ConfigError(
                f"`when` of [training.stop] must be 'any', 'all', or 1..{len(tests)} of its tests, got {self.when}; "
                "change it, or give more tests"
            )
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Tests that are given."""
        return tuple(name for name in type(self).model_fields if name != "when" and getattr(self, name) is not None)

    def holding(self, measured: Mapping[str, Any], past: Mapping[str, Sequence[float]]) -> tuple[str, ...]:
        """Return the names of tests that hold at a log point.

        Args:
            measured: `epoch`, `seconds` and `simulated_seconds` of the log point.
            past: column of `metrics` -> its values so far, the newest last.
        """
        return tuple(name for name in self.names if self._holds(name, measured, past))

    def is_met(self, holding: Sequence[str]) -> bool:
        """Return whether enough tests hold."""
        # a number is not in the table, and stands for itself
        enough = {"any": 1, "all": len(self.names)}.get(str(self.when), self.when)
        return len(holding) >= int(enough)

    def _holds(self, name: str, measured: Mapping[str, Any], past: Mapping[str, Sequence[float]]) -> bool:
        if self.improvement is not None and name == "improvement":
            return self.improvement.holds(past[self.improvement.of])
        limit = getattr(self, name)
        if name in ("seconds", "simulated_seconds", "epochs"):
            return measured["epoch" if name == "epochs" else name] >= limit
        # an error is tested by the accuracy that is measured
        column = name.replace("error", "accuracy")
        # not measured yet: test metrics come at some log points only
        if not past[column]:
            return False
        newest = past[column][-1]
        if name.endswith("error"):
            return 1 - Decimal(repr(newest)) <= Decimal(repr(limit))  # in floats, 1 - 0.7 is more than 0.3
        return newest >= limit if name.endswith("accuracy") else newest <= limit
