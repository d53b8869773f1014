"""The recipe that binary16 does not learn without loss scaling, and learns with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import emu

#: Half of the recipe's steps, without its last, smaller rate: float32 has learned most of it by then.
HALF = {"training.steps": 800, "training.schedule": {"name": "constant"}, "training.log_every": 400}


@pytest.mark.slow
def test_deep_sigmoid_guesses_on_binary16_and_learns_with_a_scaled_loss(tmp_path: Path):
    """All five seeds at full length, every policy: docs/loss-scaling.md."""

    def accuracy(name: str, device: str, **table: Any) -> float:
        run = emu.train(emu.model("deep_sigmoid"), emu.device(device), out=tmp_path / name, overrides=HALF | table)
        assert run.test_accuracy is not None
        return run.test_accuracy

    unscaled = accuracy("unscaled", "fp16")
    scaled = accuracy("scaled", "fp16", loss_scaling={"policy": "fixed", "scale": 8192.0})
    assert unscaled < 0.2
    assert scaled > 0.7
    assert accuracy("float32", "float32") > 0.7
