"""The tree in which a sum's terms are added, with its drawing.

    0 ─┐                  lanes(2) of 4 terms: terms 0 and 2 meet first, then 1 and 3,
    2 ─┴─┐                then both sums. A node of several children is one step that adds
    1 ─┐ │                them all (a block of a matrix unit).
    3 ─┴─┴─

Left and right do not count: IEEE addition commutes, so no experiment can tell them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar, cast

from emu.datapath.order import Blocks, Lanes, Order, Promote, Sequential, parse_order
from emu.errors import FormatError, ShapeError
from emu.formats.integers import as_integer
from emu.testing.order_drawing import draw_svg, draw_text

Value = TypeVar("Value")
ADDEND = "c"


class NoTree(ShapeError):  # noqa: N818 - says what is the case
    """Sizes of subtrees that no tree has."""


@dataclass(frozen=True)
class OrderTree:
    """An accumulation tree over terms 0 .. n_terms-1.

    Attributes:
        n_terms: number of leaves, the addend included.
        clusters: for every node, the set of the leaves below it, as an integer whose bit k stands for term k.
        has_addend: whether the last leaf is the addend; drawings call it `c`.
        significand_bits: of a probed tree, for every node, how many bits its sum keeps: 24 for binary32 (up to 113; no
            more than operands can tell apart); None for the root, whose sum is rounded again by the result. No part of
            a comparison.

    Raises:
        ShapeError: the sets are no tree: two of them overlap, or the one of all leaves is missing.

    Examples:
        >>> print(OrderTree.of(((0, 1), (2, 3))))
        0 ─┐
        1 ─┴─┐
        2 ─┐ │
        3 ─┴─┴─
    """

    n_terms: int
    clusters: frozenset[int]
    has_addend: bool = False
    significand_bits: tuple[int | None, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        everything = (1 << self.n_terms) - 1
        if self.n_terms < 1 or (self.n_terms > 1 and everything not in self.clusters):
            raise ShapeError(f"an accumulation tree must join all of its terms, got {self.n_terms} terms")
        assert self.nodes is not None  # computing them raises an error of overlapping sets

    @classmethod
    def of(cls, nested: Any, *, has_addend: bool = False) -> OrderTree:
        """Return the tree of nested tuples of term numbers, as `((0, 1), 2)`.

        Raises:
            ShapeError: a term is no number from 0 on, comes twice or is missing, or a node joins fewer than two.
        """
        clusters: set[int] = set()
        everything = _leaves_of(nested, clusters)
        return cls(everything.bit_length(), frozenset(clusters), has_addend)

    @cached_property
    def nodes(self) -> tuple[tuple[int, ...], ...]:
        """The children of every inner node; leaves are 0 .. n_terms-1, node number i is n_terms + i, the root last."""
        top = list(range(self.n_terms))  # of every leaf: the largest node so far that holds it
        nodes: list[tuple[int, ...]] = []
        # smaller sets first, so that children come before their parents; then by the first term, c & -c
        for cluster in sorted(self.clusters, key=lambda c: (c.bit_count(), c & -c)):
            leaves = [k for k in range(self.n_terms) if cluster >> k & 1]
            children = tuple(dict.fromkeys(top[k] for k in leaves))
            # if a child reaches beyond this cluster, the two sets overlap without one containing the other
            covered = {k for k in range(self.n_terms) if top[k] in set(children)}
            if covered != set(leaves):
                raise ShapeError(f"the nodes of a tree must not overlap, got terms {leaves} and {sorted(covered)}")
            for k in leaves:
                top[k] = self.n_terms + len(nodes)
            nodes.append(children)
        return tuple(nodes)

    @property
    def is_binary(self) -> bool:
        """Whether every step adds two numbers."""
        return all(len(children) == 2 for children in self.nodes)

    def evaluate(self, terms: Sequence[Value], add: Callable[[list[Value]], Value]) -> Value:
        """Return the sum of `terms` in this order.

        Args:
            terms: one value per leaf.
            add: one step: the children of a node, two or more, to their sum.

        Raises:
            ShapeError: another number of terms than leaves.

        Examples:
            >>> OrderTree.of(((0, 2), 1)).evaluate(["a", "b", "c"], lambda children: f"({'+'.join(children)})")
            '((a+c)+b)'
        """
        if len(terms) != self.n_terms:
            raise ShapeError(f"`terms` must be one per leaf, {self.n_terms}, got {len(terms)}")
        values = list(terms)
        for children in self.nodes:
            values.append(add([values[child] for child in children]))
        return values[-1]

    def label(self, leaf: int) -> str:
        """Return the name of a leaf in drawings: its number, or `c`."""
        return ADDEND if self.has_addend and leaf == self.n_terms - 1 else str(leaf)

    @property
    def _labels(self) -> list[str]:
        return [self.label(leaf) for leaf in range(self.n_terms)]

    def __str__(self) -> str:
        return draw_text(self.nodes, self._labels)

    def __repr__(self) -> str:
        return f"OrderTree({self.evaluate(self._labels, _in_brackets)})"

    def to_svg(self) -> str:
        """Return the drawing as an SVG picture, complete in itself."""
        return draw_svg(self.nodes, self._labels)

    def _repr_svg_(self) -> str:
        return self.to_svg()


def _in_brackets(children: list[str]) -> str:
    return f"({' + '.join(children)})"


def _leaves_of(nested: Any, clusters: set[int]) -> int:
    if not isinstance(nested, (tuple, list)):
        return 1 << as_integer("term", nested, 0, error=ShapeError)
    children = cast("Sequence[Any]", nested)
    if len(children) < 2:
        raise ShapeError(f"every node of a tree must join two terms or more, got {nested}; write its only child alone")
    leaves = 0
    for child in children:
        below = _leaves_of(child, clusters)
        if leaves & below:
            raise ShapeError(f"every term must come once, got {nested}")
        leaves |= below
    clusters.add(leaves)
    return leaves


def order_tree(order: str | Order, k: int, *, addend: bool = False) -> OrderTree:
    """Return the tree in which a `Mac` of this order adds `k` products, as docs/concepts/products.md defines it.

    Args:
        order: as `Mac` takes it.
        k: number of products, at least 1.
        addend: whether there is an addend, the last term.

    Raises:
        FormatError: no such order.
        ShapeError: `k` is below 1.

    Examples:
        >>> order_tree("blocks(2, 24)", 4, addend=True)
        OrderTree(((0 + 1 + c) + 2 + 3))
    """
    k = as_integer("k", k, 1, error=ShapeError)
    known = parse_order(order)
    if isinstance(known, Promote) or (isinstance(known, Blocks) and known.group > 1):
        raise FormatError(
            f"`order` of a tree must add all terms in one format, got {known}; give the one inside it, or one without "
            "groups"
        )
    builder = _Builder(k + addend)
    start = [k] if addend else []
    if isinstance(known, Blocks):
        root = builder.blocks(known, k, start)
    elif isinstance(known, Sequential):
        # the addend is where the chain starts: it comes before the first product
        root = builder.chain(start, [[term] for term in range(k)])
    else:
        lanes = known.count if isinstance(known, Lanes) else k
        # pairwise addition is k lanes of one term each; the lanes' sums are added pairwise, the addend last
        sums = [builder.chain([], [[term] for term in range(j, k, lanes)]) for j in range(min(lanes, k))]
        root = builder.join([*builder.pairwise(sums), *start])
    # a single term makes no node
    assert root == [builder.n_terms + len(builder.nodes) - 1] or builder.n_terms == 1
    return OrderTree(builder.n_terms, frozenset(builder.nodes), addend)


class _Builder:
    """Nodes of a tree in the making; a sum is a list of one node number, or empty."""

    def __init__(self, n_terms: int) -> None:
        self.n_terms = n_terms
        self.nodes: list[int] = []

    def join(self, children: list[int]) -> list[int]:
        """Return the sum of several nodes in one step."""
        if len(children) < 2:
            return children
        # sets of leaves below different children are disjoint, so their sum is their union
        masks = [1 << c if c < self.n_terms else self.nodes[c - self.n_terms] for c in children]
        self.nodes.append(sum(masks))
        return [self.n_terms + len(self.nodes) - 1]

    def chain(self, start: list[int], steps: Iterable[list[int]]) -> list[int]:
        """Return `start` with one step after the other added."""
        for step in steps:
            start = self.join([*start, *step])
        return start

    def pairwise(self, level: list[list[int]]) -> list[int]:
        """Return the sum of neighbours, level by level."""
        while len(level) > 1:
            # without a neighbour the last sum goes up as it is
            level = [self.join([node for sum_ in level[i : i + 2] for node in sum_]) for i in range(0, len(level), 2)]
        return level[0]

    def blocks(self, order: Blocks, k: int, start: list[int]) -> list[int]:
        """Return the sum of a matrix unit's blocks."""
        # `indices` lists the terms of one period in the order of their blocks; the last period may be incomplete
        period = len(order.indices)
        for base in range(0, k, period):
            terms = [
                [base + i for i in order.indices[j : j + order.n] if base + i < k] for j in range(0, period, order.n)
            ]
            if order.addend == "aligned":
                # the sum so far is aligned with the products of each block, in one step
                start = self.chain(start, terms)
            else:
                # the products of a period are summed on their own, and added to the sum so far by a step of its own
                start = self.join([*start, *self.chain([], terms)])
        return start


def tree_of_sizes(n_terms: int, size: Callable[[int, int], int], *, has_addend: bool = False) -> OrderTree:
    """Return the tree in which the smallest subtree of leaves i and j holds `size(i, j)` leaves.

    Args:
        n_terms: number of leaves.
        size: asked for only as many pairs as the tree needs.
        has_addend: whether the last leaf is the addend.

    Raises:
        NoTree: no tree has these sizes.

    Source: the recursion of FPRev: Xie et al., "FPRev: Revealing the order of floating-point summation", 2024,
    arXiv 2411.00442, section 4, with nodes of several children.
    """
    clusters: set[int] = set()
    # n_terms + 1 is the size of no subtree, so at the top no leaf counts as a sibling's
    waiting = [(list(range(n_terms)), n_terms + 1)]  # leaves of one or more siblings, and the size of their parent
    while waiting:
        leaves, parent = waiting.pop()
        first = leaves[0]
        by_size: dict[int, list[int]] = {}
        for leaf in leaves[1:]:
            by_size.setdefault(size(first, leaf), []).append(leaf)
        # `below` grows along the path from `first` to the root of these leaves: each size on the way adds the leaves
        # that join there
        below = [first]
        for n in sorted(by_size):
            # the leaves that join at size n may be several subtrees, all children of that node
            waiting.append((by_size[n], n))
            if n == parent:
                continue  # siblings of the subtree that holds `first`
            below = [*below, *by_size[n]]
            if len(below) != n or n > parent:
                raise NoTree(f"no tree: term {first} shares a subtree of {n} terms with {len(below) - 1} others")
            clusters.add(_mask(below))
    return OrderTree(n_terms, frozenset(clusters), has_addend)


def _mask(leaves: Iterable[int]) -> int:
    mask = 0
    for leaf in leaves:
        mask |= 1 << leaf
    return mask
