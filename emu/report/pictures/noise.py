"""Signal-to-noise of each tensor against float32 with the same weights."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from emu.report.chart import SERIES_COLOURS, SERIES_DASHES, SERIES_SHAPES, Chart, Spec, series_legend, specification
from emu.report.diagnosis import NOISY_DB
from emu.report.evidence import Evidence
from emu.report.html import Html, disclosure, join, paragraph, table
from emu.report.page import Section, figure
from emu.report.words import decibels, integer, role_order

#: Drop from one layer to the next, in dB, that is worth a sentence: the amplitude of the noise grows 3.2 times.
DROP_DB = 10.0
_HEIGHT = 330
#: Part of the height that the slanted names of layers take.
_NAMES_HEIGHT = 80
#: Roles of the two passes that are compared; the place of each is that of its colour and shape.
_MEASURED = ("weight", "bias", "activation", "loss", "error", "gradient", "slope")
_READING = (
    "Each layer computes once on this device and once in float32, with the same weights and the same batch; the ratio "
    "compares the power of the float32 values with the power of the difference. 20 dB: the error is a tenth of the "
    "values; 40 dB: a hundredth; 6 dB are one bit. Read activations from left to right, as the network computes, and "
    "errors from right to left: a sudden drop names the layer whose arithmetic adds the noise. Tensors identical to "
    "float32 have no end to their ratio and no point here."
)


def section(evidence: Evidence) -> Section:
    """Return the ratio of each tensor as a chart and as a table, with sentences about it."""
    title = "Signal-to-noise"
    if not evidence.noise:
        return Section("noise", title, paragraph(evidence.run.missing["snr.parquet"], class_="missing"))
    intro = paragraph(*_sentences(evidence), class_="summary")
    rows = [
        {"layer": layer, "role": role, "db": round(noise.last, 2), "text": decibels(noise.last)}
        for (layer, role), noise in evidence.noise.items()
        if math.isfinite(noise.last)
    ]
    if not rows:
        return Section("noise", title, join([intro, _table(evidence)]))
    chart = Chart(
        "noise-chart", f"Signal-to-noise by layer and role. {' '.join(_sentences(evidence))}", _spec(rows), _HEIGHT
    )
    picture = figure(
        "Signal-to-noise along the network, at the end of training",
        series_legend(*_roles(rows)),
        chart.placeholder(),
        reading=_READING,
    )
    tables = [_matrix(evidence), disclosure("First, median and last measurement of every tensor", _table(evidence))]
    return Section("noise", title, join([intro, picture, *tables]), (chart,))


def _agreement(bits: float) -> str:
    whole = round(bits)
    return (
        f"about {whole} bit{'' if whole == 1 else 's'} of it agree{'s' if whole == 1 else ''} with float32"
        if whole
        else "nothing of it agrees with float32"
    )


def _sentences(evidence: Evidence) -> list[str]:
    last = {tensor: noise.last for tensor, noise in evidence.noise.items()}
    finite = {tensor: value for tensor, value in last.items() if math.isfinite(value)}
    identical = sum(1 for value in last.values() if value == math.inf)
    undefined = sum(1 for value in last.values() if math.isnan(value))
    sentences: list[str] = []
    if finite:
        (layer, role), worst = min(finite.items(), key=lambda item: item[1])
        bits = max(worst, 0.0) / (20 * math.log10(2))  # a bit halves the amplitude of the noise: 6.02 dB
        sentences.append(f"Noisiest is {role} of {layer}, {decibels(worst)}: {_agreement(bits)}. ")
        noisy = sum(1 for value in finite.values() if value < NOISY_DB)
        sentences.append(
            f"{noisy} of {len(last)} tensors lie{'s' * (noisy == 1)} below {NOISY_DB:.0f} dB. "
            if noisy
            else f"No tensor lies below {NOISY_DB:.0f} dB. "
        )
    sentences += _drops(evidence)
    if identical:
        verb = "is" if identical == 1 else "are"
        sentences.append(f"{identical} of {len(last)} tensors {verb} identical to float32. ")
    if undefined:
        have, their = ("has", "its") if undefined == 1 else ("have", "their")
        sentences.append(
            f"{undefined} {have} no ratio: {their} float32 values are all zero, or some value is not finite."
        )
    return sentences


def _drops(evidence: Evidence) -> Iterator[str]:
    """Yield a sentence for the largest drop along the network: activations forward, errors backward."""
    for role, direction in (("activation", 1), ("error", -1)):
        ratios = [(layer, noise.last) for (layer, drawn), noise in evidence.noise.items() if drawn == role]
        # Layers without a finite ratio are skipped: a drop is between neighbours that have one.
        along = [(layer, ratio) for layer, ratio in ratios if math.isfinite(ratio)][::direction]
        for before, after in sorted(pairwise(along), key=lambda pair: pair[1][1] - pair[0][1])[:1]:
            if before[1] - after[1] >= DROP_DB:
                fall = f"{decibels(before[1])} at {before[0]}, {decibels(after[1])} there"
                yield f"The largest drop of {role} is at {after[0]}: {fall}. "


def _roles(rows: list[dict[str, Any]]) -> tuple[list[str], list[int]]:
    """Return the roles that are drawn, in reading order, and the index of each among the line styles."""
    roles = sorted({row["role"] for row in rows}, key=role_order)
    # Only a run of another version of emu measured other roles: they share the next style.
    return roles, [_MEASURED.index(role) if role in _MEASURED else len(_MEASURED) for role in roles]


def _spec(rows: list[dict[str, Any]]) -> Spec:
    import altair as alt

    layers = list(dict.fromkeys(row["layer"] for row in rows))
    roles, series = _roles(rows)
    base = alt.Chart(alt.NamedData("rows"), height=_HEIGHT - _NAMES_HEIGHT).encode(
        x=alt.X(
            "layer:N",
            sort=layers,
            title=None,
            scale=alt.Scale(padding=0.5),
            axis=alt.Axis(labelAngle=-40, labelLimit=90),
        ),
        y=alt.Y(
            "db:Q",
            title="dB",
            # the axis begins at 0 dB if a tensor comes near the limit; else 0 would make differences too small to see
            scale=alt.Scale(zero=min(row["db"] for row in rows) < 2 * NOISY_DB),
            axis=alt.Axis(tickCount=6),
        ),
        color=alt.Color("role:N", scale=alt.Scale(domain=roles, range=[SERIES_COLOURS[i] for i in series])),
    )
    dashes = [list(SERIES_DASHES[i]) for i in series]
    lines = base.mark_line(strokeWidth=1.5, opacity=0.7).encode(
        detail="role:N", strokeDash=alt.StrokeDash("role:N", scale=alt.Scale(domain=roles, range=dashes))
    )
    points = base.mark_point(size=70, filled=True, opacity=1).encode(
        shape=alt.Shape("role:N", scale=alt.Scale(domain=roles, range=[SERIES_SHAPES[i] for i in series])),
        tooltip=[alt.Tooltip("layer:N"), alt.Tooltip("role:N"), alt.Tooltip("text:N", title="signal-to-noise")],
    )
    return specification(alt.layer(lines, points), rows=rows)


def _matrix(evidence: Evidence) -> Html:
    layers = list(dict.fromkeys(layer for layer, _ in evidence.noise))
    roles, _ = _roles([{"role": role} for _, role in evidence.noise])
    rows = ([layer, *(_cell(evidence, layer, role) for role in roles)] for layer in layers)
    return table("Signal-to-noise in dB by layer and role, at the end of training", ["layer", *roles], rows)


def _cell(evidence: Evidence, layer: str, role: str) -> str:
    noise = evidence.noise.get((layer, role))
    return decibels(noise.last).removesuffix(" dB") if noise else ""


def _table(evidence: Evidence) -> Html:
    header = ["tensor", "first", "median", "last", "measured at"]
    rows = (
        [
            f"{layer} {role}",
            decibels(float(noise.decibels[0])),
            decibels(noise.median),
            decibels(noise.last),
            f"{integer(len(noise.steps))} steps",
        ]
        for (layer, role), noise in evidence.noise.items()
    )
    return table("Signal-to-noise in dB against float32 with the same weights", header, rows)
