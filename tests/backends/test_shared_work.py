"""Work shared among threads: every part is done once, errors arrive, and nobody is left working."""

from __future__ import annotations

import os
import threading
import time

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from emu.backends.numba import compiling
from emu.backends.numba.ways.blas import ALONE


@pytest.fixture
def three_threads(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compiling, "thread_count", lambda: 3)
    compiling._pool.cache_clear()
    yield
    compiling._pool.cache_clear()


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("looks", [0, compiling.LOOKS])
def test_every_part_is_done_once_and_by_its_own_thread(looks: int, monkeypatch: pytest.MonkeyPatch):
    """Whether who waits looks for the end or sleeps."""
    monkeypatch.setattr(compiling, "LOOKS", looks)
    for size, align in ((3, 1), (100, 16), (1000, 7), (2, 1)):
        done: list[tuple[int, int, int, str]] = []

        def work(index: int, start: int, stop: int, done: list[tuple[int, int, int, str]] = done) -> None:
            time.sleep(0.002 * index)
            done.append((index, start, stop, threading.current_thread().name))

        compiling.over_ranges(work, size, align, 1)
        parts = sorted(done)
        assert [part[0] for part in parts] == list(range(len(parts)))
        assert [part[1] for part in parts[1:]] == [part[2] for part in parts[:-1]]
        assert (parts[0][1], parts[-1][2]) == (0, size)
        assert all(part[1] % align == 0 for part in parts)
        assert parts[0][3] == threading.current_thread().name


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("failing", [0, 1, 2])
def test_an_error_is_raised_where_the_work_was_ordered_when_all_parts_have_ended(failing: int):
    ended: list[int] = []

    def work(index: int, start: int, stop: int) -> None:
        if index == failing:
            raise ValueError(f"part {index}")
        time.sleep(0.01)
        ended.append(index)

    with pytest.raises(ValueError, match=f"part {failing}"):
        compiling.over_ranges(work, 9, 1, 1)
    assert sorted(ended) == [i for i in range(3) if i != failing]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
@pytest.mark.usefixtures("three_threads")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own():
    compiling.over_ranges(lambda *_: None, 9, 1, 1)
    child = os.fork()
    if child == 0:
        done: list[int] = []
        compiling.over_ranges(lambda index, *_: done.append(index), 9, 1, 1)
        os._exit(0 if sorted(done) == [0, 1, 2] else 1)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        time.sleep(0.01)
    os.kill(child, 9)
    pytest.fail("the child waits for threads that its parent has")


def test_products_in_several_threads_leave_blas_the_threads_that_it_had():
    def counts() -> set[int]:
        return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

    with threadpool_limits(2, user_api="blas"):
        two = counts()
        # As threads do that overlap: the first one ends first.
        ALONE.__enter__()
        ALONE.__enter__()
        ALONE.__exit__()
        assert counts() == {1}
        ALONE.__exit__()
        assert counts() == two
        with ALONE:
            assert counts() == {1}
        assert counts() == two
