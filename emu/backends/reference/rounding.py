"""The ten rounding modes, on magnitudes.

    significand = quotient * 2**drop + remainder        value lies between quotient and quotient + 1

A mode decides whether the magnitude takes the step up, from: the remainder against half a step, the sign, the parity
of the quotient, and for stochastic rounding the random integer u.

Source: docs/concepts/rounding.md; IEEE 754-2019 section 4.3.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends import interface as k

Array = NDArray[Any]
MAX_DROP = 61


def shift_right_to_odd(significand: Array, drop: NDArray[np.int64]) -> Array:
    """Drop bits, keeping in the last bit whether any of them was 1."""
    distance = np.minimum(drop, 63) if significand.dtype != object else drop.astype(object)
    kept = significand >> distance
    lost = (kept << distance) != significand
    return kept | lost.astype(significand.dtype)


def round_magnitude(
    significand: Array,
    drop: NDArray[np.int64],
    negative: NDArray[np.bool_],
    *,
    rounding: int,
    n_rbits: int,
    u: Array | None,
    two_s_complement: bool,
    parity: NDArray[np.int64] | int = 0,
) -> tuple[Array, NDArray[np.bool_]]:
    """Drop the low `drop` bits of each significand, rounding as the hardware does.

    Args:
        significand: nonnegative, int64 below 2**62 or object, any shape.
        drop: bits that leave, >= 0; int64, the same shape.
        negative: signs.
        rounding: mode number.
        n_rbits: r of stochastic rounding.
        u: random integers below 2**r, or None for other modes.
        two_s_complement: stochastic rounding adds u/2**r to the signed number (fixed) or to its magnitude (float).
        parity: added to a quotient, gives the last bit of its code.

    Returns:
        Rounded quotients, and whether each was inexact.
    """
    if significand.dtype != object:
        too_far = drop > MAX_DROP
        if too_far.any():
            significand = np.where(
                too_far, shift_right_to_odd(significand, np.maximum(drop - MAX_DROP, 0)), significand
            )
            drop = np.minimum(drop, MAX_DROP)
    else:
        drop = drop.astype(object)
    quotient = significand >> drop
    remainder = significand - (quotient << drop)
    inexact = (remainder != 0).astype(bool)
    if rounding == k.TOWARD_ZERO or not inexact.any():
        return quotient, inexact
    odd = ((quotient + parity) & 1).astype(bool)
    up = _steps_up(odd, remainder, drop, negative, inexact, rounding, n_rbits, u, two_s_complement)
    return quotient + up.astype(quotient.dtype), inexact


def _steps_up(
    odd: NDArray[np.bool_],
    remainder: Array,
    drop: Array,
    negative: NDArray[np.bool_],
    inexact: NDArray[np.bool_],
    rounding: int,
    n_rbits: int,
    u: Array | None,
    two_s_complement: bool,
) -> NDArray[np.bool_]:
    if rounding == k.FLOOR:
        return inexact & negative
    if rounding == k.CEIL:
        return inexact & ~negative
    if rounding == k.TO_ODD:
        return inexact & ~odd
    if rounding == k.STOCHASTIC:
        assert u is not None
        return _stochastic_step(remainder, drop, negative & two_s_complement, n_rbits, u)
    half = np.ones_like(remainder) << drop
    twice = remainder << 1
    above, tie = (twice > half).astype(bool), (twice == half).astype(bool)
    ties_up = {
        k.NEAREST_EVEN: odd,
        k.NEAREST_AWAY: True,
        k.NEAREST_UP: ~negative,
        k.NEAREST_DOWN: negative,
        k.NEAREST_ZERO: False,
    }
    return above | (tie & ties_up[rounding])


def _stochastic_step(
    remainder: Array, drop: Array, complement: NDArray[np.bool_], n_rbits: int, u: Array
) -> NDArray[np.bool_]:
    """floor(x + u/2**r), with f the dropped fraction: a step if u >= 2**r - floor(f*2**r).

    In two's complement of a negative x: if u < ceil(f*2**r).
    """
    right = np.maximum(drop - n_rbits, 0)
    left = np.maximum(n_rbits - drop, 0)
    first_bits = (remainder >> right) << left
    more = ((remainder >> right) << right) != remainder
    u = u.astype(remainder.dtype)
    plain = u + first_bits >= (1 << n_rbits)
    return np.where(complement, u < first_bits + more, plain).astype(bool)
