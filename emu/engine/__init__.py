"""The engine: all arithmetic goes through it, every operation with its formats, output stage, register and backend.

    unit (description) + operands -> path -> kernel of a backend -> delivery: values and counts

`Unit` has every operation as a method; the functions are the same operations with a unit described by their options.
Packages above it never call a kernel; packages below it never read the text form of an option.
"""

from emu.engine.convolution import conv2d
from emu.engine.description import Options, ProductOptions
from emu.engine.elementwise import (
    add,
    compare,
    divide,
    elementwise,
    fma,
    multiply,
    remainder,
    round_to_integral,
    sqrt,
    subtract,
)
from emu.engine.functions import erf, exp, function, gelu, log, rsqrt, sigmoid, tanh
from emu.engine.path import explain
from emu.engine.planner import Plan
from emu.engine.products import matmul
from emu.engine.quantize import quantize
from emu.engine.records import ProductRecord
from emu.engine.reductions import average, total
from emu.engine.requantise import requantise
from emu.engine.selection import max_pool, relu, relu_gradient, unpool
from emu.engine.unit import Unit
from emu.engine.values import value

__all__ = [
    "Options",
    "Plan",
    "ProductOptions",
    "ProductRecord",
    "Unit",
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
    "remainder",
    "requantise",
    "round_to_integral",
    "rsqrt",
    "sigmoid",
    "sqrt",
    "subtract",
    "tanh",
    "total",
    "unpool",
    "value",
]
