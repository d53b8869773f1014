"""Products: reference, vector code and plain loops give the same bits, at the edge of every condition of a path."""

# ruff: noqa: B023 - every call happens before its loop moves on
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_inputs import random_values
from variants import HAS_DOTS, HAS_HALVES, HAS_PAIRS, HAS_VECTORS, assert_same_everywhere, needs_dots, running

import emu
from emu import Mac, engine
from emu.backends.gathered import Gathered
from emu.backends.interface import encode_mac
from emu.backends.numba import integers, raw_products
from emu.backends.numba.vector.choosing import MAX_BINS
from emu.backends.numba.vector.integer_products import CHUNK_DEPTH
from emu.backends.numba.ways import in_tiles
from emu.backends.numba.ways.blas import exact_sums
from emu.engine.description import PRODUCT_OPTIONS, call_of
from emu.engine.matrices import Matrices
from emu.engine.path import codes_of_terms
from emu.engine.products import write_product
from emu.engine.sliding import Sliding
from tests.products import product

INTEGERS = ["fix8f4", "fix16f8", "ufix15f3", "fix3f1", "ufix8f0"]
DOT = "integer_dot" if HAS_PAIRS else None


def extremes(fmt: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Random values, half of them the format's smallest."""
    x = random_values(fmt, shape, seed)
    return np.where(np.random.default_rng(seed).random(shape) < 0.5, emu.parse(fmt).decode(_least(fmt)), x)


def _least(fmt: str) -> np.ndarray:
    parsed = emu.parse(fmt)
    return parsed.encode(np.array(float(parsed.min), np.float64))


def compare(a: Any, b: Any, formats: tuple[str, str], out: str = "fix32f12", note: Any = "", **options: Any) -> None:
    names = {"a_format": formats[0], "b_format": formats[1], "out_format": out}
    assert_same_everywhere(lambda **where: emu.matmul(a, b, **names, **options, **where), out, note or a.shape)


def adder_of(mac: Mac, a: str, b: str, addend: str | None = None) -> str | None:
    """Name the adder of the tiles that computes a unit, None if no tile does."""
    formats = (emu.parse(a), emu.parse(b), None if addend is None else emu.parse(addend))
    unit = in_tiles.unit_for(encode_mac(mac), codes_of_terms(formats))
    return None if unit is None else unit.adder


@pytest.mark.parametrize("formats", [("fix8f4", "fix8f4"), ("fix16f8", "fix16f8"), ("ufix15f3", "fix8f4")], ids=str)
@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_integer_products_of_every_size_are_the_same(formats: tuple[str, str], step: int):
    """Rows around blocks of 8, columns around panels of 32, depths around 2 and 4 neighbours."""
    for i, n in enumerate([*range(0, 71, step), 31, 32, 33, 64, 65]):
        m, depth = (7 * i + 1) % 19, (11 * i + n) % 71
        compare(extremes(formats[0], (m, depth), i), extremes(formats[1], (depth, n), i + 99), formats)


@pytest.mark.parametrize("depth", [CHUNK_DEPTH - 1, CHUNK_DEPTH, 2 * CHUNK_DEPTH + 3])
def test_depths_beyond_a_chunk_are_the_same(depth: int):
    """Few rows: threads share k; the extremes need two passes over bytes, small numbers one."""
    for fmt in ("fix8f4", "fix16f8"):
        least = np.full((3, depth), float(emu.parse(fmt).min), np.float32)
        compare(least, least.T, (fmt, fmt), "fix48f8")
        compare(extremes(fmt, (3, depth), 1), extremes(fmt, (depth, 33), 2), (fmt, fmt), "fix48f8")
        compare(extremes(fmt, (3, depth), 1) / 2**8, random_values("fix3f4", (depth, 5), 2), ("fix24f24", "fix16f8"))


@pytest.mark.parametrize("formats", [("fix8f4", "fix8f4"), ("fix16f8", "fix16f8")], ids=str)
def test_batches_repeated_or_not_are_the_same(formats: tuple[str, str]):
    a, b = extremes(formats[0], (5, 3, 9), 1), extremes(formats[1], (5, 9, 37), 2)
    repeated_a, repeated_b = np.broadcast_to(a[1], a.shape), np.broadcast_to(b[1], b.shape)
    addends = [None, extremes("fix12f6", (37,), 3), extremes("fix12f6", (3, 1), 4), extremes("fix12f6", (5, 3, 37), 5)]
    for left, right in ((a, b), (repeated_a, b), (a, repeated_b), (repeated_a, repeated_b), (a[0], b), (a, b[0])):
        for addend in addends:
            third = {} if addend is None else {"addend": addend, "addend_format": "fix12f6"}
            compare(left, right, formats, check=False, **third)


@pytest.mark.parametrize("shape", [(3, 5), (15, 1), (4, 4), (5, 7)])
def test_random_bits_of_small_matrices_in_a_batch_are_those_of_their_places(shape: tuple[int, int]):
    """Pieces begin at multiples of sixteen results, whatever a matrix has."""
    a, b = (random_values("fix8f4", (67, *s), i) for i, s in enumerate(((shape[0], 6), (6, shape[1]))))
    formats = {
        "a_format": "fix8f4",
        "b_format": "fix8f4",
        "out_format": "fix8f3",
        "rounding": "stochastic",
        "n_rbits": 3,
    }
    assert_same_everywhere(lambda **where: emu.matmul(a, b, **formats, **where), "fix8f3", shape)


@pytest.mark.parametrize("fmt", ["fix8f4", "fix16f8"])
def test_operands_in_any_layout_are_the_same(fmt: str):
    a, b = extremes(fmt, (40, 50), 1), extremes(fmt, (50, 60), 2)
    for left, right in (
        (a, np.asfortranarray(b)), (np.asfortranarray(a), b), (a[::2, ::-3], b[:17]), (a[:, ::2], b[::2, 5:38]),
        (np.broadcast_to(a[0], (9, 50)), b), (a, np.broadcast_to(b[:, :1], (50, 35))), (b.T, a.T),
    ):  # fmt: skip
        compare(left, right, (fmt, fmt), note=(left.strides, right.strides))
        compare(left, right, (fmt, fmt), mac=Mac(accumulator="fix24f16"), note=(left.strides, right.strides))


@pytest.mark.parametrize("fmt", ["fix8f4", "fix16f8"])
@pytest.mark.parametrize("images", [1, 3])
def test_convolutions_are_the_same(fmt: str, images: int):
    """Panels made of several short runs: one image shares its panels among threads, several share the batch."""
    bias = extremes("fix16f8", (19,), 3)
    for size, kernel, stride, padding in (
        ((9, 11), (3, 3), (1, 1), (0, 0)), ((14, 14), (5, 5), (1, 1), (2, 2)), ((8, 7), (3, 2), (2, 3), (1, 0)),
        ((3, 40), (1, 1), (1, 1), (0, 0)), ((12, 6), (2, 2), (1, 2), (1, 2)),
    ):  # fmt: skip
        x, w = extremes(fmt, (images, 3, *size), 1), extremes(fmt, (19, 3, *kernel), 2)
        options = {"x_format": fmt, "w_format": fmt, "out_format": "fix32f8", "stride": stride, "padding": padding}
        for third in ({}, {"bias": bias, "bias_format": "fix16f8"}):
            assert_same_everywhere(lambda **where: emu.conv2d(x, w, **third, **options, **where), "fix32f8", size)


@pytest.mark.parametrize("fmt", ["fix8f4", "fix16f8"])
@pytest.mark.parametrize(("outputs", "channels"), [(70, 3), (3, 120)])
def test_panels_of_short_runs_shared_among_threads_are_the_same(fmt: str, outputs: int, channels: int):
    """Many rows: threads share the panels; few rows and 1080 places along k: they share k. One never writes behind."""
    x, w = extremes(fmt, (1, channels, 12, 11), 1), extremes(fmt, (outputs, channels, 3, 3), 2)
    options = {"x_format": fmt, "w_format": fmt, "out_format": "fix40f8"}
    assert_same_everywhere(lambda **where: emu.conv2d(x, w, **options, **where), "fix40f8", (outputs, channels))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_earlier_products_left_in_the_buffers_of_blas_raises_no_warning(dtype: type[np.floating[Any]]):
    """OpenBLAS multiplies leftovers beyond the matrix, too, and drops them: a signalling NaN there is no operand."""
    word = np.dtype(f"u{np.dtype(dtype).itemsize}")
    signalling = np.full((200, 200), np.array(np.inf, dtype).view(word) + word.type(1), word).view(dtype)
    assert np.isnan(signalling).all()
    for rows in range(100, 140):
        with np.errstate(invalid="ignore"):
            for left in (signalling, signalling.T):
                np.matmul(left, signalling[:, 0])
            np.matmul(signalling, signalling)
        for depth in (1, 5, 37):
            sums = exact_sums(np.ones((1, rows, depth)), np.ones((1, depth, 1)), None, np.dtype(dtype))
            np.testing.assert_array_equal(sums, np.full((1, rows, 1), depth, dtype))


@pytest.mark.parametrize("fmt", ["fix8f4", "fix16f8"])
def test_sums_along_every_axis_are_the_same(fmt: str):
    x = extremes(fmt, (5, 4, 37), 1)
    for array in (x, x.transpose(2, 0, 1), x[:, ::-1, ::2], x[:, :0]):
        for axis in (None, 0, (0, 2), -1, ()):
            options = {"x_format": fmt, "out_format": "fix32f8", "axis": axis}
            assert_same_everywhere(lambda **where: engine.total(array, **options, **where), "fix32f8", axis)
            if array.size:
                options["axis"] = axis or 0
                assert_same_everywhere(lambda **where: engine.average(array, **options, **where), "fix32f8", axis)


@pytest.mark.parametrize(
    ("a", "b"),
    [("fix8f127", "fix8f-100"), ("fix8f128", "fix8f-100"), ("fix1f149", "ufix1f-126"), ("fix16f150", "fix8f0")],
)
def test_binary_points_at_the_ends_of_float32_are_the_same(a: str, b: str):
    compare(extremes(a, (5, 9), 1), extremes(b, (9, 7), 2), (a, b), f"fix32f{emu.parse(a).frac_bits - 100}")


@pytest.mark.parametrize("divisor", [2**22, 2**23, 2**24, 2**30, 3, 2**24 - 1])
def test_large_divisors_leave_the_smallest_numbers_their_place(divisor: int):
    """2**-126 / 2**24 is no float32 any more, but still above 0."""
    a = np.float32([[[2.0**-126], [-(2.0**-126)], [3 * 2.0**-126], [0.0]]])
    formats = {"a_format": "fix4f126", "b_format": "ufix1f0", "out_format": "fix8f0", "divisor": divisor}
    for rounding in ("ceil", "floor", "nearest_even"):
        options = {"rounding": rounding, **formats}
        assert_same_everywhere(lambda **where: product(a, np.float32([[[1.0]]]), **options, **where), "fix8f0", divisor)


PATHS = [
    # 2**15 raws: no integer product; 16 bits unsigned neither
    ("fix16f8", "fix16f8", 8, DOT or "float64_blas"), ("fix17f8", "fix16f8", 8, "float64_blas"),
    ("ufix15f8", "fix16f8", 8, DOT or "float64_blas"), ("ufix16f8", "fix16f8", 8, "float64_blas"),
    ("fix13f0", "fix13f0", 1, DOT or "float32_blas"), ("fix17f0", "fix9f0", 1, "float32_blas"),
    ("fix17f0", "fix9f0", 2, "float64_blas"), ("fix27f0", "fix27f0", 2, "float64_blas"),
    ("fix27f0", "fix27f0", 4, "wide"),
]  # fmt: skip


@pytest.mark.parametrize("case", PATHS, ids=str)
def test_integer_paths_end_where_their_proofs_do(case: tuple[str, str, int, str]):
    """Every element is its format's extreme, so that sums reach the bound."""
    a_format, b_format, depth, path = case
    a, b = (np.full(s, float(emu.parse(f).min) or float(emu.parse(f).max)) for f, s in
            ((a_format, (3, depth)), (b_format, (depth, 5))))  # fmt: skip
    formats = {"a_format": a_format, "b_format": b_format, "out_format": "fix53f0"}
    assert emu.explain(emu.matmul, a, b, **formats).path == path
    with running("generic"):
        assert emu.explain(emu.matmul, a, b, **formats).path != "integer_dot"
    compare(a, b, (a_format, b_format), "fix53f0")


TILES = [
    # unit, operands, addend, adder with vector code, with dot products, with arithmetic of binary16 if that is another
    (Mac(accumulator="fp32"), "fp32", "fp32", "fp64", "fused", "fused"),
    (Mac(accumulator="fp32"), "fp16", "fix8f4", None, "fused", "fused"),
    (Mac("fp32", "fp32"), "bf16", "fp32", "fp32", "float32", "float32"),
    (Mac("fp16", "fp16"), "fp16", "fp16", "fp32", "binary16", "binary16", "half"),
    (Mac("fp16", "fp16"), "e8m11", "fp8_e5m2", None, None, None),
    (Mac("fp16", "fp16"), "e7m10 bias=126", "fix4f13", None, "binary16", "binary16"),  # products from 2**-148 on
    (Mac("fp16", "fp16"), "e7m10 bias=126", "fix4f14", None, "binary16", "binary16"),  # from 2**-149
    (Mac("fp16", "fp16"), "e7m10 bias=126", "fix4f15", None, None, None),
    (Mac(accumulator="fp16"), "fp16", "fp16", "fp32", "fused16", "fused16", "fused_half"),
    (Mac(accumulator="fp16"), "fp8_e5m2", "fix8f4", None, "fused16", "fused16", "fused_half"),
    (Mac(accumulator="fp16"), "fp16", "fix11f24", None, "fused16", "fused16", "fused_half"),  # 2**-24 is the smallest
    (Mac(accumulator="fp16"), "fp16", "fix11f25", None, "fused16", "fused16"),
    (Mac(accumulator="fp16"), "fp16", "fix11f-5", None, "fused16", "fused16", "fused_half"),  # the lowest is -2**15
    (Mac(accumulator="fp16"), "fp16", "fix11f-6", None, "fused16", "fused16"),
    (Mac(accumulator="fp16"), "fp16", "ufix11f-5", None, "fused16", "fused16", "fused_half"),  # up to 65504
    (Mac(accumulator="fp16"), "fp16", "fix12f0", None, "fused16", "fused16"),
    (Mac(accumulator="fp16"), "fp16", "e5m10 bias=14", None, "fused16", "fused16"),
    (Mac(accumulator="fp16"), "e5m10 bias=16", "fp16", None, "fused16", "fused16"),
    (Mac(accumulator="fp16"), "e7m10 bias=126", "fix4f14", "fp16", "fused16", "fused16"),  # products from 2**-149 on
    (Mac(accumulator="fp16"), "bf16", "bf16", None, None, None),
    (Mac(accumulator="fix16f8"), "fix8f4", "fix8f4", "fix16f8", "saturating", "marked"),  # 8 + 8 = 16 bits
    (Mac(accumulator="fix15f8"), "fix8f4", "fix8f4", "fix16f8", "saturating", "saturating"),
    (Mac(accumulator="fix32f16"), "fix16f8", "fix16f8", "fix24f12", None, "words"),
    (Mac(accumulator="fix31f16"), "fix16f8", "fix16f8", None, None, None),
    (Mac(accumulator="fix31f16"), "fix16f8", "fix15f8", "fix24f12", None, "words"),  # one bit is no room for a mark
    (Mac(accumulator="fix30f16"), "fix16f8", "fix14f8", "fix24f12", None, "marked"),
    (Mac(accumulator="fix24f10"), "fix8f4", "fix8f4", None, "saturating", "marked"),
    (Mac(accumulator="fix20f10", overflow="saturate_symmetric"), "fix8f4", "fix8f4", None, "saturating", "saturating"),
    (Mac(accumulator="ufix23f0"), "ufix12f0", "ufix11f0", None, "saturating", "saturating"),  # 2**23 - 1 + 2**23
    (Mac(accumulator="ufix24f0"), "ufix12f0", "ufix11f0", None, None, None),
    (Mac(accumulator="fix17f-118"), "fix8f-59", "fix8f-59", None, "saturating", "marked"),  # beyond float32
    (Mac(accumulator="fix17f-112"), "fix8f-56", "fix8f-56", None, "saturating", "marked"),  # the lowest alone is beyond
]  # fmt: skip


def expected_adder(case: tuple[Any, ...]) -> str | None:
    vector, dots, *half = case[4:]
    return None if not HAS_VECTORS else half[0] if half and HAS_HALVES else dots if HAS_DOTS else vector


def ordered_operands(case: tuple[Any, ...], shape: tuple[int, int, int], kind: str) -> tuple[Any, ...]:
    _, a, b, addend = case[:4]
    m, depth, n = shape
    if kind == "random":
        left, right = random_values(a, (m, depth), 1), random_values(b, (depth, n), 2)
    else:  # both limits, by turns: saturates at every other add
        left, right = (np.full(s, float(emu.parse(f).max), np.float32) for f, s in ((a, (m, depth)), (b, (depth, n))))
        if emu.parse(b).min < 0:
            right[::2] = float(emu.parse(b).min)
    return left, right, None if addend is None else random_values(addend, (m, 1) if m % 2 else (n,), 3)


def compare_tiles(case: tuple[Any, ...], shape: tuple[int, int, int], kind: str) -> None:
    mac, a, b, addend = case[:4]
    left, right, third = ordered_operands(case, shape, kind)
    out = "fp32" if mac.accumulator != "exact" and isinstance(mac.accumulator, emu.Float) else "fix40f-100"
    out = "fix32f8" if out == "fix40f-100" and mac.accumulator.frac_bits > -100 else out
    options = {} if third is None else {"addend": third, "addend_format": addend}
    compare(left, right, (a, b), out, (case, shape, kind), mac=mac, **options)


def test_adders_of_tiles_begin_and_end_where_their_proofs_do():
    for case in TILES:
        assert adder_of(*case[:4]) == expected_adder(case), case
        with running("generic"):
            assert adder_of(*case[:4]) is None


@pytest.mark.parametrize(
    "case",
    [*(pytest.param(c, marks=pytest.mark.slow) for c in TILES[:7]), *TILES[7:]],
    ids=lambda case: f"{case[0].accumulator} {case[1]} {case[2]} {case[5]}",
)
def test_units_in_order_are_the_same(case: tuple[Any, ...]):
    for shape in ((1, 0, 3), (3, 1, 1), (9, 13, 33), (5, 64, 31)):
        for kind in ("random", "limits"):
            compare_tiles(case, shape, kind)


@pytest.mark.skipif(not HAS_HALVES, reason="the processor has no arithmetic of binary16")
@pytest.mark.parametrize("case", [case for case in TILES if len(case) > 6], ids=lambda case: f"{case[0]} {case[2]}")
def test_a_processor_with_arithmetic_of_binary16_gives_the_bits_of_one_without(case: tuple[Any, ...]):
    for shape in ((1, 0, 3), (3, 1, 1), (17, 13, 33), (16, 64, 31)):
        compare_tiles(case, shape, "random")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(in_tiles, "has_half_arithmetic", lambda: False)
            compare_tiles(case, shape, "random")


@pytest.mark.slow
@pytest.mark.parametrize("case", TILES, ids=lambda case: f"{case[0].accumulator} {case[1]} {case[2]} {case[5]}")
def test_units_in_order_of_every_size_are_the_same(case: tuple[Any, ...]):
    for i in range(71):
        compare_tiles(case, ((5 * i) % 23, (11 * i) % 67, i), ("random", "limits")[i % 2])


ORDERS = [
    (Mac(accumulator="fp16", order="pairwise"), "fp16", "fp16"),
    (Mac(product="bf16", accumulator="fp32", order="lanes(8)"), "bf16", "fp32"),
    (Mac.preset("h100", inputs="fp8_e4m3", output="fp32", instruction="mma"), "fp8_e4m3", "fp32"),
    (Mac(accumulator="fp16", order="blocks(4, 12)", rounding="stochastic", overflow="satfinite"), "fp16", "fp16"),
    (Mac(accumulator="fp16", order="blocks(4, 12)", overflow="satpropagate"), "fp16", "fp16"),
    (Mac(accumulator="fp8_e5m2", order="pairwise", overflow="satpropagate"), "fp16", "fp16"),
    (Mac(accumulator="fix20f12", order="pairwise", rounding="floor"), "fix8f4", "fix16f8"),
    (Mac(accumulator="fp16", order="lanes(3)", rounding="stochastic"), "fp16", "fp16"),
    (Mac.preset("a100", inputs="fp16", output="fp32"), "fp16", "fp32"),
    (Mac(), "fp16", "fp16"),
    (Mac(accumulator="fix20f12", overflow="wrap"), "fix8f4", "fix16f8"),
    (Mac(accumulator="fix20f12", overflow="saturate_zero"), "fix8f4", "fix16f8"),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", ORDERS, ids=lambda case: str(case[0].order)[:12] + str(case[0].accumulator))
def test_other_orders_are_the_same(case: tuple[Mac, str, str]):
    mac, fmt, out = case
    for m, depth, n in ((3, 0, 2), (2, 1, 3), (5, 19, 33)):
        a, b = random_values(fmt, (m, depth), 1), random_values(fmt, (depth, n), 2, anything=False)
        compare(a, b, (fmt, fmt), out, mac=mac)
        compare(a[::-1], np.asfortranarray(b), (fmt, fmt), out, mac=mac)


@pytest.mark.slow
@pytest.mark.parametrize("case", ORDERS, ids=lambda case: str(case[0].order)[:12] + str(case[0].accumulator))
def test_other_orders_of_every_size_are_the_same(case: tuple[Mac, str, str]):
    mac, fmt, out = case
    for i in range(71):
        m, depth, n = (5 * i) % 7, (11 * i) % 71, i
        a, b = random_values(fmt, (m, depth), i, anything=bool(i % 2)), random_values(fmt, (depth, n), i + 99)
        compare(a, b, (fmt, fmt), out, mac=mac, note=(m, depth, n))


@pytest.mark.parametrize("excess", [0, 1])
def test_accumulators_are_spared_their_order_up_to_their_limit(excess: int):
    """Of 200 outputs the first reaches the largest value or passes it by one; the others stay far below."""
    a, b = np.ones((20, 9), np.float32), np.ones((9, 10), np.float32)
    a[0], b[:, 0] = 2**6, 2**6
    a[0, 0] = 2**6 - 1 + excess
    for bits in (16, 12):
        compare(a, b, ("fix8f0", "fix8f0"), "fix24f0", mac=Mac(accumulator=f"fix{bits}f0"))
    least = np.full((1, 2), -(2.0**15), np.float32)
    least[0, 1] += 1 - excess
    for overflow in ("saturate", "saturate_symmetric", "saturate_zero"):
        mac = Mac(accumulator="fix32f0", overflow=overflow)
        compare(least, least.T, ("fix16f0", "fix16f0"), "fix40f0", mac=mac)


@pytest.mark.parametrize("overflow", ["saturate", "saturate_zero"])
@pytest.mark.parametrize("operands", [("ufix8f0", "ufix8f0"), ("ufix8f0", "fix8f0")])
def test_unsigned_accumulators_begin_at_zero_when_they_are_added_again(operands: tuple[str, str], overflow: str):
    """A few outputs leave the accumulator, upwards or, of signed operands, below 0; the others are exact sums."""
    rng = np.random.default_rng(12)
    a, b = (rng.integers(0, 60, s).astype(np.float32) for s in ((150, 40), (40, 150)))
    a[[3, 77]], a[[4, 78], :20] = 255.0, 0.0
    if operands[1].startswith("fix"):
        b = np.minimum(b, 40.0)
        b[:3, 5] = -100.0
    mac = Mac(accumulator="ufix17f0", overflow=overflow)
    formats = {"a_format": operands[0], "b_format": operands[1], "out_format": "ufix17f0", "mac": mac}
    y = assert_same_everywhere(lambda **where: emu.matmul(a, b, **formats, **where), "ufix17f0", overflow)
    assert (y == 2**17 - 1).any() or overflow == "saturate_zero"


def test_saturated_outputs_among_thousands_are_added_again():
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-3, 4, s).astype(np.float32) for s in ((70, 40), (40, 90)))
    a[7], b[:, 11] = rng.choice([-128.0, 127.0], 40), rng.choice([-128.0, 127.0], 40)
    for overflow in ("saturate", "saturate_zero"):
        compare(a, b, ("fix8f0", "fix8f0"), "fix24f0", mac=Mac(accumulator="fix14f0", overflow=overflow))


def test_whole_rows_are_bounded_by_all_matrices_magnitudes_and_addends():
    """fix18f0 holds up to 131071: sums of rows decide, which only one of three matrices exceeds, or one addend."""
    a, b = np.full((3, 4, 10), 100.0, np.float32), np.full((3, 10, 5), -100.0, np.float32)
    formats = {"a_format": "fix16f0", "b_format": "fix16f0", "out_format": "fix24f0", "addend_format": "fix24f0"}
    for at, factor, addend in ((None, 0, 0), (2, -135, 0), (2, 135, 0), (None, 0, -32000), (None, 0, 31000)):
        left, third = a.copy(), np.zeros((3, 1, 1), np.float32)
        third[1] = addend
        if at is not None:
            left[at, 2] = factor
        given = {"mac": Mac(accumulator="fix18f0"), "addend": third, **formats}
        assert_same_everywhere(lambda **where: emu.matmul(left, b, **given, **where), "fix24f0", (at, factor, addend))


@pytest.mark.parametrize("shape", [(3, 2, 9, 9), (40, 3, 6, 7)], ids=["few images", "many"])
def test_saturated_outputs_of_convolutions_and_their_gradients_are_added_again(shape: tuple[int, ...]):
    """Of one image, at one place: all other outputs are exact sums. Operands are read where they lie."""
    rng = np.random.default_rng(6)
    x, w = rng.integers(-3, 4, shape).astype(np.float32), rng.integers(-3, 4, (20, shape[1], 3, 2)).astype(np.float32)
    x[2, 1, 3:5, 2:4], w[11, 1], bias = 127.0, 127.0, rng.integers(-9, 9, 20).astype(np.float32)
    for accumulator in ("fix14f0", "fix17f0", "fix18f0"):
        formats = {"x_format": "fix16f0", "w_format": "fix16f0", "bias_format": "fix8f0", "out_format": "fix24f0"}
        given = {"mac": Mac(accumulator=accumulator), "padding": (1, 1), "bias": bias, **formats}
        assert_same_everywhere(lambda **where: emu.conv2d(x, w, **given, **where), "fix24f0", accumulator)
        errors = emu.conv2d(x, np.clip(w, -1, 1), **(given | {"mac": Mac(), "out_format": "fix8f0"}))
        parsed = emu.parse("fix16f0")
        left, right = Gathered.of_axes(errors, (1,), (0, 2, 3)), Sliding.of(padding=(1, 1)).joined_patches(x, (3, 2))
        matrices = Matrices(left, right, None, (parsed, parsed, None), (20, shape[1] * 6))

        def gradient(**where: Any) -> np.ndarray:
            unit = call_of("matmul", "fix24f0", {"mac": Mac(accumulator=accumulator), **where}, PRODUCT_OPTIONS)[0]
            return write_product(unit, matrices)

        assert_same_everywhere(gradient, "fix24f0", accumulator)


@needs_dots
def test_a_saturating_accumulator_is_said_to_be_spared_where_the_backend_spares_it():
    """Accumulators of few bits carry a mark below the word instead, and lanes are added in their order."""
    a, b = np.full((2, 40), 30.0), np.full((40, 2), 30.0)
    for fmt, accumulator, order, said in (
        ("fix16f8", "fix32f16", "sequential", True),
        ("fix12f6", "fix24f12", "sequential", False),
        ("fix16f8", "fix32f16", "lanes(4)", False),
    ):
        formats = {"a_format": fmt, "b_format": fmt, "out_format": fmt, "backend": "numba"}
        plan = emu.explain(emu.matmul, a, b, mac=Mac(accumulator=accumulator, order=order), **formats)
        assert plan.path == "in_order"
        assert plan.proof.endswith("the others are added again in order") is said, (accumulator, order)


@pytest.mark.parametrize("bins", [None, MAX_BINS + 1])
@pytest.mark.parametrize("group", [1, 999])
def test_groups_of_any_size_reach_the_output_stage(group: int, bins: int | None, monkeypatch: pytest.MonkeyPatch):
    """Loops hand groups of sums to the stage's vector code; registers beyond it make them hand every group back."""
    for module in (integers, raw_products):
        monkeypatch.setattr(module, "GROUP_RESULTS", group)
    positions = {} if bins is None else {"lowest": -8, "bins": bins}
    for fmt in ("fix8f4", "fix16f8"):
        names = {"a_format": fmt, "b_format": fmt, "out_format": "fix16f8", "rounding": "stochastic", "seed": 3}
        a, b = extremes(fmt, (37, 21), 1), extremes(fmt, (21, 45), 2)
        stack, wide = extremes(fmt, (19, 5, 21), 3), extremes(fmt, (19, 21, 7), 4)
        images, kernels = extremes(fmt, (19, 3, 9, 9), 5), extremes(fmt, (11, 3, 3, 3), 6)
        convolved = {"x_format": fmt, "w_format": fmt, **{k: v for k, v in names.items() if k[1:] != "_format"}}
        for x, y in ((a, b), (stack, wide)):
            assert_same_everywhere(lambda **where: emu.matmul(x, y, **names, **where), "fix16f8", group, **positions)
        assert_same_everywhere(
            lambda **where: emu.conv2d(images, kernels, **convolved, **where), "fix16f8", **positions
        )
