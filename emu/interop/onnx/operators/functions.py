"""Functions of one tensor, element by element or along an axis. Composed ones write every intermediate result."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from emu.datapath import Affine
from emu.interop.onnx.node import Known, Node, Tensor, Traced

Row = Callable[[Node], Sequence[Tensor]]


def _primitive(name: str) -> Row:
    return lambda node: [node.apply(name, node.traced())]


def _clip(node: Node) -> Sequence[Tensor]:
    """The bounds are constant operands; before version 11 they were attributes."""
    least, most = (node.constant(i) for i in (1, 2))
    bounds: dict[str, Any] = {
        "least": -math.inf if least is None else float(least.reshape(())),
        "most": math.inf if most is None else float(most.reshape(())),
    }
    return [node.apply("clip", node.traced(), **bounds)]


def _leaky_relu(node: Node) -> Sequence[Tensor]:
    return [node.apply("leaky_relu", node.traced(), slope=float(node.get("alpha", 0.01)))]


def _prelu(node: Node) -> Sequence[Tensor]:
    x, slope = node.traced(), node.operand(1)
    # a slope must not make the result larger than x
    if np.broadcast_shapes(x.shape, slope.shape) != x.shape:
        raise node.refuse(f"have a slope that broadcasts to {x.shape}", slope.shape, "check the export")
    return [node.apply("prelu", x, slope, own={1: "weight"}, is_table=True)]


def _elu(node: Node) -> Sequence[Tensor]:
    return [node.apply("elu", node.traced(), alpha=float(node.get("alpha", 1.0)))]


def _selu(node: Node) -> Sequence[Tensor]:
    alpha = float(node.get("alpha", 1.6732632423543772))
    bent = node.apply("elu", node.traced(), part="elu", alpha=alpha)
    return [node.apply("multiply", bent, float(node.get("gamma", 1.0507009873554805)))]


def _hard_sigmoid_of(node: Node, x: Traced, alpha: float, beta: float, part: str = "") -> Traced:
    """min(1, max(0, alpha * x + beta))."""
    prefix = f"{part}_" if part else ""
    scaled = node.apply("multiply", x, alpha, part=f"{prefix}scaled")
    shifted = node.apply("add", scaled, beta, part=f"{prefix}shifted")
    return node.apply("clip", shifted, part=part, least=0.0, most=1.0)


def _hard_sigmoid(node: Node) -> Sequence[Tensor]:
    return [_hard_sigmoid_of(node, node.traced(), float(node.get("alpha", 0.2)), float(node.get("beta", 0.5)))]


def _hard_swish(node: Node) -> Sequence[Tensor]:
    x = node.traced()
    return [node.apply("multiply", x, _hard_sigmoid_of(node, x, 1 / 6, 0.5, "gate"))]


def _swish(node: Node) -> Sequence[Tensor]:
    x, alpha = node.traced(), float(node.get("alpha", 1.0))
    scaled = x if alpha == 1 else node.apply("multiply", x, alpha, part="scaled")
    return [node.apply("multiply", x, node.apply("sigmoid", scaled, part="gate"))]


def _softplus_of(node: Node, x: Traced, part: str) -> Traced:
    """max(x, 0) + log(1 + exp(-|x|)): no exponential overflows."""
    size = node.apply("absolute", x, part="magnitude")
    bell = node.apply("exp", node.apply("multiply", size, -1.0, part="negated"), part="exponential")
    rest = node.apply("log", node.apply("add", bell, 1.0, part="and_one"), part="logarithm")
    return node.apply("add", node.apply("relu", x, part="relu"), rest, part=part)


def _softplus(node: Node) -> Sequence[Tensor]:
    return [_softplus_of(node, node.traced(), "")]


def _mish(node: Node) -> Sequence[Tensor]:
    x = node.traced()
    return [node.apply("multiply", x, node.apply("tanh", _softplus_of(node, x, "softplus"), part="tanh"))]


def _softsign(node: Node) -> Sequence[Tensor]:
    x = node.traced()
    below = node.apply("add", node.apply("absolute", x, part="magnitude"), 1.0, part="and_one")
    return [node.apply("divide", x, below)]


def _gelu(node: Node) -> Sequence[Tensor]:
    """Exact by the error function, or by tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))."""
    x = node.traced()
    if node.get("approximate", "none") == "none":
        return [node.apply("gelu", x)]
    # x + 0.044715 x**3 as x * (1 + 0.044715 x**2)
    square = node.apply("multiply", x, x, part="square")
    factor = node.apply("add", node.apply("multiply", square, 0.044715, part="bent"), 1.0, part="and_one")
    inner = node.apply(
        "multiply", node.apply("multiply", x, factor, part="curve"), math.sqrt(2 / math.pi), part="scaled"
    )
    gate = node.apply("add", node.apply("tanh", inner, part="tanh"), 1.0, part="gate")
    return [node.apply("multiply", node.apply("multiply", x, 0.5, part="halved"), gate)]


def _softmax_of(node: Node, part: str = "") -> Traced:
    """Along one axis; before version 13 along all from an axis on, taken together."""
    x = node.traced()
    ndim = len(x.shape)
    axis = node.axis(int(node.get("axis", -1 if node.version >= 13 else 1)), ndim)
    options: dict[str, Any] = {"scale": 1.0, "causal": False}
    if node.version < 13:
        # before version 13 all axes from `axis` on are one
        whole = (math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
        flat = node.reshaped(x, whole, part="flat")
        y = node.apply("softmax", flat, part=part, **options)
        return node.reshaped(y, x.shape, part=f"{part}_kept" if part else "kept")
    axes = [*(i for i in range(ndim) if i != axis), axis]
    y = node.apply("softmax", node.transposed(x, axes, part="last"), part=part, **options)
    # the inverse of the order of axes
    back = sorted(range(ndim), key=axes.__getitem__)
    return node.transposed(y, back, part=f"{part}_back" if part else "back")


def _softmax(node: Node) -> Sequence[Tensor]:
    return [_softmax_of(node)]


def _log_softmax(node: Node) -> Sequence[Tensor]:
    """X - largest - log(sum(exp(x - largest))): no share becomes 0 before its logarithm is taken."""
    x = node.traced()
    ndim, version = len(x.shape), node.version
    axis = node.axis(int(node.get("axis", -1 if version >= 13 else 1)), ndim)
    along = [axis] if version >= 13 else list(range(axis, ndim))
    rest = [i for i in range(ndim) if i not in along]
    count = math.prod(x.shape[i] for i in along)
    moved = node.transposed(x, [*rest, *along], part="last")
    # (1, rows, 1, count): images of one row, so that pooling gives the largest of each
    flat = node.reshaped(moved, (1, math.prod(x.shape[i] for i in rest), 1, count), part="flat")
    largest = node.apply("max_pool", flat, part="largest", window=(1, count), stride=(1, count))
    shifted = node.apply("subtract", flat, largest, part="shifted")
    sums = node.apply("sum", node.apply("exp", shifted, part="exponentials"), part="sum", axis=(3,))
    logarithm = node.apply("log", node.reshaped(sums, largest.shape, part="column"), part="logarithm")
    y = node.reshaped(node.apply("subtract", shifted, logarithm), moved.shape, part="shape")
    order = [*rest, *along]
    return [node.transposed(y, sorted(range(ndim), key=order.__getitem__), part="back")]


def _negated(node: Node) -> Sequence[Tensor]:
    return [node.apply("multiply", node.traced(), -1.0)]


def _reciprocal(node: Node) -> Sequence[Tensor]:
    return [node.apply("divide", 1.0, node.traced())]


def _power(node: Node) -> Sequence[Tensor]:
    """By multiplications and roots, for exponents that these reach; any other by exp and log."""
    x, exponent = node.operand(0), node.operand(1)
    # a chain of products needs one constant exponent for all numbers
    if isinstance(x, Known) or isinstance(exponent, Traced) or np.unique(exponent.array).size != 1:
        return [_general_power(node, x, exponent)]
    shape = np.broadcast_shapes(x.shape, exponent.shape)
    if shape != x.shape:
        x = node.apply("expand", x, part="expanded", shape=shape)
    given = float(exponent.array.reshape(-1)[0])
    if given == 0:
        return [Known(np.ones(shape, np.float32))]
    if given == 0.5:
        return [node.apply("sqrt", x)]
    if given == -0.5:
        return [node.apply("divide", 1.0, node.apply("sqrt", x, part="root"))]
    # up to 16: at most six products (of 15), each of which rounds once
    if 1 <= abs(given) <= 16 and given == int(given):
        return [_integer_power(node, x, int(given))]
    return [_general_power(node, x, given)]


def _general_power(node: Node, x: Tensor, exponent: Tensor | float) -> Traced:
    """Exp(exponent * log(x)): NaN where x is below 0."""
    if isinstance(exponent, Known):
        exponent = Known(exponent.array.astype("float32"), exponent.name)
    logarithm = Known(_log(x.array), x.name) if isinstance(x, Known) else node.apply("log", x, part="logarithm")
    return node.apply("exp", node.elementwise("multiply", logarithm, exponent, part="scaled"))


def _log(x: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.log(x.astype(np.float64)).astype(np.float32)


def _integer_power(node: Node, x: Traced, exponent: int) -> Traced:
    """X to an integer, by squares and products, from the leading bit of the exponent on."""
    # without "0b" and the leading 1, for which y begins as x
    bits = bin(abs(exponent))[3:]
    last = len(bits) - 1
    y = x
    for place, bit in enumerate(bits):
        is_last = place == last and exponent > 0
        y = node.apply("multiply", y, y, part="" if is_last and bit == "0" else f"square{place}")
        if bit == "1":
            y = node.apply("multiply", y, x, part="" if is_last else f"product{place}")
    return node.apply("divide", 1.0, y) if exponent < 0 else y


def _identity(node: Node) -> Sequence[Tensor]:
    return [node.operand(0)]


def _dropout(node: Node) -> Sequence[Tensor]:
    """Nothing is dropped outside of training."""
    training = node.constant(2)
    if training is not None and bool(training.reshape(())):
        raise node.refuse("be exported for inference", "training_mode = true", "export the network in its eval mode")
    if node.output_count > 1:
        # nothing is dropped: the mask is true everywhere
        return [node.operand(0), Known(np.ones(node.operand(0).shape, bool))]
    return [node.operand(0)]


def _cast(node: Node) -> Sequence[Tensor]:
    """Float32 to float32: the formats of tensors are those of the device. Integers become float32."""
    to, x = int(node.get("to", 1)), node.operand(0)
    # elements stand for themselves: scale 1, zero point 0
    if isinstance(x, Traced) and not x.is_float and x.format is not None and to == 1:
        return [node.apply("dequantize_linear", x, of=Affine.of(x.format, 1.0))]
    if to != 1:
        raise node.refuse("cast to float32", f"type {to}", "give the format of the tensor in a device file instead")
    return [x]


ROWS: dict[str, Row] = {
    "Relu": _primitive("relu"),
    "Sigmoid": _primitive("sigmoid"),
    "Tanh": _primitive("tanh"),
    "Erf": _primitive("erf"),
    "Exp": _primitive("exp"),
    "Log": _primitive("log"),
    "Sqrt": _primitive("sqrt"),
    "Abs": _primitive("absolute"),
    "Clip": _clip,
    "LeakyRelu": _leaky_relu,
    "PRelu": _prelu,
    "Elu": _elu,
    "Selu": _selu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Swish": _swish,
    "Softplus": _softplus,
    "Softsign": _softsign,
    "Mish": _mish,
    "Gelu": _gelu,
    "Softmax": _softmax,
    "LogSoftmax": _log_softmax,
    "Neg": _negated,
    "Reciprocal": _reciprocal,
    "Pow": _power,
    "Identity": _identity,
    "Dropout": _dropout,
    "Cast": _cast,
}
