"""An output stage as compiled loops take it, and which stages they can write."""

from __future__ import annotations

import math
from functools import lru_cache

from emu.backends import interface as k
from emu.backends import modes
from emu.backends.bounds import bounded
from emu.backends.interface import StageCode
from emu.backends.numba.blocks import Stage
from emu.backends.proofs import SAFE_EXPONENT, has_normals

#: Why no loop writes words of sign and magnitude that wrap, and floats whose hidden bit is always one.
ONLY_DEFINED = "only the reference writes such codes"
#: Bits of the widest fixed-point word that a mode may write if it moves even exact results to a neighbour.
FIXED_BITS = bounded(52, 1, 52, "a raw and its neighbour are below 2**53")


@lru_cache(maxsize=1024)
def prepare(stage: StageCode) -> Stage:
    """Return an output stage as the loops take it."""
    fmt = stage.format
    if not fmt.is_float:
        high = float(fmt.max_significand)
        low = float(stage.lowest)
        above = below = infinite = 0.0
    else:
        high = math.ldexp(float(fmt.max_significand), fmt.max_exponent)
        low = -high if fmt.signed else 0.0
        infinity = math.inf if fmt.has_infinity else math.nan
        # Finite results overflow to the largest value if the rule says so (it clamps), or if the mode rounds toward it.
        # Infinities depend on the rule alone.
        clamps, (stays_above, stays_below) = stage.overflow != k.IEEE, modes.meaning_of(stage).stays
        # An unsigned format has no negative infinity: a negative overflow is NaN, or the smallest value, 0.
        above = high if clamps or stays_above else infinity
        below = low if clamps or stays_below else -infinity if fmt.signed else math.nan
        infinite = high if clamps and not k.keeps_infinities(stage) else infinity
    return Stage(
        fmt.is_float,
        stage.rounding,
        stage.overflow,
        stage.n_rbits,
        fmt.quantum,
        fmt.precision,
        fmt.emin,
        fmt.ftz,
        fmt.has_nan,
        fmt.has_negative_zero,
        high,
        low,
        math.ldexp(1.0, fmt.width_bits),
        above,
        below,
        infinite,
        stage.tininess,
        modes.step_mask(stage),
    )


@lru_cache(maxsize=1024)
def supports(stage: StageCode) -> bool:
    """Return whether the loops can write a stage: its values, and results in last places, fit well inside float64."""
    fmt = stage.format
    if fmt.is_only_defined:
        return False
    # 2**top is beyond every value.
    top = fmt.max_exponent + (fmt.precision if fmt.is_float else fmt.width_bits)
    if modes.moves_exact(stage) and not fmt.is_float and (stage.overflow == k.WRAP or fmt.width_bits > FIXED_BITS):
        return False  # from 2**53 on a step is inexact; `wrap` needs its last bits, saturation only its size
    tiny_fits = not fmt.is_float or (bool(fmt.signed) and has_normals(fmt))
    if not fmt.has_zero or not (tiny_fits or stage.tininess == k.BECAME_ZERO):
        return False  # formats without zero; and IEEE 754's underflow in formats in which a tiny result may overflow
    # With one significant bit, a tie to even is decided by the exponent's last bit, at which the loops do not look.
    return not fmt.carries_raws and fmt.precision != 1 and abs(fmt.quantum) < SAFE_EXPONENT and top < 2 * SAFE_EXPONENT


def declines_stage(stage: StageCode) -> str:
    """Return why no compiled loop writes through a stage; "" if one does."""
    if stage.format.is_only_defined:
        return ONLY_DEFINED
    return "" if supports(stage) else "the written format lies outside what float64 loops round"
