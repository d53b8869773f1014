"""What a process does for a search: it takes trials, trains their runs seed by seed, and records their results.

baseline, all seeds ──► trials, as many at a time as the engine has slots
take ──► seed 1 ──► pruned? ──► seed 2 ──► ... ──► tell
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from emu.errors import ConfigError, EmuError
from emu.jobs import Runs
from emu.jobs.sending import Sending
from emu.report.search.trials import BASELINE
from emu.report.search.words import called, value_in_words
from emu.search.file import Values
from emu.search.ledger import Ledger
from emu.search.metrics import Measured, Metrics, Verdict, of_run, of_shapes
from emu.search.snapshot import Snapshot
from emu.search.space import Setup, Space
from emu.training.planned import PlannedRun

#: Seconds between two checks for free trials, while this process has nothing else to do.
LOOK_S = 1.0


@dataclass
class _Trial:
    """A trial that this process holds.

    Attributes:
        number: number of the trial.
        setup: recipe and device that it trains.
        shapes: metrics that are known before training.
        runs: metrics by seed, of the seeds that are trained.
    """

    number: int
    setup: Setup
    shapes: Measured
    runs: dict[int, Measured] = field(default_factory=dict[int, Measured])


class Drive:
    """A search on an engine.

    Attributes:
        ledger: the trials of the search.
    """

    def __init__(
        self,
        space: Space,
        metrics: Metrics,
        ledger: Ledger,
        sending: Sending,
        snapshot: Snapshot,
        say: Callable[[str], None],
    ) -> None:
        """Prepare; `run` begins.

        Args:
            space: makes recipe and device from values.
            metrics: measures trials.
            ledger: the trials of the search.
            sending: sends runs to the engine, and brings them back.
            snapshot: files that the report is made of; written when a trial ends.
            say: prints a line when a trial ends.
        """
        self.ledger = ledger
        self._space, self._metrics, self._sending, self._snapshot, self._say = space, metrics, sending, snapshot, say
        self._search = ledger.search
        self._baseline: dict[int, Measured] = {}
        self._trials: dict[int, _Trial] = {}
        #: Runs on the engine, by key: the run, number of its trial, seed.
        self._planned: dict[str, tuple[PlannedRun, int, int]] = {}

    def run(self, runs: Runs, tick: Callable[[], None]) -> None:
        """Train until all trials have ended, those of other processes included.

        Args:
            runs: the engine.
            tick: called several times a second.

        Raises:
            ConfigError: a run of the baseline failed, or storage or engine cannot be reached.
        """
        try:
            if self._metrics.needs_baseline:
                self._run_baseline(runs, tick)
            self._snapshot.write(self.ledger)
            self._run_trials(runs, tick)
        except BaseException:
            with suppress(ConfigError):  # trials that cannot be given back count as lost after a while
                self.ledger.let_go()
            raise
        self._snapshot.write(self.ledger)

    def doing(self, runs: Runs) -> str:
        """Return, in a few words, what runs now."""
        return ", ".join(sorted(runs.running())) or "trials of other processes"

    def _run_baseline(self, runs: Runs, tick: Callable[[], None]) -> None:
        # runs of the baseline that the folder does not have yet, by key
        left: dict[str, tuple[PlannedRun, int]] = {}
        setup = self._space.baseline
        for seed in self._search.seeds:
            run = PlannedRun(f"{BASELINE}{seed}", setup.seeded(seed), setup.device)
            if (info := self._finished(run)) is not None:
                self._baseline[seed] = of_run(info)
            else:
                left[run.key] = run, seed
                runs.submit(self._sending.job(run))
        while left:
            tick()
            for ended in runs.ended():
                run, seed = left.pop(ended.key)
                info = self._sending.arrived(run, ended.failure)
                if isinstance(info, str):
                    raise ConfigError(f"the baseline of a search must train, got a failure with seed {seed}: {info}")
                self._baseline[seed] = of_run(info)

    def _finished(self, run: PlannedRun) -> dict[str, Any] | None:
        """Return `run.json` of a run that the search's folder already has; None if the run must be trained.

        Raises:
            ConfigError: the folder has a run of this name with another recipe or device.
        """
        # a run of this name may be that of another search in the same folder
        self._sending.home.require_own(run)
        return self._sending.home.result(run)

    def _run_trials(self, runs: Runs, tick: Callable[[], None]) -> None:
        looked_at = 0.0  # when this process last saw that no trial is free; 0: look at once
        while True:
            tick()
            # its runs may go on; their results are dropped when they end
            for number in self.ledger.renew():  # this process was silent for so long that another one took the trial
                self._trials.pop(number, None)
            has_slot = len(self._trials) < runs.slots
            # while something runs, the storage is asked once a second, and at once after a run has ended
            if has_slot and (time.monotonic() - looked_at > LOOK_S or not self._trials):
                taken = self.ledger.take()
                if taken is not None:
                    self._begin(*taken, runs)
                    continue  # first fill every slot of the engine
                looked_at = time.monotonic()
                if not self._trials:
                    if self.ledger.is_done():
                        return
                    # trials of other processes may have ended
                    self._snapshot.write(self.ledger)
                    time.sleep(LOOK_S)
            for ended in runs.ended():
                run, number, seed = self._planned.pop(ended.key)
                looked_at = 0.0  # trials that waited for this result may be free now
                if number in self._trials:  # else the trial is another process's, which records its results
                    self._settle(self._trials[number], seed, self._sending.arrived(run, ended.failure), runs)

    def _begin(self, number: int, values: Values, runs: Runs) -> None:
        # the design repeats values only if no others are possible
        first = self.ledger.first_with(values)
        if first < number:
            self.ledger.fail(number, {"repeats": first})
            self._ended(number, f"not trained: the same values as trial {first}, and no new ones were found")
            return
        try:
            # errors of this trial's values fail the trial, not the search
            setup = self._space.setup(values)
            trial = _Trial(number, setup, of_shapes(setup))
        except EmuError as error:
            self._fail(number, None, str(error))
            return
        self._trials[number] = trial
        self._go_on(trial, runs)

    def _go_on(self, trial: _Trial, runs: Runs) -> None:
        """Train the next seed of a trial."""
        # seed by seed, so that a trial may be pruned before its last seed
        seed = next(seed for seed in self._search.seeds if seed not in trial.runs)
        try:
            run = PlannedRun(f"trial-{trial.number:04}-seed{seed}", trial.setup.seeded(seed), trial.setup.device)
            info = self._finished(run)
        except EmuError as error:
            self._fail(trial.number, trial, str(error))
            return
        # the folder has the run: an earlier command was interrupted after it
        if info is not None:
            self._settle(trial, seed, info, runs)
            return
        # the run may still be on the engine: the trial was lost to another process, and then taken back from it
        if run.key not in self._planned:
            runs.submit(self._sending.job(run))
        self._planned[run.key] = run, trial.number, seed

    def _settle(self, trial: _Trial, seed: int, info: dict[str, Any] | str, runs: Runs) -> None:
        """Judge a trial after one more of its runs: go on with the next seed, or record how the trial ended.

        Args:
            trial: the trial.
            seed: seed of the run.
            info: `run.json` of the run, or why it failed.
            runs: the engine.
        """
        if isinstance(info, str):
            self._fail(trial.number, trial, f"seed {seed}: {info}")
            return
        trial.runs[seed] = of_run(info)
        try:
            verdict = self._metrics.verdict(trial.shapes, trial.runs, self._baseline)
        except ConfigError as error:
            self._fail(trial.number, trial, str(error))
            return
        if not verdict.pruned and len(trial.runs) < len(self._search.seeds):
            self._go_on(trial, runs)
            return
        self._tell(trial, verdict)

    def _tell(self, trial: _Trial, verdict: Verdict) -> None:
        # stored with the trial, so that a report needs none of its runs
        measured = {"metrics": verdict.means, "samples": verdict.samples, "pruned": verdict.pruned}
        results = self._results(trial) | measured
        self.ledger.tell(trial.number, verdict.values, verdict.violations, results)
        objectives = zip(self._search.objective, verdict.values, strict=True)
        reached = ", ".join(
            f"{called(objective.metric)} {value_in_words(objective.metric, value)}" for objective, value in objectives
        )
        note = "" if verdict.is_feasible else ", breaks a constraint"
        seeds = f" after {len(trial.runs)} of {len(self._search.seeds)} seeds" if verdict.pruned else ""
        self._ended(trial.number, f"{reached}{note}{seeds}")

    def _fail(self, number: int, trial: _Trial | None, why: str) -> None:
        self.ledger.fail(number, (self._results(trial) if trial else {}) | {"failure": why})
        self._ended(number, f"failed: {why}")

    def _results(self, trial: _Trial) -> dict[str, Any]:
        return {
            "device": trial.setup.device.name,
            "changes": self._space.changed(trial.setup),
            "shapes": trial.shapes,
            "runs": {str(seed): f"trial-{trial.number:04}-seed{seed}" for seed in trial.runs},
            "computer": platform.node(),
            "folder": str(self._sending.home.path),
        }

    def _ended(self, number: int, outcome: str) -> None:
        self._trials.pop(number, None)
        self._snapshot.write(self.ledger)
        self._say(f"trial {number}: {outcome}")
