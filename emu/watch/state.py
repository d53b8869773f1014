"""What runs in a folder, and its progress: read from its files, which may be half written."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from emu.report.run_data import tables_of
from emu.report.run_list import listed_runs, summary_of
from emu.report.search.trials import REPEATED, SEARCH, TRIALS
from emu.report.words import integer, seconds
from emu.training.folders.claim import held_in
from emu.training.folders.progress import progress_of, read_object
from emu.training.folders.run_folder import RUN
from emu.training.folders.status import FINISHED, STOPPED, is_trained, with_status
from emu.training.folders.study_folder import ATTEMPTS, CLAIMS, FAILURES, RUNS
from emu.training.study import STUDY

#: Seconds without a change after which the page mentions it.
QUIET_S = 60.0
#: Most runs that are named.
_NAMED = 4


@dataclass(frozen=True)
class State:
    """What runs, and its progress.

    Attributes:
        says: one sentence.
        share: share that is done, 0..1; None if it is not known.
        has_ended: whether nothing will change any more.
    """

    says: str
    share: float | None
    has_ended: bool


def state_of_run(folder: Path) -> State:
    """Return the progress of a run."""
    # before run.json is read: a run may end in between
    has_process = is_trained(folder)
    info = with_status(read_object(folder / RUN), has_process)
    started, ended = _clock(info.get("started")), _clock(info.get("ended"))
    if info.get("status") == FINISHED:
        return State(f"Ended{f' {ended}' if ended else ''}.", 1.0, True)
    progress = progress_of(folder, info)
    of, done = f" of {integer(progress.planned)}" if progress.planned else "", progress.done
    if info.get("status") == STOPPED:
        because = info.get("stopped_because")
        says = f"Stopped at step {integer(done)}{of}{f', because {because}' if because else ''}"
        command = f"emu train --resume {shlex.quote(str(folder))}"
        return State(f"{says}. Continue it with {command}.", progress.share, False)
    says = f"Training since {started}: " if started else "Training: "
    says += f"step {integer(done)}{of}"
    if progress.left_s is not None:
        says += f", about {seconds(progress.left_s)} left"
    return State(f"{says}.", progress.share, False)


def state_of_study(folder: Path) -> State:
    """Return the progress of a study."""
    # as `Study.cases` counts them; the file has every key, defaults included
    planned = sum(
        math.prod(len(_listed(grid.get(axis))) for axis in ("models", "devices", "seeds", "settings"))
        for grid in tables_of(read_object(folder / STUDY).get("grid"))
    )
    # a run appears in `runs` only when it is finished
    finished = len(list((folder / RUNS).glob(f"*/{RUN}")))
    failed = len(list((folder / FAILURES).glob("*.json")))
    return _many(folder, "runs", planned, finished + failed, failed)


def state_of_search(folder: Path) -> State:
    """Return the progress of a search."""
    trials = read_object(folder / SEARCH).get("trials")
    planned = trials if isinstance(trials, int) else 0
    states = [str(trial.get("state")) for trial in tables_of(read_object(folder / TRIALS).get("trials"))]
    failed = states.count("failed")
    # a trial that repeats the values of an earlier trial has ended as well
    ended = sum(state in ("finished", REPEATED, "failed") for state in states)
    return _many(folder, "trials", planned, ended, failed)


def state_of_runs(folder: Path) -> State:
    """Return the progress of a folder of runs: how many of them are trained, finished or stopped."""
    return State(summary_of([run.status for run in listed_runs(folder)]), None, False)


def state_of_comparison(runs: Sequence[Path]) -> State:
    """Return the progress of runs that are compared."""
    states = {run.name: state_of_run(run) for run in runs}
    going_on = [f"{name}: {state.says}" for name, state in states.items() if not state.has_ended]
    return State(" ".join(going_on) or "All compared runs have ended.", None, not going_on)


def _listed(value: object) -> list[Any]:
    """Return a JSON array as a list; an empty one if a damaged file has something else."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def _many(folder: Path, what: str, planned: int, ended: int, failed: int) -> State:
    says = f"{ended} of {planned} {what} have ended"
    says += f", {failed} of them failed" if failed else ""
    # a planned number of 0 is not known, not reached
    if planned and ended >= planned:
        return State(f"{says}.", 1.0, True)
    running = held_in(folder / CLAIMS)
    if running:
        more = f" and {len(running) - _NAMED} more" if len(running) > _NAMED else ""
        says += f". Training now: {', '.join(running[:_NAMED])}{more}"
    # holders count while they work, so their files change every few seconds
    quiet = _quiet(folder, (f"{CLAIMS}/*.process", f"{RUNS}/*", f"{ATTEMPTS}/*/{RUN}"))
    return State(f"{says}.{quiet}", ended / planned if planned else None, False)


def _quiet(folder: Path, patterns: tuple[str, ...]) -> str:
    """Return a sentence about the time since the last change, if that is long ago; else an empty text."""
    newest = 0.0
    for path in (path for pattern in patterns for path in folder.glob(pattern)):
        try:
            newest = max(newest, path.stat().st_mtime)
        except OSError:
            continue
    silent = time.time() - newest
    if not newest or silent < QUIET_S:
        return ""
    return f" Nothing was written for {seconds(silent)}: it may have been interrupted."


def _clock(text: object) -> str:
    """Return a time of day on this computer, with the date if it is not today's."""
    try:
        then = datetime.fromisoformat(str(text))
    except ValueError:
        return ""
    # a time without a zone counts as UTC
    here = (then if then.tzinfo else then.replace(tzinfo=UTC)).astimezone()
    return here.strftime("%H:%M" if here.date() == datetime.now(UTC).astimezone().date() else "%Y-%m-%d %H:%M")
