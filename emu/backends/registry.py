"""Lists the backends, says which are ready, and loads them.

A backend is imported only when it is used: `import emu` loads neither Numba nor CuPy.
"""

from __future__ import annotations

import importlib
import importlib.util
from functools import lru_cache

from emu.backends.kernels import Kernels
from emu.errors import BackendUnavailable, nearest_name

#: Backend -> module, and what makes its kernel table there.
_TABLES = {
    "reference": ("emu.backends.reference", "ReferenceKernels"),
    "numba": ("emu.backends.numba", "NumbaKernels"),
    "cuda": ("emu.backends.cuda", "on_gpu"),
}
#: What "auto" tries, fastest first.
PREFERENCE = ("numba", "reference")


def backends() -> dict[str, str]:
    """Return, for every backend, "ready" or the reason why it is not.

    Examples:
        >>> backends()["reference"]
        'ready'
    """
    return {name: _status(name) for name in _TABLES}


def _status(name: str) -> str:
    return _STATES[name]() if name in _STATES else "ready"


def _state_of_numba() -> str:
    return "ready" if importlib.util.find_spec("numba") is not None else "numba is not installed: pip install numba"


def _state_of_cuda() -> str:
    from emu.backends.cuda.loader import status

    return status().reason


#: Backends that may be unable to compute here, and the function that says why.
_STATES = {"numba": _state_of_numba, "cuda": _state_of_cuda}


def load(name: str = "auto") -> Kernels:
    """Return the kernel table of a backend.

    Raises:
        BackendUnavailable: no such backend, or it cannot compute here; names the remedy.
    """
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _unknown(name)
    return _loaded(name)


@lru_cache(maxsize=8)
def _loaded(name: str) -> Kernels:
    if name == "auto":
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
    """Load every backend again when it is next asked for: a test or a benchmark has replaced what it runs on."""
    _loaded.cache_clear()
