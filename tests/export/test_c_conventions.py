"""Exported units that write NaN, integers and zeros by other conventions, choose an operand, or pass several stages."""

from __future__ import annotations

from pathlib import Path

import pytest
from c_units import assert_defined, library, needs_compiler
from unit_cases import described, every_pair, hard_operands, random_bits, unit_of

from emu.testing.vectors import Description
from emu.testing.vectors.selection import SELECTIONS

pytestmark = needs_compiler
CASES = {
    **{name: described(name, "e3m3,e2m4 daz", "e3m2", flags=("ieee", "emu")["number" in name]) for name in SELECTIONS},
    "minimum of fixed point and floats": described("minimum", "fix8f4,e4m3", "fix8f5", "floor"),
    "first NaN": described("multiply", "e3m3,e4m3", "e3m4", nan="first", nan_code="0xf8"),
    "first signalling NaN": described("add", "e3m4,e3m3", "e4m2", nan="signalling_first"),
    "NaN with a sign": described("divide", "e3m3,e3m3", "e3m3", nan_code="0x7c"),
    "NaN of a chosen operand": described("maximum_number", "e3m3,e3m3", "e3m3", nan="first"),
    "indefinite": described("multiply", "e3m3,e3m3", "fix7f0", "toward_zero", invalid="indefinite", flags="ieee"),
    "indefinite without a sign": described("multiply", "e3m3,fix4f0", "ufix6f0", invalid="indefinite"),
    "largest": described("divide", "e3m3,e3m3", "fix7f1", invalid="largest"),
    "one stage": described("add", "fix7f2,fix7f3", "fix6f1", stages=["fix7f2 floor saturate"]),
    "two stages": described("multiply", "e3m3,e3m3", "fix6f1", "ceil", stages=["e3m2 toward_zero", "fix7f2 wrap"]),
    "a stage and random bits": described("subtract", "fix7f2,e3m3", "e3m1", "stochastic", n_rbits=4, stages=["e3m2"]),
}  # fmt: skip


def test_all_pairs_are_the_definitions(tmp_path: Path):
    cases = [*CASES.values()]
    for unit, d in zip(library(cases, tmp_path, options=["-O0"]), cases, strict=True):
        operands = every_pair(d)
        assert_defined(unit, d, operands, random_bits(d, operands[0].size))


@pytest.mark.parametrize("mode", ["nearest_even", "floor"])
@pytest.mark.parametrize("formats", ["e3m2,e3m2", "e3m2,e3m2,e3m2"])
def test_zero_sums_have_the_signs_of_ieee_754(mode: str, formats: str, tmp_path: Path):
    cases = [unit_of(formats, "e4m3", depth, mode).model_copy(update={"zero_sign": "ieee"}) for depth in (1, 2, 3)]
    for unit, d in zip(library(cases, tmp_path, options=["-O0"]), cases, strict=True):
        operands = hard_operands(d, 20_000)
        operands = [x & 0x23 if i else x & 0x21 for i, x in enumerate(operands)]  # zeros and few small numbers
        assert_defined(unit, d.model_copy(update={"count": 20_000}), operands)


def test_the_operands_of_a_conversion_are_all_tried(tmp_path: Path):
    d: Description = described("quantize", "fp16", "fix16f4", "toward_zero", invalid="indefinite", flags="ieee")
    narrow = described("quantize", "fp16", "fp8_e5m2", nan="first", overflow="ieee")
    for unit, each in zip(library([d, narrow], tmp_path, options=["-O0"]), (d, narrow), strict=True):
        assert_defined(unit, each, [every_pair(described("add", "fp16,ufix1f0", "fp16"))[0][::2]])
