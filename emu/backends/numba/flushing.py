"""Operands of formats that read subnormals as 0 of their sign."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.interface import FormatCode, is_one_number
from emu.backends.memory import empty
from emu.backends.numba.compiling import BLOCK, kernel, over_ranges

Array = NDArray[Any]
#: Elements below which a second thread is not worth waking.
GRAIN = 1 << 18


@kernel
def _flush(x: Any, out: Any, smallest: float, keeps_sign: bool) -> None:
    for i in range(x.size):
        value = x[i]
        zero = math.copysign(0.0, value) if keeps_sign else 0.0
        out[i] = zero if abs(value) < smallest else value


def flushed(x: Array, fmt: FormatCode | None) -> Array:
    """Return carriers of a format as arithmetic reads them: subnormals as 0 if it is DAZ, else unchanged; any shape."""
    if fmt is None or not fmt.daz:
        return x
    # An operand that stands for all stays a single number, with strides of 0.
    if is_one_number(x):
        return np.broadcast_to(flushed(x.reshape(-1)[:1], fmt)[0], x.shape)
    flat, out = np.ascontiguousarray(x).reshape(-1), empty((x.size,), x.dtype)
    smallest, keeps_sign = math.ldexp(1.0, fmt.emin), bool(fmt.has_negative_zero)

    def work(_: int, start: int, stop: int) -> None:
        _flush(flat[start:stop], out[start:stop], smallest, keeps_sign)

    over_ranges(work, x.size, BLOCK, GRAIN)
    return out.reshape(x.shape)
