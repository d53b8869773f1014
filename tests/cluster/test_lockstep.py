"""Tasks in lockstep: one works at a time, all meet, and what one raises ends all."""

from __future__ import annotations

import pytest

from emu.cluster.lockstep import Lockstep


@pytest.mark.parametrize("tasks", [1, 2, 3, 8])
def test_every_task_gets_what_all_gave_in_their_order(tasks: int):
    steps: Lockstep[tuple[int, int]] = Lockstep()

    def task(number: int) -> list[list[tuple[int, int]]]:
        return [steps.gather((number, meeting)) for meeting in range(20)]

    found = steps.run([lambda number=number: task(number) for number in range(tasks)])
    expected = [[(number, meeting) for number in range(tasks)] for meeting in range(20)]
    assert found == [expected] * tasks


def test_one_task_works_at_a_time_in_their_order():
    steps: Lockstep[None] = Lockstep()
    seen: list[tuple[int, int]] = []

    def task(number: int) -> None:
        for meeting in range(5):
            seen.append((meeting, number))
            steps.gather(None)

    steps.run([lambda number=number: task(number) for number in range(4)])
    assert seen == [(meeting, number) for meeting in range(5) for number in range(4)]


@pytest.mark.parametrize("failing", [0, 1, 2])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_what_one_task_raises_ends_all_and_reaches_the_caller(failing: int, at: int):
    steps: Lockstep[int] = Lockstep()
    ended: list[int] = []

    def task(number: int) -> None:
        for meeting in range(3):
            if (number, meeting) == (failing, at):
                raise ValueError(f"task {number}")
            steps.gather(number)
        ended.append(number)

    with pytest.raises(ValueError, match=f"task {failing}"):
        steps.run([lambda number=number: task(number) for number in range(3)])
    assert not ended or at == 2
    assert steps.run([lambda: steps.gather(1), lambda: steps.gather(2)]) == [[1, 2], [1, 2]], "it is usable behind that"


def test_tasks_that_do_not_meet_equally_often_are_a_mistake_of_ours_and_never_wait_for_ever():
    steps: Lockstep[int] = Lockstep()
    with pytest.raises(AssertionError, match="equally often"):
        steps.run([lambda: 0, lambda: steps.gather(1)])
