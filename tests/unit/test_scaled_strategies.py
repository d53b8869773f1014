"""`emu.testing.block_numbers` and `scaled_values`: what they draw is hard, and right of itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

import emu
from emu.errors import FormatError, ShapeError
from emu.formats import SCALED_PRESETS
from emu.formats.tiles import Tiles
from emu.testing import block_numbers, scaled_values

SMALL = {"mxfp8_e4m3": (2, 64), "nvfp4": (2, 40), "fp8_tile": (1, 130), "uint8_affine": (3, 5), "int8_channel": (3, 5)}
FAST = settings(max_examples=30)


@FAST
@given(st.data(), st.sampled_from(["mxfp8_e4m3", "nvfp4", "fp8_tensor", "uint8_affine"]), st.sampled_from([-1, -2]))
def test_drawn_numbers_are_quantized_to_the_same_bits_by_both_backends(data: Any, fmt: str, axis: int):
    x = data.draw(block_numbers(fmt, (3, 20), axis=axis))
    got, wanted = (emu.quantize(x, fmt, axis=axis, pad=True, backend=b) for b in ("numba", "reference"))
    assert np.array_equal(got.array, wanted.array, equal_nan=True)
    for ours, theirs in zip(got.scales, wanted.scales, strict=True):
        assert np.array_equal(ours, theirs, equal_nan=True)


@FAST
@given(st.data(), st.sampled_from(sorted(SCALED_PRESETS)), st.sampled_from([-1, -2]))
def test_drawn_values_hold_numbers_of_their_formats_alone(data: Any, fmt: str, axis: int):
    value = data.draw(scaled_values(fmt, (3, 20), axis=axis))
    scaled = emu.parse(fmt)
    assert value.format == scaled
    assert value.shape == (3, 20)
    assert scaled.element.contains(value.array).all()
    for level, scales in zip(scaled.levels, value.scales, strict=True):
        assert scales.shape == Tiles(level.tiling, (3, 20), axis).counts
        assert level.scale.contains(scales).all()
    assert (value.zero is not None) == scaled.has_zero
    if value.zero is not None:
        assert scaled.element.contains(value.zero.astype(np.float32)).all()


def blocks_of(x: np.ndarray[Any, Any], fmt: str) -> np.ndarray[Any, Any]:
    tiles = Tiles(emu.parse(fmt).tiling, x.shape, -1)
    return tiles.largest(np.abs(np.nan_to_num(x, posinf=0, neginf=0)))


def reached(fmt: str, wanted: Any, **options: Any) -> bool:
    seen: list[bool] = []

    @settings(max_examples=150, database=None, derandomize=True)
    @given(block_numbers(fmt, SMALL[fmt], **options))
    def draw(x: np.ndarray[Any, Any]) -> None:
        seen.append(bool(wanted(x)))

    draw()
    return any(seen)


@pytest.mark.parametrize("fmt", ["mxfp8_e4m3", "nvfp4"])
@pytest.mark.parametrize(
    "wanted",
    [
        lambda largest: (np.frexp(largest)[0] == 0.5) & (largest > 0),
        lambda largest: (np.frexp(np.nextafter(largest, np.float32(np.inf)))[0] == 0.5) & (largest > 1e-30),
        lambda largest: (np.frexp(np.nextafter(largest, np.float32(0)))[0] == 0.5) & (largest > 1e-30),
        lambda largest: largest == 0,
        lambda largest: (largest > 0) & (largest < 2.0**-126),
        lambda largest: largest > 2.0**126,
    ],
    ids=["a power of two", "just below one", "just above one", "0", "subnormal", "as large as binary32 has it"],
)
def test_largest_magnitudes_are_where_rules_decide(fmt: str, wanted: Any):
    assert reached(fmt, lambda x: wanted(blocks_of(x, fmt)).any())


def test_some_numbers_are_ties_of_the_elements():
    def has_a_tie(x: np.ndarray[Any, Any]) -> bool:
        value = emu.quantize(x, "mxfp8_e4m3")
        quotient = np.abs(x) / np.repeat(value.scales[0], 32, axis=-1)
        normal = (quotient >= 2.0**-6) & (quotient < 256)
        step = 2.0 ** (np.floor(np.log2(np.where(normal, quotient, 1))) - 3)
        return bool((normal & (quotient / step % 1 == 0.5)).any())

    assert reached("mxfp8_e4m3", has_a_tie, nan=False, infinity=False)


@pytest.mark.parametrize("fmt", ["mxfp8_e4m3", "uint8_affine"])
def test_nan_and_infinities_come_up_unless_they_are_not_wanted(fmt: str):
    assert reached(fmt, lambda x: np.isnan(x).any())
    assert reached(fmt, lambda x: np.isinf(x).any())
    assert reached(fmt, lambda x: (x == -np.inf).any())

    @FAST
    @given(block_numbers(fmt, SMALL[fmt], nan=False, infinity=False))
    def all_are_finite(x: np.ndarray[Any, Any]) -> None:
        assert np.isfinite(x).all()

    all_are_finite()


def test_a_failure_shrinks_to_one_block_that_is_not_zero():
    x = find(block_numbers("mxfp8_e4m3", (2, 64)), lambda x: bool(np.abs(np.nan_to_num(x)).max() > 100))
    assert (blocks_of(x, "mxfp8_e4m3") > 0).sum() == 1


@pytest.mark.parametrize("fmt", ["fp8_tensor", "block(fix1f0, fp32 row symmetric)", "nvfp4"])
def test_empty_arrays_and_the_narrowest_elements_are_drawn(fmt: str):
    @settings(max_examples=5)
    @given(block_numbers(fmt, (0, 4)), block_numbers(fmt, (2, 4)))
    def draw(empty: np.ndarray[Any, Any], some: np.ndarray[Any, Any]) -> None:
        assert (empty.shape, empty.dtype, some.shape) == ((0, 4), np.float32, (2, 4))

    draw()


def test_other_formats_and_axes_are_refused():
    for strategy in (block_numbers, scaled_values):
        with pytest.raises(FormatError, match="must be a format whose elements share scales, got fp16"):
            strategy("e5m10", (3, 4))
        with pytest.raises(ShapeError):
            strategy("mxfp8_e4m3", (3, 4), axis=2)


def test_a_shape_may_be_a_size_and_no_other_is_taken():
    for strategy in (block_numbers, scaled_values):
        strategy("mxfp8_e4m3", 4).validate()
        for shape, got in (
            ((4, -1), "at least 0, got -1"),
            ((4, 1.5), "an integer, got 1.5"),
            ("a", "an integer, got 'a'"),
        ):
            with pytest.raises(ShapeError, match=f"`shape` must be {got}"):
                strategy("mxfp8_e4m3", shape)
