"""The ten rounding modes: where a result between two values of the grid goes."""

from __future__ import annotations

from enum import StrEnum

from emu.errors import FormatError, nearest_name

MAX_RANDOM_BITS = 32


class Rounding(StrEnum):
    """Where an exact result between two neighbours of the target's grid goes.

    The names say the tie or the direction. `value` is the text form, the member order the number kernels use.

    Source: docs/concepts/rounding.md; IEEE 754-2019 section 4.3; IEEE 1666 section 7.10.
    """

    #: nearest, ties to the even code (IEEE roundTiesToEven, SystemC RND_CONV)
    NEAREST_EVEN = "nearest_even"
    #: nearest, ties away from zero (IEEE roundTiesToAway, SystemC RND_INF)
    NEAREST_AWAY = "nearest_away"
    #: nearest, ties toward +inf: add half, drop bits (SystemC RND)
    NEAREST_UP = "nearest_up"
    #: nearest, ties toward -inf (SystemC RND_MIN_INF)
    NEAREST_DOWN = "nearest_down"
    #: nearest, ties toward zero (SystemC RND_ZERO)
    NEAREST_ZERO = "nearest_zero"
    #: toward -inf: drop two's-complement bits (IEEE roundTowardNegative, SystemC TRN)
    FLOOR = "floor"
    #: toward +inf (IEEE roundTowardPositive)
    CEIL = "ceil"
    #: toward zero: drop magnitude bits (IEEE roundTowardZero, SystemC TRN_ZERO)
    TOWARD_ZERO = "toward_zero"
    #: inexact results go to the neighbour whose last bit is 1 (von Neumann, jamming)
    TO_ODD = "to_odd"
    #: add u/2**r ulp and drop bits, u uniform in 0..2**r-1
    STOCHASTIC = "stochastic"

    @property
    def number(self) -> int:
        """The mode as the integer kernels take: 0 nearest_even .. 9 stochastic."""
        return _NUMBERS[self]

    @classmethod
    def parse(cls, name: str | Rounding) -> Rounding:
        """Return the mode called `name`.

        Raises:
            FormatError: no such mode; names the nearest one.
        """
        try:
            return cls(name)
        except ValueError:
            hint = nearest_name(str(name), [mode.value for mode in cls], cls.NEAREST_EVEN.value)
            raise FormatError(f"`rounding` must be a rounding mode, got {name!r}{hint}") from None


_NUMBERS = {mode: number for number, mode in enumerate(Rounding)}
