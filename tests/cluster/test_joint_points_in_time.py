"""What joint points cost: counts of nodes on a crossbar, worked by hand."""

from __future__ import annotations

from typing import Any

import pytest
from fast_suite import most_are_slow
from ranks_in_threads import on_ranks
from test_cluster_training import NARROW, SMALL

import emu
from emu.cluster.timing import counts_of
from emu.hardware import Device, Fabric, load_device
from emu.training.loop import Loop
from emu.training.systems.joint_points import JointPoints
from emu.training.systems.simulated_time import SimulatedTime
from emu.training.workbench import Workbench
from emu.training.workbench.ranks import Ranks

#: 39 positions of a 40-bit accumulator and the number of results, 32 bits each; at a byte in 1000 ps, behind 1 us.
REGISTER_BYTES, BYTE_PS, LATENCY_PS = 160, 1000, 1_000_000
#: Four nodes: three registers one after the other, the latency of the last, three sums, the latency of the last.
POINT_PS = 3 * 160_000 + 1_000_000 + 3 * 160_000 + 1_000_000
#: What nodes write in passes: 4 activations, 3 weights, 3 biases, 3 errors, 2 gradients of each of 3 layers.
PLACES = 4 + 3 + 3 + 3 + 6


def on_crossbar() -> Device:
    """Return dlu16 with a port to a crossbar of round numbers."""

    def said(value: float) -> dict[str, Any]:
        return {"value": value, "source": "a round number"}

    device: dict[str, Any] = load_device("dlu16").model_dump(mode="json", exclude_unset=True)
    device["links"].append({"to": "crossbar", "bandwidth_bytes_per_s": said(1e9), "latency_s": said(1e-6)})
    device["crossbar"] = {"ports": said(8), "arbitration": "first_come"}
    return Device.model_validate(device)


def trained(steps: int, ranks: Ranks | None = None, **settings: Any) -> Loop:
    named = {key.replace("__", "."): value for key, value in settings.items()}
    options = {"cluster.nodes": 4, "dynamic_point.interval": 2, "dynamic_point.decided_on": "accelerator"}
    recipe = emu.model("mlp").with_settings(SMALL | NARROW | options | named)
    found = Loop(Workbench.of(recipe, recipe.machine(on_crossbar()), "auto", None, ranks))
    for _ in range(steps):
        found.advance()
    return found


def time_of(found: Loop) -> SimulatedTime:
    return next(system for system in found.systems if isinstance(system, SimulatedTime))


def taken_ps(found: Loop) -> int:
    return sum(time_of(found).about()["simulated_picoseconds_by_phase"].values())


def counted(found: Loop) -> list[dict[str, Any]]:
    return [row for _, row in time_of(found).interval() if (row["unit"], row["kind"]) == ("port", "transfer")]


@most_are_slow("nodes", [1, 2, 3, 8], keep=[1, 3])
def test_registers_go_to_the_first_node_and_their_sum_to_all_one_after_the_other(nodes: int):
    fabric = Fabric.of(on_crossbar(), nodes=nodes)
    expected = 2 * ((nodes - 1) * REGISTER_BYTES * BYTE_PS + LATENCY_PS) if nodes > 1 else 0
    assert counts_of(fabric, range(nodes), REGISTER_BYTES) == (expected, 2 * (nodes - 1) * REGISTER_BYTES)


@pytest.mark.parametrize(("pretraining_steps", "steps"), [(4, 1), (0, 2)], ids=["pre-training", "an interval"])
def test_every_joint_point_takes_the_time_of_its_counts(
    pretraining_steps: int, steps: int, monkeypatch: pytest.MonkeyPatch
):
    """One step of pre-training decides all of them once, and so does one interval of two steps."""
    settings: dict[str, Any] = {"dynamic_point__pretraining_steps": pretraining_steps}
    found = trained(steps, **settings)
    with monkeypatch.context() as without:
        without.setattr(JointPoints, "sums_over_nodes", lambda *_: False)
        without.setattr(JointPoints, "on_point_set", lambda *_: False)
        free = trained(steps, **settings)
    assert taken_ps(found) - taken_ps(free) == PLACES * POINT_PS
    rows = counted(found)
    assert sum(row["calls"] for row in rows) == PLACES
    assert sum(row["picoseconds"] for row in rows) == PLACES * POINT_PS
    assert sum(row["bytes"] for row in rows) == found.log.metrics()["count_bytes"] == PLACES * 2 * 3 * REGISTER_BYTES
    assert counted(free) == []


def test_own_points_take_no_time_of_the_crossbar():
    rows = counted(trained(1, cluster__points="own", dynamic_point__pretraining_steps=4))
    assert {row["role"] for row in rows} == {"weight", "bias", "gradient"}


def test_points_that_are_set_behind_the_update_are_no_part_of_the_pass():
    found = trained(1, dynamic_point__pretraining_steps=0)
    before = time_of(found).step_times()
    found.advance()
    behind = time_of(found).step_times()
    assert before == behind
    assert counted(found) != []


@pytest.mark.parametrize("settings", [{}, {"cluster__workers": [1, 2]}], ids=["all compute", "two only own stripes"])
def test_ranks_count_the_bytes_and_the_time_of_one_process(settings: dict[str, Any]):
    """Two steps of pre-training, then one whose points are set behind it."""
    options: dict[str, Any] = {"dynamic_point__pretraining_steps": 2, "dynamic_point__interval": 1, **settings}
    alone = trained(3, **options)
    nodes = len(settings.get("cluster__workers", range(4)))
    assert alone.log.metrics()["count_bytes"] == 3 * PLACES * 2 * (nodes - 1) * REGISTER_BYTES
    expected = alone.log.metrics()["count_bytes"], taken_ps(alone)

    def work(channel: Any) -> tuple[int, int]:
        found = trained(3, Ranks(channel), **options)
        return found.log.metrics()["count_bytes"], taken_ps(found)

    assert on_ranks(4, work) == [expected] * 4
