"""A study's tables as Markdown, for documentation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import stdev

from emu.report.study.comparison import Row
from emu.report.words import NO_NUMBER, area, duration, energy, markdown_row

DEVICE, ACCURACY, DIFFERENCE, LOSS = "device", "accuracy", "difference to the baseline, paired (95%)", "test loss"
_ALWAYS = (DEVICE, "bits", ACCURACY, "spread (s.d.)", "worst .. best", DIFFERENCE, LOSS, "overflow", "underflow")
_LAST = "what went wrong first"
#: Columns of systems, if a run uses them: name -> metric of a run, of which the mean over seeds is shown.
_COUNTED = {"redos": "redos", "repeats": "repeats", "skipped updates": "skips"}
_SIMULATED, _JOULES, _AREA = "simulated time", "energy of a step", "area"


def header(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the columns of a table of these rows: those of systems and costs only where a run has them."""
    # A count that is 0 in all rows has no column: the system was not used, or never needed it.
    counted = [name for name, metric in _COUNTED.items() if any(row.counts.get(metric) for row in rows)]
    simulated = [_SIMULATED] if any(row.simulated_seconds is not None for row in rows) else []
    costs = [_JOULES] if any(row.joules is not None for row in rows) else []
    costs += [_AREA] if any(row.area_mm2 is not None for row in rows) else []
    return (*_ALWAYS, *counted, *simulated, *costs, _LAST)


def cells(row: Row, broken: str) -> dict[str, str]:
    """Return column -> text of a row's cell; a column without a text has nothing to show.

    Args:
        row: a device over all seeds.
        broken: what went wrong first in its runs.
    """
    values, reasons = list(row.accuracies.values()), "; ".join(dict.fromkeys(row.failures.values()))
    texts = {DEVICE: row.called, "bits": str(row.bits)}
    if not values:
        return texts | {ACCURACY: f"failed: {reasons}" if reasons else "not run"}
    done = f"{len(values)} of {row.seeds} runs" + (f"; {reasons}" if reasons else "")
    missing = f" ({done})" if len(values) < row.seeds else ""
    texts |= {
        ACCURACY: f"{100 * sum(values) / len(values):.2f} %{missing}",
        "worst .. best": f"{100 * min(values):.2f} .. {100 * max(values):.2f}",
        LOSS: f"{row.loss:.4g}" if math.isfinite(row.loss) else "not a number",
        "overflow": f"{row.overflow:.1e}",
        "underflow": f"{row.underflow:.1e}",
        _LAST: broken,
    }
    if len(values) > 1:
        texts["spread (s.d.)"] = f"{100 * stdev(values):.2f}"
    if row.difference is not None:
        texts[DIFFERENCE] = "no statement: the baseline guesses" if row.baseline_guesses else str(row.difference)
    if row.simulated_seconds is not None:
        texts[_SIMULATED] = duration(row.simulated_seconds)
    if row.joules is not None:
        texts[_JOULES] = energy(row.joules)
    if row.area_mm2 is not None:
        texts[_AREA] = area(row.area_mm2)
    # Texts of columns that the header lacks are not read.
    return texts | {name: f"{row.counts.get(metric, 0):.0f}" for name, metric in _COUNTED.items()}


def tables(groups: Sequence[tuple[str, Sequence[tuple[Row, str]]]]) -> str:
    """Return a table per title, from its rows, each with what went wrong first.

    The difference is bold in rows that fail, as `Row.fails` says.
    """
    parts: list[str] = []
    for title, rows in groups:
        names = header([row for row, _ in rows])
        lines = [f"### {title}", "", markdown_row(names), markdown_row(["---"] * len(names))]
        for row, broken in rows:
            texts = cells(row, broken)
            if row.fails:
                texts[DIFFERENCE] = f"**{texts.get(DIFFERENCE, NO_NUMBER)}**"
            lines.append(markdown_row([texts.get(name, NO_NUMBER) for name in names]))
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"
