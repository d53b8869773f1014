"""A unit in a simulator: built once, kept in the cache by what it is made from, and run with operands."""

from __future__ import annotations

import hashlib
import inspect
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu._paths import cache_folder
from emu.errors import ConfigError, RtlError
from emu.testing.rtl.bench import BACK_TO_BACK, Bench
from emu.testing.rtl.simulators.simulator import Simulator, Sources, Uncompiled
from emu.testing.vectors.description import Codes

Column = NDArray[Any]
#: Seconds after which a simulation counts as hung: a combinational loop never ends, and has no cycles to count.
TIMEOUT_S = 600
_STUCK = re.compile(r"emu: stuck at vector (\d+) for (\d+) cycles, waiting for (.+)")
#: Endings of headers, and the directive that names an included file.
_HEADERS = (".vh", ".svh", ".h", ".vi")
_INCLUDE = re.compile(r'`include\s*["<]([^">\n]+)[">]')
_EXTRA = re.compile(r"emu: (\d+) of \d+ results, (\d+) too many after vector (-?\d+)")


class SourcesError(ConfigError):
    """Sources do not compile; another simulator may take them."""


@dataclass(frozen=True)
class Run:
    """How a simulation is run.

    Attributes:
        manner: number of a manner (`bench.MANNERS`).
        latency: from operands to results.
        steps: transfers of a sum.
        modes: codes of ports that choose a rounding mode.
        seed: of the stalls.
        window: cycles that are watched.
        trace: file of the waveform.
    """

    manner: int = BACK_TO_BACK
    latency: int = 0
    steps: int = 1
    modes: Mapping[str, int] = field(default_factory=dict[str, int])
    seed: int = 1
    window: int = 0
    trace: Path | None = None


@dataclass(frozen=True, eq=False)
class Answers:
    """What a unit answered.

    Attributes:
        results: codes of each result, (n,), 0 where they are unknown.
        flags: flags in the bits of `FLAG_BITS`, (n,); None without.
        unknown: text of each line with an x or z, by its index.
        cycles: from operands to each result, (n,).
        stuck: vector at which the unit gave no answer, cycles it was waited for, and for what; None if all were
            answered.
        extra: how many results came too many, and the vector that the first of them came after.
    """

    results: tuple[Codes, ...]
    flags: Codes | None
    unknown: dict[int, str]
    cycles: NDArray[np.int64]
    stuck: tuple[int, int, str] | None
    extra: tuple[int, int]

    @property
    def count(self) -> int:
        """How many vectors were answered."""
        return len(self.results[0])


@dataclass(frozen=True)
class Simulation:
    """A unit that can be run.

    Attributes:
        bench: the testbench.
        simulator: that runs it.
        sources: of the unit.
        built: folders of what was built, by kind of waveform.
    """

    bench: Bench
    simulator: Simulator
    sources: Sources
    built: dict[str, Path] = field(default_factory=dict[str, Path], repr=False, compare=False)

    def build(self, waveform: str = "") -> Path:
        """Return the folder of the testbench, built with the sources as they are when they are first asked for.

        What was built before from the same sources is taken from the cache.

        Raises:
            ConfigError: the sources do not compile, or a port is missing or has another width.
        """
        if waveform not in self.built:
            self.built[waveform] = self._built(waveform)
        return self.built[waveform]

    def _built(self, waveform: str) -> Path:
        simulator = self.simulator
        texts = simulator.texts(self.bench)
        # the others need no second build for a waveform
        waveform = waveform if simulator.builds_waveforms else ""
        folder = cache_folder("rtl") / self._digest(texts, waveform)
        if folder.is_dir():
            return folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=f"{folder.name[:8]}-", dir=folder.parent, ignore_cleanup_errors=True
        ) as made:
            for name, text in texts.items():
                (Path(made) / name).write_text(text, encoding="utf-8")
            try:
                printed = simulator.build(self.bench, self.sources, Path(made), waveform)
            except Uncompiled as error:
                # a missing port often fails to compile: its sentence comes before the compiler's
                simulator.require_ports(self.bench, self.sources, str(error))
                lines = simulator.errors_of(str(error))
                raise SourcesError(
                    f"the sources of {self.bench.top} must compile, got from {simulator.name}\n  "
                    + "\n  ".join(lines)
                    + "\ncorrect them, name every file, or take another simulator"
                ) from None
            # a width that differs is only a warning of the compiler, and must not reach the cache
            simulator.require_ports(self.bench, self.sources, printed)
            _move(Path(made), folder)
        return folder

    def run(self, columns: Mapping[str, Column], count: int, how: Run) -> Answers:
        """Return what the unit answers to operands.

        Args:
            columns: codes by the letter of their file, one for each line.
            count: vectors.
            how: manner, latency, constants.

        Raises:
            RtlError: the simulation does not end, or fails.
        """
        folder = self.build("" if how.trace is None else how.trace.suffix)
        arguments = {
            "count": count,
            "manner": how.manner,
            "latency": how.latency,
            "steps": how.steps,
            "bound": self.bench.bound_cycles,
            "seed": how.seed,
            "window": how.window,
            "cycles": 1,
            **how.modes,
        }
        command = self.simulator.command(
            folder, self.sources, arguments, None if how.trace is None else how.trace.resolve()
        )
        # every run has a folder of its own: runs of several processes share only what was built
        with tempfile.TemporaryDirectory(prefix="emu-rtl-") as working:
            self._copy_data(Path(working), columns)
            for letter, codes in columns.items():
                # one code a line, as the testbenches read with %h
                text = "".join(f"{int(code):x}\n" for code in codes.reshape(-1).tolist())
                (Path(working) / f"{letter}.hex").write_text(text)
            try:
                ended = subprocess.run(
                    command,
                    cwd=working,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    check=False,
                    timeout=TIMEOUT_S,
                )
            except subprocess.TimeoutExpired:
                raise RtlError(
                    f"{self.bench.top} must let a simulation end, got none within {TIMEOUT_S} s; look for a loop of "
                    "combinational logic"
                ) from None
            printed = ended.stdout + ended.stderr
            # the testbench's last line: without it the simulation was cut short
            extra = _EXTRA.search(printed)
            if extra is None:
                lines = "\n  ".join(printed.strip().splitlines()[-5:]) or f"exit code {ended.returncode}"
                raise RtlError(f"a simulation of {self.bench.top} must end by itself, got\n  {lines}")
            stuck = _STUCK.search(printed)
            return Answers(
                *self._parsed((Path(working) / "dump.hex").read_text()),
                np.array((Path(working) / "cycles.txt").read_text().split(), np.int64),
                None if stuck is None else (int(stuck[1]), int(stuck[2]), stuck[3].strip()),
                (int(extra[2]), int(extra[3])),
            )

    def _copy_data(self, working: Path, columns: Mapping[str, Column]) -> None:
        """Copy the files that the unit reads into the folder of a run."""
        taken = {f"{letter}.hex" for letter in columns} | {"dump.hex", "cycles.txt"}
        for path in self.sources.data:
            if not path.is_file() or path.name in taken:
                why = "a name of the testbench's own" if path.is_file() else "which does not exist"
                if path.is_file() and (working / path.name).exists():
                    why = "a name that another of them has"
                raise ConfigError(f"`data` must be files with names of their own, got {path}, {why}; correct it")
            shutil.copy(path, working)
            # all of them lie in one folder, where the last one of a name would be read
            taken.add(path.name)

    def _parsed(self, text: str) -> tuple[tuple[Codes, ...], Codes | None, dict[int, str]]:
        columns = len(self.bench.outs) + bool(self.bench.flags)
        words = text.split()
        unknown: dict[int, str] = {}
        try:
            # the usual case first: no x in any word
            codes = [int(word, 16) for word in words]
        except ValueError:
            codes = list[int]()
            for i, word in enumerate(words):
                # std_logic has U and - besides x and z
                digits = re.sub("[xzXZuU-]", "0", word)
                if digits != word:
                    line = i // columns
                    shown = (f"0x{word}" for word in words[line * columns : (line + 1) * columns])
                    unknown.setdefault(line, " ".join(shown))
                codes.append(int(digits, 16))
        rows = np.array(codes, np.uint64).reshape(-1, columns)
        results = tuple(rows[:, i] for i in range(len(self.bench.outs)))
        return results, rows[:, -1] if self.bench.flags else None, unknown

    def _digest(self, texts: Mapping[str, str], waveform: str) -> str:
        # what decides the built program: simulator and version, how it is called, testbench, options, sources and what
        # they include
        digest = hashlib.sha256(repr((self.simulator.name, self.simulator.require(), waveform)).encode())
        sources = self.sources
        digest.update(Path(inspect.getfile(type(self.simulator))).read_bytes())  # how it is built
        digest.update(repr((sorted(texts.items()), sorted(sources.defines.items()), sources.options)).encode())
        for path in (*sources.paths, *_included(sources)):
            digest.update(str(path.resolve()).encode() + path.read_bytes())
        return digest.hexdigest()[:32]


def _included(sources: Sources) -> Sequence[Path]:
    """Return the files that sources may include: headers in their folders and in the named ones, and what texts name.

    A text may include a file of any ending, which may include others. Files that only a macro names are missed.
    """
    folders = [*dict.fromkeys([*(path.resolve().parent for path in sources.paths), *sources.include])]
    headers = [path for folder in folders for path in sorted(folder.glob("*.*")) if path.suffix in _HEADERS]
    kept = {path.resolve() for path in sources.paths}
    included: list[Path] = []
    waiting = [*sources.paths, *headers]
    for path in waiting:
        if path.resolve() not in kept:
            kept.add(path.resolve())
            included.append(path)
        # simulators look in different folders: a file of this name in any of them counts
        names = _INCLUDE.findall(path.read_text(encoding="utf-8", errors="replace"))
        places = (folder / name for name in names for folder in (path.resolve().parent, *folders))
        waiting += [place for place in places if place.is_file() and place.resolve() not in kept]
    return included


def _move(made: Path, folder: Path) -> None:
    """Move what was built to its place in the cache; another process or thread may have been faster."""
    try:
        # renamed as a whole: nobody sees a folder that is half full
        os.replace(made, folder)
    except OSError:
        # a folder cannot be renamed onto another that has files: the same build is there already
        if not folder.is_dir():
            raise
