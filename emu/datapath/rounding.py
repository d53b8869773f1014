"""The rounding modes, and the one table of what each of them means.

An exact result lies between two neighbours of the grid. A mode says which step its magnitude takes from the neighbour
toward zero. The step depends on the place of the result, the last bit of that neighbour's code, and the sign:

    place        exact, below half, half, above half        one letter each: "..++"
    letter       .  stays    +  one step away from zero     -  one step toward zero
    last bit     two words: of an even code, of an odd one  "...+ ..++"
    sign         two texts: of positive results, of negative ones

The reference decides by this table. Compiled loops and CUDA kernels are given its masks for every mode that has no code
of its own there. Tests of all of them are drawn from it.

Source: docs/concepts/rounding.md; IEEE 754-2019 section 4.3; IEEE 1666 section 7.10.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NamedTuple

from emu.datapath.mode_names import AMBIGUOUS_ROUNDINGS, ROUNDING_NAMES
from emu.errors import FormatError, nearest_name
from emu.formats import Fixed, Format
from emu.formats.notations import PREFIXES

MAX_RANDOM_BITS = 32
# the index of a letter, 0, 1, 2, stands for the steps 0, 1, -1
_LETTERS = ".+-"


class Place(IntEnum):
    """Where an exact result lies, seen from the neighbour toward zero."""

    EXACT = 0
    BELOW_HALF = 1
    HALF = 2
    ABOVE_HALF = 3


@dataclass(frozen=True)
class Steps:
    """Steps of a magnitude by sign, last bit and place.

    Attributes:
        table: 0, 1 or -1 at `place + 4 * odd + 8 * negative`.
    """

    table: tuple[int, ...]

    @classmethod
    def of(cls, positive: str, negative: str | None = None) -> Steps:
        """Return steps from their letters; negative results without letters of their own take those of positive ones.

        Examples:
            >>> Steps.of("...+ ..++").at(Place.HALF, odd=True, negative=False)
            1
        """
        # one word serves even and odd codes: doubled, it is both
        words = [word for side in (positive, negative or positive) for word in (side.split() * 2)[:2]]
        # in the order of the table: for each sign the four places of even codes, then those of odd codes
        return cls(tuple((0, 1, -1)[_LETTERS.index(letter)] for letter in "".join(words)))

    def at(self, place: Place, *, odd: bool, negative: bool) -> int:
        """Return the step of one case."""
        return self.table[place + 4 * odd + 8 * negative]

    @property
    def mask(self) -> int:
        """The table as the integer that kernels take: 16 bits mark steps of 1, and the 16 above them steps of -1."""
        return sum(1 << (i + 16 * (step < 0)) for i, step in enumerate(self.table) if step)

    @property
    def moves_exact(self) -> bool:
        """Whether even results that are values of the format move."""
        return any(self.table[Place.EXACT :: 4])  # every fourth entry is one of an exact result

    @property
    def tells_half(self) -> bool:
        """Whether the mode depends on which side of half a step a result lies."""
        # four groups, by sign and last bit: does any of them tell below, at and above half apart?
        return any(len(set(self.table[i + Place.BELOW_HALF : i + 4])) > 1 for i in range(0, 16, 4))

    @property
    def is_symmetric(self) -> bool:
        """Whether magnitudes of negative results round as those of positive ones."""
        return self.table[:8] == self.table[8:]


class Names(NamedTuple):
    """A mode's names in standards and other libraries; "" if it has none.

    Those of SystemC are also those of ap_fixed and ac_fixed, without AP_, AC_ or SC_.
    """

    ieee: str = ""
    systemc: str = ""
    gfloat: str = ""
    apytypes: str = ""


@dataclass(frozen=True)
class Meaning:
    """What a mode does.

    Attributes:
        words: where results go, as a report says it.
        fixed: steps in fixed point that is two's complement; a zero is a positive number.
        floating: steps in floats and in fixed point of sign and magnitude; a zero stays, with its sign.
        stays: whether a float's overflow is the largest value instead of infinity: of positive, of negative results.
        draws: whether random bits u decide. Then the steps round what is behind the last place to r bits, f. The
            magnitude takes a step if f + u >= 2**r; that of a negative number in two's complement if u < f.
        names: its names in standards and other libraries.
    """

    words: str
    fixed: Steps
    floating: Steps
    stays: tuple[bool, bool]
    draws: bool
    names: Names

    def steps(self, *, is_float: bool) -> Steps:
        """Return the steps in one family of formats; words of sign and magnitude are rounded as floats are."""
        return self.floating if is_float else self.fixed

    def steps_of(self, fmt: Format) -> Steps:
        """Return the steps in a format."""
        return self.fixed if is_two_s_complement(fmt) else self.floating

    @property
    def is_alike(self) -> bool:
        """Whether two's complement and sign and magnitude are rounded alike."""
        # with random bits, negative numbers of two's complement step by another test, even if the steps are equal
        return not self.draws and self.fixed == self.floating

    def looked_at_bits(self, n_rbits: int) -> int:
        """Return how many bits behind the last place decide, beside whether any other is 1."""
        # Without random bits one does: with the sticky bit it tells the four places apart. Random bits are compared
        # with as many dropped ones; modes that round these to nearest first look at one more.
        return n_rbits + (self.fixed.tells_half or self.floating.tells_half) if self.draws else 1


def is_two_s_complement(fmt: Format) -> bool:
    """Return whether a format's negative numbers are in two's complement, or it has none; else the sign is a bit."""
    return isinstance(fmt, Fixed) and not fmt.sign_magnitude


class Rounding(StrEnum):
    """Where an exact result between two neighbours of the target's grid goes.

    A name says where ties go, or the direction. `value` is the text form. The order of the members gives the number
    that kernels use, so a new mode comes last. Each mode's meaning is a line of the table below.

    Source: docs/concepts/rounding.md; IEEE 754-2019 section 4.3; IEEE 1666 section 7.10.
    """

    #: nearest, ties to the even code
    NEAREST_EVEN = "nearest_even"
    #: nearest, ties away from zero
    NEAREST_AWAY = "nearest_away"
    #: nearest, ties toward +inf: add half, drop bits
    NEAREST_UP = "nearest_up"
    #: nearest, ties toward -inf
    NEAREST_DOWN = "nearest_down"
    #: nearest, ties toward zero
    NEAREST_ZERO = "nearest_zero"
    #: toward -inf: drop two's-complement bits
    FLOOR = "floor"
    #: toward +inf
    CEIL = "ceil"
    #: toward zero: drop magnitude bits
    TOWARD_ZERO = "toward_zero"
    #: inexact results go to the neighbour whose last bit is 1 (von Neumann)
    TO_ODD = "to_odd"
    #: add u/2**r ulp and drop bits, u uniform in 0..2**r-1
    STOCHASTIC = "stochastic"
    #: round to r bits more, nearest with ties to even; then add u/2**r ulp and drop bits
    STOCHASTIC_NEAREST_EVEN = "stochastic_nearest_even"
    #: the same, the first rounding with ties to odd
    STOCHASTIC_NEAREST_ODD = "stochastic_nearest_odd"
    #: the same, with ties upward (in floats: away from zero): add (u + 1/2)/2**r ulp and drop bits
    STOCHASTIC_NEAREST_UP = "stochastic_nearest_up"
    #: nearest, ties to the odd code
    NEAREST_ODD = "nearest_odd"
    #: away from zero
    AWAY_FROM_ZERO = "away_from_zero"
    #: drop bits and set the last one to 1, of exact results too
    JAMMING = "jamming"
    #: drop two's-complement bits and add the sign bit, of exact results too; floats go toward zero
    MAGNITUDE_TRUNCATION = "magnitude_truncation"

    @property
    def number(self) -> int:
        """The mode as the integer that kernels take, in the order of the members: 0 nearest_even, 1 nearest_away ..."""
        return _NUMBERS[self]

    @property
    def meaning(self) -> Meaning:
        """What the mode does."""
        return _TABLE[self]

    @property
    def draws(self) -> bool:
        """Whether random bits decide."""
        return _TABLE[self].draws

    @property
    def moves_exact(self) -> bool:
        """Whether results that are values of a fixed-point or of a floating-point format move too."""
        return _TABLE[self].fixed.moves_exact or _TABLE[self].floating.moves_exact

    @classmethod
    def parse(cls, name: str | Rounding) -> Rounding:
        """Return the mode called `name`, by the name it has here, in a standard or in another library.

        Raises:
            FormatError: no such mode; names the nearest one. Or the name means several modes; names them.

        Examples:
            >>> [Rounding.parse(name).value for name in ("AP_TRN", "RNE", "roundTowardZero", "ROUND_HALF_UP")]
            ['floor', 'nearest_even', 'toward_zero', 'nearest_away']
        """
        known = [mode.value for mode in cls]
        if isinstance(name, str) and name in known:  # pyright: ignore[reportUnnecessaryIsInstance]
            return cls(name)
        text = str(name)
        if mode := _OTHER_NAMES.get(text):
            return mode
        hint = AMBIGUOUS_ROUNDINGS.get(text.lower()) or nearest_name(text.lower(), known, cls.NEAREST_EVEN.value)
        raise FormatError(f"`rounding` must be a rounding mode, got {name!r}{hint}")


# the numbers that kernels take, so that a new mode comes last
_NUMBERS = {mode: number for number, mode in enumerate(Rounding)}
_NAMELESS = Names()
#: Where the overflow of a float stays at the largest value. IEEE 754-2019 section 7.4: to nearest it becomes infinite;
#: toward zero it stays; toward one infinity, that one alone is reached. Of the other modes,
#: those that drop bits or set the last one stay, too.
_INFINITE, _LARGEST, _LARGEST_ABOVE, _LARGEST_BELOW = (False, False), (True, True), (True, False), (False, True)


def _mode(
    words: str,
    positive: str,
    negative: str | None = None,
    *,
    floating: tuple[str, str | None] | None = None,
    stays: tuple[bool, bool] = _INFINITE,
    draws: bool = False,
    names: Names = _NAMELESS,
) -> Meaning:
    """Return a line of the table: words, steps by their letters, those of floats if they differ."""
    fixed = Steps.of(positive, negative)
    return Meaning(words, fixed, fixed if floating is None else Steps.of(*floating), stays, draws, names)


#: Letters stand for exact, below half, half, above half; two words for even and odd codes. Where positive and negative
#: results differ, a step is still one of the magnitude: `floor` drops bits of two's complement, which moves negative
#: results away from zero.
_TABLE = {
    Rounding.NEAREST_EVEN: _mode(
        "to the nearest value, ties to even",
        "...+ ..++",
        names=Names("roundTiesToEven", "RND_CONV", gfloat="TiesToEven", apytypes="TIES_EVEN"),
    ),
    Rounding.NEAREST_AWAY: _mode(
        "to the nearest value, ties away from zero",
        "..++",
        names=Names("roundTiesToAway", "RND_INF", gfloat="TiesToAway", apytypes="TIES_AWAY"),
    ),
    Rounding.NEAREST_UP: _mode(
        "to the nearest value, ties upward", "..++", "...+", names=Names(systemc="RND", apytypes="TIES_POS")
    ),
    Rounding.NEAREST_DOWN: _mode(
        "to the nearest value, ties downward", "...+", "..++", names=Names(systemc="RND_MIN_INF", apytypes="TIES_NEG")
    ),
    Rounding.NEAREST_ZERO: _mode(
        "to the nearest value, ties toward zero", "...+", names=Names(systemc="RND_ZERO", apytypes="TIES_ZERO")
    ),
    Rounding.FLOOR: _mode(
        "toward minus infinity (low bits dropped)",
        "....",
        ".+++",
        stays=_LARGEST_ABOVE,
        names=Names("roundTowardNegative", "TRN", "TowardNegative", "TO_NEG"),
    ),
    Rounding.CEIL: _mode(
        "toward plus infinity",
        ".+++",
        "....",
        stays=_LARGEST_BELOW,
        names=Names("roundTowardPositive", "", "TowardPositive", "TO_POS"),
    ),
    Rounding.TOWARD_ZERO: _mode(
        "toward zero", "....", stays=_LARGEST, names=Names("roundTowardZero", "TRN_ZERO", "TowardZero", "TO_ZERO")
    ),
    Rounding.TO_ODD: _mode(
        "inexact results to the neighbour with last bit 1",
        ".+++ ....",
        stays=_LARGEST,
        names=Names(apytypes="JAM_UNBIASED"),
    ),
    Rounding.STOCHASTIC: _mode(
        "up or down at random, in proportion to the distance",
        "....",
        ".+++",
        floating=("....", None),
        draws=True,
        names=Names(gfloat="StochasticFastest"),
    ),
    Rounding.STOCHASTIC_NEAREST_EVEN: _mode(
        "up or down at random, in proportion to the distance, itself rounded to nearest even",
        "...+ ..++",
        draws=True,
        names=Names(gfloat="Stochastic"),
    ),
    Rounding.STOCHASTIC_NEAREST_ODD: _mode(
        "up or down at random, in proportion to the distance, itself rounded to nearest odd",
        "..++ ...+",
        draws=True,
        names=Names(gfloat="StochasticOdd"),
    ),
    Rounding.STOCHASTIC_NEAREST_UP: _mode(
        "up or down at random, in proportion to the distance, itself rounded to nearest, ties up",
        "..++",
        "...+",
        floating=("..++", None),
        draws=True,
        names=Names(gfloat="StochasticFast"),
    ),
    Rounding.NEAREST_ODD: _mode(
        "to the nearest value, ties to odd", "..++ ...+", names=Names(systemc="RND_CONV_ODD", apytypes="TIES_ODD")
    ),
    Rounding.AWAY_FROM_ZERO: _mode("away from zero", ".+++", names=Names(apytypes="TO_AWAY")),
    Rounding.JAMMING: _mode(
        "low bits dropped and the last one set to 1, of exact results too",
        # a negative number in two's complement whose last bit is set grows by one, so that its magnitude shrinks
        "++++ ....",
        "-+++ ....",
        floating=("++++ ....", None),
        stays=_LARGEST,
        names=Names(apytypes="JAM"),
    ),
    Rounding.MAGNITUDE_TRUNCATION: _mode(
        "low bits dropped and the sign bit added, of exact results too; floats toward zero",
        "....",
        # floor plus the sign bit: an inexact negative result comes back to the neighbour
        # toward zero, an exact negative result moves a step toward zero
        "-...",
        floating=("....", None),
        stays=_LARGEST,
        names=Names(apytypes="TRN_MAG"),
    ),
}
#: Modes by their names in standards and other libraries. gfloat's Stochastic, our stochastic_nearest_even, differs from
#: our stochastic in one capital letter alone, so it is not read.
_OTHER_NAMES = {
    name: mode
    for mode in Rounding
    for name in (
        *(mode.meaning.names.systemc and prefix + mode.meaning.names.systemc for prefix in ("", *PREFIXES)),
        *mode.meaning.names,
        *ROUNDING_NAMES.get(mode.value, ()),
    )
    if name not in ("", "Stochastic")
}
