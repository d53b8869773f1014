"""What moves elements, and what a graph computes from shapes alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from emu.interop.steps import Known, Tensor, Traced
from emu.interop.tflite.node import Node
from emu.nn.layer import Shape


def _moved(node: Node, x: Traced, shape: Shape) -> Tensor:
    """Write a reshape, whose result has a name of its own even if the shape stays."""
    return node.apply("reshape", x, shape=shape)


def _require_same(node: Node) -> None:
    """Raise Refused unless elements that are moved keep their scale; floats and shapes have none."""
    if node.result.quantisation is not None and node.stored(0).quantisation is not None:
        node.require_same_scale(node.to(), 0)


def _reshape(node: Node) -> Tensor:
    """A first size that is the file's batch stands for any batch, unless the number of elements says otherwise."""
    x = node.operand(0)
    given = node.constant(1).reshape(-1).tolist() if node.is_given(1) else node.numbers(0)
    if given is None:
        raise node.refuse("have a shape", "none", "convert the network again")
    # a shape that is computed from shapes
    if isinstance(x, Known):
        return Known(x.array.reshape(given))
    _require_same(node)
    size, sizes = math.prod(x.shape), [int(part) for part in given]
    if sizes[:1] == [node.within.batch] and math.prod(sizes) != size:
        sizes[0] = node.within.current_batch
    # the product with -1 in it is minus the rest
    if sizes.count(-1) == 1 and (rest := -math.prod(sizes)) > 0:
        sizes[sizes.index(-1)] = size // rest
    if math.prod(sizes) != size or any(part < 0 for part in sizes):
        raise node.refuse(f"give {x.shape} a shape of {size} elements", tuple(given), "convert with an open batch")
    return _moved(node, x, tuple(sizes))


def _squeeze(node: Node) -> Tensor:
    x = node.traced()
    _require_same(node)
    chosen = [node.axis(axis, len(x.shape)) for axis in node.numbers(0) or []]
    # never the first axis: it is that of examples, even if the file has one
    axes = chosen or [axis for axis, size in enumerate(x.shape) if size == 1 and axis]
    if any(x.shape[axis] != 1 for axis in axes):
        raise node.refuse("leave out axes of size 1", f"the axes {axes} of {x.shape}", "convert the network again")
    return _moved(node, x, tuple(size for axis, size in enumerate(x.shape) if axis not in axes))


def _expand_dims(node: Node) -> Tensor:
    x = node.traced()
    _require_same(node)
    axis = node.axis(int(node.constant(1).reshape(())), len(x.shape) + 1)
    return _moved(node, x, (*x.shape[:axis], 1, *x.shape[axis:]))


def _transpose(node: Node) -> Tensor:
    x, axes = node.traced(), tuple(int(axis) for axis in node.constant(1).reshape(-1))
    _require_same(node)
    return node.apply("transpose", x, axes=axes)


def _pad(node: Node) -> Tensor:
    """The border is the zero point, or PADV2's third operand."""
    x, to = node.traced(), node.to()
    node.require_same_scale(to, 0)
    pads = tuple((int(before), int(after)) for before, after in node.constant(1).reshape(-1, 2))
    if len(pads) != len(x.shape) or any(side < 0 for pad in pads for side in pad) or (pads and any(pads[0])):
        raise node.refuse("pad axes after the first", f"{pads} for {x.shape}", "convert the network again")
    value = int(to.how.zero)
    if node.operator == "PADV2":
        node.require_same_scale(to, 2)
        # an element, at the scale and zero point of the result
        value = int(node.constant(2).reshape(()))
    return node.apply("pad_elements", x, pads=pads, value=value, to=to.how.format)


def _concatenation(node: Node) -> Tensor:
    to = node.to()
    if node.number(1, "Int8"):
        raise node.refuse("have no fused activation", node.number(1, "Int8"), "write it as an operator of its own")
    node.require_same_scale(to, *range(len(node.inputs)))
    operands = [node.operand(place) for place in range(len(node.inputs))]
    axis = node.axis(node.number(0, "Int32"), len(operands[0].shape))
    return node.apply("join_elements", *operands, axis=axis, to=to.how.format)


# ---- shapes ---------------------------------------------------------------------------------------------------------


def _shape(node: Node) -> Tensor:
    return Known(np.asarray(node.operand(0).shape, np.int32))


def _sizes(node: Node, index: int) -> Any:
    x = node.operand(index)
    if isinstance(x, Traced):
        raise node.refuse("read shapes", f"{x.name!r}, which the network computes", "write it as PAD or RESHAPE")
    return x.array


def _strided_slice(node: Node) -> Tensor:
    x, begin, end, step = (_sizes(node, i) for i in range(4))
    masks = [node.number(field, "Int32") for field in range(5)]
    if x.ndim != 1 or begin.size != 1 or masks[2] or masks[3]:
        raise node.refuse("cut a shape", f"an array of {x.shape}", "convert the network again")
    first = None if masks[0] else int(begin.flat[0])
    last = None if masks[1] else int(end.flat[0])
    # field 4, the shrink mask: one element instead of a part
    return Known(x[int(begin.flat[0])] if masks[4] else x[first : last : int(step.flat[0])])


def _pack(node: Node) -> Tensor:
    return Known(np.stack([np.asarray(_sizes(node, i)) for i in range(len(node.inputs))], node.number(1, "Int32")))


ROWS: dict[str, Callable[[Node], Tensor]] = {
    "RESHAPE": _reshape,
    "SQUEEZE": _squeeze,
    "EXPAND_DIMS": _expand_dims,
    "TRANSPOSE": _transpose,
    "PAD": _pad,
    "PADV2": _pad,
    "CONCATENATION": _concatenation,
    "SHAPE": _shape,
    "STRIDED_SLICE": _strided_slice,
    "PACK": _pack,
}
