"""Jobs on a Dask cluster: its scheduler distributes them, and repeats the jobs of lost workers on other workers."""

from __future__ import annotations

import os
import queue
import threading
import uuid
from collections.abc import Callable
from typing import Any

from typing_extensions import override

from emu.errors import ConfigError
from emu.jobs.engine import Ended, Engine, processors, waiting_in, without_interrupts

#: Seconds within which a scheduler must answer.
ANSWER_S = 20
#: Locked by the job that runs in this process, so that a worker with several threads runs one job at a time.
_JOB = threading.Lock()


class DaskEngine(Engine):
    """A client of a scheduler.

    Attributes:
        slots: threads of all its workers when the client connected.
        dashboard: address of the cluster's page.
    """

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        """Connect.

        Args:
            address: of the scheduler; None starts a cluster of processes on this machine.
            workers: processes of such a cluster; None is one per processor.

        Raises:
            ConfigError: Dask is not installed, or the scheduler does not answer.
        """
        try:
            from distributed import Client, LocalCluster
        except ImportError:
            raise ConfigError(
                "--on dask must find the package `distributed`, got none; pip install 'emu-numerics[dask]'"
            ) from None
        self._cluster: Any = None
        if address is None:
            # workers inherit it: Ctrl-C reaches this process alone
            with without_interrupts():
                self._cluster = LocalCluster(n_workers=workers or processors(), threads_per_worker=1)
        try:
            self._client: Any = Client(address or self._cluster, timeout=ANSWER_S, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise ConfigError(
                f"the scheduler of --on dask must answer within {ANSWER_S} s, got {type(error).__name__} from "
                f"{address}; start one with `dask scheduler`, or name another. What is finished stays"
            ) from None
        # all workers: by default the answer lists only a few
        connected: dict[str, Any] = self._client.scheduler_info(n_workers=-1)["workers"]
        self.slots = max(sum(worker["nthreads"] for worker in connected.values()), 1)
        self.dashboard: str = self._client.dashboard_link
        self._mark = uuid.uuid4().hex[:8]  # names of another client's jobs differ
        self._jobs: dict[str, Any] = {}
        self._done: queue.SimpleQueue[str] = queue.SimpleQueue()

    @override
    def submit(self, key: str, function: Callable[..., Any], *arguments: Any) -> None:
        assert key not in self._jobs, f"a job named {key} has not ended"
        # impure: Dask would give a second job of equal arguments the result of the first
        future = self._client.submit(_on_worker, function, *arguments, key=f"{key}-{self._mark}", pure=False)
        self._jobs[key] = future

        def settle(_: Any) -> None:
            # called in a thread of the client, so results pass through a queue
            self._done.put(key)

        future.add_done_callback(settle)

    @override
    def ended(self, timeout_s: float = 0.3) -> list[Ended]:
        """Return the jobs that have ended since the last call; see `Engine`.

        Raises:
            ConfigError: the connection to the scheduler has ended; finished runs stay.
        """
        # without jobs there is nothing to wait for
        keys = waiting_in(self._done, timeout_s) if self._jobs else ()
        return [self._settled(key, self._jobs.pop(key)) for key in keys]

    def _settled(self, key: str, future: Any) -> Ended:
        if future.status == "finished":
            return Ended(key, future.result(), None)
        # this engine cancels only when it closes: the scheduler has gone
        if future.cancelled():
            raise ConfigError(
                f"the scheduler of --on dask must stay, got an end of the connection while {key} ran; what is finished "
                "stays, start the command again"
            )
        error = future.exception()
        # by name, because `distributed` is imported in `__init__` alone
        if type(error).__name__ == "KilledWorker":
            return Ended(key, None, f"its process ended {error.allowed_failures + 1} times, on workers of the cluster")
        return Ended(key, None, f"{type(error).__name__}: {error}")

    @override
    def running(self) -> int:
        return len(self._jobs)

    @override
    def close(self) -> None:
        """Cancel the jobs that have not ended, and disconnect from the cluster."""
        for future in self._jobs.values():
            future.cancel()
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()


def _on_worker(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a job, with one thread for its kernels unless the worker's EMU_THREADS is set."""
    with _JOB:
        os.environ.setdefault("EMU_THREADS", "1")
        return function(*arguments)
