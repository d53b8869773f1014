"""Shapes of products are numpy.matmul's; random bits and `out` follow the result's; errors name shapes and values."""

from __future__ import annotations

import numpy as np
import pytest

import emu
from emu.engine.matrices import require_fit
from emu.testing import assert_bits_equal

FIX = {"a_format": "fix16f0", "b_format": "fix16f0", "out_format": "fix32f0"}
SHAPES = [
    ((3,), (3,)), ((0,), (0,)), ((3,), (3, 2)), ((2, 3), (3,)), ((2, 3), (3, 4)), ((1, 1), (1, 1)), ((2, 0), (0, 3)),
    ((0, 3), (3, 0)),
    ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)), ((5, 2, 3), (5, 3, 4)), ((5, 1, 2, 3), (4, 3, 2)), ((1, 2, 3), (6, 3, 1)),
    ((3,), (2, 3, 4)),
    ((4, 2, 3), (3,)), ((2, 3, 4, 5), (2, 1, 5, 6)), ((0, 2, 3), (3, 4)), ((2, 0, 2, 3), (1, 3, 4)),
]  # fmt: skip


def integers(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-50, 50, shape).astype(np.float32)


@pytest.mark.parametrize("addend", [(1, 2, 5), (1, 5, 3), (5, 1, 1), (1, 5, 5)], ids=str)
def test_an_addend_that_misses_a_single_axis_is_refused_before_a_kernel_reads_it(addend: tuple[int, int, int]):
    require_fit((4, 2, 6), (1, 6, 3), (4, 1, 3))
    with pytest.raises(emu.ShapeError, match=r"the addend must broadcast to the result \(4, 2, 3\), got shape"):
        require_fit((4, 2, 6), (1, 6, 3), addend)


@pytest.mark.parametrize("formats", [("fp16", "fix8f4"), ("fix8f4", "fp16"), ("fix8f4", "fix8f4")])
def test_a_unit_of_blocks_takes_no_fixed_operand_on_either_side(formats: tuple[str, str], backend: str):
    mac = emu.Mac(accumulator="fp32", order="blocks(4, 23)")
    options = {"mac": mac, "out_format": "fp32", "backend": backend}
    with pytest.raises(emu.FormatError, match="operands must be floats where `order` is blocks, got fix8f4"):
        emu.matmul(np.ones((2, 4)), np.ones((4, 2)), a_format=formats[0], b_format=formats[1], **options)


@pytest.mark.parametrize(("a_shape", "b_shape"), SHAPES, ids=str)
def test_shapes_are_those_of_numpy_matmul(a_shape: tuple, b_shape: tuple, backend: str):
    a, b = integers(a_shape, 1), integers(b_shape, 2)
    expected = np.matmul(a.astype(np.float64), b.astype(np.float64))
    y = emu.matmul(a, b, backend=backend, **FIX)
    assert np.shape(y) == np.shape(expected)
    assert_bits_equal(y, expected + 0.0, "fix32f0")
    for i in range(expected.ndim + 1):  # an addend that broadcasts: every tail of the shape, and 1 in every place
        for c_shape in (
            expected.shape[i:],
            (*[1] * i, *expected.shape[i:]),
            tuple(1 if j == i else n for j, n in enumerate(expected.shape)),
        ):
            c = integers(c_shape, 3)
            y = emu.matmul(a, b, addend=c, addend_format="fix16f0", backend=backend, **FIX)
            assert_bits_equal(y, expected + c, "fix32f0")


@pytest.mark.parametrize(("a_shape", "b_shape"), SHAPES, ids=str)
def test_transposed_and_strided_operands_are_read_right(a_shape: tuple, b_shape: tuple, backend: str):
    a, b = integers(a_shape, 1), integers(b_shape, 2)
    wide = np.full((*a_shape[:-1], 2 * a_shape[-1]), 99, np.float32)
    wide[..., ::2] = a
    flipped = np.asfortranarray(b[::-1])[::-1]
    assert_bits_equal(
        emu.matmul(wide[..., ::2], flipped, backend=backend, **FIX), emu.matmul(a, b, backend=backend, **FIX), "fix32f0"
    )


def test_integers_and_lists_are_operands(backend: str):
    assert emu.matmul([[1, 2]], [[3], [4]], backend=backend, **FIX).tolist() == [[11.0]]
    assert emu.matmul(np.array([True, False]), np.array([[3], [4]], np.int8), backend=backend, **FIX).tolist() == [3.0]


@pytest.mark.parametrize(
    ("a_shape", "b_shape", "message"),
    [
        (
            (),
            (3,),
            "matmul: operands must have at least one dimension, got shapes () and (3,); "
            "emu.multiply multiplies by a number",
        ),
        (
            (2, 3),
            (4, 2),
            "matmul: inner sizes must agree, got shapes (2, 3) and (4, 2): 3 against 4; transpose one of them?",
        ),
        ((3,), (4,), "matmul: inner sizes must agree, got shapes (3,) and (4,): 3 against 4; transpose one of them?"),
        (
            (2, 2, 3),
            (3, 3, 2),
            "matmul: batch dimensions must broadcast, got shapes (2, 2, 3) and (3, 3, 2); "
            "give axes of size 1 where they differ",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_named(a_shape: tuple, b_shape: tuple, message: str):
    with pytest.raises(emu.ShapeError) as caught:
        emu.matmul(np.zeros(a_shape), np.zeros(b_shape), **FIX)
    assert str(caught.value) == message


def test_an_addend_must_broadcast_and_have_a_format():
    a, b = np.zeros((2, 3)), np.zeros((3, 4))
    with pytest.raises(emu.ShapeError) as caught:
        emu.matmul(a, b, addend=np.zeros((3,)), addend_format="fix8f0", **FIX)
    assert str(caught.value) == (
        "matmul: the addend must broadcast to the result (2, 4), got shape (3,); give axes of size 1 where they differ"
    )
    with pytest.raises(emu.ShapeError, match=r"must broadcast to the result \(2, 4\), got shape \(5, 2, 4\)"):
        emu.matmul(a, b, addend=np.zeros((5, 2, 4)), addend_format="fix8f0", **FIX)
    with pytest.raises(emu.FormatError, match="`addend_format` must be given with `addend`"):
        emu.matmul(a, b, addend=np.zeros(4), **FIX)


def test_values_outside_their_format_are_named():
    a, b = np.zeros((2, 3)), np.zeros((3, 4))
    a[1, 2] = 0.5
    with pytest.raises(
        emu.FormatError, match=r"`a`: every value must belong to fix16f0, got .*0\.5.* at index \(1, 2\)"
    ):
        emu.matmul(a, b, **FIX)
    with pytest.raises(emu.FormatError, match="`b`: "):
        emu.matmul(b.T[:, :3], a.T, **FIX)
    with pytest.raises(emu.FormatError, match="`addend`: "):
        emu.matmul(b.T[:, :3], b, addend=[0.1] * 4, addend_format="fix16f0", **FIX)
    with pytest.raises(emu.FormatError, match="`bias`: "):
        emu.conv2d(
            np.zeros((1, 1, 2, 2)),
            np.zeros((1, 1, 1, 1)),
            x_format="fp16",
            w_format="fp16",
            out_format="fp16",
            bias=[1e9],
            bias_format="fp16",
        )


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("fmt", "unit"), [("fix16f0", "exact"), ("fp16", "exact"), ("fp16", "fp32")])
@pytest.mark.parametrize(("images", "channels"), [(0, 4), (3, 0)])
def test_a_convolution_of_no_images_or_with_no_kernels_is_empty(
    images: int, channels: int, fmt: str, unit: str, groups: int, backend: str
):
    register, flags = emu.StatisticsRegister(), emu.Flags()
    formats = {"x_format": fmt, "w_format": fmt, "bias_format": fmt, "out_format": "fp32"}
    options = {"mac": emu.Mac(accumulator=unit), "padding": (1, 1), "groups": groups, "backend": backend}
    x, kernels, bias = np.zeros((images, 4, 6, 5)), np.ones((channels, 4 // groups, 3, 3)), np.ones(channels)
    result = emu.conv2d(x, kernels, bias=bias, register=register, flags=flags, **formats, **options)
    assert (result.shape, register.total, flags.inexact) == ((images, channels, 6, 5), 0, 0)


def test_convolutions_that_do_not_fit_are_named():
    formats = {"x_format": "fix8f4", "w_format": "fix8f4", "out_format": "fix8f4"}
    with pytest.raises(
        emu.ShapeError, match=r"conv2d: x must be \(N, C, H, W\) and w \(O, C, KH, KW\) with the same C"
    ):
        emu.conv2d(np.zeros((1, 2, 3, 3)), np.zeros((1, 1, 3, 3)), **formats)
    with pytest.raises(emu.ShapeError, match="conv2d: the kernel must fit the padded image"):
        emu.conv2d(np.zeros((1, 1, 3, 3)), np.zeros((1, 1, 6, 3)), padding=(1, 0), **formats)
    with pytest.raises(
        emu.ShapeError, match=r"conv2d: the bias must have one value per output channel, shape \(2,\), got \(3,\)"
    ):
        emu.conv2d(np.zeros((1, 1, 3, 3)), np.zeros((2, 1, 3, 3)), bias=np.zeros(3), bias_format="fix8f4", **formats)
    with pytest.raises(emu.FormatError, match="`bias_format` must be given with `bias`"):
        emu.conv2d(np.zeros((1, 1, 3, 3)), np.zeros((2, 1, 3, 3)), bias=np.zeros(2), **formats)


def test_minus_zero_counts_as_zero_where_the_format_has_none(backend: str):
    zero = np.float32(-0.0)
    for fmt in ("fix8f4", "e4m3fnuz"):
        for y in (
            emu.add(zero, zero, a_format=fmt, b_format=fmt, out_format="fp16", backend=backend),
            emu.multiply(zero, np.float32(1), a_format=fmt, b_format=fmt, out_format="fp16", backend=backend),
            emu.quantize(zero, "fp16", x_format=fmt, backend=backend),
            emu.matmul(
                [[zero]],
                [[1.0]],
                a_format=fmt,
                b_format=fmt,
                out_format="fp16",
                mac=emu.Mac(accumulator="fp16"),
                backend=backend,
            )[0, 0],
        ):
            assert_bits_equal(y, np.float32(0.0), "fp16")


def test_recorded_random_bits_of_a_product_have_its_shape(backend: str):
    """x + u / 4 floored: u = 0 leaves, u = 3 takes a quarter and more up."""
    formats = {
        "a_format": "fix8f2",
        "b_format": "fix8f0",
        "out_format": "fix8f0",
        "rounding": "stochastic",
        "n_rbits": 2,
        "backend": backend,
    }
    for a_shape, b_shape in (((2, 3), (3, 2)), ((5, 2, 3), (3, 2)), ((2, 3), (3,)), ((3,), (3,))):
        a, b = np.full(a_shape, 0.25), np.full(b_shape, 1.0)
        result = np.shape(np.matmul(a, b))
        u = np.arange(np.prod(result, dtype=int)).reshape(result).astype(np.uint32) % 4
        y = emu.matmul(a, b, rbits=u, **formats)
        assert_bits_equal(y, np.floor(0.75 + u / 4), "fix8f0")
        with pytest.raises(emu.ShapeError, match="`rbits` must have the shape of the result"):
            emu.matmul(a, b, rbits=np.zeros((9, 9), np.uint32), **formats)
    with pytest.raises(emu.FormatError, match=r"`rbits` must be integers below 2\*\*2, got 4; shift or mask"):
        emu.matmul([[0.25]], [[1.0]], rbits=np.array([[4]], np.uint32), **formats)


def test_the_random_bits_of_an_element_depend_on_its_index_in_the_result_alone(backend: str):
    """A product of one row equals the row of the whole product whose index it has: only at index 0."""
    rng = np.random.default_rng(1)
    a, b = (emu.quantize(rng.standard_normal(shape), "fix8f4") for shape in ((6, 9), (9, 4)))
    formats = {
        "a_format": "fix8f4",
        "b_format": "fix8f4",
        "out_format": "fix8f2",
        "rounding": "stochastic",
        "backend": backend,
    }
    whole = emu.matmul(a, b, seed=3, **formats)
    assert_bits_equal(emu.matmul(a[:2], b, seed=3, **formats), whole[:2], "fix8f2")
    assert_bits_equal(emu.matmul(a.reshape(2, 3, 9), b, seed=3, **formats).reshape(6, 4), whole, "fix8f2")
    for other in ({"seed": 4}, {"seed": 3, "stream": 1}, {"seed": 3, "step": 1}):
        assert (emu.matmul(a, b, **other, **formats) != whole).any()


def test_a_product_is_written_into_out(backend: str):
    a, b = integers((5, 2, 3), 1), integers((3, 4), 2)
    expected = emu.matmul(a, b, backend=backend, **FIX)
    room = np.zeros((5, 4, 4), expected.dtype)
    for out in (np.empty_like(expected), room[:, ::2], np.empty((4, 2, 5), expected.dtype).T):
        assert emu.matmul(a, b, out=out, backend=backend, **FIX) is out
        assert_bits_equal(out, expected, "fix32f0")


def test_flags_and_registers_add_up_over_calls(backend: str):
    a, b = integers((7, 3), 1), integers((3, 4), 2)
    register, flags, sums = (
        emu.StatisticsRegister(),
        emu.Flags(),
        emu.StatisticsRegister(),
    )
    formats = FIX | {"out_format": "fix8f0"}
    for _ in range(2):
        emu.matmul(a, b, register=register, flags=flags, backend=backend, **formats)
        emu.matmul(a, b, register=sums, backend=backend, **formats)
    assert register == sums
    assert register.total == 56
    assert flags.overflow == 2 * int((np.abs(a @ b + 0.5) > 128).sum())


def test_backends_that_are_not_there_are_named():
    with pytest.raises(
        emu.BackendUnavailable, match="`backend` must be auto or a backend, got 'numbra'; did you mean 'numba'"
    ):
        emu.quantize(1.0, "fp16", backend="numbra")
