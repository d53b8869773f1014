"""The shape of every system: what it may do to a training run, and when.

    made       with the run, before its first step; a system that the run does not use does nothing
    begin_step before a step; it may try some first
    divided    the batch of a step among nodes
    around     every pass: forward and backward at a scale of the loss; it may run the pass again
    gradients  between gradients and update
    end_step   after the update
    logged     at a log point: what was measured; the run may be over
    ...        what it tells tables and run.json, and leaves to a checkpoint

The trainer uses this interface and the list of systems (`emu.training.systems`), and none of them by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from emu.cluster import StepTimes
    from emu.hardware import Device
    from emu.precision import CounterTable, Policy, Profile
    from emu.training.batches import Batches
    from emu.training.data_tables import Inputs, Labels
    from emu.training.model import Model, Pass, StepRunner
    from emu.training.ranks import Ranks
    from emu.training.recipe import Recipe
    from emu.training.update import Update

Array = NDArray[np.generic]
#: One pass over the batch of a step, at a scale of the loss.
Attempt = Callable[[float], "Pass"]
#: One pass over a part of the batch: at a scale of the loss, over these examples, by this runner.
PartAttempt = Callable[[float, slice, "StepRunner"], "Pass"]
#: Inputs and labels.
Examples = tuple["Inputs", "Labels"]
#: A table of the run folder, and a row of it.
Row = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Surroundings:
    """What a system finds when a run begins.

    Attributes:
        recipe: network, data, training.
        device: the machine.
        policy: formats of everything.
        model: network and parameters.
        update: what is done with gradients after all systems.
        counters: counters of the interval between two log points.
        profile: where the time goes.
        backend: backend that computes.
        batch_elements: numbers of a batch.
        batch_bytes: bytes of a batch as its source holds it.
        flush: takes counts that runners hold by tensor into those of the interval.
        phase: what a step is part of.
        runner_of_passes: makes one more runner of passes; the trainer keeps its step and flushes it.
        runner_of_updates: makes one more runner of what stands whether a pass does or not.
        about: entries of `run.json` that systems made before this one have.
        batches: sizes of mini-batches, and how many nodes take part.
        steps_left: how many steps the run has, if mini-batches keep their size.
        trial: losses of steps that are tried from here on, one for each mini-batch given; they leave no trace.
        step_times: simulated times of the step that has ended; None where no time is simulated.
        ranks: the processes that train together.
    """

    recipe: Recipe
    device: Device
    policy: Policy
    model: Model
    update: Update
    counters: CounterTable
    profile: Profile
    backend: str
    batch_elements: int
    batch_bytes: int
    flush: Callable[[], None]
    phase: Callable[[int], str]
    runner_of_passes: Callable[[], StepRunner]
    runner_of_updates: Callable[[], StepRunner]
    about: Callable[[], dict[str, Any]]
    batches: Batches
    steps_left: Callable[[], int]
    trial: Callable[[Sequence[Examples]], list[float]]
    step_times: Callable[[], StepTimes | None]
    ranks: Ranks


class System:
    """A system that is not in use: every method does nothing.

    Attributes:
        key: its name in checkpoints.
        tables: its tables of a run folder: column -> Arrow type; there from their first row on.
        counters: what passes count into, where it is no longer the interval's; None leaves that.
        repeats: whether a pass may run again, so that whatever it changes must be restored.
    """

    key: ClassVar[str]
    tables: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    counters: CounterTable | None = None
    repeats: bool = False

    def __init__(self, run: Surroundings) -> None:
        """Begin."""

    # ---- a step ----

    def begin_step(self, step: int) -> None:
        """Take notice that a step begins."""

    def rate(self, rate: float, examples: int) -> float:
        """Return the learning rate of a step over a number of examples, from the rate of the schedule."""
        return rate

    @property
    def scale(self) -> float:
        """What the loss of the next pass is multiplied by."""
        return 1.0

    def divided(self, on: PartAttempt, examples: int, step: int) -> Attempt | None:
        """Return a pass over the batch that is made of passes over its parts; None leaves that to others.

        Args:
            on: a pass over a part.
            examples: examples of the batch.
            step: training step.
        """
        return None

    def around(self, attempt: Attempt, step: int, *, repeated: bool) -> Attempt:
        """Return a pass with what belongs around it.

        Args:
            attempt: the pass, with what systems earlier in the list put around it.
            step: training step.
            repeated: whether any system may run it again.
        """
        return attempt

    def gradients(self, found: Pass) -> Pass:
        """Return a pass with the gradients that the update gets."""
        return found

    def end_step(self, steps: int) -> None:
        """Note how many steps are done."""

    def step_times(self) -> StepTimes | None:
        """Return simulated times of the step that has ended; None leaves that to others."""
        return None

    def logged(self, found: Mapping[str, Any]) -> None:
        """Take notice of a log point.

        Args:
            found: its row of `metrics`, `seconds` of training so far, and entries of `run.json` that systems have.
        """

    @property
    def is_over(self) -> bool:
        """Whether the run shall end at this log point."""
        return False

    def phase(self, step: int) -> str | None:
        """Return what a step is part of; None leaves that to others."""
        return None

    # ---- what is written down ----

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
        """Return plain data (JSON) that `load` reads back; None where there is nothing."""
        return None

    def load(self, data: Any) -> None:
        """Take what `to_dict` returned."""

    def arrays(self) -> dict[str, Array]:
        """Return arrays that `load_arrays` takes back, by name."""
        return {}

    def load_arrays(self, arrays: dict[str, Array]) -> None:
        """Take what `arrays` returned."""
