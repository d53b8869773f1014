"""Jobs on processes of this machine, with Pebble: a process that dies is replaced, and its job is tried once more."""

from __future__ import annotations

import multiprocessing
import os
import queue
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

from typing_extensions import override

from emu.errors import EmuWarning
from emu.jobs.engine import MOST_LOSSES, Ended, Engine, of_signal, waiting_in, without_interrupts

#: Seconds between two checks whether the parent process still runs.
LOOK_S = 0.5


class LocalEngine(Engine):
    """Processes that each run one job after the other.

    Attributes:
        slots: number of processes.
    """

    def __init__(self, slots: int, threads: int = 1) -> None:
        """Prepare the engine; processes start with the first jobs.

        Args:
            slots: number of processes.
            threads: threads that kernels use in each process, unless `EMU_THREADS` is set.
        """
        # imported here: workers import this module and need no pool
        from pebble import ProcessPool

        self.slots = slots
        spawning: Any = multiprocessing.get_context("spawn")  # a fork would lose the parent's threads
        self._pool = ProcessPool(
            max_workers=slots,
            context=spawning,
            initializer=_begin,
            initargs=(os.getpid(), os.environ.get("EMU_THREADS", str(threads))),
        )
        self._jobs: dict[str, tuple[Callable[..., Any], tuple[Any, ...], int]] = {}
        self._done: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()

    @override
    def submit(self, key: str, function: Callable[..., Any], *arguments: Any) -> None:
        assert key not in self._jobs, f"a job named {key} has not ended"
        self._start(key, function, arguments, 0)

    def _start(self, key: str, function: Callable[..., Any], arguments: tuple[Any, ...], losses: int) -> None:
        self._jobs[key] = function, arguments, losses
        with without_interrupts():  # the first job starts the pool's threads, and these its processes
            future = self._pool.schedule(function, args=list(arguments))
        # called in a thread of the pool, so results pass through a queue
        future.add_done_callback(lambda done: self._done.put((key, done)))

    @override
    def ended(self, timeout_s: float = 0.3) -> list[Ended]:
        # without jobs there is nothing to wait for
        jobs = waiting_in(self._done, timeout_s) if self._jobs else ()
        return [ended for job in jobs for ended in self._settled(*job)]

    def _settled(self, key: str, done: Any) -> list[Ended]:
        """Return the job, or nothing if its process died and the job was started once more."""
        from pebble import ProcessExpired

        function, arguments, losses = self._jobs.pop(key)
        error = done.exception()
        if error is None:
            return [Ended(key, done.result(), None)]
        # the function itself has failed: only a lost process is a reason to try again
        if not isinstance(error, ProcessExpired):
            return [Ended(key, None, f"{type(error).__name__}: {error}")]
        if losses + 1 < MOST_LOSSES:
            self._start(key, function, arguments, losses + 1)
            return []
        return [Ended(key, None, f"its process ended {MOST_LOSSES} times, with {of_signal(error.exitcode)}")]

    @override
    def running(self) -> int:
        return len(self._jobs)

    @override
    def close(self) -> None:
        # ends running jobs as well; `join` then waits for their processes
        self._pool.stop()
        self._pool.join()


def _begin(parent: int, threads: str) -> None:
    """Prepare a process: set its number of threads, and let it end if its parent ends."""
    os.environ["EMU_THREADS"] = threads
    warnings.simplefilter("ignore", EmuWarning)  # every process would repeat the warning
    threading.Thread(target=_end_with, args=(parent,), name="emu-parent", daemon=True).start()


def _end_with(parent: int) -> None:
    # an orphan gets another parent; a parent that is killed cannot tell its processes
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    # sys.exit in a thread would end the thread alone
    os._exit(1)
