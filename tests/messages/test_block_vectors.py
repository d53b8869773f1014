"""What `emu vectors` says of formats whose elements share scales and of which there are no vectors."""

from __future__ import annotations

from pathlib import Path

import pytest

from emu.errors import ConfigError
from emu.export import export
from emu.testing.rtl.testbenches import write_testbench
from emu.testing.vectors import Description, make_vectors, read_vectors, write_vectors


def described(operation: str = "quantize", formats: str = "fp32", out_format: str = "mxfp8_e4m3", **more: object):
    return Description(operation=operation, formats=tuple(formats.split()), out_format=out_format, **more)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"operation": "matmul", "formats": "mxfp8_e4m3 mxfp8_e4m3", "out_format": "fp32"},
         "operands of vectors must be single numbers, got mxfp8_e4m3: the terms of a sum of blocks have scales of "
         "their own, which a line of operands has no place for; write vectors of the sums of elements, --formats "
         "fp8_e4m3,fp8_e4m3, and those of the quantiser, quantize --out-format mxfp8_e4m3"),
        ({"operation": "matmul", "formats": "fp32 nvfp4", "out_format": "fp32"}, "--formats fp32,fp4_e2m1, and those"),
        ({"nan": "first", "out_format": "mxfp8_e5m2"},
         "`nan` must be left out of results that share scales, got it for mxfp8_e5m2: it is of single results"),
        ({"out_format": "block(fp8_e4m3, fp32 8x8 te nan_block)"},
         "write block(fp8_e4m3, fp32 1x64 te nan_block), whose codes are the same"),
        ({"operation": "sqrt"},
         "results that share scales must be those of quantize in vectors, got sqrt to mxfp8_e4m3: a scale belongs to a "
         "block, and a vector of sqrt has one result; write vectors of sqrt to fp32 or bf16, and of quantize from "
         "there"),
        ({"out_format": "fp8_tile_128x128"},
         "blocks of vectors must lie along one axis, got 128x128 of fp8_tile_128x128: a file has one axis; write "
         "block(fp8_e4m3, fp32 1x16384 deepgemm), whose codes are the same, and give the numbers of a square one after "
         "the other"),
        ({"out_format": "nvfp4_16x16"},
         "write block(fp4_e2m1, fp8_ue4m3 1x256 nvfp4, fp32 tensor), whose codes are the same"),
        ({"out_format": "uint8_affine"},
         "blocks of vectors must have scales alone, got uint8_affine, which has zero points chosen from all numbers of "
         "a tensor; write the vectors of its integers by given scales, --requantise 'float32 0.0055 zero -126'"),
        ({"out_format": "fp8_row"},
         "blocks of vectors must have a length, got fp8_row, where a scale serves a whole row; write a block as long "
         "as that, block(fp8_e4m3, fp32 1x128 te)"),
        ({"out_format": "int8_tensor"},
         "write a block as long as that, block(fix8f0, fp32 1x128 symmetric), or --requantise for integers"),
        ({"formats": "fix64f0"},
         "numbers that share scales must be float64, got fix64f0, which may have more than 53 bits; write a narrower "
         "format, as fix32f16"),
        ({"also": ["fp16"]},
         "`also` must be left out of results that share scales, got it for mxfp8_e4m3: it is of single results"),
    ],
)  # fmt: skip
def test_what_vectors_of_blocks_cannot_be_is_refused_with_the_remedy(given: dict[str, object], message: str):
    with pytest.raises(ConfigError) as caught:
        described(**given)  # pyright: ignore[reportArgumentType]
    assert message in str(caught.value)


def test_a_square_s_codes_are_those_of_the_long_block_that_the_message_names():
    import numpy as np

    import emu

    x = np.random.default_rng(0).normal(size=(16, 16)).astype(np.float32)
    square = emu.quantize(x, "nvfp4_16x16")
    row = emu.quantize(x.reshape(-1), "block(fp4_e2m1, fp8_ue4m3 1x256 nvfp4, fp32 tensor)")
    assert np.array_equal(square.codes.reshape(-1), row.codes)
    assert square.scale_codes[0].tolist() == [row.scale_codes[0].tolist()]


def test_other_outputs_of_a_description_refuse_blocks(tmp_path):
    blocks = described(count=32)
    for attempt, message in (
        (lambda: write_vectors(make_vectors(blocks), tmp_path, "testfloat"),
         "TestFloat's lines must hold operands, result and flags, got scales of blocks; write --style hex"),
        (lambda: export(blocks, tmp_path, name="quantise"),
         "a unit in another language must have results without shared scales, got mxfp8_e4m3; export the conversion of "
         "an element, quantize to its own format"),
        (lambda: write_testbench(blocks, tmp_path, "sv"),
         "a testbench must have results without shared scales, got mxfp8_e4m3; read a.hex in a testbench of yours, "
         "dump elements and scales, and compare with emu check --scales"),
    ):  # fmt: skip
        with pytest.raises(ConfigError) as caught:
            attempt()
        assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "scale.hex must be a text file of hexadecimal codes, got No such file or directory; check the path"),
        ("7f\n", "scale.hex must have 2 lines, one per block, got 1; write it again"),
        ("7f\n1ff\n", "scale.hex must hold codes of 8 bits, got 0x1ff; write it again"),
    ],
)
def test_damaged_scales_of_a_folder_are_named(tmp_path: Path, text: str | None, message: str):
    write_vectors(make_vectors(described(count=64)), tmp_path)
    (tmp_path / "scale.hex").unlink()
    if text is not None:
        (tmp_path / "scale.hex").write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_vectors(tmp_path)
    assert str(refused.value) == f"{tmp_path}/{message}"
