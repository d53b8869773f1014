"""What can be watched: one entry for each kind of folder.

    kind      known by        page made of
    run       run.json        the tables of the run
    study     study.json      finished runs, failures
    search    search.json     trials.json

An entry says which files its page follows from, how the page is made without writing anything, and what runs.
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
from emu.training.folders.run_folder import RUN, RunFolder
from emu.training.folders.study_folder import FAILURES, RUNS, StudyFolder
from emu.training.study import STUDY, Study
from emu.watch.state import State, state_of_run, state_of_search, state_of_study


@dataclass(frozen=True)
class Kind:
    """A kind of folder.

    Attributes:
        name: what it is called.
        marker: the file that it is known by.
        sources: patterns of the files that its page follows from.
        page: returns its page, and writes nothing.
        state: returns what runs in it, and how far it is.
        has_runs: whether folders of runs lie in it.
    """

    name: str
    marker: str
    sources: tuple[str, ...]
    page: Callable[[Path], str]
    state: Callable[[Path], State]
    has_runs: bool = False

    def version(self, folder: Path) -> str:
        """Return a text that changes when a file changes that the page follows from."""
        files = sorted(path for pattern in self.sources for path in folder.glob(pattern))
        return f"{hash(tuple(_stamps(files))):x}"


def _stamps(files: Iterable[Path]) -> Iterable[tuple[str, int, int]]:
    for path in files:
        try:
            found = path.stat()
        except OSError:  # replaced meanwhile
            continue
        yield path.as_posix(), found.st_mtime_ns, found.st_size


def _run(folder: Path) -> str:
    return run_page(folder, whole=True)


def _study(folder: Path) -> str:
    study = checked(Study, RunFolder(folder).read_json(STUDY), file=str(folder / STUDY))
    return study_page(study, StudyFolder(folder, make=False))


def _search(folder: Path) -> str:
    return search_page(read_search(folder))


RUN_KIND = Kind("run", RUN, (RUN, "*.parquet", "trace.json"), _run, state_of_run)
#: The kinds, those first whose folders hold others.
KINDS = (
    Kind("search", SEARCH, (SEARCH, TRIALS, "devices/*"), _search, state_of_search, has_runs=True),
    Kind("study", STUDY, (STUDY, f"{RUNS}/*/{RUN}", f"{FAILURES}/*.json"), _study, state_of_study, has_runs=True),
    RUN_KIND,
)


def kind_of(folder: Path) -> Kind:
    """Return the kind of a folder.

    Raises:
        ConfigError: it is none of them.
    """
    for kind in KINDS:
        if (folder / kind.marker).is_file():
            return kind
    known = ", ".join(f"{kind.marker} ({kind.name})" for kind in KINDS)
    raise ConfigError(
        f"a folder to watch must hold one of {known}, got {str(folder)!r} with none of them; name the folder of a run, "
        "a study or a search, once it has begun"
    )
