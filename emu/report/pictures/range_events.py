"""Overflow and underflow: tensors that lost results at the ends of their range, and when."""

from __future__ import annotations

from typing import Any

from emu.report.chart import Chart, Spec, share_legend, share_scale, specification, step_axis
from emu.report.evidence import Evidence
from emu.report.histories import FlagCounts
from emu.report.html import Html, disclosure, element, join, paragraph, table
from emu.report.page import Section, figure
from emu.report.run_data import Tensor
from emu.report.words import integer, percent, role_order

#: Most tensors drawn over time, the worst ones; the table has all.
MOST_STRIPS = 12
MOST_COLUMNS = 120
_ROW_PIXELS, _FEW_ROW_PIXELS, _FEW = 18, 26, 24
_FLAGS = ("overflow", "underflow")
_MATRIX_READING = {
    "overflow": (
        "Share of all results written by a tensor that were too large for its format and went where the overflow rule "
        "sends them (the nearest limit, infinity, or around). A few in ten thousand rarely matter; percents change "
        "what the network computes."
    ),
    "underflow": (
        "Share of all results that were not zero and were written as zero, because they were smaller than half a step "
        "(or below the smallest value). Much of it in error and gradient means that the lower layers learn slowly or "
        "not at all."
    ),
}
_STRIP_READING = (
    "The tensors with the most {flag}, each a strip from the first step to the last. A strip that darkens or brightens "
    "tells when the numbers left the format: at the start, with a change of the learning rate, or as training "
    "converged."
)


def section(evidence: Evidence) -> Section:
    """Return a matrix of layers and roles for each flag, the worst tensors over time, and a table of everything."""
    title = "Overflow and underflow"
    if not evidence.flags:
        return Section("range", title, paragraph(evidence.run.missing["flags.parquet"], class_="missing"))
    charts: list[Chart] = []
    # Both functions add their charts to `charts`, and return the figures.
    pairs = [
        element("div", *pictures, class_="pair")
        for pictures in (_matrices(evidence, charts), _strips(evidence, charts))
    ]
    legend = share_legend("share of the written results:")
    intro = paragraph(" ".join(_sentence(evidence, flag) for flag in _FLAGS), class_="summary")
    body = join([intro, legend, *pairs, disclosure("All flags of all tensors as a table", _table(evidence))])
    return Section("range", title, body, tuple(charts))


def _sentence(evidence: Evidence, flag: str) -> str:
    shares = {tensor: history.share(flag) for tensor, history in evidence.flags.items()}
    raised = [tensor for tensor, share in shares.items() if share > 0]
    if not raised:
        return f"No result of any tensor raised {flag}."
    layer, role = max(raised, key=lambda tensor: shares[tensor])
    most = f"{role} of {layer}: {percent(shares[layer, role])}"
    return f"{len(raised)} of {len(shares)} tensors raised {flag}, most of all {most}."


def _matrices(evidence: Evidence, charts: list[Chart]) -> list[Html]:
    layers = list(dict.fromkeys(layer for layer, _ in evidence.flags))
    roles = sorted({role for _, role in evidence.flags}, key=role_order)
    figures: list[Html] = []
    for flag in _FLAGS:
        rows = [
            {
                "layer": layer,
                "role": role,
                "share": history.share(flag),
                "text": percent(history.share(flag)),
                "cell": _cell(history.share(flag)),
            }
            for (layer, role), history in evidence.flags.items()
        ]
        height = len(layers) * (_FEW_ROW_PIXELS if len(layers) <= _FEW else _ROW_PIXELS)
        label = f"Matrix of {flag} by layer and role. {_sentence(evidence, flag)}"
        chart = Chart(f"{flag}-matrix", label, _matrix(rows, layers, roles, height), height + 60)
        charts.append(chart)
        figures.append(
            figure(f"{flag.capitalize()} by tensor, in percent", chart.placeholder(), reading=_MATRIX_READING[flag])
        )
    return figures


def _cell(share: float) -> str:
    """Return a share in percent, short enough for a cell on a phone."""
    hundred = share * 100
    # 9.95 rounds to 10.0, which would have three digits.
    if hundred == 0 or hundred >= 9.95:
        return f"{hundred:.0f}"
    return f"{hundred:.1f}" if hundred >= 0.05 else "<.1"


def _matrix(rows: list[dict[str, Any]], layers: list[str], roles: list[str], height: int) -> Spec:
    import altair as alt

    base = alt.Chart(alt.NamedData("rows"), height=height).encode(
        x=alt.X("role:N", sort=roles, title=None, axis=alt.Axis(orient="top", labelAngle=-40, labelPadding=4)),
        y=alt.Y("layer:N", sort=layers, title=None, axis=alt.Axis(labelLimit=110)),
        tooltip=[alt.Tooltip("layer:N"), alt.Tooltip("role:N"), alt.Tooltip("text:N", title="share")],
    )
    cells = base.mark_rect(cornerRadius=2, stroke="var(--card)", strokeWidth=2).encode(
        color=alt.Color("share:Q", scale=share_scale())
    )
    # Cells and texts have scales of their own, which Vega would join without `resolve_scale`.
    inks = alt.Color("share:Q", scale=share_scale(inks=True))
    texts = base.mark_text(fontSize=11).encode(text="cell:N", color=inks)
    both: Any = alt.layer(cells, texts)
    return specification(both.resolve_scale(color="independent"), rows=rows)


def _strips(evidence: Evidence, charts: list[Chart]) -> list[Html]:
    figures: list[Html] = []
    for flag in _FLAGS:
        # The sort is stable: tensors with equal shares stay in the network's order.
        ranked = sorted(evidence.flags.items(), key=lambda item: -item[1].share(flag))
        worst = [(tensor, history) for tensor, history in ranked[:MOST_STRIPS] if history.share(flag) > 0]
        title = f"{flag.capitalize()} over time"
        if not worst:
            figures.append(figure(title, paragraph(f"No {flag} in any interval.", class_="missing"), reading=""))
            continue
        names = [_name(tensor) for tensor, _ in worst]
        rows = [row for tensor, history in worst for row in _strip_rows(tensor, history.merged(MOST_COLUMNS), flag)]
        height, last = _FEW_ROW_PIXELS * len(names), max(int(history.steps[-1]) for _, history in worst)
        label = f"{flag.capitalize()} over the steps of training, for {', '.join(names)}."
        chart = Chart(f"{flag}-strips", label, _strip_spec(rows, names, last, height), height + 60)
        charts.append(chart)
        figures.append(figure(title, chart.placeholder(), reading=_STRIP_READING.format(flag=flag)))
    return figures


def _name(tensor: Tensor) -> str:
    return f"{tensor[0]} {tensor[1]}"


def _strip_rows(tensor: Tensor, history: FlagCounts, flag: str) -> list[dict[str, Any]]:
    # An interval begins where the one before it ends.
    starts = [0, *history.steps[:-1].tolist()]
    return [
        {"tensor": _name(tensor), "x0": start, "x1": int(end), "share": float(f"{share:.3g}")}
        for start, end, share in zip(starts, history.steps, history.shares(flag), strict=True)
        # Cells of 0 are not drawn, so they need no rows.
        if share > 0
    ]


def _strip_spec(rows: list[dict[str, Any]], names: list[str], last: int, height: int) -> Spec:
    import altair as alt

    strips = alt.Scale(domain=names, paddingInner=0.15)
    tips = [alt.Tooltip("x0:Q", title="after step"), alt.Tooltip("x1:Q", title="to step")]
    chart = (
        alt.Chart(alt.NamedData("rows"), height=height)
        .mark_rect(clip=True)
        .encode(
            x=step_axis(last, "x0"),
            x2="x1:Q",
            y=alt.Y("tensor:N", sort=names, title=None, scale=strips, axis=alt.Axis(labelLimit=150)),
            color=alt.Color("share:Q", scale=share_scale()),
            tooltip=[alt.Tooltip("tensor:N"), *tips, alt.Tooltip("share:Q", format=".3%")],
        )
    )
    return specification(chart, rows=rows)


def _table(evidence: Evidence) -> Html:
    flags = list(dict.fromkeys(flag for history in evidence.flags.values() for flag in history.counts))
    rows = (
        [_name(tensor), integer(int(history.elements.sum())), *(percent(history.share(flag)) for flag in flags)]
        for tensor, history in evidence.flags.items()
    )
    header = ["tensor", "results", *(flag.replace("_", " ") for flag in flags)]
    return table("Share of the written results that raised each flag, over the whole run", header, rows)
