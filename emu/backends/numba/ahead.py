"""Compile the kernels of a first step in several processes at once.

A first step compiles some tens of kernels, each when it is called for the first time, and Numba compiles in one thread
of a process. So when the process comes to a kernel that is to be compiled, it forks copies of itself, which take the
same step. A copy that comes to a kernel which another process compiles goes on without it, to kernels further on:

    process    compiles 1   reads 2   waits for 3 ...         step done: copies end
    copy       passes 1     compiles 2      passes 3, 4    compiles 5
    copy       passes 1     passes 2        compiles 3     compiles 4

All kernels reach the process by the cache. In place of what a copy passes over it takes the reference's results, and
zeros for those of a product, which would take the reference long: so its numbers are not the process's. Nobody reads
them: a copy never leaves the block, and nothing of it outlives the step but files of the cache.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np

from emu.backends.interface import Outcome, Write
from emu.backends.numba.cache import cache_folder
from emu.backends.numba.claims import CLAIMS, PassedOverError, remove_left_files
from emu.backends.numba.compiling import thread_count
from emu.backends.product import Given, Way

#: Of Linux's `prctl`: the signal that a process gets when its parent ends.
PR_SET_PDEATHSIG = 1
#: Copies at a time, at most: a step of lenet has some ten kernels that take longer than half a second.
MOST_COPIES = 4
#: Copies in all, at most, with those that replace others which came to an error in numbers that are not the process's.
MOST_FORKS = 16


@contextmanager
def compiling_ahead(table: type, reference: Any, ways: Sequence[Way[Any]]) -> Generator[None, None, None]:
    """Let copies of this process compile ahead in the block, if it comes to a kernel that is not compiled yet.

    The block must change this process's memory alone: the copies run it as well. With one thread (`EMU_THREADS`),
    beside threads of others, and with a GPU, whose driver survives no fork, nothing is copied.

    Args:
        table: class of the kernels.
        reference: the reference's kernels.
        ways: the ways to compute products.
    """
    if not may_fork():
        yield
        return
    owner, copies, has_ended = os.getpid(), Copies(min(thread_count(), MOST_COPIES)), False
    CLAIMS.are_shared, CLAIMS.at_miss = True, copies.complete
    try:
        with _replacing(table, reference, ways):
            yield
        has_ended = True
    finally:
        if os.getpid() != owner:
            os._exit(not has_ended)  # at once: no handler of the process it was copied from is called
        CLAIMS.are_shared, CLAIMS.at_miss = False, None
        CLAIMS.give_up_all()
        copies.end()


def may_fork() -> bool:
    """Return whether copies of this process may compile ahead of it."""
    return (
        sys.platform == "linux"
        and min(thread_count() - 1, MOST_COPIES) > 0
        and is_beside_own_threads()
        and "cupy" not in sys.modules
        and not CLAIMS.are_shared
    )


def is_beside_own_threads() -> bool:
    """Return whether this is the first thread, and all others are known."""
    return threading.current_thread() is threading.main_thread() and all(map(is_known, threading.enumerate()))


def is_known(thread: threading.Thread) -> bool:
    """Return whether a thread is the first, or one of emu or of its progress bar.

    Others may be in a product of NumPy, whose OpenBLAS waits for its threads before a fork, for ever if they compute.
    """
    own = (thread.name or "").startswith("emu-") or type(thread).__module__.startswith("rich.")
    return own or thread is threading.main_thread()


class Copies:
    """Copies of this process.

    Attributes:
        most: how many there are at a time.
        processes: those that have not ended, as far as is known.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.processes: list[int] = []
        self._forks_left = MOST_FORKS

    def complete(self) -> None:
        """Fork copies that are missing, unless a copy has reached the end: it has left nothing to be compiled.

        Raises:
            PassedOverError: this process is a copy now, and passes over what its parent has claimed.
        """
        if not is_beside_own_threads():
            return  # also, a copy of a thread that computes a range would not come out of that range
        for process in list(self.processes):
            status = _status(process, os.WNOHANG)
            if status is not None:
                self.processes.remove(process)
                self._forks_left = self._forks_left if status else 0
        while len(self.processes) < self.most and self._forks_left:
            self._forks_left -= 1
            self._fork()

    def _fork(self) -> None:
        with _noted_signals() as in_copy, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of threads: a copy uses none of their locks
            try:
                process = os.fork()
            except OSError:  # the system has no room for another process
                return
            if process:
                self.processes.append(process)
                return
            try:
                in_copy()
                _become_copy()
            except BaseException:
                os._exit(1)
        raise PassedOverError

    def end(self) -> None:
        """Kill the copies that are left, wherever they are; if there were any, remove what killed processes leave."""
        for process in self.processes:
            if _status(process, os.WNOHANG) is None:
                with suppress(OSError):
                    os.kill(process, signal.SIGKILL)
                _status(process, 0)
        if self._forks_left < MOST_FORKS:
            remove_left_files(cache_folder())


def _status(process: int, how: int) -> int | None:
    """Return the status with which a copy ended, 0 if another waited for it; None if it goes on."""
    try:
        ended, status = os.waitpid(process, how)
    except ChildProcessError:  # SIGCHLD is ignored, or somebody waits for every process
        return 0
    return status if ended else None


@contextmanager
def _noted_signals() -> Generator[Callable[[], None], None, None]:
    """Have signals handled after the block instead of within: a fork must be seen to its end.

    Yields:
        Ends that in a copy, in which signals do what they do by default: what handles them is not for copies.
    """
    noted: list[int] = []
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    own = {number: handler for number, handler in handlers.items() if callable(handler)}
    in_parent = True

    def in_copy() -> None:
        nonlocal in_parent
        in_parent = False
        signal.set_wakeup_fd(-1)
        for number in own:
            signal.signal(number, signal.SIG_DFL)

    for number in own:
        signal.signal(number, lambda number, frame: noted.append(number))
    try:
        yield in_copy
    finally:
        if in_parent:
            for number, handler in own.items():
                signal.signal(number, handler)
            for number in noted:
                signal.raise_signal(number)


def _become_copy() -> None:
    """Live no longer than the parent, claim nothing that it has claimed, fork no more, use one thread, be silent."""
    # A copy has the parent's files open, and with them the lock of the run's folder: it must not live longer.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with suppress(OSError):  # copies share the parent's memory, but not what they write: if it runs out, they go first
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    CLAIMS.leave_to_parent()
    CLAIMS.passes_over, CLAIMS.at_miss = True, None
    os.environ["EMU_THREADS"] = "1"
    thread_count.cache_clear()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    # Python's streams may lead elsewhere: into a notebook, or through a progress bar whose thread a copy lacks.
    sys.stdout = sys.stderr = os.fdopen(nowhere, "w")
    warnings.simplefilter("ignore")
    logging.disable()


@contextmanager
def _replacing(table: type, reference: Any, ways: Sequence[Way[Any]]) -> Generator[None, None, None]:
    """Have what is passed over in the block replaced: kernels by the reference's, products by zeros.

    In the process itself as well, which passes over nothing: a copy goes on within the calls in which it was forked.
    """
    names = [name for name in dir(table) if not name.startswith("_") and callable(getattr(table, name))]
    own = {name: vars(table)[name] for name in names if name in vars(table)}
    try:
        for name in names:
            setattr(table, name, _or(getattr(table, name), getattr(reference, name)))
        for way in ways:
            way.compute = _or_zeros(way.compute, reference)
        yield
    finally:
        for name in names:  # each is there at any moment: other threads may call it
            if name in own:
                setattr(table, name, own[name])
            elif name in vars(table):
                delattr(table, name)
        for way in ways:
            vars(way).pop("compute", None)


def _or(kernel: Callable[..., Any], instead: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel of a table whose calls another function takes over if they are passed over."""

    @wraps(kernel)
    def call(table: Any, *args: Any, **keywords: Any) -> Any:
        try:
            return kernel(table, *args, **keywords)
        except PassedOverError:
            return instead(*args, **keywords)

    return call


def _or_zeros(compute: Callable[[Given, Write], Outcome | None], reference: Any) -> Callable[..., Any]:
    """Return what computes a product, and writes zeros if the product is passed over."""

    def call(product: Given, write: Write) -> Outcome | None:
        try:
            return compute(product, write)
        except PassedOverError:
            return reference.quantize(np.zeros(product.shape), None, write, None)

    return call
