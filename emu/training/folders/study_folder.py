"""Where a study, or a search, keeps its runs.

runs/KEY/          a finished run, with its page; it appears in one step
attempts/KEY/      a run that has begun: what `emu train` writes; it resumes to the same bits
failures/KEY.json  why a run failed
claims/KEY.lock    held by the process that runs it; the system releases it when that process ends
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from emu.errors import ConfigError
from emu.training.folders.run_folder import RUN, RunFolder
from emu.training.study import Planned

#: Folders of a study.
RUNS, ATTEMPTS, FAILURES, CLAIMS = "runs", "attempts", "failures", "claims"


def result_in(folder: Path, case: Planned) -> dict[str, Any] | None:
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


class StudyFolder:
    """A study in a folder.

    Attributes:
        path: path of the folder.
    """

    def __init__(self, path: Path, *, make: bool = True) -> None:
        """Make the folder, where it is not there.

        Args:
            path: of the folder.
            make: whether to make it; whoever only reads does not.

        Raises:
            ConfigError: it cannot be written.
        """
        self.path = path
        for part in (RUNS, FAILURES, CLAIMS) if make else ():
            try:
                (path / part).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ConfigError(
                    f"the folder of a study must be writable, got {error.strerror!r} for {path}; choose another one "
                    "with --out"
                ) from None

    def run_folder(self, case: Planned) -> Path:
        """Return where the finished run is, or will be."""
        return self.path / RUNS / case.key

    def attempt(self, case: Planned) -> Path:
        """Return where the run is until it is finished."""
        return self.path / ATTEMPTS / case.key

    def result(self, case: Planned) -> dict[str, Any] | None:
        """Return the content of `run.json` of a finished run, None of any other; see `result_in`."""
        return result_in(self.run_folder(case), case)

    def require_own(self, case: Planned) -> None:
        """Refuse a run of another recipe or device, whether it is finished or has only begun.

        Raises:
            ConfigError: there is one.
        """
        for folder in (self.run_folder(case), self.attempt(case)):
            try:
                result_in(folder, case)
            except ConfigError:
                if folder.is_dir():  # else it was published meanwhile
                    raise

    def failure(self, case: Planned) -> str | None:
        """Return why a run failed, None if it did not."""
        path = self._failure(case)
        return str(RunFolder(path.parent).read_json(path.name).get("reason")) if path.is_file() else None

    def fail(self, case: Planned, reason: str) -> None:
        """Write down why a run failed."""
        RunFolder(self.path / FAILURES).write_json(self._failure(case).name, {"run": case.key, "reason": reason})

    def forget_failure(self, case: Planned) -> None:
        """Forget that a run failed, so that it is tried again."""
        self._failure(case).unlink(missing_ok=True)

    def clear(self, case: Planned) -> None:
        """Remove what an unfinished run left, so that it begins anew."""
        for path in (self.run_folder(case), self.attempt(case)):
            shutil.rmtree(path, ignore_errors=True)

    def _failure(self, case: Planned) -> Path:
        return self.path / FAILURES / f"{case.key}.json"
