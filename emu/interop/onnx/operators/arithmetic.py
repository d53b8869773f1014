"""Operations on two or more tensors, and sums, means and largest values along axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from emu.interop.onnx.node import Node, Tensor, Traced

Row = Callable[[Node], Sequence[Tensor]]


def _pair(primitive: str) -> Row:
    return lambda node: [node.elementwise(primitive, node.operand(0), node.operand(1))]


def _several(primitive: str, *, mean: bool = False) -> Row:
    """Return the row of an operator that joins any number of tensors, two by two from the left."""

    def row(node: Node) -> Sequence[Tensor]:
        first, *others = [node.operand(i) for i in range(len(node.inputs))]
        for place, other in enumerate(others):
            # the last step has the node's own name: it is the one that later nodes read
            is_last = place == len(others) - 1 and not mean
            first = node.elementwise(primitive, first, other, part="" if is_last else f"{primitive}{place}")
        if mean:
            return [node.apply("divide", first, float(len(node.inputs)))]
        return [first]

    return row


def _axes(node: Node, x: Traced) -> list[int] | None:
    """Return the axes of a reduction; None if it leaves the tensor as it is."""
    given = node.integers(1, "axes")
    # no axes are all axes, unless the node says that they are none
    if not given:
        return None if node.get("noop_with_empty_axes", 0) else list(range(len(x.shape)))
    return sorted({node.axis(axis, len(x.shape)) for axis in given})


def _kept(node: Node, y: Traced, x: Traced, axes: Sequence[int]) -> Traced:
    """Return a reduction with the reduced axes as 1, if the node keeps them, else without."""
    whole = [1 if i in axes else size for i, size in enumerate(x.shape)]
    shape = whole if node.get("keepdims", 1) else [size for i, size in enumerate(x.shape) if i not in axes]
    return node.reshaped(y, shape, part="shape")


def _pooled(node: Node, primitive: str, x: Traced, axes: Sequence[int], part: str = "") -> Traced:
    """Write pooling over all elements of some axes: of images of one row, the first axis that is left apart."""
    rest = [i for i in range(len(x.shape)) if i not in axes]
    count, left = math.prod(x.shape[i] for i in axes), [x.shape[i] for i in rest]
    lead = left[0] if left else 1
    moved = node.transposed(x, [*rest, *axes], part="last")
    # (lead, left / lead, 1, count): images of one row, whose only window is the row
    flat = node.reshaped(moved, (lead, math.prod(left) // lead if lead else 0, 1, count), part="flat")
    return node.apply(primitive, flat, part=part, window=(1, count), stride=(1, count))


def _windowed(primitive: str) -> Row:
    """Return the row of a reduction that is pooling over all elements of some axes."""

    def row(node: Node) -> Sequence[Tensor]:
        x = node.traced()
        axes = _axes(node, x)
        if axes is None:
            return [x]
        return [_kept(node, _pooled(node, primitive, x, axes), x, axes)]

    return row


def _summed(node: Node) -> Sequence[Tensor]:
    x = node.traced()
    axes = _axes(node, x)
    return [x] if axes is None else [_kept(node, node.apply("sum", x, axis=tuple(axes)), x, axes)]


def _smallest(node: Node) -> Sequence[Tensor]:
    """The largest of the negated numbers, negated."""
    x = node.traced()
    axes = _axes(node, x)
    if axes is None:
        return [x]
    largest = _pooled(node, "max_pool", node.apply("multiply", x, -1.0, part="negated"), axes, part="largest")
    return [_kept(node, node.apply("multiply", largest, -1.0), x, axes)]


ROWS: dict[str, Row] = {
    "Add": _pair("add"),
    "Sub": _pair("subtract"),
    "Mul": _pair("multiply"),
    "Div": _pair("divide"),
    "Sum": _several("add"),
    "Mean": _several("add", mean=True),
    "Max": _several("maximum"),
    "Min": _several("minimum"),
    "ReduceSum": _summed,
    "ReduceMean": _windowed("avg_pool"),
    "ReduceMax": _windowed("max_pool"),
    "ReduceMin": _smallest,
}
