"""Backends: sets of kernels that return the same bits.

    reference   NumPy, vectorised over outputs: the executable definition
    numba       compiled loops on the CPU's cores
    cuda        CUDA C++, compiled for the GPU at hand

The package is callable: `emu.backends()` tells which are ready, and why the others are not. Nothing is loaded before
it is used.
"""

from __future__ import annotations

import sys
from types import ModuleType


class _Backends(ModuleType):
    def __call__(self) -> dict[str, str]:
        from emu.backends.registry import backends

        return backends()


# a module is callable only by its class
sys.modules[__name__].__class__ = _Backends
