"""Runs on an engine: those that another process holds are asked for again, until they are finished or it hangs."""

from __future__ import annotations

import time
from typing import Any

from typing_extensions import override

from emu.jobs.engine import Closing, Ended, Engine
from emu.jobs.job import Job
from emu.jobs.lease import Counts
from emu.jobs.run import attempt

#: Seconds until a run that another process holds is asked for again.
AGAIN_S = 1.0
#: Seconds without a count after which the holder of a run counts as hung.
HUNG_S = 20.0


class Runs(Closing):
    """Training runs that an engine does.

    Attributes:
        engine: who runs them.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._jobs: dict[str, Job] = {}
        self._waiting: dict[str, float] = {}
        self._counts = Counts(HUNG_S)

    @property
    def slots(self) -> int:
        """Runs at a time, at most, as far as is known."""
        return self.engine.slots

    def submit(self, job: Job) -> None:
        """Let a run be done; one of the same key must have ended."""
        self._jobs[job.key] = job
        self.engine.submit(job.key, attempt, job.plain(), False)

    def ended(self, timeout_s: float = 0.3) -> list[Ended]:
        """Return the runs that have ended since the last call; wait for the first one no longer than this."""
        now = time.monotonic()
        for key in [key for key, due in self._waiting.items() if due <= now]:
            del self._waiting[key]
            self.engine.submit(key, attempt, self._jobs[key].plain(), self._counts.stands_still(key))
        if not self.engine.running():
            time.sleep(timeout_s if self._waiting else 0)
        return [found for one in self.engine.ended(timeout_s) if (found := self._settled(one))]

    def _settled(self, one: Ended) -> Ended | None:
        """Return a run that has ended, None where another process holds it."""
        value: dict[str, Any] = one.value or {"failure": one.failure, "held": ""}
        if holder := value["held"]:
            self._counts.note(one.key, holder)
            self._waiting[one.key] = time.monotonic() + AGAIN_S
            return None
        del self._jobs[one.key]
        self._counts.forget(one.key)
        return Ended(one.key, None, value["failure"])

    def running(self) -> list[str]:
        """Return the keys of the runs that were submitted and have not ended."""
        return list(self._jobs)

    @override
    def close(self) -> None:
        """Take back what has not ended, and close the engine."""
        self.engine.close()
