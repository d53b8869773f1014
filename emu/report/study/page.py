"""The page of a study: a table and a picture per model, and which runs failed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from emu.errors import ConfigError
from emu.report.chart import SERIES_COLOURS, SERIES_SHAPES, Chart, series_legend, specification
from emu.report.html import bullets, element, join, paragraph, table
from emu.report.page import Section, page
from emu.report.study.breaking import first_break
from emu.report.study.comparison import Row, compare
from emu.report.study.markdown import DEVICE, DIFFERENCE, cells, header, tables
from emu.report.words import NO_NUMBER, accuracy
from emu.training.run_folder import RunFolder
from emu.training.study import Study
from emu.training.study_storage import Storage

FILE_NAME = "report.html"
_HEIGHT = 320
Told = tuple[Row, str]


def build_study_report(study: Study, storage: Storage) -> Path:
    """Write a study's report and its tables into its folder, and return the report's path.

    Equal runs give equal pages: times are left to the reports of the runs.

    Args:
        study: the grids.
        storage: where its runs are.

    Raises:
        ConfigError: the report cannot be written, or a run is not the study's.
    """
    rows = [(row, _broken(row)) for row in compare(study, storage)]
    groups: dict[str, list[Told]] = {}
    for told in rows:
        row = told[0]
        apart = row.setting != "plain" and study.baseline_setting is None
        groups.setdefault(f"{row.model}, {row.setting}" if apart else row.model, []).append(told)
    sections = [_bits(groups), *(_model(title, told, storage.path) for title, told in groups.items()), _failed(rows)]
    finished, planned = sum(len(row.accuracies) for row, _ in rows), sum(row.seeds for row, _ in rows)
    against = study.baseline + (f", {study.baseline_setting}" if study.baseline_setting else "")
    said = (
        f"{finished} of {planned} runs are finished. Differences are to {against}, seed by seed: equal initial "
        "weights, equal batches; 95% intervals of Student's t, which have no width where all differences are equal. "
        "What went wrong first is of the first seed."
    )
    top = join(
        [element("h1", study.name), *map(paragraph, [study.description] if study.description else []), paragraph(said)]
    )
    footer = paragraph("Every number is from the run folders beside this page; each run has a report of its own.")
    text = page(f"{study.name}: emu study", top, [section for section in sections if section], footer)
    folder = RunFolder(storage.path)
    folder.write_text("report.md", tables(list(groups.items())))
    folder.write_text(FILE_NAME, text)
    return storage.path / FILE_NAME


def _broken(row: Row) -> str:
    if row.first_run is None:
        return NO_NUMBER
    try:
        found = first_break(row.first_run)
    except ConfigError as error:
        return f"unknown: {error}"
    return "nothing" if found is None else str(found)


def _model(title: str, told: Sequence[Told], folder: Path) -> Section:
    body: list[list[str]] = []
    names = header([row for row, _ in told])
    for row, broken in told:
        texts = cells(row, broken)
        if row.first_run is not None:
            link = (row.first_run / FILE_NAME).relative_to(folder).as_posix()
            texts[DEVICE] = element("a", texts[DEVICE], href=link)
        if row.fails:
            texts[DIFFERENCE] = element("strong", texts.get(DIFFERENCE, NO_NUMBER))
        body.append([texts.get(name, NO_NUMBER) for name in names])
    caption = f"{title}: accuracy over seeds, bold where a device fails"
    return Section(_identifier(title), title, table(caption, list(names), body, numeric_from=len(names), stacks=True))


def _bits(groups: dict[str, list[Told]]) -> Section:
    points = [
        _Point(row.bits, row.mean, title, f"{row.bits} {row.called}")
        for title, told in groups.items()
        for row, _ in told
        if row.mean is not None
    ]
    if not points:
        return Section("bits", "Accuracy against bits", paragraph("No run is finished.", class_="missing"))
    names = list(dict.fromkeys(point.model for point in points))
    chart = _chart(points, names)
    return Section(
        "bits",
        "Accuracy against bits",
        join([chart.place(), series_legend(names, range(len(names)))]),
        charts=(chart,),
    )


class _Point(NamedTuple):
    """A mean accuracy in the picture."""

    bits: int
    accuracy: float
    model: str
    machine: str


def _chart(points: list[_Point], names: list[str]) -> Chart:
    import altair as alt

    colours = [SERIES_COLOURS[i % len(SERIES_COLOURS)] for i in range(len(names))]
    shapes = [SERIES_SHAPES[i % len(SERIES_SHAPES)] for i in range(len(names))]
    machines = list(dict.fromkeys(point.machine for point in sorted(points, key=lambda point: point.bits)))
    axis = alt.Axis(labelAngle=-30, labelOverlap=False)
    drawn = (
        alt.Chart(alt.NamedData("rows"), height=_HEIGHT - 60)
        .mark_point(size=70, filled=True, opacity=0.85)
        .encode(
            x=alt.X("machine:N", title="bits of an activation, and device", sort=machines, axis=axis),
            y=alt.Y("accuracy:Q", title="mean test accuracy", axis=alt.Axis(format=".0%")),
            color=alt.Color("model:N", scale=alt.Scale(domain=names, range=colours), legend=None),
            shape=alt.Shape("model:N", scale=alt.Scale(domain=names, range=shapes), legend=None),
            tooltip=["model:N", "machine:N", alt.Tooltip("accuracy:Q", format=".2%")],
        )
    )
    best = accuracy(max(point.accuracy for point in points))
    label = f"Mean test accuracy by bits of an activation: {len(points)} points, the best {best}."
    rows = [{**point._asdict(), "accuracy": round(point.accuracy, 5)} for point in points]
    return Chart("accuracy-by-bits", label, specification(drawn, rows=rows), _HEIGHT)


def _failed(rows: Sequence[Told]) -> Section | None:
    lines: list[str] = []
    for row, _ in rows:
        lines += [f"{row.model} on {row.device}, seed {seed}: {why}" for seed, why in row.failures.items()]
    return Section("failures", "Runs that failed", bullets(lines)) if lines else None


def _identifier(title: str) -> str:
    return "model-" + "".join(c if c.isalnum() else "-" for c in title)
