"""The trials of a search, as its folder has them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from emu._files import read_json
from emu.errors import ConfigError
from emu.training.folders.run_folder import RUN
from emu.training.folders.study_folder import RUNS

#: Files of a search's folder.
SEARCH, TRIALS = "search.json", "trials.json"
MINIMIZE, MAXIMIZE = "minimize", "maximize"


@dataclass(frozen=True)
class Trial:
    """A trial.

    Attributes:
        number: its number.
        state: finished, running, waiting or failed.
        values: of the variables, by name.
        objectives: of a finished one; empty of any other.
        violations: by constraint; above 0 where it does not hold.
        metrics: means over its seeds, by name.
        runs: keys of its run folders by seed.
        folder: the folder of the process that trained it.
        device: name of its device.
        pruned: why no further seed was trained; empty where all were.
        failure: why it failed; empty where it did not.
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

    @property
    def is_feasible(self) -> bool:
        """Whether it is finished, and every constraint holds."""
        return bool(self.objectives) and all(violation <= 0 for violation in self.violations.values())


@dataclass(frozen=True)
class Searched:
    """A search and its trials.

    Attributes:
        path: folder of the search.
        search: the search as plain data.
        trials: by number.
        importances: by objective, how much each variable matters.
    """

    path: Path
    search: dict[str, Any]
    trials: tuple[Trial, ...]
    importances: dict[str, dict[str, float]]

    @property
    def metrics(self) -> list[str]:
        """Metrics of the objectives."""
        return [one["metric"] for one in self.search["objective"]]

    @property
    def signs(self) -> list[int]:
        """By objective: 1 where less is better, -1 where more is."""
        return [1 if one["direction"] == MINIMIZE else -1 for one in self.search["objective"]]

    @property
    def finished(self) -> list[Trial]:
        """The trials that have objectives."""
        return [trial for trial in self.trials if trial.objectives]

    def front(self) -> list[Trial]:
        """Return the trials that hold every constraint and that no other such trial beats, by the first objective.

        One beats another if it is as good in every objective, and better in one. Of equal ones, the first is there.
        """
        signs = self.signs
        costs = {
            one.number: tuple(sign * value for sign, value in zip(signs, one.objectives, strict=True))
            for one in self.finished
            if one.is_feasible
        }
        found = [
            one
            for one in self.finished
            if one.number in costs
            and not any(
                _beats(other, costs[one.number]) or (other == costs[one.number] and number < one.number)
                for number, other in costs.items()
            )
        ]
        return sorted(found, key=lambda one: costs[one.number])

    def page_of(self, trial: Trial) -> str | None:
        """Return the link to the report of a trial's first run; None where its folder is elsewhere."""
        for key in trial.runs.values():
            if (self.path / RUNS / key / RUN).is_file():
                return f"{RUNS}/{key}/report.html"
        return None


def _beats(one: Sequence[float], other: Sequence[float]) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def read_search(folder: Path) -> Searched:
    """Return a search and its trials.

    Raises:
        ConfigError: the folder has none.
    """
    try:
        search = cast("dict[str, Any]", read_json(folder / SEARCH))
        content = cast("dict[str, Any]", read_json(folder / TRIALS) if os.path.exists(folder / TRIALS) else {})
        trials = [_trial(one) for one in content.get("trials", [])]
        return Searched(folder, search, tuple(trials), content.get("importances", {}))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"the folder of a search must have a readable {SEARCH} and {TRIALS}, got {type(error).__name__}: "
            f"{error} for {folder}; name another folder"
        ) from None


def _trial(plain: dict[str, Any]) -> Trial:
    known: dict[str, Any] = {key: value for key, value in plain.items() if key in Trial.__dataclass_fields__}
    known["objectives"] = tuple(plain["objectives"] or ())
    return Trial(**known)
