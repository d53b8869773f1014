"""Optimisers bit for bit against rational numbers, rounded where the docstrings say, and against papers in float64."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter
from rational_model import floor_log2

from emu.autodiff import Value
from emu.hardware import Device, load_device
from emu.optim import ParameterState
from emu.precision import DatapathRunner, Policy
from emu.training.recipe import Optimiser
from emu.training.workbench.build import build_optimiser
from emu.training.workbench.update import Update

Spec = dict[str, Any]
Rationals = Iterator[tuple[Fraction, dict[str, Fraction]]]
STEPS = 6
SHAPES = {("conv", "weight"): (2, 3), ("conv", "bias"): (2,), ("output", "weight"): (4,)}
ROLES = ("weight", "bias", "activation", "error", "gradient", "update", "master", "loss")
FLOAT64 = Device.model_validate(
    {
        "name": "float64",
        "description": "every number is binary64",
        "source": "IEEE 754",
        "precision": {role: {"format": "fp64"} for role in ROLES},
    }
)


def trained(
    spec: Spec,
    device: Device,
    backend: str,
    draws: list[list[np.ndarray]],
    *,
    scales: Iterable[float] = (1.0,) * STEPS,
    compensation: tuple[str, ...] = ("gradient",),
    clip_norm: float | None = None,
) -> Iterator[list[ParameterState]]:
    """The parameters after every step, as a recipe's optimiser moves them on a device."""
    policy, fmt = Policy(device.precision), device.precision.stage("conv", "master").format
    runner = DatapathRunner(policy, backend=backend)
    optimiser = build_optimiser(TypeAdapter(Optimiser).validate_python(spec))
    update = Update(optimiser, compensation, clip_norm)
    start, *gradients = [[np.asarray(x, fmt.carrier) for x in arrays] for arrays in draws]
    states = [ParameterState(*name, Value(x, fmt)) for name, x in zip(SHAPES, start, strict=True)]
    for state in states:
        optimiser.start(state, lambda role, layer=state.layer: policy.stage(layer, role).format)
    for arrays, scale in zip(gradients, scales, strict=True):
        scaled = {s.name: Value(x * fmt.carrier.type(scale), fmt) for s, x in zip(states, arrays, strict=True)}
        update.apply(states, scaled, spec["learning_rate"], scale, runner)
        yield states


def drawn(lowest: int) -> list[list[np.ndarray]]:
    """Masters, then the gradients of every step: float32 of many exponents, some 0."""
    rng = np.random.default_rng(1)

    def numbers(shape: tuple[int, ...], exponent: int) -> np.ndarray:
        x = rng.uniform(-1, 1, shape) * 2.0 ** rng.integers(exponent, 1, shape)
        return np.where(rng.random(shape) < 0.1, 0, x).astype(np.float32).astype(np.float64)

    return [[numbers(shape, lowest if step else -2) for shape in SHAPES.values()] for step in range(STEPS + 1)]


# ---- the docstrings of emu.optim in rational numbers, every result rounded once to binary32 ----


def single(x: Fraction | float) -> Fraction:
    """Round to binary32, ties to even; Python rounds fractions so."""
    exact = Fraction(x)
    if exact == 0:
        return exact
    step = Fraction(2) ** (max(floor_log2(abs(exact)), -126) - 23)
    return round(exact / step) * step


def root(x: Fraction) -> Fraction:
    """The square root rounded once: 256 of its bits, and one that says whether anything follows."""
    square = x * 4**256
    assert square.denominator == 1
    below = math.isqrt(int(square))
    return single(Fraction(2 * below + (below * below != square), 2**257))


def exact_descent(c: Spec, w: Fraction, gradients: Iterable[Fraction]) -> Rationals:
    rate, decay, momentum = (single(c.get(key, 0)) for key in ("learning_rate", "weight_decay", "momentum"))
    m = Fraction(0)
    for g in gradients:
        m = single(momentum * m + single(g + decay * w))
        w = single(w + single(-rate * m))
        yield w, {"momentum": m} if momentum else {}


def exact_adagrad(c: Spec, w: Fraction, gradients: Iterable[Fraction]) -> Rationals:
    rate, decay, eps = (single(c.get(key, 0)) for key in ("learning_rate", "weight_decay", "eps"))
    s = Fraction(0)
    for gradient in gradients:
        g = single(gradient + decay * w)
        s = single(s + g * g)
        w = single(w + single(-rate * single(g / single(root(s) + eps))))
        yield w, {"squares": s}


def exact_adam(c: Spec, w: Fraction, gradients: Iterable[Fraction]) -> Rationals:
    beta1, beta2, rate = (Fraction(c[key]) for key in ("beta1", "beta2", "learning_rate"))
    m = v = Fraction(0)
    for t, g in enumerate(gradients, 1):
        m = single(single(beta1) * m + single(single(1 - beta1) * g))
        v = single(single(beta2) * v + single(single(1 - beta2) * single(g * g)))
        correction = single(1 / math.sqrt(1 - beta2**t))
        direction = single(m / single(root(v) * correction + single(c["eps"])))
        update = single(single(-rate / (1 - beta1**t)) * direction)
        if c.get("weight_decay"):
            update = single(update + single(-rate * Fraction(c["weight_decay"])) * w)
        w = single(w + update)
        yield w, {"mean": m, "squares": v}


EXACT = {"sgd": exact_descent, "momentum": exact_descent, "adagrad": exact_adagrad, "adam": exact_adam}
#: The power of S that each slot carries where the learning rate takes S out (docs/loss-scaling.md).
POWERS = {"momentum": 1, "mean": 1, "squares": 2}
SPECS: list[Spec] = [
    {"name": "sgd", "learning_rate": 0.1},
    {"name": "sgd", "learning_rate": 0.3, "weight_decay": 0.01},
    {"name": "momentum", "learning_rate": 0.1, "momentum": 0.9},
    {"name": "momentum", "learning_rate": 0.05, "momentum": 0.7, "weight_decay": 0.3},
    {"name": "adagrad", "learning_rate": 0.1, "eps": 1e-8},
    {"name": "adagrad", "learning_rate": 0.02, "eps": 1e-3, "weight_decay": 0.3},
    {"name": "adam", "learning_rate": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8},
    {"name": "adam", "learning_rate": 0.1, "beta1": 0.3, "beta2": 0.6, "eps": 0.01, "weight_decay": 0.3},
]
SCALING = [
    (("gradient",), (1.0,) * STEPS),
    (("gradient",), (2.0**10, 2.0**10, 2.0**3, 2.0**-4, 2.0**16, 1.0)),
    (("learning_rate", "weight_decay"), (2.0**10, 2.0**10, 2.0**3, 2.0**-4, 2.0**16, 1.0)),
]


def named(spec: Spec) -> str:
    return spec["name"] + ("" if "weight_decay" not in spec else " with decay")


@pytest.mark.parametrize(("compensation", "scales"), SCALING, ids=["unscaled", "gradients", "rates"])
@pytest.mark.parametrize("spec", SPECS, ids=named)
def test_masters_and_slots_in_float32_are_rational_numbers_rounded_where_the_docstrings_say(
    spec: Spec, compensation: tuple[str, ...], scales: tuple[float, ...], backend: str
):
    """Scales are powers of two, so they change no bit of a master."""
    draws = drawn(lowest=-30)
    models = [
        [
            EXACT[spec["name"]](spec, Fraction(w), [Fraction(arrays[i].flat[at]) for arrays in draws[1:]])
            for at, w in enumerate(start.flat)
        ]
        for i, start in enumerate(draws[0])
    ]
    found = trained(spec, load_device("float32"), backend, draws, scales=scales, compensation=compensation)
    steps = 0
    for states, scale in zip(found, scales, strict=True):
        carried = 1.0 if "gradient" in compensation else scale
        for state, elements in zip(states, models, strict=True):
            now = [next(element) for element in elements]
            assert [Fraction(float(x)) for x in state.master.array.flat] == [w for w, _ in now]
            assert set(state.slots) == set(now[0][1])
            for slot, value in state.slots.items():
                power = Fraction(carried) ** POWERS[slot]
                assert [Fraction(float(x)) / power for x in value.array.flat] == [slots[slot] for _, slots in now]
        steps += 1
    assert steps == STEPS


# ---- the papers, in float64 ----


def published(c: Spec, start: np.ndarray, gradients: list[np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Parameters after every step, and how far decay apart they have moved: Robbins & Monro; Polyak; Duchi; Kingma."""
    w, m, v, moved = start, np.zeros_like(start), np.zeros_like(start), np.zeros_like(start)
    rate, decay, name = c["learning_rate"], c.get("weight_decay", 0.0), c["name"]
    for t, g in enumerate(gradients, 1):
        if name == "adam":
            m, v = c["beta1"] * m + (1 - c["beta1"]) * g, c["beta2"] * v + (1 - c["beta2"]) * g**2
            m_hat, v_hat = m / (1 - c["beta1"] ** t), v / (1 - c["beta2"] ** t)
            step, shrunk = rate * m_hat / (np.sqrt(v_hat) + c["eps"]), rate * decay * w
        else:
            d, shrunk = g + decay * w, 0.0
            m, v = c.get("momentum", 0.0) * m + d, v + d**2
            step = rate * d / (np.sqrt(v) + c["eps"]) if name == "adagrad" else rate * m
        w, moved = w - step - shrunk, moved + np.abs(step)
        yield w, moved


#: Constants that float32 holds exactly, so that only arithmetic in float64 rounds.
HELD: list[Spec] = [
    spec | decay
    for decay in ({}, {"weight_decay": 0.375})
    for spec in (
        {"name": "sgd", "learning_rate": 0.25},
        {"name": "momentum", "learning_rate": 0.25, "momentum": 0.75},
        {"name": "adagrad", "learning_rate": 0.25, "eps": 2.0**-4},
        {"name": "adam", "learning_rate": 0.25, "beta1": 0.875, "beta2": 0.96875, "eps": 2.0**-4},
    )
]
CLIP_NORM = 0.5


@pytest.mark.parametrize("clip_norm", [None, CLIP_NORM], ids=["whole", "clipped"])
@pytest.mark.parametrize("spec", HELD, ids=named)
def test_in_float64_every_step_is_the_papers(spec: Spec, clip_norm: float | None):
    """Two constants of Adam, its bias corrections, are rounded to float32: 2**-24 of a step each, so 2**-23 of the way.

    Everything else is at most 2**8 roundings of 2**-53 of numbers below 4.
    """
    draws = drawn(lowest=-6)
    norms = [math.sqrt(sum(float((g**2).sum()) for g in arrays)) for arrays in draws[1:]]
    assert max(norms) > CLIP_NORM > min(norms)
    factors = [min(1.0, clip_norm / norm) if clip_norm else 1.0 for norm in norms]
    models = [
        published(spec, start, [arrays[i] * factor for arrays, factor in zip(draws[1:], factors, strict=True)])
        for i, start in enumerate(draws[0])
    ]
    corrected = 2.0**-23 if spec["name"] == "adam" else 0.0
    steps = 0
    for states in trained(spec, FLOAT64, "reference", draws, clip_norm=clip_norm):
        for state, model in zip(states, models, strict=True):
            w, moved = next(model)
            assert np.abs(w).max() < 4
            assert state.master.array.dtype == np.float64
            assert (np.abs(state.master.array - w) <= corrected * moved + 2.0**-43).all()
        steps += 1
    assert steps == STEPS
