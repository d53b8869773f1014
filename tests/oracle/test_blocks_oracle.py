"""Attention and residual connections against NumPy models in float64: results, derivatives, who sees whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fast_suite import most_are_slow

import emu
from emu import nn
from emu.autodiff import Graph, PlainRunner, Tensor, Value
from emu.hardware import Device, load_device
from emu.precision import DatapathRunner, Policy

Array = np.ndarray
Numbers = dict[str, dict[str, Array]]
Model = Callable[[Array, Numbers], Array]
ROLES = ("weight", "bias", "activation", "error", "gradient", "update", "master", "loss")
FLOAT64 = Device.model_validate(
    {
        "name": "float64",
        "description": "every number is binary64",
        "source": "IEEE 754",
        "precision": {
            **{role: {"format": "fp64"} for role in ROLES},
            "mac": {"product": "fp64", "accumulator": "fp64", "order": "sequential"},
        },
    }
)
#: A result is about 2**7 roundings of 2**-53 of numbers below 2**4 away from its inputs; 2**2 for what softmax widens.
FORWARD = 2.0**-40
#: Step h of central differences, and how far they are off per unit of the weights: 2**-30 by cancellation, and
#: h**2 / 6, 2**-36.6, times third derivatives of up to 2**10. That holds a rounded scale, 2**-25 of a score, too.
STEP, DIFFERENCE = 2.0**-17, 2.0**-26


@pytest.fixture(params=["plain", "reference", "numba"])
def runner(request: pytest.FixtureRequest) -> Any:
    """What computes in float64: plain mathematics, or a datapath on each backend."""
    if request.param == "plain":
        return PlainRunner()
    return DatapathRunner(Policy(FLOAT64.precision), backend=request.param)


def numbers_of(layer: nn.Layer, seed: int) -> Numbers:
    """Weights and biases of all sizes near 1/sqrt(fan in), by layer and part."""
    rng = np.random.default_rng(seed)
    return {
        part.name: {p.part: rng.standard_normal(p.shape) / np.sqrt(p.fan_in) * 1.5 for p in part.parameters()}
        for part in nn.every([layer])
    }


def applied(layer: nn.Layer, runner: Any, x: Array, numbers: Numbers, fmt: str = "fp64") -> tuple[Tensor, Graph, Any]:
    """The layer's result, the tape, and its leaves: input, then parameters."""
    graph, parsed = Graph(runner), emu.parse(fmt)

    def value(array: Array) -> Value:
        return Value(array.astype(parsed.carrier), parsed)

    entered = graph.variable(value(x))
    parameters = {
        name: {part: graph.parameter(value(array)) for part, array in parts.items()} for name, parts in numbers.items()
    }
    result = layer.forward(graph, entered, parameters)
    return result, graph, [entered, *(leaf for parts in parameters.values() for leaf in parts.values())]


# ---- models ----


def linear(x: Array, of: dict[str, Array]) -> Array:
    return np.einsum("...i,oi->...o", x, of["weight"]) + of["bias"]


def attention(heads: int, causal: bool, scale: float | None = None) -> Model:
    """Vaswani et al., section 3.2, place by place: head h reads columns h d .. (h + 1) d of each projection."""

    def model(x: Array, numbers: Numbers) -> Array:
        query, key, value = (linear(x, numbers[f"a.{part}"]) for part in ("query", "key", "value"))
        count, length, features = x.shape
        d = features // heads
        joined = np.empty_like(x)
        for row, place, head in np.ndindex(count, length, heads):
            columns = slice(head * d, (head + 1) * d)
            seen = range(place + 1) if causal else range(length)
            scores = [query[row, place, columns] @ key[row, other, columns] for other in seen]
            shares = np.exp(np.array(scores) * (1 / np.sqrt(d) if scale is None else scale))
            shares /= shares.sum()
            joined[row, place, columns] = sum(
                share * value[row, other, columns] for share, other in zip(shares, seen, strict=True)
            )
        return linear(joined, numbers["a.output"])

    return model


def residual(shortcut: bool) -> Model:
    """He et al.: y = F(x) + x, or F(x) + W x."""

    def model(x: Array, numbers: Numbers) -> Array:
        way = linear(np.tanh(linear(x, numbers["r.first"])), numbers["r.second"])
        return way + (linear(x, numbers["r.down"]) if shortcut else x)

    return model


def residual_layer(features: int, *, shortcut: bool) -> nn.Residual:
    out = features + 1 if shortcut else features
    body = (
        nn.Linear("r.first", features, 7),
        nn.Activation("r.tanh", "tanh"),
        nn.Linear("r.second", 7, out),
    )
    return nn.Residual("r", body, (nn.Linear("r.down", features, out),) if shortcut else ())


#: Layer, model, shape of the input. Head sizes of 1, 4 and 16 have scales that float32 holds; that of 3 is rounded.
BLOCKS: dict[str, tuple[nn.Layer, Model, tuple[int, ...]]] = {
    **{
        f"attention, {heads} heads of {size}, {'causal' if causal else 'open'}": (
            nn.Attention("a", heads * size, heads, causal),
            attention(heads, causal, float(np.float32(3**-0.5)) if size == 3 else None),
            (2, 4, heads * size),
        )
        for heads, size in ((1, 16), (4, 1), (3, 4), (2, 3))
        for causal in (True, False)
    },
    **{
        f"residual, {'shortcut' if shortcut else 'identity'}": (
            residual_layer(6, shortcut=shortcut),
            residual(shortcut),
            (3, 6),
        )
        for shortcut in (True, False)
    },
}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_is_its_papers_formula(name: str, runner: Any):
    """Where float32 does not hold the scale, plain mathematics has another: 2**-25 of a score, below 2**4 of them."""
    layer, model, shape = BLOCKS[name]
    x, numbers = np.random.default_rng(7).standard_normal(shape), numbers_of(layer, seed=8)
    found, expected = applied(layer, runner, x, numbers)[0].value.array, model(x, numbers)
    assert found.dtype == np.float64
    assert found.shape == expected.shape
    assert np.abs(expected).max() < 2**4
    rounded_scale = isinstance(runner, PlainRunner) and "of 3" in name
    assert np.abs(found - expected).max() <= (2.0**-19 if rounded_scale else FORWARD)


@most_are_slow("name", BLOCKS, keep=lambda name: "1 heads" not in name and "2 heads" not in name)
def test_a_blocks_gradients_are_the_slopes_of_its_papers_formula(name: str, runner: Any):
    layer, model, shape = BLOCKS[name]
    rng = np.random.default_rng(9)
    x, numbers = rng.standard_normal(shape), numbers_of(layer, seed=10)
    result, graph, leaves = applied(layer, runner, x, numbers)
    weights = rng.standard_normal(result.shape)
    gradients = graph.backward(result, Value(weights, emu.parse("fp64")))
    directions = [rng.standard_normal(leaf.shape) for leaf in leaves]

    def weighed(t: float) -> float:
        moves = iter(t * d for d in directions)
        moved = x + next(moves)
        parameters = {n: {p: a + next(moves) for p, a in parts.items()} for n, parts in numbers.items()}
        return float((model(moved, parameters) * weights).sum())

    slope = sum(float((gradients[id(leaf)].array * d).sum()) for leaf, d in zip(leaves, directions, strict=True))
    difference = (weighed(STEP) - weighed(-STEP)) / (2 * STEP)
    assert abs(slope - difference) <= DIFFERENCE * 4 * float(np.abs(weights).sum())


# ---- who sees whom ----


@pytest.mark.parametrize("causal", [True, False])
def test_with_causal_a_token_changes_no_bit_before_it_and_without_it_changes_every_place(causal: bool, backend: str):
    layer = nn.Attention("a", 8, 2, causal)
    x, numbers = np.random.default_rng(11).standard_normal((2, 5, 8)), numbers_of(layer, seed=12)
    runner = DatapathRunner(Policy(load_device("float32").precision), backend=backend)

    def output(entering: Array) -> Array:
        return applied(layer, runner, entering, numbers, "fp32")[0].value.array.view(np.uint32)

    before = output(x)
    for token in range(5):
        changed = x.copy()
        changed[:, token] *= -2
        unchanged = (output(changed) == before).all(axis=(0, 2))
        assert unchanged[:token].all() if causal else not unchanged[:token].any()
        assert not unchanged[token:].any()
