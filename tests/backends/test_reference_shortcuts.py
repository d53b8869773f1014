"""The reference's shortcuts against its general definition, and its exact sums against big integers and fractions."""

# ruff: noqa: B023 - every call happens before its loop moves on
from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from kernel_inputs import random_values, reals

import emu
from emu import Mac
from emu.backends.reference import accumulators, arithmetic
from emu.datapath import Rounding
from emu.testing import assert_bits_equal


def counted(call, **options):
    register, flags = emu.StatisticsRegister(), emu.Flags()
    return call(backend="reference", register=register, flags=flags, **options), register, flags


def assert_same_without(
    monkeypatch: pytest.MonkeyPatch, call, fmt: str, shortcuts: list[tuple[object, str, object]]
) -> None:
    """Run a call with shortcuts and without."""
    short = counted(call)
    with monkeypatch.context() as patch:
        for owner, name, replacement in shortcuts:
            patch.setattr(owner, name, replacement)
        general = counted(call)
    assert_bits_equal(short[0], general[0], fmt)
    assert short[1:] == general[1:]


GENERAL = [
    (accumulators, "choose", accumulators.Rounded),
    (accumulators, "decides_in_float64", lambda *_: False),
    (arithmetic, "_through_float64", lambda *_: None),
]
UNITS = [
    (accumulators.NativeFloat32, "fp32", Mac("fp32", "fp32"), "fp32"),
    (accumulators.NativeFloat32, "fp16", Mac(accumulator="fp32"), "fp16"),
    (accumulators.NativeFloat32, "bf16", Mac(accumulator="fp32"), "fp32"),
    (accumulators.NativeFloat32, "bf16 daz", Mac(accumulator="fp32", order="pairwise"), "fp16"),
    (accumulators.NativeFloat32, "e8m2", Mac(accumulator="fp32", order="lanes(4)"), "fp32"),
    (accumulators.NativeFloat32, "fp16 no-subnormals", Mac("fp32", "fp32", "pairwise"), "bf16"),
    (accumulators.NativeFloat16, "fp16", Mac(accumulator="fp16"), "fp32"),
    (accumulators.NativeFloat16, "fp16 daz", Mac(accumulator="fp16", order="lanes(3)"), "fp16"),
    (accumulators.Integer, "fix8f4", Mac(accumulator="fix17f8"), "fix16f8"),
    (accumulators.Integer, "fix8f4", Mac(accumulator="fix18f9", overflow="wrap"), "fix16f8"),
    (accumulators.Integer, "fix16f8", Mac(accumulator="ufix40f20", overflow="saturate_zero"), "ufix16f8"),
    (
        accumulators.Integer,
        "fix16f8",
        Mac(accumulator="fix33f16", order="pairwise", overflow="saturate_symmetric"),
        "fix16f8",
    ),
    (accumulators.Rounded, "fp8_e4m3", Mac(accumulator="bf16"), "fp16"),
    (accumulators.Rounded, "fix16f8", Mac(accumulator="fix20f10", rounding="nearest_up"), "fix24f12"),
    (accumulators.Rounded, "fp32", Mac(accumulator="fp32", rounding="stochastic"), "fp32"),
]


@pytest.mark.parametrize(("unit", "fmt", "mac", "addend"), UNITS, ids=lambda x: getattr(x, "__name__", str(x)))
def test_a_shortcut_of_an_accumulator_is_the_definition(
    monkeypatch: pytest.MonkeyPatch, unit: type, fmt: str, mac: Mac, addend: str
):
    chosen = accumulators.choose

    def checked(*arguments):
        instance = chosen(*arguments)
        assert type(instance) is unit
        return instance

    for anything in (True, False):
        a, b = (
            random_values(fmt, (2, 4, 21), 1, anything=anything),
            random_values(fmt, (2, 21, 6), 2, anything=anything),
        )
        if anything:  # else NaN everywhere hides the rest
            a, b = (
                np.where(np.isfinite(x) | (np.random.default_rng(3).random(x.shape) < 0.02), x, 1).astype(x.dtype)
                for x in (a, b)
            )
        c = random_values(addend, (4, 1), 4, anything=anything)
        for third in (None, c):
            monkeypatch.setattr(accumulators, "choose", checked)

            def call(**where):
                formats = {"a_format": fmt, "b_format": fmt, "addend": third, "addend_format": addend}
                return emu.matmul(a, b, mac=mac, out_format="fp64", **formats, **where)

            assert_same_without(monkeypatch, call, "fp64", GENERAL)


@pytest.mark.parametrize(
    "fmt", ["fp16", "fp8_e5m2", "fp32", "e4m3fnuz", "fix16f8", "ufix8f3", "fix40f30", "fix16f-4", "bf16 ftz"]
)
def test_sums_through_float64_are_the_exact_sums(monkeypatch: pytest.MonkeyPatch, fmt: str):
    rng = np.random.default_rng(5)
    for dtype in (np.float32, np.float64):
        a = reals(fmt, 60, 6, dtype)
        size = np.abs(np.nan_to_num(a, nan=np.inf).astype(np.float64))
        a = a[(size < 2.0**400) & ((size > 2.0**-400) | (size == 0))]
        b = rng.permutation(a)
        b[::7], b[::11] = -a[::7], a[::11]
        for rounding in Rounding:
            for operation in (emu.add, emu.subtract):
                assert_same_without(
                    monkeypatch,
                    lambda **where: operation(a, b, out_format=fmt, rounding=rounding, **where),
                    fmt,
                    GENERAL[2:],
                )


@pytest.mark.parametrize("fmt", ["fp16", "bf16", "fp32", "fp8_e4m3", "fp16 daz"])
def test_exact_sums_of_floats_are_rounded_once(backend: str, fmt: str):
    """Python's float(Fraction) rounds to nearest even, once."""
    a, b, c = (random_values(fmt, shape, seed) for shape, seed in (((6, 19), 1), ((19, 7), 2), ((6, 7), 3)))
    a, b, c = (np.where(np.isfinite(x), x, -1.5).astype(x.dtype) for x in (a, b, c))
    a[1], b[:9] = a[0], np.where(np.abs(b[:9]) < 1e9, b[:9], 2)
    y = emu.matmul(a, b, a_format=fmt, b_format=fmt, addend=c, addend_format=fmt, out_format="fp64", backend=backend)
    flush = emu.parse(fmt).smallest_normal if "daz" in fmt else 0.0
    exact = [[[Fraction(float(v)) if abs(v) >= flush else Fraction(0) for v in row] for row in x] for x in (a, b, c)]
    sums = [
        [
            float(sum((p * q for p, q in zip(row, column, strict=True)), exact[2][i][j]))
            for j, column in enumerate(zip(*exact[1], strict=True))
        ]
        for i, row in enumerate(exact[0])
    ]
    assert_bits_equal(y, np.array(sums) + 0.0, "fp64")


@pytest.mark.parametrize(
    ("a_format", "b_format", "c_format"),
    [
        ("fix8f4", "fix8f6", "fix16f12"),
        ("fix32f10", "fix32f30", "fix64f50"),
        ("fix64f0", "ufix64f3", "fix54f-2"),
        ("fix24f12", "ufix30f1", "ufix64f64"),
    ],
)
def test_exact_sums_of_fixed_operands_are_those_of_big_integers(
    backend: str, a_format: str, b_format: str, c_format: str
):
    formats = [emu.parse(name) for name in (a_format, b_format, c_format)]
    codes = [
        np.random.default_rng(i).integers(0, f.n_codes - 1, shape, dtype=np.uint64, endpoint=True)
        for i, (f, shape) in enumerate(zip(formats, ((5, 13), (13, 4), (5, 4)), strict=True))
    ]

    def raw(code: int, fmt: emu.Fixed) -> int:
        return code - fmt.n_codes if fmt.signed and code >= fmt.n_codes // 2 else code

    values = [
        [[raw(int(c), f) * Fraction(2) ** -f.frac_bits for c in row] for row in x]
        for x, f in zip(codes, formats, strict=True)
    ]
    sums = [
        [sum((values[0][i][k] * values[1][k][j] for k in range(13)), values[2][i][j]) for j in range(4)]
        for i in range(5)
    ]
    a, b, c = (f.decode(x) for f, x in zip(formats, codes, strict=True))
    for out_bits, shift in ((64, -8), (64, 60), (32, 3), (16, 8)):
        out = emu.Fixed(out_bits, shift)
        y = emu.matmul(
            a, b, a_format=a_format, b_format=b_format, addend=c, addend_format=c_format, out_format=out,
            rounding="floor", overflow="wrap", backend=backend,
        )  # fmt: skip
        expected = [[int(s * Fraction(2) ** shift // 1) % out.n_codes for s in row] for row in sums]
        assert out.encode(y).tolist() == expected
