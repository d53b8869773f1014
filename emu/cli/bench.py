"""What `emu bench` does: choose rows, start the measuring processes, show progress and tables, write a file."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from emu.bench.machine import describe
from emu.bench.markdown import document
from emu.bench.peers import chosen
from emu.bench.processes import Job, jobs, run
from emu.bench.result import Result, Session, median_sweeps
from emu.bench.row import Row
from emu.bench.rows import select
from emu.bench.sheets import PATHS, Sheet, every_sheet, figure, spread, summary
from emu.cli.tables import console, grid
from emu.errors import ConfigError

SUFFIXES = (".md", ".json")
#: Columns too wide for a terminal; the row's name says enough.
LEFT_TO_FILES = ("work", "its work")


def bench(against: str | None, patterns: list[str], threads: str | None, out: Path | None, *, quick: bool) -> Session:
    """Measure, print the tables, write `out`; return what was measured.

    Raises:
        ConfigError: no such row, peer or number of threads, or a file of another kind.
    """
    rows, peers, counts = select(patterns), chosen(against), thread_counts(threads)
    if out is not None and out.suffix not in SUFFIXES:
        raise ConfigError(f"--out must end in {' or '.join(SUFFIXES)}, got {str(out)!r}; choose one of them")
    planned = jobs(rows, counts, [peer.name for peer in peers], quick=quick)
    session = Session(describe(peers), median_sweeps(_measure(planned)), quick)
    _print(session, rows)
    if out is not None:
        write(session, rows, out)
    return session


def thread_counts(text: str | None) -> list[int]:
    """Return the numbers of threads to measure with: those given, or one and all processors.

    Raises:
        ConfigError: not positive integers with commas between, or more than there are processors.
    """
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if text is None:
        return sorted({1, available})
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and 1 <= int(part) <= available for part in parts):
        raise ConfigError(
            f"--threads must be numbers from 1 to {available}, the processors here, with commas between, got {text!r}; "
            "write --threads 1"
        )
    return sorted({int(part) for part in parts})


def write(session: Session, rows: list[Row], out: Path) -> None:
    """Write the results: data as .json, tables as .md."""
    data = json.dumps(session.to_dict(), indent=1) + "\n"
    out.write_text(data if out.suffix == ".json" else document(session, rows), encoding="utf-8")


def _measure(planned: list[Job]) -> list[Result]:
    total = sum(len(job.rows) for job in planned)
    results: list[Result] = []
    with BenchBar(total) as bar:
        for job in planned:
            kernels = f", BLAS {job.core_type}" if job.core_type else ""
            title = f"threads: {job.threads}{kernels}"
            bar.show(f"{title}  {job.rows[0].name}")
            for done, result in enumerate(run(job), start=1):
                results.append(result)
                following = job.rows[done].name if done < len(job.rows) else ""
                bar.advance(job.rows[done - 1], result, f"{title}  {following}")
    return results


class BenchBar:
    """A progress bar with the row being measured; plain lines where there is no terminal."""

    def __init__(self, total: int) -> None:
        screen = Console(stderr=True)
        self.live = screen.is_terminal
        columns = (BarColumn(), TextColumn("{task.completed}/{task.total}"), TextColumn("{task.description}"))
        self.progress = Progress(*columns, TimeElapsedColumn(), console=screen)
        self.task: TaskID = self.progress.add_task("", total=total)
        self.total, self.done = total, 0

    def __enter__(self) -> BenchBar:
        if self.live:
            self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.progress.stop()

    def show(self, text: str) -> None:
        """Say what is measured now."""
        self.progress.update(self.task, description=text)

    def advance(self, row: Row, result: Result, text: str) -> None:
        """A row is done; the next one begins."""
        self.done += 1
        self.progress.update(self.task, advance=1, description=text)
        if not self.live:
            outcome = f"failed: {result.failure}" if result.failure else figure(result.ours, row.unit)
            outcome += f"  {spread(result.ratio)}"
            print(f"{self.done}/{self.total}  {row.name}  {outcome.strip()}", file=sys.stderr, flush=True)


def _print(session: Session, rows: list[Row]) -> None:
    screen = console()
    for name, text in session.machine.items():
        screen.print(Text(f"{name}: {text}"))
    for sheet in every_sheet(session, rows):
        if sheet.title == PATHS:
            continue  # sentences: for files
        screen.print(Text(), _table(sheet))
        if sheet.note:
            screen.print(Text(sheet.note))
    screen.print(Text(f"\n{summary(session, rows)}"))


def _table(sheet: Sheet) -> object:
    shown = [i for i, column in enumerate(sheet.columns) if column not in LEFT_TO_FILES]
    table = grid(*(sheet.columns[i] for i in shown), title=sheet.title)
    for row in sheet.rows:
        table.add_row(*(Text(row[i]) for i in shown))
    return table
