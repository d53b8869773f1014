"""Conditions under which float64 arithmetic, rounded to odd, decides every rounding as the exact result would.

A float64 sum, product, quotient or root rounded to odd keeps 52 bits and a sticky bit: its last bit is 1 if anything
was dropped. Rounding it again to p bits, in any mode, equals rounding the exact result once, if these p bits and those
that the mode looks at stand before the sticky bit.

Source: Boldo & Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to odd",
IEEE Transactions on Computers 57 (2008).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.bounds import bounded
from emu.backends.interface import IEEE, NEAREST_EVEN, FormatCode, StageCode
from emu.backends.modes import deciding_bits

#: Of operands between 2**-480 and 2**480 neither products nor sums of a few of them overflow or become subnormal, and
#: the error of a product, which error-free transformations compute, is a normal number, too.
SAFE_EXPONENT = bounded(480, 1, (1022 - 54) // 2, "a product's error, 53 bits below 2**-960, is a normal float64")
#: Bits of a float64 rounded to odd that stand before its sticky bit.
ODD_BITS = bounded(51, 1, 52, "the 53rd bit of the significand is sticky")

#: Last place of float32's subnormal numbers, and exponent of its largest ones.
FLOAT32_QUANTUM = bounded(-149, -149, -1, "float32 has no smaller number")
FLOAT32_TOP = bounded(127, 0, 127, "float32 has no larger exponent")
#: Subnormal float64 numbers, times two to this power, are normal; by two to half of it their roots are scaled back.
SUBNORMAL_SHIFT = bounded(54, 52, 900, "2**-1074 becomes normal; even")
INTO_NORMAL = 2.0**SUBNORMAL_SHIFT
assert SUBNORMAL_SHIFT % 2 == 0


def is_plain(stage: StageCode | None, fmt: FormatCode) -> bool:
    """Return whether a stage writes a float format as the processor does: to nearest even, infinite beyond."""
    return stage is not None and (stage.format, stage.rounding, stage.overflow) == (fmt, NEAREST_EVEN, IEEE)


def becomes_infinite(stage: StageCode | None) -> bool:
    """Return whether a stage writes finite numbers beyond its largest one as infinity, or as what stands for it."""
    return stage is not None and stage.format.is_float == 1 and stage.overflow == IEEE


@lru_cache(maxsize=4096)
def decides_in_float64(stage: StageCode, leading: int) -> bool:
    """Return whether `stage` rounds a result below 2**(leading+1), rounded to odd in float64, as the exact one."""
    fmt = stage.format
    # of fixed point the bits from the leading one down to the last place
    precision = fmt.precision if fmt.is_float else max(leading + 1 - fmt.quantum, 1)
    # an exponent that the largest number does not reach
    top = fmt.max_exponent + fmt.precision if fmt.is_float else leading
    # far from the ends of float64, so that rounding to odd meets no subnormal or infinite number
    in_range = fmt.quantum - deciding_bits(stage) > -2 * SAFE_EXPONENT and max(top, leading) < 2 * SAFE_EXPONENT
    return precision + deciding_bits(stage) + 1 <= ODD_BITS and in_range


def leading_bound(x: NDArray[Any]) -> int:
    """Return the exponent of the largest finite magnitude in a float array, -SAFE_EXPONENT if there is none."""
    magnitude = np.abs(x)
    # infinities and NaN are left out
    largest = float(np.max(magnitude, initial=0.0, where=magnitude < np.inf))
    return max(math.frexp(largest)[1] - 1, -SAFE_EXPONENT) if largest else -SAFE_EXPONENT


def significand_bits(fmt: FormatCode) -> int:
    """Return the bits a significand of the format can have."""
    return fmt.precision if fmt.is_float else fmt.width_bits


def has_normals(fmt: FormatCode) -> bool:
    """Return whether a float format has normal values: of those without, an overflow too is written as a subnormal."""
    return fmt.max_significand >> (fmt.precision - 1) > 0


def largest_exponent(fmt: FormatCode) -> int:
    """Return a bound e such that every finite magnitude of the format is at most 2**e."""
    # max_exponent is that of the largest value's last place
    return fmt.max_exponent + (fmt.precision if fmt.is_float else fmt.width_bits - fmt.signed)
