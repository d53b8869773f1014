"""Convolutions of many images: 32 images side by side give the bits of one image after another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_inputs import random_values
from ordered_units import FLOATS, LIMITED, UNITS, holed, using, values
from variants import HAS_DOTS, HAS_HALVES, assert_same_everywhere, needs_vectors

import emu
from emu.backends.gathered import Gathered
from emu.backends.interface import encode_mac
from emu.backends.numba.vector import batched_products
from emu.backends.numba.vector.batched_products import CHUNK_ROWS, FEWEST_MATRICES
from emu.backends.numba.vector.ordered_tiles import ADDERS, PAIRS, ROWS
from emu.backends.numba.ways import in_tiles
from emu.engine.path import codes_of_terms


def convolve(adder: str, images: np.ndarray, kernels: np.ndarray, note: Any, bias: Any = None, **slide: Any) -> Any:
    """Compare a convolution of a unit on all backends."""
    second, first, out, mac = UNITS[adder]
    given = {"x_format": first, "w_format": second, "out_format": out, "mac": mac} | slide
    given |= {} if bias is None else {"bias": bias, "bias_format": out}
    with using(adder):
        return assert_same_everywhere(lambda **where: emu.conv2d(images, kernels, **given, **where), out, (adder, note))


@needs_vectors
@pytest.mark.parametrize("adder", UNITS)
def test_the_units_of_these_tests_are_those_of_the_tiles(adder: str):
    second, first, out, mac = UNITS[adder]
    assert set(UNITS) == set(ADDERS) - set(PAIRS)
    is_here = {"words": HAS_DOTS, "marked": HAS_DOTS, "half": HAS_HALVES, "fused_half": HAS_HALVES}.get(adder, True)
    with using(adder):
        unit = in_tiles.unit_for(encode_mac(mac), codes_of_terms((emu.parse(second), emu.parse(first), emu.parse(out))))
    assert not is_here or (unit is not None and unit.adder == adder)


@needs_vectors
@pytest.mark.parametrize("adder", UNITS)
def test_images_columns_and_rows_around_vectors_tiles_and_chunks_are_the_same(adder: str):
    second, first, out, _ = UNITS[adder]
    for seed, images in enumerate((16, 17, 31, 32, 33, 48, 64, 65)):
        rows = (1, ROWS[adder] - 1, ROWS[adder] + 1, CHUNK_ROWS - 1, CHUNK_ROWS, CHUNK_ROWS + 1, 2, 3)[seed]
        width = (16, 1, 15, 17, 31, 32, 33, 2)[seed]
        x = holed(first, (images, 2, 1, width), seed)
        w, bias = values(second, (rows, 2, 1, 3), seed + 50), values(out, (rows,), seed + 99)
        convolve(adder, x, w, (images, rows, width), bias if seed % 3 else None, padding=(0, 1))


@needs_vectors
@pytest.mark.parametrize("adder", UNITS)
def test_strides_dilation_and_padding_on_all_sides_are_the_same(adder: str):
    second, first, _, _ = UNITS[adder]
    for seed, slide in enumerate(({"stride": (2, 3)}, {"dilation": (2, 1)}, {"padding": ((3, 0), (1, 2))})):
        x, w = random_values(first, (33, 3, 7, 8), seed), values(second, (5, 3, 3, 2), seed + 9)
        convolve(adder, x, w, slide, **slide)


@needs_vectors
@pytest.mark.parametrize("adder", FLOATS)
@pytest.mark.parametrize("factor", [np.inf, -np.inf, np.nan])
def test_zeros_times_a_kernel_that_is_not_finite_are_nan(adder: str, factor: float):
    second, first, _, _ = UNITS[adder]
    x, w = holed(first, (32, 2, 2, 8), 1), values(second, (7, 2, 2, 2), 2)
    w[3, 1, 0, 1] = factor
    expected = convolve(adder, x, w, factor, padding=(1, 1))
    assert np.isnan(expected[:, 3, 0, 0]).all()
    assert np.isfinite(expected[:, 4]).all()


@needs_vectors
@pytest.mark.parametrize("adder", FLOATS)
def test_images_that_are_not_finite_are_the_same(adder: str):
    second, first, _, _ = UNITS[adder]
    x, w = holed(first, (32, 2, 2, 8), 1), values(second, (7, 2, 2, 2), 2)
    x[3, 1, 0, 1], x[4, 0, 1, 7], x[31, 0, 0, 0] = np.inf, -np.inf, np.nan
    w[5] = 0
    convolve(adder, x, w, "images", padding=(1, 1))


@needs_vectors
@pytest.mark.parametrize("adder", FLOATS)
def test_a_sum_that_begins_with_a_negative_zero_has_the_sign_that_products_with_zeros_give(adder: str):
    """-0 + -0 is -0, and -0 + 0 is 0: the zeros of the padding, and those of images, decide."""
    x, w = np.zeros((32, 1, 1, 20), np.float32), np.full((7, 1, 1, 3), -1.0, np.float32)
    w[2], w[5, 0, 0, 1], w[6] = 1.0, 0.5, -0.0
    x[:, :, :, 4:9] = -0.0
    x[7, 0, 0, 11] = 1.0
    expected = convolve(adder, x, w, "signs", np.full(7, -0.0, np.float32), padding=(0, 1))
    signs = np.signbit(expected[0, :, 0])
    assert signs[0, 0]
    assert not signs[0, 6]
    assert not signs[2, 0]
    assert signs[2, 6]
    assert not signs[5].any()


@needs_vectors
@pytest.mark.parametrize("adder", ["binary16", "fused16", "half"])
def test_a_product_that_underflows_to_a_negative_zero_is_followed_by_zeros_of_either_sign(adder: str):
    least = 2.0**-16  # of fp8_e5m2, too
    x, w = np.full((20, 1, 1, 18), least, np.float32), np.full((4, 1, 1, 3), -least, np.float32)
    x[:, :, :, 5:], w[2:, 0, 0, 2] = 0.0, least
    expected = convolve(adder, x, w, "underflow", np.full(4, -0.0, np.float32), padding=(0, 1))
    assert np.signbit(expected[:, 0]).any()
    assert not np.signbit(expected[:, 2]).all()


@needs_vectors
def test_where_only_some_images_touch_a_limit_flags_and_registers_are_the_same():
    for adder in LIMITED:
        second, first, _, _ = UNITS[adder]
        x, w = holed(first, (35, 4, 3, 17), 4), values(second, (9, 4, 3, 3), 5)
        x[11], w[4] = float(emu.parse(first).max), float(emu.parse(second).max)
        convolve(adder, x, w, "limits", padding=(1, 1))


@needs_vectors
@pytest.mark.parametrize("images", [16, 17, 31, 33])
def test_lanes_beyond_the_last_image_repeat_it_and_nothing_behind_the_images_is_read(images: int):
    size, panels = 37, -(-images // 32)
    data = np.full(64 * size, np.nan, np.float32)
    data[: images * size] = np.arange(images * size) % 7
    data[: images * size].reshape(images, size)[:, ::5] = 0.0
    lines, kept = np.full((panels, size, 32), -1.0, np.float32), np.full((panels, size), 9, np.uint8)
    batched_products.make_lines(data, size, 2.0, lines, kept, 0, panels * 3, images)
    whole = data[: images * size].reshape(images, size)[np.minimum(np.arange(panels * 32), images - 1)]
    expected = 2.0 * whole.reshape(panels, 32, size).swapaxes(1, 2)
    assert np.array_equal(lines, expected)
    assert np.array_equal(kept != 0, expected.any(axis=2))


@needs_vectors
def test_an_element_that_one_image_alone_has_is_not_left_out():
    """Of each image another element, so that no mark stands for two."""
    x = np.zeros((64, 1, 1, 64), np.float32)
    x[np.arange(64), 0, 0, np.arange(64)] = 1.0
    convolve("float32", x, np.full((3, 1, 1, 1), 2.0, np.float32), "alone")


@needs_vectors
def test_each_output_tells_whether_it_touched_a_limit(monkeypatch: pytest.MonkeyPatch):
    seen: list[np.ndarray] = []
    contents = in_tiles.contents

    def watched(*given: Any) -> Any:
        result = contents(*given)
        assert result.touched is not None
        seen.append(np.broadcast_to(result.touched, result.sums.shape) != 0)
        return result

    monkeypatch.setattr(in_tiles, "contents", watched)
    for adder in LIMITED:
        second, first, out, mac = UNITS[adder]
        x, w = holed(first, (35, 4, 3, 17), 4), values(second, (9, 4, 3, 3), 5)
        x[11], w[4] = float(emu.parse(first).max), float(emu.parse(second).max)
        given = {"x_format": first, "w_format": second, "out_format": out, "mac": mac, "padding": (1, 1)}
        for is_batched in (True, False):
            if not is_batched:
                monkeypatch.setattr(batched_products, "applies", lambda *_: False)
            emu.conv2d(x, w, **given, backend="numba")
        side_by_side, apart = seen[-2:]
        assert 0 < apart.sum() < apart.size / 2
        assert np.array_equal(side_by_side, apart)
        monkeypatch.undo()
        monkeypatch.setattr(in_tiles, "contents", watched)


def test_few_images_and_matrices_that_share_elements_are_not_computed_side_by_side():
    data, offsets = np.zeros(4096, np.float32), np.arange(8)
    left, addends = np.zeros((1, 3, 8), np.float32), np.zeros((FEWEST_MATRICES, 1, 1))

    def applies(matrices: int, stride: int, columns: int = 8, first: int = 0, a: Any = left, c: Any = None) -> bool:
        right = Gathered(data, matrices, stride, offsets + first, np.arange(columns))
        return batched_products.applies(a, right, c)

    assert applies(FEWEST_MATRICES, 15)
    assert not applies(FEWEST_MATRICES - 1, 15)
    assert not applies(FEWEST_MATRICES, 14)
    assert not applies(FEWEST_MATRICES, 15, first=-1)
    assert not applies(FEWEST_MATRICES, 15, columns=0)
    # 32 columns fill a panel, 16 images half of the lanes; 24 images of 31 columns waste 1.33 and 1.03 times as much.
    assert not applies(FEWEST_MATRICES, 40, columns=32)
    assert applies(24, 39, columns=31)
    assert not applies(FEWEST_MATRICES, 15, a=np.zeros((FEWEST_MATRICES, 3, 8), np.float32))
    assert not applies(FEWEST_MATRICES, 15, c=addends)
    assert applies(FEWEST_MATRICES, 15, c=addends[:1])
    assert not batched_products.applies(left, np.zeros((FEWEST_MATRICES, 8, 8), np.float32), None)
