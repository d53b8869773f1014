"""Quantised networks: operators that read or write integers, and what float operators become between them.

    x ──► QuantizeLinear ──► DequantizeLinear ──► Conv ──► QuantizeLinear ──► ...     a file with Q and DQ
    x ──► QuantizeLinear ─────────────────► QLinearConv ─────────────────► ...        what is computed

A float operator whose operands are dequantised, and whose only reader quantises its result, computes with integers:
`OF_ELEMENTS`. Products whose result is used as float32 add integers and multiply the sum by both scales. Whatever else
lies between DequantizeLinear and QuantizeLinear is computed in the device's formats.

Sources: ONNX, "Operator Schemas"; onnxruntime, "Quantize ONNX models" and its contributed operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.datapath import Affine, RequantiserKind
from emu.formats import parse_number
from emu.interop.onnx.files import DOMAINS
from emu.interop.onnx.node import Dequantised, Held, Known, Node, Requantised, Tensor, Traced
from emu.interop.onnx.operators import functions, integer_products, moves, pooling, qonnx
from emu.interop.onnx.operators.elements import (
    affine_of,
    elements_of,
    operand_at,
    points_of,
    requantised_of,
    requantiser_of,
    traced_elements,
)
from emu.operations.integers import DYNAMIC, STANDARD, Written

Array = NDArray[Any]
#: Domain of the operators that onnxruntime adds, and those of them that are known.
MICROSOFT = "com.microsoft"
_ADDED = {
    "QLinearAdd", "QLinearMul", "QGemm", "QLinearGlobalAveragePool", "QLinearAveragePool", "QLinearSigmoid",
    "QLinearLeakyRelu", "QLinearSoftmax", "QLinearConcat", "QuantizeLinear", "DequantizeLinear", "Gelu",
}  # fmt: skip
#: Onnxruntime's pooling adds the zero point before it rounds.
ZERO_FIRST = Written(zero_first=True)


def is_known(operator: str, domain: str) -> bool:
    """Return whether an operator of a domain may be in the table."""
    if operator in qonnx.ROWS:
        return domain in qonnx.DOMAINS
    return domain in DOMAINS or (domain == MICROSOFT and operator in _ADDED)


def _requantised_by_linear(
    arrays: Sequence[Array], attributes: Mapping[str, Any], low: float, high: float
) -> Requantised | None:
    # scales of an axis: a requantiser has one
    if arrays[0].size > 1:
        return None
    how = affine_of(arrays[0], arrays[1] if len(arrays) > 1 else None, attributes, 1)
    return requantised_of(how, low, high) if how.is_integer and how.is_whole else None


#: Operators whose rows take constants, whose elements stay known.
OF_CONSTANTS = {"DequantizeLinear", *qonnx.ROWS}
#: What makes elements of the numbers that it reads: (constant operands, attributes, bounds of what it reads) -> them.
QUANTISERS: dict[str, Callable[[Sequence[Array], Mapping[str, Any], float, float], Requantised | None]] = {
    "QuantizeLinear": _requantised_by_linear,
    "Quant": qonnx.requantised_by_quant,
    "IntQuant": qonnx.requantised_by_quant,
}


# ---- between floats and elements ------------------------------------------------------------------------------------


def _quantize(node: Node) -> Sequence[Held]:
    x = node.held(0)
    assert x is not None
    scale = node.constant(1)
    assert scale is not None
    to = affine_of(scale, node.constant(2), node.attributes, len(x.shape))
    # back to the very elements: nothing is rounded
    if isinstance(x, Dequantised) and x.how.equals(to):
        return [x.elements]
    return [node.apply("quantize_linear", node.traced(), to=to)]


def _dequantize(node: Node) -> Sequence[Held]:
    (q, elements), scale = elements_of(node, 0), node.constant(1)
    assert scale is not None
    return [Dequantised(q, affine_of(scale, node.constant(2), node.attributes, len(q.shape), elements))]


def _dynamic_quantize(node: Node) -> Sequence[Held]:
    x, to = node.traced(), parse_number("ufix8f0")
    return [
        # each output is a step of its own over the same numbers
        node.apply("dynamic_quantize", x, part="" if gives == "elements" else gives, to=to, gives=gives)
        for gives in DYNAMIC[: node.output_count]
    ]


# ---- element by element, pooling -------------------------------------------------------------------------------------


def _joined(
    primitive: str, operands: Callable[[Node], tuple[Dequantised, Dequantised]]
) -> Callable[[Node], Sequence[Held]]:
    def row(node: Node) -> Sequence[Held]:
        (a, b), to = operands(node), points_of(node, 6, None)
        return [node.apply(primitive, a.elements, b.elements, of=(a.how, b.how), to=to)]

    return row


def _both(node: Node) -> tuple[Dequantised, Dequantised]:
    return operand_at(node, 0), operand_at(node, 3)


def _joined_of_elements(primitive: str) -> Callable[[Node], Sequence[Held] | None]:
    def row(node: Node) -> Sequence[Held] | None:
        a, b, reader_makes = node.held(0), node.held(1), node.reader_makes
        # with relu or clip between, the sum stays a step of floats
        if reader_makes is None or not reader_makes.is_plain:
            return None
        if not all(isinstance(x, Dequantised) and x.how.is_whole and x.how.is_integer for x in (a, b)):
            return None
        assert isinstance(a, Dequantised)
        assert isinstance(b, Dequantised)
        elements = node.apply(primitive, a.elements, b.elements, of=(a.how, b.how), to=reader_makes.how)
        return [Dequantised(elements, reader_makes.how)]

    return row


def _global_mean(node: Node, x: Dequantised, reader_makes: Requantised) -> Dequantised:
    """A product with ones: the sum times float32(scale / (scale of the result * count))."""
    count = math.prod(x.shape[2:])
    flat = node.reshaped(traced_elements(node, x), (*x.shape[:2], count), part="flat")
    # a matrix (count, 1) of int8 ones: its product is the sum of a row
    ones = Known(np.ones((count, 1), np.int8))
    # result scale * count in the place of the result's scale: the mean is the sum over count
    scale = float(np.float32(reader_makes.how.scale * np.float32(count)))
    by = requantiser_of(reader_makes._replace(how=Affine.of(reader_makes.how.format, scale, reader_makes.how.zero)))
    of = (x.how, Affine.of("fix8f0", 1.0))
    means = node.apply("integer_matmul", flat, ones, of=of, by=by, to=reader_makes.how.format)
    shape = (*x.shape[:2], *[1] * len(x.shape[2:]))
    return Dequantised(
        node.reshaped(means, shape, part="kept"), reader_makes.how, reader_makes.lowest, reader_makes.highest
    )


def _qlinear_global_mean(node: Node) -> Sequence[Held]:
    if node.get("channels_last", 0):
        raise node.refuse("have channels first", "channels_last = 1", "export the file without layout changes")
    return [_global_mean(node, operand_at(node, 0), Requantised(points_of(node, 3, None))).elements]


def _global_mean_of_elements(node: Node) -> Sequence[Held] | None:
    x = node.held(0)
    if node.reader_makes is None or node.reader_makes.kind is not RequantiserKind.FLOAT32:
        return None
    if not isinstance(x, Dequantised) or not x.how.is_whole or isinstance(x.elements, Known):
        return None
    return [_global_mean(node, x, node.reader_makes)]


def _mean_of_elements(node: Node) -> Sequence[Held] | None:
    """The mean as float32; its zero point is added before it is rounded."""
    x, reader_makes = node.held(0), node.reader_makes
    if reader_makes is None or not isinstance(x, Dequantised) or not reader_makes.is_plain:
        return None
    # reads elements as float32 (`node.given`)
    [y] = pooling.ROWS["AveragePool"](node)
    return [
        Dequantised(
            node.apply("quantize_linear", y, part="elements", to=reader_makes.how, how=ZERO_FIRST), reader_makes.how
        )
    ]


def _by_floats(operator: str, row: Callable[[Node], Sequence[Tensor]], how: Written = STANDARD) -> Any:
    """Return the row of an operator that dequantises, computes as a float operator does, and quantises."""

    def quantised(node: Node) -> Sequence[Held]:
        x, to = operand_at(node, 0), points_of(node, 3, None)
        [y] = row(node.as_another(operator, [x], **node.attributes))
        return [node.apply("quantize_linear", y, part="elements", to=to, how=how)]

    return quantised


def _quantised_softmax(node: Node, x: Held, to: Affine, **attributes: Any) -> Traced:
    """Onnxruntime multiplies shares by the integer below 1 / scale, where QuantizeLinear would divide by the scale."""
    [y] = functions.ROWS["Softmax"](node.as_another("Softmax", [x], **attributes))
    # floor(1 / scale) in float32: 256 if the scale is 1 / 256
    times = float(np.floor(np.float32(1) / to.scale))
    return node.apply("quantize_linear", y, part="elements", to=to, how=Written(times=times))


def _qlinear_softmax(node: Node) -> Sequence[Held]:
    return [_quantised_softmax(node, operand_at(node, 0), points_of(node, 3, None), axis=node.get("axis", -1))]


def _softmax_of_elements(node: Node) -> Sequence[Held] | None:
    x, reader_makes = node.held(0), node.reader_makes
    if reader_makes is None or not isinstance(x, Dequantised) or not reader_makes.is_plain:
        return None
    return [Dequantised(_quantised_softmax(node, x, reader_makes.how, **node.attributes), reader_makes.how)]


def _qlinear_concat(node: Node) -> Sequence[Held]:
    """Operands are scale and zero point of the result, then three of each tensor."""
    operands = [operand_at(node, i) for i in range(2, len(node.inputs), 3)]
    to = points_of(node, 0, None)
    [y] = moves.ROWS["Concat"](node.as_another("Concat", operands, axis=node.get("axis")))
    return [node.apply("quantize_linear", y, part="elements", to=to)]


# ---- what moves elements --------------------------------------------------------------------------------------------


def _moved(row: Callable[[Node], Sequence[Tensor]]) -> Callable[[Node], Sequence[Held] | None]:
    """Return the row that moves elements of a tensor with one scale: scale and zero point stay as they are."""

    def of_elements(node: Node) -> Sequence[Held] | None:
        x = node.held(0)
        if not isinstance(x, Dequantised) or not x.how.is_whole or isinstance(x.elements, Known):
            return None
        # scale and zero point of the tensor serve wherever its elements lie
        moved = row(
            node.as_another(node.operator, [x.elements, *node.inputs[1:]], **node.attributes).take_outputs_of(node)
        )
        return [x._replace(elements=y) for y in moved]

    return of_elements


def _padded(node: Node) -> Sequence[Held] | None:
    """Pad elements with the element that stands for the number: the zero point for 0.

    A number that no element stands for is a border of floats, unless the reader makes these very elements of it.
    """
    x, value = node.held(0), node.constant(2)
    is_constant = node.get("mode", "constant") == "constant"
    if not isinstance(x, Dequantised) or not x.how.is_whole or isinstance(x.elements, Known) or not x.how.is_integer:
        return None
    number = 0.0 if value is None or not is_constant else float(value.reshape(()))
    if not math.isfinite(number):
        return None
    border = requantised_of(x.how, number, math.inf).lowest
    is_written_back = (
        node.reader_makes is not None and node.reader_makes.is_plain and node.reader_makes.how.equals(x.how)
    )
    if not is_written_back and x.how.numbers(np.asarray(border)) != np.float32(number):
        return None
    inputs = [x.elements, node.held(1), Known(np.asarray(border)) if is_constant else None, node.held(3)]
    moved = moves.ROWS["Pad"](node.as_another("Pad", inputs, **node.attributes))
    # the border may lie beyond the bounds of relu or clip
    return [x._replace(elements=y, lowest=None, highest=None) for y in moved if isinstance(y, Traced)]


def _bounded(node: Node) -> Sequence[Held] | None:
    """Relu and clip of elements that were bounded when they were written: nothing is left to do."""
    x = node.held(0)
    if not isinstance(x, Dequantised) or (x.lowest is None and x.highest is None):
        return None
    low, high = bounds_of(node.operator, [node.constant(i) for i in (1, 2)])
    wanted = requantised_of(x.how, low, high)
    # what was bounded more tightly before passes as well
    is_above = wanted.lowest is None or (x.lowest is not None and x.lowest >= wanted.lowest)
    is_below = wanted.highest is None or (x.highest is not None and x.highest <= wanted.highest)
    return [x] if is_above and is_below else None


def bounds_of(operator: str, constants: Sequence[Array | None]) -> tuple[float, float]:
    """Return the smallest and the largest number that relu or clip lets through.

    Args:
        operator: Relu or Clip.
        constants: the bounds of clip.
    """
    if operator == "Relu":
        return 0.0, math.inf
    least, most = (None if bound is None else float(bound.reshape(())) for bound in constants[:2])
    return -math.inf if least is None else least, math.inf if most is None else most


ROWS: dict[str, Callable[[Node], Sequence[Held]]] = {
    **integer_products.ROWS,
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "QLinearAdd": _joined("integer_add", _both),
    "QLinearMul": _joined("integer_multiply", _both),
    "QLinearGlobalAveragePool": _qlinear_global_mean,
    "QLinearAveragePool": _by_floats("AveragePool", pooling.ROWS["AveragePool"], ZERO_FIRST),
    "QLinearSigmoid": _by_floats("Sigmoid", functions.ROWS["Sigmoid"]),
    "QLinearLeakyRelu": _by_floats("LeakyRelu", functions.ROWS["LeakyRelu"]),
    "QLinearSoftmax": _qlinear_softmax,
    "QLinearConcat": _qlinear_concat,
}
#: What float operators become if they read elements; None of a node for which they stay as they are.
OF_ELEMENTS: dict[str, Callable[[Node], Sequence[Held] | None]] = {
    **integer_products.OF_ELEMENTS,
    "Add": _joined_of_elements("integer_add"),
    "Mul": _joined_of_elements("integer_multiply"),
    "GlobalAveragePool": _global_mean_of_elements,
    "AveragePool": _mean_of_elements,
    "Softmax": _softmax_of_elements,
    "MaxPool": _moved(pooling.ROWS["MaxPool"]),
    "Pad": _padded,
    "Relu": _bounded,
    "Clip": _bounded,
    "Identity": _moved(functions.ROWS["Identity"]),
    **{
        name: _moved(moves.ROWS[name])
        for name in ("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Split")
    },
}
