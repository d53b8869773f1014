"""Remainders by another quotient: cut, rounded down, with other ties, or with too few digits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.reference.exact import FINITE, to_common_exponent
from emu.testing.vectors.causes.hypothesis import Hypothesis
from emu.testing.vectors.definition import written
from emu.testing.vectors.evidence import Evidence

Array = NDArray[Any]
#: Digits of a quotient after which a unit may stop, as x87's partial remainder does.
FEW_DIGITS = (32, 63, 64)


def other_quotients(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of remainders whose quotient is rounded otherwise, or is not finished."""
    if e.description.operation != "remainder":
        return
    a, b = (part.as_object() for part in e.parts)
    usual = ((a.kind == FINITE) & (b.kind == FINITE)).astype(bool) & (b.significand != 0).astype(bool)
    # rows that are no division of numbers become 0 by 1: they are computed, and not used
    (x, y), exponent = to_common_exponent([replace(a, significand=np.where(usual, a.significand, 0)),
                                           replace(b, significand=np.where(usual, b.significand, 1))])  # fmt: skip
    x, y = np.abs(x.astype(object)), np.abs(y.astype(object))
    whole, rest = x // y, x % y
    # remainders of magnitudes, |x| - n * |y| for another whole n; negative where n was rounded up
    nearest = {
        "cut (as fmod does)": rest,
        "nearest, ties up": np.where(2 * rest >= y, rest - y, rest),
        "nearest, ties down": np.where(2 * rest > y, rest - y, rest),
        "nearest, ties to odd": np.where((2 * rest > y) | ((2 * rest == y) & (whole % 2 == 0)), rest - y, rest),
        "rounded up": np.where(rest > 0, rest - y, rest),
    }
    for name, left in nearest.items():
        yield f"a remainder by the quotient {name}", _codes(e, usual, left, exponent)
    length: Any = np.frompyfunc(int.bit_length, 1, 1)(whole)
    for digits in FEW_DIGITS:
        shift = np.maximum(length - digits, 0)
        # the quotient's first digits alone, the others 0: what is left may be far larger than y
        left = x - ((whole >> shift) << shift) * y
        partial = np.where(
            shift > 0, left, np.where((2 * rest > y) | ((2 * rest == y) & (whole % 2 == 1)), rest - y, rest)
        )
        yield f"a remainder after {digits} digits of the quotient", _codes(e, usual, partial, exponent)


def _codes(e: Evidence, usual: NDArray[np.bool_], left: Array, exponent: int) -> NDArray[np.uint64]:
    base = e.exact.as_object()
    changed = replace(
        base,
        # a remainder has the dividend's sign, turned if the quotient was rounded up
        negative=np.where(usual, e.parts[0].negative ^ (left < 0).astype(bool), base.negative),
        significand=np.where(usual, np.abs(left), base.significand),
        exponent=np.where(usual, exponent, base.exponent),
    )
    return written(e.description, changed, e.vectors.rbits).codes
