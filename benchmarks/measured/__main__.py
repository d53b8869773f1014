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
INTRODUCTION = """# Measured times, and simulated ones

How far can a simulated time be believed? These are times that others measured and published, and those that `emu` simulates for the same
work on the same card. Half of the measured products of a card, or a quarter, were used to fit the numbers of its device file: the share of
the peak that a tile reaches, the cycles that fill a wave, the start of a kernel. **None of the rows on this page was used.** The kernels and
the all-reduces were used for nothing: the shares of bandwidth are those of other measurements, which the device files name.

The two measurements of one size that are known differ by 4 % (V100, binary32, two versions of one library) to 15 %. So no model can be much
closer than that.

What the errors say:

- **Products** of at least 256 rows, columns and depth are within 9 % (rms), on H100 within 13 %. Smaller ones are not shown, because a
  library then uses kernels of other kinds. On K40 the worst are products below 400 x 400, which take less than 100 us.
- **Kernels that go once through memory** are within 6 %. Softmax and layer normalisation pass over their operand several times on these
  cards, as PyTorch computes them; `emu` charges one pass, which is a lower bound.
- **All-reduces** of 64 MiB and more are within 16 %. Smaller ones take longer than simulated, up to five times: NCCL's rings have as many
  steps as GPUs and start with tens of microseconds, where `emu` exchanges in two phases. Above 512 MB switches that add up (H200) are faster
  than any exchange between devices.

Not found, and so not compared: binary16 products of P100, binary32 products of H200 and of A100 with SXM4, products of K20X itself (the
numbers of K40, the same processor, are used), all-reduces of V100 over two or four GPUs.

`python -m benchmarks.measured` prints these tables, `--page` writes this page. Where the numbers are from: `benchmarks/measured/SOURCES.md`.
"""


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
    """Return docs/measured-times.md."""
    return "\n".join((INTRODUCTION, *summaries(), *every_row(), ""))


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
