"""Checks of derivatives in float64: first ones along a random direction, second ones along two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.autodiff.graph import Graph, Tensor
from emu.autodiff.plain import PlainRunner
from emu.formats import Value

Array = NDArray[Any]
#: Distance h of the central difference: its truncation error grows as h**2, its cancellation error as eps / h, so they
#: are balanced near the cube root of float64's eps, 2**-52: 2**-17.3.
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
    # one number tells about all derivatives: an error in a single element changes the sum
    directions = [rng.standard_normal(x.shape) for x in inputs]

    def forward(shift: float) -> tuple[Graph, list[Tensor], Tensor]:
        graph = Graph(PlainRunner())
        # a graph for each point: a tape records one pass
        leaves = [graph.variable(Value(x + shift * d)) for x, d in zip(inputs, directions, strict=True)]
        return graph, leaves, build(graph, leaves)

    graph, leaves, result = forward(0.0)
    # a result of any shape becomes one number by fixed random weights, which are the gradient that arrives
    weights = rng.standard_normal(np.shape(result.value.array))
    gradients = graph.backward(result, Value(weights))
    # the sum over all inputs of gradient times direction; a leaf that the result does not depend on has no gradient
    by_tape = sum(
        float(np.sum(gradients[id(leaf)].array * d))
        for leaf, d in zip(leaves, directions, strict=True)
        if id(leaf) in gradients
    )
    above, below = (float(np.sum(forward(sign * STEP)[2].value.array * weights)) for sign in (1, -1))
    return by_tape, (above - below) / (2 * STEP)


def check_second_derivative(
    build: Callable[[Graph, list[Tensor]], Tensor], inputs: Sequence[Array], *, seed: int = 0
) -> tuple[float, float]:
    """Return how the tape's derivative along one direction changes along another, and the other way round.

    Both are the same number, u^T H v, if the gradient is that of a twice differentiable function. Errors in backward
    rules that a single direction does not show make them differ.

    Args:
        build: makes the result, of any shape, from the tracked inputs.
        inputs: float64 arrays; the function must be twice differentiable there.
        seed: of both directions and of the weights that make the result a number.

    Returns:
        Two numbers that agree to about 1e-8 of the gradient's size where the derivative is right.
    """
    rng = np.random.default_rng(seed)
    # two directions of each input: u^T H v = v^T H u only if the gradient is one of a function
    u, v = ([rng.standard_normal(x.shape) for x in inputs] for _ in range(2))
    graph = Graph(PlainRunner())
    weights = rng.standard_normal(np.shape(build(graph, [graph.variable(Value(x)) for x in inputs]).value.array))

    def along(direction: Sequence[Array], moved: Sequence[Array], shift: float) -> float:
        graph = Graph(PlainRunner())
        leaves = [graph.variable(Value(x + shift * d)) for x, d in zip(inputs, moved, strict=True)]
        gradients = graph.backward(build(graph, leaves), Value(weights))
        return sum(
            float(np.sum(gradients[id(leaf)].array * d))
            for leaf, d in zip(leaves, direction, strict=True)
            if id(leaf) in gradients
        )

    def change(direction: Sequence[Array], moved: Sequence[Array]) -> float:
        return (along(direction, moved, STEP) - along(direction, moved, -STEP)) / (2 * STEP)

    return change(u, v), change(v, u)
