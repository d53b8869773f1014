"""The matrix of formats, overflow rules and rounding modes, condensed to one figure per cell."""

from __future__ import annotations

from benchmarks.measuring.result import Result
from benchmarks.measuring.row import Row

#: Behind a figure that does not reach its bar.
BELOW = " ↓"
#: A row's name is matrix/format/mode/rule.
_FORMAT, _MODE, _RULE = 1, 2, 3


def matrix_cells(found: list[tuple[Row, Result]]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...], str]:
    """Return columns, rows and a closing sentence.

    Args:
        found: rows of the matrix with results of one number of threads.
    """
    parts = {row.name: row.name.split("/") for row, _ in found}
    modes = list(dict.fromkeys(part[_MODE] for part in parts.values()))
    lines = list(dict.fromkeys((part[_FORMAT], part[_RULE]) for part in parts.values()))
    cells = {
        (parts[row.name][_FORMAT], parts[row.name][_RULE], parts[row.name][_MODE]): _cell(row, r) for row, r in found
    }
    table = tuple((*line, *(cells.get((*line, mode), "") for mode in modes)) for line in lines)
    reached = sum(not cell.endswith(BELOW) and cell != "failed" for cell in cells.values())
    bar = next((row.bar for row, _ in found if row.bar), None)
    note = f"{reached} of {len(cells)} reach the bar of {bar:g}; those that do not are marked ↓." if bar else ""
    return ("format", "rule", *modes), table, note


def _cell(row: Row, result: Result) -> str:
    if result.ratio is None:
        return "failed"
    text = f"{result.ratio.median:.2f}"
    return text if row.bar is None or result.ratio.median >= row.bar else text + BELOW
