"""What a worker does with a job: take the run from the cache, or train it, and put it into the job's folder.

    attempt in a folder of its own ──► page ──► cache ──► published atomically

No other process writes into the folder of an attempt. So a process that hangs, and continues after another one has done
its work, changes nothing: the first run of a name is kept.
"""

from __future__ import annotations

import shutil
import traceback
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from emu import _paths
from emu.errors import ConfigError, EmuError
from emu.jobs.cache import RunCache, address_of
from emu.jobs.job import Job
from emu.jobs.store import is_address, open_store
from emu.report.build import FILE_NAME, build_report
from emu.training.folders.claim import Claim, training_alone
from emu.training.folders.run_folder import CHECKPOINT, RUN, RunFolder
from emu.training.folders.study_folder import ATTEMPTS, CLAIMS, failure_in
from emu.training.loop import Loop
from emu.training.loop.begin import begin, go_on
from emu.training.workbench import Workbench
from emu.training.workbench.ranks import Ranks


def run_job(job: Job) -> str | None:
    """Produce the run's folder, even if another process is working on it. Return why that failed, or None."""
    return attempt(job.plain(), alone=True)["failure"]


def attempt(plain: dict[str, Any], alone: bool) -> dict[str, Any]:
    """Produce the run's folder, unless another process is working on it.

    Args:
        plain: the job as plain data.
        alone: whether to train it even if another process holds it, because that process hangs.

    Returns:
        Plain data: `failure`, why it failed, or None; and `holder`, the process that works on it, or an empty text.
    """
    job = Job(**plain)
    try:
        return {"failure": None, "holder": _finish(job, alone)}
    except EmuError as error:
        return {"failure": str(error), "holder": ""}
    except Exception as error:  # reported as the failure of this run, so that other runs continue
        # in words, because the exception itself does not travel to the submitter
        last = traceback.extract_tb(error.__traceback__)[-1]
        line = f"{Path(last.filename).name}, line {last.lineno}"
        return {"failure": f"{type(error).__name__}: {error} (in {line})", "holder": ""}


def _finish(job: Job, alone: bool) -> str:
    """Produce the run's folder, unless another process holds it; return that holder, or an empty text."""
    # other code may train other bits, and would put them under this run's name
    if job.sources not in ("", _paths.sources_sha256()):
        raise ConfigError(
            "a worker must have the emu of who sends it runs, got other code; install the same version there"
        )
    store, _, name = job.folder.rpartition("/")
    if is_address(job.folder):
        if not open_store(store).exists(name):
            # a store has no attempts and no claims: two workers may train the same run, and either result is kept
            with TemporaryDirectory(prefix="emu-run-") as scratch:
                _publish(job, Path(scratch) / "run")
        return ""
    folder = Path(job.folder)
    # `claims` beside `runs`
    claim = Claim(folder.parent.parent / CLAIMS, folder.name)
    with claim.hold() as is_ours:
        if not is_ours and not alone:
            return claim.read() or "somebody"
        # asked under the claim: the process that had it may have failed in the meantime
        if failure := failure_in(folder.parent.parent, folder.name):
            raise ConfigError(failure)
        if is_finished(folder):
            if not (folder / FILE_NAME).is_file():  # an older version was killed before it wrote the page
                build_report(folder)
        else:
            with _scratch(folder, is_ours) as scratch:
                _publish(job, scratch)
    return ""


def is_finished(folder: Path) -> bool:
    """Return whether a folder holds a finished run."""
    return (folder / RUN).is_file() and RunFolder(folder).read_json().get("status") == "finished"


@contextmanager
def _scratch(folder: Path, is_ours: bool) -> Generator[Path, None, None]:
    """Yield the folder of an attempt, and remove it if the block succeeds.

    Args:
        folder: folder of the finished run.
        is_ours: whether this process holds the run; if not, it continues in a copy of the holder's attempt.
    """
    scratch = folder.parent.parent / ATTEMPTS / folder.name
    if is_ours:
        if (folder / RUN).is_file() and not scratch.is_dir():  # an older version trained in the run's own folder
            scratch.parent.mkdir(parents=True, exist_ok=True)
            folder.rename(scratch)
        yield scratch
        # not in a `finally`: an attempt that fails stays, and is resumed by the next
        shutil.rmtree(scratch, ignore_errors=True)
        return
    # the holder hangs, but may go on at any time: nothing is written into its folder
    own = scratch.with_name(f"{scratch.name}.{uuid.uuid4().hex[:12]}")
    try:
        _copy_attempt(scratch, own)
        yield own
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _copy_attempt(source: Path, target: Path) -> None:
    """Copy the state of another attempt.

    The checkpoint is copied before the tables: the attempt may go on during the copy, and tables must not be older than
    the checkpoint.
    """
    if not (source / CHECKPOINT).is_file():
        return
    target.mkdir(parents=True)
    for name in (CHECKPOINT, *(path.name for path in source.iterdir() if path.suffix in (".parquet", ".json"))):
        shutil.copy2(source / name, target / name)


def _publish(job: Job, scratch: Path) -> None:
    """Train in a folder, or take the run from the cache, and copy it to the job's folder."""
    store, _, name = job.folder.rpartition("/")
    # only a run that is trained here gets an address: a scratch that is finished needs no loop
    address, cache = None, RunCache(Path(job.cache)) if job.cache else None
    if not is_finished(scratch):
        recipe, device = job.setup()
        loop = Loop(Workbench.of(recipe, device, job.backend, ranks=Ranks.of(recipe.cluster)))
        # None also for a run that no cache may keep
        address = address_of(loop) if cache else None
        _train(loop, scratch, cache, address)
    try:
        if not (scratch / FILE_NAME).is_file():
            build_report(scratch)
        if cache and address:
            cache.publish(address, scratch)
    finally:
        open_store(store).publish(name, scratch)  # a finished run is published even if its page failed


def _train(loop: Loop, scratch: Path, cache: RunCache | None, address: str | None) -> None:
    # an earlier attempt of this run, which goes on from its checkpoint
    if (scratch / RUN).is_file():
        with training_alone(scratch):
            go_on(loop, RunFolder.open(scratch))
        return
    # what was left without a run.json has not begun
    shutil.rmtree(scratch, ignore_errors=True)
    if not (cache and address and cache.fetch(address, scratch)):
        begin(loop, scratch)
