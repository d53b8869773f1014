"""An output stage as compiled loops take it, and which stages they write."""

from __future__ import annotations

import math
from functools import lru_cache

from emu.backends import interface as k
from emu.backends import modes
from emu.backends.bounds import bounded
from emu.backends.interface import StageCode
from emu.backends.numba.blocks import Stage
from emu.backends.proofs import SAFE_EXPONENT, has_normals

#: Widest words whose values a mode may move, and a value is still an exact float64.
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
        clamps, (stays_above, stays_below) = stage.overflow != k.IEEE, modes.meaning_of(stage).stays
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
    """Return whether results in units of the format's last place, and its values, stay far from the ends of float64."""
    fmt = stage.format
    top = fmt.max_exponent + (fmt.precision if fmt.is_float else fmt.width_bits)
    if modes.moves_exact(stage) and not fmt.is_float and (stage.overflow == k.WRAP or fmt.width_bits > FIXED_BITS):
        return False  # from 2**53 on, a step is not exact; only its size matters where it saturates
    plain = not fmt.is_float or (bool(fmt.signed) and has_normals(fmt))
    if not fmt.has_zero or not (plain or stage.tininess == k.BECAME_ZERO):
        return False  # without zero; or where a tiny result may overflow: left to the reference
    # with one significant bit, ties look at the exponent's last bit: left to the reference
    return not fmt.carries_raws and fmt.precision != 1 and abs(fmt.quantum) < SAFE_EXPONENT and top < 2 * SAFE_EXPONENT


def declines_stage(stage: StageCode) -> str:
    """Return why no compiled loop writes through a stage, "" if loops do."""
    return "" if supports(stage) else "the written format lies outside what float64 loops round"
