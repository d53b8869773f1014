"""The interface of engines, which run jobs."""

from __future__ import annotations

import os
import queue
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from typing_extensions import override

#: How often a job may lose its process before it counts as failed.
MOST_LOSSES = 2
#: Names of engines; a colon and an address may follow.
LOCAL, DASK = "local", "dask"
_Item = TypeVar("_Item")


class Ended(NamedTuple):
    """A job that has ended.

    Attributes:
        key: name of the job.
        value: what its function returned; None if it failed.
        failure: why it failed; None if it did not.
    """

    key: str
    value: Any
    failure: str | None


class Closing(Protocol):
    """Something that a `with` statement closes."""

    def close(self) -> None:
        """Release all resources."""
        ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()


class Engine(Closing, Protocol):
    """Processes that run jobs.

    Attributes:
        slots: largest number of jobs that run at the same time, as far as is known.
    """

    slots: int

    def submit(self, key: str, function: Callable[..., Any], *arguments: Any) -> None:
        """Run a function with these arguments as soon as a process is free.

        Args:
            key: name of the job; a job of the same name must have ended.
            function: a function that a module defines.
            *arguments: plain data (JSON).
        """
        ...

    def ended(self, timeout_s: float = 0.3) -> list[Ended]:
        """Return the jobs that have ended since the last call; wait at most `timeout_s` seconds for the first."""
        ...

    def running(self) -> int:
        """Return the number of jobs that were submitted and have not ended."""
        ...

    @override
    def close(self) -> None:
        """End the processes and their jobs; a cluster elsewhere continues without these jobs."""
        ...


def waiting_in(done: queue.SimpleQueue[_Item], timeout_s: float) -> Generator[_Item]:
    """Yield what is in a queue; wait at most `timeout_s` seconds for the first item, and for no other."""
    with suppress(queue.Empty):
        yield done.get(timeout=timeout_s)
        while True:
            yield done.get_nowait()


def processors() -> int:
    """Return the number of processors that this process may use."""
    # where it exists, it knows the processors that this process is bound to, as by taskset
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def of_signal(code: int | None) -> str:
    """Return, in words, how a process ended."""
    # a negative exit code is a signal's number
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"


@contextmanager
def without_interrupts() -> Generator[None]:
    """Block Ctrl-C for processes and threads that are started in the block, and for all that these start.

    A terminal sends it to every process. Those that run jobs would print a traceback; the engine ends them instead.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # where it is started with the first process, it lets the signal through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
