"""The picture of a model in a study: the difference of each seed as a mark, the interval as a bar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emu.report.chart import Chart, Spec, specification, swatch_legend
from emu.report.html import Html
from emu.report.page import figure
from emu.report.study.comparison import Row
from emu.report.study.difference import FAILS_BELOW, points

_ROW_PIXELS = 34
#: A wider picture, in points, has an axis that is logarithmic far from 0.
_WIDE = 20.0
#: Where the dashed line is, in points.
_LINE = 100 * FAILS_BELOW
_TICKS = (-100, -50, -20, -10, -5, -2, -1, 0, 1, 2, 5, 10, 20, 50, 100)
_SEED, _BAR = "var(--series-1)", "var(--series-5)"
_READING = (
    "A point is one seed: the accuracy here minus the baseline's with the same initial weights and the same batches. "
    "The bar is the 95% interval of their mean; the short line is the mean. The dashed line is at half a point worse: "
    "a bar wholly left of it is a failure. A row without a bar makes no statement: it has one seed, its differences "
    "are equal, or its interval reaches beyond what is possible."
)
_BENT = " The axis is nearly linear within a point of 0 and logarithmic farther out."


def difference_picture(identifier: str, rows: Sequence[Row]) -> tuple[Html, tuple[Chart, ...]]:
    """Return the figure of the rows that are paired with a baseline that learned, and its chart; else nothing."""
    paired = [row for row in rows if row.paired and not row.baseline_guesses]
    if not paired:
        return Html(""), ()
    seeds = [
        {"row": row.called, "seed": seed, "points": round(100 * value, 4), "text": points(value)}
        for row in paired
        for seed, value in row.paired.items()
    ]
    bars = [_bar(row) for row in paired]
    # The axis must hold intervals and single seeds, the baseline, and the dashed line.
    ends: list[float] = [bar[key] for bar in bars for key in ("low", "high") if key in bar]
    values = [*ends, *(100 * value for row in paired for value in row.paired.values()), 0.0, _LINE]
    bent = max(values) - min(values) > _WIDE
    spec = _spec([row.called for row in paired], seeds, bars, bent=bent)
    without = [row.called for row in paired if row.difference is None or not row.difference.is_statement]
    label = f"Differences to the baseline in points, seed by seed: {len(paired)} rows."
    if without:
        label += f" No statement: {', '.join(without)}."
    chart = Chart(identifier, label, spec, _ROW_PIXELS * len(paired) + 60)
    legend = swatch_legend({"a seed": _SEED, "95% interval of the mean": _BAR})
    title = "Difference to the baseline, seed by seed"
    return figure(title, legend, chart.placeholder(), reading=_READING + (_BENT if bent else "")), (chart,)


def _bar(row: Row) -> dict[str, Any]:
    """Return the data of a row's bar: its interval, or a note that it makes no statement."""
    difference = row.difference
    assert difference is not None
    bar = {"row": row.called, "mean": round(100 * difference.mean, 4), "text": str(difference)}
    if difference.interval is None or not difference.is_statement:
        return bar | {"note": "no statement"}
    low, high = difference.interval
    return bar | {"low": round(100 * low, 4), "high": round(100 * high, 4)}


def _spec(names: list[str], seeds: list[dict[str, Any]], bars: list[dict[str, Any]], *, bent: bool) -> Spec:
    import altair as alt

    scale = alt.Scale(type="symlog", constant=1, padding=10) if bent else alt.Scale(zero=True, padding=10)
    signed = "datum.value == 0 ? '0' : format(datum.value, '+')"
    # a title in the middle of a narrow axis would leave the drawing at the right
    common: dict[str, Any] = {"labelExpr": signed, "titleAnchor": "end"}
    ticks = alt.Axis(values=list(_TICKS), **common) if bent else alt.Axis(tickCount=7, **common)
    drawn = alt.Chart(alt.NamedData("bars"), height=_ROW_PIXELS * len(names))
    y = alt.Y("row:N", sort=names, title=None, axis=alt.Axis(labelLimit=180, grid=False))
    title = "points of accuracy, device minus baseline"
    tips = [alt.Tooltip("row:N", title="device"), alt.Tooltip("text:N", title="difference")]

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", title=title, scale=scale, axis=ticks)

    interval = (
        drawn.transform_filter("isValid(datum.low)")
        .mark_bar(height=14, color=_BAR, opacity=0.5)
        .encode(x=x("low"), x2="high:Q", y=y, tooltip=tips)
    )
    mean = (
        drawn.transform_filter("isValid(datum.low)")
        .mark_tick(size=20, thickness=2, color="var(--ink)")
        .encode(x=x("mean"), y=y, tooltip=tips)
    )
    note = (
        drawn.transform_filter("isValid(datum.note)")
        .mark_text(align="right", dx=-4, dy=-9, color="var(--quiet)", fontStyle="italic")
        .encode(x=alt.value("width"), y=y, text="note:N", tooltip=tips)
    )
    marks = (
        alt.Chart(alt.NamedData("seeds"))
        .mark_point(size=34, filled=True, color=_SEED, opacity=0.9)
        .encode(x=x("points"), y=y, tooltip=[tips[0], alt.Tooltip("seed:N"), alt.Tooltip("text:N", title="points")])
    )
    edges = alt.Chart(alt.NamedData("edges")).mark_rule(color="var(--quiet)")
    dash = alt.StrokeDash("kind:N", scale=alt.Scale(domain=["baseline", "failure"], range=[[1, 0], [4, 4]]))
    lines = edges.encode(x=x("points"), strokeDash=dash)
    return specification(
        alt.layer(interval, lines, mean, marks, note),
        bars=bars,
        seeds=seeds,
        edges=[{"points": 0, "kind": "baseline"}, {"points": _LINE, "kind": "failure"}],
    )
