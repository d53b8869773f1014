"""The command `emu sensitivity`: measure changes with a progress bar, print the ranked table, name the next step."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from emu.cli.tables import Listing, console
from emu.errors import ConfigError
from emu.report.sensitivity import Sensitivity
from emu.report.sensitivity.words import cells, conclusions, failures, header, headline, limits, lost, warning
from emu.sensitivity import Measuring, SensitivityOptions, question_of


def options_of(choices: dict[str, Any]) -> SensitivityOptions:
    """Return options from the texts of a command line.

    Raises:
        ConfigError: a text is no list of what it must be.
    """
    given = {name: value for name, value in choices.items() if value is not None}
    for name in ("bits", "seeds"):
        if name in given:
            given[name] = _integers(f"--{name}", given[name])
    for name in ("formats", "roles"):
        if name in given:
            given[name] = _parts(given[name])
    if "margin" in given:
        given["margin"] /= 100
    return SensitivityOptions(**given)


def _parts(text: str) -> list[str]:
    """Return the parts of a list with commas; commas within <> belong to a format."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "<") - (letter == ">")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def _integers(option: str, text: str) -> list[int]:
    parts = _parts(text)
    if not parts or not all(part.isdecimal() for part in parts):
        raise ConfigError(f"{option} must be whole numbers with commas between them, got {text!r}; e.g. 8,6,4")
    return [int(part) for part in parts]


def analyse(
    target: str,
    model: str | None,
    device: str | None,
    settings: list[str],
    out: Path | None,
    options: SensitivityOptions,
) -> None:
    """Measure what is not measured yet, print the table, and build page and search file."""
    question = question_of(target, model, device, settings, options)
    terminal = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    measuring: Measuring | None = None
    with Progress(*columns, *times, console=terminal, disable=not terminal.is_terminal) as bar:
        try:
            task = bar.add_task("the unchanged device", total=None)
            measuring = Measuring(question, options, out)
            _measure(measuring, bar, task)
        except KeyboardInterrupt:
            bar.stop()
            _stop(measuring)
    _print(measuring.finish())


def _measure(measuring: Measuring, bar: Progress, task: TaskID) -> None:
    """Measure what is left, and show each row on the bar; without a terminal, as a line."""
    total = len(measuring.changes)
    done = total - len(measuring.left())
    bar.update(task, total=total, completed=done, description="changes")
    for row in measuring.measure():
        done += 1
        what = f"{row.role} of {row.layer} in {row.format}"
        bar.update(task, completed=done, description=what)
        if bar.disable:
            print(f"{done}/{total}  {what}: {lost(row)} points lost", file=sys.stderr, flush=True)


def _stop(measuring: Measuring | None) -> NoReturn:
    """Print what is measured, and the command that goes on; end the process."""
    done = ""
    if measuring is not None:
        _print(measuring.finish())
        done = f" after {len(measuring.changes) - len(measuring.left())} of {len(measuring.changes)} changes"
    print(f"emu: interrupted{done}; go on with: {shlex.join(['emu', *sys.argv[1:]])}", file=sys.stderr)
    sys.exit(130)


def _print(measured: Sensitivity) -> None:
    screen = console()

    def say(text: str, style: str = "") -> None:
        screen.print(text, style=style, markup=False, soft_wrap=True)

    if notice := warning(measured):
        say(notice, "bold red")
    say(headline(measured), "bold")
    if measured.rows:
        names = header(measured)
        rows = [cells(measured, row) for row in measured.ranked()]
        screen.print(Listing(names, rows, keys=3, numbers=names[3:-1], under=names[-1:]))
    for line in (*failures(measured), *conclusions(measured)):
        say(line)
    for line in limits(measured):
        say(f"note      {line}")
    _say_where(measured, say)


def _say_where(measured: Sensitivity, say: Any) -> None:
    say(f"report    {measured.path / 'report.html'}")
    if search := measured.about.get("search"):
        say(f"search    emu search {shlex.quote(str(_from_here(measured.path / search)))}")


def _from_here(path: Path) -> Path:
    here = Path.cwd().resolve()
    return path.relative_to(here) if path.is_relative_to(here) else path
