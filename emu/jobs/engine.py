"""What every engine does, and how one is chosen by name."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from emu.errors import ConfigError

#: How often a job may lose its process before it counts as failed.
MOST_LOSSES = 2
#: Engines by the first part of their name; what follows a colon is an address.
LOCAL, DASK = "local", "dask"


class Ended(NamedTuple):
    """A job that has ended.

    Attributes:
        key: its name.
        value: what its function returned; None where it did not.
        failure: why it did not return; None where it did.
    """

    key: str
    value: Any
    failure: str | None


class Engine(Protocol):
    """Processes that run jobs.

    Attributes:
        slots: jobs that run at the same time, at most, as far as is known.
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
        """Return the jobs that have ended since the last call; wait for the first one no longer than this."""
        ...

    def running(self) -> int:
        """Return how many jobs were submitted and have not ended."""
        ...

    def close(self) -> None:
        """End the processes, and what they run; an engine elsewhere goes on without these jobs."""
        ...

    def __enter__(self) -> Self:
        """Return the engine."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Close the engine."""
        ...


def open_engine(on: str = LOCAL, workers: int | None = None) -> Engine:
    """Return an engine.

    Args:
        on: "local" for processes of this machine, "dask:ADDRESS" for the scheduler of a Dask cluster, e.g.
            "dask:tcp://10.0.0.1:8786", "dask" for a Dask cluster of processes of this machine.
        workers: processes of this machine; None is one per processor. A cluster elsewhere has its own number.

    Raises:
        ConfigError: no such engine, a number of workers where there is a cluster, a package that is not installed, or a
            scheduler that does not answer.
    """
    kind, _, address = on.partition(":")
    if workers is not None and workers < 1:
        raise ConfigError(f"--workers must be at least 1, got {workers}; leave it out to use every processor")
    if kind == LOCAL and not address:
        from emu.jobs.local import LocalEngine

        count = workers or processors()
        return LocalEngine(count, threads=max(processors() // count, 1))
    if kind == DASK and bool(address) == (":" in on):
        from emu.jobs.dask import DaskEngine

        if workers is not None and address:
            raise ConfigError(
                f"--workers must be left out with --on {on}, got {workers}; a cluster has its own workers"
            )
        return DaskEngine(address or None, workers)
    raise ConfigError(f"--on must be {LOCAL}, {DASK}, or {DASK}:ADDRESS such as dask:tcp://10.0.0.1:8786, got {on!r}")


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def of_signal(code: int | None) -> str:
    """Return how a process ended, in words."""
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
