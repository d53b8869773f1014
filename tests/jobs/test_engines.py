"""Engines run jobs on processes that may die."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from plain_jobs import killed_until, refused, squared

import emu
from emu.jobs import Ended, Engine, local, open_engine
from emu.jobs.engine import of_signal, processors


def all_of(engine: Engine) -> dict[str, Ended]:
    found: dict[str, Ended] = {}
    while engine.running():
        found |= {one.key: one for one in engine.ended()}
    return found


@pytest.fixture
def on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=":")


@pytest.mark.slow
def test_an_engine_returns_what_jobs_return_and_why_others_did_not(on_the_path: None):
    with open_engine("local", 2) as engine:
        for number in range(5):
            engine.submit(f"square {number}", squared, number)
        engine.submit("wrong", refused, 1)
        found = all_of(engine)
    assert [found[f"square {number}"].value for number in range(5)] == [0, 1, 4, 9, 16]
    assert found["wrong"] == Ended("wrong", None, "ValueError: no such number")


@pytest.mark.slow
def test_a_process_that_dies_is_replaced_once_for_a_job_and_fails_no_other(on_the_path: None, tmp_path: Path):
    for name in ("once", "always"):
        (tmp_path / name).mkdir()
    with open_engine("local", 2) as engine:
        engine.submit("once", killed_until, str(tmp_path / "once"), 1)
        engine.submit("always", killed_until, str(tmp_path / "always"), 9)
        for number in range(20):
            engine.submit(f"square {number}", squared, number)
        found = all_of(engine)
    assert found["once"] == Ended("once", 1, None)
    assert found["always"].failure == "its process ended 2 times, with signal 9"
    assert [found[f"square {number}"].value for number in range(20)] == [number**2 for number in range(20)]


@pytest.mark.parametrize(
    ("on", "workers", "said"),
    [
        ("local", 0, "--workers must be at least 1, got 0"),
        ("slurm", None, "--on must be local, dask, or dask:ADDRESS"),
        ("dask:", None, "--on must be local, dask, or dask:ADDRESS"),
        ("local:4", None, "--on must be local, dask, or dask:ADDRESS"),
        ("dask:tcp://127.0.0.1:9", 2, "--workers must be left out with --on dask:tcp://127.0.0.1:9"),
    ],
)
def test_an_engine_that_is_none_is_refused(on: str, workers: int | None, said: str):
    with pytest.raises(emu.ConfigError, match=said):
        open_engine(on, workers)


def test_how_a_process_ended_is_said_in_words():
    assert [of_signal(code) for code in (-9, -1, 0, 1, None)] == [
        "signal 9", "signal 1", "exit code 0", "exit code 1", "exit code None",
    ]  # fmt: skip


def test_a_system_that_does_not_say_which_processors_there_are_has_those_it_counts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 4, 7}, raising=False)
    assert processors() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert processors() == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert processors() == 1


@pytest.mark.parametrize(("workers", "slots", "threads"), [(None, 5, 1), (2, 2, 2), (1, 1, 5), (9, 9, 1)])
def test_processes_of_a_machine_share_its_processors(
    workers: int | None, slots: int, threads: int, monkeypatch: pytest.MonkeyPatch
):
    made: list[tuple[int, int]] = []
    monkeypatch.setattr("emu.jobs.choice.processors", lambda: 5)
    monkeypatch.setattr(local, "LocalEngine", lambda count, threads: made.append((count, threads)))
    open_engine("local", workers)
    assert made == [(slots, threads)]


def test_a_process_that_begins_has_its_threads_says_no_warning_twice_and_watches_its_parent(
    monkeypatch: pytest.MonkeyPatch,
):
    started: list[dict[str, Any]] = []

    class Noted(threading.Thread):
        def start(self) -> None:
            started.append({"target": self._target, "args": self._args, "daemon": self.daemon})  # type: ignore[attr-defined]

    monkeypatch.setattr(threading, "Thread", Noted)
    monkeypatch.setenv("EMU_THREADS", "7")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        local._begin(42, "3")
        warnings.warn("known", emu.EmuWarning, stacklevel=1)
        warnings.warn("unknown", UserWarning, stacklevel=1)
    assert [str(one.message) for one in said] == ["unknown"]
    assert os.environ["EMU_THREADS"] == "3"
    assert started == [{"target": local._end_with, "args": (42,), "daemon": True}]


def test_a_process_whose_parent_has_ended_ends_with_an_exit_code(monkeypatch: pytest.MonkeyPatch):
    parents, slept = [7, 7, 1], list[float]()
    monkeypatch.setattr(os, "getppid", lambda: parents.pop(0))
    monkeypatch.setattr(local.time, "sleep", slept.append)
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as end:
        local._end_with(7)
    assert (end.value.code, len(slept), parents) == (1, 2, [])
