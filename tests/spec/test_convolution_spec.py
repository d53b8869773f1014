"""A convolution is the product of kernels with patches: every size, step and margin of its own, against plain loops."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import emu

FIX = {"x_format": "fix8f0", "w_format": "fix8f0", "out_format": "fix24f0"}
#: N, C, H, W; O, KH, KW; stride; padding: no two sizes of one convolution are equal.
CASES = [
    ((2, 3, 5, 7), (4, 2, 3), (1, 1), (0, 0)),
    ((1, 2, 6, 9), (3, 4, 5), (2, 3), (0, 0)),
    ((2, 1, 4, 3), (5, 3, 2), (1, 2), (1, 0)),
    ((1, 3, 2, 6), (2, 4, 1), (3, 1), (2, 1)),
    ((3, 2, 1, 1), (1, 1, 1), (1, 1), (0, 0)),
    ((1, 2, 3, 8), (2, 3, 8), (1, 1), (0, 2)),
]


def integers(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-9, 10, shape).astype(np.float32)


def by_loops(x: np.ndarray, w: np.ndarray, stride: tuple[int, int], padding: tuple[int, int]) -> np.ndarray:
    n, _, height, width = x.shape
    channels, _, rows, columns = w.shape
    out_rows = (height + 2 * padding[0] - rows) // stride[0] + 1
    out_columns = (width + 2 * padding[1] - columns) // stride[1] + 1
    y = np.zeros((n, channels, out_rows, out_columns))
    for image, o, i, j in product(range(n), range(channels), range(out_rows), range(out_columns)):
        for c, di, dj in product(range(x.shape[1]), range(rows), range(columns)):
            row, column = i * stride[0] + di - padding[0], j * stride[1] + dj - padding[1]
            if 0 <= row < height and 0 <= column < width:
                y[image, o, i, j] += x[image, c, row, column] * w[o, c, di, dj]
    return y


@pytest.mark.parametrize(("shape", "kernels", "stride", "padding"), CASES, ids=str)
def test_a_convolution_is_the_sum_over_channel_row_and_column(
    shape: tuple, kernels: tuple, stride: tuple, padding: tuple, backend: str
):
    x, w = integers(shape, 1), integers((kernels[0], shape[1], *kernels[1:]), 2)
    bias = integers((kernels[0],), 3)
    want = by_loops(x, w, stride, padding)
    where = {"stride": stride, "padding": padding, "backend": backend}
    y = emu.conv2d(x, w, **where, **FIX)
    assert y.shape == want.shape
    assert (y == want).all()
    out = np.full(want.shape, 99, np.float32)
    assert emu.conv2d(x, w, bias=bias, bias_format="fix8f0", out=out, **where, **FIX) is out
    assert (out == want + bias[:, None, None]).all()


@pytest.mark.parametrize(("shape", "kernels", "stride", "padding"), CASES, ids=str)
def test_the_plan_of_a_convolution_counts_channel_row_and_column(
    shape: tuple, kernels: tuple, stride: tuple, padding: tuple
):
    """The plan is that of a product as deep as a patch: K * 2**14 units; its bound is the next power of two."""
    depth = shape[1] * kernels[1] * kernels[2]
    x, w = np.zeros(shape), np.zeros((kernels[0], shape[1], *kernels[1:]))
    plan = emu.explain(emu.conv2d, x, w, stride=stride, padding=padding, backend="numba", **FIX)
    assert f"<= 2**{(depth * 2**14 - 1).bit_length()} units" in str(plan)


@pytest.mark.parametrize(
    ("stride", "padding"),
    [
        ((0, 1), (0, 0)),
        ((1, 0), (0, 0)),
        ((1, 1), (-1, 0)),
        ((1, 1), (0, -1)),
        ((1,), (0, 0)),
        ((1, 1), (0, 0, 0)),
        (2, (0, 0)),
        ((1, 1), 1),
    ],
)
def test_steps_below_one_and_margins_below_zero_are_refused(stride: Any, padding: Any):
    with pytest.raises(emu.ShapeError, match=r"`(stride|padding)` must be two integers of at least [01]"):
        emu.conv2d(np.zeros((1, 1, 4, 4)), np.zeros((1, 1, 2, 2)), stride=stride, padding=padding, **FIX)


@pytest.mark.parametrize(
    ("x_shape", "w_shape"), [((1, 4, 4), (1, 1, 2, 2)), ((1, 1, 4, 4), (1, 2, 2)), ((1, 2, 4, 4), (1, 1, 2, 2))]
)
def test_images_and_kernels_have_four_axes_and_the_same_channels(x_shape: tuple, w_shape: tuple):
    with pytest.raises(emu.ShapeError, match=r"x must be \(N, C, H, W\) and w \(O, C, KH, KW\) with the same C"):
        emu.conv2d(np.zeros(x_shape), np.zeros(w_shape), **FIX)


@pytest.mark.parametrize(("kernel", "padding"), [((5, 2), (0, 0)), ((2, 6), (0, 0)), ((7, 2), (1, 0))])
def test_a_kernel_that_just_fits_has_one_place_and_a_larger_one_is_refused(kernel: tuple, padding: tuple):
    x = np.ones((1, 1, kernel[0] - 2 * padding[0], kernel[1] - 2 * padding[1]))
    assert emu.conv2d(x, np.ones((1, 1, *kernel)), padding=padding, **FIX).shape == (1, 1, 1, 1)
    for longer in ((1, 0), (0, 1)):
        w = np.ones((1, 1, kernel[0] + longer[0], kernel[1] + longer[1]))
        with pytest.raises(emu.ShapeError, match="conv2d: the kernel must fit the padded image"):
            emu.conv2d(x, w, padding=padding, **FIX)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("images", "channels"), [(0, 4), (1, 0), (0, 0)])
def test_no_images_or_no_output_channels_have_an_empty_result(images: int, channels: int, groups: int, backend: str):
    x, w = np.ones((images, 2, 4, 4)), np.ones((channels, 2 // groups, 3, 3))
    for bias in ({}, {"bias": np.ones(channels), "bias_format": "fix16f0"}):
        y = emu.conv2d(x, w, groups=groups, padding=(1, 0), backend=backend, **bias, **FIX)
        assert y.shape == (images, channels, 4, 2)
