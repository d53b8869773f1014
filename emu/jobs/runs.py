"""Runs on an engine: a run that another process holds is tried again until it is finished, or its holder hangs."""

from __future__ import annotations

import time
from typing import Any

from typing_extensions import override

from emu.jobs.engine import Closing, Ended, Engine
from emu.jobs.job import Job
from emu.jobs.run import attempt
from emu.training.folders.lease import Counts

#: Seconds until a run that another process holds is tried again.
AGAIN_S = 1.0
#: Seconds in which the count of a run's holder stands still until the holder is taken for hung: ten beats of a claim.
HUNG_S = 20.0


class Runs(Closing):
    """Training runs on an engine.

    Attributes:
        engine: the engine.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._jobs: dict[str, Job] = {}
        self._waiting: dict[str, float] = {}
        self._counts = Counts(HUNG_S)

    @property
    def slots(self) -> int:
        """Largest number of runs at the same time, as far as is known."""
        return self.engine.slots

    def submit(self, job: Job) -> None:
        """Submit a run; an earlier run of the same key must have ended."""
        # kept until the run ends: it may have to be submitted again
        self._jobs[job.key] = job
        self.engine.submit(job.key, attempt, job.plain(), False)

    def ended(self, timeout_s: float = 0.3) -> list[Ended]:
        """Return the runs that have ended since the last call; wait at most `timeout_s` seconds for the first."""
        now = time.monotonic()
        # a list first, because the loop removes entries
        for key in [key for key, due in self._waiting.items() if due <= now]:
            del self._waiting[key]
            # if the holder's count has stood still, the attempt trains alone, whoever has the claim
            self.engine.submit(key, attempt, self._jobs[key].plain(), self._counts.stands_still(key))
        # the engine waits only for jobs of its own: without any, the caller's loop would spin
        if not self.engine.running():
            time.sleep(timeout_s if self._waiting else 0)
        return [run for attempted in self.engine.ended(timeout_s) if (run := self._settled(attempted))]

    def _settled(self, attempted: Ended) -> Ended | None:
        """Return a run whose attempt has ended; None if another process holds it, so that it is tried again."""
        key = attempted.key
        # no value: the attempt itself was lost, with what it would have returned
        value: dict[str, Any] = attempted.value or {"failure": attempted.failure, "holder": ""}
        if holder := value["holder"]:
            self._counts.note(key, holder)
            self._waiting[key] = time.monotonic() + AGAIN_S
            return None
        del self._jobs[key]
        self._counts.forget(key)
        return Ended(key, None, value["failure"])

    def running(self) -> list[str]:
        """Return the keys of the runs that were submitted and have not ended."""
        return list(self._jobs)

    @override
    def close(self) -> None:
        """Cancel the runs that have not ended, and close the engine."""
        self.engine.close()
