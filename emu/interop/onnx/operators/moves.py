"""Operators that move numbers: shapes, orders of axes, parts of tensors, tensors joined."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from emu.interop.onnx.node import Known, Node, Tensor, Traced

Row = Callable[[Node], Sequence[Tensor]]


def _reshape(node: Node) -> Sequence[Tensor]:
    """A size of 0 copies that of the operand, -1 is what is left; the batch of the file stands for any batch."""
    x, target = node.traced(), node.integers(1)
    if target is None:
        raise node.refuse("have a constant shape", "none", "export the file again")
    if not node.get("allowzero", 0):
        # `allowzero` makes 0 a size; otherwise it copies
        target = [x.shape[i] if size == 0 else size for i, size in enumerate(target)]
    whole, rest = math.prod(x.shape), math.prod(size for size in target if size != -1)
    fits = rest != 0 and whole % rest == 0 if -1 in target else whole == rest
    # the file was exported with a batch, which stands as a number in its shapes
    is_baked = node.batch is not None and target and target[0] == node.batch != node.current_batch
    if is_baked and (not fits or -1 in target):
        target = [node.current_batch, *target[1:]]
        rest = math.prod(size for size in target if size != -1)
    shape = [whole // rest if size == -1 else size for size in target] if rest else target
    if math.prod(shape) != whole:
        raise node.refuse(f"give {x.shape} a shape of {whole} numbers", tuple(target), "export it with an open batch")
    return [node.reshaped(x, shape)]


def _flatten(node: Node) -> Sequence[Tensor]:
    x = node.traced()
    axis = int(node.get("axis", 1))
    axis += len(x.shape) if axis < 0 else 0
    return [node.reshaped(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))]


def _transpose(node: Node) -> Sequence[Tensor]:
    x = node.traced()
    axes = [node.axis(axis, len(x.shape)) for axis in node.get("perm", range(len(x.shape))[::-1])]
    return [node.transposed(x, axes)]


def _squeeze(node: Node) -> Sequence[Tensor]:
    x, given = node.traced(), node.integers(1, "axes")
    axes = {node.axis(axis, len(x.shape)) for axis in given} if given else {i for i, n in enumerate(x.shape) if n == 1}
    return [node.reshaped(x, [size for i, size in enumerate(x.shape) if i not in axes])]


def _unsqueeze(node: Node) -> Sequence[Tensor]:
    x, given = node.traced(), node.integers(1, "axes") or []
    ndim = len(x.shape) + len(given)
    axes, sizes = {node.axis(axis, ndim) for axis in given}, iter(x.shape)
    if len(axes) < len(given):
        raise node.refuse("insert each axis once", given, "export the file again")
    return [node.reshaped(x, [1 if i in axes else next(sizes) for i in range(ndim)])]


def _expand(node: Node) -> Sequence[Tensor]:
    x, target = node.traced(), node.integers(1) or []
    # the file's batch stands for the batch that the graph is read for
    if target and target[0] == node.batch and x.shape[:1] == (node.current_batch,):
        target = [node.current_batch, *target[1:]]
    shape = np.broadcast_shapes(x.shape, tuple(target))
    return [x if shape == x.shape else node.apply("expand", x, shape=shape)]


def _concat(node: Node) -> Sequence[Tensor]:
    operands = [node.operand(i) for i in range(len(node.inputs))]
    axis = node.axis(int(node.get("axis")), len(operands[0].shape))
    if axis and node.batch == 1 != node.current_batch:  # a constant of the file's batch, such as a token for classes
        operands = [_for_each(x, node.current_batch) if isinstance(x, Known) else x for x in operands]
    rests = {(*x.shape[:axis], *x.shape[axis + 1 :]) for x in operands}
    if len(rests) > 1:
        raise node.refuse("join tensors of one shape beside its axis", [x.shape for x in operands], "check the export")
    return [operands[0] if len(operands) == 1 else node.apply("concatenate", *operands, axis=axis)]


def _for_each(x: Known, batch: int) -> Known:
    return Known(np.repeat(x.array, batch, axis=0), x.name) if x.shape[:1] == (1,) else x


def _taken(node: Node, x: Traced, axis: int, places: Any, part: str = "") -> Traced:
    """Write a step that takes places along an axis, if these are not all in order."""
    places = np.asarray(places, np.int64)
    if places.ndim == 1 and np.array_equal(places, np.arange(x.shape[axis])):
        return x
    return node.apply("take", x, part=part, axis=axis, places=places)


def _slice(node: Node) -> Sequence[Tensor]:
    x, starts, ends = node.traced(), node.integers(1), node.integers(2)
    if starts is None or ends is None:
        raise node.refuse("have constant starts and ends", "none", "export the file again")
    axes = node.integers(3) or list(range(len(starts)))
    steps = node.integers(4) or [1] * len(starts)
    y: Traced = x
    for place, (start, end, axis, step) in enumerate(zip(starts, ends, axes, steps, strict=True)):
        along = node.axis(axis, len(x.shape))
        chosen = _range(start, end, step, x.shape[along])
        y = _taken(node, y, along, chosen, part="" if place == len(starts) - 1 else f"axis{along}")
    return [y]


def _range(start: int, end: int, step: int, size: int) -> range:
    """Return the places of a slice: ends are counted from the back if below 0, then brought into the tensor."""
    first, last = (place + size if place < 0 else place for place in (start, end))
    if step > 0:
        return range(min(max(first, 0), size), min(max(last, 0), size), step)
    # a backward slice may end before the first element, at -1
    return range(min(max(first, 0), size - 1), min(max(last, -1), size - 1), step)


def _split(node: Node) -> Sequence[Tensor]:
    x = node.traced()
    axis = node.axis(int(node.get("axis", 0)), len(x.shape))
    sizes = node.integers(1, "split")
    if not sizes:
        whole, count = x.shape[axis], int(node.get("num_outputs", node.outputs))
        # the last part is smaller if parts do not divide the axis
        share = math.ceil(whole / count)
        sizes = [max(min(share, whole - i * share), 0) for i in range(count)]
    if sum(sizes) != x.shape[axis]:
        raise node.refuse(f"split {x.shape[axis]} elements", sizes, "check the export")
    begins = np.cumsum([0, *sizes])
    return [_taken(node, x, axis, range(begins[i], begins[i + 1]), part=f"part{i}") for i in range(len(sizes))]


def _gather(node: Node) -> Sequence[Tensor]:
    """Rows of a constant table at the tokens of the input, or constant places of a tensor."""
    table, places = node.operand(0), node.operand(1)
    if isinstance(table, Known) and isinstance(places, Traced):
        if node.axis(int(node.get("axis", 0)), table.array.ndim) != 0 or table.array.ndim != 2:
            raise node.refuse(
                "look up rows of a matrix", f"axis {node.get('axis', 0)} of {table.shape}", "transpose the table"
            )
        fans = (table.shape[1], table.shape[1])
        named = Known(table.array, table.name or "table")
        return [node.apply("embedding", named, places, own={0: "weight"}, fans=fans, is_table=True)]
    if isinstance(places, Traced):
        raise node.refuse("gather at constant places", places.name, "give the indices of the graph as constants")
    x = node.traced()
    axis = node.axis(int(node.get("axis", 0)), len(x.shape))
    array = np.asarray(places.array, np.int64)
    inside = np.where(array < 0, array + x.shape[axis], array)
    if inside.size and not 0 <= int(inside.min()) <= int(inside.max()) < x.shape[axis]:
        raise node.refuse(f"gather at places of {x.shape[axis]} elements", array.tolist(), "export the file again")
    return [node.apply("take", x, axis=axis, places=inside)]


def _pad(node: Node) -> Sequence[Tensor]:
    x, pads, mode = node.traced(), node.integers(1, "pads"), node.get("mode", "constant")
    ndim, given = len(x.shape), node.integers(3)
    # an empty operand names no axis; one that is left out, all of them
    axes = [node.axis(axis, ndim) for axis in (range(ndim) if given is None else given)]
    if pads is None or len(pads) != 2 * len(axes):
        raise node.refuse(f"have {2 * len(axes)} pads", pads, "export the file again")
    sides = {axis: (pads[i], pads[i + len(axes)]) for i, axis in enumerate(axes)}
    y: Traced = x
    if mode == "constant":
        for axis, (before, after) in sides.items():  # what is cut off
            # pads below 0 cut off
            kept = range(max(-before, 0), x.shape[axis] - max(-after, 0))
            y = _taken(node, y, axis, kept, part=f"cut{axis}")
        value = node.constant(2)
        whole = tuple((max(sides.get(i, (0, 0))[0], 0), max(sides.get(i, (0, 0))[1], 0)) for i in range(ndim))
        border = 0.0 if value is None else float(value.reshape(()))
        if not any(map(any, whole)):
            return [y]
        # `value` is an element there
        if not x.is_float:
            return [node.apply("integer_surround", y, pads=whole, value=int(border))]
        return [node.apply("surround", y, pads=whole, value=border)]
    modes = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}
    if mode not in modes:
        raise node.refuse(f"pad by constant, {', '.join(modes)}", repr(mode), "pad the input before it")
    for place, (axis, side) in enumerate(sides.items()):
        how: Any = modes[mode]
        places = np.pad(np.arange(x.shape[axis]), side, mode=how)
        y = _taken(node, y, axis, places, part="" if place == len(sides) - 1 else f"axis{axis}")
    return [y]


def _resize(node: Node) -> Sequence[Tensor]:
    """The nearest element: which one it is follows from two rules of the node."""
    x = node.traced()
    if node.get("mode", "nearest") != "nearest":
        raise node.refuse("resize by 'nearest'", repr(node.get("mode")), "only nearest elements are taken")
    sizes, scales = node.integers(3), node.constant(2)
    axes = [node.axis(axis, len(x.shape)) for axis in node.get("axes") or range(len(x.shape))]
    if scales is not None and scales.size:
        factors: list[Any] = [np.float32(s) for s in scales.reshape(-1)]
        # in float32, as exporters and runtimes compute it: 5 * 1.4 is 7
        sizes = [int(np.floor(np.float32(x.shape[axis]) * s)) for axis, s in zip(axes, factors, strict=True)]
    elif sizes is not None and node.get("keep_aspect_ratio_policy", "stretch") == "stretch":
        if node.batch is not None and axes[0] == 0 and sizes[0] == node.batch:
            sizes = [x.shape[0], *sizes[1:]]
        factors = [Fraction(size, x.shape[axis]) for axis, size in zip(axes, sizes, strict=True)]
    else:
        raise node.refuse("have constant sizes or scales", "none, or a kept aspect ratio", "give the sizes")
    y: Traced = x
    for axis, size, factor in zip(axes, sizes, factors, strict=True):
        places = [_source(node, place, x.shape[axis], size, factor) for place in range(size)]
        y = _taken(node, y, axis, places, part=f"axis{axis}")
    return [y]


def _source(node: Node, place: int, before: int, after: int, factor: Any) -> int:
    """Return the element that is nearest to one of the result; a factor is float32, or the exact quotient of sizes."""
    # exact with sizes, float32 with scales, as runtimes compute them: ties depend on it
    half: Any = Fraction(1, 2) if isinstance(factor, Fraction) else np.float32(0.5)
    rule = node.get("coordinate_transformation_mode", "half_pixel")
    if rule == "half_pixel":
        at = (place + half) / factor - half
    elif rule == "half_pixel_symmetric":
        adjusted = after / (factor * before)
        at = before * half * (1 - adjusted) + (place + half) / factor - half
    elif rule == "pytorch_half_pixel":
        at = (place + half) / factor - half if after > 1 else half * 0
    elif rule == "asymmetric":
        at = (half * 2 * place) / factor
    elif rule == "align_corners":
        at = Fraction(place * (before - 1), after - 1) if after > 1 else half * 0
    else:
        raise node.refuse("have a coordinate rule without a region", repr(rule), "export it as asymmetric")
    nearest = node.get("nearest_mode", "round_prefer_floor")
    rounded = {
        # ceil(at - 1/2) takes a tie down, floor(at + 1/2) takes it up
        "round_prefer_floor": math.ceil(at - half),
        "round_prefer_ceil": math.floor(at + half),
        "floor": math.floor(at),
        "ceil": math.ceil(at),
    }[nearest]
    return min(max(rounded, 0), before - 1)


def _depth_to_space(node: Node) -> Sequence[Tensor]:
    x, block = node.traced(), int(node.get("blocksize"))
    n, channels, rows, columns = x.shape
    inner = channels // block**2
    # DCR: depth, column, row: the block's axes come before the channels; CRD: after them
    if node.get("mode", "DCR") == "DCR":
        split, axes = (n, block, block, inner, rows, columns), (0, 3, 4, 1, 5, 2)
    else:
        split, axes = (n, inner, block, block, rows, columns), (0, 1, 4, 2, 5, 3)
    moved = node.transposed(node.reshaped(x, split, part="split"), axes, part="moved")
    return [node.reshaped(moved, (n, inner, rows * block, columns * block))]


def _space_to_depth(node: Node) -> Sequence[Tensor]:
    x, block = node.traced(), int(node.get("blocksize"))
    n, channels, rows, columns = x.shape
    split = node.reshaped(x, (n, channels, rows // block, block, columns // block, block), part="split")
    moved = node.transposed(split, (0, 3, 5, 1, 2, 4), part="moved")
    return [node.reshaped(moved, (n, channels * block**2, rows // block, columns // block))]


ROWS: dict[str, Row] = {
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Transpose": _transpose,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Expand": _expand,
    "Concat": _concat,
    "Slice": _slice,
    "Split": _split,
    "Gather": _gather,
    "Pad": _pad,
    "Resize": _resize,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
}
