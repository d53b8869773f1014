"""A linear layer with `sparse` against rational numbers: terms of entries alone, in their order, each add rounded."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rational_model import FloatModel, Real, write

import emu
from emu import nn
from emu.autodiff import Graph, Value
from emu.hardware import load_device
from emu.precision import CounterTable, DatapathRunner, Policy

FP16 = FloatModel(5, 10)
FORMAT = emu.parse("fp16")
INPUTS, OUTPUTS = 6, 3


def rounded(exact: Fraction) -> Fraction:
    """Return what binary16 makes of a number, to nearest, ties to even."""
    code = write(FP16, Real(exact < 0, abs(exact)), "nearest_even", "infinity").code
    return FP16.decode(code).signed


def in_order(terms: list[tuple[float, float]], start: float = 0.0) -> Fraction:
    """Return a fused sum: each product is exact, and each add is rounded once to binary16."""
    total = rounded(Fraction(start))
    for a, b in terms:
        total = rounded(total + Fraction(float(a)) * Fraction(float(b)))
    return total


def drawn(rng: np.random.Generator, *shape: int, zeros: float = 0.0) -> np.ndarray:
    """Return numbers of binary16 with full significands, of which a share is 0."""
    numbers = rng.standard_normal(shape).astype(np.float16).astype(np.float32)
    return np.where(rng.random(shape) < zeros, np.float32(0), numbers)


def passed(layer: nn.Linear, x: Any, weight: Any, bias: Any, g: Any, runner: Any, fmt: Any) -> dict[str, np.ndarray]:
    """Return the layer's result, and the gradients of its input and parameters."""
    graph = Graph(runner)
    entered = graph.variable(Value(x, fmt))
    leaves = {"weight": graph.parameter(Value(weight, fmt)), "bias": graph.parameter(Value(bias, fmt))}
    y = layer.forward(graph, entered, {layer.name: leaves})
    gradients = graph.backward(y, Value(g, fmt))
    found = {"y": y.value, "error": gradients[id(entered)]}
    found |= {part: gradients[id(leaf)] for part, leaf in leaves.items()}
    return {name: np.asarray(value.array) for name, value in found.items()}


@given(seed=st.integers(0, 2**32 - 1), zeros=st.sampled_from([0.0, 0.3, 0.7, 1.0]), rows=st.integers(1, 5))
@pytest.mark.parametrize("backend", ["reference", "numba"])
def test_results_and_gradients_are_sums_of_entries_in_their_order_e0_e2(
    seed: int, zeros: float, rows: int, backend: str
):
    rng = np.random.default_rng(seed)
    x, g = drawn(rng, rows, INPUTS, zeros=zeros), drawn(rng, rows, OUTPUTS)
    weight, bias = drawn(rng, OUTPUTS, INPUTS), drawn(rng, OUTPUTS)
    runner = DatapathRunner(Policy(load_device("fp16").precision), backend=backend)
    found = passed(nn.Linear("fc", INPUTS, OUTPUTS, sparse=True), x, weight, bias, g, runner, FORMAT)
    for r in range(rows):
        for h in range(OUTPUTS):
            entries = [(x[r, k], weight[h, k]) for k in range(INPUTS) if x[r, k] != 0]
            assert Fraction(float(found["y"][r, h])) == in_order(entries, float(bias[h]))
        for k in range(INPUTS):
            assert Fraction(float(found["error"][r, k])) == in_order([(g[r, h], weight[h, k]) for h in range(OUTPUTS)])
    for h in range(OUTPUTS):
        for k in range(INPUTS):
            entries = [(x[r, k], g[r, h]) for r in range(rows) if x[r, k] != 0]
            assert Fraction(float(found["weight"][h, k])) == in_order(entries)


FACTS = st.tuples(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.5, 0.9, 1.0]), st.integers(1, 9))


@given(facts=FACTS)
@pytest.mark.parametrize("backend", ["reference", "numba"])
@pytest.mark.parametrize("device", ["fixed16", "float32", "fp16", "fp16-mixed", "bf16-mixed"])
def test_exact_sums_and_sums_in_order_have_the_bits_and_flags_of_the_dense_layer_e0(
    device: str, backend: str, facts: tuple[int, float, int]
):
    """A term of 0 changes no sum in order but one of -0, which none of these is."""
    seed, zeros, rows = facts
    policy = Policy(load_device(device).precision)
    fmt, rng = policy.stage("fc", "activation").format, np.random.default_rng(seed)
    arrays = [
        np.asarray(emu.quantize(drawn(rng, *shape, zeros=share), fmt))
        for shape, share in (((rows, INPUTS), zeros), ((OUTPUTS, INPUTS), 0), ((OUTPUTS,), 0), ((rows, OUTPUTS), 0.2))
    ]
    x, weight, bias, g = arrays
    results, counts = [], []
    for sparse in (True, False):
        counters = CounterTable(policy.register)
        runner = DatapathRunner(policy, backend=backend, counters=counters)
        results.append(passed(nn.Linear("fc", INPUTS, OUTPUTS, sparse=sparse), x, weight, bias, g, runner, fmt))
        counts.append(counters)
    for name, dense in results[1].items():
        assert results[0][name].dtype == dense.dtype
        assert np.ascontiguousarray(results[0][name]).tobytes() == np.ascontiguousarray(dense).tobytes(), name
    for role in ("activation", "error"):
        sparse, dense = (counters.of("fc", role) for counters in counts)
        assert sparse.register.to_dict() == dense.register.to_dict()
        assert repr(sparse.flags) == repr(dense.flags)
    used = int((x != 0).any(axis=0).sum())
    assert counts[0].of("fc", "gradient").register.total == used * OUTPUTS + OUTPUTS  # those of the bias as well
    assert counts[1].of("fc", "gradient").register.total == INPUTS * OUTPUTS + OUTPUTS


@pytest.mark.parametrize("backend", ["reference", "numba"])
def test_zeros_are_left_out_whatever_their_sign_and_what_they_would_meet(backend: str):
    """In a dense product 0 times infinity is NaN, and -0 times 2 is -0."""
    runner = DatapathRunner(Policy(load_device("float32").precision), backend=backend)
    x = np.float32([[0, 2, -0.0], [np.nan, 0, 0]])
    weight, bias = np.float32([[np.inf, 3, np.nan]]), np.float32([0])
    fmt = emu.parse("fp32")
    found = passed(nn.Linear("fc", 3, 1, sparse=True), x, weight, bias, np.float32([[1], [0]]), runner, fmt)
    assert found["y"][0].tolist() == [6.0]
    assert np.isnan(found["y"][1])
    assert np.isnan(found["weight"][0, 0])
    assert found["weight"][0, 1:].tolist() == [2.0, 0.0]


@pytest.mark.parametrize("backend", ["reference", "numba"])
def test_a_sequence_is_a_matrix_of_its_places(backend: str):
    rng = np.random.default_rng(4)
    x, g = drawn(rng, 2, 4, INPUTS, zeros=0.5), drawn(rng, 2, 4, OUTPUTS)
    weight, bias = drawn(rng, OUTPUTS, INPUTS), drawn(rng, OUTPUTS)
    runner, layer = (
        DatapathRunner(Policy(load_device("fp16").precision), backend=backend),
        nn.Linear("fc", 6, 3, sparse=True),
    )
    found = passed(layer, x, weight, bias, g, runner, FORMAT)
    rows = passed(layer, x.reshape(8, 6), weight, bias, g.reshape(8, 3), runner, FORMAT)
    for name, array in rows.items():
        assert np.array_equal(found[name].reshape(array.shape), array), name
    assert found["y"].shape == (2, 4, OUTPUTS)
    assert found["error"].shape == x.shape


@pytest.mark.parametrize("backend", ["reference", "numba"])
@pytest.mark.parametrize(("device", "underflows"), [("fp16", True), ("fp16", False), ("float32", False)])
def test_a_result_of_0_can_have_another_sign_than_in_a_dense_layer(device: str, underflows: bool, backend: str):
    """A sum of -0, of a term that underflows or of a bias, becomes +0 if a dense layer adds 0 times 1 behind it."""
    policy = Policy(load_device(device).precision)
    fmt = policy.stage("fc", "activation").format
    x, weight = np.float32([[2.0**-13 if underflows else 0, 0]]), np.float32([[-(2.0**-14), 1]])
    bias = np.float32([0.0 if underflows else -0.0])
    signs = []
    for sparse in (True, False):
        layer, runner = nn.Linear("fc", 2, 1, sparse=sparse), DatapathRunner(policy, backend=backend)
        found = passed(layer, x, weight, bias, np.float32([[1]]), runner, fmt)
        assert found["y"].tolist() == [[0.0]]
        signs.append(bool(np.signbit(found["y"][0, 0])))
    assert signs == [True, False]
