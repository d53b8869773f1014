"""Engines run jobs on processes that may die."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from plain_jobs import killed_until, refused, squared

import emu
from emu.jobs import Ended, Engine, open_engine


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
