"""Matrix products, convolutions, sums, selections and functions: every backend returns the reference's bits."""

# ruff: noqa: B023 - every call happens before its loop moves on
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from agreement import OTHERS, assert_same
from fast_suite import most_are_slow, with_something_new
from kernel_inputs import random_values, reals
from variants import running

import emu
from emu import Mac, engine
from emu.testing import assert_bits_equal
from tests.products import product


@dataclass(frozen=True)
class Case:
    """Formats of a product, and the unit it runs on."""

    a: str
    b: str
    addend: str | None
    mac: Mac
    out: str
    path: str

    def __str__(self) -> str:
        mac = self.mac
        return f"{self.a}*{self.b}+{self.addend} {mac.product},{mac.accumulator},{mac.order},{mac.rounding.value}"


CASES = [
    # exact sums of fixed operands: float32 products, float64 products, wide integers
    Case("fix8f4", "fix8f6", None, Mac(), "fix8f4", "float32_blas"),
    Case("fix8f4", "ufix8f6", "fix16f12", Mac(), "fp16", "float32_blas"),
    Case("fix16f8", "fix16f10", "fix16f8", Mac(), "fix16f8", "float64_blas"),
    Case("fix32f20", "fix32f28", "fix64f40", Mac(), "fix32f20", "wide"),
    Case("fix64f30", "ufix64f20", None, Mac(), "fix64f40", "wide"),
    Case("fix8f-63", "fix8f-63", None, Mac(), "fix8f-132", "float64_blas"),
    Case("fix8f140", "fix8f-140", None, Mac(), "fix16f0", "float64_blas"),
    Case("fix8f60", "fix8f66", None, Mac(), "bf16", "float32_blas"),
    Case("fix16f8", "fix16f10", "fp16", Mac(), "fix16f8", "wide"),
    # fixed accumulators: never saturating, saturating, wrapping, rounding
    Case("fix8f4", "fix8f6", "fix16f12", Mac(accumulator="fix40f16"), "fix8f4", "float32_blas"),
    Case("fix16f8", "fix16f10", "fix16f8", Mac(accumulator="fix26f18"), "fix16f8", "in_order"),
    Case("fix16f8", "fix16f10", "fix16f8", Mac(accumulator="fix28f20", overflow="wrap"), "fix16f8", "in_order"),
    Case("fix16f8", "fix16f10", None, Mac(accumulator="fix26f18", overflow="saturate_zero"), "fp16", "in_order"),
    Case("fix16f8", "fix16f10", None, Mac(accumulator="fix24f18", overflow="saturate_symmetric"), "fp16", "in_order"),
    Case("fix8f4", "fix8f6", None, Mac(accumulator="ufix32f10"), "fix16f4", "in_order"),
    Case("ufix8f4", "ufix8f6", None, Mac(accumulator="ufix20f10"), "ufix8f0", "in_order"),
    Case("fix8f4", "fix8f6", "fix16f12", Mac(accumulator="fix12f8", rounding="floor"), "fix8f4", "in_order"),
    Case("fix8f4", "fix8f6", "fix16f12", Mac(accumulator="fix12f8", rounding="stochastic"), "fix8f4", "in_order"),
    Case("fix8f4", "fix8f6", None, Mac(product="fix12f6", accumulator="fix14f6"), "fix8f4", "in_order"),
    Case("fix8f4", "fix8f6", None, Mac(product="fix12f6", rounding="ceil", overflow="wrap"), "fix16f8", "in_order"),
    Case("fix16f8", "fix16f10", "fix16f8", Mac(accumulator="fix26f18", order="lanes(4)"), "fix16f8", "in_order"),
    Case("fix40f8", "fix32f10", None, Mac(accumulator="fix60f18"), "fix16f8", "in_order"),
    # float accumulators
    Case("fp16", "fp16", "fp16", Mac(), "fp16", "wide"),
    Case("fp16", "fp16", "fp16", Mac(accumulator="fp16"), "fp16", "in_order"),
    Case("fp16", "fp16", "fp32", Mac(accumulator="fp32"), "fp16", "in_order"),
    Case("fp16", "fp16", "fp64", Mac(accumulator="fp32"), "fp16", "in_order"),
    Case("fp16", "fp16", "fix64f40", Mac(accumulator="fp32"), "fp32", "in_order"),
    Case("fp16", "fp16", "fp64", Mac(accumulator="fp16", order="pairwise"), "fp16", "in_order"),
    Case("bf16", "bf16", "fp32", Mac(accumulator="fp32"), "bf16", "in_order"),
    Case("bf16", "bf16", None, Mac(accumulator="bf16"), "bf16", "in_order"),
    Case("tf32", "tf32", "fp32", Mac(accumulator="fp32"), "fp32", "in_order"),
    Case("fp32", "fp32", "fp32", Mac("fp32", "fp32"), "fp32", "in_order"),
    Case("fp32", "fp32", "fp32", Mac(accumulator="fp32"), "fp32", "in_order"),
    Case("fp32", "fp32", None, Mac(accumulator="fp64"), "fp32", "in_order"),
    Case("fp64", "fp64", None, Mac(accumulator="fp64"), "fp64", "in_order"),
    Case("fp8_e4m3", "fp8_e5m2", "fp16", Mac(accumulator="fp16"), "fp8_e4m3", "in_order"),
    Case("fp8_e4m3", "fp8_e4m3", None, Mac(accumulator="fp32"), "fp8_e4m3", "in_order"),
    Case("fp16", "fp16", "fp16", Mac(accumulator="e6m9"), "fp16", "in_order"),
    Case("fp16", "fp16", None, Mac(accumulator="fp8_e4m3"), "fp16", "in_order"),
    Case("fp16", "fp16", None, Mac(accumulator="e4m3fnuz"), "fp16", "in_order"),
    Case("fp16", "fp16", None, Mac(accumulator="e2m1 finite nans=none"), "fp16", "in_order"),
    Case("fp16", "fp16", None, Mac(accumulator="bf16 ftz"), "bf16", "in_order"),
    Case("fp16 daz", "fp16", None, Mac(accumulator="fp16 daz"), "fp16", "in_order"),
    Case("fp16", "fp16", None, Mac("fp16", "fp16"), "fp16", "in_order"),
    Case("fp16", "fp16", None, Mac(accumulator="fp16", rounding="toward_zero"), "fp16", "in_order"),
    Case("fp16", "fp16", None, Mac(accumulator="fp16", overflow="satfinite"), "fp16", "in_order"),
    Case("fp16", "fp16", "fp32", Mac("fp16", "fp16", overflow="satpropagate"), "fp16", "in_order"),
    Case("bf16", "bf16", None, Mac(accumulator="fp8_e4m3", overflow="satpropagate"), "fp16", "in_order"),
    Case("fp16", "fp16", "fp16", Mac(accumulator="fp16", rounding="stochastic"), "fp16", "in_order"),
    Case("fp16", "fp16", "fp16", Mac(accumulator="fp32", order="pairwise"), "fp16", "in_order"),
    Case("fp16", "fp16", "fp16", Mac("bf16", order="lanes(3)"), "fp16", "in_order"),
    # mixed families
    Case("fix8f4", "fp16", "fix16f8", Mac(accumulator="fp32"), "fix16f8", "in_order"),
    Case("fix8f4", "fix8f6", None, Mac(accumulator="fp16"), "fp16", "in_order"),
    Case("fp8_e4m3", "fp8_e4m3", None, Mac(accumulator="fix24f10"), "fp16", "in_order"),
]  # fmt: skip
#: Every path, order, rounding and overflow rule at least once.
FAST = with_something_new(CASES, lambda c: (c.path, str(c.mac.order), c.mac.rounding, c.mac.overflow))
SIZES = [(1, 1, 1, 1), (2, 5, 17, 9), (1, 3, 0, 4), (0, 2, 3, 2), (1, 0, 3, 2), (3, 33, 5, 2)]


@most_are_slow("case", CASES, keep=FAST, ids=str)
def test_products_are_the_same(case: Case):
    paths = set()
    for batch, m, depth, n in SIZES:
        for anything in (True, False):
            a = random_values(case.a, (batch, m, depth), 1, anything=anything)
            b = random_values(case.b, (batch, depth, n), 2, anything=anything)
            c = random_values(case.addend, (m, 1), 3, anything=anything) if case.addend else None
            formats = {
                "a_format": case.a,
                "b_format": case.b,
                "addend": c,
                "addend_format": case.addend,
                "out_format": case.out,
            }
            for rounding in ("nearest_even", "stochastic", "floor") if depth > 3 else ("nearest_even",):

                def call(**where):
                    return product(
                        a,
                        b,
                        mac=case.mac,
                        rounding=rounding,
                        seed=4,
                        step=1,
                        divisor=max(batch, 1),
                        **formats,
                        **where,
                    )

                assert_same(call, case.out, (case, (batch, m, depth, n), anything, rounding))
            with running("generic"):  # the path of any processor; integer dot products are compared beside the kernels
                paths.add(emu.explain(emu.matmul, a, b, mac=case.mac, **formats).path)
    assert case.path in paths


@pytest.mark.parametrize("case", [CASES[i] for i in (0, 2, 3, 10, 22, 23, 24, 31)], ids=str)
def test_convolutions_are_the_same(case: Case):
    x, w = (
        random_values(case.a, (2, 3, 7, 6), 1, anything=False),
        random_values(case.b, (4, 3, 3, 2), 2, anything=False),
    )
    bias = random_values(case.addend, (4,), 3, anything=False) if case.addend else None
    formats = {"x_format": case.a, "w_format": case.b, "bias": bias, "bias_format": case.addend, "out_format": case.out}
    for stride, padding in (((1, 1), (0, 0)), ((2, 1), (1, 0)), ((3, 2), (2, 3)), ((9, 9), (0, 1))):

        def call(**where):
            return emu.conv2d(
                x, w, mac=case.mac, stride=stride, padding=padding, rounding="stochastic", **formats, **where
            )

        assert_same(call, case.out, (case, stride, padding))


@pytest.mark.parametrize("case", [CASES[i] for i in (0, 2, 3, 10, 13, 22, 23, 24, 33)], ids=str)
def test_sums_are_the_same(case: Case):
    x = random_values(case.a, (3, 5, 0 + 7), 1)
    for array in (x, x[:, :0], x.transpose(2, 0, 1)):
        for axis in (None, 0, (0, 2), -1, (1, -1), ()):
            options = {"x_format": case.a, "out_format": case.out, "mac": case.mac, "axis": axis}
            assert_same(lambda **where: engine.total(array, **options, **where), case.out, (case, axis))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint64])
@pytest.mark.parametrize("name", OTHERS)
def test_selections_are_the_same(name: str, dtype: type):
    rng = np.random.default_rng(1)
    if np.dtype(dtype).kind == "f":
        x = rng.choice(np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -1.0, 2.0], dtype), (511, 9))
        x[:40] = reals("fp16", 64, 1, dtype)[:360].reshape(40, 9)
    else:
        x = rng.integers(0, 2**63, (511, 9)).astype(dtype) - (2**62 if dtype == np.int64 else 0)
    wide = None if np.dtype(dtype).kind == "f" else emu.Fixed(64, 0, signed=dtype == np.int64)
    for array in (x, x[:, :1], x[::3, ::-2], x[:0], x.reshape(7, 73, 3, 3)):
        actual, expected = engine.relu(array, backend=name), engine.relu(array, backend="reference")
        assert actual.dtype == expected.dtype
        assert_bits_equal(actual, expected, wide)
        actual, expected = engine.max_pool(array, backend=name), engine.max_pool(array, backend="reference")
        assert_bits_equal(actual[0], expected[0], wide)
        assert actual[1].dtype == expected[1].dtype == np.uint8
        assert (actual[1] == expected[1]).all()
    assert_bits_equal(
        engine.relu(array[0, 0, 0, 0], backend=name), engine.relu(array[0, 0, 0, 0], backend="reference"), wide
    )


def test_selections_follow_their_definition(backend: str):
    nan, inf = np.nan, np.inf
    x = np.array([1.5, -1.5, 0.0, -0.0, nan, inf, -inf, 5e-324])
    assert_bits_equal(engine.relu(x, backend=backend), [1.5, 0.0, 0.0, 0.0, nan, inf, 0.0, 5e-324])
    windows = np.array(
        [
            [1.0, 2, 2, 0],
            [-0.0, 0.0, 0.0, -1],
            [0.0, -0.0, 0.0, -0.0],
            [1, nan, inf, nan],
            [-inf, -inf, -5, -5],
            [-0.0] * 4,
        ]
    )
    best, index = engine.max_pool(windows, backend=backend)
    assert_bits_equal(best, [2, 0.0, 0.0, nan, -5, -0.0])
    assert index.tolist() == [1, 1, 0, 1, 2, 0]
    best, index = engine.max_pool(np.arange(256.0)[None], backend=backend)
    assert (best.item(), index.item()) == (255.0, 255)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint64])
@pytest.mark.parametrize("gradient", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("name", OTHERS)
def test_gradients_of_relu_are_the_same(dtype: type, gradient: type, name: str):
    x = np.random.default_rng(7).integers(-3, 4, (40, 33)).astype(dtype)
    g = np.arange(x.size).reshape(x.shape).astype(gradient) - 500
    if np.dtype(dtype).kind == "f":
        x[0, :7] = [
            np.nan,
            np.inf,
            -np.inf,
            -0.0,
            np.finfo(dtype).smallest_subnormal,
            -np.finfo(dtype).smallest_subnormal,
            1,
        ]
    for arrived, seen in ((g, x), (g[:, ::2], x[:, ::2]), (g[:0], x[:0]), (g.T, x.T)):
        actual = engine.relu_gradient(arrived, seen, backend=name)
        assert_bits_equal(actual, engine.relu_gradient(arrived, seen, backend="reference"))
    assert engine.relu_gradient(g, x, backend=name).dtype == gradient


def test_gradients_of_relu_pass_where_the_operand_is_above_zero(backend: str):
    x = np.array([1.5, -1.5, 0.0, -0.0, np.nan, np.inf, -np.inf, 5e-324])
    assert_bits_equal(engine.relu_gradient(np.full(8, -2.5), x, backend=backend), [-2.5, 0, 0, 0, 0, -2.5, 0, -2.5])
    with pytest.raises(emu.ShapeError, match=r"`g` and `x` must have one shape, got \(8,\) and \(7,\)"):
        engine.relu_gradient(np.zeros(8), x[:7], backend=backend)


def test_largest_magnitudes_are_those_of_the_values(backend: str):
    arrays = [
        np.array([1.0, -3.5, 0.0], np.float32),
        np.array([-(2**63), 5], np.int64),
        np.array([2**64 - 1, 3], np.uint64),
        np.array([np.nan, 1.0]),
        np.array([-np.inf, 1.0]),
        np.zeros((0, 3)),
    ]
    found = engine.selection.largest_magnitudes(arrays, backend=backend)
    assert_bits_equal(np.array(found), [3.5, 2.0**63, 2.0**64, np.nan, np.inf, 0.0])


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "sigmoid", "erf", "gelu", "rsqrt"])
def test_functions_are_the_same(name: str):
    for source, fmt in (
        ("fp16", "fp16"),
        ("fix12f8", "fix8f4"),
        ("fp32", "fp32"),
        ("fp32", "fix16f8"),
        ("fix32f16", "bf16"),
    ):
        x = random_values(source, (500,), 1)
        for rounding in ("nearest_even", "floor", "stochastic"):
            options = {"x_format": source, "out_format": fmt, "rounding": rounding}
            assert_same(lambda **where: engine.function(name, x, **options, **where), fmt, (name, options))


def test_columns_whose_integers_add_up_beyond_32_bits_are_multiplied_exactly():
    """A way that makes bytes unsigned adds up each column of the right operand: 2**24 numbers of -128 fill an int32."""
    depth = 2**24 + 64
    left, right = np.full((1, depth), 127, np.float32), np.empty((depth, 2), np.float32)
    right[:] = -128, 127
    formats = {"a_format": "fix8f0", "b_format": "fix8f0", "out_format": "fix42f0"}
    y = emu.matmul(left, right, **formats, backend="numba")
    assert y.tolist() == [[depth * 127 * -128, depth * 127 * 127]]


def test_the_table_of_kernels_is_covered_here():
    """A kernel added to the table must be compared above."""
    from emu.backends.kernels import Kernels

    kernels = {
        name
        for name in vars(Kernels)
        if not name.startswith("_")
        and name not in ("dots", "place", "together", "ways")  # test_ways.py
        and name not in ("columns", "sparse_ways")  # tests/sparse
        and name != "quantize_blocks"  # test_scaled_blocks.py
        and name != "small_write"  # test_small_writes.py
        and name != "compiling_ahead"  # test_compiling_ahead.py
    }
    assert kernels == {
        "quantize", "elementwise", "function", "tabled", "relu", "relu_gradient", "largest_magnitudes",
        "max_pool", "unpool",
    }  # fmt: skip
