"""The command `emu prove`: its words, its exit codes, and the same as data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Run, running
from proving import UNITS, needs_yosys

pytestmark = needs_yosys
SUM = ("prove", "add", "--formats", "fix4f1,fix4f1", "--out-format", "fix4f1", "--top", "clamped_sum")
PORTS = ("--ports", "a=a,b=b,result=z,flags=f")
ROOT = Path(__file__).resolve().parents[2]
FILE = str(UNITS / "clamped_sum.sv")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return running(monkeypatch, capsys)


def test_a_unit_that_is_right_ends_with_0(run: Run):
    code, out, err = run(*SUM, *PORTS, "--sources", FILE)
    assert (code, err) == (0, "")
    assert out.startswith("proved for all 256 inputs: each compared with the definition\n")


def test_a_wrong_one_ends_with_1_and_shows_the_smallest_input(run: Run):
    code, out, err = run(*SUM, *PORTS, "--sources", FILE, "--parameter", "FAULT=1")
    assert (code, err) == (1, "")
    assert out.startswith("differs: the smallest wrong input of 256; 64 are wrong:\n  a         0x1  0 00.1  0.5\n")
    assert "looks like overflow rule wrap instead of saturate" in out


@pytest.mark.slow
def test_one_that_is_not_proved_in_time_ends_with_3(run: Run):
    words = ("multiply", "--formats", "fix20f0,fix20f0", "--out-format", "fix40f0", "--top", "product20")
    code, out, err = run(
        "prove", *words, "--ports", "a=a,b=b,result=z", "--sources", str(UNITS / "product20.sv"), "--limit", "1"
    )
    assert (code, err) == (3, "")
    assert out.startswith("not proved within 1 s: ")


def test_all_sources_of_a_pattern_are_read(run: Run):
    """A shell puts the files of a pattern behind the option; in quotes, the command finds them."""
    for words in (("--sources", FILE, str(UNITS / "product20.sv")), ("--sources", str(UNITS / "clamped*.sv"))):
        assert run(*SUM, *PORTS, *words)[0] == 0


def test_data_have_the_operands_as_codes(run: Run):
    code, out, _ = run(*SUM, *PORTS, "--sources", FILE, "--parameter", "FAULT=1", "--json")
    data = json.loads(out)
    assert code == 1
    assert (data["answer"], data["inputs_bits"], data["operands"]) == ("differs", 8, ["0x1", "0x7"])
    assert data["is_smallest"] is True
    assert data["causes"][0] == "overflow rule wrap instead of saturate"
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    row = next(row for row in page.splitlines() if row.startswith("| `emu prove`"))
    assert [key for key in data if f"`{key}`" not in row] == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((*SUM, *PORTS), "emu: `sources` must be one Verilog file or more, got none; give --sources"),
        ((*SUM, "--sources", FILE), "emu: `--ports` must be given, got nothing; add it"),
        (
            (*SUM, *PORTS, "--sources", FILE, "--parameter", "FAULT"),
            "emu: `--parameter` must be NAME=INTEGER, got 'FAULT'; write it like WIDTH=16",
        ),
        (
            (*SUM, *PORTS, "--sources", "gone*.sv"),
            "emu: `--sources` must match files, got 'gone*.sv', which matches none; correct it",
        ),
        (("prove", "add", *PORTS), "emu: `--formats` must be given, got nothing; add it"),
    ],
)  # fmt: skip
def test_what_is_missing_or_wrong_is_one_line(run: Run, words: tuple[str, ...], expected: str):
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert err.strip() == expected
