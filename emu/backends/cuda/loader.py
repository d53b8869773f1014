"""The GPU through CuPy: whether it is there, kernels compiled for it and kept on disk, launches.

    absent      CuPy is not installed          broken      CuPy cannot be imported
    no device   no driver, or no GPU           ready

CuPy is imported here and nowhere else. It is given compiled code (`RawModule(path=...)`), never source: that it would
compile with `-ftz=true`, which writes subnormal results as 0.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib
import importlib.util
import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from emu._paths import cache_folder
from emu.backends.cuda import nvrtc
from emu.backends.kernels import Result
from emu.errors import BackendUnavailable

_EXTRAS = "pip install 'emu-numerics[cuda13]' (CUDA 13) or 'emu-numerics[cuda12]'"


class Status(NamedTuple):
    """Whether CUDA can compute here: `state` is absent, broken, no device or ready; `reason` says what to do."""

    state: str
    reason: str


def status() -> Status:
    """Return whether CUDA can compute here, and what to do if it cannot. Nothing is raised."""
    # looked up without importing it: an absent package is not a broken one
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


#: Products by cuBLAS, by the dtype of the operands: number of their type in cudaDataType (CUDA_R_32F, 64F, 8I); dtype
#: of sums and factors, and its number; cublasComputeType (32F_PEDANTIC, 64F, 32I). float32 is computed pedantically:
#: else the library may round operands to tf32.
_GEMM: dict[np.dtype[Any], tuple[int, Any, int, int]] = {
    np.dtype(np.float32): (0, np.float32, 0, 69),
    np.dtype(np.float64): (1, np.float64, 1, 70),
    np.dtype(np.int8): (3, np.int32, 10, 72),
}


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
        cuda = status()
        if cuda.state != "ready":
            raise BackendUnavailable(f"backend 'cuda' cannot compute here: {cuda.reason}")
        self.xp: Any = importlib.import_module("cupy")
        self._functions: dict[tuple[int, str, str, int], Any] = {}
        self._streams: dict[tuple[int, int], Any] = {}

    def launch(
        self,
        source: str,
        kernel: str,
        blocks: int,
        threads: int,
        arguments: Sequence[Any],
        shared_bytes: int,
        words: int = nvrtc.WIDE_WORDS,
    ) -> None:
        """Run a kernel; see `Device`."""
        device = self.xp.cuda.Device()
        # a loaded function belongs to one device
        key = (int(device.id), source, kernel, words)
        if key not in self._functions:
            code = compiled(source, str(device.compute_capability), words)
            self._functions[key] = self.xp.RawModule(path=str(code)).get_function(kernel)
        self._functions[key]((blocks,), (threads,), tuple(map(_given, arguments)), shared_mem=shared_bytes)

    def together(self, tasks: Sequence[Callable[[], Result]]) -> list[Result]:
        """Run the first task on a second stream, the others on the current one; see `Device`.

        CuPy gives freed memory to the next array of the same stream at once, without waiting for kernels. That is safe
        here: the second stream begins after everything that the current one was given; the current one waits for it at
        the end; and the arrays that tasks read live until then, since the tasks refer to them.
        """
        if len(tasks) < 2:
            return [task() for task in tasks]
        here, beside = self.xp.cuda.get_current_stream(), self._beside()
        beside.wait_event(here.record())
        try:
            with beside:
                first = tasks[0]()
            return [first, *(task() for task in tasks[1:])]
        finally:
            # also if a task fails: what is launched later must wait for the second stream
            here.wait_event(beside.record())

    def finish(self) -> None:
        """Wait for every stream."""
        self.xp.cuda.Device().synchronize()

    @property
    def queue(self) -> int:
        """The current stream's address."""
        return int(self.xp.cuda.get_current_stream().ptr)

    def _beside(self) -> Any:
        # one for each thread: the stream of another thread would not wait for this thread's current stream
        key = int(self.xp.cuda.Device().id), threading.get_ident()
        if key not in self._streams:
            self._streams[key] = self.xp.cuda.Stream(non_blocking=True)
        return self._streams[key]

    def multiply(self, left: Any, right: Any, batches: int) -> Any:
        """Return exact products by cuBLAS; see `Device`.

        The library stores matrices by columns: it is asked for the transposed product, whose columns are our rows.
        """
        kind, result, result_kind, computed = _GEMM[left.dtype]
        rows, depth, columns = left.shape[1], left.shape[2], right.shape[1]
        if not (batches * rows * columns and depth):
            # a sum of no terms is 0
            return self.xp.zeros((batches, rows, columns), result)
        cublas = importlib.import_module("cupy_backends.cuda.libs.cublas")
        out = self.xp.empty((batches, rows, columns), result)
        alpha, beta = np.ones(1, result), np.zeros(1, result)  # the result is alpha * product + beta * out
        # step 0 lets one matrix serve all products
        right_step, left_step = (0 if x.shape[0] == 1 else x.shape[1] * depth for x in (right, left))
        handle = self.xp.cuda.device.get_cublas_handle()
        cublas.gemmStridedBatchedEx(
            *(handle, cublas.CUBLAS_OP_T, cublas.CUBLAS_OP_N, columns, rows, depth, alpha.ctypes.data),
            # (N, K) by rows is (K, N) by columns: transposed; (M, K) by rows is (K, M) by columns: as it is
            *(right.data.ptr, kind, depth, right_step),
            *(left.data.ptr, kind, depth, left_step),
            *(beta.ctypes.data, out.data.ptr, result_kind, columns, rows * columns),
            *(batches, computed, cublas.CUBLAS_GEMM_DEFAULT),
        )
        return out


def _given(argument: Any) -> Any:
    """Return an argument as CuPy takes it: a null pointer as an integer, a struct as an array of one element."""
    if argument is None:
        return np.uint64(0)
    return np.asarray(argument) if isinstance(argument, np.void) else argument


@lru_cache(maxsize=256)
def compiled(source: str, architecture: str, words: int = nvrtc.WIDE_WORDS, folder: Path | None = None) -> Path:
    """Return the file of a kernel source's code for an architecture, compiled once per content and compiler.

    Args:
        source: name of the file in `kernels/`, without `.cu`.
        architecture: compute capability without its point: "75" .. "120".
        words: 64-bit words of its wide integers.
        folder: where code is kept; None is the user's cache. Code that cannot be kept there serves this process.

    Raises:
        BackendUnavailable: there is no NVRTC, or it refuses the source.
        OSError: the code can be written nowhere, not to a temporary folder either.
    """
    kernels = nvrtc.Source.named(source)
    options = nvrtc.options_for(words)
    # everything that decides the code is in the file's name
    content = repr((kernels, architecture, options, nvrtc.version()))
    digest = hashlib.sha256(content.encode()).hexdigest()[:24]
    folder = folder or cache_folder("cubins")
    path = folder / f"{Path(source).name}-{words}-sm_{architecture}-{digest}.cubin"
    if not path.exists():
        code = kernels.compiled(architecture, options=options)
        try:
            _write(path, code)
        except OSError:  # a full disk, or nowhere to write: the file serves this process alone
            path = _room_of_process() / path.name
            _write(path, code)
    return path


def _write(path: Path, code: bytes) -> None:
    """Write a file; another process that writes the same finds all of it or nothing."""
    # a name of this process: two that compile at once write two files
    part = path.with_suffix(f".{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(code)
        part.replace(path)
    except OSError:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise


@lru_cache(maxsize=1)
def _room_of_process() -> Path:
    """Return a temporary folder, which is removed when this process ends."""
    folder = tempfile.TemporaryDirectory(prefix="emu-cubins-")
    atexit.register(folder.cleanup)
    return Path(folder.name)
