"""Exact products of convolutions, two along k in one instruction: the bits of the product as it is written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_inputs import random_values
from ordered_units import holed
from variants import assert_same_everywhere, needs_dots, running

import emu
from emu.backends.gathered import Gathered
from emu.backends.numba import compiling, integers
from emu.backends.numba.integers import FLOAT32_INTEGERS
from emu.backends.numba.vector import gathered_pairs, paired_products
from emu.backends.numba.vector.batched_products import CHUNK_ROWS
from emu.backends.numba.vector.dot_tiles import PANEL_COLUMNS
from emu.backends.numba.vector.gathered_pairs import FEWEST_PAIRS, INT32_MAX, gathered_sums
from emu.backends.numba.vector.lanes import LANES
from emu.backends.numba.vector.ordered_tiles import ADDERS, PAIRS, ROWS
from emu.backends.numba.vector.paired_products import POURED, BatchProduct
from emu.backends.numba.vector.pairing import paired
from emu.backends.numba.vector.transposed_products import CHUNK_DEPTH, MOST_BLOCKS
from emu.engine.description import call_of
from emu.engine.matrices import Matrices
from emu.engine.path import codes_of_terms
from emu.engine.products import write_product
from emu.engine.sliding import Sliding

#: As it is without a patch.
GATHERED_APPLIES = gathered_pairs.gathered_applies
#: Formats of kernels, images and results: of 16 bits, of fewer, without a sign, with points far from the middle.
FORMATS = {
    "sixteen bits": ("fix16f8", "fix16f8", "fix16f8"),
    "bytes": ("fix8f4", "ufix8f6", "fix16f10"),
    "a float": ("fix12f10", "ufix15f3", "fp16"),
    "coarse steps": ("fix9f-40", "fix12f20", "fix20f-18"),
}


def convolve(formats: str, images: np.ndarray, kernels: np.ndarray, note: Any, **given: Any) -> np.ndarray:
    """Compare an exact convolution on all backends."""
    second, first, out = FORMATS[formats]
    given = {"x_format": first, "w_format": second, "out_format": out} | given
    return assert_same_everywhere(lambda **where: emu.conv2d(images, kernels, **given, **where), out, (formats, note))


def gradient(formats: str, shape: tuple[int, ...], outputs: int, seed: int, slide: Sliding, kernel: Any) -> np.ndarray:
    """Compare the gradient of a convolution's kernels on all backends."""
    first, second, out = FORMATS[formats]
    images, sizes = random_values(second, shape, seed, anything=True), slide.sizes((shape[2], shape[3]), kernel)
    errors = random_values(first, (shape[0], outputs, *sizes), seed + 7, anything=True)
    left, right = Gathered.of_axes(errors, (1,), (0, 2, 3)), slide.joined_patches(images, kernel)
    size = (1, outputs, right.shape[2])

    def product(**where: Any) -> np.ndarray:
        matrices = Matrices(left, right, None, (emu.parse(first), emu.parse(second), None), size)
        return write_product(call_of("matmul", out, where)[0], matrices)

    return assert_same_everywhere(product, out, (formats, shape, outputs, slide))


@pytest.fixture(autouse=True)
def _whatever_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pairs compute all that they can: small products would take another way."""
    monkeypatch.setattr(paired_products, "LEAST_DEPTH", 1)
    monkeypatch.setattr(paired_products, "MOST_LANES", PANEL_COLUMNS)
    monkeypatch.setattr(gathered_pairs, "gathered_applies", lambda left, right: True)


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the ways that products have taken, in turn."""
    taken: list[str] = []
    write, sums = BatchProduct.write, gathered_sums

    def written(self: BatchProduct, out: np.ndarray, sink_of: Any = None, first: int = 0) -> bool:
        taken.append("sums" if sink_of is None else "poured")
        return write(self, out, sink_of, first)

    def summed(*given: Any) -> np.ndarray | None:
        result = sums(*given)
        taken.append("left" if result is None else "gathered")
        return result

    monkeypatch.setattr(BatchProduct, "write", written)
    monkeypatch.setattr(gathered_pairs, "gathered_sums", summed)
    return taken


# ---- pairs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offsets", "distance", "pairs"),
    [
        ([7], 1, 1),
        ([3, 4], 1, 1),
        ([0, 1, 2, 3], 1, 2),
        ([0, 1, 2, 28, 29, 30], 28, 3),  # rows of three: one below the other
        ([0, 1, 2, 28, 29, 30, 56, 57, 58], 1, 6),  # no distance leaves fewer alone
        ([0, 2, 4, 6], 2, 2),
        ([5, 5, 6], 1, 2),
        ([9, 3, 6, 0], 3, 2),  # in any order
    ],
)
def test_each_k_is_in_one_pair_and_pairs_are_few(offsets: list[int], distance: int, pairs: int):
    found = paired(np.array(offsets))
    partners = found.second[found.second >= 0]
    assert sorted([*found.first.tolist(), *partners.tolist()]) == list(range(len(offsets)))
    assert (found.distance, found.first.size) == (distance, pairs)
    places = np.array(offsets)
    assert found.offsets.tolist() == places[found.first].tolist()
    together = found.second >= 0
    assert (places[found.second[together]] - places[found.first[together]] == found.distance).all()
    assert (np.diff(found.first) > 0).all()


def test_channels_are_paired_where_rows_are_odd():
    patches = Sliding().patches(np.zeros((16, 4, 9, 9), np.float32), (3, 3))
    assert paired(patches.rows).distance == 81
    assert paired(patches.rows).first.size == 18


def test_the_same_offsets_have_the_same_pairs_and_others_have_others():
    first, second = np.arange(0, 64), np.arange(0, 64)
    second[[20, 21]] = 1000, 1001  # same size, and the same numbers where keys look first
    assert paired(first) is paired(first.copy())
    assert paired(second) is not paired(first)


# ---- convolutions ---------------------------------------------------------------------------------------------------


@needs_dots
@pytest.mark.parametrize("formats", FORMATS)
def test_images_rows_and_columns_around_lanes_tiles_and_chunks_are_the_same(formats: str, ways: list[str]):
    second, first, _ = FORMATS[formats]
    rows_of_tile = ROWS[PAIRS[0]]
    for seed, images in enumerate((16, 17, 31, 32, 33, 48, 64, 65)):
        rows = (1, rows_of_tile - 1, rows_of_tile + 1, CHUNK_ROWS - 1, CHUNK_ROWS, CHUNK_ROWS + 1, 2, 3)[seed]
        width = (16, 1, 15, 17, 31, 32, 33, 40)[seed]
        x, w = holed(first, (images, 2, 1, width), seed) / 16, random_values(second, (rows, 2, 1, 3), seed + 50)
        x, w = (np.asarray(emu.quantize(v, fmt)) for v, fmt in ((x, first), (w / 8, second)))
        bias = {"bias": random_values("fix12f4", (rows,), seed), "bias_format": "fix12f4"} if seed % 3 == 1 else {}
        convolve(formats, x, w, (images, rows, width), padding=(0, 1), **bias)
    assert "poured" in ways


@needs_dots
@pytest.mark.parametrize("formats", FORMATS)
def test_strides_dilation_groups_and_padding_on_all_sides_are_the_same(formats: str):
    second, first, _ = FORMATS[formats]
    slides = {"stride": (2, 3)}, {"dilation": (2, 1)}, {"padding": ((3, 0), (1, 2))}, {"groups": 3}
    for seed, slide in enumerate(slides):
        x, w = (
            random_values(first, (33, 3, 7, 8), seed),
            random_values(second, (6, 3 // slide.get("groups", 1), 3, 2), 9),
        )
        convolve(formats, x, w, slide, **slide)


@needs_dots
def test_columns_beyond_what_passes_the_stage_at_once_are_the_same(ways: list[str]):
    """Of few rows and many columns, a group of columns is the last with fewer."""
    together = POURED // (2 * PANEL_COLUMNS)
    for width in (together - 1, together, together + 1, 2 * together + LANES + 3):
        convolve(
            "bytes", random_values("ufix8f6", (32, 1, 1, width), width), random_values("fix8f4", (2, 1, 1, 1), 4), width
        )
    assert ways.count("poured") >= 4


@needs_dots
def test_results_that_draw_random_bits_draw_those_of_their_places(ways: list[str]):
    x, w = random_values("fix16f8", (20, 2, 6, 6), 1) / 4096, random_values("fix16f8", (5, 2, 3, 3), 2) / 4096
    x, w = (np.asarray(emu.quantize(v, "fix16f8")) for v in (x, w))
    convolve("sixteen bits", x, w, "stochastic", rounding="stochastic", seed=7)
    convolve("sixteen bits", x, w, "a mode without vector code", rounding="jamming")
    assert "sums" in ways
    assert "poured" not in ways


@needs_dots
def test_what_the_stage_leaves_to_plain_loops_is_counted_once(monkeypatch: pytest.MonkeyPatch):
    """A stage that stops in the middle has counted some results: all are written anew."""
    write = BatchProduct.write

    def stopped(self: BatchProduct, out: np.ndarray, sink_of: Any = None, first: int = 0) -> bool:
        return write(self, out, sink_of, first) and sink_of is None

    monkeypatch.setattr(BatchProduct, "write", stopped)
    x, w = random_values("ufix8f6", (33, 2, 5, 5), 1), random_values("fix8f4", (3, 2, 2, 2), 2)
    convolve("bytes", x, w, "stopped")


@needs_dots
def test_addends_that_are_no_integers_or_lie_anywhere_are_the_same(ways: list[str]):
    x, w = random_values("fix8f2", (20, 2, 6, 6), 1), random_values("fix8f2", (5, 2, 3, 3), 2)
    formats = {"x_format": "fix8f2", "w_format": "fix8f2"}

    def biased(bias: np.ndarray, bias_format: str) -> None:
        given = formats | {"bias": bias, "bias_format": bias_format}
        call = lambda **where: emu.conv2d(x, w, **given, out_format="fix24f9", **where)  # noqa: E731
        assert_same_everywhere(call, "fix24f9", bias_format)

    biased(random_values("fix16f4", (5,), 3), "fix16f4")
    assert ways[-1] in ("poured", "sums")
    taken = len(ways)
    biased(random_values("fix16f9", (5,), 3), "fix16f9")  # half of a product's last place
    biased(np.full(5, 2.0**30, np.float64), "fix40f0")  # 2**34 of a product's last places
    assert len(ways) == taken


@needs_dots
@pytest.mark.parametrize(("rest", "fits"), [(65535, True), (65536, False)])
def test_sums_up_to_the_largest_of_32_bits_are_added_up_and_larger_ones_are_not(rest: int, fits: bool):
    """Of factors below 2**15 and rows whose magnitudes add up to 65535, no sum leaves 32 bits; one more might."""
    row = np.array([32767, -32767, 1, rest - 65535], np.float32)
    images = np.full((16, 4, 1, 2), 32767, np.float32)
    images[:, 1] = -32767
    product = BatchProduct(
        Gathered.of(row[None, None]), Sliding().patches(images, (1, 1)), (1.0, 1.0), 1.0, None, np.dtype(float)
    )
    assert product.fits is fits
    assert product.bound == rest * 2**15
    assert product.bound <= INT32_MAX or not fits
    given = {"x_format": "fix16f0", "w_format": "fix16f0", "out_format": "fix40f0"}
    result = emu.conv2d(images, row.reshape(1, 4, 1, 1), backend="numba", **given)
    assert (result == float(row.astype(np.int64) @ images[0, :, 0, 0].astype(np.int64))).all()


@needs_dots
@pytest.mark.parametrize(("width", "rest", "dtype"), [(13, 0, np.float32), (13, 1, np.float64), (14, 0, np.float64)])
def test_sums_beyond_the_integers_of_float32_are_float64(width: int, rest: int, dtype: type):
    """Two products of words of 13 and 12 bits, of which one is the sign, are at most 2 * 2**(12 + 11)."""
    row, images = np.full((1, 1, 2), -(2.0**11), np.float32), np.full((16, 2, 1, 1), -(2.0**12), np.float32)
    third, addend = (emu.parse("fix8f0"), np.full((1, 1, 1), float(rest))) if rest else (None, None)
    formats = codes_of_terms((emu.parse("fix12f0"), emu.parse(f"fix{width}f0"), third))
    product = integers._batch_of(Gathered.of(row), Sliding().patches(images, (1, 1)), addend, formats)
    assert product is not None
    assert (2 * 2 ** (11 + width - 1) + rest <= FLOAT32_INTEGERS) == (dtype == np.float32)
    assert product.dtype == dtype
    sums = np.empty(product.shape, product.dtype)
    assert product.write(sums)
    assert (sums == 2.0**24 + rest).all()


@needs_dots
def test_lanes_without_an_image_are_neither_written_nor_counted():
    """The numbers behind the images would be seen in register and flags."""
    given = {"x_format": "fix8f4", "w_format": "fix8f4", "out_format": "fix8f1", "backend": "numba"}
    for images in (20, 40):  # of the second, a whole panel passes the stage at once
        x, register, flags = np.full((images, 1, 2, 2), 0.25, np.float32), emu.StatisticsRegister(), emu.Flags()
        emu.conv2d(x, np.ones((3, 1, 1, 1), np.float32), register=register, flags=flags, **given)
        assert register.total == images * 3 * 4
        assert flags.inexact == images * 3 * 4


@needs_dots
def test_images_that_are_zero_beside_one_that_is_not_are_not_left_out():
    x = np.zeros((40, 2, 5, 5), np.float32)
    x[37, 1, 2, 3] = 1.0
    w = random_values("fix8f4", (3, 2, 2, 2), 5)
    assert convolve("bytes", x, w, "one pixel").any()
    assert not convolve("bytes", np.zeros_like(x), w, "none").any()


# ---- gradients of kernels -------------------------------------------------------------------------------------------


@needs_dots
@pytest.mark.parametrize("formats", FORMATS)
def test_gradients_of_kernels_are_the_same(formats: str, ways: list[str]):
    slides = Sliding(), Sliding.of(stride=(2, 1), padding=(1, 1)), Sliding.of(dilation=(1, 2), padding=((0, 2), (1, 0)))
    for seed, slide in enumerate(slides):
        shape, outputs = ((3, 2, 9, 21), (2, 3, 8, 8), (5, 8, 7, 9))[seed], (20, 33, 16)[seed]
        gradient(formats, shape, outputs, seed, slide, (3, 2))
    assert set(ways) <= {"gathered", "left"}
    assert ways


@needs_dots
def test_rows_and_columns_around_lanes_and_depths_around_chunks_are_the_same(ways: list[str]):
    for seed, outputs in enumerate((2, LANES - 1, LANES, LANES + 1, PANEL_COLUMNS, PANEL_COLUMNS + 1)):
        width = (2 * CHUNK_DEPTH - 2, 2 * CHUNK_DEPTH, 2 * CHUNK_DEPTH + 2, 7, 16, 33)[seed]
        gradient("bytes", (1, 1, 1, width), outputs, seed, Sliding(), (1, 1))
        gradient("bytes", (2, 3, 2, width % 41 + 3), outputs, seed, Sliding(), (1, 3))
    columns = MOST_BLOCKS * LANES
    gradient("bytes", (1, columns // 2 + 1, 1, 5), 3, 1, Sliding(), (1, 2))
    assert ways.count("gathered") >= 12


@needs_dots
@pytest.mark.parametrize(("largest", "chunk"), [(2**12 - 1, 63), (2**13 - 1, 15), (2**15 - 1, 0)])
def test_pairs_join_float64_totals_before_32_bits_are_full(largest: int, chunk: int, ways: list[str]):
    """Sums of pairs of the largest factors: as many as fit, then the next."""
    errors = np.full((1, 3, 1, 400), largest, np.float32)
    images = np.full((1, 1, 1, 400), largest, np.float32)
    left, right = Gathered.of_axes(errors, (1,), (0, 2, 3)), Sliding().joined_patches(images, (1, 1))
    for pairs in (right, Sliding().joined_patches(images[..., :399], (1, 1))):  # the last k alone
        ours = Gathered(left.data, 1, 0, left.rows, left.columns[: pairs.rows.size])
        sums = gathered_sums(ours, pairs, (1.0, 1.0), 1.0)
        assert (sums is None) == (chunk < FEWEST_PAIRS)
        if sums is not None:
            assert (sums == pairs.rows.size * float(largest) ** 2).all()


@needs_dots
@pytest.mark.parametrize("outputs", [3, LANES + 1])
def test_threads_share_the_pairs_of_each_sum(outputs: int, monkeypatch: pytest.MonkeyPatch):
    """Parts of a sum begin at whole chunks and are added up exactly."""
    depth, ranges = 6 * CHUNK_DEPTH + 34, list[tuple[int, int]]()
    random = np.random.default_rng(outputs)
    errors = random.integers(-500, 500, (outputs, depth)).astype(np.float32)
    image = random.integers(-500, 500, depth + 4).astype(np.float32)
    places = np.arange(depth), np.arange(5)
    share = gathered_pairs.over_ranges

    def noted(work: Any, size: int, align: int, grain: int) -> None:
        share(lambda *piece: (ranges.append(piece[1:]), work(*piece)), size, align, 1)

    monkeypatch.setattr(gathered_pairs, "over_ranges", noted)
    monkeypatch.setattr(compiling, "thread_count", lambda: 3)
    sums = gathered_sums(Gathered.of(errors[None]), Gathered(image, 1, 0, *places), (1.0, 1.0), 0.5)
    assert sorted(ranges) == [(0, CHUNK_DEPTH * 2), (CHUNK_DEPTH * 2, CHUNK_DEPTH * 3 + 17)]
    assert sums is not None
    windows = np.lib.stride_tricks.sliding_window_view(image, 5).astype(np.int64)
    assert (sums[0] == errors.astype(np.int64) @ windows * 0.5).all()


@needs_dots
def test_the_lowest_integers_are_the_same():
    """Twice the square of -2**15 is no integer of 32 bits."""
    lowest = np.full((16, 2, 4, 4), -(2.0**15), np.float32)
    given = {"x_format": "fix16f0", "w_format": "fix16f0", "out_format": "fix48f0"}
    result = emu.conv2d(lowest, lowest[:2, :, :2, :2], **given, backend="numba")
    assert (result == 8 * 2.0**30).all()


@pytest.mark.parametrize(
    ("images", "kernels"),
    [((1, 0, 5, 5), (3, 0, 2, 2)), ((20, 0, 5, 5), (3, 0, 2, 2)), ((20, 2, 5, 5), (0, 2, 2, 2))],
)
def test_empty_operands_are_the_same(images: tuple[int, ...], kernels: tuple[int, ...]):
    x, w = np.ones(images, np.float32), np.ones(kernels, np.float32)
    for bias in (None, np.ones(kernels[0], np.float32)):
        convolve("sixteen bits", x, w, "empty", bias=bias, bias_format=None if bias is None else "fix8f4")


def test_gradients_of_kernels_over_no_image_are_zeros():
    assert not gradient("sixteen bits", (0, 2, 5, 5), 3, 1, Sliding(), (2, 2)).any()


def test_offsets_that_change_later_are_other_offsets():
    offsets = np.arange(64)
    pairs = paired(offsets)
    offsets[[5, 6]] = 1000, 1003
    assert paired(offsets).first.size > pairs.first.size


def test_the_tiles_of_pairs_are_among_those_of_the_adders():
    assert set(PAIRS) <= set(ADDERS)
    assert ROWS[PAIRS[1]] == 2 * ROWS[PAIRS[0]]


@needs_dots
@needs_dots
def test_short_sums_empty_lanes_and_few_rows_take_another_way(monkeypatch: pytest.MonkeyPatch, ways: list[str]):
    monkeypatch.undo()
    taken: list[Any] = []
    monkeypatch.setattr(BatchProduct, "write", lambda *given, **more: taken.append(given))

    def convolved(images: int, channels: int) -> int:
        x, w = np.ones((images, channels, 5, 5), np.float32), np.ones((3, channels, 3, 3), np.float32)
        emu.conv2d(x, w, x_format="fix8f4", w_format="fix8f4", out_format="fix8f4", backend="numba")
        return len(taken)

    assert convolved(32, 2) == 0  # 18 products a sum
    assert convolved(20, 3) == 0  # 12 of 32 lanes are empty
    assert convolved(24, 3) > 0
    few, many = Gathered.of(np.ones((1, 1, 40), np.float32)), Gathered.of(np.ones((1, 2, 40), np.float32))
    right = Gathered.of(np.ones((1, 40, 41), np.float32))
    monkeypatch.undo()
    assert not GATHERED_APPLIES(few, Gathered.of(np.ones((1, 40, 40), np.float32)))  # 1 of 16 lanes
    assert GATHERED_APPLIES(many, Gathered.of(np.ones((1, 40, 40), np.float32)))
    assert not GATHERED_APPLIES(many, right)  # more columns than products a sum


def test_without_integer_instructions_nothing_is_paired(ways: list[str]):
    x, w = random_values("fix8f4", (20, 2, 5, 5), 1), random_values("fix8f4", (3, 2, 2, 2), 2)
    with running("generic"):
        emu.conv2d(x, w, x_format="fix8f4", w_format="fix8f4", out_format="fix8f4", backend="numba")
    assert not ways
