"""Products of operands that share scales, by the CUDA kernels on a device that the host plays: the reference's bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import emu
from emu import Mac
from emu.backends.reference import blocks
from emu.formats import ScaledValue

MX, GROUPS = "blocks(32, 25, min_exponent=-133)", "blocks(64, 35, min_exponent=-139, group=16)"
NV = "block(fp4_e2m1, fp8_ue4m3 1x16 nvfp4_one_level)"
ALTERNATING = "blocks(8, 12, index_order=alternating_pairs, addend=after)"
UNITS: list[tuple[str, str, dict[str, str]]] = [
    ("mxfp8_e4m3", MX, {}),
    ("mxfp8_e5m2", MX, {}),
    ("mxint8", ALTERNATING, {"accumulator": "fp16"}),
    (NV, GROUPS, {}),
    (NV, GROUPS, {"rounding": "nearest_even", "accumulator": "bf16"}),
    ("mxfp4_e2m1", GROUPS, {"overflow": "satfinite"}),
    ("mxfp6_e3m2", "blocks(32, 60, min_exponent=5, group=32)", {}),
    ("mxfp8_e5m2", "blocks(64, 120, group=16)", {}),
]


def value(random: np.random.Generator, fmt: str, shape: tuple[int, ...], spread: int) -> ScaledValue:
    """Return drawn elements, a third of them 0, with drawn scales."""
    parsed = emu.parse(fmt)
    element, scale = parsed.element, parsed.levels[0].scale
    counts = (*shape[:-1], -(-shape[-1] // parsed.levels[0].tiling.along))
    elements = emu.quantize(random.normal(0, 2, shape), element) * (random.random(shape) > 0.3)
    codes = (
        random.integers(0, 120, counts) if scale.fraction_bits else 127 + random.integers(-spread, spread + 1, counts)
    )
    return emu.value((elements, scale.decode(codes.astype(np.uint8))), fmt)


def both(a: ScaledValue, b: ScaledValue, monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[np.ndarray]:
    """Return the results of the reference and of a device that never asks it."""
    results, flags = [], [emu.Flags(), emu.Flags()]
    for backend, counted in zip(("reference", "cuda"), flags, strict=True):
        register = emu.StatisticsRegister(-30, 60)
        results.append(emu.matmul(a, b, backend=backend, flags=counted, register=register, **options))
        results.append(register)
        monkeypatch.setattr(blocks, "block_sums", None)
    monkeypatch.undo()
    assert str(flags[0]) == str(flags[1])
    assert results[1] == results[3]
    return results[::2]


@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_blocks_and_groups_are_the_references(
    unit: tuple[str, str, dict[str, str]], cuda: str, monkeypatch: pytest.MonkeyPatch
):
    fmt, order, more = unit
    mac = Mac(**{"accumulator": "fp32", "order": order, "rounding": "toward_zero", "scales": "in_block", **more})
    random = np.random.default_rng([len(fmt), len(order)])
    for spread, depth, out in ((3, 128, "fp32"), (30, 80, "bf16"), (80, 64, "fp32"), (3, 40, "fp16")):
        a, b = value(random, fmt, (3, depth), spread), value(random, fmt, (5, depth), spread).T
        addend = np.ldexp(random.normal(size=(3, 1)), random.integers(-40, 30, (3, 1))).astype(np.float32)
        for options in ({}, {"addend": addend, "addend_format": "fp32"}):
            expected, got = both(a, b, monkeypatch, mac=mac, out_format=out, **options)
            assert np.array_equal(got, expected, equal_nan=True)
            assert np.array_equal(np.signbit(got), np.signbit(expected))


def test_groups_that_cancel_and_groups_of_zeros_are_the_references(cuda: str, monkeypatch: pytest.MonkeyPatch):
    mac = Mac(accumulator="fp32", order=GROUPS.replace("35", "20"), rounding="toward_zero", scales="in_block")
    x, y = np.zeros((1, 64), np.float32), np.full((64, 1), np.float32(6))
    x[0, 16:] = 0.5
    for first in ([0] * 16, [6, -6] * 8, [6, -6] * 7 + [6, -4], [np.float32(-0.0)] * 16):
        x[0, :16] = first
        scales = np.float32([[256, 2**-9, 2**-9, 2**-8]])
        a, b = emu.value((x.copy(), scales), NV), emu.value((y, scales), NV, axis=0)
        expected, got = both(a, b, monkeypatch, mac=mac, out_format="fp32")
        assert np.array_equal(got, expected)


def test_stacks_and_special_values_are_the_references(cuda: str, monkeypatch: pytest.MonkeyPatch):
    mac = Mac.preset("b200", inputs="mxfp8_e5m2")
    random = np.random.default_rng(5)
    x, y = random.normal(size=(2, 3, 64)), random.normal(size=(2, 64, 5))
    x[0, 1, 2], x[1, 2, 40], y[1, 3, 3] = np.inf, np.nan, -np.inf
    fmt = "mxfp8_e5m2 floor ignore_nan"
    stacks = emu.quantize(x, fmt), emu.quantize(y, fmt, axis=1)
    single = emu.quantize(x[1], fmt), emu.quantize(y[0], fmt, axis=0)
    for a, b in (stacks, (stacks[0], single[1]), (single[0], stacks[1])):
        expected, got = both(a, b, monkeypatch, mac=mac, out_format="fp32")
        assert got.shape == (2, 3, 5)
        assert np.array_equal(got, expected, equal_nan=True)


def test_sums_wider_than_a_kernels_integers_are_left_to_the_reference(cuda: str):
    mac = Mac(accumulator="fp32", order="blocks(32, 250)", scales="in_block")
    random = np.random.default_rng(6)
    a, b = value(random, "mxfp8_e4m3", (2, 64), 40), value(random, "mxfp8_e4m3", (3, 64), 40).T
    results = [emu.matmul(a, b, out_format="fp32", mac=mac, backend=name) for name in ("reference", "cuda")]
    assert np.array_equal(*results)
