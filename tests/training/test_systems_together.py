"""Systems together: every pair of the five and all of them, small, on both backends, killed and resumed.

    A  loss scaling            C  gradients of one bit       E  a sparse first layer
    B  dynamic fixed point     D  clipping layer by layer
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from small_runs import hashes

import emu
from emu.errors import ConfigError
from emu.training import Run

#: Few examples of few columns; what is not tried here is as `models/everything.toml` has it.
SMALL: dict[str, Any] = {
    "network.input": [600],
    "data.reach": 4,
    "data.longest": 2,
    "data.stride": 60,
    "training.steps": 8,
    "training.batch": 8,
    "training.log_every": 4,
    "training.checkpoint_every": 2,
    "training.snr_every": 0,
}
#: Digits through dense layers, for runs without E.
DENSE: dict[str, Any] = {
    "network": {
        "input": [1, 8, 8],
        "classes": 10,
        "layers": [
            {"type": "flatten"},
            {"type": "linear", "name": "words", "out_features": 12},
            {"type": "relu"},
            {"type": "linear", "name": "next", "out_features": 10},
        ],
    },
    "data": {"source": "digits", "test_images": 20},
}
PAIRS = ["".join(pair) for pair in combinations("ABCDE", 2)]


def setup(systems: str, **more: Any) -> tuple[Any, Any, dict[str, Any]]:
    """Return recipe, device and overrides of a run with these systems and no other."""
    changed: dict[str, Any] = dict(SMALL)
    if "E" not in systems:
        changed = {name: value for name, value in SMALL.items() if name.startswith("training.")} | DENSE
    if "A" in systems:
        changed["loss_scaling"] = {"policy": "backoff", "initial_scale": 2.0**24}
    else:
        changed["loss_scaling"] = {"policy": "none"}
    changed["cluster"] = {"nodes": 2, "bits": 1} if "C" in systems else None
    changed["clipping"] = {"rules": [{"rule": "variance", "k": 2.0}]} if "D" in systems else None
    device = "dlu16" if "B" in systems else "fp16"
    return emu.model("everything"), emu.device(device), changed | more


def train(out: Path, systems: str, backend: str = "numba", **more: Any) -> Run:
    recipe, device, changed = setup(systems, **more)
    return emu.train(recipe, device, out=out, backend=backend, overrides=changed)


def resumed(out: Path, systems: str, at: int) -> Run:
    """Return a run that was stopped after so many steps, and resumed."""
    recipe, device, changed = setup(systems)

    class Stopped(Exception):
        pass

    class Stop:
        def start(self, done: int, steps: int) -> None: ...
        def finish(self) -> None: ...
        def update(self, step: int, *_: Any) -> None:
            if step == at:
                raise Stopped

    with pytest.raises(Stopped):
        emu.train(recipe, device, out=out, backend="numba", overrides=changed, progress=Stop())
    return emu.resume(out)


def used(run: Run) -> str:
    """Return which systems have done something in a run."""
    metrics, tables = run.info["metrics"], {path.stem for path in run.path.glob("*.parquet")}
    found = {
        "A": "loss_scaling" in tables and metrics["repeats"] + metrics["skips"] > 0,
        "B": metrics["redos"] > 0,
        "C": metrics["bytes_sent"] > 0,
        "D": metrics["clipped"] > 0,
        "E": "sparse_linear" in (run.path / "recipe.toml").read_text(),
    }
    return "".join(name for name, done in found.items() if done)


@pytest.mark.parametrize("systems", [*PAIRS, "ABCDE"])
def test_systems_run_together_and_end_in_the_same_bits_on_reference_and_numba(systems: str, tmp_path: Path):
    runs = [train(tmp_path / name, systems, name) for name in ("reference", "numba")]
    assert hashes(runs[0]) == hashes(runs[1])
    assert used(runs[0]) == systems


@pytest.mark.parametrize("at", [3, pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.parametrize("systems", ["ABCDE", *(pytest.param(pair, marks=pytest.mark.slow) for pair in PAIRS)])
def test_systems_stopped_together_go_on_to_the_same_bits(systems: str, at: int, tmp_path: Path):
    whole = train(tmp_path / "whole", systems)
    again = resumed(tmp_path / "again", systems, at)
    assert hashes(again) == hashes(whole)
    assert again.info["metrics"] == whole.info["metrics"]
