"""The steps of a run: how many are done, how many there are, and the learning rate of each."""

from __future__ import annotations

from emu.training.data.batches import Batches
from emu.training.loop.schedule import learning_rate
from emu.training.recipe import Training


class Steps:
    """The steps of a run.

    Attributes:
        done: number of steps that were taken.
        are_stopped: whether a system has ended the run before its last planned step.
    """

    def __init__(self, settings: Training, batches: Batches) -> None:
        """Begin before the first step.

        Args:
            settings: `[training]` of the recipe.
            batches: sizes of mini-batches, by which epochs are counted.
        """
        self._settings, self._batches = settings, batches
        self.done, self.are_stopped = 0, False

    @property
    def planned(self) -> int:
        """How many steps the run has. If its recipe counts epochs, this follows from the sizes of mini-batches."""
        # exactly one of the two is given: `or 1` is never taken, and only satisfies the type checker
        return self._settings.steps or self._batches.steps(self._settings.epochs or 1)

    @property
    def left(self) -> int:
        """How many planned steps are not yet taken."""
        return self.planned - self.done

    @property
    def are_over(self) -> bool:
        """Whether the run has taken its last step."""
        return self.are_stopped or self.left <= 0

    def rate(self, step: int) -> float:
        """Return the learning rate that the schedule gives a step. A recipe in epochs is scheduled by epoch."""
        settings, given = self._settings, self._settings.steps  # None if the recipe has epochs
        # in epochs, both are counted in steps of the planned size of mini-batches, whatever their size is now
        position = step if given else self._batches.progress(step)
        length = given or (settings.epochs or 1) * self._batches.per_epoch
        return learning_rate(settings.optimiser.learning_rate, settings.schedule, position, length)
