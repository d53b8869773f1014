"""Read a TFLite file: its bytes become a `Model`, and what must hold before any operator is looked at.

Source: TensorFlow Lite, `schema.fbs`, version 3; FlatBuffers, "Binary Format".
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.errors import ConfigError
from emu.interop.tflite.schema import IDENTIFIER, OPERATORS, TYPES, VERSION, Damaged, Fields

Array = NDArray[Any]
#: FlatBuffers' own limit.
LARGEST_BYTES = 2**31 - 1
#: What reading a damaged file raises, besides `Damaged`.
_UNREADABLE = (struct.error, IndexError, ValueError, TypeError, OverflowError, AttributeError)


class Quantisation(NamedTuple):
    """Scales and zero points of a tensor.

    Attributes:
        scale: float32, one or one for each index of the axis.
        zero: int64, as many.
        axis: along which scales differ.
    """

    scale: Array
    zero: Array
    axis: int


@dataclass(frozen=True, eq=False)
class StoredTensor:
    """A tensor of a file.

    Attributes:
        name: its name.
        shape: its shape; None for a size that the file leaves open.
        stored: its shape as the file stores it, 1 for sizes that are open.
        kind: name of its type, such as "int8".
        data: its numbers if it is a constant.
        quantisation: scales and zero points, if it has them.
    """

    name: str
    shape: tuple[int | None, ...]
    stored: tuple[int, ...]
    kind: str
    data: Array | None
    quantisation: Quantisation | None


class StoredOperator(NamedTuple):
    """An operator of a file.

    Attributes:
        name: its operator, such as "CONV_2D".
        inputs: places of the tensors that it reads; -1 of one that is left out.
        outputs: places of those that it writes.
        options: the table of its options, empty if it has none.
    """

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Fields | None


class Model(NamedTuple):
    """What a file has.

    Attributes:
        tensors: all tensors.
        operators: in the order in which they are computed.
        inputs: places of the inputs.
        outputs: places of the outputs.
        sha256: hash of the file.
    """

    tensors: tuple[StoredTensor, ...]
    operators: tuple[StoredOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    sha256: str


def _load_flatbuffers() -> Any:
    try:
        return import_module("flatbuffers.table")
    except ImportError:
        raise ConfigError(
            "TFLite files must be read with the package flatbuffers, which is not installed; "
            "pip install 'emu-numerics[tflite]'"
        ) from None


def read_file(path: Path) -> Model:
    """Return what is in a file.

    Raises:
        ConfigError: the file is missing, damaged, too large or of another kind or version.
    """
    table = _load_flatbuffers()
    if not path.is_file():
        raise ConfigError(f"a network must be a TFLite file, got {str(path)!r}, which does not exist; check the path")
    if path.stat().st_size > LARGEST_BYTES:
        raise ConfigError(
            f"a TFLite file must have at most {LARGEST_BYTES} bytes, got {path.stat().st_size} in {path}; use a "
            "smaller network"
        )
    content = path.read_bytes()
    # FlatBuffers: 4 bytes offset of the root table, then the identifier of the schema
    if content[4:8] != IDENTIFIER:
        raise ConfigError(
            f"a TFLite file must have {IDENTIFIER.decode()} as its bytes 4 to 7, got {content[4:8]!r} in {path}; give "
            "the .tflite file that the converter wrote"
        )
    try:
        return _model(table.Table(content, int.from_bytes(content[:4], "little")), path, content)
    except ConfigError:
        raise
    except Damaged as error:
        raise _damaged(path, str(error)) from None
    except _UNREADABLE as error:
        raise _damaged(path, f"{type(error).__name__}: {error}") from None


def _damaged(path: Path, found: str) -> ConfigError:
    return ConfigError(f"a TFLite file must be complete, got {found} in {path}; copy it again, or convert it again")


def _model(root: Any, path: Path, content: bytes) -> Model:
    if not 4 <= root.Pos < len(content):
        raise Damaged(f"a model at byte {root.Pos} of {len(content)}")
    fields = Fields(root)
    version = fields.number(0, "Uint32")
    if version != VERSION:
        raise ConfigError(
            f"the schema of a TFLite file must be version {VERSION}, got {version} in {path}; convert the network again"
        )
    # fields of Model: 0 version, 1 operator codes, 2 subgraphs, 4 buffers
    graphs = fields.tables(2)
    if len(graphs) != 1:
        raise ConfigError(
            f"a TFLite file must have one graph, got {len(graphs)} in {path}; convert the network without loops, "
            "branches and signatures of their own"
        )
    graph, buffers = graphs[0], fields.tables(4)
    names = [_operator_name(code) for code in fields.tables(1)]
    # fields of SubGraph: 0 tensors, 1 inputs, 2 outputs, 3 operators
    tensors = tuple(_tensor(tensor, buffers, path) for tensor in graph.tables(0))
    operators = tuple(_operator(operator, names) for operator in graph.tables(3))
    inputs, outputs = (tuple(_places(graph, field)) for field in (1, 2))
    # places that a damaged file may have beyond its tensors; -1 is an operand that is left out
    named = [*inputs, *outputs, *(place for o in operators for place in (*o.inputs, *o.outputs) if place != -1)]
    if wrong := [place for place in named if not 0 <= place < len(tensors)]:
        raise Damaged(f"tensor {wrong[0]} of {len(tensors)}")
    if not operators or not outputs:
        raise Damaged("no operator, or no output")
    return Model(tensors, operators, inputs, outputs, hashlib.sha256(content).hexdigest())


def _places(fields: Fields, field: int) -> Sequence[int]:
    array = fields.array(field, np.int32)
    return [] if array is None else [int(place) for place in array]


def _operator_name(code: Fields) -> str:
    """Return the name of an operator: newer files have a wider field for its number."""
    # older files have the field of one byte alone; newer ones have 127 in it for numbers that it cannot hold
    number = max(int(code.number(0, "Int8")), int(code.number(3, "Int32")))
    name = OPERATORS[number] if 0 <= number < len(OPERATORS) else f"operator {number}"
    return f"CUSTOM {code.text(1)}" if name == "CUSTOM" else name


def _operator(operator: Fields, names: Sequence[str]) -> StoredOperator:
    index = int(operator.number(0, "Uint32"))
    if index >= len(names):
        raise Damaged(f"operator code {index} of {len(names)}")
    # fields of Operator: 0 code, 1 inputs, 2 outputs, 4 options
    return StoredOperator(names[index], tuple(_places(operator, 1)), tuple(_places(operator, 2)), operator.table(4))


def _tensor(tensor: Fields, buffers: Sequence[Fields], path: Path) -> StoredTensor:
    # fields of Tensor: 0 shape, 1 type, 2 buffer, 3 name, 4 quantisation, 6 sparsity, 7 signature of the shape
    stored, signature = tuple(_places(tensor, 0)), tuple(_places(tensor, 7))
    if any(size < 0 for size in stored) or (signature and len(signature) != len(stored)):
        raise Damaged(f"a tensor of shape {stored} with the signature {signature}")
    name, number, buffer = tensor.text(3), int(tensor.number(1, "Int8")), int(tensor.number(2, "Uint32"))
    kind, dtype = TYPES.get(number, (f"type {number}", None))
    # a file without buffers has no constants: number 0 is allowed
    if buffer >= max(len(buffers), 1):
        raise Damaged(f"buffer {buffer} of {len(buffers)}")
    if tensor.table(6) is not None:
        raise ConfigError(
            f"tensors must be stored with all elements, got the sparse {name!r} of {path}; convert without sparsity"
        )
    # an offset above 1 leads to data behind the tables
    if buffers and buffers[buffer].number(1, "Uint64") > 1:
        raise ConfigError(
            f"constants must be stored in the file's tables, got tensor {name!r} of {path} behind them; use a network "
            "of less than 2 GB"
        )
    content = None if not buffers else buffers[buffer].array(0, np.uint8)
    data = None
    # an empty buffer is that of a tensor which is computed
    if content is not None and content.size and dtype is not None:
        if content.size != math.prod(stored) * np.dtype(dtype).itemsize:
            raise Damaged(f"{content.size} bytes of tensor {name!r}, {stored} of {kind}")
        data = content.view(np.dtype(dtype).newbyteorder("<")).astype(dtype).reshape(stored)
    shape = tuple(None if size < 0 else size for size in signature or stored)
    return StoredTensor(name, shape, stored, kind, data, _quantisation(tensor.table(4), name, len(stored)))


def _quantisation(fields: Fields | None, name: str, ndim: int) -> Quantisation | None:
    # fields of QuantizationParameters: 2 scale, 3 zero point, 6 axis
    scale = None if fields is None else fields.array(2, np.float32)
    if fields is None or scale is None or not scale.size:
        return None
    zero = fields.array(3, np.int64)
    zero = np.zeros(scale.shape, np.int64) if zero is None or not zero.size else zero
    axis = fields.number(6, "Int32")
    if zero.size not in (1, scale.size) or (scale.size > 1 and not 0 <= axis < ndim):
        raise Damaged(f"{scale.size} scales and {zero.size} zero points along axis {axis} of tensor {name!r}")
    return Quantisation(scale, np.broadcast_to(zero, scale.shape), axis)
