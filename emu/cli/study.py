"""The command `emu study`: train the runs that are not finished, show a progress bar, build the report."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from emu._config import checked
from emu._interrupt import Interrupted
from emu.errors import ConfigError
from emu.jobs import Runs, open_engine
from emu.jobs.bars import RunsBar
from emu.jobs.engine import LOCAL, processors
from emu.jobs.sending import Sending
from emu.report.build import FILE_NAME
from emu.report.study import build_study_report
from emu.training.folders.claim import Claim, held_in
from emu.training.folders.run_folder import RunFolder
from emu.training.folders.study_folder import ATTEMPTS, CLAIMS, StudyFolder, kept_in
from emu.training.study import STUDY, Case, Study, chosen, load_study

STUDIES = Path("studies")


@dataclass(frozen=True)
class StudyOptions:
    """How a study is run. These options do not change its report.

    Attributes:
        on: name of the engine; see `open_engine`.
        workers: processes of this machine; None for one per processor.
        backend: backend of all runs.
        only: patterns of the runs to train; empty for all of them.
        retry_failed: whether runs that failed are tried again.
        cache: whether runs are taken from the cache of runs, and kept there.
        store: address of an object store to which workers bring their runs; None if they see the study's folder.
    """

    on: str = LOCAL
    workers: int | None = None
    backend: str = "auto"
    only: Sequence[str] = ()
    retry_failed: bool = False
    cache: bool = True
    store: str | None = None


def run_study(study_file: Path, out: Path | None = None, options: StudyOptions | None = None) -> Path:
    """Train the runs of a study that are not finished, and build its report; return the report's path.

    Raises:
        ConfigError: the study or an option breaks a rule, a pattern matches no run, the folder has a run that is not
            the study's (it is left unchanged), or the engine cannot be reached.
        Interrupted: Ctrl-C; it names what is kept.
    """
    options = options or StudyOptions()
    if options.workers is not None and options.workers < 1:
        raise ConfigError(f"--workers must be at least 1, got {options.workers}; leave it out to use every processor")
    study = load_study(study_file)
    all_cases = list(study.cases())
    cases = chosen(all_cases, options.only)
    home = StudyFolder((out or STUDIES / study.name).resolve())
    try:
        # All of them, not only those chosen: the report reads every run of the folder.
        for case in all_cases:
            home.require_own(case)
        # Before the first run: `emu report` and `emu watch` know a study by this file.
        RunFolder(home.path).write_json(STUDY, study.model_dump(mode="json"))
        for case in cases:
            if options.retry_failed and home.failure(case) is not None:
                home.forget_failure(case)
                if home.result(case) is None:
                    home.clear(case)  # a damaged checkpoint may be the cause
        left = [case for case in cases if not is_settled(case, home)]
        if left:
            _Remainder(home, cases, left, options).run()
        report = build_study_report(study, home)
    except KeyboardInterrupt:
        ended = sum(is_settled(case, home) for case in cases)
        # The command that goes on must not have --retry-failed: it would try the failures of this call once more.
        raise Interrupted(kept_in(home, ended, len(cases), "runs"), dropped=("--retry-failed",)) from None
    print(f"report  {report}\ntable   {report.with_suffix('.md')}")
    return report


def is_settled(case: Case, home: StudyFolder) -> bool:
    """Return whether a run is finished and has its page, or has failed."""
    # A run whose page is missing is not settled: its job builds the page and trains nothing.
    has_page = home.result(case) is not None and (home.run_folder(case) / FILE_NAME).is_file()
    return has_page or home.failure(case) is not None


class _Remainder:
    """The runs of a study that are not settled, trained on an engine.

    Args:
        home: the study's folder.
        cases: all runs that were chosen.
        left: those of them that are not settled.
        options: how they are run.
    """

    def __init__(self, home: StudyFolder, cases: Sequence[Case], left: Sequence[Case], options: StudyOptions) -> None:
        self.home, self.cases, self.options = home, cases, options
        self.left = {case.key: case for case in left}
        self.settled = len(cases) - len(left)
        self.sending = Sending(home, options.backend, options.cache, options.store)

    def run(self) -> None:
        """Train until all runs are finished or have failed."""
        on, workers = self.options.on, self.options.workers
        if on == LOCAL:
            # A process without a run would only cost its start.
            workers = min(workers or processors(), len(self.left))
        bar = RunsBar("runs", len(self.cases), self.home.path / ATTEMPTS)
        with self.sending, Runs(open_engine(on, workers)) as runs, bar:
            for case in self.left.values():
                runs.submit(self.sending.job(case))
            while runs.running():
                for run in runs.ended():
                    # Taken out of `left`: what remains are runs that have not ended.
                    bar.say(self._settle(self.left.pop(run.key), run.failure))
                bar.update(self.settled, held_in(self.home.path / CLAIMS))
        self._tidy()

    def _settle(self, case: Case, failure: str | None) -> str:
        """Record how a run ended; return a line about it."""
        self.settled += 1
        arrived = self.sending.arrived(case, failure)
        if isinstance(arrived, str):
            self.home.fail(case, arrived)
            outcome = f"failed: {arrived}"
        else:
            outcome = f"{arrived['metrics']['test_accuracy']:.2%}"
        return f"{self.settled}/{len(self.cases)}  {case.key}: {outcome}"

    def _tidy(self) -> None:
        """Remove attempts that ended processes have left."""
        for case in self.cases:
            attempts = self.home.attempt(case)
            if attempts.is_dir() and self.home.result(case) is not None:
                # Another `emu study` on the same folder may be training this run; its files are left alone.
                with Claim(self.home.path / CLAIMS, case.key).hold() as is_ours:
                    if is_ours:
                        shutil.rmtree(attempts, ignore_errors=True)
        if (folder := self.home.path / ATTEMPTS).is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def rebuild_study_report(folder: Path) -> Path:
    """Build the report of a study's folder again; return its path.

    Raises:
        ConfigError: the folder is not that of a study, or is damaged.
    """
    study = checked(Study, RunFolder(folder).read_json(STUDY), file=str(folder / STUDY))
    return build_study_report(study, StudyFolder(folder))
