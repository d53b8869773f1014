"""Normalisation: by running moments, or by those of each example."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from emu.interop.onnx.node import Known, Node, Tensor, Traced


def _batch(node: Node) -> Sequence[Tensor]:
    if node.get("training_mode", 0):
        raise node.refuse("be exported for inference", "training_mode = 1", "export the network in its eval mode")
    x = node.traced()
    rest = [node.operand(i) for i in range(1, 5)]
    if any(tensor.shape != (x.shape[1],) for tensor in rest):
        raise node.refuse(f"have {x.shape[1]} of each moment", [tensor.shape for tensor in rest], "check the export")
    own = {1: "weight", 2: "bias", 3: "mean", 4: "variance"}
    # moments are those of channels: over all axes but the second
    axes = tuple(i for i in range(len(x.shape)) if i != 1)
    options: dict[str, Any] = {"axes": axes, "along": 1, "eps": float(node.get("epsilon", 1e-5)), "momentum": 0.1}
    return [node.apply("normalise", x, *rest, own=own, moments=("mean", "variance"), **options)]


def _flattened(node: Node, x: Traced) -> tuple[Traced, int]:
    """Return the axes that are normalised as the last of two, and how many numbers they have."""
    axis = node.axis(int(node.get("axis", -1)), len(x.shape))
    count = math.prod(x.shape[axis:])
    return node.reshaped(x, (math.prod(x.shape[:axis]), count), part="rows"), count


def _layer(node: Node) -> Sequence[Tensor]:
    x = node.traced()
    rows, count = _flattened(node, x)
    weight, bias = _vector(node, 1, count, 1.0), _vector(node, 2, count, 0.0)
    # (rows, numbers of a row): each row is normalised by itself, and each number has its own weight
    options: dict[str, Any] = {"axes": (1,), "along": 1, "eps": float(node.get("epsilon", 1e-5)), "momentum": 0.0}
    given = ((1, "weight", weight), (2, "bias", bias))
    # what the file leaves out is no parameter
    own = {place: part for place, part, tensor in given if isinstance(tensor, Known) and tensor.name}
    y = node.apply("normalise", rows, weight, bias, own=own, **options)
    normalised = node.reshaped(y, x.shape, part="shape")
    return [normalised, *(_moments(node, x, rows) if node.output_count > 1 else ())]


def _moments(node: Node, x: Traced, rows: Traced) -> Sequence[Tensor]:
    """Write the means of rows, and what each row is multiplied by: 1 / sqrt(variance + epsilon)."""
    mean = _mean_of_rows(node, rows, "mean")
    distance = node.apply("subtract", rows, mean, part="distance")
    variance = _mean_of_rows(node, node.apply("multiply", distance, distance, part="squares"), "variance")
    raised = node.apply("add", variance, float(node.get("epsilon", 1e-5)), part="above_zero")
    factor = node.apply("divide", 1.0, node.apply("sqrt", raised, part="root"), part="factor")
    axis = node.axis(int(node.get("axis", -1)), len(x.shape))
    shape = (*x.shape[:axis], *([1] * (len(x.shape) - axis)))
    return [node.reshaped(mean, shape, part="means"), node.reshaped(factor, shape, part="factors")]


def _mean_of_rows(node: Node, rows: Traced, part: str) -> Traced:
    """Write the mean of each row of a matrix, (rows, 1)."""
    count = rows.shape[1]
    images = node.reshaped(rows, (1, rows.shape[0], 1, count), part=f"{part}_images")
    mean = node.apply("avg_pool", images, part=part, window=(1, count), stride=(1, count))
    return node.reshaped(mean, (rows.shape[0], 1), part=f"{part}_column")


def _vector(node: Node, index: int, count: int, default: float) -> Tensor:
    """Return an operand as a vector of `count` numbers; what is left out, or one for all, as its repetitions."""
    given = node.given(index)
    if isinstance(given, Traced):
        return node.reshaped(given, (count,), part=f"operand{index}")
    array = np.float32(default) if given is None else given.array.reshape(-1)
    name = "" if given is None else given.name or "vector"
    return Known(np.ascontiguousarray(np.broadcast_to(array, (count,)), np.float32), name)


def _root_mean_square(node: Node) -> Sequence[Tensor]:
    """X / sqrt(mean(x * x) + epsilon) * scale."""
    x = node.traced()
    rows, count = _flattened(node, x)
    squares = node.apply("multiply", rows, rows, part="squares")
    column = _mean_of_rows(node, squares, "mean")
    root = node.apply(
        "sqrt", node.apply("add", column, float(node.get("epsilon", 1e-5)), part="above_zero"), part="root"
    )
    normalised = node.apply("divide", rows, root, part="normalised")
    y = node.apply("multiply", normalised, _vector(node, 1, count, 1.0), own={1: "weight"})
    return [node.reshaped(y, x.shape, part="shape")]


def _groups(node: Node, count: int) -> Sequence[Tensor]:
    """Normalise groups of channels of each example, then scale and shift each channel."""
    x = node.traced()
    numbers = math.prod(x.shape[1:]) // count
    rows = node.reshaped(x, (x.shape[0] * count, numbers), part="rows")
    # scale 1 and shift 0: those of channels follow as steps of their own, because rows are groups
    one, none = (Known(np.full(numbers, value, np.float32)) for value in (1.0, 0.0))
    options: dict[str, Any] = {"axes": (1,), "along": 1, "eps": float(node.get("epsilon", 1e-5)), "momentum": 0.0}
    y = node.reshaped(node.apply("normalise", rows, one, none, part="normalised", **options), x.shape, "images")
    spread = (x.shape[1], *([1] * (len(x.shape) - 2)))
    weight, bias = (_per_channel(node, i, spread) for i in (1, 2))
    return [node.elementwise("add", node.elementwise("multiply", y, weight, "scaled"), bias)]


def _per_channel(node: Node, index: int, shape: tuple[int, ...]) -> Tensor:
    given = node.operand(index)
    if isinstance(given, Traced):
        return node.reshaped(given, shape, part=f"operand{index}")
    array = given.array
    if array.size != shape[0]:  # before version 21 each group had one
        array = np.repeat(array, shape[0] // array.size)
    return Known(np.ascontiguousarray(array.reshape(shape)), given.name or "vector")


def _instance(node: Node) -> Sequence[Tensor]:
    return _groups(node, node.traced().shape[1])


def _group(node: Node) -> Sequence[Tensor]:
    return _groups(node, int(node.get("num_groups")))


ROWS = {
    "BatchNormalization": _batch,
    "LayerNormalization": _layer,
    "RMSNormalization": _root_mean_square,
    "InstanceNormalization": _instance,
    "GroupNormalization": _group,
}
