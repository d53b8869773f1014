"""Gradients clipped by their norm, of every size that a format has: as rational numbers say, and as smaller ones are.

Powers of two move only the exponents of floats. So the bits that ordinary gradients get are those of 2**k times as
large ones, less k in the exponent, wherever results are normal.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from fast_suite import most_are_slow

from emu.autodiff import RowsValue, Value
from emu.hardware import Device
from emu.optim import ParameterState, clip_by_norm
from emu.precision import DatapathRunner, Policy

NAMES = (("conv", "weight"), ("conv", "bias"), ("output", "weight"))
SHAPES = ((3, 5), (3,), (2, 7))


def device(loss: dict[str, str], other: str = "fp32") -> Device:
    roles = ("weight", "bias", "activation", "error", "gradient", "update", "master")
    return Device.model_validate(
        {
            "name": "norms",
            "description": "losses in a format of their own",
            "source": "a test",
            "precision": {**{role: {"format": other} for role in roles}, "loss": loss},
        }
    )


def clipped(arrays: list[np.ndarray], threshold: float, backend: str, machine: Device) -> list[np.ndarray]:
    policy = Policy(machine.precision)
    fmt = policy.stage("conv", "master").format
    states = [
        ParameterState(*name, Value(np.zeros(x.shape, fmt.carrier), fmt)) for name, x in zip(NAMES, arrays, strict=True)
    ]
    gradients = {s.name: Value(x.astype(fmt.carrier), fmt) for s, x in zip(states, arrays, strict=True)}
    found = clip_by_norm(states, gradients, threshold, DatapathRunner(policy, backend=backend))
    return [found[state.name].array for state in states]


def drawn(seed: int = 1, lowest: int = -8) -> list[np.ndarray]:
    """float32 of eight bits, the largest from 1 to 2."""
    rng = np.random.default_rng(seed)
    arrays = [rng.integers(-255, 256, shape) * 2.0 ** rng.integers(lowest - 8, -7, shape) for shape in SHAPES]
    arrays[0][0, 0] = 1.5
    return arrays


def length(arrays: list[np.ndarray]) -> float:
    """The norm of arrays, exact up to a float64."""
    total = sum((Fraction(float(g)) ** 2 for x in arrays for g in x.ravel()), Fraction(0))
    shift = 2 * 1200
    return float(Fraction(math.isqrt(int(total * 2**shift)), 2 ** (shift // 2)))


@pytest.mark.parametrize("k", [-139, -130, -100, -75, -64, -50, -20, -1, 0, 1, 20, 50, 62, 64, 75, 100, 126])
@pytest.mark.parametrize("rounded", ["fp32", "fp32 satfinite"])
def test_gradients_of_any_size_are_shortened_to_a_threshold_of_theirs(k: int, rounded: str, backend: str):
    """The threshold, 2**k as well, is 0.6 of the norm; below 2**-126 the format leaves fewer bits."""
    machine = device({"format": "fp32", "overflow": "satfinite"} if "satfinite" in rounded else {"format": "fp32"})
    arrays = drawn()
    threshold = 0.5 * 2.0 ** math.floor(math.log2(length(arrays)))
    expected = clipped(arrays, threshold, backend, machine)
    found = clipped([x * 2.0**k for x in arrays], threshold * 2.0**k, backend, machine)
    for ours, theirs in zip(found, expected, strict=True):
        exact = theirs.astype(np.float64) * 2.0**k
        normal = np.abs(exact) >= 2.0**-126
        np.testing.assert_array_equal(ours[normal], exact[normal].astype(np.float32))
        assert (np.abs(ours[~normal] - exact[~normal]) <= 2.0**-149).all()


@pytest.mark.parametrize("k", [2, 20, 39, 50, 62, 64, 75, 100, 125, 126])
def test_gradients_of_any_size_are_shortened_to_the_same_threshold(k: int, backend: str):
    """Whose direction counts alone; the threshold is 2, the norm far above it."""
    arrays, machine = drawn(lowest=-4), device({"format": "fp32"})
    expected = clipped([x * 16 for x in arrays], 2.0, backend, machine)
    found = clipped([x * 2.0**k for x in arrays], 2.0, backend, machine)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert abs(length(found) - 2) < 2.0**-20


@pytest.mark.parametrize("k", [-149, -126, -100, -70, -60, 0, 60])
def test_what_is_within_the_threshold_stays_whatever_its_size(k: int, backend: str):
    arrays = [x * 2.0**k for x in drawn(lowest=0)] if k > -149 else [np.full(shape, 2.0**k) for shape in SHAPES]
    threshold = float(np.float32(length(arrays) * 1.01))
    for ours, theirs in zip(clipped(arrays, threshold, backend, device({"format": "fp32"})), arrays, strict=True):
        np.testing.assert_array_equal(ours, theirs.astype(np.float32))


@most_are_slow("shift", range(-30, 30, 3), keep=[-30, 0, 27])
@pytest.mark.parametrize(
    ("loss", "within"),
    [
        # all roundings on the way: of squares, sums in five levels, root, quotient, product: a dozen half ulps
        ("fp16", 2.0**-8), ("bf16", 2.0**-5), ("e5m2", 2.0**-0.4), ("fp64", 2.0**-20), ("tf32", 2.0**-8),
        ("fix32f16", 2.0**-8), ("fix48f24", 2.0**-9), ("fix64f20", 2.0**-9), ("fp16 satfinite", 2.0**-8),
    ],
)  # fmt: skip
def test_in_every_loss_format_the_norm_is_the_threshold(loss: str, within: float, shift: int, backend: str):
    given = {"format": loss} if "satfinite" not in loss else {"format": "fp16", "overflow": "satfinite"}
    arrays = [x * 2.0**shift for x in drawn(lowest=-2)]
    threshold = float(np.float32(length(arrays) / 3))
    found = clipped(arrays, threshold, backend, device(given))
    assert length(found) / threshold == pytest.approx(1, rel=within)
    for ours, theirs in zip(found, arrays, strict=True):
        assert (np.abs(ours * 3 - theirs) <= np.abs(theirs) * within + 3 * 2.0**-149).all()


def test_gradients_of_float64_reach_beyond_the_squares_of_float64(backend: str):
    machine = device({"format": "fp64"}, "fp64")
    sizes = ((1e300, 2.0**100), (1e155, 2.0), (1e155, 2.0**-100), (1e30, 2.0**-149), (1e308, 2.0**-149))
    for size, threshold in sizes:
        arrays = [np.full(shape, size) for shape in SHAPES]
        assert length(clipped(arrays, threshold, backend, machine)) / threshold == pytest.approx(1, rel=2.0**-40)


@pytest.mark.parametrize("loss", ["fp32", "fp16", "fix48f24"])
@pytest.mark.parametrize("exponent", [-1024, -1025, -1074])
def test_the_smallest_gradients_of_float64_are_within_every_threshold(loss: str, exponent: int, backend: str):
    arrays = [np.full(shape, 2.0**exponent) for shape in SHAPES]
    for threshold in (2.0**-149, 1e-20):
        found = clipped(arrays, threshold, backend, device({"format": loss}, "fp64"))
        for ours, theirs in zip(found, arrays, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_norms_of_fixed_point_do_not_wrap(backend: str):
    machine = device({"format": "fix32f8", "overflow": "wrap"}, "fix24f4")
    arrays = [np.full(shape, 10000.0) for shape in SHAPES]
    found = clipped(arrays, 6000.0, backend, machine)
    assert length(found) / 6000 == pytest.approx(1, rel=2.0**-8)


def test_a_layer_whose_losses_are_narrower_decides_how_squares_are_scaled(backend: str):
    machine = device({"format": "fp32"})
    data = machine.model_dump(exclude_none=True)
    data["precision"]["layers"] = [{"match": "conv", "loss": {"format": "fp16", "overflow": "satfinite"}}]
    arrays = [x * 2.0**12 for x in drawn(lowest=-2)]
    found = clipped(arrays, 2.0, backend, Device.model_validate(data))
    assert length(found) == pytest.approx(2, rel=2.0**-8)


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_gradients_that_are_no_numbers_are_not_made_such(bad: float, backend: str):
    arrays = [x * 2.0**100 for x in drawn()]
    arrays[1][0] = bad
    with np.errstate(invalid="ignore"):
        found = clipped(arrays, 2.0, backend, device({"format": "fp32"}))
    if np.isnan(bad):
        for ours, theirs in zip(found, arrays, strict=True):
            np.testing.assert_array_equal(ours, theirs.astype(np.float32))
    else:
        assert np.isnan(found[1][0])
        assert not found[0].any()


def test_some_rows_stay_some_rows(backend: str):
    policy = Policy(device({"format": "fp32"}).precision)
    fmt = policy.stage("conv", "master").format
    state = ParameterState("conv", "weight", Value(np.zeros((9, 2), np.float32), fmt), by_rows=True)
    rows: Any = RowsValue(np.full((2, 2), 2.0**90, np.float32), fmt, np.array([1, 4]))
    found = clip_by_norm([state], {state.name: rows}, 2.0, DatapathRunner(policy, backend=backend))[state.name]
    assert isinstance(found, RowsValue)
    assert found.rows.tolist() == [1, 4]
    assert found.array.tolist() == [[1.0, 1.0], [1.0, 1.0]]
