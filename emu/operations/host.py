"""Functions that operations of the host share.

An accelerator leaves losses, softmax, normalisation and the slope of gelu to its host. Their arithmetic runs in the
format of role `loss`, with pairwise sums in C order (docs/concepts/roles.md, "Our choices"). A result that leaves the
host is written once, in the role of the operation that reads it.
"""

from __future__ import annotations

import math
from typing import Any

from emu.engine.selection import max_pool
from emu.formats import Value
from emu.operations.operands import number
from emu.operations.row import Role


def largest(role: Role, x: Value, array: Any) -> Value:
    """Return the largest values along the last axis, that axis kept, as pooling chooses them, by their bits."""
    # a kernel compares: NaN, signs of zeros and ties as pooling has them
    return x.with_array(max_pool(array, backend=role.backend)[0][..., None])


def column(x: Value) -> Value:
    """Return the same numbers with one more axis at the end, of one element."""
    return x.with_array(x.array[..., None])


def as_saved(role: Role, array: Any) -> Value:
    """Return an array that an operation of the host saved for the backward pass, as a value."""
    return Value(array, role.host_stage.format)


def mean(role: Role, name: str, x: Value, axes: tuple[int, ...]) -> Value:
    """Return a pairwise sum over the count, the summed axes kept with one element each.

    Args:
        role: role of the result.
        name: name of the mean among the intermediate results of its operation.
        x: summed values.
        axes: axes to sum over.
    """
    count = math.prod(x.shape[axis] for axis in axes)
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    # two results of the host: the sum is rounded before it is divided
    quotient = role.on_host(name).divide(role.on_host(f"{name} sum").total(x, axes), number(count))
    return quotient.with_array(quotient.array.reshape(kept))
