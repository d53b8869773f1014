"""Units that others could have written, of another structure than the reference: proved, or their smallest wrong input.

Each fault is one line of the unit's source; the smallest wrong input was worked out by hand or by a look at all inputs.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from proving import description, needs_yosys, proved, unit

import emu
from emu.prove import Answer, Outcome, Sources, Unit, ports_of

pytestmark = needs_yosys
#: Modes of stage24_12.sv, by the value of MODE.
STAGE_MODES = (
    "nearest_even", "nearest_away", "nearest_up", "nearest_down", "nearest_zero", "floor", "ceil", "toward_zero",
    "to_odd", "nearest_odd", "away_from_zero", "jamming", "magnitude_truncation",
)  # fmt: skip
DRAWN = ("stochastic", "stochastic_nearest_even", "stochastic_nearest_odd", "stochastic_nearest_up")
STAGE = "a=x,result=z"
CAST = description("quantize", "fp32", "fp16")
CAST_PORTS = "a=x,result=z,flags=f"
HALVES = "a=a,b=b,result=z,flags=f"
SUM = description("add", "fp16,fp16", "fp16", flags="emu")  # the unit takes every NaN for a quiet one
PRODUCT = description("multiply", "fix8f4,fix8f4", "fix12f6", rounding="nearest_up")
PIPELINE = "a=x,b=y,result=z,clock=clk,1=rst_n"


def stage(rounding: str) -> object:
    return description("quantize", "fix24f12", "fix12f6", rounding=rounding)


def assert_proved(outcome: Outcome, inputs: str) -> None:
    assert outcome.answer is Answer.PROVED, str(outcome)
    assert outcome.lines[0].startswith(f"proved for all {inputs} inputs: ")


def assert_differs(outcome: Outcome, *operands: int, cause: str = "") -> None:
    assert (outcome.answer, outcome.is_smallest, outcome.operands) == (Answer.DIFFERS, True, operands), str(outcome)
    assert cause in " | ".join(outcome.causes), str(outcome)


def written(folder: Path, text: str, ports: str, latency: int | None = None) -> Unit:
    (folder / "unit.sv").write_text(text)
    return Unit(Sources((folder / "unit.sv",), "unit"), ports_of(ports), latency)


@pytest.mark.parametrize("rounding", STAGE_MODES[:1])
def test_a_stage_is_proved(rounding: str):
    assert_proved(proved(stage(rounding), unit("stage24_12", STAGE, MODE=STAGE_MODES.index(rounding))), "16,777,216")


@pytest.mark.slow
@pytest.mark.parametrize("rounding", STAGE_MODES[1:])
def test_a_stage_is_proved_in_every_mode(rounding: str):
    assert_proved(proved(stage(rounding), unit("stage24_12", STAGE, MODE=STAGE_MODES.index(rounding))), "16,777,216")


@pytest.mark.slow
@pytest.mark.parametrize("rounding", DRAWN)
def test_a_stage_with_random_bits_is_proved(rounding: str):
    d = description("quantize", "fix24f12", "fix12f6", rounding=rounding, n_rbits=4)
    assert_proved(proved(d, unit("drawn24_12", "a=x,rbits=u,result=z", MODE=DRAWN.index(rounding))), "268,435,456")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "wanted", "code", "cause"),
    [
        (0, "nearest_up", 0x20, "rounding nearest_even instead of nearest_up"),
        (5, "nearest_even", 0x21, "truncation of two's complement (floor) instead of nearest_even"),
    ],
)
def test_a_stage_in_another_mode_is_named_with_its_smallest_input(mode: int, wanted: str, code: int, cause: str):
    """The smallest code that the two modes treat otherwise: a tie at half a step, and one behind it."""
    assert_differs(proved(stage(wanted), unit("stage24_12", STAGE, MODE=mode)), code, cause=cause)


def test_a_tie_that_goes_up_is_named_with_its_smallest_input():
    outcome = proved(stage("nearest_even"), unit("stage24_12", STAGE, FAULT=1))
    assert_differs(outcome, 0x20, cause="rounding nearest_up instead of nearest_even")
    assert "|1 0 0  guard, round, sticky; last place 2**-6: a tie" in str(outcome)


@pytest.mark.slow
@pytest.mark.parametrize("rounding", ["nearest_even"])
def test_a_conversion_of_floats_is_proved_with_its_flags(rounding: str):
    assert_proved(proved(CAST, unit("half_of_single", CAST_PORTS)), "4,294,967,296")


@pytest.mark.slow
def test_a_lost_carry_is_shown_by_the_smallest_subnormal_that_needs_it():
    outcome = proved(CAST, unit("half_of_single", CAST_PORTS, FAULT=1))
    assert_differs(outcome, 0x387FE000)


def test_an_underflow_that_is_missing_where_rounding_reaches_the_normal_numbers_is_shown():
    outcome = proved(CAST, unit("half_of_single", CAST_PORTS, FAULT=2))
    assert_differs(outcome, 0x387FE000, cause="underflow where the written result is subnormal or 0")
    assert "0x387fe000" in str(outcome)
    assert "which is right" in str(outcome)


@pytest.mark.slow
def test_an_adder_of_floats_is_proved_with_its_flags():
    outcome = proved(SUM, unit("half_adder", HALVES), limit_s=1200)
    assert_proved(outcome, "4,294,967,296")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "operands", "cause"),
    [
        (1, (0x0001, 0x1400), "terms aligned to 14 digits, the others cut"),
        (2, (0x0000, 0x8000), "x - x gives -0"),
        (3, (0x4C00, 0x7BFF), "no overflow where rounding alone leaves the range"),
        (4, (0x4C00, 0x7BFF), "overflow missing"),
    ],
)
def test_a_fault_of_an_adder_is_shown_by_its_smallest_input(fault: int, operands: tuple[int, int], cause: str):
    outcome = proved(SUM, unit("half_adder", HALVES, FAULT=fault), limit_s=1200)
    assert_differs(outcome, *operands, cause=cause)


@pytest.mark.slow
def test_a_fused_unit_of_narrow_floats_is_proved_and_its_fault_is_shown():
    """20 bits: each input is compared with the definition itself."""
    d = description("fma", "fp8_e5m2,e3m2,e3m2", "e3m2", rounding="toward_zero")
    ports = "a=a,b=b,c=c,result=z"
    assert_proved(proved(d, unit("fused_narrow", ports)), "1,048,576")
    assert proved(d, unit("fused_narrow", ports, FAULT=1)).answer is Answer.DIFFERS


def test_a_small_unit_is_compared_with_the_definition_for_each_input():
    d = description("add", "fix4f1,fix4f1", "fix4f1")
    outcome = proved(d, unit("clamped_sum", HALVES))
    assert_proved(outcome, "256")
    assert outcome.how == "each compared with the definition"
    wraps = proved(d, unit("clamped_sum", HALVES, FAULT=1))
    assert_differs(wraps, 0x1, 0x7, cause="overflow rule wrap instead of saturate")
    assert "; 64 are wrong:" in str(wraps)


@pytest.mark.slow
def test_an_operation_without_reference_is_compared_with_the_definition_for_each_input(tmp_path: Path):
    """A table of all quotients, written by the definition, and the same with a bit of one flipped."""
    codes, fmt = np.arange(64, dtype=np.uint64), emu.parse("fix3f1")
    x, y = fmt.decode(codes >> np.uint64(3)), fmt.decode(codes & np.uint64(7))
    right = fmt.encode(emu.divide(x, y, a_format=fmt, b_format=fmt, out_format=fmt, backend="reference")).tolist()
    d = description("divide", "fix3f1,fix3f1", "fix3f1")
    for flipped in (None, 0o37):
        table = sum((code ^ (number == flipped)) << 3 * number for number, code in enumerate(right))
        source = (
            f"module unit(input [2:0] x, y, output [2:0] z);\n  wire [191:0] all = 192'h{table:x};\n"
            "  assign z = all >> (3 * {3'd0, x, y});\nendmodule\n"
        )
        outcome = proved(d, written(tmp_path, source, "a=x,b=y,result=z"))
        if flipped is None:
            assert_proved(outcome, "64")
        else:
            assert_differs(outcome, 0o3, 0o7)


def test_a_pipeline_is_proved_at_its_latency():
    assert_proved(proved(PRODUCT, unit("multiply_in_two", PIPELINE, 2)), "65,536")


@pytest.mark.parametrize("driven", ["09", "0b01001"])
def test_a_number_that_is_driven_into_a_port_may_begin_with_zeros(driven: str, tmp_path: Path):
    source = "module unit(input [3:0] x, input [3:0] mask, output [3:0] z);\n  assign z = x ^ mask ^ 4'd9;\nendmodule\n"
    d = description("quantize", "fix4f0", "fix4f0")
    assert_proved(proved(d, written(tmp_path, source, f"a=x,result=z,{driven}=mask")), "16")


@pytest.mark.slow
def test_another_latency_is_named():
    outcome = proved(PRODUCT, unit("multiply_in_two", PIPELINE, 1))
    assert outcome.answer is Answer.DIFFERS
    assert outcome.causes == ("outputs that depend on what registers held before; with --latency 2 they do not",)


@pytest.mark.slow
def test_an_operand_of_another_cycle_is_named():
    outcome = proved(PRODUCT, unit("multiply_in_two", PIPELINE, 2, FAULT=1))
    assert outcome.answer is Answer.DIFFERS
    assert "depend on what registers held before" in outcome.causes[0]


def test_an_operand_of_the_next_cycle_is_named(tmp_path: Path):
    """Operands that stay the same for two cycles would give the right sum."""
    source = (
        "module unit(input clk, input [3:0] x, y, output reg [3:0] z);\n  reg [3:0] t;\n"
        "  always @(posedge clk) begin\n    t <= x;\n    z <= t + y;\n  end\nendmodule\n"
    )
    d = description("add", "fix4f0,fix4f0", "fix4f0", overflow="wrap")
    outcome = proved(d, written(tmp_path, source, "a=x,b=y,result=z,clock=clk", 2))
    assert outcome.answer is Answer.DIFFERS
    assert outcome.causes == ("outputs that depend on y of cycle 1, with any latency",)


def test_a_valid_bit_that_is_driven_hides_what_registers_hold(tmp_path: Path):
    """The gates read a register that the valid bit never selects."""
    source = (
        "module unit(input clk, valid, input [3:0] x, output reg [3:0] z);\n"
        "  always @(posedge clk) if (valid) z <= x;\nendmodule\n"
    )
    d = description("quantize", "fix4f0", "fix4f0")
    outcome = proved(d, written(tmp_path, source, "a=x,result=z,clock=clk,1=valid", 1))
    assert_proved(outcome, "16")
    assert outcome.how == "each compared with the definition"
    outcome = proved(d, written(tmp_path, source, "a=x,result=z,clock=clk,free=valid", 1))
    assert outcome.answer is Answer.DIFFERS


def test_undefined_bits_may_be_anything(tmp_path: Path):
    """x stands where the result would be 0: a simulator that takes it for 0 would say that the unit is right."""
    source = "module unit(input [3:0] x, output [3:0] z);\n  assign z = x == 0 ? 4'bx : x;\nendmodule\n"
    outcome = proved(description("quantize", "fix4f0", "fix4f0"), written(tmp_path, source, "a=x,result=z"))
    assert_differs(outcome, 0, cause="outputs that depend on undefined bits")


@pytest.mark.slow
def test_undefined_bits_that_one_input_depends_on_are_seen(tmp_path: Path):
    """Zeros in their place would be right; and inputs drawn by chance hardly ever meet this one."""
    source = (
        "module unit(input [19:0] x, output [19:0] z);\n  assign z = x == 20'h80000 ? {1'b1, 19'bx} : x;\nendmodule\n"
    )
    outcome = proved(description("quantize", "fix20f0", "fix20f0"), written(tmp_path, source, "a=x,result=z"))
    assert_differs(outcome, 0x80000, cause="outputs that depend on undefined bits")


def test_undefined_bits_that_nothing_depends_on_are_allowed(tmp_path: Path):
    """An adder reads them, and what it then gives is not selected."""
    source = (
        "module unit(input [3:0] x, output reg [3:0] z);\n  reg [3:0] t, s;\n"
        "  always @* begin\n    t = 4'bx;\n    if (x[3]) t = x;\n    s = t + 4'd3;\n"
        "    z = x[3] ? s - 4'd3 : x;\n  end\nendmodule\n"
    )
    outcome = proved(description("quantize", "fix4f0", "fix4f0"), written(tmp_path, source, "a=x,result=z"))
    assert_proved(outcome, "16")
    assert outcome.how == "each compared with the definition"


@pytest.mark.parametrize("any_nan", [False, True])
def test_a_nan_of_another_pattern_is_wrong_unless_any_will_do(any_nan: bool, tmp_path: Path):
    source = "module unit(input [7:0] x, output [7:0] z);\n  assign z = &x[6:2] && |x[1:0] ? 8'hff : x;\nendmodule\n"
    d = description("quantize", "fp8_e5m2", "fp8_e5m2")
    outcome = proved(d, written(tmp_path, source, "a=x,result=z"), any_nan=any_nan)
    if any_nan:
        assert_proved(outcome, "256")
    else:
        assert_differs(outcome, 0x7D, cause="a NaN of another pattern")


@pytest.mark.parametrize("number", ["8'h3c", "8'h00"])
def test_a_nan_in_place_of_a_number_is_wrong_even_if_any_nan_will_do(number: str, tmp_path: Path):
    source = f"module unit(input [7:0] x, output [7:0] z);\n  assign z = x == {number} ? 8'h7f : x;\nendmodule\n"
    d = description("quantize", "fp8_e5m2", "fp8_e5m2")
    outcome = proved(d, written(tmp_path, source, "a=x,result=z"), any_nan=True)
    assert_differs(outcome, int(number[3:], 16), cause="")


def test_any_nan_is_taken_by_the_miter_too(tmp_path: Path):
    source = (
        "module unit #(parameter FAULT = 0) (input [31:0] x, output [31:0] z);\n"
        "  assign z = &x[30:23] && |x[22:0] || FAULT && x == 32'h3f800000 ? 32'hffffffff : x;\nendmodule\n"
    )
    d = description("quantize", "fp32", "fp32")
    right = written(tmp_path, source, "a=x,result=z")
    assert_proved(proved(d, right, any_nan=True), "4,294,967,296")
    assert_differs(proved(d, right), 0x7F800001)
    wrong = Unit(Sources(right.sources.files, "unit", {"FAULT": 1}), right.ports)
    assert_differs(proved(d, wrong, any_nan=True), 0x3F800000)


def test_one_flag_alone_is_compared(tmp_path: Path):
    source = (
        "module unit(input [5:0] x, output [3:0] z, output o);\n  wire big = x[5:3] != 0 && x[5:3] != 7;\n"
        "  assign o = big;\n  assign z = big ? {x[5], {3{~x[5]}}} : x[3:0];\nendmodule\n"
    )
    d = description("quantize", "fix6f0", "fix4f0")
    assert_proved(proved(d, written(tmp_path, source, "a=x,result=z,overflow=o")), "64")
    late = source.replace("assign o = big", "assign o = big & x != 9")
    assert_differs(proved(d, written(tmp_path, late, "a=x,result=z,overflow=o")), 9)


def test_without_a_port_for_flags_none_is_compared():
    d = description("add", "fix4f1,fix4f1", "fix4f1")
    assert_proved(proved(d, unit("clamped_sum", "a=a,b=b,result=z")), "256")


@pytest.mark.slow
def test_too_little_time_is_not_proved():
    """Two multipliers of 20 bits: no solver here compares them in three seconds."""
    d = description("multiply", "fix20f0,fix20f0", "fix40f0")
    outcome = proved(d, unit("product20", "a=a,b=b,result=z"), limit_s=3)
    assert outcome.answer is Answer.NOT_PROVED, str(outcome)
    assert outcome.lines[0].startswith("not proved within 3 s: Yosys")
    assert "of 1,099,511,627,776 inputs" in outcome.lines[1]
    assert outcome.lines[2].startswith("1,000 golden vectors are right; give more time with --limit")


@pytest.mark.slow
def test_a_fault_that_no_time_is_left_to_look_for_is_not_called_right():
    """One wrong pair of 2**40: the solver finds it, or the answer is that it is not proved."""
    d = description("multiply", "fix20f0,fix20f0", "fix40f0")
    outcome = proved(d, unit("product20", "a=a,b=b,result=z", FAULT=1), limit_s=30)
    assert outcome.answer is not Answer.PROVED
    assert outcome.operands in ((), (0x5A5A5, 0x5A5A5))


def test_included_files_and_macros_are_read(tmp_path: Path):
    """One file lies beside the source, the other in a folder that is named."""
    (tmp_path / "more").mkdir()
    (tmp_path / "beside.vh").write_text("`define OUT assign z\n")
    (tmp_path / "more" / "far.svh").write_text("`define IN x\n")
    source = (
        '`include "beside.vh"\n`include "far.svh"\n'
        "module unit(input [3:0] x, output [3:0] z);\n  `OUT = `IN ^ `MASK;\nendmodule\n"
    )
    (tmp_path / "unit.sv").write_text(source)
    d = description("quantize", "fix4f0", "fix4f0")
    for mask, answer in (("4'd0", Answer.PROVED), ("4'd1", Answer.DIFFERS)):
        sources = Sources((tmp_path / "unit.sv",), "unit", include=(tmp_path / "more",), define=(f"MASK={mask}",))
        assert proved(d, Unit(sources, ports_of("a=x,result=z"))).answer is answer


@pytest.mark.slow
def test_operands_of_more_than_64_bits_in_all_are_shown(tmp_path: Path):
    """The first operand instead of the sum; there is no time to look for the smallest wrong input."""
    source = "module unit(input [63:0] x, y, output [63:0] z);\n  assign z = x;\nendmodule\n"
    d = description("add", "fp64,fp64", "fp64")
    outcome = proved(d, written(tmp_path, source, "a=x,b=y,result=z"), limit_s=1)
    assert outcome.answer is Answer.DIFFERS
    assert outcome.n_bits == 128
    assert [line.split()[0] for line in outcome.lines[1:3]] == ["a", "b"]
    right = int(emu.parse("fp64").encode(np.add(*np.array(outcome.operands, np.uint64).view(np.float64))))
    assert right != outcome.operands[0]


def test_bits_are_counted_from_the_lowest_one_whatever_their_numbers(tmp_path: Path):
    """Ports that begin with another bit than 0, and a result whose lowest bits are constants."""
    source = "module unit(input [7:4] x, output [9:4] z);\n  assign z = {x, 2'b00};\nendmodule\n"
    d = description("quantize", "fix4f0", "fix6f2")
    assert_proved(proved(d, written(tmp_path, source, "a=x,result=z")), "16")


WIRE = description("quantize", "fix4f0", "fix4f0")


def wire(body: str, folder: Path) -> Unit:
    path = folder / "unit.sv"
    path.write_text(f"module unit(input [3:0] x, output [3:0] z);\n {body}\nendmodule\n")
    return Unit(Sources((path,), "unit"), ports_of("a=x,result=z"))


@pytest.mark.parametrize("body", [
    "wire b = x[{1'b0, x[1:0]}];\n assign z = {x[3:1], x[0] & b | x[0] & ~b};",
    "wire b = x[x[3:1]];\n assign z = {x[3:1], x[3] ? x[0] : (x[0] & b) | (x[0] & ~b)};",
    "assign z = x;\n always @* begin assert (z == 3); assume (x == 3); cover (x == 1); end",
], ids=["a bit that is selected", "a bit beyond the word", "assertions, which are not believed"])  # fmt: skip
def test_a_unit_is_read_whatever_its_source_has_besides(body: str, tmp_path: Path):
    assert_proved(proved(WIRE, wire(body, tmp_path)), "16")


@pytest.mark.parametrize("body", [
    "assign z = x == 5 ? 4'bz : x;",
    "wire b = x[{1'b1, x[1:0]}];\n assign z = x == 5 ? {x[3:1], b} : x;",
], ids=["high impedance", "a bit beyond the word"])  # fmt: skip
def test_what_nobody_drives_is_no_right_result(body: str, tmp_path: Path):
    assert_differs(proved(WIRE, wire(body, tmp_path)), 5, cause="outputs that depend on undefined bits")
