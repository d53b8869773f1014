"""Rounding to integers in the modes that have vector code, sixteen lanes at a time.

`v` is a result in units of the last place; it becomes an integer of the same sign, -0 included.
"""

from __future__ import annotations

from collections.abc import Callable

from emu.backends import interface as k
from emu.backends.numba.vector.lanes import F32, I32, I64, Emitter, Vector

#: Modes that are one instruction.
_DIRECT: dict[int, Callable[[Vector], Vector]] = {
    k.NEAREST_EVEN: Vector.rint,
    k.FLOOR: Vector.floor,
    k.CEIL: Vector.ceil,
    k.TOWARD_ZERO: Vector.trunc,
}
#: For each other nearest mode, `v - rint(v)` of the ties that it does not round as nearest even does: of positive and
#: of negative numbers. 0.5: nearest even goes down and the mode up; -0.5: nearest even goes up and the mode down.
TIES = {
    k.NEAREST_AWAY: (0.5, -0.5),
    k.NEAREST_UP: (0.5, 0.5),
    k.NEAREST_DOWN: (-0.5, -0.5),
    k.NEAREST_ZERO: (-0.5, 0.5),
}


def kind_of(mode: int) -> int:
    """Return the mode for which code is compiled: the modes of `TIES` share it, and are told apart at run time."""
    return k.NEAREST_AWAY if mode in TIES else mode


def rounded(
    e: Emitter, v: Vector, mode: int, *, two_s_complement: bool, ties: tuple[Vector, Vector], draw: Draw | None
) -> Vector:
    """Return `v` rounded to an integer.

    Args:
        e: emits the instructions.
        v: results in units of the last place.
        mode: from `kind_of`.
        two_s_complement: whether negative numbers round stochastically by their complement.
        ties: the mode's pair in `TIES`, as two vectors: the number for positive results; then -0 if the number for
            negative results has the other sign, else +0. Read only for the modes of `TIES`.
        draw: the random integers of stochastic rounding.
    """
    if mode in _DIRECT:
        return _DIRECT[mode](v)
    if mode == k.STOCHASTIC and two_s_complement:
        assert draw is not None
        # Two's complement is rounded down or up, whatever the sign.
        kept = v.floor()
        return draw.moves_up(v, kept).choose(kept + 1.0, kept)
    if mode == k.TO_ODD:
        half = (v * 0.5).floor()
        return (v == v.rint()).choose(v, half + half + 1.0)  # the odd number of the two around v
    if mode == k.STOCHASTIC:
        assert draw is not None
        # A sign and a magnitude: the magnitude is rounded down or up.
        kept = v.trunc()
        away = e.splat(v.kind, 1.0).with_sign_of(v)
        return draw.moves(abs(v - kept)).choose(kept + away, kept)
    even = v.rint()
    dropped = v - even  # exact; 0.5 or -0.5 of a tie, and v + dropped is its other neighbour
    moving, other_sign = ties
    # the number for the sign of v: negative lanes keep the sign bit of `other_sign`
    tie = ((v.bits() & other_sign.bits()) ^ moving.bits()).bits_as(v.kind)
    return (dropped == tie).choose(v + dropped, even)


class Draw:
    """Random integers u below 2**n_rbits, one per lane, and which numbers they move (docs/concepts/rounding.md).

    A number moves up, or away from zero, iff u + floor(f * 2**r) >= 2**r, where f is the dropped fraction and r is
    n_rbits. Both sides are floats: the comparison is exact, and false for NaN.

    Attributes:
        u: the random integers, as floats.
        scale: 2**r.
    """

    def __init__(self, u: Vector, scale: Vector) -> None:
        self.u, self.scale = u, scale

    def moves(self, dropped: Vector) -> Vector:
        """Return whether a number with this dropped fraction moves away from zero."""
        return self.u >= self.scale - (dropped * self.scale).floor()

    def moves_up(self, v: Vector, kept: Vector) -> Vector:
        """Return whether `v` moves up from the integer below it, `kept`.

        floor(f * 2**r) = floor(v * 2**r) - kept * 2**r; both are exact, while f = v - kept of a negative v may have too
        many bits. If a number is so large that these overflow, it is an integer that adding 1 does not change.
        """
        return self.u >= self.scale - ((v * self.scale).floor() - kept * self.scale)


def draw_kind(lane: object) -> object:
    """Return the integer type of random numbers, from the float type of the lanes.

    Integers are signed. Beside float64 a random number has up to 32 bits, so it takes 64; beside float32 at most 24.
    """
    return I32 if lane is F32 else I64
