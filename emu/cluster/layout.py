"""Which nodes compute gradients and which add them up: workers, owners, and the columns of each owner."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from emu.errors import ConfigError
from emu.formats.integers import as_integer


class Stripe(NamedTuple):
    """Neighbouring columns that one owner adds up."""

    start: int
    width: int

    @property
    def columns(self) -> slice:
        """Slice of a tensor that has them."""
        return slice(self.start, self.start + self.width)


def stripes_of(columns: int, parts: int) -> list[Stripe]:
    """Return columns divided into `parts` stripes, of which the first may be wider by one column.

    With columns = q * parts + s, part r starts at q * r + min(s, r) and is q + (r < s) wide.

    Examples:
        >>> [tuple(stripe) for stripe in stripes_of(10, 3)]
        [(0, 4), (4, 3), (7, 3)]
    """
    columns, parts = as_integer("columns", columns, 0), as_integer("parts", parts, 1)
    width, wider = divmod(columns, parts)
    # the first `wider` parts have a column more; min(wider, part) of them lie before this part
    return [Stripe(width * part + min(wider, part), width + (part < wider)) for part in range(parts)]


class Block(NamedTuple):
    """What one owner adds up of a tensor: some of its lines, or some of the numbers of its only line."""

    lines: Stripe
    numbers: Stripe

    @property
    def shape(self) -> tuple[int, int]:
        """Its lines, and how many numbers each has."""
        return self.lines.width, self.numbers.width

    @property
    def slices(self) -> tuple[slice, slice]:
        """Slices of a tensor that has it."""
        # `columns` of the stripe of numbers are numbers of each line
        return self.lines.columns, self.numbers.columns

    @classmethod
    def whole(cls, shape: tuple[int, int]) -> Block:
        """Return all of a tensor."""
        return cls(Stripe(0, shape[0]), Stripe(0, shape[1]))


def blocks_of(shape: tuple[int, int], parts: int, *, by_lines: bool = False) -> list[Block]:
    """Return a tensor divided into `parts` blocks; empty ones if it has too few lines, or numbers.

    A tensor is divided by its lines, as `stripes_of` says. A tensor of one line is a vector, such as the biases of a
    layer: it is divided by its numbers, so that a bias goes with its neuron. A part of it has levels of its own.

    Args:
        shape: lines, and numbers of each.
        parts: number of blocks.
        by_lines: whether a tensor of one line stays whole.

    Examples:
        >>> [block.shape for block in blocks_of((10, 64), 3)], [block.shape for block in blocks_of((1, 10), 3)]
        ([(4, 64), (3, 64), (3, 64)], [(1, 4), (1, 3), (1, 3)])

    Source: CN106062786A: a stripe holds the weights and the biases of its neurons.
    """
    lines, numbers = shape
    every = Block.whole(shape)
    if lines == 1 and not by_lines:
        return [Block(every.lines, stripe) for stripe in stripes_of(numbers, parts)]
    return [Block(stripe, every.numbers) for stripe in stripes_of(lines, parts)]


@dataclass(frozen=True)
class Layout:
    """The roles of nodes.

    Attributes:
        nodes: number of nodes.
        workers: nodes that compute gradients, ascending; gradients are added in this order. Empty is all.
        owners: node of each stripe, in the order of stripes; a node may own several. If empty, each node owns one.
        quantise_own: whether an owner quantises its own part as well, or adds it as it is, without a residual.

    Raises:
        ConfigError: a worker or an owner is no node, a worker is named twice, or there is no node.

    Examples:
        >>> Layout(4).owners
        (0, 1, 2, 3)
        >>> Layout(5, workers=(0, 1, 2, 3), owners=(4,)).workers  # one node only adds up
        (0, 1, 2, 3)
    """

    nodes: int
    workers: tuple[int, ...] = ()
    owners: tuple[int, ...] = ()
    quantise_own: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", as_integer("nodes", self.nodes, 1, error=ConfigError))
        for name in ("workers", "owners"):
            # an empty tuple: all nodes
            given = tuple(getattr(self, name)) or tuple(range(self.nodes))
            chosen = tuple(as_integer(name, node, error=ConfigError) for node in given)
            object.__setattr__(self, name, chosen)
            for node in chosen:
                if not 0 <= node < self.nodes:
                    raise ConfigError(
                        f"`{name}` must be nodes 0..{self.nodes - 1}, got {node!r}; name nodes of the cluster, or "
                        "raise `nodes`"
                    )
        if list(self.workers) != sorted(set(self.workers)):
            raise ConfigError(f"`workers` must be ascending, each once, got {list(self.workers)}")

    def require_stripes(self, shapes: Iterable[tuple[int, int]]) -> None:
        """Check that there are no more owners than columns of the widest tensor, or numbers of the longest vector.

        Args:
            shapes: columns and rows of each tensor.

        Raises:
            ConfigError: an owner would have no stripe at all.
        """
        # a vector is divided by its numbers, as in `blocks_of`
        widest = max((rows if columns == 1 else columns for columns, rows in shapes), default=0)
        if len(self.owners) > widest:
            raise ConfigError(
                f"there must be at least one column for each of the {len(self.owners)} owners, got {widest} in the "
                "widest tensor; name fewer nodes, or fewer `owners`"
            )

    def rounds(self) -> list[list[tuple[int, int]]]:
        """Return (sender, receiver) pairs by round: in round r of 1..nodes - 1, node i sends to (i + r) mod nodes."""
        every = range(self.nodes)
        # each round is a permutation: every node sends to one other and receives from one other
        return [[(i, (i + r) % self.nodes) for i in every] for r in range(1, self.nodes)]
