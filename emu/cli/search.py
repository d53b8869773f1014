"""What `emu search` prints at its end: the front as a table, and the command that confirms it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from rich.text import Text

from emu.cli.output import Output
from emu.cli.tables import Listing
from emu.report.search import read_search
from emu.report.search.front_table import CHANGES, SEEDS, TRIAL, cells, changes_in_words, header, listed
from emu.report.search.page import CONFIRM, FILE_NAME
from emu.report.search.trials import Searched, Trial


def search_output(folder: Path) -> Output:
    """Return the front of a search, or the trials nearest to it, and where report, table and devices are.

    Raises:
        ConfigError: the folder has no search.
    """
    searched, report = read_search(folder), folder / FILE_NAME
    trials, front = listed(searched), searched.front()
    parts: list[Any] = []
    if trials:
        title = "the front" if front else "no trial holds every constraint; these miss them by least"
        rows = [cells(searched, trial) for trial in trials]
        parts += [Listing(header(searched), rows, title, under=(CHANGES,), numbers=(TRIAL, SEEDS)), Text()]
    if front:
        seeds = "seeds that the search did not use"
        parts.append(f"confirm emu study {shlex.quote(str(folder / CONFIRM))}    trains the front with {seeds}")
    parts += [f"report  {report}", f"table   {report.with_suffix('.md')}"]
    data = {
        "front": [_plain(searched, trial) for trial in front],
        "nearest": [] if front else [_plain(searched, trial) for trial in trials],
        "confirm": folder / CONFIRM if front else None,
        "report": report,
        "table": report.with_suffix(".md"),
    }
    return Output(parts, data)


def _plain(searched: Searched, trial: Trial) -> dict[str, Any]:
    return {
        "trial": trial.number,
        "objectives": dict(zip(searched.metrics, trial.objectives, strict=True)),
        "seeds": len(trial.runs),
        "values": trial.values,
        "changes": changes_in_words(searched, trial),
    }
