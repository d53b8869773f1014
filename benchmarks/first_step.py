"""How long a user waits from an empty cache: to the first step of training, and to the report.

    python benchmarks/first_step.py [DEVICE ...] [--model lenet] [--threads 1,2]

Each device has a process of its own and a cache of its own, as on a new machine; without devices, all that emu ships.
Python's bytecode of emu is there, as it is after `pip install`.
The table is that of docs/commands.md. `--threads` adds a column for each number (`EMU_THREADS`): with one thread, no
other process compiles ahead.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STEPS = 5


class FirstStep:
    """Notes when the first step is done, as the bar of the command line shows it."""

    def __init__(self) -> None:
        self.at: float | None = None

    def start(self, step: int, steps: int) -> None:
        """Wait."""

    def update(self, step: int, loss: float, accuracy: float, overflow: float, underflow: float) -> None:
        """Note the time of the first call."""
        self.at = self.at or time.time()

    def finish(self) -> None:
        """Wait no longer."""


def train(model: str, device: str, out: str) -> None:
    """Train in this process; print the times of the first step and of the end, in seconds since 1970."""
    import emu

    progress = FirstStep()
    emu.train(model, device, out=out, overrides={"training.steps": STEPS}, progress=progress)
    print(json.dumps([progress.at, time.time()]))


def measured(model: str, device: str, threads: int | None) -> tuple[float, float]:
    """Return the seconds to the first step and to the report, from an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "EMU_CACHE_DIR": str(Path(folder, "cache"))}
        environment |= {"EMU_THREADS": str(threads)} if threads else {}
        command = [sys.executable, __file__, "--one", device, "--model", model, "--out", str(Path(folder, "run"))]
        began = time.time()
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    first, end = json.loads(done.stdout)
    return first - began, end - began


def main() -> None:
    """Print a line of the table for each device, when it is measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("devices", nargs="*")
    parser.add_argument("--model", default="lenet")
    parser.add_argument("--threads", default="")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        train(options.model, options.one, options.out)
        return
    import emu
    from emu.hardware import device_names

    compileall.compile_dir(Path(emu.__file__).parent, quiet=1)
    numbers: list[int | None] = [int(number) for number in options.threads.split(",")] if options.threads else [None]
    heads = [f"{head}{f', {n} threads' if n else ''}" for n in numbers for head in ("first step", "report")]
    print(f"| device | {' | '.join(heads)} |\n|---|{'---|' * len(heads)}", flush=True)
    for device in options.devices or device_names():
        seconds = [second for number in numbers for second in measured(options.model, device, number)]
        print(f"| `{device}` | {' | '.join(f'{second:.1f}' for second in seconds)} |", flush=True)


if __name__ == "__main__":
    main()
