"""Accumulation orders: the tree in which a product's terms are added."""

from __future__ import annotations

from dataclasses import dataclass

from emu.errors import FormatError
from emu.formats.arrays import as_integer


@dataclass(frozen=True)
class Order:
    """Base of the accumulation orders. Source: NUMERICS 7."""


@dataclass(frozen=True)
class Sequential(Order):
    """One accumulator: acc = R(addend), or +0 without one; then k = 0, 1, ... K-1."""

    def __str__(self) -> str:
        return "sequential"


@dataclass(frozen=True)
class Pairwise(Order):
    """A binary tree: leaves R(p_k), padded with +0 to a power of two, neighbours first; then R(sum + addend)."""

    def __str__(self) -> str:
        return "pairwise"


@dataclass(frozen=True)
class Lanes(Order):
    """`count` accumulators from +0, lane j taking k = j, j+count, ...; joined pairwise; then R(sum + addend)."""

    count: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", as_integer("count", self.count, -(1 << 31), 1 << 31))
        if self.count < 1:
            raise FormatError(f"`lanes` must have at least 1 lane, got {self.count}")

    def __str__(self) -> str:
        return f"lanes({self.count})"


def parse_order(order: str | Order) -> Order:
    """Return the order that `order` names: "sequential", "pairwise" or "lanes(n)".

    Raises:
        FormatError: no such order.

    Example:
        >>> parse_order("lanes(4)")
        Lanes(count=4)
    """
    if isinstance(order, Order):
        return order
    text = str(order).replace(" ", "")
    if text == "sequential":
        return Sequential()
    if text == "pairwise":
        return Pairwise()
    if text.startswith("lanes(") and text.endswith(")") and text[6:-1].isdigit():
        return Lanes(int(text[6:-1]))
    raise FormatError(f"`order` must be sequential, pairwise or lanes(n), got {order!r}")
