"""Exact sums beyond float64, compiled: against rational numbers, and the reference's flags and registers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from agreement import assert_same
from kernel_inputs import random_values
from mac_model import Dot, Number, write

import emu
from emu import Mac
from emu.backends.reference.definition import Definition
from emu.testing import assert_bits_equal
from tests.products import product

OPERANDS = [
    ("fp16", "fp16", "fp16"),
    ("bf16", "bf16", "fp32"),
    ("fp32", "fp32", None),
    ("fp8_e4m3", "fp8_e5m2", "bf16"),
    ("e7m40", "e7m45", "fp16"),  # products of 87 bits
    ("e7m40", "fp16", None),
    ("fp16", "e7m40", None),
    ("fix32f20", "fix32f28", "fix64f40"),
    ("fix54f30", "fix54f-2", "ufix64f3"),
    ("fix40f30", "fix20f10", None),
    ("fp16", "fix16f20", "fix12f3"),
]
STAGES = [
    ("fp32", "nearest_even", None),
    ("fix32f10", "to_odd", "wrap"),
    ("fp16", "floor", "satfinite"),
    ("fp16", "nearest_even", "satpropagate"),
    ("fix24f20", "stochastic", "wrap"),
    ("ufix16f4", "nearest_away", "saturate"),
]


def compiled(a: Any, b: Any, formats: dict[str, Any], **where: Any) -> np.ndarray:
    """Return a product that the compiled backend computes without the reference's help."""
    if where.get("backend") == "reference":
        return product(a, b, **formats, **where)
    with patch.object(Definition, "compute", side_effect=AssertionError("left to the reference")):
        return product(a, b, **formats, **where)


def contents(a: np.ndarray, b: np.ndarray, c: Any, names: tuple[Any, ...]) -> list[Number]:
    """Return exact sums; raws as the numbers they stand for."""
    fc = emu.parse(names[2]) if names[2] else None
    if fc is not None and fc.carries_raws:
        sums = contents(a, b, None, (*names[:2], None))
        scaled = [int(x) * Fraction(2) ** -fc.frac_bits for x in c.reshape(-1)]
        totals = [s.signed + x if s.is_finite else s for s, x in zip(sums, scaled, strict=True)]
        return [t if isinstance(t, Number) else Number(t < 0, abs(t)) for t in totals]
    rows = [[(float(x) for x in row) for row in batch] for batch in a]
    assert len(rows) == 1
    return [
        Dot(Mac(), 0).run(list(a[0, i]), list(b[0, :, j]), None if c is None else float(c[0, i, j]))
        for i in range(a.shape[1])
        for j in range(b.shape[2])
    ]


@pytest.mark.parametrize("names", OPERANDS, ids=str)
def test_exact_sums_are_rounded_once(names: tuple[str, str, str | None]):
    for seed, anything in ((1, True), (2, False)):
        a, b = (
            random_values(f, s, seed, anything=anything) for f, s in zip(names, ((1, 4, 9), (1, 9, 5)), strict=False)
        )
        c = random_values(names[2], (1, 4, 5), seed, anything=anything) if names[2] else None
        sums = contents(a, b, c, names)
        for out, rounding, overflow in STAGES:
            formats = {"a_format": names[0], "b_format": names[1], "addend": c, "addend_format": names[2]}
            formats |= {"out_format": out, "rounding": rounding, "overflow": overflow, "seed": 2**40 + 7, "stream": 11}
            y = assert_same(lambda **where: compiled(a, b, formats, **where), out, (names, out))  # noqa: B023
            dots = [Dot(Mac(rounding=rounding), i, 2**40 + 7, 11) for i in range(20)]
            written = [
                write(x, emu.parse(out), rounding, overflow, d.bits(0))[0] for x, d in zip(sums, dots, strict=True)
            ]
            assert_bits_equal(y.reshape(-1), np.array([x.to_float() for x in written]), out)


@pytest.mark.parametrize("divisor", [2, 3, 1000003, 2**24 - 1])
@pytest.mark.parametrize(
    "names", [("fp16", "fp16", "fp16"), ("fix32f20", "fix32f28", None), ("fix8f4", "fix8f4", None)]
)
def test_sums_are_divided_once(names: tuple[str, str, str | None], divisor: int):
    a, b = (random_values(f, s, 3, anything=False) for f, s in zip(names, ((1, 4, 9), (1, 9, 5)), strict=False))
    a[0, 0] = 0
    sums = contents(a, b, None, names)
    for out, rounding, overflow in STAGES:
        formats = {"a_format": names[0], "b_format": names[1], "out_format": out, "divisor": divisor}
        formats |= {"rounding": rounding, "overflow": overflow}
        y = assert_same(lambda **where: compiled(a, b, formats, **where), out, (names, out))  # noqa: B023
        dots = [Dot(Mac(rounding=rounding), i) for i in range(20)]
        quotients = [Number(x.negative, x.magnitude / divisor) for x in sums]
        written = [
            write(q, emu.parse(out), rounding, overflow, d.bits(0))[0] for q, d in zip(quotients, dots, strict=True)
        ]
        assert_bits_equal(y.reshape(-1), np.array([x.to_float() for x in written]), out)


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ([np.inf, 1.0], np.inf),
        ([np.inf, -np.inf], np.nan),
        ([-np.inf, -np.inf, 65504.0], -np.inf),
        ([np.nan, np.inf], np.nan),
        ([2.0**15, 2.0**-24, -(2.0**15)], 2.0**-24),
        ([2.0**-24, -(2.0**-24)], 0.0),
        ([-0.0, -0.0], 0.0),
        ([], 0.0),
    ],
)
def test_infinities_cancellation_and_zeros(terms: list[float], expected: float):
    formats = {"a_format": "fp16", "b_format": "fp16", "out_format": "fp32", "rounding": "floor"}
    a = np.array(terms, np.float32).reshape(1, 1, -1)
    y = assert_same(lambda **where: compiled(a, np.ones((1, len(terms), 1), np.float32), formats, **where), "fp32")
    assert_bits_equal(y, np.float32(expected).reshape(1, 1, 1), "fp32")


def test_zero_times_infinity_is_new_even_where_operands_are_split():
    flags = emu.Flags()
    formats = {"a_format": "e7m40", "b_format": "e7m40", "out_format": "fp16", "flags": flags, "backend": "numba"}
    a, b = np.array([[[0.0, 1.0], [1 + 2.0**-40, 0.0]]]), np.array([[[np.inf], [np.nan]]])
    assert_bits_equal(compiled(a, b, formats).reshape(-1), np.float32([np.nan, np.nan]), "fp16")
    assert flags.invalid == 0  # an operand was NaN
    y = compiled(a[:, :, :1], b[:, :1], formats)
    assert_bits_equal(y.reshape(-1), np.float32([np.nan, np.inf]), "fp16")
    assert flags.invalid == 1


def test_a_sum_of_very_many_terms_keeps_every_bit():
    depth = 70_000
    a = np.full((1, 1, depth), 1 + 2.0**-10, np.float32)
    b = np.full((1, depth, 1), 1 + 2.0**-10, np.float32)
    a[0, 0, 0], b[0, 0, 0] = 2.0**-24, 2.0**-24
    formats = {"a_format": "fp16", "b_format": "fp16", "out_format": "fix48f-1", "rounding": "ceil"}
    exact = (depth - 1) * (1 + Fraction(1, 1024)) ** 2 + Fraction(1, 2**48)
    y = assert_same(lambda **where: compiled(a, b, formats, **where), "fix48f-1")
    assert y.item() == -(-exact // 2) * 2
    formats |= {"out_format": "fix48f20"}
    y = compiled(a, b, formats, backend="numba")
    assert Fraction(y.item()) == -(-exact * 2**20 // 1) / Fraction(2**20)


def test_formats_that_float64_does_not_decide_are_declined_with_a_reason():
    for formats, mac, reason in (
        (("fp16", "fp16", "fix54f20"), Mac(), "output stage looks at more bits"),
        (("fp16", "fp16", "fp64"), Mac(), "written format lies outside"),
        (("fp64", "fp16", "fp16"), Mac(), "too close to the ends of float64"),
        (("fix64f8", "fix16f8", "fix16f8"), Mac(), "operands of more bits than float64 holds"),
        (("fp16", "fp16", "fp16"), Mac("fp64"), "rounding of products is not decided"),
        (("fp16", "fp16", "fp16"), Mac(accumulator="fp64", order="pairwise"), "lies outside"),
    ):
        names = dict(zip(("a_format", "b_format", "out_format"), formats, strict=True))
        plan = emu.explain(emu.matmul, np.zeros((2, 2)), np.zeros((2, 2)), mac=mac, backend="numba", **names)
        assert reason in plan.fallback
