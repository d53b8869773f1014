"""Many nodes: accuracy against the bytes that were exchanged, residuals, and what codes stood for."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np

from emu.cluster.observing import BINS_PER_RMS, REACH
from emu.formats.numerals import number
from emu.report.chart import SERIES_COLOURS, Chart, Spec, series_legend, specification, step_lines, swatch_legend
from emu.report.evidence import Evidence
from emu.report.html import Html, disclosure, join, paragraph, table
from emu.report.page import Section, figure, missing_section
from emu.report.run_data import Columns, RunData, table_of
from emu.report.words import accuracy, byte_count, integer, percent

_TITLE = "Many nodes"
_HEIGHT, _CODES_HEIGHT = 260, 280
#: Tensors whose residuals are drawn: the largest ones; the table has all.
_MOST_TENSORS = 6
#: Most colours of codes; if there are more codes, neighbours share a colour.
_MOST_COLOURS = 8
_BYTES_READING = (
    "Accuracy on the test images against all bytes that the nodes have sent to each other by then. Further left is "
    "cheaper. Compare it with the same run at another number of bits: what counts is how few bytes an accuracy takes."
)
_RESIDUALS_READING = (
    "The norm of what the first node has not sent yet, by tensor. A level line is as it should be: what one step holds "
    "back, the next ones send. A line that keeps rising means that the codec loses more than it can make up for."
)
_CODES_READING = (
    "The values that the first node's codes stood for in the last exchange that was written down, gradient and "
    "residual together, in root mean squares of their tensor. A colour is a code; the broken lines are the levels that "
    "receivers decode. The farther a level lies from the values of its colour, the more goes back into the residual."
)


def section(evidence: Evidence) -> Section | None:
    """Return the pictures of a cluster; None for a node that trained alone."""
    run = evidence.run
    sent = run.table("cluster")
    if sent is None:
        return missing_section("cluster", _TITLE, run.missing.get("cluster.parquet"))
    drawn = [
        _accuracy(run, sent),
        _residuals(run.table("residuals")),
        _codes(run.table("codes")),
    ]
    charts = tuple(chart for chart, _ in drawn if chart is not None)
    parts = [paragraph(_sentence(run, sent), class_="summary"), *(part for _, part in drawn if part is not None)]
    return Section("cluster", _TITLE, join(parts), charts)


def _sentence(run: RunData, sent: Columns) -> str:
    cluster = table_of(run.section("recipe").get("cluster"))
    nodes, bits = int(cluster.get("nodes", 1)), cluster.get("bits", 1)
    back = cluster.get("owner_bits") or bits
    total, steps = int(sent["bytes_sent"][-1]), max(int(sent["step"][-1]), 1)
    to_owners = f"{bits} bit{'s' * (bits != 1)}"
    ways = to_owners if back == bits else f"{to_owners} to the owners and {back} back"
    # Each of the n - 1 other nodes sends an owner its part, and gets the sum back: 2 * (n - 1) times all parameters, at
    # 4 bytes each, in every step.
    as_float = 2 * (nodes - 1) * int(run.info.get("parameters") or 0) * 4 * steps
    saved = f", {number(as_float / total, 3)} times fewer than in float32" if total and as_float > total else ""
    return (
        f"{integer(nodes)} nodes exchanged gradients of {ways}: {byte_count(total)} in {integer(steps)} steps{saved}."
    )


# ---- accuracy against bytes ----


def _accuracy(run: RunData, sent: Columns) -> tuple[Chart | None, Html | None]:
    metrics = run.metrics
    if metrics is None or "test_accuracy" not in metrics or not int(sent["bytes_sent"][-1]):
        return None, None
    # Accuracy and bytes are in two tables; a step that only one of them has is left out.
    bytes_at = dict(zip(sent["step"].tolist(), sent["bytes_sent"].tolist(), strict=True))
    rows: list[dict[str, Any]] = [
        {"megabytes": bytes_at[step] / 1e6, "accuracy": float(share), "step": int(step)}
        for step, share in zip(metrics["step"].tolist(), metrics["test_accuracy"].astype(np.float64), strict=True)
        if step in bytes_at and math.isfinite(share)
    ]
    if not rows:
        return None, None
    label = f"Test accuracy against bytes: {accuracy(rows[-1]['accuracy'])} after {rows[-1]['megabytes']:.3g} MB."
    chart = Chart("bytes-chart", label, _accuracy_spec(rows), _HEIGHT)
    return chart, figure("Accuracy against bytes exchanged", chart.placeholder(), reading=_BYTES_READING)


def _accuracy_spec(rows: list[dict[str, Any]]) -> Spec:
    import altair as alt

    chart = (
        alt.Chart(alt.NamedData("rows"), height=_HEIGHT - 60)
        .mark_line(strokeWidth=2, color=SERIES_COLOURS[0], point={"size": 30, "filled": True})
        .encode(
            x=alt.X(
                "megabytes:Q",
                title="megabytes sent by all nodes",
                axis=alt.Axis(grid=False, format=".9~g", tickCount=6),
            ),
            y=alt.Y("accuracy:Q", title=None, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%", tickCount=6)),
            tooltip=[
                alt.Tooltip("step:Q"),
                alt.Tooltip("megabytes:Q", format=".4g"),
                alt.Tooltip("accuracy:Q", format=".1%"),
            ],
        )
    )
    return specification(chart, rows=rows)


# ---- residuals ----


def _residuals(columns: Columns | None) -> tuple[Chart | None, Html | None]:
    if columns is None:
        return None, None
    names, holders = columns["tensor"].astype(str), columns["holder"].astype(str)
    norms = columns["norm"].astype(np.float64)
    if not (norms[np.isfinite(norms)] > 0).any():
        return None, paragraph("Nothing was held back: gradients travelled as they are.")
    ends = columns["step"] == columns["step"].max()
    cells = [
        [name, f"as {holder}", number(float(norm), 4)]
        for name, holder, norm in zip(names[ends], holders[ends], norms[ends], strict=True)
    ]
    all_ends = disclosure("All residuals at the end as a table", table("Held back", ["tensor", "held", "norm"], cells))
    # The table has residuals of owners as well; the picture is of the gradients that the node computes.
    as_worker = np.isfinite(norms) & (holders == "worker")
    peaks: Counter[str] = Counter()
    for name, norm in zip(names[as_worker].tolist(), norms[as_worker].tolist(), strict=True):
        # A Counter gives 0 for a name that it does not have, and `most_common` then sorts by the peaks.
        peaks[name] = max(peaks[name], norm)
    drawn = [name for name, peak in peaks.most_common(_MOST_TENSORS) if peak > 0]
    if not drawn:  # a first node that computes no gradients is an owner alone
        return None, all_ends
    rows: list[dict[str, Any]] = [
        {"step": int(step), "tensor": name, "norm": float(f"{norm:.5g}")}
        for step, name, norm in zip(columns["step"][as_worker], names[as_worker], norms[as_worker], strict=True)
        if name in drawn
    ]
    last = max(row["step"] for row in rows)
    label = f"Norm of residuals of {', '.join(drawn)} over {integer(last)} steps."
    chart = Chart("residuals-chart", label, _residuals_spec(rows, drawn), _HEIGHT)
    legend = series_legend(drawn, range(len(drawn)))
    return chart, join(
        [figure("What the first node holds back", legend, chart.placeholder(), reading=_RESIDUALS_READING), all_ends]
    )


def _residuals_spec(rows: list[dict[str, Any]], drawn: list[str]) -> Spec:
    import altair as alt

    y = alt.Y("norm:Q", title="norm of the residual", axis=alt.Axis(format=".9~g", tickCount=6))
    return step_lines(rows, {"tensor": drawn}, y, height=_HEIGHT - 60, tip=".4g")


# ---- codes ----


def _codes(columns: Columns | None) -> tuple[Chart | None, Html | None]:
    if columns is None:
        return None, None
    newest = columns["step"] == columns["step"].max()
    codes, bins = columns["code"][newest].astype(np.int64), columns["bin"][newest].astype(np.float64)
    levels, values = columns["level"][newest].astype(np.float64), columns["values"][newest].astype(np.int64)
    n_codes = int(codes.max()) + 1
    codes_per_colour = -(-n_codes // _MOST_COLOURS)
    counted: Counter[tuple[float, int]] = Counter()
    for lower, code, count in zip(bins.tolist(), codes.tolist(), values.tolist(), strict=True):
        # Neighbouring codes make a group, which has a colour: at most _MOST_COLOURS of them.
        counted[lower, code // codes_per_colour] += count
    total = sum(counted.values())
    width = 1 / BINS_PER_RMS
    names = [_named(group, codes_per_colour, n_codes) for group in range(-(-n_codes // codes_per_colour))]
    rows: list[dict[str, Any]] = []
    heights: dict[float, float] = {}
    for (lower, group), count in sorted(counted.items()):
        # Bars of one bin are stacked: `heights` has how high each bin is so far.
        share, below = count / total, heights.get(lower, 0.0)
        heights[lower] = below + share
        bar = {"from": lower, "to": lower + width, "low": below, "high": below + share, "share": share}
        rows.append({name: float(f"{value:.4g}") for name, value in bar.items()} | {"codes": names[group]})
    marks: list[dict[str, Any]] = [
        {"level": float(f"{np.average(levels[codes == code], weights=values[codes == code]):.4g}"), "code": code}
        for code in sorted(set(codes.tolist()))
        # A level is a mean over the values of a tensor; tensors are joined by how many values each had.
        if np.isfinite(levels[codes == code]).all()
    ]
    step = int(columns["step"].max())
    label = f"Values that {integer(n_codes)} codes stood for at step {integer(step)}, of {integer(total)} values."
    chart = Chart("codes-chart", label, _codes_spec(rows, marks, names), _CODES_HEIGHT)
    legend = swatch_legend(dict(zip(names, SERIES_COLOURS, strict=False)), "code")
    shares = [
        [str(code), number(float(np.average(levels[codes == code], weights=values[codes == code])), 4),
         percent(int(values[codes == code].sum()) / total)]
        for code in sorted(set(codes.tolist()))
    ]  # fmt: skip
    shown = disclosure("The codes as a table", table("Codes", ["code", "level, in rms", "share of values"], shares))
    title = f"What the codes of step {integer(step)} stood for"
    return chart, join([figure(title, legend, chart.placeholder(), reading=_CODES_READING), shown])


def _named(group: int, codes_per_colour: int, n_codes: int) -> str:
    first, last = group * codes_per_colour, min((group + 1) * codes_per_colour, n_codes) - 1
    return str(first) if first == last else f"{first} to {last}"


def _codes_spec(rows: list[dict[str, Any]], marks: list[dict[str, Any]], names: list[str]) -> Spec:
    import altair as alt

    x = alt.X(
        "from:Q",
        title="root mean squares of the tensor",
        scale=alt.Scale(domain=[-REACH, REACH], nice=False),
        axis=alt.Axis(grid=False, tickCount=9),
    )
    colour = alt.Scale(domain=names, range=list(SERIES_COLOURS[: len(names)]))
    bars = (
        alt.Chart(alt.NamedData("rows"), height=_CODES_HEIGHT - 60)
        .mark_rect(stroke="var(--card)", strokeWidth=0.5)
        .encode(
            x=x,
            x2="to:Q",
            y=alt.Y("low:Q", title=None, axis=alt.Axis(format="%", tickCount=5), scale=alt.Scale(zero=True)),
            y2="high:Q",
            color=alt.Color("codes:N", scale=colour),
            tooltip=[
                alt.Tooltip("codes:N", title="code"),
                alt.Tooltip("from:Q", title="from"),
                alt.Tooltip("share:Q", format=".2%"),
            ],
        )
    )
    ticks = (
        alt.Chart(alt.NamedData("marks"))
        .mark_rule(strokeWidth=2, strokeDash=[4, 3], color="var(--ink)", clip=True)
        .encode(x=alt.X("level:Q"), tooltip=[alt.Tooltip("code:N"), alt.Tooltip("level:Q", format=".3g")])
    )
    both: Any = alt.layer(bars, ticks)
    return specification(both, rows=rows, marks=marks)
