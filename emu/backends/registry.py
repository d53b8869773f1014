"""Lists the backends, says which are ready, and loads them.

A backend is imported only when it is used: `import emu` loads neither Numba nor CuPy.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from contextlib import suppress
from functools import lru_cache

from emu.backends.kernels import Kernels
from emu.errors import BackendUnavailable, nearest_name

#: Backend -> its module, and the callable of this module that makes the kernel table.
_TABLES = {
    "reference": ("emu.backends.reference", "ReferenceKernels"),
    "numba": ("emu.backends.numba", "NumbaKernels"),
    "cuda": ("emu.backends.cuda", "on_gpu"),
}
#: What "auto" tries, fastest first. A GPU is used only by name: `cuda` is not among them.
PREFERENCE = ("numba", "reference")


def backends() -> dict[str, str]:
    """Return, for every backend, "ready" or the reason why it is not.

    Examples:
        >>> backends()["reference"]
        'ready'
    """
    return {name: _status(name) for name in _TABLES}


def _status(name: str) -> str:
    return _CHECKS[name]() if name in _CHECKS else "ready"


def _status_of_numba() -> str:
    # looked up, not imported: importing Numba takes long
    if importlib.util.find_spec("numba") is None:
        return "numba is not installed: pip install numba"
    setting = os.environ.get("NUMBA_DISABLE_JIT", "")
    # as Numba reads it: any integer but 0 switches it off, what is no integer nothing
    with suppress(ValueError):
        if int(setting):
            return f"Numba compiles nothing, as NUMBA_DISABLE_JIT is {setting}: unset it"
    return "ready"


def _status_of_cuda() -> str:
    from emu.backends.cuda.loader import status

    return status().reason


#: Backends that may be unable to compute here, each with the function that returns its status.
_CHECKS = {"numba": _status_of_numba, "cuda": _status_of_cuda}


def load(name: str = "auto") -> Kernels:
    """Return the kernel table of a backend.

    Raises:
        BackendUnavailable: no such backend, or it cannot compute here; names the remedy.
    """
    # before the cache, which hashes the name: a list has no hash
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _unknown(name)
    return _loaded(name)


@lru_cache(maxsize=8)
def _loaded(name: str) -> Kernels:
    if name == "auto":
        # the name that "auto" stands for; this table is kept under "auto" as well
        name = next(candidate for candidate in PREFERENCE if _status(candidate) == "ready")
    if name not in _TABLES:
        raise _unknown(name)
    if (status := _status(name)) != "ready":
        raise BackendUnavailable(f"backend {name!r} cannot compute here: {status}")
    module, table = _TABLES[name]
    return getattr(importlib.import_module(module), table)()


def _unknown(name: object) -> BackendUnavailable:
    return BackendUnavailable(f"`backend` must be auto or a backend, got {name!r}{nearest_name(name, _TABLES)}")


def forget() -> None:
    """Forget the loaded backends, so that the next `load` makes their tables again.

    Tests and benchmarks call it after they have replaced the device of a backend.
    """
    _loaded.cache_clear()
