"""What `emu search` prints at its end: the front as a table, and the command that confirms it."""

from __future__ import annotations

from pathlib import Path

from emu.cli.tables import Listing, console
from emu.report.search import read_search
from emu.report.search.front_table import CHANGES, SEEDS, TRIAL, cells, header, listed
from emu.report.search.page import CONFIRM, FILE_NAME


def print_search(folder: Path) -> None:
    """Print the front of a search, or the trials nearest to it, and where report, table and devices are.

    Raises:
        ConfigError: the folder has no search.
    """
    searched, out = read_search(folder), console()
    heads, trials = header(searched), listed(searched)
    if trials:
        title = "the front" if searched.front() else "no trial holds every constraint; these miss them by least"
        rows = [cells(searched, trial) for trial in trials]
        out.print(Listing(heads, rows, title, under=(CHANGES,), numbers=(TRIAL, SEEDS)))
        out.print()
    if searched.front():
        seeds = "seeds that the search did not use"
        print(f"confirm emu study {folder / CONFIRM}    trains the front with {seeds}")
    report = folder / FILE_NAME
    print(f"report  {report}\ntable   {report.with_suffix('.md')}")
