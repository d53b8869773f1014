"""The table of primitives: forward and backward of each, in terms of operations that the runner computes.

Everything that can round is an operation; what only moves is done on the array. A backward rule receives
the gradient of the result, the result and the operands, and returns the gradient of one operand.
"""

from __future__ import annotations

import math
from typing import Any

from emu.autodiff.choice_rules import CHOICES
from emu.autodiff.context import Backward, Context, Primitive, elementwise, function, reshaped, summed_to
from emu.autodiff.integer_rules import INTEGERS
from emu.autodiff.layer_rules import LAYER_PRIMITIVES
from emu.autodiff.moves import MOVES
from emu.autodiff.pooling import POOLING
from emu.backends.arrays import namespace
from emu.formats import Value


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
        # d(a * b) / da = b: the gradient times the other operand, summed over axes that were broadcast
        mine, other = (a, b) if position == 0 else (b, a)
        return summed_to(c, c.run("multiply", g, other, part=f"product{position}"), mine.shape, f"operand{position}")

    return rule


def _divide_back_numerator(c: Context, g: Value, y: Value, a: Value, b: Value) -> Value:
    return summed_to(c, c.run("divide", g, b, part="quotient"), a.shape, "operand0")


def _divide_back_denominator(c: Context, g: Value, y: Value, a: Value, b: Value) -> Value:
    # d(a / b) / db = -(a / b) / b = -y / b: from the result, so that b * b, which may overflow, is not needed
    scaled = c.run("negate", c.run("multiply", g, c.run("divide", y, b, part="slope"), part="product1"), part="negated")
    return summed_to(c, scaled, b.shape, "operand1")


# ---- products -------------------------------------------------------------------------------------------------------


def _linear(c: Context, x: Value, w: Value, *bias: Value) -> Value:
    """X (..., in) times w (out, in) transposed, plus bias (out,): one product, its rows in C order."""
    # all axes but the last are rows of one matrix: (N * T, in)
    y = c.weigh("matmul", ("activation", "weight"), _rows(x), _swapped(w), *bias)
    return reshaped(y, (*x.shape[:-1], w.shape[0]))


def _linear_back_x(c: Context, g: Value, y: Value, x: Value, w: Value, *bias: Value) -> Value:
    # w (out, in) multiplies as it is stored: g (rows, out) times w
    return reshaped(c.weigh("matmul", ("error", "weight"), _rows(g), w), x.shape)


def _linear_back_w(c: Context, g: Value, y: Value, x: Value, w: Value, *bias: Value) -> Value:
    # g^T (out, rows) times x (rows, in): k runs over the rows, examples in C order
    return c.weigh("matmul", ("error", "activation"), _swapped(_rows(g)), _rows(x))


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
    # the entries are kept: the gradient of w has the same terms
    c.saved = c.run("sparse_entries", _rows(x))
    y = c.run("sparse_matmul", c.saved, _swapped(w), *bias, entries=c.saved.array.size)
    return reshaped(y, (*x.shape[:-1], w.shape[0]))


def _linear_of_entries_back_w(c: Context, g: Value, y: Value, x: Value, w: Value, *bias: Value) -> Value:
    # entries transposed times g is (in, out); the weight is stored as (out, in)
    return _swapped(c.run("sparse_transposed_matmul", c.saved, _rows(g), entries=c.saved.array.size))


def _matmul_back_a(c: Context, g: Value, y: Value, a: Value, b: Value) -> Value:
    # batch axes that were broadcast are summed, as those of elementwise operations
    return summed_to(c, c.run("matmul", g, _swapped(b), part="product0"), a.shape, "operand0")


def _matmul_back_b(c: Context, g: Value, y: Value, a: Value, b: Value) -> Value:
    return summed_to(c, c.run("matmul", _swapped(a), g, part="product1"), b.shape, "operand1")


def _conv2d(c: Context, x: Value, w: Value, *bias: Value) -> Value:
    return c.weigh("conv2d", ("activation", "weight"), x, w, *bias, **c.options)


def _conv2d_back_x(c: Context, g: Value, y: Value, x: Value, w: Value, *bias: Value) -> Value:
    # `run`, not `weigh`: the factors of these two products are not cast
    return c.run("conv2d_input_gradient", g, w, shape=x.shape, **c.options)


def _conv2d_back_w(c: Context, g: Value, y: Value, x: Value, w: Value, *bias: Value) -> Value:
    return c.run("conv2d_weight_gradient", x, g, kernel=w.shape[2:], **c.options)


def _conv2d_back_bias(c: Context, g: Value, y: Value, x: Value, w: Value, bias: Value) -> Value:
    return c.run("sum", g, part="bias", axis=(0, 2, 3))


def _transposed_conv2d(c: Context, x: Value, w: Value) -> Value:
    """The convolution whose way back leads from x to the result; `sizes` are rows and columns of that."""
    # (N, C, H, W) of the image whose convolution would give x
    shape = (x.shape[0], w.shape[1] * c.options["groups"], *c.options["sizes"])
    return c.run("conv2d_input_gradient", x, w, shape=shape, **_slide(c))


def _transposed_conv2d_back_x(c: Context, g: Value, y: Value, x: Value, w: Value) -> Value:
    return c.run("conv2d", g, w, **_slide(c))


def _transposed_conv2d_back_w(c: Context, g: Value, y: Value, x: Value, w: Value) -> Value:
    # operands change places: of the convolution that this one transposes, g is the image and x the error
    return c.run("conv2d_weight_gradient", g, x, kernel=w.shape[2:], **_slide(c))


def _slide(c: Context) -> dict[str, Any]:
    """Return how the kernels slide."""
    return {name: option for name, option in c.options.items() if name != "sizes"}


def _sum(c: Context, x: Value) -> Value:
    return c.run("sum", x, axis=c.options["axis"])


def _sum_back(c: Context, g: Value, y: Value, x: Value) -> Value:
    axes = {axis % len(x.shape) for axis in c.options["axis"]}
    kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    xp = namespace(g.array)
    return g.with_array(xp.broadcast_to(g.array.reshape(kept), x.shape))


# ---- functions ------------------------------------------------------------------------------------------------------


def _function_back(slope: str) -> Backward:
    """The slope is written in the layer's activation format, then the gradient's product with it in its own."""

    def rule(c: Context, g: Value, y: Value, x: Value) -> Value:
        # from the result y, not from x: sigmoid and tanh have slopes in terms of themselves
        return c.run("multiply", g, c.run(slope, y, role="slope"))

    return rule


def _relu(c: Context, x: Value) -> Value:
    return c.run("relu", x)


def _relu_back(c: Context, g: Value, y: Value, x: Value) -> Value:
    return c.run("select", g, x)


# ---- losses ---------------------------------------------------------------------------------------------------------


def _loss(name: str) -> Primitive:
    def forward(c: Context, x: Value, target: Value) -> Value:
        result = c.run(name, x, target, role="loss")
        # the host's arrays for the backward pass: probabilities, differences or directions
        c.saved = result.array[1:]
        return result.with_array(result.array[0])

    def backward(c: Context, g: Value, y: Value, x: Value, target: Value) -> Value:
        return c.run(f"{name}_gradient", g, x, target, saved=c.saved)

    # no gradient flows to the labels
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
    "transposed_conv2d": Primitive(_transposed_conv2d, (_transposed_conv2d_back_x, _transposed_conv2d_back_w)),
    "sum": Primitive(_sum, (_sum_back,)),
    "relu": Primitive(_relu, (_relu_back,)),
    "sigmoid": Primitive(function("sigmoid"), (_function_back("sigmoid_slope"),)),
    "tanh": Primitive(function("tanh"), (_function_back("tanh_slope"),)),
    "softmax_cross_entropy": _loss("softmax_cross_entropy"),
    "mse": _loss("mse"),
    "euclidean": _loss("euclidean"),
    **POOLING,
    **CHOICES,
    **INTEGERS,
    **MOVES,
    **LAYER_PRIMITIVES,
}
