"""Compile the kernels of a first step in several processes at once.

A first step compiles some tens of kernels, each when it is called for the first time, and Numba compiles in one thread
of a process. So at the first miss the process forks copies of itself, which take the same step. A copy that comes to a
kernel which another process compiles goes on without it, to kernels further on:

    process    compiles 1   waits for 2           reads 2 and 3      step done: copies end
    copy       passes 1     compiles 2   passes 3, compiles 4 ...
    copy       passes 1     passes 2, compiles 3

All kernels reach the process by the cache. Copies compute nonsense, because they lack what they pass over, and nobody
reads it: a copy never leaves the block, and nothing of it outlives the step but files of the cache.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import warnings
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import NoReturn

from emu.backends.numba.claims import CLAIMS
from emu.backends.numba.compiling import thread_count

#: Copies at most. The process itself mostly waits, so that a copy more than processors would compile nothing more; a
#: step of lenet has four kernels that take a second or more, and its longest alone takes a third of the time.
MOST_COPIES = 4


@contextmanager
def compiling_ahead() -> Generator[None, None, None]:
    """Let copies of this process compile ahead in the block, if it comes to a kernel that is not compiled yet.

    The block must change this process's memory alone: the copies run it as well. With one thread (`EMU_THREADS`), in a
    thread other than the first, and with a GPU, whose driver survives no fork, nothing is copied.
    """
    copies: list[int] = []
    if _may_fork():
        CLAIMS.before_first = lambda: copies.extend(_fork(min(thread_count(), MOST_COPIES)))
    try:
        yield
    finally:
        if CLAIMS.passes_over:
            _leave()
        CLAIMS.before_first, CLAIMS.are_shared = None, False
        for copy in copies:
            with suppress(OSError):
                os.kill(copy, signal.SIGKILL)  # at worst it leaves a part of a file, which nobody reads
                os.waitpid(copy, 0)


def _may_fork() -> bool:
    return (
        sys.platform == "linux"
        and thread_count() > 1
        and threading.current_thread() is threading.main_thread()
        and "cupy" not in sys.modules
        and CLAIMS.before_first is None
        and not CLAIMS.are_shared
    )


def _fork(copies: int) -> list[int]:
    """Fork so many copies; return their processes, and in each copy none."""
    CLAIMS.are_shared = True
    processes: list[int] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads: a copy uses none, and no lock of another's
        for _ in range(copies):
            process = os.fork()
            if process == 0:
                _become_copy()
                return []
            processes.append(process)
    return processes


def _become_copy() -> None:
    """Pass over kernels, compute in one thread, and print nothing."""
    CLAIMS.passes_over = True
    os.environ["EMU_THREADS"] = "1"
    thread_count.cache_clear()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it may break off anywhere
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)


def _leave() -> NoReturn:
    """End a copy at once: nothing is written, and no handler of the process it was copied from is called."""
    os._exit(0)
