"""The rounding modes, on magnitudes.

    significand = quotient * 2**drop + remainder        value lies between quotient and quotient + 1

The table says which step the magnitude takes, by the remainder compared with half a step, the parity of the quotient
and the sign. If random bits decide, the table rounds the first r bits of the remainder, and the step is a carry.

Source: emu/datapath/rounding.py; docs/concepts/rounding.md; IEEE 754-2019 section 4.3.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends.modes import DRAWN, STEPS

Array = NDArray[Any]
#: Bits that are dropped at once from an int64: 2**61, and twice a remainder below it, fit.
MAX_DROP = 61


class _Steps(NamedTuple):
    """Steps of a mode in fixed point or in floats, and what they depend on, so that only that is computed.

    Attributes:
        up: bit `place + 4 * odd + 8 * negative` is 1 if the magnitude takes a step away from zero. The place is 0 for
            no remainder, 1 below half a step, 2 for half a step, 3 above.
        down: the same of steps toward zero.
        half: whether the comparison with half a step matters.
        last_bit: whether the last bit matters.
        sign: whether the sign matters.
        moves_exact: whether values of the format take a step.
        moves: whether any number takes a step.
    """

    up: np.uint16
    down: np.uint16
    half: bool
    last_bit: bool
    sign: bool
    moves_exact: bool
    moves: bool

    @classmethod
    def of(cls, table: NDArray[np.int8]) -> _Steps:
        by_case = table.reshape(2, 2, 4)  # sign, last bit, place
        # Half a step matters if a tie or what lies above it steps otherwise than what lies below.
        half = bool((by_case[:, :, 1:2] != by_case[:, :, 2:]).any())
        last_bit, sign = bool((by_case[:, 0] != by_case[:, 1]).any()), bool((by_case[0] != by_case[1]).any())
        # bit i is 1 if entry i of the table takes this step
        up, down = (np.uint16((table == step) @ (1 << np.arange(16))) for step in (1, -1))
        return cls(up, down, half, last_bit, sign, bool(by_case[:, :, 0].any()), bool(table.any()))


_STEPS = [[_Steps.of(table) for table in families] for families in STEPS]


def shift_right_to_odd(significand: Array, drop: NDArray[np.int64]) -> Array:
    """Drop bits; the last bit that is kept becomes 1 if any of them was 1."""
    # 63 leave nothing of a significand below 2**62
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
    parity: NDArray[np.int64] | None = None,
) -> tuple[Array, NDArray[np.bool_]]:
    """Drop the low `drop` bits of each significand, rounded as the hardware does it.

    Args:
        significand: nonnegative, int64 below 2**62 or object, any shape.
        drop: bits that leave, >= 0; int64, the same shape.
        negative: signs; a zero in two's complement has none.
        rounding: mode number.
        n_rbits: r of stochastic rounding.
        u: random integers below 2**r, or None for other modes.
        two_s_complement: whether negative numbers are in two's complement, as in fixed point, or sign and magnitude.
        parity: what is added to a quotient to give a number with the last bit of its code: in a float without fraction
            bits, that is the last bit of its exponent field. None is 0: the quotient has the last bit itself.

    Returns:
        Rounded quotients, and whether each differs from the number that was given.
    """
    if significand.dtype != object:
        # The first 60 dropped bits and a sticky one decide like all of them: no mode looks at more than 33, which are
        # 32 random bits and the one behind them.
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
    steps, drawn = _STEPS[rounding][int(not two_s_complement)], rounding in DRAWN
    # Nothing moves if all are values already, and these stay; or if the mode drops the bits of magnitudes.
    if not (steps.moves_exact or inexact.any()) or not (steps.moves or drawn):
        return quotient, inexact
    if drawn:
        assert u is not None
        step = _drawn_step(remainder, drop, negative, steps, n_rbits, u, two_s_complement)
    else:
        step = _steps(steps, remainder, drop, quotient if parity is None else quotient + parity, negative)
    if steps.moves_exact:
        if not two_s_complement:
            step = np.where((significand == 0).astype(bool), 0, step)  # a float's zero stays in every mode
        inexact |= step != 0
    return quotient + step.astype(quotient.dtype), inexact


def _steps(
    steps: _Steps, remainder: Array, drop: Array, quotient: Array, negative: NDArray[np.bool_]
) -> NDArray[np.int8]:
    """Return the step of each magnitude.

    Args:
        steps: of the mode.
        remainder: the low bits, which are dropped.
        drop: how many.
        quotient: any number whose last bit is that of the code that is kept.
        negative: signs.
    """
    # the place: 0 if nothing is dropped, 1 if something is; the comparison with half a step adds to it
    case = _as_ones(remainder != 0)
    if steps.half:
        whole, twice = 1 << drop, remainder << 1
        case = case + _as_ones(twice >= whole) + _as_ones(twice > whole)  # 1 below half a step, 2 a tie, 3 above
    if steps.last_bit:
        case = case + (_as_ones((quotient & 1) != 0) << np.uint8(2))
    if steps.sign:
        case = case + (_as_ones(negative) << np.uint8(3))
    case = case.astype(np.uint16)
    # bit `case` of the mask
    step = ((steps.up >> case) & np.uint16(1)).astype(np.int8)
    if steps.down:
        step -= ((steps.down >> case) & np.uint16(1)).astype(np.int8)
    return step


def _as_ones(holds: Any) -> NDArray[np.uint8]:
    return holds.astype(bool, copy=False).view(np.uint8)  # as numbers: NumPy's sum of two booleans is their or


def _drawn_step(
    remainder: Array,
    drop: Array,
    negative: NDArray[np.bool_],
    steps: _Steps,
    n_rbits: int,
    u: Array,
    two_s_complement: bool,
) -> NDArray[np.int8]:
    """Return the step of each magnitude that random bits decide; f are its first r dropped bits, rounded.

    It is 1 if f + u >= 2**r; that of a negative number in two's complement if u < f.
    """
    # Fewer than r dropped bits are filled up with zeros; of more, the rest decides how the first r are rounded.
    right = np.maximum(drop - n_rbits, 0)
    left = np.maximum(n_rbits - drop, 0)
    # the first r dropped bits; the rest decides how they are rounded
    first = remainder >> right
    rest = remainder - (first << right)
    first = first << left
    # may become 2**r: then every u carries
    if steps.moves:
        first = first + _steps(steps, rest, right, first, negative).astype(first.dtype)
    # In two's complement the dropped bits of -(q + first / 2**r) are 2**r - first: they and u carry, which leaves -q,
    # iff u >= first.
    u = u.astype(remainder.dtype)
    return np.where(negative & two_s_complement, u < first, u + first >= (1 << n_rbits)).astype(np.int8)
