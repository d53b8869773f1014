"""The page of a folder of runs: a list that can be sorted, and from which runs are picked to be compared.

`emu watch` serves it; the links lead to the pages that it serves as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from emu.errors import ConfigError
from emu.report.build import FILE_NAME
from emu.report.chart import SERIES_COLOURS
from emu.report.html import Html, element, join, paragraph, script
from emu.report.outcome import outcome_of
from emu.report.page import Section, asset, page
from emu.report.run_data import RunData, read_columns, read_info, table_of
from emu.report.words import NO_NUMBER, accuracy, integer
from emu.training.folders.progress import METRICS
from emu.training.folders.run_folder import RUN, runs_in
from emu.training.folders.status import is_trained, with_status

#: Most runs whose files are remembered until they change.
_REMEMBERED = 4096


@dataclass(frozen=True)
class ListedRun:
    """A run of a list.

    Attributes:
        name: name of its folder.
        model: name of the model.
        device: name of the device.
        status: "finished", "running", "stopped" or "unreadable".
        steps: steps done.
        test_accuracy: last measured accuracy, 0..1; None without a measurement.
        train_loss: last training loss; None without a logged interval.
        started: when it was started, ISO 8601; empty if it does not say so.
    """

    name: str
    model: str
    device: str
    status: str
    steps: int = 0
    test_accuracy: float | None = None
    train_loss: float | None = None
    started: str = ""


@dataclass(frozen=True)
class _Column:
    """A column of the list.

    Attributes:
        key: its key in the menu of orders.
        text: text of a run's cell.
        rank: what the run is sorted by, in a form that the page's script compares; empty puts it last.
        is_number: whether ranks are compared as numbers.
        descends: whether the largest is first, unless the reader asks for the other direction.
    """

    key: str
    text: Callable[[ListedRun], str]
    rank: Callable[[ListedRun], str]
    is_number: bool = False
    descends: bool = False


_COLUMNS = (
    _Column("name", lambda run: run.name, lambda run: run.name),
    _Column("model", lambda run: run.model, lambda run: run.model),
    _Column("device", lambda run: run.device, lambda run: run.device),
    _Column("status", lambda run: run.status, lambda run: run.status),
    _Column("steps", lambda run: integer(run.steps), lambda run: str(run.steps), is_number=True, descends=True),
    _Column(
        "test accuracy",
        lambda run: NO_NUMBER if run.test_accuracy is None else accuracy(run.test_accuracy),
        lambda run: _finite(run.test_accuracy),
        is_number=True,
        descends=True,
    ),
    _Column(
        "training loss",
        lambda run: NO_NUMBER if run.train_loss is None else f"{run.train_loss:.4g}",
        lambda run: _finite(run.train_loss),
        is_number=True,
    ),
    _Column("started", lambda run: _date(run.started), lambda run: run.started, descends=True),
)
#: Column by which the list is sorted at first.
_FIRST = "started"


def listed_runs(folder: Path) -> list[ListedRun]:
    """Return the runs in a folder, by name. One that cannot be read has the status "unreadable"."""
    return [_listed(run) for run in runs_in(folder)]


def _listed(folder: Path) -> ListedRun:
    has_process = is_trained(folder)  # asked before the files are read: a run may end between
    # Times and sizes of the files are part of the cache's key: a page of thousands of runs reads only those that
    # changed.
    read = _read(folder, _stamp(folder / RUN), _stamp(folder / METRICS))
    if read is None:
        return ListedRun(folder.name, NO_NUMBER, NO_NUMBER, "unreadable")
    run = RunData(with_status(read.info, has_process), read.tables)
    (model, device), outcome = run.name(), outcome_of(run)
    return ListedRun(
        folder.name,
        model,
        device,
        outcome.status,
        outcome.steps,
        outcome.test_accuracy,
        outcome.train_loss,
        str(run.info.get("started") or ""),
    )


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=_REMEMBERED)
def _read(folder: Path, *stamps: tuple[int, int]) -> RunData | None:
    """Return what the list needs of a run; None if `run.json` cannot be read. `stamps` change when its files do."""
    try:
        info = read_info(folder)
    except ConfigError:
        return None
    # Thousands of runs stay in memory, so the large sections are left out.
    kept = ("status", "steps", "seconds", "started", "model", "device", "recipe", "metrics", "stopped_because")
    short: dict[str, Any] = {name: info[name] for name in kept if name in info}
    # Of both, only the name is shown. The recipe's classes are gone, so a listed run is never called a guess.
    short["recipe"], short["device"] = _shortened(info.get("recipe")), _shortened(info.get("device"))
    try:
        tables = {METRICS: read_columns(folder / METRICS, ("step", "train_loss"))}
    except ConfigError:  # not written yet, or being copied
        tables = {}
    return RunData(short, tables)


def _shortened(section: Any) -> Any:
    """Return the name of a recipe or device as a table: all that is kept of it."""
    return {"name": table_of(section).get("name")} if isinstance(section, dict) else section


def list_page(folder: Path) -> str:
    """Return the page of a folder of runs, and write nothing."""
    runs = listed_runs(folder)
    top = join([element("h1", f"Runs in {folder.name}"), paragraph(_sentence(runs), class_="outcome")])
    body = join([_controls(), _table(runs), script(asset("run_list.js"))])
    section = Section("runs", "Runs", body)
    footer = paragraph("The first of the ticked runs in this order is what the others are compared with.")
    return page(f"{folder.name}: emu runs", top, [section], footer)


def _sentence(runs: Sequence[ListedRun]) -> str:
    return summary_of([run.status for run in runs])


def summary_of(statuses: Sequence[str]) -> str:
    """Return how many runs there are, and in which state.

    Examples:
        >>> summary_of(["finished", "running", "finished"])
        '3 runs: 2 finished, 1 running.'
    """
    counts = {status: statuses.count(status) for status in dict.fromkeys(sorted(statuses))}
    states = ", ".join(f"{count} {status}" for status, count in counts.items())
    return f"{len(statuses)} run{'' if len(statuses) == 1 else 's'}: {states}."


def _controls() -> Html:
    order = (element("option", column.key, value=column.key, selected=column.key == _FIRST) for column in _COLUMNS)
    first = next(column for column in _COLUMNS if column.key == _FIRST)
    directions = (
        element("option", text, value=value, selected=(value == "down") == first.descends)
        for value, text in (("up", "ascending"), ("down", "descending"))
    )
    return element(
        "div",
        element("label", element("span", "Sort by"), element("select", *order, id="list-order")),
        element("label", element("span", "Direction"), element("select", *directions, id="list-direction")),
        element(
            "a",
            "Tick two or more runs to compare them",
            id="list-compare",
            class_="button",
            role="link",
            aria_disabled="true",
            aria_live="polite",
            data_most=str(len(SERIES_COLOURS)),
        ),
        class_="controls",
    )


def _table(runs: Sequence[ListedRun]) -> Html:
    heads = (
        element(
            "th",
            element("button", column.key, type="button", data_key=column.key),
            scope="col",
            class_="number" if column.is_number else None,
            data_key=column.key,
            data_number=column.is_number,
            data_descends=column.descends,
        )
        for column in _COLUMNS
    )
    # The order that the page's script would make, for readers without scripts.
    newest_first = sorted(runs, key=lambda run: run.started, reverse=True)
    whole = element(
        "table",
        element("caption", "Runs of this folder; a name leads to the page of its run"),
        element("thead", element("tr", *heads)),
        element("tbody", *map(_row, newest_first), id="list-rows"),
        class_="stacks",
    )
    return element("div", whole, class_="scroll", role="region", aria_label="Runs of this folder", tabindex="0")


def _row(run: ListedRun) -> Html:
    name, *others = _COLUMNS
    tick = element(
        "input",
        type="checkbox",
        id=f"tick-{run.name}",
        value=quote(run.name, safe=""),
        aria_label=f"Compare {run.name}",
    )
    link = element("a", run.name, href=f"runs/{quote(run.name, safe='')}/{FILE_NAME}")
    first = element("th", tick, " ", link, scope="row", data_rank=name.rank(run))
    cells = (
        element(
            "td",
            column.text(run),
            class_="number" if column.is_number else None,
            data_label=column.key,
            data_rank=column.rank(run),
        )
        for column in others
    )
    return element("tr", first, *cells)


def _finite(value: float | None) -> str:
    return repr(value) if value is not None and math.isfinite(value) else ""


def _date(text: str) -> str:
    """Return the local date and time of an ISO 8601 text; the text itself if it is none."""
    try:
        then = datetime.fromisoformat(text)
    except ValueError:
        return text or NO_NUMBER
    # `run.json` has UTC; the reader's clock has local time.
    return (then if then.tzinfo else then.replace(tzinfo=UTC)).astimezone().strftime("%Y-%m-%d %H:%M")
