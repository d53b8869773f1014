"""Constants on which the bits of a fast path rest, each with the interval it must lie in.

    HUGE = bounded(970, 2 * SAFE_EXPONENT, 1022, "above every format's largest number; 2**-HUGE is a normal float64")

The interval is checked where the constant is defined, whenever the module is imported. `docs/design/bounds.md` lists
all of them. A constant that decides only how long something takes has no interval.
"""

from __future__ import annotations

from typing import TypeVar

Number = TypeVar("Number", int, float)


def bounded(value: Number, least: float, most: float, because: str) -> Number:
    """Return `value` after checking that it lies in the interval.

    Args:
        value: the constant.
        least: smallest value with which the bits are right.
        most: largest value with which they are.
        because: what fails outside, or what the value stands for.
    """
    assert least <= value <= most, f"{value} is not in {least}..{most}: {because}"
    return value
