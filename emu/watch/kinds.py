"""The kinds of folders that can be watched.

    kind      identified by   page made of
    run       run.json        the tables of the run
    study     study.json      finished runs, failures
    search    search.json     trials.json

A kind has the files that its page depends on, a function that makes the page and writes nothing, and one for the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from emu._config import checked
from emu.errors import ConfigError
from emu.report.build import run_page
from emu.report.search import read_search, search_page
from emu.report.search.trials import SEARCH, TRIALS
from emu.report.study.page import study_page
from emu.training.folders.claim import CLAIM_FILES
from emu.training.folders.run_folder import RUN, RunFolder
from emu.training.folders.status import is_trained
from emu.training.folders.study_folder import ATTEMPTS, CLAIMS, FAILURES, RUNS, StudyFolder
from emu.training.study import STUDY, Study
from emu.watch.state import State, state_of_run, state_of_search, state_of_study


@dataclass(frozen=True)
class Kind:
    """A kind of folder.

    Attributes:
        name: name of the kind.
        marker: file that identifies it.
        sources: patterns of the files that its page depends on.
        page: returns its page, and writes nothing.
        state: returns what runs in it, and its progress.
        has_runs: whether it contains folders of runs.
    """

    name: str
    marker: str
    sources: tuple[str, ...]
    page: Callable[[Path], str]
    state: Callable[[Path], State]
    has_runs: bool = False

    def version(self, folder: Path) -> str:
        """Return a text that changes if a file changes on which the page depends, or a run's process dies."""
        files = sorted(path for pattern in self.sources for path in folder.glob(pattern))
        return f"{hash((is_trained(folder), *_stamps(files))):x}"


def _stamps(files: Iterable[Path]) -> Iterable[tuple[str, int, int]]:
    for path in files:
        try:
            status = path.stat()
        except OSError:  # it was replaced at this moment
            continue
        yield path.as_posix(), status.st_mtime_ns, status.st_size


def _run(folder: Path) -> str:
    return run_page(folder, whole=True)


def _study(folder: Path) -> str:
    study = checked(Study, RunFolder(folder).read_json(STUDY), file=str(folder / STUDY))
    return study_page(study, StudyFolder(folder, make=False))


def _search(folder: Path) -> str:
    return search_page(read_search(folder))


RUN_KIND = Kind("run", RUN, (RUN, "*.parquet", "trace.json"), _run, state_of_run)
#: All kinds; those that contain other folders come first.
KINDS = (
    Kind("search", SEARCH, (SEARCH, TRIALS, "devices/*"), _search, state_of_search, has_runs=True),
    Kind("study", STUDY, (STUDY, f"{RUNS}/*/{RUN}", f"{FAILURES}/*.json"), _study, state_of_study, has_runs=True),
    RUN_KIND,
)


def kind_of(folder: Path) -> Kind | None:
    """Return the kind of a folder; None if nothing has begun in it: it is missing, or has no files but claims.

    Raises:
        ConfigError: it is of no known kind.
    """
    for kind in KINDS:
        if (folder / kind.marker).is_file():
            return kind
    if not folder.exists() or (folder.is_dir() and not any(map(_is_foreign, folder.iterdir()))):
        return None
    known = ", ".join(f"{kind.marker} ({kind.name})" for kind in KINDS)
    raise ConfigError(
        f"a folder to watch must hold one of {known}, or nothing yet, got {str(folder)!r} with none of them; name the "
        "folder of a run, a study or a search"
    )


def _is_foreign(path: Path) -> bool:
    """Return whether a file or folder is none of those that are made before the file that identifies a kind."""
    return path.name not in (*CLAIM_FILES, RUNS, ATTEMPTS, FAILURES, CLAIMS)
