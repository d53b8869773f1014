"""From windows of exact sums to one float64 rounded to odd: carry, sign, divide, wrap.

    windows ──► signed digits ──carry──► sign, digits of the magnitude ──► content, rounded to odd
                                                     └──► / divisor, modulo 2**top ──► what is written, rounded to odd

Digits are base 2**width, the lowest first; the highest holds the last carry.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from emu.backends.bounds import bounded
from emu.backends.numba.bits import add_to_odd, power_of_two
from emu.backends.numba.compiling import kernel

#: No rule wraps.
NO_TOP = bounded(1 << 20, 2048, 1 << 40, "no digit lies so high")


class Writing(NamedTuple):
    """What becomes of a sum on its way to the output stage.

    `top`: a magnitude of 2**(top + 2) and more is replaced by a smaller one, still 2**(top + 1) or more, that wraps to
    the same code; `shift` divides by a power of two, `divisor` by anything else; `extra` digits of the quotient follow
    the sum's last.
    """

    divisor: int
    shift: int
    extra: int
    top: int


@kernel
def carry(sums: Any, i: int, windows: int, width: int, lowest: int, extra: int, digits: Any) -> float:
    """Write the digits of output i's magnitude from digits[extra] on; return its sign, 1.0 or -1.0."""
    mask = (1 << width) - 1
    sign = 1
    for _ in range(2):
        rest = 0
        for place in range(windows):
            scaled = sums[windows - 1 - place, i] * power_of_two(-(lowest + place * width))
            total = sign * np.int64(scaled) + rest
            digits[extra + place] = total & mask
            rest = total >> width
        digits[extra + windows] = rest
        if rest >= 0:
            break
        sign = -1
    return float(sign)


@kernel
def divide(digits: Any, count: int, width: int, divisor: int) -> None:
    """Divide the digits; the lowest becomes odd if anything remains."""
    remainder = 0
    for place in range(count - 1, -1, -1):
        part = (remainder << width) + digits[place]
        digits[place] = part // divisor
        remainder = part - digits[place] * divisor
    if remainder > 0:
        digits[0] |= 1


@kernel
def wrap(digits: Any, count: int, width: int, lowest: int, top: int) -> bool:
    """Drop digits of 2**top and above if any stands at 2**(top + 2) or above; return whether that was so."""
    far = False
    for place in range(count):
        distance = top + 2 - (lowest + place * width)
        far = far or (digits[place] >> min(max(distance, 0), 63)) > 0
    if far:
        for place in range(count):
            kept = min(max(top - (lowest + place * width), 0), 62)
            digits[place] &= (1 << kept) - 1
    return far


@kernel
def to_odd(digits: Any, first: int, count: int, width: int, lowest: int) -> float:
    """Return digits[first:count] as float64 rounded to odd; digits[first] stands at 2**lowest."""
    # from the lowest on: what is rounded to odd lies below the next digit, and rounding to odd again keeps its last bit
    total = 0.0
    for place in range(first, count):
        total = add_to_odd(total, float(digits[place]) * power_of_two(lowest + (place - first) * width))
    return total


@kernel
def write_digits(
    sums: Any, n: int, at: int, windows: int, width: int, lowest: int, writing: Any, contents: Any, written: Any
) -> None:
    """Write contents, and what the output stage is given where that differs, of n outputs from `at` on."""
    extra = writing.extra
    count = extra + windows + 1
    digits = np.zeros(count, np.int64)
    differs = written.size == contents.size
    for i in range(n):
        if not np.isfinite(sums[0, i]):
            contents[at + i] = sums[0, i]
            if differs:
                written[at + i] = sums[0, i]
            continue
        for place in range(extra):
            digits[place] = 0
        sign = carry(sums, i, windows, width, lowest, extra, digits)
        contents[at + i] = sign * to_odd(digits, extra, count, width, lowest)
        if differs:
            if writing.divisor > 1:
                divide(digits, count, width, writing.divisor)
            base = lowest - extra * width
            far = wrap(digits, count, width, base, writing.top)
            total = to_odd(digits, 0, count, width, base)
            if far:
                total = add_to_odd(power_of_two(writing.top + 1), total)
            written[at + i] = sign * total * power_of_two(-writing.shift)
