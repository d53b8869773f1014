"""Small TFLite files for tests, written table by table; field numbers are those of TensorFlow Lite's schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np

#: Numbers of the operators, of the types of their options and of tensors, as the schema has them.
CODES = {
    "ADD": 0, "AVERAGE_POOL_2D": 1, "CONCATENATION": 2, "CONV_2D": 3, "DEPTHWISE_CONV_2D": 4, "DEQUANTIZE": 6,
    "FULLY_CONNECTED": 9, "LOGISTIC": 14, "LSTM": 16, "MAX_POOL_2D": 17, "MUL": 18, "RELU": 19, "RELU_N1_TO_1": 20,
    "RELU6": 21, "RESHAPE": 22, "SOFTMAX": 25, "TANH": 28, "CUSTOM": 32, "PAD": 34, "TRANSPOSE": 39, "MEAN": 40,
    "SUB": 41, "SQUEEZE": 43, "STRIDED_SLICE": 45, "PADV2": 60, "EXPAND_DIMS": 70, "SUM": 74, "SHAPE": 77, "PACK": 83,
    "LEAKY_RELU": 98, "QUANTIZE": 114, "HARD_SWISH": 117,
}  # fmt: skip
OPTIONS = {
    "CONV_2D": 1, "DEPTHWISE_CONV_2D": 2, "AVERAGE_POOL_2D": 5, "MAX_POOL_2D": 5, "FULLY_CONNECTED": 8, "SOFTMAX": 9,
    "CONCATENATION": 10, "ADD": 11, "RESHAPE": 17, "MUL": 21, "PAD": 22, "TRANSPOSE": 26, "MEAN": 27, "SUM": 27,
    "SUB": 28, "SQUEEZE": 30, "STRIDED_SLICE": 32, "DEQUANTIZE": 38, "PADV2": 43, "EXPAND_DIMS": 52, "SHAPE": 55,
    "PACK": 59, "LEAKY_RELU": 75, "QUANTIZE": 89, "HARD_SWISH": 91,
}  # fmt: skip
TYPES = {"float32": 0, "float16": 1, "int32": 2, "uint8": 3, "int64": 4, "int16": 7, "int8": 9}
#: Versions of operators from which on they take int8.
VERSIONS = {
    "CONV_2D": 3, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 4, "PADV2": 2, "SOFTMAX": 2, "LOGISTIC": 2, "TANH": 2,
    "ADD": 2, "SUB": 2, "MUL": 2, "AVERAGE_POOL_2D": 2, "MAX_POOL_2D": 2, "MEAN": 2, "SUM": 2, "PAD": 2, "RELU": 2,
    "RELU6": 2, "RELU_N1_TO_1": 1, "CONCATENATION": 2, "DEQUANTIZE": 2, "LEAKY_RELU": 2, "TRANSPOSE": 2,
}  # fmt: skip
#: Fused activations.
NONE, RELU, RELU_N1_TO_1, RELU6, TANH = range(5)
SAME, VALID = 0, 1


@dataclass
class Tensor:
    """A tensor of a file."""

    name: str
    shape: Sequence[int]
    dtype: str = "int8"
    scale: Any = None
    zero: Any = 0
    axis: int = 0
    data: Any = None
    signature: Sequence[int] | None = None


@dataclass
class Operator:
    """An operator; `fields` are its options by field number, each a text of a type and a number."""

    code: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    fields: Mapping[int, Any] = field(default_factory=dict[int, Any])


def file_of(
    tensors: Sequence[Tensor],
    operators: Sequence[Operator],
    inputs: Sequence[str] = ("x",),
    outputs: Sequence[str] = ("y",),
    *,
    version: int = 3,
    identifier: bytes = b"TFL3",
    subgraphs: int = 1,
) -> bytes:
    """Return the bytes of a file."""
    names = [tensor.name for tensor in tensors]
    kinds = list(dict.fromkeys(operator.code for operator in operators))
    buffers = [{}, *({0: np.asarray(t.data).view(np.uint8).reshape(-1)} for t in tensors if t.data is not None)]
    numbers = iter(range(1, len(buffers)))
    places = {t.name: next(numbers) for t in tensors if t.data is not None}
    graph = {
        0: [_tensor(tensor, places.get(tensor.name, 0)) for tensor in tensors],
        1: np.int32([names.index(name) for name in inputs]),
        2: np.int32([names.index(name) for name in outputs]),
        3: [_operator(operator, kinds, names) for operator in operators],
        4: "main",
    }
    codes = [
        {0: ("Int8", min(CODES[kind], 127)), 2: ("Int32", VERSIONS.get(kind, 1)), 3: ("Int32", CODES[kind])}
        | ({1: "Own"} if kind == "CUSTOM" else {})
        for kind in kinds
    ]
    model = {0: ("Uint32", version), 1: codes, 2: [graph] * subgraphs, 3: "made for tests", 4: buffers}
    builder = flatbuffers.Builder(1024)
    builder.Finish(_written(builder, model), identifier)
    return bytes(builder.Output())


def _tensor(tensor: Tensor, buffer: int) -> dict[int, Any]:
    made: dict[int, Any] = {
        0: np.int32(tensor.shape), 1: ("Int8", TYPES[tensor.dtype]), 2: ("Uint32", buffer), 3: tensor.name,
    }  # fmt: skip
    if tensor.signature is not None:
        made[7] = np.int32(tensor.signature)
    if tensor.scale is not None:
        scale = np.atleast_1d(np.float32(tensor.scale))
        zero = np.broadcast_to(np.int64(tensor.zero), scale.shape)
        made[4] = {2: scale, 3: np.ascontiguousarray(zero), 6: ("Int32", tensor.axis)}
    return made


def _operator(operator: Operator, kinds: Sequence[str], names: Sequence[str]) -> dict[int, Any]:
    made: dict[int, Any] = {
        0: ("Uint32", kinds.index(operator.code)),
        1: np.int32([names.index(name) if name else -1 for name in operator.inputs]),
        2: np.int32([names.index(name) for name in operator.outputs]),
    }
    if operator.code in OPTIONS:
        made |= {3: ("Uint8", OPTIONS[operator.code]), 4: dict(operator.fields)}
    return made


def _written(builder: Any, value: Any) -> int:
    """Write a text, a vector of numbers or tables, or a table, and return where it is."""
    if isinstance(value, str):
        return builder.CreateString(value)
    if isinstance(value, np.ndarray):
        return builder.CreateNumpyVector(value)
    if isinstance(value, list):
        places = [_written(builder, one) for one in value]
        builder.StartVector(4, len(places), 4)
        for place in reversed(places):
            builder.PrependUOffsetTRelative(place)
        return builder.EndVector()
    places = {slot: _written(builder, one) for slot, one in value.items() if not isinstance(one, tuple)}
    builder.StartObject(max(value, default=-1) + 1)
    for slot, one in value.items():
        if isinstance(one, tuple):
            getattr(builder, f"Prepend{one[0]}Slot")(slot, one[1], None)
        else:
            builder.PrependUOffsetTRelativeSlot(slot, places[slot], 0)
    return builder.EndObject()
