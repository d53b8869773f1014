"""The Euclidean loss: the mean distance from one-hot targets, each step rounded once; no slope where it is 0."""

from __future__ import annotations

from fractions import Fraction
from math import isqrt
from typing import Any

import numpy as np
import pytest

import emu
from emu.autodiff import Graph, Operation, PlainRunner, Value
from emu.hardware import Device, load_device
from emu.precision import CounterTable, DatapathRunner, Policy
from emu.testing import assert_bits_equal

LABELS = np.array([0, 3, 3, 1, 2, 0, 1, 3])
FP32 = emu.parse("fp32")


def results(seed: int) -> np.ndarray:
    """Results (8, 4) of float32 of several sizes; the third is its target."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((8, 4)) * np.exp2(rng.integers(-12, 6, (8, 1)))
    x[2] = np.eye(4)[LABELS[2]]
    return x.astype(np.float32)


def run(x: Value, machine: Device, backend: str, g: float = 1.0) -> tuple[Any, Any, Any]:
    """Return loss, directions and error."""
    policy = Policy(machine.precision)
    runner = DatapathRunner(policy, backend=backend, counters=CounterTable(policy.register))
    loss = runner.run(Operation("euclidean", (x, Value(LABELS))), "loss", "loss")
    seed = loss.with_array(np.full((), g, loss.format.carrier))
    operation = Operation("euclidean_gradient", (seed, x, Value(LABELS)), {"saved": loss.array[1:]})
    return loss.array[0], loss.array[1], runner.run(operation, "error", "loss").array


def single(x: Any) -> np.ndarray:
    """Round to float32: what one operation on two float32 gives in float64 rounds to the same bits as the exact one."""
    return np.float32(x).astype(np.float64)


def neighbours(x: np.ndarray) -> np.ndarray:
    """Add pairs of neighbours along the last axis, a power of two, until one is left."""
    while x.shape[-1] > 1:
        x = single(x[..., ::2] + x[..., 1::2])
    return x[..., 0]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("g", [1.0, 0.3, 1024.0])
def test_every_step_is_rounded_once_to_float32_e0(seed: int, g: float, backend: str):
    x, g = results(seed), float(np.float32(g))
    loss, directions, error = run(Value(x, FP32), load_device("float32"), backend, g)
    difference = single(x.astype(np.float64) - np.eye(4)[LABELS])
    distances = single(np.sqrt(neighbours(single(difference * difference))))
    assert distances[2] == 0
    assert (distances[[0, 1, 3, 4, 5, 6, 7]] > 0).all()
    with np.errstate(invalid="ignore"):
        expected = np.where(distances[:, None] == 0, 0, single(difference / distances[:, None]))
    assert_bits_equal(loss, np.float32(neighbours(distances) / 8), FP32)
    assert_bits_equal(directions, np.float32(expected), FP32)
    assert_bits_equal(error, np.float32(single(g * expected) / 8), FP32)
    assert error[2].tolist() == [0, 0, 0, 0]


def nearest(numerator: int, denominator: int) -> int:
    return round(Fraction(numerator, denominator))


def nearest_root(n: int) -> int:
    """The root of an integer, to nearest: never half way, since (r + 1/2)**2 is no integer."""
    root = isqrt(n)
    return root + (n - root * root > root)


@pytest.mark.parametrize("seed", range(3))
def test_every_step_is_rounded_once_to_a_fixed_loss_format_e0(seed: int, backend: str):
    """In raw integers of 2**-12; nothing saturates."""
    roles = {r: {"format": "fix16f8"} for r in ("weight", "bias", "activation", "gradient", "update", "master")}
    precision = roles | {"error": {"format": "fix24f12"}, "loss": {"format": "fix24f12"}}
    machine = Device.model_validate({"name": "d", "description": "d", "source": "s", "precision": precision})
    raws = np.random.default_rng(seed).integers(-700, 700, (8, 4))
    raws[2] = 256 * np.eye(4, dtype=int)[LABELS[2]]
    x = Value((raws / 256).astype(np.float32), emu.parse("fix16f8"))
    loss, directions, error = run(x, machine, backend)
    differences = [
        [16 * int(v) - 4096 * (c == label) for c, v in enumerate(row)] for row, label in zip(raws, LABELS, strict=True)
    ]
    distances = [nearest_root(sum(nearest(d * d, 4096) for d in row) * 4096) for row in differences]
    expected = [
        [nearest(d * 4096, distance) if distance else 0 for d in row]
        for row, distance in zip(differences, distances, strict=True)
    ]
    assert distances[2] == 0
    assert float(loss) * 4096 == nearest(sum(distances), 8)
    assert (np.asarray(directions, np.float64) * 4096).tolist() == expected
    assert (np.asarray(error, np.float64) * 4096).tolist() == [[nearest(d, 8) for d in row] for row in expected]


@pytest.mark.parametrize("loss", ["fix8f8", "ufix8f4", "fix12f11", "fp16", "fp32 daz"])
def test_a_result_that_is_its_target_sends_nothing_back_whatever_the_loss_format_e0(loss: str, backend: str):
    """The target may not be a value of the format: then what is left is written, or is 0."""
    machine = load_device("float32").model_dump(mode="json", exclude_unset=True)
    machine["precision"]["loss"] = {"format": loss}
    x = Value(np.eye(4, dtype=np.float32)[LABELS], FP32)
    value, directions, error = run(x, Device.model_validate(machine), backend)
    assert float(value) == 0
    assert not np.asarray(directions).any()
    assert not np.asarray(error).any()


def test_the_loss_is_the_mean_distance_within_float32_e0(backend: str):
    x = results(9)
    loss, _, _ = run(Value(x, FP32), load_device("fixed16"), backend)
    expected = np.linalg.norm(x.astype(np.float64) - np.eye(4)[LABELS], axis=1).mean()
    assert abs(float(loss) - expected) < 8 * 2.0**-24 * expected


def test_plain_mathematics_has_no_slope_where_the_distance_is_0_e0():
    graph = Graph(PlainRunner())
    x = graph.parameter(Value(results(1).astype(np.float64)))
    loss = graph.apply("euclidean", x, graph.constant(Value(LABELS)), layer="loss")
    found = graph.backward(loss, Value(np.array(1.0)))[id(x)].array
    difference = x.value.array - np.eye(4)[LABELS]
    norms = np.linalg.norm(difference, axis=1)
    assert found[2].tolist() == [0, 0, 0, 0]
    others = norms > 0
    assert np.allclose(found[others], difference[others] / norms[others, None] / 8, rtol=1e-14, atol=0)


def test_what_is_no_number_stays_none(backend: str):
    x = results(2)
    x[4, 1] = np.nan
    loss, directions, error = run(Value(x, FP32), load_device("float32"), backend)
    assert np.isnan(loss)
    for array in (directions, error):
        assert np.isnan(array[4]).all()
        assert np.isfinite(array[[0, 1, 2, 3, 5, 6, 7]]).all()
