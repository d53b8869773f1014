"""The picture of `emu evaluate net.onnx`: what a device does to each layer, worst first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from emu.interop.evaluation import GraphEvaluation, StepError
from emu.report.chart import coloured
from emu.report.pictures.speed_up import COLOURS, CONFIG
from emu.report.vega import PADDING, as_svg

_WIDTH, _ROW = 190, 17
#: What the two bars of the last panel are.
_SHARES = ("results", "weights")


def layers_picture(evaluation: GraphEvaluation) -> str:
    """Return the picture as SVG.

    It has a row for each layer: the accuracy if this layer alone is on the device (without labels, the answers that
    change), signal to noise with the whole network on the device, and the shares of results and weights that overflow.
    """
    spec = _chart(evaluation).to_dict()
    spec["config"] = CONFIG
    spec["padding"] = {**PADDING, "right": 30}
    return as_svg(coloured(spec, COLOURS), f"{_title(evaluation)}: {_sentence(evaluation)}")


def _title(evaluation: GraphEvaluation) -> str:
    return f"{evaluation.path.stem} on {evaluation.device}"


def _sentence(evaluation: GraphEvaluation) -> str:
    worst = evaluation.steps[0]
    changed = "" if worst.alone_changed is None else f", {worst.alone_changed} answers change because of it alone"
    return f"layers, worst first: {worst.name}{changed}."


def _chart(evaluation: GraphEvaluation) -> Any:
    import altair as alt

    steps = evaluation.steps
    names = [step.name for step in steps]
    height = _ROW * len(names)
    tried = [step for step in steps if step.alone_changed is not None]
    if not any(step.alone_changed for step in tried):
        tried = []  # every layer alone leaves all answers as they are

    def panel(rows: Sequence[dict[str, Any]], *, first: bool = False) -> Any:
        """Return a panel with a row for each layer; the first one has their names."""
        # The panels stand side by side and share their rows, so one axis with names is enough.
        axis = alt.Axis(title=None, labelLimit=220, ticks=False) if first else None
        y = alt.Y("layer:N", sort=names, scale=alt.Scale(domain=names, type="band"), axis=axis)
        return alt.Chart(alt.Data(values=list(rows)), width=_WIDTH, height=height).encode(y=y)

    panels: list[Any] = []
    if tried:
        panels.append(_alone(evaluation, tried, panel))
    # A row without a number of decibels has a text at the left edge instead of a dot.
    noise = panel([_noise(step) for step in steps], first=not panels)
    decibels = alt.X(
        "decibel:Q",
        title="signal to noise, dB",
        scale=alt.Scale(zero=False),
        axis=alt.Axis(tickCount=4, labelOverlap="greedy"),
    )
    dots = noise.mark_point(size=46, filled=True, opacity=1, color="var(--series-0)").encode(x=decibels)
    words = noise.mark_text(align="left", dx=4).encode(
        x=alt.value(0), text="text:N", color=alt.value("var(--series-7)")
    )
    panels.append(dots + words)
    shares = [
        {"layer": step.name, "of": of, "share": share}
        for step in steps
        for of, share in zip(_SHARES, (step.overflow, step.weights_overflow), strict=True)
        if share
    ]
    if shares:
        beyond = (
            panel(shares)
            .mark_bar()
            .encode(
                x=alt.X("share:Q", title="beyond the format", axis=alt.Axis(format="~%", tickCount=4)),
                yOffset=alt.YOffset("of:N", scale=alt.Scale(domain=list(_SHARES))),
                color=alt.Color(
                    "of:N",
                    title=None,
                    scale=alt.Scale(domain=list(_SHARES), range=["var(--series-1)", "var(--series-4)"]),
                ),
            )
        )
        panels.append(beyond)
    joined: Any = alt.hconcat(*panels, spacing=14)
    return joined.properties(title=_title(evaluation)).resolve_scale(y="shared")


def _alone(evaluation: GraphEvaluation, tried: Sequence[StepError], panel: Any) -> Any:
    """Return the panel of the accuracy with one layer on the device, beside that of float32; or of changed answers."""
    import altair as alt

    if evaluation.float_accuracy is None:
        rows = [{"layer": step.name, "value": step.alone_changed} for step in tried]
        bars = panel(rows, first=True).mark_bar(color="var(--series-1)")
        return bars.encode(
            x=alt.X("value:Q", title="answers that change, alone", axis=alt.Axis(tickCount=5, format="d"))
        )
    rows = [{"layer": step.name, "value": step.alone_accuracy} for step in tried]
    x = alt.X(
        "value:Q",
        title="accuracy, alone",
        scale=alt.Scale(zero=False, padding=8),
        axis=alt.Axis(format="%", tickCount=4, labelOverlap="greedy"),
    )
    dots = panel(rows, first=True).mark_point(size=46, filled=True, opacity=1, color="var(--series-1)").encode(x=x)
    # A line across all layers: what float32 reaches.
    exact = alt.Chart(alt.Data(values=[{"value": evaluation.float_accuracy, "text": "float32"}]))
    line = exact.mark_rule(strokeDash=[4, 3], color="var(--series-7)").encode(x="value:Q")
    name = exact.mark_text(baseline="bottom", dy=-2, fontSize=9, color="var(--series-7)")
    return dots + line + name.encode(x="value:Q", y=alt.value(0), text="text:N")


def _noise(step: StepError) -> dict[str, Any]:
    if step.signal_to_noise_db == math.inf:
        return {"layer": step.name, "decibel": None, "text": "equal"}
    if step.signal_to_noise_db == -math.inf:
        return {"layer": step.name, "decibel": None, "text": "nothing left"}
    return {"layer": step.name, "decibel": step.signal_to_noise_db, "text": ""}
