"""docs/concepts/rounding.md names every mode, as the table of modes does."""

from __future__ import annotations

from documents import ROOT

import emu

PAGE = ROOT / "docs" / "concepts" / "rounding.md"


def rows() -> dict[str, list[str]]:
    """The cells of the first table, by the mode's name."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("| name |"))
    last = next(i for i in range(first, len(lines)) if not lines[i])
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[first + 2 : last]]
    return {name.strip("`"): rest for name, *rest in cells}


def test_every_mode_has_a_row_with_the_names_that_others_give_it():
    found = rows()
    assert set(found) == {mode.value for mode in emu.Rounding}
    for mode in emu.Rounding:
        assert found[mode.value][2:] == [name or "-" for name in mode.meaning.names], mode


def test_every_mode_has_a_picture():
    text = PAGE.read_text(encoding="utf-8")
    for mode in emu.Rounding:
        assert f"pictures/rounding-{mode.value}.svg" in text, mode
