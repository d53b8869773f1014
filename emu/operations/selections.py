"""Operations that select or move values: relu, pooling by the largest value, and their gradients.

A selection rounds, and is observed, only if the layer has another format than the operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from emu import engine
from emu.backends.arrays import namespace
from emu.engine.sliding import Sliding
from emu.formats import Value
from emu.operations.asked import Asked, Options, Shape, as_first, as_second
from emu.operations.elementwise import quantize
from emu.operations.row import COMPARES, MOVES, DoneBy, Role, Row, one_array


def selected(role: Role, x: Value) -> Value:
    """Return a selection: written through the stage only if the layer's format is another one."""
    # values that have the format already are values of it: writing them again would change nothing, and count twice
    return x if x.format == role.stage.format else quantize(role, x)


def _relu(role: Role, x: Value) -> Value:
    return selected(role, x.with_array(engine.relu(x.array, backend=role.backend)))


def _select(role: Role, g: Value, x: Value) -> Value:
    """Gradients where the operand was positive, +0 elsewhere."""
    return selected(role, g.with_array(engine.relu_gradient(g.array, x.array, backend=role.backend)))


def sliding(options: Options) -> Sliding:
    """Return how the windows of pooling slide; see `emu.autodiff.pooling`."""
    return Sliding(options["stride"], options.get("padding", Sliding().padding), options.get("dilation", (1, 1)))


def windows_of(x: Any, options: Options, border: float = 0) -> Any:
    """Return the windows of images (N, C, H, W) as (N, C, OH, OW, elements of a window).

    Raises:
        ShapeError: arrays of other axes, or a window larger than the padded image.
    """
    how, window = sliding(options), options["window"]
    how.require(x.shape, window, "window")
    rows, columns = how.sizes(x.shape[2:], window)
    # padded here; the slices below then need no bounds
    x, xp = how.padded(x, border), namespace(x)
    (down, along), apart = how.stride, how.dilation
    parts = [
        x[:, :, i : i + down * (rows - 1) + 1 : down, j : j + along * (columns - 1) + 1 : along]
        for i in range(0, window[0] * apart[0], apart[0])
        for j in range(0, window[1] * apart[1], apart[1])
    ]
    return xp.stack(parts, axis=-1)


def _lowest(dtype: Any) -> float:
    """Return what is below every number of a carrier, or equal to its lowest."""
    # a border that loses against every element
    return -np.inf if dtype.kind == "f" else int(np.iinfo(dtype).min)


def largest_of_windows(backend: str, x: Any, options: Options) -> tuple[Any, Any]:
    """Return the largest number of each window of images, and its index in the window."""
    how, window = sliding(options), options["window"]
    how.require(x.shape, window, "window")
    sizes = how.sizes((x.shape[2], x.shape[3]), window)
    best, index = (
        array.reshape(*x.shape[:2], *sizes)
        for array in engine.max_pool(how.windows(x, window, _lowest(x.dtype)), backend=backend)
    )
    return best, index


def _max_pool(role: Role, x: Value, **options: Any) -> Value:
    """The largest value of each window, and its index, for the backward pass."""
    best, index = largest_of_windows(role.backend, x.array, options)
    # the index is of the operand's own numbers: writing them in another format may make some equal
    written = selected(role, x.with_array(best))
    return Value((written.array, index), written.format)


def _max_pool_float64(xp: Any, x: Any, **options: Any) -> Any:
    windows = windows_of(x, options, -np.inf)
    return windows.max(axis=-1), windows.argmax(axis=-1)


def windows_asked(operands: Sequence[Shape], options: Options) -> Asked:
    """Ask for a number for each window of images."""
    x = operands[0]
    return Asked((*x[:2], *sliding(options).sizes((x[2], x[3]), options["window"])))


def _unpool(role: Role, g: Value, x: Value, *, saved: Any, **options: Any) -> Value:
    """Gradients of maxima at their positions, zeros elsewhere; windows do not overlap."""
    how = sliding(options)
    # indices come from `max_pool` of these very windows: they need no check
    moved = engine.unpool(g.array, saved, how.windows(x.array, options["window"]), backend=role.backend, check=False)
    # positions are those of the image with its border, which is cut off again
    return g.with_array(_without_border(moved.reshape(_padded_shape(x.shape, how)), x.shape, how))


def _padded_shape(shape: Shape, how: Sliding) -> Shape:
    return (*shape[:2], *(size + sum(pads) for size, pads in zip(shape[2:], how.padding, strict=True)))


def _without_border(padded: Any, shape: Shape, how: Sliding) -> Any:
    (above, _), (left, _) = how.padding
    return padded if padded.shape == shape else padded[:, :, above : above + shape[2], left : left + shape[3]]


def _unpool_float64(xp: Any, g: Any, x: Any, *, saved: Any, **options: Any) -> Any:
    how, window = sliding(options), options["window"]
    spread = xp.zeros(_padded_shape(x.shape, how), dtype=g.dtype)
    for index in range(window[0] * window[1]):
        firsts = (place * apart for place, apart in zip(divmod(index, window[1]), how.dilation, strict=True))
        rows, columns = (
            slice(first, first + stride * (size - 1) + 1, stride)
            for first, stride, size in zip(firsts, how.stride, g.shape[2:], strict=True)
        )
        spread[:, :, rows, columns] = xp.where(saved == index, g, 0.0)
    return _without_border(spread, x.shape, how)


ROWS = (
    Row("relu", _relu, lambda xp, a: xp.maximum(a, 0.0), as_first, DoneBy.SELECTION, MOVES),
    Row("select", _select, lambda xp, g, x: xp.where(x > 0, g, 0.0), as_first, DoneBy.SELECTION, MOVES),
    Row("max_pool", _max_pool, _max_pool_float64, windows_asked, DoneBy.SELECTION, COMPARES, beside=one_array),
    Row("unpool", _unpool, _unpool_float64, as_second, DoneBy.MOVE, MOVES),
)
