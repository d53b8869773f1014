"""The time of the emulated machine: by layer, work against the limits of its units, and a step as a timeline."""

from __future__ import annotations

import math
from typing import Any

from emu.formats.numerals import number
from emu.report.chart import (
    AXIS_PIXELS,
    ROW_PIXELS,
    SERIES_COLOURS,
    SERIES_SHAPES,
    Chart,
    layer_bars,
    specification,
    swatch_legend,
)
from emu.report.evidence import Evidence
from emu.report.html import Html, disclosure, element, join, paragraph, table
from emu.report.page import Section, figure, missing_section
from emu.report.simulated_time import SimulatedSpent, SimulatedTime, TracedStep
from emu.report.words import NO_NUMBER, duration, integer, percent, sentence_case
from emu.training.time.simulation import (
    BACKWARD,
    CLIP,
    FORWARD,
    KINDS,
    ON_HOST,
    QUANTISE,
    RECEIVE,
    REDO,
    SEND,
    TRANSFER,
    UPDATE,
)

_TITLE = "Time on the emulated machine"
#: Names of work that belongs to no layer: preparing and sending batches, exchanging gradients.
_BATCHES, _EXCHANGE = "batches", "exchange"
_COLOURS = {
    FORWARD: SERIES_COLOURS[0],
    BACKWARD: SERIES_COLOURS[2],
    UPDATE: SERIES_COLOURS[4],
    REDO: SERIES_COLOURS[1],
    ON_HOST: SERIES_COLOURS[3],
    TRANSFER: "var(--quiet)",
    QUANTISE: SERIES_COLOURS[5],
    CLIP: "var(--share-6)",
    SEND: SERIES_COLOURS[6],
    RECEIVE: SERIES_COLOURS[7],
}
_WORDS = {ON_HOST: "on the host", TRANSFER: "transfers", REDO: "run again"}
_ROOFLINE_HEIGHT = 320
#: Events of a drawn step: the longest ones.
_MOST_EVENTS = 1500
_BARS_READING = (
    "Each bar is the time that a step's work for one layer takes on the machine that the run emulates, after its "
    "device file: cycles of its units, bytes of its memory, transfers to its host. What was run again at another point "
    "is charged like everything else. These times do not depend on the computer that ran the emulation."
)
_ROOFLINE_READING = (
    "Each mark is a layer's work of one kind. To the right it does more operations for each byte of memory; higher up "
    "it does more of them a second. No mark can lie above the line: where the line rises, the memory bounds the work; "
    "where it is level, the unit does."
)
_STEP_READING = (
    "One step as the machine runs it, from left to right: a row for each unit and for the link, a bar for everything "
    "it does. The same events, and those of the next step, are in trace.json, which Perfetto and chrome://tracing open."
)


def section(evidence: Evidence) -> Section | None:
    """Return bars, roofline and steps; None for a run of a machine without a clock."""
    spent = evidence.simulated
    if spent is None:
        return missing_section("simulated-time", _TITLE, evidence.run.missing.get("simulation.parquet"))
    steps = max(evidence.outcome.steps, 1)
    sentences = _sentences(evidence, spent, steps)
    kinds = [kind for kind in KINDS if spent.of(kind)]
    colours = {_WORDS.get(kind, kind): _COLOURS[kind] for kind in kinds}
    charts = [_bars(spent, steps, kinds, colours, sentences[0])]
    parts: list[Html] = [
        paragraph(" ".join(sentences), class_="summary"),
        figure(
            "Simulated time of a step by layer", swatch_legend(colours), charts[0].placeholder(), reading=_BARS_READING
        ),
    ]
    if roofline := _roofline(spent, colours):
        charts.append(roofline)
        parts.append(
            figure("Roofline", swatch_legend(_of_device(colours)), roofline.placeholder(), reading=_ROOFLINE_READING)
        )
    # Place is (order, name): sorted by order, and the same rows in all steps.
    resources = sorted({event["place"] for step in spent.steps for event in step.events})
    if drawn := [_step_chart(step, [name for _, name in resources], i) for i, step in enumerate(spent.steps)]:
        charts += drawn
        places = [
            piece
            for step, chart in zip(spent.steps, drawn, strict=True)
            for piece in (element("h4", f"Step {integer(step.step)}, {step.phase}"), chart.placeholder())
        ]
        present = {event["kind"] for step in spent.steps for event in step.events}
        shown = {_WORDS.get(kind, kind): colour for kind, colour in _COLOURS.items() if kind in present}
        parts.append(figure("A step as a timeline", swatch_legend(shown), *places, reading=_STEP_READING))
    parts.append(disclosure("Simulated time as a table", _table(spent)))
    return Section("simulated-time", _TITLE, join(parts), tuple(charts))


def _sentences(evidence: Evidence, spent: SimulatedTime, steps: int) -> list[str]:
    """Return sentences about the time of the run, its parts, and operations that ran again."""
    _, device = evidence.run.name()
    sentences = [
        f"On {device}, the {integer(steps)} steps would have taken {duration(spent.seconds)}: "
        f"{duration(spent.seconds / steps)} each."
    ]
    if len(spent.by_phase) > 1:
        sentences.append(
            sentence_case(", ".join(f"{name} {duration(taken)}" for name, taken in spent.by_phase.items())) + "."
        )
    parts = [(kind, spent.share(spent.of(kind))) for kind in KINDS if spent.of(kind)]
    sentences.append(
        f"Of its work, {', '.join(f'{percent(share)} is {_WORDS.get(kind, kind)}' for kind, share in parts)}."
    )
    if sends := spent.of(SEND):
        # A port may send while units compute, so this is a share of the time, and not of the sum of all work.
        busy = sum(entry.seconds for entry in sends) / (spent.seconds or 1.0)
        sentences.append(f"The busiest port of the crossbar sends for {percent(busy)} of the time.")
    if again := spent.of(REDO):
        calls, cycles, taken = (sum(getattr(entry, name) for entry in again) for name in ("calls", "cycles", "seconds"))
        runs = int(evidence.run.section("metrics").get("pretraining_runs") or 0)
        of_all = f" of the {integer(runs)} of pre-training" if runs else ""
        sentences.append(
            f"{integer(calls)} operations{of_all} ran again with a better scale, which took {integer(cycles)} cycles, "
            f"{duration(taken)}."
        )
    return sentences


# ---- bars ----


def _bars(spent: SimulatedTime, steps: int, kinds: list[str], colours: dict[str, str], summary: str) -> Chart:
    rows: list[dict[str, Any]] = []
    for layer in dict.fromkeys(entry.layer for entry in spent.entries):
        for kind in kinds:
            if entries := [entry for entry in spent.of(kind) if entry.layer == layer]:
                taken = sum(entry.seconds for entry in entries) / steps
                rows.append(
                    {
                        # Work without a layer is that of the batches, or of the exchange between nodes.
                        "layer": layer or (_EXCHANGE if kind in (QUANTISE, CLIP, SEND, RECEIVE) else _BATCHES),
                        "kind": _WORDS.get(kind, kind),
                        "place": KINDS.index(kind),
                        "ms": float(f"{taken * 1e3:.4g}"),
                        "time": duration(taken),
                        "share": percent(spent.share(entries)),
                    }
                )
    layers = list(dict.fromkeys(row["layer"] for row in rows))
    tips = {"layer": "layer", "kind": "work", "time": "per step", "share": "share"}
    spec = layer_bars(rows, layers, colours, value="ms", title="simulated milliseconds per step", tips=tips)
    return Chart(
        "simulated-time-chart", f"Simulated time by layer. {summary}", spec, ROW_PIXELS * len(layers) + AXIS_PIXELS
    )


# ---- roofline ----


def _of_device(colours: dict[str, str]) -> dict[str, str]:
    outside = {_WORDS[ON_HOST], _WORDS[TRANSFER], QUANTISE, CLIP, SEND}
    return {name: colour for name, colour in colours.items() if name not in outside}


def _intensity(entry: SimulatedSpent) -> float:
    return entry.operations / entry.bytes


def _roofline(spent: SimulatedTime, colours: dict[str, str]) -> Chart | None:
    """Return operations per second against operations per byte; None without a memory."""
    import altair as alt

    roofs = [roof for roof in spent.roofs if roof.bytes_per_s]
    marks = [
        entry
        for entry in spent.of(FORWARD, BACKWARD, UPDATE, REDO)
        if entry.bytes and entry.seconds and entry.operations and any(roof.unit == entry.unit for roof in roofs)
    ]
    if not marks:
        return None
    points = [
        {
            "x": _intensity(entry),
            "y": entry.operations / entry.seconds,
            "layer": entry.layer,
            "kind": _WORDS.get(entry.kind, entry.kind),
            "unit": entry.unit,
            "speed": f"{number(entry.operations / entry.seconds / 1e9, 3)} G/s",
        }
        for entry in marks
    ]
    # The intensity, in operations per byte, at which memory and unit are equally slow.
    ridges = [roof.operations_per_s / (roof.bytes_per_s or 1.0) for roof in roofs]
    # A power of two of margin to each side.
    low = math.log2(min(*ridges, *(_intensity(entry) for entry in marks))) - 1
    high = math.log2(max(*ridges, *(_intensity(entry) for entry in marks))) + 1
    lines = [
        {"x": x, "y": min(roof.operations_per_s, x * (roof.bytes_per_s or 0.0)), "unit": roof.unit}
        for roof, ridge in zip(roofs, ridges, strict=True)
        # Three points draw the roof: on logarithmic axes it is a straight line up to the ridge, and level behind it.
        for x in (2**low, ridge, 2**high)
    ]
    units = [roof.unit for roof in roofs]
    x = alt.X(
        "x:Q",
        title="operations per byte",
        scale=alt.Scale(type="log", base=2, nice=False),
        axis=alt.Axis(tickCount=8, format=".9~g"),
    )
    y = alt.Y(
        "y:Q", title="operations per second", scale=alt.Scale(type="log"), axis=alt.Axis(tickCount=5, format="~s")
    )
    shapes = alt.Scale(domain=units, range=list(SERIES_SHAPES[: len(units)]))
    drawn = [
        alt.Chart(alt.NamedData("roofs"), height=_ROOFLINE_HEIGHT - 60)
        .mark_line(color="var(--line)", strokeWidth=2)
        .encode(x=x, y=y, detail="unit:N", tooltip=[alt.Tooltip("unit:N")]),
        alt.Chart(alt.NamedData("work"))
        .mark_point(size=70, filled=True, opacity=0.85)
        .encode(
            x=x,
            y=y,
            color=alt.Color("kind:N", scale=alt.Scale(domain=list(colours), range=list(colours.values()))),
            shape=alt.Shape("unit:N", scale=shapes),
            tooltip=[
                alt.Tooltip("layer:N"),
                alt.Tooltip("kind:N", title="work"),
                alt.Tooltip("unit:N"),
                alt.Tooltip("speed:N", title="operations"),
                alt.Tooltip("x:Q", title="per byte", format=".3g"),
            ],
        ),
    ]
    best = max(marks, key=lambda entry: entry.operations / entry.seconds)
    label = (
        f"Roofline of {', '.join(units)}: the fastest work, {best.kind} of {best.layer}, does "
        f"{number(best.operations / best.seconds / 1e9, 3)} billion operations a second."
    )
    both: Any = alt.layer(*drawn)
    return Chart("roofline-chart", label, specification(both, roofs=lines, work=points), _ROOFLINE_HEIGHT)


# ---- one step ----


def _step_chart(step: TracedStep, resources: list[str], index: int) -> Chart:
    """Return one step as a timeline of its longest events."""
    import altair as alt

    # Short events are too narrow to be seen; trace.json has all.
    longest = sorted(step.events, key=lambda event: -event["duration"])[:_MOST_EVENTS]
    rows: list[dict[str, Any]] = [
        {
            "resource": event["place"][1],
            "from": round(event["begin"], 6),
            "to": round(event["begin"] + event["duration"], 6),
            "kind": _WORDS.get(event["kind"], event["kind"]),
            "name": event["name"],
            "operation": event["operation"].replace("_", " "),
            "time": duration(event["duration"] * 1e-6),
            "cycles": integer(event["cycles"]) if event["cycles"] else NO_NUMBER,
        }
        for event in sorted(longest, key=lambda event: event["begin"])
    ]
    kinds = {_WORDS.get(kind, kind): colour for kind, colour in _COLOURS.items()}
    height = ROW_PIXELS * len(resources)
    tips = {"name": "what", "operation": "operation", "time": "time", "cycles": "cycles"}
    end = max(row["to"] for row in rows)
    chart = (
        alt.Chart(alt.NamedData("events"), height=height)
        .mark_bar(height=ROW_PIXELS - 6)
        .encode(
            x=alt.X(
                "from:Q", title="microseconds", scale=alt.Scale(domain=[0, end], nice=False), axis=alt.Axis(grid=False)
            ),
            x2="to:Q",
            y=alt.Y("resource:N", sort=resources, title=None, axis=alt.Axis(labelLimit=110, grid=True)),
            color=alt.Color("kind:N", scale=alt.Scale(domain=list(kinds), range=list(kinds.values()))),
            tooltip=[alt.Tooltip(f"{field}:N", title=title) for field, title in tips.items()],
        )
    )
    label = f"Step {step.step} of {step.phase} as a timeline of {', '.join(resources)}, {number(end, 4)} microseconds."
    return Chart(f"step-chart-{index}", label, specification(chart, events=rows), height + 60)


# ---- table ----


def _table(spent: SimulatedTime) -> Html:
    header = ["layer", "work", "unit", "calls", "cycles", "time", "share", "operations per byte"]
    rows = (
        [
            entry.layer or (_EXCHANGE if entry.kind in (QUANTISE, CLIP, SEND, RECEIVE) else _BATCHES),
            _WORDS.get(entry.kind, entry.kind),
            entry.unit,
            integer(entry.calls),
            integer(entry.cycles) if entry.cycles else NO_NUMBER,
            duration(entry.seconds),
            percent(spent.share([entry])),
            number(_intensity(entry), 3) if entry.bytes and entry.operations else NO_NUMBER,
        ]
        for entry in spent.entries
    )
    return table("Simulated time of the whole run", header, rows, numeric_from=3)
