"""The one door to arithmetic: every operation with its formats, output stage, register and backend.

    description (formats, Mac, output stage) -> planner -> kernel of a backend -> values and counts

Nothing above this layer calls a kernel, nothing below it knows an option's text form.
"""

from emu.engine.convolution import conv2d
from emu.engine.elementwise import add, compare, divide, elementwise, fma, multiply, sqrt, subtract
from emu.engine.functions import erf, exp, function, gelu, log, rsqrt, sigmoid, tanh
from emu.engine.planner import Plan, explain
from emu.engine.products import matmul
from emu.engine.quantize import quantize
from emu.engine.reductions import average, total
from emu.engine.selection import max_pool, relu, relu_gradient, unpool
from emu.engine.work import WorkRecord

__all__ = [
    "Plan",
    "WorkRecord",
    "add",
    "average",
    "compare",
    "conv2d",
    "divide",
    "elementwise",
    "erf",
    "exp",
    "explain",
    "fma",
    "function",
    "gelu",
    "log",
    "matmul",
    "max_pool",
    "multiply",
    "quantize",
    "relu",
    "relu_gradient",
    "rsqrt",
    "sigmoid",
    "sqrt",
    "subtract",
    "tanh",
    "total",
    "unpool",
]
