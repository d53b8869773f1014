"""A network trained on the CUDA kernels, run by the host: the weights and registers of the other backends."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from pathlib import Path

import pytest

import emu
import emu.backends.cuda
from emu.backends import registry
from emu.backends.cuda import CudaKernels, loader
from emu.testing.cuda_on_host import HostDevice

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to compile CUDA kernels for the host")


@pytest.fixture
def cuda_on_host(monkeypatch: pytest.MonkeyPatch) -> Generator[None, None, None]:
    monkeypatch.setattr(loader, "status", lambda: loader.Status("ready", "ready"))
    monkeypatch.setattr(emu.backends.cuda, "on_gpu", lambda: CudaKernels(HostDevice()))
    registry.load.cache_clear()
    yield
    registry.load.cache_clear()


def trained(model: str, device: str, backend: str, folder: Path, **settings: int) -> tuple[str, str]:
    overrides = {"data.test_images": 8, **{f"training.{name}": value for name, value in settings.items()}}
    run = emu.train(emu.model(model), emu.device(device), out=folder / backend, backend=backend, overrides=overrides)
    assert run.info["backend"] == backend
    return run.weights_sha256, run.registers_sha256


@pytest.mark.usefixtures("cuda_on_host")
@pytest.mark.parametrize("device", ["fp16-mixed", pytest.param("fixed8", marks=pytest.mark.slow)])
def test_a_few_steps_end_in_the_same_hashes(device: str, tmp_path: Path):
    expected = trained("mlp", device, "numba", tmp_path, steps=3, batch=4)
    assert trained("mlp", device, "cuda", tmp_path, steps=3, batch=4) == expected


@pytest.mark.slow
@pytest.mark.usefixtures("cuda_on_host")
@pytest.mark.parametrize("device", ["fixed16", "bf16-mixed"])
def test_twenty_steps_of_lenet_end_in_the_same_hashes(device: str, tmp_path: Path):
    results = {trained("lenet", device, name, tmp_path, steps=20, batch=4) for name in ("reference", "numba", "cuda")}
    assert len(results) == 1
