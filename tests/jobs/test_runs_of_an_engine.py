"""Runs on an engine: each ends as its attempt does, and one whose holder hangs is not waited for."""

from __future__ import annotations

from typing import Any

import pytest

import emu
from emu.jobs import Ended, Job, Runs
from emu.jobs import runs as runs_of_an_engine
from emu.jobs.run import attempt
from emu.training import load_recipe


class Held:
    """An engine whose jobs end at once with what a list says; keeps what it was asked for."""

    slots = 3

    def __init__(self, *values: Any) -> None:
        self.values, self.asked, self.closed = list(values), list[tuple[str, bool]](), False
        self._due: list[str] = []

    def submit(self, key: str, function: Any, plain: dict[str, Any], alone: bool) -> None:
        assert function is attempt
        assert plain["key"] == key
        self.asked.append((key, alone))
        self._due.append(key)

    def ended(self, timeout_s: float = 0.3) -> list[Ended]:
        due, self._due = self._due, []
        found = [(key, self.values.pop(0)) for key in due]
        return [Ended(key, None, value) if isinstance(value, str) else Ended(key, value, None) for key, value in found]

    def running(self) -> int:
        return len(self._due)

    def close(self) -> None:
        self.closed = True


def held_by(who: str) -> dict[str, Any]:
    return {"failure": None, "holder": who}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of runs, which goes on by sleeping alone."""
    now = [100.0]
    monkeypatch.setattr(runs_of_an_engine.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(runs_of_an_engine.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return now


def job(key: str = "run") -> Job:
    return Job.of(key, load_recipe("mlp"), emu.device("fixed8"), f"runs/{key}")


def test_a_run_ends_as_its_attempt_does_and_one_whose_process_ended_with_the_reason(clock: list[float]):
    engine = Held({"failure": None, "holder": ""}, {"failure": "broken", "holder": ""}, "its process ended 2 times")
    with Runs(engine) as runs:
        for key in "abc":
            runs.submit(job(key))
        assert (runs.running(), runs.slots) == (["a", "b", "c"], 3)
        ended = runs.ended()
        assert runs.running() == []
        assert not engine.closed
    assert ended == [Ended("a", None, None), Ended("b", None, "broken"), Ended("c", None, "its process ended 2 times")]
    assert engine.closed
    assert engine.asked == [("a", False), ("b", False), ("c", False)]


def test_a_run_that_another_process_holds_is_asked_for_again_a_second_later(clock: list[float]):
    engine = Held(held_by("them 0"), held_by("them 1"), {"failure": None, "holder": ""})
    runs = Runs(engine)
    runs.submit(job())
    times: list[float] = []
    while runs.running():
        asked = len(engine.asked)
        runs.ended(0.25)
        times += [clock[0]] * (len(engine.asked) - asked)
        assert clock[0] < 110
    assert times == [101.0, 102.0]
    assert engine.asked == [("run", False)] * 3


def test_a_holder_whose_count_stands_still_for_20_seconds_is_not_waited_for(clock: list[float]):
    """It is asked for once a second: the count goes on for the last time at 104, so that it hangs behind 124."""
    counts = ["them 0"] * 3 + ["them 1"] * 30
    engine = Held(*map(held_by, counts))
    runs = Runs(engine)
    runs.submit(job())
    while not engine.asked[-1][1]:
        clock[0] += 1.0
        runs.ended(1.0)
        assert clock[0] < 200
    assert (clock[0], len(engine.asked)) == (125.0, 25)  # at 100, and from 102 on
