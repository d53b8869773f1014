"""The log of a run: a row for each log point, and the results so far.

each step              loss and right answers
each log point         metrics, registers and flags of the interval, rows of systems; may end the run
each fourth log point  test accuracy, signal-to-noise against float32
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain
from typing import Any

from emu.precision import CounterTable
from emu.training.cost import cost_of
from emu.training.folders.history import History, rates
from emu.training.folders.run_folder import RunFolder
from emu.training.loop.probe import probe
from emu.training.loop.steps import Steps
from emu.training.systems import Row, System
from emu.training.workbench import Workbench
from emu.training.workbench.model import Pass

#: Log points of a run whose recipe has no `log_every`, and the fewest steps between two of them: a row has the mean
#: loss of several mini-batches.
LOG_POINTS, LOG_STEPS = 40, 5
#: Log points between two measurements of test accuracy and noise: they run the whole test set, and a pass in float32.
LOG_POINTS_PER_TEST = 4


class Log:
    """Collects what a run writes into its tables.

    Attributes:
        every: steps between two log points.
        history: tables of the run folder.
        losses: losses of the steps since the last log point.
        correct: right answers of these steps.
        total: registers and flags up to the last log point.
        seconds: seconds of training so far.
        started: when the run began, ISO 8601.
    """

    def __init__(self, bench: Workbench, steps: Steps, systems: Sequence[System]) -> None:
        """Begin with nothing written.

        Args:
            bench: what is trained; its counters and profile are those of the interval in progress.
            steps: how many are done; the log stops them if a system ends the run.
            systems: of the run; what they measured is written as well, and each may end the run.
        """
        self._bench, self._steps, self._systems = bench, steps, systems
        # fixed for the run, even if other sizes of mini-batches change the number of planned steps later
        self.every = bench.recipe.training.log_every or max(LOG_STEPS, steps.planned // LOG_POINTS)
        self.history = History()
        self.losses: list[float] = []
        self.correct: list[int] = []
        self.total = CounterTable(bench.policy.register)
        self.seconds = 0.0
        self.started = datetime.now(UTC).isoformat(timespec="seconds")
        self._rate = 0.0

    def add_step(self, result: Pass, rate: float) -> None:
        """Note the results of a step, and the events of systems in it.

        Args:
            result: the pass whose gradients were applied.
            rate: learning rate of the step.
        """
        self.losses.append(result.loss)
        self.correct.append(result.correct)
        self._rate = rate
        self._add_rows(system.events() for system in self._systems)

    def _add_rows(self, rows: Iterable[Iterable[Row]]) -> None:
        for table, row in chain.from_iterable(rows):
            self.history.add(table, step=self._steps.done, **row)

    # ---- a log point ----

    def end_interval(self) -> None:
        """Add the rows of the interval that ends here, ask systems whether the run is over, begin the next interval."""
        steps, runners, history = self._steps, self._bench.runners, self.history
        runners.flush()
        # from 1; the last step of a run is a log point even if it ends no interval of this length
        log_point = steps.done // self.every
        is_tested = log_point % LOG_POINTS_PER_TEST == 0 or steps.are_over
        row = self._interval_metrics() | self._test_metrics(is_tested)
        # before the row is written: if a test ends the run here, the row still gets its results on the test set
        steps.are_stopped = self._tell_systems(row)
        if steps.are_stopped and not is_tested:  # the last row of a run has results on the test set
            is_tested, row = True, row | self._test_metrics(True)
        history.add("metrics", step=steps.done, **row, weights_sha256=self._bench.model.sha256())
        history.add_counts(steps.done, runners.counters, self._bench.policy.table.register.counter_bits)
        history.add_profile(steps.done, runners.profile)
        # `interval` begins the next interval, so it is called once for each log point
        self._add_rows(system.interval() for system in self._systems)
        if is_tested:
            self._add_noise()
        # last: the rows above are of the interval that ends
        self.total.merge(runners.counters)
        runners.counters.reset()
        runners.profile.reset()
        self.losses, self.correct = [], []

    def _interval_metrics(self) -> dict[str, Any]:
        shares, batches, done = rates(self._bench.runners.counters), self._bench.batches, self._steps.done
        return {
            "epoch": batches.progress(done) / batches.per_epoch,
            "train_loss": sum(self.losses) / len(self.losses),
            # outputs, not examples: a sequence has an answer for each token
            "train_accuracy": sum(self.correct) / batches.outputs(range(done - len(self.losses), done)),
            "overflow_rate": shares.overflow,
            "underflow_rate": shares.underflow,
            "learning_rate": self._rate,
        }

    def _test_metrics(self, is_tested: bool) -> dict[str, float | None]:
        loss, accuracy = self.evaluate() if is_tested else (None, None)
        return {"test_loss": loss, "test_accuracy": accuracy}

    def evaluate(self) -> tuple[float, float]:
        """Return loss and accuracy on the test set."""
        data, seed, backend = self._bench.batches.data, self._bench.recipe.training.seed, self._bench.runners.backend
        # `after`: formats and points are those of the step that was just taken
        return self._bench.model.evaluate(
            data.test_inputs, data.test_labels, seed=seed, backend=backend, after=self._steps.done - 1
        )

    def _tell_systems(self, row: dict[str, Any]) -> bool:
        """Tell systems what was measured; return whether one of them ends the run."""
        # the row comes last: its names win over those of systems
        measured = {"seconds": self.seconds} | self.about() | row
        for system in self._systems:
            system.logged(measured)
        return any(system.is_over for system in self._systems)

    def _add_noise(self) -> None:
        """Add signal-to-noise of the newest batch, and the exponents of float32's errors and gradients."""
        # the batch of the step that was just taken, with the weights after it, at S of the next pass
        bench, step, scale = self._bench, self._steps.done - 1, self.scale
        where: dict[str, Any] = {"seed": bench.recipe.training.seed, "step": step, "backend": bench.runners.backend}
        noise = probe(bench.model, *bench.batches.batch(step), **where, scale=scale)
        for layer, role, ratio in noise.ratios:
            self.history.add("snr", step=self._steps.done, layer=layer, role=role, snr_db=ratio)
        for role, exponent, count in noise.exponents:
            columns: dict[str, Any] = {"role": role, "exponent": exponent, "count": count, "scale": scale}
            self.history.add("exponents", step=self._steps.done, **columns)

    # ---- the run so far ----

    @property
    def scale(self) -> float:
        """What the loss of the next pass is multiplied by."""
        return math.prod(system.scale for system in self._systems)

    def about(self) -> dict[str, Any]:
        """Return the entries of `run.json` that systems have."""
        return {name: value for system in self._systems for name, value in system.about().items()}

    @property
    def cost(self) -> dict[str, Any] | None:
        """Energy and area of a step, as `run.json` has them; None if the network was given from Python."""
        return None if self._bench.network else self._cost

    @cached_property
    def _cost(self) -> dict[str, Any]:
        bench = self._bench
        return cost_of(bench.recipe, bench.device, data=bench.batches.data).described()

    def registers(self) -> CounterTable:
        """Return registers and flags of the whole run so far."""
        # a new table, because `total` must not count the interval in progress before it ends
        merged = CounterTable(self._bench.policy.register)
        merged.merge(self.total)
        merged.merge(self._bench.runners.counters)
        return merged

    def metrics(self) -> dict[str, Any]:
        """Return the newest metrics, the run's rates of flags, and counts of all systems, 0 of those not in use."""
        shares = rates(self.registers())
        names = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")
        newest = {name: self.history.last("metrics", name) for name in names}
        if self._steps.are_over and newest["test_accuracy"] is None:  # metrics.parquet was deleted after the last step
            newest |= self._test_metrics(True)
        counts: dict[str, Any] = {f"{name}_rate": share for name, share in shares._asdict().items()}
        for system in self._systems:
            counts |= system.metrics()
        return newest | counts

    def write(self, folder: RunFolder) -> None:
        """Write the tables, and the other files of systems."""
        self.history.write(folder)
        for name, text in chain.from_iterable(system.files() for system in self._systems):
            folder.write_text(name, text)

    # ---- checkpoints ----

    def to_dict(self) -> dict[str, Any]:
        """Return plain data (JSON) that `load` reads back; the tables are files of their own."""
        return {
            "seconds": self.seconds,
            "losses": self.losses,
            "correct": self.correct,
            "interval": self._bench.runners.counters.to_dict(),
            "total": self.total.to_dict(),
        }

    def load(self, data: dict[str, Any]) -> None:
        """Take what `to_dict` returned."""
        self.seconds, self.losses, self.correct = data["seconds"], data["losses"], data["correct"]
        self._bench.runners.counters.load(data["interval"])
        self.total.load(data["total"])
