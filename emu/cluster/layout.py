"""Which nodes compute gradients and which add them up: workers, owners, and the columns of each owner."""

from __future__ import annotations

from collections.abc import Sequence
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
    return [Stripe(width * part + min(wider, part), width + (part < wider)) for part in range(parts)]


@dataclass(frozen=True)
class Layout:
    """The roles of nodes.

    Attributes:
        nodes: number of nodes.
        workers: nodes that compute gradients, ascending; gradients are added in this order. Empty is all.
        owners: node of each stripe, in the order of stripes; a node may own several. If empty, each node owns one.

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

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", as_integer("nodes", self.nodes, 1, error=ConfigError))
        for name in ("workers", "owners"):
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

    def require_stripes(self, columns: Sequence[int]) -> None:
        """Check that there are no more owners than columns of the widest tensor.

        Args:
            columns: columns of each tensor.

        Raises:
            ConfigError: an owner would have no stripe at all.
        """
        widest = max(columns, default=0)
        if len(self.owners) > widest:
            raise ConfigError(
                f"there must be at least one column for each of the {len(self.owners)} owners, got {widest} in the "
                "widest tensor; name fewer nodes, or fewer `owners`"
            )

    def rounds(self) -> list[list[tuple[int, int]]]:
        """Return (sender, receiver) pairs by round: in round r of 1..nodes - 1, node i sends to (i + r) mod nodes."""
        every = range(self.nodes)
        return [[(i, (i + r) % self.nodes) for i in every] for r in range(1, self.nodes)]
