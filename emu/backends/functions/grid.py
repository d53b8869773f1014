"""The bits of an exact function value on which an output stage depends.

    leading bit ... last bit written | first spare bits | sticky
                                     └ `step`           └ one bit: anything nonzero below?

From the shortened value a mode decides as from the exact one: a deterministic mode with one spare bit, stochastic
rounding with r or r + 1 of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.interface import WRAP, StageCode
from emu.backends.modes import deciding_bits

Integers = NDArray[np.int64]

#: Values from 2**1024 on count as infinite under `wrap`, as they do where the function is computed in float64.
WRAP_LIMIT = 1024


@dataclass(frozen=True)
class Grid:
    """The grid of an output stage, spare bits included.

    Attributes:
        precision: significand bits of a float format; 0 for fixed point.
        quantum: exponent of the finest step written.
        spare_bits: bits wanted below the last one written: as many as the mode looks at.
        top: every magnitude from 2**(top+1) on overflows, in every mode.
        wraps: overflow is modulo 2**width, so that no leading bit may be left out.
    """

    precision: int
    quantum: int
    spare_bits: int
    top: int
    wraps: bool

    @classmethod
    def of(cls, stage: StageCode) -> Grid:
        """Return the grid of a stage."""
        fmt = stage.format
        # more than enough: the largest value is below 2**(max_exponent + precision)
        top = fmt.max_exponent + (fmt.precision if fmt.is_float else fmt.width_bits) + 1
        return cls(fmt.precision, fmt.quantum, deciding_bits(stage), top, stage.overflow == WRAP)

    def last_bit(self, leading: Any) -> Any:
        """Return the exponent of the last bit written for values with these leading-bit exponents."""
        if not self.precision:
            # in the shape of `leading`
            return leading * 0 + self.quantum
        return np.maximum(leading - (self.precision - 1), self.quantum)

    def step(self, leading: Any) -> Any:
        """Return the exponent of the last spare bit."""
        return self.last_bit(leading) - self.spare_bits

    def is_beyond(self, leading: Any) -> Any:
        """Return whether the digits of a value no longer matter, because every mode overflows."""
        return leading >= WRAP_LIMIT if self.wraps else leading > self.top
