"""Elements that share scales, written by the CUDA kernels on a device that the host plays: the reference's bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fast_suite import in_turn
from test_scaled_blocks import RULES, blocks_of, formats_of

import emu
from emu.backends.cuda import CudaKernels, scaled
from emu.backends.interface import RandomCode, Write, encode_stage
from emu.backends.reference import ReferenceKernels
from emu.backends.reference import scaled as definition
from emu.engine.scaled import stage_of_elements
from emu.formats import SCALED_PRESETS
from emu.formats.scaled_value import ScaledValue
from tests.cuda.cuda_on_host import HostDevice

#: Formats whose rules have operations of binary64, and scales for channels.
ON_HOST = ("uint8_affine", "int8_affine")
#: Shape, axis and tiling: whole and short blocks, rows, squares, tensors; axes anywhere.
LAYOUTS = [
    ((3, 70), -1, "1x32"), ((70, 3), -2, "1x32"), ((2, 5, 48), -2, "1x16"), ((33, 3, 16), -3, "1x32"),
    ((40,), -1, "1x16"), ((5, 7, 6), -1, "row"), ((5, 7, 6), -3, "row"), ((2, 40, 50), -1, "16x16"),
    ((2, 40, 50), -2, "16x16"), ((130, 131), -1, "128x128"), ((6, 9), -1, "tensor"), ((2, 3, 4), -2, "tensor"),
    ((6, 9), -1, "channel"), ((6, 9), -2, "channel"), ((1, 1), -1, "4x8"),
]  # fmt: skip


def assert_same(actual: ScaledValue, expected: ScaledValue, note: Any) -> None:
    for mine, theirs in zip((actual.array, *actual.scales), (expected.array, *expected.scales), strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape), note
        same = (mine == theirs) & (np.signbit(mine) == np.signbit(theirs)) | (np.isnan(mine) & np.isnan(theirs))
        assert same.all(), (note, np.argwhere(~same)[:3])


def assert_is_the_references(
    monkeypatch: pytest.MonkeyPatch, x: np.ndarray, fmt: str, axis: int, **options: Any
) -> None:
    """Raise AssertionError unless the device writes the reference's bits and flags, and asks the definition nothing."""
    flags = emu.Flags(), emu.Flags()
    wanted = emu.quantize(x, fmt, axis=axis, pad=True, backend="reference", flags=flags[0], **options)
    with monkeypatch.context() as patch:
        patch.setattr(definition, "scales_of", None)
        got = emu.quantize(x, fmt, axis=axis, pad=True, backend="cuda", flags=flags[1], **options)
    assert_same(got, wanted, (fmt, axis, options))
    assert str(flags[0]) == str(flags[1]), (fmt, axis, options)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_gives_the_references_bits(rule: str, cuda: str, monkeypatch: pytest.MonkeyPatch):
    x, ordinary = blocks_of(1, 24), blocks_of(2, 24, special=False)
    for i, fmt in enumerate(in_turn(formats_of(rule), 3)):
        assert_is_the_references(monkeypatch, x if i % 2 else ordinary, fmt, -1 - i % 2)
        assert_is_the_references(monkeypatch, ordinary if i % 2 else x, fmt, -2 + i % 2)


@pytest.mark.parametrize(("shape", "axis", "tiling"), LAYOUTS, ids=str)
def test_blocks_lie_where_the_definition_has_them(
    shape: tuple[int, ...], axis: int, tiling: str, cuda: str, monkeypatch: pytest.MonkeyPatch
):
    x = np.random.default_rng(3).normal(size=shape).astype(np.float32)
    for scale in ("fp8_e8m0 {} rceil", "fp32 {} te"):
        assert_is_the_references(monkeypatch, x, f"block(fp8_e4m3, {scale.format(tiling)})", axis)


@pytest.mark.parametrize("fmt", sorted(set(SCALED_PRESETS) - set(ON_HOST)))
def test_presets_are_written_in_every_mode(fmt: str, cuda: str, monkeypatch: pytest.MonkeyPatch):
    x = blocks_of(5, 16)
    for options in ({"rounding": "toward_zero"}, {"rounding": "stochastic", "seed": 9}, {"overflow": "saturate"}):
        if "overflow" not in options or isinstance(emu.parse(fmt).element, emu.Fixed):
            assert_is_the_references(monkeypatch, x, fmt, -1, **options)


def test_blocks_are_counted_as_the_reference_counts_them(cuda: str):
    x, counts = blocks_of(6, 16), [emu.ScaleCounts(), emu.ScaleCounts()]
    for backend, counted in zip(("reference", "cuda"), counts, strict=True):
        emu.quantize(x, "mxfp8_e4m3", backend=backend, counts=counted)
    assert counts[0] == counts[1]
    assert counts[0].clipped > 0


@pytest.mark.slow
@pytest.mark.parametrize("words", [2, 4])
def test_wider_words_write_the_same(words: int):
    kernels, stage = CudaKernels(HostDevice(), words), stage_of_elements(emu.parse("nvfp4"))
    write = Write(encode_stage(stage), RandomCode(0, 0, 0, 0, None), None)
    x = blocks_of(7, 16)
    for fmt in (emu.parse("nvfp4"), emu.parse("mxfp4_e2m1")):
        got, scales = kernels.quantize_blocks(x, fmt, -1, write, counted=True)
        wanted, expected = definition.quantize_blocks(ReferenceKernels(), x, fmt, -1, write)
        assert np.array_equal(got.values, wanted.values, equal_nan=True)
        assert np.array_equal(got.flags, wanted.flags)
        assert all(np.array_equal(*pair, equal_nan=True) for pair in zip(scales, expected, strict=True))


def test_what_the_device_has_no_program_for_is_left_to_the_definition(cuda: str, monkeypatch: pytest.MonkeyPatch):
    x = np.random.default_rng(4).normal(size=(4, 32)).astype(np.float32)
    left: list[bool] = []
    own = scaled.quantize_blocks

    def watched(*arguments: Any) -> Any:
        written = own(*arguments)
        left.append(written is None)
        return written

    monkeypatch.setattr(scaled, "quantize_blocks", watched)
    stacked = np.stack([x, x])
    for value, fmt in ((x, "mxfp8_e4m3"), (x.astype(np.float64), "mxfp8_e4m3"), (stacked, "int8_channel")):
        assert_same(
            emu.quantize(value, fmt, backend="cuda"), emu.quantize(value, fmt, backend="reference"), (fmt, value.dtype)
        )
    assert left == [False, True, True]
    assert_same(emu.quantize(x, "uint8_affine", backend="cuda"), emu.quantize(x, "uint8_affine"), "zero points")
    empty = np.zeros((0, 32), np.float32)
    assert emu.quantize(empty, "mxfp8_e4m3", backend="cuda").shape == (0, 32)


@pytest.mark.parametrize("fmt", ["fp8_row", "fp8_tensor", "int8_channel"])
@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0,), (2, 0, 3)])
def test_an_array_without_elements_is_left_to_the_definition(cuda: str, shape: tuple[int, ...], fmt: str):
    empty = np.zeros(shape, np.float32)
    assert_same(emu.quantize(empty, fmt, backend="cuda"), emu.quantize(empty, fmt, backend="reference"), (fmt, shape))


def test_an_array_of_one_block_of_nan_alone_has_no_scale(cuda: str, monkeypatch: pytest.MonkeyPatch):
    nothing = np.full((2, 32), np.nan, np.float32)
    for special in ("ignore_nan", "nan_block"):
        for rule in ("rceil", "floor"):
            assert_is_the_references(monkeypatch, nothing, f"block(fp8_e4m3, fp8_e8m0 1x32 {rule} {special})", -1)
        assert_is_the_references(monkeypatch, nothing, f"block(fp8_e4m3, fp32 1x32 te {special})", -1)
