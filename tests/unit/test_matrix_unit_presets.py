"""Blocks as text and numbers, and the table of matrix units."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import emu
from emu import FormatError, Mac
from emu.datapath import MATRIX_UNITS, Blocks
from emu.datapath.order import parse_order
from emu.testing import assert_bits_equal


def said(call, *args, **options) -> str:
    with pytest.raises(FormatError) as caught:
        call(*args, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("order", "text"),
    [
        (Blocks(8, 24), "blocks(8, 24)"),
        (Blocks(16, 25, "alternating_pairs", "after"), "blocks(16, 25, index_order=alternating_pairs, addend=after)"),
        (Blocks(4, 0, min_exponent=-132), "blocks(4, 0, min_exponent=-132)"),
    ],
)
def test_blocks_round_trip_through_their_text(order: Blocks, text: str):
    assert str(order) == text
    assert parse_order(text) == parse_order(text.replace(" ", "")) == order
    assert eval(repr(order)) == order
    assert parse_order(str(Mac(accumulator="fp32", order=text).order)) == order


def test_text_of_blocks_takes_names_in_any_order():
    assert parse_order("blocks(addend=after, fraction_bits=13, n=32, min_exponent=None)") == Blocks(
        32, 13, addend="after"
    )


@pytest.mark.parametrize("unit", MATRIX_UNITS, ids=str)
def test_every_unit_is_the_preset_of_its_row(unit):
    mac = Mac.preset(unit.gpu, inputs=unit.inputs, output=unit.output, instruction=unit.instruction)
    assert (str(mac.accumulator), mac.order, mac.rounding.value) == (unit.accumulator, unit.order, unit.rounding)
    assert parse_order(str(mac.order)) == mac.order
    assert unit.source
    assert unit.confidence in {"very high", "high", "medium-high", "medium"}


def test_rows_are_unique():
    keys = [(unit.gpu, unit.inputs, unit.output, unit.instruction) for unit in MATRIX_UNITS]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(("alias", "gpu"), [("a2", "a100"), ("a30", "a100"), ("l40s", "ada"), ("h200", "h100")])
def test_devices_of_the_same_unit_share_presets(alias: str, gpu: str):
    assert Mac.preset(alias, inputs="fp16", output="fp16") == Mac.preset(gpu, inputs="fp16", output="fp16")


def test_alternating_pairs_take_every_second_pair_first():
    assert Blocks(16, 25, "alternating_pairs").indices[:6] == (0, 1, 4, 5, 8, 9)
    assert Blocks(16, 25, "alternating_pairs").indices[16:20] == (2, 3, 6, 7)
    assert sorted(Blocks(16, 25, "alternating_pairs").indices) == list(range(32))
    assert Blocks(3, 9).indices == (0, 1, 2)


def test_integer_units_wrap_or_saturate(backend: str):
    a = np.array([[127.0] * 3 + [-128.0] * 3])
    formats = {"a_format": "fix8f0", "b_format": "fix8f0", "addend_format": "fix32f0", "out_format": "fix32f0"}
    for instruction, expected in (("mma", 2147483647 + 3 * 127 * 127 - 2**32), ("mma.satfinite", 2147483647)):
        mac = Mac.preset("a100", inputs="int8", output="int32", instruction=instruction)
        column = np.array([[127.0], [127], [127], [0], [0], [0]])
        result = emu.matmul(a, column, addend=2147483647.0, mac=mac, backend=backend, **formats)
        assert result.item() == expected


def test_a_converted_fp8_operand_gives_the_same_bits_as_its_own_format():
    """The rows of FP8 through binary16 leave the conversion out; subnormals of e4m3 would show a difference."""
    rng = np.random.default_rng(1)
    fmt = emu.parse("fp8_e4m3")
    codes = rng.integers(0, fmt.n_codes, (2, 64, 64)) & np.where(rng.integers(0, 2, (2, 64, 64)), 0xFF, 0x8F)
    a, b = fmt.decode(codes.astype(np.uint8))
    a, b = np.where(np.isnan(a), 0, a), np.where(np.isnan(b), 0, b)
    for output in ("fp32", "fp16"):
        mac = Mac.preset("h100", inputs="fp8_e4m3", output=output, instruction="mma")
        own, converted = (
            emu.matmul(a, b, a_format=f, b_format=f, out_format=output, mac=mac) for f in ("fp8_e4m3", "fp16")
        )
        assert_bits_equal(own, converted, output)


def test_the_alignment_floor_decides_only_far_below_one(backend: str):
    mac = Mac.preset("a100", inputs="bf16", output="fp32")
    assert isinstance(mac.order, Blocks)
    other = Mac(accumulator="fp32", order=replace(mac.order, min_exponent=-126), rounding="toward_zero")
    formats = {"a_format": "bf16", "b_format": "bf16", "out_format": "fp32", "backend": backend}
    ones = np.ones((1, 8))
    near, far = np.full((8, 1), 2.0**-3), np.full((8, 1), 2.0**-76)
    assert emu.matmul(ones, near, mac=mac, **formats) == emu.matmul(ones, near, mac=other, **formats) == 1
    assert emu.matmul(ones * 2.0**-76, far, mac=mac, **formats) == 2.0**-149
    assert emu.matmul(ones * 2.0**-76, far, mac=other, **formats) == 0


class TestMessages:
    def test_blocks_need_two_numbers(self):
        assert said(parse_order, "blocks(8)") == (
            "`order` must give blocks `fraction_bits`, got 'blocks(8)'; write blocks(n, fraction_bits)"
        )
        assert said(parse_order, "blocks(8, 24, 3)") == (
            "`order` must give blocks two numbers and then index_order=, addend=, min_exponent=, group=, "
            "got '3' in 'blocks(8, 24, 3)'"
        )
        assert "got 'depth=3'" in said(parse_order, "blocks(8, 24, depth=3)")
        assert "got 'n=3'" in said(parse_order, "blocks(8, 24, n=3)")

    def test_numbers_of_blocks_are_in_range(self):
        assert said(Blocks, 0, 24) == "`n` must be in 1..1024, got 0; choose a larger one"
        assert said(Blocks, 4, -1) == "`fraction_bits` must be in 0..256, got -1; choose a larger one"
        assert said(Blocks, 4, 2.5).startswith("`fraction_bits` must be an integer, got 2.5")
        assert said(parse_order, "blocks(4, x)").startswith("`fraction_bits` must be an integer, got 'x'")
        assert said(Blocks, 4, 24, min_exponent=-5000).startswith("`min_exponent` must be in -4096..4096, got -5000")

    def test_names_of_blocks_exist(self):
        assert said(Blocks, 4, 24, "mma") == (
            "`index_order` must be consecutive or alternating_pairs, got 'mma'; leave it out for consecutive"
        )
        assert said(Blocks, 4, 24, addend="before") == (
            "`addend` must be aligned or after, got 'before'; leave it out for aligned"
        )
        assert said(Blocks, 3, 24, "alternating_pairs") == ("`n` must be even for alternating pairs, got 3; choose 4")

    def test_a_unit_of_blocks_multiplies_exactly_into_a_float(self):
        assert said(Mac, product="fp16", accumulator="fp32", order="blocks(4, 24)") == (
            "`product` must be exact where `order` is blocks, got fp16; leave it out"
        )
        assert said(Mac, order="blocks(4, 24)") == (
            "`accumulator` must be a float format where `order` is blocks, got exact; name one, as fp32"
        )
        assert "got fix16f8" in said(Mac, accumulator="fix16f8", order="blocks(4, 24)")

    @pytest.mark.parametrize("backend", ["reference", "numba"])
    def test_operands_of_blocks_are_floats(self, backend: str):
        mac = Mac(accumulator="fp32", order="blocks(4, 24)")
        formats = {"a_format": "fix8f4", "b_format": "fp16", "out_format": "fp32"}
        assert said(emu.matmul, [[1.0]], [[1.0]], mac=mac, backend=backend, **formats) == (
            "operands must be floats where `order` is blocks, got fix8f4: a block aligns exponents; "
            "choose another order"
        )

    def test_a_preset_that_does_not_exist_lists_those_that_do(self):
        assert said(Mac.preset, "v100", inputs="bf16", output="fp32") == (
            "v100 must have the matrix unit asked for, got bf16 -> fp32; it has fp16 -> fp32 (mma), fp16 -> fp16 (mma)"
        )
        assert said(Mac.preset, "ada", inputs="fp16", output="fp32", instruction="wgmma") == (
            "ada must have the matrix unit asked for, got fp16 -> fp32 (wgmma); it has fp16 -> fp32 (mma)"
        )
        assert said(Mac.preset, "h10", inputs="fp16", output="fp32") == (
            "`gpu` must be one whose matrix unit is known, got 'h10'; known, the nearest name first: h100, v100, a100, "
            "h200, a30, b200, l40s, t4, ada, rtx-blackwell, a2"
        )

    def test_instructions_whose_bits_differ_are_named(self):
        assert said(Mac.preset, "h100", inputs="fp8_e4m3", output="fp32") == (
            "`instruction` must be given for fp8_e4m3 -> fp32 on h100, got None: name wgmma or mma, whose bits differ"
        )


@pytest.mark.parametrize("gpu", ["v100", "t4", "a100", "ada", "h100", "b200", "h200", "l40s"])
def test_a_gpu_alone_is_its_unit_of_binary16_operands_and_binary32_sums(gpu: str):
    assert Mac.preset(gpu) == Mac.preset(gpu, inputs="fp16", output="fp32", instruction="mma")
    assert Mac.preset(gpu, output="fp16") == Mac.preset(gpu, inputs="fp16", output="fp16", instruction="mma")


def test_one_side_of_an_integer_unit_implies_the_other():
    whole = Mac.preset("a100", inputs="int8", output="int32", instruction="mma")
    assert Mac.preset("a100", inputs="int8", instruction="mma") == whole
    assert Mac.preset("a100", output="int32", instruction="mma") == whole


def test_explain_says_what_a_unit_of_blocks_does():
    formats = {"a_format": "fp8_e4m3", "b_format": "fp8_e4m3", "out_format": "fp32", "backend": "numba"}
    operands = np.ones((2, 32)), np.ones((32, 2))
    plans = {
        name: str(emu.explain(emu.matmul, *operands, mac=Mac.preset("h100", inputs="fp8_e4m3", output="fp32",
                                                                    instruction=name), **formats))
        for name in ("wgmma", "mma")
    }  # fmt: skip
    assert plans == {
        "wgmma": "in_order: blocks of 32 products and the accumulator, cut 13 bits below their largest exponent, "
        "round once into e8m13, one after the other along k; vectorised over outputs",
        "mma": "in_order: blocks of 16 products, cut 25 bits below their largest exponent, round once into fp32, "
        "from +0 over 32 k, then added to the running sum by an IEEE adder; vectorised over outputs",
    }
