"""Simulated time of training on a cluster is what `emu simulate` says, without training."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
from fast_suite import most_are_slow

import emu
from emu.training import Run
from tests.training.small_runs import train

STEPS = 4
#: Some elements are clipped, and not all.
CLIPS = [{"rule": "constant", "high": 1e-3, "low": -1e-3}]


def trained(out: Path, device: str = "k20x-8x", **settings: Any) -> Run:
    return train(out, device=device, training__steps=STEPS, training__batch=16, **settings)


@most_are_slow("settings", [
    {"cluster.nodes": 4},
    {"cluster.nodes": 2, "cluster.bits": 32, "cluster.streaming": True},
    {"cluster.nodes": 2, "cluster.units": 2},
    {"cluster.nodes": 4, "loss_scaling": {"policy": "fixed", "scale": 8.0}},
    {"cluster.nodes": 4, "cluster.exchange": "controllers"},
    {"cluster.nodes": 3, "cluster.workers": [0, 1], "cluster.exchange": "controllers", "cluster.controllers": [2]},
    {"cluster.nodes": 3, "cluster.workers": [0, 2], "cluster.bits": 2},
    {"cluster.nodes": 3, "cluster.workers": [1], "cluster.bits": 4},
    {"cluster.nodes": 4, "cluster.lines": "inputs"},
    {"cluster.nodes": 2, "cluster.lines": "inputs", "cluster.exchange": "controllers"},
    {"cluster.nodes": 2, "cluster.exchange": "controllers", "clipping.rules": CLIPS, "clipping.on": "worker"},
    {"cluster.nodes": 2, "clipping.rules": CLIPS, "loss_scaling": {"policy": "fixed", "scale": 8.0}},
    {"cluster.nodes": 2, "cluster.model_parallel": 2},
    {"cluster.nodes": 1, "cluster.model_parallel": 3},
    {"cluster.nodes": 2, "cluster.model_parallel": 2, "cluster.model_split": "layers"},
    {"cluster.nodes": 2, "cluster.model_parallel": 2, "cluster.exchange": "controllers", "clipping.rules": CLIPS},
], keep=[
    {"cluster.nodes": 2, "cluster.lines": "inputs", "cluster.exchange": "controllers"},
    {"cluster.nodes": 2, "cluster.bits": 32, "cluster.streaming": True},
    {"cluster.nodes": 2, "cluster.units": 2},
    {"cluster.nodes": 3, "cluster.workers": [0, 1], "cluster.exchange": "controllers", "cluster.controllers": [2]},
    {"cluster.nodes": 2, "clipping.rules": CLIPS, "loss_scaling": {"policy": "fixed", "scale": 8.0}},
    {"cluster.nodes": 2, "cluster.model_parallel": 2, "cluster.model_split": "layers"},
])  # fmt: skip
def test_a_run_takes_as_long_as_its_steps_are_simulated(tmp_path: Path, settings: dict[str, Any]):
    run = trained(tmp_path / "run", **settings)
    nodes = settings["cluster.nodes"]
    found = emu.simulate(emu.model("mlp"), emu.device("k20x-8x"), nodes=[nodes], batches=[16], overrides=settings)
    assert run.info["simulated_picoseconds_by_phase"] == {"training": STEPS * found.steps[0].time.step_ps}
    if not {"cluster.units", "cluster.model_parallel"} & settings.keys():  # what devices of a node send is not counted
        assert run.info["metrics"]["bytes_sent"] == STEPS * found.steps[0].time.sent_bytes


def test_errors_in_parts_are_the_convolutions_of_one_device_c9(tmp_path: Path):
    settings = {"cluster.nodes": 1, "cluster.model_parallel": 2}
    run = trained(tmp_path / "run", model="lenet", **settings)
    found = emu.simulate(emu.model("lenet"), emu.device("k20x-8x"), nodes=[1], batches=[16], overrides=settings)
    assert run.info["simulated_picoseconds_by_phase"] == {"training": STEPS * found.steps[0].time.step_ps}


def test_a_device_alone_takes_time_for_clipping_as_well(tmp_path: Path):
    settings = {"clipping.rules": CLIPS, "clipping.on": "worker"}
    run = trained(tmp_path / "run", **settings)
    found, free = (
        emu.simulate(emu.model("mlp"), emu.device("k20x-8x"), nodes=[1], batches=[16], overrides=overrides)
        for overrides in (settings, {})
    )
    step = found.steps[0].time
    assert run.info["simulated_picoseconds_by_phase"] == {"training": STEPS * step.step_ps}
    assert step.step_ps == free.steps[0].time.step_ps + step.clip_ps
    assert step.clip_ps > 0


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

    run = trained(tmp_path / "run", **{"cluster.nodes": 2, "clipping.rules": CLIPS})
    page = build_report(run.path).read_text(encoding="utf-8")
    assert "Simulated time" in page
    rows = parquet.read_table(run.path / "simulation.parquet").to_pylist()
    assert all(row["picoseconds"] > 0 for row in rows if row["kind"] == "clip")
    assert re.search(r"% is quantise, [\d.]+ ?% is clip,", page)
