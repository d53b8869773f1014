"""Order probe: recovers the accumulation tree of any product function by masking operands.

Two products are huge and cancel, M and -M; all others are 1, which vanish beside M. What is added before M meets -M is
lost, what is added after survives:

    ((((M + 1) + 1) - M) + 1) + 1  =  2       terms 0 and 3 share a subtree of 6 - 2 terms: those up to the meeting

The counts of all pairs determine the tree (`tree_of_sizes`). Steps that add several terms at once, as matrix units do,
come out as nodes of several children.

M and 1 are powers of two, as far apart as operands allow, and no farther than the accumulator's guessed range. Every
guess is calibrated: 1s are counted exactly, and every +-M swallows all others; if directed rounding lets a 1 move
M, one 1 at a time is watched instead of their count. Where no guess works, an error says so.

Source: Xie, Gao, Wang, Xue, "FPRev: Revealing the order of floating-point summation", 2024, arXiv 2411.00442.
"""

from __future__ import annotations

import bisect
import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.errors import FormatError, ShapeError
from emu.formats import Format, parse_number
from emu.formats.integers import as_integer, as_pair
from emu.testing.order_masks import Masks, Probe, factors_of, guesses, range_of
from emu.testing.order_tree import NoTree, OrderTree, tree_of_sizes

Array = NDArray[Any]
#: If 1s cannot be counted, one 1 at a time is watched, for up to so many terms: each pair takes a call for every other
#: term, so that calls grow with the cube of their number.
WATCHED_TERMS = 64
#: Up to so many terms every pair is measured; beyond, those that determine the tree and a sample.
MANY_TERMS, CHECKED_PAIRS = 32, 200
#: Kinds of terms, as `Probe` is called with them; the others are 0, and -M is -_HUGE.
_ONE, _HUGE = 1, 2
#: Significands are measured up to so many bits, those of binary128.
MOST_BITS = 113


class _Unfit(FormatError):  # noqa: N818 - says what is the case
    """These masks do not reveal the order."""


def probe_order(
    product: Callable[..., Any],
    k: int,
    *,
    a_format: str | Format = "fp32",
    b_format: str | Format | None = None,
    addend_format: str | Format | None = None,
    accumulator: str | Format | None = None,
    shape: tuple[int, int] | None = None,
) -> OrderTree:
    """Return the order in which `product` adds the terms of a dot product.

    Args:
        product: callable(a, b), or callable(a, b, c) with an addend. It gets carrier arrays of the formats (float32
            for fp32): a and b of shape `(k,)`, or `(m, k)` and `(k, n)`; c of shape `()`, or `(m, n)`. Returns the
            number, or an `(m, n)` array.
        k: number of products, at least 1.
        a_format: format of a. Its products must reach far: an 8-bit integer cannot hide a 1.
        b_format: format of b; None: that of a.
        addend_format: format of c; None: there is no addend.
        accumulator: a format whose range every sum stays within, if it is known to be narrower than that of the
            operands; else ranges of usual accumulators are tried, widest first.
        shape: m and n of a matrix product; the last element of the result is probed, rows and columns being equal.

    Returns:
        The tree over k terms, and the addend as the last one; with the significand bits that each sum keeps.

    Raises:
        FormatError: `product` is no function, or returns no numbers. No masks hide a 1: operands or accumulator reach
            not far enough for so many terms, sums are exact or saturate, or the function does not add in a fixed
            tree. Neither operand is signed.
        ShapeError: k is below 1, or the function returns another shape.

    Exactness: every pair of terms is measured and agrees with the tree returned, up to 32 terms; beyond, the pairs
        that determine the tree and a sample of 200 others.

    Examples:
        >>> print(probe_order(lambda a, b: float(np.float32(a[0] * b[0] + a[2] * b[2]) + np.float32(a[1] * b[1])), 3))
        0 ─┐
        2 ─┴─┐
        1 ───┴─
    """
    k = as_integer("k", k, 1, error=ShapeError)
    if not callable(product):
        raise FormatError(f"`product` must be a function of two arrays, got {product!r}; give one such as np.dot")
    shape = None if shape is None else as_pair("shape", shape, 1)
    a, b = parse_number(a_format), parse_number(a_format if b_format is None else b_format)
    if not (a.signed or b.signed):
        raise FormatError(f"`a_format` or `b_format` must be signed, got {a} and {b}: the masks are M and -M")
    probe = Probe(product, k, a, b, None if addend_format is None else parse_number(addend_format), shape)
    if probe.n_terms == 1:
        return OrderTree(1, frozenset(), has_addend=False)
    reasons: list[str] = []
    for masks in guesses(probe, None if accumulator is None else parse_number(accumulator)):
        try:
            return _recovered(_Measurement.calibrated(probe, masks))
        except (_Unfit, NoTree) as error:
            reasons.append(f"  {masks}: {error}")
    raise FormatError(
        f"no masks reveal the order of {probe.n_terms} terms of {probe.formats_text}: the accumulator must be a "
        "float whose range holds a number that hides all others; name its format with `accumulator=`, take wider "
        "operands, or fewer terms. Tried\n" + "\n".join(reasons or ["  nothing: the operands' range is too narrow"])
    )


@dataclass
class _Measurement:
    """Sizes of subtrees, measured with one set of masks.

    Attributes:
        at_once: how many 1s are counted in one call. 0: there is a single 1 in a call, which survives if exactly 1 is
            returned; any other finite number is what directed rounding leaves of M.
    """

    probe: Probe
    masks: Masks
    at_once: int
    sizes: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])

    @classmethod
    def calibrated(cls, probe: Probe, masks: Masks) -> _Measurement:
        """Return a measurement whose masks count exactly.

        Raises:
            FormatError: they do not.
        """
        # Calibration, cheapest first: 1s add up exactly without M; M survives alone; M swallows the 1s.
        counted = _exact_counts(probe, masks)
        if counted < 1:
            raise _Unfit("a single 1 does not come out as 1")
        masked = [(leaf, kind) for leaf in range(probe.n_terms) for kind in (_HUGE, -_HUGE)]
        if not all(_passes(probe, masks, leaf, kind, []) for leaf, kind in masked):
            raise _Unfit("M does not come out as M")
        # `counted` at a time: the groups in which `size` later counts them
        if all(_swallows(probe, masks, leaf, kind, counted) for leaf, kind in masked):
            return cls(probe, masks, counted)
        if probe.n_terms > WATCHED_TERMS:
            raise _Unfit(f"1 moves M, and beyond {WATCHED_TERMS} terms 1s are not watched one by one")
        return cls(probe, masks, 0)

    def size(self, i: int, j: int) -> int:
        """Return how many leaves the smallest subtree of i and j holds."""
        pair = (min(i, j), max(i, j))
        if pair not in self.sizes:
            others = [leaf for leaf in range(self.probe.n_terms) if leaf not in pair]
            # 1s inside the smallest common subtree meet M or -M there and are lost; those outside are added to 0
            # afterwards
            self.sizes[pair] = self.probe.n_terms - self._survivors(pair, others)
        return self.sizes[pair]

    def _survivors(self, pair: tuple[int, int], others: list[int]) -> int:
        # groups may be counted in separate calls, because which 1s survive depends on the pair alone
        step = max(self.at_once, 1)
        counts = [self._count(pair, others[i : i + step]) for i in range(0, len(others), step)]
        return sum(counts)

    def _count(self, pair: tuple[int, int], ones: list[int]) -> int:
        kinds = _kinds(self.probe.n_terms, ones)
        kinds[pair[0]], kinds[pair[1]] = _HUGE, -_HUGE
        count = self.probe(self.masks, kinds)
        # a value other than 1 is a step of M that directed rounding left: this 1 was swallowed
        if self.at_once == 0 and math.isfinite(count):
            return int(count == 1)
        # NaN and infinities come here too, for they compare false
        if not 0 <= count <= len(ones) or count != int(count):
            raise _Unfit(f"terms {pair[0]} and {pair[1]} as M and -M leave {count!r} of {len(ones)} ones")
        return int(count)


def _kinds(n_terms: int, ones: list[int]) -> NDArray[np.int8]:
    kinds = np.zeros(n_terms, np.int8)
    kinds[ones] = _ONE
    return kinds


def _exact_counts(probe: Probe, masks: Masks) -> int:
    """Return up to how many 1s are counted exactly, at the start of the terms and at their end."""
    terms = list(range(probe.n_terms))
    for count in range(1, probe.n_terms + 1):
        # both ends, because the tree is unknown: the first and the last terms may be summed at different depths
        for ones in (terms[:count], terms[-count:]):
            if probe(masks, _kinds(probe.n_terms, ones)) != count:
                return count - 1
    return probe.n_terms


def _swallows(probe: Probe, masks: Masks, leaf: int, kind: int, at_once: int) -> bool:
    """Return whether +-M at a leaf hides every group of 1s that is counted at once."""
    others = [other for other in range(probe.n_terms) if other != leaf]
    return all(_passes(probe, masks, leaf, kind, others[i : i + at_once]) for i in range(0, len(others), at_once))


def _passes(probe: Probe, masks: Masks, leaf: int, kind: int, ones: list[int]) -> bool:
    """Return whether +-M at a leaf comes out as it is, whatever the 1s at others."""
    kinds = _kinds(probe.n_terms, ones)
    kinds[leaf] = kind
    # kind is 2 or -2, whose sign M takes
    return probe(masks, kinds) == math.copysign(math.ldexp(1.0, masks.huge - masks.small), kind)


def _recovered(measurement: _Measurement) -> OrderTree:
    """Return the tree, checked against pairs it was not built from."""
    probe = measurement.probe
    n = probe.n_terms
    # If all 1s survive beside every pair, each pair would be a subtree of two terms, which no tree of three or more
    # has.
    if n > 2 and all(measurement.size(0, j) == 2 for j in range(1, n)):
        raise _Unfit("M hides nothing: sums are exact, or the accumulator is wider than the operands reach")
    tree = tree_of_sizes(n, measurement.size, has_addend=probe.addend_format is not None)
    pairs = list(itertools.combinations(range(n), 2))
    if n > MANY_TERMS:
        # a fixed seed: the same pairs in every run; beyond MANY_TERMS there are at least 528
        pairs = random.Random(0).sample(pairs, CHECKED_PAIRS)
    _require_agreement(measurement, tree, pairs)
    return replace(tree, significand_bits=_significand_bits(probe, measurement.masks, tree))


def _require_agreement(measurement: _Measurement, tree: OrderTree, pairs: list[tuple[int, int]]) -> None:
    sizes = _sizes_of(tree)
    for pair in pairs:
        if measurement.size(*pair) != sizes(*pair):
            raise NoTree(
                f"no tree: terms {pair[0]} and {pair[1]} share a subtree of {measurement.size(*pair)} terms, "
                f"where all others say {sizes(*pair)}"
            )


def _significand_bits(probe: Probe, masks: Masks, tree: OrderTree) -> tuple[int | None, ...]:
    """Return how many bits the sum of each node keeps; None for the root, after which no term is added.

    A node adds 2**t and 1, and the node above it -2**t. The result is 1 as long as a sum keeps t bits behind its first.
    """
    parent = {child: node for node, children in enumerate(tree.nodes) for child in children}
    first = {leaf: leaf for leaf in range(tree.n_terms)}  # of each node: a leaf below it
    for node, children in enumerate(tree.nodes):
        first[tree.n_terms + node] = first[children[0]]
    bits: list[int | None] = []
    for node, children in enumerate(tree.nodes[:-1]):
        above = parent[tree.n_terms + node]
        # a leaf of a sibling: it enters right after this node's sum, in the node above
        outside = next(first[child] for child in tree.nodes[above] if child != tree.n_terms + node)
        leaves = (first[children[0]], first[children[1]], outside)
        # `kept` counts the t = 1, 2, ... that are kept: a sum that keeps t bits keeps fewer, too
        kept = bisect.bisect_left(range(1, MOST_BITS), True, key=lambda t: not _keeps(probe, masks, leaves, t))
        bits.append(kept + 1)  # with the first one
    return (*bits, None)


def _keeps(probe: Probe, masks: Masks, leaves: tuple[int, int, int], bits: int) -> bool:
    """Return whether 2**bits + 1 - 2**bits is 1; False if operands cannot say."""
    factors = factors_of(masks.small + bits, range_of(probe.a_format), range_of(probe.b_format))
    apart = replace(masks, huge=sum(factors), huge_factors=factors)
    kinds = np.zeros(probe.n_terms, np.int8)
    kinds[list(leaves)] = _HUGE, _ONE, -_HUGE
    # False if the factors' ranges have no such product, or if it would exceed the calibrated M
    return apart.huge == masks.small + bits <= masks.huge and probe(apart, kinds) == 1


def _sizes_of(tree: OrderTree) -> Callable[[int, int], int]:
    # the first cluster with both leaves is the smallest: clusters are nested or disjoint
    ascending = sorted(tree.clusters, key=int.bit_count)

    def size(i: int, j: int) -> int:
        both = 1 << i | 1 << j
        return next(cluster.bit_count() for cluster in ascending if cluster & both == both)

    return size
