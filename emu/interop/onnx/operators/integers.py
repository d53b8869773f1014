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

from emu.datapath import Affine, Requantiser, RequantiserKind
from emu.errors import ConfigError
from emu.formats import Fixed, Format, parse_number
from emu.interop.onnx.files import DOMAINS
from emu.interop.onnx.node import Becomes, Dequantised, Held, Known, Node, Tensor, Traced
from emu.interop.onnx.operators import functions, moves, pooling, qonnx
from emu.interop.onnx.operators.products import as_before, as_images, as_kernels, windows_of
from emu.operations.integers import DYNAMIC, STANDARD, SUMS, Written

Array = NDArray[Any]
#: Domain of the operators that onnxruntime adds, and those of them that are known.
MICROSOFT = "com.microsoft"
_ADDED = {
    "QLinearAdd", "QLinearMul", "QGemm", "QLinearGlobalAveragePool", "QLinearAveragePool", "QLinearSigmoid",
    "QLinearLeakyRelu", "QLinearSoftmax", "QLinearConcat", "QuantizeLinear", "DequantizeLinear", "Gelu",
}  # fmt: skip
#: Formats of elements, by the name of their dtype.
_FORMATS = {
    "uint8": "ufix8f0", "int8": "fix8f0", "uint16": "ufix16f0", "int16": "fix16f0", "int32": "fix32f0",
    "uint4": "ufix4f0", "int4": "fix4f0", "uint2": "ufix2f0", "int2": "fix2f0",
    "float8_e4m3fn": "fp8_e4m3", "float8_e5m2": "fp8_e5m2", "float4_e2m1fn": "fp4_e2m1",
}  # fmt: skip
#: Types that QuantizeLinear's `output_dtype` numbers, as TensorProto does.
_TYPES = {
    2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 17: "float8_e4m3fn", 19: "float8_e5m2", 21: "uint4", 22: "int4",
    23: "float4_e2m1fn", 25: "uint2", 26: "int2",
}  # fmt: skip
#: Onnxruntime's pooling adds the zero point before it rounds.
ZERO_FIRST = Written(zero_first=True)


def is_known(operator: str, domain: str) -> bool:
    """Return whether an operator of a domain may be in the table."""
    if operator in qonnx.ROWS:
        return domain in qonnx.DOMAINS
    return domain in DOMAINS or (domain == MICROSOFT and operator in _ADDED)


def _becomes_of_linear(
    arrays: Sequence[Array], attributes: Mapping[str, Any], low: float, high: float
) -> Becomes | None:
    how = affine_of(arrays[0], arrays[1] if len(arrays) > 1 else None, attributes, 1)
    return becomes_of(how, low, high) if how.is_integer and how.is_whole else None


#: Operators whose rows take constants, whose elements stay known.
OF_CONSTANTS = {"DequantizeLinear", *qonnx.ROWS}
#: What makes elements of the numbers that it reads: (constant operands, attributes, bounds of what it reads) -> them.
QUANTISERS: dict[str, Callable[[Sequence[Array], Mapping[str, Any], float, float], Becomes | None]] = {
    "QuantizeLinear": _becomes_of_linear,
    "Quant": qonnx.becomes_of_quant,
    "IntQuant": qonnx.becomes_of_quant,
}


def format_of(dtype: Any) -> Format:
    """Return the format of elements that a file has in a dtype.

    Raises:
        ConfigError: there is none.
    """
    name = np.dtype(dtype).name
    if name not in _FORMATS:
        raise ConfigError(f"elements must be of {', '.join(_FORMATS)}, got {name}; quantise the network into these")
    return parse_number(_FORMATS[name])


def affine_of(scale: Array, zero: Array | None, attributes: Any, ndim: int, elements: Format | None = None) -> Affine:
    """Return what elements stand for, from the operands and attributes of QuantizeLinear or DequantizeLinear.

    Args:
        scale: one, or one for each index of an axis.
        zero: the same for zero points; None is 0.
        attributes: of the node.
        ndim: axes of the tensor.
        elements: format of the elements, if that is known; else it is that of the zero point.

    Raises:
        ConfigError: scales of blocks.
    """
    if attributes.get("block_size", 0) or scale.ndim > 1:
        raise ConfigError("scales must be those of a tensor or of an axis, got blocks; quantise without block_size")
    dtype = _TYPES.get(int(attributes.get("output_dtype", 0) or 0), "uint8") if zero is None else zero.dtype
    fmt = elements or format_of(dtype)
    axis = int(attributes.get("axis", 1)) % max(ndim, 1)
    points = 0 if zero is None or not isinstance(fmt, Fixed) else np.asarray(zero).astype(np.int64)
    return Affine.of(fmt, scale, points, axis)


def becomes_of(how: Affine, low: float, high: float) -> Becomes:
    """Return the elements that QuantizeLinear makes of numbers which relu or clip bounds to low..high."""

    def element(number: float) -> int | None:
        if math.isinf(number) or not isinstance(how.format, Fixed):
            return None
        q = int(np.rint(np.float32(number) / how.scale)) + int(how.zero)
        return int(min(max(q, how.format.min), how.format.max))

    return Becomes(how, element(low), element(high))


# ---- between floats and elements ------------------------------------------------------------------------------------


def _quantize(node: Node) -> Sequence[Held]:
    x = node.held(0)
    assert x is not None
    scale = node.constant(1)
    assert scale is not None
    to = affine_of(scale, node.constant(2), node.attributes, len(x.shape))
    if isinstance(x, Dequantised) and x.how.equals(to):
        return [x.elements]
    return [node.apply("quantize_linear", node.traced(), to=to)]


def _elements(node: Node, index: int) -> tuple[Traced | Known, Format]:
    """Return an operand that has elements, and their format.

    Raises:
        Refused: it has float32 numbers, or tokens.
    """
    q = node.held(index)
    if isinstance(q, Traced) and q.format is not None and not q.is_float:
        return q, q.format
    if isinstance(q, Known) and q.array.dtype != np.float32:
        return q, format_of(q.array.dtype)
    held = "float32" if isinstance(q, Dequantised | Known) or (q is not None and q.is_float) else "none"
    raise node.refuse(f"hold elements as operand {index}", held, "quantise it before this node")


def _dequantize(node: Node) -> Sequence[Held]:
    (q, elements), scale = _elements(node, 0), node.constant(1)
    assert scale is not None
    return [Dequantised(q, affine_of(scale, node.constant(2), node.attributes, len(q.shape), elements))]


def _dynamic_quantize(node: Node) -> Sequence[Held]:
    x, to = node.traced(), parse_number("ufix8f0")
    return [
        node.apply("dynamic_quantize", x, part="" if gives == "elements" else gives, to=to, gives=gives)
        for gives in DYNAMIC[: node.output_count]
    ]


def _at(node: Node, first: int) -> Dequantised:
    """Return an operand with its scale and zero point, which are the two operands after it."""
    q, elements = _elements(node, first)
    return Dequantised(q, _points(node, first + 1, elements))


def _points(node: Node, first: int, fmt: Format | None, axis: int = 0) -> Affine:
    """Return a scale and a zero point of a node, in the format of the zero point if none is given."""
    scale, zero = node.constant(first), node.constant(first + 1)
    if scale is None:
        raise node.refuse(f"have a scale as operand {first}", "none", "export the file again")
    return affine_of(scale, zero, {"axis": axis}, 1, fmt or format_of(zero.dtype if zero is not None else np.uint8))


def _requantiser(becomes: Becomes) -> Requantiser:
    how, bounds = becomes.how, (becomes.lowest, becomes.highest)
    return Requantiser(becomes.kind, float(how.scale), int(how.zero), *bounds, becomes.rounding)


# ---- products -------------------------------------------------------------------------------------------------------


def _written(node: Node, name: str, x: Dequantised, w: Dequantised, rest: dict[str, Tensor], **options: Any) -> Held:
    """Write a product of elements: requantised if its reader quantises it, else sums times both scales.

    Args:
        node: the node.
        name: integer_matmul or integer_conv2d.
        x: left operand.
        w: right operand.
        rest: bias and zero point of the left operand, by these names, if the node has them.
        **options: how kernels slide.
    """
    operands, becomes = (x.elements, w.elements, *rest.values()), node.becomes
    options |= {"of": (x.how, w.how), "names": tuple(rest)}
    if becomes is not None:
        by, to = _requantiser(becomes), becomes.how.format
        elements = node.apply(name, *operands, by=by, to=to, **options)
        return Dequantised(elements, becomes.how, becomes.lowest, becomes.highest)
    scale = np.multiply(x.how.scale, w.how.scale, dtype=np.float32)
    sums = node.apply(name, *operands, part="sums", **options)
    axis = 1 if name == "integer_conv2d" else len(sums.shape) - 1
    return node.apply("dequantize_linear", sums, of=Affine.of(SUMS, scale, 0, axis))


def _convolution(node: Node, x: Dequantised, w: Dequantised, bias: Tensor | None, zero: Tensor | None = None) -> Held:
    options = windows_of(node, x.shape[2:], w.shape[2:])
    images = x._replace(elements=as_images(node, _traced(node, x)))
    kernels = w._replace(elements=as_kernels(node, w.elements))
    rest = {name: part for name, part in (("bias", bias), ("zero", zero)) if part is not None}
    y = _written(node, "integer_conv2d", images, kernels, rest, groups=int(node.get("group", 1)), **options)
    if isinstance(y, Dequantised):
        return y._replace(elements=as_before(node, _traced(node, y), x))
    assert isinstance(y, Traced)
    return as_before(node, y, x)


def _traced(node: Node, x: Dequantised) -> Traced:
    if isinstance(x.elements, Known):
        raise node.refuse("read what the network computes", "constant elements", "simplify the file with onnxsim")
    return x.elements


def _factors(node: Node, axis: int) -> tuple[Dequantised, Dequantised] | None:
    """Return both operands if they are elements whose scales a product can have: of tensors, of columns or kernels."""
    x, w = node.held(0), node.held(1)
    if not isinstance(x, Dequantised) or not isinstance(w, Dequantised) or isinstance(x.elements, Known):
        return None
    fits = x.how.is_integer and w.how.is_integer and x.how.is_whole and (w.how.is_whole or w.how.axis == axis)
    return (x, w) if fits else None


def _bias_of(node: Node, index: int, x: Dequantised, w: Dequantised) -> tuple[Tensor | None, Tensor | None]:
    """Return a bias in units of the sums, and one that is added to the result as float32."""
    given = node.held(index)
    if not isinstance(given, Dequantised):
        return None, node.given(index)
    scale = np.multiply(x.how.scale, w.how.scale, dtype=np.float32)
    fits = given.how.format == SUMS and not given.how.zero.any() and isinstance(given.elements, Known)
    if fits and np.array_equal(np.broadcast_to(given.how.scale, scale.shape), scale):
        return given.elements, None
    return None, node.as_float(given)


def _conv_of_elements(node: Node) -> Sequence[Held] | None:
    factors = _factors(node, 0)
    if factors is None:
        return None
    x, w = factors
    bias, after = _bias_of(node, 2, x, w)
    if after is None:
        return [_convolution(node, x, w, bias)]
    node.becomes = None  # a float bias lies between the sums and the reader
    y = _convolution(node, x, w, bias)
    assert isinstance(y, Traced)
    shape = (-1, *[1] * (len(y.shape) - 2))
    assert isinstance(after, Known)
    return [node.elementwise("add", y, Known(after.array.reshape(shape), after.name), part="add")]


def _product(node: Node, x: Dequantised, w: Dequantised, bias: Tensor | None, zero: Tensor | None = None) -> Held:
    rest = {name: part for name, part in (("bias", bias), ("zero", zero)) if part is not None}
    return _written(node, "integer_matmul", x, w, rest)


def _matmul_of_elements(node: Node) -> Sequence[Held] | None:
    factors = _factors(node, 1)
    if factors is None:
        return None
    x, w = factors
    if min(len(x.shape), len(w.shape)) < 2 or (len(w.shape) > 2 and not w.how.is_whole):
        return None
    return [_product(node, x, w, None)]


def _gemm_of_elements(node: Node) -> Sequence[Held] | None:
    transposed = bool(node.get("transB", 0))
    factors = _factors(node, 0 if transposed else 1)
    if factors is None or node.get("transA", 0) or (node.get("alpha", 1.0), node.get("beta", 1.0)) != (1, 1):
        return None
    x, w = factors
    matrix = _columns(node, w) if transposed else w
    bias, after = _bias_of(node, 2, x, w)
    if after is None:
        return [_product(node, x, matrix, bias)]
    node.becomes = None
    y = _product(node, x, matrix, bias)
    assert isinstance(y, Traced)
    return [node.elementwise("add", y, after, part="add")]


def _columns(node: Node, w: Dequantised) -> Dequantised:
    """Return the transpose of a matrix of elements, (in, out)."""
    how = Affine.of(w.how.format, w.how.scale, w.how.zero, 1)
    if isinstance(w.elements, Known):
        return Dequantised(Known(np.ascontiguousarray(w.elements.array.T), w.elements.name), how)
    return Dequantised(node.transposed(w.elements, (1, 0), part="b_transposed"), how)


def _qlinear_conv(node: Node) -> Sequence[Held]:
    node.becomes = Becomes(_points(node, 6, None))
    y = _convolution(node, _at(node, 0), _at(node, 3), node.given(8))
    assert isinstance(y, Dequantised)
    return [y.elements]


def _qlinear_matmul(node: Node) -> Sequence[Held]:
    """Scales of rows of the left matrix, and of columns of the right one, are scales of their axis."""
    x, w = _at(node, 0), _at(node, 3)
    rows = Affine.of(x.how.format, x.how.scale, x.how.zero, len(x.shape) - 2)
    columns = Affine.of(w.how.format, w.how.scale, w.how.zero, len(w.shape) - 1)
    node.becomes = Becomes(_points(node, 6, None))
    y = _product(node, x._replace(how=rows), w._replace(how=columns), None)
    assert isinstance(y, Dequantised)
    return [y.elements]


def _qgemm(node: Node) -> Sequence[Held]:
    """Alpha is taken into the scale of the left matrix."""
    x, w = _at(node, 0), _at(node, 3)
    if node.get("transA", 0):
        x = x._replace(elements=node.transposed(_traced(node, x), (1, 0), part="a_transposed"))
    scale = np.float32(node.get("alpha", 1.0)) * x.how.scale
    x = x._replace(how=Affine.of(x.how.format, scale, x.how.zero))
    w = (
        _columns(node, w)
        if node.get("transB", 0)
        else w._replace(how=Affine.of(w.how.format, w.how.scale, w.how.zero, 1))
    )
    node.becomes = Becomes(_points(node, 7, None)) if node.held(7) is not None else None
    y = _product(node, x, w, node.given(6))
    return [y.elements if isinstance(y, Dequantised) else y]


def _plain(node: Node, index: int, zero: int, axis: int) -> tuple[Dequantised, Tensor | None]:
    """Return an operand of an integer product, whose scale is 1, and its zero point if the graph computes that."""
    (q, fmt), point = _elements(node, index), node.held(zero)
    points = np.zeros((), np.int64) if not isinstance(point, Known) else point.array.astype(np.int64)
    scale = np.ones(points.shape if points.size > 1 else (), np.float32)
    return Dequantised(q, Affine.of(fmt, scale, points, axis)), point if isinstance(point, Traced) else None


def _conv_integer(node: Node) -> Sequence[Held]:
    (x, zero), (w, _) = _plain(node, 0, 2, 0), _plain(node, 1, 3, 0)
    return [_sums_of(node, _convolution, x, w, zero)]


def _matmul_integer(node: Node) -> Sequence[Held]:
    (x, zero), (w, _) = _plain(node, 0, 2, -2), _plain(node, 1, 3, -1)
    x, w = (part._replace(how=_counted(part.how, len(part.shape))) for part in (x, w))
    return [_sums_of(node, _product, x, w, zero)]


def _counted(how: Affine, ndim: int) -> Affine:
    """Return scales whose axis is counted from the front."""
    return Affine.of(how.format, how.scale, how.zero, None if how.axis is None else how.axis % ndim)


def _sums_of(node: Node, product: Any, x: Dequantised, w: Dequantised, zero: Tensor | None) -> Held:
    """Return the sums themselves, as integers of 32 bits."""
    y = product(node, x, w, None, zero)
    assert isinstance(y, Traced)
    return y


# ---- element by element, pooling -------------------------------------------------------------------------------------


def _joined(
    primitive: str, operands: Callable[[Node], tuple[Dequantised, Dequantised]]
) -> Callable[[Node], Sequence[Held]]:
    def row(node: Node) -> Sequence[Held]:
        (a, b), to = operands(node), _points(node, 6, None)
        return [node.apply(primitive, a.elements, b.elements, of=(a.how, b.how), to=to)]

    return row


def _both(node: Node) -> tuple[Dequantised, Dequantised]:
    return _at(node, 0), _at(node, 3)


def _joined_of_elements(primitive: str) -> Callable[[Node], Sequence[Held] | None]:
    def row(node: Node) -> Sequence[Held] | None:
        a, b, becomes = node.held(0), node.held(1), node.becomes
        if becomes is None or not becomes.is_plain:
            return None
        if not all(isinstance(x, Dequantised) and x.how.is_whole and x.how.is_integer for x in (a, b)):
            return None
        assert isinstance(a, Dequantised)
        assert isinstance(b, Dequantised)
        elements = node.apply(primitive, a.elements, b.elements, of=(a.how, b.how), to=becomes.how)
        return [Dequantised(elements, becomes.how)]

    return row


def _global_mean(node: Node, x: Dequantised, becomes: Becomes) -> Dequantised:
    """A product with ones: the sum times float32(scale / (scale of the result * count))."""
    count = math.prod(x.shape[2:])
    flat = node.reshaped(_traced(node, x), (*x.shape[:2], count), part="flat")
    ones = Known(np.ones((count, 1), np.int8))
    scale = float(np.float32(becomes.how.scale * np.float32(count)))
    by = _requantiser(becomes._replace(how=Affine.of(becomes.how.format, scale, becomes.how.zero)))
    of = (x.how, Affine.of("fix8f0", 1.0))
    means = node.apply("integer_matmul", flat, ones, of=of, by=by, to=becomes.how.format)
    shape = (*x.shape[:2], *[1] * len(x.shape[2:]))
    return Dequantised(node.reshaped(means, shape, part="kept"), becomes.how, becomes.lowest, becomes.highest)


def _qlinear_global_mean(node: Node) -> Sequence[Held]:
    if node.get("channels_last", 0):
        raise node.refuse("have channels first", "channels_last = 1", "export the file without layout changes")
    return [_global_mean(node, _at(node, 0), Becomes(_points(node, 3, None))).elements]


def _global_mean_of_elements(node: Node) -> Sequence[Held] | None:
    x = node.held(0)
    if node.becomes is None or node.becomes.kind is not RequantiserKind.FLOAT32:
        return None
    if not isinstance(x, Dequantised) or not x.how.is_whole or isinstance(x.elements, Known):
        return None
    return [_global_mean(node, x, node.becomes)]


def _mean_of_elements(node: Node) -> Sequence[Held] | None:
    """The mean as float32; its zero point is added before it is rounded."""
    x, becomes = node.held(0), node.becomes
    if becomes is None or not isinstance(x, Dequantised) or not becomes.is_plain:
        return None
    [y] = pooling.ROWS["AveragePool"](node)
    return [Dequantised(node.apply("quantize_linear", y, part="elements", to=becomes.how, how=ZERO_FIRST), becomes.how)]


def _by_floats(operator: str, row: Callable[[Node], Sequence[Tensor]], how: Written = STANDARD) -> Any:
    """Return the row of an operator that dequantises, computes as a float operator does, and quantises."""

    def quantised(node: Node) -> Sequence[Held]:
        x, to = _at(node, 0), _points(node, 3, None)
        [y] = row(node.as_another(operator, [x], **node.attributes))
        return [node.apply("quantize_linear", y, part="elements", to=to, how=how)]

    return quantised


def _quantised_softmax(node: Node, x: Held, to: Affine, **attributes: Any) -> Traced:
    """Onnxruntime multiplies shares by the integer below 1 / scale, where QuantizeLinear would divide by the scale."""
    [y] = functions.ROWS["Softmax"](node.as_another("Softmax", [x], **attributes))
    times = float(np.floor(np.float32(1) / to.scale))
    return node.apply("quantize_linear", y, part="elements", to=to, how=Written(times=times))


def _qlinear_softmax(node: Node) -> Sequence[Held]:
    return [_quantised_softmax(node, _at(node, 0), _points(node, 3, None), axis=node.get("axis", -1))]


def _softmax_of_elements(node: Node) -> Sequence[Held] | None:
    x, becomes = node.held(0), node.becomes
    if becomes is None or not isinstance(x, Dequantised) or not becomes.is_plain:
        return None
    return [Dequantised(_quantised_softmax(node, x, becomes.how, **node.attributes), becomes.how)]


def _qlinear_concat(node: Node) -> Sequence[Held]:
    """Operands are scale and zero point of the result, then three of each tensor."""
    operands = [_at(node, i) for i in range(2, len(node.inputs), 3)]
    to = _points(node, 0, None)
    [y] = moves.ROWS["Concat"](node.as_another("Concat", operands, axis=node.get("axis")))
    return [node.apply("quantize_linear", y, part="elements", to=to)]


# ---- what moves elements --------------------------------------------------------------------------------------------


def _moved(row: Callable[[Node], Sequence[Tensor]]) -> Callable[[Node], Sequence[Held] | None]:
    """Return what moves elements of a tensor with one scale: each stands for the number that it stood for."""

    def of_elements(node: Node) -> Sequence[Held] | None:
        x = node.held(0)
        if not isinstance(x, Dequantised) or not x.how.is_whole or isinstance(x.elements, Known):
            return None
        moved = row(node.as_another(node.operator, [x.elements, *node.inputs[1:]], **node.attributes).of_outputs(node))
        return [x._replace(elements=y) for y in moved]

    return of_elements


def _bounded(node: Node) -> Sequence[Held] | None:
    """Relu and clip of elements that were bounded when they were written: nothing is left to do."""
    x = node.held(0)
    if not isinstance(x, Dequantised) or (x.lowest is None and x.highest is None):
        return None
    low, high = bounds_of(node.operator, [node.constant(i) for i in (1, 2)])
    wanted = becomes_of(x.how, low, high)
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
    least, most = (None if bound is None else float(bound.reshape(())) for bound in constants)
    return -math.inf if least is None else least, math.inf if most is None else most


ROWS: dict[str, Callable[[Node], Sequence[Held]]] = {
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "QGemm": _qgemm,
    "ConvInteger": _conv_integer,
    "MatMulInteger": _matmul_integer,
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
    "Conv": _conv_of_elements,
    "MatMul": _matmul_of_elements,
    "Gemm": _gemm_of_elements,
    "Add": _joined_of_elements("integer_add"),
    "Mul": _joined_of_elements("integer_multiply"),
    "GlobalAveragePool": _global_mean_of_elements,
    "AveragePool": _mean_of_elements,
    "Softmax": _softmax_of_elements,
    "MaxPool": _moved(pooling.ROWS["MaxPool"]),
    "Relu": _bounded,
    "Clip": _bounded,
    "Identity": _moved(functions.ROWS["Identity"]),
    **{
        name: _moved(moves.ROWS[name])
        for name in ("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Split")
    },
}
