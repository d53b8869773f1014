"""The adds of one dot product as a list of events, in an order that needs few partial sums at once.

    leaf          one rounded product (pairwise), or a lane's running sum (sequential: of the only lane)
    parked sums   wait for their right neighbour, one at each level: the carries of a binary counter

        leaf 0   leaf 1   leaf 2   leaf 3    after leaf 2: level 1 holds 0+1, level 0 holds 2
            └─0+1─┘          └─2+3─┘         after leaf 3: it is joined with 2, then with 0+1
               └───────┬────────┘

All outputs have the same events, so a kernel takes one after the other, each for a whole block of outputs.

Source: docs/concepts/products.md (orders), docs/concepts/random-bits.md (draws).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends import interface as k

#: What an event does: the running sum becomes 0; it is parked; a product is computed; the sum becomes the product, or
#: the product is added; a parked sum is added; the sum becomes the addend, or the addend is added.
(CLEAR, PARK, MULTIPLY, PUT, ADD, JOIN, PUT_ADDEND, ADD_ADDEND) = range(8)


class Schedule(NamedTuple):
    """Events in order.

    Attributes:
        kinds: what happens.
        indices: of the product, or of the level at which a sum is parked.
        draws: numbers of the random draws.
        levels: how many sums can be parked.
    """

    kinds: NDArray[np.int64]
    indices: NDArray[np.int64]
    draws: NDArray[np.int64]
    levels: int


@lru_cache(maxsize=16)
def schedule_for(order: int, lanes: int, depth: int, *, has_addend: bool) -> Schedule:
    """Return the events of a dot product of `depth` products, in the order of that number."""
    count = {k.SEQUENTIAL: 1, k.LANES: lanes, k.PAIRWISE: max(depth, 1)}[order]
    # The tree of joins is that of the next power of two: lanes or products that are missing are zeros.
    padded = 1 << (count - 1).bit_length()
    leaves = min(count, max(depth, 1))  # lanes without a product are padding
    first, levels, products = _subtrees(leaves, padded, depth)
    # As a binary counter carries: so many sums are parked at the levels from the subtree's own on; it joins them all.
    joins = _trailing_ones(first >> levels)
    counts = 2 * products + joins + 2  # clear, two for each product, joins, park
    # For each event: the subtree it belongs to, and its place there: 0 clears, then come products, joins, one park.
    subtree = np.repeat(np.arange(first.size), counts)
    at = np.arange(subtree.size) - np.repeat(np.cumsum(counts) - counts, counts)
    # A lane takes each `leaves`-th product, beginning with its own number.
    terms = first[subtree] + (at - 1) // 2 * leaves
    join = at - 1 - 2 * products[subtree]
    level = levels[subtree] + join
    is_product, is_join = join < 0, join < joins[subtree]
    is_factor = at % 2 == 1
    # A pairwise leaf is R(product), which R(+0 + product) is not: the sum of +0 and -0 is +0.
    added = PUT if order == k.PAIRWISE else ADD
    kinds = np.where(is_product, np.where(is_factor, MULTIPLY, added), np.where(is_join, JOIN, PARK))
    kinds[at == 0] = CLEAR
    # The number, at its level, of the subtree that a join makes: draws number the joins level by level, from left to
    # right.
    joined = first[subtree] >> np.maximum(level + 1, 0)
    # Draws of a product and its add, 1 + 2k and 2 + 2k; joins follow from 2K + 1 on (docs/concepts/random-bits.md).
    draws = np.where(
        is_product,
        2 * terms + np.where(is_factor, 1, 2),
        2 * depth + 1 + padded - (padded >> np.maximum(level, 0)) + joined,
    )
    indices = np.where(is_product, terms, level)
    if depth == 0:  # nothing is joined: a sum of no products is +0
        kinds, indices, draws = kinds[:1], indices[:1], draws[:1]
    if has_addend and order == k.SEQUENTIAL:
        kinds[0], draws[0] = PUT_ADDEND, 2 * depth + 1
    elif has_addend:
        kinds, indices = np.append(kinds, ADD_ADDEND), np.append(indices, 0)
        draws = np.append(draws, 2 * depth + padded)
    integers = [x.astype(np.int64) for x in (kinds, indices, draws)]
    return Schedule(integers[0], integers[1], integers[2], padded.bit_length())


def _subtrees(leaves: int, padded: int, depth: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return first leaf, level and number of products of each leaf, then of the largest subtrees of padding zeros.

    The largest subtree that begins at a leaf has 2**level leaves, the largest power that divides the leaf's number.
    """
    first = np.arange(leaves)
    products = np.maximum(depth - first + leaves - 1, 0) // leaves
    starts, levels, leaf = list(range(leaves)), [0] * leaves, leaves
    while leaf < padded:
        level = (leaf & -leaf).bit_length() - 1
        starts.append(leaf)
        levels.append(level)
        leaf += 1 << level
    zeros = np.zeros(len(starts) - leaves, np.int64)
    return np.array(starts), np.array(levels), np.concatenate([products, zeros])


def _trailing_ones(x: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many ones each binary number ends in."""
    # x ^ (x + 1) has one bit more, all ones: frexp gives its bit length.
    return np.frexp((x ^ (x + 1)).astype(np.float64))[1].astype(np.int64) - 1
