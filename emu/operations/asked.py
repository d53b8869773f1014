"""The work that an operation asks of a machine, from the shapes of its operands alone: no number is computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

Shape: TypeAlias = tuple[int, ...]
Options: TypeAlias = Mapping[str, Any]


class Asked(NamedTuple):
    """The work of an operation.

    Attributes:
        shape: shape of its result.
        multiply_adds: multiply-adds of its products and sums.
        passes: passes of the host over the largest operand; 0 if the device does everything.
    """

    shape: Shape
    multiply_adds: int = 0
    passes: int = 0


#: A column of the table: the work of an operation, from the shapes of its operands and its options.
Rule: TypeAlias = Callable[[Sequence[Shape], Options], Asked]


def size_of(shape: Shape) -> int:
    """Return the number of elements."""
    return math.prod(shape)


def broadcast(operands: Sequence[Shape], options: Options) -> Asked:
    """Ask for a result of the shape that all operands broadcast to."""
    return Asked(np.broadcast_shapes(*operands))


def as_first(operands: Sequence[Shape], options: Options) -> Asked:
    """Ask for a result of the shape of the first operand."""
    return Asked(operands[0])


def as_second(operands: Sequence[Shape], options: Options) -> Asked:
    """Ask for a result of the shape of the second operand."""
    return Asked(operands[1])


def as_first_on_host(passes: int, sums: int = 0) -> Rule:
    """Return the rule of an operation of the host that keeps the shape of its first operand.

    Args:
        passes: passes over the operand.
        sums: how many of them add up all elements.
    """

    def rule(operands: Sequence[Shape], options: Options) -> Asked:
        return Asked(operands[0], sums * size_of(operands[0]), passes)

    return rule
