"""`python -m benchmarks.measured [--page | --fit]`: measured times beside simulated ones.

--page writes docs/measured-times.md; --fit prints the numbers of device files that fit the rows that are not shown.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.measured import moving, products

PAGE = Path(__file__).resolve().parents[2] / "docs" / "measured-times.md"
#: The tables follow this line of the page; what is before it is written by hand.
MARK = "<!-- tables -->"


def errors(simulated: Sequence[float], measured: Sequence[float]) -> tuple[float, float]:
    """Return the root mean square and the largest of relative errors."""
    error = np.array(simulated) / np.array(measured) - 1
    return float(np.sqrt(np.mean(error**2))), float(np.abs(error).max())


def summary(what: str, simulated: Sequence[float], measured: Sequence[float]) -> str:
    """Return a row of the table of errors."""
    rms, worst = errors(simulated, measured)
    return f"| {what} | {len(measured)} | {rms:.1%} | {worst:.1%} |"


def microseconds(seconds: float) -> str:
    """Return a time in microseconds, with four digits."""
    return f"{seconds * 1e6:.4g}" if seconds < 1e-2 else f"{seconds * 1e6:.0f}"


def summaries() -> Iterator[str]:
    """Yield the errors of every set of rows that nothing was fitted to."""
    yield "| what was measured | sizes | rms error | worst |"
    yield "|---|---|---|---|"
    for key, unit in products.UNITS.items():
        of = [row for row in products.rows() if row.unit == key and not row.is_fitted]
        times = list(products.simulated(of))
        yield summary(f"products, {key.split()[0].upper()}, {unit.operand}", times, [row.seconds for row in of])
    for card in moving.CARDS:
        for what, is_chosen in (("element by element", False), ("softmax and layernorm", True)):
            chosen = [k for k in moving.kernels() if k.card == card and (k.operation in moving.SEVERAL) == is_chosen]
            times = [moving.simulated_kernel(kernel) for kernel in chosen]
            yield summary(f"{what}, {card.upper()}, float32", times, [kernel.seconds for kernel in chosen])
    for card in moving.SERVERS:
        for what, least in (("1 MiB and more", 2**20), ("64 MiB and more", 2**26)):
            of_card = [r for r in moving.reduces() if r.card == card and r.bytes >= least]
            times = [moving.simulated_reduce(reduce) for reduce in of_card]
            yield summary(f"all-reduce, {card.upper()}, {what}", times, [reduce.seconds for reduce in of_card])


def compared(about: Sequence[object], measured: float, simulated: float) -> str:
    """Return a row of a table: what was measured, both times in microseconds, the error."""
    times = (microseconds(measured), microseconds(simulated), f"{simulated / measured - 1:+.1%}")
    return "| " + " | ".join(map(str, (*about, *times))) + " |"


def heading(*columns: str) -> str:
    """Return the head of such a table."""
    names = (*columns, "measured, us", "simulated, us", "error")
    return "| " + " | ".join(names) + " |\n" + "|---" * len(names) + "|"


def every_row() -> Iterator[str]:
    """Yield a table of each set: measured, simulated, error."""
    for key, unit in products.UNITS.items():
        of = sorted((r for r in products.rows() if r.unit == key and not r.is_fitted), key=lambda row: row.seconds)
        yield f"\n## Products on {key.split()[0].upper()}, {unit.operand}\n"
        yield heading("rows", "columns", "depth")
        for row, time in zip(of, products.simulated(of), strict=True):
            yield compared((row.rows, row.columns, row.depth), row.seconds, time)
    yield "\n## Kernels that move bytes, float32\n"
    yield heading("card", "operation", "rows", "columns")
    for kernel in moving.kernels():
        yield compared(kernel[:4], kernel.seconds, moving.simulated_kernel(kernel))
    yield "\n## All-reduces\n"
    yield heading("card", "GPUs", "bytes")
    for reduce in moving.reduces():
        yield compared(reduce[:3], reduce.seconds, moving.simulated_reduce(reduce))


def page() -> str:
    """Return docs/measured-times.md with the tables of now."""
    text = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    return "\n".join((text + MARK, "", *summaries(), *every_row(), ""))


def main() -> None:
    """Print the tables, or fitted numbers."""
    if "--fit" in sys.argv:
        for key in products.UNITS:
            fit, error = products.fitted(key, rounds=800)
            print(key, f"logarithmic error {error:.3f}", fit)
        return
    if "--page" in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
        return
    print("\n".join((*summaries(), *every_row())))


if __name__ == "__main__":
    main()
