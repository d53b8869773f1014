"""NumPy: what one writes by hand today, statistics included where the row has them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from benchmarks.measuring.peer import Peer
from benchmarks.measuring.row import Array, PairWork, ProductWork, Side, StageWork, Task
from emu.formats import Fixed, parse

PART, PAIRS = 1 << 22, 1 << 20
#: Rows and columns of a product that NumPy computes without BLAS; the inner size stays.
EDGE = 128


def sides(task: Task) -> list[Side]:
    """Return the work in array code."""
    if isinstance(task, StageWork) and task.rounding == "nearest_even":
        return _fixed_stage(task) if isinstance(task.format, Fixed) else _float_stage(task)
    if isinstance(task, ProductWork):
        return _product(task)
    if isinstance(task, PairWork):
        return _pairs(task)
    return []


def _fixed_stage(task: StageWork) -> list[Side]:
    fmt, x = task.format, task.x[:PART]
    assert isinstance(fmt, Fixed)
    scale, low, high = math.ldexp(1.0, fmt.frac_bits), float(fmt.min_raw), float(fmt.max_raw)

    def run() -> tuple[Array, np.intp, Array]:
        raw = np.rint(x * np.float32(scale))
        written = np.clip(raw, low, high)
        overflows = np.count_nonzero(written != raw)
        positions = np.bincount(np.frexp(x)[1] + 200)
        return written * np.float32(1 / scale), overflows, positions

    return [Side("numpy", run, x.size, "histogram and overflows, signs not apart")]


def _float_stage(task: StageWork) -> list[Side]:
    if task.format != parse("fp16"):
        return []
    x = task.x[:PART]
    return [Side("numpy", lambda: x.astype(np.float16).astype(np.float32), x.size, "no statistics")]


def _product(task: ProductWork) -> list[Side]:
    edge, depth = min(EDGE, task.a.shape[0]), task.a.shape[1]
    a, b = task.a[:edge], task.b[:, :edge]
    part = "no statistics; a part of the outputs"
    amount = edge * edge * depth
    accumulator = task.mac.accumulator
    if task.mac.is_exact:
        left, right = a.astype(np.int64), b.astype(np.int64)
        return [Side("numpy int64", lambda: left @ right, amount, f"no rounding; {part}")]
    if accumulator == parse("fp16"):
        halves = a.astype(np.float16), b.astype(np.float16)
        return [Side("numpy loop", _stepwise(*halves, lambda total: total), amount, part)]
    if isinstance(accumulator, Fixed):
        assert isinstance(task.a_format, Fixed)
        assert isinstance(task.b_format, Fixed)
        raws = task.a_format.to_raw(a).astype(np.int32), task.b_format.to_raw(b).astype(np.int32)
        limits = accumulator.min_raw, accumulator.max_raw
        return [Side("numpy loop", _stepwise(*raws, lambda total: np.clip(total, *limits, out=total)), amount, part)]
    return [Side("numpy loop", _stepwise(a, b, lambda total: total), amount, part)]


def _stepwise(a: Array, b: Array, after: Callable[[Array], Array]) -> Callable[[], Array]:
    """Return a product whose sums are taken one k at a time, all outputs at once; their dtype rounds them."""

    def run() -> Array:
        total = np.zeros((a.shape[0], b.shape[1]), a.dtype)
        for k in range(a.shape[1]):
            total = after(total + a[:, k, None] * b[k])
        return total

    return run


def _pairs(task: PairWork) -> list[Side]:
    a, b = (x[:PAIRS].astype(np.float16) for x in (task.a, task.b))
    function = {"add": np.add, "multiply": np.multiply}[task.operation]

    def run() -> None:
        with np.errstate(all="ignore"):
            function(a, b)

    return [Side("numpy", run, a.size, "unchecked")]


PEER = Peer("numpy", "numpy", "numpy", sides)
