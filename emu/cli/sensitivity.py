"""The command `emu sensitivity`: measure changes with a progress bar; the ranked table and the next step."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict
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
from rich.text import Text

from emu._interrupt import Interrupted
from emu._paths import from_here
from emu.cli.options import parts_of
from emu.cli.output import Output
from emu.cli.tables import Listing
from emu.errors import ConfigError
from emu.report.sensitivity import Sensitivity
from emu.report.sensitivity.page import FILE_NAME
from emu.report.sensitivity.rows import Row
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
            given[name] = _given(given[name])
    if "margin" in given:
        given["margin"] /= 100  # the option is in points, `SensitivityOptions.margin` a share of 1
    return SensitivityOptions(**given)


def _given(text: str) -> list[str]:
    """Return the parts of a list that are not empty."""
    return [part for part in parts_of(text) if part]


def _integers(option: str, text: str) -> list[int]:
    parts = _given(text)
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
) -> Output:
    """Measure what is not measured yet, and build page and search file; return the table.

    Raises:
        Interrupted: Ctrl-C; what is measured is printed.
    """
    question = question_of(target, model, device, settings, options)
    terminal = Console(stderr=True, emoji=False)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    # None until the unchanged device is measured: an interrupt before that has nothing to keep.
    measuring: Measuring | None = None
    with Progress(*columns, *times, console=terminal, disable=not terminal.is_terminal) as bar:
        try:
            # How many changes there are follows from the question, once the unchanged device is measured.
            task = bar.add_task("the unchanged device", total=None)
            measuring = Measuring(question, options, out)
            _measure(measuring, bar, task)
        except KeyboardInterrupt:
            bar.stop()
            _stop(measuring)
    return sensitivity_output(measuring.finish())


def _measure(measuring: Measuring, bar: Progress, task: TaskID) -> None:
    """Measure what is left, and show each row on the bar; without a terminal, as a line."""
    total = len(measuring.changes)
    done = total - len(measuring.left())
    bar.update(task, total=total, completed=done, description="changes")
    for row in measuring.measure():
        done += 1
        what = f"{row.role} of {row.layer} in {row.format}"
        bar.update(task, completed=done, description=what)
        # On stderr, as the bar is: stdout has the table alone.
        if bar.disable:
            print(f"{done}/{total}  {what}: {lost(row)} points lost", file=sys.stderr, flush=True)


def _stop(measuring: Measuring | None) -> NoReturn:
    """Print what is measured, and say what is kept."""
    if measuring is None:
        raise Interrupted("no change is measured yet") from None
    # Page and search file are built of what there is: the next call of the command goes on from the file of rows.
    sensitivity_output(measuring.finish()).show(as_json=False)
    done = len(measuring.changes) - len(measuring.left())
    raise Interrupted(f"{done} of {len(measuring.changes)} changes are in {measuring.path}") from None


def sensitivity_output(measured: Sensitivity) -> Output:
    """Return the ranked table, what can go and what the analysis does not tell, and where page and search are."""
    parts: list[Any] = []
    if notice := warning(measured):
        parts.append(Text(notice, style="bold red"))
    parts.append(headline(measured))
    if measured.rows:
        names = header(measured)
        rows = [cells(measured, row) for row in measured.ranked()]
        # columns as `header` orders them: layer, role and format name a change, numbers follow, events stand last
        parts.append(Listing(names, rows, keys=3, numbers=names[3:-1], under=names[-1:]))
    parts += [*failures(measured), *conclusions(measured), *(f"note      {line}" for line in limits(measured))]
    report = measured.path / FILE_NAME
    parts.append(f"report    {report}")
    search = measured.about.get("search") and measured.path / str(measured.about["search"])
    if search:
        parts.append(f"search    emu search {shlex.quote(str(from_here(search)))}")
    data = {
        "accuracy": measured.baseline,
        "is_at_chance": measured.is_at_chance,
        "rows": [_plain(measured, row) for row in measured.ranked()],
        "together": [asdict(together) for together in measured.together],
        "report": report,
        "search": search or None,
    }
    return Output(parts, data)


def _plain(measured: Sensitivity, row: Row) -> dict[str, Any]:
    answers = row.answers
    return {
        "layer": row.layer,
        "role": row.role,
        "passes": row.passes,
        "own_format": row.own,
        "format": row.format,
        "lost_share": None if measured.is_at_chance else row.lost,
        "interval": None if row.difference is None else row.difference.interval,
        "changed": answers and answers.changed,
        "spoilt": answers and answers.spoilt,
        "mended": answers and answers.mended,
        "loss_increase": row.loss_increase,
        "saved_share": row.saving,
        "overflow_share": row.share("overflow"),
        "underflow_share": row.share("underflow"),
        "is_tolerated": measured.is_tolerated(row),
        "failure": row.failure or None,
    }
