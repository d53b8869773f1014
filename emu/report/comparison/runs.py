"""The runs of a comparison, with names that tell them apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from emu.errors import ConfigError
from emu.report.chart import SERIES_COLOURS
from emu.report.evidence import Evidence, gather
from emu.report.search.trials import SEARCH
from emu.training.folders.run_folder import RUN, runs_in
from emu.training.folders.study_folder import RUNS
from emu.training.study import STUDY

#: Most runs of a comparison: each has a colour of its own in the curves.
MOST_RUNS = len(SERIES_COLOURS)
#: Files that identify the folder of something that has runs, and what that is called.
_HAS_RUNS = {STUDY: "a study", SEARCH: "a search"}


@dataclass(frozen=True)
class Compared:
    """A run of a comparison.

    Attributes:
        name: the end of its folder's path, long enough to differ from the names of the other runs.
        folder: its folder.
        evidence: its data.
    """

    name: str
    folder: Path
    evidence: Evidence


def read_compared(folders: Sequence[Path]) -> list[Compared]:
    """Return the runs in folders, in the order given.

    Raises:
        ConfigError: there are fewer than two or too many, two are the same, one is no run, or it cannot be read.
    """
    if len(folders) < 2:
        given = f"only {str(folders[0])!r}" if folders else "none"
        raise ConfigError(f"a comparison must have at least two runs, got {given}; name the folder of another run")
    if len(folders) > MOST_RUNS:
        raise ConfigError(
            f"a comparison must have at most {MOST_RUNS} runs, so that their lines can be told apart, got "
            f"{len(folders)}; leave some out, or train them as a study, which compares any number"
        )
    # Resolved: two ways to write one folder are the same run.
    paths = [folder.resolve() for folder in folders]
    for i, path in enumerate(paths):
        if path in paths[:i]:
            raise ConfigError(
                f"the runs of a comparison must be different folders, got {str(folders[i])!r} twice; name each run once"
            )
        _require_run(folders[i])
    names = _names(paths)
    return [Compared(name, path, gather(path)) for name, path in zip(names, paths, strict=True)]


def _require_run(folder: Path) -> None:
    """Raise ConfigError if a folder holds runs instead of being one; `gather` refuses all others."""
    if (folder / RUN).is_file():
        return
    kind = next((kind for marker, kind in _HAS_RUNS.items() if (folder / marker).is_file()), "")
    home = folder / RUNS if kind else folder
    inside = runs_in(home)
    if kind or inside:
        example = f", e.g. {inside[0]}" if inside else f": the folders in {home}"
        what = kind or "a folder of runs"
        raise ConfigError(
            f"a run to compare must be a folder with {RUN}, got {str(folder)!r}, which is {what}; name runs in "
            f"it{example}"
        )


def _names(paths: Sequence[Path]) -> list[str]:
    """Return the shortest ends of paths that differ from each other."""
    # One part of the path is enough unless two folders have the same name.
    for parts in range(1, max(len(path.parts) for path in paths)):
        names = ["/".join(path.parts[-parts:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]
