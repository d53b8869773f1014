"""What was measured of matrix units: products per block, fraction bits kept beside the largest exponent, its floor.

Sources: Khattak & Mikaitis 2025 (arXiv 2512.07004); MMA-Sim (arXiv 2511.10909).
"""

from __future__ import annotations

import numpy as np
import pytest

import emu
from emu import Mac
from emu.testing import assert_bits_equal

#: GPU; inputs; output; instruction; products of a block, fraction bits, smallest exponent of the alignment.
MEASURED = [
    ("v100", "fp16", "fp32", None, 4, 23, None),
    ("v100", "fp16", "fp16", None, 4, 23, -19),
    ("t4", "fp16", "fp32", None, 8, 24, None),
    ("t4", "fp16", "fp16", None, 8, 24, -20),
    *((gpu, inputs, "fp32", None, 8, 24, -132) for gpu in ("a100", "ada") for inputs in ("fp16", "bf16")),
    *((gpu, "fp16", "fp16", None, 8, 24, -20) for gpu in ("a100", "ada")),
    *((gpu, "tf32", "fp32", None, 4, 24, -132) for gpu in ("a100", "ada")),
    *((gpu, inputs, "fp32", None, 16, 25, -133) for gpu in ("h100", "b200") for inputs in ("fp16", "bf16")),
    *((gpu, "fp16", "fp16", None, 16, 25, -21) for gpu in ("h100", "b200")),
    *((gpu, "tf32", "fp32", None, 8, 25, -133) for gpu in ("h100", "b200")),
    *(
        ("ada", inputs, output, None, 16, 13, None)
        for inputs in ("fp8_e4m3", "fp8_e5m2")
        for output in ("fp32", "fp16")
    ),
    *(("h100", inputs, "fp32", "wgmma", 32, 13, None) for inputs in ("fp8_e4m3", "fp8_e5m2")),
    *(("b200", inputs, "fp32", "tcgen05", 32, 25, None) for inputs in ("fp8_e4m3", "fp8_e5m2")),
    *((gpu, "fp8_e4m3", output, "mma", 16, 25, None) for gpu in ("h100", "b200") for output in ("fp32", "fp16")),
]


@pytest.mark.parametrize(("gpu", "inputs", "output", "instruction", "n", "fraction_bits", "floor"), MEASURED)
def test_a_unit_adds_as_was_measured(
    gpu: str, inputs: str, output: str, instruction: str | None, n: int, fraction_bits: int, floor: int | None
):
    order = Mac.preset(gpu, inputs=inputs, output=output, instruction=instruction).order
    assert (order.n, order.fraction_bits, order.min_exponent) == (n, fraction_bits, floor)


@pytest.mark.parametrize(
    ("b_format", "addend_format", "want"),
    [("fp16", "fp32", 2.0**-130), ("fp16 daz", "fp32", 2.0**-130), ("fp16", "fp32 daz", 0.0)],
)
def test_the_addend_of_a_unit_is_read_in_its_own_format(b_format: str, addend_format: str, want: float, backend: str):
    """2**-130 is a subnormal of binary32: 0 where the addend's format says so, whatever the operands' formats do."""
    y = emu.matmul(
        np.zeros((1, 16)),
        np.zeros((16, 1)),
        addend=np.float32([[2.0**-130]]),
        mac=Mac.preset("h100", inputs="fp16", output="fp32"),
        backend=backend,
        a_format="fp16",
        b_format=b_format,
        addend_format=addend_format,
        out_format="fp32",
    )
    assert y.item() == want


@pytest.mark.parametrize("rounding", ["nearest_even", "toward_zero"])
def test_a_unit_that_saturates_goes_on_from_the_largest_number_and_says_so(rounding: str, backend: str):
    """Blocks of two add 40000, 40000, -40000, -40000: the second leaves binary16, whose largest number is 65504."""
    flags = emu.Flags()
    mac = Mac(accumulator="fp16", order="blocks(2, 25)", overflow="satfinite", rounding=rounding)
    b = np.repeat([200.0, -200.0], 4)[:, np.newaxis]
    formats = {"a_format": "fp16", "b_format": "fp16", "out_format": "fp32"}
    y = emu.matmul(np.full((2, 8), [[100.0], [1.0]]), b, mac=mac, backend=backend, flags=flags, **formats)
    assert y.ravel().tolist() == [65504 - 80000, 0]
    assert flags.accumulator_overflow == 1


@pytest.mark.parametrize(
    "order", ["blocks(2, 25)", "blocks(2, 25, addend=after)", "sequential", "pairwise", "lanes(2)"]
)
@pytest.mark.parametrize("rounding", ["nearest_even", "toward_zero", "floor", "stochastic"])
def test_a_unit_that_propagates_infinities_saturates_finite_sums_alone(order: str, rounding: str, backend: str):
    """Sums of 80000 become 65504 and say so; an infinite operand or addend goes through, and touches no limit."""
    mac = Mac(accumulator="fp16", order=order, overflow="satpropagate", rounding=rounding)
    formats = {"a_format": "fp16", "b_format": "fp16", "addend_format": "fp32", "out_format": "fp32"}
    a = np.array([[200.0, 200.0], [-200.0, -200.0], [np.inf, 1.0], [-np.inf, 1.0], [np.inf, -np.inf], [1.0, 1.0]])
    addend = np.array([0.0, 0.0, 0.0, 0.0, 0.0, -np.inf])[:, np.newaxis]
    flags = emu.Flags()
    y = emu.matmul(a, np.full((2, 1), 200.0), addend=addend, mac=mac, backend=backend, flags=flags, **formats)
    assert_bits_equal(y.ravel(), [65504, -65504, np.inf, -np.inf, np.nan, -np.inf], "fp32")
    assert flags.accumulator_overflow == 2
    flags.reset()
    emu.matmul(a[2:], np.full((2, 1), 200.0), addend=addend[2:], mac=mac, backend=backend, flags=flags, **formats)
    assert flags.accumulator_overflow == 0


#: Vector tiles; plain loops; what is left to the reference; an accumulator without -0.
ZEROS = [
    ("fp32", "nearest_even", "blocks(4, 23)"), ("fp32", "toward_zero", "blocks(16, 25)"),
    ("fp16", "nearest_even", "blocks(4, 24)"), ("fp16", "floor", "blocks(4, 24, addend=after)"),
    ("fp32", "ceil", "blocks(4, 23, index_order=alternating_pairs, addend=after)"),
    ("fp16 ftz", "floor", "blocks(2, 25)"), ("e4m3fnuz", "floor", "blocks(2, 25)"),
]  # fmt: skip


@pytest.mark.parametrize(("accumulator", "rounding", "order"), ZEROS)
def test_without_products_the_accumulator_holds_the_addend_and_blocks_of_zeros_make_zero_positive(
    accumulator: str, rounding: str, order: str, backend: str
):
    mac = Mac(accumulator=accumulator, order=order, rounding=rounding)
    formats = {"a_format": "fp16", "b_format": "fp16", "out_format": "fp32", "backend": backend}
    addend = np.array([[-0.0], [0.0], [-2.0]])
    for depth in (0, 1, 4, 5):
        a, b = np.full((3, depth), -1.0), np.zeros((depth, 1))  # the products are -0
        zero = 0.0 if depth or accumulator == "e4m3fnuz" else -0.0
        y = emu.matmul(a, b, addend=addend, addend_format="fp32", mac=mac, **formats)
        assert_bits_equal(y.ravel(), [zero, 0.0, -2.0], "fp32")
        assert_bits_equal(emu.matmul(a, b, mac=mac, **formats).ravel(), [0.0, 0.0, 0.0], "fp32")


@pytest.mark.parametrize("order", ["blocks(2, 25)", "blocks(2, 25, addend=after)", "blocks(2, 60)"])
@pytest.mark.parametrize("accumulator", ["fp16", "fp16 ftz"])
def test_a_negative_sum_that_rounds_to_zero_is_positive_zero(accumulator: str, order: str, backend: str):
    """The block's sum is -2**-30, nothing in binary16, and so is the sum with an addend of -0."""
    mac = Mac(accumulator=accumulator, order=order)
    formats = {"a_format": "fp16", "b_format": "fp16", "addend_format": "fp32", "out_format": "fp32"}
    a, b = np.full((2, 1), -(2.0**-15)), np.full((1, 1), 2.0**-15)
    y = emu.matmul(a, b, addend=np.array([[-0.0], [0.0]]), mac=mac, backend=backend, **formats)
    assert_bits_equal(y.ravel(), [0.0, 0.0], "fp32")


@pytest.mark.parametrize("order", ["blocks(4, 24)", "blocks(4, 24, addend=after)"])
def test_a_sparse_row_without_entries_holds_the_addend(order: str, backend: str):
    x = emu.sparse.CSR.from_dense(np.array([[0.0, 0.0], [0.0, -1.0]]), "fp16")
    mac = Mac(accumulator="fp32", order=order)
    addend = {"addend": np.full((2, 1), -0.0), "addend_format": "fp32"}
    w = emu.value(np.zeros((2, 1)), "fp16")
    y = emu.sparse.matmul(x, w, out_format="fp32", mac=mac, backend=backend, **addend)
    assert_bits_equal(y.ravel(), [-0.0, 0.0], "fp32")
