"""The page has the places that the command fills."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.measuring.markdown import PLACES, fill, places
from benchmarks.measuring.result import Session
from benchmarks.rows import all_rows

ROOT = Path(__file__).resolve().parents[2]
PAGE, DATA = ROOT / "docs" / "benchmarks.md", ROOT / "benchmarks" / "speed.json"


def test_the_page_shows_what_was_measured_and_nothing_else():
    session = Session.from_dict(json.loads(DATA.read_text(encoding="utf-8")))
    text = PAGE.read_text(encoding="utf-8")
    assert fill(text, places(session, all_rows())) == text


@pytest.mark.parametrize("place", PLACES)
def test_the_page_has_every_place_once(place: str):
    text = PAGE.read_text(encoding="utf-8")
    assert text.count(f"<!-- bench:{place} begin -->") == text.count(f"<!-- bench:{place} end -->") == 1
    assert "a figure" in fill(text, {place: "a figure"})
