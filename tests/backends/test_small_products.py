"""Small exact products, for which everything but the numbers is decided once, give the reference's bits and counts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
from kernel_inputs import random_values
from variants import answers_of, assert_same_everywhere, needs_pairs, running

import emu
from emu.backends.interface import Outcome
from emu.backends.numba import compiling, integers, raw_products, small_products
from emu.testing import assert_bits_equal

pytestmark = needs_pairs


@pytest.fixture
def outcomes(monkeypatch: pytest.MonkeyPatch) -> list[Outcome | None]:
    """What each product was answered: None if the usual way computed it."""
    return answers_of(monkeypatch, "write_small_product", integers)


def multiply(a: Any, b: Any, fmt: str = "fix16f8", **options: Any) -> np.ndarray:
    return emu.matmul(a, b, a_format=fmt, b_format=fmt, **({"out_format": "fix16f8"} | options))


@pytest.mark.parametrize("fmt", ["fix8f4", "fix16f8"])
def test_a_kept_product_takes_other_numbers_addends_and_modes(fmt: str, outcomes: list[Outcome | None]):
    """Operands of the same shapes, one after the other: nothing of an earlier product is left over."""
    for seed, (scale, addend) in enumerate(((1.0, None), (2.0**-4, (9, 1)), (1.0, (21,)), (0.0, (9, 21)))):
        a, b = random_values(fmt, (9, 37), seed) * scale, random_values(fmt, (37, 21), seed + 50)
        a, b = (emu.quantize(x, fmt) for x in (a, b))
        third = {} if addend is None else {"addend": random_values("fix12f6", addend, seed), "addend_format": "fix12f6"}
        for mode in ({}, {"rounding": "stochastic", "seed": seed}, {"out_format": "fp16"}, {"out_format": "fix40f9"}):
            assert_same_everywhere(
                partial(multiply, a, b, fmt, **third, **mode), mode.get("out_format", "fix16f8"), mode
            )
    assert sum(outcome is not None for outcome in outcomes) >= 16


@pytest.mark.parametrize("formats", [("fix16f8", "fix8f4"), ("fix8f4", "fix16f12"), ("ufix15f3", "fix4f1")], ids=str)
def test_operands_of_two_formats_have_scales_of_their_own(formats: tuple[str, str]):
    a, b = random_values(formats[0], (7, 30), 1), random_values(formats[1], (30, 40), 2)
    names = {"a_format": formats[0], "b_format": formats[1], "out_format": "fix32f10"}
    assert_same_everywhere(lambda **where: emu.matmul(a, b, **names, **where), "fix32f10")


def test_extremes_take_two_passes_over_bytes_and_small_numbers_of_the_same_shapes_one():
    least, ones = np.full((5, 40), -128.0), np.full((5, 40), 1.0)
    for a in (ones, least, ones, least * 2.0**-8):
        assert_same_everywhere(partial(multiply, a, least.T, out_format="fix48f8"), "fix48f8")


def test_transposed_operands_are_read_where_they_lie(outcomes: list[Outcome | None]):
    a, b = random_values("fix8f4", (13, 6), 1), random_values("fix8f4", (13, 35), 2)
    c = np.asfortranarray(random_values("fix8f4", (35, 13), 3))
    for left, right in ((a.T, b), (b.T, a), (a.T, c.T), (c, a), (a.T, np.ascontiguousarray(c.T))):
        assert_same_everywhere(partial(multiply, left, right, "fix8f4"), "fix16f8", left.strides)
    # with one thread; small products are left to the usual way where work is split
    assert sum(outcome is not None for outcome in outcomes) == 5


def test_other_products_take_the_usual_way(outcomes: list[Outcome | None]):
    a, b = random_values("fix8f4", (6, 8), 1), random_values("fix8f4", (8, 10), 2)
    stack = np.stack([a, a])
    bits = np.zeros((6, 10), np.int64)
    with running("alone"):
        for left, right, options in (
            (stack, b, {}),
            (a, np.stack([b, b]), {}),
            (a, b[:, :1], {}),
            (a[:, ::2], b[::2], {"check": False}),
            (a[:0], b, {}),
            (a[:, :0], b[:0], {}),
            (a, b, {"rounding": "stochastic", "rbits": bits}),
        ):
            expected = multiply(left, right, "fix8f4", backend="reference", **options)
            assert_bits_equal(multiply(left, right, "fix8f4", backend="numba", **options), expected, "fix16f8")
        assert outcomes
        assert all(outcome is None for outcome in outcomes)


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "is_small"),
    [(2, 65535, 2, True), (2, 65536, 2, False), (512, 2, 255, True), (512, 2, 256, False), (2, 256, 512, False)],
)
def test_products_are_small_up_to_their_limit(
    rows: int, depth: int, columns: int, is_small: bool, outcomes: list[Outcome | None]
):
    """The limit is a number of elements: of an operand, or of the result."""
    a, b = random_values("fix8f4", (rows, depth), 1), random_values("fix8f4", (depth, columns), 2)
    expected = multiply(a, b, "fix8f4", backend="reference")
    with running("alone"):
        assert_bits_equal(multiply(a, b, "fix8f4", backend="numba"), expected, "fix16f8")
    assert [outcome is not None for outcome in outcomes] == [is_small]


@pytest.mark.parametrize(("rows", "is_small"), [(61, True), (62, False)])
def test_rows_that_are_worth_a_second_thread_are_left_to_two(
    rows: int, is_small: bool, outcomes: list[Outcome | None], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("EMU_THREADS", "2")
    # 31.99 rows of so many multiply-adds are a grain: two of 31 are worth two threads
    monkeypatch.setattr(raw_products, "GRAIN_MACS", 32 * 100 * 100)
    monkeypatch.setattr(raw_products, "GRAIN_RESULTS", 1 << 40)
    compiling.thread_count.cache_clear()
    small_products._PRODUCTS.clear()
    a, b = random_values("fix8f4", (rows, 100), 1), random_values("fix8f4", (100, 100), 2)
    try:
        multiply(a, b, "fix8f4", backend="numba")
    finally:
        compiling.thread_count.cache_clear()
        small_products._PRODUCTS.clear()
    assert [outcome is not None for outcome in outcomes] == [is_small]


@pytest.mark.parametrize(("frac_bits", "is_small"), [(127, True), (128, False), (140, False)])
def test_scales_beyond_float32_take_the_usual_way(frac_bits: int, is_small: bool, outcomes: list[Outcome | None]):
    """2**128 is no float32; 2**127 is the largest power of two that is."""
    fmt, out = f"fix8f{frac_bits}", f"fix16f{2 * frac_bits}"
    a, b = random_values(fmt, (3, 5), 1), random_values(fmt, (5, 7), 2)
    assert a.dtype == np.float32
    assert_same_everywhere(lambda **where: multiply(a, b, fmt, out_format=out, **where), out)
    assert any(outcome is not None for outcome in outcomes) is is_small


def test_threads_multiply_at_once_in_rooms_of_their_own():
    rng = np.random.default_rng(1)
    left = [rng.integers(-99, 99, (40, 50)) / 2**8 for _ in range(8)]
    right = rng.integers(-99, 99, (50, 60)) / 2**8
    expected = [multiply(x, right, backend="reference") for x in left]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            for actual, same in zip(
                pool.map(lambda x: multiply(x, right, backend="numba"), left), expected, strict=True
            ):
                assert_bits_equal(actual, same, "fix16f8")


def test_no_more_products_are_kept_than_their_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(small_products, "MOST_PRODUCTS", 3)
    with running("alone"):
        for size in range(1, 9):
            multiply(np.ones((size, 2)), np.ones((2, 4)), backend="numba")
            assert 1 <= len(small_products._PRODUCTS) <= 3
