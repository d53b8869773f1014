"""The command `emu warm`: compile what training on devices takes, before anyone waits for it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

from emu.backends.numba.cache import cache_folder
from emu.cli.output import Column, Facts, Output, Table
from emu.errors import ConfigError
from emu.hardware import load_device
from emu.jobs.bars import RunsBar
from emu.jobs.engine import of_signal, processors
from emu.report.words import seconds
from emu.training import load_recipe

#: Seconds between two looks at the processes.
LOOK_S = 0.1
#: The model that is trained if none is named: it has layers of every common kind.
DEFAULT_MODEL = "lenet"


class Warming(NamedTuple):
    """One step of training in a process of its own.

    Attributes:
        name: its name, and that of its folder; no two runs have the same.
        model: name or file of the model.
        device: name or file of the device.
    """

    name: str
    model: str
    device: str

    def begin(self, scratch: Path, threads: int) -> subprocess.Popen[bytes]:
        """Start the process; its run is written into a folder of `scratch`, and its errors into a file beside it.

        Args:
            scratch: folder.
            threads: of its kernels, and processes that compile for it (`EMU_THREADS`).
        """
        arguments = ["train", self.model, "--device", self.device, "--backend", "numba", "--set", "training.steps=1"]
        with self.errors(scratch).open("wb") as errors:  # no pipe, which a process would fill
            return subprocess.Popen(
                [sys.executable, "-m", "emu", *arguments, "--out", str(scratch / self.name)],
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={**os.environ, "EMU_THREADS": str(threads)},
            )

    def errors(self, scratch: Path) -> Path:
        """Return the file of what the process prints on stderr."""
        return scratch / f"{self.name}.txt"


def warm_devices(devices: Sequence[str], models: Sequence[str], workers: int | None) -> Output:
    """Train a step of each model on each device, in processes of their own; return how long each took.

    Args:
        devices: names or files.
        models: names or files; none for `DEFAULT_MODEL`.
        workers: processes at a time; None for one per processor.

    Raises:
        ConfigError: there is no such device or model, or a step could not be trained; the others are then compiled.
    """
    if workers is not None and workers < 1:
        raise ConfigError(f"--workers must be at least 1, got {workers}; leave it out to use every processor")
    # Loaded here to find errors before a process starts; the file may have another name than the device.
    names = {name: load_device(name).name for name in devices}
    recipes = {name: load_recipe(name).name for name in models or [DEFAULT_MODEL]}
    pairs = list(product(names, recipes))
    called = [f"{recipes[model]}-{names[device]}" for device, model in pairs]
    waiting = [
        Warming(f"{name}-{number}" if name in called[:number] else name, model, device)  # two files may say one name
        for number, (name, (device, model)) in enumerate(zip(called, pairs, strict=True))
    ]
    took_s = _train(waiting, workers or processors())
    columns = [
        Column("device", "device"),
        Column("model", "model"),
        Column("compiled in", "seconds", seconds, is_number=True),
    ]
    rows = [[names[run.device], recipes[run.model], took_s[run.name]] for run in waiting]
    folder = cache_folder()
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    facts = {"compiled": f"{folder}, {size / 1e6:.0f} MB; EMU_CACHE_DIR moves it"}
    return Output([Table(columns, rows, "runs"), Facts(facts, {"folder": str(folder), "bytes": size})])


def _train(runs: Sequence[Warming], workers: int) -> dict[str, float]:
    """Return the seconds that each run took, by its name."""
    waiting, ended = list(runs), dict[str, float]()
    threads = max(processors() // max(min(workers, len(runs)), 1), 1)
    running: dict[Warming, tuple[subprocess.Popen[bytes], float]] = {}
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="emu-warm-") as folder:
        scratch = Path(folder)
        try:
            with RunsBar("runs", len(runs), scratch) as bar:
                while waiting or running:
                    while waiting and len(running) < workers:
                        run = waiting.pop(0)
                        running[run] = run.begin(scratch, threads), time.monotonic()
                    # A list, because entries are deleted in the loop.
                    for run, (process, began) in list(running.items()):
                        if process.poll() is None:
                            continue
                        del running[run]
                        ended[run.name] = time.monotonic() - began
                        # One failure does not stop the others: what they compile is kept.
                        if process.returncode:
                            reason = _reason(run.errors(scratch)) or of_signal(process.returncode)
                            failures.append(f"{run.name}: {reason}")
                    bar.update(len(ended), [run.name for run in running])
                    # `poll` returns at once: without a pause this loop would take a processor from the compilers.
                    time.sleep(LOOK_S)
        finally:
            for process, _ in running.values():
                # Reached with processes alive only after an error or Ctrl-C: children must not outlive their folder.
                process.kill()
                process.wait()
    if failures:
        raise ConfigError(
            f"`emu warm` must train a step of each model on each device, got {len(failures)} of {len(runs)} that "
            f"failed: {'; '.join(failures)}. The others are compiled"
        )
    return ended


def _reason(errors: Path) -> str:
    """Return the last line of what a command has printed on stderr, without its name; "" if it printed nothing."""
    printed = errors.read_text(encoding="utf-8", errors="replace")
    return next((line.removeprefix("emu: ") for line in reversed(printed.splitlines()) if line), "")
