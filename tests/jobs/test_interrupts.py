"""Ctrl-C: what is kept is said with the command that continues, and no process of a run prints anything."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import typer

from emu._interrupt import Interrupted
from emu.cli.app import App
from emu.cli.frame import run as run_app
from emu.cli.study import StudyOptions, run_study
from emu.jobs.engine import without_interrupts
from emu.search import SearchOptions, run_search
from emu.training.folders.study_folder import StudyFolder, kept_in

STUDY = """
name = "small"
baseline = "fixed16"
[[grid]]
models = ["mlp"]
devices = ["fixed16", "fixed8"]
seeds = [1, 2]
[[grid.settings]]
set = { "training.steps" = 3000, "training.batch" = 8, "data.test_images" = 20, "training.log_every" = 5 }
"""
SEARCH = """
name = "narrow"
model = "mlp"
device = "fixed16"
seeds = [1, 2]
trials = 9
settings = { "training.steps" = 3000, "training.batch" = 8, "data.test_images" = 20, "training.log_every" = 5 }
[[variable]]
name = "width"
low = 4
high = 16
start = 16
[[set]]
keys = ["device.precision.weight.format"]
value = "ap_fixed<{width}, 3>"
[[objective]]
metric = "joules_per_step"
direction = "minimize"
"""
KINDS = {"study": (STUDY, "runs"), "search": (SEARCH, "trials")}


def program(error: BaseException | None) -> App:
    """A program of one command, which ends like this."""
    app = App(add_completion=False)

    @app.command()
    def work(file: str, retry: bool = typer.Option(False, "--retry")) -> None:
        assert file
        if error is not None:
            raise error

    return app


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Exit code and stderr of a program with these arguments."""

    def command(error: BaseException | None, *arguments: str) -> tuple[int, list[str]]:
        monkeypatch.setattr(sys, "argv", ["emu", *arguments])
        with pytest.raises(SystemExit) as stopped:
            run_app(program(error), "emu work")
        return int(stopped.value.code or 0), capsys.readouterr().err.splitlines()

    return command


def test_an_interrupted_command_says_what_is_kept_and_how_to_continue(ended: Any):
    assert ended(None, "a.toml") == (0, [])
    assert ended(KeyboardInterrupt(), "a.toml") == (130, ["emu: interrupted"])
    assert ended(Interrupted("much is kept", dropped=("--retry",)), "a file.toml", "--retry") == (
        130, ["emu: interrupted; much is kept", "emu: go on with: emu work 'a file.toml'"]
    )  # fmt: skip
    assert ended(Interrupted("much is kept"), "a.toml", "--retry")[1][1] == "emu: go on with: emu work a.toml --retry"
    assert ended(Interrupted("much", ["--rows", "b*"]), "a.toml")[1][1] == "emu: go on with: emu work --rows 'b*'"


@pytest.mark.parametrize(
    ("ended", "begun", "keeps"),
    [
        (0, 0, "has no checkpoint yet"),
        (0, 1, "keeps the checkpoints of 1 run that has begun"),
        (1, 0, "keeps them"),
        (1, 2, "keeps them, and the checkpoints of 2 runs that have begun"),
    ],
)
def test_checkpoints_are_counted_and_runs_without_one_are_not(tmp_path: Path, ended: int, begun: int, keeps: str):
    home = StudyFolder(tmp_path)
    for number in range(3):
        (tmp_path / "attempts" / f"run{number}").mkdir(parents=True)
        (tmp_path / "attempts" / f"run{number}" / "run.json").touch()
    for number in range(begun):
        (tmp_path / "attempts" / f"run{number}" / "checkpoint.safetensors").touch()
    assert kept_in(home, ended, 4, "runs") == f"{ended} of 4 runs have ended; {tmp_path} {keeps}"


class Interrupting:
    """Runs that never end; Ctrl-C is pressed when they are asked for."""

    slots = 2

    def __init__(self) -> None:
        self.closed = False

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    def submit(self, job: Any) -> None: ...

    def running(self) -> list[str]:
        return ["a run"]

    def ended(self) -> list[Any]:
        raise KeyboardInterrupt


@pytest.mark.parametrize("kind", KINDS)
def test_a_study_and_a_search_name_their_folder_and_what_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
):
    runs = Interrupting()
    text, what = KINDS[kind]
    file, home = tmp_path / "work.toml", tmp_path / "home"
    file.write_text(text)
    module = {"study": "emu.cli.study", "search": "emu.search.command"}[kind]
    monkeypatch.setattr(f"{module}.Runs", lambda engine: runs)
    monkeypatch.setattr(f"{module}.open_engine", lambda on, workers: None)
    if kind == "study":
        work = functools.partial(run_study, file, home, StudyOptions(cache=False))
    else:
        work = functools.partial(run_search, file, home, SearchOptions(cache=False))
    with pytest.raises(Interrupted) as interrupt:
        work()
    total = {"study": 4, "search": 9}[kind]
    assert interrupt.value.kept == f"0 of {total} {what} have ended; {home} has no checkpoint yet"
    assert interrupt.value.dropped == (("--retry-failed",) if kind == "study" else ())
    assert runs.closed


@pytest.fixture(autouse=True)
def interrupts_arrive() -> Generator[None, None, None]:
    """Let programs that a test starts get Ctrl-C, also if the tests run in a shell's background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


needs_masks = pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="no signal masks on this system")


@needs_masks
def test_what_starts_without_interrupts_never_gets_one_and_what_is_outside_does():
    script = "import time; print('begun', flush=True); time.sleep(1); print('whole')"

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", script]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    with without_interrupts():
        spared: list[subprocess.Popen[str]] = []
        thread = threading.Thread(target=lambda: spared.append(start()))
        thread.start()
        thread.join()
    other = start()
    for process in (*spared, other):
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
    assert spared[0].communicate(timeout=20) == ("whole\n", "")
    assert "KeyboardInterrupt" in other.communicate(timeout=20)[1]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, set())


@needs_masks
@pytest.mark.slow
@pytest.mark.parametrize("early", [True, False], ids=["while processes start", "while runs are trained"])
@pytest.mark.parametrize("kind", KINDS)
def test_ctrl_c_on_a_terminal_prints_two_lines_and_no_traceback(tmp_path: Path, kind: str, early: bool):
    """A terminal sends the signal to the command and to all of its processes."""
    text, what = KINDS[kind]
    (tmp_path / "work.toml").write_text(text)
    words = [kind, "work.toml", "--out", "home", "--workers", "2", "--no-cache"]
    process = subprocess.Popen(
        [sys.executable, "-m", "emu", *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    awaited = f"{kind}.json" if early else "attempts/*/checkpoint.safetensors"
    until = time.monotonic() + 120
    while not list((tmp_path / "home").glob(awaited)):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.05)
    time.sleep(0.3 if early else 1.5)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    lines = err.splitlines()
    assert len(lines) == 2, err
    assert lines[0].startswith(f"emu: interrupted; 0 of {4 if kind == 'study' else 9} {what} have ended; ")
    assert ("checkpoints of" in lines[0]) == (not early)
    assert lines[1] == f"emu: go on with: emu {' '.join(words)}"
