"""NVIDIA's run-time compiler, called without a driver: CUDA C++ to PTX, or to code of one architecture.

The options are pinned: no contraction, no flushing, IEEE division and roots. (CuPy's own compilation appends
`-ftz=true`, with any options.)
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from emu._paths import content_folder
from emu.errors import BackendUnavailable

#: What every kernel is compiled with. A contracted a * b + c would round once instead of twice; --ftz would lose
#: subnormals; without --prec-div and --prec-sqrt quotients and roots of float32 would not be rounded correctly.
OPTIONS = (
    "--std=c++17",
    "--fmad=false",
    "--ftz=false",
    "--prec-div=true",
    "--prec-sqrt=true",
    "--device-as-default-execution-space",
)
#: 64-bit words of kernels' wide integers unless a launch asks for fewer.
WIDE_WORDS = 4
#: Architectures the kernels are written for.
ARCHITECTURES = ("75", "80", "86", "89", "90", "100", "120")
_REMEDY = "pip install nvidia-cuda-nvrtc (CUDA 13) or nvidia-cuda-nvrtc-cu12"


def _candidates() -> list[str]:
    libraries: list[str] = []
    spec = importlib.util.find_spec("nvidia")
    # wheels of NVIDIA install libraries below the namespace package `nvidia`
    for folder in (spec.submodule_search_locations or []) if spec else []:
        # libnvrtc-builtins is another library
        libraries += [
            str(path) for path in sorted(Path(folder).glob("*/lib*/libnvrtc.so.*")) if "builtins" not in path.name
        ]
    for name in ("CUDA_PATH", "CUDA_HOME"):
        if name in os.environ:
            libraries += [str(path) for path in sorted(Path(os.environ[name]).glob("lib*/libnvrtc.so"))]
    system = ctypes.util.find_library("nvrtc")
    return [*libraries, *([system] if system else [])]


@lru_cache(maxsize=1)
def _library() -> Any:
    problems: list[str] = []
    for candidate in _candidates():
        try:
            # the first that loads: wheels before an installed toolkit, that before the system's
            return ctypes.CDLL(candidate)
        except OSError as error:
            problems.append(str(error))
    tried = f" ({'; '.join(problems)})" if problems else ""
    raise BackendUnavailable(f"CUDA kernels are compiled by NVRTC, which was not found{tried}: {_REMEDY}")


def is_here() -> bool:
    """Return whether the compiler can be called."""
    try:
        _library()
    except BackendUnavailable:
        return False
    return True


def version() -> tuple[int, int]:
    """Return the compiler's version."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def defines_of(words: int) -> tuple[str, ...]:
    """Return the macros with which kernels are compiled for wide integers of `words` 64-bit words."""
    return () if words == WIDE_WORDS else (f"WIDE_WORDS={words}",)


def options_for(words: int) -> tuple[str, ...]:
    """Return the options of the compiler for kernels with wide integers of `words` 64-bit words."""
    return (*OPTIONS, *(f"-D{define}" for define in defines_of(words)))


def compile_kernels(
    source: str,
    name: str,
    headers: Mapping[str, str],
    architecture: str,
    kind: Literal["cubin", "ptx"] = "cubin",
    options: tuple[str, ...] = OPTIONS,
) -> bytes:
    """Return kernels compiled for an architecture.

    Args:
        source: text of a `.cu` file.
        name: its name, for messages.
        headers: text of every header, by the name it is included by.
        architecture: "75" .. "120".
        kind: code of the architecture, or PTX text.
        options: of the compiler, beside the architecture.

    Raises:
        BackendUnavailable: there is no compiler, or it refuses the source; says what it printed.
    """
    library, program = _library(), ctypes.c_void_p()
    names, texts = (_strings(part) for part in (headers.keys(), headers.values()))
    _check(library.nvrtcCreateProgram(
        ctypes.byref(program), source.encode(), name.encode(), len(headers), texts, names
    ))  # fmt: skip
    try:
        prefix = "sm" if kind == "cubin" else "compute"
        flags = _strings([f"--gpu-architecture={prefix}_{architecture}", *options])
        # the log says why, also for errors of the source
        if library.nvrtcCompileProgram(program, len(flags), flags) != 0:
            raise BackendUnavailable(f"NVRTC refuses {name} for sm_{architecture}:\n{_log(library, program)}")
        size = ctypes.c_size_t()
        about, get = (
            (library.nvrtcGetCUBINSize, library.nvrtcGetCUBIN)
            if kind == "cubin"
            else (library.nvrtcGetPTXSize, library.nvrtcGetPTX)
        )
        _check(about(program, ctypes.byref(size)))
        room = ctypes.create_string_buffer(size.value)
        _check(get(program, room))
        return room.raw.rstrip(b"\0") if kind == "ptx" else room.raw  # PTX is text with a NUL at its end
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


class Source(NamedTuple):
    """A `.cu` file of emu's and every header, by the name it is included by."""

    name: str
    text: str
    headers: dict[str, str]

    @classmethod
    def named(cls, name: str) -> Source:
        """Return the file `name`.cu of `kernels/`."""
        kernels = content_folder("kernels")
        # all headers are passed as text: no include path is needed
        headers = {path.name: path.read_text() for path in sorted((kernels / "include").glob("*.cuh"))}
        return cls(f"{name}.cu", (kernels / f"{name}.cu").read_text(), headers)

    def compiled(
        self, architecture: str, kind: Literal["cubin", "ptx"] = "cubin", options: tuple[str, ...] = OPTIONS
    ) -> bytes:
        """Return the file's kernels, compiled; arguments as of `compile_kernels`."""
        return compile_kernels(self.text, self.name, self.headers, architecture, kind, options)


def _strings(texts: Any) -> Any:
    encoded = [text.encode() for text in texts]
    return (ctypes.c_char_p * len(encoded))(*encoded)


def _log(library: Any, program: ctypes.c_void_p) -> str:
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    room = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, room)
    return room.value.decode(errors="replace")


def _check(code: int) -> None:
    if code != 0:
        text = _library().nvrtcGetErrorString
        # ctypes takes results for integers unless told
        text.restype = ctypes.c_char_p
        raise BackendUnavailable(f"NVRTC failed: {text(code).decode()}")
