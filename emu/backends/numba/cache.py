"""Compiled code on disk, read again only by the same sources on the same processor.

The folder is named by the hash of emu's sources, the versions of Numba and NumPy, and the processor: Numba's own index
does not notice that a called function changed in another file. In it, each compiled version of a function has a file
named by what it was compiled for. These files are the only pickles that emu reads.
"""

from __future__ import annotations

import hashlib
import pickle
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import llvmlite.binding  # pyright: ignore[reportMissingTypeStubs]
import numba
import numpy as np
from numba.core import serialize  # pyright: ignore[reportMissingTypeStubs]

from emu import _paths
from emu.backends.numba.claims import CLAIMS

# LLVM and Numba say little about their types.
_LLVM: Any = llvmlite.binding
_NUMBA_CONFIG: Any = vars(numba)["config"]
_SERIALIZE: Any = serialize


@lru_cache(maxsize=1)
def cache_folder() -> Path:
    """Return the folder of the compile cache for these sources, versions and processor; `EMU_CACHE_DIR` moves it."""
    digest = hashlib.sha256(f"{numba.__version__} {np.__version__} {_LLVM.get_host_cpu_name()}".encode())
    digest.update(str(sorted(_LLVM.get_host_cpu_features().items())).encode())
    digest.update(_paths.sources_sha256().encode())  # kernels freeze constants of other files: every source counts
    return _paths.cache_folder("kernels") / digest.hexdigest()[:16]


@contextmanager
def _numba_cache_in(folder: Path) -> Generator[None, None, None]:
    # Numba reads the folder only when a function is decorated: other code that uses Numba keeps its own.
    before = _NUMBA_CONFIG.CACHE_DIR
    _NUMBA_CONFIG.CACHE_DIR = str(folder)
    try:
        yield
    finally:
        _NUMBA_CONFIG.CACHE_DIR = before


class Versions:
    """The compiled versions of one function, in place of Numba's own files.

    Numba numbers its files and keeps the numbers in an index. Two processes that compile at once may take the same
    number; from then on the index leads one of them to the other's code, whose bits are wrong.
    """

    def __init__(self, folder: str, name: str) -> None:
        """Keep the versions as files `name`... in `folder`."""
        self._folder, self._name = Path(folder), name

    def _path(self, text: str) -> Path:
        # Half of the hash keeps names short: `load` compares the whole key.
        return self._folder / f"{self._name}.{hashlib.sha256(text.encode()).hexdigest()[:32]}.nbc"

    def save(self, key: object, data: object) -> None:
        """Keep what was compiled for `key`: signature, processor, hashes of the bytecode and of its free variables."""
        # Under another name first: a reader sees a whole file or none.
        text = repr(key)
        path = self._path(text)
        part = path.with_name(f"{path.name}.{uuid.uuid4().hex[:16]}")
        try:
            part.write_bytes(_SERIALIZE.dumps((text, data)))
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        finally:
            CLAIMS.give_up(path)

    def load(self, key: object) -> Any:
        """Return what was compiled for `key`; None if this process is to compile it.

        Raises:
            PassedOverError: another process compiles it, and this one need not have it.
        """
        text = repr(key)
        saved = self._read(text)
        return saved if saved is not None else CLAIMS.claim(self._path(text), lambda: self._read(text))

    def _read(self, text: str) -> Any:
        """Return what was compiled for a key; None if nothing was, or the file is damaged."""
        try:
            saved_for, data = pickle.loads(self._path(text).read_bytes())
        except Exception:  # damaged bytes may name anything, so that unpickling them may raise anything
            return None
        return data if saved_for == text else None  # the name holds only half of the hash

    def flush(self) -> None:
        """Forget every version."""
        for path in self._folder.glob(f"{self._name}.*.nbc"):
            path.unlink(missing_ok=True)


def cached(compile_as: Callable[..., Callable[..., Any]], function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Return `function` compiled by `compile_as` with `options`, kept on disk if the cache folder can be written to.

    It stays as it is if Numba is told to compile nothing (NUMBA_DISABLE_JIT): then no backend asks for kernels.
    """
    if _NUMBA_CONFIG.DISABLE_JIT:
        return function
    with _numba_cache_in(cache_folder()):
        try:
            made: Any = compile_as(cache=True, **options)(function)
        except (RuntimeError, OSError):  # nowhere to write: compile in every process instead
            return compile_as(cache=False, **options)(function)
    # Numba's cache has chosen path and name. Of its files it calls `save`, `load` and `flush` alone.
    files = made._cache
    files._cache_file = Versions(files._cache_path, files._impl.filename_base)
    files.save_overload = _if_possible(files.save_overload)
    made._compile_for_args = _giving_up(made._compile_for_args)  # the first call of a version looks it up there
    return made


def _if_possible(save: Callable[..., None]) -> Callable[..., None]:
    """Return what saves a compiled version if the system lets it: with a full disk, this process alone has the code."""

    def save_if_possible(*args: Any) -> None:
        with suppress(OSError):
            save(*args)

    return save_if_possible


def _giving_up(compile_for: Callable[..., Any]) -> Callable[..., Any]:
    """Return what compiles a function for a call, and claims nothing afterwards, whether it could be saved or not."""

    def compile_and_give_up(*args: Any, **keywords: Any) -> Any:
        try:
            return compile_for(*args, **keywords)
        finally:
            CLAIMS.give_up_all()

    return compile_and_give_up
