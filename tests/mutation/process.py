"""Runs tests against mutants: a copy of the checkout that nothing changes, one process and one cache per mutant.

Caches of compiled kernels are warmed by a run without a mutant, then copied for each, without the kernels of the
mutated file and of the files that import it: these compile anew. Tables of functions start empty each time.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from .mutants import Mutant
from .own_tests import DEFINITION, GENERIC, HIDDEN, NATIVE, OwnTests

CHILD = Path(__file__).with_name("child.py")
#: What the tests read of a checkout.
FOLDERS = ("emu", "tests", "benchmarks", "devices", "models", "costs", "searches", "kernels", "docs")
COPIED = (*FOLDERS, "pyproject.toml", "README.md", "CONTRIBUTING.md")
KERNELS = "emu/backends/numba"
#: A mutant gets this many times its tests' usual time, and this much more (to compile, where kernels changed).
PATIENCE, GRACE_S, COMPILE_S = 4.0, 20.0, 240.0
#: In place of the project's own options, which share tests among processes: no plugin is loaded that knows them.
SELECTION = ("-o", "addopts=--doctest-modules")
_FAILURE = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Verdict:
    """What the tests said of a mutant.

    Attributes:
        mutant: what was judged.
        outcome: "killed", "survived" or "timed out" (killed, but counted apart).
        by: the test that failed, "" where none did.
        seconds: how long it took.
    """

    mutant: Mutant
    outcome: str
    by: str
    seconds: float


class Checkout:
    """A copy of the checkout in a folder of its own, and the caches that belong to it."""

    def __init__(self, root: Path, folder: Path, grace_s: float = GRACE_S) -> None:
        self.root, self.folder, self.grace_s = folder / "checkout", folder, grace_s
        if not self.root.exists():
            self.root.mkdir(parents=True)
            for name in COPIED:
                _copy(root / name, self.root / name)
        self.warm = folder / "warm"
        self.warm.mkdir(exist_ok=True)
        self.baselines: dict[OwnTests, float] = {}

    def source_of(self, mutant: Mutant) -> bytes:
        """Return the file of a mutant, as it is."""
        return (self.root / mutant.path).read_bytes()

    def measure(self, tests: OwnTests) -> float:
        """Return how long the tests take without a mutant, kernels compiled.

        Raises:
            RuntimeError: they fail, so that they cannot judge.
        """
        kernels = _count_files(self.warm)
        seconds, code, output = self._run("", Path(), tests, self.warm, 3600.0)
        if code == 0 and _count_files(self.warm) != kernels:
            seconds, code, output = self._run("", Path(), tests, self.warm, 3600.0)
        if code != 0:
            raise RuntimeError(f"the tests must pass before they judge, got exit code {code}:\n{output[-3000:]}")
        self.baselines[tests] = seconds
        return seconds

    def judge(self, mutant: Mutant, tests: OwnTests, number: int) -> Verdict:
        """Run a mutant's own tests against it."""
        place = self.folder / f"mutant-{number}"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.warm, place / "cache")
        text = place / "mutant.txt"
        text.write_bytes(mutant.applied_to(self.source_of(mutant)))
        stale = importers_of(self.root, mutant.path) if mutant.path.startswith(KERNELS) else set[Path]()
        _forget_kernels(place / "cache", stale)
        limit = PATIENCE * self.baselines[tests] + self.grace_s + (COMPILE_S if stale else 0.0)
        seconds, code, output = self._run(module_of(mutant.path), text, tests, place / "cache", limit)
        shutil.rmtree(place, ignore_errors=True)
        if code is None:
            return Verdict(mutant, "timed out", "", seconds)
        failed = _FAILURE.search(output)
        by = failed[1] if failed else "" if code == 0 else f"the import (exit code {code})"
        return Verdict(mutant, "killed" if code else "survived", by, seconds)

    def _run(
        self, module: str, text: Path, tests: OwnTests, cache: Path, limit_s: float
    ) -> tuple[float, int | None, str]:
        """Return seconds, and exit code (None: out of time) and output of the first run that fails, or the last."""
        start, code, output = time.monotonic(), 0, ""
        for kernels in tests.kernels:
            code, output = self._run_once(kernels, [module, str(text)], tests, cache, start + limit_s)
            if code != 0:
                break
        return time.monotonic() - start, code, output

    def _run_once(
        self, kernels: str, mutant: list[str], tests: OwnTests, cache: Path, deadline: float
    ) -> tuple[int | None, str]:
        # plain: pytest would load a file named as an argument itself, to rewrite its asserts
        options = ["-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=line", "--assert=plain", *SELECTION]
        marks = ["-m", "not gpu" if tests.with_slow else "not slow and not gpu"]
        keyword = ["-k", DEFINITION] if kernels == HIDDEN else []
        command = [sys.executable, "-P", str(CHILD), kernels, *mutant, *options, *marks, *keyword, *tests.paths]
        own = {"PYTHONPATH": str(self.root), "PYTHONDONTWRITEBYTECODE": "1", "HYPOTHESIS_PROFILE": "ci"}
        own["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # no test needs one, every process would load them all
        own["EMU_CPU"] = GENERIC if kernels == GENERIC else NATIVE
        caches = {"EMU_CACHE_DIR": str(cache), "XDG_CACHE_HOME": str(cache / "tables"), "EMU_THREADS": "1"}
        process = subprocess.Popen(
            command,
            cwd=self.root,
            env={**os.environ, **own, **caches},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=max(deadline - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return None, output
        shutil.rmtree(cache / "tables", ignore_errors=True)
        return process.returncode, output


def module_of(path: str) -> str:
    """Return the dotted name of a source file."""
    parts = Path(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def importers_of(root: Path, path: str) -> set[Path]:
    """Return the kernel files that import `path`, directly or through one another, and `path` itself."""
    files = {module_of(f.relative_to(root).as_posix()): f for f in (root / KERNELS).rglob("*.py")}
    imports = {name: _imports_of(file) for name, file in files.items()}
    stale = {module_of(path)}
    while more := {name for name, used in imports.items() if used & stale and name not in stale}:
        stale |= more
    return {files[name] for name in stale if name in files}


def _imports_of(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def _forget_kernels(cache: Path, files: set[Path]) -> None:
    """Remove compiled kernels of `files`: Numba names them folder_hash/module.function-line..."""
    for file in files:
        for compiled in cache.glob(f"kernels/*/{file.parent.name}_*/{file.stem}.*"):
            compiled.unlink()


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        # times of change are kept: Numba's cache asks for them
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", ".hypothesis"))
    elif source.exists():
        shutil.copy2(source, target)


def _count_files(folder: Path) -> int:
    return sum(1 for _ in folder.rglob("*.nbc"))
