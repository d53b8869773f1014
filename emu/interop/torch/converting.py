"""A module of PyTorch becomes a graph: torch.export traces it, ONNX names its operators, `emu.onnx` reads it."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from emu.errors import ConfigError, ShapeError
from emu.interop.onnx import Graph, load
from emu.interop.torch.package import load_torch

torch = load_torch()
#: Of one example PyTorch makes a network that takes no other number of examples.
_LEAST_BATCH = 2
#: What exporting needs beside PyTorch.
_NEEDED = ("onnx", "onnxscript")
#: Characters of PyTorch's own message that are shown.
_SHOWN = 300


def convert(module: Any, *example: Any, path: str | Path | None = None, any_batch: bool = True) -> Graph:
    """Return a module as a network that computes on any device.

    The module is exported as it computes in evaluation. Layers have the names of the modules whose weights they read.
    What PyTorch's exporter folds, batch normalisation after a convolution among it, is folded.

    Args:
        module: any module whose operators `emu.onnx` reads, without modules of `emu.torch`.
        *example: a tensor for each of its inputs, the batch first; its numbers do not matter.
        path: where the ONNX file stays, for recipes and the command line; None keeps none.
        any_batch: whether the first axis of each input is left open; else the network takes that of the example alone.

    Returns:
        The network: it is called with arrays or tensors, and `emu.interop.evaluation.evaluate_graph` takes it.

    Raises:
        ConfigError: PyTorch cannot export the module, or it has an operator that emu does not compute.
        ShapeError: there is no example, or one has no batch.
    """
    if not isinstance(module, torch.nn.Module):
        raise ConfigError(
            f"what is converted must be a torch.nn.Module, got {type(module).__name__}; wrap a function in one"
        )
    _require_packages()
    tensors = tuple(_as_example(x, any_batch) for x in _examples(example))
    if path is not None:
        _export(module, tensors, Path(path), any_batch)
        return load(path)
    with tempfile.TemporaryDirectory(prefix="emu-torch-") as folder:
        file = Path(folder) / f"{type(module).__name__}.onnx"
        _export(module, tensors, file, any_batch)
        return load(file)  # reads all of it


def _require_packages() -> None:
    for name in _NEEDED:
        # looked for, not imported: PyTorch's exporter imports them itself
        if find_spec(name) is None:
            raise ConfigError(
                f"networks must be exported with the package {name}, which is not installed; pip install "
                f"{' '.join(_NEEDED)}"
            )


def _examples(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the tensors of an example, also of one that is given as a tuple, as torch.export takes it."""
    if len(given) == 1 and isinstance(given[0], tuple | list):
        given = tuple(cast("tuple[Any, ...]", given[0]))
    if not given:
        raise ShapeError("`example` must be a tensor for each input of the module, got none; give convert(module, x)")
    return given


def _as_example(x: Any, any_batch: bool) -> Any:
    tensor = torch.as_tensor(x)
    if tensor.ndim == 0:
        raise ShapeError("`example` must have the batch as its first axis, got a single number; give x[None]")
    if any_batch and 0 < len(tensor) < _LEAST_BATCH:
        # numbers do not matter, so an example may be repeated
        return torch.cat([tensor] * _LEAST_BATCH)
    return tensor


def _export(module: Any, tensors: tuple[Any, ...], path: Path, any_batch: bool) -> None:
    batch = torch.export.Dim("batch")
    shapes = tuple({0: batch} for _ in tensors) if any_batch else None
    try:
        with _evaluating(module), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of versions and of operators: what matters is an error below
            torch.onnx.export(module, tensors, str(path), dynamo=True, dynamic_shapes=shapes, verbose=False)
    except Exception as error:
        remedy = "convert(..., any_batch=False), or " if any_batch else ""
        raise ConfigError(
            f"a module must be one that torch.export traces, got {type(module).__name__}: {_first_lines(error)}; try "
            f"{remedy}give the part that is layers alone"
        ) from error


@contextmanager
def _evaluating(module: Any) -> Generator[None]:
    """Let a module compute as in evaluation; each module inside is then as it was."""
    # of each module by itself: some may be frozen in evaluation while others train
    training = {inner: inner.training for inner in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for inner, was in training.items():
            inner.training = was


def _first_lines(error: BaseException) -> str:
    """Return what PyTorch says, in one line; its own messages go on for pages."""
    # the first cause says what is wrong; errors around it name steps of the exporter
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
