"""Scales of what products read: how large they are over time, which blocks clip or vanish, what they cost in bits."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from emu.datapath import ScaleCounts
from emu.errors import EmuError
from emu.hardware import PrecisionTable
from emu.hardware.operand_tables import FACTORS, PRODUCT_OF
from emu.report.chart import (
    SERIES_COLOURS,
    SERIES_DASHES,
    SERIES_SHAPES,
    Chart,
    Spec,
    series_legend,
    specification,
    step_axis,
)
from emu.report.evidence import Evidence
from emu.report.html import Html, disclosure, join, paragraph, table
from emu.report.page import Section, figure
from emu.report.run_data import Columns
from emu.report.words import NO_NUMBER, integer, percent

_HEIGHT = 260
#: Share of elements that clip, or that vanish, above which a sentence names the operand.
WORTH_A_SENTENCE = 0.01
_READING = (
    "Each point is the exponent that half of the finest scales do not exceed, in the interval before that step, all "
    "layers together. A line that goes down follows numbers that become smaller, as errors do while a network learns; "
    "a format without scales would lose them. Each product of a layer casts its two operands by itself: six lines, if "
    "all three do."
)


@dataclass
class Operand:
    """The blocks of one operand of one product.

    Attributes:
        total: counts over the run.
        over_time: step -> counts of the interval that ends there.
    """

    total: ScaleCounts = field(default_factory=ScaleCounts)
    over_time: dict[int, ScaleCounts] = field(default_factory=lambda: defaultdict(ScaleCounts))


def section(evidence: Evidence) -> Section | None:
    """Return the scales of cast operands; None if the run cast none."""
    counted = evidence.run.scales
    if counted is None:
        return None
    operands = _operands(counted)
    intro = paragraph(*_sentences(operands), class_="summary")
    products = _by_product(operands)
    rows = _medians(products)
    names = _names(rows)
    # No finite scale means no point to draw; the tables are shown all the same.
    if not rows:  # every block had a NaN
        return Section(
            "scales", "Scales", join([intro, _table("Operands of each layer", operands, _formats(evidence))])
        )
    chart = Chart("scales-chart", "Exponents of scales over the steps, by product and operand.", _spec(rows), _HEIGHT)
    legend = series_legend(names, range(len(names)))
    picture = figure("Scales over time", legend, chart.placeholder(), reading=_READING)
    whole = _table("Operands of products, all layers", products, _formats(evidence))
    each = disclosure("Operands of each layer", _table("Operands of each layer", operands, _formats(evidence)))
    return Section("scales", "Scales", join([intro, picture, whole, each]), (chart,))


def _operands(counted: Columns) -> dict[tuple[str, ...], Operand]:
    """Return the blocks of each operand, by product, factor and layer, in the order of the table."""
    operands: dict[tuple[str, ...], Operand] = defaultdict(Operand)
    columns = [counted[name].tolist() for name in ("step", "layer", "role", "factor", "kind", "exponent", "count")]
    for step, layer, role, factor, kind, exponent, count in zip(*columns, strict=True):
        operand = operands[PRODUCT_OF.get(role, str(role)), str(factor), str(layer)]
        # A row of kind "scale" counts blocks by the exponent of their scale; the other kinds are names of counts.
        counts = ScaleCounts(exponents={int(exponent): count}) if kind == "scale" else ScaleCounts(**{kind: count})
        operand.total.add(counts)
        operand.over_time[step].add(counts)
    return operands


def _by_product(operands: dict[tuple[str, ...], Operand]) -> dict[tuple[str, ...], Operand]:
    """Return the blocks of each product's operands, those of all layers together."""
    products: dict[tuple[str, ...], Operand] = {}
    for product, factors in FACTORS.items():
        for factor in factors:
            # Keys of `operands` are (product, factor, layer).
            alike = [operand for key, operand in operands.items() if key[:2] == (product, factor)]
            if not alike:
                continue
            # A new one: the operands of the layers must not change.
            joined = products[product, factor] = Operand()
            for operand in alike:
                joined.total.add(operand.total)
                for step, counts in operand.over_time.items():
                    joined.over_time[step].add(counts)
    return products


def _sentences(operands: dict[tuple[str, ...], Operand]) -> list[str]:
    sentences: list[str] = []
    for what, verb in (("clipped", "clipped"), ("vanished", "became 0")):
        shares = {key: getattr(o.total, what) / max(o.total.elements, 1) for key, o in operands.items()}
        (product, factor, layer), worst = max(shares.items(), key=lambda item: item[1])
        if worst >= WORTH_A_SENTENCE:
            sentences.append(
                f"Of the {factor}s that the {product} product of {layer} reads, {percent(worst)} {verb}: the most of "
                "all operands. "
            )
    lost = sum(operand.total.nan_scales for operand in operands.values())
    if lost:
        blocks = "1 block" if lost == 1 else f"{integer(lost)} blocks"
        sentences.append(f"{blocks} had a NaN or an infinity; the scale of such a block is NaN.")
    return sentences or [f"No operand lost more than {percent(WORTH_A_SENTENCE)} of its numbers to clipping, or to 0."]


def _medians(products: dict[tuple[str, ...], Operand]) -> list[dict[str, Any]]:
    """Return the median exponent of each operand's scales at each log point, and its range."""
    rows: list[dict[str, Any]] = []
    for (product, factor), operand in products.items():
        for step, counts in sorted(operand.over_time.items()):
            if counts.exponents:
                # Blocks of zeros have no exponent: an interval in which all were zero has no point.
                low, high = min(counts.exponents), max(counts.exponents)
                extent = f"2^{low} to 2^{high}"
                row = {"step": step, "exponent": median_exponent(counts.exponents), "extent": extent}
                rows.append({"operand": f"{product}: {factor}", **row})
    return rows


def median_exponent(exponents: dict[int, int]) -> int:
    """Return the exponent that half of the blocks do not exceed.

    Examples:
        >>> median_exponent({-3: 1, 0: 2, 4: 1})
        0
    """
    below, half = 0, sum(exponents.values()) / 2
    for exponent, count in sorted(exponents.items()):
        below += count
        if below >= half:
            return exponent
    raise AssertionError("no blocks")


def _spec(rows: list[dict[str, Any]]) -> Spec:
    import altair as alt

    names = _names(rows)
    series = range(len(names))
    base = alt.Chart(alt.NamedData("rows"), height=_HEIGHT).encode(
        x=step_axis(max(row["step"] for row in rows)),
        y=alt.Y("exponent:Q", title="median exponent", scale=alt.Scale(zero=False), axis=alt.Axis(tickMinStep=1)),
        color=alt.Color("operand:N", scale=alt.Scale(domain=names, range=[SERIES_COLOURS[i] for i in series])),
    )
    dashes = alt.Scale(domain=names, range=[list(SERIES_DASHES[i]) for i in series])
    shapes = alt.Scale(domain=names, range=[SERIES_SHAPES[i] for i in series])
    lines = base.mark_line(strokeWidth=2).encode(strokeDash=alt.StrokeDash("operand:N", scale=dashes))
    points = base.mark_point(size=45, filled=True, opacity=1).encode(
        shape=alt.Shape("operand:N", scale=shapes),
        tooltip=[
            alt.Tooltip("operand:N"),
            alt.Tooltip("step:Q"),
            alt.Tooltip("exponent:Q", title="median"),
            alt.Tooltip("extent:N", title="all scales"),
        ],
    )
    return specification(alt.layer(lines, points), rows=rows)


def _names(rows: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["operand"] for row in rows))


def _formats(evidence: Evidence) -> PrecisionTable | None:
    """Return the tables that say how operands were cast; None if `run.json` has none that can be read."""
    try:
        # The device of an older run may have tables that are no longer read; then the table has no formats.
        return PrecisionTable(**evidence.run.section("device").get("precision", {}))
    except (EmuError, ValueError, TypeError):
        return None


def _table(title: str, operands: dict[tuple[str, ...], Operand], precision: PrecisionTable | None) -> Html:
    header = ["product", "operand", "format", "bits", "clipped", "vanished", "clip their largest", "no fitting scale"]
    rows: list[list[str]] = []
    for key, operand in operands.items():
        # Keys of products have no layer, keys of operands have one.
        product, factor, *layer = key
        counts = operand.total
        elements, blocks = max(counts.elements, 1), max(counts.blocks, 1)
        rows.append(
            [
                " of ".join([product, *layer]),
                factor,
                *_format_of(precision, product, factor, *layer),
                percent(counts.clipped / elements),
                percent(counts.vanished / elements),
                percent(counts.clipped_largest / blocks),
                percent(counts.at_limit / blocks),
            ]
        )
    return table(title, header, rows)


def _format_of(precision: PrecisionTable | None, product: str, factor: str, layer: str = "") -> tuple[str, str]:
    """Return a format's text, and its bits for an element and its share of scales."""
    casts = None if precision is None else precision.casts(layer, product)
    if casts is None:
        return NO_NUMBER, NO_NUMBER
    # Casts of a product are in the order of its factors.
    fmt = casts[FACTORS[product].index(factor)].format
    return str(fmt), f"{fmt.bits_per_element:g}"
