"""A worker of a study: takes runs nobody has, one after the other, until none is left.

    python -m emu.cli.study_worker STUDY.toml FOLDER OPENER BACKEND PARENT [PATTERN ...]

It ends with the process that started it, wherever it is: the run goes on from its checkpoint next time.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from emu import training
from emu.errors import EmuError
from emu.report import build_report
from emu.report.build import FILE_NAME
from emu.training.run_folder import RUN, RunFolder
from emu.training.study import Case, chosen, load_study
from emu.training.study_storage import Storage, open_storage

#: Seconds between two looks at whether the parent is there.
LOOK_SECONDS = 0.5


def work(study_file: Path, storage: Storage, backend: str, only: Sequence[str]) -> None:
    """Run what is left of a study, or of what matches; a run that fails is written down, and the next one begins."""
    left = chosen(load_study(study_file).cases(), only)
    while left := [case for case in left if not is_settled(case, storage)]:
        if not sum(_take(case, storage, backend) for case in left):
            time.sleep(LOOK_SECONDS)  # others hold what is left, and may end


def is_settled(case: Case, storage: Storage) -> bool:
    """Return whether nothing is left to do: the run is finished and has its page, or it failed."""
    has_page = storage.result(case) is not None and (storage.run_folder(case) / FILE_NAME).is_file()
    return has_page or storage.failure(case) is not None


def _take(case: Case, storage: Storage, backend: str) -> bool:
    """Run a case, and build its page, unless another process holds it; return whether it could be had."""
    with storage.claimed(case) as mine:
        if mine and not is_settled(case, storage):
            try:
                if storage.result(case) is None:  # else killed before its page
                    _run(case, storage, backend)
                build_report(storage.run_folder(case))
            except EmuError as error:
                storage.fail(case, str(error))
            except Exception as error:  # shown with the run; the others go on
                last = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{Path(last.filename).name}, line {last.lineno}"
                storage.fail(case, f"{type(error).__name__}: {error} (in {place})")
        return mine


def _run(case: Case, storage: Storage, backend: str) -> None:
    folder = storage.run_folder(case)
    if (folder / RUN).is_file() and RunFolder(folder).has_checkpoint:
        training.resume(folder, backend=backend)
        return
    storage.clear(case)
    training.train(case.recipe, case.machine, out=folder, backend=backend)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    os._exit(1)


def main(arguments: list[str]) -> None:
    """Watch the parent, and work."""
    study_file, folder, opener, backend, parent, *only = arguments
    threading.Thread(target=_end_with, args=(int(parent),), daemon=True).start()
    work(Path(study_file), open_storage(Path(folder), opener), backend, only)


if __name__ == "__main__":
    main(sys.argv[1:])
