"""Results out of waveforms at the edges of a clock: VCD by hand; VCD, FST and GHW of simulators."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tracemalloc
from pathlib import Path

import pytest

from emu.errors import BackendUnavailable, ConfigError
from emu.testing.vectors import Description, Dump, Reading, check_dump, make_vectors, read_dump, write_vectors

X = None
HEAD = """$date today $end $version by hand $end
$comment a clock
 and more $end
$timescale 1ns $end
$scope module tb $end
$var wire 1 ! clk $end
$var wire 1 " valid $end
$var wire 1 % ready $end
$scope module dut $end
$var wire 1 ! clk $end
$var reg 16 # y [15:0] $end
$var reg 5 $ flags [4:0] $end
$var reg 8 ( up [0:7] $end
$var reg 1 ) bit [1] $end
$var reg 1 * bit [0] $end
$var reg 8 + mem[3] [7:0] $end
$var reg 96 , wide [95:0] $end
$var real 64 - number $end
$upscope $end
$scope module other $end
$var reg 16 . y [15:0] $end
$upscope $end
$upscope $end
$enddefinitions $end
"""
#: y is 3c00 before the edge at 5, which sets 4000; z is written at 15; the clock is x before it is 0.
BODY = """$dumpvars
x! 0" 1% bx # b0 $ b0 ( x) x* b0 + b0 , r0 - bx .
$end
#0
0!
b11110000000000 #
1"
#5
1!
b100000000000000 #
b101 $
#10
0!
#15
1!
bz #
b10000 $
#20
0!
0"
#25
1!
b1 #
#30
0! 1" 0%
#35
1!
#40
0! 1%
$comment 1! $end
#45
1!
"""


def vcd(folder: Path, body: str = BODY, head: str = HEAD, **options: str) -> Dump:
    path = folder / "wave.vcd"
    path.write_text(head + body)
    return read_dump(path, Reading(**{"signal": "tb.dut.y", "clock": "tb.clk"} | options))


def words(dump: Dump, name: str = "result") -> list[int | None]:
    return [X if x else code for code, x in zip(dump.columns[name].tolist(), dump.undriven[name].tolist(), strict=True)]


def test_values_are_those_just_before_the_rising_edges(tmp_path: Path):
    assert words(vcd(tmp_path)) == [0x3C00, 0x4000, X, 1, 1]


def test_only_valid_edges_count_and_only_taken_ones(tmp_path: Path):
    assert words(vcd(tmp_path, valid="tb.valid")) == [0x3C00, 0x4000, 1, 1]
    assert words(vcd(tmp_path, valid="valid", ready="ready")) == [0x3C00, 0x4000, 1]
    flags = vcd(tmp_path, valid="valid", flags_signal="tb.dut.flags")
    assert words(flags, "flags") == [0, 5, 16, 16]


@pytest.mark.parametrize(("signal", "expected"), [
    ("dut.y", [0x3C00, 0x4000, X]), ("/tb/dut/y", [0x3C00, 0x4000, X]), ("tb.dut.y[15:8]", [0x3C, 0x40, X]),
    ("tb.dut.y[14]", [0, 1, X]), ("flags", [0, 5, 16]), ("flags[2:1]", [0, 2, 0]), ("flags[2]", [0, 1, 0]),
    ("up", [0, 0, 0]), ("mem[3]", [0, 0, 0]), ("mem[3][3:0]", [0, 0, 0]), ("wide[63:0]", [0, 0, 0]), ("bit", [X, X, X]),
])  # fmt: skip
def test_signals_are_named_with_or_without_scopes_and_bits(signal: str, expected: list[int | None], tmp_path: Path):
    assert words(vcd(tmp_path, signal=signal))[:3] == expected


def test_bits_of_ascending_ranges_and_single_bits_are_taken_from_the_left(tmp_path: Path):
    body = "#0 0! b10 ( 1) 0* #5 1! #6 0! b10000000 ( 0) 1* #10 1! #11\n"
    assert words(vcd(tmp_path, body, signal="up")) == [2, 128]
    assert words(vcd(tmp_path, body, signal="up[0]")) == [0, 1]
    assert words(vcd(tmp_path, body, signal="up[5:7]")) == [2, 0]
    assert words(vcd(tmp_path, body, signal="bit")) == [2, 1]


def test_a_value_lacks_its_leading_zeros_or_its_leading_x(tmp_path: Path):
    body = "#0 0! b11 # #5 1! #6 0! bx1 # #10 1! #11 0! b0x # #12 1! #13 0! bU # #14 1! #15 0! bLH # #16 1!\n"
    assert words(vcd(tmp_path, body)) == [3, X, X, X, 1]
    assert words(vcd(tmp_path, body, signal="dut.y[0]")) == [1, 1, X, X, 1]


def test_a_value_may_have_zeros_in_front_of_its_bits(tmp_path: Path):
    body = f"#0 0! b{'0' * 20}11 # #5 1! #6 0! b{'0' * 4}x{'0' * 15} # #7 1! #8\n"
    assert words(vcd(tmp_path, body)) == [3, X]


def test_an_edge_from_x_is_none_and_two_changes_at_a_time_are_one(tmp_path: Path):
    body = "#0 x! b1 # #5 1! #6 0! #7 1! 0! 1! #8 0! b10 # #9 1! 0! #10\n"
    assert words(vcd(tmp_path, body)) == [1]


def test_a_file_that_was_cut_is_read_up_to_there(tmp_path: Path):
    assert words(vcd(tmp_path, BODY[: BODY.index("#25")] + "#25\n1!\nb1")) == [0x3C00, 0x4000, X]


#: Options, what is changed in the file, and what is said.
DAMAGED: list[tuple[dict[str, str], tuple[str, str], str]] = [
    ({"signal": "tb.dut.yy"}, ("", ""), "`--signal` must be a signal of {}, got 'tb.dut.yy'; nearest: tb.dut.y, "),
    ({"signal": "y"}, ("", ""), "`--signal` must be one signal, got 'y', which may be tb.dut.y, tb.other.y; add"),
    ({"signal": "number"}, ("", ""), "`--signal` must have bits, got 'number', a real number; name the register"),
    ({"signal": "wide"}, ("", ""), "`--signal` must have at most 64 bits, got 'wide' of 96; take a part, wide[63:0]"),
    ({"signal": "dut.y[16:1]"}, ("", ""), "`--signal` must take bits of dut.y[15:0], got 'dut.y[16:1]'; take fewer"),
    ({"clock": "flags"}, ("", ""), "`--clock` must have at most 1 bits, got 'flags' of 5; take a part, flags[0]"),
    ({"valid": "vald"}, ("", ""), "`--valid` must be a signal of {}, got 'vald'; nearest: tb.valid"),
    ({}, ("\n1!", ""), "got none in {}: the clock never rises; check --clock, --valid and --ready"),
    ({"valid": "dut.bit[1]"}, ("", ""), "got none in {}: none of 5 edges is valid; check --clock"),
    ({}, ("$enddefinitions $end\n" + BODY, "$enddefinitions $end"), "got none in {}: the clock never rises; check"),
    ({}, ("$enddefinitions $end", ""), "a VCD file must declare its variables up to $enddefinitions, got {} without"),
    ({}, ("$var wire 1 ! clk", "$var wire one ! clk"), "a VCD file must declare its variables"),
    ({}, ("b1 #", "b #"), "a value of {} must have 1..16 bits, as its variable has, got ''; dump it again"),
    ({}, ("b1 #", f"b1{'0' * 16} #"), "a value of {} must have 1..16 bits, as its variable has, got '10000"),
    ({}, ("reg 16 #", "reg 0 #"), "`--signal` must have bits, got 'tb.dut.y', which {} declares without; name another"),
    ({}, ("#20", "20"), "a VCD file must hold changes of values, got '20' in {}; dump it again"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "change", "message"), DAMAGED)
def test_a_waveform_that_cannot_be_sampled_is_refused(
    options: dict[str, str], change: tuple[str, str], message: str, tmp_path: Path
):
    text = (HEAD + BODY).replace(*change) if change[0] else HEAD + BODY
    with pytest.raises(ConfigError) as caught:
        vcd(tmp_path, text, "", dump_format="vcd", **options)
    assert message.format(tmp_path / "wave.vcd") in str(caught.value)


@pytest.mark.parametrize(("missing", "given"), [("--signal", {"clock": "clk"}), ("--clock", {"signal": "tb.dut.y"})])
def test_signal_and_clock_must_be_named(missing: str, given: dict[str, str], tmp_path: Path):
    (tmp_path / "wave.vcd").write_text(HEAD + BODY)
    with pytest.raises(ConfigError) as caught:
        read_dump(tmp_path / "wave.vcd", Reading(**given))
    assert str(caught.value) == (
        f"`{missing}` must be given to read a waveform, got nothing; add it: {tmp_path / 'wave.vcd'} has tb.clk, "
        "tb.valid, tb.ready, tb.dut.clk, tb.dut.y, tb.dut.flags, ..."
    )


def test_memory_does_not_grow_with_a_waveform(tmp_path: Path):
    """Ten million bytes of changes of another signal, and few edges."""
    path = tmp_path / "wave.vcd"
    changes = "".join(f"b{i:016b} .\n" for i in range(5000))
    with path.open("w") as file:
        file.write(HEAD)
        for edge in range(100):
            file.write(f"#{2 * edge}\n0!\nb{edge:b} #\n{changes}#{2 * edge + 1}\n1!\n")
    tracemalloc.start()
    dump = read_dump(path, Reading(signal="tb.dut.y", clock="tb.clk"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert words(dump) == list(range(100))
    assert path.stat().st_size > 9_000_000
    assert peak < 20_000_000  # a chunk of a million bytes, and its words


# ---- simulators ------------------------------------------------------------------------------------------------------

VERILOG = """
`timescale 1ns/1ps
module dut(input clk, input go, input [15:0] a, output reg [15:0] y, output reg [4:0] flags, output reg valid);
  always @(posedge clk) begin y <= a ^ 16'h00ff; flags <= a[4:0]; valid <= go; end
endmodule
module tb;
  reg clk = 0, go = 0; reg [15:0] a; wire [15:0] y; wire [4:0] flags; wire valid; integer i;
  dut dut(clk, go, a, y, flags, valid);
  always #5 clk = ~clk;
  initial begin
    $dumpfile("FILE"); $dumpvars(0, tb);
    for (i = 0; i < 30; i = i + 1) begin
      @(posedge clk); #1; go = (i % 3 != 2); a = i * 1000; if (i == 7) a = 16'hxx00;
    end
    @(posedge clk); @(posedge clk); @(posedge clk); #1 $finish;
  end
endmodule
"""
#: What the unit of VERILOG writes for its valid operands, the last of which stay valid no longer than the clock runs.
EXPECTED = [X if i == 7 else (i * 1000) ^ 0xFF for i in range(30) if i % 3 != 2]
needs_icarus = pytest.mark.skipif(shutil.which("iverilog") is None, reason="no iverilog to simulate with")
needs_pywellen = pytest.mark.skipif(
    importlib.util.find_spec("pywellen") is None, reason="no pywellen: pip install 'emu-numerics[waves]'"
)


def simulated(folder: Path, file: str) -> Dump:
    (folder / "tb.v").write_text(VERILOG.replace("FILE", file))
    subprocess.run(["iverilog", "-g2012", "-o", "tb", "tb.v"], cwd=folder, check=True, capture_output=True)
    kind = [] if file.endswith("vcd") else ["-fst"]
    subprocess.run(["vvp", "-n", "tb", *kind], cwd=folder, check=True, capture_output=True)
    return read_dump(folder / file, Reading(signal="tb.y", clock="clk", valid="tb.dut.valid", flags_signal="dut.flags"))


@needs_icarus
def test_a_vcd_of_icarus_is_read(tmp_path: Path):
    dump = simulated(tmp_path, "wave.vcd")
    assert words(dump) == EXPECTED
    assert words(dump, "flags") == [0 if i == 7 else i * 1000 & 31 for i in range(30) if i % 3 != 2]


@needs_icarus
@needs_pywellen
def test_an_fst_of_icarus_gives_what_its_vcd_gives(tmp_path: Path):
    fst = simulated(tmp_path, "wave.fst")
    vcd_dump = simulated(tmp_path, "wave.vcd")
    assert words(fst) == words(vcd_dump) == EXPECTED
    assert words(fst, "flags") == words(vcd_dump, "flags")
    (tmp_path / "wave").write_bytes((tmp_path / "wave.fst").read_bytes())
    assert words(read_dump(tmp_path / "wave", Reading(signal="tb.y", clock="clk", valid="tb.dut.valid"))) == EXPECTED


ADDER = """
module tb;
  reg [7:0] a [0:199], b [0:199]; reg [7:0] y; reg clk = 0, valid = 0; integer i;
  reg signed [8:0] sum;
  always #5 clk = ~clk;
  initial begin
    $readmemh("v/a.hex", a); $readmemh("v/b.hex", b);
    $dumpfile("wave.vcd"); $dumpvars(1, tb);
    for (i = 0; i < 200; i = i + 1) begin
      sum = $signed(a[i]) + $signed(b[i]);
      if (i % 5 == 2) begin @(posedge clk); valid <= 0; y <= 8'hxx; end
      @(posedge clk); valid <= !(LOSES && i % 7 == 6);
      y <= sum > 127 ? 8'h7f : sum < -128 ? 8'h80 : sum[7:0];
      if (LOSES && i == 30) y <= 8'hzz;
    end
    @(posedge clk); valid <= 0; @(posedge clk); #1 $finish;
  end
endmodule
"""


@needs_icarus
@pytest.mark.parametrize("loses", [0, 1])
def test_a_unit_is_judged_by_the_waveform_of_its_simulation(loses: int, tmp_path: Path):
    table = {"operation": "add", "formats": ("fix8f4", "fix8f4"), "out_format": "fix8f4", "count": 200}
    write_vectors(make_vectors(Description.model_validate(table)), tmp_path / "v")
    (tmp_path / "tb.v").write_text(ADDER.replace("LOSES", str(loses)))
    subprocess.run(["iverilog", "-g2012", "-o", "tb", "tb.v"], cwd=tmp_path, check=True, capture_output=True)
    subprocess.run(["vvp", "-n", "tb"], cwd=tmp_path, check=True, capture_output=True)
    reading = Reading(signal="tb.y", clock="tb.clk", valid="valid")
    finding = check_dump(tmp_path / "v", tmp_path / "wave.vcd", reading=reading)
    if not loses:
        assert finding is None
        return
    assert finding is not None
    assert finding.lines[0] == "28 lines fewer than vectors: dropped: every 7th result, the first is that of vector 6"
    assert finding.lines[1] == "1 result was never driven (x), first at vector 30:"
    assert finding.lines[-1] == "with every line at its vector, every other result is right: 171 of 200"


VHDL = """
library ieee; use ieee.std_logic_1164.all; use ieee.numeric_std.all;
entity tb is end entity;
architecture sim of tb is
  signal clk : std_logic := '0';
  signal y : std_logic_vector(15 downto 0);
begin
  process begin
    for i in 0 to 9 loop
      clk <= '0'; wait for 5 ns; clk <= '1';
      if i /= 4 then y <= std_logic_vector(to_unsigned(i * 1000, 16)); else y <= (others => 'W'); end if;
      wait for 5 ns;
    end loop;
    wait;
  end process;
end architecture;
"""


@needs_pywellen
@pytest.mark.skipif(shutil.which("ghdl") is None, reason="no ghdl to simulate with")
def test_a_ghw_of_ghdl_is_read(tmp_path: Path):
    (tmp_path / "tb.vhd").write_text(VHDL)
    for command in (["-a", "tb.vhd"], ["-e", "tb"], ["-r", "tb", "--wave=wave.ghw"]):
        subprocess.run(["ghdl", command[0], "--std=08", *command[1:]], cwd=tmp_path, check=True, capture_output=True)
    dump = read_dump(tmp_path / "wave.ghw", Reading(signal="tb.y", clock="tb.clk"))
    assert words(dump) == [X, 0, 1000, 2000, 3000, X, 5000, 6000, 7000, 8000]


@needs_pywellen
def test_a_waveform_that_was_cut_is_refused(tmp_path: Path):
    (tmp_path / "wave.ghw").write_bytes(b"GHDLwave\nand nothing more")
    with pytest.raises(ConfigError, match=r"must be a waveform of FST or GHW, got .*; dump it again"):
        read_dump(tmp_path / "wave.ghw", Reading(signal="tb.y", clock="clk"))


def test_without_pywellen_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "pywellen", None)
    (tmp_path / "wave.fst").write_bytes(b"\0" + (329).to_bytes(8, "big"))
    with pytest.raises(BackendUnavailable) as caught:
        read_dump(tmp_path / "wave.fst", Reading(signal="tb.y", clock="clk"))
    assert str(caught.value) == (
        "waveforms of FST and GHW must be read by `pywellen`, which is not installed, got "
        f"{tmp_path / 'wave.fst'}; pip install 'emu-numerics[waves]', or dump VCD"
    )
