"""Primitives that choose numbers, and functions made of a choice: clipping, slopes below 0, the larger of two."""

from __future__ import annotations

import math

from emu.autodiff.context import Backward, Context, Forward, Primitive, function, summed_to
from emu.formats import Value
from emu.operations.operands import number, rounded


def _clip(c: Context, x: Value) -> Value:
    result = c.run("clip", x, **c.options)
    written, c.saved = result.array
    return result.with_array(written)


def _clip_back(c: Context, g: Value, y: Value, x: Value) -> Value:
    return c.run("kept", g, saved=c.saved, where=True)


def _chosen(name: str) -> Forward:
    def rule(c: Context, a: Value, b: Value) -> Value:
        result = c.run(name, a, b)
        written, c.saved = result.array
        return result.with_array(written)

    return rule


def _chosen_back(position: int) -> Backward:
    def rule(c: Context, g: Value, y: Value, a: Value, b: Value) -> Value:
        # the mask says where the first operand was taken; of equals it was, so the second gets +0 there
        mine = c.run("kept", g, part=f"choice{position}", saved=c.saved, where=position == 0)
        return summed_to(c, mine, (a, b)[position].shape, f"operand{position}")

    return rule


def _absolute(c: Context, x: Value) -> Value:
    return c.run("by_sign", x, x)


def _absolute_back(c: Context, g: Value, y: Value, x: Value) -> Value:
    return c.run("by_sign", g, x)


def _leaky_relu(c: Context, x: Value) -> Value:
    return c.run("by_slope", x, x, rounded(c.options["slope"]))


def _leaky_relu_back(c: Context, g: Value, y: Value, x: Value) -> Value:
    return c.run("by_slope", g, x, rounded(c.options["slope"]))


def _prelu(c: Context, x: Value, slope: Value) -> Value:
    return c.run("by_slope", x, x, slope)


def _prelu_back_x(c: Context, g: Value, y: Value, x: Value, slope: Value) -> Value:
    return c.run("by_slope", g, x, slope)


def _prelu_back_slope(c: Context, g: Value, y: Value, x: Value, slope: Value) -> Value:
    # x where it is below 0, else 0: the derivative by the slope
    below = c.run("clip", x, part="below", least=-math.inf, most=0.0)
    # the mask beside the clipped numbers is not needed
    below = below.with_array(below.array[0])
    return summed_to(c, c.run("multiply", g, below, part="product1"), slope.shape, "operand1")


def _elu(c: Context, x: Value) -> Value:
    return c.run("elu", x, **c.options)


def _elu_back(c: Context, g: Value, y: Value, x: Value) -> Value:
    # two roundings: the slope in the layer's activation format (role `slope`), then its product with g
    return c.run("multiply", g, c.run("elu_slope", x, role="slope", **c.options))


def _exp_back(c: Context, g: Value, y: Value, x: Value) -> Value:
    # the result is the derivative: nothing is computed twice
    return c.run("multiply", g, y)


def _log_back(c: Context, g: Value, y: Value, x: Value) -> Value:
    return c.run("divide", g, x)


def _sqrt_back(c: Context, g: Value, y: Value, x: Value) -> Value:
    """G / (2 y): the halved gradient, divided."""
    # halved first: 2 y could overflow where y does not
    return c.run("divide", c.run("multiply", g, number(0.5), part="halved"), y)


def _erf_back(c: Context, g: Value, y: Value, x: Value) -> Value:
    """G * 2 / sqrt(pi) * exp(-x²)."""
    square = c.run("negate", c.run("multiply", x, x, part="square", role="slope"), part="negated", role="slope")
    bell = c.run("function", square, function="exp", part="bell", role="slope")
    slope = c.run("multiply", bell, rounded(2 / math.sqrt(math.pi)), part="scaled", role="slope")
    return c.run("multiply", g, slope)


def _sqrt(c: Context, x: Value) -> Value:
    return c.run("sqrt", x)


#: The primitives by name.
CHOICES: dict[str, Primitive] = {
    "clip": Primitive(_clip, (_clip_back,)),
    "maximum": Primitive(_chosen("larger"), (_chosen_back(0), _chosen_back(1))),
    "minimum": Primitive(_chosen("smaller"), (_chosen_back(0), _chosen_back(1))),
    "absolute": Primitive(_absolute, (_absolute_back,)),
    "leaky_relu": Primitive(_leaky_relu, (_leaky_relu_back,)),
    "prelu": Primitive(_prelu, (_prelu_back_x, _prelu_back_slope)),
    "elu": Primitive(_elu, (_elu_back,)),
    "exp": Primitive(function("exp"), (_exp_back,)),
    "log": Primitive(function("log"), (_log_back,)),
    "erf": Primitive(function("erf"), (_erf_back,)),
    "sqrt": Primitive(_sqrt, (_sqrt_back,)),
}
