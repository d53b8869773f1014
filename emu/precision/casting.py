"""The casts that a policy wants of the factors of a linear layer's product: operations of their own, before it."""

from __future__ import annotations

from typing import Any

from emu.autodiff import Operation, Runner
from emu.datapath import Cast
from emu.precision.policy import Policy

#: Name of the operation that casts.
CAST = "cast"
#: Axes of k in the two factors of a product of matrices; a convolution's k lies along several.
_AXES = (-1, -2)


def with_casts(runner: Runner, policy: Policy, operation: Operation, role: str, layer: str) -> Operation:
    """Return a product whose factors are cast as the policy says; any other operation as it is.

    A convolution reads a cast only if its scale is that of the whole tensor, or of weights that of a channel. In place
    of any other cast it reads the stored tensor: no recipe for blocks or transforms along its k is published.

    Args:
        runner: runs the casts.
        policy: says how factors are cast.
        operation: what is about to run.
        role: role of its result.
        layer: layer whose result it writes.
    """
    casts = policy.casts(layer, role) if operation.factors else None
    if casts is None:
        return operation
    # the product of a linear layer; every other operation with factors is a convolution
    is_matrix = operation.name == "matmul"
    if not is_matrix and not all(
        _serves_convolution(how, name) for how, name in zip(casts, operation.factors, strict=True)
    ):
        return operation
    cast: list[Any] = []
    for factor, operand, how, axis in zip(
        operation.factors, operation.operands, casts, _AXES if is_matrix else (-1, -1), strict=False
    ):
        # each cast has counts, a delayed scale and random bits of its own, by the name of the factor
        part = f"{operation.part}.{factor}" if operation.part else factor
        cast.append(runner.run(Operation(CAST, (operand,), {"cast": how, "axis": axis}, part), role, layer))
    # a bias, if there is one, is not cast
    operands = (*cast, *operation.operands[2:])
    # without factors: the product is not cast a second time
    return Operation(operation.name, operands, operation.options, operation.part)


def _serves_convolution(cast: Cast, factor: str) -> bool:
    """Return whether a convolution can read a factor that is cast like this."""
    finest, *outer = cast.format.levels
    is_whole = finest.tiling.across is None or (factor == "weight" and finest.tiling.is_channel)
    return is_whole and not outer and cast.transform is None
