"""Dynamic fixed point on several nodes: registers are summed before a point is set, and a redo is decided by all."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fast_suite import most_are_slow
from test_cluster_training import loop, trained

from emu.training.folders.run_folder import RunFolder
from emu.training.systems.joint_points import OWN_ROLES

OPTIONS: dict[str, Any] = {"device": "dlu16", "cluster__bits": 32, "dynamic_point__pretraining_steps": 4}


@most_are_slow("schedule", ["conditional_redo", "always_redo"], keep=["conditional_redo"])
def test_points_of_activations_and_errors_are_those_of_one_node_with_the_whole_batch(schedule: str):
    """Neither they nor errors depend on other examples: the mean over half a batch goes back at S / 2."""
    alone = trained(1, **OPTIONS, cluster__nodes=1, dynamic_point__schedule=schedule).bench.model.points
    pair = trained(1, **OPTIONS, cluster__nodes=2, dynamic_point__schedule=schedule).bench.model.points
    assert alone is not None
    assert pair is not None
    assert alone.of.keys() == pair.of.keys()
    for role in ("activation", "error"):
        written = [tensor for tensor in alone.of if tensor.role == role]
        assert len(written) > 2
        assert [pair.of[tensor] for tensor in written] == [alone.of[tensor] for tensor in written]
    counted = {"conditional_redo": alone.redos > 0, "always_redo": alone.runs == 2 * alone.redos > 0}
    assert counted[schedule]
    assert pair.redos > alone.redos


def test_a_node_whose_own_numbers_ask_for_nothing_runs_again_with_the_others():
    """All images of the second node are black: alone it would keep its points."""
    found = loop(**OPTIONS, cluster__nodes=2)
    images, labels = found.bench.batches.batch(0)
    images = images.copy()
    images[len(images) // 2 :] = 0
    found.bench.batches.batch = lambda step: (images, labels)  # type: ignore[method-assign]
    found.advance()
    joint = found.bench.model.points
    own = loop(**OPTIONS, cluster__nodes=2, cluster__points="own")
    own.bench.batches.batch = lambda step: (images, labels)  # type: ignore[method-assign]
    own.advance()
    each = own.bench.model.points
    assert joint is not None
    assert each is not None
    first = next(t for t in joint.of if (t.layer, t.role) == ("input", "activation"))
    dark = each.of[first._replace(part="@1")]
    assert dark == 8, "half of the word, as before anything is known: nothing but zeros was counted"
    assert each.of[first._replace(part="@0")] == joint.of[first] != dark


def test_own_points_are_those_of_activations_and_errors_and_all_else_stays_joint():
    points = trained(2, **OPTIONS, cluster__nodes=2, cluster__points="own").bench.model.points
    assert points is not None
    for tensor in points.of:
        assert ("@" in tensor.part) == (tensor.role in OWN_ROLES), tensor
    assert {tensor.part[-2:] for tensor in points.of if tensor.role == "error"} == {"@0", "@1"}


@most_are_slow(("points", "killed_at"), product(["joint", "own"], [2, 5]), keep=[("joint", 2), ("own", 5)])
def test_a_killed_run_goes_on_to_the_same_bits_in_pretraining_and_behind_it(
    points: str, killed_at: int, tmp_path: Path
):
    options: Any = {**OPTIONS, "cluster__nodes": 2, "cluster__points": points, "dynamic_point__interval": 1}
    whole = trained(6, **options)
    folder = RunFolder.create(tmp_path / "run")
    trained(killed_at, **options).checkpoint.save(folder)
    again = loop(**options)
    again.checkpoint.restore(folder)
    while again.steps.done < 6:
        again.advance()
    assert again.bench.model.sha256() == whole.bench.model.sha256()
    assert again.log.registers().sha256() == whole.log.registers().sha256()
    assert again.bench.model.points is not None
    assert whole.bench.model.points is not None
    assert again.bench.model.points.of == whole.bench.model.points.of
    assert again.log.metrics()["count_bytes"] == whole.log.metrics()["count_bytes"] > 0


@pytest.mark.parametrize("points", ["joint", "own"])
def test_evaluation_behind_training_uses_the_points_of_the_first_node(points: str):
    found = trained(6, **OPTIONS, cluster__nodes=2, cluster__points=points)
    assert found.bench.model.points is not None
    before = dict(found.bench.model.points.of)
    loss, _ = found.log.evaluate()
    assert np.isfinite(loss)
    assert found.bench.model.points.of == before


#: 39 positions of a 40-bit accumulator and the number of results, 32 bits each.
REGISTER_BYTES = 160
#: What a node writes in its pass, by role: one operation each, as mlp has three layers behind its input.
IN_PASSES = {"activation": 4, "weight": 3, "bias": 3, "error": 3, "gradient": 2 * 3}


@pytest.mark.parametrize("schedule", ["conditional_redo", "always_redo"])
def test_operations_of_pretraining_send_their_registers_to_one_node_and_the_sum_back(schedule: str):
    """Each of the K - 1 other nodes sends one and gets one, whether the operation runs again or not."""
    for nodes in (1, 2, 4):
        found = trained(2, **OPTIONS, cluster__nodes=nodes, dynamic_point__schedule=schedule)
        operations = 2 * sum(IN_PASSES.values())
        assert found.log.metrics()["count_bytes"] == operations * 2 * (nodes - 1) * REGISTER_BYTES


def test_units_of_a_node_send_one_register_together():
    found = trained(1, **OPTIONS, cluster__nodes=2, cluster__units=2)
    assert found.log.metrics()["count_bytes"] == sum(IN_PASSES.values()) * 2 * REGISTER_BYTES


@pytest.mark.parametrize(
    ("settings", "steps", "times"),
    [
        ({"dynamic_point__pretraining_steps": 0, "dynamic_point__interval": 2}, 5, 2),
        ({"dynamic_point__pretraining_steps": 2, "dynamic_point__schedule": "float_pretraining"}, 2, 1),
    ],
    ids=["intervals", "behind float32"],
)
@pytest.mark.parametrize("points", ["joint", "own"])
def test_points_of_an_interval_send_a_register_for_each_tensor_that_is_joint(
    settings: Any, steps: int, times: int, points: str
):
    """What the update writes is the same on every node: nothing of it travels."""
    found = trained(steps, **OPTIONS | settings, cluster__nodes=2, cluster__points=points)
    tensors = sum(count for role, count in IN_PASSES.items() if points == "joint" or role not in OWN_ROLES)
    assert found.log.metrics()["count_bytes"] == times * tensors * 2 * REGISTER_BYTES


@pytest.mark.parametrize(
    "settings",
    [
        {**OPTIONS, "cluster__nodes": 1},
        {"device": "fixed16", "cluster__nodes": 2},
        {**OPTIONS, "cluster__nodes": 2, "cluster__warm_start": 2},
        {
            **OPTIONS,
            "cluster__nodes": 2,
            "cluster__warm_start": 2,
            "dynamic_point__pretraining_steps": 1,
            "dynamic_point__interval": 1,
        },
    ],
    ids=["one node", "no open points", "a warm start", "an interval of a warm start"],
)
def test_no_counts_travel_where_no_point_is_joint(settings: Any):
    assert trained(2, **settings).log.metrics()["count_bytes"] == 0
