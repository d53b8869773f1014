"""The page has the places that the command fills."""

from __future__ import annotations

from pathlib import Path

import pytest

from emu.bench.markdown import PLACES, fill

PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"


@pytest.mark.parametrize("place", PLACES)
def test_the_page_has_every_place_once(place: str):
    text = PAGE.read_text(encoding="utf-8")
    assert text.count(f"<!-- bench:{place} begin -->") == text.count(f"<!-- bench:{place} end -->") == 1
    assert "a figure" in fill(text, {place: "a figure"})
