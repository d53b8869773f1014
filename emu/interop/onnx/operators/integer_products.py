"""Products of elements: quantised operators, sums of integers, and what float products become between quantisers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from emu.datapath import Affine
from emu.formats import Fixed
from emu.interop.onnx.node import Dequantised, Held, Known, Node, Requantised, Tensor, Traced
from emu.interop.onnx.operators.elements import elements_of, operand_at, points_of, requantiser_of, traced_elements
from emu.interop.onnx.operators.products import as_before, as_images, as_kernels, windows_of
from emu.operations.integers import SUMS

#: Widest elements of integer kernels.
_BYTE = 8


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
    operands, reader_makes = (x.elements, w.elements, *rest.values()), node.reader_makes
    # `names` says which of bias and zero point the operands after the second are
    options |= {"of": (x.how, w.how), "names": tuple(rest)}
    if reader_makes is not None:
        by, to = requantiser_of(reader_makes), reader_makes.how.format
        elements = node.apply(name, *operands, by=by, to=to, **options)
        return Dequantised(elements, reader_makes.how, reader_makes.lowest, reader_makes.highest)
    # one product of both scales, rounded to float32: sums are multiplied by it
    scale = np.multiply(x.how.scale, w.how.scale, dtype=np.float32)
    sums = node.apply(name, *operands, part="sums", **options)
    # the axis of outputs, along which the scales of kernels or columns lie
    axis = 1 if name == "integer_conv2d" else len(sums.shape) - 1
    return node.apply("dequantize_linear", sums, of=Affine.of(SUMS, scale, 0, axis))


def _convolution(node: Node, x: Dequantised, w: Dequantised, bias: Tensor | None, zero: Tensor | None = None) -> Held:
    options = windows_of(node, x.shape[2:], w.shape[2:])
    images = x._replace(elements=as_images(node, traced_elements(node, x)))
    kernels = w._replace(elements=as_kernels(node, w.elements))
    rest = {name: part for name, part in (("bias", bias), ("zero", zero)) if part is not None}
    y = _written(node, "integer_conv2d", images, kernels, rest, groups=int(node.get("group", 1)), **options)
    if isinstance(y, Dequantised):
        return y._replace(elements=as_before(node, traced_elements(node, y), x))
    assert isinstance(y, Traced)
    return as_before(node, y, x)


def _factors(node: Node, axis: int) -> tuple[Dequantised, Dequantised] | None:
    """Return both operands if they are elements whose scales a product can have: of tensors, of columns or kernels."""
    x, w = node.held(0), node.held(1)
    if not isinstance(x, Dequantised) or not isinstance(w, Dequantised) or isinstance(x.elements, Known):
        return None
    # a sum over k has one scale only if scales differ along outputs, never along k
    fits = x.how.is_whole and (w.how.is_whole or w.how.axis == axis)
    # terms along k: of kernels (O, C, ...) all but the first axis, of matrices the axis that has no scales
    depth = math.prod(w.shape[1:] if len(w.shape) > 2 or axis == 0 else w.shape[:1])
    return (x, w) if fits and _fits_sums(x.how, w.how, depth) else None


def _fits_sums(x: Affine, w: Affine, depth: int) -> bool:
    """Return whether sums of products are those of a runtime's integer kernels.

    Those of bytes are kept in 32 bits, which wrap. Wider elements have no such kernels: exact sums serve if they fit.
    """
    if not isinstance(x.format, Fixed) or not isinstance(w.format, Fixed):
        return False
    bits = x.format.width_bits, w.format.width_bits
    # elements less zero points are below 2**bits in magnitude, so a sum of `depth` products is below 2**n with
    # n = sum of both bits + ceil(log2(depth)); n of at most 31 leaves a bit for the sign
    return max(bits) <= _BYTE or sum(bits) + max(depth - 1, 1).bit_length() < SUMS.width_bits


def _bias_of(node: Node, index: int, x: Dequantised, w: Dequantised) -> tuple[Tensor | None, Tensor | None]:
    """Return a bias in units of the sums, and one that is added to the result as float32."""
    given = node.held(index)
    if not isinstance(given, Dequantised):
        return None, node.given(index)
    scale = np.multiply(x.how.scale, w.how.scale, dtype=np.float32)
    # a bias of int32 at the scale of the sums is added to them exactly
    fits = given.how.format == SUMS and not given.how.zero.any() and isinstance(given.elements, Known)
    has_scale = given.how.scale.size == 1 or given.how.scale.shape == scale.shape
    if fits and has_scale and np.array_equal(np.broadcast_to(given.how.scale, scale.shape), scale):
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
    node.reader_makes = None  # a float bias lies between the sums and the reader
    y = _convolution(node, x, w, bias)
    assert isinstance(y, Traced)
    shape = (y.shape[1], *[1] * (len(y.shape) - 2))
    if isinstance(after, Known):
        addend: Tensor = Known(after.array.reshape(shape), after.name)
    else:
        addend = node.reshaped(after, shape, part="bias")
    return [node.elementwise("add", y, addend, part="add")]


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
    node.reader_makes = None
    y = _product(node, x, matrix, bias)
    assert isinstance(y, Traced)
    return [node.elementwise("add", y, after, part="add")]


def _columns(node: Node, w: Dequantised) -> Dequantised:
    """Return the transpose of a matrix of elements, (in, out)."""
    # scales of rows become scales of columns
    how = Affine.of(w.how.format, w.how.scale, w.how.zero, 1)
    if isinstance(w.elements, Known):
        return Dequantised(Known(np.ascontiguousarray(w.elements.array.T), w.elements.name), how)
    return Dequantised(node.transposed(w.elements, (1, 0), part="b_transposed"), how)


def _qlinear_conv(node: Node) -> Sequence[Held]:
    node.reader_makes = Requantised(points_of(node, 6, None))
    y = _convolution(node, operand_at(node, 0), operand_at(node, 3), node.given(8))
    assert isinstance(y, Dequantised)
    return [y.elements]


def _qlinear_matmul(node: Node) -> Sequence[Held]:
    """Scales of rows of the left matrix, and of columns of the right one, are scales of their axis."""
    x, w = operand_at(node, 0), operand_at(node, 3)
    # a scale of several numbers is one for each row, or column, of the last two axes
    rows = Affine.of(x.how.format, x.how.scale, x.how.zero, len(x.shape) - 2)
    columns = Affine.of(w.how.format, w.how.scale, w.how.zero, len(w.shape) - 1)
    node.reader_makes = Requantised(points_of(node, 6, None))
    y = _product(node, x._replace(how=rows), w._replace(how=columns), None)
    assert isinstance(y, Dequantised)
    return [y.elements]


def _qgemm(node: Node) -> Sequence[Held]:
    """Alpha is taken into the scale of the left matrix."""
    x, w = operand_at(node, 0), operand_at(node, 3)
    if node.get("transA", 0):
        x = x._replace(elements=node.transposed(traced_elements(node, x), (1, 0), part="a_transposed"))
    # the operator has no float step at which alpha could be applied
    scale = np.float32(node.get("alpha", 1.0)) * x.how.scale
    x = x._replace(how=Affine.of(x.how.format, scale, x.how.zero))
    w = (
        _columns(node, w)
        if node.get("transB", 0)
        else w._replace(how=Affine.of(w.how.format, w.how.scale, w.how.zero, 1))
    )
    node.reader_makes = Requantised(points_of(node, 7, None)) if node.held(7) is not None else None
    y = _product(node, x, w, node.given(6))
    return [y.elements if isinstance(y, Dequantised) else y]


def _plain(node: Node, index: int, zero: int, axis: int) -> tuple[Dequantised, Traced | None]:
    """Return an operand of an integer product, whose scale is 1, and its zero point if the graph computes that."""
    (q, fmt), point = elements_of(node, index), node.held(zero)
    # a zero point that the graph computes is an operand of its own
    points = np.zeros((), np.int64) if not isinstance(point, Known) else point.array.astype(np.int64)
    scale = np.ones(points.shape if points.size > 1 else (), np.float32)
    return Dequantised(q, Affine.of(fmt, scale, points, axis)), point if isinstance(point, Traced) else None


def _weights(node: Node, axis: int) -> Dequantised:
    """Return the right operand of an integer product.

    Raises:
        Refused: the graph computes its zero point: only the left operand's may be an operand of the product.
    """
    w, zero = _plain(node, 1, 3, axis)
    if zero is not None:
        raise node.refuse(
            "have a constant zero point of its right operand", f"{zero.name!r}, which the network computes",
            "quantise that operand with a constant scale and zero point",
        )  # fmt: skip
    return w


def _conv_integer(node: Node) -> Sequence[Held]:
    (x, zero), w = _plain(node, 0, 2, 0), _weights(node, 0)
    return [_sums_of(node, _convolution, x, w, zero)]


def _matmul_integer(node: Node) -> Sequence[Held]:
    (x, zero), w = _plain(node, 0, 2, -2), _weights(node, -1)
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


ROWS: dict[str, Callable[[Node], Sequence[Held]]] = {
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "QGemm": _qgemm,
    "ConvInteger": _conv_integer,
    "MatMulInteger": _matmul_integer,
}
#: What float products become if they read elements; None of a node for which they stay as they are.
OF_ELEMENTS: dict[str, Callable[[Node], Sequence[Held] | None]] = {
    "Conv": _conv_of_elements,
    "MatMul": _matmul_of_elements,
    "Gemm": _gemm_of_elements,
}
