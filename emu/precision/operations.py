"""What each operation of autodiff means on a datapath.

One engine call, or the short sequence the hardware or its host runs.

Selections (relu, max pooling, rows of a table) move values and write nothing new: they round, and are observed, only
where the layer's format differs from the operand's. What runs on the host is in `host.py`.
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
from emu.engine.convolution import convolved_size, patches_of, windows_of, write_convolution
from emu.engine.functions import write_function
from emu.engine.products import as_addend, as_batches, write_product
from emu.engine.quantize import write_quantized
from emu.engine.reductions import one_of, write_total
from emu.engine.request import as_operand
from emu.precision.host import HOST_OPERATIONS
from emu.precision.unit import Unit, carrier, elementwise, number
from emu.sparse import CSR
from emu.sparse.products import write_sparse

Array = NDArray[Any]
#: Bits of the numbers that decide which values dropout keeps.
MASK_BITS = 32


def _matmul(unit: Unit, a: Value, b: Value, addend: Value | None = None) -> Value:
    left, right, shape, batch = as_batches(carrier(a), carrier(b))
    formats = (a.format, b.format, None if addend is None else addend.format)
    full = (*batch, left.shape[1], right.shape[2])
    third = None if addend is None else as_addend(carrier(addend), shape, full)
    mac = unit.mac(a.format, b.format)
    written = write_product(left, right, third, formats, mac, unit.request(), 1, unit.log)
    return unit.value(written.reshape(shape))


def _sparse_matmul(unit: Unit, x: Value, w: Value, bias: Value | None = None, *, entries: int) -> Value:
    """Each result over the entries of its row, in storage order."""
    matrix = _matrix(x)
    formats = (x.format, w.format, None if bias is None else bias.format)
    dense = carrier(w)
    shape = (matrix.shape[0], dense.shape[1])
    third = None if bias is None else as_addend(carrier(bias), shape, shape)[0]
    given = (formats, matrix.by_rows, unit.mac(x.format, w.format), unit.request(), unit.log)
    return unit.value(write_sparse(matrix, dense, third, *given))


def _sparse_transposed_matmul(unit: Unit, x: Value, g: Value, *, entries: int) -> Value:
    """Each result over the entries of its column, row by row: rows of columns without entries are zeros."""
    matrix = _matrix(x)
    pattern, mac = matrix.by_columns(unit.backend), unit.mac(x.format, g.format)
    written = write_sparse(matrix, carrier(g), None, (x.format, g.format, None), pattern, mac, unit.request(), unit.log)
    if pattern.results == matrix.shape[1]:
        return unit.value(written)
    whole = namespace(written).zeros((matrix.shape[1], written.shape[1]), written.dtype)
    whole[matrix.unique_columns] = written
    return unit.value(whole)


def _matrix(x: Value) -> CSR:
    assert isinstance(x, SparseValue), "a sparse product needs a sparse operand"
    return x.structure.with_data(x.array, x.format, check=False)


def _conv2d(unit: Unit, x: Value, w: Value, bias: Value | None = None, *, stride: Any, padding: Any) -> Value:
    formats = (w.format, x.format, None if bias is None else bias.format)
    third = None if bias is None else carrier(bias)
    mac = unit.mac(w.format, x.format)
    return unit.value(
        write_convolution(carrier(x), carrier(w), third, formats, stride, padding, mac, unit.request(), unit.log)
    )


def _conv2d_input_gradient(unit: Unit, g: Value, w: Value, *, shape: Any, stride: Any, padding: Any) -> Value:
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
    return _conv2d(unit, g.with_array(spread), flipped, stride=(1, 1), padding=(0, 0))


def _overlap(size: int, room: int, stride: int, offset: int) -> tuple[slice, slice]:
    """Return which of `size` elements land inside `room` when element i goes to offset + i * stride, and where."""
    first = max(0, -(offset // stride))
    last = min(size - 1, (room - 1 - offset) // stride)
    start = offset + first * stride
    return slice(first, last + 1), slice(start, start + (last - first) * stride + 1, stride)


def _conv2d_weight_gradient(unit: Unit, x: Value, g: Value, *, kernel: Any, stride: Any, padding: Any) -> Value:
    """One product per weight, k running over images, then output rows and columns."""
    inputs = patches_of(carrier(x), tuple(kernel), stride, padding).joined().transposed()
    errors = Gathered.of_axes(carrier(g), (1,), (0, 2, 3))
    mac = unit.mac(g.format, x.format)
    written = write_product(errors, inputs, None, (g.format, x.format, None), mac, unit.request(), 1, unit.log)
    return unit.value(written.reshape(-1, x.shape[1], *kernel))


def _sum(unit: Unit, x: Value, *, axis: tuple[int, ...]) -> Value:
    return unit.value(write_total(carrier(x), x.format, axis, unit.mac(x.format), unit.request(), log=unit.log))


def _average(unit: Unit, windows: Value) -> Value:
    """The mean of the last axis: the accumulator's content divided by the count, rounded once."""
    array = carrier(windows)
    mac, axis = unit.mac(windows.format), array.ndim - 1
    return unit.value(write_total(array, windows.format, axis, mac, unit.request(), averaged=True, log=unit.log))


def _quantize(unit: Unit, x: Value) -> Value:
    source = x.format if getattr(x.format, "carries_raws", False) else None
    array, fmt = as_operand(x.array, source, "x", check=False)
    return unit.value(write_quantized(array, fmt, unit.request()))


def _negate(unit: Unit, x: Value) -> Value:
    return elementwise("subtract")(unit, number(0), x)


def _divide_by(unit: Unit, x: Value, *, divisor: int) -> Value:
    if divisor & (divisor - 1) == 0:
        return elementwise("multiply")(unit, x, number(1 / divisor))
    return elementwise("divide")(unit, x, number(divisor))


def _selected(unit: Unit, x: Value) -> Value:
    """Return a selection of `x`: written through the stage only if the layer's format is another one."""
    return x if x.format == unit.stage.format else _quantize(unit, x)


def _relu(unit: Unit, x: Value) -> Value:
    return _selected(unit, x.with_array(engine.relu(x.array, backend=unit.backend)))


def _select(unit: Unit, g: Value, x: Value) -> Value:
    """Gradients where the operand was positive, +0 elsewhere."""
    return _selected(unit, g.with_array(engine.relu_gradient(g.array, x.array, backend=unit.backend)))


def _max_pool(unit: Unit, x: Value, *, window: int, stride: int) -> Value:
    sizes = tuple(convolved_size(size, window, stride, 0) for size in x.shape[2:])
    best, index = (
        found.reshape(*x.shape[:2], *sizes)
        for found in engine.max_pool(windows_of(x.array, window, stride), backend=unit.backend)
    )
    written = _selected(unit, x.with_array(best))
    return Value((written.array, index), written.format)


def _unpool(unit: Unit, g: Value, x: Value, *, saved: Any, window: int, stride: int) -> Value:
    """Gradients of maxima at the places of these, zeros elsewhere; windows do not overlap."""
    moved = engine.unpool(g.array, saved, windows_of(x.array, window, stride), backend=unit.backend)
    return g.with_array(moved.reshape(x.shape))


def _embedding(unit: Unit, table: Value, tokens: Value) -> Value:
    """The table's rows at the tokens."""
    return _selected(unit, table.with_array(table.array[tokens.array]))


def _embedding_gradient(unit: Unit, g: Value, tokens: Value, *, rows: int) -> Value:
    """Errors added up by token: one-hot tokens, transposed, times the errors, tokens in C order along k."""
    one, errors = one_of(g.format), carrier(g).reshape(1, -1, g.shape[-1])
    xp = namespace(errors)
    chosen = (xp.arange(rows)[:, None] == tokens.array.reshape(-1)).astype(one.carrier)[None]
    mac = unit.mac(one, g.format)
    written = write_product(chosen, errors, None, (one, g.format, None), mac, unit.request(), 1, unit.log)
    return unit.value(written.reshape(rows, g.shape[-1]))


def _dropout(unit: Unit, x: Value, *, rate: float) -> Value:
    """X times 1 / (1 - rate), a float32, where a random number is at least `rate`, else +0; and where that is."""
    random = unit.on_host("mask").random
    address = {"seed": random.seed, "stream": random.stream, "step": random.step, "draw": random.draw}
    drawn = random_integers(x.array.size, MASK_BITS, **address).reshape(x.shape)
    kept = namespace(x.array).asarray(drawn >= round(rate * 2**MASK_BITS))
    return Value((_kept(unit, x, kept, rate=rate).array, kept), unit.stage.format)


def _kept(unit: Unit, x: Value, kept: Any, *, rate: float) -> Value:
    xp = namespace(x.array)
    chosen = x.with_array(xp.where(kept, x.array, xp.zeros((), x.array.dtype)))
    return elementwise("multiply")(unit, chosen, number(float(np.float32(1 / (1 - rate)))))


def _dropout_gradient(unit: Unit, g: Value, *, saved: Any, rate: float) -> Value:
    return _kept(unit, g, saved, rate=rate)


def _function(unit: Unit, x: Value, *, function: str) -> Value:
    return unit.value(write_function(function, carrier(x), x.format, unit.request()))


def _sigmoid_slope(unit: Unit, y: Value) -> Value:
    """Y * (1 - y) = y - y * y, rounded once."""
    return elementwise("fma")(unit, _negated(y), y, y)


def _tanh_slope(unit: Unit, y: Value) -> Value:
    """1 - y * y, rounded once."""
    return elementwise("fma")(unit, _negated(y), y, number(1))


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
