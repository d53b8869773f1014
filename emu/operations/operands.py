"""Operands of operations: constants, and arrays as kernels take them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.engine.operands import as_operand
from emu.formats import PRESETS, Value

FP32, FP64 = PRESETS["fp32"], PRESETS["fp64"]


def number(x: float) -> Value:
    """Return a number as an operand: float32 if that is exact, else float64."""
    # arrays without an axis: they broadcast to any operand
    single = np.array(x, np.float32)
    return Value(single, FP32) if single == x else Value(np.array(x, np.float64), FP64)


def rounded(x: float) -> Value:
    """Return a constant rounded to float32, as hosts have constants."""
    return number(float(np.float32(x)))


def carrier(x: Value) -> NDArray[Any]:
    """Return the array of an operand as kernels take it."""
    # unchecked: operations wrote these numbers
    return as_operand(x, None, "x", check=False)[0]
