"""What the command does: choose rows, start the measuring processes, show progress and tables, write a file."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from rich.text import Text

from benchmarks.measuring.bar import BenchBar
from benchmarks.measuring.costs import estimate_s, in_words
from benchmarks.measuring.machine import describe
from benchmarks.measuring.markdown import document
from benchmarks.measuring.processes import Job, jobs, run
from benchmarks.measuring.result import Result, Session, median_sweeps
from benchmarks.measuring.row import Row
from benchmarks.measuring.sheets import PATHS, Sheet, every_sheet, summary
from benchmarks.measuring.timing import FULL, LOOK, QUICK
from benchmarks.peers import chosen
from benchmarks.rows import TABLE, select
from emu._interrupt import Interrupted
from emu.cli.tables import Listing, console
from emu.errors import ConfigError

#: What the user types.
NAME = "python -m benchmarks"
SUFFIXES = (".md", ".json")
#: Columns too wide for a terminal; the row's name says enough.
LEFT_TO_FILES = ("work", "its work")
#: Columns that stand under their row where a table is too wide; the first ones leave it first.
UNDER_THE_ROW = ("limit", "stands", "bar, goal", "asked")


def bench(against: str | None, patterns: list[str], threads: str | None, out: Path | None, *, quick: bool) -> Session:
    """Measure, print the tables, write `out`; return what was measured.

    Raises:
        ConfigError: no such row, peer or number of threads, or a file of another kind.
        Interrupted: Ctrl-C, after what was measured is printed and written.
    """
    rows, peers, counts = select(patterns), chosen(against), thread_counts(threads)
    if out is not None and out.suffix not in SUFFIXES:
        raise ConfigError(f"--out must end in {' or '.join(SUFFIXES)}, got {str(out)!r}; choose one of them")
    pace = QUICK if quick else FULL if patterns else LOOK
    planned = jobs(rows, counts, [peer.name for peer in peers], quick=quick, budget_s=pace.budget_s)
    print(_announced(planned, is_choice=not patterns), file=sys.stderr, flush=True)
    results: list[Result] = []
    interrupted = False
    try:
        _measure(planned, results)
    except KeyboardInterrupt:
        interrupted = True
    session = Session(describe(peers), median_sweeps(results), quick)
    reached = [row for row in rows if row.name in {result.row for result in results}]
    if reached:
        _print(session, reached)
        if out is not None:
            write(session, reached, out)
    if interrupted:
        raise _interrupted(planned, results, out if reached else None, {"--against": against, "--threads": threads})
    return session


def _interrupted(
    planned: list[Job], results: list[Result], out: Path | None, options: dict[str, str | None]
) -> Interrupted:
    """Return what is kept of an interrupted command, and the command that measures the rest.

    Args:
        planned: the processes of the command.
        results: what they have measured, in their order.
        out: the file that was written; None if none was.
        options: options of the command by their name; None for one that was not given.
    """
    names = [row.name for job in planned for row in job.rows]
    count = f"{len(results)} of {_number(len(names), 'measurement')}"
    kept = f"{count} are printed above" if results else f"none of {_number(len(names), 'measurement')} is made"
    kept += f" and written to {out}" if out is not None else ""
    arguments = [word for name in dict.fromkeys(names[len(results) :]) for word in ("--rows", name)]
    arguments += [word for name, value in options.items() if value is not None for word in (name, value)]
    if planned[0].quick:
        arguments.append("--quick")
    return Interrupted(kept, arguments)


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


def _announced(planned: list[Job], *, is_choice: bool) -> str:
    """Return how many rows are measured, about how long that takes, and what else there is."""
    rows = {row.name for job in planned for row in job.rows}
    counts = sorted({job.threads for job in planned})
    one = planned[0]
    many = _number(sum(len(job.rows) for job in planned), "measurement")
    threads = ", ".join(_number(count, "thread") for count in counts)
    lines = [f"{NAME}: {many} of {_number(len(rows), 'row')} ({threads}), about {in_words(estimate_s(planned))}"]
    lines.append("  It takes longer while kernels are compiled, and on a busy machine.")
    if not is_choice:
        return "\n".join(lines)
    lines.append("  This is a choice of rows; the others:")
    for command, about, pattern in (
        (f"{NAME} --rows {TABLE}", "the whole table", TABLE),
        (f"{NAME} --rows '*'", "everything", "*"),
    ):
        found = select([pattern])
        seconds = estimate_s(jobs(found, counts, list(one.peers), quick=one.quick))
        lines.append(f"    {command:38}{about}: {_number(len(found), 'row')}, about {in_words(seconds)}")
    lines.append(f"    {NAME} --rows 'product/*'  rows whose names match; repeatable")
    return "\n".join(lines)


def _number(count: int, thing: str) -> str:
    return f"{count} {thing}{'s' * (count != 1)}"


def _measure(planned: list[Job], results: list[Result]) -> None:
    """Measure; append each result as it comes."""
    with BenchBar(planned) as bar:
        for job in planned:
            bar.show(job, job.rows[0])
            for done, result in enumerate(run(job), start=1):
                results.append(result)
                bar.advance(job, job.rows[done - 1], result)
                if done < len(job.rows):
                    bar.show(job, job.rows[done])


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


def _table(sheet: Sheet) -> Listing:
    shown = [i for i, column in enumerate(sheet.columns) if column not in LEFT_TO_FILES]
    columns = [sheet.columns[i] for i in shown]
    return Listing(
        columns,
        [[row[i] for i in shown] for row in sheet.rows],
        title=sheet.title,
        under=[column for column in UNDER_THE_ROW if column in columns],
        names_under=True,
        keys=sheet.keys,
    )
