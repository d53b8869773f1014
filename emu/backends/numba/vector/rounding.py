"""Rounding to integers in the modes that have vector code, sixteen lanes at a time.

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
#: Nearest modes -> what nearest even drops of ties that they move on, of positive and of negative numbers: 0.5 where
#: they go up.
TIES = {
    k.NEAREST_AWAY: (0.5, -0.5),
    k.NEAREST_UP: (0.5, 0.5),
    k.NEAREST_DOWN: (-0.5, -0.5),
    k.NEAREST_ZERO: (-0.5, 0.5),
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
        ties: what nearest even drops of a tie that moves on, by `TIES`: of a positive number; and the sign bit where a
            negative one's is the other, else +0.
        draw: the random integers of stochastic rounding.
    """
    if mode in _DIRECT:
        return _DIRECT[mode](v)
    if mode == k.STOCHASTIC and two_s_complement:
        assert draw is not None
        kept = v.floor()
        return draw.moves_up(v, kept).choose(kept + 1.0, kept)
    if mode == k.TO_ODD:
        half = (v * 0.5).floor()
        return (v == v.rint()).choose(v, half + half + 1.0)
    if mode == k.STOCHASTIC:
        assert draw is not None
        kept = v.trunc()
        away = e.splat(v.kind, 1.0).with_sign_of(v)
        return draw.moves(abs(v - kept)).choose(kept + away, kept)
    even = v.rint()
    dropped = v - even
    moving, other_sign = ties
    tie = ((v.bits() & other_sign.bits()) ^ moving.bits()).bits_as(v.kind)
    return (dropped == tie).choose(v + dropped, even)


class Draw:
    """Random integers u below 2**n_rbits, one per lane, and when they move a number (docs/concepts/rounding.md).

    Up, or away from zero, iff u + floor(f * 2**r) >= 2**r, f what is dropped. Compared as floats, where all of it is
    exact, and where what is no number moves nothing.
    """

    def __init__(self, u: Vector, scale: Vector) -> None:
        self.u, self.scale = u, scale

    def moves(self, dropped: Vector) -> Vector:
        """Return where a number with this dropped fraction moves away from zero."""
        return self.u >= self.scale - (dropped * self.scale).floor()

    def moves_up(self, v: Vector, kept: Vector) -> Vector:
        """Return where `v` moves up from the integer below it, `kept`.

        floor(f * 2**r) = floor(v * 2**r) - kept * 2**r, each exact, where f itself may have too many bits. Numbers so
        large that these overflow are integers that 1 does not move.
        """
        return self.u >= self.scale - ((v * self.scale).floor() - kept * self.scale)


def draw_kind(lane: object) -> object:
    """Return the integers in which random numbers are drawn for lanes of a float: 32 bits must fit beside float64."""
    return I32 if lane is F32 else I64
