"""Ports of every kind carry what they are described as: random bits, several results, terms, low signals, macros."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fast_suite import most_are_slow
from rtl_units import needs

import emu
from emu.errors import RtlError
from emu.testing import assert_bits_equal, check_backend
from emu.testing.rtl import Constant, Flags, In, Mode, Out, RandomBits, Unit
from emu.testing.rtl.languages.entity import ports_of_entity
from emu.testing.rtl.simulators import SIMULATORS
from emu.testing.vectors import Description, make_vectors

STOCHASTIC = """
module stochastic (input signed [11:0] x, input [3:0] r, output signed [7:0] y);
  wire signed [12:0] sum = x + $signed({1'b0, r});
  wire signed [12:0] cut = sum >>> 4;
  assign y = cut > 127 ? 8'sd127 : cut[7:0];
endmodule
"""
DIVISION = """
module division (
  input [7:0] a, input [7:0] b, output [7:0] quotient, output [7:0] rest, output zero, output [1:0] more
);
  assign quotient = b == 0 ? 8'd255 : a / b;
  assign rest = b == 0 ? a : a % b;
  assign zero = b == 0;
  assign more = {a == 255, a == 0};
endmodule
"""
FIRST = """
module first (input [31:0] a, input [2:0] mode, input en, output [7:0] y);
  assign y = en ? a[8 * mode[1:0] +: 8] : 8'd0;
endmodule
"""
LOW = """
module low (
  input clk, input clear, input go_n, output reg busy, input [7:0] x, output reg done_n, output reg [7:0] y
);
  always @(posedge clk) begin
    done_n <= !busy;
    if (clear) busy <= 1'b0;
    else if (!go_n && !busy) begin
      busy <= 1'b1;
      y <= x + `STEP;
    end else busy <= 1'b0;
  end
endmodule
"""
PASSED = 'module passed (input [15:0] x, output [15:0] y);\n`include "body.vh"\nendmodule\n'
PICK = """
library ieee;
use ieee.std_logic_1164.all;
use ieee.numeric_std.all;
entity pick is
  generic (OFFSET : integer := 0; INVERT : boolean := false; NAME : string := "none");
  port (
    clk : in std_logic; a : in std_logic_vector(31 downto 0); which : in unsigned(1 downto 0); en : in std_logic;
    y : out std_logic_vector(7 downto 0); raised : out std_logic_vector(1 downto 0)
  );
end entity;
architecture rtl of pick is
begin
  process (clk)
    variable part : unsigned(7 downto 0);
  begin
    if rising_edge(clk) then
      part := unsigned(a(8 * to_integer(which) + 7 downto 8 * to_integer(which))) + OFFSET + NAME'length;
      if INVERT then
        part := not part;
      end if;
      y <= std_logic_vector(part);
      raised <= en & '1';
    end if;
  end process;
end architecture;
"""
MODES = {"nearest_even": 0, "floor": 3}
TERMS = [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]
simulators = most_are_slow(
    "simulator",
    [pytest.param(name, id=name, marks=needs(name)) for name in ("icarus", "verilator")],
    keep=["icarus"],
)


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


@simulators
def test_random_bits_reach_their_port(simulator: str, tmp_path: Path):
    ports = {"x": In("fix12f8"), "r": RandomBits(4), "y": Out("fix8f4")}
    unit = Unit(written(tmp_path, "u.v", STOCHASTIC), "stochastic", ports, simulator=simulator)
    x = np.random.default_rng(1).integers(-2048, 2048, 200) / 256
    rbits = np.random.default_rng(2).integers(0, 16, 200).astype(np.uint32)
    wanted = emu.quantize(x, "fix8f4", rounding="stochastic", rbits=rbits, n_rbits=4, backend="reference")
    assert_bits_equal(unit(x, rbits=rbits), wanted, "fix8f4")
    described = {"formats": ("fix12f8",), "out_format": "fix8f4", "rounding": "stochastic", "n_rbits": 4}
    assert unit.check(make_vectors(Description(operation="quantize", **described, count=100))) is None
    with pytest.raises(emu.FormatError, match="`rbits` must hold random bits for each result, got none"):
        unit(x)


@simulators
def test_several_results_and_ports_of_flags(simulator: str, tmp_path: Path):
    byte = "ufix8f0"
    ports = {"a": In(byte), "b": In(byte), "quotient": Out(byte), "rest": Out(byte)}
    ports |= {"zero": Flags(["division_by_zero"]), "more": Flags({"subnormal": 0, "accumulator_overflow": 1})}
    unit = Unit(written(tmp_path, "u.v", DIVISION), "division", ports, simulator=simulator)
    flags = emu.Flags()
    quotient, rest = unit([255, 17, 0, 9], [16, 5, 0, 0], flags=flags)
    assert quotient.tolist() == [15, 3, 255, 255]
    assert rest.tolist() == [15, 2, 0, 9]
    assert flags == emu.Flags(division_by_zero=2, subnormal=1, accumulator_overflow=1)


@simulators
def test_terms_stand_in_a_port_in_either_order(simulator: str, tmp_path: Path):
    path = written(tmp_path, "u.v", FIRST)
    rest = {"mode": Mode(MODES, 3), "en": Constant(1), "y": Out("fix8f0")}
    low = Unit(path, "first", {"a": In("fix8f0", 4), **rest}, simulator=simulator)
    assert low(TERMS).tolist() == [1.0, 5.0]
    assert low(TERMS, rounding="floor").tolist() == [4.0, 8.0]
    high = Unit(path, "first", {"a": In("fix8f0", 4, first_is_low=False), **rest}, simulator=simulator)
    assert high(TERMS).tolist() == [4.0, 8.0]
    off = Unit(path, "first", {"a": In("fix8f0", 4), **rest, "en": Constant(0)}, simulator=simulator)
    assert off(TERMS).tolist() == [0.0, 0.0]


@simulators
def test_signals_may_be_active_low_and_have_other_names(simulator: str, tmp_path: Path):
    signals = {"offer": "!go_n", "accept": "!busy", "result": "!done_n", "take": None}
    options: dict[str, Any] = {"clock": "clk", "reset": "clear", "handshake": "valid_ready", "signals": signals}
    ports = {"x": In("ufix8f0"), "y": Out("ufix8f0")}
    path = written(tmp_path, "u.v", LOW)
    for step in ("3", "7"):
        unit = Unit(path, "low", ports, **options, defines={"STEP": step}, simulator=simulator)
        assert unit([1, 2, 3]).tolist() == [1 + int(step), 2 + int(step), 3 + int(step)]
        assert unit.compare(np.arange(30), rounding=None) is None
    wrong = {**options, "signals": {**signals, "result": "done_n"}}
    with pytest.raises(RtlError):
        Unit(path, "low", ports, **wrong, defines={"STEP": "1"}, simulator=simulator, bound_cycles=50)([1, 2, 3])


TABLE = """
module square (input [3:0] x, output [7:0] y);
  reg [7:0] table_ [0:15];
  initial $readmemh("squares.hex", table_);
  assign y = table_[x];
endmodule
"""


@simulators
def test_a_unit_reads_its_tables(simulator: str, tmp_path: Path):
    path = written(tmp_path, "u.v", TABLE)
    table = written(tmp_path, "squares.hex", "".join(f"{x * x:02x}\n" for x in range(16)))
    ports = {"x": In("ufix4f0"), "y": Out("ufix8f0")}
    unit = Unit(path, "square", ports, data=[table], simulator=simulator)
    assert unit(np.arange(16)).tolist() == [x * x for x in range(16)]
    for name in ("a.hex", "missing.hex"):
        if name == "a.hex":
            written(tmp_path, name, "")
        with pytest.raises(emu.ConfigError, match=f"`data` must be files with names of their own, got .*{name}, "):
            Unit(path, "square", ports, data=[tmp_path / name], simulator=simulator)(1)


@needs("icarus")
def test_one_folder_one_word_and_one_table_need_no_list(tmp_path: Path):
    """A text alone is not taken for its characters."""
    text = TABLE.replace("assign y = table_[x];", '`include "body.vh"\n').replace("squares", "`NAME")
    path = written(tmp_path, "u.v", text.replace('"`NAME.hex"', "`NAME"))
    written(tmp_path, "body.vh", "assign y = table_[x];\n")
    table = written(tmp_path, "squares.hex", "".join(f"{x * x:02x}\n" for x in range(16)))
    options: dict[str, Any] = {"include": str(tmp_path), "data": str(table), "options": '-DNAME="squares.hex"'}
    unit = Unit(path, "square", {"x": In("ufix4f0"), "y": Out("ufix8f0")}, **options, simulator="icarus")
    assert unit(np.arange(16)).tolist() == [x * x for x in range(16)]


@needs("icarus")
def test_two_tables_of_one_name_are_refused(tmp_path: Path):
    path, tables = written(tmp_path, "u.v", TABLE), [tmp_path / name for name in ("one", "two")]
    for folder in tables:
        folder.mkdir()
        written(folder, "squares.hex", "00\n" * 16)
    ports = {"x": In("ufix4f0"), "y": Out("ufix8f0")}
    unit = Unit(path, "square", ports, data=[folder / "squares.hex" for folder in tables], simulator="icarus")
    message = r"names of their own, got .*two/squares.hex, a name that another of them has; correct it"
    with pytest.raises(emu.ConfigError, match=message):
        unit(1)


DELAYED = """
module delayed (input clk, input [7:0] x, output reg [7:0] y);
  always @(posedge clk) y <= #1 x;
endmodule
"""


@simulators
def test_delays_of_registers_change_nothing(simulator: str, tmp_path: Path):
    ports = {"x": In("fix8f0"), "y": Out("fix8f0")}
    unit = Unit(written(tmp_path, "u.v", DELAYED), "delayed", ports, clock="clk", simulator=simulator)
    assert unit([1.0, 2.0, 3.0]).tolist() == [1.0, 2.0, 3.0]
    assert unit.latency == 1


@needs("icarus")
def test_included_files_belong_to_the_sources(tmp_path: Path):
    """What was built is taken again until a source or an included file changes."""
    path, headers = written(tmp_path, "u.v", PASSED), tmp_path / "headers"
    headers.mkdir()
    body = written(headers, "body.vh", "assign y = x;\n")
    ports = {"x": In("fp16"), "y": Out("fp16")}
    unit = Unit(path, "passed", ports, include=[headers], simulator="icarus")
    assert unit([1.5]).tolist() == [1.5]
    again = Unit(path, "passed", ports, include=[headers], simulator="icarus")
    assert again.simulation.build() == unit.simulation.build()
    body.write_text("assign y = {!x[15], x[14:0]};\n")
    changed = Unit(path, "passed", ports, include=[headers], simulator="icarus")
    assert changed([1.5]).tolist() == [-1.5]
    assert changed.simulation.build() != unit.simulation.build()


@needs("icarus")
@pytest.mark.parametrize("ending", ["inc", "v", "sv"])
def test_an_included_file_of_any_ending_belongs_to_the_sources(ending: str, tmp_path: Path):
    """Verilog includes a file of any name, from a folder below too, and that file may include another."""
    path = written(tmp_path, "u.v", PASSED.replace("body.vh", f"below/body.{ending}"))
    (tmp_path / "below").mkdir()
    written(tmp_path / "below", f"body.{ending}", f'`include "inner.{ending}"\n')
    inner = written(tmp_path, f"inner.{ending}", "assign y = x;\n")
    ports = {"x": In("fp16"), "y": Out("fp16")}
    options: dict[str, Any] = {"include": [tmp_path], "simulator": "icarus"}
    assert Unit(path, "passed", ports, **options)([1.5]).tolist() == [1.5]
    inner.write_text("assign y = {!x[15], x[14:0]};\n")
    assert Unit(path, "passed", ports, **options)([1.5]).tolist() == [-1.5]


@needs("icarus")
def test_a_simulator_is_asked_for_the_sources_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = written(tmp_path, "u.v", FIRST)
    ports = {"a": In("fix8f0", 4), "mode": Constant(1, 3), "en": Constant(1), "y": Out("fix8f0")}
    assert Unit(path, "first", ports, simulator="icarus")(TERMS).tolist() == [2.0, 6.0]
    monkeypatch.setattr(type(SIMULATORS["icarus"]), "build", lambda *_: pytest.fail("built again"))
    assert Unit(path, "first", ports, simulator="icarus")(TERMS).tolist() == [2.0, 6.0]


@needs("icarus")
def test_nan_of_any_pattern_are_taken_if_that_is_wanted(tmp_path: Path):
    path = written(tmp_path, "u.v", "module passed (input [15:0] x, output [15:0] y); assign y = x; endmodule\n")
    unit = Unit(path, "passed", {"x": In("fp16"), "y": Out("fp16")}, simulator="icarus")
    vectors = make_vectors(Description(operation="quantize", formats=("fp16",), out_format="fp16", count=300))
    finding = unit.check(vectors, keep=tmp_path)
    assert finding is not None
    assert np.isnan(emu.parse("fp16").decode(vectors.results[finding.index]))
    assert unit.check(vectors, any_nan=True) is None


@needs("icarus")
def test_the_first_simulator_that_compiles_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = written(tmp_path, "u.v", FIRST)
    ports = {"a": In("fix8f0", 4), "mode": Constant(1, 3), "en": Constant(1), "y": Out("fix8f0")}
    assert Unit(path, "first", ports).simulator == "icarus"


@needs("icarus")
def test_recorded_bits_are_a_clause_that_is_offered(tmp_path: Path):
    ports = {"x": In("fix12f8"), "r": RandomBits(4), "y": Out("fix8f4")}
    unit = Unit(written(tmp_path, "u.v", STOCHASTIC), "stochastic", ports, simulator="icarus")
    function = unit.as_function("quantize", rounding="stochastic")
    assert function(np.array([0.03125]), rbits=np.array([8]), rounding="stochastic").tolist() == [0.0625]
    assert function(np.array([0.03125]), rbits=np.array([8]), n_rbits=4).tolist() == [0.0625]
    with pytest.raises(NotImplementedError, match="`n_rbits` of stochastic is 4, not 24"):
        function(np.array([0.03125]), rbits=np.array([8]), n_rbits=24)
    report = check_backend(function, formats=["fix8f4"], operations=["quantize"], roundings=["stochastic"])
    assert "`n_rbits` of stochastic is 4, not 24" in str(report)
    with pytest.raises(NotImplementedError, match="are fix12f8, and not every number asked for is one"):
        function(np.array([0.03]), rbits=np.array([8]))


@needs("icarus")
def test_a_waveform_has_random_bits(tmp_path: Path):
    ports = {"x": In("fix12f8"), "r": RandomBits(4), "y": Out("fix8f4")}
    unit = Unit(written(tmp_path, "u.v", STOCHASTIC), "stochastic", ports, simulator="icarus")
    text = unit.trace([[0.5]], tmp_path / "wave.vcd", rbits=[9]).read_text()
    assert "b1001 " in text


@needs("icarus")
@pytest.mark.parametrize(
    ("rbits", "got"),
    [
        ([1, 16], "got 16; shift or mask them to 4 bits"),
        ([-1, 1], "got -1; shift or mask them"),
        (np.uint64([2**63, 1]), f"got {2**63}; shift or mask them"),
        ([0.5, 1.0], "got dtype float64; draw them with an integer dtype"),
        ("ab", "got dtype <U2; draw them"),
        ([[1], [1, 2]], "got lists of uneven lengths; give an array"),
    ],
)
def test_random_bits_must_fit_their_port(rbits: Any, got: str, tmp_path: Path):
    ports = {"x": In("fix12f8"), "r": RandomBits(4), "y": Out("fix8f4")}
    unit = Unit(written(tmp_path, "u.v", STOCHASTIC), "stochastic", ports, simulator="icarus")
    with pytest.raises(emu.FormatError) as raised:
        unit([0.5, 0.25], rbits=rbits)
    assert str(raised.value).startswith("`rbits` must be integers below 2**4, the width of their port, " + got)


@needs("ghdl")
def test_ports_and_generics_of_vhdl(tmp_path: Path):
    path = written(tmp_path, "u.vhd", PICK)
    ports = {"a": In("ufix8f0", 4), "which": Mode(MODES, 2), "en": Constant(1), "y": Out("ufix8f0")}
    ports |= {"raised": Flags(["inexact", "overflow"])}
    unit = Unit(path, "pick", ports, clock="clk", parameters={"OFFSET": 2, "NAME": "four"})
    flags = emu.Flags()
    assert unit(TERMS, flags=flags).tolist() == [7, 11]
    assert (flags.inexact, flags.overflow) == (2, 2)
    assert unit(TERMS, rounding="floor").tolist() == [10, 14]
    assert unit.latency == 1
    inverted = Unit(path, "pick", ports, clock="clk", parameters={"INVERT": True, "NAME": ""})
    assert inverted(TERMS).tolist() == [254, 250]
    high = {**ports, "a": In("ufix8f0", 4, first_is_low=False), "en": Constant(0)}
    flags.reset()
    unit = Unit(path, "pick", high, clock="clk", parameters={"NAME": ""})
    assert unit(TERMS, flags=flags).tolist() == [4, 8]
    assert (flags.inexact, flags.overflow) == (2, 0)


@pytest.mark.parametrize(
    ("value", "bounds", "width_bits"),
    [
        ("16#20#", "W - 1 downto 0", 32),
        ("2#1_0000#", "W - 1 downto 0", 16),
        ("1_6", "W - 1 downto 0", 16),
        ("4", "15 downto 16#8#", 8),
        # (1 - 4) / 2 is -1: division is rounded toward zero
        ("4", "(1 - W) / 2 downto -8", 8),
        ("4", "(1 - W) / (-2) downto -8", 10),
        ("4", "-8 to (1 - W) / 2", 8),
        # an empty range
        ("0", "W - 1 downto 0", 0),
        ("3", "W to 0", 0),
        # what is no sum or product of integers is not known
        ("16#F.8#", "W - 1 downto 0", None),
        ("16#2#E1", "W - 1 downto 0", None),
        ("2#12#", "W - 1 downto 0", None),
        ("4", "W / 0 downto 0", None),
    ],
)
def test_the_width_of_a_port_in_vhdl_is_that_of_its_range(value: str, bounds: str, width_bits: int | None):
    text = f"entity e is generic (W : integer := {value}); port (x : in signed({bounds})); end e;"
    assert ports_of_entity(text, "e", {})["x"].width_bits == width_bits


@pytest.mark.parametrize(
    ("kind", "width_bits"), [("std_logic", 1), ("ieee.std_logic_1164.STD_ULOGIC", 1), ("bit", 1), ("word_t", None)]
)
def test_a_type_of_vhdl_without_bounds_has_one_bit_only_if_it_is_known_to(kind: str, width_bits: int | None):
    assert ports_of_entity(f"entity e is port (x : in {kind}); end e;", "e", {})["x"].width_bits == width_bits
