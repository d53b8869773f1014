"""Leading-bit heatmap: the magnitudes of each tensor's results, step by step, against the range of its format.

One chart serves all tensors: the page's script gives it the panel of the chosen layer and role.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from emu.formats.numerals import power_of_two
from emu.report.chart import Chart, share_legend
from emu.report.evidence import Evidence
from emu.report.histories import SCALAR_KINDS, LeadingBits
from emu.report.html import Html, disclosure, element, join, paragraph, table
from emu.report.page import Section, figure
from emu.report.pictures.leading_bits_chart import HEIGHT, LINE_COLOURS, heatmap
from emu.report.pictures.leading_bits_panel import panel
from emu.report.range_of_format import range_of
from emu.report.run_data import Tensor
from emu.report.words import NO_NUMBER, integer, percent

#: Most columns of a heatmap, as many as a screen shows; and most cells of all heatmaps, so that the page stays small.
MOST_COLUMNS, MOST_CELLS = 120, 150_000
_READING = (
    "Every column is an interval of training, every row a power of two; a cell's colour is the share of the "
    "interval's results whose leading bit lies there, that is, whose magnitude lies between the two powers of two at "
    "its edges. Results are seen as the datapath computed them, before rounding. What lies above the upper line is "
    "too large for the format, what lies below the lower line is smaller than anything it can write; the tinted "
    "areas are out of its range. Where the sums of products are kept in an accumulator that ends before the format, "
    "or has coarser steps, its largest value and its step are lines as well: a sum loses what lies beyond them "
    "before it is rounded. Rows apart from the others hold exact zeros (in a fixed-point accumulator also the raw "
    "integer -1), infinities and NaN, and what the register could not place."
)


def section(evidence: Evidence) -> Section:
    """Return the heatmap with its two menus, and a table of all tensors."""
    title = "How large the numbers were"
    if not evidence.bits:
        return Section("leading-bits", title, paragraph(evidence.run.missing["registers.parquet"], class_="missing"))
    most = _columns_that_fit(evidence.bits)
    # All panels are in the page as data; its script draws the one that is chosen.
    panels = [panel(evidence, tensor, history.merged(most)) for tensor, history in evidence.bits.items()]
    chart = Chart(
        "bits-chart",
        "Leading-bit heatmap of the chosen tensor; the table below holds its numbers.",
        heatmap(max(int(history.steps[-1]) for history in evidence.bits.values())),
        HEIGHT,
    )
    numbers = element(
        "div", id="bits-table", class_="scroll", tabindex="0", role="region", aria_label="Leading bits, chosen tensor"
    )
    picture = figure(
        "Leading bits over time",
        _controls(evidence),
        element("p", id="bits-summary", class_="summary", aria_live="polite"),
        chart.placeholder(),
        _lines_legend(panels),
        share_legend("share of the results:"),
        element("dl", id="bits-facts"),
        disclosure("The chosen tensor as a table", numbers),
        reading=_READING,
    )
    body = join([picture, disclosure("All tensors as a table", _overview(evidence))])
    data = {"panels": panels, "first": list(_first_shown(evidence))}
    return Section("leading-bits", title, body, (chart,), {"leading-bits-data": data})


def _lines_legend(panels: list[dict[str, Any]]) -> Html:
    """Return the legend of the lines; the page's script hides the accumulator where the picture has none of it."""
    present = {line["of"] for panel in panels for line in panel["lines"]}
    names = {"format": "largest and smallest of the format", "accumulator": "largest and step of its accumulator"}
    items = [
        element("li", element("span", "", class_="rule", style=f"border-color:{LINE_COLOURS[of]}"), name, data_of=of)
        for of, name in names.items()
        if of in present
    ]
    return element("ul", *items, id="bits-lines", class_="legend") if "accumulator" in present else Html("")


def _columns_that_fit(bits: dict[Tensor, LeadingBits]) -> int:
    # A heatmap has a cell for each of its rows and columns: fewer columns keep the page small.
    rows = sum(history.counts.shape[1] + len(SCALAR_KINDS) for history in bits.values())
    return max(10, min(MOST_COLUMNS, MOST_CELLS // max(rows, 1)))


def _first_shown(evidence: Evidence) -> Tensor:
    """Return the worst tensor, else the first activation of a layer with weights, else the first tensor."""
    for finding in evidence.findings:
        if finding.tensor in evidence.bits:
            return finding.tensor
    trained = {layer for layer, role in evidence.bits if role == "weight"}
    forward = [tensor for tensor in evidence.bits if tensor[1] == "activation" and tensor[0] in trained]
    return next(iter(forward or evidence.bits))


def _controls(evidence: Evidence) -> Html:
    layers = list(dict.fromkeys(layer for layer, _ in evidence.bits))
    roles = list(dict.fromkeys(role for _, role in evidence.bits))
    boxes = (_select("Layer", layers), _select("Role", roles))
    return element("div", *boxes, class_="controls")


def _select(name: str, values: list[str]) -> Html:
    options = (element("option", value) for value in values)
    return element("label", element("span", name), element("select", *options, id=f"bits-{name.lower()}"))


def _overview(evidence: Evidence) -> Html:
    header = ["tensor", "format", "results", "largest", "half lie above", "exactly zero", "beyond range", "below range"]
    rows = (_overview_row(evidence, tensor, history) for tensor, history in evidence.bits.items())
    return table("Leading bits of every tensor over the whole run", header, rows, numeric_from=2)


def _overview_row(evidence: Evidence, tensor: Tensor, history: LeadingBits) -> list[str]:
    datapath = evidence.run.formats.get(tensor)
    covered = range_of(datapath.format if datapath else None)
    total = int(history.scalars["total"].sum())
    seen = history.exponents()
    # Without a range nothing lies outside it; of a register that covers less than the range, the share is not known.
    outside = (history.beyond(covered.top), history.below(covered.bottom)) if covered else (None, None)
    counts = (int(history.scalars["none"].sum()), *outside)
    return [
        f"{tensor[0]} {tensor[1]}",
        datapath.format if datapath else NO_NUMBER,
        integer(total),
        f"under {power_of_two(seen[1] + 1)}" if seen else NO_NUMBER,
        _median(history),
        *(NO_NUMBER if count is None else percent(count / max(total, 1)) for count in counts),
    ]


def _median(history: LeadingBits) -> str:
    """Return the largest power of two that at least half of the nonzero results reach."""
    whole = history.counts.sum(axis=0)
    if not whole.any():
        return NO_NUMBER
    # Element c counts the results of column c and all larger ones.
    from_above = np.cumsum(whole[::-1])[::-1]
    return power_of_two(history.lowest + int(np.flatnonzero(2 * from_above >= whole.sum())[-1]))
