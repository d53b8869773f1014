"""All pairs of binary16 numbers: one operation computed by emu and checked against the processor's own conversion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from benchmarks.measuring.arrays import aligned
from benchmarks.measuring.hardware_half import count_wrong
from benchmarks.measuring.row import Array, PairWork, Prepared, Row, Side
from emu.engine import add, multiply
from emu.formats import Format, parse

ALL_PAIRS = 1 << 32
#: Left operands of one sample, evenly spread over all codes, and those computed at once.
LEFT, QUICK_LEFT, AT_ONCE = 1 << 12, 16, 16
BAR_S, GOAL_S = 60.0, 5.0
_FUNCTIONS: dict[str, Callable[..., Any]] = {"add": add, "multiply": multiply}


def pairs(operation: Literal["add", "multiply"]) -> Callable[[bool], Prepared]:
    """Return what prepares an operation on every pair of evenly spread left operands and all right ones."""

    def prepare(quick: bool) -> Prepared:
        half: Format = parse("fp16")
        values = half.decode(half.codes())
        left = values[:: len(values) // (QUICK_LEFT if quick else LEFT)]
        a, out = aligned((AT_ONCE, len(values))), aligned((AT_ONCE * len(values),))
        b = np.ascontiguousarray(np.broadcast_to(values, a.shape)).ravel()

        def run() -> None:
            wrong = 0
            for first in range(0, len(left), AT_ONCE):
                a[...] = left[first : first + AT_ONCE, None]
                wrong += _compute_and_check(operation, a.ravel(), b, half, out)
            if wrong:
                raise ArithmeticError(f"{operation}: {wrong} of {len(left) * len(values)} pairs are not rounded right")

        return Prepared(PairWork(operation, a.ravel(), b), Side("emu", run, len(left) * len(values)), None)

    return prepare


def _compute_and_check(operation: Literal["add", "multiply"], a: Array, b: Array, half: Format, out: Array) -> int:
    _FUNCTIONS[operation](a, b, a_format=half, b_format=half, out_format=half, out=out, check=False)
    return count_wrong(operation, a, b, out)


def rows() -> list[Row]:
    """Return the rows of add and multiply; seconds are scaled to all pairs."""
    return [
        Row(
            f"pairs/{operation}",
            f"all 2**32 pairs of binary16: {operation}, checked",
            "Gpair/s",
            pairs(operation),
            BAR_S,
            GOAL_S,
            seconds_for=ALL_PAIRS,
        )
        for operation in ("add", "multiply")
    ]
