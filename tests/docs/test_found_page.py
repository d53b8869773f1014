"""docs/found-in-rtl.md: what can be followed without anybody's sources, and what it says of vectors."""

from __future__ import annotations

import contextlib
import io
import shlex
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import typer
from documents import ROOT, assert_shown, blocks_of

from emu.cli import app
from emu.testing.rtl import In, Out, Unit
from emu.testing.rtl.simulators import SIMULATORS
from emu.testing.vectors import Description, make_vectors

PAGE = ROOT / "docs" / "found-in-rtl.md"
needs_ghdl = pytest.mark.skipif(SIMULATORS["ghdl"].version() is None, reason="GHDL, which has the package, is absent")
DIVIDER = {"a": In("fp16"), "b": In("fp16"), "y": Out("fp16")}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A reader's folder with the page's entity."""
    monkeypatch.chdir(tmp_path)
    [entity] = [block.text for block in blocks_of(PAGE) if block.language == "vhdl"]
    (tmp_path / entity.partition("\n")[0].removeprefix("-- ")).write_text(entity)
    return tmp_path


@needs_ghdl
@pytest.mark.usefixtures("folder")
def test_the_quotients_of_float_pkg_are_what_the_page_shows():
    pairs = [pair for pair in pairwise(blocks_of(PAGE)) if pair[0].language == "py"]
    [(program, shown)] = [pair for pair in pairs if '"divide16.vhd"' in pair[0].text]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program.text, program.place, "exec"), {})
    assert_shown(shown.text, printed.getvalue(), shown.place)


@needs_ghdl
@pytest.mark.usefixtures("folder")
def test_the_quotient_that_the_page_names_is_rounded_up():
    unit = Unit("divide16.vhd", "divide16", DIVIDER)
    assert unit(np.uint16(0x8E40), np.uint16(0xE000)) == 0x000D


def test_commands_have_options_that_exist():
    group = typer.main.get_command(app)
    lines = [line for block in blocks_of(PAGE) if block.language == "bash" for line in block.text.splitlines()]
    assert len(lines) == 6
    for line in lines:
        _, name, *arguments = shlex.split(line)
        group.commands[name].make_context(name, arguments)


def test_programs_compile():
    programs = [block for block in blocks_of(PAGE) if block.language == "py"]
    assert len(programs) == 4
    for block in programs:
        compile(block.text, block.place, "exec")


def test_vectors_of_a_cast_have_operands_for_the_underflow_that_cvfpu_lacks():
    """Fields of fp32: a result of binary16 that is tiny after rounding, and the smallest normal."""
    vectors = make_vectors(Description(operation="quantize", formats=("fp32",), out_format="fp16"))
    (a,) = vectors.operands
    lacking = (a & 0x7FFFFFFF >= 0x387FE000) & (a & 0x7FFFFFFF <= 0x387FEFFF)
    assert lacking.sum() >= 8
    assert set(vectors.results[lacking] & 0x7FFF) == {0x0400}
    assert set(vectors.flags[lacking]) == {3}
