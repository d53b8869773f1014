"""Rounding to integers in every mode, sixteen lanes at a time.

`v` is a result in units of the last place; what comes back is an integer of the same sign, -0 included.
"""

from __future__ import annotations

from collections.abc import Callable

from emu.backends import interface as k
from emu.backends.numba.vector.lanes import F32, I32, I64, Emitter, Vector

#: Modes that one instruction does.
_DIRECT: dict[int, Callable[[Vector], Vector]] = {
    k.NEAREST_EVEN: Vector.rint,
    k.FLOOR: Vector.floor,
    k.CEIL: Vector.ceil,
    k.TOWARD_ZERO: Vector.trunc,
}


def rounded(e: Emitter, v: Vector, mode: int, *, two_s_complement: bool, draw: Draw | None) -> Vector:
    """Return `v` rounded to an integer; `draw` holds the random integers of stochastic rounding."""
    if mode in _DIRECT:
        return _DIRECT[mode](v)
    kept = v.trunc()
    dropped = abs(v - kept)
    negative = v < 0.0
    if mode == k.STOCHASTIC:
        assert draw is not None
        moves = draw.moves(e, dropped, negative, two_s_complement=two_s_complement)
    elif mode == k.TO_ODD:
        half = kept * 0.5
        moves = (dropped > 0.0) & (half == half.trunc())
    else:
        moves = (dropped > 0.5) | _ties_that_move(dropped == 0.5, negative, mode)
    away = e.splat(v.kind, 1.0).with_sign_of(v)
    return moves.choose(kept + away, kept)


def _ties_that_move(tie: Vector, negative: Vector, mode: int) -> Vector:
    if mode == k.NEAREST_AWAY:
        return tie
    if mode == k.NEAREST_UP:
        return tie & ~negative
    if mode == k.NEAREST_DOWN:
        return tie & negative
    return tie & ~tie  # nearest_zero


class Draw:
    """Random integers u below 2**n_rbits, one per lane, and when they move a number (NUMERICS 3).

    Away from zero iff u + floor(f * 2**r) >= 2**r; of negative two's complement numbers iff u < ceil(f * 2**r).
    Written with the largest u, so that nothing leaves 32 bits at r = 32.
    """

    def __init__(self, u: Vector, scale: Vector, largest: Vector) -> None:
        self.u, self.scale, self.largest = u, scale, largest

    def moves(self, e: Emitter, dropped: Vector, negative: Vector, *, two_s_complement: bool) -> Vector:
        """Return where a number with this dropped fraction moves away from zero."""
        scaled = dropped * self.scale
        below = self._integer(scaled.floor())
        moves = (self.largest - below).below_unsigned(self.u)
        if not two_s_complement:
            return moves
        above = self._integer(scaled.ceil())
        moves_down = self.u.below_unsigned(above)
        return (negative & moves_down) | (~negative & moves)

    def _integer(self, whole: Vector) -> Vector:
        return whole.as_kind(self.u.kind)


def draw_kind(lane: object) -> object:
    """Return the integers in which random numbers are compared: 2**32 itself must fit."""
    return I32 if lane is F32 else I64
