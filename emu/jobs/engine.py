"""What every engine does."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from typing_extensions import override

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


class Closing(Protocol):
    """What a `with` statement closes."""

    def close(self) -> None:
        """Give back what is held."""
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

    @override
    def close(self) -> None:
        """End the processes, and what they run; an engine elsewhere goes on without these jobs."""
        ...


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def of_signal(code: int | None) -> str:
    """Return how a process ended, in words."""
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
