"""The page of a search: what is possible, which variables mattered, how it went on, the devices that were found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from emu.report.html import Html, bullets, disclosure, element, join, paragraph, table
from emu.report.page import Section, page
from emu.report.search.front_picture import front_section, front_svg
from emu.report.search.history_picture import history_section
from emu.report.search.importance_picture import importance_section
from emu.report.search.trials import Searched, Trial, read_search
from emu.report.search.words import called, value_in_words, values_in_words
from emu.report.words import NO_NUMBER, markdown_row
from emu.training.folders.run_folder import RunFolder

FILE_NAME, PICTURE = "report.html", "front.svg"
#: Folder with the devices of the front.
DEVICES = "devices"
#: Most trials whose values are shown side by side.
_COLUMNS = 10
#: Most trials in the table if no trial holds all constraints.
_NEAREST = 5


def device_file(trial: Trial) -> str:
    """Return the name of the file that has a trial's device."""
    return f"trial-{trial.number:04}.toml"


def build_search_report(folder: Path) -> Path:
    """Write the report of a search and its table into its folder, and return the report's path.

    Equal trials give equal pages: measured times are in the reports of the runs only.

    Raises:
        ConfigError: the folder has no search, or cannot be written.
    """
    searched = read_search(folder)
    home = RunFolder(folder)
    home.write_text("report.md", markdown(searched))
    if picture := front_svg(searched):
        home.write_text(PICTURE, picture)
    home.write_text(FILE_NAME, search_page(searched))
    return folder / FILE_NAME


def search_page(searched: Searched) -> str:
    """Return the page of a search."""
    search = searched.search
    sections = [
        front_section(searched),
        _table(searched),
        importance_section(searched),
        history_section(searched),
        _failed(searched),
    ]
    finished = len(searched.finished)
    failed = sum(trial.state == "failed" for trial in searched.trials)
    pruned = sum(bool(trial.pruned) for trial in searched.trials)
    seeds = len(search["seeds"])
    summary = (
        f"{finished + failed} of {search['trials']} trials have ended, {failed} of them failed and {pruned} given up "
        f"before their last seed. Each trial is {search['model']} on {search['device']} with other values of "
        f"{len(search['variable'])} variables, trained with {seeds} seed{'s' * (seeds > 1)}. Differences are to "
        f"{search['baseline']}, seed by seed."
    )
    rules = [
        *(f"{objective['direction']} {called(objective['metric'])}" for objective in search["objective"]),
        *(_rule(constraint) for constraint in search["constraint"]),
    ]
    top = join(
        [
            element("h1", search["name"]),
            *map(paragraph, [search["description"]] if search["description"] else []),
            paragraph(summary),
            bullets(rules),
        ]
    )
    footer = paragraph("Every number is from the trials and run folders beside this page.")
    return page(f"{search['name']}: emu search", top, [section for section in sections if section], footer)


def _rule(constraint: dict[str, float | str | None]) -> str:
    metric = str(constraint["metric"])
    kind = "at_least" if constraint["at_least"] is not None else "at_most"
    bound = constraint[kind]
    assert isinstance(bound, int | float)
    confidence = constraint["confidence"]
    sure = f", {confidence:.0%} sure" if isinstance(confidence, float) else ""
    return f"{called(metric)} {kind.replace('_', ' ')} {value_in_words(metric, bound)}{sure}"


def _listed(searched: Searched) -> list[Trial]:
    """Return the front; if it is empty, the trials that miss the constraints by least."""

    def missed_by(trial: Trial) -> tuple[float, int]:
        return sum(max(violation, 0.0) for violation in trial.violations.values()), trial.number

    missed = sorted(searched.finished, key=missed_by)
    return searched.front() or missed[:_NEAREST]


def _table(searched: Searched) -> Section | None:
    listed = _listed(searched)
    if not listed:
        return None
    title = "The devices on the front" if searched.front() else "The trials that miss the constraints by least"
    return Section("devices", title, join([_results(searched, listed, title), _values(searched, listed)]))


def _results(searched: Searched, listed: Sequence[Trial], title: str) -> Html:
    """Return the table of the objectives of trials, with links to their runs and devices."""
    rows: list[list[str]] = []
    for trial in listed:
        link = searched.page_of(trial)
        file = f"{DEVICES}/{device_file(trial)}"
        values = [
            value_in_words(metric, value) for metric, value in zip(searched.metrics, trial.objectives, strict=True)
        ]
        number = element("a", str(trial.number), href=link) if link else Html(str(trial.number))
        device = element("a", "TOML", href=file) if (searched.path / file).is_file() else Html(NO_NUMBER)
        rows.append([number, *values, str(len(trial.runs)), device])
    header = ["trial", *(called(metric) for metric in searched.metrics), "seeds", "device"]
    return table(title, header, rows, stacks=True)


def _values(searched: Searched, listed: Sequence[Trial]) -> Html:
    """Return the table of the variables, a column for each trial; bold if a value differs from the device's."""
    shown = listed[:_COLUMNS]
    rows: list[list[str]] = []
    for variable in searched.search["variable"]:
        name, start = variable["name"], variable["start"]
        texts = [values_in_words({"": trial.values.get(name)}).strip() for trial in shown]
        cells = [element("strong", text) if text != str(start) else Html(text) for text in texts]
        rows.append([name, str(start), *cells])
    note = f"; the first {_COLUMNS} of them" if len(listed) > _COLUMNS else ""
    header = ["variable", "device", *(f"trial {trial.number}" for trial in shown)]
    return disclosure("Values of the variables", table(f"Values of the variables{note}", header, rows))


def _cells(searched: Searched, trial: Trial) -> list[str]:
    values = [value_in_words(metric, value) for metric, value in zip(searched.metrics, trial.objectives, strict=True)]
    start = {variable["name"]: variable["start"] for variable in searched.search["variable"]}
    changed = {name: value for name, value in trial.values.items() if value != start.get(name)}
    return [str(trial.number), *values, str(len(trial.runs)), values_in_words(changed) or "as the device is"]


def _failed(searched: Searched) -> Section | None:
    lines = [
        f"trial {trial.number} ({values_in_words(trial.values)}): {trial.failure}"
        for trial in searched.trials
        if trial.failure
    ]
    return Section("failures", "Trials that failed", bullets(lines)) if lines else None


def markdown(searched: Searched) -> str:
    """Return the table of the front as Markdown."""
    header = [
        "trial",
        *(called(metric) for metric in searched.metrics),
        "seeds",
        "variables that differ from the device's",
    ]
    lines = [markdown_row(header), markdown_row(["---"] * len(header))]
    lines += [markdown_row(_cells(searched, trial)) for trial in _listed(searched)]
    return "\n".join(lines) + "\n" if searched.finished else f"{NO_NUMBER} no trial has finished yet\n"
