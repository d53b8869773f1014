"""Which format a number of bits is: the range stays, and the resolution gives way.

    fixed point    the smallest range that holds what was measured, and no larger one than the format has
    float          the exponent keeps its width while two fraction bits remain; then it gives way, too, and the bias
                   places the largest measured value in the highest binade

Source: docs/sensitivity.md, "How bits become a format".
"""

from __future__ import annotations

from dataclasses import replace

from emu.datapath import StatisticsRegister
from emu.errors import ConfigError
from emu.formats import DynamicFixed, Fixed, Float, Format
from emu.hardware import DynamicPoint
from emu.precision.point_rules import smallest_range

#: Share of the results that may lie outside a measured range: that of the rule of dynamic fixed point.
R_MAX = DynamicPoint().r_max
#: Fraction bits that a float keeps before its exponent gives way, and below `_SHORT` bits.
_FRACTION, _SHORT_FRACTION, _SHORT = 2, 1, 5
#: Fewest bits: a sign and a magnitude; a float has an exponent bit besides.
LEAST_BITS, LEAST_FLOAT_BITS = 2, 3


def range_of(register: StatisticsRegister | None) -> int | None:
    """Return the m of the smallest range -2**m <= x < 2**m that holds all but `R_MAX` of what a register counted.

    None without a register, or if it counted only zeros.
    """
    return None if register is None else smallest_range(register, R_MAX)


def narrower(fmt: Format | DynamicFixed, width_bits: int, measured: int | None = None) -> Format:
    """Return the format of fewer bits that takes the place of a wider one.

    Args:
        fmt: the wider format; one whose point is open takes a point from what was measured.
        width_bits: bits of the result, fewer than those of `fmt`.
        measured: m of the values' range, -2**m <= x < 2**m; None if it is not known.

    Raises:
        ConfigError: no format of this family has so few bits.

    Examples:
        >>> str(narrower(Fixed(16, 13), 6)), str(narrower(Fixed(16, 13), 6, -1))
        ('fix6f3', 'fix6f6')
        >>> str(narrower(Float(5, 10), 8)), str(narrower(Float(5, 10), 6, 1))
        ('fp8_e5m2', 'e3m2 finite nans=none bias=7')
    """
    least = LEAST_FLOAT_BITS if isinstance(fmt, Float) else LEAST_BITS
    if width_bits < least:
        raise ConfigError(f"a format narrower than {fmt} must have at least {least} bits, got {width_bits}; give more")
    if isinstance(fmt, Float):
        return _narrower_float(fmt, width_bits, measured)
    magnitude_bits = width_bits - fmt.signed
    # own: bits in front of the point, without the sign
    own = None if isinstance(fmt, DynamicFixed) else fmt.width_bits - fmt.signed - fmt.frac_bits
    if measured is None:
        measured = magnitude_bits // 2 if own is None else own  # an open point begins in the middle of its word
    # a value below 2**m needs m bits in front of the point; negative m: the point stands left of the word
    frac_bits = magnitude_bits - (measured if own is None else min(own, measured))
    return Fixed(width_bits, frac_bits, fmt.signed, fmt.sign_magnitude)


def _narrower_float(fmt: Float, width_bits: int, measured: int | None) -> Float:
    fraction_bits = width_bits - fmt.signed - fmt.exponent_bits
    # the exponent keeps its width, and with it bias and range
    if fraction_bits >= _FRACTION:
        return replace(fmt, fraction_bits=fraction_bits)
    # the fraction has its least width now, and the exponent gets what is left
    fraction_bits = _FRACTION if width_bits >= _SHORT else _SHORT_FRACTION
    exponent_bits = width_bits - fmt.signed - fraction_bits
    # codes for infinity and NaN would be a large part of so few; OCP's 6- and 4-bit floats have none either
    narrow = Float(exponent_bits, fraction_bits, infinities=False, nans="none", ftz=fmt.ftz, daz=fmt.daz,
                   signed=fmt.signed, hidden_one=fmt.hidden_one)  # fmt: skip
    if measured is None:
        return narrow
    # a value below 2**measured has its leading bit at measured - 1 or below
    # one more in the bias is one less in every exponent: emax moves to measured - 1
    return replace(narrow, bias=narrow.default_bias + narrow.emax - (measured - 1))
