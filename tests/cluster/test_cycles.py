"""Steps that repeat: what a cycle is, and double-buffered steps that a few steps from the start would misjudge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from nominal import k20x

import emu
from emu.cluster.timing.cycle import MOST_STEPS, Steps


def steps_of(*played: tuple[int, str]) -> Steps:
    """Return steps that took so long, and did something."""
    steps = Steps()
    end = 0
    for number, (took, did) in enumerate(played, 1):
        end += took
        steps.add(np.array([end - 1, end]), {"bytes": np.array([3 * number])}, {"port": np.array([end])}, [did])
    return steps


def test_one_step_is_no_cycle_unless_all_is_as_before_it():
    assert steps_of((70, "a")).cycle is None
    steps = Steps()
    steps.add(np.array([70, 60]), {"bytes": np.array([3])}, {"port": np.array([5])}, ["a"], at_rest=True)
    assert steps.cycle == (1, 70, {"bytes": 3}, {"port": 5})


def test_two_equal_steps_are_a_cycle_of_one_and_what_came_before_them_does_not_count():
    assert steps_of((70, "a"), (90, "b"), (90, "b")).cycle == (1, 90, {"bytes": 3}, {"port": 90})
    assert steps_of((70, "a"), (90, "b"), (80, "c")).cycle is None


def test_a_cycle_of_several_steps_has_their_mean():
    steps = steps_of((70, "a"), (80, "b"), (100, "c"), (80, "b"), (100, "c"))
    assert steps.cycle == (2, 180, {"bytes": 6}, {"port": 180})


def test_steps_that_end_apart_on_their_devices_do_not_repeat():
    steps = Steps()
    for ends in ([10, 10], [19, 20], [28, 30]):
        steps.add(np.array(ends), {}, {}, ["a"])
    assert steps.cycle is None
    steps.add(np.array([38, 40]), {}, {}, ["a"])
    assert steps.cycle == (1, 10, {}, {})


def test_without_a_cycle_the_second_half_of_the_steps_counts():
    steps = steps_of(*((number, f"step {number}") for number in range(1, MOST_STEPS)))
    assert steps.cycle is None
    end, number = steps.end_ps, MOST_STEPS
    steps.add(np.array([end + number]), {"bytes": np.array([3 * number])}, {"port": np.array([end])}, ["last"])
    half = MOST_STEPS // 2
    taken = sum(range(half + 1, MOST_STEPS + 1))
    assert steps.cycle == (half, taken, {"bytes": 3 * half}, {"port": taken - number})


@pytest.mark.parametrize(("model", "nodes", "batch", "bits", "cluster", "milliseconds"), [
    ("dnn46m", 8, 8192, 4, {"streaming": True}, 225.2029),
    ("dnn46m", 8, 8192, 1, {}, 216.6051),
    ("deep_sigmoid", 2, 960, 1, {"chunks": 8}, 0.0725),
    ("mlp", 4, 8192, 4, {}, 0.4176),
])  # fmt: skip
def test_double_buffered_steps_take_the_mean_of_a_cycle_c7(
    model: str, nodes: int, batch: int, bits: int, cluster: dict[str, Any], milliseconds: float
):
    """The first four steps of these would say 191.70, 201.45, 0.0602 and 0.4481."""
    table = {"exchange": "controllers", "double_buffering": True, **cluster}
    settings = {f"cluster.{key}": value for key, value in table.items()}
    simulated = emu.simulate(model, k20x(), nodes=[nodes], batches=[batch], bits=[bits], overrides=settings)
    (step,) = simulated.steps
    assert round(step.time.step_ps / 1e9, 4) == milliseconds
    assert step.time.link_use <= 1
