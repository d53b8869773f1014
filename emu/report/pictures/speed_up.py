"""The picture of `emu simulate`: speed-up against the number of nodes, with the bound by messages alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emu.report.chart import SERIES_COLOURS, coloured
from emu.report.vega import as_svg
from emu.training.cluster_time import SimulatedCluster

#: Colours that the page of a report defines as variables; a picture outside of a page needs their values.
_COLOURS = {
    "series-0": "#0072b2", "series-1": "#d55e00", "series-2": "#009e73", "series-3": "#cc79a7",
    "series-4": "#e69f00", "series-5": "#56b4e9", "series-6": "#b8a100", "series-7": "#555555",
}  # fmt: skip
_WIDTH, _HEIGHT = 460, 320
#: Speed-ups beyond this many times the number of nodes are not drawn: the bound of few messages is far away.
_MOST = 1.5


def speed_up_picture(cluster: SimulatedCluster) -> str:
    """Return the picture as SVG.

    It has lines for each batch and number of bits: the speed-up (solid), its bound by communication (dashed), and the
    number of devices (grey).
    """
    spec = _chart(cluster).to_dict()
    spec["config"] = {"view": {"stroke": None}, "background": "transparent", "axis": {"domain": False}}
    return as_svg(coloured(spec, _COLOURS))


def _chart(cluster: SimulatedCluster) -> Any:
    import altair as alt

    rows = _rows(cluster)
    names = list(dict.fromkeys(row["series"] for row in rows))
    colours = [SERIES_COLOURS[i % len(SERIES_COLOURS)] for i in range(len(names))]
    kinds = alt.Scale(domain=["speed-up", "most that messages allow", "one for each device"],
                      range=[[1, 0], [6, 3], [1, 3]])  # fmt: skip
    title = f"{cluster.model} on {cluster.device}"
    return (
        alt.Chart(alt.Data(values=rows), width=_WIDTH, height=_HEIGHT, title=title)
        .mark_line(point={"size": 22}, clip=True)
        .encode(
            x=alt.X("nodes:Q", title="nodes", axis=alt.Axis(grid=False, tickMinStep=1)),
            y=alt.Y("value:Q", title="speed-up against one device"),
            color=alt.Color("series:N", title="batch, bits", scale=alt.Scale(domain=names, range=colours)),
            strokeDash=alt.StrokeDash("kind:N", title=None, scale=kinds, legend=alt.Legend(symbolType="stroke")),
        )
    )


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
