"""quantize and elementwise arithmetic: every backend returns the reference's bits, flags and registers."""

# ruff: noqa: B023 - every call happens before its loop moves on
from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from agreement import assert_same
from fast_suite import most_are_slow
from kernel_inputs import random_values, reals
from variants import running

import emu
from emu.datapath import Rounding
from emu.datapath.overflow import FIXED_RULES, FLOAT_RULES
from emu.formats import Fixed

FIXED = [
    "fix8f4", "fix16f8", "fix16f20", "fix8f-3", "ufix8f3", "ufix16f16", "fix1f0", "ufix1f0", "fix2f1", "fix24f12",
    "fix32f28", "fix53f10", "fix54f0", "fix64f8", "ufix64f32", "fix40f-30", "fix8f200", "fix8f-200", "fix8f-940",
]  # fmt: skip
FLOATS = [
    "fp16", "bf16", "tf32", "fp32", "fp64", "fp8_e4m3", "fp8_e5m2", "e4m3", "e4m3fnuz", "e5m2fnuz",
    "e2m1 finite nans=none", "e3m2 finite nans=none", "fp16 ftz", "bf16 daz", "fp8_e5m2 no-subnormals",
    "e8m0 finite nans=top", "e5m0 finite nans=none ftz", "e2m1 bias=-2", "e5m10 bias=-900", "e11m30",
    "fp8_e8m0", "ue5m3 nans=top bias=16", "ue4m3 finite nans=none", "ue4m2 finite ftz", "ue8m23", "e1m6",
    "ue3m4 finite nans=none no-zero", "e0m7 finite nans=negative_zero",
]  # fmt: skip
#: The others would make the compiler work for each of their modes and rules.
FAST = [
    "fix16f8", "ufix8f3", "fix1f0", "fix64f8", "fix8f-940",
    "bf16", "fp64", "fp8_e4m3", "e2m1 finite nans=none", "bf16 daz", "e8m0 finite nans=top",
    "fp8_e8m0", "ue5m3 nans=top bias=16",
]  # fmt: skip


def slow_if(formats: list[str], *slow: str) -> list[Any]:
    """Return parameters; those that would make the compiler work for each of their modes and rules are marked slow."""
    return [pytest.param(fmt, marks=pytest.mark.slow) if fmt in slow else fmt for fmt in formats]


def rules_of(fmt: str) -> tuple[emu.Overflow, ...]:
    return FIXED_RULES if isinstance(emu.parse(fmt), Fixed) else FLOAT_RULES


def compare_quantize(fmt: str, dtype: type, rounding: Rounding, overflow: emu.Overflow, n: int) -> None:
    x = reals(fmt, n, 1, dtype)
    options = {"rounding": rounding, "overflow": overflow, "seed": 5, "stream": 9, "step": 3}
    assert_same(lambda **where: emu.quantize(x, fmt, **options, **where), fmt, (fmt, dtype, options))


@most_are_slow("fmt", FIXED + FLOATS, keep=FAST)
def test_quantize_is_the_same_in_every_mode_and_under_every_rule(fmt: str):
    """Every pair of mode and rule; float32 and float64 in turn."""
    for i, (rounding, overflow) in enumerate(product(Rounding, rules_of(fmt))):
        compare_quantize(fmt, (np.float32, np.float64)[(i + i // 4) % 2], rounding, overflow, 24)


@pytest.mark.slow
@pytest.mark.parametrize("fmt", FIXED + FLOATS)
def test_quantize_of_both_dtypes_is_the_same_in_every_mode_and_under_every_rule(fmt: str):
    for dtype, rounding, overflow in product((np.float32, np.float64), Rounding, rules_of(fmt)):
        compare_quantize(fmt, dtype, rounding, overflow, 2000)


@most_are_slow("n_rbits", [1, 2, 7, 8, 9, 13, 16, 17, 24, 31, 32], keep=[1, 8, 17, 32])
def test_stochastic_rounding_is_the_same_for_every_number_of_random_bits(n_rbits: int):
    for fmt in ("fix16f8", "ufix8f3", "fp16", "fp8_e4m3", "fix64f40", "fp32"):
        x = reals(fmt, 40, 2)

        def call(**where):
            return emu.quantize(
                x, fmt, rounding="stochastic", n_rbits=n_rbits, seed=2**63 + 1, stream=2**32 - 1, step=2**31, **where
            )

        assert_same(call, fmt, (fmt, n_rbits))


def test_operands_that_carry_raws_or_flush_subnormals_are_the_same():
    for source in ("fix64f8", "ufix64f70", "fix60f-3", "fp16 daz", "fix40f30"):
        x = random_values(source, (200,), 3)
        for fmt in ("fix16f8", "ufix8f0", "fp16", "bf16", "fp64", "fix64f0"):
            for rounding in ("nearest_even", "stochastic", "floor"):
                assert_same(
                    lambda **where: emu.quantize(x, fmt, x_format=source, rounding=rounding, **where),
                    fmt,
                    (source, fmt),
                )


BINARY = ("add", "subtract", "multiply", "divide")
ELEMENTWISE = [
    "fix16f8",
    "ufix8f4",
    "fix8f-2",
    "fix48f30",
    "fix8f-900",
    "fp16",
    "fp8_e4m3",
    "bf16 ftz",
    "fp32",
    "e4m3fnuz",
    "e5m10 bias=-900",
]


@most_are_slow("fmt", ELEMENTWISE, keep=["fix16f8", "fix48f30", "fp16", "bf16 ftz", "e5m10 bias=-900"])
def test_plain_loops_compute_elementwise_operations_in_every_mode_and_under_every_rule(fmt: str):
    with running("generic"):
        compare_elementwise(fmt)


@pytest.mark.slow
@pytest.mark.parametrize("fmt", ELEMENTWISE)
def test_elementwise_operations_are_the_same_in_every_mode_and_under_every_rule(fmt: str):
    compare_elementwise(fmt)


def compare_elementwise(fmt: str) -> None:
    a = reals(fmt, 16, 4, np.float32)
    rng = np.random.default_rng(5)
    b, c = rng.permutation(a), rng.permutation(a)
    calls = [
        *((getattr(emu, name), (a, b)) for name in ("multiply", "add", "divide", "subtract")),
        (emu.fma, (a, b, c)),
        (emu.sqrt, (a,)),
    ]
    for i, (rounding, overflow) in enumerate(product(Rounding, rules_of(fmt))):
        options = {"out_format": fmt, "rounding": rounding, "overflow": overflow, "seed": 1}
        for operation, operands in calls if overflow is rules_of(fmt)[0] else calls[i % 2 :: 2]:
            assert_same(lambda **where: operation(*operands, **options, **where), fmt, (operation.__name__, options))


@pytest.mark.parametrize(
    "a_format",
    slow_if(
        ["fp32", "fix32f28", "fix48f40", "fix64f60", "fp64", "fp16 daz"], "fp32", "fix32f28", "fix48f40", "fp16 daz"
    ),
)
def test_wide_and_flushing_operands_are_the_same(a_format: str):
    a, b, c = (
        random_values(a_format, (150,), 6),
        random_values("fix32f20", (150,), 7),
        random_values("fix40f38", (150,), 8),
    )
    for fmt in ("fix32f28", "fp32", "fix16f10", "fp64"):
        for rounding in ("nearest_even", "ceil", "to_odd", "stochastic"):
            formats = {"a_format": a_format, "b_format": "fix32f20", "out_format": fmt, "rounding": rounding}
            for name in BINARY:
                assert_same(lambda **where: getattr(emu, name)(a, b, **formats, **where), fmt, (name, formats))
            assert_same(
                lambda **where: emu.fma(a, b, c, c_format="fix40f38", **formats, **where), fmt, ("fma", formats)
            )


@pytest.mark.parametrize(
    "fmt", slow_if(["fp64", "fp32", "fix16f8", "fix64f0", "fix8f-900", "e11m20"], "fp32", "fix64f0", "e11m20")
)
def test_floats_at_the_ends_of_float64_are_the_same(fmt: str):
    """Where error-free transformations would overflow or lose bits, a fast path must stand back."""
    rng = np.random.default_rng(9)
    big = np.ldexp(rng.standard_normal(200), rng.integers(900, 1020, 200))
    small = np.ldexp(rng.standard_normal(200), rng.integers(-1074, -900, 200))
    for a, b in ((big, big), (small, small), (big, small), (small, big)):
        for rounding in ("nearest_even", "ceil", "stochastic"):
            options = {"out_format": fmt, "rounding": rounding}
            for name in BINARY:
                assert_same(lambda **where: getattr(emu, name)(a, b, **options, **where), fmt, (name, options))
            assert_same(
                lambda **where: emu.fma(a, b, rng.permutation(a) * 0 + a[::-1], **options, **where), fmt, options
            )
            assert_same(lambda **where: emu.sqrt(np.abs(a), **options, **where), fmt, options)
            assert_same(lambda **where: emu.quantize(a, fmt, rounding=rounding, **where), fmt, options)
