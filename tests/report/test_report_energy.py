"""The section on energy and area: it says the totals, and draws every layer and part."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from emu.report.evidence import Evidence, gather
from emu.report.page import Section
from emu.report.pictures.energy import section
from emu.training.cost import Cost, cost_of


@pytest.fixture(scope="module")
def cost() -> Cost:
    return cost_of("mlp", "fixed16", batch=8)


def evidence(folder: Path, **info: Any) -> Evidence:
    """A run that holds nothing but `run.json`."""
    layers = ["flatten1", "fc1", "relu1", "fc2", "relu2", "output", "loss"]
    (folder / "run.json").write_text(json.dumps({"layers": layers, "device": {"name": "fixed16"}, **info}))
    return gather(folder)


def words(part: Section | None) -> str:
    assert part is not None
    return re.sub(r"\s+", " ", html.unescape(re.sub("<[^>]+>", " ", part.body)))


def test_the_section_says_energy_area_and_the_table_that_they_are_of(tmp_path: Path, cost: Cost):
    text = words(section(evidence(tmp_path, cost=cost.described())))
    step, one = (f"{1e6 * joules:.3g} uJ" for joules in (cost.joules_per_step, cost.joules_per_inference))
    assert f"On fixed16, a step of 8 examples takes {step}, and an inference {one}" in text
    assert "after cost table horowitz-45nm with memory sram-1mb" in text
    assert "The units take 0.0126 mm2, without memories." in text


def test_the_picture_has_every_layer_and_part_and_adds_up(tmp_path: Path, cost: Cost):
    part = section(evidence(tmp_path, cost=cost.described()))
    assert part is not None
    (chart,) = part.charts
    rows = chart.spec["datasets"]["rows"]
    assert {(row["layer"], row["kind"]) for row in rows} == {(row.layer, row.unit) for row in cost.rows}
    assert sum(row["uj"] for row in rows) == pytest.approx(cost.joules_per_step * 1e6, rel=1e-3)  # of 4 digits
    assert list(dict.fromkeys(row["layer"] for row in rows))[:2] == ["input", "fc1"]


def test_a_table_without_areas_is_said_to_have_none(tmp_path: Path):
    told = cost_of("mlp", "fixed16", batch=8, table="jouppi-7nm").described()
    text = words(section(evidence(tmp_path, cost=told)))
    assert "The table gives no areas." in text
    assert "Area as a table" not in text


@pytest.mark.parametrize("told", [None, {}, {"energy": []}])
def test_a_run_that_says_no_cost_has_no_section(tmp_path: Path, told: dict[str, Any] | None):
    assert section(evidence(tmp_path, cost=told)) is None
