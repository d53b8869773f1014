"""The shape of every system: what it may do to a training run, and when.

    __init__   before the first step, with the workbench of the run; a system that the run does not use does nothing
    require    when all systems are made
    begin_step before each step; it may try some steps first
    divided    the batch of a step among nodes
    around     each pass: forward and backward at a scale of the loss; it may run the pass again
    gradients  between gradients and update
    end_step   after the update
    logged     at a log point: what was measured; the run may be over
    ...        what it adds to tables and run.json, and to a checkpoint

The loop knows this interface and the list of systems (`emu.training.systems`), but no system by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from emu._config import Table, checked
from emu.errors import ConfigError, nearest_name

if TYPE_CHECKING:
    from emu.cluster import StepTimes
    from emu.training.data_tables import Inputs, Labels
    from emu.training.recipe import Recipe
    from emu.training.workbench import Workbench
    from emu.training.workbench.model import Pass, StepRunner

Array = NDArray[np.generic]
#: One pass over the batch of a step, at a scale of the loss.
Attempt = Callable[[float], "Pass"]
#: One pass over a part of the batch: at a scale of the loss, over these examples, by this runner.
PartAttempt = Callable[[float, slice, "StepRunner"], "Pass"]
#: Inputs and labels.
Examples = tuple["Inputs", "Labels"]
#: Takes a step on each of these mini-batches, undoes all of them, and returns their losses.
Trial = Callable[[Sequence[Examples]], list[float]]
#: Returns simulated times of the step that has ended; None if no time is simulated, or one node took it alone.
AskTimes = Callable[[], "StepTimes | None"]
#: A table of the run folder, and a row of it.
Row = tuple[str, dict[str, Any]]


class System:
    """A system that is not in use: every method does nothing.

    Attributes:
        key: its name in checkpoints, and in `[systems.KEY]` of a recipe.
        settings: what `[systems.KEY]` must be; None for a system that no such table brings into use.
        tables: its tables of a run folder: column -> Arrow type. A table's file exists from its first row on.
        repeats: whether a pass may run again, so that all that it changes must be restored.
    """

    key: ClassVar[str]
    settings: ClassVar[type[Table] | None] = None
    tables: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    repeats: bool = False

    def __init__(self, bench: Workbench) -> None:
        """Prepare for the first step.

        Args:
            bench: recipe, device, model, data, runners and processes of the run.
        """

    @classmethod
    def settings_in(cls, recipe: Recipe) -> Any:
        """Return `[systems.KEY]` of a recipe as `settings`; None if the recipe does not have it.

        Raises:
            ConfigError: it breaks a rule of `settings`.
        """
        # tables of other systems are not looked at
        given = recipe.systems.by_key.get(cls.key) if recipe.systems else None
        if cls.settings is None or given is None:
            return None
        return checked(cls.settings, given, file=f"[systems.{cls.key}] of model {recipe.name}")

    def require(self, about: Mapping[str, Any]) -> None:
        """Raise ConfigError if another system must be in use and is not. Called once, when all systems are made.

        Args:
            about: entries of `run.json` that systems have.
        """

    # ---- a step ----

    def begin_step(self, step: int, steps_left: int, trial: Trial) -> None:
        """Called before each step that is not itself part of a trial.

        Args:
            step: training step.
            steps_left: how many steps the run has from here on, if mini-batches keep their size.
            trial: takes steps on mini-batches and undoes them.
        """

    def rate(self, rate: float, examples: int) -> float:
        """Return the learning rate of a step over a number of examples, from the rate of the schedule."""
        return rate

    @property
    def scale(self) -> float:
        """What the loss of the next pass is multiplied by."""
        return 1.0

    def divided(self, on: PartAttempt, examples: int, step: int) -> Attempt | None:
        """Return a pass over the batch that runs passes over its parts; None if this system does not divide it.

        Args:
            on: a pass over a part.
            examples: examples of the batch.
            step: training step.
        """
        return None

    def around(self, attempt: Attempt, step: int, *, repeated: bool) -> Attempt:
        """Return a pass that does what this system does before and after `attempt`.

        Args:
            attempt: the pass, as systems earlier in the list return it.
            step: training step.
            repeated: whether any system may run it again.
        """
        return attempt

    def gradients(self, result: Pass) -> Pass:
        """Return the result of a pass with the gradients that the update gets."""
        return result

    def end_step(self, steps: int, phase: str, times: AskTimes) -> None:
        """Called after the update of each step.

        Args:
            steps: how many steps are done.
            phase: phase of training that the step belongs to.
            times: returns its simulated times; only to systems that come after the one that simulates them.
        """

    def step_times(self) -> StepTimes | None:
        """Return simulated times of the step that has ended; None if this system simulates none."""
        return None

    def logged(self, measured: Mapping[str, Any]) -> None:
        """Called at each log point.

        Args:
            measured: its row of `metrics`, `seconds` of training so far, and entries of `run.json` that systems have.
        """

    @property
    def is_over(self) -> bool:
        """Whether the run ends at this log point."""
        return False

    def phase(self, step: int) -> str | None:
        """Return the phase of training of a step; None if this system has none. The first answer counts."""
        return None

    # ---- tables and files ----

    def events(self) -> Iterator[Row]:
        """Yield what happened since the last call, without its step."""
        yield from ()

    def interval(self) -> Iterator[Row]:
        """Yield the rows of the interval that ends, without its step, and begin the next one."""
        yield from ()

    def files(self) -> Iterator[tuple[str, str]]:
        """Yield the names and texts of files beside the tables."""
        yield from ()

    def about(self) -> dict[str, Any]:
        """Return entries of `run.json`."""
        return {}

    def metrics(self) -> dict[str, Any]:
        """Return metrics of the whole run."""
        return {}

    # ---- checkpoints ----

    def to_dict(self) -> Any:
        """Return plain data (JSON) that `load` reads back; None if there is nothing."""
        return None

    def load(self, data: Any) -> None:
        """Take what `to_dict` returned."""

    def arrays(self) -> dict[str, Array]:
        """Return arrays that `load_arrays` takes back, by name."""
        return {}

    def load_arrays(self, arrays: dict[str, Array]) -> None:
        """Take what `arrays` returned."""


def require_known(recipe: Recipe, systems: Sequence[type[System]]) -> None:
    """Raise ConfigError if a recipe has a table `[systems.KEY]` of a system that is not in a list."""
    # built-in systems read tables of the recipe instead
    keys = [system.key for system in systems if system.settings is not None]
    for key in recipe.systems.by_key if recipe.systems else ():
        if key not in keys:
            remedy = nearest_name(key, keys) if keys else "; there is none here, so remove it"
            raise ConfigError(
                f"`systems.{key}` must be the table of a system that reads one, got it in model {recipe.name}{remedy}"
            )


def step_times_of(systems: Sequence[System]) -> StepTimes | None:
    """Return the simulated times of the step that has ended, from the first system that has some; else None."""
    return next((times for system in systems if (times := system.step_times())), None)
