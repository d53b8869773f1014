"""The picture of `emu simulate`: speed-up against the number of nodes, with the bound by messages alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emu.formats.numerals import number
from emu.report.chart import ANYWHERE, SERIES_COLOURS, coloured
from emu.report.vega import PADDING, as_svg
from emu.report.words import integer
from emu.training.cluster_time import SimulatedCluster

#: Colours that the page of a report defines as variables; a picture outside of a page needs their values.
COLOURS = {
    "series-0": "#0072b2", "series-1": "#d55e00", "series-2": "#009e73", "series-3": "#cc79a7",
    "series-4": "#e69f00", "series-5": "#56b4e9", "series-6": "#b8a100", "series-7": "#555555",
}  # fmt: skip
_WIDTH, _HEIGHT = 460, 320
_TEXTS = dict.fromkeys(("labelColor", "titleColor"), ANYWHERE["ink"])
#: Texts and lines can be read on light and on dark backgrounds.
CONFIG = {
    "view": {"stroke": None},
    "background": "transparent",
    "axis": {"domain": False, "gridColor": ANYWHERE["grid"], "tickColor": ANYWHERE["grid"], **_TEXTS},
    "legend": _TEXTS,
    "title": {"color": ANYWHERE["ink"]},
}
#: Speed-ups beyond this many times the number of nodes are not drawn: the bound of few messages is far away.
_MOST = 1.5


def speed_up_picture(cluster: SimulatedCluster) -> str:
    """Return the picture as SVG.

    It has lines for each batch and number of bits: the speed-up (solid), its bound by communication (dashed), and the
    number of devices (grey).
    """
    spec = _chart(cluster).to_dict()
    spec["config"] = CONFIG
    spec["padding"] = {**PADDING, "right": 40}  # the legend is long
    return as_svg(coloured(spec, COLOURS), f"{_title(cluster)}: {_sentence(cluster)}")


def _title(cluster: SimulatedCluster) -> str:
    return f"{cluster.model} on {cluster.device}"


def _sentence(cluster: SimulatedCluster) -> str:
    best = max(cluster.steps, key=lambda step: step.speed_up)
    nodes = f"{integer(best.nodes)} node{'s' * (best.nodes != 1)}"
    return (
        f"speed-up by number of nodes, at most {number(float(best.speed_up), 3)} on {nodes} with batch "
        f"{integer(best.batch)} and {integer(best.bits)} bit{'s' * (best.bits != 1)}."
    )


def _chart(cluster: SimulatedCluster) -> Any:
    import altair as alt

    rows = _rows(cluster)
    names = list(dict.fromkeys(row["series"] for row in rows))
    # Any number of batches and widths may be asked for; colours repeat after eight.
    colours = [SERIES_COLOURS[i % len(SERIES_COLOURS)] for i in range(len(names))]
    kinds = alt.Scale(domain=["speed-up", "most that messages allow", "one for each device"],
                      range=[[1, 0], [6, 3], [1, 3]])  # fmt: skip
    counts = sorted({row["nodes"] for row in rows})
    axis = alt.Axis(grid=False, values=counts, format=",d", labelOverlap="greedy")
    key = alt.Legend(symbolType="stroke", symbolStrokeColor=ANYWHERE["ink"], symbolSize=400, labelLimit=200)
    drawn = alt.Chart(alt.Data(values=rows), width=_WIDTH, height=_HEIGHT, title=_title(cluster)).encode(
        x=alt.X("nodes:Q", title="nodes", axis=axis),
        y=alt.Y("value:Q", title="speed-up against one device"),
        color=alt.Color("series:N", title="batch, bits", scale=alt.Scale(domain=names, range=colours)),
    )
    lines = drawn.mark_line().encode(strokeDash=alt.StrokeDash("kind:N", title=None, scale=kinds, legend=key))
    points = drawn.mark_point(size=22, filled=True, opacity=1)
    points = points.encode(strokeDash=alt.StrokeDash("kind:N", title=None, scale=kinds, legend=None))
    # a legend that points share would lose the colour of its lines
    both: Any = alt.layer(lines, points)
    return both.resolve_legend(strokeDash="independent")


def _rows(cluster: SimulatedCluster) -> Sequence[dict[str, Any]]:
    most = _MOST * max(step.nodes * step.devices for step in cluster.steps)
    rows: list[dict[str, Any]] = []
    for step in cluster.steps:
        series, devices = f"{step.batch}, {step.bits}", step.nodes * step.devices
        values = {"speed-up": step.speed_up, "most that messages allow": step.bound, "one for each device": devices}
        rows += [
            {"nodes": step.nodes, "series": series, "kind": kind, "value": float(value)}
            for kind, value in values.items()
            if value is not None and value <= most
        ]
    return rows
