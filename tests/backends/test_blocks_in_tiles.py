"""Blocks of products in tiles of vector code: the reference's bits wherever they apply, and where they do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_inputs import random_values
from variants import assert_same_everywhere, needs_vectors

import emu
from emu import Mac
from emu.backends.interface import encode_mac
from emu.backends.numba.ways import blocks_in_tiles
from emu.datapath import MATRIX_UNITS
from emu.engine.path import codes_of_terms

ORDERS = [
    "blocks(4, 23)", "blocks(16, 25)", *(pytest.param(f"blocks({order})", marks=pytest.mark.slow)
                                         for order in ("8, 24", "32, 25", "3, 13", "1, 28")),
]  # fmt: skip


def in_tiles(mac: Mac, fmt: str, addend: str | None = None) -> blocks_in_tiles.TileBlockAdder | None:
    formats = (emu.parse(fmt), emu.parse(fmt), None if addend is None else emu.parse(addend))
    return blocks_in_tiles.unit_for(encode_mac(mac), codes_of_terms(formats))


def check(mac: Mac, fmt: str, a: np.ndarray, b: np.ndarray, addend: np.ndarray | None = None, note: Any = "") -> None:
    names: dict[str, Any] = {"a_format": fmt, "b_format": fmt, "out_format": "fp32", "mac": mac}
    if addend is not None:
        names |= {"addend": addend, "addend_format": "fp32"}
    assert_same_everywhere(
        lambda **where: emu.matmul(a, b, **names, **where), "fp32", note or (str(mac.order), a.shape)
    )


@needs_vectors
def test_units_with_float32_sums_of_binary16_run_in_tiles():
    found = {
        (unit.gpu, unit.inputs)
        for unit in MATRIX_UNITS
        if unit.inputs != "int8"
        and in_tiles(
            Mac.preset(unit.gpu, inputs=unit.inputs, output=unit.output, instruction=unit.instruction), unit.inputs
        )
    }
    gpus = ("v100", "t4", "a100", "ada", "h100", "b200")
    assert found == {*((gpu, "fp16") for gpu in gpus), ("b200", "fp8_e4m3"), ("b200", "fp8_e5m2")}


@pytest.mark.parametrize("rounding", ["toward_zero", "nearest_even"])
@pytest.mark.parametrize("order", ORDERS)
def test_every_size_is_the_same(order: str, rounding: str):
    """Rows around tiles of 4, columns around panels of 32, depths around blocks; with an addend and without."""
    mac = Mac(accumulator="fp32", order=order, rounding=rounding)
    for i, n in enumerate((1, 31, 32, 33, 65)):
        m, depth = (3, 4, 5, 1, 9)[i], (1, 17, 32, 63, 7)[i]
        a, b = (
            random_values("fp16", shape, 7 * i + j, anything=False) for j, shape in enumerate(((m, depth), (depth, n)))
        )
        for addend in (None, random_values("fp16", (m, 1), i, anything=False).astype(np.float32)):
            check(mac, "fp16", a, b, addend)


@pytest.mark.parametrize("order", ORDERS)
def test_the_largest_sums_of_a_block_are_the_same(order: str):
    """Every significand all ones and every exponent alike: what comes nearest to the ends of 32 bits, either way."""
    mac = Mac(accumulator="fp32", order=order, rounding="toward_zero")
    for sign in (1, -1):
        a, b = np.full((5, 64), np.float32(sign * 65504)), np.full((64, 33), np.float32(65504))
        for addend in (None, np.full((1,), np.float32(sign * (2.0**33 - 2.0**9)))):
            check(mac, "fp16", a, b, addend)


@pytest.mark.parametrize("order", ["blocks(4, 23)", "blocks(16, 25)", "blocks(8, 10)"])
def test_sums_that_cancel_and_operands_of_every_exponent_are_the_same(order: str):
    mac, rng = Mac(accumulator="fp32", order=order, rounding="toward_zero"), np.random.default_rng(1)
    a, b = random_values("fp16", (6, 64), 1, anything=False), random_values("fp16", (64, 40), 2, anything=False)
    a[:, 1::2], b[1::2] = -a[:, ::2], b[::2]  # neighbours cancel
    check(mac, "fp16", a, b)
    a *= rng.random(a.shape) < 0.3  # and zeros, of both signs, between them
    check(mac, "fp16", a, b, random_values("fp16", (40,), 3, anything=False).astype(np.float32))


@pytest.mark.parametrize("scale", [2.0**-149, 2.0**-97, 2.0**-96, 2.0**-95, 2.0**95, 2.0**96, 2.0**127, np.inf, np.nan])
def test_addends_near_the_ends_of_float32_are_the_same(scale: float):
    a, b = random_values("fp16", (5, 20), 1, anything=False), random_values("fp16", (20, 33), 2, anything=False)
    a[2], a[3, :7] = 0, 0  # rows whose products do not count
    addend = np.array([[scale], [-scale], [scale], [0], [1]], np.float32)
    for order in ("blocks(4, 23)", "blocks(16, 25)", "blocks(8, 12)", "blocks(1, 28)"):
        check(Mac(accumulator="fp32", order=order, rounding="toward_zero"), "fp16", a, b, addend, (order, scale))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_operands_that_are_not_finite_are_the_same(value: float):
    mac = Mac.preset("v100", inputs="fp16", output="fp32")
    a, b = random_values("fp16", (5, 20), 1, anything=False), random_values("fp16", (20, 33), 2, anything=False)
    for spoilt in (a, b):
        spoilt[3, 4] = value
        check(mac, "fp16", a, b)


def test_batches_repeated_or_not_are_the_same():
    mac = Mac.preset("a100", inputs="fp16", output="fp32")
    a, b = random_values("fp16", (3, 5, 20), 1, anything=False), random_values("fp16", (3, 20, 37), 2, anything=False)
    addends = [None, np.ones(37, np.float32), np.arange(3, dtype=np.float32)[:, None, None]]
    for left, right in ((a, b), (np.broadcast_to(a[1], a.shape), b), (a, np.broadcast_to(b[1], b.shape)), (a[0], b)):
        for addend in addends:
            check(mac, "fp16", left, right, addend)


def test_a_floor_of_the_alignment_is_the_same():
    a, b = random_values("fp16", (5, 20), 1, anything=False) / 2**12, random_values("fp16", (20, 33), 2, anything=False)
    a = emu.quantize(a, "fp16")
    for floor in (-133, -28, -10, 3, 96, 97):
        order = emu.datapath.Blocks(8, 12, min_exponent=floor)
        check(Mac(accumulator="fp32", order=order, rounding="toward_zero"), "fp16", a, b, note=floor)


@needs_vectors
@pytest.mark.parametrize(
    ("mac", "fmt"),
    [
        (Mac(accumulator="fp16", order="blocks(4, 23)"), "fp16"),
        (Mac(accumulator="fp32", order="blocks(4, 23)", rounding="floor"), "fp16"),
        (Mac(accumulator="fp32", order="blocks(4, 23)", overflow="satfinite"), "fp16"),
        (Mac(accumulator="fp32", order="blocks(4, 23, addend=after)"), "fp16"),
        (Mac(accumulator="fp32", order="blocks(4, 31)"), "fp16"),
        (Mac(accumulator="fp32", order="blocks(4, 23)"), "bf16"),
        (Mac(accumulator="fp32", order="blocks(4, 23)"), "fix8f4"),
    ],
)
def test_units_whose_sums_the_tiles_do_not_hold_are_left_alone(mac: Mac, fmt: str):
    assert in_tiles(mac, fmt) is None
