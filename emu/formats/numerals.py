"""Numbers as people read them: rounded to some digits, or exact as far as digits can say it; powers of two."""

from __future__ import annotations

import math
from fractions import Fraction

#: Longer decimals are rounded.
_SHOWN_DIGITS = 18
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float | Fraction, digits: int = 6) -> str:
    """Return a real in at most `digits` significant digits, exponents without padding.

    A fraction that no float64 comes near is the nearest power of ten.

    Examples:
        >>> number(3.9998779296875), number(0.0001220703125, 2), number(-4.0), number(2.0**-149, 2)
        ('3.99988', '1.2e-4', '-4', '1.4e-45')
        >>> number(Fraction(2**63 - 1)), number(-Fraction(2) ** 2000)
        ('9.22337e18', '-10⁶⁰²')
    """
    if isinstance(value, Fraction):
        near = _near(value)
        if near is None:
            return f"{'-' if value < 0 else ''}10{superscript(round(_log2(value) * math.log10(2)))}"
        value = near
    text = f"{value:.{digits}g}"
    if 0 < abs(value) < 1e-3 and "e" not in text:  # Python's `g` begins exponents below 1e-4 only
        text = f"{value:.{digits - 1}e}"
    mantissa, mark, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}" if mark else text


def two_digits(value: float) -> str:
    """Return a finite real in two digits, with an exponent below 0.01 and from 1000 on.

    Examples:
        >>> two_digits(2.0**-24), two_digits(0.25), two_digits(65504.0)
        ('6.0e-8', '0.25', '6.6e4')
    """
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return f"{mantissa}e{int(exponent)}" if abs(int(exponent)) > 2 else number(value, 2)


def exact_number(value: float | Fraction) -> str:
    """Return a real in decimals: exact ones up to 17 digits, else rounded, after an approximation sign.

    Examples:
        >>> exact_number(127.99609375), exact_number(2.0**-24), exact_number(Fraction(2**63 - 1))
        ('127.99609375', '2**-24 ≈ 5.96046e-08', '≈ 9.22337e+18')
        >>> exact_number(Fraction(2) ** -2000)
        '2**-2000'
    """
    if isinstance(value, float) and (not math.isfinite(value) or not value):
        return f"{value:g}"
    exact = Fraction(value)
    near = _near(exact)
    if near is not None and Fraction(text := repr(near).removesuffix(".0")) == exact and len(text) <= _SHOWN_DIGITS:
        return text
    # the power of two is compared exactly below, so that an error of the logarithm decides nothing
    exponent = round(_log2(exact))
    approximation = f"≈ {near:.6g}" if near is not None else ""
    if abs(exact) == Fraction(2) ** exponent:
        return f"{'-' * (exact < 0)}2**{exponent} {approximation}".rstrip()
    return approximation or f"≈ {'-' * (exact < 0)}2**{exponent}"


def exact_power(exponent: int) -> str:
    """Return a power of two and, if they can be read, its decimals.

    Examples:
        >>> exact_power(-8), exact_power(-2000)
        ('2**-8 = 0.00390625', '2**-2000')
    """
    power = f"2**{exponent}"
    near = exact_number(Fraction(2) ** exponent)
    return near if near.startswith(power) else f"{power} = {near}"


def superscript(exponent: int) -> str:
    """Return `exponent` in superscript digits."""
    return str(exponent).translate(_SUPERSCRIPTS)


def power_of_two(exponent: int) -> str:
    """Return 2 to the `exponent` as a reader writes it.

    Examples:
        >>> power_of_two(-13)
        '2⁻¹³'
    """
    return "2" + superscript(exponent)


def _near(exact: Fraction) -> float | None:
    """Return the nearest float64, None if that says nothing: beyond its range or below its normals."""
    try:
        near = float(exact)
    except OverflowError:
        return None
    return near if not exact or abs(near) >= 2.0**-1022 else None


def _log2(exact: Fraction) -> float:
    """Return the logarithm of a magnitude, which may be beyond float64."""
    # math.log2 takes integers of any size; the fraction as a float might overflow
    top, bottom = abs(exact).as_integer_ratio()
    return math.log2(top) - math.log2(bottom)
