"""The training loop, step by step. All arithmetic is done on the datapath.

    mini-batch ──► working copies ──► forward ──► loss ──► backward ──► gradients ──► update

A step depends only on recipe, device, seed, the number of the step and the arrays of the checkpoint. So a run that was
killed and resumed ends in the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from numpy.typing import NDArray

from emu.training.data_tables import Inputs
from emu.training.loop.checkpoint import Checkpoint
from emu.training.loop.log import Log
from emu.training.loop.steps import Steps
from emu.training.systems import SYSTEMS, Attempt, Examples, System, require_known, step_times_of
from emu.training.workbench import Workbench
from emu.training.workbench.model import Pass, StepRunner

Array = NDArray[Any]


class Loop:
    """Takes the steps of a run.

    Attributes:
        bench: recipe, device, model, data, runners and processes.
        steps: how many are done, and how many there are.
        systems: they change passes, gradients and batches; the innermost around a pass is first.
        log: tables and results.
        checkpoint: state from which the run is resumed.
        runner: runs passes over whole mini-batches.
        updating: runs updates.
    """

    def __init__(self, bench: Workbench) -> None:
        """Make all systems, before the first step.

        Raises:
            ConfigError: a system cannot work with recipe or device, or with what other systems do.
        """
        # before systems are made: a table of an unknown system would else be ignored
        require_known(bench.recipe, SYSTEMS)
        self.bench = bench
        self.steps = Steps(bench.recipe.training, bench.batches)
        self.systems: list[System] = [system(bench) for system in SYSTEMS]
        self.log = Log(bench, self.steps, self.systems)
        self.checkpoint = Checkpoint(bench, self.steps, self.systems, self.log)
        about = self.log.about()  # what all systems say of themselves: some need others
        for system in self.systems:
            system.require(about)
        # after the systems: a runner takes points, scales and the table of counts as they are when it is made
        self.runner, self.updating = bench.runners.for_passes(), bench.runners.for_updates()

    def advance(self) -> tuple[float, float]:
        """Take the next step; return loss and accuracy of its mini-batch."""
        for system in self.systems:
            system.begin_step(self.steps.done, self.steps.left, self.trial)
        # asked for after `begin_step`, which may change the size of this very batch
        return self._step(*self.bench.batches.batch(self.steps.done))

    def trial(self, batches: Sequence[Examples]) -> list[float]:
        """Take a step on each of these mini-batches, undo all of them, and return their losses."""
        # steps of a trial call no `begin_step`: a trial begins no other trial
        with self.checkpoint.undone():
            return [self._step(*examples)[0] for examples in batches]

    def _step(self, inputs: Inputs, labels: Array) -> tuple[float, float]:
        step, bench = self.steps.done, self.bench
        bench.runners.begin_step(step)

        # forward and backward: a system may divide the batch, count a pass, or run it again. Each wraps the pass of
        # those before it. The outermost begins at a scale of 1, which loss scaling multiplies by S
        attempt = self._pass_over(inputs, labels)
        may_run_again = any(system.repeats for system in self.systems)
        for system in self.systems:
            attempt = system.around(attempt, step, repeated=may_run_again)
        result = attempt(1.0)

        # gradients: clipped, exchanged
        for system in self.systems:
            result = system.gradients(result)

        # the update, with the running moments of normalisation, unless loss scaling gave the step up
        rate = self._rate(step, len(inputs))
        if result.is_applied:
            bench.update.apply(bench.model.states, result.gradients, rate, result.scale, self.updating)
            bench.model.moments |= result.moments

        # the step is done: systems choose binary points and sizes for later steps, and the log gets its results
        self.steps.done += 1
        phase = next((name for system in self.systems if (name := system.phase(step))), "training")
        times = partial(step_times_of, self.systems)  # asked for times by systems after the one that has them
        for system in self.systems:
            system.end_step(self.steps.done, phase, times)
        self.log.add_step(result, rate)
        bench.runners.end_step()
        return result.loss, result.correct / labels.size

    def _pass_over(self, inputs: Inputs, labels: Array) -> Attempt:
        """Return the pass over a mini-batch, forward and backward at a scale of the loss; a system may divide it."""

        def over_part(scale: float, part: slice, runner: StepRunner) -> Pass:
            return self.bench.model.run(runner, inputs[part], labels[part], backward=True, scale=scale)

        parts = (system.divided(over_part, len(inputs), self.steps.done) for system in self.systems)
        # the first system that divides the batch decides how
        in_parts = next((attempt for attempt in parts if attempt), None)
        return in_parts or (lambda scale: over_part(scale, slice(None), self.runner))

    def _rate(self, step: int, examples: int) -> float:
        rate = self.steps.rate(step)
        for system in self.systems:
            rate = system.rate(rate, examples)
        return rate
