"""The page of a comparison: sections of numbers, first differences, curves, formats and settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from emu._files import replace_file
from emu.errors import ConfigError
from emu.report.build import FILE_NAME
from emu.report.comparison.agreement import COVERS, sentences
from emu.report.comparison.curves import curves_section
from emu.report.comparison.datapaths import datapaths_section
from emu.report.comparison.numbers import numbers_of, numbers_table
from emu.report.comparison.runs import Compared, read_compared
from emu.report.comparison.settings import settings_section
from emu.report.html import Html, bullets, element, join, paragraph
from emu.report.page import SELF_CONTAINED, Section, page


def build_comparison(runs: Sequence[str | Path], out: str | Path = "compare.html") -> Path:
    """Write the page that compares runs, and return its path.

    Args:
        runs: folders of two or more runs, finished or not; the others are compared with the first.
        out: file of the page; an older one is replaced, atomically.

    Raises:
        ConfigError: there are fewer than two runs, a folder is no run or cannot be read, or the page cannot be written.
    """
    compared = read_compared([Path(run) for run in runs])
    write_comparison(compared, Path(out))
    return Path(out)


def write_comparison(compared: Sequence[Compared], out: Path) -> None:
    """Write the page that compares runs, with links to the reports in their folders.

    Args:
        compared: the runs, read already; the others are compared with the first.
        out: file of the page; an older one is replaced, atomically.

    Raises:
        ConfigError: the page cannot be written.
    """

    def link(run: Compared) -> str:
        report = run.folder / FILE_NAME
        # Relative to the page, so that folder and page can be moved together.
        return Path(os.path.relpath(report, out.resolve().parent)).as_posix() if report.is_file() else ""

    text = comparison_page(compared, link)
    try:
        replace_file(out, lambda file: file.write(text.encode()))
    except OSError as error:
        raise ConfigError(
            f"the page of a comparison must be a file that can be written, got {error.strerror or str(error)!r} for "
            f"{str(out)!r}; name another one with --out"
        ) from None


def comparison_page(compared: Sequence[Compared], link: Callable[[Compared], str]) -> str:
    """Return the page that compares runs, and write nothing.

    Args:
        compared: the runs; the others are compared with the first.
        link: returns the address of a run's report; empty for none.
    """
    names = ", ".join(run.name for run in compared)
    top = join(
        [
            element("h1", f"{len(compared)} runs compared"),
            paragraph(
                f"The others are compared with the first, {compared[0].name}: differences, ratios and marks are to it."
            ),
            bullets(_line(run, link(run)) for run in compared),
        ]
    )
    numbers = Section("numbers", "Final numbers", numbers_table([numbers_of(run) for run in compared]))
    sections = [
        numbers,
        _agreement_section(compared),
        curves_section(compared),
        datapaths_section(compared),
        settings_section(compared),
    ]
    return page(f"{names}: emu compare", top, sections, paragraph(SELF_CONTAINED))


def _line(run: Compared, address: str) -> Html:
    # an empty address: the run has no report to link to
    model, device = run.evidence.run.name()
    name = element("a", run.name, href=address) if address else element("strong", run.name)
    return join([name, f": {model} on {device}. {run.evidence.outcome.sentence()}"])


def _agreement_section(compared: Sequence[Compared]) -> Section:
    first, *others = compared
    parts: list[Html] = []
    for other in others:
        parts += [element("h3", f"{first.name} and {other.name}"), bullets(sentences(first, other))]
    return Section("agreement", "First difference", join([*parts, paragraph(COVERS, class_="about")]))
