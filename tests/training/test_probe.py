"""The pass beside float32: what it measures does not depend on the scale of the loss."""

from __future__ import annotations

import pytest

import emu
from emu.training.loop import Loop
from emu.training.loop.probe import probe
from emu.training.workbench import Workbench

SHORT = {"training.steps": 3, "training.batch": 8, "data.test_images": 20, "network.input": [1, 8, 8]}


@pytest.mark.parametrize("scale", [2.0**7, 2.0**-5])
def test_exponents_are_those_of_errors_and_gradients_without_their_scale(scale: float):
    """Where float32 neither over- nor underflows, a power of two moves exponents and nothing else."""
    recipe = emu.model("mlp").with_settings(SHORT)
    loop = Loop(Workbench.of(recipe, emu.device("fp16"), "numba"))
    for _ in range(3):
        loop.advance()
    images, labels = loop.bench.batches.batch(2)
    plain, scaled = (
        probe(loop.bench.model, images, labels, seed=1, step=2, backend="numba", scale=s).exponents
        for s in (1.0, scale)
    )
    assert plain == scaled
    assert {role for role, exponent, count in plain if exponent is not None and count} == {"error", "gradient"}
