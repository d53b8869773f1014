"""Computes the constants of `coefficients.py`: Chebyshev interpolation in 60 digits, each rounded once.

    exp(r)   = 1 + r + r**2 * EXP(r)                      |r| <= ln 2 / 2
    log(m)   = 2 s + s * z * LOG(z)                        s = (m-1)/(m+1), z = s**2, sqrt(1/2) <= m <= sqrt(2)
    erf(x)   = x + x * ERF(x**2)                           |x| <= 1/2
    erfc(x)  = exp(-x**2 + v * ERFC(t)) / (1 + 5x/4)       v = x/(x+K), t = 2 v - 1, 1/2 <= x <= 6
    2 Phi(-x) = exp(-x**2/2 + v * PHI(t)) / (1 + 5x/4)     v = x/(x+K), t = 2 v - 1, 0 <= x <= 40

The polynomials are the small part of each result, so that their own rounding hardly shows in it. Interpolation at
Chebyshev nodes is within a small factor of the best polynomial; degrees are such that the rounding of the coefficients
is the larger error.

`python -m emu.backends.functions.fitting` prints the constants; a test compares them with the file.

Source: Trefethen, "Approximation Theory and Approximation Practice" (2013), chapters 2 and 3; Shepherd & Laframboise,
"Chebyshev approximation of (1+2x)exp(x**2)erfc x", Math. Comp. 36 (1981), for the variable t.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath  # pyright: ignore[reportMissingTypeStubs]

from emu.backends.functions.coefficients import ERFC_CENTRE, PHI_CENTRE, TAIL_SLOPE

#: Decimal digits of the computation.
DIGITS = 60
#: Bits of the leading part of ln 2: 11 bits of a binary exponent times these are exact in a double.
LN2_HIGH_BITS = 42

Real = Any  # mpmath numbers; the library has no stubs
_mp: Any = mpmath


def interpolate(function: Callable[[Real], Real], low: Real, high: Real, degree: int) -> list[float]:
    """Return the coefficients, lowest power first, of the polynomial that meets `function` at degree+1 Chebyshev nodes.

    The nodes are those of low..high; each coefficient is the exact one, rounded to the nearest double.
    """
    count = degree + 1
    centre, radius = (_mp.mpf(high) + low) / 2, (_mp.mpf(high) - low) / 2
    # roots of the Chebyshev polynomial, moved to low..high
    nodes = [centre + radius * _mp.cos(_mp.pi * (2 * i + 1) / (2 * count)) for i in range(count)]
    divided = [function(x) for x in nodes]
    for level in range(1, count):  # Newton's divided differences, then expansion into powers
        for i in range(count - 1, level - 1, -1):
            divided[i] = (divided[i] - divided[i - 1]) / (nodes[i] - nodes[i - level])
    powers = [divided[-1]]
    # Horner's scheme on polynomials: (powers) * (x - node) + the next difference
    for i in range(count - 2, -1, -1):
        shifted = [_mp.mpf(0), *powers]
        for j, power in enumerate(powers):
            shifted[j] -= nodes[i] * power
        shifted[0] += divided[i]
        powers = shifted
    return [float(p) for p in powers]


def _exp_rest(r: Real) -> Real:
    return (_mp.expm1(r) - r) / r**2


def _log_rest(z: Real) -> Real:
    s = _mp.sqrt(z)
    return (_mp.log((1 + s) / (1 - s)) - 2 * s) / (s * z)


def _erf_rest(z: Real) -> Real:
    x = _mp.sqrt(z)
    return _mp.erf(x) / x - 1


def _tail(t: Real, centre: float, upper: Callable[[Real], Real]) -> Real:
    v = (1 + t) / 2
    # x from v = x / (x + K)
    x = centre * v / (1 - v)
    return _mp.log((1 + x * TAIL_SLOPE) * upper(x)) / v


def _erfc_rest(t: Real) -> Real:
    # scaled by e**(x**2), the tail varies slowly
    return _tail(t, ERFC_CENTRE, lambda x: _mp.erfc(x) * _mp.exp(x * x))


def _phi_rest(t: Real) -> Real:
    return _tail(t, PHI_CENTRE, lambda x: _mp.erfc(x / _mp.sqrt(2)) * _mp.exp(x * x / 2))


def _t(x: float, centre: float) -> Real:
    return (_mp.mpf(x) - centre) / (_mp.mpf(x) + centre)


def coefficients() -> dict[str, list[float]]:
    """Return every constant of `coefficients.py` by name; scalars as lists of length 1."""
    with _mp.workdps(DIGITS):
        ln2 = _mp.ln(2)
        # cut, not rounded, so that the rest is positive
        high = _mp.floor(_mp.ldexp(ln2, LN2_HIGH_BITS)) / 2**LN2_HIGH_BITS
        z_log = ((_mp.sqrt(2) - 1) / (_mp.sqrt(2) + 1)) ** 2
        return {
            "INVERSE_LN2": [float(1 / ln2)],
            "LN2_HIGH": [float(high)],
            "LN2_LOW": [float(ln2 - high)],
            # the last number is the degree
            "EXP": interpolate(_exp_rest, -ln2 / 2, ln2 / 2, 11),
            "LOG": interpolate(_log_rest, 0, z_log, 7),
            "ERF": interpolate(_erf_rest, 0, _mp.mpf(1) / 4, 8),
            "ERFC": interpolate(_erfc_rest, _t(0.5, ERFC_CENTRE), _t(6, ERFC_CENTRE), 20),
            "PHI": interpolate(_phi_rest, -1, _t(40, PHI_CENTRE), 28),
        }


def source() -> str:
    """Return the text of the constants in `coefficients.py`, as hexadecimal floats."""
    lines: list[str] = []
    for name, values in coefficients().items():
        body = "".join(f"    float.fromhex({v.hex()!r}),\n" for v in values)
        lines.append(f"{name} = float.fromhex({values[0].hex()!r})\n" if len(values) == 1 else f"{name} = (\n{body})\n")
    return "".join(lines).replace("'", '"')


if __name__ == "__main__":
    print(source(), end="")
