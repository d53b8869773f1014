"""Bits do not depend on the device's own arithmetic, which takes float32 subnormals for 0 as CuPy's does."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
from device_arrays import DeviceArray, StrictDevice
from host_devices import GPU, as_backend, device_of

import emu
from emu import engine
from emu.autodiff import Graph, Tensor, Value
from emu.backends.arrays import negated, on_host
from emu.precision.policy import Policy
from emu.precision.runner import DatapathRunner

LEAST, NORMAL = 2.0**-149, 2.0**-126
#: Zeros, the smallest and largest subnormals, the smallest normal numbers, ordinary ones.
EDGES = np.array([0.0, -0.0, LEAST, -LEAST, NORMAL - LEAST, LEAST - NORMAL, NORMAL, -NORMAL, 1.0, -3.5], np.float32)
FIX = "fix8f140"


@pytest.fixture(params=["", pytest.param(GPU, marks=pytest.mark.gpu)], ids=["flushing arrays", "gpu"])
def there(request: pytest.FixtureRequest) -> Generator[Any, None, None]:
    """Brings an array to the device that is the backend `cuda`."""
    device = device_of(GPU) if request.param == GPU else StrictDevice()
    with as_backend(device):
        yield device.xp.asarray


def bits(x: Any) -> list[int]:
    array = np.ascontiguousarray(on_host(x))
    return array.reshape(-1).view(f"u{array.itemsize}").tolist()


def test_the_stand_in_flushes_as_cupy_does():
    x = DeviceArray(np.array([2.0**-149, 1.0], np.float32))
    assert (x > 0).get().tolist() == [False, True]
    assert x.min().get() == 0
    assert (x - x).get().tolist() == [0, 0]
    assert bits(x[:1]) == [1], "moves keep subnormals"


def test_what_relu_sends_back_is_where_the_operand_was_above_zero(there: Any):
    g = np.arange(1, EDGES.size + 1, dtype=np.float32)
    found = engine.relu_gradient(there(g), there(EDGES), backend="cuda")
    for host in ("reference", "numba"):
        assert bits(found) == bits(engine.relu_gradient(g, EDGES, backend=host))
    assert on_host(found)[2] == 3


def test_relu_of_a_network_passes_gradients_where_a_subnormal_was(there: Any):
    assert_the_same_backward("relu", there, EDGES)


@pytest.mark.parametrize("function", ["tanh", "sigmoid"])
def test_slopes_of_functions_are_those_of_subnormal_results(function: str, there: Any):
    assert_the_same_backward(function, there, EDGES)


def test_softmax_takes_the_largest_of_subnormals(there: Any):
    rows = np.stack([EDGES[2:7], EDGES[3:8]]) * np.float32(0.5)
    assert_the_same_backward("softmax", there, rows, scale=1.0, causal=False)


def test_losses_take_the_largest_of_subnormals(there: Any):
    rows, labels = np.stack([EDGES[2:7], EDGES[3:8]]), np.array([1, 2])

    def written(backend: str, bring: Any) -> list[list[int]]:
        graph = Graph(runner(backend))
        x = Tensor(Value(bring(rows), graph_format()), needs_gradient=True)
        loss = graph.apply("softmax_cross_entropy", x, Tensor(Value(bring(labels))), layer="loss")
        seed = loss.value.with_array(bring(np.ones((), np.float32)))
        arrived = graph.backward(loss, seed)
        return [bits(loss.value.array), bits(arrived[id(x)].array)]

    assert written("cuda", there) == written("reference", np.asarray)


def graph_format() -> Any:
    return emu.parse("fp32")


def runner(backend: str) -> DatapathRunner:
    return DatapathRunner(Policy(emu.device("float32").precision), backend=backend)


def assert_the_same_backward(primitive: str, there: Any, x: np.ndarray, **options: Any) -> None:
    def written(backend: str, bring: Any) -> list[list[int]]:
        graph = Graph(runner(backend))
        operand = Tensor(Value(bring(x), graph_format()), needs_gradient=True)
        y = graph.apply(primitive, operand, layer="a layer", **options)
        seed = y.value.with_array(bring(np.full(y.shape, 3.0, np.float32)))
        return [bits(y.value.array), bits(graph.backward(y, seed)[id(operand)].array)]

    assert written("cuda", there) == written("reference", np.asarray)


def test_raws_into_integers_are_those_of_subnormal_values(there: Any):
    values = np.ldexp(np.arange(-5, 6, dtype=np.float32), -140)
    raws = there(np.zeros(values.size, np.int32))
    emu.quantize(there(values), FIX, out=raws, backend="cuda")
    assert on_host(raws).tolist() == list(range(-5, 6))


def test_negation_is_exact_and_gives_positive_zero(there: Any):
    assert bits(negated(there(EDGES))) == bits(negated(EDGES)) == bits(np.float32(0) - EDGES)


def test_functions_flush_operands_of_their_format(there: Any):
    for source in ("fp32", "fp32 ftz daz", "fp64"):
        expected = emu.exp(EDGES, x_format=source, out_format="fp64", backend="reference")
        moved = there(EDGES.astype(emu.parse(source).carrier))
        assert bits(emu.exp(moved, x_format=source, out_format="fp64", check=False, backend="cuda")) == bits(expected)
        poles = emu.rsqrt(EDGES, x_format=source, out_format="fp32", backend="reference")
        assert bits(emu.rsqrt(moved, x_format=source, out_format="fp32", check=False, backend="cuda")) == bits(poles)


def test_magnitudes_are_measured_by_bits(there: Any):
    few = np.array([2.0**-149, -(2.0**-140)], np.float32)
    raws = np.array([-(2**63), 5], np.int64)
    arrays = [few, raws, np.zeros(0, np.float32), np.array([np.nan, np.inf]), np.array([2**64 - 1], np.uint64)]
    found = engine.selection.largest_magnitudes([there(x) for x in arrays], backend="cuda")
    expected = engine.selection.largest_magnitudes(arrays, backend="reference")
    assert [x.hex() for x in found] == [x.hex() for x in expected]
    assert found[:3] == [2.0**-140, 2.0**63, 0.0]
    assert np.isnan(found[3])


def test_a_product_is_planned_by_subnormal_operands(there: Any):
    formats = {"a_format": "fix32f140", "b_format": "fix32f140", "out_format": "fp64"}
    a, b = (np.ldexp(np.array([[3, -7]], np.float32), e) for e in (-139, -138))
    expected = emu.matmul(a, b.T, **formats, backend="reference")
    assert bits(emu.matmul(there(a), there(b.T.copy()), **formats, check=False, backend="cuda")) == bits(expected)


def test_the_logarithm_of_the_largest_gradient_is_the_hosts(there: Any):
    from emu.precision.loss_scaler import _logarithm

    gradients = {"w": Value(np.array([2.0**-149, -(2.0**-130)], np.float32), emu.parse("fp32"))}
    moved = {name: value.with_array(there(value.array)) for name, value in gradients.items()}
    assert _logarithm(moved, 1.0, "cuda") == _logarithm(gradients, 1.0, "reference") == -130.0
