"""Blocks that reach cells: a largest magnitude where the scale may step, and numbers that are hard to round below it.

    largest magnitude    a power of two, the first with its scale, the largest element times one; neighbours of these
    other numbers        element (index + part of a step) times scale: ties, one place beside them, a dropped bit alone,
                         subnormal elements, what becomes 0, what is beyond the largest element; zeros
    some blocks          zeros, negative zeros, NaN, infinities, subnormal operands, special values

Everything is drawn from the seed and the place. Where there is a number for the whole tensor, the first block has the
tensor's largest magnitude, and no other block a larger one: so the others can be chosen one by one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.reference.scaled import elements_of, names_of_blocks
from emu.engine import quantize
from emu.formats import PRESETS, Fixed, Format, Scaled
from emu.testing.hard import last_index, magnitudes, negated, normal_index
from emu.testing.vectors.blocks.cells import magnitude_codes, neighbours, values_of
from emu.testing.vectors.blocks.evidence import single_blocks
from emu.testing.vectors.blocks.special_blocks import TURN, Draw, SpecialDraw, with_special_blocks
from emu.testing.vectors.description import Codes, Description

Array = NDArray[Any]
#: Largest magnitude of a tensor, about, with all digits of binary32; with a seed it moves a little.
TOP, TOPS = 1234.5678, 97
#: That with which the number for the tensor is a power of two: else short operands times scales are hardly ever ties.
SHORT_TOP = 1344.0
#: Share of the format's largest number that the tensor's largest magnitude has at most.
MOST_OF_RANGE = 0.3
#: Exponents below the tensor's largest magnitude among which those of blocks are drawn: below them scales are lowest.
TENSOR_REACH = 24
# salts of the noise: one stream for each decision
_EXPONENT, _KIND, _SIDE, _PLACE, _SIGN, _NUMBER, _BODY, _TARGET = range(40, 48)


def drawn_blocks(d: Description, count: int, seed: int) -> Codes:
    """Return the operands of blocks, codes (count, together).

    Args:
        d: of the vectors.
        count: how many blocks.
        seed: of all that is drawn.
    """
    fmt, source = d.blocks, d.operand_formats[0]
    assert fmt is not None
    draw, top = Draw.of(seed, count, d.together), top_of(d)
    largest = _largest(fmt, source, draw, top)
    codes = _numbers(fmt, source, draw, largest, top)
    # half of the choices are places, the other half one of both ends
    place = draw.choice(_PLACE, 2 * d.together)
    # the first and the last place are as likely as all others together
    place = np.where(place >= d.together, np.where(place % 2, d.together - 1, 0), place)
    is_largest = np.arange(d.together)[None, :] == place
    negative = _negative(source, draw)
    codes = np.where(is_largest, magnitude_codes(source, largest), codes)
    codes = np.where(negative, negated(source, codes), codes)
    return with_special_blocks(SpecialDraw(d, draw, codes, is_largest, top))


def anchor_of(d: Description) -> Codes | None:
    """Return the block that has the tensor's largest magnitude, codes (1, together); None if it decides nothing."""
    fmt, source = d.blocks, d.operand_formats[0]
    assert fmt is not None
    if fmt.rule.outer is None:
        return None
    block = drawn_blocks(d, 1, d.seed + 1)
    # the tensor's largest magnitude, at the first place
    block[0, 0] = int(magnitude_codes(source, np.array([top_of(d)]))[0])
    values = np.abs(source.decode(block).astype(np.float64))
    # a NaN or infinity would hide what the block is there for
    return np.where(np.isfinite(values), block, np.uint64(0))


def top_of(d: Description) -> float:
    """Return the largest magnitude of a tensor where it decides scales, else the largest operand."""
    fmt, source = d.blocks, d.operand_formats[0]
    assert fmt is not None
    largest = float(source.max)
    if fmt.rule.reads != "exact":
        largest = min(largest, PRESETS["fp32"].max)
    if fmt.rule.outer is None:
        return largest
    # fewer digits than binary32: every other seed then has a tensor scale that is a power of two
    is_short = isinstance(source, Fixed) or source.significand_bits < PRESETS["fp32"].significand_bits
    drawn = SHORT_TOP if is_short and d.seed % 2 == 0 else TOP * (1 + (d.seed % TOPS) / TOPS)
    wanted = min(drawn, MOST_OF_RANGE * largest)
    return float(values_of(source, _rounded_codes(source, np.array([wanted])))[0])


def _rounded_codes(source: Format, x: Array) -> Codes:
    """Return the codes of the magnitudes nearest to some numbers, bounded by the ends of a format."""
    # code 0 is the smallest magnitude: 0, unless the format has none
    least = float(values_of(source, np.zeros(1, np.uint64))[0])
    x = np.clip(np.where(np.isnan(x), least, x), least, float(source.max))
    rule = "saturate" if isinstance(source, Fixed) else "satfinite"
    near = quantize(x, source, overflow=rule, backend="reference")
    return source.encode(near).astype(np.uint64)


def _largest(fmt: Scaled, source: Format, draw: Draw, top: float) -> Array:
    """Return the largest magnitude of each block, (n, 1) float64, numbers of the operands' format."""
    smallest = float(values_of(source, np.ones(1, np.uint64))[0])
    low, high = math.frexp(smallest)[1] - 1, math.frexp(top)[1] - 1
    if fmt.rule.outer is not None:
        low = max(low, high - TENSOR_REACH)
    # blocks 1 and 2 of a turn lie at either end of the exponents; every fourth one near 2**0
    # a sign alone (fix1f0) has no positive number
    span, turn = max(high - low + 1, 1), np.arange(draw.count)[:, None] % TURN
    exponent = low + draw.choice(_EXPONENT, span)
    exponent = np.where(turn == 1, low + draw.choice(_EXPONENT, min(4, span)), exponent)
    exponent = np.where(turn == 2, high, exponent)
    middle = min(max(0, low), high)
    exponent = np.where(turn % 4 == 3, np.clip(middle + draw.choice(_EXPONENT, 9) - 4, low, high), exponent)
    # 52 bits, uniform in [0, 1)
    part = (draw.block.noise(_NUMBER) >> np.uint64(12)).astype(np.float64) * 2.0**-52
    kind = draw.choice(_KIND, 8)
    # significand of the largest element, in [1, 2), and one step of the elements' digits
    m = math.frexp(fmt.largest)[0] * 2
    step = 2.0 ** (1 - fmt.element_digits)
    beyond = m + (2 - m) * part  # where a scale for the largest element clips
    choices = [1.0, m, m + step / 2, m + step / 4, beyond]
    significand = np.select([kind == k for k in range(len(choices))], choices, 1 + part)
    near = values_of(source, _rounded_codes(source, np.minimum(np.ldexp(significand, exponent), top)))
    stepping = _stepping(fmt, source, near, top)
    # kinds 6 and 7 of 8: the first magnitude of a scale
    near = np.where(kind >= 6, stepping, near)
    below, above = neighbours(source, near)
    side = draw.choice(_SIDE, 3)
    beside = np.select([side == 0, side == 1], [below, above], near)
    # a neighbour beyond the ends gives way to the number itself
    return np.where((beside > 0) & (beside <= top), beside, np.where(near > 0, np.minimum(near, top), smallest))


def _stepping(fmt: Scaled, source: Format, near: Array, top: float) -> Array:
    """Return the smallest magnitude that has the same scale as each of some, found by bisection of its code."""
    number = np.float64 if fmt.rule.reads == "exact" else np.float32

    def scales(x: Array) -> Array:
        stored = single_blocks(fmt, x.astype(number).reshape(-1), top).stored[0]
        return stored.reshape(-1)[: x.size].reshape(x.shape)

    # Bisection for the smallest code whose scale is that of `near`. Invariant: the scale at `high` is at least `own`,
    # and every code below `low` has a smaller scale. The interval halves in each step, so width_bits steps suffice.
    own = scales(near)
    high = magnitude_codes(source, near)
    low = np.zeros_like(high)
    for _ in range(source.width_bits):
        middle = (low + high) >> np.uint64(1)
        reaches = scales(values_of(source, middle)) >= own
        high, low = np.where(reaches, middle, high), np.where(reaches, low, np.minimum(middle + np.uint64(1), high))
    return values_of(source, high)


def _factors(fmt: Scaled, largest: Array, top: float) -> Array:
    """Return the factor by which the numbers of each block become elements, about, (n, 1) float64."""
    number = np.float64 if fmt.rule.reads == "exact" else np.float32
    flat = largest.reshape(-1).astype(number)
    scales = single_blocks(fmt, flat, top)
    names = names_of_blocks(fmt, scales)
    with np.errstate(all="ignore"):
        # the rule itself divides the largest numbers; the ratio to them is the factor, whatever the rule calls a scale
        quotients = elements_of(fmt, np.append(flat, number(top)), names).astype(np.float64)[: flat.size]
        factors = np.where(flat > 0, quotients / flat.astype(np.float64), 1.0)
    return np.where(np.isfinite(factors) & (factors > 0), factors, 1.0).reshape(largest.shape)


def _numbers(fmt: Scaled, source: Format, draw: Draw, largest: Array, top: float) -> Codes:
    """Return the codes of other numbers' magnitudes, (n, together): elements and parts of a step, times scales."""
    out = _targets(fmt, draw)
    with np.errstate(all="ignore"):
        near = _rounded_codes(source, out / _factors(fmt, largest, top))
    if not fmt.rule.divides_exactly:  # where division rounds, a neighbour may be the one that becomes a tie
        step = draw.each(_SIDE, 3).astype(np.int64) - 1
        near = np.maximum(near.astype(np.int64) + step, 0).astype(np.uint64)
    # in every other block the others are much smaller, so that the scale is that of the largest alone
    lower = np.maximum(draw.choice(_SIGN, 16) - 7, 0)
    most = np.minimum(magnitude_codes(source, largest), _rounded_codes(source, np.ldexp(largest, -lower)))
    # what would be larger than the largest is that, or one place below it, or nothing
    choices = draw.each(_TARGET, 4)
    other = np.select([choices == 0, choices == 1], [most, np.maximum(most, 1) - np.uint64(1)], np.uint64(0))
    return np.where(near > most, other, near).astype(np.uint64)


def _targets(fmt: Scaled, draw: Draw) -> Array:
    """Return magnitudes in units of the scale that are hard for the elements' rounding, (n, together) float64.

    kind     what it is
    0..3     a tie, every fourth one of the smallest elements
    4..7     just above a tie, just below one
    8, 9     a dropped bit alone behind the guard, which is 0 or 1
    10       a dropped bit far behind the guard, of an element with few digits
    11       below the smallest element: half of it, or less
    12       eighths of a step, half of them below the smallest normal element
    13, 14   beside the largest element, and beyond it
    15       0
    """
    element = fmt.element
    last, normal = last_index(element), normal_index(element)
    kind = draw.each(_NUMBER, 16)
    body = draw.number.noise(_BODY)
    # indices of the elements' grid, below the largest
    span = max(last, 1)
    index = body % np.uint64(span)
    eighths = (body >> np.uint64(36) & np.uint64(7)).astype(np.float64) / 8
    small = body % np.uint64(max(min(normal + 2, span), 1))
    index = np.where(kind % 4 == 0, small, index)
    index = np.where(kind == 13, np.uint64(max(last - 1, 0)) + (body & np.uint64(1)), index)
    index = np.where((kind == 12) & (eighths >= 0.5), np.uint64(max(normal - 1, 0)), index)
    index = np.where(kind == 14, np.uint64(last), index)
    # a dropped bit 1 to 24 places below the guard
    far = draw.each(_TARGET, 24) + 1
    guard = (body >> np.uint64(32) & np.uint64(1)).astype(np.float64)
    digits = (body >> np.uint64(40)) & np.uint64(1)
    near = np.ldexp(1.0, -far)
    part = np.select(
        [kind < 4, kind < 6, kind < 8, kind < 10, kind == 10, kind == 12],
        [0.5, 0.5 + 2.0**-12, 0.5 - 2.0**-12, guard / 2 + near / 2, 0.5 + near / 2, eighths],
        draw.part(_PLACE),
    )
    index = np.where((kind >= 8) & (kind < 11) & (digits == 0), index & ~np.uint64(1), index)
    # a bit far behind the guard leaves few digits for the element
    index = np.where(kind == 10, np.minimum(body & np.uint64(2), np.uint64(span)), index)
    index = np.where(kind == 11, np.uint64(0), index)  # below the smallest element, where a number becomes 0
    part = np.where(kind == 11, np.select([far % 3 == 0, far % 3 == 1], [0.5, near / 2], part), part)
    return np.where(kind == 15, 0.0, magnitudes(element, index, 2 * part))


def _negative(source: Format, draw: Draw) -> NDArray[np.bool_]:
    # all 0, positive, for an unsigned format
    signs = draw.number.noise(_SIGN) & np.uint64(source.signed)
    # of one block in eight all signs are the same, so that one of them has the largest magnitude of either sign
    turn = draw.choice(_SIGN, 8)
    return np.where(turn == 0, False, np.where(turn == 1, source.signed, signs != 0))
