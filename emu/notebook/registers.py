"""Registers: a histogram of leading bits, for Altair and as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.datapath import StatisticsRegister
from emu.formats import DynamicFixed, Format, parse_number
from emu.notebook.parts import chart
from emu.report.chart import coloured, specification
from emu.report.html import Html
from emu.report.pictures.leading_bits_bars import WIDTH, bars

if TYPE_CHECKING:
    import altair as alt


def plot_register(register: StatisticsRegister, fmt: str | Format | DynamicFixed | None = None) -> alt.LayerChart:
    """Return the histogram of a register as a chart of Altair; see `emu.StatisticsRegister.plot`."""
    import altair as alt

    drawn = bars(register, None if fmt is None else parse_number(fmt))
    # rows stay in the chart, so that the user can combine charts
    with alt.data_transformers.enable(consolidate_datasets=False):
        spec = coloured(drawn.to_dict())
    # The user's own theme and version of Altair apply, not the configuration of a report's page.
    whole = {key: part for key, part in spec.items() if key not in ("$schema", "config")}
    return alt.LayerChart.from_dict(whole)


def histogram(register: StatisticsRegister, fmt: Format | None = None) -> Html:
    """Return the histogram of a register as a picture."""
    spec = specification(bars(register, fmt))
    title = spec["title"]
    return chart(spec, " ".join([f"{title['text']}.", *title["subtitle"]]), WIDTH)
