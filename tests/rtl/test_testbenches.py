"""`emu vectors --testbench` writes testbenches that run as they say, and whose dumps are right."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command_line import Run, running
from rtl_units import cocotb_runner, needs, sources_of

from emu.errors import ConfigError
from emu.testing.rtl.languages import LANGUAGES
from emu.testing.rtl.testbenches import bench_of, ports_of
from emu.testing.vectors import Description, check_dump, read_vectors

MULTIPLY = "multiply --formats fp16,fp16 --out-format fp16 --count 200 --tininess before_rounding"
FMA = "fma --formats fix8f4,fix8f4,fix16f8 --out-format fix16f8 --count 200"
MATMUL = "matmul --formats fix8f4,fix8f4 --out-format fix16f8 --accumulator fix16f8 --depth 4 --count 200"
QUANTIZE = "quantize --formats fix24f12 --out-format fix12f4 --count 200"
SUMS = "matmul --formats fp16,fp16 --out-format fp16 --accumulator fp16 --product fp16 --depth 4 --count 200"
#: Operation and options of each unit; the dot product of binary16 is of finite numbers alone.
UNITS = {
    "multiply16_pipe": (MULTIPLY, "--reset rst_n --latency 3 --ports mode=3'd0"),
    "multiply16_stream": (MULTIPLY, "--handshake valid_ready --reset rst_n --ports mode=3'b000"),
    "multiply16_strobes": (MULTIPLY, "--handshake stb_ack --reset rst"),
    "mac8_start": (FMA, "--handshake start_done --reset !rst_n"),
    "dot4": (MATMUL, "--handshake valid_ready --reset rst_n --ports first=first,last=last,accept=none,take=none"),
    "multiply16": (MULTIPLY, "--clock none --ports mode=3'h0"),
    "round24": (QUANTIZE, "--clock none --ports a=x:signed,y=y:signed"),
    "round24_stream": (QUANTIZE, "--handshake valid_ready --reset rst_n --ports a=x:signed,y=y:signed"),
}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    return partial(running(monkeypatch, capsys), width=100)


def written(run: Run, top: str, language: str, more: str = "") -> str:
    operation, options = UNITS[top]
    words = f"vectors {operation} --testbench {language} --top {top} {options} {more} --out bench"
    code, out, error = run(*words.split())
    assert code == 0, error
    return out


def simulated(out: str, top: str, number: int = 0) -> None:
    """Run what the command said."""
    lines = [line for line in out.splitlines() if line.startswith(("run it in bench: ", "or: "))]
    command = lines[number].partition(": ")[2].replace("SOURCES", " ".join(map(str, sources_of(top))))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    subprocess.run(command, shell=True, check=True, cwd="bench", env={**os.environ, "PATH": path}, capture_output=True)


@needs("icarus")
@pytest.mark.parametrize("top", [top for top in UNITS if not top.startswith("round")])
def test_a_testbench_in_systemverilog_writes_a_right_dump(run: Run, top: str):
    simulated(written(run, top, "sv"), top)
    assert check_dump(Path("bench"), Path("bench/dump.hex")) is None


@needs("ghdl")
@pytest.mark.parametrize("top", ["round24", "round24_stream"])
def test_a_testbench_in_vhdl_writes_a_right_dump(run: Run, top: str):
    simulated(written(run, top, "vhdl"), top)
    assert check_dump(Path("bench"), Path("bench/dump.hex")) is None


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("verilator") is None, reason="verilator is not on the PATH")
@pytest.mark.parametrize(("top", "language", "number"), [("multiply16_stream", "cpp", 0), ("mac8_start", "sv", 1)])
def test_a_testbench_for_verilator_writes_a_right_dump(run: Run, top: str, language: str, number: int):
    simulated(written(run, top, language), top, number)
    assert check_dump(Path("bench"), Path("bench/dump.hex")) is None


@pytest.mark.slow
@needs("icarus")
@pytest.mark.parametrize("top", ["multiply16_strobes", "dot4"])
def test_a_testbench_for_cocotb_writes_a_right_dump(run: Run, top: str):
    cocotb_runner()
    simulated(written(run, top, "cocotb"), top)
    assert check_dump(Path("bench"), Path("bench/dump.hex")) is None


@needs("icarus")
def test_flags_are_written_behind_results(run: Run):
    operation, options = UNITS["multiply16_stream"]
    words = f"vectors {operation} --testbench sv --top multiply16_stream {options},flags=flags --out bench"
    code, out, _ = run(*words.split())
    assert code == 0
    simulated(out, "multiply16_stream")
    lines = Path("bench/dump.hex").read_text().split("\n")
    assert len(lines[0].split()) == 2
    flags = read_vectors(Path("bench")).flags.tolist()
    same = sum(int(line.split()[1], 16) == flag for line, flag in zip(lines, flags, strict=False))
    assert same > 0.9 * len(flags)  # all but invalid of signalling NaN


@needs("icarus")
def test_a_hang_is_printed(run: Run):
    """The unit never takes an operand while it is in reset."""
    out = written(run, "multiply16_stream", "sv", "--clock clk").replace(
        "vvp -n testbench.vvp", "vvp -n testbench.vvp +bound=20 > log"
    )
    testbench = Path("bench/testbench.sv")
    testbench.write_text(testbench.read_text().replace("reset = 0;", "reset = 1;"))
    simulated(out, "multiply16_stream")
    assert "emu: stuck at vector 0 for 20 cycles, waiting for its result (in_ready=1, out_valid=0)" in (
        Path("bench/log").read_text()
    )


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_every_handshake(run: Run, language: str):
    for top in ("multiply16_pipe", "multiply16_stream", "multiply16_strobes", "mac8_start", "dot4"):
        out = written(run, top, language)
        assert "run it in bench: " in out
        for path in Path("bench").glob("testbench*"):
            assert "@" not in path.read_text().replace("@cocotb", "")
        shutil.rmtree("bench")


def test_json_has_the_commands(run: Run):
    operation, options = UNITS["multiply16"]
    code, out, _ = run(*f"vectors {operation} --testbench sv {options} --out bench --json".split())
    assert code == 0
    assert "iverilog -g2012 -s emu_testbench" in out
    assert "testbench.sv" in out


def test_operands_of_a_sum_stand_side_by_side_unless_they_have_ends():
    mac = {"accumulator": "fp16"}
    d = Description(operation="matmul", formats=("fp16", "fp16"), out_format="fp16", mac=mac, depth=4)  # pyright: ignore
    options: dict[str, Any] = {"handshake": "none", "top": "t", "clock": "clk", "reset": None, "latency": None}
    assert bench_of(d, ports=None, **options).widths() == {"a": 64, "b": 64, "y": 16}
    assert bench_of(d, ports="a=p,first=f,last=l", **options).widths() == {"p": 16, "b": 16, "y": 16, "f": 1, "l": 1}
    assert bench_of(d, ports="first=f,last=l", **options).steps == 4


def test_a_port_with_a_constant_has_the_width_and_the_number_that_verilog_reads():
    d = Description(operation="multiply", formats=("fp16", "fp16"), out_format="fp16")
    words = {"p": "1'b1", "q": "12'hFa_0_", "r": "4'd1_", "s": "08'B0000_0101"}
    constants = {name: (port.width_bits, port.code) for name, port in ports_of(d, words).items() if name in words}  # pyright: ignore
    assert constants == {"p": (1, 1), "q": (12, 0xFA0), "r": (4, 1), "s": (8, 5)}


def test_a_wide_constant_has_its_width_in_systemverilog():
    """A number without a width has 32 bits, and Verilator refuses more digits than these hold."""
    d = Description(operation="quantize", formats=("fp16",), out_format="fp16")
    options: dict[str, Any] = {"handshake": "none", "top": "t", "clock": None, "reset": None, "latency": None}
    bench = bench_of(d, ports="c=64'hffff_ffff_ffff_ffff", **options)
    assert "unit_c = 64'd18446744073709551615;" in LANGUAGES["sv"].testbench(bench, "dump.hex")["testbench.sv"]


@needs("ghdl")
def test_a_constant_in_vhdl_may_have_a_type(run: Run):
    entity = """
library ieee; use ieee.std_logic_1164.all;
entity passed is port (a : in std_logic_vector(7 downto 0); en : in std_logic; y : out std_logic_vector(7 downto 0));
end entity;
architecture rtl of passed is begin y <= a when en = '1' else not a; end architecture;
"""
    Path("passed.vhd").write_text(entity)
    words = "vectors quantize --formats fix8f0 --out-format fix8f0 --count 20 --testbench vhdl --top passed"
    code, out, error = run(*words.split(), "--clock", "none", "--ports", "en=1'b1:std_logic", "--out", "bench")
    assert code == 0, error
    simulated(out.replace("SOURCES", "../passed.vhd"), "round24")
    assert check_dump(Path("bench"), Path("bench/dump.hex")) is None


# a digit that the base does not have, a port of no bits, no width, no base, no digit
@pytest.mark.parametrize("text", ["1'b2", "4'da", "0'b0", "'b1", "1'1", "1'b_", "1'b"])
def test_a_port_with_no_constant_is_refused(text: str):
    d = Description(operation="multiply", formats=("fp16", "fp16"), out_format="fp16")
    with pytest.raises(ConfigError, match=f"a constant such as en=1'b1, got en={text}; correct it"):
        ports_of(d, {"en": text})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--testbench verilog", "`testbench` must be one of sv, vhdl, cpp, cocotb, got 'verilog'"),
        ("--handshake none", "`--handshake` is of a testbench, got no `--testbench`; add it: sv, vhdl, cpp or cocotb"),
        ("--testbench sv --handshake ready", "`handshake` must be one of none, valid_ready, stb_ack, start_done, got"),
        ("--testbench sv --ports a", "`ports` must be a list such as a=x,y=z, got 'a'; write what a port"),
        ("--testbench sv --ports d=x", "`ports` must name a, b, y, flags, first, last, offer, accept, result,"),
        ("--testbench sv --ports a=x,b=x", "`ports` must name another port for each word, got x for two of them"),
        ("--testbench sv --ports y=b", "`ports` must name another port for each word, got b for two of them"),
        ("--testbench sv --ports a=en,en=1'b1", "`ports` must name another port for each word, got en for two"),
        ("--testbench sv --top a-b", "names of units and ports must be identifiers, got 'a-b'"),
        ("--testbench sv --style testfloat", "a testbench must read hexadecimal columns, got --style testfloat"),
    ],
)  # fmt: skip
def test_wrong_options_are_refused(run: Run, words: str, message: str):
    code, _, error = run(*f"vectors {MULTIPLY} --out bench {words}".split())
    assert code == 2
    assert message in error
