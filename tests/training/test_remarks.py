"""What a run's numbers do not say of themselves: nodes that were left out, time that was not simulated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from emu.cli import app
from emu.report import build_report
from emu.training.remarks import remarks

SHORT = ("training.steps=2", "training.batch=16", "data.test_images=16")
LEFT_OUT = "one node of k20x-8x was trained, which has 8; --set cluster.nodes=8 trains all"
EXCHANGE = "{} nodes exchange gradients of 1 bit"
NO_TIME = (
    "no time was simulated: `ports` of [crossbar] must be at least 16, for 16 nodes x 1 devices, got 8; give it more, "
    "or take fewer nodes"
)


@pytest.mark.parametrize(("device", "nodes", "expected"), [
    ("k20x-8x", None, [LEFT_OUT]), ("k20x-8x", 16, [EXCHANGE.format(16), NO_TIME]),
    ("k20x-8x", 2, [EXCHANGE.format(2)]), ("fixed16", None, []),
])  # fmt: skip
def test_terminal_and_page_say_what_a_cluster_did_and_lacked(
    device: str, nodes: int | None, expected: list[str], tmp_path: Path
):
    settings = [*SHORT, *([] if nodes is None else [f"cluster.nodes={nodes}"])]
    words = [word for setting in settings for word in ("--set", setting)]
    done = CliRunner().invoke(app, ["train", "mlp", "--device", device, *words, "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    said = [line for line in done.output.splitlines() if line.startswith("note ")]
    assert said == [f"note      {remark}" for remark in expected]
    build_report(tmp_path / "run")
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    for remark in (LEFT_OUT, NO_TIME, EXCHANGE.format(2), EXCHANGE.format(16)):
        assert (f"{remark[:1].upper()}{remark[1:]}." in page) == (remark in expected)


@pytest.mark.parametrize(("info", "expected"), [
    ({}, 0),
    ({"device": {"name": "a"}, "recipe": {}}, 0),
    ({"device": {"name": "a", "crossbar": {"ports": {"value": 4.0}}}, "recipe": {}}, 1),
    ({"device": {"name": "a", "crossbar": {"ports": {"value": 4.0}}, "topology": {"nodes": {"value": 1.0}}}}, 0),
    ({"device": {"name": "a", "crossbar": {"ports": {"value": 4.0}}}, "recipe": {"cluster": {"nodes": 1}}}, 0),
    ({"device": "a", "simulated_time_missing": "why"}, 1),
])  # fmt: skip
def test_what_a_run_does_not_say_is_not_remarked_on(info: dict[str, Any], expected: int):
    assert len(remarks(info)) == expected
