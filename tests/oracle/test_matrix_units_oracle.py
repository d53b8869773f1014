"""Blocks of products, in random formats and settings, against rational numbers: both backends, bit for bit."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from matrix_unit_model import RANDOM_BITS, MatrixUnit

import emu
from emu.backends.reference.philox import random_integers
from emu.datapath import Blocks, Rounding
from emu.testing import assert_bits_equal

ROWS, COLUMNS = 2, 3
OPERANDS = [
    "fp16", "bf16", "tf32", "fp8_e4m3", "fp8_e5m2", "e4m3fnuz", "e2m1 finite nans=none", "fp16 daz",
    "e5m0 finite nans=top", "fp32",
]  # fmt: skip
ACCUMULATORS = [
    "fp32", "fp16", "e8m13", "bf16", "fp8_e5m2", "fp8_e4m3", "e4m3fnuz", "fp16 ftz", "e3m4 finite nans=none", "e9m30",
]  # fmt: skip
DETERMINISTIC = [mode.value for mode in Rounding if not mode.draws]
TINY = [2.0**-133, -(2.0**-126), 1.5 * 2.0**-130, 2.0**-133 * 3]


@st.composite
def operand_values(draw: Any, fmt: emu.Float, size: int) -> np.ndarray:
    """Values of a format: most of exponents near each other, where sums cancel and alignment cuts; some anywhere."""
    middle = draw(st.integers(0, 2**fmt.exponent_bits - 1))
    near = st.tuples(st.integers(-3, 3), st.integers(0, 2**fmt.fraction_bits - 1), st.booleans()).map(
        lambda t: (
            (t[2] << (fmt.width_bits - 1))
            | (min(max(middle + t[0], 0), 2**fmt.exponent_bits - 1) << fmt.fraction_bits)
            | t[1]
        )
    )
    anything = st.integers(0, fmt.n_codes - 1)
    zeros = st.sampled_from([0, fmt.sign_code])
    codes = draw(st.lists(st.one_of(near, near, near, zeros, anything), min_size=size, max_size=size))
    values = fmt.decode(np.array(codes, np.uint64))
    if draw(st.integers(0, 3)):  # mostly without infinities and NaN, which would hide everything else
        values = np.where(np.isfinite(values), values, 1).astype(values.dtype)
    return values


@st.composite
def units(draw: Any) -> emu.Mac:
    index_order = draw(st.sampled_from(["consecutive", "alternating_pairs"]))
    n = draw(st.sampled_from([2, 4, 16] if index_order == "alternating_pairs" else [1, 2, 3, 4, 8, 16, 32]))
    floor = draw(st.one_of(st.none(), st.integers(-150, 20)))
    fraction_bits = draw(st.one_of(st.integers(0, 40), st.sampled_from([13, 23, 24, 25, 35, 70])))
    order = Blocks(n, fraction_bits, index_order, draw(st.sampled_from(["aligned", "after"])), floor)
    return emu.Mac(
        accumulator=draw(st.sampled_from(ACCUMULATORS)),
        order=order,
        rounding=draw(st.sampled_from(["toward_zero", "nearest_even", *DETERMINISTIC])),
        overflow=draw(st.sampled_from([None, None, None, "satfinite", "satpropagate"])),
    )


@st.composite
def products(draw: Any) -> tuple[emu.Mac, emu.Float, emu.Float, np.ndarray, np.ndarray, np.ndarray | None]:
    mac, depth = draw(units()), draw(st.integers(0, 11))
    a_format, b_format = (emu.parse(draw(st.sampled_from(OPERANDS))) for _ in range(2))
    a = draw(operand_values(a_format, ROWS * depth)).reshape(ROWS, depth)
    b = draw(operand_values(b_format, depth * COLUMNS)).reshape(depth, COLUMNS)
    c = None if draw(st.booleans()) else draw(operand_values(emu.parse("fp32"), ROWS * COLUMNS)).reshape(ROWS, COLUMNS)
    return mac, a_format, b_format, a, b, c


def check(
    mac: emu.Mac, a_format: emu.Float, b_format: emu.Float, a: np.ndarray, b: np.ndarray, c: np.ndarray | None
) -> None:
    models = [MatrixUnit(mac, a_format, b_format) for _ in range(a.shape[0] * b.shape[1])]
    expected = [
        models[i].run(
            a[i // b.shape[1]].tolist(), b[:, i % b.shape[1]].tolist(), None if c is None else c.flat[i].item()
        )
        for i in range(len(models))
    ]
    for backend in ("reference", "numba"):
        flags = emu.Flags()
        actual = emu.matmul(
            a, b, a_format=a_format, b_format=b_format, out_format="fp64", mac=mac, flags=flags, backend=backend,
            addend=c, addend_format=None if c is None else "fp32",
        )  # fmt: skip
        assert_bits_equal(actual, np.reshape(expected, actual.shape), "fp64")
        assert flags.accumulator_overflow == sum(model.touched for model in models)


FP16, BF16, HUGE = emu.parse("fp16"), emu.parse("bf16"), 1.5 * 2.0**127


@given(products())
def test_blocks_equal_rational_numbers(product: Any):
    check(*product)


@pytest.mark.parametrize(
    ("order", "rounding", "row", "column", "addend"),
    [
        ("blocks(4, 23)", "toward_zero", [HUGE], [HUGE], None),  # overflows: infinite although cut
        ("blocks(2, 23)", "toward_zero", [HUGE, HUGE], [HUGE, -HUGE], None),  # products beyond fp32 cancel to +0
        ("blocks(1, 23)", "toward_zero", [HUGE, HUGE], [HUGE, -HUGE], None),  # in two blocks: infinite
        ("blocks(1, 23)", "toward_zero", [HUGE, np.inf], [HUGE, -1], None),  # inf - inf
        ("blocks(4, 23)", "toward_zero", [np.inf, 0], [0, 1], None),
        ("blocks(4, 23)", "toward_zero", [np.nan, 1], [0, 1], None),
        ("blocks(4, 23)", "toward_zero", [-0.0, 0], [1, -1], -0.0),  # -0 everywhere: +0
        ("blocks(1, 9, addend=after)", "floor", [-0.0], [1], -0.0),
        ("blocks(4, 9, addend=after)", "floor", [1, -1], [1, 1], None),
        ("blocks(4, 9)", "floor", [1, -1], [1, 1], None),
        ("blocks(2, 24)", "nearest_even", [0, 1.5], [2, 0], None),  # zeros have no exponent, not even beside a number
        ("blocks(2, 24)", "nearest_even", [0, 2.0**-133], [HUGE, 2.0**-133], 2.0**-149),
        ("blocks(2, 3)", "toward_zero", [], [], -0.0),  # no block: the addend alone
        ("blocks(2, 23)", "toward_zero", [-(2.0**-100)], [2.0**-60], None),  # cut to nothing by fp32: +0
    ],
)
def test_infinities_nan_and_zeros_equal_rational_numbers(
    order: str, rounding: str, row: list[float], column: list[float], addend: float | None
):
    mac = emu.Mac(accumulator="fp32", order=order, rounding=rounding)
    a, b = np.array([row], np.float32), np.array(column, np.float32)[:, None]
    check(mac, BF16, BF16, a, b, None if addend is None else np.array([[addend]], np.float32))


@pytest.mark.parametrize("accumulator", ["e3m4 finite nans=none", "e3m4 finite", "e4m3fnuz", "fp8_e4m3", "fp8_e5m2"])
def test_sums_beyond_an_accumulator_without_infinities_equal_rational_numbers(accumulator: str):
    a = np.array([[1000, 1], [-1000, 1], [1, 1]], np.float32)
    for rounding in ("toward_zero", "nearest_even"):
        mac = emu.Mac(accumulator=accumulator, order="blocks(1, 9)", rounding=rounding)
        check(mac, FP16, FP16, a, np.array([[1000, -1000], [1, 1]], np.float32), None)


@pytest.mark.parametrize("fraction_bits", [0, 23, 58, 59, 60, 70, 256])
def test_sums_wider_than_a_machine_word_are_exact(fraction_bits: int):
    """The accumulator and products of both ends of binary16, moved up by as many bits as the unit keeps."""
    mac = emu.Mac(accumulator="fp32", order=Blocks(2, fraction_bits), rounding="toward_zero")
    a = np.array([[65504, 65504, 2.0**-24, 2.0**-24], [2.0**-24, -(2.0**-23), 1, 65504]], np.float32)
    check(mac, FP16, FP16, a, a.T.copy(), np.array([[2.0**31 - 128, 1], [-1, 2.0**-149]], np.float32))


@pytest.mark.parametrize("floor", [None, -126, -133])
def test_tiny_terms_are_aligned_to_the_floor(floor: int | None):
    mac = emu.Mac(accumulator="fp32", order=Blocks(4, 24, min_exponent=floor), rounding="toward_zero")
    a = np.array([TINY, TINY[::-1]], np.float32)
    b = np.array([[2.0**-18, 2.0**-20], [2.0**-19, 2.0**-21]], np.float32).repeat(2, axis=0) * np.float32(1.5)
    for c in (None, np.full((2, 2), 2.0**-149, np.float32)):
        check(mac, BF16, BF16, a, b, c)


@pytest.mark.parametrize("unit", [unit for unit in emu.datapath.MATRIX_UNITS if unit.inputs != "int8"], ids=str)
def test_every_float_unit_equals_rational_numbers(unit: Any):
    mac = emu.Mac.preset(unit.gpu, inputs=unit.inputs, output=unit.output, instruction=unit.instruction)
    fmt, rng = emu.parse(unit.inputs), np.random.default_rng(7)
    a, b = (emu.quantize(rng.standard_normal(s) * 2.0 ** rng.integers(-9, 4, s), fmt) for s in ((2, 70), (70, 3)))
    c = emu.quantize(rng.standard_normal((2, 3)), unit.output)
    check(mac, fmt, fmt, a, b, c)


@pytest.mark.parametrize("order", ["blocks(4, 12)", "blocks(2, 12, index_order=alternating_pairs, addend=after)"])
def test_stochastic_sums_draw_at_the_address_of_their_first_product(order: str, backend: str):
    mac = emu.Mac(accumulator="fp8_e5m2", order=order, rounding="stochastic")
    rng, fmt = np.random.default_rng(3), FP16
    a, b, c = (emu.quantize(rng.standard_normal(shape), fmt) for shape in ((2, 10), (10, 3), (2, 3)))
    where = {"seed": 5, "stream": 6, "step": 7}
    actual = emu.matmul(
        a, b, a_format=fmt, b_format=fmt, addend=c, addend_format=fmt, out_format="fp16", mac=mac, backend=backend,
        **where,
    )  # fmt: skip

    def bits(index: int):
        return lambda draw: int(random_integers(6, RANDOM_BITS, **where, draw=draw)[index])

    expected = [
        MatrixUnit(mac, fmt, fmt, bits(i)).run(a[i // 3].tolist(), b[:, i % 3].tolist(), c.flat[i].item())
        for i in range(6)
    ]
    assert_bits_equal(actual, np.reshape(expected, (2, 3)), "fp16")
