"""What a process does for a search: takes trials, trains their runs seed by seed, and tells what they are worth.

baseline, every seed ──► trials, as many at a time as the engine has slots
take ──► seed 1 ──► hopeless? ──► seed 2 ──► ... ──► tell
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
from emu.search.file import Values
from emu.search.ledger import Ledger
from emu.search.metrics import Measured, Metrics, Verdict, of_run, of_shapes
from emu.search.snapshot import Snapshot
from emu.search.space import Setup, Space
from emu.training.planned import PlannedRun

#: Seconds between two looks at what others do, while there is nothing of ours to do.
LOOK_S = 1.0


@dataclass
class _Course:
    """A trial that is ours.

    Attributes:
        number: of the trial.
        setup: what it trains.
        shapes: what is known of it before training.
        runs: metrics by seed, of the seeds that are trained.
    """

    number: int
    setup: Setup
    shapes: Measured
    runs: dict[int, Measured] = field(default_factory=dict[int, Measured])


class Drive:
    """A search on an engine.

    Attributes:
        ledger: where its trials are kept.
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
        """Run nothing.

        Args:
            space: what values stand for.
            metrics: what trials are measured by.
            ledger: where trials are kept.
            sending: how runs are trained.
            snapshot: what a report is made of; written when a trial ends.
            say: gets a line when a trial ends.
        """
        self.ledger = ledger
        self._space, self._metrics, self._sending, self._snapshot, self._say = space, metrics, sending, snapshot, say
        self._search = ledger.search
        self._baseline: dict[int, Measured] = {}
        self._courses: dict[int, _Course] = {}
        self._planned: dict[str, tuple[PlannedRun, int, int]] = {}

    def run(self, runs: Runs, tick: Callable[[], None]) -> None:
        """Go on until every trial has ended, ours and those of others.

        Args:
            runs: the engine.
            tick: called some times a second.

        Raises:
            ConfigError: a run of the baseline failed, or storage or engine cannot be reached.
        """
        try:
            if self._metrics.needs_baseline:
                self._run_baseline(runs, tick)
            self._snapshot.write(self.ledger)
            self._run_trials(runs, tick)
        except BaseException:
            self._give_back()
            raise
        self._snapshot.write(self.ledger)

    def doing(self, runs: Runs) -> str:
        """Return in a few words what runs."""
        return ", ".join(sorted(runs.running())) or "trials of other processes"

    def _give_back(self) -> None:
        with suppress(ConfigError):  # else they count as lost after a while
            self.ledger.let_go()

    def _run_baseline(self, runs: Runs, tick: Callable[[], None]) -> None:
        left: dict[str, tuple[PlannedRun, int]] = {}
        setup = self._space.baseline
        for seed in self._search.seeds:
            one = PlannedRun(f"baseline-seed{seed}", setup.seeded(seed), setup.device)
            if (info := self._finished(one)) is not None:
                self._baseline[seed] = of_run(info)
            else:
                left[one.key] = one, seed
                runs.submit(self._sending.job(one))
        while left:
            tick()
            for ended in runs.ended():
                one, seed = left.pop(ended.key)
                info = self._sending.arrived(one, ended.failure)
                if isinstance(info, str):
                    raise ConfigError(f"the baseline of a search must train, got a failure with seed {seed}: {info}")
                self._baseline[seed] = of_run(info)

    def _finished(self, one: PlannedRun) -> dict[str, Any] | None:
        self._sending.home.require_own(one)
        return self._sending.home.result(one)

    def _run_trials(self, runs: Runs, tick: Callable[[], None]) -> None:
        looked = 0.0
        while True:
            tick()
            for number in self.ledger.renew():
                self._courses.pop(number, None)
            free = len(self._courses) < runs.slots
            if free and (time.monotonic() - looked > LOOK_S or not self._courses):
                taken = self.ledger.take()
                if taken is not None:
                    self._begin(*taken, runs)
                    continue
                looked = time.monotonic()
                if not self._courses:
                    if self.ledger.is_done():
                        return
                    self._snapshot.write(self.ledger)
                    time.sleep(LOOK_S)
            for ended in runs.ended():
                one, number, seed = self._planned.pop(ended.key)
                looked = 0.0
                if number in self._courses:
                    self._settle(self._courses[number], seed, self._sending.arrived(one, ended.failure), runs)

    def _begin(self, number: int, values: Values, runs: Runs) -> None:
        try:
            setup = self._space.setup(values)
            course = _Course(number, setup, of_shapes(setup))
        except EmuError as error:
            self._fail(number, None, str(error))
            return
        self._courses[number] = course
        self._go_on(course, runs)

    def _go_on(self, course: _Course, runs: Runs) -> None:
        """Train the next seed of a trial."""
        seed = next(one for one in self._search.seeds if one not in course.runs)
        try:
            one = PlannedRun(f"trial-{course.number:04}-seed{seed}", course.setup.seeded(seed), course.setup.device)
            info = self._finished(one)
        except EmuError as error:
            self._fail(course.number, course, str(error))
            return
        if info is not None:
            self._settle(course, seed, info, runs)
            return
        if one.key not in self._planned:  # one that another process took, and lost, may be at it
            runs.submit(self._sending.job(one))
        self._planned[one.key] = one, course.number, seed

    def _settle(self, course: _Course, seed: int, info: dict[str, Any] | str, runs: Runs) -> None:
        if isinstance(info, str):
            self._fail(course.number, course, f"seed {seed}: {info}")
            return
        course.runs[seed] = of_run(info)
        try:
            verdict = self._metrics.verdict(course.shapes, course.runs, self._baseline)
        except ConfigError as error:
            self._fail(course.number, course, str(error))
            return
        if not verdict.hopeless and len(course.runs) < len(self._search.seeds):
            self._go_on(course, runs)
            return
        self._tell(course, verdict)

    def _tell(self, course: _Course, verdict: Verdict) -> None:
        told = self._told(course) | {"metrics": verdict.means, "pruned": verdict.hopeless}
        self.ledger.tell(course.number, verdict.values, verdict.violations, told)
        named = zip(self._search.objective, verdict.values, strict=True)
        said = ", ".join(f"{one.metric} {value:.4g}" for one, value in named)
        note = "" if verdict.is_feasible else ", breaks a constraint"
        seeds = f" after {len(course.runs)} of {len(self._search.seeds)} seeds" if verdict.hopeless else ""
        self._ended(course.number, f"{said}{note}{seeds}")

    def _fail(self, number: int, course: _Course | None, why: str) -> None:
        self.ledger.fail(number, (self._told(course) if course else {}) | {"failure": why})
        self._ended(number, f"failed: {why}")

    def _told(self, course: _Course) -> dict[str, Any]:
        return {
            "device": course.setup.device.name,
            "shapes": course.shapes,
            "runs": {str(seed): f"trial-{course.number:04}-seed{seed}" for seed in course.runs},
            "computer": platform.node(),
            "folder": str(self._sending.home.path),
        }

    def _ended(self, number: int, said: str) -> None:
        self._courses.pop(number, None)
        self._snapshot.write(self.ledger)
        self._say(f"trial {number}: {said}")
