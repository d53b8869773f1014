"""Processes that take the same step compile each kernel once, and only the first of them counts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from emu.backends.numba import ahead, claims
from emu.backends.numba.claims import Claims, PassedOverError

#: Trains a step from an empty cache, and prints what this process compiled, what was compiled, and its weights.
TRAIN = """
import json, os, sys
from pathlib import Path
import emu
from emu.backends.numba.cache import cache_folder
from emu.backends.numba.compiling import compiled_count
run = emu.train("mlp", "fixed8", out=sys.argv[1], overrides={"training.steps": 2, "training.batch": 8})
files = [path.suffix for path in cache_folder().rglob("*") if path.is_file() and "_nothing" not in path.name]
print(json.dumps([compiled_count(), files.count(".nbc"), files.count(".claim"), run.weights_sha256, os.getpid()]))
"""


def trained(folder: Path, threads: str) -> list[object]:
    environment = {**os.environ, "EMU_THREADS": threads, "EMU_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-c", TRAIN, str(folder / "run")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert not done.stderr, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 1, f"copies print nothing, got {lines}"
    return json.loads(lines[0])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes fork copies on Linux alone")
def test_a_run_whose_first_step_is_compiled_in_copies_ends_in_the_same_bits(tmp_path: Path):
    (tmp_path / "alone").mkdir()
    (tmp_path / "together").mkdir()
    own, saved, claimed, weights, _ = trained(tmp_path / "alone", "1")
    assert (own, claimed) == (saved, 0)
    own_beside, saved_together, claimed, weights_together, process = trained(tmp_path / "together", "2")
    assert weights_together == weights
    assert claimed == 0
    assert saved_together >= saved  # copies may compile what only their own numbers need
    assert own_beside < own * 3 / 4, "copies compile what the process need not compile itself"
    alive = subprocess.run(["pgrep", "-P", str(process)], capture_output=True, check=False).stdout
    assert not alive


class Shelf:
    """A file of a kernel, and how often it was read."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "kernel.0123.nbc"

    def read(self) -> str | None:
        return self.path.read_text() if self.path.exists() else None


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def test_a_process_alone_claims_nothing(shelf: Shelf):
    assert Claims().claim(shelf.path, shelf.read) is None
    assert not list(shelf.path.parent.iterdir())


def test_the_first_to_claim_a_kernel_compiles_it_and_a_copy_passes_it_over(shelf: Shelf):
    first, copy = Claims(are_shared=True), Claims(are_shared=True, passes_over=True)
    assert first.claim(shelf.path, shelf.read) is None
    with pytest.raises(PassedOverError):
        copy.claim(shelf.path, shelf.read)
    shelf.path.write_text("code")
    first.give_up(shelf.path)
    assert copy.claim(shelf.path, shelf.read) == "code"
    assert [path.name for path in shelf.path.parent.iterdir()] == [shelf.path.name]


def test_the_first_process_waits_for_what_a_copy_compiles(shelf: Shelf):
    first, copy = Claims(are_shared=True), Claims(are_shared=True, passes_over=True)
    assert copy.claim(shelf.path, shelf.read) is None

    def save() -> None:
        shelf.path.write_text("code")
        copy.give_up(shelf.path)

    timer = threading.Timer(0.05, save)
    timer.start()
    assert first.claim(shelf.path, shelf.read) == "code"
    timer.join()


def test_a_copy_waits_for_what_the_kernel_that_it_compiles_calls(shelf: Shelf, tmp_path: Path):
    first, copy = Claims(are_shared=True), Claims(are_shared=True, passes_over=True)
    assert copy.claim(tmp_path / "outer.0.nbc", lambda: None) is None
    assert first.claim(shelf.path, shelf.read) is None
    timer = threading.Timer(0.05, first.give_up_all)
    timer.start()
    assert copy.claim(shelf.path, shelf.read) is None  # given up without a kernel: now it is the copy's
    timer.join()
    copy.give_up_all()
    assert not list(tmp_path.iterdir())


def test_nobody_waits_for_ever(shelf: Shelf, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(claims, "PATIENCE_S", 0.05)
    first, stopped = Claims(are_shared=True), Claims(are_shared=True)
    assert stopped.claim(shelf.path, shelf.read) is None
    began = time.monotonic()
    assert first.claim(shelf.path, shelf.read) is None
    assert time.monotonic() - began >= 0.05
    stopped.give_up_all()


def test_the_claim_of_a_process_that_is_killed_is_given_up(shelf: Shelf):
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom emu.backends.numba.claims import Claims\n"
        "claims = Claims(are_shared=True)\nclaims.claim(Path(sys.argv[1]), lambda: None)\nprint('claimed', flush=True)\ntime.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(shelf.path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    with child.stdout:
        assert child.stdout.readline() == b"claimed\n"
    first = Claims(are_shared=True, passes_over=True)
    with pytest.raises(PassedOverError):
        first.claim(shelf.path, shelf.read)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert first.claim(shelf.path, shelf.read) is None
    first.give_up_all()


def test_something_is_done_once_before_the_first_claim(shelf: Shelf):
    calls: list[str] = []
    own = Claims(before_first=lambda: calls.append("forked"))
    own.claim(shelf.path, shelf.read)
    own.claim(shelf.path, shelf.read)
    assert calls == ["forked"]


def test_a_block_that_needs_no_compiler_is_not_copied(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ahead, "thread_count", lambda: 2)
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("nothing was missing"))
    with ahead.compiling_ahead():
        assert (claims.CLAIMS.before_first is not None) == (sys.platform == "linux" and "cupy" not in sys.modules)
    assert claims.CLAIMS.before_first is None


def test_other_threads_and_single_threads_are_not_copied(monkeypatch: pytest.MonkeyPatch):
    def is_armed() -> bool:
        with ahead.compiling_ahead():
            return claims.CLAIMS.before_first is not None

    monkeypatch.setattr(ahead, "thread_count", lambda: 1)
    assert not is_armed()
    monkeypatch.setattr(ahead, "thread_count", lambda: 2)
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(is_armed()))
    thread.start()
    thread.join()
    assert answers == [False]
