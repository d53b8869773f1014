"""emu: what does this hardware's arithmetic do to my numbers, my network, my cluster?

A bit-exact model of fixed-point and floating-point datapaths, networks trained through it, and the machine around it.

    >>> import emu
    >>> emu.quantize([0.1, 200.0], "fix8f4").tolist()
    [0.125, 7.9375]
"""

from __future__ import annotations

import importlib
import importlib.util
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from emu._drawn import Drawers, register_drawers
from emu.datapath import (
    LFSR,
    Flags,
    Mac,
    OutputStage,
    Overflow,
    Philox,
    RecordedBits,
    Requantiser,
    Rounding,
    ScaleCounts,
    StatisticsRegister,
)
from emu.engine import (
    Unit,
    add,
    compare,
    conv2d,
    divide,
    erf,
    exp,
    explain,
    fma,
    gelu,
    log,
    matmul,
    multiply,
    quantize,
    relu,
    remainder,
    requantise,
    round_to_integral,
    rsqrt,
    sigmoid,
    sqrt,
    subtract,
    tanh,
    value,
)
from emu.errors import BackendUnavailable, ConfigError, EmuError, EmuWarning, FormatError, NotDifferentiable, ShapeError
from emu.formats import DynamicFixed, Fixed, Float, Scaled, ScaledValue, Value, parse

if not TYPE_CHECKING:
    from emu import backends  # the package can be called, emu.backends(); type checkers see the function, below

try:
    __version__ = version("emu-numerics")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

#: Names that load only when used, because they import the machine or the whole of training: name -> module, attribute.
_LAZY = {
    "device": ("emu.hardware", "load_device"),
    "model": ("emu.training", "load_recipe"),
    "train": ("emu._runs", "train"),
    "resume": ("emu._runs", "resume"),
    "evaluate": ("emu.training", "evaluate"),
    "simulate": ("emu.training.cluster_time", "simulate"),
    "cost_of": ("emu.training.cost", "cost_of"),
    "read_checkpoint": ("emu.checkpoints", "read_checkpoint"),
    "write_checkpoint": ("emu.checkpoints", "write_checkpoint"),
}
#: Packages that load only when used.
_LAZY_MODULES = (
    "autodiff",
    "checkpoints",
    "cluster",
    "export",
    "hardware",
    "nn",
    "onnx",
    "optim",
    "precision",
    "report",
    "sparse",
    "testing",
    "tflite",
    "torch",
    "training",
)
#: The same, where a package is installed of that name: without it they are not among the names, and say so if used.
_OPTIONAL = ("torch",)

#: Packages and modules that are always loaded.
_MODULES = ("datapath", "engine", "errors", "formats")

if TYPE_CHECKING:
    from emu._runs import resume, train
    from emu.backends.registry import backends
    from emu.checkpoints import read_checkpoint, write_checkpoint
    from emu.hardware import load_device as device
    from emu.training import evaluate
    from emu.training import load_recipe as model
    from emu.training.cluster_time import simulate
    from emu.training.cost import cost_of


def _notebook() -> Drawers:
    """Return the functions that draw objects, imported when a notebook shows the first one."""
    from emu import notebook

    return notebook


register_drawers(_notebook)


def __dir__() -> list[str]:
    """Return the public names: what is imported from here, and the packages."""
    # `find_spec` looks for the package and does not import it: completion in a shell must not load PyTorch.
    missing = {name for name in _OPTIONAL if importlib.util.find_spec(name) is None}
    return sorted({*__all__, *_LAZY_MODULES, *_MODULES} - missing)


# Python calls this only for names that the module does not have (PEP 562).
def __getattr__(name: str) -> Any:
    if name in _LAZY:
        module, attribute = _LAZY[name]
        return getattr(importlib.import_module(module), attribute)
    if name in _LAZY_MODULES:
        return importlib.import_module(f"emu.{name}")
    raise AttributeError(f"module 'emu' has no attribute {name!r}")


__all__ = [
    "LFSR",
    "BackendUnavailable",
    "ConfigError",
    "DynamicFixed",
    "EmuError",
    "EmuWarning",
    "Fixed",
    "Flags",
    "Float",
    "FormatError",
    "Mac",
    "NotDifferentiable",
    "OutputStage",
    "Overflow",
    "Philox",
    "RecordedBits",
    "Requantiser",
    "Rounding",
    "ScaleCounts",
    "Scaled",
    "ScaledValue",
    "ShapeError",
    "StatisticsRegister",
    "Unit",
    "Value",
    "__version__",
    "add",
    "backends",
    "compare",
    "conv2d",
    "cost_of",
    "device",
    "divide",
    "erf",
    "evaluate",
    "exp",
    "explain",
    "fma",
    "gelu",
    "log",
    "matmul",
    "model",
    "multiply",
    "parse",
    "quantize",
    "read_checkpoint",
    "relu",
    "remainder",
    "requantise",
    "resume",
    "round_to_integral",
    "rsqrt",
    "sigmoid",
    "simulate",
    "sqrt",
    "subtract",
    "tanh",
    "train",
    "value",
    "write_checkpoint",
]
