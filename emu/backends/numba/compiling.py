"""How kernels are compiled, cached and spread over threads.

Kernels release the interpreter lock and work on a range of their output; a small pool runs one range per thread.
Ranges never share an output and counts are added afterwards, so the number of threads cannot change a bit.

The compile cache lives in a folder named by the hash of these sources, the versions of Numba and NumPy, and the
processor: Numba's own index does not notice a changed callee in another file. It is the only pickle emu reads.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import llvmlite.binding  # pyright: ignore[reportMissingTypeStubs]
import numba
import numpy as np
from platformdirs import user_cache_path

from emu.errors import ConfigError

# LLVM and Numba say little about their types.
_LLVM: Any = llvmlite.binding
_NJIT: Any = numba.njit
_NUMBA_CONFIG: Any = vars(numba)["config"]
#: Elements of one block: a handful of float64 blocks stay in the first-level cache.
BLOCK = 512
#: Work below this many elements is not worth a second thread.
GRAIN = 1 << 14


@lru_cache(maxsize=1)
def cache_folder() -> Path:
    """Return the folder of the compile cache for these sources, versions and processor; `EMU_CACHE_DIR` moves it."""
    digest = hashlib.sha256(f"{numba.__version__} {np.__version__} {_LLVM.get_host_cpu_name()}".encode())
    digest.update(str(sorted(_LLVM.get_host_cpu_features().items())).encode())
    package = Path(__file__).parents[2]  # kernels freeze constants of other files: every source counts
    for source in sorted(package.rglob("*.py")):
        digest.update(str(source.relative_to(package)).encode() + source.read_bytes())
    root = os.environ.get("EMU_CACHE_DIR")
    base = Path(root) if root else user_cache_path("emu", appauthor=False)
    return base / "kernels" / digest.hexdigest()[:16]


@contextmanager
def _numba_cache_in(folder: Path) -> Generator[None, None, None]:
    before = _NUMBA_CONFIG.CACHE_DIR
    _NUMBA_CONFIG.CACHE_DIR = str(folder)
    try:
        yield
    finally:
        _NUMBA_CONFIG.CACHE_DIR = before


def kernel(function: Callable[..., Any], *, any_order: bool = False) -> Any:
    """Compile a function of arrays and numbers: no interpreter lock, IEEE division, no contraction, cached on disk.

    `any_order`: its float sums are exact, so that they may be added in the order that is fastest.
    """
    fastmath: Any = {"reassoc"} if any_order else False
    options = {"nogil": True, "error_model": "numpy", "boundscheck": False, "fastmath": fastmath}
    with _numba_cache_in(cache_folder()):
        try:
            return _NJIT(cache=True, **options)(function)
        except (RuntimeError, OSError):  # nowhere to write: compile in every process instead
            return _NJIT(cache=False, **options)(function)


@lru_cache(maxsize=1)
def thread_count() -> int:
    """Return how many threads kernels use: `EMU_THREADS`, or the processors this process may run on.

    Raises:
        ConfigError: `EMU_THREADS` is not a positive integer.
    """
    wanted = os.environ.get("EMU_THREADS", "")
    if wanted and (not wanted.isdigit() or int(wanted) == 0):
        raise ConfigError(f"EMU_THREADS must be a positive integer, got {wanted!r}; unset it to use every processor")
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(wanted) if wanted else available


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(thread_count() - 1, 1), thread_name_prefix="emu")


def over_ranges(work: Callable[[int, int, int], None], size: int, align: int, grain: int = GRAIN) -> None:
    """Call `work(index, start, stop)` for consecutive ranges of 0..size, one per thread.

    Args:
        work: computes one range; ranges never overlap.
        size: number of elements or rows.
        align: starts are multiples of this.
        grain: ranges smaller than this are not split.
    """
    threads = min(thread_count(), max(1, size // max(grain, 1)))
    if threads == 1:
        work(0, 0, size)
        return
    step = -(-size // threads)
    step = max(-(-step // align) * align, align)
    ranges = [(i, start, min(start + step, size)) for i, start in enumerate(range(0, size, step))]
    futures = [_pool().submit(work, *r) for r in ranges[1:]]
    work(*ranges[0])
    for future in futures:
        future.result()
