"""A training step: LeNet on 28 x 28 images through a device, beside PyTorch's float32 step of the same network."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from emu.bench.peers.torch_lenet import float32_step, has_torch
from emu.bench.row import Prepared, Row, Side, StepWork
from emu.hardware import device_names, load_device
from emu.training import load_recipe
from emu.training.trainer import Trainer

BATCH, QUICK_BATCH = 64, 8
MEASURED = "fixed16"


def step(device: str) -> Callable[[bool], Prepared]:
    """Return what prepares one step: batch, forward, backward, update, registers and flags on."""

    def prepare(quick: bool) -> Prepared:
        recipe = load_recipe("lenet").with_settings({"training.batch": QUICK_BATCH if quick else BATCH})
        trainer = Trainer(recipe, load_device(device), "auto")
        images, labels = trainer.batch(0)
        optimiser = recipe.training.optimiser
        momentum = float(getattr(optimiser, "momentum", 0.0))
        task = StepWork(device, images, labels, optimiser.learning_rate, momentum)
        limit = Side("PyTorch float32", float32_step(task), 1) if has_torch() else None
        return Prepared(task, Side("emu", _restarting(trainer), 1), limit)

    return prepare


def _restarting(trainer: Trainer) -> Callable[[], None]:
    """Return a step that begins again behind the last one, and forgets the losses nobody will log."""

    def run() -> None:
        trainer.step %= trainer.steps
        trainer.advance()
        trainer.losses.clear()
        trainer.correct.clear()

    return run


def rows() -> list[Row]:
    """Return one row per shipped device; bar and goal belong to `fixed16`."""
    found: list[Row] = []
    for device in sorted(device_names(), key=lambda name: (name != MEASURED, name)):
        bar, goal, factors = (0.8, 1.2, {"qtorch": 3.0}) if device == MEASURED else (None, None, {})
        title = f"LeNet training step, batch {BATCH}, {device}"
        factors = MappingProxyType(factors)
        found.append(Row(f"step/{device}", title, "step/s", step(device), bar, goal, factors=factors, needs="torch"))
    return found
