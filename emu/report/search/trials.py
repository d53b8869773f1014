"""The trials of a search, read from its folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field

from emu._config import checked
from emu._files import read_json
from emu.errors import ConfigError
from emu.report.guessing import chance_of, is_guess
from emu.report.run_data import table_of
from emu.training.folders.run_folder import RUN, runs_in
from emu.training.folders.study_folder import RUNS

#: Files of a search's folder.
SEARCH, TRIALS = "search.json", "trials.json"
#: State of a trial that was not trained, because an earlier one has its values.
REPEATED = "repeated"
#: Beginning of the names of the baseline's runs.
BASELINE = "baseline-seed"
#: Metric whose differences to a baseline say nothing if the baseline has learned nothing. The names of these begin with
#: it, too.
ACCURACY = "test_accuracy"
MINIMIZE, MAXIMIZE = "minimize", "maximize"


@dataclass(frozen=True)
class Trial:
    """A trial.

    Attributes:
        number: number of the trial.
        state: finished, running, waiting, failed or repeated.
        values: values of the variables, by name.
        objectives: values of the objectives; empty unless it is finished.
        violations: by how much each constraint is missed, by name; 0 or less if it holds.
        metrics: means over the seeds, by name.
        runs: keys of the run folders, by seed.
        folder: folder of the process that trained it.
        device: name of the device.
        pruned: why no further seed was trained; empty if all were.
        failure: why it failed; empty if it did not.
        samples: the values of `metrics` by seed; a single one if it depends only on recipe and device.
        changes: key of a `[[set]]` -> its value, where the device as it is has another; None if the folder is of a
            version that did not keep them.
        repeats: number of the trial that has the same values; None for all that were trained.
    """

    number: int
    state: str
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    objectives: tuple[float, ...] = ()
    violations: dict[str, float] = field(default_factory=dict[str, float])
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    runs: dict[str, str] = field(default_factory=dict[str, str])
    folder: str = ""
    device: str = ""
    pruned: str = ""
    failure: str = ""
    samples: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    changes: dict[str, Any] | None = None
    repeats: int | None = None

    @property
    def is_feasible(self) -> bool:
        """Whether it is finished, and all constraints hold."""
        return bool(self.objectives) and all(violation <= 0 for violation in self.violations.values())


@dataclass(frozen=True)
class Searched:
    """A search and its trials.

    Attributes:
        path: folder of the search.
        search: the search as plain data.
        trials: trials by number.
        importances: how much each variable matters, by objective.
        baseline: mean test accuracy of the baseline; None if it is not trained.
        chance: accuracy of guessing; None if it is not known.
    """

    path: Path
    search: dict[str, Any]
    trials: tuple[Trial, ...]
    importances: dict[str, dict[str, float]]
    baseline: float | None = None
    chance: float | None = None

    @property
    def baseline_guesses(self) -> bool:
        """Whether the baseline is no better than guessing, so that a difference to it says nothing."""
        return is_guess(self.baseline, self.chance)

    @cached_property
    def original(self) -> Trial | None:
        """The finished trial whose device is the one that the search starts from; None if there is none."""
        return next((trial for trial in self.finished if trial.values == self.start), None)

    @property
    def start(self) -> dict[str, Any]:
        """The values of the variables in the device that the search starts from."""
        return {variable["name"]: variable["start"] for variable in self.search["variable"]}

    @property
    def metrics(self) -> list[str]:
        """Metrics of the objectives."""
        return [objective["metric"] for objective in self.search["objective"]]

    @property
    def signs(self) -> list[int]:
        """For each objective: 1 if it is minimised, -1 if it is maximised."""
        return [1 if objective["direction"] == MINIMIZE else -1 for objective in self.search["objective"]]

    @property
    def finished(self) -> list[Trial]:
        """The trials that have objectives."""
        return [trial for trial in self.trials if trial.objectives]

    def front(self) -> list[Trial]:
        """Return the trials that hold all constraints and that no other such trial beats, by the first objective.

        A trial beats another if it is as good in all objectives, and better in one. Of equal trials, the first is kept.
        """
        return [*self._front]

    @cached_property
    def _front(self) -> list[Trial]:
        signs = self.signs
        minimised = {
            trial.number: tuple(sign * value for sign, value in zip(signs, trial.objectives, strict=True))
            for trial in self.finished
            if trial.is_feasible
        }
        front = [
            trial
            for trial in self.finished
            if trial.number in minimised
            and not any(
                _beats(other, minimised[trial.number]) or (other == minimised[trial.number] and number < trial.number)
                for number, other in minimised.items()
            )
        ]
        # Tuples compare by their first objective, and by the next ones where that is equal.
        return sorted(front, key=lambda trial: minimised[trial.number])

    def page_of(self, trial: Trial) -> str | None:
        """Return the link to the report of a trial's first run; None if its folder is elsewhere."""
        for key in trial.runs.values():
            if (self.path / RUNS / key / RUN).is_file():
                return f"{RUNS}/{key}/report.html"
        return None


def _beats(minimised: Sequence[float], others: Sequence[float]) -> bool:
    # As good in all and not equal is better in one.
    return minimised != others and all(a <= b for a, b in zip(minimised, others, strict=True))


class _Variable(BaseModel):
    """What the page reads of a variable in `search.json`."""

    name: str
    start: int | float | str | bool
    low: int | float | None
    high: int | float | None
    log: bool
    choices: list[Any] | None


class _Objective(BaseModel):
    """What the page reads of an objective in `search.json`."""

    metric: str
    direction: str


class _Constraint(BaseModel):
    """What the page reads of a constraint in `search.json`."""

    metric: str
    at_least: float | None
    at_most: float | None
    confidence: float | None


class _Search(BaseModel):
    """What the page reads of `search.json`."""

    model_config = ConfigDict(strict=True)

    name: str
    description: str
    model: str
    device: str
    baseline: str
    seeds: list[int]
    trials: int
    variable: list[_Variable]
    objective: list[_Objective] = Field(min_length=1)
    constraint: list[_Constraint]


class _Trials(BaseModel):
    """The content of `trials.json`."""

    trials: list[Trial]
    importances: dict[str, dict[str, float]] = Field(default_factory=dict[str, dict[str, float]])


def read_search(folder: Path) -> Searched:
    """Return a search and its trials.

    Raises:
        ConfigError: the folder has no search, or a file of it lacks what the page reads.
    """
    try:
        search = table_of(read_json(folder / SEARCH))
        content = table_of(read_json(folder / TRIALS)) if (folder / TRIALS).exists() else dict[str, Any](trials=[])
        baseline, chance = _baseline(folder)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"the folder of a search must have a readable {SEARCH} and {TRIALS}, got {type(error).__name__}: "
            f"{error} for {folder}; name another folder"
        ) from None
    checked(_Search, search, file=str(folder / SEARCH))
    trials = content.get("trials")
    plain = [_plain(trial) for trial in cast("list[Any]", trials)] if isinstance(trials, list) else trials
    known = checked(_Trials, {**content, "trials": plain}, file=str(folder / TRIALS))
    return Searched(folder, search, tuple(known.trials), known.importances, baseline, chance)


def _baseline(folder: Path) -> tuple[float | None, float | None]:
    """Return the mean accuracy of the baseline's runs, and that of guessing; None for what no run tells."""
    runs = runs_in(folder / RUNS)
    # A search has one model, so its first run tells the classes.
    chance = chance_of(table_of(table_of(read_json(runs[0] / RUN)).get("recipe"))) if runs else None
    baselines = [table_of(read_json(run / RUN)) for run in runs if run.name.startswith(BASELINE)]
    metrics = [table_of(info.get("metrics")) for info in baselines]
    accuracies = [own[ACCURACY] for own in metrics if ACCURACY in own]
    return mean(accuracies) if accuracies else None, chance


def _plain(trial: Any) -> Any:
    """Return a trial as this version knows it; anything but a table unchanged."""
    if not isinstance(trial, dict):
        return trial
    # A folder of a newer version may have fields that this one does not know; null stands for what a trial lacks.
    table = table_of(cast(object, trial))
    return {key: value for key, value in table.items() if key in Trial.__dataclass_fields__ and value is not None}
