"""How far the measurements are: a bar with the row being measured, or a line for each row if there is no terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn

from benchmarks.measuring.costs import START_S, estimate_s, in_words, row_seconds
from benchmarks.measuring.processes import Job
from benchmarks.measuring.result import Result
from benchmarks.measuring.row import Row
from benchmarks.measuring.sheets import figure, spread
from benchmarks.measuring.timing import Clock

#: The estimate counts as much as so many seconds of measuring that took as long as expected.
TRUSTED_S = 10.0


class BenchBar:
    """Says what is measured, and about how long the rest takes: as much slower than estimated as what is done.

    One line of 80 columns holds the longest of it.

    Attributes:
        live: whether there is a terminal.
        total: rows of all processes.
        done: rows measured.
    """

    def __init__(self, planned: Sequence[Job], clock: Clock = time.perf_counter) -> None:
        screen = Console(stderr=True)
        self.live = screen.is_terminal
        columns = (
            SpinnerColumn(),
            BarColumn(bar_width=10),
            TextColumn("{task.fields[rows]}  {task.description}  {task.fields[left]}"),
        )
        self.progress = Progress(*columns, console=screen)
        self.total, self.done = sum(len(job.rows) for job in planned), 0
        self.expected_s, self.measured_s = estimate_s(planned), 0.0
        self.clock, self.begin = clock, clock()
        self.task: TaskID = self.progress.add_task("", total=self.expected_s, rows=f"0/{self.total}", left="")

    def __enter__(self) -> BenchBar:
        if self.live:
            self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.progress.stop()

    def show(self, job: Job, row: Row) -> None:
        """Say what is measured now."""
        threads = "1 thread" if job.threads == 1 else f"{job.threads} threads"
        kernels = f", {job.core_type}" if job.core_type else ""
        self.progress.update(self.task, description=f"{row.name}, {threads}{kernels}", left=self.left())

    def advance(self, job: Job, row: Row, result: Result) -> None:
        """A row is done."""
        self.done += 1
        self.measured_s += row_seconds(job, row) + (START_S if row is job.rows[0] else 0)
        self.progress.update(self.task, completed=self.measured_s, rows=f"{self.done}/{self.total}", left=self.left())
        if not self.live:
            outcome = f"failed: {result.failure}" if result.failure else figure(result.ours, row.unit)
            parts = (f"{self.done}/{self.total}", row.name, outcome, spread(result.ratio), self.left())
            print("  ".join(part for part in parts if part), file=sys.stderr, flush=True)

    def left(self) -> str:
        """Return about how long the rest takes; nothing where it is over."""
        if self.done == self.total:
            return ""
        took_s = self.clock() - self.begin
        slower = (took_s + TRUSTED_S) / (self.measured_s + TRUSTED_S)
        return f"{in_words((self.expected_s - self.measured_s) * slower)} left"
