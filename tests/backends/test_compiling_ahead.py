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
from typing import Any

import numpy as np
import pytest

from emu.backends.interface import Outcome, StageCode, Write
from emu.backends.numba import ahead, claims
from emu.backends.numba.claims import Claims, PassedOverError
from emu.backends.product import Product, ProductCode, Way

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


def trained(folder: Path, threads: str) -> list[Any]:
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
    assert claimed == 0
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
    assert not first.are_shared, "and waits for nothing else of whoever has stopped"
    stopped.give_up_all()


def test_the_claim_of_a_process_that_is_killed_is_given_up(shelf: Shelf):
    code = """
import sys, time
from pathlib import Path
from emu.backends.numba.claims import Claims
claims = Claims(are_shared=True)
claims.claim(Path(sys.argv[1]), lambda: None)
print("claimed", flush=True)
time.sleep(60)
"""
    child = subprocess.Popen([sys.executable, "-c", code, str(shelf.path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    with child.stdout:
        assert child.stdout.readline() == b"claimed\n"
    first = Claims(are_shared=True, passes_over=True)
    with pytest.raises(PassedOverError):
        first.claim(shelf.path, shelf.read)
    claims.remove_left_files(shelf.path.parent)
    assert shelf.path.with_suffix(".claim").exists(), "what somebody has claimed stays claimed"
    child.send_signal(signal.SIGKILL)
    child.wait()
    claims.remove_left_files(shelf.path.parent)
    assert not list(shelf.path.parent.iterdir())
    assert first.claim(shelf.path, shelf.read) is None
    first.give_up_all()


def test_where_nothing_can_be_claimed_each_process_compiles_for_itself(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    own = Claims(are_shared=True)
    gone = tmp_path / "gone" / "kernel.0.nbc"
    assert own.claim(gone, lambda: None) is None
    claims.remove_left_files(gone.parent)

    def no_locks(file: object, how: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(claims.fcntl, "flock", no_locks)
    assert own.claim(shelf.path, shelf.read) is None
    assert not own.files


def test_parts_of_files_are_removed_once_they_are_old(tmp_path: Path):
    old, fresh = tmp_path / "k.0.nbc.0123", tmp_path / "k.1.nbc.4567"
    for path in (old, fresh):
        path.write_bytes(b"part")
    long_ago = time.time() - claims.OLD_S - 9
    os.utime(old, (long_ago, long_ago))
    claims.remove_left_files(tmp_path)
    assert list(tmp_path.iterdir()) == [fresh]


def test_at_a_miss_something_is_done_with_the_kernel_claimed_and_not_within_another(shelf: Shelf, tmp_path: Path):
    claimed: list[bool] = []
    other = Claims(are_shared=True, passes_over=True)

    def at_miss() -> None:
        with pytest.raises(PassedOverError):
            other.claim(shelf.path, shelf.read)
        claimed.append(True)

    own = Claims(are_shared=True, at_miss=at_miss)
    assert own.claim(shelf.path, shelf.read) is None
    assert own.claim(tmp_path / "inner.0.nbc", lambda: None) is None
    assert claimed == [True]
    own.give_up_all()
    shelf.path.write_text("code")
    assert own.claim(shelf.path, shelf.read) == "code"
    assert claimed == [True], "what is read is no miss"


def test_what_a_forked_process_inherits_stays_claimed_by_its_parent(shelf: Shelf):
    parent = Claims(are_shared=True)
    assert parent.claim(shelf.path, shelf.read) is None
    child = os.fork()
    if not child:
        parent.leave_to_parent()
        os._exit(bool(parent.files))
    assert os.waitpid(child, 0)[1] == 0
    with pytest.raises(PassedOverError):
        Claims(are_shared=True, passes_over=True).claim(shelf.path, shelf.read)
    parent.give_up_all()


class Table:
    """Kernels of which the second is compiled elsewhere."""

    def first(self, x: int) -> int:
        return x

    def second(self, x: int) -> int:
        raise PassedOverError


class Definition:
    """The reference of these kernels."""

    def first(self, x: int) -> int:
        return -x

    def second(self, x: int) -> int:
        return -x

    def quantize(self, x: object, source: object, write: object, out: object) -> object:
        return x


class Elsewhere(Way[Product]):
    """A way whose kernels are compiled elsewhere."""

    def declines(self, product: ProductCode, stage: StageCode) -> None:
        return None

    def compute(self, product: Product, write: Write) -> Outcome | None:
        raise PassedOverError


def test_in_a_block_the_reference_stands_in_for_what_is_passed_over_and_nothing_stays_replaced(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(ahead, "may_fork", lambda: True)
    before, way = dict(vars(Table)), Elsewhere()
    code: Any = None
    product = Product(code, np.ones((1, 2, 3)), np.ones((4, 3, 5)), None)
    with ahead.compiling_ahead(Table, Definition(), (way,)):
        assert Table().first(1) == 1
        assert Table().second(1) == -1
        written: Any = way.compute(product, None)  # pyright: ignore[reportArgumentType]
        assert written.shape == (4, 2, 5)
        assert not written.any()
    assert dict(vars(Table)) == before
    assert "compute" not in vars(way)
    assert Claims() == claims.CLAIMS


class Processes:
    """Forks nothing, and answers as if processes ended with given statuses; those with None go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.forked, self.killed = 0, list[tuple[int, int]]()
        self.statuses: dict[int, int | None] = {}
        monkeypatch.setattr(os, "fork", self.fork)
        monkeypatch.setattr(os, "waitpid", self.waitpid)
        monkeypatch.setattr(os, "kill", self.kill)
        monkeypatch.setattr(threading, "enumerate", lambda: [threading.main_thread()])  # pytest has others

    def fork(self) -> int:
        self.forked += 1
        return self.forked

    def waitpid(self, process: int, how: int) -> tuple[int, int]:
        status = self.statuses.get(process)
        return (0, 0) if status is None else (process, status)

    def kill(self, process: int, number: int) -> None:
        self.killed.append((process, number))


def test_copies_that_end_in_an_error_are_replaced_and_none_is_after_one_that_reached_the_end(
    monkeypatch: pytest.MonkeyPatch,
):
    system, copies = Processes(monkeypatch), ahead.Copies(2)
    copies.complete()
    assert copies.processes == [1, 2]
    system.statuses = {1: 256}
    copies.complete()
    assert copies.processes == [2, 3], "the copy that ended in an error has a successor"
    system.statuses = {2: 0}
    copies.complete()
    copies.complete()
    assert copies.processes == [3]
    copies.end()
    assert system.killed == [(3, signal.SIGKILL)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1])
def test_a_signal_during_a_fork_is_handled_when_the_copy_is_known(monkeypatch: pytest.MonkeyPatch, number: int):
    system, copies, known = Processes(monkeypatch), ahead.Copies(1), list[list[int]]()
    fork = system.fork

    def interrupted() -> int:
        signal.raise_signal(number)
        return fork()

    def handle(number: int, frame: object) -> None:
        known.append(list(copies.processes))
        raise KeyboardInterrupt

    before = signal.signal(number, handle)
    try:
        monkeypatch.setattr(os, "fork", interrupted)
        with pytest.raises(KeyboardInterrupt):
            copies.complete()
        assert known == [[1]]
        assert signal.getsignal(number) is handle
    finally:
        signal.signal(number, before)


def test_whoever_waits_for_every_process_is_believed_that_copies_have_ended(monkeypatch: pytest.MonkeyPatch):
    system, copies = Processes(monkeypatch), ahead.Copies(2)
    copies.complete()

    def nobody(process: int, how: int) -> tuple[int, int]:
        raise ChildProcessError

    monkeypatch.setattr(os, "waitpid", nobody)
    copies.complete()
    assert not copies.processes
    copies.processes = [1]
    copies.end()
    assert not system.killed, "the number may be another process's by now"


def test_beside_threads_of_others_nothing_is_forked(monkeypatch: pytest.MonkeyPatch):
    """NumPy's products of another thread may stop a fork for ever."""
    system, copies, other = Processes(monkeypatch), ahead.Copies(2), threading.Thread()
    assert not may_be_copied(monkeypatch, 2, other)
    copies.complete()
    assert not system.forked
    other.name = "emu-lease"
    assert may_be_copied(monkeypatch, 2, other)
    copies.complete()
    assert system.forked == 2


def test_copies_are_forked_so_many_times_at_most(monkeypatch: pytest.MonkeyPatch):
    system, copies = Processes(monkeypatch), ahead.Copies(3)
    for _ in range(2 * ahead.MOST_FORKS):
        copies.complete()
        system.statuses = dict.fromkeys(copies.processes, 9)
    assert system.forked == ahead.MOST_FORKS


def test_without_room_for_a_process_and_in_other_threads_nothing_is_forked(monkeypatch: pytest.MonkeyPatch):
    system, copies = Processes(monkeypatch), ahead.Copies(2)
    thread = threading.Thread(target=copies.complete)
    thread.start()
    thread.join()
    assert system.forked == 0

    def no_room() -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", no_room)
    copies.complete()
    assert not copies.processes


def may_be_copied(monkeypatch: pytest.MonkeyPatch, threads: int, *others: threading.Thread) -> bool:
    monkeypatch.setattr(ahead, "MOST_COPIES", 4)
    monkeypatch.setattr(ahead, "thread_count", lambda: threads)
    monkeypatch.setattr(threading, "enumerate", lambda: [threading.main_thread(), *others])
    return ahead.may_fork()


@pytest.mark.skipif(sys.platform != "linux", reason="processes fork copies on Linux alone")
def test_with_one_thread_beside_the_first_thread_within_copies_and_with_a_gpu_nothing_is_copied(
    monkeypatch: pytest.MonkeyPatch,
):
    assert may_be_copied(monkeypatch, 2)
    assert not may_be_copied(monkeypatch, 1)
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(may_be_copied(monkeypatch, 2)))
    thread.start()
    thread.join()
    assert answers == [False]
    with monkeypatch.context() as patch:
        patch.setattr(claims.CLAIMS, "are_shared", True)
        assert not may_be_copied(monkeypatch, 2)
    monkeypatch.setitem(sys.modules, "cupy", object())
    assert not may_be_copied(monkeypatch, 2)
