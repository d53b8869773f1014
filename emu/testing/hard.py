"""The numbers that break hardware, without Hypothesis: a table of edges, and arrays filled from a seed.

    edges        0, +-1, extremes, the ends of the subnormals and their neighbours, infinities, NaN
    carries      x..x 0111..1 and x..x 1000..0: one more ulp ripples through every bit
    cancelling   a value and its negative side by side along the last axis
    ties         halfway between two values, and one float64 step to either side

An element depends on the seed and its place alone, e = f(seed, place). So a part of an array holds the same elements,
and a failing array can shrink (`bulk_arrays`).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.formats import Fixed, Float, Format

Array = NDArray[Any]
Noise = NDArray[np.uint64]
LARGEST_FLOAT = sys.float_info.max
_MASK = (1 << 64) - 1
#: The increment of splitmix64: the fraction of the golden ratio, times 2**64, made odd.
_STRIDE = 0x9E3779B97F4A7C15
#: How often, in sixteenths, a code is an edge or carries far; the rest is uniform.
EDGES, CARRIES = 6, 3
#: One pair of neighbours in so many cancels.
CANCELLING = 8


@dataclass(frozen=True)
class Places:
    """Where the elements of an array stand in the endless array of its seed.

    Attributes:
        seed: which endless array.
        starts: first place along each axis.
        shape: places along each axis.
    """

    seed: int
    starts: tuple[int, ...]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, seed: int, shape: tuple[int, ...]) -> Places:
        """Return the places of an array that begins at the origin."""
        return cls(seed, (0,) * len(shape), shape)

    def noise(self, salt: int, *, paired: bool = False) -> Noise:
        """Return 64 well-mixed bits per place; with `paired` the same ones for neighbours 2j and 2j+1."""
        # Mixed with the place of one axis after the other, by broadcasting: every element gets the same bits whatever
        # the start and the shape of the array it is drawn in.
        mixed = _mixed(np.full((1,) * len(self.shape), (self.seed ^ (salt * _STRIDE)) & _MASK, np.uint64))
        for axis, (start, size) in enumerate(zip(self.starts, self.shape, strict=True)):
            along = np.arange(start, start + size, dtype=np.uint64)
            if paired and axis == len(self.shape) - 1:
                # both neighbours take the even place
                along &= ~np.uint64(1)
            mixed = _mixed(mixed ^ (along * np.uint64(_STRIDE)).reshape(-1, *[1] * (len(self.shape) - axis - 1)))
        return mixed

    def second_of_pair(self) -> NDArray[np.bool_]:
        """Return, per place, whether it repeats its left neighbour with the sign changed."""
        if not self.shape:
            return np.zeros((), bool)
        odd = (np.arange(self.shape[-1]) + self.starts[-1]) % 2 == 1
        # places count from the origin of the endless array, so a window that starts at an odd place keeps its pairs
        return (self.noise(1, paired=True) % np.uint64(CANCELLING) == 0) & odd

    def drawn(self, salt: int, seconds: NDArray[np.bool_]) -> Noise:
        """Return noise in which the second of a cancelling pair is its left neighbour."""
        return np.where(seconds, self.noise(salt, paired=True), self.noise(salt))


def _mixed(x: Noise) -> Noise:
    """Source: the finaliser of splitmix64; Steele, Lea, Flood, "Fast splittable pseudorandom numbers", OOPSLA 2014."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def hard_codes(fmt: Format, places: Places) -> NDArray[np.uint64]:
    """Return codes of `fmt`, special ones included, uint64, in the shape of the places."""
    seconds = places.second_of_pair()
    choice, body = places.drawn(2, seconds), places.drawn(3, seconds)
    code = body & np.uint64(fmt.n_codes - 1)
    kind = choice & np.uint64(15)
    # the order matters: kinds 0 to 5 are edges, which replace what the carries (kinds 0 to 8) gave; 9 to 15 stay
    # uniform
    code = np.where(kind < EDGES + CARRIES, _carry(code, choice >> np.uint64(8), fmt.width_bits), code)
    code = np.where(kind < EDGES, _picked(edge_codes(fmt), choice), code)
    return np.where(seconds, negated(fmt, code), code)


def negated(fmt: Format, code: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the codes of the negatives; codes without one (unsigned, the only zero, a NaN coded as -0) stay."""
    if isinstance(fmt, Float) and fmt.signed:
        sign = np.uint64(fmt.sign_code)
        # without -0 its code is a NaN, and that of 0 has no negative
        return code ^ sign if fmt.has_negative_zero else np.where(code & ~sign == 0, code, code ^ sign)
    if isinstance(fmt, Fixed) and fmt.sign_magnitude:  # of the sign alone, which is read as 0, too
        magnitude = code & np.uint64(fmt.max_raw)
        return np.where(magnitude == 0, code, code ^ np.uint64(fmt.max_raw + 1))
    # two's complement; 0 and the lowest number map to themselves
    return (~code + np.uint64(1)) & np.uint64(fmt.n_codes - 1) if fmt.signed else code


def _carry(code: NDArray[np.uint64], choice: Noise, bits: int) -> NDArray[np.uint64]:
    """Replace the low end of codes by 0111..1 or 1000..0 of random length."""
    length = choice % np.uint64(bits)
    # bit `length` and all below are replaced: by 1000..0 (top) or by 0111..1 (top - 1)
    top = np.uint64(1) << length
    rest = code & ~(top | (top - np.uint64(1)))
    return rest | np.where((choice >> np.uint64(32)) & np.uint64(1), top, top - np.uint64(1))


def _picked(table: list[int], choice: Noise) -> NDArray[np.uint64]:
    return np.array(table, np.uint64)[(choice >> np.uint64(16)) % np.uint64(len(table))]


def hard_values(fmt: Format, places: Places, *, nan: bool = True, infinity: bool = True) -> Array:
    """Return values of `fmt` in its carrier; if NaN or infinity is unwanted the largest value stands instead."""
    values = fmt.decode(hard_codes(fmt, places))
    if isinstance(fmt, Fixed):
        return values
    unwanted = (np.isnan(values) & (not nan)) | (np.isinf(values) & (not infinity))
    return np.where(unwanted, values.dtype.type(fmt.max), values)


def hard_reals(fmt: Format, places: Places, *, nan: bool = True, infinity: bool = True) -> NDArray[np.float64]:
    """Return real numbers to be rounded into `fmt`: its values, ties, their neighbours, and what lies beyond."""
    # bits of `choice`: 0-3 kind, 4 tie, 5-6 side, 7 sign, from 8 on the length of a carry, from 16 on an edge
    seconds = places.second_of_pair()
    choice, body = places.drawn(2, seconds), places.drawn(3, seconds)
    # uniform ones stay below the last index, so that their tie lies within the range; edges and carries go beyond
    index = body % np.uint64(max(last_index(fmt), 1))
    kind = choice & np.uint64(15)
    bits = max(last_index(fmt).bit_length(), 1)
    index = np.where(kind < EDGES + CARRIES, _carry(index, choice >> np.uint64(8), bits), index)
    # last + 1 of an unsigned word of 64 bits is 2**64, which no uint64 is
    index = np.where(kind < EDGES, _picked([i for i in edge_indices(fmt) if i <= _MASK], choice), index)
    magnitude = magnitudes(fmt, index, (choice >> np.uint64(4)) & np.uint64(1))
    # where `nextafter` goes, by two bits: half of the numbers stay
    side = np.array([0.0, 0.0, np.inf, -np.inf])[(choice >> np.uint64(5)) & np.uint64(3)]
    with np.errstate(over="ignore", under="ignore"):
        magnitude = np.where(side == 0, magnitude, np.nextafter(magnitude, side))
    anything = _any_float(body, nan=nan, infinity=infinity)
    # an infinity comes only from `_any_float`, so that `infinity` governs it; a magnitude beyond float64 becomes its
    # largest
    value = np.where(kind == 15, anything, np.minimum(magnitude, LARGEST_FLOAT))
    negative = ((choice >> np.uint64(7)) & np.uint64(1)).astype(bool) ^ seconds
    return np.where(negative, -value, value)


def _any_float(noise: Noise, *, nan: bool, infinity: bool) -> NDArray[np.float64]:
    """Return any float64 at all, or now and then a special one."""
    special = [*([np.nan] if nan else []), *([np.inf] if infinity else []), 0.0]
    # without the sign bit: `hard_reals` draws the sign
    number = (noise & np.uint64(_MASK >> 1)).view(np.float64)
    # patterns that happen to be NaN or infinite are replaced too: the options decide whether those come up
    rare = (noise & np.uint64(3) == 0) | ~np.isfinite(number)
    return np.where(rare, np.array(special)[(noise >> np.uint64(2)) % np.uint64(len(special))], number)


# Indices count the steps of a format's grid from 0; it goes on past the largest value, and down to a zero without code.


def last_index(fmt: Format) -> int:
    """Return the index of the largest value."""
    return fmt.max_index if isinstance(fmt, Float) else fmt.max_raw


def normal_index(fmt: Format) -> int:
    """Return the index of the smallest normal value, or of where it would be; 0 in fixed point, without subnormals."""
    return (1 << fmt.fraction_bits) + fmt.hidden_one if isinstance(fmt, Float) else 0


def magnitudes(fmt: Format, index: NDArray[np.uint64], halves: Any) -> NDArray[np.float64]:
    """Return the grid's number at `index` plus `halves` times half its ulp, float64 (rounded if that is too narrow)."""
    if isinstance(fmt, Fixed):
        significand, exponent = index, np.full(1, -fmt.frac_bits, np.int32)
    else:
        # index = (exponent field << fraction_bits) + fraction; fields 0 and 1 have the same exponent, emin
        field = index >> np.uint64(fmt.fraction_bits)
        hidden = np.where(field > 0, np.uint64(1 << fmt.fraction_bits), np.uint64(0))
        significand = (index & np.uint64((1 << fmt.fraction_bits) - 1)) + hidden
        exponent = (np.maximum(field, np.uint64(1)).astype(np.int32) - 1) + (fmt.emin - fmt.fraction_bits)
    with np.errstate(over="ignore", under="ignore"):
        value = np.ldexp(significand.astype(np.float64) + np.asarray(halves) * 0.5, exponent)
    return np.minimum(value, LARGEST_FLOAT)


def magnitude(fmt: Format, index: int) -> Fraction:
    """Return the grid's nonnegative number at `index`, exactly."""
    if isinstance(fmt, Fixed):
        return index * Fraction(2) ** -fmt.frac_bits
    field, fraction = divmod(index, 1 << fmt.fraction_bits)
    significand = fraction + (1 << fmt.fraction_bits) if field else fraction
    return significand * Fraction(2) ** (max(field, 1) - 1 + fmt.emin - fmt.fraction_bits)


@lru_cache(maxsize=256)
def edge_indices(fmt: Format) -> list[int]:
    """Return the indices of 0, 1, the extremes, the ends of the subnormals, and their neighbours."""
    last = last_index(fmt)
    marks = [0, last]
    if isinstance(fmt, Float):
        normal = normal_index(fmt)
        # the binade after that of the smallest normal starts at 2 * normal (2 steps below it if the hidden bit is
        # always one); the last mark is the index of 1.0
        marks += [fmt.lowest_index, normal, 2 * normal, (1 - fmt.emin) << fmt.fraction_bits if fmt.emin < 1 else 0]
    else:
        # the raw of 1.0, if the format reaches it
        marks += [1 << fmt.frac_bits if 0 <= fmt.frac_bits < 64 else 1]
    near = {mark + offset for mark in marks for offset in (-2, -1, 0, 1, 2)}
    # last + 1 is the first number beyond the range; codes leave it out (`edge_codes`)
    return sorted(index for index in near if 0 <= index <= last + 1)


@lru_cache(maxsize=256)
def edge_codes(fmt: Format) -> list[int]:
    """Return the codes of `edge_indices` of either sign, infinities and NaNs."""
    lowest = fmt.lowest_index if isinstance(fmt, Float) else 0
    # the code of a magnitude is its index less that of code 0
    magnitudes_ = [i - lowest for i in edge_indices(fmt) if lowest <= i <= last_index(fmt)]
    if isinstance(fmt, Fixed):
        sign = 1 << (fmt.width_bits - 1)  # alone it is the lowest number, or, beside a magnitude, read as 0
        negatives = [sign | i if fmt.sign_magnitude else fmt.n_codes - i for i in magnitudes_ if i > 0] + [sign]
        return [*magnitudes_, *(sorted(negatives) if fmt.signed else [])]
    positive = [*magnitudes_, *(c for c in (fmt.infinity_code, fmt.nan_code) if c is not None)]
    return sorted({*positive, *(c | fmt.sign_code for c in positive if fmt.signed)})
