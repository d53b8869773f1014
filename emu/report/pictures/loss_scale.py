"""The scale of the loss over time, and the reason for it: errors and gradients that a narrow format loses.

The histogram shows float32's errors and gradients, measured with the run's own weights. The colours show what the run's
format does to them, unscaled and multiplied by S.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from emu.formats import Float
from emu.formats.numerals import number
from emu.report.chart import (
    SERIES_COLOURS,
    SERIES_SHAPES,
    Chart,
    Spec,
    series_legend,
    specification,
    step_axis,
    swatch_legend,
    whole_ticks,
)
from emu.report.evidence import Evidence
from emu.report.html import Html, disclosure, element, join, paragraph, table
from emu.report.page import Section, figure
from emu.report.run_data import Columns, RunData
from emu.report.words import integer, parse_or_none, percent, sentence_case

ROLES = ("error", "gradient")
#: Events after which S has the value of their row.
_MOVES = ("start", "repeat", "growth", "change")
#: Events with a mark of their own, and the index of its colour and shape.
_MARKS = {"overflow": 1, "repeat": 5, "skip": 3, "growth": 2}
#: What a format does to a number, from the smallest numbers up, and the colour of it.
_FATES = {
    "lost": "var(--series-1)",
    "subnormal": "var(--series-4)",
    "kept": "var(--series-0)",
    "too large": "var(--series-3)",
}
#: What the two histograms of a role show.
_NAMES = ("as they are", "multiplied by S")
#: Labels of an axis of exponents.
_POWER = "'2^' + datum.value"
_HEIGHT, _HISTOGRAM_HEIGHT = 260, 210
#: Most marks of one kind. The first ones are drawn, because S changes most at the beginning.
MOST_MARKS = 2000
_SCALE_READING = (
    "The line is S, by which the loss is multiplied before it goes back, as a power of two. An overflow means that "
    "some error or gradient was not a finite number: the iteration was repeated with a smaller S, or its update "
    "skipped. Few marks behind the first steps are as it should be; many mean that S is too large or grows too soon."
)
_HISTOGRAM_READING = (
    "Each bar is the share of float32's {role}s with that leading bit, all layers together. What is lost is written as "
    "0, what is subnormal keeps some of its bits. Above: as they are. Below: multiplied by S, as the run computed them."
)


@dataclass(frozen=True)
class Fates:
    """A histogram of numbers, and a format that loses or keeps them.

    Attributes:
        counts: exponent of the leading bit -> count.
        zeros: count of numbers that were 0 before.
        fmt: the format.
    """

    counts: dict[int, int]
    zeros: int
    fmt: Float

    def fate(self, exponent: int) -> str:
        """Return what the format does to numbers with this exponent."""
        # Exponents are those of the leading bit. Numbers of `smallest - 1` are at least half of the smallest value:
        # rounding to nearest makes that value of them, except of exactly half.
        smallest = math.frexp(self.fmt.smallest_positive)[1] - 1
        if exponent < smallest - 1:  # less than half of the smallest positive value: rounds to 0
            return "lost"
        # Without subnormals they become 0, but for those that round up to the smallest normal number.
        if exponent < self.fmt.emin and (self.fmt.ftz or self.fmt.hidden_one):
            return "lost"
        if exponent < self.fmt.emin:
            return "subnormal"
        return "kept" if exponent <= self.fmt.emax else "too large"

    def shares(self) -> dict[str, float]:
        """Return the share of each fate among all numbers, zeros included."""
        total = max(self.zeros + sum(self.counts.values()), 1)
        met: Counter[str] = Counter()
        for exponent, count in self.counts.items():
            met[self.fate(exponent)] += count
        return {"zero": self.zeros / total, **{fate: met[fate] / total for fate in _FATES}}


def section(evidence: Evidence) -> Section | None:
    """Return S over time and the histograms; None for a run without S whose errors have the range of float32."""
    run = evidence.run
    events, drawn = run.loss_scaling, _histograms(run)
    if events is None and not drawn:
        return None
    charts: list[Chart] = []
    parts: list[Html] = [paragraph(_sentence(run, events), class_="summary")]
    if events is not None:
        steps = max(evidence.outcome.steps, int(events["step"].max()))
        chart = Chart("loss-scale-chart", f"The loss scale over {steps} steps.", _scale_spec(events, steps), _HEIGHT)
        charts.append(chart)
        parts.append(figure("The loss scale S", _marks_legend(events), chart.placeholder(), reading=_SCALE_READING))
    rows: list[list[str]] = []
    for role, both in drawn.items():
        pictures: list[Html] = []
        for i, (name, fates) in enumerate(zip(_NAMES, both, strict=True)):
            label = f"Exponents of float32's {role}s, {name}, and what {fates.fmt} keeps of them."
            charts.append(Chart(f"{role}-exponents-{i}", label, _histogram_spec(fates, both), _HISTOGRAM_HEIGHT))
            pictures += [element("h4", sentence_case(name)), charts[-1].placeholder()]
            rows.append([f"{role}s, {name}", *(percent(share) for share in fates.shares().values())])
        title, reading = f"{role.capitalize()}s against {both[0].fmt}", _HISTOGRAM_READING.format(role=role)
        parts.append(figure(title, _fates_legend(), *pictures, reading=reading))
    if rows:
        header = ["float32's", "zero", *_FATES]
        parts.append(disclosure("The shares as a table", table("What becomes of errors and gradients", header, rows)))
    return Section("loss-scale", "Loss scale", join(parts), tuple(charts))


def _sentence(run: RunData, events: Columns | None) -> str:
    if events is None:
        return "The loss was not scaled: what is too small for the format of errors and gradients is lost."
    happened = Counter(str(event) for event in events["event"])
    # Rows of other events, such as an overflow, have the scale at which it happened.
    scales = [float(s) for s, event in zip(events["scale"], events["event"], strict=True) if str(event) in _MOVES]
    policy = run.section("recipe").get("loss_scaling", {}).get("policy", "unknown")
    named = {"overflow": "overflow", "repeat": "repeat", "skip": "skipped update"}
    counts = ", ".join(_counted(happened[name], word) for name, word in named.items())
    bounds = f"S went from {_power(scales[0])} to {_power(scales[-1])}"
    return f"Policy {policy}: {bounds}; {counts}, S grew {_counted(happened['growth'], 'time')}."


def _counted(count: int, word: str) -> str:
    return f"{integer(count)} {word}{'s' * (count != 1)}"


def _power(scale: float) -> str:
    exponent = math.log2(scale)
    return f"2^{exponent:.0f}" if exponent == int(exponent) else number(scale, 4)


def _scale_spec(events: Columns, steps: int) -> Spec:
    import altair as alt

    rows = [
        {"step": int(step), "exponent": math.log2(float(scale)), "event": str(event)}
        for step, event, scale in zip(events["step"], events["event"], events["scale"], strict=True)
    ]
    line = [row for row in rows if row["event"] in _MOVES]
    # A line of steps ends at its last point: this one carries S to the end.
    line.append({**line[-1], "step": steps})
    marks = [row for name in _MARKS for row in [r for r in rows if r["event"] == name][:MOST_MARKS]]
    x = step_axis(steps)
    # Of all events, so that no mark lies outside.
    seen = [math.log2(float(scale)) for scale in events["scale"]]
    ends = [math.floor(min(seen)) - 1, math.ceil(max(seen)) + 1]
    powers = alt.Axis(labelExpr=_POWER, values=whole_ticks(*ends))
    y = alt.Y("exponent:Q", title="S", scale=alt.Scale(domain=ends, nice=False), axis=powers)
    drawn = (
        alt.Chart(alt.NamedData("line"), height=_HEIGHT - 60)
        .mark_line(interpolate="step-after", strokeWidth=2, color=SERIES_COLOURS[0])
        .encode(x=x, y=y)
    )
    names = list(_MARKS)
    colours, shapes = ([kinds[_MARKS[name]] for name in names] for kinds in (SERIES_COLOURS, SERIES_SHAPES))
    points = (
        alt.Chart(alt.NamedData("marks"))
        .mark_point(size=60, filled=True)
        .encode(
            x=x,
            y=y,
            color=alt.Color("event:N", scale=alt.Scale(domain=names, range=colours)),
            shape=alt.Shape("event:N", scale=alt.Scale(domain=names, range=shapes)),
            tooltip=[alt.Tooltip("event:N"), alt.Tooltip("step:Q"), alt.Tooltip("exponent:Q", title="log2 S")],
        )
    )
    both: Any = alt.layer(drawn, points)
    return specification(both, line=line, marks=marks)


def _marks_legend(events: Columns) -> Html:
    present = [name for name in _MARKS if name in {str(event) for event in events["event"]}]
    return series_legend(present, [_MARKS[name] for name in present])


def _fates_legend() -> Html:
    words = {"lost": "lost: becomes 0", "subnormal": "subnormal: loses bits"}
    return swatch_legend({words.get(name, name): colour for name, colour in _FATES.items()})


def _histograms(run: RunData) -> dict[str, tuple[Fates, Fates]]:
    """Return role -> fates of its numbers, unscaled and multiplied by S; for formats with less range than float32."""
    columns = run.exponents
    fates: dict[str, tuple[Fates, Fates]] = {}
    if columns is None:
        return fates
    for role in ROLES:
        # Layers may have formats of their own: the most frequent one stands for the role.
        written = Counter(datapath.format for (_, r), datapath in run.formats.items() if r == role)
        fmt = parse_or_none(written.most_common(1)[0][0]) if written else None
        if not isinstance(fmt, Float) or fmt.emin <= -126:  # emin of float32
            continue
        at = columns["role"].astype(str) == role
        exponents, counts = columns["exponent"][at].astype(np.float64), columns["count"][at].astype(np.int64)
        # A power of two moves every exponent alike. Of another S the part below a power of two is left out: it would
        # move some leading bits by one more.
        shifts = np.floor(np.log2(columns["scale"][at].astype(np.float64))).astype(np.int64)
        plain: Counter[int] = Counter()
        scaled: Counter[int] = Counter()
        zeros = int(counts[np.isnan(exponents)].sum())
        for exponent, count, shift in zip(exponents, counts, shifts, strict=True):
            if not math.isnan(exponent):
                plain[int(exponent)] += int(count)
                scaled[int(exponent) + int(shift)] += int(count)
        fates[role] = (Fates(dict(plain), zeros, fmt), Fates(dict(scaled), zeros, fmt))
    return fates


def _histogram_spec(fates: Fates, drawn: tuple[Fates, ...]) -> Spec:
    """Return the bars of a histogram; its axis covers all histograms of `drawn`."""
    import altair as alt

    total = max(sum(fates.counts.values()), 1)
    rows = [
        {
            "from": exponent,
            "to": exponent + 1,
            "share": float(f"{count / total:.4g}"),
            "fate": fates.fate(exponent),
        }
        for exponent, count in sorted(fates.counts.items())
    ]
    seen = [exponent for histogram in drawn for exponent in histogram.counts] or [fates.fmt.emin]
    # Both histograms of a role have the same axis, so that the eye can compare them.
    domain = [min(seen), max(*seen, fates.fmt.emin) + 1]
    chart = (
        alt.Chart(alt.NamedData("rows"), height=_HISTOGRAM_HEIGHT - 60)
        .mark_rect(stroke="var(--card)", strokeWidth=1, clip=True)
        .encode(
            x=alt.X(
                "from:Q",
                title="leading bit",
                scale=alt.Scale(domain=domain, nice=False),
                axis=alt.Axis(grid=False, labelExpr=_POWER, values=whole_ticks(*domain)),
            ),
            x2="to:Q",
            y=alt.Y("share:Q", title=None, axis=alt.Axis(format="%", tickCount=4), scale=alt.Scale(zero=True)),
            y2=alt.Y2(datum=0),
            color=alt.Color("fate:N", scale=alt.Scale(domain=list(_FATES), range=list(_FATES.values()))),
            tooltip=[
                alt.Tooltip("from:Q", title="2 to the"),
                alt.Tooltip("share:Q", format=".2%"),
                alt.Tooltip("fate:N"),
            ],
        )
    )
    return specification(chart, rows=rows)
