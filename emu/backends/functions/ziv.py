"""One function value in as many digits as its rounding needs (Ziv's strategy), with mpmath.

    precision 64, 128, 256 ... until every number within the error of the approximation shortens to the same bits

It ends because no value asked for lies on the grid: those arguments are the exact cases of `evaluation`. By the theorem
of Lindemann and Weierstrass exp, log, tanh and sigmoid of a rational number are rational only there; rsqrt is rational
only at squares; for erf and gelu no other such argument is known, and one would stop the search with an error.

Source: Ziv, "Fast evaluation of elementary mathematical functions with correctly rounded last bit", ACM TOMS 17 (1991).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from threading import Lock
from typing import Any

from emu.backends.functions.grid import Grid

#: Extra working bits, so that the relative error stays below 2**-precision: mpmath errs by a few units of the last
#: place, and gelu's argument is rounded before its square, up to 2**31, becomes an exponent.
GUARD_BITS = 80
FIRST_PRECISION = 64
#: Half width of the enclosure in units of the last bit kept: 1 for the approximation, 1 for dropping bits, a margin.
ENCLOSURE = 4
PRECISION_LIMIT = 1 << 22

#: The context's precision is changed on the way: one thread at a time.
_ONE_AT_A_TIME = Lock()

Context = Any  # mpmath has no stubs


@cache
def _context() -> Context:
    """Return an mpmath context of this module, so that a change of its precision changes no other caller's."""
    mpmath: Any = import_module("mpmath")  # only now: most tables are made without it, and importing it takes a while
    return mpmath.MPContext()


def _sigmoid(mp: Context, x: Any) -> Any:
    # of -|x|, so that e does not overflow
    e = mp.exp(-abs(x))
    return (1 if x >= 0 else e) / (1 + e)


_FUNCTIONS: dict[str, Callable[[Context, Any], Any]] = {
    "exp": lambda mp, x: mp.exp(x),
    "log": lambda mp, x: mp.log(x),
    "tanh": lambda mp, x: mp.tanh(x),
    "sigmoid": _sigmoid,
    "erf": lambda mp, x: mp.erf(x),
    "gelu": lambda mp, x: x * mp.erfc(-x / mp.sqrt(2)) / 2,
    "rsqrt": lambda mp, x: 1 / mp.sqrt(x),
}


def shortened(name: str, x: float, grid: Grid) -> tuple[int, int, int]:
    """Return |f(x)| shortened to a grid, as (significand, exponent, leading).

    Args:
        name: function.
        x: finite argument, no exact case of the function.
        grid: where the bits stop mattering.

    Returns:
        Odd significand and exponent: the bits of |f(x)| down to the grid's step and a sticky 1; and floor(log2|f(x)|).
        Where the value is beyond the grid the significand is only its leading bits.
    """
    with _ONE_AT_A_TIME:
        return _shortened(_context(), name, x, grid)


def _shortened(mp: Context, name: str, x: float, grid: Grid) -> tuple[int, int, int]:
    precision = FIRST_PRECISION
    while precision < PRECISION_LIMIT:
        mp.prec = precision + GUARD_BITS
        # mpmath's parts: sign, significand, exponent, bit length
        _, man, exp, bits = _FUNCTIONS[name](mp, mp.mpf(x))._mpf_
        man, exp, bits = int(man), int(exp), int(bits)
        leading = exp + bits - 1
        # kept are precision + 1 bits
        low_exponent = leading - precision
        shift = low_exponent - exp
        kept = man >> shift if shift > 0 else man << -shift
        low, high = kept - ENCLOSURE, kept + ENCLOSURE
        # both ends in one binade: the leading bit is certain
        if low.bit_length() == high.bit_length():
            if grid.is_beyond(leading):
                return low | 1, low_exponent, leading
            step = int(grid.step(leading))
            drop = step - low_exponent
            # decided if both ends agree down to the grid's step; the value itself never lies on the step
            if drop > 0 and low >> drop == high >> drop:
                return 2 * (low >> drop) + 1, step - 1, leading
            # the step lies so many bits below those kept, if `drop` is not positive
            precision = max(precision, precision - drop)
        precision *= 2
    raise AssertionError(f"{name}({x!r}) does not leave the grid {grid}: an exact case is missing")
