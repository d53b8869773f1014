"""Training returns the same bits on every backend and any number of threads; batches, schedules, noise."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fast_suite import most_are_slow
from small_runs import MIXED, arithmetics, command, hashes, settings_of, train

import emu
from emu import training
from emu.hardware import load_device
from emu.training.folders.run_folder import RunFolder
from emu.training.loop import Loop
from emu.training.loop.schedule import cosine, learning_rate
from emu.training.recipe import Constant, Cosine, Recipe, Schedule, Step
from emu.training.workbench import Workbench

#: The batch is k of the weights' gradients, of which b200-nvfp4 rotates so many numbers at a time.
ROTATED = 16
LENET = {"training.steps": 3, "training.batch": ROTATED, "data.test_images": 10}


#: One device of every kind of arithmetic; the others are slow.
FAST_DEVICES = ("dlu16", "fixed16", "fp16")


@most_are_slow("device", arithmetics(), keep=["dlu16"])
def test_lenet_ends_in_the_same_bits_on_every_backend(tmp_path: Path, device: str):
    runs = {
        name: train(tmp_path / name, "lenet", device, name, **{k.replace(".", "__"): v for k, v in LENET.items()})
        for name in ("reference", "numba")
    }
    assert hashes(runs["numba"]) == hashes(runs["reference"])
    assert runs["numba"].info["metrics"] == runs["reference"].info["metrics"]
    for table in ("metrics", "registers", "flags", "snr"):
        tables = [repr(RunFolder(run.path).read_table(table)) for run in runs.values()]
        assert tables[0] == tables[1], table


@most_are_slow(
    ("device", "rounding"),
    product(arithmetics(), ["nearest_even", "stochastic"]),
    keep=[(device, "nearest_even") for device in FAST_DEVICES],
)
def test_every_layer_and_optimiser_ends_in_the_same_bits(tmp_path: Path, device: str, rounding: str):
    roles = ("weight", "bias", "activation", "error", "gradient", "update", "master")
    changed: dict[str, Any] = {"precision": {role: {"rounding": rounding} for role in roles}}
    if device == "b200-nvfp4":
        changed["training"] = {**MIXED["training"], "batch": ROTATED}
    recipe = Recipe.model_validate(MIXED | changed)
    runs = [
        training.train(recipe, load_device(device), out=tmp_path / name, backend=name)
        for name in ("reference", "numba")
    ]
    assert hashes(runs[0]) == hashes(runs[1])


def test_another_seed_gives_other_bits(tmp_path: Path):
    runs = [train(tmp_path / str(seed), training__steps=2, training__seed=seed) for seed in (1, 2)]
    assert hashes(runs[0]) != hashes(runs[1])


@pytest.mark.slow
@pytest.mark.parametrize("device", ["fixed16", "fp16-mixed"])
def test_twenty_steps_of_lenet_are_the_same_on_every_backend_and_with_any_threads(tmp_path: Path, device: str):
    settings = {"training.steps": 20, "training.batch": 32, "data.test_images": 64}
    expected = hashes(
        train(
            tmp_path / "reference",
            "lenet",
            device,
            "reference",
            **{k.replace(".", "__"): v for k, v in settings.items()},
        )
    )
    for threads in ("1", "2"):
        out = tmp_path / threads
        done = command(
            "train", "lenet", "--device", device, "--out", str(out), *settings_of(settings), EMU_THREADS=threads
        )
        _, errors = done.communicate()
        assert done.returncode == 0, errors
        info = RunFolder(out).read_json()
        assert info["backend"] == "numba"
        assert (info["weights_sha256"], info["registers_sha256"]) == expected


def loop_of(model: str = "mlp", **settings: object) -> Loop:
    overrides = {"data.test_images": 30} | {name.replace("__", "."): value for name, value in settings.items()}
    return Loop(Workbench.of(training.load_recipe(model).with_settings(overrides), load_device("float32"), "numba"))


def test_the_batches_of_an_epoch_are_a_permutation():
    loop = loop_of(training__batch=32, training__seed=5)
    n = len(loop.bench.batches.data.train_inputs)
    loop.bench.batches.data.train_labels[:] = np.arange(n)  # now a batch's labels are its images' places
    per_epoch = n // 32
    assert loop.bench.batches.per_epoch == per_epoch
    epochs = [
        np.concatenate([loop.bench.batches.batch(epoch * per_epoch + i)[1] for i in range(per_epoch)])
        for epoch in range(3)
    ]
    for places in epochs:
        assert len(set(places.tolist())) == 32 * per_epoch
        assert places.min() >= 0
        assert places.max() < n
    assert (epochs[0] != epochs[1]).any()
    images, labels = loop.bench.batches.batch(3)
    assert (images == loop.bench.batches.data.train_inputs[labels]).all()


def test_a_batch_depends_on_seed_and_step_alone():
    forwards, backwards = loop_of(training__seed=5), loop_of(training__seed=5)
    steps = [0, 60, 3, 59, 200]
    batches = {step: forwards.bench.batches.batch(step)[1].tolist() for step in steps}
    assert batches == {step: backwards.bench.batches.batch(step)[1].tolist() for step in reversed(steps)}
    assert loop_of(training__seed=6).bench.batches.batch(0)[1].tolist() != batches[0]


def test_a_batch_larger_than_the_training_images_is_refused():
    with pytest.raises(emu.ConfigError) as caught:
        loop_of(training__batch=1768)
    assert str(caught.value) == (
        "`training.batch` must be at most the 1767 training images, got 1768; choose a smaller batch, or keep fewer "
        "for the test"
    )


def test_epochs_are_counted_in_whole_batches():
    assert loop_of(training__epochs=3, training__batch=100).steps.planned == 3 * 17
    assert loop_of(training__steps=7).steps.planned == 7


def test_float32_is_no_noise_to_itself(tmp_path: Path):
    for model in ("mlp", "lenet"):
        run = train(tmp_path / model, model, "float32", training__steps=2, training__batch=4, data__test_images=10)
        noise = RunFolder(run.path).read_table("snr")
        assert len(noise["snr_db"]) > 10
        assert set(noise["snr_db"]) == {None}
        assert {"input", "loss", "output"} <= set(noise["layer"])


def test_a_narrow_device_is_noisy(tmp_path: Path):
    run = train(tmp_path / "a", "mlp", "fixed8", training__steps=5)
    ratios = [x for x in RunFolder(run.path).read_table("snr")["snr_db"] if x is not None and not math.isnan(x)]
    assert ratios
    assert min(ratios) < 40  # 8 bits: at most about 6 dB per bit
    assert max(ratios) < 6.03 * 24


def test_a_constant_rate_stays():
    assert [learning_rate(0.3, Constant(), step, 7) for step in range(7)] == [0.3] * 7


def test_a_step_schedule_multiplies_at_each_milestone():
    schedule = Step(name="step", milestones=[0.5, 0.75], factor=0.5)
    assert [learning_rate(1.0, schedule, step, 8) for step in range(8)] == [1.0] * 4 + [0.5] * 2 + [0.25] * 2


def test_a_warm_up_rises_in_equal_steps_to_the_full_rate():
    for schedule in (
        Constant(warmup=0.5),
        Cosine(name="cosine", warmup=0.5),
        Step(name="step", milestones=[0.9], warmup=0.5),
    ):
        assert [learning_rate(1.0, schedule, step, 8) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]


@pytest.mark.parametrize("schedule", [Constant(warmup=0.25), Cosine(name="cosine", warmup=0.25)])
def test_a_warm_up_that_ends_between_two_steps_never_passes_the_full_rate(schedule: Schedule):
    assert [learning_rate(1.0, schedule, step, 10) for step in range(3)] == [0.4, 0.8, 1.0]
    # mini-batches of half the size: their steps count as halves
    assert [learning_rate(1.0, schedule, step / 2, 8) for step in range(4)] == [0.5, 0.75, 1.0, 1.0]


def test_a_warm_up_of_less_than_a_step_starts_at_the_full_rate():
    assert [learning_rate(1.0, Constant(warmup=0.05), step, 10) for step in range(3)] == [1.0] * 3


def test_a_warm_up_of_whole_steps_keeps_the_bits_of_its_products():
    """0.29 * 100 is 28.999999999999996 in doubles: the last step of such a rise is no step beyond its end."""
    for steps in range(1, 150):
        for end in range(1, steps):
            schedule, last = Constant(warmup=end / steps), end - 1
            assert learning_rate(0.3, schedule, last, steps) == 0.3 * end / (end / steps * steps)


def test_a_cosine_falls_from_the_full_rate_towards_what_is_left():
    schedule = Cosine(name="cosine", final_factor=0.25)
    rates = [learning_rate(2.0, schedule, step, 100) for step in range(100)]
    assert rates[0] == 2.0
    assert rates == sorted(rates, reverse=True)
    assert abs(rates[50] - 2.0 * 0.625) < 1e-15
    # the curve ends at 0.5 with slope 0: its last step lies below (pi / 100)**2 / 4 of the fall above it
    assert 0 < rates[99] - 0.5 < 1.5 * (math.pi / 100) ** 2 / 4


def test_the_cosine_is_within_two_ulp_of_one():
    """16 terms up to pi: the first left out is pi**32 / 32! < 4e-20; about 30 roundings below 2**-53 * pi**4."""
    for x in np.linspace(0, math.pi, 1001):
        assert abs(cosine(float(x)) - math.cos(x)) < 2.0**-50


def test_the_learning_rate_is_applied_and_logged(tmp_path: Path):
    settings = {"name": "step", "milestones": [0.5], "factor": 0.5}
    run = train(tmp_path / "a", training__steps=4, training__log_every=1, training__schedule=settings)
    assert RunFolder(run.path).read_table("metrics")["learning_rate"] == [0.05, 0.05, 0.025, 0.025]
