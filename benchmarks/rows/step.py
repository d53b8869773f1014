"""A training step on 28 x 28 images through a device, beside PyTorch's float32 step of the same network.

The bar belongs to the LeNet with 20 and 50 maps, the one that SPEED was measured with: its arithmetic outweighs the
interpreter. LeNet-5, six times smaller, stands beside it and shows what a step costs when it does not.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

import numpy as np

from benchmarks.measuring.row import Prepared, Row, Side, StepWork
from benchmarks.measuring.torch_network import float32_step, has_torch
from emu.hardware import device_names, load_device
from emu.training import load_recipe
from emu.training.loop import Loop
from emu.training.workbench import Workbench

BATCH, QUICK_BATCH = 64, 8
#: Seconds of steps in a row.
SAMPLE_S = 0.2
#: Processes in which the row with a bar is measured: PyTorch's step is a quarter faster in some than in others.
SWEEPS = 5
MEASURED, SMALLER, DEVICE = "lenet_caffe", "lenet", "fixed16"


def step(network: str, device: str) -> Callable[[bool], Prepared]:
    """Return what prepares one step: batch, forward, backward, update, registers and flags on."""

    def prepare(quick: bool) -> Prepared:
        recipe = load_recipe(network).with_settings({"training.batch": QUICK_BATCH if quick else BATCH})
        loop = Loop(Workbench.of(recipe, load_device(device), "auto"))
        images, labels = loop.bench.batches.batch(0)
        assert isinstance(images, np.ndarray)
        optimiser = recipe.training.optimiser
        momentum = float(getattr(optimiser, "momentum", 0.0))
        task = StepWork(device, recipe.network.built(), images, labels, optimiser.learning_rate, momentum)
        limit = Side("PyTorch float32", float32_step(task), 1) if has_torch() else None
        return Prepared(task, Side("emu", restarting(loop), 1), limit)

    return prepare


def restarting(loop: Loop) -> Callable[[], None]:
    """Return a step that begins again behind the last one, and forgets the losses nobody will log."""

    def run() -> None:
        loop.steps.done %= loop.steps.planned
        loop.advance()
        loop.log.losses.clear()
        loop.log.correct.clear()

    return run


def rows() -> list[Row]:
    """Return one row per shipped device without a crossbar; bar and goal belong to `fixed16`."""
    factors = MappingProxyType({"qtorch": 3.0})
    found = [
        Row(
            f"step/{DEVICE}",
            _title(MEASURED, DEVICE),
            "step/s",
            step(MEASURED, DEVICE),
            bar=0.8,
            goal=1.2,
            factors=factors,
            sample_s=SAMPLE_S,
            sweeps=SWEEPS,
            needs="torch",
        )
    ]
    alone = [device for device in sorted(device_names()) if load_device(device).crossbar is None]
    others = [(MEASURED, device) for device in alone if device != DEVICE]
    for network, device in (*others, (SMALLER, DEVICE)):
        name = device if network == MEASURED else f"{network}-{device}"
        work = step(network, device)
        found.append(Row(f"step/{name}", _title(network, device), "step/s", work, sample_s=SAMPLE_S, needs="torch"))
    return found


def _title(network: str, device: str) -> str:
    return f"training step of {network}, batch {BATCH}, {device}"
