"""Networks with running moments and adaptive optimisers, killed and resumed, end in the same bits."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from small_runs import MLP, command, settings_of, train

from emu import training
from emu.hardware import load_device
from emu.training.folders.run_folder import RunFolder
from emu.training.recipe import Recipe

#: Kill the process when its n-th step begins.
KILL = """
import os, signal
from emu.training.loop import Loop
real, calls = Loop.advance, []
def advance(self):
    calls.append(1)
    if len(calls) == {n}:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self)
Loop.advance = advance
"""
SHORT: dict[str, dict[str, Any]] = {
    "resnet8": {"training.steps": 7, "training.batch": 4, "data.test_images": 4},
    "transformer": {"training.steps": 7, "training.batch": 2, "data.test_share": 0.006},
}
OFTEN = {"training.log_every": 3, "training.checkpoint_every": 2}
#: Running moments and both means of Adam; running moments and sums of squares; no momentum anywhere.
SMALL = {
    "name": "small",
    "network": {
        "input": [1, 8, 8],
        "classes": 10,
        "layers": [
            {"type": "conv2d", "out_channels": 2, "kernel": 3}, {"type": "batch_norm"},
            {"type": "dropout", "rate": 0.5}, {"type": "flatten"}, {"type": "linear", "out_features": 10},
        ],
    },
    "data": {"test_images": 4},
    "training": {"steps": 6, "batch": 4, **{key.partition(".")[2]: value for key, value in OFTEN.items()}},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("device", ["fixed16", "fp16-mixed"])
@pytest.mark.parametrize("model", SHORT)
def test_a_model_killed_in_any_step_and_resumed_ends_in_the_same_bits(model: str, device: str, tmp_path: Path):
    settings = SHORT[model] | OFTEN
    whole = train(
        tmp_path / "whole", model, device, **{name.replace(".", "__"): value for name, value in settings.items()}
    )
    out = tmp_path / "killed"
    process = command(
        "train", model, "--device", device, "--out", str(out), *settings_of(settings), before=KILL.format(n=6)
    )
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert RunFolder(out).read_json()["status"] == "running"
    resumed = training.resume(out)
    assert resumed.weights_sha256 == whole.weights_sha256
    assert resumed.registers_sha256 == whole.registers_sha256
    assert resumed.info["metrics"] == whole.info["metrics"]


@pytest.mark.parametrize("optimiser", [
    {"name": "adam", "learning_rate": 0.01, "weight_decay": 0.1}, {"name": "adagrad", "learning_rate": 0.1},
], ids=lambda optimiser: optimiser["name"])  # fmt: skip
def test_moments_and_means_come_back_from_a_checkpoint(optimiser: dict[str, Any], tmp_path: Path):
    class StopError(Exception):
        pass

    class Stop:
        """Ends a run behind its fifth step, between two checkpoints."""

        def start(self, step: int, steps: int) -> None: ...

        def update(self, step: int, *_: float) -> None:
            if step == 5:
                raise StopError

        def finish(self) -> None: ...

    recipe = Recipe.model_validate({**SMALL, "training": {**SMALL["training"], "optimiser": optimiser}})
    device = load_device("bf16-mixed")
    whole = training.train(recipe, device, out=tmp_path / "whole", backend="reference")
    with pytest.raises(StopError):
        training.train(recipe, device, out=tmp_path / "stopped", backend="reference", progress=Stop())
    arrays, state = RunFolder(tmp_path / "stopped").load_checkpoint()
    assert state["step"] == 4
    assert {"moments/batch_norm1.mean", "moments/batch_norm1.variance", "squares/conv2d1.weight"} <= set(arrays)
    assert training.resume(tmp_path / "stopped").weights_sha256 == whole.weights_sha256


#: Kill the process inside the n-th run of an iteration, runs that are repeated included.
KILL_IN_RUN = """
import os, signal
from emu.training.workbench.model import Model
real, calls = Model._gradients, []
def gradients(self, *arguments):
    calls.append(1)
    if len(calls) == {n}:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, *arguments)
Model._gradients = gradients
"""


BACKOFF: dict[str, Any] = {
    "loss_scaling.policy": "backoff",
    "loss_scaling.start": 2.0**24,
    "loss_scaling.interval": 2,
    "loss_scaling.compensation": ["learning_rate"],
}
#: Points that move, binary16 errors that overflow in the first run of every step and never in the second.
EVERY_STEP: dict[str, Any] = {
    "loss_scaling.policy": "fixed",
    "loss_scaling.scale": 2.0**24,
    "loss_scaling.backoff": 2.0**-14,
    "precision.error.format": "fp16",
    "precision.gradient.format": "fp16",
    "dynamic_point.pretraining_steps": 3,
    "dynamic_point.interval": 2,
}


@pytest.mark.parametrize(
    ("device", "table", "n"),
    [
        pytest.param("fp16", BACKOFF, 4, id="of step 1, before the first checkpoint", marks=pytest.mark.slow),
        pytest.param("fp16", BACKOFF, 18, id="of step 7", marks=pytest.mark.slow),
        pytest.param("dlu16", EVERY_STEP, 18, id="of step 9, beside points that move"),
    ],
)
def test_a_run_killed_inside_a_repeat_resumes_to_the_same_bits(
    device: str, table: dict[str, Any], n: int, tmp_path: Path
):
    settings: dict[str, Any] = {**MLP, "training.steps": 12, "loss_scaling.on_overflow": "repeat", **table}
    overrides = {name.replace(".", "__"): value for name, value in settings.items()}
    whole = train(tmp_path / "whole", "mlp", device, **overrides)
    assert whole.info["metrics"]["repeats"] > 9
    out = tmp_path / "killed"
    process = command(
        "train", "mlp", "--device", device, "--out", str(out), *settings_of(settings), before=KILL_IN_RUN.format(n=n)
    )
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    resumed = training.resume(out)
    assert resumed.weights_sha256 == whole.weights_sha256
    assert resumed.registers_sha256 == whole.registers_sha256
    assert resumed.info["metrics"] == whole.info["metrics"]
    assert resumed.info["simulated_seconds"] == whole.info["simulated_seconds"]
    for name in ("loss_scaling", "points", "simulation"):
        tables = [RunFolder(run.path).read_table(name) for run in (whole, resumed)]
        assert tables[0] == tables[1], name


#: Kill the process at the n-th operation that runs again.
KILL_IN_REDO = """
import os, signal
from emu.precision import dynamic_point
real, calls = dynamic_point.run_and_redo, []
def run_and_redo(scale, run, better, most):
    def counted(at, result):
        wanted = better(at, result)
        calls.extend([1] * (wanted is not None))
        if len(calls) == {n}:
            os.kill(os.getpid(), signal.SIGKILL)
        return wanted
    return real(scale, run, counted, most)
dynamic_point.run_and_redo = run_and_redo
"""


@pytest.mark.parametrize(
    ("schedule", "before"),
    [
        pytest.param("always_redo", KILL_IN_REDO.format(n=140), id="inside a redo of step 6"),
        pytest.param("conditional_redo", KILL_IN_RUN.format(n=5), id="inside pre-training", marks=pytest.mark.slow),
        pytest.param(
            "float_pretraining", KILL_IN_RUN.format(n=8), id="inside pre-training in float", marks=pytest.mark.slow
        ),
        pytest.param(
            "conditional_redo",
            KILL_IN_RUN.format(n=18),
            id="between two settings of the points",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_dynamic_fixed_point_resumes_to_the_same_bits(schedule: str, before: str, tmp_path: Path):
    settings: dict[str, Any] = {
        **MLP,
        "training.steps": 20,
        "dynamic_point.schedule": schedule,
        "dynamic_point.pretraining_steps": 10,
        "dynamic_point.interval": 4,
    }
    overrides = {name.replace(".", "__"): value for name, value in settings.items()}
    whole = train(tmp_path / "whole", "mlp", "dlu16", **overrides)
    out = tmp_path / "killed"
    process = command("train", "mlp", "--device", "dlu16", "--out", str(out), *settings_of(settings), before=before)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert RunFolder(out).load_checkpoint()[1]["step"] > 0
    resumed = training.resume(out)
    assert resumed.weights_sha256 == whole.weights_sha256
    assert resumed.registers_sha256 == whole.registers_sha256
    assert resumed.info["metrics"] == whole.info["metrics"]
    assert resumed.info["simulated_seconds"] == whole.info["simulated_seconds"]
    for name in ("points", "simulation"):
        tables = [RunFolder(run.path).read_table(name) for run in (whole, resumed)]
        assert tables[0] == tables[1], name
    assert (whole.path / "trace.json").read_bytes() == (resumed.path / "trace.json").read_bytes()
