"""QPyTorch: rounding of PyTorch tensors, fixed and float, nearest and stochastic; no statistics, no flags.

It compiles its extension when it is first imported, without optimisation. Both are timed: as it installs, and the same
sources with -O3.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmarks.measuring.peer import Peer
from benchmarks.measuring.row import Side, StageWork, StepWork, Task
from emu.errors import BackendUnavailable
from emu.formats import Fixed, Float, Format

from .qtorch_step import fixed_step

#: It rounds this many elements; it is too slow for all of them.
PART = 1 << 22
_SOURCES = ("quant_cpu.cpp", "bit_helper.cpp", "sim_helper.cpp")
NOTE = "no statistics"


def _require_compiler() -> None:
    """Raise unless its extension can be built; the environment's own tools are found as well."""
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    missing = [tool for tool in (os.environ.get("CXX", "g++"), "ninja") if shutil.which(tool) is None]
    if missing:
        raise BackendUnavailable(
            f"QPyTorch must be compiled when it is first imported, got no {' and no '.join(missing)}; install a C++ "
            "compiler (apt-get install g++) and ninja (pip install ninja), or leave qtorch out of --against"
        )


@lru_cache(maxsize=1)
def as_installed() -> Any:
    """Return its module of functions, building its extension as it does.

    Raises:
        BackendUnavailable: there is no C++ compiler or no ninja.
    """
    _require_compiler()
    return importlib.import_module("qtorch.quant.quant_function")


@lru_cache(maxsize=1)
def optimised() -> Any:
    """Return its extension built from the same sources with -O3."""
    folder = Path(as_installed().__file__).parent / "quant_cpu"
    extension = importlib.import_module("torch.utils.cpp_extension")
    sources = [str(folder / source) for source in _SOURCES]
    return extension.load(name="quant_cpu_o3", sources=sources, extra_cflags=["-O3"])


def sides(task: Task) -> list[Side]:
    """Return its rounding, or its training step, in both builds."""
    if isinstance(task, StageWork):
        return _rounding(task)
    if isinstance(task, StepWork) and task.device == "fixed16":
        installed = as_installed()
        note = "rounds weights, activations, errors, gradients; float32 sums; no statistics"
        return [
            Side("qtorch", fixed_step(task, installed, installed.quant_cpu), 1, note),
            Side("qtorch -O3", fixed_step(task, installed, optimised()), 1, note),
        ]
    return []


def _rounding(task: StageWork) -> list[Side]:
    torch: Any = importlib.import_module("torch")
    name = {"nearest_even": "nearest", "stochastic": "stochastic"}.get(task.rounding)
    if name is None or not _has(task.format):
        return []
    x = torch.from_numpy(task.x[:PART])
    found: list[Side] = []
    for label, module in (("qtorch", as_installed().quant_cpu), ("qtorch -O3", optimised())):
        if isinstance(task.format, Fixed):
            function = getattr(module, f"fixed_point_quantize_{name}")
            arguments = (x, task.format.width_bits, task.format.frac_bits, True, False)
        else:
            function = getattr(module, f"float_quantize_{name}")
            arguments = (x, task.format.fraction_bits, task.format.exponent_bits)
        run = lambda function=function, arguments=arguments: function(*arguments)  # noqa: E731
        found.append(Side(label, run, x.numel(), NOTE))
    return found


def _has(fmt: Format) -> bool:
    """Return whether it has the format: signed words with fraction bits, floats as IEEE 754 lays them out."""
    if isinstance(fmt, Fixed):
        return fmt.signed and fmt.frac_bits > 0
    return fmt == Float(fmt.exponent_bits, fmt.fraction_bits)


PEER = Peer("qtorch", "qtorch", "qtorch", sides)
