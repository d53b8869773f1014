"""The recipe that binary16 does not learn without loss scaling, and learns with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import emu

#: The first steps of the recipe: what learns is on its way from 20%, where it rests long, to what it reaches.
BEGINNING = {"training.steps": 640, "training.schedule": {"name": "constant"}, "training.log_every": 320}


@pytest.mark.slow
def test_deep_sigmoid_guesses_on_binary16_and_learns_with_a_scaled_loss(tmp_path: Path):
    """All five seeds at full length, every policy: docs/loss-scaling.md."""

    def accuracy(name: str, device: str, **table: Any) -> float:
        run = emu.train(emu.model("deep_sigmoid"), emu.device(device), out=tmp_path / name, overrides=BEGINNING | table)
        assert run.test_accuracy is not None
        return run.test_accuracy

    assert accuracy("unscaled", "fp16") < 0.15
    assert accuracy("scaled", "fp16", loss_scaling={"policy": "fixed", "scale": 8192.0}) > 0.4
