"""One process at a time trains in a run's folder; a process that died is in nobody's way."""

from __future__ import annotations

import errno
import os
import platform
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import pytest
from filelock import FileLock
from small_runs import MLP, command, hashes, settings_of, train

from emu import training
from emu._files import mark_stopped
from emu.cluster.sigterm import Terminated, raising_on_sigterm
from emu.errors import ConfigError
from emu.training.folders import claim, lease
from emu.training.folders.claim import Claim, training_alone
from emu.training.folders.lease import Holder
from emu.training.folders.run_folder import RunFolder

pytestmark = pytest.mark.skipif(os.name != "posix", reason="SIGKILL is a POSIX idea")
#: A process number that no process has: the largest of Linux is 2**22.
NOBODY = 2**22 + 1
#: The process waits in its n-th update of a parameter.
WAIT = """
import time
from emu.optim import GradientDescent
real, calls = GradientDescent.apply, []
def apply(*arguments):
    if type(arguments[5]).__name__ != "ShapeRunner":  # which only asks what an update takes
        calls.append(1)
    if len(calls) == 30:
        open({mark!r}, "w").close()
        time.sleep(100)
    real(*arguments)
GradientDescent.apply = apply
"""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> training.Run:
    return train(tmp_path_factory.mktemp("undisturbed") / "run", device="fixed8")


@pytest.fixture
def waiting(tmp_path: Path) -> Generator[subprocess.Popen[str]]:
    """A process that trains in `run`, has saved a checkpoint, and waits."""
    mark = tmp_path / "waits"
    arguments = ["train", "mlp", "--device", "fixed8", "--out", str(tmp_path / "run"), *settings_of(MLP)]
    process = command(*arguments, before=WAIT.format(mark=str(mark)))
    until = time.monotonic() + 60
    while not mark.exists() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    assert mark.exists()
    yield process
    process.kill()
    process.communicate()


def test_a_second_resume_is_refused_and_a_killed_process_is_in_nobodys_way(
    waiting: subprocess.Popen[str], tmp_path: Path, undisturbed: training.Run
):
    path = tmp_path / "run"
    unfinished = path / "metrics.parquet.7.emu-tmp"
    unfinished.touch()
    second = command("train", "--resume", str(path))
    _, errors = second.communicate()
    assert second.returncode == 2
    assert errors == (
        f"emu: a run must be trained by one process at a time, got {path}, which process {waiting.pid} on "
        f"{platform.node()} trains; wait until that has ended, or end it there (kill {waiting.pid}), then continue "
        f"with --resume {path}\n"
    )
    assert unfinished.exists(), "files that the first process writes are left to it"
    waiting.kill()
    waiting.wait()
    assert {"run.lock", "run.process"} <= {file.name for file in path.iterdir()}
    assert hashes(training.resume(path)) == hashes(undisturbed)
    assert not {"run.lock", "run.process", unfinished.name} & {file.name for file in path.iterdir()}


def test_a_resume_in_the_same_process_is_refused_as_well(tmp_path: Path):
    folder = train(tmp_path / "run", device="fixed8", training__steps=2).path
    with training_alone(folder), pytest.raises(ConfigError, match=rf"which process {os.getpid()} on "):
        training.resume(folder)
    assert training.resume(folder).info["status"] == "finished"


def test_a_folder_in_which_a_run_died_before_its_first_file_is_an_empty_one(tmp_path: Path):
    for name in claim.CLAIM_FILES:
        (tmp_path / name).touch()
    assert RunFolder.create(tmp_path).path == tmp_path


@pytest.mark.parametrize(
    ("computer", "process", "age_s", "is_free"),
    [
        (platform.node(), os.getpid(), 0, False),
        (platform.node(), NOBODY, 0, True),
        (platform.node(), os.getpid(), 100, True),  # another process of this number: the computer has been off
        ("elsewhere", NOBODY, 0, False),
        ("elsewhere", NOBODY, 50, False),
        ("elsewhere", NOBODY, 70, True),
    ],
    ids=["living", "dead", "long silent", "elsewhere", "elsewhere, silent", "elsewhere, long silent"],
)
def test_without_locks_the_count_of_the_holder_decides(
    computer: str, process: int, age_s: float, is_free: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(FileLock, "acquire", refused)
    file = Claim.of_run(tmp_path).holder
    file.write_text(Holder(computer, process, "", 5).lines())
    os.utime(file, (time.time() - age_s,) * 2)
    with Claim.of_run(tmp_path).hold() as is_ours:
        assert is_ours == is_free
        assert Claim.of_run(tmp_path).is_held()
        assert (file.read_text() == Holder.here(0).lines()) == is_free
    assert Claim.of_run(tmp_path).is_held() == (not is_free)


def test_a_lock_whose_file_its_holder_removes_at_that_moment_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Two processes would else train: one has the removed file's lock, the next makes a new file."""
    import fcntl

    real, holder = fcntl.flock, ExitStack()
    assert holder.enter_context(Claim.of_run(tmp_path).hold())

    def flock(descriptor: int, how: int) -> None:
        holder.close()  # after the file was opened, before it is locked
        real(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with Claim.of_run(tmp_path).hold() as second, Claim.of_run(tmp_path).hold() as third:
        assert (second, third) == (False, True)


def test_without_signal_0_a_process_is_not_asked_and_its_count_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def sent(*_: object) -> None:
        raise AssertionError("on Windows, 0 is the number of Ctrl-C")

    monkeypatch.setattr(lease, "_TESTS_BY_SIGNAL", False)
    monkeypatch.setattr(os, "kill", sent)
    holder = Claim.of_run(tmp_path).holder
    holder.write_text(Holder(platform.node(), NOBODY, "", 5).lines())
    assert Claim.of_run(tmp_path).is_held()
    os.utime(holder, (time.time() - 100,) * 2)
    assert not Claim.of_run(tmp_path).is_held()


def test_a_holder_that_is_half_written_is_not_named(tmp_path: Path):
    with training_alone(tmp_path):
        Claim.of_run(tmp_path).holder.write_text("")
        with (
            pytest.raises(ConfigError, match="which another process trains; wait until that has ended, then continue"),
            training_alone(tmp_path),
        ):
            pass


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(FileLock, "acquire", refused)
    message = rf"the folder of a run must be writable, got 'Read-only file system' for {tmp_path}; "
    with pytest.raises(ConfigError, match=message), training_alone(tmp_path):
        pass


class Fails:
    """Progress that raises an error after a step."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def start(self, step: int, steps: int) -> None: ...

    def update(self, step: int, *_: float) -> None:
        if step == 7:
            raise self.error

    def finish(self) -> None: ...


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (KeyboardInterrupt(), "it was interrupted from the keyboard"),
        (ConfigError("the disk must\nhave room"), "the disk must have room"),
        (ZeroDivisionError("no lanes"), "of an error: ZeroDivisionError: no lanes"),
    ],
)
def test_a_run_notes_why_it_stops_and_forgets_it_when_it_goes_on(
    error: BaseException, why: str, tmp_path: Path, undisturbed: training.Run
):
    path = tmp_path / "run"
    settings = {"overrides": MLP, "backend": "numba"}
    with pytest.raises(type(error)):
        training.train("mlp", "fixed8", out=path, progress=Fails(error), **settings)
    info = RunFolder(path).read_json()
    assert (info["status"], info["stopped_because"]) == ("stopped", why)
    assert info["ended"] >= info["started"]
    again = training.resume(path)
    assert again.info["status"] == "finished"
    assert "stopped_because" not in again.info
    assert hashes(again) == hashes(undisturbed)


def test_sigterm_ends_a_run_with_its_command_to_go_on(waiting: subprocess.Popen[str], tmp_path: Path):
    waiting.terminate()
    _, errors = waiting.communicate(timeout=30)
    assert errors.splitlines()[-1] == f"emu: got SIGTERM; go on with: emu train --resume {tmp_path / 'run'}"
    assert waiting.returncode == 128 + signal.SIGTERM
    info = RunFolder(tmp_path / "run").read_json()
    assert (info["status"], info["stopped_because"]) == ("stopped", "its process got SIGTERM")


def test_a_program_that_handles_sigterm_keeps_its_handler():
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with raising_on_sigterm():
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with pytest.raises(Terminated), raising_on_sigterm():
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_only_a_run_that_has_not_ended_is_marked_as_stopped(tmp_path: Path):
    file = tmp_path / "run.json"
    for text in ('{"status": "finished"}', '{"status": "stopped", "stopped_because": "first"}', "[]", "{"):
        file.write_text(text)
        mark_stopped(file, "later")
        assert file.read_text() == text
    mark_stopped(tmp_path / "none.json", "later")
    assert not (tmp_path / "none.json").exists()
