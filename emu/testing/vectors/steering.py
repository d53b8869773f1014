r"""Products whose running sum goes beyond the accumulator's limits and comes back, as often as its terms allow.

In one of four, on average, it does not come back.

    sum      ^       limit
             |--/\------------------
             | /  \          /
             |/    \        /            u * K terms up, 2 u K down, 2 u K up, ...
             |------\------/---------
             |       \    /
             |--------\--/----------
                    -limit

A sum that comes back tells a unit that saturates from one that wraps, adds exactly or saturates at the end alone, which
give the same. A sum that stays beyond tells one that wraps from all others. Random terms cancel each other: the sum of
K of them grows with the square root of K, and hardly ever arrives.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.datapath import Lanes
from emu.engine import quantize
from emu.formats import Fixed, Float, Format
from emu.testing.hard import Places
from emu.testing.vectors.description import Codes, Description

#: Share of the terms before the first turn: at least, unless fewer arrive, and at most.
LEAST_UP, MOST_UP = 0.15, 0.75
#: How far beyond its limit the sum goes, as a share of it; how far sizes of factors differ from each other.
LEAST_BEYOND, MOST_BEYOND, SPREAD = 0.02, 0.5, 0.1
#: Salts of the noise of places.
_WHOLE, _UP, _BEYOND, _ADDEND, _FACTORS, _STAYS = 61, 62, 63, 64, 65, 67  # 66 is that of `_factors`


class Reach(NamedTuple):
    """How far sums of a description's products go.

    Attributes:
        most: the largest magnitude of a sum.
        limit: the largest magnitude that the accumulator holds.
    """

    most: float
    limit: float

    @property
    def is_beyond(self) -> bool:
        """Whether sums go beyond the limit."""
        return self.most > self.limit


def reach_of(description: Description) -> Reach | None:
    """Return how far sums go; None if the operation has no accumulator, or an exact one."""
    d = description
    if d.operation != "matmul" or not isinstance(accumulator := d.mac.mac().accumulator, Fixed | Float):
        return None
    addend = _largest(d.operand_formats[2]) if len(d.operand_formats) > 2 else 0.0
    return Reach(_terms(d) * _largest_product(d) + addend, _largest(accumulator))


def steered_operands(description: Description) -> tuple[Codes, ...] | None:
    """Return codes of operands whose sums cross the limits; None if no sum can, or there is no limit."""
    d, reach = description, reach_of(description)
    if reach is None or not reach.is_beyond or not _largest_product(d):  # products that float64 takes for 0
        return None
    alone = reach.limit / (_terms(d) * _largest_product(d))  # share of the terms that arrives at the limit, all largest
    whole = Places.of(d.seed, (d.count, 1))
    least = min(max(alone * (1 + LEAST_BEYOND), LEAST_UP), 1.0)
    up = least + uniform(whole, _UP) * max(MOST_UP - least, 0.0)
    up = np.where(whole.noise(_STAYS) & np.uint64(3), up, 1.0)  # 1: all terms have one sign
    beyond = 1 + LEAST_BEYOND + uniform(whole, _BEYOND) * (MOST_BEYOND - LEAST_BEYOND)
    size = np.minimum(alone / up * beyond, 1.0)  # of a term, as a share of the largest
    # term k is on the way up for k < u K, then on each stretch of 2 u K terms in the other direction
    turns = np.floor((np.arange(d.depth) / (up * d.depth) + 1) / 2).astype(np.int64)
    downward = (turns + (whole.noise(_WHOLE) & np.uint64(1)).astype(np.int64)) % 2 == 1
    a_format, b_format = d.operand_formats[:2]
    a_negative = (Places.of(d.seed, (d.count, d.depth)).noise(_FACTORS) & np.uint64(1)).astype(bool)
    # the sign of a product is all that matters: it comes from whichever factor has a sign
    if not a_format.signed:
        a_negative &= False
    elif not b_format.signed:
        a_negative = downward
    b_negative = downward ^ a_negative if b_format.signed else np.zeros_like(downward)
    operands = [
        # each factor has the square root of the product's share
        _codes(fmt, _factors(d, i, np.sqrt(size)) * np.where(negative, -_largest(fmt), _largest(fmt)))
        for i, (fmt, negative) in enumerate(((a_format, a_negative), (b_format, b_negative)))
    ]
    if len(d.operand_formats) > 2:
        fmt = d.operand_formats[2]
        small = (2 * uniform(whole, _ADDEND)[:, 0] - 1) * min(_largest(fmt), LEAST_BEYOND * reach.limit)
        operands.append(_codes(fmt, small if fmt.signed else np.abs(small)))
    return tuple(operands)


def _terms(description: Description) -> int:
    """Return how many terms one running sum has: of several lanes each has its own."""
    order = description.mac.mac().order
    return -(-description.depth // order.count) if isinstance(order, Lanes) else description.depth


def _largest(fmt: Format) -> float:
    return float(fmt.max)


def _largest_product(description: Description) -> float:
    d, product = description, description.mac.mac().product
    largest = _largest(d.operand_formats[0]) * _largest(d.operand_formats[1])
    return largest if isinstance(product, str) else min(largest, _largest(product))


def uniform(places: Places, salt: int) -> NDArray[np.float64]:
    """Return numbers of 0..1, below 1."""
    # 53 of the 64 bits: each such integer is a float64, and times 2**-53 none of them reaches 1
    return (places.noise(salt) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _factors(description: Description, operand: int, size: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return shares of the largest number, for each element of an operand: beside `size`, and never above 1."""
    d = description
    noise = uniform(Places.of(d.seed * 4 + operand, (d.count, d.depth)), _FACTORS + 1)
    return size + np.minimum(SPREAD * size, 1 - size) * (2 * noise - 1)


def _codes(fmt: Format, x: NDArray[np.float64]) -> Codes:
    """Return codes of the nearest finite numbers."""
    rule = "saturate" if isinstance(fmt, Fixed) else "satfinite"
    return fmt.encode(quantize(x, fmt, overflow=rule, backend="reference")).astype(np.uint64)
