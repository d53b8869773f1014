"""Fixed-point formats: a two's-complement word and the place of its binary point.

    value = raw * 2**-frac_bits          code = raw mod 2**width_bits

A word of sign and magnitude has the sign in its highest bit, and |raw| in the others:

    fix8f0                  -3 is 1111_1101, -128 is 1000_0000
    fix8f0 sign-magnitude   -3 is 1000_0011, and 1000_0000 is read as 0

`frac_bits` may be negative (the last bit weighs more than one) or exceed the width (leading fraction bits are implied).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu._drawn import Drawn
from emu.errors import FormatError
from emu.formats.arrays import (
    as_bool,
    as_float64,
    code_dtype_for,
    require_all,
    require_codes,
)
from emu.formats.integers import as_integer
from emu.formats.membership import fixed_members
from emu.formats.numbers import as_codes, as_fraction, as_integers, as_numbers, holds_integers

Array = NDArray[Any]

MAX_WIDTH_BITS = 64
#: What the text form of a word says that is a sign and a magnitude.
SIGN_MAGNITUDE = "sign-magnitude"
#: float64 holds every integer up to here. Larger ones are compared as Python integers: a cast would round them, and a
#: number between two values could pass for one.
EXACT_INTEGERS = 2**53
# Far beyond the exponents of float64, -1074..1023, and of products of two such numbers.
FRAC_BITS_LIMIT = 4096


@lru_cache(maxsize=1024)
def _real(raw: int, frac_bits: int) -> float | Fraction:
    """Return a value; cached, since those of formats are asked for in each step of training."""
    # float() rounds, so the result counts only if it equals the fraction; beyond float64 it raises
    exact = Fraction(raw) * Fraction(2) ** -frac_bits
    try:
        near = float(exact)
    except OverflowError:
        return exact
    return near if near == exact else exact


@dataclass(frozen=True)
class Fixed(Drawn):
    """A fixed-point format of `width_bits` bits, `frac_bits` of them behind the binary point.

    Attributes:
        width_bits: bits of the word, 1..64, sign bit included.
        frac_bits: fraction bits; negative or above the width is allowed.
        signed: two's complement if true, else unsigned.
        sign_magnitude: whether a signed word is a sign bit and a magnitude instead. Then the smallest raw is minus the
            largest one; 0 is written as code 0, and the code that has the sign bit alone is read as 0.

    Raises:
        FormatError: `width_bits` is outside 1..64, a number is not an integer, `signed` or `sign_magnitude` is not a
            bool, or a word of sign and magnitude is unsigned or has 1 bit.

    Examples:
        >>> fmt = Fixed(16, 8)
        >>> fmt.min, fmt.max, fmt.ulp()
        (-128.0, 127.99609375, 0.00390625)
        >>> fmt.encode(np.array([1.5, -1.0]))
        array([  384, 65280], dtype=uint16)
        >>> fmt = Fixed(16, 8, sign_magnitude=True)
        >>> fmt.min, fmt.encode(np.array([1.5, -1.0])), fmt.decode(0x8000).item()
        (-127.99609375, array([  384, 33024], dtype=uint16), 0.0)

    Source: docs/concepts/formats.md; IEEE 1666 (SystemC) section 7.10 for the aliases.
    """

    width_bits: int
    frac_bits: int
    signed: bool = True
    sign_magnitude: bool = False

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "width_bits", as_integer("width_bits", self.width_bits, 1, MAX_WIDTH_BITS))
        set_field(self, "frac_bits", as_integer("frac_bits", self.frac_bits, -FRAC_BITS_LIMIT, FRAC_BITS_LIMIT))
        set_field(self, "signed", as_bool("signed", self.signed))
        set_field(self, "sign_magnitude", as_bool("sign_magnitude", self.sign_magnitude))
        if self.sign_magnitude:
            _require_magnitude(self)

    def __repr__(self) -> str:
        sign = "" if self.signed else ", signed=False"
        magnitude = ", sign_magnitude=True" if self.sign_magnitude else ""
        return f"Fixed({self.width_bits}, {self.frac_bits}{sign}{magnitude})"

    def __str__(self) -> str:
        option = f" {SIGN_MAGNITUDE}" if self.sign_magnitude else ""
        return f"{'' if self.signed else 'u'}fix{self.width_bits}f{self.frac_bits}{option}"

    @property
    def min_raw(self) -> int:
        """Smallest raw integer."""
        if self.sign_magnitude:
            return -self.max_raw
        return -(1 << (self.width_bits - 1)) if self.signed else 0

    @property
    def max_raw(self) -> int:
        """Largest raw integer."""
        return (1 << (self.width_bits - self.signed)) - 1

    @property
    def min(self) -> float | Fraction:
        """Smallest value; a `Fraction` if float64 cannot hold it."""
        return _real(self.min_raw, self.frac_bits)

    @property
    def max(self) -> float | Fraction:
        """Largest value; a `Fraction` if float64 cannot hold it."""
        return _real(self.max_raw, self.frac_bits)

    @property
    def smallest_positive(self) -> float | Fraction:
        """Smallest value above zero: one unit of the last place (0 if the format has no positive value)."""
        return _real(1, self.frac_bits) if self.max_raw else 0.0

    def ulp(self, value: float = 0.0) -> float | Fraction:
        """Distance from `value` to the next value of larger magnitude; the same for every value."""
        return _real(1, self.frac_bits)

    @property
    def n_codes(self) -> int:
        """Number of codes, all of them values; of sign and magnitude, two of them 0."""
        return 1 << self.width_bits

    @cached_property
    def carrier(self) -> np.dtype[Any]:
        """Dtype of the arrays that carry values: float32, float64, or int64/uint64 raws if those are too narrow."""
        significant = self.width_bits - self.signed  # the most negative value needs one bit only
        # the last place, 2**-frac_bits, and the most negative value, -2**(significant - frac_bits), are the extremes
        # precision, smallest subnormal and largest power of two of float32, then of float64: every raw is exact
        if significant <= 24 and -self.frac_bits >= -149 and significant - self.frac_bits <= 127:
            return np.dtype(np.float32)
        if significant <= 53 and -self.frac_bits >= -1074 and significant - self.frac_bits <= 1023:
            return np.dtype(np.float64)
        return np.dtype(np.int64 if self.signed else np.uint64)

    @property
    def carries_raws(self) -> bool:
        """Whether arrays of this format hold raw integers instead of values."""
        return self.carrier.kind in "iu"

    @property
    def code_dtype(self) -> np.dtype[Any]:
        """Smallest unsigned dtype that holds a code."""
        return code_dtype_for(self.width_bits)

    def codes(self) -> Array:
        """Return every code in order, shape `(2**width_bits,)`; formats of up to 16 bits.

        Raises:
            FormatError: the format has more than 16 bits.
        """
        return require_codes(self)

    def contains(self, values: Array) -> NDArray[np.bool_]:
        """Return, per element, whether it is a value of this format. -0.0 counts as 0; NaN and infinities do not."""
        values = as_numbers(values, "values")
        # raws in an integer array are compared as they are; floats and fractions given for such a format are values
        if self.carries_raws and holds_integers(values):
            return np.asarray((values >= self.min_raw) & (values <= self.max_raw), dtype=bool)
        if values.dtype.kind in "iu" and max(int(values.max(initial=0)), -int(values.min(initial=0))) > EXACT_INTEGERS:
            values = values.astype(object)
        if values.dtype == object:
            return self._contains_fractions(values)
        floats = values if values.dtype.kind == "f" else as_float64(values)
        # None if 2**frac_bits is no normal float64: then a product with it may round
        inside = fixed_members(floats, self.frac_bits, self._lower_bound, self.max_raw + 1, is_open=self.sign_magnitude)
        return self._contains_floats(as_float64(floats)) if inside is None else inside

    @property
    def _lower_bound(self) -> int:
        """Smallest raw; of sign and magnitude the integer below it, for floats may not hold that raw."""
        return -(1 << (self.width_bits - 1)) if self.signed else 0

    def _contains_floats(self, wide: NDArray[np.float64]) -> NDArray[np.bool_]:
        # Scaling by a power of two is exact unless it overflows or meets the subnormals: then the way back differs. The
        # upper limit is compared as max_raw + 1, a power of two: float64 would round a max_raw of more than 53 bits.
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            raw = np.ldexp(wide, self.frac_bits)
            back = np.ldexp(raw, -self.frac_bits)
            above = raw > self._lower_bound if self.sign_magnitude else raw >= self._lower_bound
            inside = above & (raw < float(self.max_raw + 1))
            return np.isfinite(wide) & inside & (raw == np.floor(raw)) & (back == wide)

    def _contains_fractions(self, values: Array) -> NDArray[np.bool_]:
        # Python's integers have no limit, so that nothing here overflows
        inside = [raw is not None and self.min_raw <= raw <= self.max_raw for raw in map(self._raw_of, values.flat)]
        return np.array(inside, dtype=bool).reshape(values.shape)

    def _raw_of(self, x: Any) -> int | None:
        """Return the raw of one number, None if it lies between two values or is not finite."""
        exact = as_fraction(x)
        raw = None if exact is None else exact * Fraction(2) ** self.frac_bits
        return None if raw is None or raw.denominator != 1 else raw.numerator

    def to_raw(self, values: Array) -> NDArray[np.int64] | NDArray[np.uint64]:
        """Return the raw integers of `values`, int64 (uint64 for an unsigned format of 64 bits).

        Args:
            values: any shape; values of this format, or its raws in an integer dtype if it carries raws.

        Raises:
            FormatError: an element is not a value of this format (NaN, infinite, between two values, out of range).
        """
        values = as_numbers(values, "values")
        require_all(self, values, self.contains(values))
        return self.raw_of_members(values)

    def raw_of_members(self, values: Array) -> NDArray[np.int64] | NDArray[np.uint64]:
        """Return the raw integers of numbers that are known to be values of this format; see `to_raw`."""
        # only unsigned words of 64 bits have raws beyond int64
        wide: np.dtype[Any] = np.dtype(np.uint64 if self.max_raw > np.iinfo(np.int64).max else np.int64)
        if self.carries_raws and values.dtype.kind in "iu":
            return values.astype(wide)
        if values.dtype == object:
            return np.array([self._raw_of(x) for x in values.flat], dtype=wide).reshape(values.shape)
        # A member times 2**frac_bits is its raw, an integer of at most 53 significant bits: ldexp rounds nothing.
        with np.errstate(invalid="ignore"):  # of numbers that were not checked, any raw will do
            return np.ldexp(values.astype(np.float64), self.frac_bits).astype(wide)

    def from_raw(self, raw: Array) -> Array:
        """Return the carrier of raw integers: values, or the raws themselves if the format carries raws.

        Raises:
            FormatError: something else than integers, or one outside `min_raw`..`max_raw`.
        """
        raws = as_integers(raw, "raw")
        require_all(self, raws, (raws >= self.min_raw) & (raws <= self.max_raw), what="raw")
        if self.carries_raws:
            return raws.astype(self.carrier)
        # formats that do not carry raws have at most 53 bits: float64 holds the raw, and the carrier the value
        return np.ldexp(raws.astype(np.float64), -self.frac_bits).astype(self.carrier)

    def encode(self, values: Array) -> Array:
        """Return the codes of `values`: the smallest unsigned dtype, the shape of `values`. -0.0 encodes as 0.

        Raises:
            FormatError: an element is not a value of this format; names the first one.
        """
        raw = self.to_raw(values)
        # no overflow in np.abs: the smallest raw of sign and magnitude is -(2**63 - 1)
        if self.sign_magnitude:
            # 0 is not below 0, so that the code of the sign bit alone is never written
            sign = (raw < 0).astype(np.uint64) << np.uint64(self.width_bits - 1)
            return (np.abs(raw).astype(np.uint64) | sign).astype(self.code_dtype)
        word = raw.astype(np.uint64, casting="unsafe")  # modulo 2**64: two's complement
        return (word & np.uint64(self.n_codes - 1)).astype(self.code_dtype)

    def decode(self, codes: Array) -> Array:
        """Return the values of `codes` in the carrier dtype. Never produces -0.0.

        Raises:
            FormatError: something else than integers, or a code that does not fit the width.
        """
        wide = as_codes(self, codes)
        if not self.signed:
            return self.from_raw(wide)
        # the code of the sign bit alone has magnitude 0, and -0 is 0 among integers
        if self.sign_magnitude:
            magnitude = (wide & np.uint64(self.max_raw)).astype(np.int64)
            return self.from_raw(np.where(wide > np.uint64(self.max_raw), -magnitude, magnitude))
        # sign extension: shift the sign bit to the top of 64 bits, then back as a signed number
        spare = np.uint64(MAX_WIDTH_BITS - self.width_bits)
        return self.from_raw((wide << spare).view(np.int64) >> spare.astype(np.int64))


@dataclass(frozen=True)
class DynamicFixed(Drawn):
    """A fixed-point word whose binary point is chosen while the machine runs: `fix16f?`.

    Attributes:
        width_bits: bits of the word, 1..64.
        signed: two's complement if true, else unsigned.
        sign_magnitude: whether a signed word is a sign bit and a magnitude instead; see `Fixed`.
    """

    width_bits: int
    signed: bool = True
    sign_magnitude: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "width_bits", as_integer("width_bits", self.width_bits, 1, MAX_WIDTH_BITS))
        object.__setattr__(self, "signed", as_bool("signed", self.signed))
        object.__setattr__(self, "sign_magnitude", as_bool("sign_magnitude", self.sign_magnitude))
        if self.sign_magnitude:
            _require_magnitude(self)

    def __str__(self) -> str:
        option = f" {SIGN_MAGNITUDE}" if self.sign_magnitude else ""
        return f"{'' if self.signed else 'u'}fix{self.width_bits}f?{option}"

    def at(self, frac_bits: int) -> Fixed:
        """Return the fixed-point format with this many fraction bits."""
        return Fixed(self.width_bits, frac_bits, self.signed, self.sign_magnitude)


def _require_magnitude(word: Fixed | DynamicFixed) -> None:
    """Raise FormatError if a word of sign and magnitude has no sign, or nothing but the sign."""
    if not word.signed:
        raise FormatError(
            "a word of sign and magnitude must be signed, got signed=False; leave out one of `signed` and "
            "`sign_magnitude`"
        )
    if word.width_bits == 1:
        raise FormatError("`width_bits` of a word of sign and magnitude must be in 2..64, got 1; choose a larger one")
