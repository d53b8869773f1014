"""Where a study keeps its runs, and how workers agree on who does which.

    runs/KEY/          a run folder: what `emu train` writes; it resumes to the same bits
    failures/KEY.json  why a run failed
    claims/KEY.lock    held by the process that runs it; the system lets go of it when that process ends

`Storage` is all that workers and reports ask for: a database shared by many machines can stand behind it as well.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock, Timeout

from emu.errors import ConfigError
from emu.training.run_folder import RUN, RunFolder
from emu.training.study import Case


class Storage(Protocol):
    """What a study needs of the place that keeps its runs."""

    def result(self, case: Case) -> dict[str, Any] | None:
        """Return the content of `run.json` of a finished run, None of any other."""
        ...

    def failure(self, case: Case) -> str | None:
        """Return why a run failed, None if it did not."""
        ...

    def fail(self, case: Case, reason: str) -> None:
        """Write down why a run failed."""
        ...

    @contextmanager
    def claimed(self, case: Case) -> Generator[bool, None, None]:
        """Hold a run as long as the block runs; gives whether it could be had."""
        ...

    def run_folder(self, case: Case) -> Path:
        """Return where the run is, or will be."""
        ...


class FolderStorage:
    """A study in a folder.

    Attributes:
        path: of the folder.
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
        """Return the content of `run.json` of a finished run, None of any other.

        Raises:
            ConfigError: the folder holds a run of the same name with another recipe or device.
        """
        folder = self.run_folder(case)
        if not (folder / RUN).is_file():
            return None
        info = RunFolder(folder).read_json()
        if (info.get("recipe"), info.get("device")) != case.described:
            raise ConfigError(
                f"a study's folder must hold its own runs, got {folder}, whose recipe or device differs from the "
                "study's; choose another folder with --out, or delete that run"
            )
        return info if info.get("status") == "finished" else None

    def failure(self, case: Case) -> str | None:
        """Return why a run failed, None if it did not."""
        path = self._failure(case)
        return json.loads(path.read_text(encoding="utf-8"))["reason"] if path.is_file() else None

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
            holder.write_text(str(os.getpid()), encoding="utf-8")
            yield True
            holder.unlink(missing_ok=True)  # stays where the process ends in between
        finally:
            lock.release()

    def held_by(self, case: Case) -> int | None:
        """Return the process that claimed a run and has not let go of it in order, None if there is none."""
        try:
            return int(self._holder(case).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def clear(self, case: Case) -> None:
        """Remove what a run left that ended before its first checkpoint."""
        shutil.rmtree(self.run_folder(case), ignore_errors=True)

    def _failure(self, case: Case) -> Path:
        return self.path / "failures" / f"{case.key}.json"

    def _claim(self, case: Case) -> Path:
        return self.path / "claims" / f"{case.key}.lock"

    def _holder(self, case: Case) -> Path:
        return self.path / "claims" / f"{case.key}.process"
