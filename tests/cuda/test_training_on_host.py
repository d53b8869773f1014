"""A network trained on the CUDA kernels, run by the host or a GPU: the weights and registers of other backends."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path

import pytest
from device_arrays import WORK, DeviceArray, StrictDevice
from host_devices import GPU, as_backend, device_of

import emu
from emu.training.loop import Loop
from emu.training.workbench import Workbench

#: Hashes of weights and registers, by device and steps: benchmarks/first_contact.py.
GOLDEN = json.loads((Path(__file__).parents[2] / "benchmarks" / "golden_bits.json").read_text())["training"]


@pytest.fixture
def strict_device() -> Generator[None, None, None]:
    with as_backend(StrictDevice()):
        yield


def trained(model: str, device: str, backend: str, folder: Path, **settings: int) -> tuple[str, str]:
    overrides = {"data.test_images": 8, **{f"training.{name}": value for name, value in settings.items()}}
    run = emu.train(emu.model(model), emu.device(device), out=folder / backend, backend=backend, overrides=overrides)
    assert run.info["backend"] == backend
    return run.weights_sha256, run.registers_sha256


@pytest.mark.gpu
@pytest.mark.parametrize("device", GOLDEN)
def test_twenty_steps_of_lenet_on_the_gpu_end_in_the_golden_hashes(device: str, tmp_path: Path):
    with as_backend(device_of(GPU)):
        assert list(trained("lenet", device, "cuda", tmp_path, steps=20, batch=32)) == GOLDEN[device]["20"]


@pytest.mark.usefixtures("strict_device")
@pytest.mark.slow
@pytest.mark.parametrize("device", ["fixed16", "fp16-mixed"])
def test_a_run_on_a_devices_own_arrays_ends_in_the_same_hashes(device: str, tmp_path: Path):
    expected = trained("mlp", device, "numba", tmp_path, steps=3, batch=4)
    assert trained("mlp", device, "cuda", tmp_path, steps=3, batch=4) == expected


@pytest.mark.usefixtures("strict_device")
def test_arrays_stay_on_the_device_between_operations():
    recipe = emu.model("mlp").with_settings({"data.test_images": 8, "training.batch": 4, "training.steps": 3})
    loop = Loop(Workbench.of(recipe, emu.device("fixed16"), "cuda"))
    loop.advance()  # parameters move there
    WORK.clear()
    loop.advance()
    assert all(isinstance(state.master.array, DeviceArray) for state in loop.bench.model.states)
    certain, loss, outputs = 1, 1, 4 * 10  # of two exponentials: whether every result is certain
    assert sorted(WORK.sizes) == [certain, certain, loss, outputs], "no counts come back"
    WORK.clear()
    assert sum(counters.register.total for _, counters in loop.bench.runners.counters.items()) > 0
    assert 0 < len(WORK.sizes) <= len(list(loop.bench.runners.counters.items())), "one copy for a register of two steps"


@pytest.mark.usefixtures("strict_device")
@pytest.mark.parametrize(
    ("model", "kernels", "operations"), [("lenet", 143, 25), pytest.param("resnet8", 499, 133, marks=pytest.mark.slow)]
)
def test_a_step_launches_no_more_than_it_must(model: str, kernels: int, operations: int):
    recipe = emu.model(model).with_settings({"data.test_images": 8, "training.batch": 2, "training.steps": 4})
    loop = Loop(Workbench.of(recipe, emu.device("fixed16"), "cuda"))
    loop.advance()  # parameters and constants move there
    loop.advance()
    WORK.clear()
    loop.advance()
    assert sum(WORK.launches.values()) <= kernels
    assert sum(WORK.operations.values()) <= operations, WORK.operations
    images, labels, loss, seed = 2 * loop.bench.batches.data.train_inputs[0].size, 2, 1, 1
    assert WORK.uploads == [images, labels, loss, seed], "no task, no constant, no place is copied"
