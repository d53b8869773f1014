"""Vectors of results that share scales: against fractions and float32 steps of the test's own, and what they reach."""

from __future__ import annotations

import json
from bisect import bisect_left
from fractions import Fraction
from pathlib import Path

import block_quantiser as own
import numpy as np
import pytest

import emu
from emu.errors import ConfigError
from emu.testing.vectors import Description, make_vectors, read_vectors, vectors_of, what_they_tell, write_vectors
from emu.testing.vectors.cells import cells_of, rows_of
from emu.testing.vectors.check import compare
from emu.testing.vectors.making import count_for_cells

FORMATS = (
    "mxfp8_e4m3", "mxfp8_e5m2 rceil", "mxfp6_e2m3 even", "mxfp6_e3m2 ceil", "mxfp4_e2m1 te_power", "mxint8", "nvfp4",
    "nvfp4 nvfp4_torchao", "fp8_tile", "block(fp8_e5m2, fp32 1x16 te)", "block(fix8f0, fp32 1x24 symmetric)",
    "block(fp4_e2m1, fp8_ue4m3 1x16 nvfp4_one_level)", "mxfp8_e4m3 rceil ignore_nan",
)  # fmt: skip


def described(out_format: str = "mxfp8_e4m3", operand: str = "fp32", **changed: object) -> Description:
    table = {"operation": "quantize", "formats": (operand,), "out_format": out_format, "count": 4096, **changed}
    return Description.model_validate(table)


@pytest.mark.parametrize(("name", "element"), [("mxfp8_e4m3", own.E4M3), ("mxfp4_e2m1", own.E2M1)])
def test_elements_and_scales_are_those_of_fractions(name: str, element: tuple[int, int, Fraction]):
    vectors = make_vectors(described(name))
    elements, scales = own.Quantiser(element=element).run([int(code) for code in vectors.operands[0]])
    assert vectors.results.tolist() == elements
    assert vectors.scales[0].tolist() == scales


def rounded(x: np.float32, grid: list[Fraction]) -> int:
    """The code of a magnitude rounded to a grid, ties to even, bounded by its last but one."""
    return min(own.nearest_even(Fraction(float(x)), grid), len(grid) - 2)


def test_nvfp4_is_that_of_transformer_engine_s_float32_operations():
    """S = 6 * 448 / amax of the tensor, s = e4m3(amax / 6 * S), q = e2m1(x * (1 / (s * (1 / S))))."""
    vectors = make_vectors(described("nvfp4"))
    x = vectors.operands[0].astype(np.uint32).view(np.float32)
    f, e4m3, e2m1 = np.float32, own.magnitudes(*own.E4M3), own.magnitudes(*own.E2M1)
    top = f(np.nanmax(np.abs(x)))
    whole = f(2688) / top
    elements, scales = [], []
    for block in x.reshape(-1, 16):
        amax = f(max((abs(value) for value in block if not np.isnan(value)), default=0))
        code = rounded(amax * (whole * (f(1) / f(6))), e4m3)
        scales.append(code)
        with np.errstate(divide="ignore", over="ignore"):
            factor = min(f(1) / (f(float(e4m3[code])) * (f(1) / whole)), np.finfo(f).max)
            for value in block:
                product = f(0) if np.isnan(value) else min(abs(value) * factor, np.finfo(f).max)
                magnitude = rounded(product, e2m1)
                elements.append(magnitude | (8 if np.signbit(value) and not np.isnan(value) else 0))
    assert vectors.scales[0].tolist() == scales
    assert vectors.scales[1].tolist() == [int(top.view(np.uint32))]
    numbers = ~np.isnan(x)
    assert vectors.results[numbers].tolist() == [e for e, kept in zip(elements, numbers, strict=True) if kept]


@pytest.mark.parametrize(
    ("name", "operand"),
    [
        *((name, "fp32") for name in FORMATS),
        *(
            (name, operand)
            for name in ("mxfp8_e4m3", "mxint8")
            for operand in ("fix16f8", "ufix8f0", "fp64", "fp32 daz")
        ),
        *(("nvfp4", operand) for operand in ("bf16", "fp16", "fp64", "fix16f8", "fix40f8", "fp8_e5m2")),
    ],
)
def test_codes_and_flags_are_those_of_quantize(name: str, operand: str):
    vectors = make_vectors(described(name, operand, count=400, flags="emu"))
    d = vectors.description
    numbers = d.operand_formats[0].decode(vectors.operands[0])
    flags = emu.Flags()
    value = emu.quantize(numbers, name, x_format=operand, backend="reference", flags=flags)
    assert np.array_equal(value.codes, vectors.results)
    assert [codes.reshape(-1).tolist() for codes in value.scale_codes] == [codes.tolist() for codes in vectors.scales]
    raised = [int((vectors.flags >> np.uint64(bit) & np.uint64(1)).sum()) for bit in range(3)]
    assert raised == [flags.inexact, flags.underflow, flags.overflow]


def test_random_bits_of_elements_are_those_of_quantize():
    vectors = make_vectors(described("mxfp8_e4m3", rounding="stochastic", n_rbits=9, count=320))
    x, rbits = vectors.operands[0].astype(np.uint32).view(np.float32), vectors.rbits
    assert rbits is not None
    value = emu.quantize(
        x, "mxfp8_e4m3", rounding="stochastic", n_rbits=9, rbits=rbits.astype(np.uint32), backend="reference"
    )
    assert np.array_equal(value.codes, vectors.results)


@pytest.mark.parametrize(("name", "asked", "count"), [("mxfp8_e4m3", 1, 32), ("nvfp4", 100, 112), ("mxint8", 64, 64)])
def test_the_last_block_is_filled(name: str, asked: int, count: int):
    vectors = make_vectors(described(name, count=asked))
    assert vectors.description.count == vectors.results.size == vectors.operands[0].size == count
    assert vectors.scales[0].size * vectors.description.together == count


def test_a_seed_gives_the_same_vectors_and_another_one_others():
    first, again, other = (make_vectors(described(count=256, seed=seed)) for seed in (3, 3, 4))
    assert np.array_equal(first.operands[0], again.operands[0])
    assert not np.array_equal(first.operands[0], other.operands[0])


def test_every_cell_of_mxfp8_has_eight_blocks_in_4096_vectors():
    d = described()
    assert count_for_cells(d) <= 4096
    rows = rows_of(cells_of(make_vectors(d)))
    assert [row.name for row in rows if row.full < row.cells] == []


def test_largest_magnitudes_lie_beside_powers_of_two_and_where_the_rule_steps():
    """Counted by fractions: a power of two, a code above and below; for rceil 448 * 2**k and the code above it."""
    vectors = make_vectors(described("mxfp8_e4m3 rceil"))
    blocks = vectors.operands[0].reshape(-1, 32)
    finite = [block for block in blocks if all(own.number(int(code)) is not None for code in block)]
    largest = [max(int(code) & 0x7FFFFFFF for code in block) for block in finite]

    def is_times_power(code: int, factor: Fraction) -> bool:
        x = own.number(code)
        if not x:
            return False
        ratio = x / factor
        return ratio == Fraction(2) ** own.exponent_of(ratio)

    for step in (-1, 0, 1):
        assert sum(is_times_power(code + step, Fraction(1)) for code in largest if code) >= 8
    # rounded to binary32, amax * (1 / 448) is 2**k for these, and above it for the next code
    assert sum(is_times_power(code, Fraction(448)) for code in largest) >= 4
    assert sum(is_times_power(code - 1, Fraction(448)) for code in largest if code) >= 4


def test_blocks_of_zeros_nan_infinities_and_subnormal_numbers_are_there():
    vectors = make_vectors(described())
    blocks = vectors.operands[0].reshape(-1, 32)
    magnitude = blocks & np.uint64(0x7FFFFFFF)
    counts = {
        "zeros": (blocks == 0).all(axis=1),
        "negative zeros": (blocks == 0x80000000).all(axis=1),
        "one NaN": (magnitude > 0x7F800000).sum(axis=1) == 1,
        "infinity": (blocks == 0x7F800000).any(axis=1),
        "negative infinity": (blocks == 0xFF800000).any(axis=1),
        "largest subnormal": (magnitude.max(axis=1) < 0x800000) & (magnitude.max(axis=1) > 0),
        "lowest scale": (vectors.scales[0] == 0) & (magnitude.max(axis=1) > 0),
        "NaN scale": vectors.scales[0] == 255,
    }
    assert {name: int(inside.sum()) for name, inside in counts.items() if inside.sum() < 8} == {}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("operand", ["fp32", "fp16"])
def test_blocks_of_a_tensor_have_its_number_and_the_first_its_largest_magnitude(operand: str, seed: int):
    vectors = make_vectors(described("nvfp4", operand, seed=seed))
    numbers = np.abs(vectors.description.operand_formats[0].decode(vectors.operands[0]).astype(np.float64))
    top = float(np.nanmax(numbers))
    assert np.nanmax(numbers[:16]) == top
    assert np.isfinite(top)
    assert float(vectors.scales[1].astype(np.uint32).view(np.float32)[0]) == top
    assert len(np.unique(vectors.scales[0])) > 40


def test_a_folder_is_read_as_it_was_written(tmp_path: Path):
    for name in ("mxfp8_e4m3", "nvfp4"):
        vectors = make_vectors(described(name, count=320))
        paths = write_vectors(vectors, tmp_path / name)
        names = {path.name for path in paths}
        assert {"a.hex", "result.hex", "scale.hex", "flags.hex", "manifest.json", "cells.txt"} <= names
        assert ("tensor_scale.hex" in names) == (name == "nvfp4")
        assert "vectors.txt" not in names  # a line of TestFloat has no place for a scale
        back = read_vectors(tmp_path / name)
        assert back.description.model_dump(exclude={"flags"}) == vectors.description.model_dump(exclude={"flags"})
        assert np.array_equal(back.results, vectors.results)
        assert all(np.array_equal(a, b) for a, b in zip(back.scales, vectors.scales, strict=True))
        assert len((tmp_path / name / "scale.hex").read_text().split()) == 320 // vectors.description.together
        assert (tmp_path / name / "cells.txt").read_text().startswith("blocks  cells with enough  cell")
    assert len((tmp_path / "nvfp4" / "tensor_scale.hex").read_text().split()) == 1


def test_a_manifest_with_a_part_of_a_block_is_refused(tmp_path: Path):
    write_vectors(make_vectors(described(count=64)), tmp_path)
    path = tmp_path / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["description"]["count"] = 65
    path.write_text(json.dumps(manifest))
    with pytest.raises(ConfigError, match=r"must be whole blocks of 32, as mxfp8_e4m3 has them, got 65, 1 more than 2"):
        read_vectors(tmp_path)


def test_operands_that_somebody_drew_are_blocks_too(tmp_path: Path):
    x = np.linspace(-3, 900, 96, dtype=np.float32)
    (tmp_path / "a.hex").write_text("".join(f"{code:08x}\n" for code in x.view(np.uint32)))
    table = {"operation": "quantize", "formats": ("fp32",), "out_format": "mxfp8_e4m3"}
    vectors = vectors_of(table, [tmp_path / "a.hex"])
    assert np.array_equal(emu.quantize(x, "mxfp8_e4m3").codes, vectors.results)
    (tmp_path / "a.hex").write_text("".join(f"{code:08x}\n" for code in x.view(np.uint32)[:70]))
    with pytest.raises(ConfigError, match=r"got 70, 6 more than 2 blocks; add 26, zeros if there are no others$"):
        vectors_of(table, [tmp_path / "a.hex"])


def test_sentences_count_blocks():
    few, enough = (what_they_tell(make_vectors(described(count=count))) for count in (64, 4096))
    assert any(line.startswith("cells with too few blocks: ") for line in few)
    assert enough[0].startswith("cells with enough blocks: ")
    assert all("too few" not in line for line in enough)


def test_blocks_of_one_number_are_blocks():
    vectors = make_vectors(described("block(fp8_e4m3, fp8_e8m0 1x1 floor)", count=300))
    assert vectors.scales[0].size == vectors.results.size == 300


def test_magnitudes_of_the_test_s_own_grid_are_those_of_the_format():
    grid = own.magnitudes(*own.E4M3)
    assert bisect_left(grid, Fraction(448)) == 126
    assert [float(x) for x in grid[:127]] == emu.parse("fp8_e4m3").decode(np.arange(127, dtype=np.uint8)).tolist()


@pytest.mark.parametrize("source", ["fp8_e8m0", "fix1f0", "smfix2f0"])
def test_numbers_of_a_single_digit_and_without_zero_have_vectors(source: str):
    vectors = make_vectors(Description(operation="quantize", formats=(source,), out_format="mxfp8_e4m3", count=64))
    assert vectors.description.count == 64
    assert compare(vectors, vectors.results, vectors.flags) is None
