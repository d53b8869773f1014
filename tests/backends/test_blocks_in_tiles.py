"""Blocks of products in tiles of vector code: the reference's bits wherever they apply, and where they do not."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from kernel_inputs import random_values
from variants import assert_same_everywhere, needs_vectors

import emu
from emu import Mac
from emu.backends.interface import encode_mac
from emu.backends.numba.ways import blocks_in_tiles, dot_add
from emu.datapath import MATRIX_UNITS
from emu.engine.path import codes_of_terms
from emu.testing import assert_bits_equal

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
def test_the_units_of_gpus_that_run_in_tiles_are_these():
    found = {
        (unit.gpu, unit.inputs)
        for unit in MATRIX_UNITS
        if unit.inputs != "int8"
        and in_tiles(
            Mac.preset(unit.gpu, inputs=unit.inputs, output=unit.output, instruction=unit.instruction), unit.inputs
        )
    }
    assert found == {
        *((gpu, "fp16") for gpu in ("v100", "t4", "a100", "ada", "h100", "b200")),
        *((gpu, fmt) for gpu in ("a100", "ada", "h100", "b200") for fmt in ("bf16", "tf32")),
        *((gpu, fmt) for gpu in ("ada", "h100", "b200") for fmt in ("fp8_e4m3", "fp8_e5m2")),
    }


def near(fmt: str, shape: tuple[int, ...], seed: int, exponent: int = 0, spread: int = 4) -> np.ndarray:
    """Numbers of a format about 2**exponent, within a few powers of two, and zeros of both signs between them."""
    rng = np.random.default_rng(seed)
    x = np.ldexp(rng.standard_normal(shape), exponent + rng.integers(-spread, spread + 1, shape))
    with np.errstate(all="ignore"):
        written = emu.quantize(x, fmt, overflow="satfinite", check=False, backend="reference")
    return np.where(rng.random(shape) < 0.1, np.copysign(np.float32(0), written), written)


@pytest.fixture
def only_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain loops are no way out."""

    def refuse(*_: object) -> None:
        raise AssertionError("computed in plain loops")

    monkeypatch.setattr(dot_add, "_rows", refuse)


NARROW = Mac(accumulator="e8m13", order="blocks(32, 13)", rounding="toward_zero")
WIDE_UNITS = [
    (Mac.preset("a100", inputs="bf16"), "bf16"), (Mac.preset("h100", inputs="bf16"), "bf16"),
    (Mac.preset("h100", inputs="tf32"), "tf32"), (NARROW, "fp8_e4m3"), (NARROW, "bf16"),
    (Mac(accumulator="e8m1", order="blocks(4, 5)", rounding="toward_zero"), "fp8_e5m2"),
]  # fmt: skip


#: Exponents of both operands whose sums lie near an end of float32.
MOVED = [(-70, 8), (8, -70), (-30, -30), (50, 40), (100, -10)]


@needs_vectors
@pytest.mark.parametrize("unit", WIDE_UNITS, ids=lambda unit: f"{unit[1]}-{unit[0].accumulator}-{unit[0].order}")
def test_numbers_near_each_other_are_multiplied_in_tiles_whichever_their_format(
    unit: tuple[Mac, str], only_tiles: None
):
    mac, fmt = unit
    names = {"a_format": fmt, "b_format": fmt, "out_format": "fp32", "mac": mac}
    a, b = near(fmt, (5, 70), 1), near(fmt, (70, 33), 2)
    pairs = [(a, b), (np.stack([a, -a]), b), (np.asfortranarray(a), np.asfortranarray(b))]
    if emu.parse(fmt).exponent_bits == 8:  # beyond the middle of float32, they are moved there
        pairs += [(near(fmt, (5, 70), i, m), near(fmt, (70, 33), i, n)) for i, (m, n) in enumerate(MOVED)]
    for left, right in pairs:
        expected = emu.matmul(left, right, **names, backend="reference")
        assert_bits_equal(emu.matmul(left, right, **names, backend="numba"), expected, "fp32")


@needs_vectors
@pytest.mark.parametrize("exponents", [(0, 0), (-30, 0), (20, 25)])
def test_operands_that_share_scales_are_multiplied_in_tiles(
    exponents: tuple[int, int], monkeypatch: pytest.MonkeyPatch
):
    in_tiles, given_sums = [], blocks_in_tiles._given_sums
    monkeypatch.setattr(blocks_in_tiles, "_given_sums", lambda *given: (in_tiles.append(given), given_sums(*given))[1])
    fmt, mac = "mxfp8_e4m3", Mac.preset("b200", inputs="mxfp8_e4m3")
    x, y = near("fp32", (5, 64), 1, exponents[0]), near("fp32", (64, 33), 2, exponents[1])
    a, b = emu.quantize(x, fmt), emu.quantize(y, fmt, axis=0)
    expected = emu.matmul(a, b, out_format="fp32", mac=mac, backend="reference")
    assert_bits_equal(emu.matmul(a, b, out_format="fp32", mac=mac, backend="numba"), expected, "fp32")
    assert len(in_tiles) == 1


@needs_vectors
def test_numbers_far_apart_are_left_to_plain_loops(only_tiles: None):
    a, b = near("bf16", (5, 70), 1), near("bf16", (70, 33), 2)
    names = {"a_format": "bf16", "b_format": "bf16", "out_format": "fp32", "mac": Mac.preset("h100", inputs="bf16")}
    a[2, 3] = 2.0**-60
    emu.matmul(a, b, **names, backend="numba")
    a[2, 3] = 2.0**-100  # a product's last place would be subnormal in the accumulator
    with pytest.raises(AssertionError, match="plain loops"):
        emu.matmul(a, b, **names, backend="numba")


@pytest.mark.parametrize("unit", WIDE_UNITS, ids=lambda unit: f"{unit[1]}-{unit[0].accumulator}-{unit[0].order}")
def test_numbers_at_every_exponent_are_the_same(unit: tuple[Mac, str]):
    """From where products vanish to where they overflow; the wider the exponents, the earlier tiles give up."""
    mac, fmt = unit
    parsed = emu.parse(fmt)
    lowest, highest = parsed.emin - parsed.fraction_bits, int(np.log2(parsed.max))
    step = max((highest - lowest) // 12, 1)
    for i, exponent in enumerate(range(lowest - 1, highest + 2, step)):
        a, b = (
            near(fmt, (3, 40), i, exponent, spread=3 * (i % 3)),
            near(fmt, (40, 17), i + 100, exponent // (1 + i % 2)),
        )
        check(mac, fmt, a, b, note=(fmt, exponent))
        check(mac, fmt, a, near(fmt, (40, 17), i, -exponent), note=(fmt, exponent, "opposite"))


@pytest.mark.parametrize("scale", [0, 2.0**-149, 2.0**-125, 2.0**-96, 2.0**-30, 1.0, 2.0**95, 2.0**127, np.inf, np.nan])
def test_addends_of_any_size_of_units_with_many_exponents_or_few_bits_are_the_same(scale: float):
    rng = np.random.default_rng(3)
    with np.errstate(over="ignore", invalid="ignore"):
        addend = (rng.standard_normal((5, 1)) * scale).astype(np.float32)
    for mac, fmt in (WIDE_UNITS[0], WIDE_UNITS[3], WIDE_UNITS[5]):
        for exponent in (0, -30):
            a, b = near(fmt, (5, 40), 1, exponent), near(fmt, (40, 33), 2, exponent)
            a[2] = 0  # a row whose sum is its addend
            check(mac, fmt, a, b, addend, (fmt, scale, exponent))


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


#: Units that keep all bits of their accumulator beside a block of zeros, and one that cuts it again, 13 bits down.
CUTTING = Mac(accumulator="fp32", order="blocks(3, 13)", rounding="toward_zero")
ZERO_UNITS = [
    (Mac.preset("v100"), "fp16"), (NARROW, "fp8_e4m3"), (CUTTING, "fp16"),
    (Mac(accumulator="fp32", order="blocks(16, 25)"), "fp16"), (Mac.preset("h100", inputs="bf16"), "bf16"),
    (Mac(accumulator="fp32", order=emu.datapath.Blocks(4, 24, min_exponent=4), rounding="toward_zero"), "fp16"),
]  # fmt: skip


def test_only_units_that_keep_their_accumulator_pass_over_blocks_of_zeros():
    skipping = [blocks_in_tiles._skips(unit) for mac, fmt in ZERO_UNITS if (unit := in_tiles(mac, fmt)) is not None]
    assert skipping == [True, True, False, True, True, True][: len(skipping)]
    # of e8m13, 14 bits: one bit less in a block, and a sum that carries is cut again
    below = in_tiles(Mac(accumulator="e8m13", order="blocks(32, 12)", rounding="toward_zero"), "fp8_e4m3")
    assert below is None or not blocks_in_tiles._skips(below)


@pytest.mark.parametrize("unit", ZERO_UNITS, ids=lambda unit: f"{unit[1]}-{unit[0].accumulator}-{unit[0].order}")
def test_blocks_of_zeros_leave_what_the_unit_leaves(unit: tuple[Mac, str]):
    """Zeros of both signs at the beginning, in the middle, at the end of k; in all columns of a panel and in some."""
    (mac, fmt), rng = unit, np.random.default_rng(5)
    assert mac.order is not None
    a, b = near(fmt, (6, 150), 1), near(fmt, (150, 70), 2)
    addend = np.ldexp(rng.standard_normal((6, 70)), rng.integers(-8, 9, (6, 70))).astype(np.float32)
    addend[0], addend[1, ::2] = -0.0, 0.0
    a[2] = -0.0  # sums of zeros alone: +0, or the addend as the first block leaves it
    for zeros in ((0, 64), (32, 110), (96, 150), (0, 150)):
        holes = b.copy()
        holes[slice(*zeros), :40] = np.copysign(np.float32(0), b[slice(*zeros), :40])
        everywhere = holes.copy()
        everywhere[slice(*zeros)] = -0.0
        for right in (holes, everywhere):
            check(mac, fmt, a, right, None, zeros)
            check(mac, fmt, a, right, addend, zeros)


@pytest.mark.parametrize("most", [0, blocks_in_tiles.MOST_IN_TURN])
@pytest.mark.parametrize("unit", [ZERO_UNITS[0], ZERO_UNITS[2], ZERO_UNITS[4]], ids=["v100", "cutting", "h100"])
def test_convolutions_with_padding_are_the_same_packed_at_once_or_in_turn(
    unit: tuple[Mac, str], most: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(blocks_in_tiles, "MOST_IN_TURN", most)
    mac, fmt = unit
    for i, (size, extent, padding) in enumerate((((3, 2, 9, 8), 5, 4), ((1, 3, 4, 40), 3, 1), ((5, 1, 6, 6), 6, 5))):
        images, kernels = near(fmt, size, i), near(fmt, (6, size[1], extent, extent), i + 9)
        given = {"x_format": fmt, "w_format": fmt, "out_format": "fp32", "mac": mac, "padding": (padding, padding)}
        for bias in ({}, {"bias": np.linspace(-2, 2, 6, dtype=np.float32), "bias_format": "fp32"}):
            convolve: Any = partial(emu.conv2d, images, kernels, **given, **bias)
            assert_same_everywhere(convolve, "fp32", (size, padding, most))


@needs_vectors
@pytest.mark.parametrize(
    ("mac", "fmt"),
    [
        (Mac(accumulator="fp16", order="blocks(4, 23)"), "fp16"),
        (Mac(accumulator="fp32", order="blocks(4, 23)", rounding="floor"), "fp16"),
        (Mac(accumulator="fp32", order="blocks(4, 23)", overflow="satfinite"), "fp16"),
        (Mac(accumulator="fp32", order="blocks(4, 23, addend=after)"), "fp16"),
        (Mac(accumulator="fp32", order="blocks(4, 31)"), "fp16"),
        (Mac(accumulator="e8m13", order="blocks(4, 23)", rounding="nearest_even"), "fp16"),
        (Mac(accumulator="e7m13", order="blocks(4, 23)", rounding="toward_zero"), "fp16"),
        (Mac(accumulator="e8m24", order="blocks(4, 23)", rounding="toward_zero"), "fp16"),
        (Mac(accumulator="e8m13 ftz", order="blocks(4, 23)", rounding="toward_zero"), "fp16"),
        (Mac(accumulator="fp32", order="blocks(4, 23)"), "fp32"),
        (Mac(accumulator="fp32", order="blocks(4, 23)"), "fix8f4"),
    ],
)
def test_units_whose_sums_the_tiles_do_not_hold_are_left_alone(mac: Mac, fmt: str):
    assert in_tiles(mac, fmt) is None
