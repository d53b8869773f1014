"""Sums that tell requantisers apart: beside each threshold between two elements, at ties, and within their reach.

A multiplier of 2**-8 brings sums of 32 bits to 256 elements: of those drawn over all 32 bits hardly one is not bounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from random import Random

import numpy as np

from emu.formats import PRESETS, Fixed, Format
from emu.testing.vectors.description import NAMES, Codes, Description

FLOAT32 = PRESETS["fp32"]
#: How far from a threshold sums are taken, on either side.
BESIDE = 3


def bounds_of(d: Description) -> tuple[int, int]:
    """Return the smallest and the largest element that is written."""
    by, fmt = d.requantise, d.stage.format
    assert by is not None
    low = int(fmt.min) if by.lowest is None else by.lowest
    return low, int(fmt.max) if by.highest is None else by.highest


def reach_of_sums(d: Description) -> tuple[int, int]:
    """Return the smallest and the largest sum whose element is not bounded, and one element more on either side."""
    assert d.requantise is not None
    by, (low, high) = d.requantise, bounds_of(d)
    least, most = _ends(_sums_format(d))
    # multipliers are above 0, so that order stays
    ends = [Fraction(end - by.zero) / by.factor for end in (low - 1, high + 1)]
    return max(least, math.ceil(ends[0])), min(most, math.floor(ends[1]))


def expected_roundings(d: Description, i: int, *, negative: bool) -> tuple[int, int]:
    """Return how many ties of a step sums within reach have, on one side of 0, and how many other roundings, about.

    n / 2**k times an integer x, n odd, is a tie between two integers if x is an odd multiple of 2**(k - 1).
    """
    step, (low, high) = d.pipeline[i], reach_of_sums(d)
    side = max(-low if negative else high, 0)
    before = math.prod((earlier.factor for earlier in d.pipeline[:i]), start=Fraction(1))
    if not isinstance(step.stage.format, Fixed):
        # binary32 holds sums of 24 bits; of products hardly any is a tie
        single = 1 << FLOAT32.significand_bits
        if step.factor == 1:
            return max(side - single, 0) // 2, max(side - single, 0) // 2
        return 0, side if step.factor.numerator > 1 else 0
    if step.factor.denominator == 1 and not _is_after_a_product(d, i):
        return 0, 0
    # operands of the step reach about so far; ties are odd multiples of `tie`
    reached, tie = int(side * before), step.factor.denominator // 2
    if _is_after_a_product(d, i):  # a half is rare
        return min(side, 2), reached
    return (reached // max(tie, 1) + 1) // 2, reached if tie > 1 else 0


def _is_after_a_product(d: Description, i: int) -> bool:
    """Return whether a step is given products of binary32, which have fractions."""
    return i > 0 and not isinstance(d.pipeline[i - 1].stage.format, Fixed)


def telling_sums(d: Description, count: int, seed: int) -> Codes:
    """Return codes of sums, (count,), each once as far as there are enough, the ones that tell most first."""
    source = d.operand_formats[0]
    assert isinstance(source, Fixed)
    low, high = reach_of_sums(d)
    drawn = Random(f"emu sums within reach {seed}")
    # first the sums that tell most; if there are not enough of them, others within reach
    chosen = _first(_in_turn(d, Random(f"emu sums {seed}"), low, high), count)
    # a large multiplier may leave no sum within reach
    among = (low, high) if low <= high else _ends(source)
    while len(chosen) < count:
        chosen.append(drawn.randint(*among))
    return np.array([x & (source.n_codes - 1) for x in chosen], np.uint64)


def _first(numbers: Iterator[int], count: int) -> list[int]:
    """Return the first numbers that differ from each other, at most so many."""
    found: dict[int, None] = {}
    for number in numbers:
        found.setdefault(number)
        if len(found) == count:
            break
    return list(found)


def with_telling_addends(d: Description, operands: tuple[Codes, ...]) -> tuple[Codes, ...]:
    """Return operands of a product, its addend in every other vector such that the sum is one of `telling_sums`.

    Other operations, and products without an addend or a requantiser, keep their operands.
    """
    if d.requantise is None or len(operands) < len(NAMES):
        return operands
    addend = d.operand_formats[2]
    assert isinstance(addend, Fixed)
    a, b = (fmt.decode(x).astype(np.int64) for fmt, x in zip(d.operand_formats[:2], operands[:2], strict=True))
    low, high = reach_of_sums(d)
    wanted = _first(_in_turn(d, Random(f"emu addends {d.seed}"), low, high), d.count)
    # np.resize repeats them if there are fewer than vectors
    sums = np.resize(np.array(wanted, np.int64), d.count)
    needed = (sums - (a * b).sum(axis=1)).view(np.uint64) & np.uint64(addend.n_codes - 1)  # modulo 2**64, as sums wrap
    chosen = np.where(np.arange(d.count) % 2 == 0, needed, operands[2])
    return (*operands[:2], chosen)


def _in_turn(d: Description, drawn: Random, low: int, high: int) -> Iterator[int]:
    """Yield sums at ties, at the ends of what is within reach, and beside the thresholds of elements in any order."""
    by = d.requantise
    assert by is not None
    least, most = _ends(_sums_format(d))
    yield from (x for x in (0, 1, -1, low, high, low - 1, high + 1) if least <= x <= most)
    for step in d.pipeline:
        if step.factor.denominator > 1:
            # half the denominator times an odd number; factors with an odd numerator make a half of it
            ties = (odd * step.factor.denominator // 2 for odd in range(-63, 64, 2))
            yield from (x for x in ties if low <= x <= high)
    fmt = d.stage.format
    elements = list(range(int(fmt.min), int(fmt.max) + 1))
    drawn.shuffle(elements)
    factor = by.factor
    for beside in sorted(range(-BESIDE, BESIDE + 1), key=abs):
        for element in elements:
            for half in (Fraction(1, 2), Fraction(0)):
                # with a half, the threshold to the next element; without, the sum that is this element
                x = round((element - by.zero + half) / factor) + beside
                if least <= x <= most:
                    yield x


def _sums_format(d: Description) -> Format:
    """Return the format of what is requantised; that of sums of products has 32 bits at most."""
    return d.operand_formats[0] if d.operation == "quantize" else Fixed(32, 0)


def _ends(fmt: Format) -> tuple[int, int]:
    assert isinstance(fmt, Fixed)
    return int(fmt.min), int(fmt.max)
