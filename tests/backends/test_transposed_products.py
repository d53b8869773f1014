"""Products computed transposed, their right operand read where it lies: the bits of the product as it is written."""

# ruff: noqa: B023 - every call happens before its loop moves on
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_inputs import random_values
from ordered_units import FLOATS, LIMITED, UNITS, using, values
from variants import assert_same_everywhere, needs_vectors

import emu
from emu.backends.gathered import Gathered
from emu.backends.numba.vector import transposed_products
from emu.backends.numba.vector.ordered_tiles import ROWS
from emu.backends.numba.vector.transposed_products import CHUNK_DEPTH, MOST_BLOCKS
from emu.backends.numba.ways import in_tiles
from emu.engine.description import PRODUCT_OPTIONS, call_of
from emu.engine.matrices import Matrices
from emu.engine.products import write_product
from emu.engine.sliding import Sliding

#: Rows, inner sizes and columns of products with few columns: around vectors, tiles and chunks.
SIZES = [
    (1, 40, 1), (15, 1, 1), (16, 15, 1), (17, 16, 2), (31, 17, 1), (32, 0, 3), (33, 33, 5), (64, 20, 8), (65, 31, 9),
    (100, 7, 15), (40, CHUNK_DEPTH - 1, 1), (7, CHUNK_DEPTH, 1), (33, CHUNK_DEPTH + 1, 2),
    (20, 2 * CHUNK_DEPTH + 17, 3),
]  # fmt: skip


def multiply(adder: str, left: Any, right: Any, note: Any, addend: np.ndarray | None = None) -> np.ndarray:
    """Compare a product of a unit on all backends."""
    first, second, out, mac = UNITS[adder]
    formats = emu.parse(first), emu.parse(second), None if addend is None else emu.parse(out)
    shape = max(left.shape[0], right.shape[0]), left.shape[1], right.shape[2]

    def product(**where: Any) -> np.ndarray:
        unit = call_of("matmul", out, {"mac": mac, **where}, PRODUCT_OPTIONS)[0]
        return write_product(unit, Matrices(left, right, addend, formats, shape))

    with using(adder):
        return assert_same_everywhere(product, out, (adder, note))


def kernel_gradient(adder: str, shape: tuple[int, ...], outputs: int, seed: int, slide: Sliding) -> tuple[Any, Any]:
    """Return errors and patches, as the gradient of kernels of 3 x 2 multiplies them."""
    first, second, _, _ = UNITS[adder]
    images = values(second, shape, seed)
    sizes = slide.sizes((shape[2], shape[3]), (3, 2))
    errors = Gathered.of_axes(values(first, (shape[0], outputs, *sizes), seed + 7), (1,), (0, 2, 3))
    return errors, slide.joined_patches(images, (3, 2))


@needs_vectors
@pytest.mark.parametrize("adder", UNITS)
def test_products_with_few_columns_are_the_same(adder: str):
    first, second, out, _ = UNITS[adder]
    for seed, (rows, depth, columns) in enumerate(SIZES):
        left, right = values(first, (1, rows, depth), seed), values(second, (1, depth, columns), seed + 50)
        addends = None, values(out, (1, rows, 1), seed), values(out, (1, 1, columns), seed)
        addend = (*addends, values(out, (1, rows, columns), seed))[seed % 4]
        multiply(adder, left, right, SIZES[seed], addend)


@needs_vectors
@pytest.mark.parametrize("adder", UNITS)
def test_gradients_of_kernels_are_the_same(adder: str):
    slides = Sliding(), Sliding.of(stride=(2, 1), padding=(1, 1)), Sliding.of(dilation=(1, 2), padding=((0, 2), (1, 0)))
    for seed, slide in enumerate(slides):
        images, outputs = ((3, 2, 9, 21), (2, 3, 8, 8), (5, 8, 7, 9))[seed], (20, 33, 16)[seed]
        multiply(adder, *kernel_gradient(adder, images, outputs, seed, slide), slide)


@needs_vectors
@pytest.mark.parametrize("adder", UNITS)
def test_convolutions_of_few_images_are_the_same(adder: str):
    second, first, out, mac = UNITS[adder]
    for images, outputs, groups in ((1, 17, 1), (3, 40, 1), (2, 34, 2)):
        x, w = random_values(first, (images, 2 * groups, 6, 7), images), values(second, (outputs, 2, 3, 3), 9)
        bias = None if images == 1 else values(out, (outputs,), 3)
        given: dict[str, Any] = {"x_format": first, "w_format": second, "out_format": out, "mac": mac, "groups": groups}
        given |= {} if bias is None else {"bias": bias, "bias_format": out}
        with using(adder):
            assert_same_everywhere(lambda **where: emu.conv2d(x, w, padding=(1, 1), **given, **where), out, images)


@needs_vectors
@pytest.mark.parametrize("lies", ["rows", "columns", "every other", "anywhere"])
def test_left_operands_that_lie_anywhere_in_memory_are_the_same(lies: str):
    rng, (rows, depth) = np.random.default_rng(5), (37, 50)
    data = values("fp32", (rows * depth * 2,), 1)
    down, along = {
        "rows": (np.arange(rows) * depth, np.arange(depth)),
        "columns": (np.arange(rows), np.arange(depth) * rows),
        "every other": (np.arange(rows) * 2 * depth, np.arange(depth) * 2),
        "anywhere": (rng.permutation(rows) * depth, rng.permutation(depth)),
    }[lies]
    right = values("fp32", (1, depth, 3), 2)
    multiply("float32", Gathered(data, 1, 0, down, along), right, lies)
    # neighbours begin and end where those of one vector would, but are not in their order
    along = along.copy()
    along[[3, 7, 20, 21]] = along[[7, 3, 21, 20]]
    multiply("float32", Gathered(data, 1, 0, down, along), right, lies)
    down = down.copy()
    down[[1, 2, 33, 34]] = down[[2, 1, 34, 33]]
    multiply("float32", Gathered(data, 1, 0, down, np.arange(depth)), right, lies)


@needs_vectors
@pytest.mark.parametrize("adder", ["float32", "half", "words", "marked", "saturating"])
def test_stacks_of_matrices_and_matrices_that_stand_for_all_are_the_same(adder: str):
    first, second, out, _ = UNITS[adder]
    left, right = values(first, (3, 40, 19), 1), values(second, (3, 19, 2), 2)
    for a in (left, np.broadcast_to(left[1], left.shape), left[:1]):
        for b in (right, np.broadcast_to(right[2], right.shape)):
            for addend in (None, values(out, (3, 1, 1), 3), values(out, (3, 40, 2), 4)):
                multiply(adder, a, b, (a.strides, b.strides), addend)


def test_two_operands_that_stand_for_all_matrices_are_the_same():
    """Infinite sums are searched for terms that were infinite, in a copy of each operand."""
    data = np.where(np.arange(200) % 7 == 0, np.float32(np.inf), np.float32(3e38))
    left = Gathered(data, 33, 0, np.arange(5) * 20, np.arange(20))
    right = Gathered(data, 33, 0, np.arange(20) * 3, np.arange(3))
    for b in (right, right.array()[:1]):
        multiply("float32", left, b, "all")


@needs_vectors
@pytest.mark.parametrize("formats", [("fix4f119", "fix4f0", "fix8f119"), ("fix4f119", "fix4f-100", "fix20f31")])
def test_scales_beyond_float32_are_the_same(formats: tuple[str, str, str]):
    first, second, accumulator = formats
    out = "fix8f119" if accumulator == "fix8f119" else "fix20f31"
    for columns in (1, 3):
        a, b = random_values(first, (40, 20), 1), random_values(second, (20, columns), 2)
        given = {"a_format": first, "b_format": second, "out_format": out, "mac": emu.Mac(accumulator=accumulator)}
        assert_same_everywhere(lambda **where: emu.matmul(a, b, **given, **where), out, formats)
    x, w = random_values(second, (32, 2, 4, 4), 3), random_values(first, (5, 2, 2, 2), 4)
    for images, kernels, names in ((x, w, (second, first)), (w[:1].repeat(32, axis=0), x[:5, :, :2, :2], formats)):
        given = {"x_format": names[0], "w_format": names[1], "out_format": out, "mac": emu.Mac(accumulator=accumulator)}
        assert_same_everywhere(lambda **where: emu.conv2d(images, kernels, **given, **where), out, formats)


@needs_vectors
@pytest.mark.parametrize("adder", ["float32", "saturating"])
def test_more_columns_than_are_added_up_together_are_the_same(adder: str):
    first, second, _, _ = UNITS[adder]
    columns, depth = MOST_BLOCKS * 16 + 21, 9
    data = values(second, (columns + depth,), 1)
    right = Gathered(data, 1, 0, np.arange(depth), np.arange(columns))
    multiply(adder, values(first, (1, 34, depth), 2), right, columns)


@needs_vectors
@pytest.mark.parametrize("adder", FLOATS)
def test_values_that_are_not_finite_and_zeros_of_either_sign_are_the_same(adder: str):
    first, second, out, _ = UNITS[adder]
    left, right = random_values(first, (1, 45, 40), 1), random_values(second, (1, 40, 1), 2)
    multiply(adder, left, right, "anything", random_values(out, (1, 45, 1), 3))
    left, right = np.where(left > 0, np.float32(-0.0), np.float32(0.0)), np.full((1, 40, 2), -1.0, np.float32)
    expected = multiply(adder, left, right, "zeros", np.full((1, 1, 1), -0.0, np.float32))
    left[:, 7] = 0.0
    expected = multiply(adder, left, right, "zeros", np.full((1, 1, 1), -0.0, np.float32))
    assert np.signbit(expected[0, 7]).all()
    assert not np.signbit(expected[0, :7]).all()


@needs_vectors
@pytest.mark.parametrize("adder", LIMITED)
def test_each_output_tells_whether_it_touched_a_limit(adder: str, monkeypatch: pytest.MonkeyPatch):
    seen: list[np.ndarray] = []
    contents, applies = in_tiles.contents, transposed_products.applies

    def watched(*given: Any) -> Any:
        for is_transposed in (True, False):
            monkeypatch.setattr(transposed_products, "applies", applies if is_transposed else lambda *_: False)
            result = contents(*given)
            assert result.touched is not None
            seen.append(np.broadcast_to(result.touched, result.sums.shape) != 0)
        return result

    monkeypatch.setattr(in_tiles, "contents", watched)
    first, second, out, mac = UNITS[adder]
    errors, patches = kernel_gradient(adder, (3, 3, 9, 9), 40, 4, Sliding())
    errors.data[: errors.data.size // 80] = float(emu.parse(first).max)
    patches.data[: patches.data.size // 80] = float(emu.parse(second).max)
    unit = call_of("matmul", out, {"mac": mac, "backend": "numba"}, PRODUCT_OPTIONS)[0]
    formats = emu.parse(first), emu.parse(second), None
    write_product(unit, Matrices(errors, patches, None, formats, (1, 40, 18)))
    transposed, direct = seen
    assert 0 < direct.sum() < direct.size
    assert np.array_equal(transposed, direct)


def test_a_product_is_transposed_if_fewer_lanes_are_empty_or_nothing_has_to_be_copied():
    def applies(rows: int, columns: int, *, gathered: bool) -> bool:
        right: Any = Gathered(np.zeros(4096, np.float32), 1, 0, np.arange(3), np.arange(columns))
        right = right if gathered else np.zeros((1, 3, columns), np.float32)
        return transposed_products.applies(np.zeros((1, rows, 3), np.float32), right)

    assert applies(32, 16, gathered=False)
    assert not applies(32, 17, gathered=False)
    assert not applies(31, 16, gathered=False)
    assert applies(16, 320, gathered=True)
    assert not applies(15, 320, gathered=True)
    assert applies(1, 1, gathered=True)
    assert not applies(0, 3, gathered=True)
    assert not applies(3, 0, gathered=True)


def test_blocks_of_columns_hold_whole_tiles():
    assert all(16 % rows == 0 for rows in ROWS.values())
    assert CHUNK_DEPTH % 16 == 0
