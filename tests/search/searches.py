"""A small search, and an engine that runs in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from emu.jobs import Ended, Job
from emu.jobs.run import run_job

SEARCH = """
name = "small"
model = "mlp"
device = "fixed16"
baseline = "fixed16"
seeds = [1, 2]
trials = 9
settings = { "training.steps" = 3, "training.batch" = 8, "data.test_images" = 40 }

[sampler]
seed = 3
batch = 2

[[variable]]
name = "width"
low = 4
high = 16
start = 16

[[variable]]
name = "mode"
choices = ["nearest_even", "stochastic"]
start = "nearest_even"

[[set]]
keys = ["device.precision.weight.format", "device.precision.layers[fc*].bias.format"]
value = "ap_fixed<{width}, 3>"

[[set]]
keys = ["device.precision.error.rounding"]
value = "{mode}"

[[objective]]
metric = "joules_per_step"
direction = "minimize"

[[objective]]
metric = "test_accuracy_difference"
direction = "maximize"

[[constraint]]
metric = "test_accuracy_difference"
at_least = -0.25
"""


def written(folder: Path, old: str = "", new: str = "") -> Path:
    """Write the search, a part of it replaced; return its path."""
    assert old in SEARCH, old
    path = folder / "search.toml"
    path.write_text(SEARCH.replace(old, new) if old else SEARCH)
    return path


class RunsHere:
    """What `emu.jobs.Runs` does, in this process."""

    def __init__(self, slots: int = 1) -> None:
        self.slots = slots
        self.done: list[str] = []
        self._jobs: list[Job] = []

    def submit(self, job: Job) -> None:
        self._jobs.append(job)

    def ended(self, timeout_s: float = 0.3) -> list[Ended]:
        if not self._jobs:
            return []
        job = self._jobs.pop(0)
        self.done.append(job.key)
        return [Ended(job.key, None, run_job(job))]

    def running(self) -> list[str]:
        return [job.key for job in self._jobs]

    def close(self) -> None:
        self._jobs.clear()

    def __enter__(self) -> RunsHere:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
