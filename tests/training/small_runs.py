"""Short runs: what the tests of training share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from emu import training
from emu.hardware import device_names, load_device
from emu.training import Run

#: mlp for a second: 12 logged points' worth of everything in 30 steps.
MLP = {
    "training.steps": 30,
    "training.batch": 8,
    "data.test_images": 30,
    "training.log_every": 5,
    "training.checkpoint_every": 3,
}

#: Every layer, optimiser and schedule that lenet and mlp do not have.
MIXED: dict[str, Any] = {
    "name": "mixed",
    "network": {
        "input": [1, 14, 14],
        "classes": 10,
        "loss": "mse",
        "layers": [
            {"type": "conv2d", "out_channels": 3, "kernel": 3, "stride": 2, "padding": 1, "bias": False,
             "initialiser": "xavier"},
            {"type": "tanh"},
            {"type": "avg_pool", "window": 3, "stride": 2},
            {"type": "conv2d", "out_channels": 4, "kernel": 2, "padding": 1},
            {"type": "sigmoid"},
            {"type": "max_pool", "window": 2, "stride": 1},
            {"type": "avg_pool", "window": 2, "stride": 1},
            {"type": "flatten"},
            {"type": "linear", "out_features": 10},
        ],
    },
    "data": {"source": "digits", "upsample": 1, "pad": 3, "test_images": 20},
    "training": {
        "steps": 6,
        "batch": 7,
        "seed": 2**63 - 1,
        "log_every": 4,
        "optimiser": {"name": "sgd", "learning_rate": 0.5, "weight_decay": 0.01},
        "schedule": {"name": "step", "milestones": [0.5, 0.8], "warmup": 0.3},
    },
}  # fmt: skip


def arithmetics() -> list[str]:
    """The shipped devices, of those with equal arithmetic the first, and one without a crossbar if there is one."""
    found = {name: load_device(name) for name in reversed(device_names())}
    ordered = sorted(found.items(), key=lambda item: item[1].crossbar is None)
    return sorted({device.precision: name for name, device in ordered}.values())


def train(out: Path, model: str = "mlp", device: str = "fixed16", backend: str = "numba", **overrides: Any) -> Run:
    """Train a shipped model without building its report; `training__steps=3` overrides `training.steps`."""
    settings = (MLP if model == "mlp" else {}) | {name.replace("__", "."): value for name, value in overrides.items()}
    return training.train(
        training.load_recipe(model), load_device(device), out=out, backend=backend, overrides=settings
    )


def hashes(run: Run) -> tuple[str, str]:
    return run.weights_sha256, run.registers_sha256


def command(*arguments: str, before: str = "", **environment: str) -> subprocess.Popen[str]:
    """Start `emu ARGUMENTS` in a process of its own; `before` is Python that runs first, to break something."""
    script = f"import sys\nsys.argv = ['emu', *{list(arguments)!r}]\n{before}\nfrom emu.cli import main\nmain()"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", script], env=os.environ | environment, **pipes)


def settings_of(overrides: dict[str, Any]) -> list[str]:
    return [word for name, value in overrides.items() for word in ("--set", f"{name}={value}")]
