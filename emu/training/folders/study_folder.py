"""The folder in which a study, or a search, keeps its runs.

runs/KEY/          a finished run, with its page; it appears atomically
attempts/KEY/      a run that has begun: what `emu train` writes; it can be resumed to the same bits
failures/KEY.json  why a run failed
claims/KEY.lock    locked by the process that trains the run; the operating system unlocks it when that process ends
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from emu.errors import ConfigError
from emu.training.folders.run_folder import CHECKPOINT, RUN, RunFolder
from emu.training.study import Planned

#: Folders of a study.
RUNS, ATTEMPTS, FAILURES, CLAIMS = "runs", "attempts", "failures", "claims"


def result_in(folder: Path, case: Planned) -> dict[str, Any] | None:
    """Return the content of `run.json` if the folder has a finished run, else None.

    Raises:
        ConfigError: the folder holds a run of the same name with another recipe or device.
    """
    if not (folder / RUN).is_file():
        return None
    info = RunFolder(folder).read_json()
    # both sides are plain data as JSON has it
    if (info.get("recipe"), info.get("device")) != case.described:
        raise ConfigError(
            f"a study's folder must hold its own runs, got {folder}, whose recipe or device differs from the "
            "study's; choose another folder with --out, or delete that run"
        )
    return info if info.get("status") == "finished" else None


class StudyFolder:
    """The folder of a study or a search; a case is one of its runs.

    Attributes:
        path: path of the folder.
    """

    def __init__(self, path: Path, *, make: bool = True) -> None:
        """Make the folder if it does not exist.

        Args:
            path: path of the folder.
            make: whether to make it; a reader need not.

        Raises:
            ConfigError: it cannot be written.
        """
        self.path = path
        # the first attempt makes `attempts`, which is removed once it is empty
        for part in (RUNS, FAILURES, CLAIMS) if make else ():
            try:
                (path / part).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ConfigError(
                    f"the folder of a study must be writable, got {error.strerror!r} for {path}; choose another one "
                    "with --out"
                ) from None

    def run_folder(self, case: Planned) -> Path:
        """Return the folder of the run once it is finished."""
        return self.path / RUNS / case.key

    def attempt(self, case: Planned) -> Path:
        """Return the folder of the run until it is finished."""
        return self.path / ATTEMPTS / case.key

    def result(self, case: Planned) -> dict[str, Any] | None:
        """Return the content of `run.json` if the run is finished, else None; see `result_in`."""
        return result_in(self.run_folder(case), case)

    def require_own(self, case: Planned) -> None:
        """Raise ConfigError if a run of this name, finished or not, has another recipe or device.

        Raises:
            ConfigError: it has.
        """
        for folder in (self.run_folder(case), self.attempt(case)):
            try:
                result_in(folder, case)
            except ConfigError:
                if folder.is_dir():  # if not, the attempt was moved to `runs` while it was read
                    raise

    def failure(self, case: Planned) -> str | None:
        """Return why a run failed; None if it did not."""
        return failure_in(self.path, case.key)

    def fail(self, case: Planned, reason: str) -> None:
        """Record why a run failed."""
        RunFolder(self.path / FAILURES).write_json(self._failure(case).name, {"run": case.key, "reason": reason})

    def forget_failure(self, case: Planned) -> None:
        """Forget that a run failed, so that it is tried again."""
        self._failure(case).unlink(missing_ok=True)

    def clear(self, case: Planned) -> None:
        """Remove the files of an unfinished run, so that it starts from its first step."""
        # older versions trained in the folder of the finished run
        for path in (self.run_folder(case), self.attempt(case)):
            shutil.rmtree(path, ignore_errors=True)

    def _failure(self, case: Planned) -> Path:
        return self.path / FAILURES / f"{case.key}.json"


def failure_in(home: Path, key: str) -> str | None:
    """Return why a run of a study has failed; None if it has not.

    Args:
        home: folder of the study.
        key: key of the run.

    Raises:
        ConfigError: the file that says why is damaged.
    """
    path = home / FAILURES / f"{key}.json"
    return str(RunFolder(path.parent).read_json(path.name).get("reason")) if path.is_file() else None


def kept_in(home: StudyFolder, ended: int, total: int, what: str) -> str:
    """Return, in words, what a study or a search keeps when it is interrupted.

    Args:
        home: its folder.
        ended: how many runs or trials have ended.
        total: how many there are.
        what: "runs" or "trials".
    """
    # a folder without a checkpoint would begin again from its first step: nothing of it is kept
    begun = len(list((home.path / ATTEMPTS).glob(f"*/{CHECKPOINT}")))
    runs = "runs that have" if begun > 1 else "run that has"
    # "them": the runs or trials that have ended, which the sentence has named
    kept = ["them"] if ended else []
    kept += [f"the checkpoints of {begun} {runs} begun"] if begun else []
    keeps = f"keeps {', and '.join(kept)}" if kept else "has no checkpoint yet"
    return f"{ended} of {total} {what} have ended; {home.path} {keeps}"
