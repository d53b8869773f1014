"""A quantiser of MX blocks in fractions and integers of Python, with places where a fault can be put in.

It shares nothing with emu: numbers are read from codes of binary32 by hand, scales are powers of two of a search, and
elements are found among all codes of the format.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

#: Exponent of the leading bit of the largest element, and the largest, of e4m3 and of e2m1.
E4M3, E2M1 = (4, 3, Fraction(448)), (2, 1, Fraction(6))
BLOCK = 32
NAN_SCALE = 255


def number(code: int) -> Fraction | None:
    """The number of a code of binary32; None of NaN and infinities."""
    field_, fraction = code >> 23 & 0xFF, code & 0x7FFFFF
    if field_ == 0xFF:
        return None
    magnitude = Fraction(fraction + (1 << 23 if field_ else 0)) * Fraction(2) ** (max(field_, 1) - 150)
    return -magnitude if code >> 31 else magnitude


def is_nan(code: int) -> bool:
    return code & 0x7FFFFFFF > 0x7F800000


def exponent_of(x: Fraction) -> int:
    """The largest e with 2**e <= x."""
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if Fraction(2) ** e <= x else e - 1


def floor_exponent(largest: Fraction, top: int) -> int:
    return exponent_of(largest) - top


def ceil_exponent(largest: Fraction, top: int) -> int:
    e = exponent_of(largest)
    return e + (Fraction(2) ** e < largest) - top


def magnitudes(exponent_bits: int, fraction_bits: int, largest: Fraction) -> list[Fraction]:
    """All magnitudes of a format in the order of their codes, one more behind the largest."""
    bias, numbers = (1 << (exponent_bits - 1)) - 1, list[Fraction]()
    for code in range(1 << (exponent_bits + fraction_bits)):
        field_, fraction = divmod(code, 1 << fraction_bits)
        significand = Fraction(fraction, 1 << fraction_bits) + (1 if field_ else 0)
        numbers.append(significand * Fraction(2) ** (max(field_, 1) - bias))
        if numbers[-1] > largest:
            return numbers
    return [*numbers, Fraction(2) ** (exponent_of(largest) + 1)]


def nearest_even(x: Fraction, grid: Sequence[Fraction]) -> int:
    """The code of the nearest magnitude, of a tie the even one; that behind the largest for all beyond."""
    i = bisect_left(grid, x)
    if i == len(grid) or grid[i] == x:
        return min(i, len(grid) - 1)
    below, above = x - grid[i - 1], grid[i] - x
    return i - 1 if below < above or (below == above and i % 2) else i


def cut(x: Fraction, grid: Sequence[Fraction]) -> int:
    return max(i for i, y in enumerate(grid) if y <= x)


def away(x: Fraction, grid: Sequence[Fraction]) -> int:
    i = bisect_left(grid, x)
    if i == len(grid) or grid[i] == x:
        return min(i, len(grid) - 1)
    return i if 2 * x >= grid[i - 1] + grid[i] else i - 1


@dataclass
class Quantiser:
    """The unit; each attribute is a place for a fault.

    Attributes:
        element: exponent bits, fraction bits and the largest magnitude.
        exponent: of the scale, from the largest magnitude and the exponent of the largest element; None is NaN.
        round: of a quotient to a magnitude's code.
        largest: of the block's numbers; they are given with those of all blocks and the first one's place.
        written: the code of a scale from the right one.
        divides: the exponent by which elements are divided, from that of the scale.
        saturates: whether codes beyond the largest are it; else they wrap.
        flushes: whether subnormal elements become 0.
        block_of: the block whose scale divides, from the number of the block.
    """

    element: tuple[int, int, Fraction] = E4M3
    exponent: Callable[[Fraction, int], int | None] = floor_exponent
    round: Callable[[Fraction, Sequence[Fraction]], int] = nearest_even
    largest: Callable[[Sequence[Any], int], Fraction] = field(
        default=lambda numbers, start: max(
            (abs(x) for x in numbers[start : start + BLOCK] if x is not None), default=Fraction(0)
        )
    )
    written: Callable[[int], int] = field(default=lambda code: code)
    divides: Callable[[int], int] = field(default=lambda exponent: exponent)
    saturates: bool = True
    flushes: bool = False
    block_of: Callable[[int, int], int] = field(default=lambda block, blocks: block)

    def run(self, codes: Sequence[int]) -> tuple[list[int], list[int]]:
        """Elements and scales of operands."""
        numbers = [number(code) for code in codes]
        starts = range(0, len(codes), BLOCK)
        scales = [self._scale(codes, numbers, start) for start in starts]
        elements = [
            code for block, start in enumerate(starts)
            for code in self._elements(codes, numbers, start, scales[self.block_of(block, len(scales))], scales[block])
        ]  # fmt: skip
        return elements, [NAN_SCALE if e is None else self.written(e + 127) for e in scales]

    def _scale(self, codes: Sequence[int], numbers: Sequence[Any], start: int) -> int | None:
        if any(x is None for x in numbers[start : start + BLOCK]):
            return None
        largest = self.largest(numbers, start)
        if largest == 0:
            return -127
        exponent = self.exponent(largest, exponent_of(self.element[2]))
        return None if exponent is None else min(max(exponent, -127), 127)

    def _elements(
        self, codes: Sequence[int], numbers: Sequence[Any], start: int, scale: int | None, own: int | None
    ) -> list[int]:
        exponent_bits, fraction_bits, most = self.element
        grid, sign = magnitudes(*self.element), 1 << (exponent_bits + fraction_bits)
        last = grid.index(most)
        elements: list[int] = []
        for place in range(start, start + BLOCK):
            if own is None or scale is None or numbers[place] is None:
                elements.append(0)
                continue
            x = abs(numbers[place]) / Fraction(2) ** self.divides(scale)
            code = self.round(x, grid)
            if code > last and not self.saturates:  # the exponent loses its highest bit
                code = exact_code(x, fraction_bits, exponent_bits, self.round) & (sign - 1)
            code = min(code, last) if self.saturates else code
            if self.flushes and code < 1 << fraction_bits:
                code = 0
            elements.append(code | (sign if codes[place] >> 31 else 0))
        return elements


def exact_code(x: Fraction, fraction_bits: int, exponent_bits: int, rounding: Any) -> int:
    """The code of a number in the same format with as many exponents as it needs."""
    grid = magnitudes(exponent_bits + 3, fraction_bits, Fraction(2) ** 40)
    bias = (1 << (exponent_bits + 2)) - (1 << (exponent_bits - 1))
    return rounding(x, grid) - (bias << fraction_bits)


def bits_of(x: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", x))[0])
