"""The page of a search: what is possible, which variables mattered, how it went on, the devices that were found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from emu.report.guessing import is_guess, of_a_baseline
from emu.report.html import Html, bullets, element, join, paragraph, table
from emu.report.page import Section, page
from emu.report.search.front_picture import front_section, front_svg
from emu.report.search.front_table import cells, header, listed
from emu.report.search.history_picture import history_section
from emu.report.search.importance_picture import importance_section
from emu.report.search.parallel_picture import parallel_picture
from emu.report.search.slices_picture import slices_picture
from emu.report.search.trials import ACCURACY, REPEATED, Searched, Trial, read_search
from emu.report.search.words import called, value_in_words, values_in_words
from emu.report.words import NO_NUMBER, markdown_row, percent
from emu.training.folders.run_folder import RunFolder

FILE_NAME, PICTURE = "report.html", "front.svg"
#: Folder with the devices of the front, and the study that trains them with other seeds.
DEVICES, CONFIRM = "devices", "confirm.toml"
#: Most trials whose values are shown side by side.
_COLUMNS = 10


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
    # The page comes last: whoever sees it finds table and picture beside it.
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
        _variables(searched),
        history_section(searched),
        _failed(searched),
    ]
    # A trial that was given up early is finished, too: it has objectives from the seeds that it had.
    finished = len(searched.finished)
    failed = sum(trial.state == "failed" for trial in searched.trials)
    pruned = sum(bool(trial.pruned) for trial in searched.trials)
    repeated = sum(trial.state == REPEATED for trial in searched.trials)
    seeds = len(search["seeds"])
    summary = (
        f"{finished + failed} of {search['trials']} trials have ended, {failed} of them failed and {pruned} given up "
        f"before their last seed. Each trial is {search['model']} on {search['device']} with other values of "
        f"{len(search['variable'])} variables, trained with {seeds} seed{'s' * (seeds > 1)}. Differences are to "
        f"{search['baseline']}, seed by seed."
    )
    if seeds == 1:
        summary += (
            " A difference of one seed has no interval, and another seed may give another one: confirm what you choose "
            f"with emu study {CONFIRM}."
        )
    if repeated:
        summary += f" {repeated} more had the values of earlier ones, and were not trained: no new ones were found."
    rules = [
        *(f"{objective['direction']} {called(objective['metric'])}" for objective in search["objective"]),
        *(_rule(constraint) for constraint in search["constraint"]),
    ]
    top = join(
        [
            element("h1", search["name"]),
            *map(paragraph, [search["description"]] if search["description"] else []),
            *(paragraph(text, class_="outcome") for text in _about_learning(searched)),
            paragraph(summary),
            bullets(rules),
        ]
    )
    footer = paragraph("Every number is from the trials and run folders beside this page.")
    return page(f"{search['name']}: emu search", top, [section for section in sections if section], footer)


def _about_learning(searched: Searched) -> list[str]:
    """Return what to say if the baseline, or every trial, is no better than guessing."""
    model, baseline = str(searched.search["model"]), str(searched.search["baseline"])
    if searched.baseline_guesses and searched.baseline is not None and searched.chance is not None:
        return [of_a_baseline(model, baseline, searched.baseline, searched.chance)]
    reached = [trial.metrics[ACCURACY] for trial in searched.finished if ACCURACY in trial.metrics]
    if reached and searched.chance is not None and is_guess(max(reached), searched.chance):
        return [
            f"No trial of {model} has learned anything: the best reaches {percent(max(reached))}, and guessing gets "
            f"{percent(searched.chance)}. Train longer."
        ]
    return []


def _rule(constraint: dict[str, float | str | None]) -> str:
    # such as `test accuracy at least 98.00%, 95% sure`
    metric = str(constraint["metric"])
    kind = "at_least" if constraint["at_least"] is not None else "at_most"
    bound = constraint[kind]
    assert isinstance(bound, int | float)
    confidence = constraint["confidence"]
    sure = f", {confidence:.0%} sure" if isinstance(confidence, float) else ""
    return f"{called(metric)} {kind.replace('_', ' ')} {value_in_words(metric, bound)}{sure}"


def _table(searched: Searched) -> Section | None:
    # without a front, the trials that miss the constraints by least are listed
    trials = listed(searched)
    if not trials:
        return None
    title = "The devices on the front" if searched.front() else "The trials that miss the constraints by least"
    return Section("devices", title, join([_results(searched, trials, title), _values(searched, trials)]))


def _variables(searched: Searched) -> Section | None:
    # one picture of all variables, then one for each objective
    pictures = [
        parallel_picture(searched),
        *(slices_picture(searched, index) for index in range(len(searched.metrics))),
    ]
    charts = tuple(chart for _, own in pictures for chart in own)
    if not charts:
        return None
    return Section("variables", "Trials by their variables", join([drawn for drawn, _ in pictures]), charts)


def _results(searched: Searched, trials: Sequence[Trial], title: str) -> Html:
    """Return the table of the objectives of trials, with links to their runs and devices."""
    rows: list[list[str]] = []
    for trial in trials:
        # The first cell becomes the link; the others are as in the terminal.
        number, *values = cells(searched, trial)
        link = searched.page_of(trial)
        file = f"{DEVICES}/{device_file(trial)}"
        # Only devices of the front have a file.
        device = element("a", "TOML", href=file) if (searched.path / file).is_file() else Html(NO_NUMBER)
        rows.append([element("a", number, href=link) if link else Html(number), *values, device])
    heads = [*header(searched), "device"]
    return table(title, heads, rows, numeric_from=None, stacks=True)


def _values(searched: Searched, trials: Sequence[Trial]) -> Html:
    """Return the table of the variables, a column for each trial; bold if a value differs from the device's."""
    shown = trials[:_COLUMNS]
    rows: list[list[str]] = []
    for variable in searched.search["variable"]:
        name, start = variable["name"], variable["start"]
        # The name is in the first column, so the value stands alone.
        texts = [values_in_words({"": trial.values.get(name)}).strip() for trial in shown]
        cells = [element("strong", text) if text != str(start) else Html(text) for text in texts]
        rows.append([name, str(start), *cells])
    note = f"; the first {_COLUMNS} of them" if len(trials) > _COLUMNS else ""
    heads = ["variable", "the device", *(f"trial {trial.number}" for trial in shown)]
    return table(f"Values of the variables, bold where they are not the device's{note}", heads, rows)


def _failed(searched: Searched) -> Section | None:
    lines = [
        f"trial {trial.number} ({values_in_words(trial.values)}): {trial.failure}"
        for trial in searched.trials
        if trial.failure
    ]
    return Section("failures", "Trials that failed", bullets(lines)) if lines else None


def markdown(searched: Searched) -> str:
    """Return the table of the front, or of what `listed` gives in its place, as Markdown."""
    heads = header(searched)
    lines = [markdown_row(heads), markdown_row(["---"] * len(heads))]
    lines += [markdown_row(cells(searched, trial)) for trial in listed(searched)]
    return "\n".join(lines) + "\n" if searched.finished else f"{NO_NUMBER} no trial has finished yet\n"
