"""The first picture of a study: accuracy against the bits of an activation, for each seed and as a mean."""

from __future__ import annotations

from collections.abc import Sequence

from emu.report.chart import SERIES_COLOURS, SERIES_SHAPES, Chart, series_legend, specification
from emu.report.html import join, paragraph
from emu.report.page import Section, figure
from emu.report.study.comparison import Row
from emu.report.words import accuracy

_HEIGHT = 340
_TITLE = "Accuracy against bits"
_READING = "A small point is one seed; a large mark is the mean of a device over its seeds."


def accuracy_section(groups: Sequence[tuple[str, Sequence[Row]]]) -> Section:
    """Return the section of all rows, which are grouped under the title of their model."""
    rows = [(title, row) for title, group in groups for row in group if row.accuracies]
    if not rows:
        return Section("bits", _TITLE, paragraph("No run is finished.", class_="missing"))
    names = list(dict.fromkeys(title for title, _ in rows))
    chart = _chart(rows, names)
    legend = series_legend(names, [i % len(SERIES_COLOURS) for i in range(len(names))])
    body = figure("Test accuracy of every run", join([chart.placeholder(), legend]), reading=_READING)
    return Section("bits", _TITLE, body, charts=(chart,))


def _chart(rows: Sequence[tuple[str, Row]], names: Sequence[str]) -> Chart:
    import altair as alt

    def machine(row: Row) -> str:
        return f"{row.bits} {row.called}"

    # From few bits to many, whatever order the study has.
    machines = list(dict.fromkeys(machine(row) for _, row in sorted(rows, key=lambda titled: titled[1].bits)))
    seeds = [
        {"model": title, "machine": machine(row), "seed": seed, "accuracy": round(value, 5)}
        for title, row in rows
        for seed, value in row.accuracies.items()
    ]
    means = [(title, machine(row), row.mean or 0.0) for title, row in rows]
    indices = range(len(names))
    colours = alt.Scale(domain=list(names), range=[SERIES_COLOURS[i % len(SERIES_COLOURS)] for i in indices])
    shapes = alt.Scale(domain=list(names), range=[SERIES_SHAPES[i % len(SERIES_SHAPES)] for i in indices])
    axis = alt.Axis(labelAngle=-30, labelOverlap=False)
    x = alt.X("machine:N", title="bits of an activation, and device", sort=machines, axis=axis)
    y = alt.Y("accuracy:Q", title="test accuracy", scale=alt.Scale(zero=False), axis=alt.Axis(format="%", tickCount=6))
    colour = alt.Color("model:N", scale=colours, legend=None)
    tips = ["model:N", "machine:N", alt.Tooltip("accuracy:Q", format=".2%")]
    points = (
        alt.Chart(alt.NamedData("seeds"), height=_HEIGHT - 80)
        .mark_point(size=16, filled=True, opacity=0.5)
        .encode(x=x, y=y, color=colour, tooltip=[*tips, "seed:N"])
    )
    large = (
        alt.Chart(alt.NamedData("means"))
        .mark_point(size=70, filled=False, strokeWidth=2, opacity=1)
        .encode(x=x, y=y, color=colour, shape=alt.Shape("model:N", scale=shapes, legend=None), tooltip=tips)
    )
    best = accuracy(max(mean for *_, mean in means))
    label = f"Test accuracy by bits of an activation: {len(seeds)} runs, {len(means)} means, the best mean {best}."
    rounded = [{"model": model, "machine": name, "accuracy": round(mean, 5)} for model, name, mean in means]
    return Chart(
        "accuracy-by-bits", label, specification(alt.layer(points, large), seeds=seeds, means=rounded), _HEIGHT
    )
