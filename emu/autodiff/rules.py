"""The table of primitives: forward and backward of each, in terms of operations that the runner computes.

Moves (reshape, gather, scatter to distinct positions) are done here on the array. Everything that can round is an
operation. A backward rule receives the gradient of the result, the result and the operands, and returns the gradient of
one operand.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from emu.autodiff.context import Backward, Context, Forward, Primitive, elementwise, reshaped, summed_to
from emu.autodiff.layer_rules import LAYER_PRIMITIVES
from emu.backends.arrays import namespace
from emu.formats import Value
from emu.operations.selections import windows_of


def _swapped(x: Value) -> Value:
    return x.with_array(x.array.swapaxes(-1, -2))


# ---- elementwise ----------------------------------------------------------------------------------------------------


def _add_back(position: int) -> Backward:
    def rule(c: Context, g: Value, y: Value, a: Value, b: Value) -> Value:
        return summed_to(c, g, (a, b)[position].shape, f"operand{position}")

    return rule


def _subtract_back(c: Context, g: Value, y: Value, a: Value, b: Value) -> Value:
    return summed_to(c, c.run("negate", g, part="negated"), b.shape, "operand1")


def _multiply_back(position: int) -> Backward:
    def rule(c: Context, g: Value, y: Value, a: Value, b: Value) -> Value:
        mine, other = (a, b) if position == 0 else (b, a)
        return summed_to(c, c.run("multiply", g, other, part=f"product{position}"), mine.shape, f"operand{position}")

    return rule


def _divide_back_numerator(c: Context, g: Value, y: Value, a: Value, b: Value) -> Value:
    return summed_to(c, c.run("divide", g, b, part="quotient"), a.shape, "operand0")


def _divide_back_denominator(c: Context, g: Value, y: Value, a: Value, b: Value) -> Value:
    scaled = c.run("negate", c.run("multiply", g, c.run("divide", y, b, part="slope"), part="product1"), part="negated")
    return summed_to(c, scaled, b.shape, "operand1")


# ---- products -------------------------------------------------------------------------------------------------------


def _linear(c: Context, x: Value, w: Value, *bias: Value) -> Value:
    """X (..., in) times w (out, in) transposed, plus bias (out,): one product, its rows in C order."""
    return reshaped(c.run("matmul", _rows(x), _swapped(w), *bias), (*x.shape[:-1], w.shape[0]))


def _linear_back_x(c: Context, g: Value, y: Value, x: Value, w: Value, *bias: Value) -> Value:
    return reshaped(c.run("matmul", _rows(g), w), x.shape)


def _linear_back_w(c: Context, g: Value, y: Value, x: Value, w: Value, *bias: Value) -> Value:
    return c.run("matmul", _swapped(_rows(g)), _rows(x))


def _linear_back_bias(c: Context, g: Value, y: Value, x: Value, w: Value, bias: Value) -> Value:
    return c.run("sum", _rows(g), part="bias", axis=(0,))


def _rows(x: Value) -> Value:
    return reshaped(x, (math.prod(x.shape[:-1]), x.shape[-1]))


def _sparse_linear(c: Context, x: Value, w: Value, *bias: Value) -> Value:
    """Entries of x (N, in) times w (in, out), plus bias (out,)."""
    return c.run("sparse_matmul", x, w, *bias, entries=x.array.size)


def _sparse_linear_back_w(c: Context, g: Value, y: Value, x: Value, w: Value, *bias: Value) -> Value:
    return c.run("sparse_transposed_matmul", x, g, entries=x.array.size)


def _linear_of_entries(c: Context, x: Value, w: Value, *bias: Value) -> Value:
    """The product of `_linear`, whose terms are the entries of x alone: numbers other than 0, rows in C order."""
    c.saved = c.run("sparse_entries", _rows(x))
    y = c.run("sparse_matmul", c.saved, _swapped(w), *bias, entries=c.saved.array.size)
    return reshaped(y, (*x.shape[:-1], w.shape[0]))


def _linear_of_entries_back_w(c: Context, g: Value, y: Value, x: Value, w: Value, *bias: Value) -> Value:
    return _swapped(c.run("sparse_transposed_matmul", c.saved, _rows(g), entries=c.saved.array.size))


def _matmul_back_a(c: Context, g: Value, y: Value, a: Value, b: Value) -> Value:
    return summed_to(c, c.run("matmul", g, _swapped(b), part="product0"), a.shape, "operand0")


def _matmul_back_b(c: Context, g: Value, y: Value, a: Value, b: Value) -> Value:
    return summed_to(c, c.run("matmul", _swapped(a), g, part="product1"), b.shape, "operand1")


def _conv2d(c: Context, x: Value, w: Value, *bias: Value) -> Value:
    return c.run("conv2d", x, w, *bias, **c.options)


def _conv2d_back_x(c: Context, g: Value, y: Value, x: Value, w: Value, *bias: Value) -> Value:
    return c.run("conv2d_input_gradient", g, w, shape=x.shape, **c.options)


def _conv2d_back_w(c: Context, g: Value, y: Value, x: Value, w: Value, *bias: Value) -> Value:
    return c.run("conv2d_weight_gradient", x, g, kernel=w.shape[2:], **c.options)


def _conv2d_back_bias(c: Context, g: Value, y: Value, x: Value, w: Value, bias: Value) -> Value:
    return c.run("sum", g, part="bias", axis=(0, 2, 3))


def _sum(c: Context, x: Value) -> Value:
    return c.run("sum", x, axis=c.options["axis"])


def _sum_back(c: Context, g: Value, y: Value, x: Value) -> Value:
    axes = {axis % len(x.shape) for axis in c.options["axis"]}
    kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    xp = namespace(g.array)
    return g.with_array(xp.broadcast_to(g.array.reshape(kept), x.shape))


# ---- functions ------------------------------------------------------------------------------------------------------


def _function(name: str) -> Forward:
    def rule(c: Context, x: Value) -> Value:
        return c.run("function", x, function=name)

    return rule


def _function_back(slope: str) -> Backward:
    """The slope is written in the layer's activation format, then the gradient's product with it in its own."""

    def rule(c: Context, g: Value, y: Value, x: Value) -> Value:
        return c.run("multiply", g, c.run(slope, y, role="slope"))

    return rule


def _relu(c: Context, x: Value) -> Value:
    return c.run("relu", x)


def _relu_back(c: Context, g: Value, y: Value, x: Value) -> Value:
    return c.run("select", g, x)


# ---- pooling --------------------------------------------------------------------------------------------------------


def _max_pool(c: Context, x: Value) -> Value:
    result = c.run("max_pool", x, **c.options)
    c.saved = result.array[1]
    return result.with_array(result.array[0])


def _spread(c: Context, g: Value, shape: tuple[int, ...], values_at: Callable[[int], Any]) -> Value:
    """Return pooled gradients spread over their windows, and added if windows overlap.

    Args:
        c: context of the rule.
        g: gradient of the pooled image.
        shape: shape of the image.
        values_at: returns the gradients that go to one position of each window.
    """
    window, stride = c.options["window"], c.options["stride"]
    xp = namespace(g.array)
    rows, columns = g.shape[2:]
    overlapping = stride < window
    layers = window * window if overlapping else 1
    spread = xp.zeros((layers, *shape), dtype=g.array.dtype)
    for position in range(window * window):
        i, j = divmod(position, window)
        target = spread[position if overlapping else 0]
        target[:, :, i : i + stride * (rows - 1) + 1 : stride, j : j + stride * (columns - 1) + 1 : stride] = values_at(
            position
        )
    if not overlapping:
        return g.with_array(spread[0])
    return c.run("sum", g.with_array(spread), axis=(0,))


def _max_pool_back(c: Context, g: Value, y: Value, x: Value) -> Value:
    if c.options["stride"] >= c.options["window"]:
        return c.run("unpool", g, x, saved=c.saved, **c.options)
    xp = namespace(g.array)
    zero = xp.zeros((), dtype=g.array.dtype)
    return _spread(c, g, x.shape, lambda position: xp.where(c.saved == position, g.array, zero))


def _avg_pool(c: Context, x: Value) -> Value:
    return c.run("average", x.with_array(windows_of(x.array, c.options["window"], c.options["stride"])))


def _avg_pool_back(c: Context, g: Value, y: Value, x: Value) -> Value:
    window, stride = c.options["window"], c.options["stride"]
    share = c.run("divide_by", g, part="share", divisor=window**2)
    return _tiled(share, x.shape, window) if stride == window else _spread(c, share, x.shape, lambda _: share.array)


def _tiled(share: Value, shape: tuple[int, ...], window: int) -> Value:
    """Repeat each number over its window; windows are next to each other, and the rest of the image is +0."""
    xp, (rows, columns) = namespace(share.array), share.shape[2:]
    seen = share.array[:, :, :, None, :, None]
    tiles = xp.broadcast_to(seen, (*share.shape[:3], window, columns, window))
    tiled = tiles.reshape(*share.shape[:2], rows * window, columns * window)
    if tiled.shape == shape:
        return share.with_array(tiled)
    spread = xp.zeros(shape, dtype=tiled.dtype)
    spread[:, :, : rows * window, : columns * window] = tiled
    return share.with_array(spread)


# ---- moves and losses -----------------------------------------------------------------------------------------------


def _reshape(c: Context, x: Value) -> Value:
    return reshaped(x, c.options["shape"])


def _flatten(c: Context, x: Value) -> Value:
    return reshaped(x, (x.shape[0], math.prod(x.shape[1:])))


def _reshape_back(c: Context, g: Value, y: Value, x: Value) -> Value:
    return reshaped(g, x.shape)


def _transpose(c: Context, x: Value) -> Value:
    return x.with_array(x.array.transpose(c.options["axes"]))


def _transpose_back(c: Context, g: Value, y: Value, x: Value) -> Value:
    axes = c.options["axes"]
    return g.with_array(g.array.transpose(sorted(range(len(axes)), key=lambda i: axes[i])))


def _loss(name: str) -> Primitive:
    def forward(c: Context, x: Value, target: Value) -> Value:
        result = c.run(name, x, target, role="loss")
        c.saved = result.array[1:]
        return result.with_array(result.array[0])

    def backward(c: Context, g: Value, y: Value, x: Value, target: Value) -> Value:
        return c.run(f"{name}_gradient", g, x, target, saved=c.saved)

    return Primitive(forward, (backward, None))


#: Every primitive by name.
PRIMITIVES: dict[str, Primitive] = {
    "add": Primitive(elementwise("add"), (_add_back(0), _add_back(1))),
    "subtract": Primitive(elementwise("subtract"), (_add_back(0), _subtract_back)),
    "multiply": Primitive(elementwise("multiply"), (_multiply_back(0), _multiply_back(1))),
    "divide": Primitive(elementwise("divide"), (_divide_back_numerator, _divide_back_denominator)),
    "matmul": Primitive(elementwise("matmul"), (_matmul_back_a, _matmul_back_b)),
    "linear": Primitive(_linear, (_linear_back_x, _linear_back_w, _linear_back_bias)),
    "sparse_linear": Primitive(_sparse_linear, (None, _sparse_linear_back_w, _linear_back_bias)),
    "linear_of_entries": Primitive(_linear_of_entries, (_linear_back_x, _linear_of_entries_back_w, _linear_back_bias)),
    "conv2d": Primitive(_conv2d, (_conv2d_back_x, _conv2d_back_w, _conv2d_back_bias)),
    "sum": Primitive(_sum, (_sum_back,)),
    "relu": Primitive(_relu, (_relu_back,)),
    "sigmoid": Primitive(_function("sigmoid"), (_function_back("sigmoid_slope"),)),
    "tanh": Primitive(_function("tanh"), (_function_back("tanh_slope"),)),
    "max_pool": Primitive(_max_pool, (_max_pool_back,)),
    "avg_pool": Primitive(_avg_pool, (_avg_pool_back,)),
    "reshape": Primitive(_reshape, (_reshape_back,)),
    "flatten": Primitive(_flatten, (_reshape_back,)),
    "transpose": Primitive(_transpose, (_transpose_back,)),
    "softmax_cross_entropy": _loss("softmax_cross_entropy"),
    "mse": _loss("mse"),
    "euclidean": _loss("euclidean"),
    **LAYER_PRIMITIVES,
}
