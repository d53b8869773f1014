"""Loss and accuracy over the steps of training."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from emu.formats.numerals import number
from emu.report.chart import SERIES_COLOURS, SERIES_DASHES, Chart, Spec, series_legend, specification, step_axis
from emu.report.evidence import Evidence
from emu.report.html import Html, disclosure, element, join, paragraph, table
from emu.report.page import Section, figure
from emu.report.run_data import Columns
from emu.report.words import NO_NUMBER, accuracy, integer

if TYPE_CHECKING:
    import altair as alt

#: Most points of a curve: more points than a screen has columns would only cost bytes.
MOST_POINTS = 600
#: Most rows of the table below the curves.
MOST_ROWS = 25
#: Ratio of largest to smallest loss above which the axis is logarithmic.
LOG_FROM = 30.0
_HEIGHT = 260
_LOSS = (
    "Each point is the loss of one logged interval; lower is better. A curve that stops falling early, jumps or turns "
    "upward is the first sign of arithmetic trouble: look at the steps where it happens in the pictures below."
)
_ACCURACY = (
    "Share of images classified correctly, on training batches and on the test images the network never trains on. "
    "Test far below training means overfitting; both low means that the network does not learn."
)


def section(evidence: Evidence) -> Section:
    """Return loss and accuracy side by side, with their numbers in a table."""
    columns = evidence.run.metrics
    if columns is None:
        body = paragraph(evidence.run.missing["metrics.parquet"], class_="missing")
        return Section("curves", "Loss and accuracy", body)
    loss = loss_chart(columns)
    right = _chart("accuracy-chart", columns, {"training": "train_accuracy", "test": "test_accuracy"}, "accuracy")
    drawn = [(loss, "Loss", _LOSS), (right, "Accuracy", _ACCURACY)]
    pictures = [
        figure(title, _legend(chart), chart.placeholder(), reading=reading) for chart, title, reading in drawn if chart
    ]
    nothing = paragraph("No loss or accuracy that is a finite number was logged.", class_="missing")
    shown = element("div", *pictures, class_="pair") if pictures else nothing
    body = join([shown, disclosure("The numbers as a table", _table(columns))])
    return Section("curves", "Loss and accuracy", body, tuple(chart for chart in (loss, right) if chart))


def loss_chart(columns: Columns) -> Chart | None:
    """Return the losses over the steps; None if no loss is a finite number."""
    return _chart("loss-chart", columns, {"training": "train_loss", "test": "test_loss"}, "loss")


def _chart(identifier: str, columns: Columns, series: dict[str, str], what: str) -> Chart | None:
    rows = [row for name, column in series.items() for row in _rows(columns, name, column)]
    if not rows:
        return None
    drawn = list(dict.fromkeys(str(row["series"]) for row in rows))
    values = [float(row["value"]) for row in rows]
    last = {name: next(float(r["value"]) for r in reversed(rows) if r["series"] == name) for name in drawn}
    ends = ", ".join(
        f"{name} ends at {accuracy(value) if what == 'accuracy' else number(value, 3)}" for name, value in last.items()
    )
    label = f"{what.capitalize()} over {integer(int(columns['step'][-1]))} steps: {ends}."
    return Chart(identifier, label, _spec(rows, drawn, what, values), _HEIGHT)


def _legend(chart: Chart) -> Html:
    names = list(dict.fromkeys(row["series"] for row in chart.spec["datasets"]["rows"]))
    return series_legend(names, range(len(names)))


def points_of(columns: Columns, column: str) -> list[tuple[int, float]]:
    """Return the steps and finite values of a curve, at most about `MOST_POINTS` of them, the last one included."""
    if column not in columns:
        return []
    values = columns[column].astype(np.float64)
    at = np.flatnonzero(np.isfinite(values))
    stride = max(1, math.ceil(len(at) / MOST_POINTS))
    # The end of the curve is kept whatever the stride: labels and text name it.
    chosen = sorted({*at[::stride].tolist(), *at[-1:].tolist()})
    return [(int(columns["step"][i]), float(f"{values[i]:.5g}")) for i in chosen]


def _rows(columns: Columns, name: str, column: str) -> list[dict[str, float | str]]:
    return [{"step": step, "value": value, "series": name} for step, value in points_of(columns, column)]


def _spec(rows: list[dict[str, float | str]], drawn: list[str], what: str, values: list[float]) -> Spec:
    import altair as alt

    as_percent = what == "accuracy"
    last = max(int(row["step"]) for row in rows)
    colours = [SERIES_COLOURS[0], SERIES_COLOURS[1]][: len(drawn)]
    dashes = [list(dash) for dash in SERIES_DASHES[: len(drawn)]]
    chart = (
        alt.Chart(alt.NamedData("rows"), height=_HEIGHT - 60)
        .mark_line(strokeWidth=2, point={"size": 18, "filled": True} if len(rows) < 150 else False)
        .encode(
            x=step_axis(last),
            y=alt.Y(
                "value:Q", title=None, scale=_value_scale(as_percent, values), axis=_value_axis(as_percent, values)
            ),
            color=alt.Color("series:N", scale=alt.Scale(domain=drawn, range=colours)),
            strokeDash=alt.StrokeDash("series:N", scale=alt.Scale(domain=drawn, range=dashes)),
            tooltip=[
                alt.Tooltip("series:N", title=what),
                alt.Tooltip("step:Q"),
                alt.Tooltip("value:Q", format=".1%" if as_percent else ".4g"),
            ],
        )
    )
    return specification(chart, rows=rows)


def _value_scale(as_percent: bool, values: list[float]) -> alt.Scale:
    import altair as alt

    if as_percent:
        return alt.Scale(domain=[0, 1])
    if is_logarithmic(values):
        # Vega's `nice` would round a logarithmic domain to whole decades, and flatten the curve.
        return alt.Scale(type="log", domain=[min(values) / 1.15, max(values) * 1.15], nice=False)
    return alt.Scale()


def _value_axis(as_percent: bool, values: list[float]) -> alt.Axis:
    import altair as alt

    if as_percent or not is_logarithmic(values):
        return alt.Axis(format="%" if as_percent else ".9~g", tickCount=6)
    decades = range(math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))) + 1)
    # Three ticks a decade as long as there are few decades.
    steps = (1, 2, 5) if len(decades) <= 4 else (1,)
    return alt.Axis(format=".9~g", values=[float(f"{digit}e{decade}") for decade in decades for digit in steps])


def is_logarithmic(values: list[float]) -> bool:
    """Return whether values are drawn on a logarithmic axis: all are positive, and they differ much."""
    return min(values) > 0 and max(values) > LOG_FROM * min(values)


def _table(columns: Columns) -> Html:
    names = {
        "train_loss": "training loss",
        "test_loss": "test loss",
        "train_accuracy": "training",
        "test_accuracy": "test",
    }
    present = [name for name in names if name in columns]
    count = len(columns["step"])
    stride = max(1, math.ceil(count / MOST_ROWS))
    chosen = sorted({*range(0, count, stride), count - 1})
    rows = (
        [integer(int(columns["step"][i])), *(_cell(name, float(columns[name][i])) for name in present)] for i in chosen
    )
    caption = "Loss and accuracy" + (f", every {stride} logged points and the last" if stride > 1 else "")
    return table(caption, ["step", *(names[name] for name in present)], rows)


def _cell(name: str, value: float) -> str:
    if math.isnan(value):
        # The test set is run at some log points only. A NaN of training is a result.
        return NO_NUMBER if name.startswith("test") else "NaN"
    return accuracy(value) if name.endswith("accuracy") else number(value, 4)
