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

#: Stands for no rule that wraps.
NO_TOP = bounded(1 << 20, 2048, 1 << 40, "no digit lies so high")


class Writing(NamedTuple):
    """What becomes of a sum on its way to the output stage.

    Attributes:
        divisor: divides it; 1 if a power of two does.
        shift: exponent of the power of two that divides it.
        extra: digits of the quotient below the sum's last.
        top: a magnitude of 2**(top + 2) and more is replaced by one below 2**(top + 2), and not below 2**(top + 1),
            that wraps to the same code: `wide_sums.declines` asks the stage about no more bits.
    """

    divisor: int
    shift: int
    extra: int
    top: int


@kernel
def carry(sums: Any, i: int, windows: int, width: int, lowest: int, extra: int, digits: Any) -> float:
    """Write the digits of output i's magnitude from digits[extra] on; return its sign, 1.0 or -1.0."""
    # A window is a multiple of its last place below 2**53 of them: scaled, an integer that int64 holds. `&` and `>>`
    # take the residue and round down, so a negative sum leaves a negative last carry: its magnitude is made again.
    mask = (1 << width) - 1
    sign = 1
    for _ in range(2):
        rest = 0
        for digit in range(windows):
            scaled = sums[windows - 1 - digit, i] * power_of_two(-(lowest + digit * width))
            total = sign * np.int64(scaled) + rest
            digits[extra + digit] = total & mask
            rest = total >> width
        digits[extra + windows] = rest
        if rest >= 0:
            break
        sign = -1
    return float(sign)


@kernel
def divide(digits: Any, count: int, width: int, divisor: int) -> None:
    """Divide the digits; the lowest becomes odd if anything remains."""
    # Long division: a remainder is below the divisor, so that `part` is below 2**(24 + width) <= 2**62.
    remainder = 0
    for digit in range(count - 1, -1, -1):
        part = (remainder << width) + digits[digit]
        digits[digit] = part // divisor
        remainder = part - digits[digit] * divisor
    if remainder > 0:
        digits[0] |= 1


@kernel
def wrap(digits: Any, count: int, width: int, lowest: int, top: int) -> bool:
    """Drop all bits of weight 2**top and more if any has a weight of 2**(top + 2) or more; return whether it was so."""
    far = False
    for digit in range(count):
        # Whether the digit has a bit of weight 2**(top + 2) or more. Digits are below 2**63: a larger shift than 63
        # gives what 63 gives, and with NO_TOP no digit is far.
        distance = top + 2 - (lowest + digit * width)
        far = far or (digits[digit] >> min(max(distance, 0), 63)) > 0
    if far:
        for digit in range(count):
            kept = min(max(top - (lowest + digit * width), 0), 62)
            digits[digit] &= (1 << kept) - 1
    return far


@kernel
def to_odd(digits: Any, first: int, count: int, width: int, lowest: int) -> float:
    """Return digits[first:count] as float64 rounded to odd; digits[first] stands at 2**lowest."""
    # The lowest first: what is rounded to odd lies below the next digit, and rounding to odd again keeps its last bit.
    total = 0.0
    for digit in range(first, count):
        total = add_to_odd(total, float(digits[digit]) * power_of_two(lowest + (digit - first) * width))
    return total


@kernel
def write_digits(
    sums: Any, n: int, at: int, windows: int, width: int, lowest: int, writing: Any, contents: Any, written: Any
) -> None:
    """Write the contents of n outputs from `at` on and, if it differs, what the output stage is given."""
    extra = writing.extra
    count = extra + windows + 1
    digits = np.zeros(count, np.int64)
    # An empty `written`: the stage is given the contents themselves.
    differs = written.size == contents.size
    for i in range(n):
        # An infinity is in the first window; less itself it is NaN, which is in the others. NaN is in all.
        if not np.isfinite(sums[0, i]):
            contents[at + i] = sums[0, i]
            if differs:
                written[at + i] = sums[0, i]
            continue
        for digit in range(extra):
            digits[digit] = 0
        sign = carry(sums, i, windows, width, lowest, extra, digits)
        contents[at + i] = sign * to_odd(digits, extra, count, width, lowest)
        if differs:
            if writing.divisor > 1:
                divide(digits, count, width, writing.divisor)
            base = lowest - extra * width
            far = wrap(digits, count, width, base, writing.top)
            total = to_odd(digits, np.int64(0), count, width, base)
            if far:
                # Congruent modulo 2**top, and still beyond every limit, as the sum is.
                total = add_to_odd(power_of_two(writing.top + 1), total)
            written[at + i] = sign * total * power_of_two(-writing.shift)
