"""Mini-batches by measurement: their sizes over the steps, and how many nodes shared them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from emu.formats.numerals import number
from emu.report.chart import SERIES_COLOURS, Chart, Spec, specification, step_axis, whole_ticks
from emu.report.evidence import Evidence
from emu.report.html import Html, disclosure, join, paragraph, table
from emu.report.page import Section, figure
from emu.report.run_data import Columns, RunData, table_of
from emu.report.words import NO_NUMBER, integer

_TITLE = "Size of mini-batches"
_HEIGHT = 220
_SIZES_READING = (
    "Examples of a mini-batch, step by step. The size rises where the loss allows it: the largest size is kept whose "
    "trial ends within the tolerance of the smallest one's. A size that stays has met a bound, or the loss."
)
_NODES_READING = (
    "How many nodes computed a part of each mini-batch, by simulated time: as many as leave the computation of each at "
    "least as long as the exchange beside it. Larger mini-batches, fewer bits, faster links let more nodes take part."
)
_FILES = ("search.parquet", "parallelism.parquet")
#: A level for each step at which it changes: the step, and the level from there on.
_Levels = Sequence[tuple[int, int]]


def section(evidence: Evidence) -> Section | None:
    """Return sizes and numbers of nodes over steps; None for a run that searches neither."""
    run = evidence.run
    recipe = table_of(run.section("recipe"))
    cluster, training = table_of(recipe.get("cluster")), table_of(recipe.get("training"))
    search = table_of(cluster.get("search"))
    if not search:
        return None
    last = max(evidence.outcome.steps, 1)
    sizes = _sizes(run.table("search"), int(training.get("batch", 0)))
    nodes = _nodes(run, cluster) if search.get("parallelism") else []
    summary = _size_sentence(run.table("search"), sizes) + (f" {_nodes_sentence(nodes)}" if nodes else "")
    parts, charts = [paragraph(summary, class_="summary")], list[Chart]()
    drawn = (
        ("sizes-chart", "examples", "Examples of a mini-batch", sizes, _SIZES_READING),
        ("nodes-chart", "nodes", "Nodes that shared a mini-batch", nodes, _NODES_READING),
    )
    for identifier, what, title, levels, reading in drawn:
        # A level that never changes is said in the summary.
        if len(levels) > 1:
            label = f"{title} over {integer(last)} steps: from {integer(levels[0][1])} to {integer(levels[-1][1])}."
            charts.append(Chart(identifier, label, _spec(levels, last, what), _HEIGHT))
            parts.append(figure(title, charts[-1].placeholder(), reading=reading))
    parts += [paragraph(why, class_="missing") for name in _FILES if (why := run.missing.get(name))]
    if (trials := run.table("search")) is not None:
        parts.append(disclosure("All trials as a table", _table(trials)))
    return Section("batch-search", _TITLE, join(parts), tuple(charts))


def _sizes(trials: Columns | None, first: int) -> list[tuple[int, int]]:
    """Return the sizes that were kept, each with its first step."""
    kept = [] if trials is None else np.flatnonzero(trials["kept"]).tolist()
    # Steps count from 1. Trials that were not kept left the size as it was.
    sizes = [(1, first)]
    for i in kept:
        assert trials is not None
        sizes.append((int(trials["step"][i]), int(trials["size"][i])))
    return sizes


def _nodes(run: RunData, cluster: dict[str, Any]) -> list[tuple[int, int]]:
    """Return the numbers of nodes that took part, each with its first step."""
    # All workers at the start; without a list of them, every node is one.
    levels = [(1, len(cluster.get("workers") or ()) or int(cluster.get("nodes", 1)))]
    moved = run.table("parallelism")
    if moved is not None:  # the number of nodes changed after the step of a row
        levels += [(int(step) + 1, int(k)) for step, k in zip(moved["step"], moved["workers"], strict=True)]
    return levels


def _size_sentence(trials: Columns | None, sizes: _Levels) -> str:
    first, newest = sizes[0][1], sizes[-1][1]
    if trials is None:
        return f"Mini-batches had {integer(first)} examples: no other size was tried."
    count, searches = len(trials["step"]), len(np.unique(trials["step"]))
    went = f"went from {integer(first)} to {integer(newest)}" if first != newest else f"ended at {integer(newest)}"
    return (
        f"Mini-batches {went} examples: {integer(count)} trials in {integer(searches)} search{'es' * (searches != 1)}."
    )


def _nodes_sentence(nodes: _Levels) -> str:
    most, newest = nodes[0][1], nodes[-1][1]
    if len(nodes) == 1:
        return f"All {integer(most)} nodes shared every one of them."
    return f"At the end {integer(newest)} of {integer(most)} nodes shared one."


def _spec(levels: _Levels, last: int, what: str) -> Spec:
    import altair as alt

    rows: list[dict[str, Any]] = [{"step": step, what: level} for step, level in levels if step <= last]
    # A line of steps ends at its last point: this one carries the last level to the end.
    rows.append({"step": last, what: rows[-1][what]})
    most = max(row[what] for row in rows)
    chart = (
        alt.Chart(alt.NamedData("rows"), height=_HEIGHT - 60)
        .mark_line(strokeWidth=2, interpolate="step-after", color=SERIES_COLOURS[0])
        .encode(
            x=step_axis(last),
            y=alt.Y(
                f"{what}:Q",
                title=what,
                scale=alt.Scale(zero=True),
                axis=alt.Axis(values=whole_ticks(0, most), format=",d"),
            ),
            tooltip=[alt.Tooltip("step:Q"), alt.Tooltip(f"{what}:Q")],
        )
    )
    return specification(chart, rows=rows)


def _table(trials: Columns) -> Html:
    names = ("step", "size", "criterion", "kept")
    rows = [
        [integer(int(step)), integer(int(size)), _criterion(float(criterion)), "kept" if kept else ""]
        for step, size, criterion, kept in zip(*(trials[name] for name in names), strict=True)
    ]
    return table("Trials", ["from step", "examples", "mean training loss", ""], rows)


def _criterion(loss: float) -> str:
    return number(loss, 5) if np.isfinite(loss) else NO_NUMBER
