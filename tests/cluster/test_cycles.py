"""Steps that repeat: what a cycle is, and double-buffered steps that a few steps from the start would misjudge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from nominal import k20x

import emu
from emu.cluster.timing.cycle import FIRST_STEPS, MOST_STEPS, Steps


def steps_of(*played: tuple[int, str]) -> Steps:
    """Return steps that took so long, and did something."""
    steps = Steps()
    end = 0
    for number, (took, did) in enumerate(played, 1):
        end += took
        steps.add(np.array([end - 1, end]), {"bytes": np.array([3 * number])}, {"port": np.array([end])}, [did], [])
    return steps


def test_one_step_is_no_cycle_unless_all_is_as_before_it():
    assert steps_of((70, "a")).cycle is None
    steps = Steps()
    steps.add(np.array([70, 60]), {"bytes": np.array([3])}, {"port": np.array([5])}, ["a"], [], at_rest=True)
    assert steps.cycle == (1, 70, {"bytes": 3}, {"port": 5}, True)


def test_two_equal_steps_are_a_cycle_of_one_and_what_came_before_them_does_not_count():
    assert steps_of((70, "a"), (90, "b"), (90, "b")).cycle == (1, 90, {"bytes": 3}, {"port": 90}, True)
    assert steps_of((70, "a"), (90, "b"), (80, "c")).cycle is None
    assert steps_of((70, "a"), (90, "b"), (90, "c")).cycle is None


def test_a_cycle_of_several_steps_has_their_mean():
    steps = steps_of((70, "a"), (80, "b"), (100, "c"), (80, "b"), (100, "c"))
    assert steps.cycle == (2, 180, {"bytes": 6}, {"port": 180}, True)


def test_steps_that_end_apart_on_their_devices_do_not_repeat():
    steps = Steps()
    for ends in ([10, 10], [19, 20], [28, 30]):
        steps.add(np.array(ends), {}, {}, ["a"], [])
    assert steps.cycle is None
    steps.add(np.array([38, 40]), {}, {}, ["a"], [])
    assert steps.cycle == (1, 10, {}, {}, True)


def test_steps_in_which_something_happens_at_another_time_do_not_repeat():
    steps = Steps()
    for end, at in (10, 3), (20, 13), (30, 24), (40, 32):
        steps.add(np.array([end]), {}, {}, ["a"], [np.array([at])])
        assert (steps.cycle is not None) == (end == 20)
        steps.cycle = None


def test_opposite_changes_of_two_times_are_another_step():
    """Of device 1 in the first array and device 0 in the second; weights must not be symmetric."""
    steps = Steps()
    for end, change in (10, 0), (20, 3):
        times = [np.array([end + 1, end + 2 + change]), np.array([end + 3 - change, end + 4])]
        steps.add(np.array([end, end]), {}, {}, ["a"], times)
    assert steps.cycle is None
    steps = Steps()
    for end, change in (10, 0), (20, 3):
        times = [np.array([end + 1, end + 2]), np.array([end + 2 + change, end + 3]), np.array([end, end - change])]
        steps.add(np.array([end, end]), {}, {}, ["a"], times)
    assert steps.cycle is None


def moving(ends: Sequence[Sequence[int]], busy: Sequence[int] = (), names: str = "") -> list[int | None]:
    """Return the length of the cycle after each step, for ends of steps by device."""
    steps, lengths = Steps(), list[int | None]()
    for number, end in enumerate(ends):
        used = {"port": np.array([busy[number]])} if busy else {}
        steps.add(np.array(end), {}, used, [names[number] if names else "a"], [])
        lengths.append(None if steps.cycle is None else steps.cycle.steps)
        steps.cycle = None
    return lengths


def test_a_device_that_gets_ahead_by_the_same_time_in_every_step_does_not_hide_a_cycle():
    ends = [(10 * n, 10 * n - n) for n in range(1, FIRST_STEPS + 2)]
    assert moving(ends) == [None] * (FIRST_STEPS - 1) + [1, 1]


def test_devices_that_get_ahead_of_a_cycle_of_two_leave_its_length():
    ends = [(10 * n + 3 * (n % 2), 10 * n - n) for n in range(1, FIRST_STEPS + 3)]
    assert moving(ends)[-3:] == [2, 2, 2]


@pytest.mark.parametrize("last", [(10, 0), (11, 1)], ids=["moved by more", "took longer"])
def test_steps_do_not_repeat_if_the_last_moved_otherwise(last: tuple[int, int]):
    before = [(10 * n, 9 * n) for n in range(1, FIRST_STEPS + 1)]
    assert moving([*before, (before[-1][0] + last[0], before[-1][1] + last[1])])[-1] is None


def test_steps_that_move_evenly_but_do_something_else_do_not_repeat():
    ends = [(10 * n, 9 * n) for n in range(1, FIRST_STEPS + 2)]
    assert moving(ends, names="a" * FIRST_STEPS + "b")[-1] is None


def test_steps_that_move_evenly_are_no_cycle_while_work_piles_up_before_a_resource():
    """A port is used for 11 in a step of 10: later steps wait for it."""
    ends = [(10 * n, 9 * n) for n in range(1, FIRST_STEPS + 1)]
    count = range(1, FIRST_STEPS + 1)
    assert moving(ends, busy=[11 * n for n in count])[-1] is None
    assert moving(ends, busy=[10 * n for n in count])[-1] == 1


def test_without_a_cycle_the_second_half_of_the_steps_counts():
    steps = steps_of(*((number, f"step {number}") for number in range(1, MOST_STEPS)))
    assert steps.cycle is None
    end, number = steps.end_ps, MOST_STEPS
    steps.add(np.array([end + number]), {"bytes": np.array([3 * number])}, {"port": np.array([end])}, ["last"], [])
    half = MOST_STEPS // 2
    taken = sum(range(half + 1, MOST_STEPS + 1))
    assert steps.cycle == (half, taken, {"bytes": 3 * half}, {"port": taken - number}, False)


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
