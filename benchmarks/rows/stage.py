"""The output stage: float32 in, values of a format out, with statistics register and flags."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from benchmarks.measuring.arrays import aligned, reals
from benchmarks.measuring.limits import streaming_copy
from benchmarks.measuring.row import Prepared, Row, Side, StageWork
from emu.datapath import Flags, StatisticsRegister
from emu.engine import quantize
from emu.formats import Format, parse

#: Elements of a row, and of a quick look.
SIZE, QUICK_SIZE = 1 << 24, 1 << 16
#: What the project asks of peers in the output stage.
FACTORS = MappingProxyType({"qtorch": 15.0, "qtorch -O3": 15.0, "apytypes": 15.0})


def stage(
    fmt: str, *, rounding: str = "nearest_even", overflow: str | None = None, n_rbits: int = 24, size: int = SIZE
) -> Callable[[bool], Prepared]:
    """Return what prepares `emu.quantize` of `size` float32 beside a copy of them."""

    def prepare(quick: bool) -> Prepared:
        target: Format = parse(fmt)
        x = reals(min(size, QUICK_SIZE) if quick else size, target)
        out, register, flags = aligned(x.shape, target.carrier), StatisticsRegister(), Flags()

        def run() -> None:
            quantize(
                x,
                target,
                rounding=rounding,
                overflow=overflow,
                n_rbits=n_rbits,
                seed=1,
                register=register,
                flags=flags,
                out=out,
            )

        task = StageWork(x, target, rounding, n_rbits)
        return Prepared(task, Side("emu", run, x.size), streaming_copy(x))

    return prepare


def _row(name: str, title: str, prepare: Callable[[bool], Prepared], bar: float, goal: float, *, asked: bool) -> Row:
    factors = FACTORS if asked else MappingProxyType[str, float]({})
    return Row(f"stage/{name}", title, "GElem/s", prepare, bar, goal, factors=factors)


def rows() -> list[Row]:
    """Return the rows of the output stage."""
    fixed = {"fix8": "fix8f4", "fix16": "fix16f8"}
    floats = {"fp16": "fp16", "fp8-e4m3": "fp8_e4m3", "fp8-e5m2": "fp8_e5m2", "e5m7": "e5m7"}
    found = [_row(n, f"float32 to {f}, nearest even", stage(f), 0.6, 0.85, asked=True) for n, f in fixed.items()]
    for bits, bar, goal in ((24, 0.3, 0.5), (16, 0.4, 0.7)):
        for name, fmt in fixed.items():
            work = stage(fmt, rounding="stochastic", n_rbits=bits)
            found.append(
                _row(f"{name}-r{bits}", f"float32 to {fmt}, stochastic, r = {bits}", work, bar, goal, asked=True)
            )
    found += [_row(n, f"float32 to {f}, nearest even", stage(f), 0.5, 0.85, asked=False) for n, f in floats.items()]
    return found
