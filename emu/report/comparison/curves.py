"""Loss and accuracy of all runs over each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emu.formats.numerals import number
from emu.report.chart import SERIES_COLOURS, SERIES_DASHES, Chart, Spec, series_legend, specification
from emu.report.comparison.runs import Compared
from emu.report.html import element, join, paragraph
from emu.report.page import Section, figure
from emu.report.pictures.curves import is_logarithmic, points_of
from emu.report.words import accuracy

_HEIGHT = 260
#: Column of the metrics -> title of its picture.
_PICTURES = {
    "train_loss": "Training loss",
    "test_accuracy": "Test accuracy",
    "test_loss": "Test loss",
    "train_accuracy": "Training accuracy",
}
_READING = (
    "Where a line hides another, both runs have the same values: the first run is drawn first, and the dashes of later "
    "ones lie on it. A training value is the mean of the steps since the log point before. The test set is run at "
    "every fourth log point and at the end."
)


def curves_section(runs: Sequence[Compared]) -> Section:
    """Return a picture for loss and accuracy, in training and on the test set."""
    title, charts = "Loss and accuracy", [chart for column in _PICTURES if (chart := _chart(runs, column))]
    if not charts:
        nothing = paragraph("No run has logged a loss or an accuracy that is a finite number.", class_="missing")
        return Section("curves", title, nothing)
    pictures = [figure(_PICTURES[_column(chart)], chart.placeholder(), reading="") for chart in charts]
    pairs = [element("div", *pictures[i : i + 2], class_="pair") for i in range(0, len(pictures), 2)]
    legend = element("div", series_legend([run.name for run in runs], range(len(runs))), class_="names")
    return Section("curves", title, join([legend, *pairs, paragraph(_READING, class_="about")]), tuple(charts))


def _column(chart: Chart) -> str:
    return chart.identifier.removeprefix("compared-").replace("-", "_")


def _rows(run: Compared, column: str) -> list[dict[str, Any]]:
    drawn = points_of(run.evidence.run.metrics or {}, column)
    return [{"run": run.name, "step": step, "value": value} for step, value in drawn]


def _chart(runs: Sequence[Compared], column: str) -> Chart | None:
    rows = [row for run in runs for row in _rows(run, column)]
    if not rows:
        return None
    is_share = column.endswith("accuracy")
    # A later row of the same run replaces the earlier one.
    last: dict[str, float] = {row["run"]: row["value"] for row in rows}
    ends = ", ".join(
        f"{name} ends at {accuracy(value) if is_share else number(value, 3)}" for name, value in last.items()
    )
    label = f"{_PICTURES[column]} of {len(last)} runs over the steps: {ends}."
    identifier = f"compared-{column.replace('_', '-')}"
    return Chart(identifier, label, _spec(rows, [run.name for run in runs], column), _HEIGHT)


def _spec(rows: list[dict[str, Any]], names: list[str], column: str) -> Spec:
    import altair as alt

    as_percent, values = column.endswith("accuracy"), [row["value"] for row in rows]
    scale = alt.Scale(domain=[0, 1]) if as_percent else alt.Scale(zero=False, nice=True)
    scale = alt.Scale(type="log", nice=True) if not as_percent and is_logarithmic(values) else scale
    colours, dashes = list(SERIES_COLOURS[: len(names)]), [list(dash) for dash in SERIES_DASHES[: len(names)]]
    steps = alt.Scale(domain=[0, max(row["step"] for row in rows)], nice=False)
    # Marks on a line help while it has few points; more of them hide it.
    few = len(rows) < 60 * len(names)
    chart = (
        alt.Chart(alt.NamedData("rows"), height=_HEIGHT - 60)
        .mark_line(strokeWidth=2, point={"size": 18, "filled": True} if few else False)
        .encode(
            x=alt.X("step:Q", title="step", scale=steps, axis=alt.Axis(grid=False, tickCount=6)),
            y=alt.Y(
                "value:Q",
                title=None,
                scale=scale,
                axis=alt.Axis(format=".0%" if as_percent else ".3~g", tickCount=5),
            ),
            color=alt.Color("run:N", scale=alt.Scale(domain=names, range=colours)),
            strokeDash=alt.StrokeDash("run:N", scale=alt.Scale(domain=names, range=dashes)),
            tooltip=[
                alt.Tooltip("run:N"),
                alt.Tooltip("step:Q"),
                alt.Tooltip("value:Q", title=_PICTURES[column].lower(), format=".2%" if as_percent else ".5g"),
            ],
        )
    )
    return specification(chart, rows=rows)
