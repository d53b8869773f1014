"""The arithmetic of measuring, with a clock that only moves when a side works."""

from __future__ import annotations

import pytest

from benchmarks.measuring.steadiness import Steadiness
from benchmarks.measuring.timing import Pace, Spread, alternate, rates, ratios

STEADY = Pace(rounds=5, least=2, budget_s=1e9, sample_s=0.0, warm_up=1)


class FakeTime:
    """A clock, and sides that take known times."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[str] = []

    def clock(self) -> float:
        return self.now

    def side(self, name: str, *seconds: float):
        left = list(seconds)

        def run() -> None:
            self.calls.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return run


def test_the_spread_is_the_median_and_the_quartiles():
    assert Spread.of([5.0, 1.0, 3.0, 2.0, 4.0]) == Spread(3.0, 2.0, 4.0, 5)
    assert Spread.of([7.0]) == Spread(7.0, 7.0, 7.0, 1)


def test_sides_alternate_forth_and_back_behind_the_warm_up():
    time = FakeTime()
    alternate([time.side("a", 1.0), time.side("b", 1.0)], STEADY, clock=time.clock)
    assert "".join(time.calls) == "ab" + "abbaabbaab"


def test_times_belong_to_their_side_and_their_round():
    time = FakeTime()
    first, second = time.side("a", 9.0, 1.0, 2.0, 3.0, 4.0, 5.0), time.side("b", 9.0, 10.0, 20.0, 30.0, 40.0, 50.0)
    seconds = alternate([first, second], STEADY, clock=time.clock)
    assert seconds == [[1.0, 2.0, 3.0, 4.0, 5.0], [10.0, 20.0, 30.0, 40.0, 50.0]]


def test_no_round_begins_behind_the_budget_but_the_least_are_run():
    time = FakeTime()
    pace = Pace(rounds=100, least=3, budget_s=10.0, sample_s=0.0, warm_up=1)
    assert len(alternate([time.side("a", 4.0)], pace, clock=time.clock)[0]) == 3
    assert len(alternate([time.side("a", 6.0)], pace, clock=time.clock)[0]) == 3
    assert len(alternate([time.side("a", 1.0)], pace, clock=time.clock)[0]) == 11


def test_a_short_side_runs_often_enough_for_a_sample_and_is_divided_by_its_calls():
    time = FakeTime()
    pace = Pace(rounds=3, least=1, budget_s=1e9, sample_s=1.0, warm_up=2)
    seconds = alternate([time.side("a", 0.25), time.side("b", 2.0)], pace, clock=time.clock)
    assert seconds == [[0.25] * 3, [2.0] * 3]
    assert time.calls.count("a") == 2 + 3 * 4
    assert time.calls.count("b") == 2 + 3


def test_threads_settle_behind_the_warm_up():
    time = FakeTime()
    settle = time.side("settle", 0.0)
    alternate([time.side("a", 1.0)], STEADY, clock=time.clock, settle=settle)
    assert time.calls[:3] == ["a", "settle", "a"]


def test_a_drift_that_hits_both_sides_leaves_the_ratio():
    ours, theirs = [1.0, 2.0, 3.0], [2.0, 4.0, 6.0]
    assert ratios(ours, 1.0, theirs, 1.0) == Spread(2.0, 2.0, 2.0, 3)


def test_a_side_that_does_a_part_is_compared_by_its_rate():
    assert ratios([1.0], 100.0, [0.5], 10.0).median == pytest.approx(100.0 / 20.0, rel=0, abs=0)
    assert rates([0.5], 10.0).median == 20.0


class Neighbour:
    """Someone who takes a processor now and then."""

    def __init__(self, *quiet: bool) -> None:
        self.retaken, self._quiet = 0, list(quiet)

    def ask(self) -> bool:
        return self._quiet.pop(0) if self._quiet else True


def test_a_round_that_begins_or_ends_without_all_processors_is_taken_again():
    time, neighbour = FakeTime(), Neighbour(True, True, False, True, True, False, True, True)
    side = time.side("a", 9.0, 1.0, 20.0, 30.0, 2.0, 3.0, 4.0, 5.0)
    assert alternate([side], STEADY, clock=time.clock, steady=neighbour) == [[1.0, 2.0, 3.0, 4.0, 5.0]]
    assert neighbour.retaken == 2


def test_behind_the_budget_rounds_are_taken_as_they_come():
    time, neighbour = FakeTime(), Neighbour(*[False] * 1000)
    pace = Pace(rounds=100, least=3, budget_s=10.0, sample_s=0.0, warm_up=1)
    assert alternate([time.side("a", 1.0)], pace, clock=time.clock, steady=neighbour) == [[1.0] * 3]
    assert neighbour.retaken == 11


def test_a_machine_is_steady_while_the_same_work_takes_the_same_time(monkeypatch: pytest.MonkeyPatch):
    times = iter([0.0, 1.0, 1.0, 2.2, 2.2, 3.6, 3.6, 4.4, 4.4, 5.5])
    steadiness = Steadiness(1, clock=lambda: next(times))
    assert [steadiness.ask() for _ in range(5)] == [True, True, False, True, False]  # 1.1 against 0.8
