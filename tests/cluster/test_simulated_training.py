"""Simulated time of training on a cluster is what `emu simulate` says, without training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

import emu
from emu.training import Run
from tests.training.small_runs import train

STEPS = 4


def trained(out: Path, device: str = "k20x-8x", **settings: Any) -> Run:
    return train(out, device=device, training__steps=STEPS, training__batch=16, **settings)


@pytest.mark.parametrize("settings", [
    {"cluster.nodes": 4},
    {"cluster.nodes": 2, "cluster.bits": 32, "cluster.streaming": True},
    {"cluster.nodes": 2, "cluster.units": 2},
    {"cluster.nodes": 4, "loss_scaling": {"policy": "fixed", "scale": 8.0}},
])  # fmt: skip
def test_a_run_takes_as_long_as_its_steps_are_simulated(tmp_path: Path, settings: dict[str, Any]):
    run = trained(tmp_path / "run", **settings)
    nodes = settings["cluster.nodes"]
    found = emu.simulate(emu.model("mlp"), emu.device("k20x-8x"), nodes=[nodes], batches=[16], overrides=settings)
    assert run.info["simulated_picoseconds_by_phase"] == {"training": STEPS * found.steps[0].time.step_ps}


def test_a_warm_start_is_one_node_alone(tmp_path: Path):
    run = trained(tmp_path / "run", **{"cluster.nodes": 4, "cluster.warm_start": STEPS})
    alone = emu.simulate(emu.model("mlp"), emu.device("k20x-8x"), nodes=[1], batches=[16])
    assert run.info["simulated_picoseconds_by_phase"] == {"training": STEPS * alone.steps[0].time.step_ps}


def test_a_cluster_without_a_crossbar_has_no_time_and_says_why(tmp_path: Path):
    run = trained(tmp_path / "run", device="p100", **{"cluster.nodes": 2})
    assert run.info["simulated_seconds"] is None
    assert run.info["simulated_time_missing"].startswith("a device must have [crossbar]")


def test_the_trace_has_a_process_per_node_and_the_table_what_was_sent(tmp_path: Path):
    run = trained(tmp_path / "run", **{"cluster.nodes": 4})
    events = json.loads((run.path / "trace.json").read_text())["traceEvents"]
    assert len({event["pid"] for event in events if event["ph"] == "X"}) == 4
    rows = parquet.read_table(run.path / "simulation.parquet").to_pylist()
    sent = sum(row["bytes"] for row in rows if row["kind"] == "send")
    assert sent * 4 == run.info["metrics"]["bytes_sent"]
    assert any(row["kind"] == "quantise" for row in rows)


def test_a_report_of_a_cluster_shows_its_time(tmp_path: Path):
    from emu.report import build_report

    run = trained(tmp_path / "run", **{"cluster.nodes": 2})
    assert "Simulated time" in build_report(run.path).read_text(encoding="utf-8")
