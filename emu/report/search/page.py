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
from emu.report.words import NO_NUMBER
from emu.training.folders.run_folder import RunFolder

FILE_NAME, PICTURE = "report.html", "front.svg"
#: Where the devices of the front are.
DEVICES = "devices"
#: Trials whose values are shown side by side.
_COLUMNS = 10
#: Trials in the table where nothing holds the constraints.
_NEAREST = 5


def device_file(trial: Trial) -> str:
    """Return the name of the file that has a trial's device."""
    return f"trial-{trial.number:04}.toml"


def build_search_report(folder: Path) -> Path:
    """Write the report of a search and its table into its folder, and return the report's path.

    Equal trials give equal pages: times are left to the reports of the runs.

    Raises:
        ConfigError: the folder has no search, or cannot be written.
    """
    found = read_search(folder)
    home = RunFolder(folder)
    home.write_text("report.md", markdown(found))
    if picture := front_svg(found):
        home.write_text(PICTURE, picture)
    home.write_text(FILE_NAME, search_page(found))
    return folder / FILE_NAME


def search_page(found: Searched) -> str:
    """Return the page of a search."""
    search = found.search
    sections = [front_section(found), _table(found), importance_section(found), history_section(found), _failed(found)]
    finished = len(found.finished)
    failed = sum(trial.state == "failed" for trial in found.trials)
    pruned = sum(bool(trial.pruned) for trial in found.trials)
    seeds = len(search["seeds"])
    said = (
        f"{finished + failed} of {search['trials']} trials have ended, {failed} of them failed and {pruned} given up "
        f"before their last seed. Each trial is {search['model']} on {search['device']} with other values of "
        f"{len(search['variable'])} variables, trained with {seeds} seed{'s' * (seeds > 1)}. Differences are to "
        f"{search['baseline']}, seed by seed."
    )
    rules = [
        *(f"{one['direction']} {called(one['metric'])}" for one in search["objective"]),
        *(_rule(one) for one in search["constraint"]),
    ]
    top = join(
        [
            element("h1", search["name"]),
            *map(paragraph, [search["description"]] if search["description"] else []),
            paragraph(said),
            bullets(rules),
        ]
    )
    footer = paragraph("Every number is from the trials and run folders beside this page.")
    return page(f"{search['name']}: emu search", top, [section for section in sections if section], footer)


def _rule(one: dict[str, float | str | None]) -> str:
    metric = str(one["metric"])
    kind = "at_least" if one["at_least"] is not None else "at_most"
    bound = one[kind]
    assert isinstance(bound, int | float)
    sure = one["confidence"]
    asked = f", {sure:.0%} sure" if isinstance(sure, float) else ""
    return f"{called(metric)} {kind.replace('_', ' ')} {value_in_words(metric, bound)}{asked}"


def _listed(found: Searched) -> list[Trial]:
    """The front; where it is empty, the trials that miss the constraints by least."""
    missed = sorted(found.finished, key=lambda one: (sum(max(v, 0.0) for v in one.violations.values()), one.number))
    return found.front() or missed[:_NEAREST]


def _table(found: Searched) -> Section | None:
    listed = _listed(found)
    if not listed:
        return None
    title = "The devices on the front" if found.front() else "The trials that miss the constraints by least"
    return Section("devices", title, join([_worth(found, listed, title), _values(found, listed)]))


def _worth(found: Searched, listed: Sequence[Trial], title: str) -> Html:
    """The table of what trials are worth, with links to their runs and devices."""
    rows: list[list[str]] = []
    for trial in listed:
        link = found.page_of(trial)
        file = f"{DEVICES}/{device_file(trial)}"
        told = [value_in_words(metric, value) for metric, value in zip(found.metrics, trial.objectives, strict=True)]
        named = element("a", str(trial.number), href=link) if link else Html(str(trial.number))
        device = element("a", "TOML", href=file) if (found.path / file).is_file() else Html(NO_NUMBER)
        rows.append([named, *told, str(len(trial.runs)), device])
    header = ["trial", *(called(metric) for metric in found.metrics), "seeds", "device"]
    return table(title, header, rows, stacks=True)


def _values(found: Searched, listed: Sequence[Trial]) -> Html:
    """The table of the variables, a column for each trial; bold where a value is not that of the device."""
    shown = listed[:_COLUMNS]
    rows: list[list[str]] = []
    for one in found.search["variable"]:
        name, start = one["name"], one["start"]
        texts = [values_in_words({"": trial.values.get(name)}).strip() for trial in shown]
        cells = [element("strong", text) if text != str(start) else Html(text) for text in texts]
        rows.append([name, str(start), *cells])
    note = f"; the first {_COLUMNS} of them" if len(listed) > _COLUMNS else ""
    header = ["variable", "device", *(f"trial {trial.number}" for trial in shown)]
    return disclosure("Values of the variables", table(f"Values of the variables{note}", header, rows))


def _cells(found: Searched, trial: Trial) -> list[str]:
    told = [value_in_words(metric, value) for metric, value in zip(found.metrics, trial.objectives, strict=True)]
    start = {one["name"]: one["start"] for one in found.search["variable"]}
    changed = {name: value for name, value in trial.values.items() if value != start.get(name)}
    return [str(trial.number), *told, str(len(trial.runs)), values_in_words(changed) or "as the device is"]


def _failed(found: Searched) -> Section | None:
    lines = [
        f"trial {one.number} ({values_in_words(one.values)}): {one.failure}" for one in found.trials if one.failure
    ]
    return Section("failures", "Trials that failed", bullets(lines)) if lines else None


def markdown(found: Searched) -> str:
    """Return the table of the front as Markdown."""
    header = [
        "trial",
        *(called(metric) for metric in found.metrics),
        "seeds",
        "variables that differ from the device's",
    ]
    lines = [_line(header), _line(["---"] * len(header))]
    lines += [_line(_cells(found, trial)) for trial in _listed(found)]
    return "\n".join(lines) + "\n" if found.finished else f"{NO_NUMBER} no trial has finished yet\n"


def _line(texts: Sequence[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"
