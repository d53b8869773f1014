"""CUDA kernels run by a host compiler and a host processor, thread by thread: how kernels are tested without a GPU.

    module = compile_kernels(Path("mine.cu"), include=[Path("include")])
    module.get_function("scale")((4,), (128,), (x, np.float32(2), np.int64(x.size)), shared_mem=0)

Arrays are NumPy's, everything else NumPy scalars of exactly the parameters' widths. Every kernel is followed by
`EMU_KERNEL(name)`, and includes `port.cuh` or, under `EMU_ON_HOST`, `cuda_on_host.h`.

Threads of a block are fibers that switch at barriers and warp operations; `order` runs them and the blocks forward,
backward or shuffled. `compile_kernels(..., checks="sanitized")` stops at undefined behaviour of C++, where a GPU and a
processor may differ; with `checks="races"` a launch raises `RaceError` if two threads use the same memory without a
barrier between them, by CUDA's rules. `compile_ptx` runs what NVIDIA's compiler made of a kernel instead of its source.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any, Literal

import numpy as np

from emu._paths import cache_folder, content_folder
from emu.backends.cuda import nvrtc
from emu.backends.kernels import Result
from emu.errors import BackendUnavailable, EmuError
from tests.cuda.ptx_on_host import translate

#: CUDA on a processor (`cuda_on_host.h`), and what PTX instructions do (`ptx_on_host.h`).
HEADERS = Path(__file__).with_name("host")
Checks = Literal["none", "sanitized", "races"]
Order = Literal["forward", "backward", "shuffled"]
_ORDERS: dict[Order, int] = {"forward": 0, "backward": 1, "shuffled": 2}
#: Integers as CUDA defines them; floats neither contracted nor reassociated. Compiling is most of the time: -O1 takes
#: three quarters of what -O2 takes, and networks run up to a tenth longer.
_FLAGS = (
    "-std=c++17", "-O1", "-fPIC", "-shared", "-ffp-contract=off", "-fno-fast-math", "-fno-strict-aliasing",
    "-fvisibility=hidden", "-U_FORTIFY_SOURCE", "-DEMU_ON_HOST",
)  # fmt: skip
_CHECKS: dict[Checks, tuple[str, ...]] = {
    "none": (),
    "races": ("-fsanitize=thread", "-DEMU_RACES"),
    "sanitized": ("-fsanitize=undefined,float-cast-overflow", "-fno-sanitize-recover=all", "-static-libubsan"),
}
#: Parameters of a kernel, at most.
_MOST_PARAMETERS = 64


class RaceError(EmuError):
    """Two threads used the same memory, one of them to write, without a barrier between them."""


class HostModule:
    """Kernels in a shared library, called as those of `cupy.RawModule` are."""

    _one_launch_at_a_time = threading.Lock()

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))

    def order(self, order: Order, seed: int = 1) -> None:
        """Run threads and blocks in another order; `seed` shuffles."""
        self._library.emu_host_order(ctypes.c_int(_ORDERS[order]), ctypes.c_ulong(seed))

    def get_function(self, name: str) -> Callable[..., None]:
        """Return a kernel, called with grid, block, arguments and bytes of dynamic shared memory.

        Raises:
            AttributeError: the library has no such kernel; is it followed by `EMU_KERNEL`?
        """
        call = getattr(self._library, f"emu_host_launch_{name}")
        sizes = (ctypes.c_int * _MOST_PARAMETERS)()
        count = int(getattr(self._library, f"emu_host_arguments_{name}")(sizes))

        def launch(grid: Sequence[int], block: Sequence[int], arguments: Sequence[Any], shared_mem: int = 0) -> None:
            if len(arguments) != count:
                raise TypeError(f"{name}() takes {count} arguments, got {len(arguments)}")
            held = [_argument(name, i, x, sizes[i]) for i, x in enumerate(arguments)]
            pointers = (ctypes.c_void_p * max(count, 1))(*(ctypes.addressof(x) for x in held))
            with self._one_launch_at_a_time:
                watches = hasattr(self._library, "emu_host_watch")
                if watches:
                    self._library.emu_host_watch()
                call(_three(grid), _three(block), pointers)
                if watches:
                    self._raise_races(name)

        return launch

    def _raise_races(self, kernel: str) -> None:
        text = ctypes.create_string_buffer(256)
        self._library.emu_host_races.restype = ctypes.c_ulong
        found = self._library.emu_host_races(text, len(text))
        if found:
            raise RaceError(f"{kernel}() has {found} races; the first: {text.value.decode()}")


def _argument(kernel: str, position: int, value: Any, size: int) -> Any:
    if value is None:
        return ctypes.c_void_p(None)
    if isinstance(value, np.ndarray):
        array: Any = value  # pyright: ignore[reportUnknownVariableType]
        if not array.flags.c_contiguous:
            raise TypeError(f"{kernel}(): argument {position} must be a contiguous array; copy it")
        return ctypes.c_void_p(array.ctypes.data)
    if not isinstance(value, np.generic):
        raise TypeError(f"{kernel}(): argument {position} must be an array or a NumPy scalar, got {value!r}")
    scalar: Any = value  # pyright: ignore[reportUnknownVariableType]
    if scalar.nbytes != size:
        raise TypeError(f"{kernel}(): argument {position} must have {size} bytes, got {scalar.dtype}")
    return ctypes.create_string_buffer(scalar.tobytes(), size)


def _three(sizes: Sequence[int]) -> Any:
    return (ctypes.c_uint * 3)(*(*sizes, 1, 1)[:3])


def compile_kernels(
    source: Path,
    *,
    include: Sequence[Path] = (),
    checks: Checks = "none",
    defines: Sequence[str] = (),
    cache: Path | None = None,
) -> HostModule:
    """Return the kernels of a `.cu` file compiled for this processor; compiled once per content.

    Args:
        source: the file.
        include: folders of headers.
        checks: "sanitized" ends the process at undefined behaviour; "races" raises at races.
        defines: macros, `NAME` or `NAME=VALUE`.
        cache: folder of libraries; None is the user's cache.

    Raises:
        BackendUnavailable: there is no `g++`, or it refuses the source; says what it printed.
    """
    options = [*_CHECKS[checks], *(f"-D{define}" for define in defines)]
    return HostModule(_library_of(source.read_text(), source.name, include, options, cache))


def compile_ptx(ptx: str, name: str, *, cache: Path | None = None) -> HostModule:
    """Return the kernels of a PTX text, translated and compiled for this processor.

    Args:
        ptx: what NVRTC wrote.
        name: for messages.
        cache: folder of libraries; None is the user's cache.

    Raises:
        UnknownInstructionError: the translator lacks an instruction.
        BackendUnavailable: there is no `g++`.
    """
    return HostModule(_library_of(translate(ptx), name, (), (), cache))


def _library_of(text: str, name: str, include: Sequence[Path], options: Sequence[str], cache: Path | None) -> Path:
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        raise BackendUnavailable("CUDA kernels on the host need a C++17 compiler: install g++, or name yours in CXX")
    folders = [*include, HEADERS]
    flags = [*_FLAGS, *options]
    digest = hashlib.sha256(repr((compiler, flags)).encode() + text.encode())
    for path in sorted(p for folder in folders for p in folder.rglob("*") if p.is_file()):
        digest.update(path.name.encode() + path.read_bytes())
    folder = cache or cache_folder("kernels-on-host")
    library = folder / f"{digest.hexdigest()[:24]}.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = library.with_suffix(f".{os.getpid()}.part")
        includes = [f"-I{folder}" for folder in folders]
        if "-DEMU_RACES" in flags:  # linked without the sanitizer, whose hooks races.h replaces
            thing = part.with_suffix(".o")
            _run([compiler, *flags, *includes, "-c", "-x", "c++", "-", "-o", str(thing)], text, name)
            _run([compiler, "-shared", str(thing), "-o", str(part)], "", name)
            thing.unlink()
        else:
            _run([compiler, *flags, *includes, "-x", "c++", "-", "-o", str(part)], text, name)
        part.replace(library)
    return library


def _run(command: list[str], text: str, name: str) -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BackendUnavailable(f"{command[0]} refuses {name}:\n{done.stderr[:4000]}")


class HostDevice:
    """A device for the CUDA backend, played by this processor.

    Attributes:
        xp: NumPy.
        queue: there is one.
    """

    xp: Any = np
    queue = 0

    def __init__(
        self, *, architecture: str = "", checks: Checks = "none", order: Order = "forward", seed: int = 1
    ) -> None:
        """Choose what runs, what is checked, and in which order threads and blocks run.

        Args:
            architecture: "" runs the source; "75" .. "120" what NVRTC made of it for that one, translated from PTX.
            checks: as of `compile_kernels`, for the source.
            order: of threads within a block, and of blocks.
            seed: of the shuffled order.
        """
        self._architecture = architecture
        self._checks: Checks = checks
        self._modules: dict[tuple[str, int], HostModule] = {}
        self.run_in(order, seed)

    def run_in(self, order: Order, seed: int = 1) -> None:
        """Run threads, blocks and independent tasks in this order from now on."""
        self._order: tuple[Order, int] = (order, seed)

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
        """Run a kernel of emu's; see `emu.backends.cuda.Device`."""
        place = (source, words)
        if place not in self._modules:
            self._modules[place] = self._compiled(source, words)
        module = self._modules[place]
        module.order(*self._order)
        module.get_function(kernel)((blocks,), (threads,), arguments, shared_bytes)

    def finish(self) -> None:
        """Return at once: what was launched is done."""

    def together(self, tasks: Sequence[Callable[[], Result]]) -> list[Result]:
        """Return the results of tasks, run in the order of threads and blocks; see `emu.backends.cuda.Device`."""
        order, seed = self._order
        numbers = list(range(len(tasks)))
        if order == "shuffled":
            Random(seed).shuffle(numbers)
        results = {i: tasks[i]() for i in (reversed(numbers) if order == "backward" else numbers)}
        return [results[i] for i in range(len(tasks))]

    def multiply(self, left: Any, right: Any, batches: int) -> Any:
        """Return exact products; see `emu.backends.cuda.Device`."""
        dtype = np.int32 if left.dtype == np.int8 else left.dtype
        whole = (batches, left.shape[1], right.shape[1])
        with np.errstate(invalid="ignore"):  # OpenBLAS drops what it computes with an earlier product's leftovers
            product = np.matmul(left.astype(dtype, copy=False), right.astype(dtype, copy=False).swapaxes(1, 2))
        return np.ascontiguousarray(np.broadcast_to(product, whole))

    def _compiled(self, source: str, words: int) -> HostModule:
        kernels = content_folder("kernels")
        path = kernels / f"{source}.cu"
        if not self._architecture:
            macros = nvrtc.defines_of(words)
            return compile_kernels(path, include=[kernels / "include"], checks=self._checks, defines=macros)
        ptx = ptx_of(source, self._architecture, nvrtc.options_for(words))
        return compile_ptx(ptx, f"{path.name} as PTX of sm_{self._architecture}")


@lru_cache(maxsize=64)
def ptx_of(source: str, architecture: str, options: tuple[str, ...] = nvrtc.OPTIONS) -> str:
    """Return the PTX of one of emu's `.cu` files.

    Args:
        source: name of the file, without `.cu`.
        architecture: "75" .. "120".
        options: of the compiler.
    """
    return nvrtc.Source.named(source).compiled(architecture, "ptx", options).decode()
