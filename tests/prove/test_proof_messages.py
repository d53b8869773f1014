"""What `emu prove` says of units that it cannot take: the thing, the rule, the value, the remedy."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from proving import UNITS, description, needs_yosys, proved, unit

from emu.errors import BackendUnavailable, ConfigError
from emu.prove import Proof, Sources, Unit, ports_of, prove, yosys

ADDER = "a=a,b=b,result=z,flags=f"
SUM = description("add", "fix4f1,fix4f1", "fix4f1")
PRODUCT = description("multiply", "fix8f4,fix8f4", "fix12f6", rounding="nearest_up")
PIPELINE = "a=x,b=y,result=z,clock=clk,1=rst_n"

pytestmark = needs_yosys


def message(d, u, **options) -> str:
    with pytest.raises(ConfigError) as error:
        prove(Proof(d, u, **options))
    return str(error.value)


def written(
    folder: Path, text: str, ports: str = "a=x,result=z", top: str = "unit", latency: int | None = None
) -> Unit:
    path = folder / "unit.sv"
    path.write_text(text)
    return Unit(Sources((path,), top), ports_of(ports), latency)


WIDEN = description("quantize", "fix4f0", "fix4f0")


def test_sources_that_do_not_compile_show_their_first_error(tmp_path: Path):
    text = message(
        WIDEN, written(tmp_path, "module unit(input [3:0] x, output [3:0] z);\n  assign z = x +;\nendmodule\n")
    )
    assert text.startswith(f"sources must be what {yosys.version()} reads, got: ")
    assert "unit.sv:2" in text
    assert "syntax error" in text


def test_a_module_that_is_not_there_is_said(tmp_path: Path):
    source = "module unit_b(input [3:0] x, output [3:0] z);\n  gone g(x, z);\nendmodule\n"
    text = message(WIDEN, written(tmp_path, source, top="unit_b"))
    assert "gone" in text


def test_a_missing_top_names_the_nearest_module():
    u = Unit(Sources((UNITS / "clamped_sum.sv",), "clamped_sun"), ports_of(ADDER))
    assert message(SUM, u) == ("`top` must be a module of the sources, got 'clamped_sun'; did you mean 'clamped_sum'?")


def test_a_missing_file_is_said():
    u = Unit(Sources((UNITS / "gone.sv",), "gone"), ports_of(ADDER))
    assert message(SUM, u) == (f"`sources` must be files, got '{UNITS / 'gone.sv'}', which is none; correct the path")


def test_macros_and_folders_that_are_none_are_said(tmp_path: Path):
    for options, expected in (
        ({"define": ("A=1;shell ls",)}, "`define` must be NAME or NAME=VALUE without blanks, quotes, `;` and `#`, got"),
        ({"include": (tmp_path / "gone",)}, f"`include` must be folders, got '{tmp_path / 'gone'}', which is none; "),
    ):
        u = Unit(Sources((UNITS / "clamped_sum.sv",), "clamped_sum", **options), ports_of(ADDER))
        assert message(SUM, u).startswith(expected)


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        ("a=a,b=b,result=y", "`ports` must name ports of clamped_sum, got 'y'; known: a, b, f, z"),
        ("a=a,result=z", "`ports` must name one port for b, got 0; ports of clamped_sum that have no part yet: b, f"),
        (
            "a=a,b=b,flags=f",
            "`ports` must name one port for result, got 0; ports of clamped_sum that have no part yet: z",
        ),
        (
            "a=a,b=b,resalt=z",
            "a port must be one of a, b, result, flags, inexact, underflow, overflow, infinite, invalid, clock, free, "
            "or a number that is driven into it, got 'resalt' for 'z'; did you mean 'result'?",
        ),
        ("a=a,b=z,result=b", "b must be an input of clamped_sum, got 'z', an output; name another port"),
        ("a=a,b=b,result=z,7=f", "7 must be an input of clamped_sum, got 'f', an output; name another port"),
        ("a=a,b=b,result=z,inexact=f", "inexact must have 1 bit, those of one flag, got port 'f' of clamped_sum"),
        ("a=a,b=b,result", "an entry of `ports` must be ROLE=PORT, got 'result'; write it like a=x or result=z"),
        ("a=a,b=a,result=z", "a port must be in `ports` once, got 'a' twice; leave one of them out"),
    ],
)  # fmt: skip
def test_ports_that_do_not_fit_are_said(ports: str, expected: str):
    with pytest.raises(ConfigError) as error:
        prove(Proof(SUM, unit("clamped_sum", ports)))
    assert str(error.value).startswith(expected)


def test_widths_that_do_not_fit_are_said():
    text = message(description("add", "fp32,fix4f1", "fix4f1"), unit("clamped_sum", ADDER))
    assert text == (
        "a must have 32 bits, those of fp32, got port 'a' of clamped_sum with 4; give another format, or set the "
        "unit's parameters"
    )


def test_an_input_that_has_no_part_is_said(tmp_path: Path):
    source = "module unit(input [3:0] x, input [1:0] mode, output [3:0] z);\n  assign z = x;\nendmodule\n"
    assert message(WIDEN, written(tmp_path, source)) == (
        "`ports` must name every input of unit, got none for mode; say what is driven into it, like 0=mode, or "
        "free=mode if it may be anything"
    )
    assert message(WIDEN, written(tmp_path, source, "a=x,result=z,9=mode")) == (
        "'mode' of unit must be driven by 2 bits, got 9; correct it"
    )


def test_a_clocked_unit_without_latency_is_told_it():
    assert message(PRODUCT, unit("multiply_in_two", PIPELINE)) == (
        "`latency` must be given of a clocked unit, got none for multiply_in_two, which has 28 registers, the first "
        "'product'; give --latency 2"
    )


def test_the_latency_of_a_unit_with_a_free_port_is_told(tmp_path: Path):
    """The free port is read a cycle after the operands."""
    source = (
        "module unit(input clk, input e, input [3:0] x, output reg [3:0] z);\n  reg [3:0] t;\n"
        "  always @(posedge clk) begin\n    t <= x;\n    z <= t & {4{e}};\n  end\nendmodule\n"
    )
    ports = "a=x,result=z,clock=clk,free=e"
    assert message(WIDEN, written(tmp_path, source, ports)).endswith("; give --latency 2")
    outcome = proved(WIDEN, written(tmp_path, source, ports, latency=1))
    assert outcome.causes == ("outputs that depend on what registers held before; with --latency 2 they do not",)
    # then it is the free port that is wrong, and not the cycle of an operand
    assert "depend on" not in " ".join(proved(WIDEN, written(tmp_path, source, ports, latency=2)).causes)


def test_a_clock_that_is_none_is_said():
    text = message(PRODUCT, unit("multiply_in_two", "a=x,b=y,result=z,0=clk,1=rst_n", 2))
    assert text == (
        "registers must be clocked by one port, on its rising edge, got clk for multiply_in_two and clock=none in "
        "`ports`; name the clock that all of them have, or give a version without clock gates and falling edges"
    )


def test_a_latency_of_a_unit_without_registers_is_said():
    assert message(SUM, unit("clamped_sum", ADDER, 2)) == (
        "`latency` must be left out of a unit without registers, got 2 for clamped_sum; leave it out"
    )


def test_a_latch_is_said(tmp_path: Path):
    source = "module unit(input [3:0] x, output reg [3:0] z);\n  always @* if (x[0]) z = x;\nendmodule\n"
    text = message(WIDEN, written(tmp_path, source))
    assert text == (
        f"a unit must be without latches, got 1 in unit, the first at {tmp_path / 'unit.sv'}:2; assign its output in "
        "every branch"
    )


@pytest.mark.parametrize(("body", "expected"), [
    ("assign z = x[0] ? x : 4'bz;\n assign z = x[0] ? 4'bz : x;", "a wire with several drivers, at "),
    ("wire [3:0] t, u;\n assign t = x ^ u;\n assign u = t & 4'h7;\n assign z = t;", "a loop without a register, at "),
])  # fmt: skip
def test_wires_that_no_single_gate_drives_are_said_with_their_place(body: str, expected: str, tmp_path: Path):
    text = message(WIDEN, written(tmp_path, f"module unit(input [3:0] x, output [3:0] z);\n {body}\nendmodule\n"))
    assert f"reads, got: {expected}{tmp_path / 'unit.sv'}:" in text


def test_operations_without_reference_are_said_if_their_inputs_are_many(tmp_path: Path):
    source = "module unit(input [15:0] x, y, output [15:0] z);\n  assign z = x ^ y;\nendmodule\n"
    divider = written(tmp_path, source, "a=x,b=y,result=z")
    assert message(description("divide", "fp16,fp16", "fp16"), divider) == (
        "`operation` must be one of quantize, add, subtract, multiply, fma for 32 bits of operands, got divide: others "
        "are compared input by input, up to 20 bits; choose narrower formats"
    )
    assert message(description("matmul", "fp16,fp16", "fp16"), unit("clamped_sum", ADDER)) == (
        "`operation` must have one code per operand, got matmul; prove its multiply and its add, or check it with emu "
        "vectors"
    )


def test_no_time_is_said():
    rule = "`limit` must be a positive number of seconds, at most 1,000,000, got"
    assert message(SUM, unit("clamped_sum", ADDER), limit_s=0) == f"{rule} 0; give more"
    assert message(SUM, unit("clamped_sum", ADDER), limit_s=math.inf) == f"{rule} inf; give less"
    assert message(SUM, unit("clamped_sum", ADDER), limit_s=math.nan) == f"{rule} nan; give more"


@pytest.mark.parametrize("latency", [-1, 1025])
def test_a_latency_is_a_number_of_cycles(latency: int):
    text = message(PRODUCT, unit("multiply_in_two", PIPELINE, latency))
    assert text.startswith(f"`latency` must be in 0..1024, got {latency}; choose a ")


def test_an_absent_yosys_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(yosys.shutil, "which", lambda name: None)
    monkeypatch.setattr(yosys, "find_spec", lambda name: None)
    yosys.command.cache_clear()
    try:
        with pytest.raises(BackendUnavailable, match=r"pip install 'emu-numerics\[prove\]'") as error:
            prove(Proof(SUM, unit("clamped_sum", ADDER)))
    finally:
        yosys.command.cache_clear()
    assert str(error.value).startswith("emu prove must have Yosys, got neither `yosys` on the PATH nor the package")


def test_the_place_of_a_latch_and_of_an_error_has_the_path_of_its_file(tmp_path: Path):
    """The name of a file has a dash and a dot, and the folders are called as the copies of other files are."""
    others = [tmp_path / "10" / "0" / f"part{i}.sv" for i in range(11)]
    others[0].parent.mkdir(parents=True)
    for i, path in enumerate(others):
        path.write_text(f"module part{i}(input x, output z);\n  assign z = x;\nendmodule\n")
    latch = tmp_path / "10" / "0" / "a-b.0.sv"
    latch.write_text("module latch(input [3:0] x, output reg [3:0] z);\n\n  always @* if (x[0]) z = x;\nendmodule\n")
    ports = ports_of("a=x,result=z")
    text = message(WIDEN, Unit(Sources((*others, latch), "latch"), ports))
    assert f"the first at {latch}:3; assign" in text
    others[10] = others[10].rename(others[0].parent.parent / "part0.sv")
    others[10].write_text("module part10(input x, output z);\n  assign z = x +;\nendmodule\n")
    assert f"got: {others[10]}:2" in message(WIDEN, Unit(Sources((*others, latch), "latch"), ports))
