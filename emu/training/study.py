"""A study: models on devices under settings from several seeds, as one TOML file.

    name, description, baseline            the device that all others are paired with, and if given its setting
    [[grid]]                               models x devices x settings x seeds; a study may have several grids
    [[grid.settings]]                      name, and settings that are laid over the recipe

Each run of a grid is a case, identified by its key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from emu._config import FILE_NAME, Items, Table, checked, load_toml
from emu._drawn import Drawn
from emu.errors import ConfigError
from emu.hardware import Device, load_device
from emu.training.planned import PlannedRun, described
from emu.training.recipe import Recipe, load_recipe

#: File in a study's folder that describes the study.
STUDY = "study.json"


class Setting(Table):
    """A variant of a grid: settings that are laid over its recipes.

    Attributes:
        name: name of the variant.
        set: key path -> value, e.g. `{"training.steps" = 20}`.
    """

    name: str = Field(default="plain", pattern=FILE_NAME)
    set: dict[str, Any] = Field(default_factory=dict[str, Any])


class Grid(Table):
    """Models x devices x settings x seeds.

    Attributes:
        models: names or paths.
        devices: names or paths.
        seeds: seeds of weights, batches and random numbers.
        settings: variants; by default the recipes without changes.
    """

    models: Items[str] = Field(min_length=1)
    devices: Items[str] = Field(min_length=1)
    seeds: Items[Annotated[int, Field(ge=0, le=2**63 - 1)]] = Field(min_length=1)
    settings: Items[Setting] = (Setting(),)


class Study(Drawn, Table):
    """Grids of runs, and the device they are compared with.

    Attributes:
        name: name of the study: its folder, unless another is given.
        description: one sentence.
        baseline: device that the others are paired with, seed by seed.
        baseline_setting: setting of it that all settings are paired with; None pairs within each setting.
        grid: the grids.
    """

    name: str = Field(pattern=FILE_NAME)
    description: str = ""
    baseline: str = "float32"
    baseline_setting: str | None = None
    grid: Items[Grid] = Field(min_length=1)

    @model_validator(mode="after")
    def _cases_differ(self) -> Study:
        seen: set[str] = set()
        # by model and name of a setting: the first `set`, which all others of this name must equal
        sets: dict[tuple[str, str], dict[str, Any]] = {}
        for case in self.cases():
            # reports tell settings apart by name
            if case.setting.set != sets.setdefault((case.model, case.setting.name), case.setting.set):
                raise ConfigError(
                    f"`name` of a setting must stand for one `set` per model, got two for {case.setting.name!r} of "
                    f"{case.model}; rename one of them"
                )
            if "training.seed" in case.setting.set:
                raise ConfigError(
                    "`training.seed` must be given by `seeds` of a grid, got it in `set`; remove it there"
                )
            if case.key in seen:
                raise ConfigError(
                    f"every run of a study must be listed once, got {case.key} twice; remove it from a grid"
                )
            seen.add(case.key)
        return self

    def cases(self) -> Iterator[Case]:
        """Yield all runs, seed by seed: so a study that is interrupted has complete comparisons for some seeds."""
        # each seed once, in the order of first mention
        for seed in dict.fromkeys(seed for grid in self.grid for seed in grid.seeds):
            for grid in self.grid:
                times = range(grid.seeds.count(seed))  # a seed that a grid lists twice is refused later
                for _, model, setting, device in product(times, grid.models, grid.settings, grid.devices):
                    yield Case(model, device, setting, seed)


@dataclass(frozen=True, eq=False)
class Case:
    """One run of a study.

    Attributes:
        model: name or path.
        device: name or path.
        setting: the variant.
        seed: seed of the run.
    """

    model: str
    device: str
    setting: Setting
    seed: int

    @property
    def key(self) -> str:
        """Name of the run in the study, and of its folder."""
        # files of one name in two folders give the same key, which is refused as a run that is listed twice
        names = (Path(self.model).stem, Path(self.device).stem, self.setting.name)
        return f"{'-'.join(names)}-seed{self.seed}"

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe, with the setting laid over it, and the seed."""
        # the seed comes last, so no setting replaces it
        return load_recipe(self.model).with_settings({**self.setting.set, "training.seed": self.seed})

    @cached_property
    def machine(self) -> Device:
        """The device."""
        return load_device(self.device)

    @cached_property
    def described(self) -> tuple[Any, Any]:
        """Recipe and device as `run.json` has them."""
        return described(self.recipe, self.machine)


#: A run whose folder may exist: a case of a study, or a run of a search's trial.
Planned = Case | PlannedRun


def chosen(cases: Iterable[Case], patterns: Sequence[str]) -> list[Case]:
    """Return the runs whose key matches a pattern; without patterns, all of them.

    Raises:
        ConfigError: a pattern matches no run.
    """
    cases = list(cases)
    for pattern in patterns:
        if not any(fnmatchcase(case.key, pattern) for case in cases):
            raise ConfigError(
                f"a pattern must match the name of a run, got {pattern!r}, which matches none of {len(cases)}, the "
                f"first of them {cases[0].key}; write * for a part that may differ"
            )
    return [case for case in cases if not patterns or any(fnmatchcase(case.key, pattern) for pattern in patterns)]


def load_study(path: Path) -> Study:
    """Return the study that a TOML file describes; all its models, devices and settings are checked.

    Raises:
        ConfigError: the file, a recipe, a device or a setting breaks a rule, or a grid lacks the baseline.
    """
    study = checked(Study, load_toml(path), file=str(path))
    for case in study.cases():
        # these properties load and check the files: an error comes before the first run, not in the middle of the study
        _ = case.recipe, case.machine
    if study.baseline_setting is not None:
        _require_baseline(study, path)
        return study
    for grid in study.grid:
        if study.baseline not in grid.devices:
            raise ConfigError(
                f"`baseline` must be a device of every grid, got {study.baseline!r} and devices "
                f"{', '.join(grid.devices)} in {path}; add it to them, or choose another baseline"
            )
    return study


def _require_baseline(study: Study, path: Path) -> None:
    planned = {(case.model, case.setting.name, case.device) for case in study.cases()}
    for model in dict.fromkeys(model for model, _, _ in planned):
        if (model, study.baseline_setting, study.baseline) not in planned:
            raise ConfigError(
                f"`baseline_setting` must be a setting under which every model runs on the baseline, got "
                f"{study.baseline_setting!r}, under which {model} does not run on {study.baseline} in {path}; add a "
                "grid where it does"
            )
