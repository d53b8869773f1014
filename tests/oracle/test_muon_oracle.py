"""Muon bit for bit against rational numbers, rounded where its docstring says, and against its source in float64."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter
from rational_model import floor_log2

from emu.autodiff import Value
from emu.hardware import Device, PrecisionTable, load_device
from emu.optim import ParameterState
from emu.precision import DatapathRunner, Policy
from emu.training.recipe import Optimiser
from emu.training.workbench.build import build_optimiser
from emu.training.workbench.update import Update

Matrix = list[list[Fraction]]
Arrays = list[np.ndarray]
ROLES = ("weight", "bias", "activation", "error", "gradient", "update", "master", "loss")
FLOAT64 = Device.model_validate(
    {
        "name": "float64",
        "description": "every number is binary64, and so is every product and sum",
        "source": "IEEE 754",
        "precision": {role: {"format": "fp64"} for role in ROLES} | {"mac": {"product": "fp64", "accumulator": "fp64"}},
    }
)
#: A convolution with 2 rows of 8, a matrix with 4 rows of 2, one for Adam, and a bias. Counts are powers of two: a
#: pairwise sum needs no padding.
SHAPES = {
    ("conv", "weight"): (2, 2, 1, 4),
    ("tall", "weight"): (4, 2),
    ("output", "weight"): (2, 2),
    ("tall", "bias"): (4,),
}
#: As the source gives them, in "Newton-Schulz", rounded to binary32.
A, B, C, EPS = (float(np.float32(x)) for x in (3.4445, -4.7750, 2.0315, 1e-7))


def trained(
    spec: dict[str, Any],
    device: Device,
    backend: str,
    draws: Sequence[Arrays],
    rates: Sequence[float],
    scales: Sequence[float],
    compensation: tuple[str, ...],
) -> Iterator[list[ParameterState]]:
    """The parameters after every step, as a recipe's optimiser moves them on a device."""
    policy, fmt = Policy(device.precision), device.precision.stage("conv", "master").format
    runner = DatapathRunner(policy, backend=backend)
    optimiser = build_optimiser(TypeAdapter(Optimiser).validate_python(spec))
    update = Update(optimiser, compensation, None)
    start, *gradients = [[np.asarray(x, fmt.carrier) for x in arrays] for arrays in draws]
    states = [ParameterState(*name, Value(x, fmt)) for name, x in zip(SHAPES, start, strict=True)]
    optimiser.require(states)
    for state in states:
        optimiser.start(state, lambda role, layer=state.layer: policy.stage(layer, role).format)
    for arrays, rate, scale in zip(gradients, rates, scales, strict=True):
        scaled = {s.name: Value(x * fmt.carrier.type(scale), fmt) for s, x in zip(states, arrays, strict=True)}
        update.apply(states, scaled, rate, scale, runner)
        yield states


def drawn(steps: int, lowest: int) -> list[Arrays]:
    """Masters, then the gradients of every step: float32 of many exponents."""
    rng = np.random.default_rng(3)

    def numbers(shape: tuple[int, ...], exponent: int) -> np.ndarray:
        x = rng.uniform(-1, 1, shape) * 2.0 ** rng.integers(exponent, 1, shape)
        return x.astype(np.float32).astype(np.float64)

    return [[numbers(shape, lowest if step else -2) for shape in SHAPES.values()] for step in range(steps + 1)]


# ---- the docstring of emu.optim.muon in rational numbers, every result rounded once ----


def rounded(x: Fraction | float, bits: int = 24) -> Fraction:
    """Round to a float of so many significand bits and binary32's exponents, ties to even."""
    exact = Fraction(x)
    if exact == 0:
        return exact
    step = Fraction(2) ** (max(floor_log2(abs(exact)), -126) - bits + 1)
    return round(exact / step) * step


def root(x: Fraction) -> Fraction:
    """The square root rounded once: 256 of its bits, and one that says whether anything follows."""
    square = x * 4**256
    assert square.denominator == 1
    below = math.isqrt(int(square))
    return rounded(Fraction(2 * below + (below * below != square), 2**257))


def pairwise(x: list[Fraction]) -> Fraction:
    return x[0] if len(x) == 1 else pairwise([rounded(a + b) for a, b in zip(x[::2], x[1::2], strict=True)])


def transposed(x: Matrix) -> Matrix:
    return [list(column) for column in zip(*x, strict=True)]


def product(x: Matrix, y: Matrix, bits: int) -> Matrix:
    """Products and sums in order, each a binary32; the result in a format of so many bits."""

    def dot(row: list[Fraction], column: tuple[Fraction, ...]) -> Fraction:
        total = Fraction(0)
        for a, b in zip(row, column, strict=True):
            total = rounded(total + rounded(a * b))
        return rounded(total, bits)

    return [[dot(row, column) for column in zip(*y, strict=True)] for row in x]


def orthogonal(n: Matrix, eps: float, iterations: int, bits: int) -> Matrix:
    size = rounded(root(pairwise([rounded(a * a) for row in n for a in row])) + rounded(eps))
    is_tall = len(n) > len(n[0])
    x = [[rounded(a / size, bits) for a in row] for row in (transposed(n) if is_tall else n)]
    for _ in range(iterations):
        gram = product(x, transposed(x), bits)
        share = [[rounded(Fraction(C) * a, bits) for a in row] for row in product(gram, gram, bits)]
        poly = added(share, gram, B, bits)
        x = added(product(poly, x, bits), x, A, bits)
    return transposed(x) if is_tall else x


def added(x: Matrix, y: Matrix, factor: float, bits: int) -> Matrix:
    return [
        [rounded(a + Fraction(factor) * b, bits) for a, b in zip(*rows, strict=True)] for rows in zip(x, y, strict=True)
    ]


def exact_muon(
    c: dict[str, Any], w: Matrix, gradients: list[Matrix], rates: Sequence[float], carried: Sequence[float], bits: int
) -> Iterator[tuple[Matrix, Matrix]]:
    """A matrix and its momentum after every step; the momentum carries the scale of its step."""
    mu, m, before = float(rounded(c["momentum"])), [[Fraction(0)] * len(w[0]) for _ in w], 1.0
    factor = math.sqrt(max(1, len(w) / len(w[0])))
    for g, rate, scale in zip(gradients, rates, carried, strict=True):
        m = [[a * Fraction(scale) / Fraction(before) for a in row] for row in m]
        before, g = scale, [[a * Fraction(scale) for a in row] for row in g]
        m = added(g, m, mu, 24)
        x = orthogonal(added(g, m, mu, 24), EPS * scale, c["iterations"], bits)
        update = [[rounded(rounded(-rate * factor) * a) for a in row] for row in x]
        if c.get("weight_decay"):
            update = added(update, w, float(rounded(-rate * c["weight_decay"])), 24)
        w = [[rounded(a + b) for a, b in zip(*rows, strict=True)] for rows in zip(w, update, strict=True)]
        yield w, m


def exact_adam(
    c: dict[str, Any], w: list[Fraction], gradients: list[list[Fraction]], rates: Sequence[float]
) -> Iterator[list[Fraction]]:
    """What Adam moves, after every step; its rate is to the recipe's as Muon's is."""
    beta1, beta2 = Fraction(c["beta1"]), Fraction(c["beta2"])
    m = v = [Fraction(0)] * len(w)
    for t, (g, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        own = rate / c["learning_rate"] * c["adam_learning_rate"]
        pairs = list(zip(m, v, g, strict=True))
        m = [rounded(rounded(beta1) * a + rounded(rounded(1 - beta1) * x)) for a, _, x in pairs]
        v = [rounded(rounded(beta2) * b + rounded(rounded(1 - beta2) * rounded(x * x))) for _, b, x in pairs]
        widened = rounded(1 / math.sqrt(1 - beta2**t))
        sizes = [rounded(root(b) * widened + rounded(c["eps"])) for b in v]
        steps = [rounded(rounded(-own / (1 - beta1**t)) * rounded(a / b)) for a, b in zip(m, sizes, strict=True)]
        if c.get("weight_decay"):
            steps = [rounded(s + rounded(-own * c["weight_decay"]) * a) for s, a in zip(steps, w, strict=True)]
        w = [rounded(a + s) for a, s in zip(w, steps, strict=True)]
        yield w


def flat(x: np.ndarray) -> list[Fraction]:
    return [Fraction(float(a)) for a in x.flat]


def rationals(x: np.ndarray) -> Matrix:
    return [[Fraction(float(a)) for a in row] for row in x.reshape(len(x), -1)]


#: Betas of binary32 that are short in binary, so that what the model rounds is what the optimiser rounds.
ADAM = {"adam_learning_rate": 0.004, "beta1": 0.875, "beta2": 0.96875, "eps": 1e-8, "adam_layers": ["out*"]}
SPECS = {
    "five iterations": {"name": "muon", "learning_rate": 0.02, "momentum": 0.95, "iterations": 5, **ADAM},
    "decay": {"name": "muon", "learning_rate": 0.1, "momentum": 0.7, "iterations": 2, "weight_decay": 0.3, **ADAM},
    "no momentum": {"name": "muon", "learning_rate": 0.1, "momentum": 0.0, "iterations": 1, **ADAM},
}
WANDERING = (2.0**10, 2.0**10, 2.0**-4)
SCALING = {
    "unscaled": (("gradient",), (1.0,) * 3),
    "gradients": (("gradient",), WANDERING),
    "rates": (("learning_rate", "weight_decay"), WANDERING),
}


@pytest.mark.parametrize("scaling", SCALING)
@pytest.mark.parametrize("case", SPECS)
def test_masters_and_momentum_in_float32_are_rational_numbers_rounded_where_the_docstring_says(
    case: str, scaling: str, backend: str
):
    """Scales are powers of two, so they change no bit of a master; EPS carries them as the norm does."""
    require_rational(SPECS[case], load_device("float32"), backend, scaling, bits=24)


@pytest.mark.parametrize("case", SPECS)
def test_what_is_multiplied_has_the_format_of_the_role_orthogonal_and_all_else_has_its_own(case: str, backend: str):
    """Eight bits of bfloat16 for the matrices, and binary32 for momentum, norm, update, and Adam."""
    own = PrecisionTable.model_validate({"orthogonal": {"format": "bf16"}})
    require_rational(SPECS[case], load_device("float32").with_precision(own, origin="x"), backend, "unscaled", bits=8)


def require_rational(spec: dict[str, Any], device: Device, backend: str, scaling: str, bits: int) -> None:
    (compensation, scales), rates = SCALING[scaling], [spec["learning_rate"] * share for share in (1.0, 0.75, 0.3)]
    draws, steps = drawn(3, lowest=-12), 0
    carried = (1.0,) * 3 if "gradient" in compensation else scales
    matrices = [
        exact_muon(spec, rationals(draws[0][i]), [rationals(a[i]) for a in draws[1:]], rates, carried, bits)
        for i in (0, 1)
    ]
    others = [exact_adam(spec, flat(draws[0][i]), [flat(arrays[i]) for arrays in draws[1:]], rates) for i in (2, 3)]
    for states in trained(spec, device, backend, draws, rates, scales, compensation):
        for state, model in zip(states, matrices, strict=False):
            w, m = next(model)
            assert rationals(state.master.array) == w
            assert list(state.slots) == ["momentum"]
            assert rationals(state.slots["momentum"].array) == m
        for state, model in zip(states[2:], others, strict=True):
            assert flat(state.master.array) == next(model)
            assert list(state.slots) == ["mean", "squares"]
        steps += 1
    assert steps == 3


# ---- the source, in float64 ----


def polynomial(s: np.ndarray, iterations: int) -> np.ndarray:
    for _ in range(iterations):
        s = A * s + B * s**3 + C * s**5
    return s


def published(c: dict[str, Any], w: np.ndarray, gradients: Arrays) -> Iterator[np.ndarray]:
    """A matrix after every step: the singular values of its direction mapped by the polynomial, vectors kept."""
    m, rows = np.zeros_like(w), len(w)
    for g in gradients:
        m = c["momentum"] * m + g
        n = (g + c["momentum"] * m).reshape(rows, -1)
        u, s, vh = np.linalg.svd(n / (np.sqrt((n**2).sum()) + EPS), full_matrices=False)
        o = (u * polynomial(s, c["iterations"])) @ vh
        scale = max(1, rows / n.shape[1]) ** 0.5
        w = w - c["learning_rate"] * (scale * o.reshape(w.shape) + c.get("weight_decay", 0.0) * w)
        yield w


@pytest.mark.parametrize("iterations", [1, 2, 5])
@pytest.mark.parametrize("decay", [{}, {"weight_decay": 0.375}])
def test_in_float64_every_step_is_the_sources(decay: dict[str, float], iterations: int):
    """Two ways to compute one function of x differ by their roundings, which later iterations widen.

    Singular values stay below 1.25, so an iteration widens an error by less than A + 3 * 1.25**2 * |B| + 5 * 1.25**4
    * C < 2**6. Each rounds less than 2**8 numbers below 2**3 for an element. A step moves by 2 * 0.25 of x at most,
    and six steps add up: 2**(-53 + 8 + 3) * 2**(6 * iterations) * 2**2. The root of rows / columns is exact, 1 or 2.
    """
    spec = {"name": "muon", "learning_rate": 0.25, "momentum": 0.75, "iterations": iterations} | decay
    draws, scales = drawn(6, lowest=-4), (1.0,) * 6
    # the tall matrix has eight rows of two, whose root of rows / columns is exact
    draws = [[arrays[0], np.resize(arrays[1], (8, 2)) + np.eye(8, 2), *arrays[2:]] for arrays in draws]
    models = [published(spec, draws[0][i], [arrays[i] for arrays in draws[1:]]) for i in (0, 1, 2)]
    bound, steps = 2.0 ** (-40 + 6 * iterations), 0
    for states in trained(spec, FLOAT64, "reference", draws, [0.25] * 6, scales, ("gradient",)):
        for state, model in zip(states, models, strict=False):
            w = next(model)
            assert state.master.array.dtype == np.float64
            assert np.abs(state.master.array - w).max() <= bound
        steps += 1
    assert steps == 6


# ---- what the products are for ----


def direction(gradient: np.ndarray, device: Device, backend: str = "numba", **keys: Any) -> np.ndarray:
    """What the first step moves a matrix of zeros by, divided by the rate: the sign turned, and no momentum."""
    spec = {"name": "muon", "learning_rate": 1.0, "momentum": 0.0} | keys
    optimiser, policy = build_optimiser(TypeAdapter(Optimiser).validate_python(spec)), Policy(device.precision)
    fmt = policy.stage("fc", "master").format
    state = ParameterState("fc", "weight", Value(np.zeros(gradient.shape, fmt.carrier), fmt))
    optimiser.start(state, lambda role: policy.stage("fc", role).format)
    given = Value(gradient.astype(fmt.carrier), fmt)
    optimiser.apply(state, given, 1.0, 0, DatapathRunner(policy, backend=backend))
    return -state.master.array.astype(np.float64)


def test_five_iterations_bring_singular_values_from_a_hundredth_to_one_between_0_68_and_1_14():
    """The interval of the polynomial, on a grid finer than float64 arithmetic on the matrix is exact (1e-6)."""
    grid = polynomial(np.linspace(0.01, 1, 1_000_001), 5)
    assert 0.68 < grid.min() < grid.max() < 1.14
    rng = np.random.default_rng(5)
    for rows, columns in ((12, 12), (6, 40), (40, 6)):
        u, v = (np.linalg.qr(rng.normal(size=(n, n)))[0] for n in (rows, columns))
        values = np.geomspace(0.02, 1, min(rows, columns))
        assert values.min() / np.linalg.norm(values) > 0.0075
        gradient = (u[:, : len(values)] * values) @ v[: len(values)]
        moved = direction(gradient, FLOAT64) / max(1, rows / columns) ** 0.5
        found = np.linalg.svd(moved, compute_uv=False)
        assert 0.68 < found.min() < found.max() < 1.14


@pytest.mark.parametrize("device", ["bf16-mixed", "fp16", "fixed16"])
def test_on_narrow_units_singular_values_within_a_factor_of_four_still_end_between_0_67_and_1_15(device: str):
    """The source's own arithmetic, bfloat16, rounds by 2**-9 of an element; a fixed point of +-4 must not saturate."""
    rng = np.random.default_rng(6)
    u, v = (np.linalg.qr(rng.normal(size=(8, 8)))[0] for _ in range(2))
    found = np.linalg.svd(direction((u * np.geomspace(0.25, 1, 8)) @ v, load_device(device)), compute_uv=False)
    assert 0.67 < found.min() < found.max() < 1.15


def test_zeros_and_gradients_whose_squares_overflow_move_nothing_and_infinities_become_nan():
    zeros = direction(np.zeros((2, 3)), load_device("float32"))
    assert not zeros.any()
    assert not np.isnan(zeros).any()
    infinite = np.ones((2, 3))
    infinite[0, 1] = np.inf
    assert np.isnan(direction(infinite, load_device("float32"))).all()  # products carry it everywhere
    overflowing = direction(np.full((2, 3), 2.0**100), load_device("float32"))
    assert not overflowing.any()  # squares overflow, and n / infinity is 0
