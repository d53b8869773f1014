"""What `emu study` does: workers on what is left, a bar meanwhile, one report at the end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from emu._config import checked
from emu.cli.study_worker import is_settled
from emu.errors import ConfigError
from emu.report.study import build_study_report
from emu.training.run_folder import RunFolder
from emu.training.study import Case, Study, chosen, load_study
from emu.training.study_storage import FOLDER_STORAGE, Storage, open_storage, process_name

STUDIES = Path("studies")
#: What a study's folder says of itself.
STUDY = "study.json"
#: Seconds between two looks at what is done.
LOOK_SECONDS = 0.3
#: How often a run may take its process with it before it counts as failed; how often workers may end outside a run.
MOST_ENDS, MOST_STRAYS = 2, 3


def run_study(
    study_file: Path,
    out: Path | None,
    workers: int | None,
    backend: str,
    *,
    retry_failed: bool,
    only: Sequence[str] = (),
    opener: str = FOLDER_STORAGE,
) -> Path:
    """Run what is left of a study, or of the runs that match a pattern, and build its report; return the report's path.

    Raises:
        ConfigError: the study breaks a rule, `workers` is below 1, a pattern matches no run, or the folder holds a run
            that is not the study's, and then stays as it is.
    """
    if workers is not None and workers < 1:
        raise ConfigError(f"--workers must be at least 1, got {workers}; leave it out to use every processor")
    study = load_study(study_file)
    cases = chosen(study.cases(), only)
    storage = open_storage(out or STUDIES / study.name, opener)
    for case in study.cases():
        storage.result(case)  # refuses a run that is not the study's
    RunFolder(storage.path).write_json(STUDY, study.model_dump(mode="json"))
    for case in cases:
        if retry_failed and storage.failure(case) is not None:
            storage.forget_failure(case)
            if storage.result(case) is None:
                storage.clear(case)  # its checkpoint may be what failed
    left = [case for case in cases if not is_settled(case, storage)]
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = min(workers or processors, len(left))
    if count:
        of_study = [str(study_file), str(storage.path), opener, backend, str(os.getpid()), *only]
        _Crew(of_study, storage, cases, count, max(processors // count, 1)).work()
    report = build_study_report(study, storage)
    print(f"report  {report}\ntable   {report.with_suffix('.md')}")
    return report


class _Crew:
    """Processes that share the runs of a study."""

    def __init__(
        self, of_study: Sequence[str], storage: Storage, cases: Sequence[Case], count: int, threads: int
    ) -> None:
        self.storage, self.cases, self.count = storage, cases, count
        self.command = [sys.executable, "-m", "emu.cli.study_worker", *of_study]
        self.environment = {**os.environ, "EMU_THREADS": os.environ.get("EMU_THREADS", str(threads))}
        self.ends: dict[str, int] = {}
        self.strays = 0
        self.logs: dict[int, Path] = {}
        self.folder = ""
        self.settled: dict[str, str] = {}

    def work(self) -> None:
        """Keep the workers going until every run is finished or failed."""
        for case in self.cases:  # what processes left that are no more
            if self.storage.held_by(case):
                with self.storage.claimed(case):
                    pass
        console = Console(stderr=True)
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        shown = Progress(*columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal)
        with TemporaryDirectory(prefix="emu-study-") as self.folder, shown as bar:
            task = bar.add_task("runs", total=len(self.cases))
            processes = [self._start() for _ in range(self.count)]
            try:
                while processes:
                    for line in self._news():
                        bar.console.print(line, highlight=False, markup=False, soft_wrap=True)
                    bar.update(task, completed=len(self.settled), description=self._running())
                    processes = [there for process in processes if (there := self._kept_up(process))]
                    time.sleep(LOOK_SECONDS)
                for line in self._news():
                    bar.console.print(line, highlight=False, markup=False, soft_wrap=True)
            finally:
                for process in processes:
                    process.terminate()
                for process in processes:
                    process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        log = Path(self.folder) / f"{len(self.logs)}.log"
        with log.open("wb") as errors:  # a pipe would fill up
            process = subprocess.Popen(self.command, env=self.environment, stderr=errors)
        self.logs[process.pid] = log
        return process

    def _kept_up(self, process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes] | None:
        """Return a process, the one that takes its place where it broke off, or None where its work is done."""
        match process.poll():
            case None:
                return process
            case 0:
                return None
            case _:
                self._mend(process)
                return self._start()

    def _mend(self, process: subprocess.Popen[bytes]) -> None:
        """Count an end in the middle of a run, or outside one."""
        held = [case for case in self.cases if self.storage.held_by(case) == process_name(process.pid)]
        said = self.logs[process.pid].read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        self.strays += not held
        if self.strays > MOST_STRAYS:
            raise ConfigError(
                f"workers of the study must stay, got {self.strays} that ended outside a run, the last with exit code "
                f"{process.returncode}: {' '.join(said)}; what is finished stays, start the study again"
            )
        for case in held:
            self.ends[case.key] = self.ends.get(case.key, 0) + 1
            if self.ends[case.key] >= MOST_ENDS:
                how = f"signal {-process.returncode}" if process.returncode < 0 else f"exit code {process.returncode}"
                self.storage.fail(
                    case, f"its process ended {MOST_ENDS} times, with {how}: {' '.join(said)}".rstrip(": ")
                )

    def _news(self) -> list[str]:
        """Return a line per run that is settled since the last look."""
        lines: list[str] = []
        for case in self.cases:
            if case.key in self.settled or not is_settled(case, self.storage):
                continue
            reason, info = self.storage.failure(case), self.storage.result(case)
            if reason is not None or info is None:
                self.settled[case.key] = f"failed: {reason}"
            else:
                self.settled[case.key] = f"{info['metrics']['test_accuracy']:.2%}"
            lines.append(f"{len(self.settled)}/{len(self.cases)}  {case.key}: {self.settled[case.key]}")
        return lines

    def _running(self) -> str:
        held = [case.key for case in self.cases if case.key not in self.settled and self.storage.held_by(case)]
        return ", ".join(held) or "runs"


def rebuild_study_report(folder: Path, opener: str = FOLDER_STORAGE) -> Path:
    """Build the report of a study's folder again; return its path."""
    study = checked(Study, RunFolder(folder).read_json(STUDY), file=str(folder / STUDY))
    return build_study_report(study, open_storage(folder, opener))
