"""The kinds of folders that can be watched.

    kind      identified by   page made of
    run       run.json        the tables of the run
    study     study.json      finished runs, failures
    search    search.json     trials.json
    folder    */run.json      the list of its runs

A kind has the files that its page depends on, a function that makes the page and writes nothing, and one for the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from emu._config import checked
from emu.errors import ConfigError
from emu.report.build import FILE_NAME, run_page
from emu.report.comparison import comparison_page, read_compared
from emu.report.run_list import list_page
from emu.report.search import read_search, search_page
from emu.report.search.trials import SEARCH, TRIALS
from emu.report.study.page import study_page
from emu.training.folders.claim import CLAIM_FILES
from emu.training.folders.progress import METRICS
from emu.training.folders.run_folder import RUN, RunFolder, is_unfinished, runs_in
from emu.training.folders.status import is_trained
from emu.training.folders.study_folder import ATTEMPTS, CLAIMS, FAILURES, RUNS, StudyFolder
from emu.training.study import STUDY, Study
from emu.watch.state import (
    State,
    state_of_comparison,
    state_of_run,
    state_of_runs,
    state_of_search,
    state_of_study,
)


class View(NamedTuple):
    """A page that is served.

    Attributes:
        version: returns a text that changes when the page would.
        state: returns what runs, and its progress.
        page: makes the page, and writes nothing.
    """

    version: Callable[[], str]
    state: Callable[[], State]
    page: Callable[[], str]


@dataclass(frozen=True)
class Kind:
    """A kind of folder.

    Attributes:
        name: name of the kind.
        marker: pattern of a file that identifies it.
        sources: patterns of the files that its page depends on.
        page: returns its page, and writes nothing.
        state: returns what runs in it, and its progress.
        runs_in: folders in it that contain folders of runs, which have pages of their own.
        trained_in: returns the folders of which the page says whether a process trains in them.
    """

    name: str
    marker: str
    sources: tuple[str, ...]
    page: Callable[[Path], str]
    state: Callable[[Path], State]
    runs_in: tuple[str, ...] = ()
    trained_in: Callable[[Path], Sequence[Path]] = lambda folder: (folder,)

    def view(self, folder: Path) -> View:
        """Return the page of a folder, with its version and its state."""
        return View(partial(self.version, folder), partial(self.state, folder), partial(self.page, folder))

    def version(self, folder: Path) -> str:
        """Return a text that changes if a file changes on which the page depends, or a run's process dies."""
        # names as well as stamps: a file that appears or goes changes the version
        files = sorted(path for pattern in self.sources for path in folder.glob(pattern))
        trained = [is_trained(each) for each in self.trained_in(folder)]
        # hashes of texts differ from process to process: versions are compared within one server
        return f"{hash((*trained, *_stamps(files))):x}"


def _stamps(files: Iterable[Path]) -> Iterable[tuple[str, int, int]]:
    for path in files:
        try:
            status = path.stat()
        except OSError:  # it was replaced at this moment
            continue
        yield path.as_posix(), status.st_mtime_ns, status.st_size


def _run(folder: Path) -> str:
    return run_page(folder, refuse_damaged=True)


def _study(folder: Path) -> str:
    study = checked(Study, RunFolder(folder).read_json(STUDY), file=str(folder / STUDY))
    # a reader makes no folders
    return study_page(study, StudyFolder(folder, make=False))


def _search(folder: Path) -> str:
    return search_page(read_search(folder))


RUN_KIND = Kind("run", RUN, (RUN, "*.parquet", "trace.json"), _run, state_of_run)
#: All kinds; those that contain other folders come first.
KINDS = (
    Kind("search", SEARCH, (SEARCH, TRIALS, "devices/*"), _search, state_of_search, runs_in=(RUNS, ATTEMPTS)),
    Kind(
        "study",
        STUDY,
        (STUDY, f"{RUNS}/*/{RUN}", f"{FAILURES}/*.json"),
        _study,
        state_of_study,
        runs_in=(RUNS, ATTEMPTS),
    ),
    RUN_KIND,
    Kind(
        "folder",
        f"*/{RUN}",
        (f"*/{RUN}", f"*/{METRICS}"),
        list_page,
        state_of_runs,
        runs_in=("",),
        trained_in=runs_in,
    ),
)


def comparison_view(runs: Sequence[Path]) -> View:
    """Return the page that compares runs; its links lead to the pages of the runs."""

    def made() -> str:
        compared = read_compared(runs)
        for run in (each.evidence.run for each in compared):
            if run.damaged:  # while it is copied, the last good page is better
                raise ConfigError(run.missing[run.damaged[0]])
        return comparison_page(compared, lambda run: f"/{RUNS}/{quote(run.folder.name)}/{FILE_NAME}")

    def version() -> str:
        return "-".join(RUN_KIND.version(run) for run in runs)

    return View(version, partial(state_of_comparison, runs), made)


def kind_of(folder: Path) -> Kind | None:
    """Return the kind of a folder; None if nothing has begun in it: it is missing, or has no files but claims.

    Raises:
        ConfigError: it is of no known kind.
    """
    for kind in KINDS:
        # a study has runs in folders as well, so its marker is looked for before that of a folder of runs
        if any(folder.glob(kind.marker)):
            return kind
    if not folder.exists() or (folder.is_dir() and not any(map(_is_foreign, folder.iterdir()))):
        return None
    known = ", ".join(f"{kind.marker} ({kind.name})" for kind in KINDS)
    raise ConfigError(
        f"a folder to watch must hold one of {known}, or nothing yet, got {str(folder)!r} with none of them; name the "
        "folder of a run, a study, a search or of several runs"
    )


def _is_foreign(path: Path) -> bool:
    """Return whether a file or folder is none of those that are made before the file that identifies a kind."""
    return not is_unfinished(path) and path.name not in (*CLAIM_FILES, RUNS, ATTEMPTS, FAILURES, CLAIMS)
