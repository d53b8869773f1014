"""Jobs on processes of this machine, by Pebble: a process that dies fails its own job and is replaced."""

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
from emu.jobs.engine import MOST_LOSSES, Ended, Engine, of_signal

#: Seconds between two looks at whether the parent is there.
LOOK_S = 0.5


class LocalEngine(Engine):
    """Processes that are kept from job to job.

    Attributes:
        slots: how many there are.
    """

    def __init__(self, slots: int, threads: int = 1) -> None:
        """Start nothing yet: processes start with the first jobs.

        Args:
            slots: processes.
            threads: threads that kernels use in each, unless `EMU_THREADS` is set.
        """
        from pebble import ProcessPool

        self.slots = slots
        spawning: Any = multiprocessing.get_context("spawn")  # threads of the parent survive no fork
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
        future = self._pool.schedule(function, args=list(arguments))
        future.add_done_callback(lambda done: self._done.put((key, done)))

    @override
    def ended(self, timeout_s: float = 0.3) -> list[Ended]:
        found: list[Ended] = []
        try:
            first = self._done.get(timeout=timeout_s) if self._jobs else None
            while first is not None:
                found += self._settled(*first)
                first = self._done.get_nowait()
        except queue.Empty:
            pass
        return found

    def _settled(self, key: str, done: Any) -> list[Ended]:
        """Return the job, or nothing where it was started once more."""
        from pebble import ProcessExpired

        function, arguments, losses = self._jobs.pop(key)
        error = done.exception()
        if error is None:
            return [Ended(key, done.result(), None)]
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
        self._pool.stop()
        self._pool.join()


def _begin(parent: int, threads: str) -> None:
    """Prepare a process: its number of threads, and its end where its parent has ended."""
    os.environ["EMU_THREADS"] = threads
    warnings.simplefilter("ignore", EmuWarning)  # each process would say it
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os._exit(1)
