"""Every chart is drawn by one version of Vega-Lite, the one that Altair writes for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import altair
import pytest
import vl_convert

import emu
from emu.report.pictures.speed_up import speed_up_picture


def test_one_module_alone_calls_the_program_that_draws():
    package = Path(emu.__file__).parent
    callers = [path.name for path in package.rglob("*.py") if "vl_convert" in path.read_text(encoding="utf-8")]
    assert callers == ["vega.py"]


def test_the_speed_up_is_drawn_in_altairs_version_and_with_colours_of_its_own(monkeypatch: pytest.MonkeyPatch):
    asked: list[dict[str, Any]] = []
    drawing = vl_convert.vegalite_to_svg

    def noted(spec: Any, **options: Any) -> str:
        asked.append(options)
        return drawing(spec, **options)

    monkeypatch.setattr(vl_convert, "vegalite_to_svg", noted)
    steps = [
        SimpleNamespace(nodes=nodes, devices=1, batch=8, bits=bits, speed_up=0.9 * nodes, bound=1.2 * nodes)
        for nodes in (1, 2, 4)
        for bits in range(1, 9)
    ]
    found: Any = SimpleNamespace(model="mlp", device="fixed8", steps=steps)
    svg = speed_up_picture(found)
    assert [options["vl_version"] for options in asked] == [altair.SCHEMA_VERSION.removeprefix("v").rpartition(".")[0]]
    assert "var(--" not in svg
    assert (
        'role="img" aria-label="mlp on fixed8: speed-up by number of nodes, at most 3.6 on 4 nodes with batch 8' in svg
    )
    assert all(colour in svg for colour in ("#0072b2", "#d55e00", "#555555"))
