"""Every primitive's derivative against a central difference, and the datapath's operations against plain mathematics.

The bound of `assert_gradient`: F(t) = sum(w * f(x + t d)) is differenced with h = 2**-17.
    truncation    h**2 / 6 * |F'''|                2**-34 / 6 per unit of F'''; F''' = 0 for polynomials of degree 2
    cancellation  2 * error of F / (2 h)           at most 2**6 roundings of 2**-53 in each result: 2**-30
both relative to S = sum(|w| * |f|) + |F'|, with |F'''| <= `third` * S.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import emu
from emu import nn
from emu.autodiff import (
    Graph,
    Operation,
    PlainRunner,
    SparseValue,
    Tensor,
    Value,
    check_gradient,
    check_second_derivative,
)
from emu.autodiff.integer_rules import INTEGERS
from emu.autodiff.rules import PRIMITIVES
from emu.datapath import Affine, Requantiser
from emu.errors import NotDifferentiable
from emu.hardware import load_device
from emu.operations.integers import Written
from emu.precision import DatapathRunner, Policy
from emu.sparse import CSR
from emu.testing import assert_bits_equal

Build = Callable[[Graph, list[Tensor]], Tensor]
TRUNCATION, CANCELLATION = 2.0**-34 / 6, 2.0**-30
#: Third derivatives of smooth functions on the inputs below, along directions of up to 4 per element.
SMOOTH = 4.0**3 * 64


def assert_gradient(build: Build, *inputs: np.ndarray, third: float = 0.0) -> None:
    for seed in range(3):
        by_tape, by_difference = check_gradient(build, inputs, seed=seed)
        graph = Graph(PlainRunner())
        result = build(graph, [graph.variable(Value(x)) for x in inputs]).value.array
        size = 4.0 * float(np.abs(result).sum()) + abs(by_tape)  # |w| <= 4
        assert abs(by_tape - by_difference) <= (TRUNCATION * third + CANCELLATION) * size
        assert by_tape != 0


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def distinct(*shape: int, seed: int = 0) -> np.ndarray:
    """Numbers at least 1/8 apart and away from 0: no kink of relu or max pooling within 4 h."""
    n = int(np.prod(shape))
    return ((np.random.default_rng(seed).permutation(n) - n // 2) / 8 + 1 / 16).reshape(shape)


def one(primitive: str, **options: Any) -> Build:
    return lambda graph, inputs: graph.apply(primitive, *inputs, layer="l", **options)


BROADCASTS = [((3, 4), (3, 4)), ((3, 4), (4,)), ((3, 1), (4,)), ((), (2, 3)), ((2, 3, 4), (1, 3, 1)), ((1,), (5,))]


@pytest.mark.parametrize(("a_shape", "b_shape"), BROADCASTS, ids=str)
@pytest.mark.parametrize("primitive", ["add", "subtract", "multiply"])
def test_sums_and_products_of_broadcast_operands(primitive: str, a_shape: tuple, b_shape: tuple):
    assert_gradient(one(primitive), normal(*a_shape, seed=1), normal(*b_shape, seed=2))


@pytest.mark.parametrize(("a_shape", "b_shape"), BROADCASTS, ids=str)
def test_quotients_of_broadcast_operands(a_shape: tuple, b_shape: tuple):
    """|b| >= 1: the third derivative of (a + t d) / (b + t e) is at most 6 |e|**2 (|d| + |a||e|) / |b|**3."""
    b = normal(*b_shape, seed=2)
    assert_gradient(one("divide"), normal(*a_shape, seed=1), b + np.copysign(1, b), third=6 * SMOOTH)


@pytest.mark.parametrize(
    ("a_shape", "b_shape"),
    [((2, 3), (3, 4)), ((5, 2, 3), (5, 3, 4)), ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)), ((1, 1), (1, 1))],
    ids=str,
)
def test_matrix_products(a_shape: tuple, b_shape: tuple):
    assert_gradient(one("matmul"), normal(*a_shape, seed=1), normal(*b_shape, seed=2))


@pytest.mark.parametrize("bias", [True, False])
def test_linear_layers(bias: bool):
    inputs = [normal(4, 3, seed=1), normal(5, 3, seed=2), *([normal(5, seed=3)] if bias else [])]
    assert_gradient(one("linear"), *inputs)


CONVOLUTIONS = [
    # size, kernel, stride, padding: left-over rows, padding beyond the kernel, holes between windows
    ((5, 5), (3, 3), (1, 1), (0, 0)), ((5, 6), (3, 2), (1, 1), (1, 1)), ((7, 6), (3, 3), (2, 2), (0, 0)),
    ((6, 7), (2, 3), (2, 3), (1, 2)),
    ((4, 4), (4, 4), (1, 1), (0, 0)), ((3, 3), (5, 5), (1, 1), (2, 2)), ((7, 7), (2, 2), (3, 3), (0, 0)),
    ((2, 2), (1, 1), (1, 1), (3, 2)),
    ((5, 5), (2, 2), (4, 3), (2, 1)), ((1, 1), (1, 1), (1, 1), (0, 0)), ((4, 5), (2, 2), (1, 2), (4, 3)),
]  # fmt: skip


@pytest.mark.parametrize(("size", "kernel", "stride", "padding"), CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_convolutions(size: tuple, kernel: tuple, stride: tuple, padding: tuple, bias: bool):
    inputs = [normal(2, 3, *size, seed=1), normal(4, 3, *kernel, seed=2), *([normal(4, seed=3)] if bias else [])]
    assert_gradient(one("conv2d", stride=stride, padding=padding), *inputs)


@pytest.mark.parametrize("axis", [(0,), (1, 2), (0, 1, 2), (-1,), (-2, 0)])
def test_sums(axis: tuple):
    assert_gradient(one("sum", axis=axis), normal(3, 4, 2))


def test_relu():
    assert_gradient(one("relu"), distinct(4, 5))


@pytest.mark.parametrize("function", ["sigmoid", "tanh"])
def test_functions(function: str):
    """Their third derivatives are at most 2."""
    assert_gradient(one(function), normal(4, 5), third=SMOOTH)


POOLS = [
    ((6, 6), 2, 2),
    ((5, 7), 2, 2),
    ((5, 5), 3, 1),
    ((7, 6), 3, 2),
    ((7, 7), 2, 3),
    ((4, 4), 4, 4),
    ((3, 3), 1, 1),
    ((6, 5), 4, 1),
]


@pytest.mark.parametrize(("size", "window", "stride"), POOLS, ids=str)
@pytest.mark.parametrize("primitive", ["max_pool", "avg_pool"])
def test_pools_that_tile_overlap_and_leave_gaps(primitive: str, size: tuple, window: int, stride: int):
    assert_gradient(one(primitive, window=window, stride=stride), distinct(2, 3, *size))


def test_moves():
    x = normal(2, 3, 4)
    assert_gradient(one("reshape", shape=(6, 4)), x)
    assert_gradient(one("flatten"), x)
    for axes in ((0, 2, 1), (2, 0, 1), (1, 2, 0), (0, 1, 2)):

        def build(graph: Graph, inputs: list[Tensor], axes: tuple = axes) -> Tensor:
            moved = graph.apply("transpose", inputs[0], layer="l", axes=axes)
            return graph.apply("multiply", moved, inputs[1], layer="m")

        assert_gradient(build, x, x.transpose(axes) + 1)


@pytest.mark.parametrize("loss", ["softmax_cross_entropy", "mse", "euclidean"])
def test_losses(loss: str):
    """Third derivatives of log(sum(exp)) along d are cumulants: at most 6 max|d|**3; of distances above 1, 3 |d|**3."""
    labels = Value(np.array([0, 3, 3, 1, 2]))
    assert_gradient(
        lambda graph, inputs: graph.apply(loss, inputs[0], graph.constant(labels), layer="loss"),
        normal(5, 4),
        third=6 * SMOOTH,
    )


def test_gelu():
    """Its third derivative is at most 3."""
    assert_gradient(one("gelu"), normal(4, 5), third=3 * SMOOTH)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_softmax(causal: bool, scale: float):
    """Third derivatives of a probability along d are at most 6 max|d|**3."""
    assert_gradient(one("softmax", scale=scale, causal=causal), normal(2, 3, 4, 4), third=6 * SMOOTH)


NORMALISED = [((4, 3, 2, 2), (0, 2, 3), 1), ((6, 3), (0,), 1), ((2, 5, 6), (2,), 2), ((7, 4), (1,), 1)]


def normalised(axes: tuple[int, ...], along: int, *running: np.ndarray, training: bool = True) -> Build:
    def build(graph: Graph, inputs: list[Tensor]) -> Tensor:
        graph.training = training
        constants = [graph.constant(Value(x)) for x in running]
        options = {"axes": axes, "along": along, "eps": 0.125, "momentum": 0.25}
        return graph.apply("normalise", *inputs, *constants, layer="n", **options)

    return build


@pytest.mark.parametrize(("shape", "axes", "along"), NORMALISED, ids=str)
def test_normalisation(shape: tuple, axes: tuple, along: int):
    """Of z = (x - m) / s the third derivatives are at most 100 max|d|**3 / s**3, s**2 >= 1/8."""
    inputs = normal(*shape, seed=1), normal(shape[along], seed=2), normal(shape[along], seed=3)
    assert_gradient(normalised(axes, along), *inputs, third=2300 * SMOOTH)


def test_normalisation_by_running_moments_is_a_straight_line():
    running = normal(3, seed=4), normal(3, seed=5) ** 2
    inputs = normal(4, 3, 2, 2, seed=1), normal(3, seed=2), normal(3, seed=3)
    graph = Graph(PlainRunner(), training=False)
    build = normalised((0, 2, 3), 1, *running, training=False)
    found = build(graph, [graph.variable(Value(x)) for x in inputs]).value.array
    mean, variance, gamma, beta = (x[:, None, None] for x in (*running, *inputs[1:]))
    expected = (inputs[0] - mean) / np.sqrt(variance + 0.125) * gamma + beta
    assert np.abs(found - expected).max() < 2.0**-45
    assert graph.moments == {}


def test_no_gradient_flows_through_running_moments_outside_training():
    running = normal(3, seed=4), normal(3, seed=5) ** 2
    inputs = normal(4, 3, 2, 2, seed=1), normal(3, seed=2), normal(3, seed=3)
    assert_gradient(normalised((0, 2, 3), 1, *running, training=False), *inputs)


def test_training_leaves_moved_moments():
    running, x = (normal(3, seed=4), normal(3, seed=5) ** 2), normal(4, 3, 2, 2, seed=1)
    graph = Graph(PlainRunner())
    normalised((0, 2, 3), 1, *running)(graph, [graph.variable(Value(a)) for a in (x, np.ones(3), np.ones(3))])
    batch = x.mean(axis=(0, 2, 3)), x.var(axis=(0, 2, 3))
    for moved, before, now in zip(graph.moments["n"], running, batch, strict=True):
        assert np.abs(moved.array - (0.75 * before + 0.25 * now)).max() < 2.0**-45


def test_rows_of_a_table():
    tokens = Value(np.array([[0, 3, 3], [1, 0, 3]]))
    assert_gradient(lambda graph, x: graph.apply("embedding", x[0], graph.constant(tokens), layer="e"), normal(5, 4))


@pytest.mark.parametrize("rate", [0.0, 0.25, 0.5])
def test_dropout(rate: float):
    assert_gradient(one("dropout", rate=rate), normal(4, 5))


def test_dropout_outside_training_passes_gradients_on():
    def build(graph: Graph, inputs: list[Tensor]) -> Tensor:
        graph.training = False
        dropped = graph.apply("dropout", inputs[0], layer="d", rate=0.5)
        return graph.apply("multiply", dropped, inputs[0], layer="m")

    assert_gradient(build, normal(4, 5))


def test_products_of_more_than_two_axes_are_products_of_rows():
    assert_gradient(one("linear"), normal(2, 3, 4, seed=1), normal(5, 4, seed=2), normal(5, seed=3))


class Case(NamedTuple):
    """What a primitive is differentiated at: tracked inputs, operands behind and before them, its options."""

    inputs: tuple[np.ndarray, ...]
    constants: tuple[np.ndarray, ...]
    options: dict[str, Any]
    before: tuple[Value, ...] = ()

    def build(self, primitive: str, *, squared: bool) -> Build:
        def build(graph: Graph, inputs: list[Tensor]) -> Tensor:
            constants = [graph.constant(Value(x)) for x in self.constants]
            before = [graph.constant(value) for value in self.before]
            result = graph.apply(primitive, *before, *inputs, *constants, layer="l", **self.options)
            return graph.apply("multiply", result, result, layer="m") if squared else result

        return build


def at(*inputs: np.ndarray, constants: tuple[np.ndarray, ...] = (), **options: Any) -> Case:
    return Case(inputs, constants, options)


def sparse_operand() -> SparseValue:
    """Return a matrix (3, 5) with an empty row, an empty column, and two entries in one place."""
    matrix = CSR.of(np.float32([2, -1, 0.5, 3]), [0, 4, 4, 2], [0, 3, 3, 4], (3, 5), "fp32")
    return SparseValue(matrix.data.astype(np.float64), None, matrix)


def mostly_zero(*shape: int) -> np.ndarray:
    """Return numbers of which about half are 0."""
    return np.where(normal(*shape, seed=4) > 0, normal(*shape, seed=5), 0.0)


AFFINE = normal(4, 3, 2, 2, seed=1), normal(3, seed=2), normal(3, seed=3)
MOMENTS = {"eps": 0.125, "momentum": 0.25}
SMOOTHLY = [at(normal(4, 5))]
BROADCAST = [at(normal(3, 4, seed=1), normal(4, seed=2))]
POOLED = [
    *(at(distinct(2, 3, 5, 5), window=3, stride=stride) for stride in (1, 3)),
    at(distinct(2, 3, 5, 6), window=(3, 2), stride=(1, 2), padding=((1, 0), (1, 1)), dilation=(2, 1)),
    at(distinct(2, 3, 4, 4), window=2, stride=3, padding=((1, 1), (0, 1))),
    at(distinct(2, 3, 4, 7), window=(2, 3), stride=(2, 3)),
]
#: Means whose windows count elements of the image alone, and such as end beyond the padding.
COUNTED = [
    at(distinct(2, 3, 5, 6), window=(3, 2), stride=(2, 1), padding=((1, 1), (0, 1)), counts_padding=False),
    at(distinct(2, 3, 5, 5), window=3, stride=2, padding=((1, 2), (1, 1)), beyond=(1, 0)),
]
GROUPED: dict[str, Any] = {"stride": (2, 1), "padding": ((1, 2), (0, 1)), "dilation": (2, 3), "groups": 2}
LABELLED = [at(normal(3, 4), constants=(np.array([0, 3, 1]),))]
#: Every primitive, at one point or more.
#: Primitives that a gradient flows through.
DIFFERENTIABLE = [name for name in PRIMITIVES if name not in INTEGERS]
TWICE: dict[str, list[Case]] = {
    **dict.fromkeys(("add", "subtract", "multiply"), BROADCAST),
    "divide": [at(normal(4, seed=1), 2 + normal(4, seed=2) ** 2)],
    "matmul": [at(normal(3, 4, seed=1), normal(4, 2, seed=2))],
    "linear": [at(normal(3, 4, seed=1), normal(5, 4, seed=2), normal(5, seed=3))],
    "conv2d": [
        at(normal(2, 3, 5, 5, seed=1), normal(4, 3, 3, 3, seed=2), normal(4, seed=3), stride=(2, 1), padding=(1, 1)),
        at(normal(2, 4, 7, 6, seed=1), normal(6, 2, 3, 2, seed=2), normal(6, seed=3), **GROUPED),
        at(normal(2, 3, 4, 5, seed=1), normal(3, 1, 3, 3, seed=2), stride=(1, 2), padding=((0, 1), (2, 0)), groups=3),
    ],
    "transposed_conv2d": [
        at(normal(2, 6, 3, 5, seed=1), normal(6, 2, 3, 2, seed=2), sizes=(4, 7), **(GROUPED | {"dilation": (1, 3)})),
    ],
    "sparse_linear": [Case((normal(5, 4, seed=1), normal(4, seed=2)), (), {}, (sparse_operand(),))],
    "linear_of_entries": [at(mostly_zero(2, 3, 4), normal(5, 4, seed=2), normal(5, seed=3))],
    "sum": [at(normal(3, 4, 2), axis=(0, -1))],
    "relu": [at(distinct(4, 5))],
    **dict.fromkeys(("sigmoid", "tanh", "gelu"), SMOOTHLY),
    "max_pool": POOLED,
    "avg_pool": [*POOLED, *COUNTED],
    "clip": [at(distinct(4, 5), least=-0.7, most=0.9), at(distinct(4, 5), least=-np.inf, most=0.0)],
    **{name: [at(distinct(4, 5), distinct(1, 5, seed=1) + 1 / 32)] for name in ("maximum", "minimum")},
    "absolute": [at(distinct(4, 5))],
    "leaky_relu": [at(distinct(4, 5), slope=0.25)],
    "prelu": [at(distinct(2, 3, 2, 2), normal(3, 1, 1))],
    "elu": [at(distinct(4, 5) / 4, alpha=0.75)],
    **dict.fromkeys(("exp", "erf"), SMOOTHLY),
    **{name: [at(1 + normal(4, 5) ** 2)] for name in ("log", "sqrt")},
    "concatenate": [at(normal(2, 3, seed=1), normal(2, 1, seed=2), normal(2, 2, seed=3), axis=1)],
    "surround": [at(normal(2, 3), pads=((1, 0), (0, 2)), value=0.5)],
    "expand": [at(normal(3, 1), shape=(2, 3, 4))],
    "take": [
        at(normal(3, 4), axis=1, places=np.array([3, 0])),
        at(normal(3, 4), axis=1, places=np.array([[3, 0], [0, 1], [0, 3]])),
        at(normal(3, 4), axis=-1, places=np.array([3, 0])),
        at(normal(3, 4), axis=-1, places=np.array([3, -1, -3])),
    ],
    "reshape": [at(normal(2, 3, 4), shape=(6, 4))],
    "flatten": [at(normal(2, 3, 4))],
    "transpose": [at(normal(2, 3, 4), axes=(2, 0, 1))],
    "softmax": [at(normal(2, 4, 4), scale=0.5, causal=causal) for causal in (False, True)],
    "normalise": [
        at(*AFFINE, axes=(0, 2, 3), along=1, **MOMENTS),
        at(*AFFINE, axes=(0, 2, 3), along=1, **MOMENTS, constants=(np.zeros(3), np.ones(3))),
        at(normal(7, 4, seed=1), normal(4, seed=2), normal(4, seed=3), axes=(1,), along=1, **MOMENTS),
    ],
    "embedding": [at(normal(5, 4), constants=(np.array([[0, 3, 3], [1, 0, 3]]),))],
    "dropout": [at(normal(4, 5), rate=0.25)],
    **dict.fromkeys(("softmax_cross_entropy", "mse", "euclidean"), LABELLED),
}
STRAIGHT = "straight, so its own second derivative is 0"
BETWEEN_KINKS = "straight between its kinks, so its own second derivative is 0"
#: Primitives that are squared first, and why. A square's second derivative is symmetric only if what flows back is the
#: transpose of what flowed forward.
SQUARED: dict[str, str] = {
    **dict.fromkeys(("add", "subtract", "sum", "avg_pool", "embedding", "dropout", "sparse_linear"), STRAIGHT),
    **dict.fromkeys(("reshape", "flatten", "transpose"), STRAIGHT),
    **dict.fromkeys(("relu", "max_pool", "clip", "maximum", "minimum", "absolute", "leaky_relu"), BETWEEN_KINKS),
    **dict.fromkeys(("concatenate", "surround", "expand", "take"), STRAIGHT),
}


def assert_second_derivative(build: Build, *inputs: np.ndarray) -> None:
    for seed in range(3):
        graph = Graph(PlainRunner())
        size = sum(
            float(np.abs(x).sum())
            for x in (build(graph, [graph.variable(Value(x)) for x in inputs]).value.array, *inputs)
        )
        one_way, other_way = check_second_derivative(build, inputs, seed=seed)
        assert abs(one_way - other_way) <= 2.0**-22 * size * max(1.0, abs(one_way))
        assert one_way != 0


@pytest.mark.parametrize("primitive", DIFFERENTIABLE)
def test_second_derivatives_of_every_primitive_do_not_depend_on_their_order(primitive: str):
    """And the first ones are right: of a factor, symmetry says nothing. Normalisation has the largest third ones."""
    assert primitive in TWICE, f"{primitive} is differentiated twice nowhere; give it a case in TWICE"
    for case in TWICE[primitive]:
        build = case.build(primitive, squared=primitive in SQUARED)
        assert_gradient(build, *case.inputs, third=2300 * SMOOTH)
        assert_second_derivative(build, *case.inputs)


@pytest.mark.parametrize("primitive", SQUARED)
def test_what_is_squared_has_no_second_derivative_of_its_own(primitive: str):
    for case in TWICE[primitive]:
        assert check_second_derivative(case.build(primitive, squared=False), case.inputs) == (0.0, 0.0)


def test_no_case_is_of_a_primitive_that_is_gone():
    assert set(TWICE) | set(SQUARED) == set(DIFFERENTIABLE)


def test_no_gradient_flows_through_elements():
    graph, points = Graph(PlainRunner()), Affine.of("fix8f0", 0.5)
    x = graph.variable(Value(np.ones((2, 3))))
    for y in (
        graph.apply("quantize_linear", x, layer="q", to=points),
        graph.apply("integer_matmul", x, graph.constant(Value(np.ones((3, 2)))), layer="q", of=(points, points)),
    ):
        with pytest.raises(NotDifferentiable, match="has no derivative by operand 0 \\(layer q\\)"):
            graph.backward(y, Value(np.ones(y.shape)))


def of_layer(layer: nn.Layer, *shape: int) -> tuple[Build, list[np.ndarray]]:
    """A whole layer as a function of its input and of every parameter inside it."""
    places = [(part.name, p.part, p.shape) for part in nn.every([layer]) for p in part.parameters()]

    def build(graph: Graph, leaves: list[Tensor]) -> Tensor:
        parameters: dict[str, dict[str, Tensor]] = {name: {} for name, _, _ in places}
        for (name, part, _), leaf in zip(places, leaves[1:], strict=True):
            parameters[name][part] = leaf
        return layer.forward(graph, leaves[0], parameters)

    return build, [0.5 * normal(*s, seed=i) for i, s in enumerate([shape, *(s for _, _, s in places)])]


BODY = (nn.Conv2d("r.first", 2, 3, 3, padding=1), nn.Activation("r.gelu", "gelu"), nn.Conv2d("r.second", 3, 2, 1))
BLOCKS = {
    "causal attention": of_layer(nn.Attention("a", 6, 3), 2, 4, 6),
    "open attention": of_layer(nn.Attention("a", 6, 2, causal=False), 2, 3, 6),
    "residual": of_layer(nn.Residual("r", BODY), 2, 2, 4, 4),
    "residual with a shortcut": of_layer(nn.Residual("r", BODY, (nn.Conv2d("r.down", 2, 2, 1),)), 2, 2, 4, 4),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_layers_made_of_layers_twice(name: str):
    build, inputs = BLOCKS[name]
    assert_gradient(build, *inputs, third=100 * SMOOTH)
    assert_second_derivative(build, *inputs)


def test_a_value_used_twice_gets_the_sum_of_its_gradients():
    assert_gradient(lambda graph, x: graph.apply("multiply", x[0], x[0], layer="l"), normal(3, 4))
    assert_gradient(
        lambda graph, x: graph.apply("add", graph.apply("tanh", x[0], layer="l"), x[0], layer="m"),
        normal(3, 4),
        third=SMOOTH,
    )


def test_a_whole_network():
    def build(graph: Graph, leaves: list[Tensor]) -> Tensor:
        x, w1, b1, w2, b2 = leaves
        h = graph.apply("tanh", graph.apply("conv2d", x, w1, b1, layer="c", stride=(1, 1), padding=(1, 1)), layer="t")
        h = graph.apply("flatten", graph.apply("avg_pool", h, layer="p", window=2, stride=2), layer="f")
        labels = graph.constant(Value(np.array([1, 0, 2])))
        return graph.apply("softmax_cross_entropy", graph.apply("linear", h, w2, b2, layer="o"), labels, layer="loss")

    shapes = [(3, 2, 6, 6), (4, 2, 3, 3), (4,), (3, 36), (3,)]
    assert_gradient(build, *(normal(*s, seed=i) * 0.3 for i, s in enumerate(shapes)), third=100 * SMOOTH)


# ---- the datapath's operations: on small integers float32 is exact, so nothing may differ from plain mathematics ----


def on_float32(backend: str) -> DatapathRunner:
    return DatapathRunner(Policy(load_device("float32").precision), backend=backend)


def gradients(runner: Any, build: Build, arrays: list[np.ndarray], seed: np.ndarray) -> list[np.ndarray]:
    graph, fmt = Graph(runner), emu.parse("fp32")
    leaves = [graph.parameter(Value(x, fmt)) for x in arrays]
    result = build(graph, leaves)
    found = graph.backward(
        result,
        Value(
            seed.astype(x.dtype)
            if (x := result.value.array).shape == seed.shape
            else np.resize(seed, x.shape).astype(x.dtype),
            fmt,
        ),
    )
    return [result.value.array, *(found[id(leaf)].array for leaf in leaves)]


def integers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float32)


EXACT = {
    **{
        f"conv2d {c}": (one("conv2d", stride=c[2], padding=c[3]), [(2, 3, *c[0]), (4, 3, *c[1]), (4,)])
        for c in CONVOLUTIONS
    },
    **{f"{p} {s}": (one(p), list(s)) for p in ("add", "subtract", "multiply") for s in BROADCASTS},
    **{f"max_pool {p}": (one("max_pool", window=p[1], stride=p[2]), [(2, 3, *p[0])]) for p in POOLS},
    **{
        f"avg_pool {p}": (one("avg_pool", window=p[1], stride=p[2]), [(2, 3, *p[0])])
        for p in POOLS
        if p[1] & (p[1] - 1) == 0
    },
    "conv2d in groups": (one("conv2d", **GROUPED), [(2, 4, 7, 6), (6, 2, 3, 2), (6,)]),
    "conv2d by channel": (
        one("conv2d", stride=(1, 2), padding=((0, 1), (2, 0)), groups=3),
        [(2, 3, 4, 5), (3, 1, 3, 3)],
    ),
    **{
        f"max_pool with a border {step}": (
            one("max_pool", window=(3, 2), stride=step, padding=((1, 0), (1, 1)), dilation=(2, 1)),
            [(2, 3, 5, 6)],
        )
        for step in (1, 5)
    },
    **{
        f"avg_pool that counts {'the border' if border else 'the image'}": (
            one("avg_pool", window=2, stride=2, padding=((1, 1), (0, 1)), counts_padding=border),
            [(2, 3, 4, 5)],
        )
        for border in (True, False)
    },
    "clip": (one("clip", least=-3.0, most=5.0), [(4, 5)]),
    "maximum": (one("maximum"), [(4, 5), (5,)]),
    "minimum": (one("minimum"), [(4, 1), (4, 5)]),
    "absolute": (one("absolute"), [(4, 5)]),
    "leaky_relu": (one("leaky_relu", slope=0.25), [(4, 5)]),
    "prelu": (one("prelu"), [(2, 3, 2), (3, 1)]),
    "concatenate": (one("concatenate", axis=-1), [(2, 3), (2, 1), (2, 2)]),
    "surround": (one("surround", pads=((1, 0), (0, 2)), value=0.5), [(2, 3)]),
    "expand": (one("expand", shape=(2, 3, 4)), [(3, 1)]),
    "take": (one("take", axis=1, places=np.array([[3, 0], [0, 1], [0, 3]])), [(2, 4, 3)]),
    "linear": (one("linear"), [(4, 3), (5, 3), (5,)]),
    "linear of three axes": (one("linear"), [(2, 4, 3), (5, 3), (5,)]),
    "matmul": (one("matmul"), [(5, 2, 3), (3, 4)]),
    "embedding": (
        lambda graph, x: graph.apply("embedding", x[0], graph.constant(Value(np.array([[0, 3], [3, 1]]))), layer="e"),
        [(5, 4)],
    ),
    "sum": (one("sum", axis=(0, -1)), [(3, 4, 2)]),
    "relu": (one("relu"), [(4, 5)]),
    "mse": (
        lambda graph, x: graph.apply("mse", x[0], graph.constant(Value(np.array([0, 3, 3, 1]))), layer="loss"),
        [(4, 4)],
    ),
}


@pytest.mark.parametrize("name", EXACT)
def test_where_float32_is_exact_the_datapath_is_plain_mathematics(name: str, backend: str):
    build, shapes = EXACT[name]
    arrays = [integers(*shape, seed=i) for i, shape in enumerate(shapes)]
    seed = integers(64, seed=9)
    plain = gradients(PlainRunner(), build, [x.astype(np.float64) for x in arrays], seed)
    for actual, expected in zip(gradients(on_float32(backend), build, arrays, seed), plain, strict=True):
        assert actual.dtype == np.float32
        assert_bits_equal(actual + 0.0, expected + 0.0, "fp32")


BYTES, WORDS = emu.parse("fix8f0"), emu.parse("fix16f0")
WHOLE = Affine.of(BYTES, 1)
DOUBLED: dict[str, Any] = {"to": WORDS, "by": Requantiser("float32", scale=0.5, zero=3)}
#: Operations of integers where nothing rounds: primitive, shapes of its operands, options.
INTEGER_CASES: dict[str, tuple[str, list[tuple[int, ...]], dict[str, Any]]] = {
    "matmul, sums": ("integer_matmul", [(3, 4), (4, 2)], {"of": (Affine.of(BYTES, 1, 5), Affine.of(BYTES, 1, -2))}),
    "matmul, scales of rows and columns": (
        "integer_matmul", [(2, 2), (2, 2)],
        {"of": (Affine.of(BYTES, [1, 2], 0, 0), Affine.of(BYTES, [1, 4], 0, 1)), **DOUBLED}),
    "matmul, scales of rows": (
        "integer_matmul", [(3, 4), (4, 2)], {"of": (Affine.of(BYTES, [1, 2, 4], 0, 0), WHOLE), **DOUBLED}),
    "matmul, bounds": (
        "integer_matmul", [(3, 4), (4, 2)],
        {"of": (WHOLE, WHOLE), "to": WORDS, "by": Requantiser("float32", scale=1, lowest=0, highest=20)}),
    "matmul, one bound": (
        "integer_matmul", [(3, 4), (4, 2)],
        {"of": (WHOLE, WHOLE), "to": WORDS, "by": Requantiser("float32", scale=1, highest=20)}),
    "conv2d, sums": ("integer_conv2d", [(2, 3, 4, 4), (2, 3, 2, 2)], {"of": (WHOLE, WHOLE), "stride": (2, 1)}),
    "conv2d, scales of kernels": (
        "integer_conv2d", [(2, 3, 4, 3), (2, 3, 2, 2)], {"of": (WHOLE, Affine.of(BYTES, [1, 2], 0, 0)), **DOUBLED}),
    "conv2d, scales of kernels and a stride": (
        "integer_conv2d", [(2, 3, 4, 3), (2, 3, 2, 2)],
        {"of": (WHOLE, Affine.of(BYTES, [1, 2], 0, 0)), "stride": (2, 1), **DOUBLED}),
    "quantize_linear, bounds": ("quantize_linear", [(4, 5)], {"to": WHOLE, "how": Written(lowest=0, highest=6)}),
}  # fmt: skip


@pytest.mark.parametrize("name", INTEGER_CASES)
def test_where_nothing_rounds_operations_of_integers_are_plain_mathematics(name: str):
    primitive, shapes, options = INTEGER_CASES[name]
    fmt = emu.parse("fp32") if primitive == "quantize_linear" else BYTES
    arrays = [integers(*shape, seed=i) for i, shape in enumerate(shapes)]

    def result(runner: Any) -> np.ndarray:
        graph = Graph(runner)
        operands = [graph.constant(Value(x.astype(fmt.carrier), fmt)) for x in arrays]
        return graph.apply(primitive, *operands, layer="l", **options).value.array

    plain = result(PlainRunner())
    assert plain.any()
    assert np.array_equal(result(on_float32("reference")), plain)


def applied(primitive: str, *shapes: tuple[int, ...], **options: Any) -> np.ndarray:
    graph = Graph(on_float32("reference"))
    operands = [graph.constant(Value(np.ones(shape, BYTES.carrier), BYTES)) for shape in shapes]
    return graph.apply(primitive, *operands, layer="l", **options).value.array


@pytest.mark.parametrize(
    ("primitive", "shapes", "scales", "rule"),
    [
        (
            "integer_matmul", [(2, 2, 3), (2, 3, 2)], (WHOLE, Affine.of(BYTES, [1, 2], 0, 2)),
            "elements of shape (2, 3, 2) must have one scale, or one for each of 4 vectors along axis 1 in a product, "
            "got 2; give one for all",
        ),
        (
            "integer_matmul", [(2, 2, 3), (3, 2)], (Affine.of(BYTES, [1, 2], 0, 1), WHOLE),
            "elements of shape (2, 2, 3) must have one scale, or one for each of 4 vectors along axis 2 in a product, "
            "got 2; give one for all",
        ),
        (
            "integer_conv2d", [(1, 2, 2, 2), (3, 2, 1, 1)], (WHOLE, Affine.of(BYTES, [1, 2], 0, 1)),
            "elements of shape (3, 2, 1, 1) must have one scale, or one for each of 3 kernels in a product, got 2; "
            "give one for all",
        ),
        (
            "integer_conv2d", [(1, 2, 2, 2), (3, 2, 1, 1)], (Affine.of(BYTES, [1, 2], 0, 1), WHOLE),
            "elements of shape (1, 2, 2, 2) must have one scale in a product, got 2; give one for all",
        ),
    ],
)  # fmt: skip
def test_scales_that_do_not_fit_the_elements_of_a_product_are_refused(
    primitive: str, shapes: list[tuple[int, ...]], scales: tuple[Affine, Affine], rule: str
):
    with pytest.raises(emu.ShapeError) as refused_scales:
        applied(primitive, *shapes, of=scales, **DOUBLED)
    assert str(refused_scales.value) == rule


def test_a_border_that_the_format_of_the_elements_does_not_hold_is_refused():
    assert applied("integer_surround", (1,), pads=((1, 0),), value=-128).tolist() == [-128, 1]
    with pytest.raises(emu.ShapeError) as refused_border:
        applied("integer_surround", (1,), pads=((1, 0),), value=700)
    assert str(refused_border.value) == (
        "`value` of integer_surround must be an element of fix8f0, in -128..127, got 700; choose one, or a wider format"
    )


# ---- what has no derivative ----


def refused(action: Callable[[], Any]) -> str:
    with pytest.raises(emu.NotDifferentiable) as caught:
        action()
    return str(caught.value)


def test_an_unknown_primitive_is_named():
    graph = Graph(PlainRunner())
    x = graph.variable(Value(np.ones(3)))
    assert refused(lambda: graph.apply("sigmoyd", x, layer="l")).startswith(
        "a primitive must be known, got 'sigmoyd'; did you mean 'sigmoid'?"
    )


def test_a_constant_has_no_gradient():
    graph = Graph(PlainRunner())
    x = graph.constant(Value(np.ones(3)))
    for result in (x, graph.apply("relu", x, layer="l")):
        message = refused(lambda result=result: graph.backward(result, Value(np.ones(3))))
        assert message == (
            "a gradient needs a result made from a parameter or tracked input, got a constant; make one with "
            "Graph.parameter or Graph.variable"
        )


def test_labels_have_no_gradient():
    graph = Graph(PlainRunner())
    x, labels = graph.variable(Value(np.ones((2, 3)))), graph.variable(Value(np.array([0, 2])))
    loss = graph.apply("softmax_cross_entropy", x, labels, layer="loss")
    assert (
        refused(lambda: graph.backward(loss, Value(np.ones(()))))
        == "softmax_cross_entropy has no derivative by operand 1 (layer loss)"
    )


def test_a_leaf_the_result_does_not_depend_on_gets_no_gradient():
    graph = Graph(PlainRunner())
    x, y = graph.variable(Value(np.ones(3))), graph.variable(Value(np.ones(3)))
    found = graph.backward(graph.apply("relu", x, layer="l"), Value(np.ones(3)))
    assert set(found) == {id(x)}
    assert id(y) not in found


def test_gradients_of_parameters_and_inputs_have_their_roles():
    """What arrives at a parameter is written as `gradient`, at an input as `error`; slopes as `slope`."""
    seen: list[tuple[str, str, str]] = []

    class Listening(PlainRunner):
        def run(self, operation: Operation, role: str, layer: str) -> Value:
            seen.append((operation.name, role, layer))
            return super().run(operation, role, layer)

    graph = Graph(Listening())
    x, w = graph.variable(Value(normal(4, 3))), graph.parameter(Value(normal(2, 3)))
    result = graph.apply("sigmoid", graph.apply("linear", x, w, layer="fc"), layer="s")
    graph.backward(result, Value(np.ones((4, 2))))
    assert seen == [
        ("matmul", "activation", "fc"), ("function", "activation", "s"), ("sigmoid_slope", "slope", "s"),
        ("multiply", "error", "s"), ("matmul", "error", "fc"), ("matmul", "gradient", "fc"),
    ]  # fmt: skip
