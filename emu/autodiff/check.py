"""Derivatives checked in float64: one random direction against a central difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.autodiff.graph import Graph, Tensor
from emu.autodiff.plain import PlainRunner
from emu.autodiff.value import Value

Array = NDArray[Any]
#: Step of the central difference: the cube root of float64's epsilon balances truncation (h**2)
#: and cancellation (eps / h).
STEP = 2.0**-17


def check_gradient(
    build: Callable[[Graph, list[Tensor]], Tensor], inputs: Sequence[Array], *, seed: int = 0
) -> tuple[float, float]:
    """Return the derivative along a random direction by the tape, and by a central difference.

    Args:
        build: makes the result, of any shape, from the tracked inputs.
        inputs: float64 arrays; the point must not lie on a kink.
        seed: of the direction and of the weights that make the result a number.

    Returns:
        Two numbers that agree to about 1e-9 of the larger one where the derivative is right.
    """
    rng = np.random.default_rng(seed)
    directions = [rng.standard_normal(x.shape) for x in inputs]

    def forward(shift: float) -> tuple[Graph, list[Tensor], Tensor]:
        graph = Graph(PlainRunner())
        leaves = [graph.variable(Value(x + shift * d)) for x, d in zip(inputs, directions, strict=True)]
        return graph, leaves, build(graph, leaves)

    graph, leaves, result = forward(0.0)
    weights = rng.standard_normal(np.shape(result.value.array))
    gradients = graph.backward(result, Value(weights))
    by_tape = sum(
        float(np.sum(gradients[id(leaf)].array * d))
        for leaf, d in zip(leaves, directions, strict=True)
        if id(leaf) in gradients
    )
    above, below = (float(np.sum(forward(sign * STEP)[2].value.array * weights)) for sign in (1, -1))
    return by_tape, (above - below) / (2 * STEP)
