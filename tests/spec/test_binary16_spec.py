"""docs/concepts/products.md: binary16 through wider types, where that is right and where not; zeros and NaN."""

from __future__ import annotations

import numpy as np
import pytest

import emu
from emu.testing import assert_bits_equal

NEAREST = ["nearest_even", "nearest_away", "nearest_up", "nearest_down", "nearest_zero"]
DIRECTED = ["floor", "ceil", "toward_zero", "to_odd"]


def random_fp16(n: int, seed: int) -> np.ndarray:
    codes = np.random.default_rng(seed).integers(0, 2**16, n, dtype=np.uint16)
    values = codes.view(np.float16).astype(np.float32)
    return np.where(np.isnan(values), np.float32(1), values)


def pairs() -> tuple[np.ndarray, np.ndarray]:
    """Random binary16 numbers, and pairs whose exponents lie close."""
    a, b = random_fp16(20000, 1), random_fp16(20000, 2)
    near = (np.random.default_rng(3).normal(size=(2, 20000))).astype(np.float16).astype(np.float32)
    return np.concatenate([a, near[0]]), np.concatenate([b, near[1]])


def test_the_floor_of_1024_minus_a_tiny_number_is_the_value_below(backend):
    options = {"out_format": "fp16", "rounding": "floor", "backend": backend}
    assert emu.subtract(1024.0, 2.0**-24, **options) == 1023.5
    assert emu.add(1024.0, -(2.0**-24), **options) == 1023.5
    through_binary32 = np.float32(1024) - np.float32(2.0**-24)
    assert emu.quantize(through_binary32, "fp16", rounding="floor", backend=backend) == 1024


@pytest.mark.parametrize("mode", NEAREST)
def test_sums_of_binary16_through_binary32_are_right_in_the_nearest_modes(mode, backend):
    a, b = pairs()
    with np.errstate(invalid="ignore"):
        through = emu.quantize(a + b, "fp16", rounding=mode, backend=backend)
    once = emu.add(a, b, out_format="fp16", rounding=mode, backend=backend)
    zero = once == 0  # the sign of an exact zero is ours in the tie modes
    assert_bits_equal(once[~zero], through[~zero], "fp16")


@pytest.mark.parametrize("mode", DIRECTED)
def test_sums_of_binary16_through_binary32_are_wrong_in_the_directed_modes(mode, backend):
    tiny = 2.0**-24
    a, b = {"floor": (1024, -tiny), "ceil": (1024, tiny), "toward_zero": (1024, -tiny), "to_odd": (1024, tiny)}[mode]
    once = emu.add(a, b, out_format="fp16", rounding=mode, backend=backend)
    through = emu.quantize(np.float32(a) + np.float32(b), "fp16", rounding=mode, backend=backend)
    assert once != through == 1024


@pytest.mark.parametrize("mode", [*NEAREST, *DIRECTED])
def test_products_of_binary16_are_exact_in_binary32_so_one_conversion_serves_any_mode(mode, backend):
    a, b = pairs()
    with np.errstate(invalid="ignore"):
        through = emu.quantize(a * b, "fp16", rounding=mode, backend=backend)
    assert_bits_equal(emu.multiply(a, b, out_format="fp16", rounding=mode, backend=backend), through, "fp16")


def test_a_fused_multiply_add_through_binary32_is_wrong(backend):
    """3 * 683 = 2049 is a tie of binary16; a tiny addend decides it, and binary32 loses the addend."""
    a, b, c = 3.0, 683.0, 2.0**-24
    assert emu.fma(a, b, c, out_format="fp16", backend=backend) == 2050
    through = np.float32(a) * np.float32(b) + np.float32(c)
    assert emu.quantize(through, "fp16", backend=backend) == 2048


@pytest.mark.parametrize("mode", NEAREST)
def test_a_fused_multiply_add_through_float64_is_right_in_the_nearest_modes(mode, backend):
    a, b = (x.astype(np.float64) for x in pairs())
    c = random_fp16(a.size, 4).astype(np.float64)
    with np.errstate(invalid="ignore"):
        through = emu.quantize(a * b + c, "fp16", rounding=mode, backend=backend)
    once = emu.fma(a, b, c, out_format="fp16", rounding=mode, backend=backend)
    zero = once == 0
    assert_bits_equal(once[~zero], through[~zero], "fp16")


@pytest.mark.parametrize("mode", [*NEAREST, *DIRECTED])
@pytest.mark.parametrize(("a", "b"), [(1.0, -1.0), (-1.0, 1.0), (0.0, -0.0), (-0.0, 0.0)])
def test_opposite_signs_summing_to_zero_give_plus_zero_except_under_floor(a, b, mode, backend):
    want = -0.0 if mode == "floor" else 0.0
    assert_bits_equal(emu.add([a], [b], out_format="fp16", rounding=mode, backend=backend), [want], "fp16")
    assert_bits_equal(emu.fma([a], [1.0], [b], out_format="fp16", rounding=mode, backend=backend), [want], "fp16")


def test_two_negative_zeros_sum_to_minus_zero_and_a_zero_product_has_the_sign_of_the_xor(backend):
    options = {"out_format": "fp16", "backend": backend}
    assert_bits_equal(emu.add([-0.0], [-0.0], **options), [-0.0], "fp16")
    products = emu.multiply([0.0, -0.0, -0.0, -1.0], [1.0, 1.0, -0.0, 0.0], **options)
    assert_bits_equal(products, [0.0, -0.0, 0.0, -0.0], "fp16")
    assert_bits_equal(emu.multiply([-(2.0**-20)], [2.0**-20], **options), [-0.0], "fp16")


@pytest.mark.parametrize(
    ("operation", "operands"),
    [("multiply", (0.0, np.inf)), ("add", (np.inf, -np.inf)), ("subtract", (np.inf, np.inf)), ("divide", (0.0, 0.0)),
     ("divide", (np.inf, np.inf)), ("sqrt", (-1.0,)), ("fma", (0.0, np.inf, 1.0)), ("fma", (1.0, np.inf, -np.inf))],
)  # fmt: skip
def test_an_operation_without_a_value_gives_nan_and_raises_invalid(operation, operands, backend):
    flags = emu.Flags()
    y = getattr(emu, operation)(*operands, out_format="fp16", flags=flags, backend=backend)
    assert np.isnan(y)
    assert flags == emu.Flags(invalid=1)
    quiet = emu.Flags()
    getattr(emu, operation)(*(np.nan for _ in operands), out_format="fp16", flags=quiet, backend=backend)
    assert quiet == emu.Flags()


def test_an_exact_accumulators_zero_is_plus_zero(backend):
    formats = {"a_format": "fp16", "b_format": "fp16", "out_format": "fp16", "backend": backend}
    assert_bits_equal(emu.matmul([[-0.0]], [[1.0]], **formats), [[0.0]], "fp16")
    assert_bits_equal(emu.matmul([[1.0, 1.0]], [[-1.0], [1.0]], rounding="floor", **formats), [[0.0]], "fp16")
