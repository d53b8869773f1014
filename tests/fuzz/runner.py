"""One case: a changed file, a command in a forked child under limits, and the judgement of how it ended.

parent: emu imported, kernels warm ──fork──► child: limits, `emu ...` ──► exit code, stdout, stderr, folder
"""

from __future__ import annotations

import hashlib
import importlib
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .mutations import Mutator
from .targets import Target

#: What a child may take beyond what its parent holds.
ROOM_BYTES = 1 << 30
#: Seconds after which a case counts as endless.
MOST_SECONDS = 30.0
#: Characters of a message that people still read.
MOST_MESSAGE = 1000
#: Exit code of bad input.
REFUSED = 2
#: What only programs print.
_RAW = (
    "Traceback (most recent call last)",
    "Warning:",
    "Exception ignored",
    "MemoryError",
    "RecursionError",
    "<class '",
)


@dataclass(frozen=True)
class Ending:
    """How a command ended.

    Attributes:
        code: exit code; negative where a signal ended it; None where it had to be killed.
        out: standard output.
        err: standard error.
        left: what is in the folder that was not there, is no more, or differs.
        seconds: how long it took.
    """

    code: int | None
    out: str
    err: str
    left: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class Case:
    """A target and the seed of its mutation."""

    target: Target
    seed: str

    def __str__(self) -> str:
        return f"{self.target.name}, seed {self.seed}"


def judged(ending: Ending, codes: Sequence[int]) -> str:
    """What is wrong with an ending, "" if nothing is."""
    if ending.code is None:
        return f"still running after {MOST_SECONDS:.0f} s"
    if ending.code not in codes:
        return f"exit code {ending.code}"
    for raw in _RAW:
        if raw in ending.err or raw in ending.out:
            return f"{raw!r} was printed"
    if ending.code == REFUSED:
        lines = [line for line in ending.err.splitlines() if line.startswith("emu: ") and "warning:" not in line]
        if len(lines) != 1:
            return f"{len(lines)} messages"
        if len(lines[0]) > MOST_MESSAGE:
            return f"a message of {len(lines[0])} characters"
        if ending.left:
            return "left behind: " + ", ".join(ending.left[:5])
    parts = [name for name in ending.left if name.endswith(".emu-tmp")]
    return f"left behind: {parts[0]}" if parts else ""


def snapshot(folder: Path) -> dict[str, str]:
    """Names and digests of what a folder holds."""
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        found[path.relative_to(folder).as_posix()] = content
    return found


def run_in_child(work: Callable[[], int], folder: Path, most_seconds: float = MOST_SECONDS) -> Ending:
    """Run `work` in a forked child whose working folder is `folder`; it returns an exit code."""
    before = snapshot(folder)
    streams = [folder.with_name(f"{folder.name}.{name}") for name in ("out", "err")]
    started = time.monotonic()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _be_the_child(work, folder, streams)
    code: int | None = None
    while time.monotonic() - started < most_seconds:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            break
        time.sleep(0.002)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    seconds = time.monotonic() - started
    out, err = (path.read_text(encoding="utf-8", errors="replace") for path in streams)
    after = snapshot(folder)
    left = tuple(sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)))
    return Ending(code, out, err, left, seconds)


def _be_the_child(work: Callable[[], int], folder: Path, streams: Sequence[Path]) -> None:
    code = 70
    try:
        os.setsid()
        os.chdir(folder)
        for number, path in zip((1, 2), streams, strict=True):
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(handle, number)
        used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (used + ROOM_BYTES, used + ROOM_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        code = work()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        code = 1
    finally:
        os._exit(code)


def emu_command(arguments: Sequence[str]) -> Callable[[], int]:
    """The command line as its entry point runs it, without the script of the report's pictures."""

    def work() -> int:
        from emu import cli
        from emu.report import page

        page.drawing_library = lambda: ""  # a megabyte of JavaScript, bundled by an engine that starts threads
        sys.argv = ["emu", *arguments]
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", closefd=False)
        try:
            cli.main()
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
        return 0

    return work


class Range:
    """Runs cases in folders below `work`; sound files are built once a target.

    Attributes:
        work: where folders are made.
    """

    def __init__(self, work: Path) -> None:
        for name in ("altair", "emu.cli.listings", "emu.cli.study", "emu.cli.vectors", "emu.cli.runs"):
            importlib.import_module(name)  # once, for all children
        self.work = work
        self._built: dict[tuple[object, ...], Path] = {}

    def sound(self, target: Target) -> Path:
        """The target's files as they should be."""
        key = (target.build, target.name if "<lambda>" in repr(target.build) else "")
        if key not in self._built:
            folder = self.work / f"sound-{len(self._built)}"
            folder.mkdir(parents=True)
            target.build(folder)
            self._built[key] = folder
        return self._built[key]

    def changed(self, case: Case, folder: Path) -> None:
        """Make the case's folder: the sound files, one of them changed."""
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.sound(case.target), folder)
        mutator, file = Mutator(f"{case.target.name}/{case.seed}"), folder / case.target.file
        kind = mutator.random.random()
        if kind < 0.01:
            file.unlink()
        elif kind < 0.02:
            file.unlink()
            file.mkdir()
        else:
            file.write_bytes(case.target.mutate(mutator, file.read_bytes()))

    def run(self, case: Case) -> tuple[Ending, str]:
        """How the case ended, and what is wrong with that."""
        folder = self.work / "case"
        self.changed(case, folder)
        ending = run_in_child(emu_command(case.target.arguments), folder)
        return ending, judged(ending, case.target.codes)
