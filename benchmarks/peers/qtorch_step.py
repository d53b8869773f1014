"""A 16-bit fixed-point training step as QPyTorch's users write it: a quantiser behind every layer, its optimiser."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from benchmarks.measuring.row import StepWork
from benchmarks.measuring.torch_network import plain_optimiser, torch_network, training_step
from emu.formats import Fixed
from emu.hardware import load_device


def fixed_step(task: StepWork, functions: Any, extension: Any) -> Callable[[], None]:
    """Return a step that rounds weights, activations, errors and gradients to the device's words.

    Args:
        task: the step.
        functions: `qtorch.quant.quant_function`.
        extension: which build of its extension computes.
    """
    number: Any = importlib.import_module("qtorch").FixedPoint
    precision = load_device(task.device).precision

    def word(role: str) -> Any:
        fmt = precision.stage("", role).format
        assert isinstance(fmt, Fixed)
        return number(fmt.width_bits, fmt.frac_bits)

    def rounder(forward: Any, backward: Any = None) -> Any:
        return functions.quantizer(forward, backward, "nearest", "nearest")

    quantiser: Any = importlib.import_module("qtorch.quant").Quantizer
    network = torch_network(task, lambda: quantiser(word("activation"), word("error"), "nearest", "nearest"))
    low_precision: Any = importlib.import_module("qtorch.optim").OptimLP
    optimiser = low_precision(
        plain_optimiser(task, network),
        weight_quant=rounder(word("weight")),
        grad_quant=rounder(word("gradient")),
        momentum_quant=rounder(word("gradient")),
    )
    step = training_step(task, network, optimiser)

    def run() -> None:
        functions.quant_cpu, before = extension, functions.quant_cpu
        try:
            step()
        finally:
            functions.quant_cpu = before

    return run
