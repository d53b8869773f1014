"""Where a study keeps its runs, and how workers agree on who does which.

    runs/KEY/          a run folder: what `emu train` writes; it resumes to the same bits
    failures/KEY.json  why a run failed
    claims/KEY.lock    held by the process that runs it; the system releases it when that process ends

A study's command, workers and report use `Storage` alone, so a database shared by many machines can implement it
as well. `open_storage` opens it, in every process anew.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Protocol

from filelock import FileLock, Timeout

from emu.errors import ConfigError
from emu.training.run_folder import RUN, RunFolder
from emu.training.study import Case

#: Opens a study's folder where nothing else is said.
FOLDER_STORAGE = f"{__name__}:FolderStorage"


def open_storage(folder: Path, opener: str = FOLDER_STORAGE) -> Storage:
    """Return what keeps the study of a folder.

    Args:
        folder: folder of the study.
        opener: `module:name` of what gives a `Storage` for a folder; workers open theirs by it as well.
    """
    return resolve_name(opener)(folder)


def process_name(process: int) -> str:
    """Return what a process of this machine is called among those of all machines."""
    return f"{platform.node()}:{process}"


class Storage(Protocol):
    """What a study needs of the place that keeps its runs.

    Run folders and reports are files, in a folder that every worker sees. Who runs what, and what came of it, may be
    kept elsewhere. In an Optuna storage a study would be a study, named as it, and a case a trial with its key as user
    attribute, enqueued once:

        claimed          WAITING -> RUNNING by `set_trial_state_values`, which tells who was first; a heartbeat in the
                         place of the lock, and trials that lack it fail and are enqueued again
        held_by          user attribute of the RUNNING trial
        result           COMPLETE with the accuracy as value, set on leaving `claimed`; `run.json` as user attributes
        fail, failure    FAIL, the reason as user attribute
        forget_failure   another WAITING trial of that key: states that are final stay; the key's last trial counts
    """

    @property
    def path(self) -> Path:
        """Folder of the study: its report, and below it the run folders."""
        ...

    def run_folder(self, case: Case) -> Path:
        """Return where the run is, or will be."""
        ...

    def clear(self, case: Case) -> None:
        """Remove what an unfinished run left, so that it begins anew."""
        ...

    def result(self, case: Case) -> dict[str, Any] | None:
        """Return the content of `run.json` of a finished run, None of any other; see `result_in`."""
        ...

    def failure(self, case: Case) -> str | None:
        """Return why a run failed, None if it did not."""
        ...

    def fail(self, case: Case, reason: str) -> None:
        """Write down why a run failed."""
        ...

    def forget_failure(self, case: Case) -> None:
        """Let a failed run be tried again."""
        ...

    def claimed(self, case: Case) -> AbstractContextManager[bool]:
        """Hold a run as long as the block runs; gives whether it could be had: not from a process that lives."""
        ...

    def held_by(self, case: Case) -> str | None:
        """Return the `process_name` of who claimed a run and has not let go of it in order, None if there is none."""
        ...


def result_in(folder: Path, case: Case) -> dict[str, Any] | None:
    """Return the content of `run.json` of a finished run, None of any other.

    Raises:
        ConfigError: the folder holds a run of the same name with another recipe or device.
    """
    if not (folder / RUN).is_file():
        return None
    info = RunFolder(folder).read_json()
    if (info.get("recipe"), info.get("device")) != case.described:
        raise ConfigError(
            f"a study's folder must hold its own runs, got {folder}, whose recipe or device differs from the "
            "study's; choose another folder with --out, or delete that run"
        )
    return info if info.get("status") == "finished" else None


class FolderStorage:
    """A study in a folder.

    Attributes:
        path: path of the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        for part in ("runs", "failures", "claims"):
            try:
                (path / part).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ConfigError(
                    f"the folder of a study must be writable, got {error.strerror!r} for {path}; choose another one "
                    "with --out"
                ) from None

    def run_folder(self, case: Case) -> Path:
        """Return where the run is, or will be."""
        return self.path / "runs" / case.key

    def result(self, case: Case) -> dict[str, Any] | None:
        """Return the content of `run.json` of a finished run, None of any other; see `result_in`."""
        return result_in(self.run_folder(case), case)

    def failure(self, case: Case) -> str | None:
        """Return why a run failed, None if it did not."""
        path = self._failure(case)
        return str(RunFolder(path.parent).read_json(path.name).get("reason")) if path.is_file() else None

    def fail(self, case: Case, reason: str) -> None:
        """Write down why a run failed."""
        RunFolder(self.path / "failures").write_json(self._failure(case).name, {"run": case.key, "reason": reason})

    def forget_failure(self, case: Case) -> None:
        """Let a failed run be tried again."""
        self._failure(case).unlink(missing_ok=True)

    @contextmanager
    def claimed(self, case: Case) -> Generator[bool, None, None]:
        """Hold a run as long as the block runs; gives whether it could be had."""
        lock = FileLock(self._claim(case))
        try:
            lock.acquire(blocking=False)
        except Timeout:
            yield False
            return
        try:
            holder = self._holder(case)
            holder.write_text(process_name(os.getpid()), encoding="utf-8")
            yield True
            holder.unlink(missing_ok=True)  # stays where the process ends in between
        finally:
            lock.release()

    def held_by(self, case: Case) -> str | None:
        """Return the `process_name` of who claimed a run and has not let go of it in order, None if there is none."""
        try:
            return self._holder(case).read_text(encoding="utf-8") or None
        except OSError:
            return None

    def clear(self, case: Case) -> None:
        """Remove what an unfinished run left, so that it begins anew."""
        shutil.rmtree(self.run_folder(case), ignore_errors=True)

    def _failure(self, case: Case) -> Path:
        return self.path / "failures" / f"{case.key}.json"

    def _claim(self, case: Case) -> Path:
        return self.path / "claims" / f"{case.key}.lock"

    def _holder(self, case: Case) -> Path:
        return self.path / "claims" / f"{case.key}.process"
