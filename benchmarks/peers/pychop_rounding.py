"""Pychop: rounding of NumPy arrays to fixed-point words and small floats."""

from __future__ import annotations

import importlib
from typing import Any

from benchmarks.measuring.peer import Peer
from benchmarks.measuring.row import Side, StageWork, Task
from emu.formats import Fixed, Float

PART = 1 << 20
#: Its numbers of the modes.
_MODES = {"nearest_even": 1, "stochastic": 5}


def sides(task: Task) -> list[Side]:
    """Return its rounding."""
    if not isinstance(task, StageWork) or task.rounding not in _MODES:
        return []
    fmt, x = task.format, task.x[:PART]
    if isinstance(fmt, Float) and fmt != Float(fmt.exponent_bits, fmt.fraction_bits):
        return []
    library: Any = importlib.import_module("pychop")
    library.backend("numpy")
    mode = _MODES[task.rounding]
    if isinstance(fmt, Fixed):
        integer_bits = fmt.width_bits - fmt.frac_bits
        chop = library.Chopf(ibits=integer_bits, fbits=fmt.frac_bits, rmode=mode)
        return [Side("pychop", lambda: chop.quantize(x), x.size, "no statistics")]
    chop = library.Chop(exp_bits=fmt.exponent_bits, sig_bits=fmt.fraction_bits, rmode=mode)
    return [Side("pychop", lambda: chop(x), x.size, "no statistics")]


PEER = Peer("pychop", "pychop", "pychop", sides)
