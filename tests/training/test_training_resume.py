"""A run killed anywhere and resumed ends in the same bits as one that was left alone."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from fast_suite import most_are_slow
from small_runs import MLP, command, hashes, settings_of, train

import emu
from emu import training
from emu.training.folders.run_folder import CHECKPOINT, RunFolder
from emu.training.folders.tables import TABLES
from emu.training.loop import Loop
from emu.training.workbench import Workbench

pytestmark = pytest.mark.skipif(os.name != "posix", reason="SIGKILL is a POSIX idea")
DEVICE = "fixed8"  # stochastic rounding: the addresses of random bits must go on, too

#: Kill the process at the n-th time a file is about to be moved into its place. The first is run.json; then each save
#: writes 5 tables and the checkpoint, and each log point between two saves 5 tables. {n} in 2..7 is the first save
#: (step 3), 8..12 the first log point (step 5), 13..18 the second save (step 6) ...
KILL_AT_FILE = """
import os, signal
real, calls = os.replace, []
def replace(*arguments):
    calls.extend([1] * str(arguments[0]).endswith(".emu-tmp"))  # compiled kernels are moved into their cache, too
    if len(calls) == {n}:
        os.kill(os.getpid(), signal.SIGKILL)
    real(*arguments)
os.replace = replace
"""
#: Kill the process in the middle of a step: inside its n-th update of a parameter.
KILL_IN_STEP = """
import os, signal
from emu.optim import GradientDescent
real, calls = GradientDescent.apply, []
def apply(*arguments):
    if type(arguments[5]).__name__ != "ShapeRunner":  # which only asks what an update takes
        calls.append(1)
    if len(calls) == {n}:
        os.kill(os.getpid(), signal.SIGKILL)
    real(*arguments)
GradientDescent.apply = apply
"""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> training.Run:
    return train(tmp_path_factory.mktemp("undisturbed") / "run", device=DEVICE)


def killed(out: Path, before: str) -> RunFolder:
    """Start `emu train` on its way into a SIGKILL; return its folder."""
    arguments = ["train", "mlp", "--device", DEVICE, "--out", str(out), *settings_of(MLP)]
    process = command(*arguments, before=before)
    _, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, errors
    return RunFolder(out)


def tables_of(path: Path) -> dict[str, str]:
    """Return every table; of the profile what is no time, and holds on every backend."""
    tables = {name: repr(RunFolder(path).read_table(name)) for name in TABLES if name != "profile"}
    return tables | {"profile": repr(work_of(path))}


def work_of(path: Path) -> list[tuple[Any, ...]]:
    columns = RunFolder(path).read_table("profile")
    counted: dict[tuple[Any, ...], list[int]] = {}
    names = ("step", "layer", "role", "operation")
    done = zip(*(columns[name] for name in ("calls", "elements", "multiply_adds")), strict=True)
    for place, work in zip(zip(*(columns[name] for name in names), strict=True), done, strict=True):
        counted[place] = [a + b for a, b in zip(counted.get(place, [0] * 3), work, strict=True)]
    return sorted((*map(str, place), *work) for place, work in counted.items())


def assert_ends_like(path: Path, undisturbed: training.Run, run: training.Run) -> None:
    assert hashes(run) == hashes(undisturbed)
    assert tables_of(path) == tables_of(undisturbed.path)
    assert run.info["metrics"] == undisturbed.info["metrics"]
    assert run.info["status"] == "finished"
    assert not list(path.glob("*.emu-tmp"))


@pytest.mark.parametrize(
    ("before", "checkpoint_step"),
    [
        pytest.param(KILL_AT_FILE.format(n=11), 3, id="between two tables of the log point", marks=pytest.mark.slow),
        pytest.param(
            KILL_AT_FILE.format(n=18),
            3,
            id="behind the tables, before the checkpoint of step 6",
            marks=pytest.mark.slow,
        ),
        pytest.param(KILL_IN_STEP.format(n=6 * 17 + 4), 15, id="inside step 18"),
    ],
)
def test_a_killed_run_resumes_to_the_same_bits(
    tmp_path: Path, undisturbed: training.Run, before: str, checkpoint_step: int
):
    folder = killed(tmp_path / "run", before)
    assert folder.read_json()["status"] == "running"
    assert folder.load_checkpoint()[1]["step"] == checkpoint_step
    assert_ends_like(folder.path, undisturbed, training.resume(folder.path))


def test_a_run_stopped_before_its_first_checkpoint_starts_again(tmp_path: Path, undisturbed: training.Run):
    path = interrupted(tmp_path / "run", 2)
    assert not RunFolder(path).has_checkpoint
    assert_ends_like(path, undisturbed, training.resume(path))


@pytest.mark.slow
def test_the_command_resumes_a_killed_run(tmp_path: Path, undisturbed: training.Run):
    folder = killed(tmp_path / "run", KILL_IN_STEP.format(n=6 * 27))
    process = command("train", "--resume", str(folder.path))
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert undisturbed.weights_sha256 in output
    assert_ends_like(folder.path, undisturbed, training.Run(folder.path, folder.read_json()))
    assert (folder.path / "report.html").is_file()


def test_the_profile_of_a_resumed_run_goes_on_and_knows_that_a_process_began(tmp_path: Path, undisturbed: training.Run):
    path = interrupted(tmp_path / "run", 13)
    training.resume(path)
    whole, resumed = (RunFolder(one).read_table("profile") for one in (undisturbed.path, path))
    assert work_of(path) == work_of(undisturbed.path)
    assert sum(whole["first_calls"]) * 2 == sum(resumed["first_calls"])
    times = zip(resumed["first_seconds"], resumed["seconds"], strict=True)
    assert all(0 <= first <= together for first, together in times)


def test_a_checkpoint_from_before_profiles_is_resumed(tmp_path: Path, undisturbed: training.Run):
    path = interrupted(tmp_path / "run", 13)
    folder = RunFolder(path)
    arrays, state = folder.load_checkpoint()
    del state["profile"]
    folder.save_checkpoint(arrays, state)
    (path / "profile.parquet").unlink()
    assert hashes(training.resume(path)) == hashes(undisturbed)
    assert sum(1 for name in folder.read_table("profile")["operation"] if name == "host") == 4  # steps 15 to 30


def test_a_finished_run_resumes_to_itself(tmp_path: Path, undisturbed: training.Run):
    path = tmp_path / "run"
    shutil.copytree(undisturbed.path, path)
    assert_ends_like(path, undisturbed, training.resume(path))


def test_a_run_goes_on_on_another_backend(tmp_path: Path, undisturbed: training.Run):
    path = interrupted(tmp_path / "run", 25)
    run = training.resume(path, backend="reference")
    assert run.info["backend"] == "reference"
    assert_ends_like(path, undisturbed, run)


class Interrupt:
    """Progress that stops a run behind a step, as Ctrl-C does."""

    def __init__(self, step: int) -> None:
        self.stop = step

    def start(self, step: int, steps: int) -> None:
        pass

    def update(self, step: int, loss: float, accuracy: float, overflow: float, underflow: float) -> None:
        if step == self.stop:
            raise KeyboardInterrupt

    def finish(self) -> None:
        pass


def interrupted(out: Path, step: int, seed: int = 1) -> Path:
    recipe = training.load_recipe("mlp", [f"{name}={value}" for name, value in (MLP | {"training.seed": seed}).items()])
    with pytest.raises(KeyboardInterrupt):
        training.train(recipe, emu.device(DEVICE), out=out, progress=Interrupt(step))
    return out


def test_interrupted_twice_and_resumed_twice(tmp_path: Path, undisturbed: training.Run):
    path = interrupted(tmp_path / "run", 4)
    with pytest.raises(KeyboardInterrupt):
        training.resume(path, progress=Interrupt(22))
    assert_ends_like(path, undisturbed, training.resume(path))


def test_checkpoints_are_rarer_than_log_points_if_the_recipe_says_so(tmp_path: Path):
    rare = MLP | {"training.steps": 14, "training.log_every": 2, "training.checkpoint_every": 6}
    recipe, device = training.load_recipe("mlp").with_settings(rare), emu.device(DEVICE)
    whole = training.train(recipe, device, out=tmp_path / "whole")
    path = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        training.train(recipe, device, out=path, progress=Interrupt(11))
    folder = RunFolder(path)
    assert folder.load_checkpoint()[1]["step"] == 6
    assert folder.read_table("metrics")["step"] == [2, 4, 6, 8, 10]  # watchers see every log point
    assert_ends_like(path, whole, training.resume(path))
    assert folder.load_checkpoint()[1]["step"] == 14


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(emu.ConfigError) as caught:
        training.resume(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_corrupt_checkpoint_is_refused_and_left_alone(tmp_path: Path):
    path = interrupted(tmp_path / "run", 7)
    content = (path / CHECKPOINT).read_bytes()
    damaged = content[:-1] + bytes([content[-1] ^ 1])
    (path / CHECKPOINT).write_bytes(damaged)
    assert refusal(path).startswith(
        f"{path / CHECKPOINT} must be a checkpoint, got content that differs from its SHA-256;"
    )
    assert (path / CHECKPOINT).read_bytes() == damaged


@most_are_slow("name", [CHECKPOINT, "metrics.parquet", "registers.parquet"], keep=[CHECKPOINT, "metrics.parquet"])
def test_a_folder_where_a_file_should_be_is_refused_and_left_alone(tmp_path: Path, name: str):
    path = interrupted(tmp_path / "run", 14)
    (path / name).unlink(missing_ok=True)
    (path / name).mkdir()
    before = sorted(p.name for p in path.iterdir() if not p.name.endswith(".emu-tmp"))
    assert f"{name} must be a" in refusal(path)
    assert sorted(p.name for p in path.iterdir()) == before


def test_a_checkpoint_of_another_recipe_is_refused(tmp_path: Path):
    mine, other = interrupted(tmp_path / "mine", 7), interrupted(tmp_path / "other", 7, seed=2)
    shutil.copy(other / CHECKPOINT, mine / CHECKPOINT)
    assert refusal(mine) == (
        f"a checkpoint must belong to the run's recipe, device and data, got one of another run in {mine}; "
        "resume the run it came from, or start a new run with --out"
    )


@pytest.mark.parametrize(("saved", "made", "asked"), [(4, "4 nodes", 2), (1, "1 node", 4), (4, "4 nodes", 1)])
def test_a_checkpoint_of_another_number_of_nodes_is_refused_with_both_numbers(
    tmp_path: Path, saved: int, made: str, asked: int
):
    def loop(nodes: int) -> Loop:
        settings = MLP | ({"cluster.nodes": nodes} if nodes > 1 else {})
        return Loop(Workbench.of(training.load_recipe("mlp").with_settings(settings), emu.device(DEVICE), "numba"))

    folder = RunFolder.create(tmp_path / "run")
    loop(saved).checkpoint.save(folder)
    with pytest.raises(emu.ConfigError) as caught:
        loop(asked).checkpoint.restore(folder)
    assert str(caught.value) == (
        f"a checkpoint of {made} must be resumed on {saved}, got {asked} for {folder.path}: nodes hold "
        f"residuals of their own; set `cluster.nodes` to {saved}, or start a new run with --out"
    )
    loop(saved).checkpoint.restore(folder)


def test_a_changed_recipe_or_device_is_refused(tmp_path: Path):
    path = interrupted(tmp_path / "run", 7)
    info = json.loads((path / "run.json").read_text())
    for table, key, value in (
        ("recipe", "training", {"batch": 9}),
        ("device", "precision", {"activation": {"format": "fix8f2"}}),
    ):
        changed = json.loads(json.dumps(info))
        changed[table][key] |= value
        (path / "run.json").write_text(json.dumps(changed))
        assert "a checkpoint must belong to the run's recipe, device and data" in refusal(path)


def test_a_run_json_without_a_recipe_is_refused(tmp_path: Path):
    path = interrupted(tmp_path / "run", 7)
    for content in ('{"recipe": {}, "device": {}}', "{}", '{"recipe": null}', '{"recipe": []}'):
        (path / "run.json").write_text(content)
        with pytest.raises(emu.ConfigError) as caught:
            training.evaluate(path)
        assert str(caught.value) == refusal(path)
        assert refusal(path).startswith(f"{path / 'run.json'} must hold the run's recipe and device: ")
        assert refusal(path).endswith("; or start a new run with --out")
    for content in ("[]", "3", "null", '"text"'):
        (path / "run.json").write_text(content)
        assert refusal(path).startswith(f"{path / 'run.json'} must be a JSON object, got ")
        with pytest.raises(emu.ConfigError, match=r"must be a JSON object, got .*; start a new run with --out"):
            training.evaluate(path)
    assert refusal(tmp_path).startswith("a run must be a folder with a run.json, got ")


def test_a_damaged_table_is_named_with_its_remedy(tmp_path: Path, undisturbed: training.Run):
    path = interrupted(tmp_path / "run", 29)
    (path / "snr.parquet").write_bytes(b"nonsense")
    assert "delete it; the run goes on without its history" in refusal(path)
    (path / "snr.parquet").unlink()
    assert hashes(training.resume(path)) == hashes(undisturbed)


def test_a_finished_run_without_its_metrics_resumes_to_the_same_accuracy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from emu import cli

    before = train(tmp_path / "run", device=DEVICE, training__steps=4)
    (before.path / "metrics.parquet").unlink()
    monkeypatch.setattr("sys.argv", ["emu", "train", "--resume", str(before.path)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert not stopped.value.code
    assert f"test accuracy {before.test_accuracy:.2%}" in capsys.readouterr().out
    metrics = RunFolder(before.path).read_json()["metrics"]
    assert metrics == before.info["metrics"] | {"train_loss": None, "train_accuracy": None}
    assert (before.path / "report.html").is_file()


@pytest.mark.parametrize("extra", [["--set", "training.steps=9"], ["mlp"], ["--device", "fp16"], ["--out", "x"]])
def test_resume_takes_nothing_that_would_make_it_another_run(
    tmp_path: Path, extra: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from emu import cli

    monkeypatch.setattr("sys.argv", ["emu", "train", *extra, "--resume", str(tmp_path)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    errors = capsys.readouterr().err
    assert errors.startswith("emu: --resume must stand without ")
    assert errors.endswith("leave it out, or start a new run\n")
    assert errors.count("\n") == 1


@pytest.mark.parametrize(("name", "checkpoint_step"), [("snr.parquet", 3), (CHECKPOINT, 6)])
def test_a_full_disk_leaves_a_checkpoint_that_resumes_to_the_same_bits(
    tmp_path: Path, undisturbed: training.Run, monkeypatch: pytest.MonkeyPatch, name: str, checkpoint_step: int
):
    path, real, seen = tmp_path / "run", os.replace, []

    def full(source: Any, target: Any) -> None:
        seen.append(Path(target).name)
        if seen.count(name) == 3 and seen[-1] == name:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(emu.ConfigError) as caught:
            train(path, device=DEVICE)
    assert str(caught.value) == (
        f"{path / name} must be writable, got 'No space left on device'; the {name} saved before is intact; "
        f"free some space, then continue with --resume {path}"
    )
    assert RunFolder(path).load_checkpoint()[1]["step"] == checkpoint_step
    assert_ends_like(path, undisturbed, training.resume(path))


@pytest.mark.slow
def test_lenet_killed_at_ten_random_moments_resumes_to_the_same_bits(tmp_path: Path):
    settings = {
        "training.steps": 60,
        "training.batch": 16,
        "training.log_every": 10,
        "training.checkpoint_every": 4,
        "data.test_images": 100,
    }
    start = time.monotonic()
    whole = tmp_path / "whole"
    process = command("train", "lenet", "--device", DEVICE, "--out", str(whole), *settings_of(settings))
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    seconds, expected = time.monotonic() - start, RunFolder(whole).read_json()
    moments, kills = random.Random(7), 0
    for number in range(10):
        path = tmp_path / str(number)
        process = command("train", "lenet", "--device", DEVICE, "--out", str(path), *settings_of(settings))
        while not (path / "run.json").is_file():
            time.sleep(0.01)
        time.sleep(moments.random() * seconds * 0.6)
        process.kill()
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
        while moments.random() < 0.3:  # and now and then while it resumes
            process = command("train", "--resume", str(path))
            time.sleep(moments.random() * seconds)
            process.kill()
            process.communicate()
        process = command("train", "--resume", str(path))
        _, errors = process.communicate()
        assert process.returncode == 0, errors
        info = RunFolder(path).read_json()
        for key in ("weights_sha256", "registers_sha256", "metrics", "steps"):
            assert info[key] == expected[key], (number, key)
        assert tables_of(path) == tables_of(whole)
    assert kills >= 5
