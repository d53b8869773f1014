"""Floating-point formats: sign, biased exponent, fraction, and the codes set aside for infinity and NaN.

    | s | exponent field | fraction |
    field > 0:  (-1)**s * 2**(field - bias) * 1.fraction
    field = 0:  (-1)**s * 2**(1 - bias)     * 0.fraction         (subnormal)

An unsigned format has no s. Without exponent bits every code is subnormal. In a format without zero, field 0 has no
special meaning: 2**(-bias) * 1.fraction. In a format whose hidden bit is always one, this is so too, but field 0 with
fraction 0 is zero:

    e5m10 hidden-one    0x0000 is 0, 0x0001 is 2**-15 * (1 + 2**-10), 0x0400 is 2**-14

Infinity and NaN have the highest magnitudes, NaN above infinity, unless NaN is the code of -0. `nans` says which codes
are NaN: the all-ones exponent but for infinity ("ieee"), only the all-ones code ("top", OCP e4m3), the code of -0
("negative_zero", fnuz), or no code ("none"). Infinity, if there is one, is the highest magnitude below the NaNs (for
"ieee": the all-ones exponent with fraction 0).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any, Literal

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
from emu.formats.membership import FloatMembers, float_members
from emu.formats.numbers import as_codes, as_numbers, nearest_floats
from emu.formats.special_codes import require_hidden_one, require_special_codes, require_zero

Array = NDArray[Any]
NanCodes = Literal["ieee", "top", "negative_zero", "none"]
NAN_CODES: tuple[NanCodes, ...] = ("ieee", "top", "negative_zero", "none")
#: Those of float64, which must hold every value.
MAX_EXPONENT_BITS, MAX_FRACTION_BITS = 11, 52


@dataclass(frozen=True)
class Float(Drawn):
    """A binary floating-point format: a sign bit, `exponent_bits` and `fraction_bits`.

    Attributes:
        exponent_bits: width of the exponent field, 0..11.
        fraction_bits: stored fraction bits, 0..52.
        bias: exponent bias; None is replaced by 2**(exponent_bits-1) - 1, or by 0 without exponent bits.
        infinities: whether the format has +-inf, an unsigned one +inf.
        nans: which codes are NaN: "ieee", "top", "negative_zero" or "none".
        ftz: flush to zero: nonzero results below the smallest normal are written as 0 of their sign.
        daz: denormals are zero: subnormal operands count as 0 of their sign.
        signed: whether there is a sign bit.
        zero: whether code 0 is zero. If not (unsigned formats only), it is 2**-bias, and there are no subnormals.
        hidden_one: whether the hidden bit is one at exponent field 0 too, as in formats inside NVDLA. Then there are no
            subnormals: the smallest number is 2**-bias * (1 + 2**-fraction_bits). As under `ftz`, a small result is
            first rounded on that number's grid; if it then is smaller, as 2**-bias is, it is written as 0 of its sign.

    Raises:
        FormatError: a width is out of range, the special codes do not fit, or float64 cannot hold every value.

    Examples:
        >>> half = Float(5, 10)
        >>> half.max, half.smallest_normal, half.smallest_positive
        (65504.0, 6.103515625e-05, 5.960464477539063e-08)
        >>> Float(4, 3).max, Float(4, 3, infinities=False, nans="top").max
        (240.0, 448.0)
        >>> scale = Float(8, 0, infinities=False, nans="top", signed=False, zero=False)
        >>> scale.min, scale.max
        (5.877471754111438e-39, 1.7014118346046923e+38)
        >>> Float(5, 10, hidden_one=True).decode(np.array([0, 1, 0x400])).tolist()
        [0.0, 3.0547380447387695e-05, 6.103515625e-05]

    Source: IEEE 754-2019 section 3.4; OCP 8-bit Floating Point Specification 1.0, section 5; OCP Microscaling Formats
    Specification 1.0, section 5.4.1.
    """

    exponent_bits: int
    fraction_bits: int
    bias: int | None = None
    infinities: bool = True
    nans: NanCodes = "ieee"
    ftz: bool = False
    daz: bool = False
    signed: bool = True
    zero: bool = True
    hidden_one: bool = False

    def __post_init__(self) -> None:
        put = partial(object.__setattr__, self)
        put("exponent_bits", as_integer("exponent_bits", self.exponent_bits, 0, MAX_EXPONENT_BITS))
        put("fraction_bits", as_integer("fraction_bits", self.fraction_bits, 0, MAX_FRACTION_BITS))
        # wide enough for each bias that leaves all values within float64, which is checked below
        put("bias", self.default_bias if self.bias is None else as_integer("bias", self.bias, -2048, 2048))
        for name in ("infinities", "ftz", "daz", "signed", "zero", "hidden_one"):
            put(name, as_bool(name, getattr(self, name)))
        if self.nans not in NAN_CODES:
            raise FormatError(f"`nans` must be one of {', '.join(NAN_CODES)}, got {self.nans!r}")
        # These come first: the largest code and the top exponent mean something only if the special codes fit.
        require_special_codes(self)
        require_zero(self)
        require_hidden_one(self)
        # the exponents of the smallest step and of the highest binade bound those of all values
        lowest, highest = self.emin - self.fraction_bits, self._top_exponent
        if lowest < -1074 or highest > 1023:  # the smallest subnormal of float64, and its largest power of two
            raise FormatError(
                f"every value of a float format must be a float64, got exponents {lowest}..{highest} with `bias` "
                f"{self.bias}; choose a bias nearer to {self.default_bias}"
            )

    def __repr__(self) -> str:
        options = [
            f"{f.name}={getattr(self, f.name)!r}"
            for f in fields(self)[2:]
            if getattr(self, f.name) != (self.default_bias if f.name == "bias" else f.default)
        ]
        return f"Float({', '.join([str(self.exponent_bits), str(self.fraction_bits), *options])})"

    def __str__(self) -> str:
        return text_of_float(self)

    @property
    def default_bias(self) -> int:
        """The IEEE bias of this exponent width; 0 without exponent bits."""
        return (1 << (self.exponent_bits - 1)) - 1 if self.exponent_bits else 0

    @property
    def width_bits(self) -> int:
        """Bits of a code: sign, exponent, fraction."""
        return self.signed + self.exponent_bits + self.fraction_bits

    @property
    def significand_bits(self) -> int:
        """Precision p: the fraction and the leading bit."""
        return self.fraction_bits + 1

    @property
    def emin(self) -> int:
        """Exponent of the smallest normal; if all values are subnormal, that of the power of two above them."""
        assert self.bias is not None
        # the lowest exponent field whose hidden bit is 1: field 1 beside subnormals, else field 0
        return (self.zero and not self.hidden_one) - self.bias

    @property
    def has_subnormal_codes(self) -> bool:
        """Whether exponent field 0 means 0.fraction; else its hidden bit is one."""
        return self.zero and not self.hidden_one

    @property
    def lowest_index(self) -> int:
        """How many steps above zero code 0 lies: 0, or 2**fraction_bits if zero has no code.

        2**fraction_bits also if the hidden bit is always one: code 0 is zero then, but code 1 lies one step further up.
        """
        return 0 if self.zero and not self.hidden_one else 1 << self.fraction_bits

    @property
    def max_index(self) -> int:
        """How many steps the largest finite value lies above zero; they double in size from binade to binade."""
        return self.max_code + self.lowest_index

    @property
    def _top_exponent(self) -> int:
        """Exponent of the highest binade, that of the subnormals counting as the one above them."""
        # an index is (exponent field << fraction_bits) + fraction; fields 0 and 1 have the exponent emin
        return max(self.max_index >> self.fraction_bits, 1) + self.emin - 1

    @cached_property
    def emax(self) -> int:
        """Exponent of the largest finite value."""
        if self.has_normals:
            return self._top_exponent
        return self.emin - self.fraction_bits + self.max_index.bit_length() - 1  # a subnormal: index * 2**quantum

    @property
    def has_normals(self) -> bool:
        """Whether any value is normal; without exponent bits all are subnormal."""
        return self.max_index >> self.fraction_bits > 0

    @property
    def is_flushed(self) -> bool:
        """Whether subnormal operands or results count as 0."""
        return self.ftz or self.daz

    @property
    def _all_ones(self) -> int:
        # the highest magnitude code: all bits of exponent and fraction, without the sign
        return self.sign_code - 1

    @property
    def sign_code(self) -> int:
        """The sign bit; of an unsigned format, the number of its codes."""
        return 1 << (self.exponent_bits + self.fraction_bits)

    @cached_property
    def first_special_code(self) -> int:
        """First magnitude code that is not a finite value; every code from here on is infinity or NaN."""
        if self.nans == "ieee":
            # the all-ones exponent field, fraction 0
            return ((1 << self.exponent_bits) - 1) << self.fraction_bits
        # Counted from the top: a code for NaN if `nans` is `top`, then a
        # code for infinity. Other NaNs take none of these.
        return self._all_ones + 1 - (self.nans == "top") - self.infinities

    @property
    def max_code(self) -> int:
        """Code of the largest finite value."""
        return self.first_special_code - 1

    @property
    def infinity_code(self) -> int | None:
        """Code of +inf, or None."""
        return self.first_special_code if self.infinities else None

    @property
    def nan_code(self) -> int | None:
        """Canonical NaN code (positive, quiet, payload 0), or None."""
        if self.nans == "ieee":
            # a quiet NaN has the highest fraction bit set; without fraction bits the all-ones exponent alone is the NaN
            quiet = 1 << (self.fraction_bits - 1) if self.fraction_bits else 0
            return self.first_special_code | quiet
        return {"top": self._all_ones, "negative_zero": self.sign_code, "none": None}[self.nans]

    @property
    def has_negative_zero(self) -> bool:
        """Whether -0 is a value."""
        return self.signed and self.nans != "negative_zero"

    @cached_property
    def max(self) -> float:
        """Largest finite value."""
        return float(self._decode_magnitude(np.array(self.max_code, dtype=np.int64)))

    @property
    def min(self) -> float:
        """Smallest finite value: of an unsigned format 0, or the smallest one if it has no zero."""
        return -self.max if self.signed else 0.0 if self.zero else self.smallest_normal

    @property
    def smallest_normal(self) -> float:
        """Smallest normal value; if all values are subnormal, the power of two above them."""
        if self.hidden_one:  # the code of 2**emin is that of zero
            return math.ldexp((1 << self.fraction_bits) + 1, self.emin - self.fraction_bits)
        return math.ldexp(1.0, self.emin)

    @property
    def smallest_positive(self) -> float:
        """Smallest value above zero that an operation can write (the smallest normal under FTZ)."""
        # without fraction bits the only code at exponent field 0 is that of zero
        if self.ftz or self.fraction_bits == 0 or not self.has_subnormal_codes:
            return self.smallest_normal
        return math.ldexp(1.0, self.emin - self.fraction_bits)

    def ulp(self, value: float = 1.0) -> float:
        """Distance from `value` to the next value of larger magnitude.

        Nearer to 0 than the smallest value of a format without subnormals, it is the step right above that value.

        Args:
            value: any finite real. The grid is continued beyond the maximum, and down to 0 in a format that has no
                subnormals.

        Raises:
            FormatError: `value` is NaN, infinite, or no number.
        """
        try:
            is_finite = math.isfinite(value)
        except (TypeError, OverflowError):
            is_finite = False
        if not is_finite:
            raise FormatError(f"the ulp is defined at finite values, got {value!r}; choose a number up to {self.max}")
        # the significand that frexp gives lies in [0.5, 1): its leading bit weighs 2**(exponent - 1)
        exponent = max(math.frexp(value)[1] - 1, self.emin) if value else self.emin
        return math.ldexp(1.0, exponent - self.fraction_bits)

    @property
    def n_codes(self) -> int:
        """Number of codes, special ones included."""
        return 1 << self.width_bits

    @cached_property
    def carrier(self) -> np.dtype[Any]:
        """Dtype of the arrays that carry values: float32 if it holds every one of them, else float64."""
        # precision, smallest subnormal and largest exponent of float32
        narrow = self.significand_bits <= 24 and self.emin - self.fraction_bits >= -149 and self._top_exponent <= 127
        return np.dtype(np.float32 if narrow else np.float64)

    @property
    def carries_raws(self) -> bool:
        """Never: a float format's carrier holds values."""
        return False

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
        """Return, per element, whether it is a value of this format.

        NaN and infinities count if the format has them; -0.0 counts as 0 if there is no -0; subnormals always count.
        """
        values = as_numbers(values, "values")
        floats = nearest_floats(values)
        # magnitudes and special values are tested here, whatever the sign: float_members does not look at it
        members = FloatMembers(self.fraction_bits, self.emin, self.max, self.infinities, self.nans != "none")
        inside = float_members(floats, members)
        if self.hidden_one or not self.zero:
            # in float64: a limit that becomes a float32 may become 0. `~(a < b)`, not `a >= b`: NaN stays what
            # float_members says of it.
            wide = as_float64(floats)
            inside &= ((wide == 0) & self.zero) | ~(np.abs(wide) < self.smallest_normal)
        if not self.signed:
            inside &= ~(floats < 0)
        if values.dtype.kind in "iuO":  # a number that was rounded on the way to floats is no value; NaN equals nothing
            exact = floats.astype(object) == values.astype(object)
            inside &= exact.astype(bool) | np.isnan(floats)
        return inside

    def _split(self, magnitude: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return significand, an integer in units of the last place, and exponent; that of subnormals and 0 is emin."""
        exponent = np.maximum(np.frexp(magnitude)[1] - 1, self.emin).astype(np.int64)
        exponent = np.where(magnitude == 0, self.emin, exponent)
        # in two steps: one would overflow where the exponent range is that of float64
        half = (self.fraction_bits - exponent) // 2
        return np.ldexp(np.ldexp(magnitude, half), self.fraction_bits - exponent - half), exponent

    def encode(self, values: Array) -> Array:
        """Return the codes of `values`: the smallest unsigned dtype, the shape of `values`.

        NaN gets the canonical code, whatever its sign and payload. -0.0 encodes as 0 if the format has no -0.

        Raises:
            FormatError: an element is not a value of this format; names the first one.
        """
        values = as_numbers(values, "values")
        require_all(self, values, self.contains(values))
        wide = as_float64(values)
        significand, exponent = self._split(np.abs(np.where(np.isfinite(wide), wide, 0.0)))
        # The significand of a normal number has its leading bit at 2**fraction_bits. Added, this bit raises the
        # exponent field by 1, from exponent - emin to the biased exponent; a subnormal number has none, and the field
        # stays 0.
        # The sum is an index, as `max_index` is one: steps above zero.
        code = significand.astype(np.int64).astype(np.uint64) + (
            (exponent - self.emin).astype(np.uint64) << np.uint64(self.fraction_bits)
        )
        if self.hidden_one or not self.zero:
            # Codes count from code 0, which has the index `lowest_index`. Zero of
            # `hidden_one`, infinities and NaN get code 0 here.
            lowest = np.uint64(self.lowest_index)
            numbered = np.isfinite(wide) & ((wide != 0) | (not self.zero))
            code = np.where(numbered, code, lowest) - lowest
        # infinities and NaN, which counted as 0 above, get their codes here and below
        if self.infinity_code is not None:
            code = np.where(np.isinf(wide), np.uint64(self.infinity_code), code)
        negative = np.signbit(wide) & (self.has_negative_zero | (code != 0))
        code = np.where(negative, code | np.uint64(self.sign_code), code)
        # after the sign, which the code of a NaN does not take over
        if self.nan_code is not None:
            code = np.where(np.isnan(wide), np.uint64(self.nan_code), code)
        return code.astype(self.code_dtype)

    def decode(self, codes: Array) -> Array:
        """Return the values of `codes` in the carrier dtype, in the shape of `codes`.

        Subnormal codes under DAZ give 0 of their sign; +0 if the format has no -0.

        Raises:
            FormatError: `codes` are no integers, or one does not fit the width.
        """
        wide = as_codes(self, codes)
        magnitude_code = (wide & np.uint64(self._all_ones)).astype(np.int64)
        # clipped to max_code, so that special codes decode to some finite number, which is replaced below
        value = self._decode_magnitude(np.minimum(magnitude_code, self.max_code))
        if self.daz:  # only formats with subnormals at field 0 have it
            value = np.where(magnitude_code >> self.fraction_bits == 0, 0.0, value)
        special = magnitude_code >= self.first_special_code
        # -1 equals no magnitude code
        is_infinity = magnitude_code == (-1 if self.infinity_code is None else self.infinity_code)
        value = np.where(special, np.where(is_infinity, np.inf, np.nan), value)
        negative = wide >= np.uint64(self.sign_code)
        if self.nans == "negative_zero":
            value = np.where(wide == np.uint64(self.sign_code), np.nan, value)
        signed = negative & ~np.isnan(value) & (self.has_negative_zero | (value != 0))
        return np.where(signed, -value, value).astype(self.carrier)

    def _decode_magnitude(self, code: NDArray[np.int64]) -> NDArray[np.float64]:
        # Exponent field and fraction of the index, not of the code: if field 0 has a hidden one, the index's field is
        # greater by 1. emin is then less by 1, so that one formula serves both.
        index = code + self.lowest_index
        field = index >> self.fraction_bits
        fraction = index & ((1 << self.fraction_bits) - 1)
        significand = np.where(field > 0, fraction + (1 << self.fraction_bits), fraction)
        if self.hidden_one:
            significand = np.where(code == 0, 0, significand)
        # fields 0 and 1 of the index share the exponent emin
        exponent = np.maximum(field, 1) + self.emin - 1
        return np.ldexp(significand.astype(np.float64), (exponent - self.fraction_bits).astype(np.int32))


#: Named formats. Sources: IEEE 754-2019 table 3.5; Google bfloat16; NVIDIA TF32; OCP 8-bit Floating Point
#: Specification 1.0; OCP Microscaling Formats Specification 1.0, section 5.3 (elements) and 5.4.1 (scales); the PTX ISA
#: (ue4m3, the scales of NVFP4); IEEE working group P3109,
#: Interim Report on Binary Floating-point Formats for Machine Learning (width 8, precision 3 and 4, signed, extended).
PRESETS: dict[str, Float] = {
    "fp16": Float(5, 10),
    "bf16": Float(8, 7),
    "tf32": Float(8, 10),
    "fp32": Float(8, 23),
    "fp64": Float(11, 52),
    "fp8_e4m3": Float(4, 3, infinities=False, nans="top"),
    "fp8_e5m2": Float(5, 2),
    "fp8_e8m0": Float(8, 0, 127, infinities=False, nans="top", signed=False, zero=False),
    "fp8_ue4m3": Float(4, 3, infinities=False, nans="top", signed=False),
    "fp6_e2m3": Float(2, 3, infinities=False, nans="none"),
    "fp6_e3m2": Float(3, 2, infinities=False, nans="none"),
    "fp4_e2m1": Float(2, 1, infinities=False, nans="none"),
    "p3109_k8p3": Float(5, 2, 16, nans="negative_zero"),
    "p3109_k8p4": Float(4, 3, 8, nans="negative_zero"),
}


def text_of_float(fmt: Float) -> str:
    """Return the shortest text form of `fmt`: a preset's name if it has one, then its options.

    Examples:
        >>> text_of_float(Float(4, 3, ftz=True)), text_of_float(Float(4, 3, signed=False))
        ('e4m3 ftz', 'ue4m3')
    """
    flushes = [name for name, on in (("ftz", fmt.ftz), ("daz", fmt.daz)) if on]
    plain = replace(fmt, ftz=False, daz=False)
    flushes += ["hidden-one"] * fmt.hidden_one
    for name, preset in PRESETS.items():
        if plain == preset:
            return " ".join([name, *flushes])
    options = ["finite"] * (not fmt.infinities) + [f"nans={fmt.nans}"] * (fmt.nans != "ieee")
    options += [f"bias={fmt.bias}"] * (fmt.bias != fmt.default_bias) + ["no-zero"] * (not fmt.zero)
    return " ".join([f"{'' if fmt.signed else 'u'}e{fmt.exponent_bits}m{fmt.fraction_bits}", *options, *flushes])
