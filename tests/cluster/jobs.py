"""Jobs of several processes under `mpirun`: started, waited for, and never left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

_MARK = "EMU_TEST_JOB"
_MPIRUN = shutil.which("mpirun", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")

needs_mpi = pytest.mark.skipif(
    find_spec("mpi4py") is None or _MPIRUN is None or not Path("/proc/self/environ").exists(),
    reason="needs mpi4py and mpirun (pip install -e '.[mpi]') on Linux",
)


class Ended(NamedTuple):
    """What a job left: exit code of mpirun, what all ranks wrote, processes that outlived it."""

    code: int
    output: str
    errors: str
    outlived: list[str]

    def of_emu(self) -> list[str]:
        """Return the lines that emu wrote to stderr."""
        return [line for line in self.errors.splitlines() if line.startswith("emu: ")]


def job(
    *programs: tuple[int, Sequence[str]], patience_s: float = 120.0, errors_in: Path | None = None, **environment: str
) -> Ended:
    """Run programs under one mpirun, each on so many ranks; kill whatever is left when patience ends, and behind it.

    Args:
        programs: number of ranks and arguments of Python.
        patience_s: seconds until everything is killed, and the test fails.
        errors_in: file that is stderr, as of `2> FILE`; a pipe if it is None.
        **environment: laid over the process's own.
    """
    assert _MPIRUN is not None
    mark = uuid.uuid4().hex
    words: list[str] = []
    for ranks, arguments in programs:
        words += [":"] * bool(words) + ["-n", str(ranks), sys.executable, *arguments]
    stderr = subprocess.PIPE if errors_in is None else errors_in.open("w")
    process = subprocess.Popen(
        [_MPIRUN, *words],
        env=os.environ | {_MARK: mark, "OMP_NUM_THREADS": "1"} | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=patience_s)
    except subprocess.TimeoutExpired:
        _kill_all(mark)
        output, errors = process.communicate()
        pytest.fail(f"the job must end by itself, and did not within {patience_s} s\n{output}\n{errors}")
    finally:
        outlived = _outlived(mark)
        if not isinstance(stderr, int):
            stderr.close()
    return Ended(process.returncode, output, errors or "", outlived)


def emu_on(ranks: int, *arguments: str, before: str = "") -> tuple[int, list[str]]:
    """Return `emu ARGUMENTS` on so many ranks; `before` is Python that runs first, where `rank` is known."""
    script = (
        f"import os, signal, sys\nrank = int(os.environ['PMI_RANK'])\nsys.argv = ['emu', *{list(arguments)!r}]\n"
        f"{before}\nfrom emu.cli import main\nmain()"
    )
    return ranks, ["-c", script]


def _outlived(mark: str) -> list[str]:
    """Return the processes that do not end with the launcher; none is left."""
    for _ in range(50):  # the launcher does not wait for those that it has killed
        if not _of_job(mark):
            return []
        time.sleep(0.1)
    return _kill_all(mark)


def _of_job(mark: str) -> dict[int, str]:
    """Return the commands of a job's processes, by number; those that have ended have none."""
    found: dict[int, str] = {}
    for path in Path("/proc").iterdir():
        with suppress(OSError):
            if path.name.isdecimal() and f"{_MARK}={mark}".encode() in (path / "environ").read_bytes().split(b"\0"):
                found[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:80]
    return found


def _kill_all(mark: str) -> list[str]:
    """Kill every process of a job; return their commands."""
    found = _of_job(mark)
    for pid in found:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return list(found.values())
