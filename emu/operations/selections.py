"""Operations that select or move values: relu, pooling by the largest value, and their gradients.

A selection rounds, and is observed, only if the layer has another format than the operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emu import engine
from emu.backends.arrays import namespace
from emu.engine.convolution import convolved_size
from emu.engine.convolution import windows_of as positions_of_windows
from emu.formats import Value
from emu.operations.asked import Asked, Options, Shape, as_first, as_second
from emu.operations.elementwise import quantize
from emu.operations.row import COMPARES, MOVES, DoneBy, Role, Row, one_array


def selected(role: Role, x: Value) -> Value:
    """Return a selection: written through the stage only if the layer's format is another one."""
    return x if x.format == role.stage.format else quantize(role, x)


def _relu(role: Role, x: Value) -> Value:
    return selected(role, x.with_array(engine.relu(x.array, backend=role.backend)))


def _select(role: Role, g: Value, x: Value) -> Value:
    """Gradients where the operand was positive, +0 elsewhere."""
    return selected(role, g.with_array(engine.relu_gradient(g.array, x.array, backend=role.backend)))


def windows_of(x: Any, window: int, stride: int) -> Any:
    """Return the windows of images (N, C, H, W) as (N, C, OH, OW, window * window)."""
    rows, columns = ((size - window) // stride + 1 for size in x.shape[2:])
    xp = namespace(x)
    parts = [
        x[:, :, i : i + stride * (rows - 1) + 1 : stride, j : j + stride * (columns - 1) + 1 : stride]
        for i in range(window)
        for j in range(window)
    ]
    return xp.stack(parts, axis=-1)


def _max_pool(role: Role, x: Value, *, window: int, stride: int) -> Value:
    """The largest value of each window, and its index, for the backward pass."""
    sizes = tuple(convolved_size(size, window, stride, 0) for size in x.shape[2:])
    best, index = (
        array.reshape(*x.shape[:2], *sizes)
        for array in engine.max_pool(positions_of_windows(x.array, window, stride), backend=role.backend)
    )
    written = selected(role, x.with_array(best))
    return Value((written.array, index), written.format)


def _max_pool_float64(xp: Any, x: Any, *, window: int, stride: int) -> Any:
    windows = windows_of(x, window, stride)
    return windows.max(axis=-1), windows.argmax(axis=-1)


def _max_pool_asks(operands: Sequence[Shape], options: Options) -> Asked:
    x, window, stride = operands[0], options["window"], options["stride"]
    return Asked((*x[:2], *(convolved_size(size, window, stride, 0) for size in x[2:])))


def _unpool(role: Role, g: Value, x: Value, *, saved: Any, window: int, stride: int) -> Value:
    """Gradients of maxima at their positions, zeros elsewhere; windows do not overlap."""
    positions = positions_of_windows(x.array, window, stride)
    moved = engine.unpool(g.array, saved, positions, backend=role.backend, check=False)
    return g.with_array(moved.reshape(x.shape))


def _unpool_float64(xp: Any, g: Any, x: Any, *, saved: Any, window: int, stride: int) -> Any:
    spread = xp.zeros(x.shape, dtype=g.dtype)
    for index in range(window * window):
        rows, columns = (
            slice(first, first + stride * (size - 1) + 1, stride)
            for first, size in zip(divmod(index, window), g.shape[2:], strict=True)
        )
        spread[:, :, rows, columns] = xp.where(saved == index, g, 0.0)
    return spread


ROWS = (
    Row("relu", _relu, lambda xp, a: xp.maximum(a, 0.0), as_first, DoneBy.SELECTION, MOVES),
    Row("select", _select, lambda xp, g, x: xp.where(x > 0, g, 0.0), as_first, DoneBy.SELECTION, MOVES),
    Row("max_pool", _max_pool, _max_pool_float64, _max_pool_asks, DoneBy.SELECTION, COMPARES, beside=one_array),
    Row("unpool", _unpool, _unpool_float64, as_second, DoneBy.MOVE, MOVES),
)
