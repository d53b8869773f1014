"""From tensors to values and back, by DLPack; and what emu wrote into a tensor that passes from module to module.

A tensor that an emu module wrote has a note of its format, as long as nothing else has changed it: the next module
takes it as written. Any other tensor is first written in the format of the network's input.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.autodiff import Operation, Value
from emu.backends.arrays import on_host
from emu.errors import FormatError
from emu.formats.numbers import as_integers, as_numbers
from emu.interop.torch.machine import Machine
from emu.interop.torch.package import load_torch
from emu.nn.network import INPUT_LAYER

Array = NDArray[Any]
torch = load_torch()
#: Name of the note on a tensor.
_NOTE = "_written_by_emu"


@dataclass(eq=False)
class Note:
    """What emu wrote into a tensor.

    Attributes:
        machine: the machine that wrote it.
        format: the format of its numbers.
        version: PyTorch's count of changes of the tensor, when it was written.
        errors: errors that modules have returned for it, and that have not arrived yet.
    """

    machine: Machine
    format: Any
    version: int = 0
    errors: list[Value] = field(default_factory=list[Value])


def as_tensor(x: Any, name: str) -> Any:
    """Return a tensor, or what PyTorch makes one of.

    Raises:
        FormatError: PyTorch makes no tensor of it.
    """
    try:
        return torch.as_tensor(x)
    except (RuntimeError, TypeError, ValueError) as error:
        raise FormatError(
            f"`{name}` must be a tensor, or numbers that PyTorch makes one of, got {type(x).__name__}: {error}; give a "
            "torch.Tensor"
        ) from None


def numbers_of(tensor: Any, name: str) -> Array:
    """Return the numbers of a tensor: float32, float64, or int64; on the host, shared with it where they can be.

    Raises:
        FormatError: something else than real numbers of a dense tensor; says the remedy.
    """
    if not isinstance(tensor, torch.Tensor):
        return as_numbers(tensor, name)
    if tensor.layout != torch.strided or tensor.is_complex() or tensor.is_quantized or tensor.is_meta:
        kind = "on the meta device" if tensor.is_meta else f"{tensor.dtype} of layout {tensor.layout}"
        raise FormatError(
            f"`{name}` must be a dense tensor of real numbers, got one {kind}; make it one with .to_dense(), .real, or "
            ".dequantize()"
        )
    # PyTorch may delay a negation, which NumPy could not read
    plain = tensor.detach().cpu().resolve_neg()
    if plain.dtype in (torch.float32, torch.float64, torch.int64):
        return np.from_dlpack(plain.contiguous())
    if str(plain.dtype).startswith("torch.float8"):
        plain = plain.float()  # which PyTorch promotes to nothing by itself
    return as_numbers(plain, name)


def tensor_of(value: Value, dtype: Any, device: Any) -> Any:
    """Return a value's numbers as a tensor, which shares them where it can."""
    tensor = torch.from_dlpack(value)
    return tensor.to(device=device, dtype=dtype)


def hosted(value: Value) -> Value:
    """Return a value whose array lies on the host."""
    return Value(np.asarray(on_host(value.array)), value.format)


def noted(tensor: Any, note: Note) -> Any:
    """Return a tensor with a note of what emu wrote into it."""
    # counted by PyTorch at every change in place
    note.version = tensor._version
    setattr(tensor, _NOTE, note)
    return tensor


def note_of(tensor: Any, machine: Machine) -> Note | None:
    """Return the note of a tensor; None if something else has changed it, or another machine wrote it."""
    note: Note | None = getattr(tensor, _NOTE, None)
    return note if note is not None and note.machine is machine and note.version == tensor._version else None


def read(machine: Machine, tensor: Any) -> Value:
    """Return a tensor as a module reads it: as emu wrote it, else written now; tokens are integers without a format."""
    runner, note = machine.runner(), note_of(tensor, machine)
    array = numbers_of(tensor, "x")
    # its numbers are in the format already: the carrier alone may differ from the tensor's dtype
    if note is not None:
        return Value(runner.place(array.astype(note.format.carrier)), note.format)
    if array.dtype.kind in "iu":
        return Value(runner.place(as_integers(array, "x").astype(np.int64)))
    return runner.run(Operation("quantize", (Value(runner.place(array)),)), "activation", INPUT_LAYER)


def arrived(machine: Machine, gradient: Any, note: Note, role: str, layer: str) -> Value:
    """Return an error that PyTorch hands back: as one module wrote it, or written now in a role of a layer.

    PyTorch adds up the errors of several readers itself; the sum is what arrives.
    """
    runner, array, errors = machine.runner(), numbers_of(gradient, "gradient"), list(note.errors)
    # once: another backward pass brings errors of its own
    note.errors.clear()
    # bits of the one error that a module returned: with several readers PyTorch hands over their sum
    if len(errors) == 1 and np.array_equal(np.asarray(errors[0]), array):
        return errors[0]
    written = Operation("quantize", (Value(runner.place(array)),), part="arrived")
    return runner.run(written, role, layer)
