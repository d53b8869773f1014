"""What a multiply-accumulate unit holds, against a model in rational numbers: orders, zeros, limits, draws."""

from __future__ import annotations

import tracemalloc
from itertools import product

import numpy as np
import pytest
from agreement import OTHERS
from fast_suite import most_are_slow
from kernel_inputs import random_values
from mac_model import Dot

import emu
from emu import Mac
from emu.datapath import Rounding
from emu.testing import assert_bits_equal

FLOATS = ["fp16", "fp8_e4m3", "fp8_e5m2 ftz", "e4m3fnuz", "e3m2 finite nans=none", "fp32"]
RULES = ("saturate", "saturate_symmetric", "saturate_zero", "wrap")
FIXED = ["fix12f6", "fix10f-1", "ufix9f3", "fix16f12"]
#: What is written in fp64 is left to the reference, and sums that wrap although they move exact results.
UNWRITTEN = "the written format lies outside what float64 loops round"
UNMOVED = "a format or a mode of the unit lies outside what float64 loops round"
ORDERS = ["sequential", "pairwise", "lanes(1)", "lanes(3)", "lanes(8)"]


def check(mac: Mac, operands: str, out: str, addend_format: str | None, depth: int, seed: int) -> None:
    a, b = random_values(operands, (3, depth), seed), random_values(operands, (depth, 5), seed + 1)
    a[0], b[:, 0] = np.where(np.isfinite(a[0]), a[0], 1), np.where(np.isfinite(b[:, 0]), b[:, 0], 1)
    c = random_values(addend_format, (3, 5), seed + 2) if addend_format else None
    where = {"seed": 2**40 + 7, "stream": 11, "step": 5}
    dots = [Dot(mac, index, **where) for index in range(15)]
    contents = [
        dot.run(
            list(a[dot.index // 5]), list(b[:, dot.index % 5]), None if c is None else c[dot.index // 5, dot.index % 5]
        )
        for dot in dots
    ]
    formats = {"a_format": operands, "b_format": operands, "addend_format": addend_format, "out_format": out}
    fallback = dict.fromkeys(("reference", *OTHERS), "") | ({"numba": UNWRITTEN} if out == "fp64" else {})
    if mac.rounding.moves_exact and mac.overflow is emu.Overflow.WRAP:
        fallback["numba"] = UNMOVED
    for backend in fallback:
        flags = emu.Flags()
        actual = emu.matmul(a, b, addend=c, mac=mac, flags=flags, backend=backend, **formats, **where)
        assert_bits_equal(actual, np.array([x.to_float() for x in contents]).reshape(3, 5), out)
        assert flags.accumulator_overflow == sum(dot.touched for dot in dots)
        assert emu.explain(emu.matmul, a, b, mac=mac, backend=backend, **formats).fallback == fallback[backend]


def out_of(fmt: str) -> str:
    """A format that holds every content of the accumulator unchanged."""
    if fmt == "exact":
        return "fp64"
    return fmt if isinstance(emu.parse(fmt), emu.Fixed) else "fp32"


def modes_of(*place: str) -> tuple[Rounding, ...]:
    """Half of the modes, the other half for the neighbouring order: the slow test takes them all."""
    start = (FLOATS + FIXED).index(place[0]) + ORDERS.index(place[1])
    return tuple(Rounding)[start % 2 :: 2]


def check_float(fmt: str, order: str, rounding: Rounding, overflow: str | None) -> None:
    mac = Mac(accumulator=fmt, order=order, rounding=rounding, overflow=overflow)
    check(mac, "fp8_e5m2", out_of(fmt), None if rounding.number % 3 == 0 else "fp16", 5, 1)


def check_fixed(fmt: str, order: str, rounding: Rounding, overflow: str) -> None:
    mac = Mac(accumulator=fmt, order=order, rounding=rounding, overflow=overflow)
    check(mac, "fix6f3", fmt, "fix12f5", 5, 2)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("fmt", FLOATS)
def test_float_accumulators_add_in_their_order(fmt: str, order: str):
    for i, rounding in enumerate(modes_of(fmt, order)):
        check_float(fmt, order, rounding, (None, "satfinite", "satpropagate")[i % 3])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("fmt", FIXED)
def test_fixed_accumulators_add_in_their_order(fmt: str, order: str):
    for i, rounding in enumerate(modes_of(fmt, order)):
        check_fixed(fmt, order, rounding, RULES[(i + ORDERS.index(order)) % 4])


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
def test_accumulators_add_in_their_order_in_every_mode_and_under_every_rule(order: str):
    for rounding in Rounding:
        for fmt, overflow in product(FLOATS, (None, "satfinite", "satpropagate")):
            check_float(fmt, order, rounding, overflow)
        for fmt, overflow in product(FIXED, RULES):
            check_fixed(fmt, order, rounding, overflow)


@pytest.mark.parametrize("order", ["sequential", "pairwise", "lanes(2)"])
@pytest.mark.parametrize(
    ("product", "accumulator"),
    [
        ("fp16", "fp16"),
        ("fp8_e4m3", "fp16"),
        ("bf16", "exact"),
        ("fix8f3", "fix8f3"),
        ("fix8f3", "fp16"),
        ("fp16", "fix14f4"),
    ],
)
def test_products_are_rounded_before_they_are_added(product: str, accumulator: str, order: str):
    for rounding in ("nearest_even", "floor", "to_odd", "stochastic"):
        mac = Mac(product, accumulator, order, rounding)
        for addend_format in (None, "fp16"):
            check(mac, "fp8_e4m3", out_of(accumulator), addend_format, 5, 3)


@pytest.mark.parametrize("rounding", [mode for mode in Rounding if mode.moves_exact])
@pytest.mark.parametrize("order", ORDERS)
def test_sums_that_move_although_they_are_exact_are_the_same_whatever_is_missing(order: str, rounding: Rounding):
    """Lanes without a product, no products at all, zeros among them; R moves what an exact sum would leave alone."""
    for depth in (0, 1, 3):
        for accumulator, products in (("fix12f6", "exact"), ("fix12f6", "fix8f3"), ("fp16", "exact")):
            for addend_format in (None, "fix6f3"):
                mac = Mac(products, accumulator, order, rounding)
                check(mac, "fix6f3", out_of(accumulator), addend_format, depth, 4)


def test_a_saturating_product_is_not_an_accumulator_that_overflows(backend: str):
    flags = emu.Flags()
    formats = {"a_format": "fix8f4", "b_format": "fix8f4", "out_format": "fix8f4", "flags": flags, "backend": backend}
    mac = Mac(product="fix8f4", accumulator="fix8f4")
    assert emu.matmul([[3.0]], [[3.0]], mac=mac, **formats).item() == 7.9375
    assert flags.accumulator_overflow == 0
    emu.matmul([[3.0, 1.0]], [[3.0], [1.0]], mac=mac, **formats)
    assert flags.accumulator_overflow == 1


@pytest.mark.parametrize(
    ("rounding", "terms", "expected"),
    [
        ("nearest_even", [(-0.0, 1.0)], 0.0),  # +0 + -0
        ("floor", [(-0.0, 1.0)], -0.0),
        ("nearest_even", [(1.0, 1.0), (-1.0, 1.0)], 0.0),
        ("floor", [(1.0, 1.0), (-1.0, 1.0)], -0.0),
        ("nearest_even", [(-(2.0**-24), 0.25)], -0.0),  # a nonzero sum that rounds to 0 keeps its sign
        ("toward_zero", [(-(2.0**-24), 0.25)], -0.0),
        ("ceil", [(-(2.0**-24), 0.25)], -0.0),
        ("floor", [(-(2.0**-24), 0.25)], -(2.0**-24)),
    ],
)
def test_zeros_of_a_float_accumulator_have_their_signs(rounding: str, terms: list, expected: float, backend: str):
    a, b = (np.array(x, np.float32) for x in zip(*terms, strict=True))
    formats = {"a_format": "fp16", "b_format": "fp16", "out_format": "fp16", "backend": backend}
    assert_bits_equal(
        emu.matmul(a, b, mac=Mac(accumulator="fp16", rounding=rounding), **formats), np.float32(expected), "fp16"
    )
    exact = emu.matmul(a, b, mac=Mac(), rounding="toward_zero", **formats)
    assert_bits_equal(exact, np.float32(-0.0 if sum(x * y for x, y in terms) < 0 else 0.0), "fp16")


def test_the_zero_of_an_exact_accumulator_is_positive_even_under_floor(backend: str):
    formats = {"a_format": "fp16", "b_format": "fp16", "backend": backend, "rounding": "floor"}
    for a, b in (([-0.0], [1.0]), ([1.0, -1.0], [1.0, 1.0]), ([-0.0, -0.0], [0.0, 5.0])):
        for addend in (None, np.float32(-0.0)):
            y = emu.matmul(a, b, out_format="fp16", addend=addend, addend_format="fp16", **formats)
            assert_bits_equal(y, np.float32(0.0), "fp16")


def test_an_addend_of_any_width_is_rounded_once(backend: str):
    """2**24 + 1 + 2**-52 lies above the tie between 2**24 and 2**24 + 2; float64 would drop the 2**-52 first."""
    formats = {"a_format": "fp16", "b_format": "fp16", "out_format": "fp32", "backend": backend}
    for order in ("pairwise", "lanes(2)"):
        mac = Mac(accumulator="fp32", order=order)
        y = emu.matmul([[2.0**12]], [[2.0**12]], addend=[1 + 2.0**-52], addend_format="fp64", mac=mac, **formats)
        assert y.item() == 2**24 + 2
    for accumulator in ("fp32", "fp16"):
        y = emu.matmul(
            [[1.0]],
            [[0.0]],
            addend=np.array([256]),
            addend_format="fix64f8",
            mac=Mac(accumulator=accumulator),
            **formats,
        )
        assert y.item() == 1.0


@most_are_slow(
    ("depth", "lanes"),
    product([0, 1, 3, 4], [3, 4, 5, 8, 9, 33, 100]),
    keep=[(0, 3), (0, 8), (1, 4), (1, 100), (3, 5), (3, 9), (4, 8), (4, 33)],
)
def test_lanes_without_a_product_are_zeros_that_are_joined(lanes: int, depth: int):
    """Each join has its draw, the addend the last one."""
    for rounding in ("floor", "nearest_even", "stochastic"):
        mac = Mac(accumulator="fp8_e4m3", order=f"lanes({lanes})", rounding=rounding)
        for addend_format in (None, "fp16"):
            check(mac, "fp8_e5m2", out_of("fp8_e4m3"), addend_format, depth, lanes)


@pytest.mark.parametrize("lanes", [2, 3, 2**20])
def test_a_negative_zero_stays_one_under_floor_whatever_zeros_it_meets(lanes: int, backend: str):
    a, b = np.float32([[-0.0, -0.0]]), np.ones((2, 1), np.float32)
    formats = {"a_format": "fp16", "b_format": "fp16", "out_format": "fp16", "backend": backend}
    for rounding in ("floor", "nearest_even"):
        mac = Mac(accumulator="fp16", order=f"lanes({lanes})", rounding=rounding)
        assert np.signbit(emu.matmul(a, b, mac=mac, **formats)).item() == (rounding == "floor")


def test_lanes_far_beyond_the_products_take_no_room(backend: str):
    a, b = np.float32([[1.0, 2.0, -3.0]]), np.float32([[1.0], [2.0], [1.0]])
    options = {"a_format": "fp16", "b_format": "fp16", "out_format": "fp16", "backend": backend}
    # kernels are compiled before memory is counted
    emu.matmul(a, b, mac=Mac(accumulator="fp16", order="lanes(4)"), **options)
    tracemalloc.start()
    for lanes in (4, 2**31):
        assert emu.matmul(a, b, mac=Mac(accumulator="fp16", order=f"lanes({lanes})"), **options).item() == 2.0
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20
