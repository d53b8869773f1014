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
    buffers = [{}, *({0: np.frombuffer(np.asarray(t.data).tobytes(), np.uint8)} for t in tensors if t.data is not None)]
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


#: Shape of the images that `every_operator` reads, and how many there are.
IMAGE = (6, 7, 4)
COUNT = 3


class _Drawn:
    """A graph whose operators all read the inputs, with drawn scales; every result is an output."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.tensors: list[Tensor] = []
        self.operators: list[Operator] = []
        self.outputs: list[str] = []
        self.x = self.tensor("x", (COUNT, *IMAGE))
        self.b = self.tensor("b", (COUNT, *IMAGE))
        self.tensors.append(Tensor("f", (COUNT, *IMAGE), "float32"))

    def scales(self, low: float = 0.02, high: float = 0.1, count: int | None = None) -> Any:
        return (
            self.rng.uniform(low, high, count).astype(np.float32) if count else np.float32(self.rng.uniform(low, high))
        )

    def zero(self) -> int:
        return int(self.rng.integers(-40, 40))

    def tensor(
        self, name: str, shape: Sequence[int], scale: Any = None, zero: int | None = None, **rest: Any
    ) -> Tensor:
        scale = self.scales() if scale is None else scale
        made = Tensor(name, shape, scale=scale, zero=self.zero() if zero is None else zero, **rest)
        self.tensors.append(made)
        return made

    def constant(self, array: Any, name: str, **rest: Any) -> str:
        array = np.asarray(array)
        self.tensors.append(Tensor(name, array.shape, array.dtype.name, data=array, **rest))
        return name

    def add(self, code: str, inputs: Sequence[str], result: Tensor, fields: Mapping[int, Any] | None = None) -> Tensor:
        self.operators.append(Operator(code, inputs, [result.name], fields or {}))
        self.outputs.append(result.name)
        return result

    def alike(self, name: str, shape: Sequence[int], like: Tensor) -> Tensor:
        """A result with the scale and zero point of an operand."""
        return self.tensor(name, shape, like.scale, like.zero)

    def weights(self, shape: tuple[int, ...], name: str, axis: int, *, per_channel: bool, zero: int = 0) -> Tensor:
        data = self.rng.integers(-127, 128, shape).astype(np.int8)
        scale = self.scales(count=shape[axis]) if per_channel else self.scales()
        return self.tensor(name, shape, scale, zero, axis=axis, data=data)

    def bias(self, count: int, name: str, w: Tensor) -> str:
        scale = np.float32(self.x.scale) * np.float32(w.scale)
        return self.constant(self.rng.integers(-9000, 9000, count).astype(np.int32), name, scale=scale)


def every_operator(seed: int) -> bytes:
    """Return a file in which each operator reads the inputs x and b, int8, or f, float32; scales are drawn."""
    g = _Drawn(seed)
    _products(g)
    _pairs_and_pools(g)
    _functions(g)
    _moves(g)
    return file_of(g.tensors, g.operators, ("x", "b", "f"), g.outputs)


def _sizes(padding: int, stride: tuple[int, int], window: tuple[int, int], apart: int = 1) -> tuple[int, int]:
    extents = [(extent - 1) * apart + 1 for extent in window]
    pairs = zip(IMAGE[:2], stride, extents, strict=True)
    return tuple(-(-size // s) if padding == SAME else -(-(size - e + 1) // s) for size, s, e in pairs)  # type: ignore[return-value]


def _products(g: _Drawn) -> None:
    cases = [
        (SAME, (1, 1), (3, 3), 1, NONE, True, 4), (VALID, (2, 1), (2, 3), 1, RELU, False, 4),
        (SAME, (2, 2), (3, 2), 1, RELU6, True, 2), (SAME, (1, 1), (3, 3), 2, RELU_N1_TO_1, True, 4),
    ]  # fmt: skip
    for i, (padding, stride, window, apart, activation, per_channel, channels) in enumerate(cases):
        w = g.weights((6, *window, channels), f"conv{i}/w", 0, per_channel=per_channel)
        y = g.tensor(f"conv{i}", (COUNT, *_sizes(padding, stride, window, apart), 6), g.scales(0.3, 1.0))
        numbers = (padding, stride[1], stride[0], activation, apart, apart)
        fields = {slot: ("Int8" if slot in (0, 3) else "Int32", n) for slot, n in enumerate(numbers)}
        g.add("CONV_2D", ["x", w.name, g.bias(6, f"conv{i}/b", w)], y, fields)
    for i, (padding, stride, window, apart, activation, per_channel, _) in enumerate(cases):
        count = 4 * (1 + i % 2)
        w = g.weights((1, *window, count), f"depthwise{i}/w", 3, per_channel=per_channel)
        y = g.tensor(f"depthwise{i}", (COUNT, *_sizes(padding, stride, window, apart), count), g.scales(0.1, 0.4))
        numbers = (padding, stride[1], stride[0], count // 4, activation, apart, apart)
        fields = {slot: ("Int8" if slot in (0, 4) else "Int32", n) for slot, n in enumerate(numbers)}
        g.add("DEPTHWISE_CONV_2D", ["x", w.name, g.bias(count, f"depthwise{i}/b", w)], y, fields)
    for i, (per_channel, keeps, activation) in enumerate([(False, 0, NONE), (True, 0, RELU), (False, 1, RELU6)]):
        length = 4 if keeps else int(np.prod(IMAGE))
        w = g.weights((5, length), f"fc{i}/w", 0, per_channel=per_channel, zero=0 if per_channel else 3)
        y = g.tensor(f"fc{i}", (COUNT, *IMAGE[:2], 5) if keeps else (COUNT, 5), g.scales(0.3, 2.0))
        fields = {0: ("Int8", activation), 2: ("Bool", keeps)}
        rest = [g.bias(5, f"fc{i}/b", w)] if i != 1 else []
        g.add("FULLY_CONNECTED", ["x", w.name, *rest], y, fields)


def _pairs_and_pools(g: _Drawn) -> None:
    shape, few = (COUNT, *IMAGE), g.rng.integers(-128, 128, 4).astype(np.int8)
    row = g.constant(few, "row", scale=g.scales(), zero=g.zero())
    for code, scale in (("ADD", (0.03, 0.2)), ("SUB", (0.03, 0.2)), ("MUL", (0.03, 0.5))):
        for i, (other, activation) in enumerate([("b", NONE), (row, NONE), ("b", RELU), ("b", RELU6)]):
            y = g.tensor(f"{code.lower()}{i}", shape, g.scales(*scale))
            g.add(code, ["x", other], y, {0: ("Int8", activation)})
    for code in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
        for i, (padding, stride, window, activation) in enumerate(
            [(SAME, (2, 2), (3, 3), NONE), (VALID, (1, 2), (2, 3), RELU), (SAME, (3, 1), (2, 4), RELU6)]
        ):
            y = g.alike(f"{code.lower()}{i}", (COUNT, *_sizes(padding, stride, window), 4), g.x)
            numbers = (padding, stride[1], stride[0], window[1], window[0], activation)
            fields = {slot: ("Int8" if slot in (0, 5) else "Int32", n) for slot, n in enumerate(numbers)}
            g.add(code, ["x"], y, fields)
    for i, (axes, keeps) in enumerate([((1, 2), 0), ((2, 1), 1), ((3,), 0), ((-3,), 1)]):
        places = {axis % 4 for axis in axes}
        sizes = [1 if axis in places else size for axis, size in enumerate(shape) if keeps or axis not in places]
        y = g.alike(f"mean{i}", sizes, g.x) if i == 1 else g.tensor(f"mean{i}", sizes, g.scales(0.01, 0.08))
        g.add("MEAN", ["x", g.constant(np.int32(axes), f"mean{i}/axes")], y, {0: ("Bool", keeps)})
    for i, beta in enumerate((1.0, 0.3, 4.0)):
        y = g.tensor(f"softmax{i}", shape, 1 / 256, -128)
        g.add("SOFTMAX", ["x"], y, {0: ("Float32", beta)})


def _functions(g: _Drawn) -> None:
    shape = (COUNT, *IMAGE)
    g.add("TANH", ["x"], g.tensor("tanh0", shape, 1 / 128, 0))
    g.add("TANH", ["b"], g.tensor("tanh1", shape, g.scales(0.005, 0.02)))
    g.add("LOGISTIC", ["x"], g.tensor("logistic", shape, 1 / 256, -128))
    for code in ("RELU", "RELU6", "RELU_N1_TO_1", "HARD_SWISH", "QUANTIZE"):
        g.add(code, ["x"], g.tensor(code.lower(), shape, g.scales(0.01, 0.1)))
    g.add("LEAKY_RELU", ["x"], g.tensor("leaky_relu", shape), {0: ("Float32", float(g.rng.uniform(0.01, 0.9)))})
    g.add("QUANTIZE", ["f"], g.tensor("quantize_float", shape))
    u = g.tensor("quantize_uint8", shape, zero=130, dtype="uint8")
    g.add("QUANTIZE", ["f"], u)
    g.add("QUANTIZE", [u.name], g.tensor("from_uint8", shape))
    g.add("QUANTIZE", ["b"], g.tensor("to_uint8", shape, zero=90, dtype="uint8"))
    for i, name in enumerate(("x", u.name)):
        g.tensors.append(Tensor(f"dequantize{i}", shape, "float32"))
        g.add("DEQUANTIZE", [name], g.tensors[-1])


def _moves(g: _Drawn) -> None:
    h, w, c = IMAGE
    pads = np.int32([[0, 0], [1, 2], [0, 3], [1, 0]])
    padded = (COUNT, h + 3, w + 3, c + 1)
    g.add("PAD", ["x", g.constant(pads, "pads")], g.alike("pad", padded, g.x))
    value = g.constant(np.int8([7]), "value", scale=g.x.scale, zero=g.x.zero)
    g.add("PADV2", ["x", "pads", value], g.alike("padv2", padded, g.x))
    g.add(
        "RESHAPE", ["x", g.constant(np.int32([COUNT, h * w, c]), "flat")], g.alike("reshape0", (COUNT, h * w, c), g.x)
    )
    g.add("RESHAPE", ["x"], g.alike("reshape1", (COUNT, h * w * c), g.x), {0: np.int32([COUNT, h * w * c])})
    g.add("RESHAPE", ["x", g.constant(np.int32([-1, c]), "rows")], g.alike("reshape2", (COUNT * h * w, c), g.x))
    order = g.constant(np.int32([0, 2, 3, 1]), "order")
    g.add("TRANSPOSE", ["x", order], g.alike("transpose", (COUNT, w, c, h), g.x))
    more = g.add("EXPAND_DIMS", ["x", g.constant(np.int32(2), "place")], g.alike("expand", (COUNT, h, 1, w, c), g.x))
    g.add("SQUEEZE", [more.name], g.alike("squeeze", (COUNT, h, w, c), g.x), {0: np.int32([2])})
    for i, axis in enumerate((3, -2)):
        sizes = (COUNT, h, w, 2 * c) if axis == 3 else (COUNT, h, 2 * w, c)
        y = g.alike(f"concatenation{i}", sizes, g.x)
        g.add("CONCATENATION", ["x", "squeeze"], y, {0: ("Int32", axis), 1: ("Int8", NONE)})


def drawn_inputs(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return inputs of `every_operator`: all elements are there, and floats beyond the elements."""
    rng = np.random.default_rng(seed + 1000)
    x, b = (rng.integers(-128, 128, (COUNT, *IMAGE)).astype(np.int8) for _ in range(2))
    return x, b, rng.normal(0, 4, x.shape).astype(np.float32)
