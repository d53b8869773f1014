"""docs/howto/c-model.md, followed: its commands, its program in C, its check in SystemVerilog."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from documents import ROOT, assert_shown, blocks_of, commands_of, run

PAGE = ROOT / "docs" / "howto" / "c-model.md"
#: A testbench for the page's module: the unit is a wire with what the C gives for one vector, then with a wrong bit.
TESTBENCH = """
module testbench;
    logic clock = 0, valid = 1;
    logic [15:0] a = 16'h3c01, b = 16'h3c01, c = 16'hbc02, result = 16'h0010;
    logic [4:0] flags = 0;
    check check(.*);
    initial begin
        #1 clock = 1; #1 clock = 0;
        result = 16'h0011;
        #1 clock = 1; #1 $finish;
    end
endmodule
"""


def block(language: str, number: int = 0) -> str:
    return [block.text for block in blocks_of(PAGE) if block.language == language][number]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A reader's folder, in which the page's commands have run."""
    monkeypatch.chdir(tmp_path)
    for command in commands_of(PAGE):
        assert_shown(command.output, run(command), command.block.place)
    return tmp_path


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc, which the page calls, is not installed")
def test_the_program_in_c_prints_what_the_page_shows(folder: Path):
    (folder / "main.c").write_text(block("c"))
    done = subprocess.run(block("sh"), shell=True, cwd=folder, capture_output=True, text=True, check=False)
    assert_shown(block("text"), done.stdout + done.stderr, str(PAGE))
    assert block("c", 1).strip() in (folder / "unit" / "dot.h").read_text()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("verilator") is None, reason="Verilator is not installed")
def test_the_check_in_systemverilog_finds_a_wrong_bit(folder: Path):
    (folder / "check.sv").write_text(block("systemverilog"))
    (folder / "testbench.sv").write_text(TESTBENCH)
    built = subprocess.run(
        f"{block('sh', 1).strip()} --timing -Wno-fatal",
        shell=True,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    done = subprocess.run(["obj_dir/Vtestbench"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.stdout.count("expected") == 1, done.stdout + done.stderr
    assert "3c01 * 3c01 + bc02: 0011, flags 00000; expected 0010, flags 00000" in done.stdout
