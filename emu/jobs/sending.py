"""Send the runs of a study's or search's folder to an engine, and bring them back into the folder."""

from __future__ import annotations

from typing import Any, Self

from emu.errors import ConfigError
from emu.jobs.cache import RunCache, cache_path, most_bytes
from emu.jobs.job import Job
from emu.jobs.store import Store, is_address, open_store
from emu.training.folders.study_folder import RUNS, StudyFolder
from emu.training.study import Planned


class Sending:
    """A folder of runs, and how they are trained.

    Attributes:
        home: the folder.
        backend: backend of all runs.
        cache: whether runs are taken from the cache of runs, and kept there.
    """

    def __init__(self, home: StudyFolder, backend: str, cache: bool, store: str | None) -> None:
        """Open the store.

        Args:
            home: the folder.
            backend: backend of all runs.
            cache: whether runs are taken from the cache of runs, and kept there.
            store: address of an object store to which workers bring runs; None if they see the folder.

        Raises:
            ConfigError: `store` is not an address, or cannot be reached.
        """
        self.home, self.backend, self.cache = home, backend, cache
        if store is not None and not is_address(store):
            raise ConfigError(
                f"--store must be an address such as s3://bucket/folder, got {store!r}; for a folder that "
                "workers see, --out is enough"
            )
        # read at once: a wrong EMU_RUN_CACHE_BYTES is refused before anything runs
        self._most_bytes = most_bytes()
        self._address = f"{store.rstrip('/')}/{RUNS}" if store else None
        self._store: Store | None = open_store(self._address) if self._address else None

    def job(self, run: Planned) -> Job:
        """Return the job that trains a run."""
        folder = f"{self._address}/{run.key}" if self._address else self.home.run_folder(run).as_posix()
        # a worker may have another current folder
        cache = str(cache_path().resolve()) if self.cache else None
        return Job.of(run.key, run.recipe, run.machine, folder, backend=self.backend, cache=cache)

    def arrived(self, run: Planned, failure: str | None) -> dict[str, Any] | str:
        """Return `run.json` of a run that has ended, or why it failed."""
        if failure is not None:
            return failure
        if self._store is not None:
            # False if the folder is here already, which `result` then reads
            self._store.fetch(run.key, self.home.run_folder(run))
        folder = self.home.run_folder(run)
        return self.home.result(run) or (
            f"no finished run is in {folder}; workers must see this folder, or use --store"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Drop the runs of the cache that were used least recently, if it is too large.

        Also after Ctrl-C or an error: the runs that have ended are in the cache.
        """
        if self.cache:
            # at the end, so that no run is dropped between its training and its use
            RunCache(cache_path()).trim(self._most_bytes)
