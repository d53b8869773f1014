"""The runners of a run, which carry its operations to the datapath; all are at the same step."""

from __future__ import annotations

from emu.precision import CounterTable, Profile
from emu.training.workbench.model import Model, StepRunner


class Runners:
    """Makes runners that share a seed, a backend, counters and a profile, and moves all of them from step to step.

    Attributes:
        backend: backend that computes.
        counters: registers and flags since the last log point.
        pass_counters: registers and flags of passes: the same object as `counters`, unless passes may be repeated. Then
            loss scaling puts a table of its own here, and adds the counts of the pass that it keeps to `counters`. Put
            it here before the first `for_passes`: a runner keeps the table that it was made with.
        profile: times of operations since the last log point.
    """

    def __init__(self, model: Model, seed: int, backend: str) -> None:
        """Begin at the first step, without a runner.

        Args:
            model: gives each runner its formats and binary points.
            seed: key of all random numbers.
            backend: backend that computes.
        """
        self.backend, self._model, self._seed = backend, model, seed
        # one table, until loss scaling replaces the second
        self.counters = self.pass_counters = CounterTable(model.policy.register)
        self.profile = Profile()
        self._runners: list[StepRunner] = []
        self._step = 0

    def for_passes(self) -> StepRunner:
        """Return a new runner of passes."""
        return self._new(self.pass_counters)

    def for_updates(self) -> StepRunner:
        """Return a new runner of operations that are never repeated with a pass."""
        return self._new(self.counters)

    def _new(self, counters: CounterTable) -> StepRunner:
        runner = self._model.runner(
            self._model.policy, counters=counters, seed=self._seed, backend=self.backend, profile=self.profile
        )
        self._runners.append(runner)
        # a runner may be made late, as those of nodes are: it joins at the step of the others
        self._move(runner)
        return runner

    def begin_step(self, step: int) -> None:
        """Move all runners to a step, and start the step's clock."""
        self.profile.begin_step()
        self._step = step
        for runner in self._runners:
            self._move(runner)

    def _move(self, runner: StepRunner) -> None:
        # the step is part of the address of random bits; formats may change with it
        runner.step, runner.policy = self._step, self._model.policy.at(self._step)

    def end_step(self) -> None:
        """Stop the step's clock."""
        self.profile.end_step()

    def flush(self) -> None:
        """Add the counts that runners keep by tensor to the table each was made with: `pass_counters` or `counters`."""
        for runner in self._runners:
            runner.flush()
