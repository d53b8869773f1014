"""The one door to arithmetic: every operation with its formats, output stage, register and backend.

    description (formats, Mac, output stage) -> planner -> kernel of a backend -> values and counts

Nothing above this layer calls a kernel, nothing below it knows an option's text form.
"""

from emu.engine.elementwise import add, divide, elementwise, fma, multiply, sqrt, subtract
from emu.engine.functions import function
from emu.engine.planner import Plan, explain
from emu.engine.products import conv2d, matmul, total
from emu.engine.quantize import quantize
from emu.engine.selection import max_pool, relu

__all__ = [
    "Plan",
    "add",
    "conv2d",
    "divide",
    "elementwise",
    "explain",
    "fma",
    "function",
    "matmul",
    "max_pool",
    "multiply",
    "quantize",
    "relu",
    "sqrt",
    "subtract",
    "total",
]
