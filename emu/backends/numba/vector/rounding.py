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
#: Nearest modes -> whether ties of positive and of negative numbers move away from zero.
TIES = {
    k.NEAREST_AWAY: (True, True),
    k.NEAREST_UP: (True, False),
    k.NEAREST_DOWN: (False, True),
    k.NEAREST_ZERO: (False, False),
}


def kind_of(mode: int) -> int:
    """Return the mode that stands for `mode` in compiled code: four differ by where ties go alone, a number."""
    return k.NEAREST_AWAY if mode in TIES else mode


def rounded(
    e: Emitter, v: Vector, mode: int, *, two_s_complement: bool, ties: tuple[Vector, Vector], draw: Draw | None
) -> Vector:
    """Return `v` rounded to an integer.

    Args:
        e: emits.
        v: results in units of the last place.
        mode: from `kind_of`.
        two_s_complement: whether negative numbers round stochastically by their complement.
        ties: smallest dropped fraction of positive numbers that moves away from zero; of negative ones, the largest.
        draw: the random integers of stochastic rounding.
    """
    if mode in _DIRECT:
        return _DIRECT[mode](v)
    kept = v.trunc()
    dropped = v - kept
    if mode == k.TO_ODD:
        half = kept * 0.5
        moves = (dropped != 0.0) & (half == half.trunc())
    elif mode == k.STOCHASTIC:
        assert draw is not None
        moves = draw.moves(e, abs(dropped), v < 0.0, two_s_complement=two_s_complement)
    else:
        kept = (dropped >= ties[0]).choose(kept + 1.0, kept)
        return (dropped <= ties[1]).choose(kept - 1.0, kept)
    away = e.splat(v.kind, 1.0).with_sign_of(v)
    return moves.choose(kept + away, kept)


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
