"""What operations of a network mean on a datapath: formats by role, one rounding per result, streams of their own."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import emu
from emu import Mac
from emu.autodiff import Graph, Operation, PlainRunner, Value
from emu.datapath import Affine, stream_of
from emu.hardware import Device, load_device
from emu.operations.reference_integers import Written
from emu.precision import CounterTable, DatapathRunner, Policy
from emu.testing import assert_bits_equal


def device(**precision: Any) -> Device:
    roles = {
        role: {"format": "fix16f8"}
        for role in ("weight", "bias", "activation", "error", "gradient", "update", "master")
    }
    return Device.model_validate({"name": "test", "description": "d", "source": "s", "precision": roles | precision})


def runner_of(machine: Device, backend: str = "reference", **options: Any) -> DatapathRunner:
    policy = Policy(machine.precision)
    return DatapathRunner(policy, backend=backend, counters=CounterTable(policy.register), **options)


def value(x: Any, fmt: str) -> Value:
    parsed = emu.parse(fmt)
    return Value(emu.quantize(np.asarray(x, np.float64), parsed, backend="reference"), parsed)


def test_every_role_is_written_in_its_format():
    runner = runner_of(device(error={"format": "fp16"}, layers=[{"match": "fc*", "activation": {"format": "fix8f4"}}]))
    x = value([1.03125], "fix16f8")
    for layer, role, expected in (
        ("conv1", "activation", "fix16f8"),
        ("fc1", "activation", "fix8f4"),
        ("fc1", "error", "fp16"),
        ("fc1", "slope", "fix8f4"),
        ("fc1", "momentum", "fix16f8"),
    ):
        result = runner.run(Operation("add", (x, x)), role, layer)
        assert str(result.format) == expected, (layer, role)
        assert result.array.dtype == result.format.carrier


def test_every_result_is_counted_under_its_layer_and_role():
    runner = runner_of(device())
    for layer, role in (("a", "activation"), ("a", "activation"), ("a", "error"), ("b", "activation")):
        runner.run(Operation("add", (value(np.full(5, 100), "fix16f8"),) * 2), role, layer)
    counted = {key: (counters.elements, counters.flags.overflow) for key, counters in runner.counters.items()}
    assert counted == {("a", "activation"): (10, 10), ("a", "error"): (5, 5), ("b", "activation"): (5, 5)}


def test_random_bits_come_from_the_stream_of_layer_role_and_part():
    machine = device(
        activation={"format": "fix16f8", "rounding": "stochastic"},
        error={"format": "fix16f8", "rounding": "stochastic"},
    )
    runner = runner_of(machine, seed=7)
    runner.step = 3
    x = value(np.full(64, 2.0**-12), "fix32f16")
    zero = value(0, "fix16f8")
    for role, part, name in (("activation", "", "a"), ("error", "", "a"), ("activation", "bias", "a.bias")):
        result = runner.run(Operation("add", (x, zero), part=part), role, "a")
        expected = emu.quantize(
            x.array, "fix16f8", rounding="stochastic", seed=7, step=3, stream=stream_of(name, role), backend="reference"
        )
        assert_bits_equal(result.array, expected, "fix16f8")


@pytest.mark.parametrize("fmt", ["fix16f8", "fp16"])
@pytest.mark.parametrize("count", [4, 9, 25])
@pytest.mark.parametrize("rounding", ["nearest_even", "floor", "nearest_away"])
def test_a_mean_over_an_exact_accumulator_is_rounded_once(fmt: str, count: int, rounding: str, backend: str):
    windows = value(np.random.default_rng(count).standard_normal((40, count)), fmt)
    runner = runner_of(device(activation={"format": fmt, "rounding": rounding}), backend)
    result = runner.run(Operation("average", (windows,)), "activation", "pool")
    means = [sum((Fraction(float(x)) for x in row), Fraction(0)) / count for row in windows.array]
    parsed = emu.parse(fmt)
    for actual, mean in zip(result.array, means, strict=True):
        step = Fraction(parsed.ulp(float(mean))) if fmt == "fp16" else Fraction(1, 256)
        units, rest = divmod(mean, step)
        up = {
            "floor": False,
            "nearest_even": rest > step / 2 or (rest == step / 2 and units % 2 == 1),
            "nearest_away": rest > step / 2 or (rest == step / 2 and mean > 0),
        }[rounding]
        assert Fraction(float(actual)) == (units + up) * step


def test_selections_are_written_anew_only_where_the_format_changes():
    x = value([-1.0, 2.0, 100.0], "fix16f8")
    runner = runner_of(device(layers=[{"match": "narrow", "activation": {"format": "fix8f4"}}]))
    same = runner.run(Operation("relu", (x,)), "activation", "relu1")
    other = runner.run(Operation("relu", (x,)), "activation", "narrow")
    assert same.array.tolist() == [0.0, 2.0, 100.0]
    assert other.array.tolist() == [0.0, 2.0, 7.9375]
    counted = {key: counters.elements for key, counters in runner.counters.items()}
    assert (counted["relu1", "activation"], counted["narrow", "activation"]) == (0, 3)


DOUBLE = device(loss={"format": "fp64"}, activation={"format": "fp64"}, error={"format": "fp64"})
FP64 = emu.parse("fp64")


def on_doubles(name: str, *operands: Any, **options: Any) -> Any:
    """The arrays that an operation of a host of float64 gives."""
    given = tuple(Value(np.asarray(x, np.float64), FP64) for x in operands)
    return runner_of(DOUBLE).run(Operation(name, given, options), "activation", "layer").array


def test_a_host_of_float64_computes_what_mathematics_says():
    """Every step errs by at most half an ulp of 2**-52, and fewer than 20 follow each other on numbers up to 8.

    Constants are float32: powers of two and their halves here, but for the two of gelu, each 2**-25 off at most.
    """
    rng = np.random.default_rng(5)
    g, z = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 3, 4))
    y = np.exp(z) / np.exp(z).sum(axis=2, keepdims=True)
    exact: dict[str, Any] = {"rtol": 0, "atol": 20 * 2.0**-50}
    np.testing.assert_allclose(on_doubles("softmax", z * 2, scale=0.5, causal=False), y, **exact)
    expected = 0.5 * y * (g - (g * y).sum(axis=2, keepdims=True))
    np.testing.assert_allclose(on_doubles("softmax_gradient", g, y, scale=0.5), expected, **exact)
    x = np.linspace(-3, 3, 25)
    phi = np.array([0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x])
    slope = phi + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    np.testing.assert_allclose(on_doubles("gelu_slope", x), slope, rtol=0, atol=2.0**-22)
    np.testing.assert_allclose(on_doubles("squared_norm", x), (x * x).sum(), rtol=20 * 2.0**-50)


def test_a_normalisation_moves_running_moments_toward_those_of_the_batch():
    x = np.random.default_rng(6).normal(size=(8, 3))
    gamma, beta, mean, variance = np.array([[1.0, 2, 0.5], [0, -1, 3], [4, -2, 1], [1, 9, 4]])
    options = {"axes": (0,), "along": 1, "eps": 0.25, "momentum": 0.125, "training": True}
    written, (normalised, inverse), moments = on_doubles("normalise", x, gamma, beta, mean, variance, **options)
    of_batch = x.mean(axis=0), x.var(axis=0)
    right = (x - of_batch[0]) / np.sqrt(of_batch[1] + 0.25)
    close: dict[str, Any] = {"rtol": 0, "atol": 20 * 2.0**-50}  # fewer than 20 steps of half an ulp, numbers up to 8
    np.testing.assert_allclose(normalised, right, **close)
    np.testing.assert_allclose(inverse[0], 1 / np.sqrt(of_batch[1] + 0.25), **close)
    np.testing.assert_allclose(written, gamma * right + beta, **close)
    for moved, before, now in zip(moments, (mean, variance), of_batch, strict=True):
        np.testing.assert_allclose(moved, 0.875 * before + 0.125 * now, **close)
    later = on_doubles("normalise", x, gamma, beta, mean, variance, **options | {"training": False})
    np.testing.assert_allclose(later[0], gamma * (x - mean) / np.sqrt(variance + 0.25) + beta, **close)


def test_slopes_of_activations_are_rounded_once(backend: str):
    """y - y*y and 1 - y*y as one fused operation: every fix8f6 value, against fractions."""
    raws = np.arange(-64, 65)
    y = Value((raws / 64).astype(np.float32), emu.parse("fix8f6"))
    runner = runner_of(device(activation={"format": "fix8f6"}), backend)
    for name, exact in (("sigmoid_slope", lambda f: f - f * f), ("tanh_slope", lambda f: 1 - f * f)):
        result = runner.run(Operation(name, (y,)), "slope", "a").array
        expected = [max(min(round(exact(Fraction(int(raw), 64)) * 64), 127), -128) for raw in raws]
        assert (result * 64).tolist() == expected


def test_the_loss_of_the_float32_host_is_the_logarithm_of_a_softmax(backend: str):
    """Within 2**-18: about 2**4 operations on numbers below 2**3, each within 2**-24 relative."""
    rng = np.random.default_rng(1)
    x, labels = value(rng.standard_normal((6, 10)) * 2, "fix16f8"), np.array([0, 9, 3, 3, 7, 1])
    runner = runner_of(load_device("fixed16"), backend)
    loss = runner.run(Operation("softmax_cross_entropy", (x, Value(labels))), "loss", "loss").array
    z = x.array.astype(np.float64)
    log_sums = np.log(np.exp(z - z.max(axis=1, keepdims=True)).sum(axis=1)) + z.max(axis=1)
    assert abs(float(loss[0]) - float((log_sums - z[np.arange(6), labels]).mean())) < 2.0**-18
    assert np.abs(loss[1] - np.exp(z - log_sums[:, None])).max() < 2.0**-18


def test_reductions_are_pairwise_in_the_loss_format():
    policy = Policy(load_device("fixed16").precision)
    assert policy.reduction("loss") == Mac(product="fp32", accumulator="fp32", order="pairwise")


def test_counters_come_back_from_what_they_were_saved_as():
    runner = runner_of(device())
    runner.run(Operation("multiply", (value([3.0, -0.004, 0.0, 127.0], "fix16f8"),) * 2), "activation", "a/b")
    table = runner.counters
    copy = CounterTable(runner.policy.register)
    copy.load(table.to_dict())
    assert copy.sha256() == table.sha256()
    assert copy.items() == table.items()
    copy.merge(table)
    assert copy.of("a/b", "activation").elements == 8
    assert copy.sha256() != table.sha256()
    copy.reset()
    assert copy.of("a/b", "activation").elements == 0


@pytest.mark.parametrize("backend", ["reference", "numba"])
@pytest.mark.parametrize(("operation", "shapes", "options", "message"), [
    ("conv2d", [(1, 3, 5, 5), (2, 4, 3, 3)], {}, "with the same C"),
    ("conv2d", [(2, 3, 4, 4), (8, 3, 5, 5)], {}, "the kernel must fit"),
    ("conv2d", [(2, 3, 4, 4), (8, 3, 7, 7)], {}, "the kernel must fit"),
    ("conv2d", [(2, 3, 4, 4), (8, 3, 3, 3)], {"stride": (0, 1)}, "`stride` must be"),
    ("conv2d", [(2, 3, 4, 4), (8, 3, 3, 3), (7,)], {}, "one value per output channel"),
    ("conv2d", [(2, 3, 4), (8, 3, 3, 3)], {}, "x must be"),
    ("conv2d_weight_gradient", [(2, 3, 6, 6), (2, 8, 5, 5)], {"kernel": (3, 3)}, "must meet"),
    ("matmul", [(2, 3), (4, 5)], {}, "inner sizes must agree"),
    ("matmul", [(2, 3), (3, 5), (4,)], {}, "addend must broadcast"),
    ("matmul", [(2, 3), (3, 5), (7, 5)], {}, "addend must broadcast"),
    ("add", [(2, 3), (4,)], {}, "must broadcast together"),
], ids=str)  # fmt: skip
def test_shapes_that_do_not_fit_are_refused_before_anything_is_read(
    operation: str, shapes: list, options: dict, message: str, backend: str
):
    """Compiled loops take places in memory as they are: what does not fit must not reach them."""
    operands = tuple(value(np.ones(shape), "fix16f8") for shape in shapes)
    if operation.startswith("conv2d"):
        options = {"stride": (1, 1), "padding": (0, 0)} | options
    with pytest.raises(emu.ShapeError, match=message):
        runner_of(device(), backend).run(Operation(operation, operands, options), "activation", "layer")


@pytest.mark.parametrize("backend", ["reference", "numba"])
def test_operands_of_any_dtype_are_read_as_values_of_their_format(backend: str):
    fmt = emu.parse("fix16f8")
    numbers = [[1.0, -2.5], [0.25, 3.0]]
    operands = [np.array(numbers, dtype) for dtype in (np.float32, np.float16, ">f4", np.float64)] + [numbers]
    for name in ("matmul", "add", "quantize", "sum"):
        found = []
        for x in operands:
            runner = runner_of(device(), backend)
            given = (Value(x, fmt),) * (2 if name in ("matmul", "add") else 1)
            options = {"axis": (0,)} if name == "sum" else {}
            result = runner.run(Operation(name, given, options), "activation", "layer")
            found.append((result.array.tolist(), runner.counters.of("layer", "activation").to_dict()))
        assert all(other == found[0] for other in found), name


@pytest.mark.parametrize("backend", ["reference", "numba"])
def test_kernels_need_not_be_square(backend: str):
    fmt = emu.parse("fix16f8")
    x, w = value(np.arange(2 * 3 * 6 * 7).reshape(2, 3, 6, 7) % 11, "fix16f8"), value(np.ones((4, 3, 2, 5)), "fix16f8")
    options = {"stride": (1, 2), "padding": (0, 1)}
    result = runner_of(device(), backend).run(Operation("conv2d", (x, w), options), "activation", "layer")
    names = {"x_format": fmt, "w_format": fmt, "out_format": fmt}
    assert result.array.tolist() == emu.conv2d(x.array, w.array, **names, **options, backend="reference").tolist()


@pytest.mark.parametrize("kind", [None, "float32", "double_rounding", "exact"])
def test_elements_that_leave_their_format_are_counted_however_a_device_requantises(kind: str | None):
    """Halves of 100, 1000 and -5000: two of them lie beyond -128..127, and a bound at 40 is no overflow."""
    runner = runner_of(device(**{"requantiser": kind} if kind else {}))
    sums = value([100, 1000, -5000], "fix32f0")
    options = {
        "of": (np.array(1, np.float32), np.array(0.5, np.float32)),
        "to": Written(Affine.of("fix8f0", 1.0), -128, 40),
    }
    result = runner.run(Operation("scale_sums", (sums,), options), "activation", "fc")
    assert result.array.tolist() == [40, 40, -128]
    assert runner.counters is not None
    assert runner.counters.of("fc", "activation").flags.overflow == 2


@pytest.mark.parametrize(
    ("primitive", "shapes", "options", "message"),
    [
        ("concatenate", [(2, 3), (3, 2)], {"axis": 0},
         r"must have the same sizes along all axes but 0, got shapes \(2, 3\) and \(3, 2\); reshape one of them"),
        ("concatenate", [(2, 3), (3,)], {"axis": 0}, r"got shapes \(2, 3\) and \(3,\); reshape"),
        ("maximum", [(2, 3), (3, 2)], {}, r"must broadcast together, got shapes \(2, 3\) and \(3, 2\); give axes"),
        ("minimum", [(2,), (3,)], {}, "must broadcast together"),
        ("softmax", [(3,)], {"scale": 1.0, "causal": True}, r"must have rows and columns as its last two axes, got"),
        ("avg_pool", [(1, 1, 4, 4)], {"window": 9, "stride": 2}, r"`window` must fit the padded image, got 9 x 9 for"),
    ],
)  # fmt: skip
def test_operands_that_do_not_fit_together_are_named(
    primitive: str, shapes: list[tuple[int, ...]], options: dict[str, Any], message: str
):
    graph = Graph(runner_of(device()))
    operands = [graph.variable(value(np.ones(shape), "fix16f8")) for shape in shapes]
    with pytest.raises(emu.ShapeError, match=message):
        graph.apply(primitive, *operands, layer="layer", **options)


@pytest.mark.parametrize("axis", [0, 2, -1, -3])
def test_arrays_are_joined_along_any_axis(axis: int):
    x = value(np.arange(24).reshape(2, 3, 4), "fix16f8")
    joined = runner_of(device()).run(Operation("concatenate", (x, x), {"axis": axis}), "activation", "layer")
    assert np.array_equal(joined.array, np.concatenate([x.array, x.array], axis))


@pytest.mark.parametrize(("dtype", "first"), [(np.int8, 0), (np.int64, -300)])
def test_gradients_of_a_table_arrive_at_rows_that_are_counted_from_its_end(dtype: Any, first: int):
    for runner in (runner_of(device()), PlainRunner()):
        graph = Graph(runner)
        table = graph.parameter(value(np.ones((300, 2)), "fix16f8"))
        tokens = graph.constant(Value(np.array([1, -1, 1, first], dtype), None))
        read = graph.apply("embedding", table, tokens, layer="table")
        gradient = np.asarray(graph.backward(read, value(np.ones((4, 2)), "fix16f8"))[id(table)].array)
        expected = np.zeros((300, 2))
        expected[[0, 1, 299]] = [[1], [2], [1]]
        assert np.array_equal(gradient, expected)
