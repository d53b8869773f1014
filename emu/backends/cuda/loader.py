"""The GPU through CuPy: whether it is there, kernels compiled for it and kept on disk, launches.

    absent      CuPy is not installed          broken      CuPy cannot be imported
    no device   no driver, or no GPU           ready

CuPy is imported here and nowhere else. It is handed finished code (`RawModule(path=...)`), never source, which it would
compile with `-ftz=true`.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from platformdirs import user_cache_path

from emu.backends.cuda import nvrtc
from emu.errors import BackendUnavailable

_EXTRAS = "pip install 'emu-numerics[cuda13]' (CUDA 13) or 'emu-numerics[cuda12]'"


class Status(NamedTuple):
    """Whether CUDA can compute here: `state` is absent, broken, no device or ready; `reason` says what to do."""

    state: str
    reason: str


def status() -> Status:
    """Return whether CUDA can compute here, and what to do if it cannot. Nothing is raised."""
    if importlib.util.find_spec("cupy") is None:
        return Status("absent", f"CuPy is not installed: {_EXTRAS}")
    try:
        cupy: Any = importlib.import_module("cupy")
    except Exception as error:  # a broken CUDA installation raises anything
        return Status("broken", f"CuPy cannot be imported ({type(error).__name__}: {error}): reinstall it, {_EXTRAS}")
    try:
        if cupy.is_available():
            return Status("ready", "ready")
        return Status("no device", "CuPy sees no GPU: check `nvidia-smi`, the driver, and CUDA_VISIBLE_DEVICES")
    except Exception as error:
        return Status("no device", f"CuPy reaches no GPU ({type(error).__name__}: {error}): check `nvidia-smi`")


class CupyDevice:
    """A GPU.

    Attributes:
        xp: CuPy.
    """

    def __init__(self) -> None:
        """Take CuPy's current device.

        Raises:
            BackendUnavailable: there is none; says why.
        """
        found = status()
        if found.state != "ready":
            raise BackendUnavailable(f"backend 'cuda' cannot compute here: {found.reason}")
        self.xp: Any = importlib.import_module("cupy")
        self._functions: dict[tuple[int, str, str], Any] = {}

    def launch(
        self, source: str, kernel: str, blocks: int, threads: int, arguments: Sequence[Any], shared_bytes: int
    ) -> None:
        """Run a kernel; see `Device`."""
        device = self.xp.cuda.Device()
        place = (int(device.id), source, kernel)
        if place not in self._functions:
            code = compiled(source, str(device.compute_capability))
            self._functions[place] = self.xp.RawModule(path=str(code)).get_function(kernel)
        null = self.xp.uint64(0)
        given = tuple(null if argument is None else argument for argument in arguments)
        self._functions[place]((blocks,), (threads,), given, shared_mem=shared_bytes)


@lru_cache(maxsize=256)
def compiled(source: str, architecture: str, folder: Path | None = None) -> Path:
    """Return the file of a kernel source's code for an architecture, compiled once per content and compiler.

    Args:
        source: name of the file in `kernels/`, without `.cu`.
        architecture: compute capability without its point: "75" .. "120".
        folder: where code is kept; None is the user's cache.

    Raises:
        BackendUnavailable: there is no NVRTC, or it refuses the source.
    """
    found = nvrtc.Source.named(source)
    content = repr((found, architecture, nvrtc.OPTIONS, nvrtc.version()))
    digest = hashlib.sha256(content.encode()).hexdigest()[:24]
    folder = folder or user_cache_path("emu", appauthor=False) / "cubins"
    path = folder / f"{Path(source).name}-sm_{architecture}-{digest}.cubin"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_bytes(found.compiled(architecture))
        part.replace(path)
    return path
