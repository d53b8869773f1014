"""The table of ONNX's operators: a row is a function that writes the steps of a node and returns its results.

    products.py        Conv, ConvTranspose, Gemm, MatMul
    pooling.py         MaxPool, AveragePool, their global forms
    functions.py       Relu, Sigmoid, Gelu, Softmax ...: of one tensor
    arithmetic.py      Add, Mul, Max ...: of two or more; sums and means along axes
    normalisation.py   BatchNormalization, LayerNormalization ...
    moves.py           Reshape, Concat, Slice, Gather ...
    attention.py       Attention
    integers.py        QuantizeLinear, QLinearAdd ..., and what float operators become between them;
                       integer_products.py has the products of them, elements.py what both share
    qonnx.py           Quant, BipolarQuant, Trunc, FloatQuant of QONNX

A new operator is a function and a line in the `ROWS` of its family.

Source: ONNX, "Operator Schemas", versions 11 to 25.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from emu.interop.onnx.node import Node, Tensor
from emu.interop.onnx.operators import (
    arithmetic,
    attention,
    functions,
    integers,
    moves,
    normalisation,
    pooling,
    products,
    qonnx,
)

FAMILIES = (products, pooling, functions, arithmetic, normalisation, moves, attention, integers, qonnx)
#: What writes the steps of a node, by operator.
OPERATORS: dict[str, Callable[[Node], Sequence[Tensor]]] = {
    name: row for family in FAMILIES for name, row in family.ROWS.items()
}
#: Why some operators are refused, and what to do.
REFUSED = {
    **dict.fromkeys(("LSTM", "GRU", "RNN"), "networks with a state are not computed; unroll it before the export"),
    **dict.fromkeys(("If", "Loop", "Scan"), "graphs are computed without branches and loops; export one branch"),
    **dict.fromkeys(
        (
            "Where",
            "Greater",
            "GreaterOrEqual",
            "Less",
            "LessOrEqual",
            "Equal",
            "Not",
            "And",
            "Or",
            "Xor",
            "IsNaN",
            "Sign",
        ),
        "numbers are not compared while it computes; add a constant mask, or write a choice as Max or Clip",
    ),
    "Einsum": "sums over named axes are not computed; export the network with MatMul",
    **dict.fromkeys(
        ("CumSum", "ScatterND", "ScatterElements", "GatherND", "GatherElements"),
        "numbers are not moved by numbers; give places as constants of Gather or Slice",
    ),
    **dict.fromkeys(
        ("NonZero", "NonMaxSuppression", "Unique", "TopK"),
        "the shape of its result depends on numbers; end the network before it",
    ),
}
