"""The page of a study: a table and a picture for each model, and the runs that failed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path

from emu.errors import ConfigError
from emu.report.guessing import of_a_baseline
from emu.report.html import bullets, element, join, paragraph, table
from emu.report.page import Section, page
from emu.report.study.accuracy_picture import accuracy_section
from emu.report.study.breaking import first_break
from emu.report.study.comparison import Row, compare
from emu.report.study.difference_picture import difference_picture
from emu.report.study.markdown import DEVICE, DIFFERENCE, cells, header, tables
from emu.report.study.seeds import remarks
from emu.report.words import NO_NUMBER
from emu.training.folders.run_folder import RunFolder
from emu.training.folders.study_folder import StudyFolder
from emu.training.study import Study

FILE_NAME = "report.html"
_OF_SEEDS = (
    "95% intervals of Student's t. Where all differences are equal, or an interval reaches beyond what is possible, "
    "there is no statement."
)
_OF_ONE_SEED = (
    "each is the difference of a single seed, which has no interval: another seed may give another one. Name two or "
    "more `seeds` in the study's file."
)
#: A row, and what went wrong first in its first run.
RowWithBreak = tuple[Row, str]


def build_study_report(study: Study, home: StudyFolder) -> Path:
    """Write a study's report and its tables into its folder, and return the report's path.

    Equal runs give equal pages: measured times are in the reports of the runs only.

    Args:
        study: the grids.
        home: folder of the study.

    Raises:
        ConfigError: the report cannot be written, or a run is not the study's.
    """
    groups = _groups(study, home)
    folder = RunFolder(home.path)
    # The page comes last: whoever sees it finds the table beside it.
    folder.write_text("report.md", tables(list(groups.items())))
    folder.write_text(FILE_NAME, _page_of(study, home, groups))
    return home.path / FILE_NAME


def study_page(study: Study, home: StudyFolder) -> str:
    """Return a study's report, and write nothing.

    Raises:
        ConfigError: a run is not the study's.
    """
    return _page_of(study, home, _groups(study, home))


def _groups(study: Study, home: StudyFolder) -> dict[str, list[RowWithBreak]]:
    """Return the rows of each model's table, by its title."""
    groups: dict[str, list[RowWithBreak]] = {}
    for row in compare(study, home):
        # settings share a table only if all of them are compared with the same baseline
        is_separate = row.setting != "plain" and study.baseline_setting is None
        groups.setdefault(f"{row.model}, {row.setting}" if is_separate else row.model, []).append((row, _broken(row)))
    return groups


def _page_of(study: Study, home: StudyFolder, groups: dict[str, list[RowWithBreak]]) -> str:
    rows = [row for group in groups.values() for row in group]
    accuracies = accuracy_section([(title, [row for row, _ in group]) for title, group in groups.items()])
    models = [
        _model(identifier, title, group, home.path)
        for identifier, (title, group) in zip(_identifiers(groups), groups.items(), strict=True)
    ]
    sections = [accuracies, *models, _failed(rows)]
    finished, planned = sum(len(row.accuracies) for row, _ in rows), sum(row.seeds for row, _ in rows)
    against = study.baseline + (f", {study.baseline_setting}" if study.baseline_setting else "")
    has_intervals = any(row.seeds > 1 for row, _ in rows)
    summary = (
        f"{finished} of {planned} runs are finished. Differences are to {against}, seed by seed: equal initial "
        f"weights, equal batches; {_OF_SEEDS if has_intervals else _OF_ONE_SEED} What went wrong first is of the first "
        "seed."
    )
    top = join(
        [
            element("h1", study.name),
            *map(paragraph, [study.description] if study.description else []),
            *(paragraph(text, class_="outcome") for text in _about_baselines([row for row, _ in rows], against)),
            paragraph(summary),
        ]
    )
    footer = paragraph("Every number is from the run folders beside this page; each run has a report of its own.")
    return page(f"{study.name}: emu study", top, [section for section in sections if section], footer)


def _about_baselines(rows: Sequence[Row], against: str) -> list[str]:
    """Return a sentence for each model whose baseline guesses."""
    # One sentence a model: all its rows have the same baseline.
    guesses = {row.model: row for row in rows if row.baseline_guesses}
    return [
        of_a_baseline(model, against, row.baseline, row.chance)
        for model, row in guesses.items()
        if row.baseline is not None and row.chance is not None
    ]


def _broken(row: Row) -> str:
    if row.first_run is None:
        return NO_NUMBER
    try:
        first = first_break(row.first_run)
    except ConfigError as error:
        return f"unknown: {error}"
    return "nothing" if first is None else str(first)


def _model(identifier: str, title: str, group: Sequence[RowWithBreak], folder: Path) -> Section:
    body: list[list[str]] = []
    names = header([row for row, _ in group])
    for row, broken in group:
        # Cells are text, which the table escapes; a link or a bold text is markup, and passes.
        texts = cells(row, broken)
        if row.first_run is not None:
            link = (row.first_run / FILE_NAME).relative_to(folder).as_posix()
            texts[DEVICE] = element("a", texts[DEVICE], href=link)
        if row.fails:
            texts[DIFFERENCE] = element("strong", texts.get(DIFFERENCE, NO_NUMBER))
        body.append([texts.get(name, NO_NUMBER) for name in names])
    caption = f"{title}: accuracy over seeds, bold where a device fails"
    rows = [row for row, _ in group]
    picture, charts = difference_picture(f"differences-{identifier}", rows)
    # no column counts as numeric: beside their numbers, cells have words
    grid = table(caption, list(names), body, numeric_from=None, stacks=True)
    parts = [grid, picture, bullets(remarks(rows))]
    return Section(identifier, title, join(parts), charts)


def _failed(rows: Sequence[RowWithBreak]) -> Section | None:
    lines: list[str] = []
    for row, _ in rows:
        lines += [f"{row.model} on {row.device}, seed {seed}: {why}" for seed, why in row.failures.items()]
    return Section("failures", "Runs that failed", bullets(lines)) if lines else None


def _identifiers(titles: Iterable[str]) -> list[str]:
    """Return an identifier for each title; where several titles would have the same, the later ones get numbers."""
    identifiers: list[str] = []
    for title in titles:
        plain = "model-" + "".join(c if c.isalnum() else "-" for c in title)
        # The first of them that no title has: a title may itself end in a number.
        names = (plain if number == 1 else f"{plain}-{number}" for number in count(1))
        identifiers.append(next(name for name in names if name not in identifiers))
    return identifiers
