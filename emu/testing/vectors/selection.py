"""Operations that choose one of their operands: minimum and maximum, with both of IEEE 754's rules for NaN.

    minimum(-0, +0) is -0             -0 counts as smaller
    minimum(1, NaN) is NaN            a NaN operand makes the result NaN
    minimum_number(1, NaN) is 1       a NaN operand is left out; RISC-V's fmin

A signalling NaN is invalid in all of them.

Source: IEEE 754-2019 section 9.6; RISC-V F extension 2.2.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from emu.backends.reference.exact import FINITE, INFINITE, NAN, Exact, to_common_exponent

Mask = NDArray[np.bool_]


def _is_less(a: Exact, b: Exact) -> Mask:
    """Return where a < b, of zeros -0 < +0."""
    # infinities count as 0 here, and are put in their place below
    (left, right), _ = to_common_exponent([_numbers(a), _numbers(b)])
    less = (left < right) | ((left == right) & a.negative & ~b.negative)
    less = np.where(a.kind == INFINITE, a.negative, np.where(b.kind == INFINITE, ~b.negative, less))
    both = (a.kind == INFINITE) & (b.kind == INFINITE)
    return np.where(both, a.negative & ~b.negative, less).astype(bool)


def _numbers(x: Exact) -> Exact:
    """Return the finite numbers, 0 for others."""
    return Exact(x.negative, np.where(x.kind == FINITE, x.significand, 0), x.exponent, x.kind)


def _either(first: Mask, a: Exact, b: Exact) -> Exact:
    """Return a where `first` holds, else b."""
    if object in (a.significand.dtype, b.significand.dtype):
        a, b = a.as_object(), b.as_object()
    return Exact(
        np.where(first, a.negative, b.negative),
        np.where(first, a.significand, b.significand),
        np.where(first, a.exponent, b.exponent),
        np.where(first, a.kind, b.kind).astype(np.uint8),
    )


def _selected(parts: list[Exact], *, larger: bool, numbers: bool) -> Exact:
    a, b = parts
    no_a, no_b = a.kind >= NAN, b.kind >= NAN
    first = _is_less(b, a) if larger else _is_less(a, b)
    # `numbers`: the operand that is a number is chosen; else the NaN is
    first = np.where(no_b, numbers, np.where(no_a, not numbers, first)).astype(bool)
    # two NaNs: the first one
    return _either(np.where(no_a & no_b, True, first).astype(bool), a, b)


#: By their names, which are those of IEEE 754.
SELECTIONS: dict[str, Callable[[list[Exact]], Exact]] = {
    "minimum": partial(_selected, larger=False, numbers=False),
    "maximum": partial(_selected, larger=True, numbers=False),
    "minimum_number": partial(_selected, larger=False, numbers=True),
    "maximum_number": partial(_selected, larger=True, numbers=True),
}
