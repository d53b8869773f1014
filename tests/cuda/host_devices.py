"""Devices that the host plays, and how one becomes the backend `cuda`."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import contextmanager

import pytest

import emu.backends.cuda
from emu.backends import registry
from emu.backends.cuda import CudaKernels, Device, loader, nvrtc
from emu.backends.cuda.loader import CupyDevice
from tests.cuda.cuda_on_host import HostDevice

#: What NVIDIA's compiler makes of the kernels, run by the host, for these architectures.
AS_PTX = [pytest.param(architecture, marks=pytest.mark.slow) for architecture in ("80", "90")]
#: The ways in which the host plays a device: kernels compiled from their source, or from PTX.
HOSTS = ["", *AS_PTX]
#: The GPU itself, if there is one.
GPU = "gpu"


def name_of(architecture: str) -> str:
    if architecture == GPU:
        return GPU
    return f"sm_{architecture}" if architecture else "source"


def device_of(architecture: str) -> Device:
    """Return a device that runs the kernels' source, or their PTX for an architecture; or the GPU."""
    if architecture == GPU:
        found = loader.status()
        return CupyDevice() if found.state == "ready" else pytest.skip(found.reason)
    if shutil.which("g++") is None:
        pytest.skip("no g++ to compile CUDA kernels for the host")
    if architecture and not nvrtc.is_here():
        pytest.skip("no NVRTC: pip install '.[nvrtc]'")
    return HostDevice(architecture=architecture)


@contextmanager
def as_backend(device: Device) -> Generator[None, None, None]:
    """Let a device be the backend `cuda`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loader, "status", lambda: loader.Status("ready", "ready"))
        patch.setattr(emu.backends.cuda, "on_gpu", lambda: CudaKernels(device))
        registry.forget()
        yield
    registry.forget()
