"""The CUDA backend on a device that the host plays; numbers on which kernels go wrong are those of `tests/backends`."""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), *(str(Path(__file__).parents[1] / name) for name in ("backends", "golden"))]

from host_devices import GPU, HOSTS, as_backend, device_of, name_of  # noqa: E402 - found by the path above


@pytest.fixture(scope="module", params=[*HOSTS, pytest.param(GPU, marks=pytest.mark.gpu)], ids=name_of)
def cuda(request: pytest.FixtureRequest) -> Generator[str, None, None]:
    """Name of the backend, on a device that the host plays."""
    with as_backend(device_of(request.param)):
        yield "cuda"
