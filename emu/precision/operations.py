"""What each operation of autodiff means on a datapath.

One engine call, or the short sequence the hardware or its host runs.

Selections (relu, max pooling, rows of a table) move values and write nothing new: they round, and are observed, only
where the layer's format differs from the operand's. Operations of the host are in `host.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu import engine
from emu.autodiff import SparseValue, Value
from emu.backends.arrays import namespace, negated
from emu.backends.gathered import Gathered
from emu.backends.reference.philox import random_integers
from emu.datapath import Philox
from emu.engine.convolution import convolved_size, patches_of, windows_of
from emu.engine.matrices import Matrices
from emu.engine.products import write_product
from emu.engine.reductions import one_of
from emu.precision.host import HOST_OPERATIONS
from emu.precision.layer_role import LayerRole, carrier, elementwise, number
from emu.sparse import CSR
from emu.sparse.products import write_sparse

Array = NDArray[Any]
#: Bits of the numbers that decide which values dropout keeps.
MASK_BITS = 32


def _matmul(role: LayerRole, a: Value, b: Value, addend: Value | None = None) -> Value:
    return role.unit(a.format, b.format).matmul(a, b, addend)


def _sparse_matmul(role: LayerRole, x: Value, w: Value, bias: Value | None = None, *, entries: int) -> Value:
    """Each result over the entries of its row, in storage order."""
    matrix = _matrix(x)
    return role.value(write_sparse(role.unit(x.format, w.format).description, matrix, w, bias, matrix.by_rows))


def _sparse_transposed_matmul(role: LayerRole, x: Value, g: Value, *, entries: int) -> Value:
    """Each result over the entries of its column, row by row: rows of columns without entries are zeros."""
    matrix = _matrix(x)
    pattern = matrix.by_columns(role.backend)
    written = write_sparse(role.unit(x.format, g.format).description, matrix, g, None, pattern)
    if pattern.results == matrix.shape[1]:
        return role.value(written)
    whole = namespace(written).zeros((matrix.shape[1], written.shape[1]), written.dtype)
    whole[matrix.unique_columns] = written
    return role.value(whole)


def _matrix(x: Value) -> CSR:
    assert isinstance(x, SparseValue), "a sparse product needs a sparse operand"
    return x.structure.with_data(x.array, x.format, check=False)


def _conv2d(role: LayerRole, x: Value, w: Value, bias: Value | None = None, *, stride: Any, padding: Any) -> Value:
    return role.unit(w.format, x.format).conv2d(x, w, bias, stride=stride, padding=padding)


def _conv2d_input_gradient(role: LayerRole, g: Value, w: Value, *, shape: Any, stride: Any, padding: Any) -> Value:
    """The errors, spread by the stride and padded, convolved with the flipped kernels.

    One product per result, as a Mac runs it.
    """
    kernel = w.shape[2:]
    spread = namespace(g.array).zeros((*g.shape[:2], shape[2] + kernel[0] - 1, shape[3] + kernel[1] - 1), g.array.dtype)
    here, there = zip(
        *(_overlap(g.shape[2 + i], spread.shape[2 + i], stride[i], kernel[i] - 1 - padding[i]) for i in (0, 1)),
        strict=True,
    )
    spread[:, :, there[0], there[1]] = g.array[:, :, here[0], here[1]]
    flipped = w.with_array(w.array.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1])
    return _conv2d(role, g.with_array(spread), flipped, stride=(1, 1), padding=(0, 0))


def _overlap(size: int, room: int, stride: int, offset: int) -> tuple[slice, slice]:
    """Return which of `size` elements land inside `room` when element i goes to offset + i * stride, and where."""
    first = max(0, -(offset // stride))
    last = min(size - 1, (room - 1 - offset) // stride)
    start = offset + first * stride
    return slice(first, last + 1), slice(start, start + (last - first) * stride + 1, stride)


def _conv2d_weight_gradient(role: LayerRole, x: Value, g: Value, *, kernel: Any, stride: Any, padding: Any) -> Value:
    """One product per weight, k running over images, then output rows and columns."""
    inputs = patches_of(carrier(x), tuple(kernel), stride, padding).joined().transposed()
    errors = Gathered.of_axes(carrier(g), (1,), (0, 2, 3))
    shape = (g.shape[1], x.shape[1], *kernel)
    matrices = Matrices(errors, inputs, None, (g.format, x.format, None), shape)
    return role.value(write_product(role.unit(g.format, x.format).description, matrices))


def _sum(role: LayerRole, x: Value, *, axis: tuple[int, ...]) -> Value:
    return role.unit(x.format).total(x, axis)


def _average(role: LayerRole, windows: Value) -> Value:
    """The mean of the last axis: the accumulator's content divided by the count, rounded once."""
    return role.unit(windows.format).average(windows, len(windows.shape) - 1)


def _quantize(role: LayerRole, x: Value) -> Value:
    return role.unit().quantize(x if getattr(x.format, "carries_raws", False) else x.array)


def _negate(role: LayerRole, x: Value) -> Value:
    return elementwise("subtract")(role, number(0), x)


def _divide_by(role: LayerRole, x: Value, *, divisor: int) -> Value:
    if divisor & (divisor - 1) == 0:
        return elementwise("multiply")(role, x, number(1 / divisor))
    return elementwise("divide")(role, x, number(divisor))


def _selected(role: LayerRole, x: Value) -> Value:
    """Return a selection of `x`: written through the stage only if the layer's format is another one."""
    return x if x.format == role.stage.format else _quantize(role, x)


def _relu(role: LayerRole, x: Value) -> Value:
    return _selected(role, x.with_array(engine.relu(x.array, backend=role.backend)))


def _select(role: LayerRole, g: Value, x: Value) -> Value:
    """Gradients where the operand was positive, +0 elsewhere."""
    return _selected(role, g.with_array(engine.relu_gradient(g.array, x.array, backend=role.backend)))


def _max_pool(role: LayerRole, x: Value, *, window: int, stride: int) -> Value:
    sizes = tuple(convolved_size(size, window, stride, 0) for size in x.shape[2:])
    best, index = (
        found.reshape(*x.shape[:2], *sizes)
        for found in engine.max_pool(windows_of(x.array, window, stride), backend=role.backend)
    )
    written = _selected(role, x.with_array(best))
    return Value((written.array, index), written.format)


def _unpool(role: LayerRole, g: Value, x: Value, *, saved: Any, window: int, stride: int) -> Value:
    """Gradients of maxima at the places of these, zeros elsewhere; windows do not overlap."""
    moved = engine.unpool(g.array, saved, windows_of(x.array, window, stride), backend=role.backend, check=False)
    return g.with_array(moved.reshape(x.shape))


def _embedding(role: LayerRole, table: Value, tokens: Value) -> Value:
    """The table's rows at the tokens."""
    return _selected(role, table.with_array(table.array[tokens.array]))


def _embedding_gradient(role: LayerRole, g: Value, tokens: Value, *, rows: int) -> Value:
    """Errors added up by token: one-hot tokens, transposed, times the errors, tokens in C order along k."""
    one, errors = one_of(g.format), carrier(g).reshape(1, -1, g.shape[-1])
    xp = namespace(errors)
    chosen = (xp.arange(rows)[:, None] == tokens.array.reshape(-1)).astype(one.carrier)[None]
    shape = (rows, g.shape[-1])
    matrices = Matrices(chosen, errors, None, (one, g.format, None), shape)
    return role.value(write_product(role.unit(one, g.format).description, matrices))


def _dropout(role: LayerRole, x: Value, *, rate: float) -> Value:
    """X times 1 / (1 - rate), a float32, where a random number is at least `rate`, else +0; and where that is."""
    random = role.on_host("mask").random
    assert isinstance(random, Philox)
    address = {"seed": random.seed, "stream": random.stream, "step": random.step, "draw": random.draw}
    drawn = random_integers(x.array.size, MASK_BITS, **address).reshape(x.shape)
    kept = namespace(x.array).asarray(drawn >= round(rate * 2**MASK_BITS))
    return Value((_kept(role, x, kept, rate=rate).array, kept), role.stage.format)


def _kept(role: LayerRole, x: Value, kept: Any, *, rate: float) -> Value:
    xp = namespace(x.array)
    chosen = x.with_array(xp.where(kept, x.array, xp.zeros((), x.array.dtype)))
    return elementwise("multiply")(role, chosen, number(float(np.float32(1 / (1 - rate)))))


def _dropout_gradient(role: LayerRole, g: Value, *, saved: Any, rate: float) -> Value:
    return _kept(role, g, saved, rate=rate)


def _function(role: LayerRole, x: Value, *, function: str) -> Value:
    return role.unit().function(function, x)


def _sigmoid_slope(role: LayerRole, y: Value) -> Value:
    """Y * (1 - y) = y - y * y, rounded once."""
    return elementwise("fma")(role, _negated(y), y, y)


def _tanh_slope(role: LayerRole, y: Value) -> Value:
    """1 - y * y, rounded once."""
    return elementwise("fma")(role, _negated(y), y, number(1))


def _negated(y: Value) -> Value:
    return y.with_array(negated(y.array))


#: Operations that move values and write nothing: nothing is counted of them.
MOVES = ("unpool",)
#: Operations that select values of their first operand, and write only where the layer's format is another one.
SELECTIONS = ("relu", "select", "max_pool", "embedding")
#: Every operation by name.
OPERATIONS: dict[str, Callable[..., Value]] = {
    **{name: elementwise(name) for name in ("add", "subtract", "multiply", "divide", "fma", "sqrt")},
    "quantize": _quantize,
    "negate": _negate,
    "divide_by": _divide_by,
    "sum": _sum,
    "average": _average,
    "matmul": _matmul,
    "sparse_matmul": _sparse_matmul,
    "sparse_transposed_matmul": _sparse_transposed_matmul,
    "conv2d": _conv2d,
    "conv2d_input_gradient": _conv2d_input_gradient,
    "conv2d_weight_gradient": _conv2d_weight_gradient,
    "relu": _relu,
    "select": _select,
    "max_pool": _max_pool,
    "unpool": _unpool,
    "function": _function,
    "sigmoid_slope": _sigmoid_slope,
    "tanh_slope": _tanh_slope,
    "embedding": _embedding,
    "embedding_gradient": _embedding_gradient,
    "dropout": _dropout,
    "dropout_gradient": _dropout_gradient,
    **HOST_OPERATIONS,
}
