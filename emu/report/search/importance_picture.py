"""The importance of variables: a bar for each, by objective."""

from __future__ import annotations

from typing import Any

from emu.report.chart import SERIES_COLOURS, Chart, Spec, specification, swatch_legend
from emu.report.html import join, paragraph
from emu.report.page import Section, figure
from emu.report.search.trials import ACCURACY, Searched
from emu.report.search.words import called

_ROW_PIXELS = 16
_READING = (
    "A bar is the share of a variable in what separates the better trials from all of them, for one objective "
    "(PED-ANOVA, Watanabe et al., IJCAI 2023). Shares of an objective sum to 1. A variable that was rarely varied has "
    "no statement in it."
)


def importance_section(searched: Searched) -> Section | None:
    """Return the picture; None if there were too few trials to say anything."""
    known = {metric: shares for metric, shares in searched.importances.items() if shares and _tells(searched, metric)}
    if not known:
        return None
    unknown = [called(metric) for metric in searched.metrics if metric not in known]
    names = sorted({name for shares in known.values() for name in shares})
    first = next(iter(known.values()))
    # By the first objective, as its bar is the first of each group.
    names.sort(key=lambda name: (-first.get(name, 0.0), name))
    rows = [
        {"variable": name, "objective": called(metric), "share": round(shares.get(name, 0.0), 6)}
        for metric, shares in known.items()
        for name in names
    ]
    label = "Share of each variable: " + ", ".join(f"{name} {first.get(name, 0.0):.2f}" for name in names) + "."
    # Bars of all objectives lie below each other in the group of a variable.
    height = _ROW_PIXELS * len(names) * max(len(known), 2)
    spec = _spec(rows, names, [called(metric) for metric in known], height)
    chart = Chart("importance-chart", label, spec, height + 60)
    legend = swatch_legend({called(metric): SERIES_COLOURS[index] for index, metric in enumerate(known)})
    picture = figure("Share of each variable", legend, chart.placeholder(), reading=_READING)
    body = join([*map(paragraph, _about(unknown)), picture])
    return Section("importances", "Which variables mattered", body, (chart,))


def _tells(searched: Searched, metric: str) -> bool:
    """Return whether the differences between trials in a metric say anything: not those to a baseline that guesses."""
    return not (searched.baseline_guesses and metric.startswith(ACCURACY))


def _about(unknown: list[str]) -> list[str]:
    if not unknown:
        return []
    return [f"Nothing is said about {' and '.join(unknown)}: no trial differs from another in it, or none learned."]


def _spec(rows: list[dict[str, Any]], names: list[str], objectives: list[str], height: int) -> Spec:
    import altair as alt

    colours = alt.Scale(domain=objectives, range=list(SERIES_COLOURS[: len(objectives)]))
    bars = (
        alt.Chart(alt.NamedData("shares"), height=height)
        .mark_bar()
        .encode(
            x=alt.X("share:Q", title="share", axis=alt.Axis(tickCount=5)),
            y=alt.Y("variable:N", sort=names, title=None, axis=alt.Axis(labelLimit=200, grid=False)),
            yOffset=alt.YOffset("objective:N", sort=objectives),
            color=alt.Color("objective:N", scale=colours, legend=None),
            tooltip=["variable:N", "objective:N", alt.Tooltip("share:Q", format=".3f")],
        )
    )
    return specification(bars, shares=rows)
